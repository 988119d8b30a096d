//! Consumers of named queues, and what clients do not take.

use crate::broker::Broker;
use crate::broker::api::{ClientEvent, ConsumeOutcome, ConsumeRequest, ConsumerId, DeliveryId, ReplyTag};
use crate::message::Qos;
use crate::queue::Owner;
use crate::queue::group::{Consumer, GroupKey, Member};
use crate::session::SessionKey;
use crate::session::inflight::{Slot, Stage};
use crate::time::Now;

impl Broker {
    pub(super) fn consume(&mut self, key: SessionKey, request: ConsumeRequest, now: Now) {
        let (tag, consumer) = (request.tag, request.consumer);
        let outcome = match self.start_consumer(key, request) {
            Ok(()) => ConsumeOutcome::Started,
            Err(refused) => refused,
        };
        let event = ClientEvent::Consuming { tag, consumer, outcome };
        if outcome != ConsumeOutcome::Started {
            self.note_refusal(&event);
        }
        let after = Some(self.named_batch).filter(|_| outcome == ConsumeOutcome::Started);
        if self.answer(key, after, event) {
            self.consumer_knows(key, consumer, now);
        }
    }

    fn start_consumer(&mut self, key: SessionKey, request: ConsumeRequest) -> Result<(), ConsumeOutcome> {
        let session = &self.sessions[key as usize];
        let own = session.consumers.as_ref();
        if own.is_some_and(|own| own.contains_key(&request.consumer)) {
            return Err(ConsumeOutcome::AlreadyThere);
        }
        if own.map_or(0, |own| own.len()) >= self.limits.subscriptions_per_session_max as usize
            || self.subscriptions >= self.limits.subscriptions_max as usize
            || self.subscription_memory() as u64 >= self.limits.subscriptions_bytes_max
        {
            return Err(ConsumeOutcome::QuotaExceeded);
        }
        if !self.may_consume(key, &request.queue) {
            return Err(ConsumeOutcome::NotAuthorized);
        }
        let group = self.named_queue(&request.queue)?;
        let (under_way, under_way_bytes) = self.left_under_way(key, group, request.consumer);
        let consumer = Consumer {
            id: request.consumer,
            messages_max: request.messages_max.max(1),
            bytes_max: request.bytes_max,
            priority: request.priority,
            exclusive: request.exclusive,
            selector: request.selector,
            browse: request.browse.then(|| self.queues[self.groups[group as usize].queue() as usize].tail()),
            browsed: false,
            scan: 0,
            probe: 0,
            active: false,
            under_way,
            under_way_bytes,
        };
        self.subscription_bytes += consumer.memory();
        let member = Member {
            session: key,
            qos: Qos::ExactlyOnce,
            retain_as_published: false,
            subscription_id: None,
            consumer: Some(Box::new(consumer)),
        };
        self.enter_group(group, member);
        self.subscriptions += 1;
        let session = &mut self.sessions[key as usize];
        session.consumers.get_or_insert_default().insert(request.consumer, group);
        Ok(())
    }

    /// What an earlier consumer of the same name left unsettled, by number and bytes: it counts for this one.
    fn left_under_way(&self, key: SessionKey, group: GroupKey, id: ConsumerId) -> (u16, u64) {
        let queue = self.queue_ref(self.groups[group as usize].queue());
        let is_its = |slot: &&Slot| {
            slot.queue == queue && slot.held.as_ref().is_some_and(|held| held.consumer == Some(id))
        };
        let slots = self.sessions[key as usize].inflight.iter().filter(is_its);
        slots.fold((0, 0), |(count, bytes), slot| (count + 1, bytes + u64::from(slot.size)))
    }

    /// The answer is on its way: deliveries may follow.
    pub(super) fn consumer_knows(&mut self, key: SessionKey, id: ConsumerId, now: Now) {
        let Some(group) = self.group_of(key, id) else { return };
        if let Some(consumer) = self.groups[group as usize].consumer_mut(key, id) {
            consumer.active = true;
        }
        self.pump_group(group, now);
    }

    fn group_of(&self, key: SessionKey, id: ConsumerId) -> Option<GroupKey> {
        self.sessions[key as usize].consumers.as_ref()?.get(&id).copied()
    }

    pub(super) fn cancel(&mut self, key: SessionKey, tag: ReplyTag, id: ConsumerId, requeue: bool, now: Now) {
        let group = self.group_of(key, id);
        if let Some(group) = group {
            self.end_consumer(key, id);
            if requeue {
                self.return_of_consumer(key, group, id, now);
            }
            self.leave_group(key, group, Some(id), now);
        }
        self.answer(key, None, ClientEvent::Cancelled { tag, existed: group.is_some() });
    }

    fn end_consumer(&mut self, key: SessionKey, id: ConsumerId) {
        if let Some(own) = &mut self.sessions[key as usize].consumers
            && let Some(group) = own.remove(&id)
        {
            self.forget_consumer(key, group, id);
        }
    }

    /// A consumer that is still a member of its queue is about to go.
    fn forget_consumer(&mut self, key: SessionKey, group: GroupKey, id: ConsumerId) {
        self.subscriptions -= 1;
        let consumer = self.groups[group as usize].consumer_mut(key, id);
        self.subscription_bytes -= consumer.map_or(0, |consumer| consumer.memory());
    }

    fn return_of_consumer(&mut self, key: SessionKey, group: GroupKey, id: ConsumerId, now: Now) {
        let queue = self.queue_ref(self.groups[group as usize].queue());
        let session = &self.sessions[key as usize];
        let is_its = |slot: &&Slot| {
            slot.queue == queue && slot.held.as_ref().is_some_and(|held| held.consumer == Some(id))
        };
        let mut slots: Vec<Slot> = session.inflight.iter().filter(is_its).cloned().collect();
        slots.sort_unstable_by_key(|slot| slot.seq);
        for slot in slots {
            self.sessions[key as usize].inflight.remove(slot.id);
            self.give_back(slot, now);
        }
    }

    /// Ends all consumers of a session, whose connection is gone; their queues are left to the caller to serve.
    pub(super) fn end_consumers(&mut self, key: SessionKey) {
        let Some(own) = self.sessions[key as usize].consumers.take() else { return };
        for (id, group_key) in *own {
            self.forget_consumer(key, group_key, id);
            let group = &mut self.groups[group_key as usize];
            group.leave(key, Some(id));
            if !group.has_member(key) {
                self.sessions[key as usize].groups.retain(|other| *other != group_key);
            }
        }
    }

    /// The client did not take a delivery.
    pub(super) fn reject(&mut self, key: SessionKey, id: DeliveryId, requeue: bool, now: Now) {
        if requeue { self.return_delivery(key, id, now) } else { self.reject_for_good(key, id, now) }
    }

    /// A delivery goes back to its queue.
    pub(super) fn return_delivery(&mut self, key: SessionKey, id: DeliveryId, now: Now) {
        let session = &mut self.sessions[key as usize];
        let is_queued = |slot: &Slot| slot.stage == Stage::AwaitAck && slot.held.is_some();
        if !session.inflight.get(id).is_some_and(is_queued) {
            return self.settle(key, id, false, now);
        }
        let Some(slot) = session.inflight.remove(id) else { return };
        self.free_consumer(key, &slot);
        if let Some(group) = self.give_back(slot, now) {
            self.pump_group(group, now);
        }
        self.pump_session(key, now);
    }

    /// A delivery has ended: its consumer has room again.
    pub(super) fn free_consumer(&mut self, key: SessionKey, slot: &Slot) {
        let Some(id) = slot.held.as_ref().and_then(|held| held.consumer) else { return };
        let Some(queue) = self.queues.get(slot.queue.key as usize) else { return };
        if queue.serial() != slot.queue.serial {
            return;
        }
        let Owner::Group(group) = queue.owner() else { return };
        if let Some(consumer) = self.groups[group as usize].consumer_mut(key, id) {
            consumer.under_way -= 1;
            consumer.under_way_bytes -= u64::from(slot.size);
        }
    }
}
