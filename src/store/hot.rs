//! The index in memory of everything that the ring holds, and the settled state of all queues.
//!
//! One `Hot` is shared by the writer (applies batches), the page loader (reads) and the checkpoint (forgets what it has moved
//! to the cold tier), behind one mutex that is held briefly. Between the writer's commits it equals what is durable: that is
//! when a [`Snapshot`] may be taken.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::contract::{Op, QueueId, RecoveredQueue, Row, Seq, Space, Target};
use super::error::StoreError;
use super::hot_queue::{Contradiction, HotQueue, Stamp};
use super::record::Lsn;
use super::ring::Point;
use crate::message::{DeliveryOptions, Message};
use crate::time::Wall;

/// A row's name.
pub type RowKey = (Space, Box<[u8]>);

/// Everything in memory.
#[derive(Debug, Default)]
pub struct Hot {
    /// All queues.
    pub queues: HashMap<QueueId, HotQueue>,
    /// Rows that the cold tier does not have yet; `None`: deleted.
    pub rows: HashMap<RowKey, Option<Box<[u8]>>>,
    /// Queues that the next checkpoint looks at, each once.
    dirty: Vec<QueueId>,
    /// Queues that were deleted since the last checkpoint.
    deleted: Vec<QueueId>,
    /// The lowest identifier that no queue ever had.
    pub next_queue: u32,
    /// The newest time seen.
    pub newest_wall: Wall,
    /// Sum of the sizes of all unsettled hot messages, per queue.
    pub live_bytes: u64,
    /// Bytes of the cold tier that were settled since the last checkpoint.
    pub dead_bytes: u64,
}

/// A message to be moved to the cold tier.
#[derive(Debug)]
pub struct FoldEntry {
    /// Its number.
    pub seq: Seq,
    /// How it is to be delivered.
    pub options: DeliveryOptions,
    /// The message.
    pub message: Message,
}

/// What a checkpoint does to one queue.
#[derive(Debug)]
pub struct QueueFold {
    /// The queue.
    pub queue: QueueId,
    /// Unsettled messages before the point.
    pub entries: Vec<FoldEntry>,
    /// The row, if it changed: with the state after the checkpoint.
    pub row: Option<(Stamp, Vec<(Seq, Seq)>)>,
    /// Segments before the checkpoint.
    pub segments: u64,
    /// Segments that lie in one of these ranges as a whole are settled.
    pub sweeps: Vec<(Seq, Seq)>,
    /// Its floor; the first sweep goes up to it.
    pub floor: Seq,
}

/// What a checkpoint writes: a consistent picture of durable state, taken between two commits.
#[derive(Debug)]
pub struct Snapshot {
    /// Where it stands.
    pub point: Point,
    /// Changed queues.
    pub queues: Vec<QueueFold>,
    /// Deleted queues.
    pub deleted: Vec<QueueId>,
    /// Changed rows.
    pub rows: Vec<(RowKey, Option<Box<[u8]>>)>,
    /// The lowest identifier that no queue ever had.
    pub next_queue: u32,
    /// The newest time seen.
    pub newest_wall: Wall,
    /// Dead bytes that this checkpoint's sweeps will find.
    pub dead_bytes: u64,
}

/// What a finished checkpoint did to one queue.
#[derive(Clone, Copy, Debug)]
pub struct FoldedQueue {
    /// The queue.
    pub queue: QueueId,
    /// Its segments now.
    pub segments: u64,
    /// Settled segments below were removed; `None`: some are left for the next checkpoint.
    pub swept: Option<Seq>,
}

impl Hot {
    /// Applies one operation whose record is at `lsn`. At replay, what the cold tier knows already is skipped.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the operation contradicts the state.
    pub fn apply(&mut self, op: Op, lsn: Lsn, replay: bool) -> Result<(), StoreError> {
        match op {
            Op::Enqueue { message, targets } => {
                // The last target takes the message itself: most messages have one.
                let mut rest = targets.into_iter().peekable();
                let mut message = Some(message);
                while let Some(target) = rest.next() {
                    let own = if rest.peek().is_some() { message.clone() } else { message.take() };
                    let own = own.expect("only the last target takes it");
                    self.enqueue(target, own, lsn, replay)?;
                }
            }
            Op::Settle { queue, first, count, bytes } => self.settle(queue, first, count, bytes, replay)?,
            Op::CreateQueue { queue } => {
                self.next_queue = self.next_queue.max(queue.0.saturating_add(1));
                self.queues.entry(queue).or_default();
                self.touch(queue);
            }
            Op::DeleteQueue { queue } => self.delete_queue(queue),
            Op::Put { space, key, value } => {
                self.rows.insert((space, key), Some(value));
            }
            Op::Delete { space, key } => {
                self.rows.insert((space, key), None);
            }
        }
        Ok(())
    }

    fn enqueue(
        &mut self,
        target: Target,
        message: Message,
        lsn: Lsn,
        replay: bool,
    ) -> Result<(), StoreError> {
        let id = target.queue;
        let Some(queue) = self.queues.get_mut(&id) else { return unknown_queue(id, replay) };
        let before = queue.hot_bytes;
        queue.enqueue(target.seq, lsn, target.options, message).map_err(|e| contradiction(id, &e))?;
        self.live_bytes += queue.hot_bytes - before;
        if !queue.dirty {
            queue.dirty = true;
            self.dirty.push(id);
        }
        Ok(())
    }

    fn settle(
        &mut self,
        id: QueueId,
        first: Seq,
        count: u64,
        bytes: u64,
        replay: bool,
    ) -> Result<(), StoreError> {
        let Some(queue) = self.queues.get_mut(&id) else { return unknown_queue(id, replay) };
        let before = queue.hot_bytes;
        self.dead_bytes += queue.settle(first, count, bytes).map_err(|e| contradiction(id, &e))?;
        self.live_bytes -= before - queue.hot_bytes;
        if !queue.dirty {
            queue.dirty = true;
            self.dirty.push(id);
        }
        Ok(())
    }

    fn delete_queue(&mut self, id: QueueId) {
        if let Some(queue) = self.queues.remove(&id) {
            self.live_bytes -= queue.hot_bytes;
            self.dead_bytes += queue.cold_bytes;
        }
        self.deleted.push(id);
    }

    /// The next checkpoint looks at this queue.
    pub fn touch(&mut self, id: QueueId) {
        if let Some(queue) = self.queues.get_mut(&id)
            && !queue.dirty
        {
            queue.dirty = true;
            self.dirty.push(id);
        }
    }

    /// Some change is not in the cold tier yet.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !(self.dirty.is_empty() && self.deleted.is_empty() && self.rows.is_empty())
    }

    /// The record of the oldest unsettled hot message.
    #[must_use]
    pub fn oldest_live(&self) -> Option<Lsn> {
        let first = |queue: &HotQueue| queue.entries.iter().find(|e| e.message.is_some()).map(|e| e.lsn);
        self.queues.values().filter(|queue| queue.hot_messages > 0).filter_map(first).min()
    }

    /// Takes everything that a checkpoint at `point` must write. The caller makes sure that all applied operations are durable
    /// and that no other checkpoint is under way.
    pub fn snapshot(&mut self, point: Point) -> Snapshot {
        let dirty = std::mem::take(&mut self.dirty);
        let queues = dirty.into_iter().filter_map(|id| {
            let queue = self.queues.get_mut(&id)?;
            queue.dirty = false;
            Some(fold_queue(id, queue, point.lsn))
        });
        Snapshot {
            point,
            queues: queues.collect(),
            deleted: std::mem::take(&mut self.deleted),
            rows: self.rows.drain().collect(),
            next_queue: self.next_queue,
            newest_wall: self.newest_wall,
            dead_bytes: std::mem::take(&mut self.dead_bytes),
        }
    }

    /// The checkpoint is durable: forgets what the cold tier has now.
    pub fn finish(&mut self, point: Point, folded: &[FoldedQueue]) {
        for done in folded {
            let Some(queue) = self.queues.get_mut(&done.queue) else { continue };
            let before = queue.hot_bytes;
            queue.forget_before(point.lsn);
            self.live_bytes -= before - queue.hot_bytes;
            queue.segments = done.segments;
            if let Some(swept) = done.swept {
                queue.swept = swept;
            }
            if done.swept.is_none() || !queue.entries.is_empty() {
                self.touch(done.queue);
            }
        }
    }

    /// The checkpoint failed: everything it was to write is still to be written.
    pub fn put_back(&mut self, snapshot: Snapshot) {
        for fold in &snapshot.queues {
            if let Some(queue) = self.queues.get_mut(&fold.queue) {
                queue.written = None;
                queue.swept = queue.swept.min(fold.floor.saturating_sub(1));
                for (start, _) in fold.sweeps.iter().skip(1) {
                    queue.touched.push(*start);
                }
            }
            self.touch(fold.queue);
        }
        self.deleted.extend(snapshot.deleted);
        for (key, value) in snapshot.rows {
            self.rows.entry(key).or_insert(value);
        }
        self.dead_bytes += snapshot.dead_bytes;
    }

    /// All queues as [`super::contract::Recovered`] lists them.
    #[must_use]
    pub fn recovered_queues(&self) -> Vec<RecoveredQueue> {
        let mut all: Vec<_> = self
            .queues
            .iter()
            .map(|(id, queue)| {
                let (messages, bytes) = queue.total();
                RecoveredQueue { queue: *id, head: queue.floor, tail: queue.tail, messages, bytes }
            })
            .collect();
        all.sort_unstable_by_key(|queue| queue.queue);
        all
    }

    /// `stored` with the changes that only the ring has, in order.
    #[must_use]
    pub fn recovered_rows(&self, stored: Vec<Row>) -> Vec<Row> {
        let mut rows: BTreeMap<RowKey, Box<[u8]>> =
            stored.into_iter().map(|(space, key, value)| ((space, key), value)).collect();
        for (key, value) in &self.rows {
            match value {
                Some(value) => rows.insert(key.clone(), value.clone()),
                None => rows.remove(key),
            };
        }
        rows.into_iter().map(|((space, key), value)| (space, key, value)).collect()
    }
}

fn fold_queue(id: QueueId, queue: &mut HotQueue, lsn: Lsn) -> QueueFold {
    let passed = queue.entries_before(lsn);
    let entries: Vec<FoldEntry> = queue
        .entries
        .iter()
        .take(passed)
        .enumerate()
        .filter_map(|(i, entry)| {
            let message = entry.message.clone()?;
            Some(FoldEntry { seq: queue.hot_first + i as u64, options: entry.options.clone(), message })
        })
        .collect();
    let stamp = Stamp {
        floor: queue.floor,
        tail: queue.hot_first + passed as u64,
        messages: queue.cold_messages + entries.len() as u64,
        bytes: queue.cold_bytes + entries.iter().map(|e| u64::from(e.message.size())).sum::<u64>(),
        runs_changed: queue.runs_changed,
    };
    let row = (queue.written != Some(stamp))
        .then(|| (stamp, queue.runs.iter().map(|(start, end)| (*start, *end)).collect()));
    queue.written = Some(stamp);
    QueueFold { queue: id, entries, row, segments: queue.segments, sweeps: sweeps(queue), floor: queue.floor }
}

/// Ranges in which settled segments may be: first the one below the floor, then runs that grew.
fn sweeps(queue: &mut HotQueue) -> Vec<(Seq, Seq)> {
    let touched = std::mem::take(&mut queue.touched);
    let mut sweeps = Vec::new();
    if queue.segments == 0 {
        return sweeps;
    }
    if queue.floor > queue.swept || !touched.is_empty() {
        sweeps.push((0, queue.floor));
    }
    for start in touched {
        // The run may have been joined to an earlier one, or have become part of the floor.
        if let Some((start, end)) = queue.runs.range(..=start).next_back().filter(|(_, end)| start < **end) {
            sweeps.push((*start, *end));
        }
    }
    sweeps
}

fn unknown_queue(id: QueueId, replay: bool) -> Result<(), StoreError> {
    // The cold tier may know already that a later record deletes the queue.
    if replay { Ok(()) } else { Err(StoreError::Damaged(format!("queue {} does not exist", id.0))) }
}

fn contradiction(id: QueueId, what: &Contradiction) -> StoreError {
    StoreError::Damaged(format!("queue {}: {}", id.0, what.0))
}
