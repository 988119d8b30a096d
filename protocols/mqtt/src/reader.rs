//! A reader that never reads past the packet it was given.

use crate::error::{DecodeError, Malformed, ProtocolViolation};
use crate::types::PacketId;

/// The rest of a packet or of a property block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    #[inline]
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Malformed::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Malformed::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    /// A variable byte integer in its shortest form `[MQTT-1.5.5-1]`.
    #[inline]
    pub(crate) fn variable(&mut self) -> Result<u32, Malformed> {
        let first = self.u8()?;
        if first < 0x80 {
            return Ok(u32::from(first));
        }
        self.variable_tail(first)
    }

    fn variable_tail(&mut self, first: u8) -> Result<u32, Malformed> {
        let mut value = u32::from(first & 0x7f);
        for shift in [7, 14, 21] {
            let byte = self.u8()?;
            value |= u32::from(byte & 0x7f) << shift;
            match byte {
                0 => return Err(Malformed::VariableByteInteger),
                1..0x80 => return Ok(value),
                _ => {}
            }
        }
        Err(Malformed::VariableByteInteger)
    }

    /// Binary data (MQTT 5.0, 1.5.6).
    #[inline]
    pub(crate) fn binary(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.u16()?;
        self.bytes(usize::from(len))
    }

    /// A UTF-8 string that may hold U+0000: the caller checks for it, with other characters.
    #[inline]
    pub(crate) fn utf8(&mut self) -> Result<&'a str, Malformed> {
        core::str::from_utf8(self.binary()?).map_err(|_| Malformed::Utf8)
    }

    /// A UTF-8 string `[MQTT-1.5.4-1]`, `[MQTT-1.5.4-2]`.
    #[inline]
    pub(crate) fn text(&mut self) -> Result<&'a str, Malformed> {
        let text = self.utf8()?;
        if text.as_bytes().contains(&0) {
            return Err(Malformed::NulCharacter);
        }
        Ok(text)
    }

    #[inline]
    pub(crate) fn packet_id(&mut self) -> Result<PacketId, DecodeError> {
        PacketId::new(self.u16()?).ok_or(DecodeError::ProtocolViolation(ProtocolViolation::PacketIdZero))
    }

    #[inline]
    pub(crate) fn finish(&self) -> Result<(), DecodeError> {
        match self.rest.is_empty() {
            true => Ok(()),
            false => Err(Malformed::TrailingBytes.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_byte_integers_end_after_four_bytes_and_have_no_padding() {
        let read = |bytes: &[u8]| Reader::new(bytes).variable();
        assert_eq!(read(&[0x00]), Ok(0));
        assert_eq!(read(&[0x80, 0x01]), Ok(128));
        assert_eq!(read(&[0xff, 0xff, 0xff, 0x7f]), Ok(268_435_455));
        assert_eq!(read(&[0x80, 0x00]), Err(Malformed::VariableByteInteger));
        assert_eq!(read(&[0x80, 0x80, 0x80, 0x80]), Err(Malformed::VariableByteInteger));
        assert_eq!(read(&[0x80]), Err(Malformed::Truncated));
    }

    #[test]
    fn surrogates_and_nul_are_refused_in_strings() {
        assert_eq!(Reader::new(&[0, 3, 0xed, 0xa0, 0x80]).text(), Err(Malformed::Utf8));
        assert_eq!(Reader::new(&[0, 1, 0]).text(), Err(Malformed::NulCharacter));
        assert_eq!(Reader::new(&[0, 3, 0xef, 0xbb, 0xbf]).text(), Ok("\u{feff}"));
        assert_eq!(Reader::new(&[0, 2, b'a']).text(), Err(Malformed::Truncated));
    }
}
