//! Fields of packets, appended to a buffer.

use crate::error::EncodeError;
use crate::property::PropertyList;
use crate::types::{VARIABLE_BYTE_INTEGER_MAX, Version};
use alloc::vec::Vec;

/// Bytes of the length in front of strings and binary data.
pub(crate) const BINARY_PREFIX_BYTES: usize = 2;

/// Bytes of a variable byte integer.
#[inline]
pub(crate) const fn variable_len(value: u32) -> usize {
    match value {
        0..=0x7f => 1,
        0x80..=0x3fff => 2,
        0x4000..=0x1f_ffff => 3,
        _ => 4,
    }
}

/// Appends a variable byte integer; `value` is at most [`VARIABLE_BYTE_INTEGER_MAX`].
#[inline]
pub(crate) fn variable(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes of a string or of binary data with its length.
#[inline]
pub(crate) const fn binary_len(len: usize) -> Result<usize, EncodeError> {
    match len {
        0..=0xffff => Ok(BINARY_PREFIX_BYTES + len),
        _ => Err(EncodeError::FieldTooLong),
    }
}

/// Appends a string or binary data with its length; at most 65,535 bytes.
#[inline]
pub(crate) fn binary(out: &mut Vec<u8>, bytes: &[u8]) {
    debug_assert!(bytes.len() <= 0xffff, "binary_len was asked before");
    out.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
    out.extend_from_slice(bytes);
}

/// Bytes of a property block with its length; none before MQTT 5.0.
#[inline]
pub(crate) fn properties_len(version: Version, list: &impl PropertyList) -> Result<usize, EncodeError> {
    if !version.is_v5() {
        return Ok(0);
    }
    let len = checked_variable(list.encoded_len()?)?;
    Ok(variable_len(len) + len as usize)
}

/// Appends a property block with its length, given [`properties_len`].
#[inline]
pub(crate) fn properties(out: &mut Vec<u8>, list: &impl PropertyList, block_len: usize) {
    match block_len {
        0 => {}
        1 => out.push(0),
        _ => {
            variable(out, property_bytes(block_len));
            list.write(out);
        }
    }
}

/// The length that a block of `block_len` bytes starts with: the rest after the length's own bytes.
const fn property_bytes(block_len: usize) -> u32 {
    let prefix = match block_len {
        0..=0x80 => 1,
        0x81..=0x4001 => 2,
        0x4002..=0x20_0002 => 3,
        _ => 4,
    };
    (block_len - prefix) as u32
}

/// `len` as the value of a variable byte integer.
#[inline]
pub(crate) const fn checked_variable(len: usize) -> Result<u32, EncodeError> {
    match len <= VARIABLE_BYTE_INTEGER_MAX as usize {
        true => Ok(len as u32),
        false => Err(EncodeError::PacketTooLarge),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_block_follows_from_its_size_at_every_width() {
        for len in [1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, VARIABLE_BYTE_INTEGER_MAX] {
            assert_eq!(property_bytes(variable_len(len) + len as usize), len);
        }
    }

    #[test]
    fn variable_byte_integers_are_written_as_the_specification_shows() {
        for (value, bytes) in [
            (0, &[0x00][..]),
            (127, &[0x7f]),
            (128, &[0x80, 0x01]),
            (16_383, &[0xff, 0x7f]),
            (16_384, &[0x80, 0x80, 0x01]),
            (2_097_151, &[0xff, 0xff, 0x7f]),
            (2_097_152, &[0x80, 0x80, 0x80, 0x01]),
            (VARIABLE_BYTE_INTEGER_MAX, &[0xff, 0xff, 0xff, 0x7f]),
        ] {
            let mut out = Vec::new();
            variable(&mut out, value);
            assert_eq!(out, bytes);
            assert_eq!(variable_len(value), bytes.len());
        }
    }
}
