//! Pages of a spilled queue on their way from the store: one at a time, and what it holds joins the window.

use super::window::{Budget, Entry};
use super::{Load, Queue};
use crate::store::contract::{Page, Seq};

impl Queue {
    /// The next page: `from` where it has to start.
    pub fn asked(&mut self, reserved: usize) -> Seq {
        assert!(self.load == Load::Idle && self.is_spilled(), "one page at a time");
        self.load = Load::Asked { from: self.loaded_to, until: self.tail, reserved, stale: false };
        self.loaded_to
    }

    /// The page as it is to be understood: the store does not know of numbers that were left out behind all that it has, so a page
    /// that holds nothing and does not move on says that everything before the tail of then is settled.
    #[must_use]
    pub fn completed(&self, mut page: Page) -> Page {
        if let Load::Asked { from, until, .. } = self.load
            && page.from == from
            && page.entries.is_empty()
            && page.next <= from
        {
            page.next = until;
        }
        page
    }

    /// A page is to be asked for as soon as there is memory.
    pub fn set_wanted(&mut self, wanted: bool) {
        if !matches!(self.load, Load::Asked { .. }) {
            self.load = if wanted { Load::Wanted } else { Load::Idle };
        }
    }

    /// The page that was asked for: its entries join the window, unless the cursor moved meanwhile. `false`: it was not asked
    /// for.
    pub fn ingest(&mut self, page: Page, budget: &mut Budget) -> bool {
        let Load::Asked { from, reserved, stale, .. } = self.load else { return false };
        if page.from != from {
            return false;
        }
        self.load = Load::Idle;
        budget.unreserve(reserved);
        if stale {
            self.page_is_over();
            return true;
        }
        assert!(page.next > from && page.next <= self.tail, "a page moves the cursor on, within the queue");
        for entry in page.entries {
            assert!((from..page.next).contains(&entry.seq), "a page holds what it says");
            self.spilled_since = entry.message.published();
            if self.is_taken(entry.seq) {
                continue;
            }
            let entry = Entry { seq: entry.seq, message: entry.message, options: entry.options };
            self.window.push_back(entry, budget, false);
        }
        self.loaded_to = page.next;
        self.page_is_over();
        true
    }
}
