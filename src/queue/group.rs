//! A shared subscription: one queue whose messages go round its members.
//!
//! Each message goes to one member; which one depends on who is connected and has room, so the caller passes a test. Bound:
//! the members are sessions, each at most once.

use crate::message::Qos;
use crate::router::Sink;
use crate::session::SessionKey;

use super::QueueKey;

/// Place of a group in the broker's table.
pub type GroupKey = u32;

/// One session's part in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Who.
    pub session: SessionKey,
    /// Highest quality of service that it is to get.
    pub qos: Qos,
    /// Keep the publisher's RETAIN flag.
    pub retain_as_published: bool,
    /// Subscription identifier to send along.
    pub subscription_id: Option<u32>,
}

/// A shared subscription.
#[derive(Debug)]
pub struct Group {
    name: Box<str>,
    filter: Box<str>,
    queue: QueueKey,
    members: Vec<Member>,
    next: usize,
    qos_max: Qos,
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
        }
    }

    /// `$share/<group>/<filter>`.
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

    /// Adds a member, or changes its options.
    pub fn join(&mut self, member: Member) {
        match self.members.iter_mut().find(|other| other.session == member.session) {
            Some(other) => *other = member,
            None => self.members.push(member),
        }
        self.recount();
    }

    /// Takes a member out; `true` when none is left.
    pub fn leave(&mut self, session: SessionKey) -> bool {
        if let Some(at) = self.members.iter().position(|member| member.session == session) {
            self.members.remove(at);
            if self.next > at {
                self.next -= 1;
            }
        }
        self.recount();
        self.members.is_empty()
    }

    fn recount(&mut self) {
        self.qos_max = self.members.iter().map(|member| member.qos).max().unwrap_or_default();
    }

    /// The next member in turn that `is_able`.
    pub fn pick(&mut self, mut is_able: impl FnMut(&Member) -> bool) -> Option<Member> {
        let n = self.members.len();
        for step in 0..n {
            let at = (self.next + step) % n;
            if is_able(&self.members[at]) {
                self.next = (at + 1) % n;
                return Some(self.members[at]);
            }
        }
        None
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
        Member { session, qos: Qos::AtLeastOnce, retain_as_published: false, subscription_id: None }
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
        assert!(!group.leave(1));
        assert_eq!(group.pick(|_| true).map(|m| m.session), Some(2));
        assert!(!group.leave(2));
        assert!(group.leave(3));
    }
}
