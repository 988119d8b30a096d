//! Taking messages out of turn: by consumers that want some of them only, and by transactions that hold them.
//!
//! What was taken out of turn is remembered by its number, because a page read later would bring it again. While a page is under
//! way that also goes for what has meanwhile been settled. Only queues with a copy in the store know turns. Bounds: what is under
//! way, and what is settled while one page is read.

use std::collections::BTreeSet;

use crate::queue::window::{Budget, Entry};
use crate::queue::{Load, Queue};
use crate::store::contract::Seq;

/// Numbers that a page must not bring again.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Under way out of turn.
    taken: BTreeSet<Seq>,
    /// Settled since the page under way was asked for.
    settled: BTreeSet<Seq>,
    /// The page under way is for looking only.
    probing: bool,
}

impl Queue {
    /// The first waiting message in memory from `seq` on.
    #[must_use]
    pub fn next_waiting(&self, seq: Seq) -> Option<&Entry> {
        self.window.from(seq)
    }

    /// Hands out the waiting message `seq`, whatever waits before it.
    pub fn hand_out_of_turn(&mut self, seq: Seq, budget: &mut Budget) -> Option<Entry> {
        if self.window.front().is_some_and(|front| front.seq == seq) {
            return self.hand_out(budget);
        }
        let volatile = self.is_volatile();
        let entry = self.window.take(seq, budget, volatile)?;
        self.hold_out_of_turn(seq);
        Some(entry)
    }

    /// The message `seq`, which is in the store alone or was just taken out of the window, is under way out of turn.
    pub fn hold_out_of_turn(&mut self, seq: Seq) {
        assert!(!self.is_volatile() && seq < self.tail, "only what is in the store");
        assert!(self.ahead.get_or_insert_default().taken.insert(seq), "a message is taken once");
        self.unsettled += 1;
    }

    /// A message that is under way becomes one that was taken out of turn: its holder may outlive the window.
    pub fn keep_out_of_turn(&mut self, seq: Seq) {
        self.ahead.get_or_insert_default().taken.insert(seq);
    }

    /// The message is under way out of turn, or was until the page under way was asked for.
    #[must_use]
    pub fn is_taken(&self, seq: Seq) -> bool {
        let ahead = self.ahead.as_ref();
        ahead.is_some_and(|ahead| ahead.taken.contains(&seq) || ahead.settled.contains(&seq))
    }

    /// A message that may have been taken out of turn is settled.
    pub fn settled_out_of_turn(&mut self, seq: Seq) {
        if let Some(ahead) = &mut self.ahead
            && ahead.taken.remove(&seq)
            && matches!(self.load, Load::Asked { .. })
        {
            ahead.settled.insert(seq);
        }
    }

    /// A message comes back; `true` when it was taken out of turn.
    pub(super) fn returned_out_of_turn(&mut self, seq: Seq) -> bool {
        self.ahead.as_mut().is_some_and(|ahead| ahead.taken.remove(&seq))
    }

    /// The page that was asked for is there.
    pub(super) fn page_is_over(&mut self) {
        if let Some(ahead) = &mut self.ahead {
            ahead.settled.clear();
            ahead.probing = false;
        }
    }

    /// The page under way is for looking only.
    #[must_use]
    pub fn is_probing(&self) -> bool {
        self.ahead.as_ref().is_some_and(|ahead| ahead.probing)
    }

    /// A page from `from` on is asked for, to look at.
    pub fn probed_from(&mut self, from: Seq, reserved: usize) {
        assert!(self.load == Load::Idle && from >= self.loaded_to && from < self.tail, "beyond the window");
        self.load = Load::Asked { from, until: self.tail, reserved, stale: false };
        self.ahead.get_or_insert_default().probing = true;
    }

    /// The page to look at is there; `None`: it was not asked for. What was taken is not in the answer.
    pub fn end_probe(
        &mut self,
        page: crate::store::contract::Page,
        budget: &mut Budget,
    ) -> Option<Vec<Entry>> {
        let Load::Asked { from, reserved, .. } = self.load else { return None };
        if page.from != from {
            return None;
        }
        self.load = Load::Idle;
        budget.unreserve(reserved);
        // The window may have moved back meanwhile, never on.
        let fresh = page.entries.into_iter().filter(|entry| !self.is_taken(entry.seq));
        let entries =
            fresh.map(|entry| Entry { seq: entry.seq, message: entry.message, options: entry.options });
        let entries = entries.collect();
        self.page_is_over();
        Some(entries)
    }
}
