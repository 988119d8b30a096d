//! The gate at which the driver hands over its batches, and where the writer's thread sleeps.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::checkpoint::Outcome;
use super::contract::{Batch, PageRequest};

/// Batches that nobody waits for are written once they have this many bytes.
pub const LINGER_BYTES_MAX: u64 = 256 << 10;

/// What the driver hands over, in order.
pub enum Item {
    /// To be made durable.
    Batch(Batch),
    /// To be answered once everything before is in the index.
    Load(PageRequest),
    /// Somebody waits for what came before.
    Hurry,
}

/// How a store is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Not yet.
    Open,
    /// Commit everything, take a last checkpoint.
    Close,
    /// Stop at once.
    Abandon,
}

/// What the writer's thread sleeps for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// For no batch.
    No,
    /// For anything at all.
    Idle,
    /// Until the linger time is over, or for something urgent.
    Armed,
}

struct Inbox {
    items: VecDeque<Item>,
    bytes: u64,
    urgent: bool,
    outcome: Option<Outcome>,
    /// Somebody wants everything moved to the cold tier.
    wanted: bool,
    ending: Ending,
    failed: bool,
    /// The worker was lent, and is not as the thread has left it.
    changed: bool,
    waiting: Waiting,
}

/// Where the driver and the threads meet.
pub struct Gate {
    inbox: Mutex<Inbox>,
    bell: Condvar,
}

impl Default for Gate {
    fn default() -> Self {
        let inbox = Inbox {
            items: VecDeque::new(),
            bytes: 0,
            urgent: false,
            outcome: None,
            wanted: false,
            ending: Ending::Open,
            failed: false,
            changed: false,
            waiting: Waiting::No,
        };
        Self { inbox: Mutex::new(inbox), bell: Condvar::new() }
    }
}

impl Gate {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over a batch. Wakes the writer only if it has reason to work now.
    pub fn submit(&self, batch: Batch) {
        let mut inbox = self.inbox();
        inbox.urgent |= batch.urgent;
        inbox.bytes += batch.memory as u64;
        inbox.items.push_back(Item::Batch(batch));
        self.ring(inbox);
    }

    /// Hands over a page request.
    pub fn load(&self, request: PageRequest) {
        let mut inbox = self.inbox();
        inbox.urgent = true;
        inbox.items.push_back(Item::Load(request));
        self.ring(inbox);
    }

    /// What was handed over before is urgent now.
    pub fn hurry(&self) {
        let mut inbox = self.inbox();
        inbox.urgent = true;
        inbox.items.push_back(Item::Hurry);
        self.ring(inbox);
    }

    /// Says how to end.
    pub fn end(&self, ending: Ending) {
        self.inbox().ending = ending;
        self.bell.notify_all();
    }

    /// Makes the writer look around: something has failed.
    pub fn wake(&self) {
        self.inbox().failed = true;
        self.bell.notify_all();
    }

    /// Asks for a checkpoint of everything; to be repeated until it is there.
    pub fn want_checkpoint(&self) {
        self.inbox().wanted = true;
        self.bell.notify_all();
    }

    /// A checkpoint has ended.
    pub fn put_outcome(&self, outcome: Outcome) {
        self.inbox().outcome = Some(outcome);
        self.bell.notify_all();
    }

    /// Hands over a batch that the caller, who holds the worker, is about to take out again.
    pub fn pass(&self, batch: Batch, items: &mut VecDeque<Item>) {
        let mut inbox = self.inbox();
        inbox.items.push_back(Item::Batch(batch));
        Self::move_items(&mut inbox, items);
    }

    /// What the writer's thread sleeps for is no longer right: it must look again.
    pub fn change(&self) {
        self.inbox().changed = true;
        self.bell.notify_all();
    }

    fn ring(&self, inbox: MutexGuard<'_, Inbox>) {
        let wake = match inbox.waiting {
            Waiting::No => false,
            Waiting::Idle => true,
            Waiting::Armed => inbox.urgent || inbox.bytes >= LINGER_BYTES_MAX,
        };
        // The writer takes the lock as soon as it wakes: it must not find it held.
        drop(inbox);
        if wake {
            self.bell.notify_all();
        }
    }

    /// Sleeps until there is reason to work or `until` has come.
    pub fn wait(&self, wish: Wish) {
        let mut inbox = self.inbox();
        loop {
            let for_items = match wish.waiting {
                Waiting::Idle => !inbox.items.is_empty(),
                Waiting::Armed => inbox.urgent || inbox.bytes >= LINGER_BYTES_MAX,
                Waiting::No => false,
            };
            let ended = inbox.ending == Ending::Abandon || (inbox.ending == Ending::Close && wish.may_end);
            let now = Instant::now();
            if for_items
                || inbox.outcome.is_some()
                || (inbox.wanted && wish.may_end)
                || ended
                || inbox.failed
                || inbox.changed
                || now >= wish.until
            {
                return;
            }
            inbox.waiting = wish.waiting;
            let result = self.bell.wait_timeout(inbox, wish.until - now);
            inbox = result.unwrap_or_else(PoisonError::into_inner).0;
            inbox.waiting = Waiting::No;
        }
    }

    /// Moves what was handed over to `items`. To be called by who holds the worker: what is taken first is staged first.
    pub fn take(&self, items: &mut VecDeque<Item>) -> Taken {
        let mut inbox = self.inbox();
        Self::move_items(&mut inbox, items);
        inbox.changed = false;
        let wanted = std::mem::take(&mut inbox.wanted);
        Taken { outcome: inbox.outcome.take(), ending: inbox.ending, wanted }
    }

    fn move_items(inbox: &mut Inbox, items: &mut VecDeque<Item>) {
        items.append(&mut inbox.items);
        inbox.urgent = false;
        inbox.bytes = 0;
    }
}

/// What the writer's thread finds at the gate.
pub struct Taken {
    /// The checkpoint has ended so.
    pub outcome: Option<Outcome>,
    /// Whether and how the store ends.
    pub ending: Ending,
    /// Somebody wants everything moved to the cold tier.
    pub wanted: bool,
}

/// How the writer's thread sleeps.
#[derive(Clone, Copy)]
pub struct Wish {
    /// For which batches.
    pub waiting: Waiting,
    /// At most until then.
    pub until: Instant,
    /// The end of the store and wishes of operators wake it.
    pub may_end: bool,
}
