//! The broker: the one state machine that owns sessions, routing and queues.
//!
//! It has no clock, socket, file or thread. A driver calls, in each turn: [`handle`](Broker::handle) for every command,
//! [`store_event`](Broker::store_event) for every event of the store, [`tick`](Broker::tick) when
//! [`next_deadline`](Broker::next_deadline) has come; then [`take_batch`](Broker::take_batch), which it submits to the store;
//! and only then [`take_effects`](Broker::take_effects), which it carries out in order. So a page request never overtakes the
//! operations before it, and no delivery the message that it delivers.
//!
//! Invariants (asserted where they could break, and checked as a whole by `check`): I1 an acknowledgement leaves only after the
//! receipt for its batch; I2 queue cursors are in order and sequence numbers are never reused; I3 order in = order out per
//! publisher, topic and quality of service; I4 counters equal a full scan; I5 the memory of queued messages stays within its
//! budget, but for one message per page under way; I7 after a store error nothing leaves; I8 a QoS 2 message is durable under
//! its identifier before it is sent, and settled before it is released.

mod access;
mod acks;
pub mod api;
mod behind;
#[cfg(any(test, feature = "simulation"))]
mod check;
mod connect;
mod consume;
pub mod dead;
mod deliver;
pub mod desk;
mod disconnect;
mod effects;
mod expiry;
mod groups;
mod loads;
mod prepared;
mod promote;
mod publish;
mod queues;
mod restore;
mod retain;
mod scan;
mod spill;
mod stats;
mod subscribe;
mod sys;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod tests_hold;
mod tick;
mod transact;
mod waiting;
mod wills;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use hashbrown::HashMap;
use slab::Slab;

use crate::access::Identity;
use crate::limits::Limits;
use crate::queue::group::{Group, GroupKey};
use crate::queue::window::Budget;
use crate::queue::{Queue, QueueKey, QueueRef};
use crate::router::{Retained, Router};
use crate::session::{Session, SessionKey};
use crate::store::contract::{Batch, BatchId, Capacity, QueueId, StoreEvent};
use crate::time::{Mono, Now};
use api::{ClientCommand, ClientEvent, CloseReason, ConnId};
use effects::{Building, Waiters};
use prepared::PreparedTable;
use publish::Planned;
use tick::Timer;
use wills::PendingWill;

pub use access::{AccessRules, SessionAccess};
pub use effects::Effect;
pub use prepared::PreparedStatus;
pub use restore::RestoreError;
pub use stats::{Gauges, QueueStatus, SessionStatus, Stats};
pub(crate) use transact::Transactions;

/// The broker. See the module's text for the order of calls.
#[derive(Debug)]
pub struct Broker {
    limits: Limits,
    access: AccessRules,
    conns: HashMap<ConnId, SessionKey>,
    sessions: Slab<Session>,
    clients: HashMap<Arc<str>, SessionKey>,
    queues: Slab<Queue>,
    queue_keys: HashMap<QueueId, QueueKey>,
    groups: Slab<Group>,
    group_keys: HashMap<Box<str>, GroupKey>,
    named_queues: u32,
    /// The batch that the newest named queue was made in.
    named_batch: BatchId,
    /// Memory of all open transactions.
    transaction_bytes: u64,
    /// What transactions have in the store.
    spills: spill::Spills,
    prepared: PreparedTable,
    /// The batch of the newest decision.
    decided_batch: BatchId,
    /// Commands that find no room may be given back.
    may_wait: waiting::MayWait,
    /// The command in hand, which found no room.
    given_back: Option<Box<ClientCommand>>,
    /// How often the store has become free again, or a transaction has moved.
    freed: u64,
    /// A transaction is being carried out: nothing that it causes leaves before this batch is durable.
    committing: Option<BatchId>,
    behind: behind::Behind,
    /// The last answer that refuses what a client asked for, until somebody takes it.
    refusal: Option<ClientEvent>,
    router: Router,
    retained: Retained,
    /// The last batch that a client's message changed a retained row in.
    retained_batch: BatchId,
    retained_expiry: Option<Mono>,
    wills: HashMap<Arc<str>, PendingWill>,
    timers: BTreeSet<(Mono, Timer)>,
    batch: Building,
    waiters: Waiters,
    committed: BatchId,
    effects: Vec<Effect>,
    budget: Budget,
    loads: u32,
    loads_wanted: VecDeque<QueueRef>,
    retained_ready: VecDeque<SessionKey>,
    plan: Vec<Planned>,
    subscriptions: usize,
    /// Their memory in the sessions; the router counts its own.
    subscription_bytes: usize,
    next_queue: QueueId,
    next_serial: u32,
    seed: u64,
    full: bool,
    failed: bool,
    stopping: bool,
    stats: Stats,
    sys: sys::SysTopics,
}

impl Broker {
    /// An empty broker. `seed` makes the client identifiers that it assigns hard to guess.
    #[must_use]
    pub fn new(limits: Limits, seed: u64) -> Self {
        Self {
            retained: Retained::new(&limits),
            retained_batch: BatchId(0),
            retained_expiry: None,
            budget: Budget::new(limits.queue_memory_bytes_max),
            batch: Building::new(limits.hold_millis),
            limits,
            access: AccessRules::default(),
            conns: HashMap::new(),
            sessions: Slab::new(),
            clients: HashMap::new(),
            queues: Slab::new(),
            queue_keys: HashMap::new(),
            groups: Slab::new(),
            group_keys: HashMap::new(),
            named_queues: 0,
            named_batch: BatchId(0),
            transaction_bytes: 0,
            spills: spill::Spills::default(),
            prepared: PreparedTable::default(),
            decided_batch: BatchId(0),
            committing: None,
            behind: behind::Behind::default(),
            refusal: None,
            may_wait: waiting::MayWait::No,
            given_back: None,
            freed: 0,
            router: Router::new(),
            wills: HashMap::new(),
            timers: BTreeSet::new(),
            waiters: Waiters::default(),
            committed: BatchId(0),
            effects: Vec::new(),
            loads: 0,
            loads_wanted: VecDeque::new(),
            retained_ready: VecDeque::new(),
            plan: Vec::new(),
            subscriptions: 0,
            subscription_bytes: 0,
            next_queue: QueueId(1),
            next_serial: 0,
            seed,
            full: false,
            failed: false,
            stopping: false,
            stats: Stats::default(),
            sys: sys::SysTopics::default(),
        }
    }

    /// The bounds in force.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// A command of the connection `conn`. Commands of a connection that is unknown or closed are counted and ignored.
    pub fn handle(&mut self, conn: ConnId, command: ClientCommand, now: Now) {
        if self.failed || self.stopping {
            self.stats.commands_ignored += 1;
            return;
        }
        if let ClientCommand::Connect(request) = command {
            return self.connect_as(conn, *request, Identity::default(), now);
        }
        let Some(&key) = self.conns.get(&conn) else {
            self.stats.commands_ignored += 1;
            return;
        };
        match command {
            ClientCommand::Publish(request) => self.publish(key, request, now),
            ClientCommand::Settle { delivery, accepted: true } => self.settle(key, delivery, true, now),
            ClientCommand::Settle { delivery, accepted: false } => self.reject_for_good(key, delivery, now),
            ClientCommand::Reject { delivery, requeue } => self.reject(key, delivery, requeue, now),
            ClientCommand::DeadLetter { delivery, message } => self.poison(key, delivery, &message, now),
            ClientCommand::Consume(request) => self.consume(key, *request, now),
            ClientCommand::Cancel { tag, consumer, requeue } => {
                self.cancel(key, tag, consumer, requeue, now);
            }
            ClientCommand::Begin { tag, transaction } => self.begin(key, tag, transaction),
            ClientCommand::Act { tag, transaction, action } => self.act(key, tag, transaction, action),
            ClientCommand::Commit { tag, transaction } => self.commit(key, tag, transaction, now),
            ClientCommand::Prepare { tag, transaction, xid } => self.prepare(key, tag, transaction, xid, now),
            ClientCommand::Decide { tag, xid, commit } => self.decide_for(key, tag, &xid, commit, now),
            ClientCommand::Abort { tag, transaction } => self.abort(key, tag, transaction),
            ClientCommand::Received { delivery } => self.received(key, delivery, now),
            ClientCommand::Completed { delivery } => self.completed(key, delivery, now),
            ClientCommand::Release { tag } => self.release_inbound(key, tag),
            ClientCommand::Subscribe { tag, subscription_id, filters } => {
                self.subscribe(key, tag, subscription_id, &filters, now);
            }
            ClientCommand::Unsubscribe { tag, filters } => self.unsubscribe(key, tag, &filters, now),
            ClientCommand::Sync { tag } => self.sync(key, tag),
            ClientCommand::Disconnect { with_will, expiry } => self.disconnect(key, with_will, expiry, now),
            ClientCommand::Lost | ClientCommand::Connect(_) => self.drop_connection(key, now),
        }
    }

    /// An event of the store.
    pub fn store_event(&mut self, event: StoreEvent, now: Now) {
        match event {
            StoreEvent::Committed(receipt) => {
                if !self.failed {
                    self.release_waiters(receipt.through(), now);
                }
            }
            StoreEvent::Page(page) => self.page(page, now),
            StoreEvent::Capacity(capacity) => {
                self.full = capacity == Capacity::Full;
                self.freed += u64::from(!self.full);
            }
            StoreEvent::Failed(_) => {
                self.failed = true;
                self.waiters.clear();
                self.effects.clear();
            }
        }
    }

    /// Moves all effects into `out`, in order. Call it after [`take_batch`](Self::take_batch).
    pub fn take_effects(&mut self, out: &mut Vec<Effect>) {
        if out.is_empty() {
            std::mem::swap(out, &mut self.effects);
        } else {
            out.append(&mut self.effects);
        }
    }

    /// All operations since the last call; `None` when there are none, when they are held, or when the store has failed.
    pub fn take_batch(&mut self, now: Now) -> Option<Batch> {
        if self.failed {
            return None;
        }
        if self.stopping {
            self.batch.end_hold();
        }
        // What is released may cause something new.
        while self.batch.is_void_as_a_whole() {
            self.waiters.advance(self.batch.id());
            self.behind.advance(self.batch.id());
            self.batch.give_up();
            self.release_waiters(self.committed, now);
        }
        self.batch.take(now)
    }

    /// The answer that refuses what a client has asked for since the last call, if one does. It is on its way as well, perhaps behind
    /// earlier answers that wait for the store.
    pub fn take_refusal(&mut self) -> Option<ClientEvent> {
        self.refusal.take()
    }

    fn note_refusal(&mut self, event: &ClientEvent) {
        self.refusal = Some(event.clone());
    }

    /// Somebody waits for a batch that was taken when nobody did: the store must not let it linger. To be asked after
    /// [`take_batch`](Self::take_batch).
    pub fn take_hurry(&mut self) -> bool {
        self.batch.take_hurry(self.committed)
    }

    /// Somebody waits for the batch being built, and it is not held.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.batch.is_urgent()
    }

    /// The connection that waits for the batch being built, if it is the only one that waits for the store.
    #[must_use]
    pub fn lone_waiter(&self) -> Option<ConnId> {
        self.waiters.only_one(self.batch.id())
    }

    /// Operations wait to be taken, and are not held.
    #[must_use]
    pub fn has_batch(&self) -> bool {
        !self.failed && self.batch.memory() > 0 && self.batch.deadline().is_none()
    }

    /// Memory of the operations that the next batch will hold so far, in bytes. The store bounds the size of one batch, so a
    /// driver takes it before it grows large.
    #[must_use]
    pub fn batch_memory(&self) -> usize {
        self.batch.memory()
    }

    /// While a connection is congested, QoS 0 messages for it are dropped and others wait in its queue.
    pub fn set_congested(&mut self, conn: ConnId, congested: bool, now: Now) {
        let Some(&key) = self.conns.get(&conn) else { return };
        let session = &mut self.sessions[key as usize];
        let was = std::mem::replace(&mut session.congested, congested);
        if was && !congested {
            self.pump_session(key, now);
        }
    }

    /// Ends the client's connection as an operator's request; `false` when it has none.
    pub fn disconnect_client(&mut self, client_id: &str, now: Now) -> bool {
        let Some(&key) = self.clients.get(client_id) else { return false };
        self.close(key, CloseReason::Administrative, now)
    }

    /// Ends the client's session with everything it has; `false` when there is none.
    pub fn delete_session(&mut self, client_id: &str, now: Now) -> bool {
        let Some(&key) = self.clients.get(client_id) else { return false };
        self.close(key, CloseReason::Administrative, now);
        if let Some(&key) = self.clients.get(client_id) {
            self.end_session(key, now);
        }
        true
    }

    /// Ends every connection. Sessions go on as if the connections had been lost, but wills are not published: they are
    /// stored, and after the restart their clients get the usual time to come back.
    pub fn shutdown(&mut self, now: Now) {
        self.stopping = true;
        let mut keys: Vec<SessionKey> = self.conns.values().copied().collect();
        keys.sort_unstable();
        for key in keys {
            self.close(key, CloseReason::ShuttingDown, now);
        }
    }

    /// Sends `Close` and drops the connection; `false` when there is none.
    fn close(&mut self, key: SessionKey, reason: CloseReason, now: Now) -> bool {
        let Some(conn) = self.sessions[key as usize].conn else { return false };
        self.effects.push(Effect::Client(conn, ClientEvent::Close(reason)));
        self.drop_connection(key, now);
        true
    }

    /// The peer broke the rules.
    fn violation(&mut self, key: SessionKey, now: Now) {
        self.stats.violations += 1;
        self.close(key, CloseReason::ProtocolViolation, now);
    }
}
