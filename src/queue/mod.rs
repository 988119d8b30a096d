//! A queue: cursors, counters and the part that is in memory.
//!
//! Sequence numbers run from 1 and are never reused. A message is *appended* at the tail, *handed out* to a consumer in
//! ascending order, and *settled*. What was appended and not handed out lies either in the window or, from `loaded_to` on, in
//! the store alone: then the queue is *spilled*, and whatever comes next goes to the store too, so that order never changes.
//!
//! Invariants: `handed_to <= loaded_to <= tail` (the window and what was handed out lie below `loaded_to`); an entry is in the
//! window at most once; `messages` and `bytes` count exactly what is unsettled; when the queue is not spilled, `messages` is the
//! window's length plus what is handed out. A *volatile* queue (no identifier, hence no copy in the store) is never spilled. A
//! *scratch* queue belongs to nobody who outlives this process; it is in the store for want of memory only, recovery throws it
//! away, and once it is empty it is volatile again.

mod ahead;
mod batches;
mod counters;
pub mod expiry;
pub mod group;
mod loading;
pub mod named;
pub mod overflow;
mod promote;
pub mod window;

use crate::limits::{Overflow, QueueLimits};
use crate::message::{DeliveryOptions, Message};
use crate::store::contract::{BatchId, QueueId, RecoveredQueue, Seq};
use crate::time::Wall;
use ahead::Ahead;
use counters::Counts;
pub use counters::QueueCounters;
use expiry::Pass;
use overflow::Verdict;
use window::{Budget, Entry, Window};

/// Place of a queue in the broker's table.
pub type QueueKey = u32;

/// A queue that may be gone meanwhile: the serial number tells its successor in the same place apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueRef {
    /// Place.
    pub key: QueueKey,
    /// Never reused within a run.
    pub serial: u32,
}

/// Who consumes a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The session at this place.
    Session(u32),
    /// The members of the shared subscription at this place.
    Group(u32),
}

/// Why a waiting message leaves a queue without being delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// Its time is over.
    Expired,
    /// It made room for a newer one, or found no room.
    Full,
    /// It went on to another queue.
    Moved,
    /// An operator removed it.
    Purged,
    /// Its consumer may not read it any more.
    Denied,
}

/// Where a page request stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Load {
    /// None is under way.
    #[default]
    Idle,
    /// Waits until memory is there for a page.
    Wanted,
    /// Asked for.
    Asked {
        /// First sequence number asked for.
        from: Seq,
        /// The queue's tail then: the store has everything before it, but for what was left out.
        until: Seq,
        /// Memory set aside for the page.
        reserved: usize,
        /// The cursor moved meanwhile: what comes is thrown away, since it may hold messages settled by now.
        stale: bool,
    },
}

/// One queue. See the module's text for the invariants.
#[derive(Debug)]
pub struct Queue {
    owner: Owner,
    serial: u32,
    id: Option<QueueId>,
    scratch: bool,
    limits: QueueLimits,
    tail: Seq,
    loaded_to: Seq,
    handed_to: Seq,
    window: Window,
    messages: u64,
    bytes: u64,
    unsettled: u32,
    load: Load,
    /// What was taken out of turn; `None`: nothing ever was.
    ahead: Option<Box<Ahead>>,
    spilled_since: Wall,
    /// The next pass over expired messages.
    pub(crate) pass: Pass,
    counters: Counts,
    /// The last settling operation of this queue in the batch being built, so that runs can grow.
    pub(crate) settle_mark: (BatchId, u32),
    /// The first message that the batch being built enqueues.
    enqueue_mark: (BatchId, Seq),
    /// Nothing up to this message leaves before the batch in which it joined the queue, as a part of something larger.
    joined: (BatchId, Seq),
    /// Numbers from here on that were settled before they got to the store are left out there.
    stored_to: Seq,
}

impl Queue {
    /// An empty queue; without an identifier it is volatile.
    #[must_use]
    pub fn new(owner: Owner, serial: u32, id: Option<QueueId>, limits: QueueLimits) -> Self {
        Self {
            owner,
            serial,
            id,
            scratch: false,
            limits,
            tail: 1,
            loaded_to: 1,
            handed_to: 1,
            window: Window::default(),
            messages: 0,
            bytes: 0,
            unsettled: 0,
            load: Load::Idle,
            ahead: None,
            spilled_since: Wall(0),
            pass: Pass::None,
            counters: Counts::default(),
            settle_mark: (BatchId(0), 0),
            enqueue_mark: (BatchId(0), 0),
            joined: (BatchId(0), 0),
            stored_to: 1,
        }
    }

    /// A queue as recovery found it: everything unsettled is in the store alone.
    #[must_use]
    pub fn recovered(owner: Owner, serial: u32, found: &RecoveredQueue, limits: QueueLimits) -> Self {
        let tail = found.tail.max(1);
        let head = if found.messages == 0 { tail } else { found.head.clamp(1, tail) };
        Self {
            tail,
            loaded_to: head,
            handed_to: head,
            stored_to: tail,
            messages: found.messages,
            bytes: found.bytes,
            counters: Counts::recovered(found.messages),
            ..Self::new(owner, serial, Some(found.queue), limits)
        }
    }

    /// Who consumes it.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Its serial number within this run.
    #[must_use]
    pub fn serial(&self) -> u32 {
        self.serial
    }

    /// Its identifier in the store; `None` when it is volatile.
    #[must_use]
    pub fn id(&self) -> Option<QueueId> {
        self.id
    }

    /// The store has no copy of its messages.
    #[must_use]
    pub fn is_volatile(&self) -> bool {
        self.id.is_none()
    }

    /// It is in the store for want of memory only.
    #[must_use]
    pub fn is_scratch(&self) -> bool {
        self.scratch
    }

    /// It outlives this process.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        self.id.is_some() && !self.scratch
    }

    /// A scratch queue's owner outlives the process from now on, and so does the queue.
    pub fn make_lasting(&mut self) {
        self.scratch = false;
    }

    /// The next message's sequence number.
    #[must_use]
    pub fn tail(&self) -> Seq {
        self.tail
    }

    /// Messages from here on were not handed out, or wait to be handed out again.
    #[must_use]
    pub fn handed_to(&self) -> Seq {
        self.handed_to
    }

    /// Unsettled messages.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Sum of the unsettled messages' sizes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Messages handed out and not settled.
    #[must_use]
    pub fn unsettled(&self) -> u32 {
        self.unsettled
    }

    /// Memory of the window in bytes.
    #[must_use]
    pub fn window_memory(&self) -> usize {
        self.window.memory()
    }

    /// Messages in the window.
    #[must_use]
    pub fn window_len(&self) -> usize {
        self.window.len()
    }

    /// Some waiting messages are in the store alone.
    #[must_use]
    #[inline]
    pub fn is_spilled(&self) -> bool {
        self.loaded_to < self.tail
    }

    /// Messages older than `seq` that are in the store alone; 0 when `seq` is the next one to be loaded.
    #[must_use]
    #[inline]
    pub fn spilled_below(&self, seq: Seq) -> u64 {
        seq.saturating_sub(self.loaded_to)
    }

    /// From here on messages are in the store alone.
    #[must_use]
    pub fn spilled_from(&self) -> Seq {
        self.loaded_to
    }

    /// What happens at its bounds.
    #[must_use]
    pub fn overflow(&self) -> Overflow {
        self.limits.overflow
    }

    /// Messages wait to be handed out.
    #[must_use]
    #[inline]
    pub fn has_waiting(&self) -> bool {
        self.window.len() > 0 || self.is_spilled()
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> QueueCounters {
        self.counters.all()
    }

    /// Where a page request stands.
    #[must_use]
    pub fn load(&self) -> Load {
        self.load
    }

    /// When the oldest waiting message was published, as far as it is known.
    #[must_use]
    pub fn waiting_since(&self) -> Option<Wall> {
        match self.window.front() {
            Some(entry) => Some(entry.message.published()),
            None => (self.is_spilled() && self.spilled_since > Wall(0)).then_some(self.spilled_since),
        }
    }

    /// What the explicit bounds make of one more message.
    #[must_use]
    #[inline]
    pub fn verdict(&self, size: u32) -> Verdict {
        if self.limits.messages_max.is_none() && self.limits.bytes_max.is_none() {
            return Verdict::Accept;
        }
        overflow::verdict(&self.limits, self.messages, self.bytes, size)
    }

    /// The queue drops its oldest messages and holds more than its bounds allow.
    #[must_use]
    pub fn is_over_bound(&self) -> bool {
        self.limits.overflow == Overflow::DropHead
            && (self.limits.messages_max.is_some_and(|max| self.messages > max)
                || self.limits.bytes_max.is_some_and(|max| self.bytes > max))
    }

    /// Messages beyond the bound.
    #[must_use]
    pub fn overshoot(&self) -> u64 {
        let by_count = self.limits.messages_max.map_or(0, |max| self.messages.saturating_sub(max));
        let mean = self.bytes.checked_div(self.messages).unwrap_or(0).max(1);
        let by_bytes = self.limits.bytes_max.map_or(0, |max| self.bytes.saturating_sub(max) / mean);
        by_count.max(by_bytes)
    }

    /// A message of `size` bytes joins at the tail, in the batch `batch`; returns its place. It is in the store alone until
    /// [`pass`](Self::pass) or [`keep`](Self::keep) says otherwise.
    pub fn append(&mut self, size: u32, published: Wall, batch: BatchId) -> Seq {
        let seq = self.tail;
        if self.loaded_to == seq {
            self.spilled_since = published;
        }
        self.tail += 1;
        self.messages += 1;
        self.bytes += u64::from(size);
        self.counters.enqueued();
        if self.enqueue_mark.0 != batch {
            self.enqueue_mark = (batch, seq);
        }
        seq
    }

    /// The newest message, just appended, goes straight to a consumer.
    pub fn pass(&mut self, seq: Seq) {
        assert!(
            self.window.len() == 0 && self.loaded_to == seq && seq + 1 == self.tail,
            "nothing is overtaken"
        );
        self.loaded_to = self.tail;
        self.handed_to = self.tail;
        self.unsettled += 1;
    }

    /// The newest message, just appended, stays in memory.
    pub fn keep(&mut self, seq: Seq, message: Message, options: DeliveryOptions, budget: &mut Budget) {
        assert!(self.loaded_to == seq && seq + 1 == self.tail, "nothing is overtaken");
        self.loaded_to = self.tail;
        let volatile = self.is_volatile();
        self.window.push_back(Entry { seq, message, options }, budget, volatile);
    }

    /// The newest message of a volatile queue, just appended, finds no room.
    pub fn drop_appended(&mut self, seq: Seq, size: u32) {
        assert!(self.is_volatile() && self.loaded_to == seq && seq + 1 == self.tail, "nothing else is lost");
        self.loaded_to = self.tail;
        self.leave(size);
        self.counters.taken_back();
    }

    /// A message was dropped before it joined.
    pub fn count_dropped_new(&mut self) {
        self.counters.seldom().dropped_new += 1;
    }

    /// The next message to hand out, if it is in memory.
    #[must_use]
    #[inline]
    pub fn front(&self) -> Option<&Entry> {
        self.window.front()
    }

    /// Hands out the front.
    pub fn hand_out(&mut self, budget: &mut Budget) -> Option<Entry> {
        let volatile = self.is_volatile();
        let entry = self.window.remove(0, budget, volatile)?;
        self.handed_to = self.handed_to.max(entry.seq + 1);
        self.unsettled += 1;
        Some(entry)
    }

    /// Takes the first waiting entry in memory that `may_go`, for `cause`.
    pub fn discard(
        &mut self,
        budget: &mut Budget,
        cause: Discard,
        mut may_go: impl FnMut(Seq) -> bool,
    ) -> Option<Entry> {
        let at = self.window.iter().position(|entry| may_go(entry.seq))?;
        let volatile = self.is_volatile();
        let entry = self.window.remove(at, budget, volatile)?;
        self.leave(entry.message.size());
        self.counters.count(cause);
        Some(entry)
    }

    /// Takes the newest entry of a volatile queue to make room for others; the entry is dropped.
    pub fn discard_newest(&mut self, budget: &mut Budget) -> bool {
        let volatile = self.is_volatile();
        assert!(volatile, "what is in the store is trimmed, not dropped");
        let Some(entry) = self.window.pop_back(budget, volatile) else { return false };
        self.leave(entry.message.size());
        self.counters.seldom().dropped_oldest += 1;
        true
    }

    /// A message that was handed out is done with.
    pub fn settle(&mut self, size: u32, accepted: bool) {
        assert!(self.unsettled > 0, "only what was handed out is settled");
        self.unsettled -= 1;
        self.leave(size);
        if accepted {
            self.counters.delivered();
        } else {
            self.counters.seldom().refused += 1;
        }
    }

    fn leave(&mut self, size: u32) {
        assert!(self.messages > 0 && self.bytes >= u64::from(size), "a message leaves a queue once");
        self.messages -= 1;
        self.bytes -= u64::from(size);
    }

    /// A message that was handed out comes back to its place.
    pub fn give_back(&mut self, entry: Entry, budget: &mut Budget) {
        assert!(self.unsettled > 0, "only what was handed out comes back");
        self.unsettled -= 1;
        if self.returned_out_of_turn(entry.seq) && entry.seq >= self.loaded_to {
            return;
        }
        assert!(entry.seq < self.loaded_to, "what was handed out in turn lies below");
        let volatile = self.is_volatile();
        self.window.insert(entry, budget, volatile);
    }

    /// The consumer is gone: everything unsettled waits again, in the store alone. `first_unsettled` is the oldest message that
    /// had been handed out.
    pub fn rewind(&mut self, first_unsettled: Option<Seq>, budget: &mut Budget) {
        assert!(!self.is_volatile(), "a volatile queue could not be loaded again");
        let waiting = self.window.front().map_or(self.loaded_to, |entry| entry.seq);
        let to = first_unsettled.map_or(waiting, |seq| seq.min(waiting));
        self.unsettled = 0;
        if let Some(entry) = self.window.front() {
            self.spilled_since = entry.message.published();
        }
        self.window.clear(budget, false);
        self.move_back(to);
        self.handed_to = to;
    }

    /// Drops entries from the window's end until it holds at most `memory_max` bytes; they are loaded again when they are
    /// needed. Entries below something that is handed out stay, since a page would bring that again.
    pub fn trim(&mut self, memory_max: usize, budget: &mut Budget) {
        if self.is_volatile() {
            return;
        }
        let floor = if self.unsettled == 0 { 0 } else { self.handed_to };
        let mut to = self.loaded_to;
        while self.window.memory() > memory_max && self.window.back().is_some_and(|entry| entry.seq >= floor)
        {
            let Some(entry) = self.window.pop_back(budget, false) else { break };
            to = entry.seq;
            self.spilled_since = entry.message.published();
        }
        if to < self.loaded_to {
            self.move_back(to);
            self.handed_to = self.handed_to.min(to);
        }
    }

    fn move_back(&mut self, to: Seq) {
        self.loaded_to = to;
        match &mut self.load {
            Load::Asked { stale, .. } => *stale = true,
            Load::Wanted | Load::Idle => {}
        }
    }

    /// Gives all memory back; the queue is about to go.
    pub fn release(&mut self, budget: &mut Budget) {
        let volatile = self.is_volatile();
        self.window.clear(budget, volatile);
    }

    /// Checks the invariants that can be seen from here.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self) {
        assert!(self.handed_to <= self.loaded_to && self.loaded_to <= self.tail, "I2: cursors are in order");
        let seen = self.window.len() as u64 + u64::from(self.unsettled);
        assert!(seen <= self.messages, "I4: what is in memory is counted");
        assert!(self.is_spilled() || seen == self.messages, "I4: everything unsettled is known");
        assert!(!self.is_volatile() || !self.is_spilled(), "a volatile queue is never spilled");
        let memory: usize = self.window.iter().map(|entry| window::entry_memory(&entry.message)).sum();
        assert_eq!(memory, self.window.memory(), "I4: the window's memory");
        let counters = self.counters();
        assert_eq!(counters.gone() + self.messages, counters.enqueued, "I4: every message is accounted for");
    }
}
