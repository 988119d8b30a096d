//! Named queues: making them, finding them, taking them up again.
//!
//! A named queue is a group without an end: its queue is always a durable one, and its row remembers beside the queue's number
//! how far it was handed out. It gets the messages published to its topic, and those of the filters that its definition binds.
//! Bound: `named_queues_max`; a name is as long as a topic may be.

use crate::broker::Broker;
use crate::broker::api::{ConsumeOutcome, PublishOutcome, SubscribeOptions, SubscribeOutcome};
use crate::limits::{QueueDef, QueueLimits};
use crate::message::Qos;
use crate::queue::group::{Group, GroupKey};
use crate::queue::named::Named;
use crate::queue::overflow::{limits_for, pattern_matches};
use crate::queue::{Owner, QueueKey};
use crate::session::rows::encode_named;
use crate::store::contract::{BatchId, Seq, Space};
use crate::topic::{self, QUEUE_PREFIX};

/// Why there is no such queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoQueue {
    /// The topic names none.
    NameInvalid,
    /// A limit is reached, or the store is full.
    QuotaExceeded,
}

impl From<NoQueue> for PublishOutcome {
    fn from(reason: NoQueue) -> Self {
        match reason {
            NoQueue::NameInvalid => Self::TopicInvalid,
            NoQueue::QuotaExceeded => Self::QuotaExceeded,
        }
    }
}

impl From<NoQueue> for SubscribeOutcome {
    fn from(reason: NoQueue) -> Self {
        match reason {
            NoQueue::NameInvalid => Self::FilterInvalid,
            NoQueue::QuotaExceeded => Self::QuotaExceeded,
        }
    }
}

impl From<NoQueue> for ConsumeOutcome {
    fn from(reason: NoQueue) -> Self {
        match reason {
            NoQueue::NameInvalid => Self::NameInvalid,
            NoQueue::QuotaExceeded => Self::QuotaExceeded,
        }
    }
}

impl Broker {
    /// The named queue behind `topic`, which is made if it does not exist.
    pub(super) fn named_queue(&mut self, topic: &str) -> Result<GroupKey, NoQueue> {
        if let Some(&key) = self.group_keys.get(topic) {
            return Ok(key);
        }
        let name = topic.strip_prefix(QUEUE_PREFIX).ok_or(NoQueue::NameInvalid)?;
        if name.is_empty() || topic::check_name(topic, &self.limits).is_err() {
            return Err(NoQueue::NameInvalid);
        }
        if self.full || self.named_queues >= self.limits.named_queues_max {
            return Err(NoQueue::QuotaExceeded);
        }
        let key = u32::try_from(self.groups.vacant_key()).expect("queues are bounded");
        let queue = self.create_queue(Owner::Group(key), true, topic);
        let named = Named::new(self.queue_def(topic), 0);
        Ok(self.add_named(topic, queue, named))
    }

    fn add_named(&mut self, topic: &str, queue: QueueKey, named: Named) -> GroupKey {
        self.named_queues += 1;
        let key = self.add_group(Group::named(topic, queue, named));
        self.put_named_row(key);
        self.named_batch = self.batch.id();
        key
    }

    /// Takes up a queue that the store has.
    pub(super) fn restore_named(&mut self, topic: &str, queue: QueueKey, mark: Seq) {
        let tail = self.queues[queue as usize].tail();
        let named = Named::new(self.queue_def(topic), mark.min(tail));
        self.named_queues += 1;
        self.add_group(Group::named(topic, queue, named));
    }

    pub(super) fn put_named_row(&mut self, key: GroupKey) {
        let group = &self.groups[key as usize];
        let Some(named) = group.as_named() else { return };
        if let Some(id) = self.queues[group.queue() as usize].id() {
            let row = encode_named(id, named.mark());
            self.batch.put(Space::NamedQueue, group.name().as_bytes().into(), row);
        }
    }

    /// Makes the queues that are defined, and binds their filters. What cannot be made now is made on first use.
    pub(super) fn define_queues(&mut self) {
        let defs = self.limits.queue_defs.clone();
        for def in defs.iter().filter(|def| !def.name.contains('*')) {
            let Ok(key) = self.named_queue(&format!("{QUEUE_PREFIX}{}", def.name)) else { continue };
            let all = SubscribeOptions {
                qos: Qos::ExactlyOnce,
                retain_as_published: true,
                ..SubscribeOptions::default()
            };
            for filter in &def.bind {
                self.router.subscribe(filter, Group::sink(key), all, None);
            }
        }
    }

    /// What is known of the queue behind `topic`.
    pub(super) fn queue_def(&self, topic: &str) -> QueueDef {
        let name = topic.strip_prefix(QUEUE_PREFIX).unwrap_or(topic);
        let found = self.limits.queue_defs.iter().find(|def| pattern_matches(&def.name, name));
        found.cloned().unwrap_or_else(|| QueueDef { limits: self.limits.queue, ..QueueDef::default() })
    }

    /// The bounds of the queue called `name`: a client identifier, `$share/<group>/<filter>`, or a named queue's topic.
    pub(super) fn limits_of_queue(&self, name: &str) -> QueueLimits {
        if topic::is_queue(name) { self.queue_def(name).limits } else { limits_for(&self.limits, name) }
    }

    /// A message of a named queue is about to leave: the queue's mark moves on. Returns the batch that must be durable before.
    pub(super) fn mark_handed_out(&mut self, key: GroupKey, seq: Seq) -> Option<BatchId> {
        let group = &mut self.groups[key as usize];
        let queue = &self.queues[group.queue() as usize];
        let named = group.as_named_mut()?;
        let moved = named.advance(seq, self.batch.id(), self.committed);
        let after = named.leaves_after(seq).filter(|_| queue.is_older_than_batch(seq, self.batch.id()));
        if moved {
            self.put_named_row(key);
        }
        after
    }

    /// How often the message has come back to its queue.
    pub(super) fn returns_of(&self, key: GroupKey, seq: Seq) -> u32 {
        self.groups[key as usize].as_named().map_or(0, |named| named.returns(seq))
    }

    /// The message has left its queue.
    pub(super) fn forget_returns(&mut self, queue: QueueKey, seq: Seq) {
        let queue = &mut self.queues[queue as usize];
        queue.settled_out_of_turn(seq);
        if let Owner::Group(key) = queue.owner()
            && let Some(named) = self.groups[key as usize].as_named_mut()
        {
            named.forget(seq);
        }
    }
}
