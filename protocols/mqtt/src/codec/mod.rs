//! Bytes to packets and back.
//!
//! A driver looks at the start of its input with [`peek`], which applies the size limit before the body has
//! arrived, and decodes a complete packet with [`decode`]; [`decode_next`] does both. Packets are written
//! with the methods of [`Encode`]; [`encode_publish_header`] leaves the payload to the caller.

mod decode;
mod decode_connect;
mod encode;
mod encode_connect;
pub(crate) mod write;

pub(crate) use decode::{decode_body, decode_publish};
pub(crate) use decode_connect::check_login_level;
pub use encode::{Encode, PublishHeader, encode_publish_header, publish_len};

use crate::error::{DecodeError, LimitExceeded, Malformed};
use crate::limits::DecodeLimits;
use crate::packet::Packet;
use crate::types::{PacketType, Version};

/// The fixed header of a packet (MQTT 5.0, 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Packet type and flags.
    pub first_byte: u8,
    /// The packet's kind.
    pub packet_type: PacketType,
    /// Bytes of the fixed header: 2 to 5.
    pub header_len: u8,
    /// Bytes that follow it.
    pub remaining_len: u32,
}

impl Frame {
    /// Bytes of the whole packet.
    #[inline]
    pub const fn total_len(&self) -> usize {
        self.header_len as usize + self.remaining_len as usize
    }
}

/// What the start of an input holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decoded<'a> {
    /// The packet is not complete.
    Incomplete {
        /// Bytes that the input must have to be worth another look: the size of the whole packet once its
        /// fixed header is complete, which is within the limits then.
        needed: usize,
    },
    /// A packet.
    Packet {
        /// The packet.
        packet: Packet<'a>,
        /// Its size in bytes.
        consumed: usize,
    },
}

/// Reads the fixed header of the packet that `input` starts with; `None` if it is incomplete.
///
/// # Errors
/// A reserved packet type, a remaining length of more than four bytes, or a packet above `packet_bytes_max`:
/// all that can be known before the body arrives and the version matters.
#[inline]
pub fn peek(input: &[u8], packet_bytes_max: u32) -> Result<Option<Frame>, DecodeError> {
    let Some((&first_byte, rest)) = input.split_first() else {
        return Ok(None);
    };
    let Some(packet_type) = PacketType::from_first_byte(first_byte) else {
        return Err(Malformed::PacketType.into());
    };
    let (header_len, remaining_len) = match rest.first() {
        None => return Ok(None),
        Some(&byte) if byte < 0x80 => (2, u32::from(byte)),
        Some(_) => match remaining_length(rest)? {
            None => return Ok(None),
            Some(long) => long,
        },
    };
    let bytes = remaining_len + u32::from(header_len);
    if bytes > packet_bytes_max {
        return Err(LimitExceeded::PacketBytes { bytes, bytes_max: packet_bytes_max }.into());
    }
    Ok(Some(Frame { first_byte, packet_type, header_len, remaining_len }))
}

/// Bytes of the fixed header and the remaining length. Padding is accepted here and refused by [`decode`] in
/// MQTT 5.0.
fn remaining_length(rest: &[u8]) -> Result<Option<(u8, u32)>, DecodeError> {
    let mut value = 0;
    for (at, header_len) in (0..4).zip(2u8..) {
        let Some(&byte) = rest.get(at) else {
            return Ok(None);
        };
        value |= u32::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            return Ok(Some((header_len, value)));
        }
    }
    Err(Malformed::VariableByteInteger.into())
}

/// Decodes one complete packet, and nothing but it. CONNECT names its own version; for it `version` is
/// ignored.
///
/// # Errors
/// The first fault found. Missing bytes are `Malformed(Truncated)` here, and bytes after the packet
/// `TrailingBytes`.
pub fn decode<'a>(
    version: Version,
    packet: &'a [u8],
    limits: &DecodeLimits,
) -> Result<Packet<'a>, DecodeError> {
    let frame = peek(packet, limits.packet_bytes_max)?.ok_or(Malformed::Truncated)?;
    check_header(version, &frame)?;
    let total = frame.total_len();
    let body = packet.get(usize::from(frame.header_len)..total).ok_or(Malformed::Truncated)?;
    if packet.len() > total {
        return Err(Malformed::TrailingBytes.into());
    }
    decode_body(version, &frame, body, limits)
}

/// Decodes the packet that `input` starts with, if it is complete.
///
/// # Errors
/// The first fault found; faults of the fixed header before the body is complete.
pub fn decode_next<'a>(
    version: Version,
    input: &'a [u8],
    limits: &DecodeLimits,
) -> Result<Decoded<'a>, DecodeError> {
    let Some(frame) = peek(input, limits.packet_bytes_max)? else {
        return Ok(Decoded::Incomplete { needed: input.len() + 1 });
    };
    check_header(version, &frame)?;
    let consumed = frame.total_len();
    let Some(body) = input.get(usize::from(frame.header_len)..consumed) else {
        return Ok(Decoded::Incomplete { needed: consumed });
    };
    let packet = decode_body(version, &frame, body, limits)?;
    Ok(Decoded::Packet { packet, consumed })
}

/// Checks what the version says about the fixed header. CONNECT, which brings the version, is checked by its
/// decoder.
#[inline]
pub(crate) fn check_header(version: Version, frame: &Frame) -> Result<(), DecodeError> {
    if frame.packet_type == PacketType::Connect {
        return Ok(());
    }
    if version.is_v5() && usize::from(frame.header_len) != 1 + write::variable_len(frame.remaining_len) {
        return Err(Malformed::VariableByteInteger.into());
    }
    if frame.packet_type == PacketType::Publish {
        return Ok(());
    }
    check_flags(version, frame)
}

/// The reserved flags `[MQTT-2.1.3-1]`. MQTT 3.1 does not fix them, and sets DUP when it repeats a PUBREL,
/// SUBSCRIBE or UNSUBSCRIBE.
fn check_flags(version: Version, frame: &Frame) -> Result<(), DecodeError> {
    if frame.packet_type == PacketType::Auth && !version.is_v5() {
        return Err(Malformed::PacketType.into());
    }
    let fixed = frame.packet_type.first_byte();
    let significant = match (version, fixed & 0x0f) {
        (Version::V31, 0) => 0xf0,
        (Version::V31, _) => 0xf6,
        _ => 0xff,
    };
    if frame.first_byte & significant == fixed { Ok(()) } else { Err(Malformed::Flags.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_incomplete_until_its_last_length_byte() {
        for (input, expected) in [
            (&[][..], None),
            (&[0x30], None),
            (&[0x30, 0xff], None),
            (&[0x30, 0xff, 0xff, 0xff], None),
            (&[0x30, 0x05], Some((2, 5))),
            (&[0x30, 0xff, 0xff, 0xff, 0x7f], Some((5, 268_435_455))),
        ] {
            let frame = peek(input, u32::MAX).unwrap();
            assert_eq!(frame.map(|frame| (frame.header_len, frame.remaining_len)), expected);
        }
        assert_eq!(
            peek(&[0x30, 0x80, 0x80, 0x80, 0x80], u32::MAX),
            Err(Malformed::VariableByteInteger.into())
        );
        assert_eq!(peek(&[0x00], u32::MAX), Err(Malformed::PacketType.into()));
    }

    #[test]
    fn a_packet_above_the_limit_is_refused_from_its_header() {
        assert!(peek(&[0x30, 98], 100).unwrap().is_some());
        let error = LimitExceeded::PacketBytes { bytes: 101, bytes_max: 100 };
        assert_eq!(peek(&[0x30, 99], 100), Err(error.into()));
    }
}
