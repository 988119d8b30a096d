//! What a queue knows of the batches that its messages are in: which of them may still be left out, and which must not leave early.
//!
//! Invariants: marks only rise. Bounds: a number or two of each kind, whatever the queue holds.

use crate::queue::Queue;
use crate::store::contract::{BatchId, Seq};

/// Numbers left out of the store in one place behind messages that it has: each costs a little memory there.
const LEFT_OUT_MAX: u64 = 4096;

impl Queue {
    /// The message has joined the queue in `batch` together with something else that happens there: a transaction, or its end in
    /// another queue. Of a queue that is not stored nothing is noted: its batch may never be written.
    pub fn joins(&mut self, seq: Seq, batch: BatchId) {
        if !self.is_volatile() {
            self.joined = (batch, seq);
        }
    }

    /// The batch in which the message joined the queue together with something else, or a later one.
    #[must_use]
    pub fn joined_in(&self, seq: Seq) -> Option<BatchId> {
        (seq <= self.joined.1).then_some(self.joined.0)
    }

    /// A settling operation for `seq` may join a run that stands earlier in the batch `batch`: the message was enqueued before
    /// that batch.
    #[must_use]
    pub fn is_older_than_batch(&self, seq: Seq, batch: BatchId) -> bool {
        self.enqueue_mark.0 != batch || seq < self.enqueue_mark.1
    }

    /// The store need not hear of `seq`, which is settled: at most `LEFT_OUT_MAX` numbers are left out in one place behind
    /// messages that it has.
    #[must_use]
    pub fn may_leave_out(&self, seq: Seq) -> bool {
        seq < self.stored_to + LEFT_OUT_MAX
    }

    /// The store has `seq`, or will.
    pub fn is_stored(&mut self, seq: Seq) {
        self.stored_to = self.stored_to.max(seq + 1);
    }

    /// The store does not hear of a message.
    pub fn left_out(&mut self) {
        if self.messages == 0 {
            self.stored_to = self.tail;
        }
    }
}
