//! Routes of the topics published lately.
//!
//! Two halves: what is used moves to the young half; when that is full it becomes the old half, and what had been in the
//! old half is forgotten. Each half holds at most half of either limit, so both limits hold at any time. A change of a
//! filter with wildcards makes every route stale by raising the generation; a change of a filter without wildcards drops the
//! one topic it can match. Both take constant time.
//!
//! Once a half has been full, a new topic is remembered when it comes for the second time within about as many others as the
//! cache has places: topics that never come again would only push out those that do. And where hardly any look-up finds its
//! topic, most are not tried.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::{Route, heap_bytes};

/// Look-ups after which it is judged whether the cache is of use.
const TRIAL: u32 = 1 << 10;
/// Look-ups that are left out after a trial in which fewer than one in eight found its topic.
const PAUSE: u32 = 7 << 10;

#[derive(Debug)]
struct Entry {
    topic: Box<str>,
    routes: Arc<[Route]>,
    generation: u64,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Half {
    entries: HashTable<Entry>,
    bytes: usize,
}

/// The routes of a topic are not known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Miss {
    /// They were, until something changed.
    held: bool,
}

/// The cache. Both [`find`](Self::find) and [`put`](Self::put) want the topic's [`hash`](Self::hash), so that a miss computes
/// it once.
#[derive(Debug)]
pub(super) struct Cache {
    young: Half,
    old: Half,
    hasher: DefaultHashBuilder,
    generation: u64,
    half_entries_max: usize,
    half_bytes_max: usize,
    /// Look-ups to come that are not tried.
    pause: u32,
    /// Of the trial under way.
    tried: u32,
    found: u32,
    /// Parts of the hashes of topics seen lately, each at the place that the rest of its hash says; empty until a half was full.
    seen: Vec<u32>,
}

impl Cache {
    pub(super) fn new(entries_max: usize, bytes_max: usize) -> Self {
        let seen_bytes = entries_max * size_of::<u32>();
        Self {
            young: Half::default(),
            old: Half::default(),
            hasher: DefaultHashBuilder::default(),
            generation: 0,
            half_entries_max: entries_max / 2,
            half_bytes_max: bytes_max.saturating_sub(seen_bytes) / 2,
            pause: 0,
            tried: 0,
            found: 0,
            seen: Vec::new(),
        }
    }

    /// Whether a topic is to be looked up; to be asked before each. A cache that was never full may yet learn.
    pub(super) fn is_of_use(&mut self) -> bool {
        if self.pause > 0 {
            self.pause -= 1;
            return false;
        }
        self.tried += 1;
        if self.tried > TRIAL {
            if self.found < TRIAL / 8 && !self.seen.is_empty() {
                self.pause = PAUSE;
            }
            (self.tried, self.found) = (0, 0);
        }
        true
    }

    pub(super) fn hash(&self, topic: &str) -> u64 {
        self.hasher.hash_one(topic)
    }

    /// The routes of `topic`, if they are known and nothing has changed since.
    pub(super) fn find(&mut self, hash: u64, topic: &str) -> Result<Arc<[Route]>, Miss> {
        let generation = self.generation;
        let young = self.young.entries.find(hash, |entry| *entry.topic == *topic);
        if let Some(entry) = young
            && entry.generation == generation
        {
            self.found += 1;
            return Ok(entry.routes.clone());
        }
        let from = if young.is_some() { &mut self.young } else { &mut self.old };
        let Some(entry) = from.take(hash, topic) else { return Err(Miss { held: false }) };
        if entry.generation != generation {
            return Err(Miss { held: true });
        }
        let routes = entry.routes.clone();
        self.found += 1;
        self.put_young(hash, entry);
        Ok(routes)
    }

    /// Remembers the routes of `topic`, which was just missed, unless they alone would fill half of the cache.
    pub(super) fn put(&mut self, hash: u64, topic: &str, miss: Miss, routes: &Arc<[Route]>) {
        if !miss.held && !self.is_seen(hash) {
            return;
        }
        let bytes = entry_bytes(topic, routes);
        if bytes <= self.half_bytes_max && self.half_entries_max > 0 {
            let generation = self.generation;
            self.put_young(hash, Entry { topic: topic.into(), routes: routes.clone(), generation, bytes });
        }
    }

    /// Whether a topic that is not held is worth a place, and notes that it came.
    fn is_seen(&mut self, hash: u64) -> bool {
        if self.seen.is_empty() {
            return true;
        }
        let place = hash as usize % self.seen.len();
        let mark = (hash >> 32) as u32;
        std::mem::replace(&mut self.seen[place], mark) == mark
    }

    /// Drops one topic.
    pub(super) fn forget(&mut self, topic: &str) {
        let hash = self.hash(topic);
        self.young.take(hash, topic);
        self.old.take(hash, topic);
    }

    /// Makes everything stale.
    pub(super) fn forget_all(&mut self) {
        self.generation += 1;
    }

    /// Topics held, stale ones too.
    pub(super) fn len(&self) -> usize {
        self.young.entries.len() + self.old.entries.len()
    }

    /// Bytes held, stale ones too.
    pub(super) fn memory(&self) -> usize {
        self.young.bytes + self.old.bytes + self.seen.len() * size_of::<u32>()
    }

    /// The topic is in neither half.
    fn put_young(&mut self, hash: u64, entry: Entry) {
        let full = self.young.entries.len() >= self.half_entries_max;
        if full || self.young.bytes + entry.bytes > self.half_bytes_max {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.entries.clear();
            self.young.bytes = 0;
            if self.seen.is_empty() {
                self.seen = vec![0; 2 * self.half_entries_max];
            }
        }
        self.young.bytes += entry.bytes;
        let hasher = &self.hasher;
        self.young.entries.insert_unique(hash, entry, |entry| hasher.hash_one(&*entry.topic));
    }
}

impl Half {
    fn take(&mut self, hash: u64, topic: &str) -> Option<Entry> {
        let found = self.entries.find_entry(hash, |entry| *entry.topic == *topic).ok()?;
        let (entry, _) = found.remove();
        self.bytes -= entry.bytes;
        Some(entry)
    }
}

/// Heap memory of one entry, estimated: a place in the table (which is at least half full where it matters), the topic, and
/// the routes with their identifiers.
fn entry_bytes(topic: &str, routes: &[Route]) -> usize {
    let place = 2 * (size_of::<Entry>() + 1);
    // The one empty route is shared by all topics without subscribers.
    let list = if routes.is_empty() { 0 } else { heap_bytes(size_of_val(routes) + 16) };
    let ids: usize = routes.iter().map(Route::ids_bytes).sum();
    place + heap_bytes(topic.len()) + list + ids
}
