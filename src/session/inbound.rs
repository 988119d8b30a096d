//! QoS 2 messages that a client has sent and not yet released: what makes a repeated PUBLISH harmless.
//!
//! Bound: one entry for each packet identifier.

use hashbrown::HashMap;

use crate::broker::api::ReplyTag;
use crate::store::contract::BatchId;

/// The set of identifiers received and unreleased, each with the batch that makes it durable.
#[derive(Debug, Default)]
pub struct Inbound {
    tags: HashMap<ReplyTag, BatchId>,
}

impl Inbound {
    /// The batch that holds the message `tag`, if it was received.
    #[must_use]
    pub fn batch_of(&self, tag: ReplyTag) -> Option<BatchId> {
        self.tags.get(&tag).copied()
    }

    /// The message `tag` was received; durable with `batch`.
    pub fn insert(&mut self, tag: ReplyTag, batch: BatchId) {
        self.tags.insert(tag, batch);
    }

    /// The message `tag` is released; `false` when it was not known.
    pub fn release(&mut self, tag: ReplyTag) -> bool {
        let known = self.tags.remove(&tag).is_some();
        if self.tags.is_empty() && self.tags.capacity() > IDLE_CAPACITY_MAX {
            self.tags = HashMap::new();
        }
        known
    }

    /// All identifiers, in ascending order.
    #[must_use]
    pub fn tags(&self) -> Vec<ReplyTag> {
        let mut tags: Vec<ReplyTag> = self.tags.keys().copied().collect();
        tags.sort_unstable();
        tags
    }

    /// The identifiers of messages that are durable once `committed` is, in ascending order: those whose repetition may be
    /// answered at once.
    #[must_use]
    pub fn durable_tags(&self, committed: BatchId) -> Vec<ReplyTag> {
        let mut tags = self.tags();
        tags.retain(|tag| self.tags[tag] <= committed);
        tags
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tags.len()
    }

    /// None.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tags.is_empty()
    }
}

/// Places that an empty set may keep allocated.
const IDLE_CAPACITY_MAX: usize = 32;
