//! CONNECT, the packet that names its own version.

use super::{Frame, write};
use crate::error::{DecodeError, Malformed};
use crate::limits::DecodeLimits;
use crate::packet::{Connect, Will};
use crate::property::{Properties, PropertyContext};
use crate::reader::Reader;
use crate::topic::check_topic_name;
use crate::types::{Qos, Version};

/// Bit 7 of the protocol level: a bridge speaks.
pub(super) const BRIDGE_BIT: u8 = 0x80;

const CLEAN_START: u8 = 0x02;
const WILL: u8 = 0x04;
const WILL_RETAIN: u8 = 0x20;
const PASSWORD: u8 = 0x40;
const USER_NAME: u8 = 0x80;

/// Reads protocol name and level `[MQTT-3.1.2-1]`, `[MQTT-3.1.2-2]`.
fn read_protocol(reader: &mut Reader<'_>) -> Result<(Version, bool), DecodeError> {
    let name = reader.binary()?;
    let level = match name {
        b"MQTT" | b"MQIsdp" => reader.u8()?,
        _ => return Err(Malformed::ProtocolName.into()),
    };
    match (name, level) {
        (b"MQTT", 5) => Ok((Version::V5, false)),
        (b"MQTT", 4) => Ok((Version::V311, false)),
        (b"MQIsdp", 3) => Ok((Version::V31, false)),
        (b"MQTT", 0x84) => Ok((Version::V311, true)),
        (b"MQIsdp", 0x83) => Ok((Version::V31, true)),
        _ => Err(DecodeError::UnsupportedVersion { level }),
    }
}

/// The version to answer in when CONNECT itself is faulty: the one it names, or the nearest for an unknown
/// level.
pub(crate) fn check_login_level(body: &[u8]) -> Option<Version> {
    match read_protocol(&mut Reader::new(body)) {
        Ok((version, _)) => Some(version),
        Err(DecodeError::UnsupportedVersion { level }) if level & !BRIDGE_BIT > 5 => Some(Version::V5),
        Err(DecodeError::UnsupportedVersion { .. }) => Some(Version::V311),
        Err(_) => None,
    }
}

/// Decodes the body of CONNECT and checks the fixed header by the version that it names.
pub(super) fn decode_connect<'a>(
    frame: &Frame,
    reader: &mut Reader<'a>,
    limits: &DecodeLimits,
) -> Result<Connect<'a>, DecodeError> {
    let (version, bridge) = read_protocol(reader)?;
    if version != Version::V31 && frame.first_byte & 0x0f != 0 {
        return Err(Malformed::Flags.into());
    }
    if version.is_v5() && usize::from(frame.header_len) != 1 + write::variable_len(frame.remaining_len) {
        return Err(Malformed::VariableByteInteger.into());
    }
    let flags = reader.u8()?;
    check_flags(version, flags)?;
    let keep_alive = reader.u16()?;
    let properties = properties(version, reader, PropertyContext::Connect, limits)?;
    let client_id = reader.text()?;
    let will = match flags & WILL != 0 {
        true => Some(will(version, flags, reader, limits)?),
        false => None,
    };
    let user_name = is_present(version, flags, USER_NAME, reader).then(|| reader.text()).transpose()?;
    let password = is_present(version, flags, PASSWORD, reader).then(|| reader.binary()).transpose()?;
    reader.finish()?;
    let clean_start = flags & CLEAN_START != 0;
    Ok(Connect { version, bridge, clean_start, keep_alive, client_id, will, user_name, password, properties })
}

/// Flags that contradict each other: `[MQTT-3.1.2-3]`, `[MQTT-3.1.2-11]`, `[MQTT-3.1.2-12]`,
/// `[MQTT-3.1.2-13]`, and in older versions a password without user name `[MQTT-3.1.2-22 of MQTT 3.1.1]`.
/// MQTT 3.1 leaves bit 0 and the flags of an absent will without meaning.
fn check_flags(version: Version, flags: u8) -> Result<(), DecodeError> {
    let will_details = flags & 0x38 != 0;
    let unused = flags & 0x01 != 0 || (will_details && flags & WILL == 0);
    if unused && version != Version::V31 {
        return Err(Malformed::ConnectFlags.into());
    }
    if flags & PASSWORD != 0 && flags & USER_NAME == 0 && !version.is_v5() {
        return Err(Malformed::ConnectFlags.into());
    }
    if flags & WILL != 0 && flags & 0x18 == 0x18 {
        return Err(Malformed::Qos.into());
    }
    Ok(())
}

/// Whether the field that a flag announces follows. In MQTT 3.1 the remaining length takes precedence over
/// the flags of user name and password ("CONNECT", "User name and password flags").
fn is_present(version: Version, flags: u8, flag: u8, reader: &Reader<'_>) -> bool {
    flags & flag != 0 && !(version == Version::V31 && reader.is_empty())
}

fn properties<'a>(
    version: Version,
    reader: &mut Reader<'a>,
    context: PropertyContext,
    limits: &DecodeLimits,
) -> Result<Properties<'a>, DecodeError> {
    match version.is_v5() {
        true => Properties::read(reader, context, limits),
        false => Ok(Properties::EMPTY),
    }
}

fn will<'a>(
    version: Version,
    flags: u8,
    reader: &mut Reader<'a>,
    limits: &DecodeLimits,
) -> Result<Will<'a>, DecodeError> {
    let properties = properties(version, reader, PropertyContext::Will, limits)?;
    let topic = reader.utf8()?;
    check_topic_name(topic).map_err(Malformed::TopicName)?;
    let payload = reader.binary()?;
    let qos = Qos::from_bits(flags >> 3 & 0x03).ok_or(Malformed::Qos)?;
    Ok(Will { qos, retain: flags & WILL_RETAIN != 0, topic, payload, properties })
}

/// The flags that say what a CONNECT holds.
pub(super) fn flags<P>(connect: &Connect<'_, P>) -> u8 {
    let mut flags = if connect.clean_start { CLEAN_START } else { 0 };
    if let Some(will) = &connect.will {
        flags |= WILL | will.qos.bits() << 3 | if will.retain { WILL_RETAIN } else { 0 };
    }
    flags |= if connect.user_name.is_some() { USER_NAME } else { 0 };
    flags |= if connect.password.is_some() { PASSWORD } else { 0 };
    flags
}
