//! The threads around the store's logic.
//!
//! `writer` takes whatever is queued, commits it, and answers; `checkpoint` runs one checkpoint at a time and looks after disk
//! space in between; `loader` reads pages. They decide nothing that the modules they call could decide.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use super::checkpoint;
use super::cold_read::ColdReader;
use super::contract::StoreEvent;
use super::counters::add;
use super::error::StoreError;
use super::gate::{Ending, Gate, Item, LINGER_BYTES_MAX, Waiting, Wish};
use super::hot::Snapshot;
use super::load_queue::{LoadReceiver, LoadSender};
use super::loader;
use super::shared::Shared;
use super::writer::{Cause, Staged, Writer};

/// How often the disk is looked at, and a full one is tried again.
const DISK_CHECK_EVERY: Duration = Duration::from_secs(5);

/// How often the file's size is compared with its content.
const SPACE_CHECK_EVERY: Duration = Duration::from_secs(30);

/// After so long without work, settled segments are removed.
const IDLE_AFTER: Duration = Duration::from_secs(5);

/// How long closing waits for a full disk.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(10);

/// A checkpoint to run.
pub struct Job {
    /// What to write.
    pub snapshot: Snapshot,
    /// Somebody waits for the end: do not trickle.
    pub hurry: bool,
}

/// The writer's thread.
pub struct WriterThread {
    /// Its logic.
    pub writer: Writer,
    /// For all threads.
    pub shared: Arc<Shared>,
    /// Where work comes from.
    pub gate: Arc<Gate>,
    /// To the checkpoint's thread.
    pub jobs: SyncSender<Job>,
    /// To the loader's thread.
    pub loads: LoadSender,
    /// How long a batch that is not urgent may wait.
    pub linger: Duration,
    /// Taken from the gate, not staged yet.
    pub queue: VecDeque<Item>,
    /// The first of them waits for room in the ring.
    pub blocked: bool,
    /// When what is staged must be committed.
    pub flush_by: Option<Instant>,
}

impl WriterThread {
    /// Runs until the store is closed, abandoned or has failed.
    pub fn run(mut self) {
        if let Err(error) = self.serve() {
            self.shared.fail(&error.to_string());
        }
        // What waits will never be done; the memory is free.
        self.shared.counters.pending_bytes.store(0, Ordering::Relaxed);
    }

    fn serve(&mut self) -> Result<(), StoreError> {
        let mut closing_since = None;
        loop {
            let wish = self.wish();
            let (outcome, ending) = self.gate.wait(wish, &mut self.queue);
            if ending == Ending::Abandon || self.shared.has_failed() {
                return Ok(());
            }
            let timed_out = Instant::now() >= wish.until;
            match outcome {
                Some(outcome) => self.writer.end_checkpoint(outcome),
                None if self.blocked && timed_out => self.writer.retry_after_full(),
                None => {}
            }
            self.turn(ending == Ending::Close)?;
            if self.gate.take_wanted() {
                self.checkpoint(Cause::Close);
            }
            if timed_out && self.flush_by.is_none() && !self.blocked {
                self.checkpoint(Cause::Idle);
            }
            if ending == Ending::Close {
                if !self.blocked && self.queue.is_empty() {
                    return self.last_checkpoint();
                }
                let since = *closing_since.get_or_insert_with(Instant::now);
                if since.elapsed() > CLOSE_WAIT_MAX {
                    return Err(StoreError::Options("closing found no room for the last batches".to_owned()));
                }
            }
        }
    }

    /// What to wait for.
    fn wish(&self) -> Wish {
        let now = Instant::now();
        match self.flush_by {
            _ if self.blocked => Wish { waiting: Waiting::No, until: now + DISK_CHECK_EVERY, may_end: false },
            Some(until) => Wish { waiting: Waiting::Armed, until, may_end: true },
            None => Wish { waiting: Waiting::Idle, until: now + IDLE_AFTER, may_end: true },
        }
    }

    /// Stages everything and commits it if somebody waits, it has waited long enough, or there is much of it.
    fn turn(&mut self, closing: bool) -> Result<(), StoreError> {
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
        if let Some(committed) = self.writer.flush()? {
            if self.shared.has_failed() {
                return Ok(());
            }
            self.shared.outbox.push(StoreEvent::Committed(committed));
        }
        self.checkpoint(Cause::Threshold);
        Ok(())
    }

    fn checkpoint(&mut self, cause: Cause) {
        if let Some(snapshot) = self.writer.start_checkpoint(cause) {
            let hurry = matches!(cause, Cause::Close | Cause::Room(_));
            // The thread is gone only after a failure that it has reported.
            let _ = self.jobs.send(Job { snapshot, hurry });
        }
    }

    fn last_checkpoint(&mut self) -> Result<(), StoreError> {
        self.wait_for_checkpoint();
        self.checkpoint(Cause::Close);
        self.wait_for_checkpoint();
        Ok(())
    }

    fn wait_for_checkpoint(&mut self) {
        let until = Instant::now() + CLOSE_WAIT_MAX;
        while self.writer.checkpoint_under_way() && Instant::now() < until && !self.shared.has_failed() {
            let soon = Instant::now() + Duration::from_millis(200);
            let wish = Wish { waiting: Waiting::No, until: soon.min(until), may_end: false };
            let mut late = VecDeque::new();
            if let (Some(outcome), _) = self.gate.wait(wish, &mut late) {
                self.writer.end_checkpoint(outcome);
            }
        }
    }
}

/// The checkpoint's thread: ends when the writer's is gone.
pub fn run_checkpoints(shared: &Shared, gate: &Gate, jobs: &Receiver<Job>) {
    let mut looked_at_space = Instant::now();
    let region = shared.cold.region();
    loop {
        let result = match jobs.recv_timeout(DISK_CHECK_EVERY) {
            Ok(job) => {
                region.trickle.store(!job.hurry, Ordering::Relaxed);
                checkpoint::run(shared, job.snapshot).map(|outcome| gate.put_outcome(outcome))
            }
            Err(RecvTimeoutError::Timeout) => {
                shared.check_capacity();
                if looked_at_space.elapsed() < SPACE_CHECK_EVERY {
                    continue;
                }
                looked_at_space = Instant::now();
                region.trickle.store(true, Ordering::Relaxed);
                checkpoint::give_space_back(shared).map(|_| ())
            }
            Err(RecvTimeoutError::Disconnected) => break,
        };
        region.trickle.store(false, Ordering::Relaxed);
        if let Err(error) = result {
            shared.fail(&error.to_string());
            gate.wake();
            break;
        }
    }
}

/// The loader's thread: ends when the writer's is gone.
pub fn run_loader(shared: &Shared, loads: &LoadReceiver) {
    let mut reader = ColdReader::default();
    while let Some(request) = loads.recv() {
        match loader::serve(shared, &mut reader, &request) {
            Ok(page) => shared.outbox.push(StoreEvent::Page(page)),
            Err(error) => {
                add(&shared.counters.segments_damaged, 1);
                shared.fail(&error.to_string());
                break;
            }
        }
    }
}
