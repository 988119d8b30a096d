//! The writing side of the ring: stages batches into one record, commits it, takes snapshots and frees room.
//!
//! Pure in its order of calls, so that tests drive it without threads: `stage` until it says otherwise, `flush`, then
//! `start_checkpoint`; the outcome of the checkpoint goes to `end_checkpoint`. A staged batch is in the index at once (page
//! loads see it) and durable after `flush`. Snapshots are taken only when nothing is staged, so they hold durable state only.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::checkpoint::Outcome;
use super::contract::{Batch, BatchId, Capacity, Committed, Op};
use super::counters::{add, set};
use super::error::StoreError;
use super::hot::{Hot, Snapshot};
use super::record::Encoder;
use super::ring::{Point, Ring};
use super::shared::Shared;

/// A group commit takes in no further batch beyond this size.
const GROUP_BYTES_MAX: u64 = 1 << 20;

/// A checkpoint stays this far behind the head (or an eighth of the ring): what is settled quickly never gets to redb.
const LAG_BYTES: u64 = 1 << 20;

/// Unsettled bytes beyond the lag that are worth a checkpoint (or an eighth of the ring).
const FOLD_BYTES: u64 = 1 << 20;

/// Settled bytes in the cold tier that are worth a checkpoint.
const DEAD_BYTES: u64 = 32 << 20;

/// Settled bytes that are worth a checkpoint when there is nothing else to do.
const IDLE_DEAD_BYTES: u64 = 1 << 20;

/// What became of a batch.
#[derive(Debug)]
pub enum Staged {
    /// It is part of the next record.
    Taken,
    /// It does not fit beside what is staged: flush, then stage it again.
    FlushFirst(Batch),
    /// The ring has no room for this many bytes: it waits for a checkpoint.
    NoRoom(Batch, u64),
}

/// Why a checkpoint is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Only if one of the usual thresholds is reached.
    Threshold,
    /// Nothing else to do: lower thresholds.
    Idle,
    /// A record of this many bytes waits for room.
    Room(u64),
    /// The store closes: everything.
    Close,
}

/// The writer of one store.
pub struct Writer {
    shared: Arc<Shared>,
    ring: Ring,
    encoder: Encoder,
    staged: Option<BatchId>,
    batches: u64,
    under_way: bool,
    sweep_again: bool,
    cold_full: bool,
}

impl Writer {
    /// After recovery.
    #[must_use]
    pub fn new(shared: Arc<Shared>, ring: Ring) -> Self {
        set(&shared.counters.ring_size_bytes, ring.size());
        shared.head.store(ring.head(), Ordering::Release);
        Self {
            shared,
            ring,
            encoder: Encoder::default(),
            staged: None,
            batches: 0,
            under_way: false,
            sweep_again: false,
            cold_full: false,
        }
    }

    /// Some batch waits for [`flush`](Self::flush).
    #[must_use]
    pub fn has_staged(&self) -> bool {
        self.staged.is_some()
    }

    /// Bytes that the staged batches will take in the ring.
    #[must_use]
    pub fn staged_bytes(&self) -> u64 {
        if self.encoder.is_empty() { 0 } else { self.encoder.frame_bytes() }
    }

    /// A checkpoint has been started and not ended.
    #[must_use]
    pub fn checkpoint_under_way(&self) -> bool {
        self.under_way
    }

    /// What must never be done: frees room before the checkpoint is durable. For the test that must notice.
    #[cfg(any(test, feature = "simulation"))]
    pub fn release_early(&mut self, point: Point) {
        self.ring.release(point.lsn);
    }

    /// Adds a batch to the record to come.
    ///
    /// # Errors
    /// The batch contradicts the state or is larger than the ring can take: the store must stop.
    pub fn stage(&mut self, batch: Batch) -> Result<Staged, StoreError> {
        let empty = self.encoder.is_empty();
        let mark = self.encoder.mark();
        if !batch.ops.is_empty() {
            self.encoder.add(&batch);
        }
        let need = self.staged_bytes();
        if empty && need > self.ring.record_bytes_max() {
            return Err(StoreError::BatchTooLarge { bytes: need, max: self.ring.record_bytes_max() });
        }
        let no_room = need > self.ring.room(self.encoder.has_enqueues());
        let group_max = GROUP_BYTES_MAX.min(self.ring.size() / 4);
        if !empty && (no_room || need > group_max) {
            self.encoder.rewind(mark);
            return Ok(Staged::FlushFirst(batch));
        }
        if no_room {
            self.encoder.clear();
            add(&self.shared.counters.ring_waits, 1);
            return Ok(Staged::NoRoom(batch, need));
        }
        self.apply(batch)?;
        Ok(Staged::Taken)
    }

    /// The next checkpoint tries again to move messages, though the disk was full.
    pub fn retry_after_full(&mut self) {
        self.cold_full = false;
    }

    fn apply(&mut self, batch: Batch) -> Result<(), StoreError> {
        let lsn = self.ring.head();
        let mut tally = Tally::default();
        let mut hot = self.shared.hot();
        if !batch.ops.is_empty() {
            hot.newest_wall = hot.newest_wall.max(batch.wall);
        }
        for op in batch.ops {
            tally.count(&op);
            hot.apply(op, lsn, false)?;
        }
        drop(hot);
        tally.add_to(&self.shared);
        self.staged = Some(batch.id);
        self.batches += 1;
        Ok(())
    }

    /// Commits everything staged: one write, one sync.
    ///
    /// # Errors
    /// It is then unknown whether the record is durable: the store must stop.
    pub fn flush(&mut self) -> Result<Option<Committed>, StoreError> {
        let Some(through) = self.staged else { return Ok(None) };
        let counters = self.shared.counters.clone();
        if !self.encoder.is_empty() {
            let bytes = self.ring.append(&mut self.encoder).map_err(StoreError::io("write its ring"))?;
            add(&counters.ring_syncs, 1);
            add(&counters.ring_bytes, bytes);
            self.shared.head.store(self.ring.head(), Ordering::Release);
        }
        self.encoder.clear();
        self.encoder.shrink(2 * GROUP_BYTES_MAX as usize);
        self.staged = None;
        add(&counters.commits, 1);
        add(&counters.batches, std::mem::take(&mut self.batches));
        set(&counters.ring_used_bytes, self.ring.used());
        Ok(Some(Committed::through_batch(through)))
    }

    /// Takes a snapshot if `cause` calls for one, nothing is staged and no checkpoint is under way.
    pub fn start_checkpoint(&mut self, cause: Cause) -> Option<Snapshot> {
        let shared = self.shared.clone();
        let mut hot = shared.hot();
        let point = self.checkpoint_point(&hot, cause)?;
        self.under_way = true;
        Some(hot.snapshot(point))
    }

    /// Whether [`start_checkpoint`](Self::start_checkpoint) would take a snapshot.
    #[must_use]
    pub fn wants_checkpoint(&self, cause: Cause) -> bool {
        self.checkpoint_point(&self.shared.hot(), cause).is_some()
    }

    fn checkpoint_point(&self, hot: &Hot, cause: Cause) -> Option<Point> {
        if self.under_way || self.staged.is_some() {
            return None;
        }
        let dead_min = if cause == Cause::Threshold { DEAD_BYTES } else { IDLE_DEAD_BYTES };
        let sweep = self.sweep_again || hot.dead_bytes >= dead_min;
        let advance = match cause {
            Cause::Threshold => self.ring_threshold_reached(hot),
            Cause::Idle => false,
            Cause::Room(_) => true,
            Cause::Close => hot.has_changes() || self.ring.used() > 0,
        };
        if !sweep && !advance {
            return None;
        }
        let point = self.choose_point(hot, cause);
        (sweep || point.lsn > self.ring.tail() || cause == Cause::Close).then_some(point)
    }

    fn lag(&self) -> u64 {
        LAG_BYTES.min(self.ring.size() / 8)
    }

    fn ring_threshold_reached(&self, hot: &Hot) -> bool {
        let fold = FOLD_BYTES.min(self.ring.size() / 8);
        self.ring.used() >= self.ring.size() / 2
            || (self.ring.used() >= self.lag() + fold && hot.live_bytes >= self.lag() + fold)
    }

    /// Where the checkpoint is to stand: as far behind the head as the room allows.
    fn choose_point(&self, hot: &Hot, cause: Cause) -> Point {
        let tail = self.ring.tail();
        let target = self.ring.head().saturating_sub(self.lag());
        let usual = self.ring.point_at_or_before(target).filter(|p| p.lsn >= tail);
        let usual = usual.unwrap_or_else(|| self.ring.point_at_or_after(tail));
        let point = match cause {
            Cause::Threshold | Cause::Idle => usual,
            Cause::Close => self.ring.head_point(),
            Cause::Room(need) => {
                let end = self.ring.head() + need + self.ring.reserve();
                let least = self.ring.point_at_or_after(end.saturating_sub(self.ring.size()));
                if least.lsn > usual.lsn { least } else { usual }
            }
        };
        // Without room in redb only what needs none is passed: what is settled already.
        let limit = if self.cold_full { hot.oldest_live() } else { None };
        match limit {
            Some(oldest) if oldest < point.lsn => self.ring.point_at_or_before(oldest).unwrap_or(usual),
            _ => point,
        }
    }

    /// The checkpoint has ended.
    pub fn end_checkpoint(&mut self, outcome: Outcome) {
        self.under_way = false;
        match outcome {
            Outcome::Done { point, again } => {
                self.ring.release(point.lsn);
                self.sweep_again = again;
                self.cold_full = self.cold_full && self.shared.capacity() == Capacity::Full;
            }
            Outcome::NoSpace => self.cold_full = true,
        }
        set(&self.shared.counters.ring_used_bytes, self.ring.used());
    }
}

/// Numbers of one batch, added to the counters at once.
#[derive(Default)]
struct Tally {
    enqueued: u64,
    bytes: u64,
    settled: u64,
}

impl Tally {
    fn count(&mut self, op: &Op) {
        match op {
            Op::Enqueue { message, targets } => {
                self.enqueued += targets.len() as u64;
                self.bytes += targets.len() as u64 * u64::from(message.size());
            }
            Op::Settle { count, .. } => self.settled += count,
            _ => {}
        }
    }

    fn add_to(&self, shared: &Shared) {
        add(&shared.counters.messages_enqueued, self.enqueued);
        add(&shared.counters.message_bytes_enqueued, self.bytes);
        add(&shared.counters.messages_settled, self.settled);
    }
}
