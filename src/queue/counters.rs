//! What happened to the messages of one queue.

use super::Discard;

/// What happened to a queue's messages; only ever grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Joined the queue.
    pub enqueued: u64,
    /// Taken by a consumer.
    pub delivered: u64,
    /// Refused by a consumer, and done with all the same.
    pub refused: u64,
    /// Not delivered in time.
    pub expired: u64,
    /// Not delivered because its consumer may not read it any more.
    pub denied: u64,
    /// Dropped after they had joined, to make room.
    pub dropped_oldest: u64,
    /// Dropped before they joined, for lack of room.
    pub dropped_new: u64,
    /// Went on to another queue.
    pub moved: u64,
    /// Removed by an operator.
    pub purged: u64,
}

impl QueueCounters {
    /// Messages that joined and have left.
    pub(super) fn gone(&self) -> u64 {
        let dropped = self.expired + self.dropped_oldest + self.denied + self.purged;
        self.delivered + self.refused + self.moved + dropped
    }
}

/// The same as a queue keeps it: what happens to every message beside it, the rest only once it has happened, since most queues
/// of a busy gateway are idle.
#[derive(Debug, Default)]
pub(super) struct Counts {
    enqueued: u64,
    delivered: u64,
    seldom: Option<Box<QueueCounters>>,
}

impl Counts {
    /// After a restart with `messages` waiting.
    pub(super) fn recovered(messages: u64) -> Self {
        Self { enqueued: messages, ..Self::default() }
    }

    /// All of it.
    pub(super) fn all(&self) -> QueueCounters {
        let seldom = self.seldom.as_deref().copied().unwrap_or_default();
        QueueCounters { enqueued: self.enqueued, delivered: self.delivered, ..seldom }
    }

    /// A message joined.
    #[inline]
    pub(super) fn enqueued(&mut self) {
        self.enqueued += 1;
    }

    /// A consumer has taken a message.
    #[inline]
    pub(super) fn delivered(&mut self) {
        self.delivered += 1;
    }

    /// The message that joined last is taken back.
    pub(super) fn taken_back(&mut self) {
        self.enqueued -= 1;
        self.seldom().dropped_new += 1;
    }

    /// What happens to few messages.
    pub(super) fn seldom(&mut self) -> &mut QueueCounters {
        self.seldom.get_or_insert_default()
    }

    /// A waiting message leaves without being delivered.
    pub(super) fn count(&mut self, cause: Discard) {
        let seldom = self.seldom();
        match cause {
            Discard::Expired => seldom.expired += 1,
            Discard::Full => seldom.dropped_oldest += 1,
            Discard::Moved => seldom.moved += 1,
            Discard::Denied => seldom.denied += 1,
            Discard::Purged => seldom.purged += 1,
        }
    }
}
