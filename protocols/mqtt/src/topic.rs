//! Syntax of topic names and topic filters (MQTT 5.0, 4.7 and 4.8.2).

use core::fmt;

/// Longest topic name or filter in bytes `[MQTT-4.7.3-3]`.
pub const TOPIC_BYTES_MAX: usize = 65_535;

/// What is wrong with a topic name or a topic filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TopicFault {
    /// It has no characters `[MQTT-4.7.3-1]`.
    Empty,
    /// It has more than [`TOPIC_BYTES_MAX`] bytes `[MQTT-4.7.3-3]`.
    TooLong,
    /// It holds U+0000 `[MQTT-4.7.3-2]`.
    NulCharacter,
    /// A topic name holds `+` or `#` `[MQTT-3.3.2-2]`.
    WildcardInName,
    /// `#` is not the last level of its own `[MQTT-4.7.1-1]`, or `+` shares a level `[MQTT-4.7.1-2]`.
    MisplacedWildcard,
    /// `$share/` is not followed by a group without wildcards, `/` and a filter `[MQTT-4.8.2-1]`,
    /// `[MQTT-4.8.2-2]`.
    SharedSubscription,
}

impl fmt::Display for TopicFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TopicFault::Empty => "is empty",
            TopicFault::TooLong => "is longer than 65535 bytes",
            TopicFault::NulCharacter => "holds the character U+0000",
            TopicFault::WildcardInName => "holds a wildcard, which only a filter may",
            TopicFault::MisplacedWildcard => {
                "has a wildcard that does not fill its level, or a '#' before its end"
            }
            TopicFault::SharedSubscription => "is not of the form $share/<group>/<filter>",
        })
    }
}

impl core::error::Error for TopicFault {}

/// Checks a topic name: what a PUBLISH or a will may be sent to.
#[inline]
pub fn check_topic_name(name: &str) -> Result<(), TopicFault> {
    if name.is_empty() {
        return Err(TopicFault::Empty);
    }
    if name.len() > TOPIC_BYTES_MAX {
        return Err(TopicFault::TooLong);
    }
    match holds_wildcard_or_nul(name.as_bytes()) {
        false => Ok(()),
        true if name.as_bytes().contains(&0) => Err(TopicFault::NulCharacter),
        true => Err(TopicFault::WildcardInName),
    }
}

/// Checks a topic filter, shared or not.
pub fn check_topic_filter(filter: &str) -> Result<(), TopicFault> {
    if filter.len() > TOPIC_BYTES_MAX {
        return Err(TopicFault::TooLong);
    }
    let Some(shared) = filter.strip_prefix("$share/") else {
        return check_plain_filter(filter);
    };
    let (group, rest) = shared.split_once('/').ok_or(TopicFault::SharedSubscription)?;
    if group.is_empty() || rest.is_empty() || group.contains(['+', '#']) {
        return Err(TopicFault::SharedSubscription);
    }
    if group.contains('\0') {
        return Err(TopicFault::NulCharacter);
    }
    check_plain_filter(rest)
}

/// A shared subscription's group and filter, or `None` if `filter` is not of the form
/// `$share/<group>/<filter>`.
pub fn split_shared(filter: &str) -> Option<(&str, &str)> {
    filter.strip_prefix("$share/")?.split_once('/')
}

/// Whether a byte is `+`, `#` or 0. Eight bytes at a time, because every PUBLISH passes here and topics are
/// short.
#[inline]
fn holds_wildcard_or_nul(bytes: &[u8]) -> bool {
    let Some(last) = bytes.last_chunk::<8>() else {
        return bytes.iter().any(|byte| matches!(byte, b'+' | b'#' | 0));
    };
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().fold(suspects(*last), |found, word| found | suspects(*word)) != 0
}

/// Not 0 if one of eight bytes is `+`, `#` or 0.
#[inline]
const fn suspects(bytes: [u8; 8]) -> u64 {
    // The two wildcards differ in this bit only.
    const DIFFERENCE: u64 = u64::from_ne_bytes([b'+' ^ b'#'; 8]);
    const HASHES: u64 = u64::from_ne_bytes([b'#'; 8]);
    let word = u64::from_ne_bytes(bytes);
    zero_bytes(word) | zero_bytes((word & !DIFFERENCE) ^ HASHES)
}

/// Not 0 if a byte of the word is 0: only there does the subtraction borrow into a high bit that was clear.
#[inline]
const fn zero_bytes(word: u64) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH_BITS: u64 = u64::from_ne_bytes([0x80; 8]);
    word.wrapping_sub(ONES) & !word & HIGH_BITS
}

fn check_plain_filter(filter: &str) -> Result<(), TopicFault> {
    if filter.is_empty() {
        return Err(TopicFault::Empty);
    }
    let bytes = filter.as_bytes();
    for (at, &byte) in bytes.iter().enumerate() {
        let starts_level = at == 0 || bytes[at - 1] == b'/';
        let ends_filter = at + 1 == bytes.len();
        let fills_level = starts_level && (ends_filter || bytes[at + 1] == b'/');
        match byte {
            0 => return Err(TopicFault::NulCharacter),
            b'+' if !fills_level => return Err(TopicFault::MisplacedWildcard),
            b'#' if !(starts_level && ends_filter) => return Err(TopicFault::MisplacedWildcard),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    #[test]
    fn a_topic_name_holds_no_wildcards_and_no_nul() {
        for good in ["a", "/", "//", "$SYS/x", "a b/ü/€", "$share/a/b"] {
            assert_eq!(check_topic_name(good), Ok(()), "{good}");
        }
        assert_eq!(check_topic_name(""), Err(TopicFault::Empty));
        assert_eq!(check_topic_name("a/+"), Err(TopicFault::WildcardInName));
        assert_eq!(check_topic_name("#"), Err(TopicFault::WildcardInName));
        assert_eq!(check_topic_name("a\0#"), Err(TopicFault::NulCharacter));
        assert_eq!(check_topic_name(&String::from_iter(["x"; 65_536])), Err(TopicFault::TooLong));
    }

    #[test]
    fn one_bad_byte_is_found_at_every_place_of_every_length() {
        for len in 1..40 {
            for at in 0..len {
                for bad in 0..=127u8 {
                    let mut name = alloc::vec![b'x'; len];
                    name[at] = bad;
                    assert_eq!(
                        holds_wildcard_or_nul(&name),
                        matches!(bad, b'+' | b'#' | 0),
                        "{bad} at {at}/{len}"
                    );
                }
            }
        }
        assert!(!holds_wildcard_or_nul("€€€€\u{a3}\u{ab}€€".as_bytes()));
    }

    #[test]
    fn a_wildcard_fills_its_level_and_a_hash_ends_the_filter() {
        for good in ["#", "+", "/", "+/+", "/+", "+/", "a/+/b", "a/#", "/#", "+/#", "a/b", "$SYS/#"] {
            assert_eq!(check_topic_filter(good), Ok(()), "{good}");
        }
        for bad in ["a#", "#/", "a/#/b", "a+", "+a", "a/b+/c", "a/+b", "##", "++", "#+"] {
            assert_eq!(check_topic_filter(bad), Err(TopicFault::MisplacedWildcard), "{bad}");
        }
        assert_eq!(check_topic_filter(""), Err(TopicFault::Empty));
        assert_eq!(check_topic_filter("a/\0"), Err(TopicFault::NulCharacter));
    }

    #[test]
    fn a_shared_filter_needs_a_group_and_a_filter() {
        for good in ["$share/g/a", "$share/g/#", "$share/g//", "$share/g/+/x", "$share", "$sharex/g"] {
            assert_eq!(check_topic_filter(good), Ok(()), "{good}");
        }
        for bad in ["$share/", "$share/g", "$share/g/", "$share//a", "$share/g+/a", "$share/#/a"] {
            assert_eq!(check_topic_filter(bad), Err(TopicFault::SharedSubscription), "{bad}");
        }
        assert_eq!(check_topic_filter("$share/g/a#"), Err(TopicFault::MisplacedWildcard));
        assert_eq!(split_shared("$share/g/a/b"), Some(("g", "a/b")));
        assert_eq!(split_shared("share/g/a/b"), None);
    }
}
