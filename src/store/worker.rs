//! What the writer's thread works with, and lends to the driver for a lone commit.
//!
//! Whoever holds the worker takes from the gate what was handed over, so that everything is staged in its order. A checkpoint is
//! started by the writer's thread alone: to take a snapshot can take long.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use super::contract::StoreEvent;
use super::counters::add;
use super::error::StoreError;
use super::gate::{Item, LINGER_BYTES_MAX, Waiting, Wish};
use super::hot::Snapshot;
use super::load_queue::LoadSender;
use super::pace::Pace;
use super::shared::Shared;
use super::writer::{Cause, Staged, Writer};

/// How often a full disk is tried again.
pub const DISK_CHECK_EVERY: Duration = Duration::from_secs(5);

/// After so long without work, settled segments are removed.
const IDLE_AFTER: Duration = Duration::from_secs(5);

/// A checkpoint to run.
pub struct Job {
    /// What to write.
    pub snapshot: Snapshot,
    /// Somebody waits for the end: do not trickle.
    pub hurry: bool,
}

/// The writer with what waits for it.
pub struct Worker {
    /// Its logic.
    pub writer: Writer,
    /// Taken from the gate, not staged yet.
    pub queue: VecDeque<Item>,
    shared: Arc<Shared>,
    /// To the checkpoint's thread.
    jobs: SyncSender<Job>,
    /// To the loader's thread.
    loads: LoadSender,
    /// How long a batch that is not urgent may wait.
    linger: Duration,
    /// The first of `queue` waits for room in the ring.
    blocked: bool,
    /// When what is staged must be committed.
    flush_by: Option<Instant>,
    worked_at: Instant,
    pace: Pace,
    /// The driver has it: checkpoints are put off.
    lent: bool,
    put_off: Option<Cause>,
}

impl Worker {
    /// After recovery.
    #[must_use]
    pub fn new(
        writer: Writer,
        shared: Arc<Shared>,
        jobs: SyncSender<Job>,
        loads: LoadSender,
        linger: Duration,
    ) -> Self {
        Self {
            writer,
            queue: VecDeque::new(),
            shared,
            jobs,
            loads,
            linger,
            blocked: false,
            flush_by: None,
            worked_at: Instant::now(),
            pace: Pace::default(),
            lent: false,
            put_off: None,
        }
    }

    /// What to wait for.
    #[must_use]
    pub fn wish(&self) -> Wish {
        let now = Instant::now();
        match self.flush_by {
            _ if self.blocked => Wish { waiting: Waiting::No, until: now + DISK_CHECK_EVERY, may_end: false },
            Some(until) => Wish { waiting: Waiting::Armed, until, may_end: true },
            None => {
                let idle_at = self.worked_at + IDLE_AFTER;
                let until = if idle_at > now { idle_at } else { now + IDLE_AFTER };
                Wish { waiting: Waiting::Idle, until, may_end: true }
            }
        }
    }

    /// Something waits for room in the ring.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Nothing waits, and nothing has been done for a while.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.blocked && self.flush_by.is_none() && self.worked_at.elapsed() >= IDLE_AFTER
    }

    /// A lone batch may be committed by whoever brings it: the disk is quick, and no checkpoint keeps it busy.
    #[must_use]
    pub fn may_be_lent(&self) -> bool {
        self.pace.is_quick() && !self.blocked && !self.writer.checkpoint_under_way()
    }

    /// As [`turn`](Self::turn) for a driver. `true`: the writer's thread has to look at what is left.
    ///
    /// # Errors
    /// The store must stop.
    pub fn lent_turn(&mut self) -> Result<bool, StoreError> {
        self.lent = true;
        let result = self.turn(false);
        self.lent = false;
        result.map(|()| self.put_off.is_some() || self.blocked || self.flush_by.is_some())
    }

    /// Starts the checkpoint that was put off.
    pub fn catch_up(&mut self) {
        if let Some(cause) = self.put_off.take() {
            self.checkpoint(cause);
        }
    }

    /// Stages everything and commits it if somebody waits, it has waited long enough, or there is much of it.
    ///
    /// # Errors
    /// The store must stop.
    pub fn turn(&mut self, closing: bool) -> Result<(), StoreError> {
        let (blocked, urgent) = self.stage_all()?;
        self.blocked = blocked;
        let due = self.flush_by.is_some_and(|at| Instant::now() >= at);
        if urgent || due || closing || self.writer.staged_bytes() >= LINGER_BYTES_MAX {
            self.commit()?;
        }
        let deadline = || self.flush_by.unwrap_or_else(|| Instant::now() + self.linger);
        self.flush_by = self.writer.has_staged().then(deadline);
        Ok(())
    }

    /// Stages what is queued, committing in between where a record is full. Returns whether a batch waits for room, and
    /// whether somebody waits for what is staged.
    fn stage_all(&mut self) -> Result<(bool, bool), StoreError> {
        let mut urgent = false;
        while let Some(item) = self.queue.pop_front() {
            let mut batch = match item {
                Item::Batch(batch) => batch,
                Item::Load(request) => {
                    // The loader is gone only after a failure that it has reported.
                    self.loads.send(request);
                    continue;
                }
                Item::Hurry => {
                    urgent = true;
                    continue;
                }
            };
            let (wants, memory) = (batch.urgent, batch.memory as u64);
            loop {
                match self.writer.stage(batch)? {
                    Staged::Taken => break,
                    Staged::FlushFirst(back) => {
                        batch = back;
                        urgent = false;
                        self.commit()?;
                    }
                    Staged::NoRoom(back, bytes) => {
                        self.queue.push_front(Item::Batch(back));
                        self.checkpoint(Cause::Room(bytes));
                        // No commit is there to be held up: a checkpoint that is under way need not be gentle either.
                        self.shared.cold.region().trickle.store(false, Ordering::Relaxed);
                        return Ok((true, urgent));
                    }
                }
            }
            urgent |= wants;
            self.shared.counters.pending_bytes.fetch_sub(memory, Ordering::Relaxed);
        }
        Ok((false, urgent))
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        let before = Instant::now();
        let writes = self.writer.staged_bytes() > 0;
        if let Some(committed) = self.writer.flush()? {
            if self.shared.has_failed() {
                return Ok(());
            }
            self.worked_at = Instant::now();
            if self.lent {
                add(&self.shared.counters.commits_here, 1);
            }
            if writes {
                self.pace.note((self.worked_at - before).as_micros());
            }
            self.shared.outbox.push(StoreEvent::Committed(committed));
        }
        self.checkpoint(Cause::Threshold);
        Ok(())
    }

    /// Starts a checkpoint, if `cause` calls for one.
    pub fn checkpoint(&mut self, cause: Cause) {
        if self.lent {
            if self.writer.wants_checkpoint(cause) {
                self.put_off = Some(cause);
            }
        } else if let Some(snapshot) = self.writer.start_checkpoint(cause) {
            let hurry = matches!(cause, Cause::Close | Cause::Room(_));
            // The thread is gone only after a failure that it has reported.
            let _ = self.jobs.send(Job { snapshot, hurry });
        }
        self.shared.may_lend.store(self.may_be_lent(), Ordering::Relaxed);
    }
}
