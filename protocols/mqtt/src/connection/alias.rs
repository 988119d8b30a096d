//! Topic aliases of one connection (MQTT 5.0, 3.3.2.3.4). They end with it `[MQTT-3.3.2-7]`.

use super::event::Violation;
use crate::types::TopicAlias;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Topics that the client has given aliases to; at most `inbound_aliases_max` with `inbound_alias_bytes_max`.
#[derive(Debug, Default)]
pub(super) struct InboundAliases {
    /// The topic of alias `n` is entry `n - 1`.
    topics: Vec<Option<Box<str>>>,
    bytes: usize,
}

impl InboundAliases {
    pub(super) fn topic(&self, alias: TopicAlias) -> Option<&str> {
        self.topics.get(usize::from(alias.get()) - 1)?.as_deref()
    }

    /// Stores a topic; the alias was checked against the granted maximum.
    pub(super) fn set(&mut self, alias: TopicAlias, topic: &str, bytes_max: u32) -> Result<(), Violation> {
        let at = usize::from(alias.get()) - 1;
        let old = self.topic(alias);
        if old == Some(topic) {
            return Ok(());
        }
        let bytes = self.bytes - old.map_or(0, str::len) + topic.len();
        if bytes > bytes_max as usize {
            return Err(Violation::AliasBytes);
        }
        if self.topics.len() <= at {
            self.topics.resize_with(at + 1, || None);
        }
        self.topics[at] = Some(topic.into());
        self.bytes = bytes;
        Ok(())
    }
}

/// How a topic goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outbound {
    /// The client knows the alias: no topic name.
    Known(TopicAlias),
    /// The name and the alias that stands for it from now on.
    Fresh(TopicAlias),
    /// No alias is left: the name alone.
    Plain,
}

/// Topics that the client was told aliases for. The first topics of a connection get one and keep it.
#[derive(Debug, Default)]
pub(super) struct OutboundAliases {
    /// Alias `n` is entry `n - 1`: a hash, then the topic.
    topics: Vec<(u32, Box<str>)>,
    bytes: usize,
}

impl OutboundAliases {
    pub(super) fn find(&self, topic: &str, aliases_max: u16, bytes_max: u32) -> Outbound {
        let hash = hash(topic);
        let known = |(other, name): &(u32, Box<str>)| *other == hash && **name == *topic;
        if let Some(at) = self.topics.iter().position(known) {
            return alias_at(at).map_or(Outbound::Plain, Outbound::Known);
        }
        let fits = self.bytes + topic.len() <= bytes_max as usize;
        match alias_at(self.topics.len()).filter(|alias| alias.get() <= aliases_max && fits) {
            Some(alias) => Outbound::Fresh(alias),
            None => Outbound::Plain,
        }
    }

    /// Remembers a topic that was sent with the fresh alias.
    pub(super) fn push(&mut self, topic: &str) {
        self.topics.push((hash(topic), topic.into()));
        self.bytes += topic.len();
    }
}

fn alias_at(at: usize) -> Option<TopicAlias> {
    u16::try_from(at + 1).ok().and_then(TopicAlias::new)
}

/// FNV-1a. Only topics that this broker sends are hashed, and equality is checked after it.
fn hash(topic: &str) -> u32 {
    topic.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alias(n: u16) -> TopicAlias {
        TopicAlias::new(n).unwrap()
    }

    #[test]
    fn an_inbound_alias_can_be_given_another_topic_within_the_byte_bound() {
        let mut table = InboundAliases::default();
        assert_eq!(table.set(alias(3), "abc", 4), Ok(()));
        assert_eq!(table.set(alias(3), "abcd", 4), Ok(()));
        assert_eq!(table.topic(alias(3)), Some("abcd"));
        assert_eq!(table.set(alias(1), "x", 4), Err(Violation::AliasBytes));
        assert_eq!((table.topic(alias(1)), table.topic(alias(9))), (None, None));
    }

    #[test]
    fn outbound_aliases_end_at_the_first_of_both_bounds() {
        let mut table = OutboundAliases::default();
        assert_eq!(table.find("aa", 2, 100), Outbound::Fresh(alias(1)));
        table.push("aa");
        assert_eq!(table.find("aa", 2, 100), Outbound::Known(alias(1)));
        assert_eq!(table.find("bbb", 2, 4), Outbound::Plain);
        assert_eq!(table.find("bb", 2, 4), Outbound::Fresh(alias(2)));
        table.push("bb");
        assert_eq!(table.find("cc", 2, 100), Outbound::Plain);
    }
}
