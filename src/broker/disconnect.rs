//! The end of connections and of sessions.

use smallvec::SmallVec;

use crate::broker::Broker;
use crate::broker::api::SessionExpiry;
use crate::broker::tick::Timer;
use crate::queue::group::GroupKey;
use crate::queue::window::{Entry, entry_memory};
use crate::queue::{Load, Owner, QueueKey};
use crate::router::Sink;
use crate::session::SessionKey;
use crate::session::inflight::{Slot, Stage};
use crate::session::rows::{numbered_key, qos2_key};
use crate::store::contract::{Seq, Space};
use crate::time::{Mono, Now};

impl Broker {
    /// The client said goodbye.
    pub(super) fn disconnect(
        &mut self,
        key: SessionKey,
        with_will: bool,
        expiry: Option<SessionExpiry>,
        now: Now,
    ) {
        let session = &self.sessions[key as usize];
        let client_id = session.client_id.clone();
        if !with_will {
            self.cancel_will(&client_id);
        }
        // A session that was to end with its connection cannot be kept after all [MQTT-3.14.2.2.2].
        if let Some(expiry) = expiry.map(|asked| self.granted_expiry(asked))
            && self.sessions[key as usize].expiry != SessionExpiry::WithConnection
        {
            self.sessions[key as usize].expiry = expiry;
        }
        self.drop_connection(key, now);
    }

    /// The connection is gone; the will, if there still is one, is published now or after its delay.
    pub(super) fn drop_connection(&mut self, key: SessionKey, now: Now) {
        let client_id = self.sessions[key as usize].client_id.clone();
        self.detach(key, now);
        self.connection_lost_will(&client_id, now);
    }

    /// Takes the connection off the session. Unsettled deliveries wait again: in the session's own queue under their
    /// identifiers, in a shared subscription's queue for other members. A transient session ends.
    pub(super) fn detach(&mut self, key: SessionKey, now: Now) {
        let session = &mut self.sessions[key as usize];
        if let Some(conn) = session.conn.take() {
            self.conns.remove(&conn);
        }
        session.open = false;
        session.congested = false;
        session.waiting = 0;
        session.held = 0;
        session.disconnected = now.wall;
        self.abort_all(key);
        let touched = self.return_deliveries(key, now);
        let session = &self.sessions[key as usize];
        let ends = session.expiry == SessionExpiry::WithConnection;
        if ends {
            self.end_session(key, now);
        } else {
            self.put_session_row(key);
            self.start_session_timer(key, now);
            self.note_absence(self.sessions[key as usize].queue, now);
        }
        for group in touched {
            self.pump_group(group, now);
            self.idle_group(group, now);
        }
    }

    /// Gives back what is under way; returns the groups that may have work now.
    fn return_deliveries(&mut self, key: SessionKey, now: Now) -> SmallVec<[GroupKey; 1]> {
        let mut touched = self.sessions[key as usize].groups.clone();
        self.end_consumers(key);
        let session = &mut self.sessions[key as usize];
        let mut slots: Vec<Slot> = session
            .inflight
            .iter()
            .filter(|slot| matches!(slot.stage, Stage::AwaitAck | Stage::AwaitReceived))
            .cloned()
            .collect();
        slots.sort_unstable_by_key(|slot| slot.seq);
        let own = session.queue;
        session.sent_below = session.sent_below.max(self.queues[own as usize].handed_to());
        let mut first: Option<Seq> = None;
        for slot in slots {
            if slot.queue.key == own && slot.held.is_none() {
                first = first.or(Some(slot.seq));
                let session = &mut self.sessions[key as usize];
                session.inflight.set_stage(slot.id, Stage::Parked, slot.batch);
                session.resend.insert(slot.seq, slot.id);
            } else {
                self.sessions[key as usize].inflight.remove(slot.id);
                touched.extend(self.give_back(slot, now));
            }
        }
        let queue = &mut self.queues[own as usize];
        if queue.is_lasting() {
            queue.rewind(first, &mut self.budget);
        }
        self.sessions[key as usize].inflight.shrink();
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    /// A shared queue's message comes back from a member.
    pub(super) fn give_back(&mut self, mut slot: Slot, now: Now) -> Option<GroupKey> {
        let held = slot.held.take()?;
        self.budget.sub(entry_memory(&held.message), false);
        let queue = self.queues.get(slot.queue.key as usize)?;
        if queue.serial() != slot.queue.serial {
            return None;
        }
        self.stats.returned += 1;
        if let Owner::Group(group) = queue.owner()
            && let Some(named) = self.groups[group as usize].as_named_mut()
        {
            let count = named.count_return(slot.seq);
            if self.bury(group, &slot, &held, count, now) {
                return Some(group);
            }
        }
        let queue = &mut self.queues[slot.queue.key as usize];
        queue.give_back(
            Entry { seq: slot.seq, message: held.message, options: held.options },
            &mut self.budget,
        );
        match queue.owner() {
            Owner::Group(group) => {
                self.groups[group as usize].look_again(slot.seq, queue.spilled_from());
                Some(group)
            }
            Owner::Session(_) => None,
        }
    }

    fn start_session_timer(&mut self, key: SessionKey, now: Now) {
        let session = &mut self.sessions[key as usize];
        if let SessionExpiry::After(seconds) = session.expiry {
            let at = now.mono.plus_millis(u64::from(seconds) * 1000);
            session.end_at = Some(at);
            self.timers.insert((at, Timer::SessionEnd(key)));
        }
    }

    pub(super) fn stop_session_timer(&mut self, key: SessionKey, at: Option<Mono>) {
        if let Some(at) = at {
            self.timers.remove(&(at, Timer::SessionEnd(key)));
        }
    }

    /// Ends a session without a connection: its subscriptions, its queue and its rows go in one batch. A will that was to wait
    /// longer is published [MQTT-3.1.2-8].
    pub(super) fn end_session(&mut self, key: SessionKey, now: Now) {
        let end_at = self.sessions[key as usize].end_at.take();
        self.stop_session_timer(key, end_at);
        self.end_subscriptions(key, now);
        let session = self.sessions.remove(key as usize);
        assert!(session.conn.is_none(), "a session ends after its connection");
        self.clients.remove(&session.client_id);
        if let Some(number) = session.number {
            for tag in session.inbound.tags() {
                self.batch.delete(Space::InboundQos2, qos2_key(number, tag.0));
            }
            for slot in session.inflight.iter().filter(|slot| slot.has_row) {
                self.batch.delete(Space::OutboundQos2, qos2_key(number, slot.id.get()));
            }
            self.batch.delete(Space::Session, session.client_id.as_bytes().into());
        }
        self.remove_queue(session.queue);
        self.session_ended_will(&session.client_id, now);
    }

    fn end_subscriptions(&mut self, key: SessionKey, now: Now) {
        let session = &mut self.sessions[key as usize];
        let number = session.number;
        let subscriptions = std::mem::take(&mut session.subscriptions);
        for (filter, subscription) in subscriptions {
            self.forget_subscription(&filter);
            match subscription.group {
                Some(group) => self.leave_group(key, group, None, now),
                None => {
                    self.router.unsubscribe(&filter, Sink::Session(key));
                }
            }
            if let Some(number) = number {
                self.batch.delete(Space::Subscription, numbered_key(number, filter.as_bytes()));
            }
        }
    }

    /// Removes a queue with everything in it.
    pub(super) fn remove_queue(&mut self, key: QueueKey) {
        self.cancel_pass(key);
        let mut queue = self.queues.remove(key as usize);
        self.stats.dropped_with_session += queue.messages();
        queue.release(&mut self.budget);
        if let Load::Asked { reserved, .. } = queue.load() {
            self.budget.unreserve(reserved);
            self.loads -= 1;
        }
        if let Some(id) = queue.id() {
            self.queue_keys.remove(&id);
            self.batch.delete_queue(id);
        }
        // Its page may have been the last one under way, for which others wait.
        self.serve_wanted();
    }
}
