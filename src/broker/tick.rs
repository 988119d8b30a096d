//! Deadlines.

use std::sync::Arc;

use crate::broker::Broker;
use crate::queue::QueueRef;
use crate::session::SessionKey;
use crate::store::contract::Space;
use crate::time::{Mono, Now};

/// What a deadline is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The session ends, since nobody came back.
    SessionEnd(SessionKey),
    /// The client's will is published.
    Will(Arc<str>),
    /// Nobody has decided what becomes of the prepared transaction of this name.
    Prepared(Box<str>),
    /// Expired messages of a queue without a consumer are settled.
    Expiry(QueueRef),
}

/// Deadlines served in one turn; the rest comes in the next one.
const TIMERS_PER_TURN_MAX: usize = 256;
/// Retained messages that expire in one turn.
const RETAINED_EXPIRED_PER_TURN_MAX: usize = 1024;

impl Broker {
    /// When [`tick`](Self::tick) has to be called next. The past: at once, work is left over.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Mono> {
        if self.failed {
            return None;
        }
        if !self.retained_ready.is_empty() {
            return Some(Mono(0));
        }
        let timer = self.timers.first().map(|(at, _)| *at);
        [timer, self.retained_expiry, self.batch.deadline(), self.next_move_is_due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Serves what is due: sessions and wills whose time has come, expired retained messages, retained messages still to be
    /// sent.
    pub fn tick(&mut self, now: Now) {
        if self.failed || self.stopping {
            return;
        }
        for _ in 0..TIMERS_PER_TURN_MAX {
            match self.timers.first() {
                Some((at, _)) if *at <= now.mono => {}
                _ => break,
            }
            match self.timers.pop_first() {
                Some((_, Timer::SessionEnd(key))) => {
                    self.sessions[key as usize].end_at = None;
                    self.stats.sessions_expired += 1;
                    self.end_session(key, now);
                }
                Some((_, Timer::Will(client_id))) => {
                    if let Some(pending) = self.wills.get_mut(&client_id) {
                        pending.due = None;
                    }
                    self.fire_will(&client_id, now);
                }
                Some((_, Timer::Prepared(xid))) => self.prepared_timed_out(&xid, now),
                Some((_, Timer::Expiry(queue))) => self.begin_pass(queue, now),
                None => break,
            }
        }
        self.expire_retained(now);
        self.run_retained(now);
        self.go_on_moving();
    }

    fn expire_retained(&mut self, now: Now) {
        if self.retained_expiry.is_some_and(|at| at <= now.mono) {
            for topic in self.retained.expire(now.wall, RETAINED_EXPIRED_PER_TURN_MAX) {
                self.stats.retained_expired += 1;
                if !super::publish::is_sys(&topic) {
                    self.batch.delete(Space::Retained, topic.as_bytes().into());
                }
            }
            self.plan_retained_expiry(now);
        }
    }

    /// Sets the deadline for the retained message that expires first.
    pub(super) fn plan_retained_expiry(&mut self, now: Now) {
        let next = self.retained.next_expiry();
        self.retained_expiry = next.map(|at| now.mono.plus_millis(at.millis_since(now.wall)));
    }
}
