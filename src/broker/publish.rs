//! Publishing: from a message to the queues that get it.
//!
//! A message is planned first, changing nothing, so that a refusal leaves no copy anywhere; then it joins all queues in one
//! operation; then each copy is offered to its consumer.

use std::sync::Arc;

use crate::broker::Broker;
use crate::broker::api::{ClientCommand, ClientEvent, PublishOutcome, PublishRequest, ReplyTag};
use crate::limits::Overflow;
use crate::message::{DeliveryOptions, Message, Qos};
use crate::queue::QueueKey;
use crate::queue::group::GroupKey;
use crate::queue::overflow::{DROP_OVERSHOOT_MESSAGES_MAX, Verdict};
use crate::router::{Route, SetOutcome, Sink};
use crate::session::SessionKey;
use crate::session::rows::{encode_inbound, qos2_key};
use crate::store::contract::{BatchId, Seq, Space, Target, Targets};
use crate::time::Now;
use crate::topic;

/// Topics of the broker's own: published by this process alone, never stored.
pub(super) const SYS_PREFIX: &str = "$SYS/";

/// The topic is one of the broker's own.
pub(super) fn is_sys(topic: &str) -> bool {
    topic.as_bytes().starts_with(SYS_PREFIX.as_bytes())
}

/// One copy of a message on its way into a queue, or straight to a client.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) sink: Sink,
    queue: QueueKey,
    /// It joins the queue.
    queued: bool,
    /// 0: it has not joined a queue.
    seq: Seq,
    options: DeliveryOptions,
    fate: Verdict,
}

/// What became of a message that was not refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Distributed {
    outcome: PublishOutcome,
    /// Something of it is in the batch being built.
    stored: bool,
    /// That is one operation, at this place: its joining the queues.
    place: Option<usize>,
}

impl Broker {
    pub(super) fn publish(&mut self, key: SessionKey, request: PublishRequest, now: Now) {
        if self.follows_a_move(key) || self.must_wait_behind(key, &request.message) {
            self.given_back = Some(Box::new(ClientCommand::Publish(request)));
            return;
        }
        let PublishRequest { tag, message } = request;
        let qos = message.qos();
        let session = &self.sessions[key as usize];
        if qos == Qos::ExactlyOnce
            && let Some(batch) = session.inbound.batch_of(tag)
        {
            self.stats.published_again += 1;
            let event = ClientEvent::Published { tag, qos, outcome: PublishOutcome::Accepted };
            self.answer(key, Some(batch), event);
            return;
        }
        let topic = message.topic();
        let result = if !self.topic_is_valid(topic, session.internal) {
            Err(PublishOutcome::TopicInvalid)
        } else if !self.may_publish_to(key, topic) {
            Err(PublishOutcome::NotAuthorized)
        } else {
            self.distribute_behind(&message, topic, key, now)
        };
        if matches!(result, Err(PublishOutcome::QuotaExceeded)) && self.waits_for_room(&message) {
            let command = ClientCommand::Publish(PublishRequest { tag, message });
            self.given_back = Some(Box::new(command));
            return;
        }
        self.count_published(&message, result.err());
        if qos != Qos::AtMostOnce {
            self.answer_publish(key, tag, qos, result);
        }
    }

    fn count_published(&mut self, message: &Message, refused: Option<PublishOutcome>) {
        self.stats.published[message.qos() as usize] += 1;
        self.stats.published_bytes += u64::from(message.size());
        match refused {
            Some(PublishOutcome::QuotaExceeded) => self.stats.refused_quota += 1,
            Some(PublishOutcome::NotAuthorized) => self.stats.denied_publishes += 1,
            Some(_) => self.stats.refused_topic += 1,
            None => {}
        }
    }

    pub(super) fn topic_is_valid(&self, topic: &str, internal: bool) -> bool {
        topic::check_name(topic, &self.limits).is_ok() && (internal || !is_sys(topic))
    }

    fn answer_publish(
        &mut self,
        key: SessionKey,
        tag: ReplyTag,
        qos: Qos,
        result: Result<Distributed, PublishOutcome>,
    ) {
        let (outcome, mut stored, mut place) = match result {
            Ok(done) => (done.outcome, done.stored, done.place),
            Err(refused) => (refused, false, None),
        };
        if qos == Qos::ExactlyOnce && result.is_ok() {
            let session = &mut self.sessions[key as usize];
            if let Some(number) = session.number {
                self.batch.put(Space::InboundQos2, qos2_key(number, tag.0), encode_inbound());
                (stored, place) = (true, None);
            }
            session.inbound.insert(tag, if stored { self.batch.id() } else { BatchId(0) });
        }
        let event = ClientEvent::Published { tag, qos, outcome };
        if result.is_err() {
            self.note_refusal(&event);
        }
        if stored {
            self.answer_held(key, place, event);
        } else {
            self.answer(key, None, event);
        }
    }

    /// Gives `message`, whose topic is `topic`, to everybody who wants it. `publisher` is told when it is refused; a will, which has none, is not
    /// refused by a full queue but dropped there.
    pub(super) fn distribute(
        &mut self,
        message: &Message,
        topic: &str,
        publisher: Option<SessionKey>,
        now: Now,
    ) -> Result<Distributed, PublishOutcome> {
        let to_queue = topic::is_queue(topic);
        if to_queue {
            self.named_queue(topic)?;
        }
        let routes = self.router.route(topic);
        let mut plan = std::mem::take(&mut self.plan);
        let mut result = self.plan_routes(&routes, message, publisher, &mut plan);
        if result.is_ok() && message.retain() && !to_queue {
            result = self.retain(message, publisher.is_none(), now);
        }
        let result = result.map(|retained| {
            let place = self.enqueue_planned(message, &mut plan);
            self.offer_planned(message, &mut plan, now);
            let outcome = if plan.is_empty() {
                self.stats.published_to_nobody += 1;
                PublishOutcome::NoSubscribers
            } else {
                PublishOutcome::Accepted
            };
            let stored = place.is_some() || retained;
            Distributed { outcome, stored, place: place.filter(|_| !retained) }
        });
        plan.clear();
        self.plan = plan;
        result
    }

    /// Who gets the message, and how. Changes nothing.
    pub(super) fn plan_routes(
        &self,
        routes: &[Route],
        message: &Message,
        publisher: Option<SessionKey>,
        plan: &mut Vec<Planned>,
    ) -> Result<bool, PublishOutcome> {
        let qos_max = if message.topic_bytes().starts_with(SYS_PREFIX.as_bytes()) {
            Qos::AtMostOnce
        } else {
            message.qos()
        };
        for route in routes {
            let mut planned = match route.sink {
                Sink::Session(key) => {
                    let own = publisher == Some(key);
                    let grant = if own { route.own.as_ref() } else { Some(&route.grant) };
                    let Some(grant) = grant else { continue };
                    if !self.may_deliver(key, message.topic()) {
                        continue;
                    }
                    let options = DeliveryOptions {
                        qos: grant.qos.min(qos_max),
                        retain: grant.retain_as_published && message.retain(),
                        subscription_ids: grant.subscription_ids.clone(),
                    };
                    let queue = self.sessions[key as usize].queue;
                    let queued = options.qos != Qos::AtMostOnce;
                    Planned { sink: route.sink, queue, queued, seq: 0, options, fate: Verdict::Accept }
                }
                Sink::Group(key) => self.plan_group(key, message, qos_max),
            };
            if planned.queued {
                planned.fate = self.fate(planned.queue, message, publisher.is_some())?;
            }
            plan.push(planned);
        }
        Ok(false)
    }

    /// A named queue takes every message, QoS 0 too, but for those that are never stored.
    fn plan_group(&self, key: GroupKey, message: &Message, qos_max: Qos) -> Planned {
        let group = &self.groups[key as usize];
        let is_named = group.is_named();
        let qos = if is_named { qos_max } else { group.qos_max().min(qos_max) };
        let queued = qos != Qos::AtMostOnce || (is_named && !is_sys(message.topic()));
        let options = DeliveryOptions { qos, retain: message.retain(), subscription_ids: None };
        let (sink, queue) = (Sink::Group(key), group.queue());
        Planned { sink, queue, queued, seq: 0, options, fate: Verdict::Accept }
    }

    /// What the queue makes of the message; an error when the publisher is to keep it.
    pub(super) fn fate(
        &self,
        queue: QueueKey,
        message: &Message,
        can_refuse: bool,
    ) -> Result<Verdict, PublishOutcome> {
        let queue = &self.queues[queue as usize];
        if self.committing.is_some() && !queue.is_volatile() {
            // It was planned as a part of its transaction, of which nothing may be missing.
            return Ok(if queue.overflow() == Overflow::DropHead {
                Verdict::DropOldest
            } else {
                Verdict::Accept
            });
        }
        if self.full && queue.is_lasting() {
            return Err(PublishOutcome::QuotaExceeded);
        }
        if self.full && queue.is_scratch() {
            return Ok(Verdict::DropNew);
        }
        match queue.verdict(message.size()) {
            Verdict::Refuse if can_refuse => Err(PublishOutcome::QuotaExceeded),
            Verdict::Refuse => Ok(Verdict::DropNew),
            Verdict::DropOldest if queue.is_spilled() && queue.overshoot() >= DROP_OVERSHOOT_MESSAGES_MAX => {
                Ok(Verdict::DropNew)
            }
            verdict => Ok(verdict),
        }
    }

    /// Keeps or removes the topic's retained message; `true` when the store is to know.
    fn retain(&mut self, message: &Message, is_will: bool, now: Now) -> Result<bool, PublishOutcome> {
        let stored = !is_sys(message.topic());
        let key: Box<[u8]> = message.topic_bytes().into();
        if message.payload().is_empty() {
            let existed = self.retained.remove(message.topic()).is_some();
            // What is gone already may be gone in memory alone.
            let changes = stored && (existed || self.retained_batch > self.committed);
            if changes {
                self.retained_batch = self.batch.id();
                self.batch.delete(Space::Retained, key);
            }
            return Ok(changes);
        }
        let room = !(self.full && stored);
        if !room || matches!(self.retained.set(message.clone()), SetOutcome::Refused(_)) {
            self.stats.retained_refused += 1;
            return if is_will { Ok(false) } else { Err(PublishOutcome::QuotaExceeded) };
        }
        if message.expires().is_some() {
            self.plan_retained_expiry(now);
        }
        if stored {
            let mut value = Vec::with_capacity(message.size() as usize);
            message.encode(&mut value);
            self.retained_batch = self.batch.id();
            self.batch.put(Space::Retained, key, value.into());
        }
        Ok(stored)
    }

    /// Joins all queues in one operation; returns its place in the batch when one of them is durable.
    fn enqueue_planned(&mut self, message: &Message, plan: &mut [Planned]) -> Option<usize> {
        let mut targets = Targets::new();
        for planned in plan.iter_mut().filter(|planned| planned.queued) {
            if !self.admit(planned.queue, planned.fate, message.size()) {
                continue;
            }
            planned.seq = self.append(planned.queue, message, &planned.options, &mut targets);
        }
        (!targets.is_empty()).then(|| self.batch.enqueue(message.clone(), targets))
    }

    /// Carries out a verdict; `false` when the message is dropped for this queue.
    pub(super) fn admit(&mut self, queue: QueueKey, verdict: Verdict, size: u32) -> bool {
        match verdict {
            Verdict::DropNew | Verdict::Refuse => {
                self.queues[queue as usize].count_dropped_new();
                self.stats.dropped_new += 1;
                return false;
            }
            Verdict::DropOldest => self.make_room(queue, size),
            Verdict::Accept => {}
        }
        true
    }

    /// The message joins one queue's tail; a durable queue becomes one more target.
    pub(super) fn append(
        &mut self,
        queue: QueueKey,
        message: &Message,
        options: &DeliveryOptions,
        targets: &mut Targets,
    ) -> Seq {
        let queue = &mut self.queues[queue as usize];
        let seq = queue.append(message.size(), message.published(), self.batch.id());
        self.stats.enqueued += 1;
        if let Some(id) = queue.id() {
            targets.push(Target { queue: id, seq, options: options.clone() });
        }
        seq
    }

    pub(super) fn offer_planned(&mut self, message: &Message, plan: &mut [Planned], now: Now) {
        for planned in plan {
            let options = std::mem::take(&mut planned.options);
            match (planned.sink, planned.queued) {
                (Sink::Session(key), false) => self.deliver_unqueued(key, message, options),
                (Sink::Group(key), false) => self.deliver_unqueued_to_member(key, message),
                _ if planned.seq == 0 => {}
                (Sink::Session(key), _) => self.offer(key, planned.seq, message, options),
                (Sink::Group(key), _) => self.offer_group(key, planned.seq, message, options, now),
            }
            if let Some(at) = message.expires().filter(|_| planned.seq > 0) {
                self.note_expiry(planned.queue, at, now);
            }
        }
    }

    /// Drops the oldest waiting messages of a queue until one of `size` bytes fits.
    fn make_room(&mut self, queue: QueueKey, size: u32) {
        while self.queues[queue as usize].verdict(size) == Verdict::DropOldest {
            if !self.drop_oldest(queue) {
                break;
            }
        }
    }
}

/// Subscription identifiers of one subscription.
pub(super) fn one_id(id: Option<u32>) -> Option<Arc<[u32]>> {
    id.map(|id| Arc::from([id]))
}
