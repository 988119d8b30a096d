//! Shared subscriptions and named queues: competing consumers of one queue.
//!
//! QoS 1 messages stay in the group's queue until the member that got them acknowledges; if it goes away first, they return to
//! their place and go to others. A QoS 2 message moves to the member's own queue when it is handed out: it must reach this member
//! and no other from then on, even if the member's session ends [MQTT-4.8.2-5].

use crate::broker::Broker;
use crate::broker::api::{ConsumerId, SubscribeOptions};
use crate::message::{DeliveryOptions, Message, Qos};
use crate::queue::group::{Group, GroupKey, Member, Taker};
use crate::queue::window::{Entry, entry_memory};
use crate::queue::{Discard, Owner, QueueKey};
use crate::session::SessionKey;
use crate::session::inflight::Held;
use crate::session::rows::encode_group;
use crate::store::contract::{Seq, Space, Targets};
use crate::time::Now;

use super::deliver::Outgoing;
use super::publish::one_id;

impl Broker {
    /// Makes a session a member of the group `name` (`$share/<group>/<filter>`), which is made if it does not exist.
    pub(super) fn join_group(&mut self, name: &str, filter: &str, member: Member) -> GroupKey {
        let session = &self.sessions[member.session as usize];
        let durable = session.is_durable();
        let key = match self.group_keys.get(name) {
            Some(&key) => {
                if durable {
                    self.make_group_lasting(key);
                }
                key
            }
            None => self.create_group(name, filter, durable),
        };
        self.enter_group(key, member);
        key
    }

    /// Makes a session a member of an existing group.
    pub(super) fn enter_group(&mut self, key: GroupKey, member: Member) {
        let session = &mut self.sessions[member.session as usize];
        if !session.groups.contains(&key) {
            session.groups.push(key);
        }
        self.groups[key as usize].join(member);
    }

    fn create_group(&mut self, name: &str, filter: &str, durable: bool) -> GroupKey {
        let key = u32::try_from(self.groups.vacant_key()).expect("subscriptions are bounded");
        let queue = self.create_queue(Owner::Group(key), durable, name);
        if let Some(id) = self.queues[queue as usize].id() {
            self.batch.put(Space::Group, name.as_bytes().into(), encode_group(id));
        }
        self.add_group(Group::new(name, filter, queue))
    }

    pub(super) fn add_group(&mut self, group: Group) -> GroupKey {
        let name: Box<str> = group.name().into();
        let filter: Box<str> = group.filter().into();
        let key = u32::try_from(self.groups.insert(group)).expect("subscriptions are bounded");
        self.group_keys.insert(name, key);
        let all = SubscribeOptions {
            qos: Qos::ExactlyOnce,
            retain_as_published: true,
            ..SubscribeOptions::default()
        };
        self.router.subscribe(&filter, Group::sink(key), all, None);
        key
    }

    /// A durable member joins: the group's queue outlives the process from now on.
    fn make_group_lasting(&mut self, key: GroupKey) {
        let queue_key = self.groups[key as usize].queue();
        let queue = &mut self.queues[queue_key as usize];
        if queue.is_lasting() {
            return;
        }
        if queue.is_volatile() {
            self.promote_queue(queue_key, false);
        } else {
            queue.make_lasting();
        }
        if let Some(id) = self.queues[queue_key as usize].id() {
            let name = self.groups[key as usize].name().as_bytes().into();
            self.batch.put(Space::Group, name, encode_group(id));
        }
    }

    /// Takes a member out of a group; the last one of a shared subscription takes the queue with it. What the member has under
    /// way stays with it until it acknowledges or goes away.
    pub(super) fn leave_group(
        &mut self,
        session: SessionKey,
        key: GroupKey,
        consumer: Option<ConsumerId>,
        now: Now,
    ) {
        let group = &mut self.groups[key as usize];
        let is_over = group.leave(session, consumer) && !group.is_named();
        if !group.has_member(session) {
            self.sessions[session as usize].groups.retain(|group| *group != key);
        }
        if is_over {
            return self.delete_group(key);
        }
        self.pump_group(key, now);
        self.idle_group(key, now);
    }

    /// Removes a group without members, and its queue.
    pub(super) fn delete_group(&mut self, key: GroupKey) {
        let group = self.groups.remove(key as usize);
        self.group_keys.remove(group.name());
        self.router.unsubscribe(group.filter(), Group::sink(key));
        if group.is_named() {
            self.named_queues -= 1;
            self.batch.delete(Space::NamedQueue, group.name().as_bytes().into());
        } else if self.queues[group.queue() as usize].is_lasting() {
            self.batch.delete(Space::Group, group.name().as_bytes().into());
        }
        self.remove_queue(group.queue());
    }

    /// A member has a connection.
    pub(super) fn group_is_connected(&self, key: GroupKey) -> bool {
        let group = &self.groups[key as usize];
        group.members().iter().any(|member| self.sessions[member.session as usize].conn.is_some())
    }

    /// Nobody consumes the group's queue any more: its window's memory is given back.
    pub(super) fn idle_group(&mut self, key: GroupKey, now: Now) {
        let Some(group) = self.groups.get(key as usize) else { return };
        let queue = &self.queues[group.queue() as usize];
        if queue.is_volatile() || queue.unsettled() > 0 || self.group_is_connected(key) {
            return;
        }
        let queue = group.queue();
        self.queues[queue as usize].rewind(None, &mut self.budget);
        self.note_absence(queue, now);
    }

    /// The newest message of a group's queue.
    pub(super) fn offer_group(
        &mut self,
        key: GroupKey,
        seq: Seq,
        message: &Message,
        options: DeliveryOptions,
        now: Now,
    ) {
        let queue = self.groups[key as usize].queue();
        if let Some(batch) = self.committing {
            self.queues[queue as usize].joins(seq, batch);
        }
        let online = self.group_is_connected(key);
        self.keep_or_spill(queue, seq, message, options, online);
        if online {
            self.pump_group(key, now);
        }
    }

    /// As [`offer_group`](Self::offer_group) for a message that comes from another queue: it leaves when both are durable, since it
    /// would come again, and without a mark, if it had left and the power failed.
    pub(super) fn offer_moved(
        &mut self,
        key: GroupKey,
        seq: Seq,
        message: &Message,
        options: DeliveryOptions,
        now: Now,
    ) {
        let committing = self.committing.replace(self.batch.id());
        self.offer_group(key, seq, message, options, now);
        self.committing = committing;
    }

    /// QoS 0: to the next member that is there, or to nobody.
    pub(super) fn deliver_unqueued_to_member(&mut self, key: GroupKey, message: &Message) {
        let sessions = &self.sessions;
        let group = &mut self.groups[key as usize];
        let Some(member) = group.pick(|member| {
            let session = &sessions[member.session as usize];
            session.ready().is_some() && !session.is_suspended(key)
        }) else {
            self.stats.dropped_offline += 1;
            return;
        };
        let options = member_options(&member, Qos::AtMostOnce, message.retain());
        self.deliver_unqueued(member.session, message, options);
    }

    /// Hands out a group's messages while members have room, each to the next one in turn.
    pub(super) fn pump_group(&mut self, key: GroupKey, now: Now) {
        let Some(group) = self.groups.get(key as usize) else { return };
        let queue_key = group.queue();
        while let Some(front) = self.queues[queue_key as usize].front() {
            if front.message.is_expired(now.wall) {
                self.drop_expired_front(queue_key, now);
                continue;
            }
            let qos = front.options.qos;
            let Some(taker) = self.pick_taker(key, queue_key) else { break };
            match qos.min(taker.qos) {
                _ if taker.consumer.is_some() => self.hand_out_shared(key, queue_key, &taker),
                Qos::AtMostOnce => self.hand_out_unsettled(queue_key, &taker),
                Qos::AtLeastOnce => self.hand_out_shared(key, queue_key, &taker),
                Qos::ExactlyOnce => self.move_to_member(queue_key, &taker),
            }
        }
        self.refill(queue_key);
        self.walk(key, now);
    }

    /// The member that gets the queue's front.
    fn pick_taker(&mut self, key: GroupKey, queue_key: QueueKey) -> Option<Taker> {
        let front = self.queues[queue_key as usize].front()?;
        let (size, qos) = (front.message.size(), front.options.qos);
        let redeliveries = self.returns_of(key, front.seq);
        let (sessions, queues) = (&self.sessions, &self.queues);
        let bytes_max = self.limits.inflight_bytes_max;
        self.groups[key as usize].pick(|member| {
            let session = &sessions[member.session as usize];
            if !session.takes(size, bytes_max) || session.is_suspended(key) {
                return false;
            }
            let Some(consumer) = &mut member.consumer else {
                let moves = qos.min(member.qos) == Qos::ExactlyOnce;
                return !(moves && queues[session.queue as usize].has_waiting());
            };
            if let Some(selector) = &consumer.selector {
                if front.seq < consumer.scan {
                    return false;
                }
                if !selector.wants(&front.message, redeliveries) {
                    consumer.scan = front.seq + 1;
                    return false;
                }
            }
            consumer.has_room(size)
        })
    }

    /// To a member that takes QoS 0 only: it is settled as soon as it is sent.
    fn hand_out_unsettled(&mut self, queue_key: QueueKey, member: &Taker) {
        let queue = &mut self.queues[queue_key as usize];
        let Some(entry) = queue.hand_out(&mut self.budget) else { return };
        queue.settle(entry.message.size(), true);
        self.stats.settled += 1;
        self.batch.settle(queue, entry.seq, entry.message.size());
        self.forget_returns(queue_key, entry.seq);
        self.demote_queue(queue_key);
        let options = member_options(member, Qos::AtMostOnce, entry.options.retain);
        self.deliver_unqueued(member.session, &entry.message, options);
    }

    fn hand_out_shared(&mut self, key: GroupKey, queue_key: QueueKey, member: &Taker) {
        let Some(entry) = self.queues[queue_key as usize].hand_out(&mut self.budget) else { return };
        self.hand_out_entry(key, queue_key, member, entry);
    }

    /// A message that was taken from the queue goes to the member, which keeps it until it is settled or comes back.
    pub(super) fn hand_out_entry(
        &mut self,
        key: GroupKey,
        queue_key: QueueKey,
        member: &Taker,
        entry: Entry,
    ) {
        let queue = self.queue_ref(queue_key);
        self.budget.add(entry_memory(&entry.message), false);
        let consumer = member.consumer;
        if let Some(id) = consumer
            && let Some(consumer) = self.groups[key as usize].consumer_mut(member.session, id)
        {
            consumer.under_way += 1;
            consumer.under_way_bytes += u64::from(entry.message.size());
        }
        let joined = self.queues[queue.key as usize].joined_in(entry.seq);
        let after = self.mark_handed_out(key, entry.seq).max(joined);
        let redeliveries = self.returns_of(key, entry.seq);
        let options = member_options(member, Qos::AtLeastOnce, entry.options.retain);
        let held = Held { message: entry.message.clone(), options: entry.options, consumer, redeliveries };
        let (seq, message, held) = (entry.seq, &entry.message, Some(Box::new(held)));
        self.send(member.session, Outgoing { queue, seq, message, options, held, after });
    }

    fn move_to_member(&mut self, queue_key: QueueKey, member: &Taker) {
        let queue = &mut self.queues[queue_key as usize];
        let Some(entry) = queue.discard(&mut self.budget, Discard::Moved, |_| true) else { return };
        let shared_is_durable = queue.is_lasting();
        self.batch.settle_stored(queue, entry.seq, entry.message.size());
        self.forget_returns(queue_key, entry.seq);
        self.demote_queue(queue_key);
        self.stats.moved += 1;
        let own = self.sessions[member.session as usize].queue;
        let options = member_options(member, Qos::ExactlyOnce, entry.options.retain);
        let mut targets = Targets::new();
        let seq = self.append(own, &entry.message, &options, &mut targets);
        self.stats.enqueued -= 1;
        if !targets.is_empty() {
            self.batch.enqueue(entry.message.clone(), targets);
        }
        self.queues[own as usize].pass(seq);
        let queue = self.queue_ref(own);
        // If the settling were lost after the delivery, another member would get the message too.
        let after = shared_is_durable.then(|| self.batch.id());
        let message = &entry.message;
        self.send(member.session, Outgoing { queue, seq, message, options, held: None, after });
    }
}

fn member_options(member: &Taker, qos: Qos, retain: bool) -> DeliveryOptions {
    DeliveryOptions {
        qos,
        retain: retain && member.retain_as_published,
        subscription_ids: one_id(member.subscription_id),
    }
}
