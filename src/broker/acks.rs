//! Answers and acknowledgements: what may leave at once and what waits for the store, and what clients acknowledge.

use crate::broker::Broker;
use crate::broker::api::{ClientEvent, ConnId, ConsumeOutcome, DeliveryId, ReplyTag};
use crate::broker::effects::{Effect, Waiter};
use crate::queue::window::entry_memory;
use crate::queue::{QueueKey, QueueRef};
use crate::session::SessionKey;
use crate::session::inflight::{Slot, Stage};
use crate::session::rows::{encode_outbound, qos2_key};
use crate::store::contract::{BatchId, Space};
use crate::time::Now;

impl Broker {
    /// Sends the answer `event` when the batch `after` is durable, and never before an earlier answer of the same connection.
    /// `true`: it is on its way already.
    pub(super) fn answer(&mut self, key: SessionKey, after: Option<BatchId>, event: ClientEvent) -> bool {
        let session = &mut self.sessions[key as usize];
        let Some(conn) = session.conn else { return false };
        let after = after.filter(|batch| *batch > self.committed);
        if after.is_none() && session.waiting == 0 {
            self.effects.push(Effect::Client(conn, event));
            return true;
        }
        session.waiting += 1;
        self.wait(key, after, conn, event, None);
        false
    }

    /// Sends the acknowledgement of a message when the batch being built is durable, or when everybody has settled the
    /// message, which is all that it waits for: it stands at `place` of the batch.
    pub(super) fn answer_held(&mut self, key: SessionKey, place: Option<usize>, event: ClientEvent) {
        let session = &mut self.sessions[key as usize];
        let Some(conn) = session.conn else { return };
        session.waiting += 1;
        self.wait(key, Some(self.batch.id()), conn, event, place);
    }

    /// Sends the delivery `event` when the batch `after` is durable, and never before an earlier delivery of the session.
    pub(super) fn send_ordered(&mut self, key: SessionKey, after: Option<BatchId>, event: ClientEvent) {
        let session = &mut self.sessions[key as usize];
        let Some(conn) = session.conn else { return };
        let after = after.filter(|batch| *batch > self.committed);
        if after.is_none() && session.held == 0 {
            self.effects.push(Effect::Client(conn, event));
            return;
        }
        session.held += 1;
        self.wait(key, after, conn, event, None);
    }

    fn wait(
        &mut self,
        session: SessionKey,
        after: Option<BatchId>,
        conn: ConnId,
        event: ClientEvent,
        place: Option<usize>,
    ) {
        match after {
            Some(batch) if batch < self.batch.id() => self.batch.need(batch),
            Some(_) if matches!(event, ClientEvent::Published { .. }) => self.batch.make_awaited(),
            Some(_) => self.batch.make_urgent(),
            None => {}
        }
        self.waiters.push(Waiter { batch: after.unwrap_or_default(), place, session, conn, event });
    }

    /// Everything up to `through` is durable.
    pub(super) fn release_waiters(&mut self, through: BatchId, now: Now) {
        self.committed = self.committed.max(through);
        while let Some(waiter) = self.waiters.next_durable(self.committed, &self.batch) {
            let Some(session) = self.sessions.get_mut(waiter.session as usize) else { continue };
            if session.conn != Some(waiter.conn) {
                continue;
            }
            let opens = matches!(waiter.event, ClientEvent::Connected(_));
            let consumes = match waiter.event {
                ClientEvent::Consuming { consumer, outcome: ConsumeOutcome::Started, .. } => Some(consumer),
                _ => None,
            };
            match waiter.event {
                ClientEvent::Deliver(_)
                | ClientEvent::DeliverRelease { .. }
                | ClientEvent::BrowseEnd { .. } => session.held -= 1,
                _ => session.waiting -= 1,
            }
            let answered = session.waiting == 0;
            self.effects.push(Effect::Client(waiter.conn, waiter.event));
            if opens {
                self.open(waiter.session, now);
            } else if let Some(consumer) = consumes {
                self.consumer_knows(waiter.session, consumer, now);
            }
            if answered && !opens {
                self.wake_retained(waiter.session);
            }
        }
        self.run_retained(now);
        if !self.spills.is_idle() {
            self.go_on_moving();
        }
    }

    /// PUBACK, or a refusal.
    pub(super) fn settle(&mut self, key: SessionKey, id: DeliveryId, accepted: bool, now: Now) {
        let session = &mut self.sessions[key as usize];
        match session.inflight.get(id).map(|slot| slot.stage) {
            Some(Stage::AwaitAck) => {}
            Some(Stage::AwaitReceived) if !accepted => {}
            Some(Stage::AwaitReceived | Stage::AwaitCompleted) if accepted => {
                return self.violation(key, now);
            }
            _ => {
                self.stats.acknowledgements_ignored += 1;
                return;
            }
        }
        let Some(slot) = session.inflight.remove(id) else { return };
        if slot.has_row
            && let Some(number) = session.number
        {
            self.batch.delete(Space::OutboundQos2, qos2_key(number, id.get()));
        }
        self.settle_in_queue(&slot, accepted);
        if slot.held.is_some() {
            self.free_consumer(key, &slot);
        }
        if self.limits.hold_millis > 0 {
            self.release_waiters(self.committed, now);
        }
        self.pump_session(key, now);
    }

    pub(super) fn settle_in_queue(&mut self, slot: &Slot, accepted: bool) {
        if let Some(held) = &slot.held {
            self.budget.sub(entry_memory(&held.message), false);
        }
        let Some(queue) = self.queues.get_mut(slot.queue.key as usize) else { return };
        if queue.serial() != slot.queue.serial {
            return;
        }
        if accepted {
            self.stats.settled += 1;
        } else {
            self.stats.settled_refused += 1;
        }
        queue.settle(slot.size, accepted);
        if self.committing.is_some() || (!accepted && slot.held.is_some()) {
            // What its end is a part of, or the dead letter that takes its place, is not durable yet.
            self.batch.settle_stored(queue, slot.seq, slot.size);
        } else {
            self.stats.never_written += u64::from(self.batch.settle(queue, slot.seq, slot.size));
        }
        if slot.held.is_some() {
            self.forget_returns(slot.queue.key, slot.seq);
        }
        self.demote_queue(slot.queue.key);
    }

    /// Answers when what was asked for before is durable: in the batch being built, if there is anything in it.
    pub(super) fn sync(&mut self, key: SessionKey, tag: ReplyTag) {
        let building = self.batch.id();
        let last = if self.batch.memory() > 0 { building } else { BatchId(building.0 - 1) };
        self.answer(key, Some(last), ClientEvent::Synced { tag });
    }

    /// PUBREC. The message is settled and the new stage stored in one batch; PUBREL leaves after it.
    pub(super) fn received(&mut self, key: SessionKey, id: DeliveryId, now: Now) {
        let session = &mut self.sessions[key as usize];
        let (stage, batch) =
            session.inflight.get(id).map_or((None, None), |s| (Some(s.stage), Some(s.batch)));
        match stage {
            Some(Stage::AwaitReceived) => {}
            Some(Stage::AwaitAck) => return self.violation(key, now),
            Some(Stage::Parked) => {
                self.stats.acknowledgements_ignored += 1;
                return;
            }
            // The peer's handshake is to end, even if nothing is known here of its beginning.
            Some(Stage::AwaitCompleted) | None => {
                let known = stage.is_some();
                return self.send_ordered(key, batch, ClientEvent::DeliverRelease { delivery: id, known });
            }
        }
        let Some(slot) = session.inflight.get(id).cloned() else { return };
        let mut after = None;
        if slot.has_row
            && let Some(number) = session.number
        {
            let row = encode_outbound(Stage::AwaitCompleted, slot.seq);
            self.batch.put(Space::OutboundQos2, qos2_key(number, id.get()), row);
            session.qos2_batch = self.batch.id();
            after = Some(self.batch.id());
        }
        session.inflight.set_stage(id, Stage::AwaitCompleted, after.unwrap_or(slot.batch));
        self.settle_in_queue(&slot, true);
        self.send_ordered(key, after, ClientEvent::DeliverRelease { delivery: id, known: true });
        self.pump_session(key, now);
    }

    /// PUBCOMP.
    pub(super) fn completed(&mut self, key: SessionKey, id: DeliveryId, now: Now) {
        let session = &mut self.sessions[key as usize];
        match session.inflight.get(id).map(|slot| slot.stage) {
            Some(Stage::AwaitCompleted) => {}
            Some(Stage::AwaitAck | Stage::AwaitReceived) => return self.violation(key, now),
            Some(Stage::Parked) | None => {
                self.stats.acknowledgements_ignored += 1;
                return;
            }
        }
        if let Some(slot) = session.inflight.remove(id)
            && slot.has_row
            && let Some(number) = session.number
        {
            self.batch.delete(Space::OutboundQos2, qos2_key(number, id.get()));
        }
        self.pump_session(key, now);
    }

    /// PUBREL.
    pub(super) fn release_inbound(&mut self, key: SessionKey, tag: ReplyTag) {
        let session = &mut self.sessions[key as usize];
        let known = session.inbound.release(tag);
        let mut after = None;
        if known && let Some(number) = session.number {
            self.batch.delete(Space::InboundQos2, qos2_key(number, tag.0));
            after = Some(self.batch.id());
        }
        self.answer(key, after, ClientEvent::Released { tag, known });
    }

    /// What tells the queue at `key` apart from later ones in its place.
    pub(super) fn queue_ref(&self, key: QueueKey) -> QueueRef {
        QueueRef { key, serial: self.queues[key as usize].serial() }
    }
}
