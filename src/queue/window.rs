//! The part of a queue that is in memory, and the budget that all windows share.
//!
//! Invariant: the memory of every entry in every window, and of every message that a group member holds unsettled (as not
//! volatile, whatever its queue), is counted in [`Budget::used`] exactly once; what page requests may bring is counted as
//! reserved until the page is there.

use std::collections::VecDeque;

use crate::message::{DeliveryOptions, Message};
use crate::store::contract::Seq;

/// One message of a queue, waiting to be handed out.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its place in the queue.
    pub seq: Seq,
    /// The message.
    pub message: Message,
    /// How it is to be delivered.
    pub options: DeliveryOptions,
}

/// Memory that an entry for `message` keeps alive, in bytes. A message that lies in several windows counts in each.
#[must_use]
pub fn entry_memory(message: &Message) -> usize {
    message.memory() + size_of::<Entry>()
}

/// What one message of a page costs beside its encoded size, at most (reference counts, fields, the entry), in bytes.
pub const ENTRY_OVERHEAD_BYTES: usize = 256;

/// The memory of all windows.
#[derive(Debug)]
pub struct Budget {
    bytes_max: usize,
    used: usize,
    reserved: usize,
    volatile: usize,
}

impl Budget {
    /// `bytes_max` bounds everything together.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
            used: 0,
            reserved: 0,
            volatile: 0,
        }
    }

    /// `bytes` more are held; `volatile`: by a queue that has no copy in the store.
    pub fn add(&mut self, bytes: usize, volatile: bool) {
        self.used += bytes;
        self.volatile += if volatile { bytes } else { 0 };
    }

    /// `bytes` are held no more.
    pub fn sub(&mut self, bytes: usize, volatile: bool) {
        assert!(self.used >= bytes, "memory is released once");
        self.used -= bytes;
        if volatile {
            assert!(self.volatile >= bytes, "memory of a volatile queue is released once");
            self.volatile -= bytes;
        }
    }

    /// `bytes` more fit.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.used + self.reserved + bytes <= self.bytes_max
    }

    /// `bytes` more fit into the half that queues without a copy in the store may take, so that they cannot starve the others.
    #[must_use]
    pub fn has_volatile_room(&self, bytes: usize) -> bool {
        self.volatile + bytes <= self.bytes_max / 2 && self.has_room(bytes)
    }

    /// A page of up to `bytes` was asked for.
    pub fn reserve(&mut self, bytes: usize) {
        self.reserved += bytes;
    }

    /// The page is there.
    pub fn unreserve(&mut self, bytes: usize) {
        assert!(self.reserved >= bytes, "a reservation is released once");
        self.reserved -= bytes;
    }

    /// The bound.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Bytes held.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used
    }

    /// Bytes held by queues whose entries the store has too.
    #[must_use]
    pub fn reclaimable(&self) -> usize {
        self.used - self.volatile
    }
}

/// Entries in ascending order of sequence numbers, with their memory counted.
#[derive(Debug, Default)]
pub(super) struct Window {
    entries: VecDeque<Entry>,
    memory: usize,
}

impl Window {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    pub(super) fn front(&self) -> Option<&Entry> {
        self.entries.front()
    }

    pub(super) fn back(&self) -> Option<&Entry> {
        self.entries.back()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The first entry from `seq` on.
    pub(super) fn from(&self, seq: Seq) -> Option<&Entry> {
        self.entries.get(self.entries.partition_point(|entry| entry.seq < seq))
    }

    /// Takes the entry `seq` out.
    pub(super) fn take(&mut self, seq: Seq, budget: &mut Budget, volatile: bool) -> Option<Entry> {
        let at = self.entries.binary_search_by_key(&seq, |entry| entry.seq).ok()?;
        self.remove(at, budget, volatile)
    }

    pub(super) fn push_back(&mut self, entry: Entry, budget: &mut Budget, volatile: bool) {
        assert!(self.back().is_none_or(|last| last.seq < entry.seq), "a window is in order");
        let memory = entry_memory(&entry.message);
        self.memory += memory;
        budget.add(memory, volatile);
        self.entries.push_back(entry);
    }

    /// Puts an entry back where its number belongs.
    pub(super) fn insert(&mut self, entry: Entry, budget: &mut Budget, volatile: bool) {
        let at = self.entries.partition_point(|other| other.seq < entry.seq);
        assert!(self.entries.get(at).is_none_or(|other| other.seq != entry.seq), "an entry comes back once");
        let memory = entry_memory(&entry.message);
        self.memory += memory;
        budget.add(memory, volatile);
        self.entries.insert(at, entry);
    }

    pub(super) fn remove(&mut self, at: usize, budget: &mut Budget, volatile: bool) -> Option<Entry> {
        let entry = if at == 0 { self.entries.pop_front() } else { self.entries.remove(at) }?;
        self.released(&entry, budget, volatile);
        Some(entry)
    }

    pub(super) fn pop_back(&mut self, budget: &mut Budget, volatile: bool) -> Option<Entry> {
        let entry = self.entries.pop_back()?;
        self.released(&entry, budget, volatile);
        Some(entry)
    }

    pub(super) fn clear(&mut self, budget: &mut Budget, volatile: bool) {
        budget.sub(self.memory, volatile);
        *self = Self::default();
    }

    fn released(&mut self, entry: &Entry, budget: &mut Budget, volatile: bool) {
        let memory = entry_memory(&entry.message);
        self.memory -= memory;
        budget.sub(memory, volatile);
        if self.entries.is_empty() && self.entries.capacity() > IDLE_CAPACITY_MAX {
            self.entries = VecDeque::new();
        }
    }
}

/// Slots that an empty window may keep allocated.
const IDLE_CAPACITY_MAX: usize = 16;
