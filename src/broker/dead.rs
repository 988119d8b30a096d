//! Dead letters: messages that leave a named queue without having been taken, for a queue where somebody looks at them.
//!
//! The copy joins the dead-letter queue in the batch in which the original leaves its own. It carries the original's topic,
//! payload and properties, and four user properties more: see [`ORIGIN`] and its neighbours. It does not expire. A queue has no
//! dead letters when it is defined so, and a dead-letter queue has none of its own. When the dead-letter queue takes nothing, a
//! message that was rejected stays where it is; one that has expired is dropped.

use crate::broker::Broker;
use crate::message::{DeliveryOptions, Message, MessageHead, Properties, Qos};
use crate::queue::Owner;
use crate::queue::QueueKey;
use crate::queue::group::GroupKey;
use crate::queue::overflow::Verdict;
use crate::queue::window::Entry;
use crate::session::SessionKey;
use crate::session::inflight::{Held, Slot, Stage};
use crate::store::contract::Targets;
use crate::time::Now;
use crate::topic::QUEUE_PREFIX;

use super::api::DeliveryId;

/// User property: the queue that the message comes from.
pub const ORIGIN: &str = "dead-letter-origin";
/// User property: why it left, see [`Reason::text`].
pub const REASON: &str = "dead-letter-reason";
/// User property: how often it had come back.
pub const COUNT: &str = "dead-letter-count";
/// User property: when, in milliseconds since 1970.
pub const TIME: &str = "dead-letter-time";

/// Why a message is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A consumer rejected it for good.
    Rejected,
    /// It came back too often.
    Redeliveries,
    /// Nobody took it in time.
    Expired,
    /// The upstream of a link does not take it.
    Poison,
}

impl Reason {
    /// The value of [`REASON`].
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Redeliveries => "redeliveries",
            Self::Expired => "expired",
            Self::Poison => "poison",
        }
    }
}

/// One of the four user properties.
pub(super) fn is_dead_letter_property(name: &str) -> bool {
    [ORIGIN, REASON, COUNT, TIME].contains(&name)
}

impl Broker {
    /// The client is done with a delivery that it did not take: it leaves its queue, as a dead letter if that is possible.
    pub(super) fn reject_for_good(&mut self, key: SessionKey, id: DeliveryId, now: Now) {
        let slot = self.sessions[key as usize].inflight.get(id);
        let held = slot.filter(|slot| slot.stage == Stage::AwaitAck).and_then(|slot| slot.held.clone());
        let group = slot.and_then(|slot| self.group_of_slot(slot));
        if let (Some(held), Some(group)) = (held, group)
            && self.has_dead_letters(group)
            && !self.enqueue_dead(group, &held, Reason::Rejected, now)
        {
            return self.return_delivery(key, id, now);
        }
        self.settle(key, id, false, now);
    }

    /// A message that its consumer, a link, can never pass on.
    pub(super) fn poison(&mut self, key: SessionKey, id: DeliveryId, message: &Message, now: Now) {
        let session = &self.sessions[key as usize];
        let is_under_way = session.inflight.get(id).is_some_and(|slot| slot.stage == Stage::AwaitAck);
        let origin = session.client_id.clone();
        let def = self.queue_def(&format!("{QUEUE_PREFIX}{origin}"));
        if let Some(name) = def.dead_letter.filter(|_| is_under_way) {
            let letter = dead_letter(message, &origin, Reason::Poison, 0, now);
            self.put_dead_letter(&format!("{QUEUE_PREFIX}{name}"), letter, message.qos(), now);
        }
        // The original must not leave the batch before it is written, as a message that nobody waits for would.
        self.committing = Some(self.batch.id());
        self.settle(key, id, false, now);
        self.committing = None;
    }

    /// The named queue that a delivery comes from.
    pub(super) fn group_of_slot(&self, slot: &Slot) -> Option<GroupKey> {
        let queue =
            self.queues.get(slot.queue.key as usize).filter(|queue| queue.serial() == slot.queue.serial)?;
        match queue.owner() {
            Owner::Group(group) if self.groups[group as usize].is_named() => Some(group),
            _ => None,
        }
    }

    pub(super) fn has_dead_letters(&self, group: GroupKey) -> bool {
        self.dead_letter_topic(group).is_some()
    }

    fn dead_letter_topic(&self, group: GroupKey) -> Option<String> {
        let group = &self.groups[group as usize];
        let topic = format!("{QUEUE_PREFIX}{}", group.as_named()?.def.dead_letter.as_deref()?);
        (topic != group.name()).then_some(topic)
    }

    /// A message that has expired leaves its queue, for the dead-letter queue if it is defined so.
    pub(super) fn settle_expired(&mut self, key: QueueKey, entry: &Entry, now: Now) {
        let is_kept = self.keep_expired(key, entry, now);
        let (seq, size) = (entry.seq, entry.message.size());
        let queue = &mut self.queues[key as usize];
        if is_kept {
            self.batch.settle_stored(queue, seq, size);
        } else {
            self.batch.settle(queue, seq, size);
        }
        self.forget_returns(key, seq);
    }

    fn keep_expired(&mut self, key: QueueKey, entry: &Entry, now: Now) -> bool {
        let Owner::Group(group) = self.queues[key as usize].owner() else { return false };
        if !self.groups[group as usize].as_named().is_some_and(|named| named.def.dead_letter_expired) {
            return false;
        }
        let redeliveries = self.returns_of(group, entry.seq);
        let (message, options) = (entry.message.clone(), entry.options.clone());
        let held = Held { message, options, consumer: None, redeliveries };
        self.enqueue_dead(group, &held, Reason::Expired, now)
    }

    /// A message that is under way comes back once too often: it leaves its queue instead. `false`: it goes back to its place.
    pub(super) fn bury(&mut self, group: GroupKey, slot: &Slot, held: &Held, count: u32, now: Now) -> bool {
        let max = self.groups[group as usize].as_named().and_then(|named| named.def.redeliveries_max);
        if max.is_none_or(|max| count <= max) || !self.has_dead_letters(group) {
            return false;
        }
        let held = Held { redeliveries: count, ..held.clone() };
        if !self.enqueue_dead(group, &held, Reason::Redeliveries, now) {
            return false;
        }
        let key = slot.queue.key;
        let queue = &mut self.queues[key as usize];
        queue.settle(slot.size, false);
        self.stats.settled_refused += 1;
        self.batch.settle_stored(queue, slot.seq, slot.size);
        self.forget_returns(key, slot.seq);
        true
    }

    /// A copy of a message joins the dead-letter queue of `group`, in the batch being built.
    pub(super) fn enqueue_dead(&mut self, group: GroupKey, held: &Held, reason: Reason, now: Now) -> bool {
        let Some(topic) = self.dead_letter_topic(group) else { return false };
        let name = self.groups[group as usize].name();
        let origin: Box<str> = name.strip_prefix(QUEUE_PREFIX).unwrap_or(name).into();
        let message = dead_letter(&held.message, &origin, reason, held.redeliveries, now);
        self.put_dead_letter(&topic, message, held.options.qos, now)
    }

    fn put_dead_letter(&mut self, topic: &str, message: Message, qos: Qos, now: Now) -> bool {
        let Ok(target) = self.named_queue(topic) else { return false };
        let queue = self.groups[target as usize].queue();
        let Ok(verdict) = self.fate(queue, &message, true) else { return false };
        if verdict == Verdict::DropNew || !self.admit(queue, verdict, message.size()) {
            return false;
        }
        self.stats.dead_letters += 1;
        let options = DeliveryOptions { qos, retain: false, subscription_ids: None };
        let mut targets = Targets::new();
        let seq = self.append(queue, &message, &options, &mut targets);
        self.batch.enqueue(message.clone(), targets);
        self.offer_moved(target, seq, &message, options, now);
        true
    }
}

/// The message with the story of its death.
fn dead_letter(message: &Message, origin: &str, reason: Reason, count: u32, now: Now) -> Message {
    let mut properties: Properties = message.properties().cloned().unwrap_or_default();
    properties.user.retain(|(name, _)| !is_dead_letter_property(name));
    let story = [
        (ORIGIN, origin.to_owned()),
        (REASON, reason.text().to_owned()),
        (COUNT, count.to_string()),
        (TIME, now.wall.0.to_string()),
    ];
    properties.user.extend(story.map(|(name, value)| (name.into(), value.into())));
    let head = MessageHead {
        qos: message.qos(),
        retain: false,
        published: message.published(),
        expires: None,
        properties: Some(Box::new(properties)),
    };
    message.with_head(head)
}
