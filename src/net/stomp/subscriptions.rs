//! What the subscriptions of one connection stand for in the broker.
//!
//! A subscription to a topic is one of the connection's session, told apart by its number; two to the same filter share it. One to
//! a queue is a consumer, whose identifier is its number. A durable one is a session of its own, a *branch* of the connection.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use tidegate_stomp::connection::SubscriptionTag;

use crate::broker::api::DeliveryId;
use crate::selector::{Fields, Selector};

/// Numbers are subscription identifiers too (MQTT 5.0, 3.8.2.1.2).
const NUMBER_MAX: u32 = 268_435_455;

/// Memory of the selectors of one connection's subscriptions to topics, in bytes. Those of queues are the broker's.
const SELECTORS_BYTES_MAX: usize = 256 << 10;

/// What gets the messages of a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Topics that match the filter.
    Topic(Box<str>),
    /// A queue.
    Queue,
    /// The branch of this number.
    Durable,
}

/// A subscription of the client.
#[derive(Clone, Debug)]
pub(super) struct Subscriber {
    pub(super) tag: SubscriptionTag,
    /// Messages that it does not select go to others, or to nobody.
    pub(super) selector: Option<Box<Selector>>,
    /// A message is settled when its bytes are written.
    pub(super) auto: bool,
}

impl Subscriber {
    fn memory(&self) -> usize {
        self.selector.as_ref().map_or(0, |selector| selector.memory())
    }

    pub(super) fn wants(&self, message: &impl Fields) -> bool {
        self.selector.as_ref().is_none_or(|selector| selector.selects(message))
    }
}

#[derive(Debug)]
struct Entry {
    source: Source,
    subscribers: SmallVec<[Subscriber; 1]>,
}

/// All subscriptions of a connection. Their number is bounded by the connection's limits.
#[derive(Debug)]
pub(super) struct Subscriptions {
    entries: BTreeMap<u32, Entry>,
    numbers: BTreeMap<SubscriptionTag, u32>,
    last: u32,
    selectors_bytes: usize,
}

/// What is left of a subscription that ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Others share its number.
    Shared,
    /// Its number is free: what it stood for ends.
    Last(u32, Source),
    /// Nothing of the kind was there.
    Unknown,
}

impl Subscriptions {
    pub(super) const fn new() -> Self {
        Self { entries: BTreeMap::new(), numbers: BTreeMap::new(), last: 0, selectors_bytes: 0 }
    }

    /// Enters a subscription; its number, or `None` when numbers or the memory for selectors have run out.
    pub(super) fn add(&mut self, source: Source, subscriber: Subscriber) -> Option<u32> {
        let memory = subscriber.memory();
        if memory > 0 && self.selectors_bytes + memory > SELECTORS_BYTES_MAX {
            return None;
        }
        let shared = self
            .entries
            .iter_mut()
            .find(|(_, entry)| matches!(source, Source::Topic(_)) && entry.source == source);
        let tag = subscriber.tag;
        let number = if let Some((number, entry)) = shared {
            entry.subscribers.push(subscriber);
            *number
        } else {
            self.last = self.last.checked_add(1).filter(|next| *next <= NUMBER_MAX)?;
            let subscribers = SmallVec::from_iter([subscriber]);
            self.entries.insert(self.last, Entry { source, subscribers });
            self.last
        };
        self.numbers.insert(tag, number);
        self.selectors_bytes += memory;
        Some(number)
    }

    pub(super) fn remove(&mut self, tag: SubscriptionTag) -> Ended {
        let Some(number) = self.numbers.remove(&tag) else { return Ended::Unknown };
        let Some(entry) = self.entries.get_mut(&number) else { return Ended::Unknown };
        let ended = entry.subscribers.iter().filter(|subscriber| subscriber.tag == tag);
        self.selectors_bytes -= ended.map(Subscriber::memory).sum::<usize>();
        entry.subscribers.retain(|subscriber| subscriber.tag != tag);
        if !entry.subscribers.is_empty() {
            return Ended::Shared;
        }
        match self.entries.remove(&number) {
            Some(entry) => Ended::Last(number, entry.source),
            None => Ended::Unknown,
        }
    }

    /// Who gets the messages of a number.
    pub(super) fn subscribers(&self, number: u32) -> &[Subscriber] {
        self.entries.get(&number).map_or(&[], |entry| &entry.subscribers)
    }
}

/// A delivery as the connection's tables know it: 64 bits that come back with the client's acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Handle {
    /// 0 for the connection's own session.
    pub(super) branch: u32,
    /// `None`: nothing is to be settled.
    pub(super) id: Option<DeliveryId>,
}

impl Handle {
    pub(super) fn to_tag(self) -> u64 {
        u64::from(self.branch) << 16 | self.id.map_or(0, |id| u64::from(id.get()))
    }

    #[expect(clippy::cast_possible_truncation, reason = "the parts were put together from these widths")]
    pub(super) fn from_tag(tag: u64) -> Self {
        Self { branch: (tag >> 16) as u32, id: DeliveryId::new(tag as u16) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_come_back_as_they_were() {
        for branch in [0, 1, u32::MAX] {
            for id in [None, DeliveryId::new(1), DeliveryId::new(u16::MAX)] {
                let handle = Handle { branch, id };
                assert_eq!(Handle::from_tag(handle.to_tag()), handle);
            }
        }
    }
}
