//! What a queue without a consumer knows of its messages' expiry, and taking out those whose time is over.

use crate::queue::Queue;
use crate::queue::window::{Budget, Entry};
use crate::store::contract::Seq;
use crate::time::{Mono, Wall};

/// Where the next pass over expired messages stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pass {
    /// None is planned: there is a consumer, or nothing that waits in front will expire.
    #[default]
    None,
    /// Planned.
    Due(Mono),
    /// Under way: the page that was asked for belongs to it.
    Reading,
}

impl Queue {
    /// Takes the first waiting message in memory that `may_go`, if its time is over; it counts as expired.
    pub fn discard_expired(
        &mut self,
        budget: &mut Budget,
        wall: Wall,
        mut may_go: impl FnMut(Seq) -> bool,
    ) -> Option<Entry> {
        let at = self.window.iter().position(|entry| may_go(entry.seq))?;
        if !self.window.iter().nth(at)?.message.is_expired(wall) {
            return None;
        }
        let volatile = self.is_volatile();
        let entry = self.window.remove(at, budget, volatile)?;
        self.leave(entry.message.size());
        self.counters.seldom().expired += 1;
        Some(entry)
    }

    /// When the first waiting message in memory that `may_go` expires; `None` when there is none, or it never does.
    #[must_use]
    pub fn front_expires(&self, mut may_go: impl FnMut(Seq) -> bool) -> Option<Option<Wall>> {
        self.window.iter().find(|entry| may_go(entry.seq)).map(|entry| entry.message.expires())
    }
}
