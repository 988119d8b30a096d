//! A small client without IO, for tests and simulated devices: packet identifiers and the packets around
//! them.
//!
//! # Call order
//! [`Client::connect`], then [`Client::receive`] for what arrives, with [`Client::answer`] for every packet
//! that it yields; in between whatever the client has to say. All methods append to a buffer of the caller.

use crate::codec::{Decoded, Encode, PublishHeader, decode_next, encode_publish_header};
use crate::error::{DecodeError, EncodeError};
use crate::id_table::IdTable;
use crate::limits::DecodeLimits;
use crate::packet::{Ack, Connect, Disconnect, Packet, Publish, Subscribe, SubscribeFilter, Unsubscribe};
use crate::property::PropertyList;
use crate::reason::ReasonCode;
use crate::types::{PacketId, PacketType, Qos, Version};
use alloc::vec::Vec;
use core::num::NonZeroU16;
use thiserror::Error;

/// Most SUBSCRIBE and UNSUBSCRIBE packets that a client has unanswered.
pub const REQUESTS_MAX: u16 = 64;

const MESSAGE: u8 = 0;
const REQUEST: u8 = 1;

/// Packet identifiers of one side: counted up, wrapped around, never one that is in use `[MQTT-2.2.1-3]`.
///
/// Messages are bounded by a window, which starts as what the owner wants and shrinks to the peer's Receive
/// Maximum; requests (SUBSCRIBE, UNSUBSCRIBE) by [`REQUESTS_MAX`].
#[derive(Clone, Debug)]
pub struct PacketIds {
    table: IdTable,
    next: PacketId,
    window: u16,
    messages: u16,
    requests: u16,
}

impl PacketIds {
    /// No identifier in use; the first one is 1. At most `window` messages at a time.
    pub const fn new(window: u16) -> PacketIds {
        PacketIds { table: IdTable::new(), next: PacketId::MIN, window, messages: 0, requests: 0 }
    }

    /// Changes the window. Messages beyond it stay in use; there are no new ones until enough are released.
    pub fn set_window(&mut self, window: u16) {
        self.window = window;
    }

    /// Messages in use.
    pub const fn messages(&self) -> u16 {
        self.messages
    }

    /// An identifier for a PUBLISH; `None` if the window is full.
    #[inline]
    pub fn allocate_message(&mut self) -> Option<PacketId> {
        if self.messages >= self.window {
            return None;
        }
        let id = self.take(MESSAGE)?;
        self.messages += 1;
        Some(id)
    }

    /// An identifier for a SUBSCRIBE or UNSUBSCRIBE; `None` if [`REQUESTS_MAX`] are in use.
    pub fn allocate_request(&mut self) -> Option<PacketId> {
        if self.requests >= REQUESTS_MAX {
            return None;
        }
        let id = self.take(REQUEST)?;
        self.requests += 1;
        Some(id)
    }

    /// Marks the identifier of a message of an earlier connection as in use. Returns whether it was free.
    pub fn reserve_message(&mut self, id: PacketId) -> bool {
        let free = self.table.get(id).is_none();
        if free {
            self.table.set(id, MESSAGE);
            self.messages += 1;
        }
        free
    }

    /// Gives an identifier back. Returns whether it was in use.
    #[inline]
    pub fn release(&mut self, id: PacketId) -> bool {
        match self.table.remove(id) {
            Some(MESSAGE) => self.messages -= 1,
            Some(_) => self.requests -= 1,
            None => return false,
        }
        true
    }

    /// The next free identifier.
    #[inline]
    fn take(&mut self, state: u8) -> Option<PacketId> {
        if self.table.len() >= usize::from(u16::MAX) {
            return None;
        }
        while self.table.get(self.next).is_some() {
            self.next = self.next.next();
        }
        let id = self.next;
        self.table.set(id, state);
        self.next = id.next();
        Some(id)
    }
}

/// Why a client did not write a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ClientError {
    /// As many packets as allowed are unanswered; the call may be repeated after the next acknowledgement.
    #[error("too many unanswered packets")]
    WindowFull,
    /// The packet cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// A client's end of a connection. It remembers identifiers and no messages: it repeats nothing.
#[derive(Clone, Debug)]
pub struct Client {
    version: Version,
    limits: DecodeLimits,
    ids: PacketIds,
}

impl Client {
    /// A client that has not connected. At most `window` of its messages are unacknowledged.
    pub const fn new(version: Version, limits: DecodeLimits, window: u16) -> Client {
        Client { version, limits, ids: PacketIds::new(window) }
    }

    /// The version that the client speaks.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// The identifiers in use.
    pub const fn ids(&self) -> &PacketIds {
        &self.ids
    }

    /// Writes CONNECT in the version that it names.
    ///
    /// # Errors
    /// [`EncodeError`].
    pub fn connect<P: PropertyList>(
        &mut self,
        out: &mut Vec<u8>,
        connect: &Connect<'_, P>,
    ) -> Result<(), EncodeError> {
        self.version = connect.version;
        connect.encode(connect.version, out)
    }

    /// Writes a PUBLISH and returns its identifier, `None` with QoS 0.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn publish(
        &mut self,
        out: &mut Vec<u8>,
        qos: Qos,
        topic: &str,
        payload: &[u8],
        properties: impl PropertyList,
    ) -> Result<Option<PacketId>, ClientError> {
        let packet_id = match qos {
            Qos::AtMostOnce => None,
            Qos::AtLeastOnce | Qos::ExactlyOnce => {
                Some(self.ids.allocate_message().ok_or(ClientError::WindowFull)?)
            }
        };
        let header = PublishHeader { dup: false, qos, retain: false, topic, packet_id, properties };
        if let Err(error) = encode_publish_header(out, self.version, &header, payload.len()) {
            packet_id.map(|id| self.ids.release(id));
            return Err(error.into());
        }
        out.extend_from_slice(payload);
        Ok(packet_id)
    }

    /// Writes SUBSCRIBE and returns its identifier.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn subscribe<'f>(
        &mut self,
        out: &mut Vec<u8>,
        filters: impl IntoIterator<Item = SubscribeFilter<'f>> + Clone,
        properties: impl PropertyList,
    ) -> Result<PacketId, ClientError> {
        let packet_id = self.ids.allocate_request().ok_or(ClientError::WindowFull)?;
        self.request(out, packet_id, &Subscribe { packet_id, properties, filters })
    }

    /// Writes UNSUBSCRIBE and returns its identifier.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn unsubscribe<'f>(
        &mut self,
        out: &mut Vec<u8>,
        filters: impl IntoIterator<Item = &'f str> + Clone,
        properties: impl PropertyList,
    ) -> Result<PacketId, ClientError> {
        let packet_id = self.ids.allocate_request().ok_or(ClientError::WindowFull)?;
        self.request(out, packet_id, &Unsubscribe { packet_id, properties, filters })
    }

    /// Writes PINGREQ.
    pub fn ping(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[PacketType::Pingreq.first_byte(), 0]);
    }

    /// Writes DISCONNECT.
    ///
    /// # Errors
    /// [`EncodeError`].
    pub fn disconnect(
        &self,
        out: &mut Vec<u8>,
        reason: ReasonCode,
        properties: impl PropertyList,
    ) -> Result<(), EncodeError> {
        Disconnect { reason, properties }.encode(self.version, out)
    }

    /// Takes the packet that `input` starts with, and releases the identifier that it is the last word on.
    /// CONNACK shrinks the window to the server's Receive Maximum.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn receive<'a>(&mut self, input: &'a [u8]) -> Result<Decoded<'a>, DecodeError> {
        let decoded = decode_next(self.version, input, &self.limits)?;
        if let Decoded::Packet { packet, .. } = &decoded {
            self.note(packet);
        }
        Ok(decoded)
    }

    /// Writes what the protocol answers to a packet: PUBACK, PUBREC, PUBREL, PUBCOMP or nothing.
    ///
    /// # Errors
    /// [`EncodeError`].
    pub fn answer(&self, out: &mut Vec<u8>, packet: &Packet<'_>) -> Result<(), EncodeError> {
        let (kind, packet_id) = match packet {
            Packet::Publish(Publish { packet_id: Some(id), qos: Qos::AtLeastOnce, .. }) => {
                (PacketType::Puback, *id)
            }
            Packet::Publish(Publish { packet_id: Some(id), .. }) => (PacketType::Pubrec, *id),
            Packet::Pubrec(ack) if !ack.reason.is_error() => (PacketType::Pubrel, ack.packet_id),
            Packet::Pubrel(ack) => (PacketType::Pubcomp, ack.packet_id),
            _ => return Ok(()),
        };
        Ack { packet_id, reason: ReasonCode::Success, properties: () }.encode_as(kind, self.version, out)
    }

    fn request(
        &mut self,
        out: &mut Vec<u8>,
        packet_id: PacketId,
        packet: &impl Encode,
    ) -> Result<PacketId, ClientError> {
        match packet.encode(self.version, out) {
            Ok(()) => Ok(packet_id),
            Err(error) => {
                self.ids.release(packet_id);
                Err(error.into())
            }
        }
    }

    fn note(&mut self, packet: &Packet<'_>) {
        match packet {
            Packet::Connack(connack) => {
                let receive_maximum = connack.properties.receive_maximum().map_or(u16::MAX, NonZeroU16::get);
                self.ids.set_window(self.ids.window.min(receive_maximum));
            }
            Packet::Puback(ack) | Packet::Pubcomp(ack) => drop(self.ids.release(ack.packet_id)),
            Packet::Pubrec(ack) if ack.reason.is_error() => drop(self.ids.release(ack.packet_id)),
            Packet::Suback(suback) => drop(self.ids.release(suback.packet_id)),
            Packet::Unsuback(unsuback) => drop(self.ids.release(unsuback.packet_id)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_wrap_around_those_in_use() {
        let mut ids = PacketIds::new(2);
        assert!(ids.reserve_message(PacketId::MIN));
        assert!(!ids.reserve_message(PacketId::MIN));
        for expected in (2..=u16::MAX).chain([2]) {
            assert_eq!(ids.allocate_message().map(PacketId::get), Some(expected));
            assert_eq!(ids.allocate_message(), None, "the window is full");
            assert!(ids.release(PacketId::new(expected).unwrap()));
        }
        assert!(ids.release(PacketId::MIN));
        assert!(!ids.release(PacketId::MIN));
        assert_eq!(ids.messages(), 0);
    }

    #[test]
    fn requests_have_a_bound_of_their_own() {
        let mut ids = PacketIds::new(0);
        assert!((0..REQUESTS_MAX).all(|_| ids.allocate_request().is_some()));
        assert_eq!(ids.allocate_request(), None);
    }
}
