//! Packets to the client, appended to a buffer of the caller.

use super::alias::Outbound;
use super::{Connection, Phase};
use crate::codec::{Encode, PublishHeader, encode_publish_header, publish_len};
use crate::error::EncodeError;
use crate::packet::{Ack, Disconnect, Packet, Suback, Unsuback};
use crate::property::{Property, PropertyList};
use crate::reason::ReasonCode;
use crate::types::{PacketId, PacketType, TopicAlias};
use alloc::vec::Vec;
use thiserror::Error;

/// Why a packet was not written. Nothing has been appended then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// The packet exceeds the client's Maximum Packet Size `[MQTT-3.1.2-24]`. A message counts as delivered
    /// then `[MQTT-3.1.2-25]`.
    #[error("a packet of {bytes} bytes where the client takes {bytes_max}")]
    TooLarge {
        /// Bytes of the packet.
        bytes: usize,
        /// The client's limit.
        bytes_max: u32,
    },
    /// The packet cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The state of the connection does not allow the packet.
    #[error("the connection does not allow this packet now")]
    NotOpen,
}

impl Connection {
    /// Writes PUBACK and gives the quota back. `diagnostics` may hold a reason string and user properties;
    /// they are dropped if the client does not want them or they do not fit `[MQTT-3.4.2-2]`,
    /// `[MQTT-3.1.2-29]`.
    ///
    /// Returns whether it was written: not if the message did not come from this connection.
    #[inline]
    pub fn puback(
        &mut self,
        out: &mut Vec<u8>,
        id: PacketId,
        reason: ReasonCode,
        diagnostics: impl PropertyList,
    ) -> bool {
        let due = self.phase == Phase::Open && self.inbound.acknowledge(id);
        if due {
            self.write_ack(out, PacketType::Puback, id, reason, diagnostics);
        }
        due
    }

    /// Writes PUBREC. With an error it gives the quota back and ends the exchange (MQTT 5.0, 4.9). Otherwise
    /// like [`Connection::puback`]. Before MQTT 5.0 there are no errors: do not take them for a way to refuse
    /// a message.
    pub fn pubrec(
        &mut self,
        out: &mut Vec<u8>,
        id: PacketId,
        reason: ReasonCode,
        diagnostics: impl PropertyList,
    ) -> bool {
        let error = reason.is_error() && self.version.is_v5();
        let due = self.phase == Phase::Open && self.inbound.take(self.version, id, error);
        if due {
            self.write_ack(out, PacketType::Pubrec, id, reason, diagnostics);
        }
        due
    }

    /// Writes PUBCOMP and gives the quota back. With `PacketIdentifierNotFound` it is written for any
    /// identifier, otherwise like [`Connection::puback`]. To a client that goes on with a session it then says `Success`: it may
    /// release once more what was completed before its connection was lost, which is no error (MQTT 5.0, 3.7.2.1), but clients
    /// take the other code for one, and publish again.
    pub fn pubcomp(
        &mut self,
        out: &mut Vec<u8>,
        id: PacketId,
        reason: ReasonCode,
        diagnostics: impl PropertyList,
    ) -> bool {
        let unknown = reason == ReasonCode::PacketIdentifierNotFound;
        let due = self.phase == Phase::Open && (self.inbound.complete(id) || unknown);
        if due {
            let reason = if unknown && self.resumed { ReasonCode::Success } else { reason };
            self.write_ack(out, PacketType::Pubcomp, id, reason, diagnostics);
        }
        due
    }

    /// Writes PUBREL for a message of the server `[MQTT-4.3.3-4]`. The answer to a PUBREC whose identifier is
    /// not known has `PacketIdentifierNotFound` for its reason (MQTT 5.0, 3.6.2.1).
    ///
    /// # Errors
    /// [`SendError::NotOpen`].
    pub fn pubrel(&mut self, out: &mut Vec<u8>, id: PacketId, reason: ReasonCode) -> Result<(), SendError> {
        self.check_open()?;
        self.write_ack(out, PacketType::Pubrel, id, reason, ());
        Ok(())
    }

    /// Writes SUBACK with a code per filter `[MQTT-3.9.3-1]`; diagnostics as in [`Connection::puback`].
    ///
    /// # Errors
    /// [`SendError`].
    pub fn suback(
        &mut self,
        out: &mut Vec<u8>,
        packet_id: PacketId,
        reasons: impl IntoIterator<Item = ReasonCode> + Clone,
        diagnostics: impl PropertyList,
    ) -> Result<(), SendError> {
        self.check_open()?;
        self.send_optional(out, &diagnostics, |properties| Suback {
            packet_id,
            properties,
            reasons: reasons.clone(),
        })
    }

    /// Writes UNSUBACK with a code per filter `[MQTT-3.11.3-1]`; diagnostics as in [`Connection::puback`].
    ///
    /// # Errors
    /// [`SendError`].
    pub fn unsuback(
        &mut self,
        out: &mut Vec<u8>,
        packet_id: PacketId,
        reasons: impl IntoIterator<Item = ReasonCode> + Clone,
        diagnostics: impl PropertyList,
    ) -> Result<(), SendError> {
        self.check_open()?;
        self.send_optional(out, &diagnostics, |properties| Unsuback {
            packet_id,
            properties,
            reasons: reasons.clone(),
        })
    }

    /// Writes PINGRESP.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn pingresp(&mut self, out: &mut Vec<u8>) -> Result<(), SendError> {
        self.check_open()?;
        Ok(Packet::Pingresp.encode(self.version, out)?)
    }

    /// Ends the conversation. Writes DISCONNECT in MQTT 5.0 `[MQTT-3.14.0-1]`; if the client is not accepted
    /// yet, CONNACK with the reason instead; nothing in other cases. `details` may hold a reason string, a
    /// server reference and user properties; they are dropped if they do not fit.
    pub fn disconnect(&mut self, out: &mut Vec<u8>, reason: ReasonCode, details: impl PropertyList) {
        match self.phase {
            Phase::Open => self.write_disconnect(out, reason, details),
            Phase::Login => self.write_refusal(out, reason, details),
            Phase::AwaitConnect | Phase::Closed => {}
        }
        self.phase = Phase::Closed;
    }

    /// Writes a PUBLISH up to its payload, which the caller sends behind it with exactly `payload_len` bytes.
    /// A topic alias takes the topic's place where the client allows it; `header.properties` must not hold
    /// one.
    ///
    /// # Errors
    /// [`SendError`]; no alias is used up then.
    #[inline]
    pub fn publish_header<P: PropertyList>(
        &mut self,
        out: &mut Vec<u8>,
        header: &PublishHeader<'_, P>,
        payload_len: usize,
    ) -> Result<(), SendError> {
        self.check_open()?;
        if self.outbound_aliases_max() > 0 {
            return self.publish_with_alias(out, header, payload_len);
        }
        self.write_publish(out, header, payload_len)
    }

    /// Writes a whole PUBLISH. Otherwise like [`Connection::publish_header`].
    ///
    /// # Errors
    /// [`SendError`].
    #[inline]
    pub fn publish<P: PropertyList>(
        &mut self,
        out: &mut Vec<u8>,
        header: &PublishHeader<'_, P>,
        payload: &[u8],
    ) -> Result<(), SendError> {
        self.publish_header(out, header, payload.len())?;
        out.extend_from_slice(payload);
        Ok(())
    }

    #[inline]
    fn outbound_aliases_max(&self) -> u16 {
        self.client_topic_alias_maximum.min(self.limits.outbound_aliases_max)
    }

    fn publish_with_alias<P: PropertyList>(
        &mut self,
        out: &mut Vec<u8>,
        header: &PublishHeader<'_, P>,
        payload_len: usize,
    ) -> Result<(), SendError> {
        let (aliases_max, bytes_max) = (self.outbound_aliases_max(), self.limits.outbound_alias_bytes_max);
        match self.extras().outbound_aliases.find(header.topic, aliases_max, bytes_max) {
            Outbound::Plain => self.write_publish(out, header, payload_len),
            Outbound::Known(alias) => self.write_publish(out, &with_alias(header, "", alias), payload_len),
            Outbound::Fresh(alias) => {
                self.write_publish(out, &with_alias(header, header.topic, alias), payload_len)?;
                self.extras().outbound_aliases.push(header.topic);
                Ok(())
            }
        }
    }

    #[inline]
    fn write_publish<P: PropertyList>(
        &self,
        out: &mut Vec<u8>,
        header: &PublishHeader<'_, P>,
        payload_len: usize,
    ) -> Result<(), SendError> {
        if self.client_packet_bytes_max != u32::MAX {
            self.check_size(publish_len(self.version, header, payload_len)?)?;
        }
        Ok(encode_publish_header(out, self.version, header, payload_len)?)
    }

    pub(super) fn write_disconnect(
        &mut self,
        out: &mut Vec<u8>,
        reason: ReasonCode,
        details: impl PropertyList,
    ) {
        if !self.version.is_v5() {
            return;
        }
        let reason = match reason.is_valid_in(PacketType::Disconnect) {
            true => reason,
            false => ReasonCode::UnspecifiedError,
        };
        // A client that takes no DISCONNECT learns it from the closed connection.
        let _ = self.send_diagnosed(out, &details, |properties| Disconnect { reason, properties });
    }

    #[inline]
    fn write_ack(
        &self,
        out: &mut Vec<u8>,
        kind: PacketType,
        packet_id: PacketId,
        reason: ReasonCode,
        diagnostics: impl PropertyList,
    ) {
        if self.problem_information {
            let ack = Ack { packet_id, reason, properties: &diagnostics };
            let fits = ack.packet_len(self.version).is_ok_and(|bytes| self.check_size(bytes).is_ok());
            if fits && ack.encode_as(kind, self.version, out).is_ok() {
                return;
            }
        }
        let bare = Ack { packet_id, reason, properties: () };
        bare.encode_as(kind, self.version, out).expect("an acknowledgement without properties has 5 bytes");
    }

    /// Sends a packet whose diagnostics the client may have declined (Request Problem Information).
    fn send_optional<'l, L: PropertyList, W: Encode>(
        &self,
        out: &mut Vec<u8>,
        diagnostics: &'l L,
        packet: impl Fn(Option<&'l L>) -> W,
    ) -> Result<(), SendError> {
        match self.problem_information {
            true => self.send_diagnosed(out, diagnostics, packet),
            false => self.send(out, &packet(None)),
        }
    }

    /// Sends a packet with its diagnostics, or without them if they do not fit.
    pub(super) fn send_diagnosed<'l, L: PropertyList, W: Encode>(
        &self,
        out: &mut Vec<u8>,
        diagnostics: &'l L,
        packet: impl Fn(Option<&'l L>) -> W,
    ) -> Result<(), SendError> {
        match self.send(out, &packet(Some(diagnostics))) {
            Ok(()) => Ok(()),
            Err(_) => self.send(out, &packet(None)),
        }
    }

    pub(super) fn send(&self, out: &mut Vec<u8>, packet: &impl Encode) -> Result<(), SendError> {
        self.check_size(packet.packet_len(self.version)?)?;
        Ok(packet.encode(self.version, out)?)
    }

    fn check_open(&self) -> Result<(), SendError> {
        if self.phase == Phase::Open { Ok(()) } else { Err(SendError::NotOpen) }
    }

    #[inline]
    pub(super) fn check_size(&self, bytes: usize) -> Result<(), SendError> {
        match u64::try_from(bytes) {
            Ok(len) if len <= u64::from(self.client_packet_bytes_max) => Ok(()),
            _ => Err(SendError::TooLarge { bytes, bytes_max: self.client_packet_bytes_max }),
        }
    }
}

/// The header with another topic name and an alias.
fn with_alias<'h, P: PropertyList>(
    header: &'h PublishHeader<'_, P>,
    topic: &'h str,
    alias: TopicAlias,
) -> PublishHeader<'h, (Property<'static>, &'h P)> {
    let PublishHeader { dup, qos, retain, topic: _, packet_id, ref properties } = *header;
    PublishHeader {
        dup,
        qos,
        retain,
        topic,
        packet_id,
        properties: (Property::TopicAlias(alias), properties),
    }
}
