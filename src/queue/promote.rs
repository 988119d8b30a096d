//! A volatile queue gets a copy in the store, and a scratch queue gives it up.

use super::window::{Budget, Entry};
use super::{Load, Queue};
use crate::store::contract::{BatchId, QueueId, Seq};

impl Queue {
    /// Gives a volatile queue a copy in the store, with the same messages under new numbers; `held` are those that were handed
    /// out and may come back, `unstored` counts those that were handed out for good. Returns the entries in order: the caller
    /// enqueues them and tells the holders the new numbers (1, 2, ...; what is not stored has the number 0).
    pub fn promote(
        &mut self,
        id: QueueId,
        scratch: bool,
        held: Vec<Entry>,
        unstored: u64,
        budget: &mut Budget,
    ) -> Vec<Entry> {
        assert!(self.is_volatile(), "a queue becomes durable once");
        let mut all = held;
        while let Some(entry) = self.window.remove(0, budget, true) {
            all.push(entry);
        }
        all.sort_by_key(|entry| entry.seq);
        assert!(all.len() as u64 + unstored == self.messages, "nothing is forgotten");
        self.id = Some(id);
        self.scratch = scratch;
        self.tail = all.len() as Seq + 1;
        self.loaded_to = self.tail;
        self.handed_to = 1;
        all
    }

    /// An empty scratch queue is volatile again. Returns the identifier that it no longer has.
    pub fn demote(&mut self) -> Option<QueueId> {
        if !self.scratch || self.messages > 0 || self.load != Load::Idle {
            return None;
        }
        self.scratch = false;
        self.loaded_to = self.tail;
        self.handed_to = self.tail;
        self.settle_mark = (BatchId(0), 0);
        self.enqueue_mark = (BatchId(0), 0);
        self.id.take()
    }

    /// After [`promote`](Self::promote): the message `entry`, under its new number, waits or is `held` by a consumer.
    pub fn readmit(&mut self, entry: Entry, held: bool, batch: BatchId, budget: &mut Budget) {
        if self.enqueue_mark.0 != batch {
            self.enqueue_mark = (batch, entry.seq);
        }
        if held {
            self.handed_to = self.handed_to.max(entry.seq + 1);
        } else {
            self.window.push_back(entry, budget, false);
        }
    }
}
