//! Routes of the topics published lately.
//!
//! Two halves: what is used moves to the young half; when that is full it becomes the old half, and what had been in the
//! old half is forgotten. Each half holds at most half of either limit, so both limits hold at any time. A change of a
//! filter with wildcards makes every route stale by raising the generation; a change of a filter without wildcards drops the
//! one topic it can match. Both take constant time.

use std::sync::Arc;

use hashbrown::HashMap;

use super::{Route, heap_bytes};

#[derive(Debug)]
struct Entry {
    routes: Arc<[Route]>,
    generation: u64,
    bytes: u32,
}

#[derive(Debug, Default)]
struct Half {
    entries: HashMap<Box<str>, Entry>,
    bytes: usize,
}

/// The cache.
#[derive(Debug)]
pub(super) struct Cache {
    young: Half,
    old: Half,
    generation: u64,
    half_entries_max: usize,
    half_bytes_max: usize,
}

impl Cache {
    pub(super) fn new(entries_max: usize, bytes_max: usize) -> Self {
        Self {
            young: Half::default(),
            old: Half::default(),
            generation: 0,
            half_entries_max: entries_max / 2,
            half_bytes_max: bytes_max / 2,
        }
    }

    /// The routes of `topic`, if they are known and nothing has changed since.
    pub(super) fn find(&mut self, topic: &str) -> Option<Arc<[Route]>> {
        if let Some(entry) = self.young.entries.get(topic) {
            return (entry.generation == self.generation).then(|| entry.routes.clone());
        }
        let (topic, entry) = self.old.take(topic)?;
        if entry.generation != self.generation {
            return None;
        }
        let routes = entry.routes.clone();
        self.put_young(topic, entry);
        Some(routes)
    }

    /// Remembers the routes of `topic`, unless they alone would fill half of the cache.
    pub(super) fn put(&mut self, topic: &str, routes: &Arc<[Route]>) {
        let bytes = entry_bytes(topic, routes);
        if bytes > self.half_bytes_max || self.half_entries_max == 0 {
            return;
        }
        let Ok(bytes) = u32::try_from(bytes) else { return };
        self.forget(topic);
        self.put_young(topic.into(), Entry { routes: routes.clone(), generation: self.generation, bytes });
    }

    /// Drops one topic.
    pub(super) fn forget(&mut self, topic: &str) {
        self.young.take(topic);
        self.old.take(topic);
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
        self.young.bytes + self.old.bytes
    }

    fn put_young(&mut self, topic: Box<str>, entry: Entry) {
        let bytes = entry.bytes as usize;
        let full = self.young.entries.len() >= self.half_entries_max;
        if full || self.young.bytes + bytes > self.half_bytes_max {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.entries.clear();
            self.young.bytes = 0;
        }
        self.young.bytes += bytes;
        let present = self.young.entries.insert(topic, entry);
        assert!(present.is_none(), "the topic was taken out before");
    }
}

impl Half {
    fn take(&mut self, topic: &str) -> Option<(Box<str>, Entry)> {
        let found = self.entries.remove_entry(topic)?;
        self.bytes -= found.1.bytes as usize;
        Some(found)
    }
}

/// Heap memory of one entry, estimated: a place in the table (which is at least half full where it matters), the topic, and
/// the routes with their identifiers.
fn entry_bytes(topic: &str, routes: &[Route]) -> usize {
    let place = 2 * (size_of::<(Box<str>, Entry)>() + 1);
    // The one empty route is shared by all topics without subscribers.
    let list = if routes.is_empty() { 0 } else { heap_bytes(size_of_val(routes) + 16) };
    let ids: usize = routes.iter().map(Route::ids_bytes).sum();
    place + heap_bytes(topic.len()) + list + ids
}
