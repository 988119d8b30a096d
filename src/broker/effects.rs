//! What the broker hands to its driver: the batch being built, the answers that wait for the store, and the effects.
//!
//! Invariant I1: an answer that needs a batch is in [`Waiters`] until a receipt covers that batch. The list is in the order in
//! which the answers were given; as batches become durable in order, it is released from its front.

use std::collections::VecDeque;

use crate::broker::api::{ClientEvent, ConnId};
use crate::message::Message;
use crate::queue::Queue;
use crate::session::SessionKey;
use crate::store::contract::{Batch, BatchId, Op, PageRequest, QueueId, Seq, Space, Target, Targets};
use crate::time::Wall;

/// Something for the driver to do, in order.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Send this to the connection.
    Client(ConnId, ClientEvent),
    /// Ask the store for messages; the answer comes back as `StoreEvent::Page`.
    Load(PageRequest),
}

/// The batch that is being built. Its identifier is the one it will have if anything joins it.
#[derive(Debug)]
pub(super) struct Building {
    id: BatchId,
    ops: Vec<Op>,
    memory: usize,
    urgent: bool,
}

impl Building {
    pub(super) fn new() -> Self {
        Self { id: BatchId(1), ops: Vec::new(), memory: 0, urgent: false }
    }

    pub(super) fn id(&self) -> BatchId {
        self.id
    }

    /// Memory that its operations keep alive, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// Somebody waits for this batch.
    pub(super) fn make_urgent(&mut self) {
        self.urgent = true;
    }

    pub(super) fn enqueue(&mut self, message: Message, targets: Targets) {
        self.memory += message.memory() + size_of::<Op>() + (targets.len() - 1) * size_of::<Target>();
        self.ops.push(Op::Enqueue { message, targets });
    }

    /// The message `seq` of a queue is done with; 0: it was handed out before the queue had a copy in the store. Runs grow
    /// where they stand.
    pub(super) fn settle(&mut self, queue: &mut Queue, seq: Seq, size: u32) {
        let Some(id) = queue.id().filter(|_| seq > 0) else { return };
        let (batch, at) = queue.settle_mark;
        if batch == self.id
            && queue.is_older_than_batch(seq, self.id)
            && let Some(Op::Settle { first, count, bytes, .. }) = self.ops.get_mut(at as usize)
            && *first + *count == seq
        {
            *count += 1;
            *bytes += u64::from(size);
            return;
        }
        queue.settle_mark = (self.id, u32::try_from(self.ops.len()).unwrap_or(u32::MAX));
        self.memory += size_of::<Op>();
        self.ops.push(Op::Settle { queue: id, first: seq, count: 1, bytes: u64::from(size) });
    }

    pub(super) fn create_queue(&mut self, queue: QueueId) {
        self.memory += size_of::<Op>();
        self.ops.push(Op::CreateQueue { queue });
    }

    pub(super) fn delete_queue(&mut self, queue: QueueId) {
        self.memory += size_of::<Op>();
        self.ops.push(Op::DeleteQueue { queue });
    }

    pub(super) fn put(&mut self, space: Space, key: Box<[u8]>, value: Box<[u8]>) {
        self.memory += size_of::<Op>() + key.len() + value.len();
        self.ops.push(Op::Put { space, key, value });
    }

    pub(super) fn delete(&mut self, space: Space, key: Box<[u8]>) {
        self.memory += size_of::<Op>() + key.len();
        self.ops.push(Op::Delete { space, key });
    }

    pub(super) fn take(&mut self, wall: Wall) -> Option<Batch> {
        if self.ops.is_empty() {
            assert!(!self.urgent, "I1: nobody waits for a batch that will never be");
            return None;
        }
        let room = self.ops.len().min(OPS_KEPT_MAX);
        let ops = std::mem::replace(&mut self.ops, Vec::with_capacity(room));
        let batch = Batch { id: self.id, ops, urgent: self.urgent, wall, memory: self.memory };
        self.id = BatchId(self.id.0 + 1);
        self.memory = 0;
        self.urgent = false;
        Some(batch)
    }
}

/// Operations for which room is made in the next batch, judging from the last one.
const OPS_KEPT_MAX: usize = 4096;

/// An event that may leave when `batch` is durable.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) batch: BatchId,
    pub(super) session: SessionKey,
    pub(super) conn: ConnId,
    pub(super) event: ClientEvent,
}

/// Events that wait for the store, in order. Their number is bounded by the connections' receive maxima and windows.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    list: VecDeque<Waiter>,
}

impl Waiters {
    pub(super) fn push(&mut self, waiter: Waiter) {
        self.list.push_back(waiter);
    }

    /// The next event whose batch is durable.
    pub(super) fn next_durable(&mut self, committed: BatchId) -> Option<Waiter> {
        if self.list.front()?.batch > committed {
            return None;
        }
        self.list.pop_front()
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn clear(&mut self) {
        self.list = VecDeque::new();
    }
}
