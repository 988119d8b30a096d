//! Time: logins, keep-alives, ends that take too long.

use std::cmp::Reverse;

use super::{BLOCKED_RECHECK_MILLIS, Hub, Peer, index};
use crate::broker::api::ConnId;
use crate::time::{Mono, Now};

/// How long silence does not count after nothing was read, in milliseconds: the readers get their turn first.
pub(super) const EXCUSE_MILLIS: u64 = 2_000;
/// Listings of a connection, on average, beyond which those that no longer count are removed.
const LISTINGS_PER_CONNECTION_MAX: usize = 4;
/// The same for a hub without connections.
const LISTINGS_MIN: usize = 64;

impl Hub {
    /// Lists the connection's deadline; an earlier listing no longer counts.
    pub(super) fn list_deadline(&mut self, key: usize, at: Mono) {
        let slot = &mut self.slots[key];
        slot.listed = at;
        self.deadlines.push(Reverse((at, slot.id)));
        if self.deadlines.len() > LISTINGS_MIN + LISTINGS_PER_CONNECTION_MAX * self.slots.len() {
            // A keep-alive may lie hours ahead: connections that came and went must not be remembered for so long.
            let slots = &self.slots;
            self.deadlines.retain(|Reverse((at, id))| {
                slots.get(index(*id)).is_some_and(|slot| slot.id == *id && slot.listed == *at)
            });
        }
    }

    /// The driver reads no sockets just now: it cannot know who is silent.
    pub fn reading_is_paused(&mut self, now: Now) {
        self.excused = self.excused.max(now.mono.plus_millis(EXCUSE_MILLIS));
    }

    /// When [`tick`](Self::tick) is next due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Mono> {
        let mine = self.deadlines.peek().map(|Reverse((at, _))| *at);
        let logins = [self.logins.next_end(), self.logins.next_renewal_end()];
        let others = [mine, self.broker.next_deadline(), self.places.next_end(), self.waiting.next_end()];
        logins.into_iter().chain(others).flatten().min()
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Now) {
        while let Some(&Reverse((at, id))) = self.deadlines.peek()
            && at <= now.mono
        {
            self.deadlines.pop();
            if let Some(key) = self.key(id) {
                self.deadline_passed(key, at, now);
            }
        }
        self.end_expired_logins(now);
        self.end_stale_renewals(now);
        self.end_overdue_places(now);
        self.end_waiting(now);
        self.broker.tick(now);
        self.finish_turn(now);
    }

    pub(super) fn deadline_passed(&mut self, key: usize, at: Mono, now: Now) {
        let slot = &mut self.slots[key];
        if slot.listed != at {
            return;
        }
        if slot.ending {
            self.finished.push(slot.id);
            return;
        }
        if self.owes_login(key) {
            return self.list_deadline(key, now.mono.plus_millis(BLOCKED_RECHECK_MILLIS));
        }
        let slot = &mut self.slots[key];
        if matches!(slot.peer, Peer::Stomp(_)) {
            return self.stomp_deadline(key, now);
        }
        match slot.peer.deadline() {
            Some(later) if later > now.mono => self.list_deadline(key, later),
            // What it has sent may wait unread.
            Some(_) if slot.stuffed || slot.starved || slot.held || now.mono < self.excused => {
                self.list_deadline(key, now.mono.plus_millis(BLOCKED_RECHECK_MILLIS));
            }
            Some(_) => {
                let counter = if slot.peer.is_open() {
                    &mut self.traffic.keep_alive_timeouts
                } else {
                    &mut self.traffic.login_timeouts
                };
                *counter += 1;
                self.answers.clear();
                slot.peer.expire(&mut self.answers);
                self.flush_answers(key);
                self.end_unasked(key, now);
            }
            // While it waits for us its silence does not count.
            None if slot.blocked => self.list_deadline(key, now.mono.plus_millis(BLOCKED_RECHECK_MILLIS)),
            None => {}
        }
    }

    /// Connections whose sockets must be closed now: their time to take the last bytes is over.
    pub fn take_finished(&mut self) -> Vec<ConnId> {
        std::mem::take(&mut self.finished)
    }

    /// The process stops: every client is told so.
    pub fn shutdown(&mut self, now: Now) {
        self.broker.shutdown(now);
        self.finish_turn(now);
        let waiting: Vec<usize> = self
            .slots
            .iter()
            .filter(|(_, slot)| !slot.ending && !matches!(slot.peer, Peer::Branch { .. }))
            .map(|(key, _)| key)
            .collect();
        waiting.into_iter().for_each(|key| self.end_unasked(key, now));
    }
}
