//! Delivery: from a queue to a client's window.

use crate::broker::Broker;
use crate::broker::api::{ClientEvent, Delivery, DeliveryId};
use crate::broker::effects::Effect;
use crate::limits::Overflow;
use crate::message::{DeliveryOptions, Message, Qos};
use crate::queue::overflow::VOLATILE_QUEUE_BYTES_MAX;
use crate::queue::window::entry_memory;
use crate::queue::{Discard, Owner, QueueKey, QueueRef};
use crate::session::SessionKey;
use crate::session::inflight::{Held, Slot, Stage};
use crate::session::rows::{encode_outbound, qos2_key};
use crate::store::contract::{BatchId, Seq, Space};
use crate::time::Now;

/// A queue without a copy in the store may hold this part of the memory for queues before it gets one.
const VOLATILE_SHARE: usize = 8;

/// A message on its way from a queue to a client.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    pub(super) queue: QueueRef,
    pub(super) seq: Seq,
    pub(super) message: &'a Message,
    pub(super) options: DeliveryOptions,
    /// For a shared subscription's message.
    pub(super) held: Option<Box<Held>>,
    /// It must not leave before this batch is durable.
    pub(super) after: Option<BatchId>,
}

impl Broker {
    /// QoS 0: now or never.
    pub(super) fn deliver_unqueued(&mut self, key: SessionKey, message: &Message, options: DeliveryOptions) {
        let session = &mut self.sessions[key as usize];
        let Some(conn) = session.ready() else {
            session.dropped_qos0 += 1;
            if session.conn.is_some() {
                self.stats.dropped_congested += 1;
            } else {
                self.stats.dropped_offline += 1;
            }
            return;
        };
        self.stats.delivered[0] += 1;
        self.stats.delivered_bytes += u64::from(message.size());
        let delivery = Delivery {
            id: None,
            message: message.clone(),
            qos: Qos::AtMostOnce,
            retain: options.retain,
            duplicate: false,
            subscription_ids: options.subscription_ids,
            consumer: None,
            redeliveries: 0,
        };
        if let Some(batch) = self.committing.or(self.behind.sending) {
            self.behind.note_delivery();
            return self.send_ordered(key, Some(batch), ClientEvent::Deliver(delivery));
        }
        self.effects.push(Effect::Client(conn, ClientEvent::Deliver(delivery)));
    }

    /// The newest message of a session's queue: straight to the client if nothing is before it, otherwise it waits.
    pub(super) fn offer(&mut self, key: SessionKey, seq: Seq, message: &Message, options: DeliveryOptions) {
        let session = &self.sessions[key as usize];
        let queue = &mut self.queues[session.queue as usize];
        if let Some(batch) = self.committing {
            queue.joins(seq, batch);
        }
        let is_next = queue.window_len() == 0 && queue.spilled_below(seq) == 0;
        if is_next && session.takes(message.size(), self.limits.inflight_bytes_max) {
            queue.pass(seq);
            let queue = QueueRef { key: session.queue, serial: queue.serial() };
            self.send(key, Outgoing { queue, seq, message, options, held: None, after: None });
            return;
        }
        let (queue, online) = (session.queue, session.conn.is_some());
        self.keep_or_spill(queue, seq, message, options, online);
    }

    /// The newest message of a queue stays in memory if it may; a durable queue's message is in the store anyway.
    pub(super) fn keep_or_spill(
        &mut self,
        key: QueueKey,
        seq: Seq,
        message: &Message,
        options: DeliveryOptions,
        online: bool,
    ) {
        let memory = entry_memory(message);
        let queue = &mut self.queues[key as usize];
        if queue.is_volatile() {
            if !self.full && self.is_short_of_memory(key, memory) {
                self.queues[key as usize].keep(seq, message.clone(), options, &mut self.budget);
                self.promote_queue(key, true);
                return;
            }
            if !self.make_volatile_room(key, memory) {
                self.queues[key as usize].drop_appended(seq, message.size());
                self.stats.dropped_new += 1;
                self.stats.enqueued -= 1;
                return;
            }
        } else {
            let cap = self.limits.queue_window_bytes_max as usize;
            let fits = queue.window_memory() + memory <= cap && self.budget.has_room(memory);
            if !online || queue.spilled_below(seq) > 0 || !fits {
                return;
            }
        }
        self.queues[key as usize].keep(seq, message.clone(), options, &mut self.budget);
    }

    /// A queue without a copy in the store has outgrown its share of the memory, or there is none left: its messages go to disk
    /// before any of them would have to be dropped.
    fn is_short_of_memory(&self, key: QueueKey, memory: usize) -> bool {
        let share = self.budget.bytes_max() / VOLATILE_SHARE;
        let own = self.queues[key as usize].window_memory() + memory;
        own > share.max(self.limits.queue_window_bytes_max as usize) || !self.budget.has_volatile_room(memory)
    }

    /// Room for one more message of a queue that has no copy in the store. Memory is first taken from windows that can be
    /// loaded again; then the largest such queue pays, so that a slow client does not cost others.
    fn make_volatile_room(&mut self, key: QueueKey, memory: usize) -> bool {
        let queue = &self.queues[key as usize];
        let drops_oldest = queue.overflow() == Overflow::DropHead;
        let own_room = queue.bytes() <= VOLATILE_QUEUE_BYTES_MAX;
        if own_room && self.budget.has_volatile_room(memory) {
            return true;
        }
        self.reclaim(memory);
        if own_room && self.budget.has_volatile_room(memory) {
            return true;
        }
        while drops_oldest && self.drop_oldest(key) {
            let queue = &self.queues[key as usize];
            if queue.bytes() <= VOLATILE_QUEUE_BYTES_MAX && self.budget.has_volatile_room(memory) {
                return true;
            }
        }
        own_room && self.reclaim_volatile(key) && self.budget.has_volatile_room(memory)
    }

    /// Drops the oldest message of a queue that waits and was not under way before; `false` when none is in memory.
    pub(super) fn drop_oldest(&mut self, key: QueueKey) -> bool {
        let queue = &mut self.queues[key as usize];
        let dropped = match queue.owner() {
            Owner::Session(session) => {
                let resend = &self.sessions[session as usize].resend;
                queue.discard(&mut self.budget, Discard::Full, |seq| !resend.contains_key(&seq))
            }
            Owner::Group(_) => queue.discard(&mut self.budget, Discard::Full, |_| true),
        };
        let Some(entry) = dropped else {
            if queue.is_spilled() {
                self.request_load(key);
            }
            return false;
        };
        self.stats.dropped_oldest += 1;
        self.batch.settle(queue, entry.seq, entry.message.size());
        self.forget_returns(key, entry.seq);
        true
    }

    /// The front of the queue leaves it because its time is over.
    pub(super) fn drop_expired_front(&mut self, key: QueueKey, now: Now) {
        let queue = &mut self.queues[key as usize];
        if let Some(entry) = queue.discard(&mut self.budget, Discard::Expired, |_| true) {
            self.stats.dropped_expired += 1;
            self.settle_expired(key, &entry, now);
        }
    }

    /// Delivers what waits for the session while its window is free. Its own queue and its shared subscriptions take turns in
    /// coming first, but what is to be sent again comes before everything else.
    pub(super) fn pump_session(&mut self, key: SessionKey, now: Now) {
        let session = &mut self.sessions[key as usize];
        if session.groups.is_empty() {
            self.pump_own(key, now);
        } else {
            session.groups_first = !session.groups_first;
            let groups_first = session.groups_first && session.resend.is_empty();
            if groups_first {
                self.pump_groups(key, now);
            }
            self.pump_own(key, now);
            if !groups_first {
                self.pump_groups(key, now);
            }
        }
        self.wake_retained(key);
    }

    fn pump_groups(&mut self, key: SessionKey, now: Now) {
        let session = &self.sessions[key as usize];
        if session.takes(0, self.limits.inflight_bytes_max) {
            for group in session.groups.clone() {
                self.pump_group(group, now);
            }
        }
    }

    fn pump_own(&mut self, key: SessionKey, now: Now) {
        let bytes_max = self.limits.inflight_bytes_max;
        let own = self.sessions[key as usize].queue;
        loop {
            let session = &self.sessions[key as usize];
            let queue = &mut self.queues[own as usize];
            let Some(front) = queue.front() else { break };
            if !session.takes(front.message.size(), bytes_max) {
                break;
            }
            if front.message.is_expired(now.wall) && !session.resend.contains_key(&front.seq) {
                self.drop_expired_front(own, now);
                continue;
            }
            if session.filtered {
                let topic = front.message.topic().to_owned();
                if !self.may_deliver(key, &topic) {
                    self.drop_denied_front(key);
                    continue;
                }
            }
            let queue = &mut self.queues[own as usize];
            let Some(entry) = queue.hand_out(&mut self.budget) else { break };
            let after = queue.joined_in(entry.seq);
            let queue = QueueRef { key: own, serial: queue.serial() };
            let (seq, message, options) = (entry.seq, &entry.message, entry.options);
            self.send(key, Outgoing { queue, seq, message, options, held: None, after });
        }
        self.refill(own);
    }

    /// Puts a message under way to a session that takes it.
    pub(super) fn send(&mut self, key: SessionKey, out: Outgoing<'_>) {
        let qos = out.options.qos;
        let session = &mut self.sessions[key as usize];
        let parked = if out.held.is_none() && !session.resend.is_empty() {
            session.resend.remove(&out.seq).and_then(|id| session.inflight.remove(id))
        } else {
            None
        };
        let own = out.held.is_none() && out.queue.key == session.queue;
        let id = match &parked {
            Some(slot) => slot.id,
            None if own => session.inflight.id_for(out.seq).expect("the window leaves identifiers free"),
            None => session.inflight.next_id().expect("the window leaves identifiers free"),
        };
        // A level 2 message that was sent before is parked, whatever happened since.
        let repeated = own && out.seq < session.repeated_below && qos == Qos::AtLeastOnce;
        let (mut stage, mut has_row, mut after) = (Stage::AwaitAck, false, out.after);
        if qos == Qos::ExactlyOnce {
            stage = Stage::AwaitReceived;
            has_row = session.is_durable();
            after = after.max(self.remember(key, id, out.seq, parked.as_ref()));
        }
        let (consumer, redeliveries) =
            out.held.as_ref().map_or((None, 0), |held| (held.consumer, held.redeliveries));
        let slot = Slot {
            id,
            stage,
            has_row,
            size: out.message.size(),
            seq: out.seq,
            queue: out.queue,
            batch: after.unwrap_or_default(),
            held: out.held,
        };
        self.sessions[key as usize].inflight.insert(slot);
        self.stats.delivered[qos as usize] += 1;
        self.stats.delivered_bytes += u64::from(out.message.size());
        let duplicate = parked.is_some() || repeated || redeliveries > 0;
        self.stats.redelivered += u64::from(duplicate);
        let delivery = Delivery {
            id: Some(id),
            message: out.message.clone(),
            qos,
            retain: out.options.retain,
            duplicate,
            subscription_ids: out.options.subscription_ids,
            consumer,
            redeliveries,
        };
        self.send_ordered(key, after.max(self.committing), ClientEvent::Deliver(delivery));
    }

    /// Stores the identifier of a durable session's QoS 2 delivery, unless that was done before; returns the batch that must be
    /// durable before the delivery leaves.
    fn remember(
        &mut self,
        key: SessionKey,
        id: DeliveryId,
        seq: Seq,
        parked: Option<&Slot>,
    ) -> Option<BatchId> {
        let session = &mut self.sessions[key as usize];
        let number = session.number?;
        if !parked.is_some_and(|slot| slot.has_row) {
            let row = encode_outbound(Stage::AwaitReceived, seq);
            self.batch.put(Space::OutboundQos2, qos2_key(number, id.get()), row);
            session.qos2_batch = self.batch.id();
        }
        Some(session.qos2_batch)
    }
}
