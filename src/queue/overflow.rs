//! Bounds of a queue and what happens at them.

use crate::limits::{Limits, Overflow, QueueLimits};

/// Bytes of unsettled messages that a queue without a copy in the store may hold when no explicit bound is set.
pub const VOLATILE_QUEUE_BYTES_MAX: u64 = 16 << 20;

/// Messages by which a queue that drops its oldest ones may exceed its bound while those are read back from the disk.
pub const DROP_OVERSHOOT_MESSAGES_MAX: u64 = 1024;

/// What a full queue makes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It fits.
    Accept,
    /// Its publisher is told to keep it.
    Refuse,
    /// It is dropped for this queue.
    DropNew,
    /// It is accepted; the oldest waiting messages make room.
    DropOldest,
}

/// The bounds for the queue called `name` (a client identifier, or `$share/group/filter`): those of the first rule that
/// matches, otherwise the general ones.
#[must_use]
pub fn limits_for(limits: &Limits, name: &str) -> QueueLimits {
    let rule = limits.queue_rules.iter().find(|rule| pattern_matches(&rule.client_pattern, name));
    rule.map_or(limits.queue, |rule| rule.limits)
}

/// `queue` after `size` more bytes in one more message stays within `limits`, or what to do.
#[must_use]
pub fn verdict(limits: &QueueLimits, messages: u64, bytes: u64, size: u32) -> Verdict {
    let fits = limits.messages_max.is_none_or(|max| messages < max)
        && limits.bytes_max.is_none_or(|max| bytes.saturating_add(u64::from(size)) <= max);
    match limits.overflow {
        _ if fits => Verdict::Accept,
        Overflow::Reject | Overflow::Block => Verdict::Refuse,
        Overflow::DropTail => Verdict::DropNew,
        Overflow::DropHead => Verdict::DropOldest,
    }
}

/// `*` in `pattern` stands for any run of characters. Linear in `text` for each `*`, never recursive.
#[must_use]
pub fn pattern_matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            retry = Some((p + 1, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            p += 1;
            t += 1;
        } else if let Some((after_star, from)) = retry {
            retry = Some((after_star, from + 1));
            p = after_star;
            t = from + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::QueueRule;

    #[test]
    fn a_star_stands_for_any_run_of_characters() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abbcd", false),
            ("*line-*", "production-line-7", true),
            ("a*b*c", "aXbXbXc", true),
            ("abc", "abcd", false),
            ("", "", true),
            ("**", "x", true),
        ] {
            assert_eq!(pattern_matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn the_first_rule_that_matches_wins() {
        let rule = |pattern: &str, max| QueueRule {
            client_pattern: pattern.into(),
            limits: QueueLimits { messages_max: Some(max), ..QueueLimits::default() },
        };
        let limits = Limits { queue_rules: vec![rule("a*", 1), rule("*", 2)], ..Limits::default() };
        assert_eq!(limits_for(&limits, "abc").messages_max, Some(1));
        assert_eq!(limits_for(&limits, "xyz").messages_max, Some(2));
    }

    #[test]
    fn a_bound_is_reached_by_count_or_by_bytes() {
        let mut limits =
            QueueLimits { messages_max: Some(2), bytes_max: Some(100), overflow: Overflow::Reject };
        assert_eq!(verdict(&limits, 1, 50, 50), Verdict::Accept);
        assert_eq!(verdict(&limits, 2, 50, 1), Verdict::Refuse);
        limits.overflow = Overflow::DropTail;
        assert_eq!(verdict(&limits, 1, 50, 51), Verdict::DropNew);
        limits.overflow = Overflow::DropHead;
        assert_eq!(verdict(&limits, 2, 50, 1), Verdict::DropOldest);
    }
}
