//! The store's handle: opens the file, starts the threads, and is what the driver talks to.

use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::contract::{Batch, PageRequest, Recovered, StoreEvent};
use super::counters::{Counters, add};
use super::error::StoreError;
use super::gate::{Ending, Gate};
use super::load_queue::load_queue;
use super::media::{Media, RealFile, sync_folder_of};
use super::recover::{self, Opened, Settings};
use super::shared::{Notify, Shared};
use super::threads::{WriterThread, run_checkpoints, run_loader};
use super::tools::StoreTools;
use super::worker::Worker;
use crate::limits::Limits;

/// Damaged files that are kept beside the store, beyond which opening fails instead of making one more.
const SET_ASIDE_MAX: u32 = 100;

/// Pause of a checkpoint after each step of its trickle.
const TRICKLE_PAUSE: Duration = Duration::from_millis(1);

/// How to open a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The file; made if it does not exist.
    pub path: PathBuf,
    /// Size of a new file's write-ahead ring; an existing file keeps its own.
    pub ring_bytes: u64,
    /// redb's page cache.
    pub cache_bytes: u64,
    /// Largest size of the file; `None`: what the disk has.
    pub disk_bytes_max: Option<u64>,
    /// Free space that is left to others.
    pub disk_reserve_bytes: u64,
    /// How long a batch that is not urgent may wait.
    pub linger_millis: u32,
    /// Bound on the memory of batches that wait for the writer; the driver keeps it.
    pub queue_bytes_max: u64,
}

impl StoreOptions {
    /// The options that `limits` ask for.
    #[must_use]
    pub fn new(path: PathBuf, limits: &Limits) -> Self {
        Self {
            path,
            ring_bytes: limits.ring_bytes,
            cache_bytes: limits.store_cache_bytes,
            disk_bytes_max: limits.disk_bytes_max,
            disk_reserve_bytes: limits.disk_reserve_bytes,
            linger_millis: limits.store_linger_millis,
            queue_bytes_max: limits.store_queue_bytes_max,
        }
    }

    pub(super) fn settings(&self) -> Settings {
        Settings {
            ring_bytes: self.ring_bytes,
            cache_bytes: self.cache_bytes,
            disk_bytes_max: self.disk_bytes_max,
            disk_reserve_bytes: self.disk_reserve_bytes,
            queue_bytes_max: self.queue_bytes_max,
            pause: TRICKLE_PAUSE,
            // The seeds of the standard library's hash maps come from the system's random numbers.
            salt: std::hash::RandomState::new().build_hasher().finish(),
        }
    }
}

/// An open store.
///
/// The driver calls [`submit`](Self::submit) and [`load`](Self::load) in the order of the broker's effects, and
/// [`poll_events`](Self::poll_events) after it was notified. A store that is dropped without [`close`](Self::close) stops at
/// once, as if the process had been killed: what was committed is recovered at the next opening.
pub struct Store {
    shared: Arc<Shared>,
    gate: Arc<Gate>,
    worker: Arc<Mutex<Option<Worker>>>,
    settings: Settings,
    threads: Vec<JoinHandle<()>>,
}

impl Store {
    /// Opens the file, brings it back to the last acknowledged commit and starts the threads. `notify` is called from any of
    /// them when events are waiting, and then not again before [`poll_events`](Self::poll_events).
    ///
    /// A file whose content is damaged is renamed to `<name>.damaged-<n>`, and the store starts empty.
    ///
    /// # Errors
    /// When the file is in use, from a newer program, or the system refuses.
    pub fn open(
        options: StoreOptions,
        notify: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<(Self, Recovered), StoreError> {
        let settings = options.settings();
        settings.checked_ring_bytes()?;
        let opened = open_file(&options.path, &settings, notify)?;
        Self::start(opened, settings, Duration::from_millis(u64::from(options.linger_millis)))
    }

    /// Opens a store that exists; a damaged one is an error and stays where it is.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_existing(
        options: StoreOptions,
        notify: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<(Self, Recovered), StoreError> {
        let settings = options.settings();
        let opened = recover::open(Arc::new(RealFile::open(&options.path)?), &settings, notify)?;
        Self::start(opened, settings, Duration::from_millis(u64::from(options.linger_millis)))
    }

    /// Opens a store on any medium; an empty one gets a new store. The medium's owner sees to it that nobody else has it.
    ///
    /// # Errors
    /// As [`open`](Self::open); a damaged one is an error.
    pub fn open_on(
        media: Arc<dyn Media>,
        options: StoreOptions,
        notify: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<(Self, Recovered), StoreError> {
        let settings = options.settings();
        if media.size().map_err(StoreError::io("read its file's length"))? == 0 {
            recover::create(&media, &settings)?;
        }
        let opened = recover::open(media, &settings, notify)?;
        Self::start(opened, settings, Duration::from_millis(u64::from(options.linger_millis)))
    }

    fn start(opened: Opened, settings: Settings, linger: Duration) -> Result<(Self, Recovered), StoreError> {
        let Opened { shared, writer, recovered } = opened;
        let gate = Arc::new(Gate::default());
        let (jobs_tx, jobs) = mpsc::sync_channel(1);
        let (loads_tx, loads) = load_queue();
        let worker = Worker::new(writer, shared.clone(), jobs_tx, loads_tx, linger);
        let worker = Arc::new(Mutex::new(Some(worker)));
        let writer = WriterThread { worker: worker.clone(), shared: shared.clone(), gate: gate.clone() };
        shared.check_capacity();
        let mut store =
            Self { shared: shared.clone(), gate: gate.clone(), worker, settings, threads: Vec::new() };
        store.spawn("store-write", move || writer.run())?;
        let (checkpoint_shared, checkpoint_gate) = (shared.clone(), gate);
        store.spawn("store-fold", move || run_checkpoints(&checkpoint_shared, &checkpoint_gate, &jobs))?;
        store.spawn("store-load", move || run_loader(&shared, &loads))?;
        Ok((store, recovered))
    }

    /// Starts a thread; a panic in it fails the store.
    fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
        let (shared, gate) = (self.shared.clone(), self.gate.clone());
        let guarded = move || {
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_err() {
                shared.fail("a store thread panicked");
                gate.wake();
            }
        };
        let thread = Builder::new().name(name.to_owned()).spawn(guarded);
        self.threads.push(thread.map_err(StoreError::io("start a thread"))?);
        Ok(())
    }

    /// Hands over a batch; never blocks. The receipt is a [`StoreEvent::Committed`].
    pub fn submit(&self, batch: Batch) {
        if self.shared.has_failed() {
            return;
        }
        add(&self.shared.counters.pending_bytes, batch.memory as u64);
        self.gate.submit(batch);
    }

    /// The disk is quick and has nothing else to do: a lone batch takes less time with [`commit_here`](Self::commit_here).
    #[must_use]
    pub fn is_quick(&self) -> bool {
        self.shared.may_lend.load(Ordering::Relaxed)
    }

    /// As [`submit`](Self::submit), but if the disk [is quick](Self::is_quick), the batch and all before it are committed on the
    /// caller's thread: one write and one sync, and no switch to the store's thread and back. If its disk stalls just then, the
    /// caller stalls with it, once: then the disk is no longer quick.
    pub fn commit_here(&self, batch: Batch) {
        if self.shared.has_failed() {
            return;
        }
        add(&self.shared.counters.pending_bytes, batch.memory as u64);
        let mut lent = self.worker.try_lock().ok();
        let Some(worker) = lent.as_mut().and_then(|lent| lent.as_mut()).filter(|w| w.may_be_lent()) else {
            return self.gate.submit(batch);
        };
        self.gate.pass(batch, &mut worker.queue);
        match worker.lent_turn() {
            Ok(true) => self.gate.change(),
            Ok(false) => {}
            Err(error) => {
                self.shared.fail(&error.to_string());
                self.gate.wake();
            }
        }
    }

    /// Somebody waits for what was submitted before, urgent or not; never blocks.
    pub fn hurry(&self) {
        self.gate.hurry();
    }

    /// Asks for a page; never blocks. It is answered by a [`StoreEvent::Page`] that reflects every batch submitted before.
    pub fn load(&self, request: PageRequest) {
        self.gate.load(request);
    }

    /// Moves all waiting events to `out`.
    pub fn poll_events(&self, out: &mut Vec<StoreEvent>) {
        self.shared.outbox.take(out);
    }

    /// Sum of [`Batch::memory`] of what was submitted and is not applied yet. Above its bound the driver reads no sockets.
    #[must_use]
    pub fn pending_memory(&self) -> u64 {
        self.shared.counters.pending_bytes.load(Ordering::Relaxed)
    }

    /// What the store has done.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// For an operator's requests, from any thread, as long as the store is open.
    #[must_use]
    pub fn tools(&self) -> StoreTools {
        StoreTools::new(self.shared.clone(), self.gate.clone(), self.settings)
    }

    /// Commits everything, takes a last checkpoint and closes the file. Takes as long as writing the ring's content once.
    ///
    /// # Errors
    /// When the store had failed or the last writes fail.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.gate.end(Ending::Close);
        self.join();
        if self.shared.has_failed() {
            return Err(StoreError::Options("the store had failed before it was closed".to_owned()));
        }
        self.shared.cold.close()?;
        self.shared.media.sync_data().map_err(StoreError::io("sync its file"))
    }

    #[cfg(test)]
    pub(super) fn give_space_back_now(&self) -> Result<bool, StoreError> {
        super::checkpoint::give_space_back(&self.shared)
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // Panics were caught inside the thread.
            let _ = thread.join();
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.gate.end(Ending::Abandon);
            self.join();
        }
    }
}

fn open_file(path: &Path, settings: &Settings, notify: Notify) -> Result<Opened, StoreError> {
    if !path.try_exists().map_err(StoreError::io("look for its file"))? {
        return create_file(path, settings, notify);
    }
    let media: Arc<dyn Media> = Arc::new(RealFile::open(path)?);
    match recover::open(media.clone(), settings, notify.clone()) {
        Err(error) if error.is_damage() => {
            // It stays locked until another one has its name: nobody else sets that aside too.
            let aside = set_aside(path)?;
            tracing::error!(%error, path = %path.display(), aside = %aside.display(),
                "the store's file is damaged: it was set aside, the store starts empty");
            let mut opened = create_file(path, settings, notify)?;
            opened.recovered.set_aside = Some(aside);
            Ok(opened)
        }
        other => other,
    }
}

/// Makes the file under another name first: under its own name it is always complete.
fn create_file(path: &Path, settings: &Settings, notify: Notify) -> Result<Opened, StoreError> {
    let (media, unfinished) = create_media(path)?;
    recover::create(&media, settings)?;
    finish_creation(&unfinished, path)?;
    recover::open(media, settings, notify)
}

/// An empty, locked file with the other name.
pub(super) fn create_media(path: &Path) -> Result<(Arc<dyn Media>, PathBuf), StoreError> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(StoreError::io("create its folder"))?;
    }
    let unfinished = with_suffix(path, ".tmp");
    Ok((Arc::new(RealFile::create(&unfinished)?), unfinished))
}

/// Gives a complete file its name, unless another process has made one with that name meanwhile.
pub(super) fn finish_creation(unfinished: &Path, path: &Path) -> Result<(), StoreError> {
    let named = match renameat_with(CWD, unfinished, CWD, path, RenameFlags::NOREPLACE) {
        // Not every file system can do that.
        Err(Errno::INVAL | Errno::NOSYS) => std::fs::rename(unfinished, path),
        other => other.map_err(Into::into),
    };
    named.and_then(|()| sync_folder_of(path)).map_err(StoreError::io("create its file"))
}

fn set_aside(path: &Path) -> Result<PathBuf, StoreError> {
    let failed = "set its damaged file aside";
    for n in 1..=SET_ASIDE_MAX {
        let aside = with_suffix(path, &format!(".damaged-{n}"));
        if !aside.try_exists().map_err(StoreError::io(failed))? {
            std::fs::rename(path, &aside).map_err(StoreError::io(failed))?;
            sync_folder_of(path).map_err(StoreError::io(failed))?;
            return Ok(aside);
        }
    }
    Err(StoreError::Options(format!(
        "{SET_ASIDE_MAX} damaged files are kept beside {}: move them away",
        path.display()
    )))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
