//! Publishers that wait for room instead of being refused.
//!
//! A command that finds a queue or the disk full is given back, as if it had never come; the driver keeps it, does not read
//! its connection meanwhile, and tries again when [`Broker::room_made`] has changed. How long and how much is kept that way is the
//! driver's to bound: whoever calls [`Broker::handle`] takes the refusal.

use crate::broker::Broker;
use crate::broker::api::{ClientCommand, ConnId};
use crate::limits::Overflow;
use crate::message::Message;
use crate::queue::QueueKey;
use crate::queue::overflow::Verdict;
use crate::router::Sink;
use crate::time::Now;
use crate::topic;

/// What the client in hand waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum MayWait {
    /// Nothing: it is told that there is no room.
    #[default]
    No,
    /// Queues that are defined so.
    WhereDefined,
    /// Everything: its protocol has no refusal but the end of the connection.
    Always,
}

impl Broker {
    /// As [`handle`](Self::handle), but a message or a commit that finds no room may come back, to be tried again. `patient`: the client
    /// waits for any queue and for the disk; otherwise only for queues whose overflow policy is to block.
    pub fn handle_or_wait(
        &mut self,
        conn: ConnId,
        command: ClientCommand,
        patient: bool,
        now: Now,
    ) -> Option<Box<ClientCommand>> {
        self.may_wait = if patient { MayWait::Always } else { MayWait::WhereDefined };
        self.handle(conn, command, now);
        self.may_wait = MayWait::No;
        self.given_back.take()
    }

    /// Another number than before: what was given back may find room now.
    #[must_use]
    pub fn room_made(&self) -> u64 {
        let s = &self.stats;
        let left = s.settled + s.settled_refused + s.moved + s.purged + s.dropped_denied;
        let dropped = s.dropped_expired + s.dropped_oldest + s.dropped_with_session;
        left + dropped + s.never_written + self.freed
    }

    /// The message was refused for want of room, and its client rather waits: every full queue that it would join is waited for.
    pub(super) fn waits_for_room(&mut self, message: &Message) -> bool {
        if self.may_wait == MayWait::No {
            return false;
        }
        let patient = self.may_wait == MayWait::Always;
        let topic = message.topic();
        if topic::is_queue(topic) && !self.group_keys.contains_key(topic) {
            // A queue that cannot be made: more of them than allowed never become fewer by waiting.
            return self.full && (patient || self.queue_def(topic).limits.overflow == Overflow::Block);
        }
        let mut waits = false;
        for route in self.router.route(topic).iter() {
            let queue = &self.queues[self.queue_of_sink(route.sink) as usize];
            let is_full =
                (self.full && queue.is_lasting()) || queue.verdict(message.size()) == Verdict::Refuse;
            if is_full && !patient && queue.overflow() != Overflow::Block {
                return false;
            }
            waits |= is_full;
        }
        waits
    }

    fn queue_of_sink(&self, sink: Sink) -> QueueKey {
        match sink {
            Sink::Session(key) => self.sessions[key as usize].queue,
            Sink::Group(key) => self.groups[key as usize].queue(),
        }
    }
}
