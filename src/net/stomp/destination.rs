//! STOMP destinations and the broker's topics.
//!
//! | destination | topic |
//! |---|---|
//! | `/topic/a/b` | `a/b`, byte for byte; `+` and `#` in subscriptions |
//! | `/queue/name` | `$queue/name` |
//! | `/temp-queue/name` | `$temp/<client>/name`: gone with its connection |
//! | `/remote-temp-queue/<client>/name` | the same, as others see it |
//! | `/dsub/name` | none: a durable subscription of that name |
//!
//! The mapping is one to one: what a message was sent to is what its receivers read.

use std::borrow::Cow;

use crate::topic::{QUEUE_PREFIX as QUEUE_TOPICS, TEMP_PREFIX as TEMP_TOPICS};

const TOPIC: &str = "/topic/";
const QUEUE: &str = "/queue/";
const TEMP_QUEUE: &str = "/temp-queue/";
const REMOTE_TEMP_QUEUE: &str = "/remote-temp-queue/";
const DURABLE: &str = "/dsub/";

/// What else means something special as the beginning of a filter.
const SHARE_TOPICS: &str = "$share/";

/// Longest destination in bytes.
const DESTINATION_BYTES_MAX: usize = 4096;

/// A destination that was taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination<'a> {
    /// A topic, or a filter of topics.
    Topic(&'a str),
    /// A named queue.
    Queue(&'a str),
    /// A temporary queue of this connection.
    TempQueue(&'a str),
    /// A temporary queue of another connection: its client's identifier, `/` and its name.
    RemoteTempQueue(&'a str),
    /// A durable subscription.
    Durable(&'a str),
}

/// Why a text is no destination; what the client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DestinationError {
    #[error("unknown destination: it begins with /topic/, /queue/, /temp-queue/ or /dsub/")]
    UnknownPrefix,
    #[error("the destination has no name behind its prefix")]
    NoName,
    #[error("the destination is longer than 4096 bytes")]
    TooLong,
    #[error("the destination holds a wildcard: only subscriptions to /topic/ may")]
    Wildcard,
    #[error("this part of the topics is reserved: name queues as /queue/ or /temp-queue/")]
    Reserved,
    #[error("a message cannot be sent to a durable subscription: send it to the topic")]
    NotForSending,
    #[error("only the connection that owns a temporary queue can subscribe to it")]
    NotForSubscribing,
}

impl<'a> Destination<'a> {
    /// Takes a destination apart.
    pub(super) fn parse(text: &'a str) -> Result<Self, DestinationError> {
        if text.len() > DESTINATION_BYTES_MAX {
            return Err(DestinationError::TooLong);
        }
        let of = |prefix| text.strip_prefix(prefix);
        let (destination, name) = if let Some(name) = of(TOPIC) {
            (Destination::Topic(name), name)
        } else if let Some(name) = of(QUEUE) {
            (Destination::Queue(name), name)
        } else if let Some(name) = of(TEMP_QUEUE) {
            (Destination::TempQueue(name), name)
        } else if let Some(name) = of(REMOTE_TEMP_QUEUE) {
            (Destination::RemoteTempQueue(name), name)
        } else if let Some(name) = of(DURABLE) {
            (Destination::Durable(name), name)
        } else {
            return Err(DestinationError::UnknownPrefix);
        };
        let reserved =
            |name: &str| [QUEUE_TOPICS, TEMP_TOPICS, SHARE_TOPICS].iter().any(|p| name.starts_with(p));
        match destination {
            _ if name.is_empty() => Err(DestinationError::NoName),
            Destination::Topic(topic) if reserved(topic) => Err(DestinationError::Reserved),
            Destination::Topic(topic) => Ok(Destination::Topic(topic)),
            _ if name.contains(['+', '#']) => Err(DestinationError::Wildcard),
            other => Ok(other),
        }
    }

    /// The topic of a message that is sent here by the client `client`.
    pub(super) fn topic(self, client: &str) -> Result<Cow<'a, str>, DestinationError> {
        match self {
            Destination::Topic(topic) if topic.contains(['+', '#']) => Err(DestinationError::Wildcard),
            Destination::Durable(_) => Err(DestinationError::NotForSending),
            other => Ok(other.filter_of(client)),
        }
    }

    /// The filter of a subscription to a topic or a temporary queue.
    pub(super) fn filter(self, client: &str) -> Result<Cow<'a, str>, DestinationError> {
        match self {
            Destination::RemoteTempQueue(_) => Err(DestinationError::NotForSubscribing),
            other => Ok(other.filter_of(client)),
        }
    }

    fn filter_of(self, client: &str) -> Cow<'a, str> {
        match self {
            Destination::Topic(topic) => Cow::Borrowed(topic),
            Destination::Queue(name) => Cow::Owned([QUEUE_TOPICS, name].concat()),
            Destination::TempQueue(name) => Cow::Owned([TEMP_TOPICS, client, "/", name].concat()),
            Destination::RemoteTempQueue(name) => Cow::Owned([TEMP_TOPICS, name].concat()),
            Destination::Durable(name) => Cow::Borrowed(name),
        }
    }
}

/// How a message's topic reads to the client `client`.
pub(super) fn shown(topic: &str, client: &str) -> String {
    if let Some(name) = topic.strip_prefix(QUEUE_TOPICS) {
        return [QUEUE, name].concat();
    }
    if let Some(rest) = topic.strip_prefix(TEMP_TOPICS) {
        return match rest.strip_prefix(client).and_then(|name| name.strip_prefix('/')) {
            Some(name) => [TEMP_QUEUE, name].concat(),
            None => [REMOTE_TEMP_QUEUE, rest].concat(),
        };
    }
    [TOPIC, topic].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(text: &str) -> Result<String, DestinationError> {
        Destination::parse(text).and_then(|found| found.topic("me")).map(Cow::into_owned)
    }

    #[test]
    fn destinations_and_topics_are_one_to_one() {
        let cases = [
            ("/topic/a/b", "a/b"),
            ("/topic/a.b", "a.b"),
            ("/topic//a", "/a"),
            ("/topic/a/", "a/"),
            ("/topic/$SYS/x", "$SYS/x"),
            ("/queue/sp ace", "$queue/sp ace"),
            ("/queue/a/b", "$queue/a/b"),
            ("/temp-queue/answers", "$temp/me/answers"),
            ("/remote-temp-queue/other/answers", "$temp/other/answers"),
        ];
        for (destination, expected) in cases {
            assert_eq!(topic(destination).as_deref(), Ok(expected));
            assert_eq!(shown(expected, "me"), destination);
        }
    }

    #[test]
    fn what_is_no_destination_is_refused() {
        for text in ["", "foo", "/nope/x", "topic/a", "/topic", "/Topic/a", "/exchange/x"] {
            assert_eq!(topic(text), Err(DestinationError::UnknownPrefix), "{text}");
        }
        assert_eq!(topic("/queue/"), Err(DestinationError::NoName));
        assert_eq!(topic("/topic/"), Err(DestinationError::NoName));
        assert_eq!(topic("/topic/a/+"), Err(DestinationError::Wildcard));
        assert_eq!(topic("/queue/#"), Err(DestinationError::Wildcard));
        assert_eq!(topic("/topic/$queue/x"), Err(DestinationError::Reserved));
        assert_eq!(topic("/topic/$temp/other/x"), Err(DestinationError::Reserved));
        assert_eq!(topic("/dsub/x"), Err(DestinationError::NotForSending));
        assert_eq!(topic(&format!("/topic/{}", "a".repeat(4096))), Err(DestinationError::TooLong));
    }

    #[test]
    fn only_topics_have_wildcards_and_only_owners_temporary_queues() {
        let filter =
            |text| Destination::parse(text).and_then(|found| found.filter("me")).map(Cow::into_owned);
        assert_eq!(filter("/topic/a/+/#").as_deref(), Ok("a/+/#"));
        assert_eq!(filter("/temp-queue/+"), Err(DestinationError::Wildcard));
        assert_eq!(filter("/remote-temp-queue/other/x"), Err(DestinationError::NotForSubscribing));
        assert_eq!(filter("/temp-queue/x").as_deref(), Ok("$temp/me/x"));
    }
}
