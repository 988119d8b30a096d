//! What the store's threads have in common, and the events they leave for the driver.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cold::{Cold, Meta};
use super::contract::{Capacity, StoreEvent};
use super::counters::{Counters, set};
use super::hot::Hot;
use super::media::Media;

/// Called when events are waiting.
pub type Notify = Arc<dyn Fn() + Send + Sync>;

/// Shared by the writer, the checkpoint, the page loader and the handle.
pub struct Shared {
    /// The file.
    pub media: Arc<dyn Media>,
    /// The index of the ring.
    pub hot: Mutex<Hot>,
    /// The database.
    pub cold: Cold,
    /// The last durable checkpoint. Only one checkpoint runs at a time.
    pub meta: Mutex<Meta>,
    /// Where the ring's next record begins: everything acknowledged is before.
    pub head: AtomicU64,
    /// The driver may try to borrow the worker: a hint.
    pub may_lend: AtomicBool,
    /// What was done.
    pub counters: Arc<Counters>,
    /// For the driver.
    pub outbox: Outbox,
    capacity: Mutex<Capacity>,
    failed: AtomicBool,
}

impl Shared {
    /// After recovery.
    #[must_use]
    pub fn new(
        media: Arc<dyn Media>,
        hot: Hot,
        cold: Cold,
        meta: Meta,
        counters: Arc<Counters>,
        notify: Notify,
    ) -> Self {
        Self {
            media,
            hot: Mutex::new(hot),
            cold,
            meta: Mutex::new(meta),
            head: AtomicU64::new(0),
            may_lend: AtomicBool::new(false),
            counters,
            outbox: Outbox { events: Mutex::default(), notified: AtomicBool::new(false), notify },
            capacity: Mutex::default(),
            failed: AtomicBool::new(false),
        }
    }

    /// The index. A thread that panicked while it held the lock has poisoned the store, not the lock.
    pub fn hot(&self) -> MutexGuard<'_, Hot> {
        self.hot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last durable checkpoint.
    pub fn meta(&self) -> MutexGuard<'_, Meta> {
        self.meta.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store has failed: nothing is written and no receipt given any more.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Stops the store for good and tells the driver, once.
    pub fn fail(&self, reason: &str) {
        if !self.failed.swap(true, Ordering::AcqRel) {
            tracing::error!(reason, "the store has failed and acknowledges nothing any more");
            self.outbox.push(StoreEvent::Failed(reason.to_owned()));
        }
    }

    /// Looks at the disk and tells the driver about a change.
    pub fn check_capacity(&self) -> Capacity {
        let live = self.meta().stored_bytes;
        let now = self.cold.region().space().capacity(live);
        set(&self.counters.file_bytes, self.media.size().unwrap_or(0));
        set(&self.counters.cold_stored_bytes, live);
        self.set_capacity(now);
        now
    }

    /// The cold tier found out by itself whether there is room.
    pub fn set_capacity(&self, now: Capacity) {
        let mut before = self.capacity.lock().unwrap_or_else(PoisonError::into_inner);
        if *before != now {
            *before = now;
            set(&self.counters.capacity_full, u64::from(now == Capacity::Full));
            self.outbox.push(StoreEvent::Capacity(now));
        }
    }

    /// Whether new messages may come in, as last told to the driver.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        *self.capacity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Events that wait for the driver. Receipts are merged; pages are bounded by what the driver has asked for.
pub struct Outbox {
    events: Mutex<Vec<StoreEvent>>,
    notified: AtomicBool,
    notify: Notify,
}

impl Outbox {
    /// Adds an event and wakes the driver, unless it was woken and has not come yet.
    pub fn push(&self, event: StoreEvent) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        match (events.last_mut(), &event) {
            (Some(StoreEvent::Committed(last)), StoreEvent::Committed(new)) => *last = *new,
            _ => events.push(event),
        }
        drop(events);
        if !self.notified.swap(true, Ordering::AcqRel) {
            (self.notify)();
        }
    }

    /// Moves all events to `out`.
    pub fn take(&self, out: &mut Vec<StoreEvent>) {
        self.notified.store(false, Ordering::Release);
        out.append(&mut self.events.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
