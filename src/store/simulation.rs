//! The store without threads, on a simulated medium: for simulations, which decide what happens when.
//!
//! The writer, the checkpoint, the loader and recovery are those of the real store; this module takes the place of `threads`,
//! `gate` and `worker` alone, which live by the system's clock, and puts its faults between their steps. A checkpoint can be stopped between any two of its writes, and goes on when it is told to: it runs on a thread of
//! its own, but one of the two threads always waits for the other.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::checkpoint::{self, Outcome};
use super::cold_read::ColdReader;
use super::contract::{Batch, BatchId, Committed, Op, Page, PageRequest, Recovered, Space, StoreEvent};
use super::counters::{Counters, add};
use super::error::StoreError;
use super::handle::StoreOptions;
use super::hot::Snapshot;
use super::loader;
use super::media::Media;
use super::recover::{self, Opened, Settings};
use super::shared::Shared;
use super::writer::{Cause, Staged, Writer};

pub use super::sim_media::{CutStyle, SimMedia};

/// The same salt in every run, so that a seed repeats everything.
const SALT: u64 = 0x5eed_5eed;

/// Faults on request: what a simulation must notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sabotage {
    /// The receipt comes before the commit.
    pub acknowledge_early: bool,
    /// The ring's space is free before the checkpoint is durable.
    pub release_early: bool,
    /// What belongs together is committed in two steps.
    pub split_batches: bool,
    /// Rows of this kind are never written.
    pub rows_lost: Option<Space>,
    /// Rows of this kind keep the value that they have first.
    pub rows_frozen: Option<Space>,
}

enum Item {
    Batch(Batch),
    Load(PageRequest),
    Hurry,
}

/// A checkpoint that is under way on its thread, and waits.
struct Fold {
    thread: JoinHandle<Result<Outcome, StoreError>>,
    go: SyncSender<()>,
    paused: Receiver<()>,
}

/// An open store that works when it is told to.
pub struct InlineStore {
    media: Arc<SimMedia>,
    shared: Arc<Shared>,
    writer: Writer,
    reader: ColdReader,
    queue: VecDeque<Item>,
    loads: VecDeque<PageRequest>,
    due: Option<Snapshot>,
    fold: Option<Fold>,
    blocked: bool,
    died_folding: bool,
    sabotage: Sabotage,
    /// Keys of rows that keep their value.
    frozen: BTreeSet<Box<[u8]>>,
}

fn settings(options: &StoreOptions) -> Settings {
    Settings { pause: Duration::ZERO, salt: SALT, ..options.settings() }
}

impl InlineStore {
    /// Makes an empty store.
    ///
    /// # Errors
    /// Of the medium.
    pub fn create(media: &Arc<SimMedia>, options: &StoreOptions) -> Result<(), StoreError> {
        let media: Arc<dyn Media> = media.clone();
        recover::create(&media, &settings(options))
    }

    /// Brings the store on the medium back.
    ///
    /// # Errors
    /// Of the medium, or when its content is damaged.
    pub fn open(
        media: Arc<SimMedia>,
        options: &StoreOptions,
        sabotage: Sabotage,
    ) -> Result<(Self, Recovered), StoreError> {
        let opened = recover::open(media.clone(), &settings(options), Arc::new(|| {}))?;
        let Opened { shared, writer, recovered } = opened;
        shared.check_capacity();
        let store = Self {
            media,
            shared,
            writer,
            reader: ColdReader::default(),
            queue: VecDeque::new(),
            loads: VecDeque::new(),
            due: None,
            fold: None,
            blocked: false,
            died_folding: false,
            sabotage,
            frozen: BTreeSet::new(),
        };
        Ok((store, recovered))
    }

    /// Hands over a batch.
    pub fn submit(&mut self, mut batch: Batch) {
        if !self.shared.has_failed() {
            self.spoil_rows(&mut batch);
            add(&self.shared.counters.pending_bytes, batch.memory as u64);
            self.queue.push_back(Item::Batch(batch));
        }
    }

    fn spoil_rows(&mut self, batch: &mut Batch) {
        let Sabotage { rows_lost, rows_frozen, .. } = self.sabotage;
        let frozen = &mut self.frozen;
        batch.ops.retain(|op| match op {
            Op::Put { space, .. } if Some(*space) == rows_lost => false,
            Op::Put { space, key, .. } if Some(*space) == rows_frozen => frozen.insert(key.clone()),
            _ => true,
        });
    }

    /// Asks for a page.
    pub fn load(&mut self, request: PageRequest) {
        self.queue.push_back(Item::Load(request));
    }

    /// Somebody waits for what was handed over before.
    pub fn hurry(&mut self) {
        self.queue.push_back(Item::Hurry);
    }

    /// Memory of what was submitted and is not applied yet.
    #[must_use]
    pub fn pending_memory(&self) -> u64 {
        self.shared.counters.pending_bytes.load(Ordering::Relaxed)
    }

    /// What the store has done.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Moves all events to `out`.
    pub fn poll_events(&self, out: &mut Vec<StoreEvent>) {
        self.shared.outbox.take(out);
    }

    /// Something was handed over and is not done, or is done and not committed.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.queue.is_empty() || !self.loads.is_empty() || self.writer.has_staged()
    }

    /// A checkpoint is under way, or about to be.
    #[must_use]
    pub fn is_folding(&self) -> bool {
        self.due.is_some() || self.fold.is_some()
    }

    /// A checkpoint has begun to write and not ended, or it met a failure.
    #[must_use]
    pub fn is_mid_fold(&self) -> bool {
        self.fold.is_some() || self.died_folding
    }

    /// Stages what was handed over and commits it, if somebody waits for it or `linger_is_over`.
    pub fn turn(&mut self, linger_is_over: bool) {
        if self.shared.has_failed() {
            return;
        }
        let result = self.stage_all().and_then(|urgent| {
            // With the receipt out, whoever waited does not wait for the commit any more.
            let wanted = urgent && !self.sabotage.acknowledge_early;
            if wanted || linger_is_over { self.commit() } else { Ok(()) }
        });
        self.note(result);
    }

    fn note(&mut self, result: Result<(), StoreError>) {
        if let Err(error) = result {
            self.shared.fail(&error.to_string());
            self.queue.clear();
        }
    }

    fn stage_all(&mut self) -> Result<bool, StoreError> {
        let mut urgent = false;
        while let Some(item) = self.queue.pop_front() {
            let mut batch = match item {
                Item::Batch(batch) => batch,
                Item::Load(request) => {
                    self.loads.push_back(request);
                    continue;
                }
                Item::Hurry => {
                    urgent = true;
                    continue;
                }
            };
            if self.sabotage.split_batches {
                self.commit_half(&mut batch)?;
            }
            let (wants, memory, id) = (batch.urgent, batch.memory as u64, batch.id);
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
                        self.blocked = true;
                        return Ok(urgent);
                    }
                }
            }
            if self.sabotage.acknowledge_early {
                self.shared.outbox.push(StoreEvent::Committed(Committed::through_batch(id)));
            }
            urgent |= wants;
            self.shared.counters.pending_bytes.fetch_sub(memory, Ordering::Relaxed);
        }
        self.blocked = false;
        Ok(urgent)
    }

    /// Commits the first half of a batch by itself.
    fn commit_half(&mut self, batch: &mut Batch) -> Result<(), StoreError> {
        let rest = batch.ops.split_off(batch.ops.len() / 2);
        let ops = std::mem::replace(&mut batch.ops, rest);
        let id = BatchId(batch.id.0.saturating_sub(1));
        let half = Batch { id, ops, urgent: false, wall: batch.wall, memory: 0 };
        match self.writer.stage(half)? {
            Staged::Taken => self.commit(),
            Staged::FlushFirst(mut back) | Staged::NoRoom(mut back, _) => {
                back.ops.append(&mut batch.ops);
                batch.ops = back.ops;
                Ok(())
            }
        }
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        if let Some(committed) = self.writer.flush()? {
            self.shared.outbox.push(StoreEvent::Committed(committed));
        }
        self.checkpoint(Cause::Threshold);
        Ok(())
    }

    fn checkpoint(&mut self, cause: Cause) {
        if let Some(snapshot) = self.writer.start_checkpoint(cause) {
            if self.sabotage.release_early {
                self.writer.release_early(snapshot.point);
            }
            self.due = Some(snapshot);
        }
    }

    /// Answers page requests; not while a checkpoint waits in the middle of its work, since it may hold the database's locks.
    pub fn serve_loads(&mut self) {
        while self.fold.is_none()
            && !self.shared.has_failed()
            && let Some(request) = self.loads.pop_front()
        {
            let served = self.page(&request);
            let done = served.map(|page| self.shared.outbox.push(StoreEvent::Page(page)));
            self.note(done);
        }
    }

    /// Reads a page now, for a check of the store's content.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn page(&mut self, request: &PageRequest) -> Result<Page, StoreError> {
        loader::serve(&self.shared, &mut self.reader, request)
    }

    /// Lets the checkpoint, if there is one, do up to `writes` writes; `None`: all.
    pub fn fold(&mut self, writes: Option<u32>) {
        if let Some(snapshot) = self.due.take_if(|_| !self.shared.has_failed()) {
            self.fold = Some(self.start(snapshot));
        }
        let mut left = writes;
        while let Some(fold) = &self.fold {
            if left == Some(0) {
                return;
            }
            left = left.map(|n| n - 1);
            let running = fold.go.send(()).is_ok() && fold.paused.recv().is_ok();
            if !running {
                self.end_fold();
            }
        }
    }

    fn start(&self, snapshot: Snapshot) -> Fold {
        let (go, may_go) = sync_channel::<()>(1);
        let (pause, paused) = sync_channel(1);
        let shared = self.shared.clone();
        let media = self.media.clone();
        let gates = Arc::new(Mutex::new((pause, may_go)));
        let wait = move |gates: &Mutex<(SyncSender<()>, Receiver<()>)>| {
            let gates = gates.lock().unwrap_or_else(PoisonError::into_inner);
            // Without anybody at the other end it runs on alone.
            let _ = gates.0.send(());
            let _ = gates.1.recv();
        };
        let thread = std::thread::spawn(move || {
            let _ = gates.lock().unwrap_or_else(PoisonError::into_inner).1.recv();
            let interlude = gates.clone();
            let base = shared.cold.region().base();
            media.set_interlude(base, Some(Arc::new(move || wait(&interlude))));
            let outcome = checkpoint::run(&shared, snapshot);
            media.set_interlude(0, None);
            outcome
        });
        Fold { thread, go, paused }
    }

    fn end_fold(&mut self) {
        let Some(Fold { thread, go, paused }) = self.fold.take() else { return };
        drop((go, paused));
        let result = match thread.join() {
            Ok(outcome) => outcome.map(|outcome| self.writer.end_checkpoint(outcome)),
            Err(panic) => std::panic::resume_unwind(panic),
        };
        self.died_folding |= result.is_err();
        self.note(result);
    }

    /// Looks at the disk, as the store does every few seconds.
    pub fn look_at_disk(&mut self) {
        if self.fold.is_none() {
            self.shared.check_capacity();
        }
        if self.blocked {
            self.writer.retry_after_full();
        }
    }

    /// There is nothing else to do: settled segments may go.
    pub fn idle(&mut self) {
        self.checkpoint(Cause::Idle);
    }

    /// Commits everything, takes a last checkpoint and closes the file. `Ok(false)`: the disk is so full that the last
    /// batches found no room.
    ///
    /// # Errors
    /// When the store had failed, or the last writes fail.
    pub fn close(mut self) -> Result<bool, StoreError> {
        for _ in 0..4 {
            self.turn(true);
            self.fold(None);
            self.writer.retry_after_full();
        }
        if !self.shared.has_failed() && !self.blocked {
            self.checkpoint(Cause::Close);
            self.fold(None);
        }
        if self.shared.has_failed() {
            return Err(StoreError::Options("the store has failed".to_owned()));
        }
        if self.blocked {
            return Ok(false);
        }
        self.shared.cold.close()?;
        self.media.sync_data().map_err(StoreError::io("sync its file"))?;
        Ok(true)
    }
}

impl Drop for InlineStore {
    /// As if the process had been killed: what a checkpoint still wanted to write is not written.
    fn drop(&mut self) {
        if let Some(Fold { thread, go, paused }) = self.fold.take() {
            self.media.cut_power();
            drop((go, paused));
            let _ = thread.join();
        }
    }
}
