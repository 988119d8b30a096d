//! What the subscriptions of one connection stand for in the broker.
//!
//! A subscription to a topic is one of the connection's session, told apart by its number; two to the same filter share it, and each
//! time it gets another number, so that a later one is not given what was on its way before. One to a queue is a consumer, whose
//! identifier is its number. A durable one is a session of its own, a *branch* of the connection.
//!
//! A number is a place in the table and a count of how often the place was given a number, so that none comes twice.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use tidegate_stomp::connection::SubscriptionTag;

use super::SUBSCRIPTIONS_MAX;
use crate::broker::api::DeliveryId;
use crate::selector::{Fields, Selector};

/// Bits of a number that count, the lowest; those of the place are above. Numbers are subscription identifiers too, of 28 bits at
/// most (MQTT 5.0, 3.8.2.1.2).
const COUNT_BITS: u32 = 18;
const COUNT_MAX: u32 = (1 << COUNT_BITS) - 1;
/// Places in the table.
const PLACES_MAX: usize = SUBSCRIPTIONS_MAX as usize;
const _: () = assert!(PLACES_MAX << COUNT_BITS <= 1 << 28, "a number is a subscription identifier");

/// Memory of the selectors of one connection's subscriptions to topics, in bytes. Those of queues are the broker's.
const SELECTORS_BYTES_MAX: usize = 256 << 10;

/// What gets the messages of a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Topics that match the filter.
    Topic(Box<str>),
    /// A queue.
    Queue,
    /// The branch of this number.
    Durable,
}

/// A subscription of the client.
#[derive(Clone, Debug)]
pub(super) struct Subscriber {
    pub(super) tag: SubscriptionTag,
    /// Messages that it does not select go to others, or to nobody.
    pub(super) selector: Option<Box<Selector>>,
    /// A message is settled when its bytes are written.
    pub(super) auto: bool,
}

/// A subscriber, and the number that its SUBSCRIBE has led to.
#[derive(Debug)]
struct Entered {
    subscriber: Subscriber,
    since: u32,
}

impl Subscriber {
    fn memory(&self) -> usize {
        self.selector.as_ref().map_or(0, |selector| selector.memory())
    }

    pub(super) fn wants(&self, message: &impl Fields) -> bool {
        self.selector.as_ref().is_none_or(|selector| selector.selects(message))
    }
}

#[derive(Debug)]
struct Entry {
    source: Source,
    /// In the order of their numbers.
    subscribers: SmallVec<[Entered; 1]>,
}

/// A place in the table.
#[derive(Debug, Default)]
struct Place {
    /// How often it was given a number.
    count: u32,
    entry: Option<Entry>,
}

impl Place {
    fn is_free(&self) -> bool {
        self.entry.is_none() && self.count < COUNT_MAX
    }
}

/// All subscriptions of a connection. Their number is bounded by the connection's limits.
#[derive(Debug)]
pub(super) struct Subscriptions {
    places: Vec<Place>,
    numbers: BTreeMap<SubscriptionTag, u32>,
    selectors_bytes: usize,
}

/// What is left of a subscription that ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Others share its number.
    Shared,
    /// Its number is free: what it stood for ends.
    Last(u32, Source),
    /// Nothing of the kind was there.
    Unknown,
}

impl Subscriptions {
    pub(super) const fn new() -> Self {
        Self { places: Vec::new(), numbers: BTreeMap::new(), selectors_bytes: 0 }
    }

    /// Enters a subscription; its number, or `None` when numbers or the memory for selectors have run out.
    pub(super) fn add(&mut self, source: Source, subscriber: Subscriber) -> Option<u32> {
        let memory = subscriber.memory();
        if memory > 0 && self.selectors_bytes + memory > SELECTORS_BYTES_MAX {
            return None;
        }
        let at = self.place_for(&source)?;
        let place = &mut self.places[at];
        place.count += 1;
        let number = u32::try_from(at).ok()? << COUNT_BITS | place.count;
        let entry = place.entry.get_or_insert_with(|| Entry { source, subscribers: SmallVec::new() });
        self.numbers.insert(subscriber.tag, number);
        entry.subscribers.push(Entered { subscriber, since: number });
        self.selectors_bytes += memory;
        Some(number)
    }

    /// The place of the subscriptions to the same filter, or a free one.
    fn place_for(&mut self, source: &Source) -> Option<usize> {
        if matches!(source, Source::Topic(_)) {
            let is_same = |place: &Place| place.entry.as_ref().is_some_and(|entry| entry.source == *source);
            if let Some(at) = self.places.iter().position(is_same) {
                return Some(at).filter(|at| self.places[*at].count < COUNT_MAX);
            }
        }
        if let Some(at) = self.places.iter().position(Place::is_free) {
            return Some(at);
        }
        if self.places.len() >= PLACES_MAX {
            return None;
        }
        self.places.push(Place::default());
        Some(self.places.len() - 1)
    }

    pub(super) fn remove(&mut self, tag: SubscriptionTag) -> Ended {
        let Some(number) = self.numbers.remove(&tag) else { return Ended::Unknown };
        let Some(place) = self.places.get_mut(place_of(number)) else { return Ended::Unknown };
        let Some(entry) = &mut place.entry else { return Ended::Unknown };
        let ended = entry.subscribers.iter().filter(|entered| entered.since == number);
        self.selectors_bytes -= ended.map(|entered| entered.subscriber.memory()).sum::<usize>();
        entry.subscribers.retain(|entered| entered.since != number);
        if !entry.subscribers.is_empty() {
            return Ended::Shared;
        }
        match place.entry.take() {
            Some(entry) => Ended::Last(number, entry.source),
            None => Ended::Unknown,
        }
    }

    /// One of those who get the messages of a number, by place: who has subscribed with that number or before.
    pub(super) fn subscriber(&self, number: u32, at: usize) -> Option<&Subscriber> {
        let entry = self.places.get(place_of(number))?.entry.as_ref()?;
        entry.subscribers.get(at).filter(|entered| entered.since <= number).map(|entered| &entered.subscriber)
    }
}

fn place_of(number: u32) -> usize {
    (number >> COUNT_BITS) as usize
}

/// A delivery as the connection's tables know it: 64 bits that come back with the client's acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Handle {
    /// 0 for the connection's own session.
    pub(super) branch: u32,
    /// `None`: nothing is to be settled.
    pub(super) id: Option<DeliveryId>,
}

impl Handle {
    pub(super) fn to_tag(self) -> u64 {
        u64::from(self.branch) << 16 | self.id.map_or(0, |id| u64::from(id.get()))
    }

    #[expect(clippy::cast_possible_truncation, reason = "the parts were put together from these widths")]
    pub(super) fn from_tag(tag: u64) -> Self {
        Self { branch: (tag >> 16) as u32, id: DeliveryId::new(tag as u16) }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_stomp::connection::{Acceptance, Event, Received};
    use tidegate_stomp::{Connection, ConnectionLimits, ConnectionOptions};

    use super::*;

    /// Tags as a connection hands them out.
    fn tags<const N: usize>() -> [SubscriptionTag; N] {
        let mut connection = Connection::new(ConnectionLimits::default(), ConnectionOptions::default(), 0);
        assert!(connection.receive(b"CONNECT\n\n\0", 0).is_ok());
        assert!(connection.accept(&mut vec![], &Acceptance { session: 1, server: None }, 0).is_ok());
        std::array::from_fn(|n| {
            let frame = format!("SUBSCRIBE\nid:{n}\ndestination:/topic/a\n\n\0");
            match connection.receive(frame.as_bytes(), 0) {
                Ok(Received::Event { event: Event::Subscribe(subscribe), .. }) => subscribe.subscription,
                other => unreachable!("{other:?}"),
            }
        })
    }

    fn subscriber(tag: SubscriptionTag) -> Subscriber {
        Subscriber { tag, selector: None, auto: true }
    }

    fn of(all: &Subscriptions, number: u32) -> Vec<SubscriptionTag> {
        (0..).map_while(|at| all.subscriber(number, at)).map(|one| one.tag).collect()
    }

    #[test]
    fn a_number_stands_for_those_who_had_subscribed_when_it_was_given() {
        let mut all = Subscriptions::new();
        let topic = || Source::Topic("a".into());
        let [a, b, c, d] = tags();
        let first = all.add(topic(), subscriber(a)).unwrap();
        let other = all.add(Source::Topic("b".into()), subscriber(b)).unwrap();
        let second = all.add(topic(), subscriber(c)).unwrap();
        assert_eq!([first, other, second].map(|number| of(&all, number)), [vec![a], vec![b], vec![a, c]]);
        assert_eq!(all.remove(a), Ended::Shared);
        assert_eq!([first, second].map(|number| of(&all, number)), [vec![], vec![c]]);
        assert_eq!(all.remove(c), Ended::Last(second, topic()));
        let anew = all.add(topic(), subscriber(d)).unwrap();
        assert_eq!([first, second, anew].map(|number| of(&all, number)), [vec![], vec![], vec![d]]);
    }

    #[test]
    fn a_place_whose_numbers_have_run_out_is_left_for_another_one() {
        let mut all = Subscriptions::new();
        let [a, b] = tags();
        for _ in 0..COUNT_MAX {
            let number = all.add(Source::Queue, subscriber(a)).unwrap();
            assert_eq!(all.remove(a), Ended::Last(number, Source::Queue));
        }
        let number = all.add(Source::Queue, subscriber(a)).unwrap();
        assert_eq!((place_of(number), of(&all, number)), (1, vec![a]));
        assert_eq!(all.remove(a), Ended::Last(number, Source::Queue));
        all.places[1].count = COUNT_MAX - 1;
        let topic = Source::Topic("a".into());
        assert!(all.add(topic.clone(), subscriber(a)).is_some());
        assert_eq!(all.add(topic, subscriber(b)), None, "it cannot be told from the one before");
    }

    #[test]
    fn handles_come_back_as_they_were() {
        for branch in [0, 1, u32::MAX] {
            for id in [None, DeliveryId::new(1), DeliveryId::new(u16::MAX)] {
                let handle = Handle { branch, id };
                assert_eq!(Handle::from_tag(handle.to_tag()), handle);
            }
        }
    }
}
