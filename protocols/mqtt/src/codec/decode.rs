//! Bodies of packets other than CONNECT.

use super::Frame;
use super::decode_connect::decode_connect;
use crate::error::{DecodeError, Malformed, ProtocolViolation};
use crate::limits::DecodeLimits;
use crate::packet::{
    Ack, Auth, Connack, Disconnect, Packet, Publish, ReasonCodes, Suback, Subscribe, SubscribeFilters,
    TopicFilters, Unsuback, Unsubscribe,
};
use crate::property::{Properties, PropertyContext, PropertyId};
use crate::reader::Reader;
use crate::reason::{ConnectReturnCode, ReasonCode};
use crate::topic::{TopicFault, check_topic_name};
use crate::types::{PacketType, Qos, Version};

/// What decoding a body depends on, beside the body.
#[derive(Clone, Copy)]
struct Rules<'l> {
    version: Version,
    limits: &'l DecodeLimits,
}

impl Rules<'_> {
    #[inline]
    fn properties<'a>(
        &self,
        reader: &mut Reader<'a>,
        context: PropertyContext,
    ) -> Result<Properties<'a>, DecodeError> {
        match self.version.is_v5() {
            true => Properties::read(reader, context, self.limits),
            false => Ok(Properties::EMPTY),
        }
    }
}

/// Decodes the body of a packet whose header passed [`super::check_header`].
pub(crate) fn decode_body<'a>(
    version: Version,
    frame: &Frame,
    body: &'a [u8],
    limits: &DecodeLimits,
) -> Result<Packet<'a>, DecodeError> {
    let rules = Rules { version, limits };
    let mut reader = Reader::new(body);
    let reader = &mut reader;
    match frame.packet_type {
        PacketType::Connect => decode_connect(frame, reader, limits).map(Packet::Connect),
        PacketType::Connack => connack(rules, reader).map(Packet::Connack),
        PacketType::Publish => decode_publish(version, frame.first_byte, body, limits).map(Packet::Publish),
        PacketType::Puback => ack(rules, reader, frame, PropertyContext::Puback).map(Packet::Puback),
        PacketType::Pubrec => ack(rules, reader, frame, PropertyContext::Pubrec).map(Packet::Pubrec),
        PacketType::Pubrel => ack(rules, reader, frame, PropertyContext::Pubrel).map(Packet::Pubrel),
        PacketType::Pubcomp => ack(rules, reader, frame, PropertyContext::Pubcomp).map(Packet::Pubcomp),
        PacketType::Subscribe => subscribe(rules, reader).map(Packet::Subscribe),
        PacketType::Suback => suback(rules, reader).map(Packet::Suback),
        PacketType::Unsubscribe => unsubscribe(rules, reader).map(Packet::Unsubscribe),
        PacketType::Unsuback => unsuback(rules, reader).map(Packet::Unsuback),
        PacketType::Pingreq => reader.finish().map(|()| Packet::Pingreq),
        PacketType::Pingresp => reader.finish().map(|()| Packet::Pingresp),
        PacketType::Disconnect => disconnect(rules, reader).map(Packet::Disconnect),
        PacketType::Auth => auth(rules, reader).map(Packet::Auth),
    }
}

/// Decodes the body of a PUBLISH. Does not allocate. Inlined so that its result is built where it ends up.
#[inline(always)]
pub(crate) fn decode_publish<'a>(
    version: Version,
    first_byte: u8,
    body: &'a [u8],
    limits: &DecodeLimits,
) -> Result<Publish<'a>, DecodeError> {
    let mut reader = Reader::new(body);
    let qos = Qos::from_bits(first_byte >> 1 & 0x03).ok_or(Malformed::Qos)?;
    let mut dup = first_byte & 0x08 != 0;
    if dup && qos == Qos::AtMostOnce {
        // MQTT 3.1 says nothing about DUP here, so it means nothing.
        if version != Version::V31 {
            return Err(Malformed::DupAtQos0.into());
        }
        dup = false;
    }
    let topic = reader.utf8()?;
    let packet_id = match qos {
        Qos::AtMostOnce => None,
        Qos::AtLeastOnce | Qos::ExactlyOnce => Some(reader.packet_id()?),
    };
    let properties = Rules { version, limits }.properties(&mut reader, PropertyContext::Publish)?;
    if let Err(fault) = check_topic_name(topic) {
        accept_faulty_topic(version, fault, &properties)?;
    }
    Ok(Publish {
        dup,
        qos,
        retain: first_byte & 0x01 != 0,
        topic,
        packet_id,
        properties,
        payload: reader.rest(),
    })
}

/// In MQTT 5.0 a topic alias may stand for an empty topic name (3.3.2.1).
#[cold]
fn accept_faulty_topic(
    version: Version,
    fault: TopicFault,
    properties: &Properties<'_>,
) -> Result<(), DecodeError> {
    match fault {
        TopicFault::Empty if version.is_v5() => match properties.contains(PropertyId::TopicAlias) {
            true => Ok(()),
            false => Err(ProtocolViolation::TopicMissing.into()),
        },
        fault => Err(Malformed::TopicName(fault).into()),
    }
}

/// A reason code that a packet of this kind may carry.
#[inline]
fn reason(reader: &mut Reader<'_>, packet: PacketType) -> Result<ReasonCode, DecodeError> {
    let code = reader.u8()?;
    ReasonCode::from_byte(code)
        .filter(|reason| reason.is_valid_in(packet))
        .ok_or(Malformed::ReasonCode { code }.into())
}

fn connack<'a>(rules: Rules<'_>, reader: &mut Reader<'a>) -> Result<Connack<Properties<'a>>, DecodeError> {
    let flags = reader.u8()?;
    let reason = match rules.version {
        Version::V5 => reason(reader, PacketType::Connack)?,
        Version::V31 | Version::V311 => {
            let code = reader.u8()?;
            ConnectReturnCode::from_byte(code).ok_or(Malformed::ReasonCode { code })?.reason()
        }
    };
    let session_present = match (rules.version, flags) {
        // Reserved and without meaning in MQTT 3.1.
        (Version::V31, _) | (_, 0) => false,
        (_, 1) if !reason.is_error() => true,
        _ => return Err(Malformed::AcknowledgeFlags.into()),
    };
    let properties = rules.properties(reader, PropertyContext::Connack)?;
    reader.finish()?;
    Ok(Connack { session_present, reason, properties })
}

/// The four acknowledgements of a PUBLISH. Reason and properties may be left out (MQTT 5.0, 3.4.2.1).
fn ack<'a>(
    rules: Rules<'_>,
    reader: &mut Reader<'a>,
    frame: &Frame,
    context: PropertyContext,
) -> Result<Ack<Properties<'a>>, DecodeError> {
    let packet_id = reader.packet_id()?;
    if !rules.version.is_v5() {
        reader.finish()?;
    }
    if reader.is_empty() {
        return Ok(Ack { packet_id, reason: ReasonCode::Success, properties: Properties::EMPTY });
    }
    let reason = reason(reader, frame.packet_type)?;
    let properties = optional_properties(rules, reader, context)?;
    Ok(Ack { packet_id, reason, properties })
}

/// The property block at the end of a packet that may leave it out.
fn optional_properties<'a>(
    rules: Rules<'_>,
    reader: &mut Reader<'a>,
    context: PropertyContext,
) -> Result<Properties<'a>, DecodeError> {
    if reader.is_empty() {
        return Ok(Properties::EMPTY);
    }
    let properties = rules.properties(reader, context)?;
    reader.finish()?;
    Ok(properties)
}

fn subscribe<'a>(
    rules: Rules<'_>,
    reader: &mut Reader<'a>,
) -> Result<Subscribe<Properties<'a>, SubscribeFilters<'a>>, DecodeError> {
    let packet_id = reader.packet_id()?;
    let properties = rules.properties(reader, PropertyContext::Subscribe)?;
    let filters = SubscribeFilters::parse(reader.rest(), rules.version, rules.limits.filters_max)?;
    Ok(Subscribe { packet_id, properties, filters })
}

fn suback<'a>(
    rules: Rules<'_>,
    reader: &mut Reader<'a>,
) -> Result<Suback<Properties<'a>, ReasonCodes<'a>>, DecodeError> {
    let packet_id = reader.packet_id()?;
    let properties = rules.properties(reader, PropertyContext::Suback)?;
    let reasons = ReasonCodes::parse(reader.rest(), rules.version, PacketType::Suback)?;
    Ok(Suback { packet_id, properties, reasons })
}

fn unsubscribe<'a>(
    rules: Rules<'_>,
    reader: &mut Reader<'a>,
) -> Result<Unsubscribe<Properties<'a>, TopicFilters<'a>>, DecodeError> {
    let packet_id = reader.packet_id()?;
    let properties = rules.properties(reader, PropertyContext::Unsubscribe)?;
    let filters = TopicFilters::parse(reader.rest(), rules.limits.filters_max)?;
    Ok(Unsubscribe { packet_id, properties, filters })
}

fn unsuback<'a>(
    rules: Rules<'_>,
    reader: &mut Reader<'a>,
) -> Result<Unsuback<Properties<'a>, ReasonCodes<'a>>, DecodeError> {
    let packet_id = reader.packet_id()?;
    if !rules.version.is_v5() {
        reader.finish()?;
        return Ok(Unsuback { packet_id, properties: Properties::EMPTY, reasons: ReasonCodes::NONE });
    }
    let properties = rules.properties(reader, PropertyContext::Unsuback)?;
    let reasons = ReasonCodes::parse(reader.rest(), rules.version, PacketType::Unsuback)?;
    Ok(Unsuback { packet_id, properties, reasons })
}

/// DISCONNECT; reason and properties may be left out (MQTT 5.0, 3.14.2.1).
fn disconnect<'a>(
    rules: Rules<'_>,
    reader: &mut Reader<'a>,
) -> Result<Disconnect<Properties<'a>>, DecodeError> {
    if !rules.version.is_v5() {
        reader.finish()?;
    }
    if reader.is_empty() {
        return Ok(Disconnect { reason: ReasonCode::NORMAL_DISCONNECTION, properties: Properties::EMPTY });
    }
    let reason = reason(reader, PacketType::Disconnect)?;
    let properties = optional_properties(rules, reader, PropertyContext::Disconnect)?;
    Ok(Disconnect { reason, properties })
}

/// AUTH; reason and properties may be left out together (MQTT 5.0, 3.15.2.1).
fn auth<'a>(rules: Rules<'_>, reader: &mut Reader<'a>) -> Result<Auth<Properties<'a>>, DecodeError> {
    if reader.is_empty() {
        return Ok(Auth { reason: ReasonCode::Success, properties: Properties::EMPTY });
    }
    let reason = reason(reader, PacketType::Auth)?;
    let properties = optional_properties(rules, reader, PropertyContext::Auth)?;
    Ok(Auth { reason, properties })
}
