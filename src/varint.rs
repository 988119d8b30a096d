//! LEB128 integers and length-prefixed bytes, as every stored encoding uses them.

/// Appends `value`, low seven bits first: 1 to 10 bytes.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// How many bytes [`put_varint`] writes for `value`.
#[must_use]
#[inline]
pub fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Takes one integer off the front of `input`; `None` when it is cut short or longer than 64 bits.
#[inline]
pub fn take_varint(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for i in 0..10 {
        let (&byte, rest) = input.split_first()?;
        if i == 9 && byte > 1 {
            return None;
        }
        *input = rest;
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Appends the length of `bytes` and `bytes`.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Takes a length and as many bytes off the front of `input`; `None` when they run past its end.
pub fn take_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let n = usize::try_from(take_varint(input)?).ok()?;
    let (bytes, rest) = input.split_at_checked(n)?;
    *input = rest;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_round_trip_at_every_width() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let mut out = vec![];
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value));
                let mut input = &out[..];
                assert_eq!(take_varint(&mut input), Some(value));
                assert!(input.is_empty());
            }
        }
    }

    #[test]
    fn overlong_and_cut_integers_are_refused() {
        assert_eq!(take_varint(&mut &[0xff; 11][..]), None);
        assert_eq!(take_varint(&mut &[0x80][..]), None);
        assert_eq!(take_bytes(&mut &[5, 1, 2][..]), None);
    }
}
