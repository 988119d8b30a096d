//! Wills: kept with a row while their client is connected or may still come back, and published when it does not.
//!
//! A will is published once: its row goes in the batch that enqueues the message.

use std::sync::Arc;

use crate::broker::Broker;
use crate::broker::access::WillOwner;
use crate::broker::api::Will;
use crate::broker::tick::Timer;
use crate::session::rows::will_message;
use crate::store::contract::Space;
use crate::time::{Mono, Now};

/// Milliseconds after which a will that found the store full is tried again.
const WILL_RETRY_MILLIS: u64 = 5_000;

/// A will that may still be published.
#[derive(Debug)]
pub(super) struct PendingWill {
    pub(super) will: Will,
    /// Whose it is; `None`: not known, or one that may do everything.
    pub(super) owner: Option<WillOwner>,
    /// When it is published; `None` while its client is connected.
    pub(super) due: Option<Mono>,
    /// It was found at a restart: its client has until then to come back, whatever becomes of the session.
    pub(super) grace_until: Option<Mono>,
}

impl Broker {
    /// The client is back, or said goodbye: the will is forgotten.
    pub(super) fn cancel_will(&mut self, client_id: &Arc<str>) {
        let Some(pending) = self.wills.remove(client_id) else { return };
        if let Some(at) = pending.due {
            self.timers.remove(&(at, Timer::Will(client_id.clone())));
        }
        self.batch.delete(Space::Will, client_id.as_bytes().into());
        // A will that a power cut brings back would tell of a death that was none.
        self.batch.make_urgent();
    }

    /// The client's connection is gone.
    pub(super) fn connection_lost_will(&mut self, client_id: &Arc<str>, now: Now) {
        if self.stopping {
            return;
        }
        let Some(pending) = self.wills.get(client_id) else { return };
        match pending.will.delay_secs {
            0 => self.fire_will(client_id, now),
            seconds => self.schedule_will(client_id, now.mono.plus_millis(u64::from(seconds) * 1000)),
        }
    }

    /// The client's session is gone: there is nothing more to wait for, except for the time that a restart grants.
    pub(super) fn session_ended_will(&mut self, client_id: &Arc<str>, now: Now) {
        if self.stopping {
            return;
        }
        match self.wills.get(client_id).map(|pending| pending.grace_until) {
            Some(Some(grace)) if grace > now.mono => self.schedule_will(client_id, grace),
            Some(_) => self.fire_will(client_id, now),
            None => {}
        }
    }

    pub(super) fn schedule_will(&mut self, client_id: &Arc<str>, at: Mono) {
        let Some(pending) = self.wills.get_mut(client_id) else { return };
        if let Some(old) = pending.due.replace(at) {
            self.timers.remove(&(old, Timer::Will(client_id.clone())));
        }
        self.timers.insert((at, Timer::Will(client_id.clone())));
    }

    /// Publishes the will now. When the store is full, it is kept and tried again.
    pub(super) fn fire_will(&mut self, client_id: &Arc<str>, now: Now) {
        let Some(pending) = self.wills.get(client_id) else { return };
        let message = will_message(&pending.will, now.wall);
        if !self.may_publish_will(client_id, pending.owner.as_ref(), message.topic()) {
            self.stats.denied_publishes += 1;
            return self.cancel_will(client_id);
        }
        if self.distribute(&message, message.topic(), None, now).is_err() {
            return self.schedule_will(client_id, now.mono.plus_millis(WILL_RETRY_MILLIS));
        }
        self.stats.wills += 1;
        self.cancel_will(client_id);
    }
}
