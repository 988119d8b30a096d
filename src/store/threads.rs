//! The threads around the store's logic.
//!
//! `writer` takes whatever is queued, commits it, and answers; `checkpoint` runs one checkpoint at a time and looks after disk
//! space in between; `loader` reads pages. They decide nothing that the modules they call could decide.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::checkpoint;
use super::cold_read::ColdReader;
use super::contract::StoreEvent;
use super::counters::add;
use super::error::StoreError;
use super::gate::{Ending, Gate, Waiting, Wish};
use super::load_queue::LoadReceiver;
use super::loader;
use super::shared::Shared;
use super::worker::{DISK_CHECK_EVERY, Job, Worker};
use super::writer::Cause;

/// How often the file's size is compared with its content.
const SPACE_CHECK_EVERY: Duration = Duration::from_secs(30);

/// How long closing waits for a full disk.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(10);

/// The writer's thread.
pub struct WriterThread {
    /// What it works with, unless the driver has borrowed it; `None` once the thread has ended.
    pub worker: Arc<Mutex<Option<Worker>>>,
    /// For all threads.
    pub shared: Arc<Shared>,
    /// Where work comes from.
    pub gate: Arc<Gate>,
}

impl WriterThread {
    /// Runs until the store is closed, abandoned or has failed.
    pub fn run(&self) {
        if let Err(error) = self.serve() {
            self.shared.fail(&error.to_string());
        }
        // The other threads end when nobody can send them anything any more.
        *self.worker() = None;
        // What waits will never be done; the memory is free.
        self.shared.counters.pending_bytes.store(0, Ordering::Relaxed);
    }

    /// A panic while somebody held it has failed the store already.
    fn worker(&self) -> MutexGuard<'_, Option<Worker>> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) -> Result<(), StoreError> {
        let mut closing_since = None;
        loop {
            let Some(wish) = self.worker().as_ref().map(Worker::wish) else { return Ok(()) };
            self.gate.wait(wish);
            let timed_out = Instant::now() >= wish.until;
            let mut guard = self.worker();
            let Some(worker) = guard.as_mut() else { return Ok(()) };
            let taken = self.gate.take(&mut worker.queue);
            if taken.ending == Ending::Abandon || self.shared.has_failed() {
                return Ok(());
            }
            match taken.outcome {
                Some(outcome) => worker.writer.end_checkpoint(outcome),
                None if worker.is_blocked() && timed_out => worker.writer.retry_after_full(),
                None => {}
            }
            worker.catch_up();
            worker.turn(taken.ending == Ending::Close)?;
            if taken.wanted {
                worker.checkpoint(Cause::Close);
            }
            if timed_out && worker.is_idle() {
                worker.checkpoint(Cause::Idle);
            }
            if taken.ending == Ending::Close {
                if !worker.is_blocked() && worker.queue.is_empty() {
                    return self.last_checkpoint(worker);
                }
                let since = *closing_since.get_or_insert_with(Instant::now);
                if since.elapsed() > CLOSE_WAIT_MAX {
                    return Err(StoreError::Options("closing found no room for the last batches".to_owned()));
                }
            }
        }
    }

    fn last_checkpoint(&self, worker: &mut Worker) -> Result<(), StoreError> {
        self.wait_for_checkpoint(worker);
        worker.checkpoint(Cause::Close);
        self.wait_for_checkpoint(worker);
        Ok(())
    }

    fn wait_for_checkpoint(&self, worker: &mut Worker) {
        let until = Instant::now() + CLOSE_WAIT_MAX;
        while worker.writer.checkpoint_under_way() && Instant::now() < until && !self.shared.has_failed() {
            let soon = Instant::now() + Duration::from_millis(200);
            self.gate.wait(Wish { waiting: Waiting::No, until: soon.min(until), may_end: false });
            if let Some(outcome) = self.gate.take(&mut VecDeque::new()).outcome {
                worker.writer.end_checkpoint(outcome);
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
