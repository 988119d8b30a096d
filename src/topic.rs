//! Topic names and topic filters (MQTT 5.0, 4.7 and 4.8.2; the rules of 3.1.1 are the same): their syntax and what matches
//! what. Everything here is a loop over a text that the limits bound; nothing allocates but [`Filter::parse`].

use std::fmt;

use memchr::{memchr, memchr_iter, memchr3};

use crate::limits::Limits;

/// Prefix of a shared subscription's filter (MQTT 5.0, 4.8.2).
const SHARE_PREFIX: &str = "$share/";

/// Prefix of the topics that name a queue of the broker.
pub const QUEUE_PREFIX: &str = "$queue/";

/// The topic or filter names a queue. Costs one comparison for those that do not start with `$`.
#[must_use]
#[inline]
pub fn is_queue(topic: &str) -> bool {
    topic.as_bytes().first() == Some(&b'$') && topic.as_bytes().starts_with(QUEUE_PREFIX.as_bytes())
}

/// Prefix of temporary topics: `$temp/<client identifier>/<name>` is heard by that client alone.
pub const TEMP_PREFIX: &str = "$temp/";

/// Whether a client may subscribe to a filter (without `$share/<group>/`): one of temporary topics must be its own.
#[must_use]
#[inline]
pub fn may_hear(filter: &str, client_id: &str) -> bool {
    let Some(rest) = filter.strip_prefix(TEMP_PREFIX) else { return true };
    rest.strip_prefix(client_id).is_some_and(|name| name.starts_with('/'))
}

/// Why a text is no topic name or no topic filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    /// At least one character is needed [MQTT-4.7.3-1].
    #[error("is empty")]
    Empty,
    /// Longer than `topic_bytes_max`.
    #[error("is too long")]
    TooLong,
    /// More levels than `topic_levels_max`.
    #[error("has too many levels")]
    TooManyLevels,
    /// U+0000 is not allowed [MQTT-4.7.3-2].
    #[error("contains the character U+0000")]
    NullCharacter,
    /// A topic name may not contain wildcards [MQTT-3.3.2-2].
    #[error("is a topic name but contains a wildcard")]
    WildcardInName,
    /// `#` must be a whole level and the last one, `+` a whole level [MQTT-4.7.1-1, MQTT-4.7.1-2].
    #[error("has a wildcard that is not a level of its own, or a `#` that is not the last level")]
    WildcardMisplaced,
    /// A share name has at least one character and no wildcard [MQTT-4.8.2-1, MQTT-4.8.2-2].
    #[error("is a shared subscription whose share name is empty or contains a wildcard")]
    ShareName,
    /// A share name must be followed by `/` and a filter [MQTT-4.8.2-2].
    #[error("is a shared subscription without a topic filter")]
    ShareWithoutFilter,
}

/// Checks that `topic` is a topic name within the limits.
///
/// # Errors
/// [`TopicError`] says which rule it breaks.
pub fn check_name(topic: &str, limits: &Limits) -> Result<(), TopicError> {
    check_length(topic, limits)?;
    match memchr3(b'+', b'#', 0, topic.as_bytes()) {
        Some(at) if topic.as_bytes()[at] == 0 => return Err(TopicError::NullCharacter),
        Some(_) => return Err(TopicError::WildcardInName),
        None => {}
    }
    check_levels(topic, limits)
}

/// A topic filter that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Filter {
    /// The group of a shared subscription.
    pub share: Option<Box<str>>,
    /// What topics it matches, without `$share/<group>/`.
    pub filter: Box<str>,
}

impl Filter {
    /// Takes `$share/<group>/<filter>` apart and checks the filter against the syntax and the limits. The limit on bytes is
    /// on the whole text, the limit on levels on the filter proper.
    ///
    /// # Errors
    /// [`TopicError`] says which rule it breaks.
    pub fn parse(text: &str, limits: &Limits) -> Result<Self, TopicError> {
        check_length(text, limits)?;
        if memchr(0, text.as_bytes()).is_some() {
            return Err(TopicError::NullCharacter);
        }
        let (share, filter) = split_share(text)?;
        check_wildcards(filter)?;
        check_levels(filter, limits)?;
        Ok(Self { share: share.map(Into::into), filter: filter.into() })
    }

    /// The subscription is shared.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.share.is_some()
    }
}

/// The filter as a client writes it.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.share {
            Some(group) => write!(f, "{SHARE_PREFIX}{group}/{}", self.filter),
            None => f.write_str(&self.filter),
        }
    }
}

/// The filter contains `+` or `#` as a level; it can match more than the topic of its own name.
#[must_use]
pub fn has_wildcard(filter: &str) -> bool {
    filter.split('/').any(|level| level == "+" || level == "#")
}

/// Whether a checked filter (without `$share/<group>/`) matches a checked topic name. A wildcard at the first level does not
/// match a topic that starts with `$` [MQTT-4.7.2-1].
#[must_use]
pub fn matches(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let mut topic_levels = topic.split('/');
    for level in filter.split('/') {
        if level == "#" {
            return true;
        }
        match topic_levels.next() {
            Some(name) if level == "+" || level == name => {}
            _ => return false,
        }
    }
    topic_levels.next().is_none()
}

fn check_length(text: &str, limits: &Limits) -> Result<(), TopicError> {
    if text.is_empty() {
        return Err(TopicError::Empty);
    }
    if text.len() > usize::from(limits.topic_bytes_max) {
        return Err(TopicError::TooLong);
    }
    Ok(())
}

fn check_levels(text: &str, limits: &Limits) -> Result<(), TopicError> {
    let levels = memchr_iter(b'/', text.as_bytes()).count() + 1;
    if levels > usize::from(limits.topic_levels_max) {
        return Err(TopicError::TooManyLevels);
    }
    Ok(())
}

fn split_share(text: &str) -> Result<(Option<&str>, &str), TopicError> {
    let Some(rest) = text.strip_prefix(SHARE_PREFIX) else {
        return Ok((None, text));
    };
    let (group, filter) = rest.split_once('/').unwrap_or((rest, ""));
    if group.is_empty() || group.contains(['+', '#']) {
        return Err(TopicError::ShareName);
    }
    if filter.is_empty() {
        return Err(TopicError::ShareWithoutFilter);
    }
    Ok((Some(group), filter))
}

fn check_wildcards(filter: &str) -> Result<(), TopicError> {
    let mut levels = filter.split('/').peekable();
    while let Some(level) = levels.next() {
        let allowed = match level {
            "+" => true,
            "#" => levels.peek().is_none(),
            _ => !level.contains(['+', '#']),
        };
        if !allowed {
            return Err(TopicError::WildcardMisplaced);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits { topic_bytes_max: 64, topic_levels_max: 5, ..Limits::default() }
    }

    fn parse(text: &str) -> Result<Filter, TopicError> {
        Filter::parse(text, &limits())
    }

    #[test]
    fn temporary_topics_are_heard_by_their_client_alone() {
        for (filter, may) in [
            ("a/b", true),
            ("#", true),
            ("$temp/me/answers", true),
            ("$temp/me/#", true),
            ("$temp/me", false),
            ("$temp/mean/answers", false),
            ("$temp/+/answers", false),
            ("$temp/#", false),
        ] {
            assert_eq!(may_hear(filter, "me"), may, "{filter}");
        }
    }

    #[test]
    fn the_examples_of_the_specification_match_as_it_says() {
        // MQTT 5.0, 4.7.1.2, 4.7.1.3, 4.7.2 and 4.7.3.
        let yes = [
            ("sport/tennis/player1/#", "sport/tennis/player1"),
            ("sport/tennis/player1/#", "sport/tennis/player1/ranking"),
            ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon"),
            ("sport/#", "sport"),
            ("#", "sport/tennis"),
            ("sport/tennis/+", "sport/tennis/player1"),
            ("sport/tennis/+", "sport/tennis/player2"),
            ("sport/+", "sport/"),
            ("+/+", "/finance"),
            ("/+", "/finance"),
            ("+/tennis/#", "sport/tennis/player1"),
            ("$SYS/#", "$SYS/broker/uptime"),
            ("$SYS/monitor/+", "$SYS/monitor/Clients"),
            ("/", "/"),
            ("a//b", "a//b"),
            ("a/+/b", "a//b"),
            ("Accounts payable", "Accounts payable"),
        ];
        let no = [
            ("sport/tennis/+", "sport/tennis/player1/ranking"),
            ("sport/+", "sport"),
            ("+", "/finance"),
            ("#", "$SYS/broker/uptime"),
            ("+/monitor/Clients", "$SYS/monitor/Clients"),
            ("+", "$SYS"),
            ("ACCOUNTS", "Accounts"),
            ("/finance", "finance"),
            ("finance", "/finance"),
            ("a", "a/"),
        ];
        yes.iter().for_each(|(filter, topic)| assert!(matches(filter, topic), "{filter} {topic}"));
        no.iter().for_each(|(filter, topic)| assert!(!matches(filter, topic), "{filter} {topic}"));
    }

    #[test]
    fn wildcards_stand_alone_and_the_hash_comes_last() {
        for good in ["#", "+", "/", "a/#", "+/+/#", "a/+/b", "+/tennis/#", "//#", "$SYS/#", "$share"] {
            assert_eq!(parse(good).unwrap().filter.as_ref(), good);
        }
        for bad in ["a#", "a/b#", "a/#/b", "#/a", "##", "a+", "+a/b", "a/b+/c", "++"] {
            assert_eq!(parse(bad), Err(TopicError::WildcardMisplaced), "{bad}");
        }
    }

    #[test]
    fn a_share_has_a_name_and_a_filter() {
        let shared = parse("$share/consumer1/sport/tennis/+").unwrap();
        assert_eq!(shared.share.as_deref(), Some("consumer1"));
        assert_eq!(shared.filter.as_ref(), "sport/tennis/+");
        assert_eq!(shared.to_string(), "$share/consumer1/sport/tennis/+");
        assert_eq!(parse("$share/g//finance").unwrap().filter.as_ref(), "/finance");
        assert_eq!(parse("$share/g/#").unwrap().filter.as_ref(), "#");
        for bad in ["$share/", "$share//a", "$share/+/a", "$share/g#/a", "$share/#", "$share/a+b/c"] {
            assert_eq!(parse(bad), Err(TopicError::ShareName), "{bad}");
        }
        for bad in ["$share/g", "$share/g/"] {
            assert_eq!(parse(bad), Err(TopicError::ShareWithoutFilter), "{bad}");
        }
        assert_eq!(parse("$share/g/a#"), Err(TopicError::WildcardMisplaced));
    }

    #[test]
    fn names_have_no_wildcards_and_stay_within_the_limits() {
        let check = |topic: &str| check_name(topic, &limits());
        for good in ["a", "/", "a b", "$SYS/x", "a/b/c/d/e", "ä/😀"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        assert_eq!(check(""), Err(TopicError::Empty));
        assert_eq!(check("a/+"), Err(TopicError::WildcardInName));
        assert_eq!(check("a#b"), Err(TopicError::WildcardInName));
        assert_eq!(check("a\0b"), Err(TopicError::NullCharacter));
        assert_eq!(check("a/b/c/d/e/f"), Err(TopicError::TooManyLevels));
        assert_eq!(check(&"x".repeat(64)), Ok(()));
        assert_eq!(check(&"x".repeat(65)), Err(TopicError::TooLong));
    }

    #[test]
    fn filters_stay_within_the_limits() {
        assert_eq!(parse(""), Err(TopicError::Empty));
        assert_eq!(parse("a\0"), Err(TopicError::NullCharacter));
        assert_eq!(parse("a/b/c/d/e/#"), Err(TopicError::TooManyLevels));
        assert!(parse("$share/g/a/b/c/d/e").is_ok());
        assert_eq!(parse(&"x".repeat(65)), Err(TopicError::TooLong));
    }

    #[test]
    fn only_a_wildcard_that_is_a_level_counts_as_one() {
        assert!(has_wildcard("a/+") && has_wildcard("#") && has_wildcard("+/a"));
        assert!(!has_wildcard("a/b") && !has_wildcard("/"));
    }
}
