//! What a client sends after a commit must not overtake the commit's QoS 0 messages.
//!
//! QoS 0 messages leave at once, but for those of a transaction, which leave when its commit is durable. Until then the client's next
//! QoS 0 messages are given back, as if there were no room for them; if it cannot wait, they leave behind the commit as well.
//! Nothing is asked of anybody else's message than whether the list is empty. Bounds: an entry for each client with such a commit on
//! its way to the disk, and [`BEHIND_BYTES_MAX`] of messages from clients that cannot wait; what exceeds it is dropped.

use crate::broker::Broker;
use crate::broker::api::PublishOutcome;
use crate::broker::publish::Distributed;
use crate::broker::waiting::MayWait;
use crate::message::{Message, Qos};
use crate::session::SessionKey;
use crate::store::contract::BatchId;
use crate::time::Now;

/// Messages that leave behind a commit because their clients cannot wait for it, in bytes.
const BEHIND_BYTES_MAX: usize = 1 << 20;

/// Commits with QoS 0 messages that are not durable.
#[derive(Debug, Default)]
pub(super) struct Behind {
    /// Who has committed, and the batch that the last such commit is durable with.
    list: Vec<(SessionKey, BatchId)>,
    /// The commit in hand has delivered a QoS 0 message.
    delivered: bool,
    /// The message in hand leaves behind this batch.
    pub(super) sending: Option<BatchId>,
    /// Memory of what leaves behind the commits in the list.
    bytes: usize,
}

impl Behind {
    /// A QoS 0 message is delivered when a commit is durable.
    pub(super) fn note_delivery(&mut self) {
        self.delivered = true;
    }

    /// The batch `never` will not be submitted, since nothing is left of it: its commits wait for the one before it alone.
    pub(super) fn advance(&mut self, never: BatchId) {
        for (_, batch) in self.list.iter_mut().filter(|(_, batch)| *batch >= never) {
            *batch = BatchId(never.0 - 1);
        }
    }

    fn batch_of(&self, key: SessionKey) -> Option<BatchId> {
        self.list.iter().find(|(other, _)| *other == key).map(|(_, batch)| *batch)
    }
}

impl Broker {
    /// A commit of the client, if it is one's, has been carried out with the batch being built.
    pub(super) fn follow_commit(&mut self, client: Option<SessionKey>) {
        let delivered = std::mem::take(&mut self.behind.delivered);
        if let Some(key) = client.filter(|_| delivered) {
            self.behind.list.retain(|(other, _)| *other != key);
            self.behind.list.push((key, self.batch.id()));
        }
    }

    /// The message would overtake its client's last commit, and the client can wait.
    #[inline]
    pub(super) fn must_wait_behind(&self, key: SessionKey, message: &Message) -> bool {
        !self.behind.list.is_empty()
            && self.may_wait != MayWait::No
            && message.qos() == Qos::AtMostOnce
            && self.behind.batch_of(key).is_some()
    }

    /// As [`distribute`](Self::distribute) for a message of the client `key`: nobody gets it before what the client has committed.
    #[inline]
    pub(super) fn distribute_behind(
        &mut self,
        message: &Message,
        topic: &str,
        key: SessionKey,
        now: Now,
    ) -> Result<Distributed, PublishOutcome> {
        if self.behind.list.is_empty() || message.qos() != Qos::AtMostOnce {
            return self.distribute(message, topic, Some(key), now);
        }
        self.behind.sending = self.behind.batch_of(key);
        if self.behind.sending.is_some() {
            if self.behind.bytes + message.memory() > BEHIND_BYTES_MAX {
                self.behind.sending = None;
                return Err(PublishOutcome::QuotaExceeded);
            }
            self.behind.bytes += message.memory();
        }
        let result = self.distribute(message, topic, Some(key), now);
        (self.behind.sending, self.behind.delivered) = (None, false);
        result
    }

    /// Those whose commits are durable need not wait any longer.
    #[inline]
    pub(super) fn forget_followers(&mut self) {
        if self.behind.list.is_empty() {
            return;
        }
        let before = self.behind.list.len();
        self.behind.list.retain(|(_, batch)| *batch > self.committed);
        self.freed += u64::from(self.behind.list.len() < before);
        if self.behind.list.is_empty() {
            self.behind.bytes = 0;
        }
    }
}
