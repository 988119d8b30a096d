//! Packets other than CONNECT to bytes. Every length is computed before the first byte is written.

use super::write;
use crate::error::EncodeError;
use crate::packet::{
    Ack, Auth, Connack, Disconnect, Packet, Publish, Suback, Subscribe, SubscribeFilter, Unsuback,
    Unsubscribe,
};
use crate::property::PropertyList;
use crate::reason::{ConnectReturnCode, ReasonCode};
use crate::types::{PacketId, PacketType, Qos, Version};
use alloc::vec::Vec;

/// A packet that can be written. CONNECT is written in its own version, whatever the argument says.
///
/// Before MQTT 5.0 properties are left out, and reason codes where the version has none. What the version
/// cannot say otherwise is an error.
pub trait Encode {
    /// Packet type and flags.
    fn first_byte(&self) -> u8;

    /// Bytes after the fixed header.
    ///
    /// # Errors
    /// All errors of [`Encode::encode`] other than the size of the whole packet.
    fn body_len(&self, version: Version) -> Result<usize, EncodeError>;

    /// Appends exactly `body_len` bytes, which [`Encode::body_len`] has returned.
    fn write_body(&self, version: Version, body_len: usize, out: &mut Vec<u8>);

    /// Bytes of the whole packet.
    ///
    /// # Errors
    /// As [`Encode::encode`].
    #[inline]
    fn packet_len(&self, version: Version) -> Result<usize, EncodeError> {
        let body_len = write::checked_variable(self.body_len(version)?)?;
        Ok(1 + write::variable_len(body_len) + body_len as usize)
    }

    /// Appends the packet to `out`.
    ///
    /// # Errors
    /// [`EncodeError`]; nothing is written then.
    #[inline]
    fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let body_len = write::checked_variable(self.body_len(version)?)?;
        let packet_len = 1 + write::variable_len(body_len) + body_len as usize;
        out.reserve(packet_len);
        let end = out.len() + packet_len;
        out.push(self.first_byte());
        write::variable(out, body_len);
        self.write_body(version, body_len as usize, out);
        debug_assert_eq!(out.len(), end, "a packet is as long as its header says");
        Ok(())
    }
}

/// A PUBLISH without its payload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishHeader<'a, P> {
    /// Whether this may be a repetition; not sent with QoS 0.
    pub dup: bool,
    /// Quality of service of this transfer.
    pub qos: Qos,
    /// Retain flag.
    pub retain: bool,
    /// The topic name; empty only beside a topic alias.
    pub topic: &'a str,
    /// The packet identifier: `Some` exactly if the quality of service is not 0.
    pub packet_id: Option<PacketId>,
    /// The properties.
    pub properties: P,
}

impl<P: PropertyList> PublishHeader<'_, P> {
    #[inline]
    fn first_byte(&self) -> u8 {
        let dup = self.dup && self.qos != Qos::AtMostOnce;
        PacketType::Publish.first_byte() | u8::from(dup) << 3 | self.qos.bits() << 1 | u8::from(self.retain)
    }

    /// Bytes of topic and packet identifier.
    #[inline]
    fn prefix_len(&self) -> Result<usize, EncodeError> {
        if self.packet_id.is_some() != (self.qos != Qos::AtMostOnce) {
            return Err(EncodeError::PacketId);
        }
        let id_len = if self.packet_id.is_some() { 2 } else { 0 };
        Ok(write::binary_len(self.topic.len())? + id_len)
    }
}

/// Bytes of a whole PUBLISH with a payload of `payload_len` bytes.
///
/// # Errors
/// As [`encode_publish_header`].
#[inline]
pub fn publish_len<P: PropertyList>(
    version: Version,
    header: &PublishHeader<'_, P>,
    payload_len: usize,
) -> Result<usize, EncodeError> {
    let before_payload = header.prefix_len()? + write::properties_len(version, &header.properties)?;
    let body_len = write::checked_variable(before_payload.saturating_add(payload_len))?;
    Ok(1 + write::variable_len(body_len) + body_len as usize)
}

/// Appends a PUBLISH up to its payload, which must follow with exactly `payload_len` bytes.
///
/// # Errors
/// [`EncodeError`]; nothing is written then.
#[inline]
pub fn encode_publish_header<P: PropertyList>(
    out: &mut Vec<u8>,
    version: Version,
    header: &PublishHeader<'_, P>,
    payload_len: usize,
) -> Result<(), EncodeError> {
    let block_len = write::properties_len(version, &header.properties)?;
    let before_payload = header.prefix_len()? + block_len;
    let body_len = write::checked_variable(before_payload.saturating_add(payload_len))?;
    out.reserve(5 + before_payload);
    write_start(out, header.first_byte(), body_len, header.topic.len() as u16);
    out.extend_from_slice(header.topic.as_bytes());
    if let Some(packet_id) = header.packet_id {
        out.extend_from_slice(&packet_id.get().to_be_bytes());
    }
    write::properties(out, &header.properties, block_len);
    Ok(())
}

/// The fixed header and the topic's length, in one piece where the remaining length has one byte.
#[inline]
fn write_start(out: &mut Vec<u8>, first_byte: u8, body_len: u32, topic_len: u16) {
    let [high, low] = topic_len.to_be_bytes();
    match body_len {
        0..=0x7f => out.extend_from_slice(&[first_byte, body_len as u8, high, low]),
        0x80..=0x3fff => {
            out.extend_from_slice(&[first_byte, body_len as u8 | 0x80, (body_len >> 7) as u8, high, low]);
        }
        _ => {
            out.push(first_byte);
            write::variable(out, body_len);
            out.extend_from_slice(&[high, low]);
        }
    }
}

impl<P: PropertyList> Publish<'_, P> {
    /// Everything but the payload.
    #[inline]
    pub fn header(&self) -> PublishHeader<'_, &P> {
        let Publish { dup, qos, retain, topic, packet_id, properties, payload: _ } = self;
        PublishHeader { dup: *dup, qos: *qos, retain: *retain, topic, packet_id: *packet_id, properties }
    }
}

impl<P: PropertyList> Encode for Publish<'_, P> {
    fn first_byte(&self) -> u8 {
        self.header().first_byte()
    }

    fn body_len(&self, version: Version) -> Result<usize, EncodeError> {
        let before_payload = self.header().prefix_len()? + write::properties_len(version, &self.properties)?;
        Ok(before_payload + self.payload.len())
    }

    fn write_body(&self, _: Version, body_len: usize, out: &mut Vec<u8>) {
        let id_len = if self.packet_id.is_some() { 2 } else { 0 };
        write::binary(out, self.topic.as_bytes());
        if let Some(packet_id) = self.packet_id {
            put_packet_id(out, packet_id);
        }
        let prefix_len = write::BINARY_PREFIX_BYTES + self.topic.len() + id_len;
        write::properties(out, &self.properties, body_len - prefix_len - self.payload.len());
        out.extend_from_slice(self.payload);
    }
}

impl<P: PropertyList> Encode for Connack<P> {
    fn first_byte(&self) -> u8 {
        PacketType::Connack.first_byte()
    }

    fn body_len(&self, version: Version) -> Result<usize, EncodeError> {
        Ok(2 + write::properties_len(version, &self.properties)?)
    }

    fn write_body(&self, version: Version, body_len: usize, out: &mut Vec<u8>) {
        let session_present = self.session_present && !self.reason.is_error() && version != Version::V31;
        let code = match version {
            Version::V5 => self.reason.byte(),
            Version::V31 | Version::V311 => ConnectReturnCode::from_reason(self.reason).byte(),
        };
        out.extend_from_slice(&[u8::from(session_present), code]);
        write::properties(out, &self.properties, body_len - 2);
    }
}

/// An acknowledgement of a PUBLISH as a packet of one of its four kinds.
struct AckAs<'p, P>(PacketType, &'p Ack<P>);

impl<P: PropertyList> Ack<P> {
    /// Appends the acknowledgement as `kind`: PUBACK, PUBREC, PUBREL or PUBCOMP.
    ///
    /// # Errors
    /// [`EncodeError`]; nothing is written then.
    #[inline]
    pub fn encode_as(
        &self,
        kind: PacketType,
        version: Version,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        debug_assert!(matches!(
            kind,
            PacketType::Puback | PacketType::Pubrec | PacketType::Pubrel | PacketType::Pubcomp
        ));
        AckAs(kind, self).encode(version, out)
    }

    /// Bytes of the packet; the four kinds do not differ in it.
    ///
    /// # Errors
    /// As [`Ack::encode_as`].
    #[inline]
    pub fn packet_len(&self, version: Version) -> Result<usize, EncodeError> {
        AckAs(PacketType::Puback, self).packet_len(version)
    }
}

impl<P: PropertyList> Encode for AckAs<'_, P> {
    #[inline]
    fn first_byte(&self) -> u8 {
        self.0.first_byte()
    }

    #[inline]
    fn body_len(&self, version: Version) -> Result<usize, EncodeError> {
        Ok(2 + tail_len(version, self.1.reason, &self.1.properties)?)
    }

    #[inline]
    fn write_body(&self, _: Version, body_len: usize, out: &mut Vec<u8>) {
        put_packet_id(out, self.1.packet_id);
        write_tail(out, self.1.reason, &self.1.properties, body_len - 2);
    }
}

impl<P: PropertyList> Encode for Disconnect<P> {
    fn first_byte(&self) -> u8 {
        PacketType::Disconnect.first_byte()
    }

    fn body_len(&self, version: Version) -> Result<usize, EncodeError> {
        tail_len(version, self.reason, &self.properties)
    }

    fn write_body(&self, _: Version, body_len: usize, out: &mut Vec<u8>) {
        write_tail(out, self.reason, &self.properties, body_len);
    }
}

impl<P: PropertyList> Encode for Auth<P> {
    fn first_byte(&self) -> u8 {
        PacketType::Auth.first_byte()
    }

    fn body_len(&self, version: Version) -> Result<usize, EncodeError> {
        not_before_v5(version, PacketType::Auth)?;
        tail_len(version, self.reason, &self.properties)
    }

    fn write_body(&self, _: Version, body_len: usize, out: &mut Vec<u8>) {
        write_tail(out, self.reason, &self.properties, body_len);
    }
}

/// Bytes of a reason code and properties at the end of a packet, each left out where the default says the
/// same.
#[inline]
fn tail_len(
    version: Version,
    reason: ReasonCode,
    properties: &impl PropertyList,
) -> Result<usize, EncodeError> {
    if !version.is_v5() {
        return Ok(0);
    }
    match (write::properties_len(version, properties)?, reason) {
        (1, ReasonCode::Success) => Ok(0),
        (1, _) => Ok(1),
        (block_len, _) => Ok(1 + block_len),
    }
}

#[inline]
fn write_tail(out: &mut Vec<u8>, reason: ReasonCode, properties: &impl PropertyList, tail_len: usize) {
    if tail_len > 0 {
        out.push(reason.byte());
        write::properties(out, properties, tail_len - 1);
    }
}

impl<'f, P: PropertyList, F: IntoIterator<Item = SubscribeFilter<'f>> + Clone> Encode for Subscribe<P, F> {
    fn first_byte(&self) -> u8 {
        PacketType::Subscribe.first_byte()
    }

    fn body_len(&self, version: Version) -> Result<usize, EncodeError> {
        let filters = self.filters.clone().into_iter();
        let start = 2 + write::properties_len(version, &self.properties)?;
        filters
            .map(|item| write::binary_len(item.filter.len()))
            .try_fold(start, |len, item| Ok(len + item? + 1))
    }

    fn write_body(&self, version: Version, _: usize, out: &mut Vec<u8>) {
        put_packet_id(out, self.packet_id);
        put_properties(out, version, &self.properties);
        for SubscribeFilter { filter, options } in self.filters.clone() {
            write::binary(out, filter.as_bytes());
            out.push(options.to_byte(version));
        }
    }
}

impl<P: PropertyList, C: IntoIterator<Item = ReasonCode> + Clone> Encode for Suback<P, C> {
    fn first_byte(&self) -> u8 {
        PacketType::Suback.first_byte()
    }

    fn body_len(&self, version: Version) -> Result<usize, EncodeError> {
        let reasons = self.reasons.clone().into_iter().count();
        Ok(2 + write::properties_len(version, &self.properties)? + reasons)
    }

    fn write_body(&self, version: Version, _: usize, out: &mut Vec<u8>) {
        put_packet_id(out, self.packet_id);
        put_properties(out, version, &self.properties);
        // Before MQTT 5.0 there is one failure code, 0x80 (MQTT 3.1.1, 3.9.3).
        let highest = if version.is_v5() { u8::MAX } else { ReasonCode::UnspecifiedError.byte() };
        out.extend(self.reasons.clone().into_iter().map(|reason| reason.byte().min(highest)));
    }
}

impl<'f, P: PropertyList, F: IntoIterator<Item = &'f str> + Clone> Encode for Unsubscribe<P, F> {
    fn first_byte(&self) -> u8 {
        PacketType::Unsubscribe.first_byte()
    }

    fn body_len(&self, version: Version) -> Result<usize, EncodeError> {
        let filters = self.filters.clone().into_iter();
        let start = 2 + write::properties_len(version, &self.properties)?;
        filters.map(|filter| write::binary_len(filter.len())).try_fold(start, |len, item| Ok(len + item?))
    }

    fn write_body(&self, version: Version, _: usize, out: &mut Vec<u8>) {
        put_packet_id(out, self.packet_id);
        put_properties(out, version, &self.properties);
        for filter in self.filters.clone() {
            write::binary(out, filter.as_bytes());
        }
    }
}

impl<P: PropertyList, C: IntoIterator<Item = ReasonCode> + Clone> Encode for Unsuback<P, C> {
    fn first_byte(&self) -> u8 {
        PacketType::Unsuback.first_byte()
    }

    fn body_len(&self, version: Version) -> Result<usize, EncodeError> {
        match version {
            Version::V31 | Version::V311 => Ok(2),
            Version::V5 => {
                let reasons = self.reasons.clone().into_iter().count();
                Ok(2 + write::properties_len(version, &self.properties)? + reasons)
            }
        }
    }

    fn write_body(&self, version: Version, _: usize, out: &mut Vec<u8>) {
        put_packet_id(out, self.packet_id);
        if version.is_v5() {
            put_properties(out, version, &self.properties);
            out.extend(self.reasons.clone().into_iter().map(ReasonCode::byte));
        }
    }
}

/// A received packet is written as what it says, in the shortest form.
impl Encode for Packet<'_> {
    fn first_byte(&self) -> u8 {
        match self {
            Packet::Publish(publish) => publish.first_byte(),
            other => other.packet_type().first_byte(),
        }
    }

    fn body_len(&self, version: Version) -> Result<usize, EncodeError> {
        match self {
            Packet::Connect(packet) => packet.body_len(version),
            Packet::Connack(packet) => packet.body_len(version),
            Packet::Publish(packet) => packet.body_len(version),
            Packet::Puback(ack) | Packet::Pubrec(ack) | Packet::Pubrel(ack) | Packet::Pubcomp(ack) => {
                AckAs(self.packet_type(), ack).body_len(version)
            }
            Packet::Subscribe(packet) => packet.body_len(version),
            Packet::Suback(packet) => packet.body_len(version),
            Packet::Unsubscribe(packet) => packet.body_len(version),
            Packet::Unsuback(packet) => packet.body_len(version),
            Packet::Pingreq | Packet::Pingresp => Ok(0),
            Packet::Disconnect(packet) => packet.body_len(version),
            Packet::Auth(packet) => packet.body_len(version),
        }
    }

    fn write_body(&self, version: Version, body_len: usize, out: &mut Vec<u8>) {
        match self {
            Packet::Connect(packet) => packet.write_body(version, body_len, out),
            Packet::Connack(packet) => packet.write_body(version, body_len, out),
            Packet::Publish(packet) => packet.write_body(version, body_len, out),
            Packet::Puback(ack) | Packet::Pubrec(ack) | Packet::Pubrel(ack) | Packet::Pubcomp(ack) => {
                AckAs(self.packet_type(), ack).write_body(version, body_len, out);
            }
            Packet::Subscribe(packet) => packet.write_body(version, body_len, out),
            Packet::Suback(packet) => packet.write_body(version, body_len, out),
            Packet::Unsubscribe(packet) => packet.write_body(version, body_len, out),
            Packet::Unsuback(packet) => packet.write_body(version, body_len, out),
            Packet::Pingreq | Packet::Pingresp => {}
            Packet::Disconnect(packet) => packet.write_body(version, body_len, out),
            Packet::Auth(packet) => packet.write_body(version, body_len, out),
        }
    }
}

fn not_before_v5(version: Version, packet: PacketType) -> Result<(), EncodeError> {
    if version.is_v5() { Ok(()) } else { Err(EncodeError::NotInVersion { version, packet }) }
}

#[inline]
fn put_packet_id(out: &mut Vec<u8>, packet_id: PacketId) {
    out.extend_from_slice(&packet_id.get().to_be_bytes());
}

/// Appends a property block after its length was checked by `body_len`.
pub(super) fn put_properties(out: &mut Vec<u8>, version: Version, list: &impl PropertyList) {
    let block_len = write::properties_len(version, list).unwrap_or_default();
    write::properties(out, list, block_len);
}
