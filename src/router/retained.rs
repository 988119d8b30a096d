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
