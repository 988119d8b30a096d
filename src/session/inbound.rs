//! QoS 2 messages that a client has sent and not yet released: what makes a repeated PUBLISH harmless.
//!
//! Bound: one entry for each packet identifier.

use hashbrown::HashMap;

use crate::broker::api::ReplyTag;
use crate::store::contract::BatchId;

/// The set of identifiers received and unreleased, each with the batch that makes it durable.
#[derive(Debug, Default)]
pub struct Inbound {
    /// `None`: nothing was received; most sessions never get a QoS 2 message.
    tags: Option<Box<HashMap<ReplyTag, BatchId>>>,
}

impl Inbound {
    /// The batch that holds the message `tag`, if it was received.
    #[must_use]
    pub fn batch_of(&self, tag: ReplyTag) -> Option<BatchId> {
        self.tags.as_ref()?.get(&tag).copied()
    }

    /// The message `tag` was received; durable with `batch`.
    pub fn insert(&mut self, tag: ReplyTag, batch: BatchId) {
        self.tags.get_or_insert_default().insert(tag, batch);
    }

    /// The message `tag` is released; `false` when it was not known.
    pub fn release(&mut self, tag: ReplyTag) -> bool {
        let Some(tags) = &mut self.tags else { return false };
        let known = tags.remove(&tag).is_some();
        if tags.is_empty() && tags.capacity() > IDLE_CAPACITY_MAX {
            self.tags = None;
        }
        known
    }

    /// All identifiers, in ascending order.
    #[must_use]
    pub fn tags(&self) -> Vec<ReplyTag> {
        self.sorted(|_| true)
    }

    /// The identifiers of messages that are durable once `committed` is, in ascending order: those whose repetition may be
    /// answered at once.
    #[must_use]
    pub fn durable_tags(&self, committed: BatchId) -> Vec<ReplyTag> {
        self.sorted(|batch| batch <= committed)
    }

    fn sorted(&self, wanted: impl Fn(BatchId) -> bool) -> Vec<ReplyTag> {
        let entries = self.tags.iter().flat_map(|tags| tags.iter());
        let mut tags: Vec<ReplyTag> =
            entries.filter(|(_, batch)| wanted(**batch)).map(|(tag, _)| *tag).collect();
        tags.sort_unstable();
        tags
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tags.as_ref().map_or(0, |tags| tags.len())
    }

    /// None.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Places that an empty set may keep allocated.
const IDLE_CAPACITY_MAX: usize = 32;
