//! Expired messages of queues that nobody consumes.
//!
//! A consumer's messages are looked at when their turn comes. Where nobody consumes, a *pass* reads a queue from its front, page
//! by page, and settles what has expired, up to the first message that has not: so it reads what it settles and at most one page
//! more, and settled messages stay one run. Expired messages behind one that is still good wait for that one or for their
//! consumer. A delivery that was under way when its consumer went is not touched: the consumer may have got it.
//!
//! Bounds: one pass per queue in [`PASS_MILLIS_MIN`]; pages as for deliveries, but only a part of those under way, and only
//! while memory is plentiful.

use crate::broker::Broker;
use crate::broker::tick::Timer;
use crate::queue::expiry::Pass;
use crate::queue::{Load, Owner, QueueKey, QueueRef};
use crate::store::contract::Seq;
use crate::time::{Now, Wall};

/// Least time between two passes over one queue: each reads up to a page for nothing.
pub const PASS_MILLIS_MIN: u64 = 600_000;
/// A pass for which there is no room now is tried again.
const RETRY_MILLIS: u64 = 10_000;
/// Pages that passes may have under way.
const PASS_LOADS_MAX: u32 = 4;

impl Broker {
    /// A message that expires at `at` has joined the queue. If it is the first one there, it decides when a pass is due.
    pub(super) fn note_expiry(&mut self, key: QueueKey, at: Wall, now: Now) {
        let queue = &self.queues[key as usize];
        if queue.messages() == 1 && queue.pass == Pass::None && !self.has_consumer(key) {
            self.plan_pass(key, at.millis_since(now.wall).max(PASS_MILLIS_MIN), now);
        }
    }

    /// Nobody consumes the queue any more, and what waits in front is not known.
    pub(super) fn note_absence(&mut self, key: QueueKey, now: Now) {
        let queue = &self.queues[key as usize];
        if queue.messages() > 0 && queue.is_lasting() && queue.pass == Pass::None && !self.has_consumer(key) {
            self.plan_pass(key, PASS_MILLIS_MIN, now);
        }
    }

    fn has_consumer(&self, key: QueueKey) -> bool {
        match self.queues[key as usize].owner() {
            Owner::Session(session) => self.sessions[session as usize].conn.is_some(),
            Owner::Group(group) => self.group_is_connected(group),
        }
    }

    fn plan_pass(&mut self, key: QueueKey, millis: u64, now: Now) {
        let at = now.mono.plus_millis(millis);
        self.cancel_pass(key);
        self.timers.insert((at, Timer::Expiry(self.queue_ref(key))));
        self.queues[key as usize].pass = Pass::Due(at);
    }

    /// The queue goes, or its pass is over.
    pub(super) fn cancel_pass(&mut self, key: QueueKey) {
        let planned = std::mem::take(&mut self.queues[key as usize].pass);
        if let Pass::Due(at) = planned {
            self.timers.remove(&(at, Timer::Expiry(self.queue_ref(key))));
        }
    }

    /// The time for a pass has come.
    pub(super) fn begin_pass(&mut self, queue_ref: QueueRef, now: Now) {
        let key = queue_ref.key;
        self.queues[key as usize].pass = Pass::None;
        if !self.has_consumer(key) {
            self.queues[key as usize].pass = Pass::Reading;
            self.go_on_with_pass(key, now);
        }
    }

    /// Settles what has expired of what is in memory, and asks for more while everything has.
    pub(super) fn go_on_with_pass(&mut self, key: QueueKey, now: Now) {
        if self.queues[key as usize].pass != Pass::Reading {
            return;
        }
        if self.has_consumer(key) {
            self.queues[key as usize].pass = Pass::None;
            return;
        }
        while self.drop_expired(key, now) {}
        let queue = &self.queues[key as usize];
        if let Some(expires) = queue.front_expires(|seq| self.is_new(key, seq)) {
            return self.end_pass(key, expires, now);
        }
        if !queue.is_spilled() {
            return self.end_pass(key, None, now);
        }
        let page = self.full_page();
        let has_room = self.loads < PASS_LOADS_MAX && self.budget.has_room(page.memory());
        if queue.load() == Load::Idle && has_room {
            self.ask(key, page);
        } else if !matches!(queue.load(), Load::Asked { .. }) {
            self.end_pass(key, None, now);
            self.plan_pass(key, RETRY_MILLIS, now);
        }
    }

    fn drop_expired(&mut self, key: QueueKey, now: Now) -> bool {
        let queue = &mut self.queues[key as usize];
        let dropped = match queue.owner() {
            Owner::Session(session) => {
                let resend = &self.sessions[session as usize].resend;
                queue.discard_expired(&mut self.budget, now.wall, |seq| !resend.contains_key(&seq))
            }
            Owner::Group(_) => queue.discard_expired(&mut self.budget, now.wall, |_| true),
        };
        let Some(entry) = dropped else { return false };
        self.stats.dropped_expired += 1;
        self.settle_expired(key, &entry, now);
        true
    }

    /// The message was not under way before.
    fn is_new(&self, key: QueueKey, seq: Seq) -> bool {
        match self.queues[key as usize].owner() {
            Owner::Session(session) => !self.sessions[session as usize].resend.contains_key(&seq),
            Owner::Group(_) => true,
        }
    }

    /// The pass is over; the next one is due when the message in front expires.
    fn end_pass(&mut self, key: QueueKey, expires: Option<Wall>, now: Now) {
        let queue = &mut self.queues[key as usize];
        queue.pass = Pass::None;
        queue.trim(0, &mut self.budget);
        if let Some(at) = expires {
            self.plan_pass(key, at.millis_since(now.wall).max(PASS_MILLIS_MIN), now);
        }
    }
}
