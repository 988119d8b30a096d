//! The end of a turn: the broker's effects become bytes.

use super::ENDING_MILLIS_MAX;
use super::{BATCH_BYTES_HIGH, Encoded, Hub, Peer};
use crate::broker::Effect;
use crate::broker::api::{ClientCommand, ClientEvent, ConnId};
use crate::store::contract::{Batch, PageRequest, StoreEvent};
use crate::time::Now;

impl Hub {
    /// A port's command.
    pub fn command(&mut self, id: ConnId, command: ClientCommand, now: Now) {
        let Some(key) = self.key(id) else { return };
        let slot = &mut self.slots[key];
        if slot.ending {
            return;
        }
        slot.attached = !matches!(command, ClientCommand::Lost | ClientCommand::Disconnect { .. });
        slot.ending = !slot.attached;
        self.broker.handle(id, command, now);
        if self.slots[key].ending {
            self.mark_dirty(key);
        }
    }

    /// The store has something to tell.
    pub fn store_event(&mut self, event: StoreEvent, now: Now) {
        self.broker.store_event(event, now);
    }

    /// Subscriptions to `$SYS/` are answered from now on.
    pub fn enable_sys(&mut self) {
        self.broker.enable_sys();
    }

    /// Sends topics of the broker's own and their payloads; see [`Broker::publish_sys`](crate::broker::Broker::publish_sys).
    pub fn publish_sys<'a>(
        &mut self,
        values: impl Iterator<Item = (&'a str, &'a str)>,
        to_everybody: bool,
        now: Now,
    ) {
        self.broker.publish_sys(values, to_everybody, now);
        self.finish_turn(now);
    }

    /// Ends a turn of commands or store events: effects become bytes, and what waited for room is tried again if there is any.
    pub fn finish_turn(&mut self, now: Now) {
        self.carry_out_effects(now);
        if !self.waiting.is_empty() && self.try_waiting(now) {
            self.carry_out_effects(now);
        }
    }

    pub(super) fn carry_out_effects(&mut self, now: Now) {
        loop {
            self.broker.take_effects(&mut self.effects);
            if self.effects.is_empty() && self.followups.is_empty() && self.answered.is_empty() {
                return;
            }
            let mut effects = std::mem::take(&mut self.effects);
            for effect in effects.drain(..) {
                match effect {
                    Effect::Load(request) => self.loads.push(request),
                    Effect::Client(id, event) => self.deliver(id, event, now),
                }
            }
            self.effects = effects;
            for (id, command) in std::mem::take(&mut self.followups) {
                self.follow_up(id, command, now);
            }
            for id in std::mem::take(&mut self.answered) {
                self.resume(id, now);
            }
        }
    }

    /// Something was answered: what waited for it is handled now.
    pub(super) fn resume(&mut self, id: ConnId, now: Now) {
        let Some(key) = self.key(id) else { return };
        let slot = &mut self.slots[key];
        if !std::mem::take(&mut slot.blocked) || slot.ending || slot.held {
            return;
        }
        self.feed_partial(key, now);
        if !self.slots[key].blocked && !self.slots[key].held {
            self.unblocked.push(id);
        }
    }

    /// Connections that may be read again after [`Turn::Blocked`](super::Turn::Blocked).
    pub fn take_unblocked(&mut self) -> impl Iterator<Item = ConnId> + '_ {
        self.unblocked.drain(..)
    }

    /// What the connection sent has to wait for an answer or for a place, or it does not read its answers; read no more.
    #[must_use]
    pub fn is_blocked(&self, id: ConnId) -> bool {
        self.key(id).map(|key| &self.slots[key]).is_some_and(|slot| slot.must_wait() && !slot.ending)
    }

    /// The broker stops sending to a full outbox. What makes it grow further are answers to what the client itself asks.
    pub(super) fn check_answers(&mut self, key: usize) {
        let (high, full) = self.marks();
        let slot = &mut self.slots[key];
        slot.stuffed |= slot.outbox.len() > full + high;
    }

    pub(super) fn deliver(&mut self, id: ConnId, mut event: ClientEvent, now: Now) {
        let Some(mut key) = self.key(id) else { return };
        let mut branch = 0;
        if let Peer::Branch { parent, number } = self.slots[key].peer {
            let Some(parent) = self.key(parent) else { return };
            (key, branch) = (parent, number);
        }
        let slot = &mut self.slots[key];
        if slot.ending && matches!(slot.peer, Peer::Stomp(_)) {
            return;
        }
        let id = slot.id;
        let last = branch == 0 && matches!(event, ClientEvent::Close(_) | ClientEvent::Refused(_));
        let opens = matches!(event, ClientEvent::Connected(_));
        if let ClientEvent::Connected(connected) = &mut event {
            connected.authentication_data = self.logins.take_last_message(id);
        }
        let answers = !matches!(event, ClientEvent::Deliver(_) | ClientEvent::DeliverRelease { .. });
        if slot.blocked && answers && self.answered.last() != Some(&id) {
            self.answered.push(id);
        }
        let before = slot.outbox.len();
        let encoded =
            slot.peer.encode(branch, event, now, &mut slot.outbox, &mut self.pool, &mut self.traffic);
        self.outbox_bytes += (slot.outbox.len() - before) as u64;
        slot.outbox.release_unused(&mut self.pool);
        let deadline = if opens { slot.peer.deadline() } else { None };
        match encoded {
            Encoded::Done => {}
            Encoded::TooLarge(settle) => self.followups.extend(settle.map(|command| (id, command))),
            Encoded::Unspeakable => {
                if opens {
                    // Whoever was not let in leaves no will.
                    slot.attached = false;
                    let goodbye = ClientCommand::Disconnect { with_will: false, expiry: None };
                    self.broker.handle(id, goodbye, now);
                }
                return self.end_unasked(key, now);
            }
        }
        if matches!(self.slots[key].peer, Peer::Stomp(_)) {
            self.gather_commands(key);
            self.note_deadline(key);
        }
        if let Some(at) = deadline {
            self.list_deadline(key, at);
        }
        if last {
            let slot = &mut self.slots[key];
            slot.attached = false;
            slot.ending = true;
            self.forget_input(key);
            self.leave_place(key, now);
            self.forget_waiting(key);
            self.list_deadline(key, now.mono.plus_millis(ENDING_MILLIS_MAX));
        }
        self.mark_dirty(key);
        self.check_marks(key, now);
    }

    /// The high mark of an outbox, and its bound. Once all outboxes together are at their bound, each has a share of it.
    fn marks(&self) -> (usize, usize) {
        let (high, full) = (self.limits.outbox_high_bytes as usize, self.limits.outbox_bytes_max as usize);
        if self.outbox_bytes <= self.limits.outboxes_bytes_max {
            return (high, full);
        }
        let share = self.limits.outboxes_bytes_max / (2 * self.slots.len().max(1) as u64);
        let share = usize::try_from(share).unwrap_or(usize::MAX);
        (share.min(high), share.min(full))
    }

    #[inline]
    pub(super) fn check_marks(&mut self, key: usize, now: Now) {
        let (high, full) = self.marks();
        let slot = &mut self.slots[key];
        let waiting = slot.outbox.len();
        if waiting > high {
            if !std::mem::replace(&mut slot.high, true) {
                self.holding_up += 1;
            }
            self.turn_congested |= !slot.slow;
            if waiting > full && !slot.congested {
                slot.congested = true;
                self.broker.set_congested(slot.id, true, now);
                self.congest_branches(key, true, now);
            }
        } else if slot.high && waiting <= high / 2 {
            slot.high = false;
            self.holding_up -= usize::from(!std::mem::take(&mut slot.slow));
            if std::mem::take(&mut slot.congested) {
                self.broker.set_congested(slot.id, false, now);
                self.congest_branches(key, false, now);
            }
        }
        let slot = &mut self.slots[key];
        if slot.stuffed && waiting <= full / 2 {
            slot.stuffed = false;
            self.unblocked.push(slot.id);
            self.reading_is_paused(now);
        }
    }

    /// The publishers have waited long enough: peers that are still above the mark no longer hold anybody up.
    pub fn give_up_waiting(&mut self) {
        self.slots.iter_mut().filter(|(_, slot)| slot.high).for_each(|(_, slot)| slot.slow = true);
        self.holding_up = 0;
    }

    /// Some peer is above its mark and still given time to drain.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        self.holding_up > 0
    }

    /// Operations for the store, to be submitted before anything is written.
    pub fn take_batch(&mut self, now: Now) -> Option<Batch> {
        self.broker.take_batch(now)
    }

    /// Somebody waits for the batch, and so little else is going on that the driver may as well wait for the disk itself. To be
    /// asked once for each batch.
    pub fn is_calm(&mut self, now: Now) -> bool {
        self.broker.is_awaited()
            && self.calm.judge(self.broker.lone_waiter(), self.broker.batch_memory(), now.mono)
    }

    /// What was submitted before must not linger: somebody waits for it now.
    pub fn take_hurry(&mut self) -> bool {
        self.broker.take_hurry()
    }

    /// The operations for the store are so many that they should be submitted now, before the round ends.
    #[must_use]
    pub fn batch_is_large(&self) -> bool {
        self.broker.batch_memory() > BATCH_BYTES_HIGH
    }

    /// Pages to load, to be asked for after the batch was submitted.
    pub fn take_loads(&mut self) -> impl Iterator<Item = PageRequest> + '_ {
        self.loads.drain(..)
    }
}
