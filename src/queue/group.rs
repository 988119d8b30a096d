//! A queue whose messages go round several consumers: a shared subscription's or a named one.
//!
//! Each message goes to one member; which one depends on who is connected and has room, so the caller passes a test. A *shared*
//! group exists for its members; a *named* one has a life of its own. Among the members that are able, those of the highest
//! priority take turns; while one of them is exclusive, only the first such member gets anything.
//!
//! Bound: the members are subscriptions of sessions, each at most once, and consumers, of which the broker bounds the number.

use std::sync::Arc;

use crate::broker::api::{ConsumerId, Selector};
use crate::message::Qos;
use crate::router::Sink;
use crate::session::SessionKey;
use crate::store::contract::Seq;

use super::QueueKey;
use super::named::Named;

/// Place of a group in the broker's table.
pub type GroupKey = u32;

/// A consumer's place in its session's table, in bytes: a third more than what it holds, and the allocations.
const PLACE_BYTES: usize = 64;

/// A consumer that settles what it gets and has a window of its own.
#[derive(Clone, Debug)]
pub struct Consumer {
    /// Chosen by its client.
    pub id: ConsumerId,
    /// Unsettled messages that it takes at a time.
    pub messages_max: u16,
    /// Bytes of unsettled messages that it takes at a time; one message is always allowed.
    pub bytes_max: u32,
    /// Higher ones come first.
    pub priority: i32,
    /// While it is there, others get nothing.
    pub exclusive: bool,
    /// Which messages it wants; `None`: all.
    pub selector: Option<Arc<dyn Selector>>,
    /// It looks at copies of what waits below this number and takes nothing.
    pub browse: Option<Seq>,
    /// It has heard that it has seen everything.
    pub browsed: bool,
    /// Of the messages in memory, it has looked at those below this number.
    pub scan: Seq,
    /// Of the messages in the store alone, it has looked at those below this number.
    pub probe: Seq,
    /// It was told that it consumes, so deliveries may follow.
    pub active: bool,
    /// Messages under way to it.
    pub under_way: u16,
    /// Their bytes.
    pub under_way_bytes: u64,
}

impl Consumer {
    /// Everything below this number has been looked at, or is in memory.
    #[must_use]
    pub fn beyond(&self) -> Seq {
        self.scan.max(self.probe)
    }

    /// It goes through the queue on its own.
    fn walks(&self) -> bool {
        self.browse.is_some() || self.selector.is_some()
    }

    /// Memory that it takes, in bytes: its places in its queue and in its session, and its selector.
    #[must_use]
    pub fn memory(&self) -> usize {
        let selector = self.selector.as_ref().map_or(0, |selector| selector.memory());
        size_of::<Member>() + size_of::<Self>() + PLACE_BYTES + selector
    }

    /// A message of `size` bytes fits into its window.
    #[must_use]
    pub fn has_room(&self, size: u32) -> bool {
        let bytes = self.under_way_bytes + u64::from(size);
        self.active
            && (self.under_way == 0
                || (self.under_way < self.messages_max && bytes <= u64::from(self.bytes_max)))
    }
}

/// One session's part in a group.
#[derive(Clone, Debug)]
pub struct Member {
    /// Who.
    pub session: SessionKey,
    /// Highest quality of service that it is to get.
    pub qos: Qos,
    /// Keep the publisher's RETAIN flag.
    pub retain_as_published: bool,
    /// Subscription identifier to send along.
    pub subscription_id: Option<u32>,
    /// It is more than a subscription.
    pub consumer: Option<Box<Consumer>>,
}

impl Member {
    /// The consumer's identifier.
    #[must_use]
    pub fn consumer_id(&self) -> Option<ConsumerId> {
        self.consumer.as_ref().map(|consumer| consumer.id)
    }

    fn priority(&self) -> i32 {
        self.consumer.as_ref().map_or(0, |consumer| consumer.priority)
    }

    fn is_exclusive(&self) -> bool {
        self.consumer.as_ref().is_some_and(|consumer| consumer.exclusive && consumer.browse.is_none())
    }

    fn browses(&self) -> bool {
        self.consumer.as_ref().is_some_and(|consumer| consumer.browse.is_some())
    }

    fn taker(&self) -> Taker {
        Taker {
            session: self.session,
            qos: self.qos,
            retain_as_published: self.retain_as_published,
            subscription_id: self.subscription_id,
            consumer: self.consumer_id(),
        }
    }
}

/// What a message needs to know of the member that takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taker {
    /// Who.
    pub session: SessionKey,
    /// Highest quality of service that it is to get.
    pub qos: Qos,
    /// Keep the publisher's RETAIN flag.
    pub retain_as_published: bool,
    /// Subscription identifier to send along.
    pub subscription_id: Option<u32>,
    /// The consumer, if it is one.
    pub consumer: Option<ConsumerId>,
}

/// A shared subscription or a named queue.
#[derive(Debug)]
pub struct Group {
    name: Box<str>,
    filter: Box<str>,
    queue: QueueKey,
    members: Vec<Member>,
    next: usize,
    qos_max: Qos,
    /// Members differ in priority, or one is exclusive.
    is_ranked: bool,
    /// Members that go through the queue on their own.
    walkers: usize,
    named: Option<Box<Named>>,
}

impl Group {
    /// A group without members yet. `name` is the whole filter as subscribed to, `filter` the part that selects topics.
    #[must_use]
    pub fn new(name: &str, filter: &str, queue: QueueKey) -> Self {
        Self {
            name: name.into(),
            filter: filter.into(),
            queue,
            members: Vec::new(),
            next: 0,
            qos_max: Qos::AtMostOnce,
            is_ranked: false,
            walkers: 0,
            named: None,
        }
    }

    /// A named queue; its topic is both its name and its filter.
    #[must_use]
    pub fn named(topic: &str, queue: QueueKey, named: Named) -> Self {
        Self { named: Some(Box::new(named)), ..Self::new(topic, topic, queue) }
    }

    /// `$share/<group>/<filter>` or `$queue/<name>`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What selects topics.
    #[must_use]
    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// The queue that the members share.
    #[must_use]
    pub fn queue(&self) -> QueueKey {
        self.queue
    }

    /// The members, in the order they joined.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The highest quality of service that any member takes.
    #[must_use]
    #[inline]
    pub fn qos_max(&self) -> Qos {
        self.qos_max
    }

    /// It outlives its members and takes every message.
    #[must_use]
    #[inline]
    pub fn is_named(&self) -> bool {
        self.named.is_some()
    }

    /// What only a named queue has.
    #[must_use]
    pub fn as_named(&self) -> Option<&Named> {
        self.named.as_deref()
    }

    /// What only a named queue has.
    pub fn as_named_mut(&mut self) -> Option<&mut Named> {
        self.named.as_deref_mut()
    }

    /// Adds a member, or changes its options.
    pub fn join(&mut self, member: Member) {
        let id = (member.session, member.consumer_id());
        match self.members.iter_mut().find(|other| (other.session, other.consumer_id()) == id) {
            Some(other) => *other = member,
            None => self.members.push(member),
        }
        self.recount();
    }

    /// Takes a member out; `true` when none is left.
    pub fn leave(&mut self, session: SessionKey, consumer: Option<ConsumerId>) -> bool {
        let is_it = |member: &Member| member.session == session && member.consumer_id() == consumer;
        if let Some(at) = self.members.iter().position(is_it) {
            self.members.remove(at);
            if self.next > at {
                self.next -= 1;
            }
        }
        self.recount();
        self.members.is_empty()
    }

    /// The session takes part, in whatever way.
    #[must_use]
    pub fn has_member(&self, session: SessionKey) -> bool {
        self.members.iter().any(|member| member.session == session)
    }

    /// A consumer of this group.
    pub fn consumer_mut(&mut self, session: SessionKey, id: ConsumerId) -> Option<&mut Consumer> {
        let mut of_session = self.members.iter_mut().filter(|member| member.session == session);
        of_session.find_map(|member| member.consumer.as_deref_mut().filter(|consumer| consumer.id == id))
    }

    fn recount(&mut self) {
        self.qos_max = self.members.iter().map(|member| member.qos).max().unwrap_or_default();
        let walks = |member: &&Member| member.consumer.as_ref().is_some_and(|consumer| consumer.walks());
        self.walkers = self.members.iter().filter(walks).count();
        let first = self.members.first().map(Member::priority);
        self.is_ranked =
            self.members.iter().any(|member| member.is_exclusive() || Some(member.priority()) != first);
    }

    /// The next member in turn that `is_able`, of the highest priority that has one.
    pub fn pick(&mut self, mut is_able: impl FnMut(&mut Member) -> bool) -> Option<Taker> {
        let n = self.members.len();
        let only = if self.is_ranked { self.members.iter().position(Member::is_exclusive) } else { None };
        let mut best: Option<usize> = None;
        for step in 0..n {
            let at = (self.next + step) % n;
            let outranked =
                best.is_some_and(|best| self.members[at].priority() <= self.members[best].priority());
            if outranked || self.members[at].browses() || only.is_some_and(|only| only != at) {
                continue;
            }
            if is_able(&mut self.members[at]) {
                best = Some(at);
                if !self.is_ranked {
                    break;
                }
            }
        }
        best.map(|at| self.take_turn(at, n))
    }

    fn take_turn(&mut self, at: usize, n: usize) -> Taker {
        self.next = (at + 1) % n;
        self.members[at].taker()
    }

    /// Some members go through the queue on their own.
    #[must_use]
    #[inline]
    pub fn has_walkers(&self) -> bool {
        self.walkers > 0
    }

    /// Those members, but for the ones that an exclusive one keeps out.
    pub fn walkers(&self) -> impl Iterator<Item = Taker> + '_ {
        let only = self.members.iter().position(Member::is_exclusive);
        let walks = move |at: usize, consumer: &Consumer| {
            consumer.browse.is_some() || (consumer.selector.is_some() && only.is_none_or(|only| only == at))
        };
        let members = self.members.iter().enumerate();
        members
            .filter(move |(at, member)| member.consumer.as_ref().is_some_and(|consumer| walks(*at, consumer)))
            .map(|(_, member)| member.taker())
    }

    /// The message `seq` waits again; beyond `loaded_to` it is in the store alone. Consumers with a selector look again.
    pub fn look_again(&mut self, seq: Seq, loaded_to: Seq) {
        if self.walkers == 0 {
            return;
        }
        let consumers = self.members.iter_mut().filter_map(|member| member.consumer.as_deref_mut());
        for consumer in consumers.filter(|consumer| consumer.browse.is_none()) {
            consumer.scan = consumer.scan.min(seq);
            if seq >= loaded_to {
                consumer.probe = consumer.probe.min(seq);
            }
        }
    }

    /// A consumer of this group.
    #[must_use]
    pub fn consumer(&self, session: SessionKey, id: ConsumerId) -> Option<&Consumer> {
        let mut of_session = self.members.iter().filter(|member| member.session == session);
        of_session.find_map(|member| member.consumer.as_deref().filter(|consumer| consumer.id == id))
    }

    /// Where the router sends this group's messages, for the group at `key`.
    #[must_use]
    pub fn sink(key: GroupKey) -> Sink {
        Sink::Group(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(session: u32) -> Member {
        let qos = Qos::AtLeastOnce;
        Member { session, qos, retain_as_published: false, subscription_id: None, consumer: None }
    }

    fn consumer(session: u32, priority: i32, exclusive: bool) -> Member {
        let consumer = Consumer {
            id: ConsumerId(1),
            messages_max: 1,
            bytes_max: 1,
            priority,
            exclusive,
            selector: None,
            browse: None,
            browsed: false,
            scan: 0,
            probe: 0,
            active: true,
            under_way: 0,
            under_way_bytes: 0,
        };
        Member { consumer: Some(Box::new(consumer)), ..member(session) }
    }

    #[test]
    fn members_take_turns_and_those_that_cannot_are_passed_over() {
        let mut group = Group::new("$share/g/a", "a", 0);
        (1..=3).for_each(|n| group.join(member(n)));
        let mut take = |able: &dyn Fn(u32) -> bool| group.pick(|m| able(m.session)).map(|m| m.session);
        assert_eq!([take(&|_| true), take(&|_| true)], [Some(1), Some(2)]);
        assert_eq!([take(&|n| n != 3), take(&|n| n == 3)], [Some(1), Some(3)]);
        assert_eq!(take(&|_| false), None);
    }

    #[test]
    fn a_member_that_leaves_does_not_disturb_the_turn_of_the_others() {
        let mut group = Group::new("$share/g/a", "a", 0);
        (1..=3).for_each(|n| group.join(member(n)));
        assert_eq!(group.pick(|_| true).map(|m| m.session), Some(1));
        assert!(!group.leave(1, None));
        assert_eq!(group.pick(|_| true).map(|m| m.session), Some(2));
        assert!(!group.leave(2, None));
        assert!(group.leave(3, None));
    }

    #[test]
    fn members_of_the_highest_priority_that_are_able_take_turns() {
        let mut group = Group::new("$queue/a", "$queue/a", 0);
        [(1, 0), (2, 5), (3, 5), (4, -1)].into_iter().for_each(|(n, p)| group.join(consumer(n, p, false)));
        let mut take = |able: &dyn Fn(u32) -> bool| group.pick(|m| able(m.session)).map(|m| m.session);
        assert_eq!([take(&|_| true), take(&|_| true), take(&|_| true)], [Some(2), Some(3), Some(2)]);
        assert_eq!([take(&|n| n == 1 || n == 4), take(&|n| n == 4)], [Some(1), Some(4)]);
    }

    #[test]
    fn the_first_exclusive_member_gets_everything_until_it_leaves() {
        let mut group = Group::new("$queue/a", "$queue/a", 0);
        group.join(member(1));
        group.join(consumer(2, 0, true));
        group.join(consumer(3, 9, true));
        assert_eq!([(); 2].map(|()| group.pick(|_| true).map(|m| m.session)), [Some(2); 2]);
        assert_eq!(group.pick(|m| m.session != 2), None);
        group.leave(2, Some(ConsumerId(1)));
        assert_eq!(group.pick(|_| true).map(|m| m.session), Some(3));
        group.leave(3, Some(ConsumerId(1)));
        assert_eq!(group.pick(|_| true).map(|m| m.session), Some(1));
    }
}
