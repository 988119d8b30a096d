//! Commands that wait for room in a queue or on the disk, and the connections that are not read until they have found it.
//!
//! Invariants: a connection has at most one command here, and is `held` exactly as long; the list is in the order of its ends. Bounds:
//! `publisher_wait_millis_max` for each, and [`Hub::may_hold`] for their memory: what has no room here is refused at once.

use std::collections::VecDeque;

use super::deadlines::EXCUSE_MILLIS;
use super::{BATCH_BYTES_HIGH, Hub, Obeyed, Peer};
use crate::broker::api::{ClientCommand, ConnId};
use crate::time::{Mono, Now};

/// Commands that are tried again in one turn.
const TRIES_PER_TURN_MAX: usize = 64;
/// The part of the bound on partly received packets that whole messages which wait may take: others must get through.
const HELD_SHARE: u64 = 2;

#[derive(Debug)]
struct Held {
    id: ConnId,
    command: Box<ClientCommand>,
    bytes: u64,
    until: Mono,
}

/// Everything that waits for room.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    list: VecDeque<Held>,
    bytes: u64,
    /// [`room_made`](crate::broker::Broker::room_made) when the last round of tries began.
    seen: u64,
    /// Of the last round, so many from `next` on are still to be tried.
    untried: usize,
    next: usize,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn has_untried(&self) -> bool {
        self.untried > 0
    }

    /// When the first one has waited for too long.
    pub(super) fn next_end(&self) -> Option<Mono> {
        self.list.front().map(|held| held.until)
    }

    fn remove(&mut self, at: usize) -> Option<Held> {
        let held = self.list.remove(at)?;
        self.bytes -= held.bytes;
        self.next -= usize::from(at < self.next);
        self.untried = self.untried.min(self.list.len());
        Some(held)
    }
}

fn memory(command: &ClientCommand) -> u64 {
    match command {
        ClientCommand::Publish(request) => request.message.memory() as u64,
        // A commit's messages are counted where they are.
        _ => size_of::<ClientCommand>() as u64,
    }
}

impl Hub {
    /// Connections that are not read because their last command waits for room.
    #[must_use]
    pub fn waiting_for_room(&self) -> usize {
        self.waiting.list.len()
    }

    /// The connection's last command waits for room.
    #[must_use]
    pub fn is_held(&self, id: ConnId) -> bool {
        self.key(id).is_some_and(|key| self.slots[key].held)
    }

    fn may_hold(&self, bytes: u64) -> bool {
        let max = self.limits.read_buffers_bytes_max;
        self.limits.publisher_wait_millis_max > 0
            && self.waiting.bytes + bytes <= max / HELD_SHARE
            && self.read_bytes + self.waiting.bytes + bytes <= max
    }

    /// The command found no room: it waits, or is refused after all.
    pub(super) fn hold(&mut self, key: usize, command: Box<ClientCommand>, now: Now) -> Obeyed {
        let bytes = memory(&command);
        if !self.may_hold(bytes) {
            return self.carry_out(key, *command, false, now).unwrap_or(Obeyed::On);
        }
        if self.waiting.is_empty() {
            self.waiting.seen = self.broker.room_made();
        }
        let until = now.mono.plus_millis(self.limits.publisher_wait_millis_max.into());
        let slot = &mut self.slots[key];
        slot.held = true;
        self.waiting.bytes += bytes;
        self.waiting.list.push_back(Held { id: slot.id, command, bytes, until });
        self.traffic.waited_for_room += 1;
        Obeyed::Waits
    }

    /// Tries what waits again if there may be room now: not all at once, since what follows each is heard as well. `true`: some of
    /// it waits no longer.
    pub(super) fn try_waiting(&mut self, now: Now) -> bool {
        let room = self.broker.room_made();
        if room != self.waiting.seen {
            (self.waiting.seen, self.waiting.untried) = (room, self.waiting.list.len());
        }
        let mut moved = false;
        for _ in 0..TRIES_PER_TURN_MAX {
            if self.waiting.untried == 0 || self.broker.batch_memory() > BATCH_BYTES_HIGH {
                break;
            }
            self.waiting.untried -= 1;
            moved |= self.try_next(now);
        }
        moved
    }

    fn try_next(&mut self, now: Now) -> bool {
        if self.waiting.next >= self.waiting.list.len() {
            self.waiting.next = 0;
        }
        let at = self.waiting.next;
        let Some(held) = self.waiting.list.get_mut(at) else { return false };
        let id = held.id;
        let command = std::mem::replace(&mut *held.command, ClientCommand::Lost);
        let Some(key) = self.key(id) else { return self.waiting.remove(at).is_some() };
        self.slots[key].held = false;
        match self.carry_out(key, command, true, now) {
            Err(command) => {
                self.slots[key].held = true;
                self.waiting.list[at].command = command;
                self.waiting.next += 1;
                false
            }
            Ok(obeyed) => {
                self.waiting.remove(at);
                self.go_on(id, obeyed, now);
                true
            }
        }
    }

    /// The command waits no longer: what the connection has sent after it is heard.
    fn go_on(&mut self, id: ConnId, obeyed: Obeyed, now: Now) {
        let Some(key) = self.key(id) else { return };
        // What it has sent meanwhile is still to be read: its silence begins now.
        let slot = &mut self.slots[key];
        let (goes_on, times_out) = (!slot.ending, slot.peer.deadline().is_some());
        match &mut slot.peer {
            Peer::Stomp(adapter) => adapter.heard(now),
            _ if goes_on && times_out => self.list_deadline(key, now.mono.plus_millis(EXCUSE_MILLIS)),
            _ => {}
        }
        if obeyed == Obeyed::On && goes_on && !self.slots[key].blocked {
            self.feed_partial(key, now);
        }
        let Some(key) = self.key(id) else { return };
        if !self.slots[key].must_wait() {
            self.unblocked.push(id);
        }
    }

    /// What has waited for too long is refused.
    pub(super) fn end_waiting(&mut self, now: Now) {
        while let Some(front) = self.waiting.list.front()
            && front.until <= now.mono
            && let Some(held) = self.waiting.remove(0)
        {
            let Some(key) = self.key(held.id) else { continue };
            self.slots[key].held = false;
            let obeyed = self.carry_out(key, *held.command, false, now).unwrap_or(Obeyed::On);
            self.go_on(held.id, obeyed, now);
        }
    }

    /// The connection ends: what waited is not heard.
    pub(super) fn forget_waiting(&mut self, key: usize) {
        let slot = &mut self.slots[key];
        if std::mem::take(&mut slot.held) {
            let id = slot.id;
            if let Some(at) = self.waiting.list.iter().position(|held| held.id == id) {
                self.waiting.remove(at);
            }
        }
    }
}
