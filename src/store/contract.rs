//! What the broker asks of the store and what it hears back. Pure: no file, no thread.
//!
//! The store knows two things: **queues** of messages with per-queue sequence numbers, and **rows**, small keyed values in a
//! few spaces (sessions, subscriptions, retained messages, wills, QoS 2 state). Everything that must survive together is in
//! one [`Batch`]; a batch is durable as a whole or not at all, and batches become durable in the order of their identifiers.

use smallvec::SmallVec;

use crate::message::{DeliveryOptions, Message};
use crate::time::Wall;

/// A queue's number. Numbers are never reused, across restarts too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u32);

/// A message's place in its queue; the first one is 1. Numbers are never reused (invariant I2).
pub type Seq = u64;

/// A batch's number, counting from 1 in each run of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

/// The kinds of rows. The discriminant is the first byte of the stored key: never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Space {
    /// Client identifier -> session.
    Session = 1,
    /// Session number and filter -> subscription options.
    Subscription = 2,
    /// Topic -> retained message.
    Retained = 3,
    /// Client identifier -> will.
    Will = 4,
    /// Session number and packet identifier -> a QoS 2 message received and not yet released.
    InboundQos2 = 5,
    /// Session number and packet identifier -> a QoS 2 message sent and not yet completed.
    OutboundQos2 = 6,
    /// Group name and filter -> shared subscription's queue.
    Group = 7,
    /// Name -> anything that belongs to the broker as a whole.
    Broker = 8,
    /// Topic of a named queue -> its queue, and how far it was handed out.
    NamedQueue = 9,
    /// Number and part -> what a prepared transaction will do.
    Prepared = 10,
    /// Number -> the name of a transaction and what was decided.
    Decided = 11,
    /// Queue -> nothing: a committed transaction's messages, on their way from there to their targets.
    Moving = 12,
}

impl Space {
    /// The space for a stored discriminant.
    #[must_use]
    pub fn from_u8(byte: u8) -> Option<Self> {
        use Space::*;
        [
            Session,
            Subscription,
            Retained,
            Will,
            InboundQos2,
            OutboundQos2,
            Group,
            Broker,
            NamedQueue,
            Prepared,
            Decided,
            Moving,
        ]
        .into_iter()
        .find(|space| *space as u8 == byte)
    }
}

/// One queue that gets a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The queue.
    pub queue: QueueId,
    /// The message's place there: after the queue's last one. Numbers that are left out belong to messages that were settled
    /// before they got to the store; they count as settled.
    pub seq: Seq,
    /// How it is to be delivered.
    pub options: DeliveryOptions,
}

/// The queues that get one message; nearly always one.
pub type Targets = SmallVec<[Target; 1]>;

/// One change. Every operation is idempotent: applied again after a restart it changes nothing.
#[derive(Clone, Debug)]
pub enum Op {
    /// The message joins each target's tail. Its body is stored once in the ring.
    Enqueue {
        /// The message.
        message: Message,
        /// At least one.
        targets: Targets,
    },
    /// `count` messages from `first` on are done with (acknowledged, expired, dropped or purged) and will never be loaded
    /// again. A run holds only messages that were enqueued and not yet settled, or that a settled run already covers whole.
    Settle {
        /// The queue.
        queue: QueueId,
        /// The first message of the run.
        first: Seq,
        /// Length of the run, at least 1.
        count: u64,
        /// Sum of the messages' [`Message::size`].
        bytes: u64,
    },
    /// A new, empty queue. Its identifier is larger than any before it.
    CreateQueue {
        /// The queue.
        queue: QueueId,
    },
    /// The queue and all its messages are gone.
    DeleteQueue {
        /// The queue.
        queue: QueueId,
    },
    /// The row's new value.
    Put {
        /// Kind of row.
        space: Space,
        /// At most 65,535 bytes.
        key: Box<[u8]>,
        /// The value.
        value: Box<[u8]>,
    },
    /// The row is gone.
    Delete {
        /// Kind of row.
        space: Space,
        /// Its key.
        key: Box<[u8]>,
    },
}

/// Operations that become durable together.
#[derive(Debug)]
pub struct Batch {
    /// One more than the batch before it.
    pub id: BatchId,
    /// In order.
    pub ops: Vec<Op>,
    /// Somebody waits for the receipt: write and sync at once. A batch that is not urgent (consumers' acknowledgements, say)
    /// rides with the next urgent one or waits for the store's linger time.
    pub urgent: bool,
    /// The newest reading of the stable timeline; recovered as [`Recovered::newest_wall`].
    pub wall: Wall,
    /// Memory that the operations keep alive, in bytes: the unit of the bound on what may wait for the store.
    pub memory: usize,
}

/// The receipt. Only the store makes one: after the sync of the group that holds the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Committed {
    through: BatchId,
}

impl Committed {
    /// For the store's writer alone, after a successful sync.
    pub(in crate::store) fn through_batch(through: BatchId) -> Self {
        Self { through }
    }

    /// A receipt for tests of the pure modules, which run without a store.
    #[cfg(any(test, feature = "simulation"))]
    #[must_use]
    pub fn for_test(through: BatchId) -> Self {
        Self { through }
    }

    /// Every batch up to and including this one is durable.
    #[must_use]
    pub fn through(self) -> BatchId {
        self.through
    }
}

/// Asks for the next messages of a queue whose backlog is not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// The queue.
    pub queue: QueueId,
    /// The first sequence number wanted.
    pub from: Seq,
    /// Stop after the message that reaches this many bytes (sum of [`Message::size`]); at least one message comes if any is
    /// there.
    pub bytes_max: u32,
    /// Never more messages than this.
    pub messages_max: u32,
}

/// One message of a [`Page`].
#[derive(Clone, Debug)]
pub struct PageEntry {
    /// Its place in the queue.
    pub seq: Seq,
    /// How it is to be delivered.
    pub options: DeliveryOptions,
    /// The message.
    pub message: Message,
}

/// The answer to a [`PageRequest`]. It reflects every batch submitted before the request.
#[derive(Clone, Debug)]
pub struct Page {
    /// The queue.
    pub queue: QueueId,
    /// What was asked for.
    pub from: Seq,
    /// Unsettled messages in ascending order.
    pub entries: Vec<PageEntry>,
    /// Everything unsettled in `from..next` is in `entries`. Ask from here on for more. Equals the queue's tail (its last
    /// sequence number plus one, when the request was served) if nothing is left.
    pub next: Seq,
}

/// Whether the store can take more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Capacity {
    /// Normal.
    #[default]
    Free,
    /// The disk or the disk budget is full: submit no `Enqueue`; settling, deleting and loading go on.
    Full,
}

/// What the store tells the broker.
#[derive(Debug)]
pub enum StoreEvent {
    /// Batches became durable.
    Committed(Committed),
    /// Messages that were asked for.
    Page(Page),
    /// Capacity changed.
    Capacity(Capacity),
    /// A write or a sync failed. Nothing is acknowledged any more (invariant I7); the process stops with this message.
    Failed(String),
}

/// A queue as recovery found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveredQueue {
    /// The queue.
    pub queue: QueueId,
    /// Everything below is settled: the first sequence number that may be unsettled.
    pub head: Seq,
    /// The next message's sequence number.
    pub tail: Seq,
    /// Unsettled messages.
    pub messages: u64,
    /// Their sizes' sum.
    pub bytes: u64,
}

/// One recovered row.
pub type Row = (Space, Box<[u8]>, Box<[u8]>);

/// What the store knows after it was opened.
#[derive(Debug, Default)]
pub struct Recovered {
    /// All queues, in ascending order.
    pub queues: Vec<RecoveredQueue>,
    /// All rows, ordered by space and key.
    pub rows: Vec<Row>,
    /// The lowest identifier that no queue ever had.
    pub next_queue: QueueId,
    /// The newest [`Batch::wall`] that became durable.
    pub newest_wall: Wall,
    /// A damaged file was moved here, and the store started empty: an alarm.
    pub set_aside: Option<std::path::PathBuf>,
}
