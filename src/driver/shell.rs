//! What the tasks of the broker's thread share.

use std::cell::{Cell, RefCell};
use std::net::Shutdown;
use std::rc::Rc;
use std::time::Instant;

use tokio::sync::{Notify, mpsc};

use crate::broker::api::{ClientEvent, ConnId};
use crate::driver::gate::Pass;
use crate::driver::layers::Layers;
use crate::driver::stream::WriteHalf;
use crate::net::hub::Hub;
use crate::store::contract::Batch;
use crate::store::{Store, StoreError};
use crate::time::{Mono, Now, Timeline};

/// Bytes of one read: larger reads fill outboxes faster than peers drain them, smaller ones cost system calls.
pub const READ_BYTES: usize = 16 << 10;

/// The process's clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    timeline: Timeline,
}

impl Clock {
    /// Counts from `started`.
    #[must_use]
    pub fn new(started: Instant, timeline: Timeline) -> Self {
        Self { started, timeline }
    }

    /// A reading.
    #[must_use]
    pub fn now(&self) -> Now {
        self.timeline.at(Mono(self.started.elapsed().as_micros() as u64))
    }

    /// When `mono` is.
    #[must_use]
    pub fn instant(&self, mono: Mono) -> Instant {
        self.started + std::time::Duration::from_micros(mono.0)
    }
}

/// The layers of a connection, for its reader and for the flusher.
pub type SharedLayers = Rc<RefCell<Layers>>;

/// How a connection is written to.
#[derive(Debug)]
pub enum PeerIo {
    /// A client's socket.
    Socket {
        /// Its writing half.
        half: WriteHalf,
        /// What is between it and the protocol; `None`: nothing.
        layers: Option<SharedLayers>,
        /// A task waits for it to take more.
        blocked: Cell<bool>,
        /// Its reader may go on, or must see that the connection ends.
        resume: Notify,
        /// The places that the connection holds.
        _pass: Option<Box<Pass>>,
    },
    /// A link inside this process.
    Port(mpsc::Sender<ClientEvent>),
}

type Place = (ConnId, Rc<PeerIo>);

/// Shared by all tasks of the broker's thread. Borrows are never held across an await.
pub struct Shell {
    /// Connections and broker.
    pub hub: RefCell<Hub>,
    /// One read buffer for all sockets.
    pub scratch: RefCell<Box<[u8]>>,
    /// One buffer for what layers decrypt.
    pub plain: RefCell<Vec<u8>>,
    /// Something is to be submitted or written.
    pub flush: Notify,
    /// A flush is done.
    pub drained: Notify,
    /// The store took some of what was waiting.
    pub room: Notify,
    /// A new subscription to `$SYS/` waits for its first values.
    pub sys_asked: Notify,
    /// A deadline has come in front of the one that the timers sleep for.
    pub tick: Notify,
    /// When the timers wake up by themselves.
    pub asleep_until: Cell<Mono>,
    /// Logins wait to be checked.
    pub logins: Notify,
    /// By the slot number in the identifier; an entry counts only if the whole identifier fits.
    peers: RefCell<Vec<Option<Place>>>,
    store: RefCell<Option<Store>>,
    failure: RefCell<Option<String>>,
    failing: Notify,
    clock: Clock,
    store_queue_bytes_max: u64,
}

impl Shell {
    /// Around a hub and an open store.
    #[must_use]
    pub fn new(hub: Hub, store: Store, clock: Clock, store_queue_bytes_max: u64) -> Self {
        Self {
            hub: RefCell::new(hub),
            scratch: RefCell::new(vec![0; READ_BYTES].into_boxed_slice()),
            plain: RefCell::default(),
            flush: Notify::new(),
            drained: Notify::new(),
            room: Notify::new(),
            sys_asked: Notify::new(),
            tick: Notify::new(),
            asleep_until: Cell::default(),
            logins: Notify::new(),
            peers: RefCell::new(Vec::new()),
            store: RefCell::new(Some(store)),
            failure: RefCell::new(None),
            failing: Notify::new(),
            clock,
            store_queue_bytes_max,
        }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Now {
        self.clock.now()
    }

    /// When `mono` is, for timers.
    #[must_use]
    pub fn instant(&self, mono: Mono) -> tokio::time::Instant {
        self.clock.instant(mono).into()
    }

    /// Wakes the timers if they would sleep beyond the next deadline. To be called wherever the hub may have set one.
    pub fn watch_deadlines(&self, hub: &Hub) {
        if hub.next_deadline().is_some_and(|at| at < self.asleep_until.get()) {
            self.tick.notify_one();
        }
    }

    /// Calls `f` with the store, unless it is closed.
    pub fn with_store<T>(&self, f: impl FnOnce(&Store) -> T) -> Option<T> {
        self.store.borrow().as_ref().map(f)
    }

    /// Hands the round's operations to the store, then the page requests, which must see them.
    pub fn submit(&self, hub: &mut Hub, now: Now) {
        self.submit_by(hub, now, Store::submit);
    }

    /// A lone batch is to be committed on this thread, after what can be written before it.
    pub fn commits_here(&self, hub: &mut Hub, now: Now) -> bool {
        hub.is_calm(now) && self.with_store(Store::is_quick) == Some(true)
    }

    /// As [`submit`](Self::submit), and the batch is durable afterwards, if all goes well: the receipt waits.
    pub fn commit_here(&self, hub: &mut Hub, now: Now) {
        self.submit_by(hub, now, Store::commit_here);
    }

    fn submit_by(&self, hub: &mut Hub, now: Now, submit: impl FnOnce(&Store, Batch)) {
        self.with_store(|store| {
            if let Some(batch) = hub.take_batch(now) {
                submit(store, batch);
            }
            if hub.take_hurry() {
                store.hurry();
            }
            hub.take_loads().for_each(|request| store.load(request));
        });
    }

    /// As [`submit`](Self::submit), once the operations are many.
    pub fn submit_if_large(&self, hub: &mut Hub, now: Now) {
        if hub.batch_is_large() {
            self.submit(hub, now);
        }
    }

    /// The store is so far behind that nothing more may be read.
    #[must_use]
    pub fn store_is_behind(&self) -> bool {
        self.store.borrow().as_ref().is_some_and(|store| store.pending_memory() > self.store_queue_bytes_max)
    }

    /// Remembers how to write to a connection.
    pub fn add_peer(&self, id: ConnId, io: PeerIo) {
        let key = index(id);
        let mut peers = self.peers.borrow_mut();
        if peers.len() <= key {
            peers.resize_with(key + 1, || None);
        }
        peers[key] = Some((id, Rc::new(io)));
    }

    /// How to write to a connection.
    #[must_use]
    pub fn peer(&self, id: ConnId) -> Option<Rc<PeerIo>> {
        match self.peers.borrow().get(index(id)) {
            Some(Some((owner, io))) if *owner == id => Some(Rc::clone(io)),
            _ => None,
        }
    }

    /// Nothing waits between the connection's outbox and its socket.
    #[must_use]
    pub fn layers_are_empty(&self, id: ConnId) -> bool {
        self.peer(id).is_none_or(|peer| match &*peer {
            PeerIo::Socket { layers: Some(layers), .. } => !layers.borrow().has_output(),
            PeerIo::Socket { layers: None, .. } | PeerIo::Port(_) => true,
        })
    }

    /// Nothing more is written to a connection.
    pub fn forget_peer(&self, id: ConnId) {
        let mut peers = self.peers.borrow_mut();
        if let Some(place) = peers.get_mut(index(id))
            && place.as_ref().is_some_and(|(owner, _)| *owner == id)
        {
            *place = None;
        }
    }

    /// The connection is over: the hub and the socket table forget it.
    pub fn remove(&self, id: ConnId) {
        let now = self.now();
        self.hub.borrow_mut().closed(id, now);
        if let Some(peer) = self.peer(id)
            && let PeerIo::Socket { half, blocked, .. } = &*peer
            && blocked.get()
        {
            // A task waits for the peer to take more, which may never happen, and holds the socket.
            half.shutdown(Shutdown::Both);
        }
        self.forget_peer(id);
        self.flush.notify_one();
        self.drained.notify_waiters();
    }

    /// The store reported a failure.
    pub fn fail(&self, reason: String) {
        self.failure.borrow_mut().get_or_insert(reason);
        self.failing.notify_one();
    }

    /// Waits for a failure of the store.
    pub async fn failed(&self) -> String {
        loop {
            if let Some(reason) = self.failure.borrow().clone() {
                return reason;
            }
            self.failing.notified().await;
        }
    }

    /// Tells every client that the process stops.
    pub fn shutdown(&self) {
        let now = self.now();
        self.hub.borrow_mut().shutdown(now);
        self.flush.notify_one();
    }

    /// No connection is left.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.hub.borrow().connections() == 0
    }

    /// Closes the store after everything was submitted.
    ///
    /// # Errors
    /// When its last commit fails.
    pub fn close_store(&self) -> Result<(), StoreError> {
        let Some(store) = self.store.borrow_mut().take() else { return Ok(()) };
        if let Some(batch) = self.hub.borrow_mut().take_batch(self.clock.now()) {
            store.submit(batch);
        }
        store.close()
    }
}

fn index(id: ConnId) -> usize {
    (id.0 & u64::from(u32::MAX)) as usize
}
