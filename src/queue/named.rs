//! What a named queue knows beside its messages: its definition, and what was handed out before.
//!
//! A message that comes back is counted here until it leaves the queue. Across a restart there is a *mark* instead: it runs ahead
//! of what is handed out and is durable before that is, so everything below the mark may have been delivered before, and
//! everything that was delivered is below it. Bound: [`RETURNED_MAX`] messages whose exact count is known; the oldest ones go
//! first, and then count as returned once.

use std::collections::BTreeMap;

use crate::limits::QueueDef;
use crate::store::contract::{BatchId, Seq};

/// Messages of one queue whose returns are counted.
pub const RETURNED_MAX: usize = 65_536;
/// How far the mark runs ahead of what is handed out: so many messages may be flagged after a restart that never were under way.
const MARK_AHEAD: Seq = 256;

/// What only a named queue has.
#[derive(Debug)]
pub struct Named {
    /// Its definition.
    pub def: QueueDef,
    /// Everything below may have been handed out before.
    mark: Seq,
    /// The same, as far as it is durable for sure.
    mark_before: Seq,
    /// The batch that makes `mark` durable.
    mark_batch: BatchId,
    /// What was below the mark at the start of this run.
    old: Seq,
    /// How often the messages in this queue have come back.
    returned: BTreeMap<Seq, u32>,
}

impl Named {
    /// `mark` as the store knows it, 0 for a new queue.
    #[must_use]
    pub fn new(def: QueueDef, mark: Seq) -> Self {
        Self { def, mark, mark_before: mark, mark_batch: BatchId(0), old: mark, returned: BTreeMap::new() }
    }

    /// The mark to store.
    #[must_use]
    pub fn mark(&self) -> Seq {
        self.mark
    }

    /// How often the message has come back, as far as it is known; 1 for one that may have been under way before a restart.
    #[must_use]
    pub fn returns(&self, seq: Seq) -> u32 {
        let counted = self.returned.get(&seq).copied();
        counted.unwrap_or(u32::from(seq < self.old))
    }

    /// The message comes back; returns how often it has.
    pub fn count_return(&mut self, seq: Seq) -> u32 {
        let count = self.returns(seq).saturating_add(1);
        self.returned.insert(seq, count);
        if self.returned.len() > RETURNED_MAX {
            self.returned.pop_first();
        }
        count
    }

    /// The message has left the queue.
    #[inline]
    pub fn forget(&mut self, seq: Seq) {
        if !self.returned.is_empty() {
            self.returned.remove(&seq);
        }
    }

    /// The message is about to be handed out: `true` when the mark has moved and is to be stored in `batch`.
    pub fn advance(&mut self, seq: Seq, batch: BatchId, committed: BatchId) -> bool {
        if self.mark_batch <= committed {
            self.mark_before = self.mark;
        }
        let moves = seq + MARK_AHEAD / 2 >= self.mark;
        if moves {
            self.mark = seq + MARK_AHEAD;
            self.mark_batch = batch;
        }
        moves
    }

    /// The batch that must be durable before the message leaves, unless the message itself is no older than the batch.
    #[must_use]
    pub fn leaves_after(&self, seq: Seq) -> Option<BatchId> {
        (seq >= self.mark_before).then_some(self.mark_batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_is_below_a_mark_that_is_durable_first() {
        let mut named = Named::new(QueueDef::default(), 0);
        let (mut committed, mut durable) = (BatchId(0), 0);
        let mut moved = 0;
        for seq in 1..10_000 {
            let batch = BatchId(seq);
            if named.advance(seq, batch, committed) {
                moved += 1;
            }
            if let Some(after) = named.leaves_after(seq) {
                committed = committed.max(after);
            }
            if committed >= named.mark_batch {
                durable = named.mark();
            }
            assert!(seq < durable, "{seq} is below the durable mark");
            if seq % 100 == 0 {
                (committed, durable) = (batch, named.mark());
            }
        }
        assert!(moved < 100, "the mark moves rarely: {moved}");
    }

    #[test]
    fn returns_are_counted_until_the_message_leaves_and_once_after_a_restart() {
        let mut named = Named::new(QueueDef::default(), 10);
        assert_eq!([named.returns(9), named.returns(10)], [1, 0]);
        assert_eq!([named.count_return(9), named.count_return(10)], [2, 1]);
        named.forget(10);
        assert_eq!([named.returns(9), named.returns(10)], [2, 0]);
        for seq in 100..100 + RETURNED_MAX as Seq {
            named.count_return(seq);
        }
        assert_eq!(named.returned.len(), RETURNED_MAX);
    }
}
