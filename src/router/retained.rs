//! The retained messages: the last one of each topic that was published with RETAIN.
//!
//! Messages lie in slots. A hash table finds a topic's slot, which makes the replacement of a value, the common case, cheap; an
//! ordered index of the topics serves filters; an ordered index of expiry times serves [`Retained::expire`].
//!
//! The order of topics is by level: a topic comes directly before the topics below it (`/` sorts before every other byte),
//! so that what a filter's first levels select is one run of the index, and a scan can jump over what cannot match.
//!
//! Invariants: every slot in use is in both indices once, and in the expiry index if its message expires; the byte counter
//! is the sum of [`Retained::cost`] over all messages. Bounds: the two limits; [`RETAINED_SCAN_STEPS_MAX`] bounds one slice of
//! a scan.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::ops::Bound;

use hashbrown::{DefaultHashBuilder, HashTable};
use memchr::memchr;

use super::{heap_bytes, reserve_one};
use crate::limits::Limits;
use crate::message::Message;
use crate::time::Wall;
use crate::topic;

/// Topics that one call of [`Retained::matching_after`] looks at, whether they match or not.
pub const RETAINED_SCAN_STEPS_MAX: usize = 1024;

/// Memory of one entry beside its message and the text of its topic: the slot, and its places in the hash table and in the
/// ordered index, at their usual fill.
const ENTRY_BYTES: usize = 64;
/// A place in the expiry index.
const EXPIRY_BYTES: usize = 24;

type Slot = u32;

/// What [`Retained::set`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOutcome {
    /// The message is retained.
    Stored {
        /// In place of an older one.
        replaced: bool,
    },
    /// Nothing has changed: an older message of the topic is still there.
    Refused(RetainedLimit),
}

/// The bound that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetainedLimit {
    /// `retained_messages_max`.
    Messages,
    /// `retained_bytes_max`.
    Bytes,
}

/// A part of the messages that match a filter.
#[derive(Clone, Debug, Default)]
pub struct RetainedSlice {
    /// Those found, in the order of the index; may be empty although more follow.
    pub messages: Vec<Message>,
    /// Pass it as `after` for the next slice; `None`: that was all.
    pub resume: Option<Box<str>>,
}

/// All retained messages.
#[derive(Debug)]
pub struct Retained {
    messages_max: usize,
    bytes_max: u64,
    bytes: u64,
    slots: Vec<Option<Message>>,
    free: Vec<Slot>,
    hasher: DefaultHashBuilder,
    by_topic: HashTable<Slot>,
    ordered: BTreeMap<Box<[u8]>, Slot>,
    expiring: BTreeSet<(Wall, Slot)>,
}

impl Retained {
    /// Nothing is retained; `retained_messages_max` and `retained_bytes_max` will hold.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self {
            messages_max: usize::try_from(limits.retained_messages_max).unwrap_or(usize::MAX),
            bytes_max: limits.retained_bytes_max,
            bytes: 0,
            slots: Vec::new(),
            free: Vec::new(),
            hasher: DefaultHashBuilder::default(),
            by_topic: HashTable::new(),
            ordered: BTreeMap::new(),
            expiring: BTreeSet::new(),
        }
    }

    /// Retains `message` in place of the topic's older one. An empty payload means [`remove`](Self::remove)
    /// [MQTT-3.3.1-6]; telling these apart is the caller's business.
    pub fn set(&mut self, message: Message) -> SetOutcome {
        let slot = self.find(message.topic());
        let freed = slot.map_or(0, |slot| Self::cost(self.message(slot)));
        if slot.is_none() && self.len() >= self.messages_max {
            return SetOutcome::Refused(RetainedLimit::Messages);
        }
        let bytes = self.bytes - freed + Self::cost(&message);
        if bytes > self.bytes_max && Self::cost(&message) > freed {
            return SetOutcome::Refused(RetainedLimit::Bytes);
        }
        self.bytes = bytes;
        match slot {
            Some(slot) => self.replace(slot, message),
            None => self.insert(message),
        }
        SetOutcome::Stored { replaced: slot.is_some() }
    }

    /// Forgets the topic's message and hands it back.
    pub fn remove(&mut self, topic: &str) -> Option<Message> {
        let hash = self.hasher.hash_one(topic);
        let slots = &self.slots;
        let entry = self.by_topic.find_entry(hash, |slot| topic_at(slots, *slot) == topic.as_bytes()).ok()?;
        let (slot, _) = entry.remove();
        self.ordered.remove(&key_of(topic));
        let message = self.slots[slot as usize].take().expect("a slot in the table is in use");
        self.free.push(slot);
        self.bytes -= Self::cost(&message);
        if let Some(at) = message.expires() {
            self.expiring.remove(&(at, slot));
        }
        Some(message)
    }

    /// The topic's message.
    #[must_use]
    pub fn get(&self, topic: &str) -> Option<&Message> {
        self.find(topic).map(|slot| self.message(slot))
    }

    /// The next messages that `filter` (without `$share/<group>/`) matches, at most `messages_max` (at least 1), after the
    /// place `after` in the order of topics. What is retained or removed between two slices is seen or not seen depending on
    /// its place; everything else comes exactly once. Expired messages are not left out.
    #[must_use]
    pub fn matching_after(&self, filter: &str, after: Option<&str>, messages_max: usize) -> RetainedSlice {
        let mut slice = RetainedSlice::default();
        if !topic::has_wildcard(filter) {
            if after.is_none() {
                slice.messages.extend(self.get(filter).cloned());
            }
            return slice;
        }
        let after = after.map(key_of);
        let start = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut run = self.ordered.range::<[u8], _>((start, Bound::Unbounded));
        let mut next = run.next();
        for step in 1.. {
            let Some((key, slot)) = next else { break };
            next = match judge(filter, key) {
                Verdict::Match => {
                    slice.messages.push(self.message(*slot).clone());
                    run.next()
                }
                Verdict::Next => run.next(),
                Verdict::From(target) => match run.next() {
                    Some((near, _)) if near[..] < target[..] => {
                        run = self.ordered.range::<[u8], _>((Bound::Included(&target[..]), Bound::Unbounded));
                        run.next()
                    }
                    near => near,
                },
                Verdict::End => None,
            };
            if next.is_some() && (slice.messages.len() >= messages_max || step >= RETAINED_SCAN_STEPS_MAX) {
                slice.resume = Some(self.message(*slot).topic().into());
                break;
            }
        }
        slice
    }

    /// Every retained message, in the order of topics; those below `$` names too.
    pub fn iter(&self) -> impl Iterator<Item = &Message> {
        self.ordered.values().map(|slot| self.message(*slot))
    }

    /// Removes messages that have expired at `wall`, at most `messages_max`, the oldest expiry first, and hands their topics
    /// back. The cost is that of the removals alone.
    pub fn expire(&mut self, wall: Wall, messages_max: usize) -> Vec<Box<str>> {
        let mut topics = Vec::new();
        while topics.len() < messages_max
            && let Some(&(at, slot)) = self.expiring.first()
            && at <= wall
        {
            let topic: Box<str> = self.message(slot).topic().into();
            self.remove(&topic);
            topics.push(topic);
        }
        topics
    }

    /// When the next message expires.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Wall> {
        self.expiring.first().map(|(at, _)| *at)
    }

    /// Messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_topic.len()
    }

    /// Nothing is retained.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory in bytes: the sum of [`cost`](Self::cost).
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What retaining `message` counts against `retained_bytes_max`.
    #[must_use]
    pub fn cost(message: &Message) -> u64 {
        let expiry = message.expires().map_or(0, |_| EXPIRY_BYTES);
        (message.memory() + heap_bytes(message.topic_bytes().len()) + ENTRY_BYTES + expiry) as u64
    }

    fn find(&self, topic: &str) -> Option<Slot> {
        let hash = self.hasher.hash_one(topic);
        self.by_topic.find(hash, |slot| topic_at(&self.slots, *slot) == topic.as_bytes()).copied()
    }

    fn message(&self, slot: Slot) -> &Message {
        self.slots[slot as usize].as_ref().expect("a slot in an index is in use")
    }

    fn insert(&mut self, message: Message) {
        assert!(!message.topic_bytes().contains(&LEVEL_END), "a topic is checked before it is retained");
        let key = key_of(message.topic());
        let hash = self.hasher.hash_one(message.topic());
        let slot = self.free.pop().unwrap_or_else(|| {
            reserve_one(&mut self.slots);
            self.slots.push(None);
            Slot::try_from(self.slots.len() - 1).expect("the limit on messages is a 32-bit number")
        });
        if let Some(at) = message.expires() {
            self.expiring.insert((at, slot));
        }
        self.slots[slot as usize] = Some(message);
        let Self { by_topic, slots, hasher, .. } = self;
        by_topic.insert_unique(hash, slot, |slot| hash_at(hasher, slots, *slot));
        self.ordered.insert(key, slot);
    }

    fn replace(&mut self, slot: Slot, message: Message) {
        if let Some(at) = message.expires() {
            self.expiring.insert((at, slot));
        }
        let expires = message.expires();
        let old = self.slots[slot as usize].replace(message).expect("a slot in the table is in use");
        if let Some(at) = old.expires()
            && old.expires() != expires
        {
            self.expiring.remove(&(at, slot));
        }
    }
}

fn topic_at(slots: &[Option<Message>], slot: Slot) -> &[u8] {
    slots[slot as usize].as_ref().expect("a slot in the table is in use").topic_bytes()
}

fn hash_at(hasher: &DefaultHashBuilder, slots: &[Option<Message>], slot: Slot) -> u64 {
    let message = slots[slot as usize].as_ref().expect("a slot in the table is in use");
    hasher.hash_one(message.topic())
}

/// A topic as a key: `/` becomes U+0000, which no topic contains, so that the order of bytes is the order by level.
fn key_of(topic: &str) -> Box<[u8]> {
    topic.bytes().map(|byte| if byte == b'/' { LEVEL_END } else { byte }).collect()
}

/// What stands for `/` in a key.
const LEVEL_END: u8 = 0;
/// The least byte that does not end a level: `key + AFTER_LEVEL` sorts after the key and everything below it.
const AFTER_LEVEL: u8 = 1;

/// What a key says about itself and the keys after it.
enum Verdict {
    /// The filter matches it.
    Match,
    /// It does not; the next key may.
    Next,
    /// No key before this one can match.
    From(Vec<u8>),
    /// No later key can match.
    End,
}

fn judge(filter: &str, key: &[u8]) -> Verdict {
    if key.first() == Some(&b'$') && filter.starts_with(['+', '#']) {
        return Verdict::From(vec![b'$' + 1]);
    }
    let mut at = 0;
    let mut last_plus_end = None;
    for level in filter.split('/') {
        if level == "#" {
            return Verdict::Match;
        }
        if at > key.len() {
            // Too short: what can match lies below it.
            return if level == "+" {
                Verdict::Next
            } else {
                Verdict::From([key, &[LEVEL_END], level.as_bytes()].concat())
            };
        }
        let end = memchr(LEVEL_END, &key[at..]).map_or(key.len(), |length| at + length);
        if level == "+" {
            last_plus_end = Some(end);
        } else {
            match key[at..end].cmp(level.as_bytes()) {
                Ordering::Less => return Verdict::From([&key[..at], level.as_bytes()].concat()),
                Ordering::Equal => {}
                Ordering::Greater => {
                    return last_plus_end.map_or(Verdict::End, |end| beyond(&key[..end]));
                }
            }
        }
        at = end + 1;
    }
    if at > key.len() { Verdict::Match } else { beyond(&key[..at - 1]) }
}

fn beyond(key: &[u8]) -> Verdict {
    Verdict::From([key, &[AFTER_LEVEL]].concat())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message::MessageHead;

    const TOPICS: [&str; 22] = [
        "a", "a/", "a/b", "a/b/c", "a/b/c/d", "a-b", "a-b/c", "a//c", "a\u{1}", "a\u{1}/b", "b", "b/b",
        "b/c/c", "/", "/a", "//", "$s", "$s/b", "$s/b/c", "$", "%", "ab/b",
    ];
    const LEVELS: [&str; 8] = ["a", "b", "c", "", "+", "#", "$s", "a\u{1}"];

    fn message(topic: &str, payload: &[u8], expires: Option<u64>) -> Message {
        Message::new(
            topic,
            payload,
            MessageHead { retain: true, expires: expires.map(Wall), ..Default::default() },
        )
    }

    fn roomy() -> Retained {
        Retained::new(&Limits::default())
    }

    /// All slices of a scan, each of at most `max` messages.
    fn scan(retained: &Retained, filter: &str, max: usize) -> Vec<String> {
        let mut topics: Vec<String> = vec![];
        let mut after: Option<Box<str>> = None;
        loop {
            let slice = retained.matching_after(filter, after.as_deref(), max);
            assert!(slice.messages.len() <= max);
            topics.extend(slice.messages.iter().map(|message| message.topic().to_owned()));
            match slice.resume {
                Some(place) => after = Some(place),
                None => return topics,
            }
        }
    }

    fn assert_sound(retained: &Retained) {
        assert_eq!(retained.bytes(), retained.iter().map(Retained::cost).sum::<u64>());
        assert_eq!(retained.len(), retained.iter().count());
        assert_eq!(retained.len(), retained.slots.iter().flatten().count());
        assert_eq!(retained.slots.len(), retained.len() + retained.free.len());
        let expiring = retained.iter().filter(|message| message.expires().is_some()).count();
        assert_eq!(retained.expiring.len(), expiring);
        assert_eq!(retained.next_expiry(), retained.iter().filter_map(Message::expires).min());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Set(&'static str, u8, Option<u64>),
        Remove(&'static str),
        Expire(u64, usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let topic = || prop::sample::select(TOPICS.to_vec());
        prop_oneof![
            4 => (topic(), any::<u8>(), prop::option::of(0..8_u64)).prop_map(|(t, n, at)| Step::Set(t, n, at)),
            1 => topic().prop_map(Step::Remove),
            1 => (0..8_u64, 0..4_usize).prop_map(|(at, max)| Step::Expire(at, max)),
        ]
    }

    fn filter() -> impl Strategy<Value = String> {
        let levels = prop::collection::vec(prop::sample::select(LEVELS.to_vec()), 1..5);
        let text = levels.prop_map(|levels| levels.join("/"));
        text.prop_filter("a filter", |text| topic::Filter::parse(text, &Limits::default()).is_ok())
    }

    proptest! {
        #[test]
        fn slices_of_a_scan_add_up_to_what_matches_in_a_plain_map(
            steps in prop::collection::vec(step(), 1..80),
            filters in prop::collection::vec(filter(), 1..30),
            max in 1..4_usize,
        ) {
            let mut retained = roomy();
            let mut model: BTreeMap<Vec<String>, (u8, Option<u64>)> = BTreeMap::new();
            let levels = |topic: &str| topic.split('/').map(str::to_owned).collect::<Vec<_>>();
            for step in steps {
                match step {
                    Step::Set(topic, n, at) => {
                        let replaced = model.insert(levels(topic), (n, at)).is_some();
                        prop_assert_eq!(retained.set(message(topic, &[n], at)), SetOutcome::Stored { replaced });
                    }
                    Step::Remove(topic) => {
                        let removed = retained.remove(topic).map(|message| message.payload()[0]);
                        prop_assert_eq!(removed, model.remove(&levels(topic)).map(|(n, _)| n));
                    }
                    Step::Expire(at, max) => {
                        let due = model.values().filter(|(_, expires)| expires.is_some_and(|e| e <= at)).count();
                        let gone = retained.expire(Wall(at), max);
                        prop_assert_eq!(gone.len(), due.min(max));
                        for topic in gone {
                            let (_, expires) = model.remove(&levels(&topic)).unwrap();
                            prop_assert!(expires.unwrap() <= at);
                        }
                    }
                }
                assert_sound(&retained);
            }
            for (levels, (n, _)) in &model {
                prop_assert_eq!(retained.get(&levels.join("/")).unwrap().payload(), &[*n]);
            }
            for filter in filters.iter().map(String::as_str).chain(["#", "+/#", "$s/#", "+/b/+"]) {
                let topics = model.keys().map(|levels| levels.join("/"));
                let expected: Vec<String> = topics.filter(|topic| topic::matches(filter, topic)).collect();
                prop_assert_eq!(scan(&retained, filter, max), expected, "{}", filter);
            }
        }
    }

    #[test]
    fn a_full_store_refuses_new_topics_and_keeps_what_it_has() {
        let one = Retained::cost(&message("a", b"12", None));
        let limits = Limits { retained_messages_max: 2, retained_bytes_max: 2 * one, ..Limits::default() };
        let mut retained = Retained::new(&limits);
        let stored = |replaced| SetOutcome::Stored { replaced };
        assert_eq!(retained.set(message("a", b"12", None)), stored(false));
        assert_eq!(retained.set(message("b", b"123", None)), SetOutcome::Refused(RetainedLimit::Bytes));
        assert_eq!(retained.set(message("b", b"12", None)), stored(false));
        assert_eq!(retained.set(message("c", b"", None)), SetOutcome::Refused(RetainedLimit::Messages));
        assert_eq!(retained.set(message("a", b"123", None)), SetOutcome::Refused(RetainedLimit::Bytes));
        assert_eq!(retained.get("a").unwrap().payload(), b"12");
        assert_eq!(retained.set(message("a", b"1", None)), stored(true));
        assert_eq!(retained.bytes(), 2 * one - 1);
        assert_sound(&retained);
    }

    #[test]
    fn a_replaced_expiry_counts_no_more() {
        let mut retained = roomy();
        retained.set(message("a", b"1", Some(5)));
        retained.set(message("a", b"2", Some(9)));
        assert!(retained.expire(Wall(8), 10).is_empty());
        retained.set(message("a", b"3", None));
        assert!(retained.expire(Wall(u64::MAX), 10).is_empty());
        assert_eq!(retained.next_expiry(), None);
        assert_eq!(retained.len(), 1);
    }

    #[test]
    fn one_slice_of_a_scan_without_matches_is_bounded_too() {
        let mut retained = roomy();
        let topics = 10 * RETAINED_SCAN_STEPS_MAX;
        for n in 0..topics {
            retained.set(message(&format!("device-{n}/on"), b"1", None));
        }
        let mut slices = 0;
        let mut after = None;
        loop {
            let slice = retained.matching_after("+/off", after.as_deref(), 100);
            assert!(slice.messages.is_empty());
            slices += 1;
            after = slice.resume;
            if after.is_none() {
                break;
            }
        }
        assert!((10..=11).contains(&slices), "{slices}");
    }

    #[test]
    fn a_scan_jumps_over_levels_that_cannot_match() {
        let mut retained = roomy();
        for n in 0..30_000 {
            retained.set(message(&format!("site-{}/{n:05}", n % 10), b"1", None));
        }
        for filter in ["site-5/#", "+/00005", "site-5/00005/#", "nothing/#", "zzz/+"] {
            let slice = retained.matching_after(filter, None, 4000);
            let expected = retained.iter().filter(|message| topic::matches(filter, message.topic())).count();
            if expected < RETAINED_SCAN_STEPS_MAX {
                assert_eq!((slice.messages.len(), slice.resume), (expected, None), "{filter}");
            }
        }
    }

    #[test]
    fn a_small_message_is_retained_in_less_than_400_bytes() {
        let mut retained = roomy();
        for n in 0..10_000 {
            retained.set(message(&format!("plant/7/device-{n:06}/temperature"), &[0; 64], Some(n)));
        }
        let each = retained.bytes() / retained.len() as u64;
        assert!(each < 400, "{each} bytes");
    }
}
