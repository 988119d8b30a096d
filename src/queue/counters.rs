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
    /// A waiting message leaves without being delivered.
    pub(super) fn count(&mut self, cause: Discard) {
        match cause {
            Discard::Expired => self.expired += 1,
            Discard::Full => self.dropped_oldest += 1,
            Discard::Moved => self.moved += 1,
            Discard::Denied => self.denied += 1,
            Discard::Purged => self.purged += 1,
        }
    }

    /// Messages that joined and have left.
    pub(super) fn gone(&self) -> u64 {
        let dropped = self.expired + self.dropped_oldest + self.denied + self.purged;
        self.delivered + self.refused + self.moved + dropped
    }
}
