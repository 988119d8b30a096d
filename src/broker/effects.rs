//! What the broker hands to its driver: the batch being built, the answers that wait for the store, and the effects.
//!
//! Invariant I1: an answer that needs a batch is in [`Waiters`] until a receipt covers that batch. The list is in the order in
//! which the answers were given; as batches become durable in order, it is released from its front.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::broker::api::{ClientEvent, ConnId};
use crate::message::Message;
use crate::queue::Queue;
use crate::session::SessionKey;
use crate::store::contract::{Batch, BatchId, Op, PageRequest, QueueId, Seq, Space, Target, Targets};
use crate::time::{Mono, Now};

/// Something for the driver to do, in order.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Send this to the connection.
    Client(ConnId, ClientEvent),
    /// Ask the store for messages; the answer comes back as `StoreEvent::Page`.
    Load(PageRequest),
}

/// The batch that is being built. Its identifier is the one it will have if anything joins it.
///
/// It may be *held*: publishers' acknowledgements alone wait for it, and the time they may be held is not over. A message that
/// is settled while its batch is held leaves the batch again, queue by queue; the store never hears of it.
#[derive(Debug)]
pub(super) struct Building {
    id: BatchId,
    /// A message that all queues have settled keeps its place, without targets.
    ops: Vec<Op>,
    memory: usize,
    urgent: bool,
    /// Acknowledgements wait that may be held.
    waited_for: bool,
    /// Nothing is held beyond this point.
    deadline: Option<Mono>,
    hold_millis: u32,
    /// Operations without targets.
    void: usize,
    /// Where each message of the batch is, while it may leave again.
    places: HashMap<(QueueId, Seq), u32>,
    /// The last batch before this one that somebody waits for.
    needed: BatchId,
    /// Up to here the store knows that somebody waits.
    urgent_through: BatchId,
}

/// A batch is held only up to this size, in bytes of memory.
const HELD_BYTES_MAX: usize = 1 << 20;

impl Building {
    pub(super) fn new(hold_millis: u32) -> Self {
        Self {
            id: BatchId(1),
            ops: Vec::new(),
            memory: 0,
            urgent: false,
            waited_for: false,
            deadline: None,
            hold_millis,
            void: 0,
            places: HashMap::new(),
            needed: BatchId(0),
            urgent_through: BatchId(0),
        }
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

    /// Somebody waits for this batch, and it is not held.
    pub(super) fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// Somebody waits for an earlier batch, which may have gone without anybody waiting.
    pub(super) fn need(&mut self, batch: BatchId) {
        self.needed = self.needed.max(batch);
    }

    /// Somebody waits for a batch that the store believes to have time; said once.
    pub(super) fn take_hurry(&mut self, committed: BatchId) -> bool {
        let hurry = self.needed > self.urgent_through.max(committed);
        if hurry {
            self.urgent_through = BatchId(self.id.0 - 1);
        }
        hurry
    }

    /// A publisher waits for this batch: its acknowledgement may be held.
    pub(super) fn make_awaited(&mut self) {
        if self.hold_millis == 0 { self.urgent = true } else { self.waited_for = true }
    }

    /// Whatever is in the batch must get to the store in this turn.
    pub(super) fn end_hold(&mut self) {
        self.deadline = Some(Mono(0));
    }

    /// When the batch must go, if it is held.
    pub(super) fn deadline(&self) -> Option<Mono> {
        self.deadline.filter(|_| !self.ops.is_empty())
    }

    /// Something was to be written, or somebody waits for it, but nothing is there: it will not be submitted. That is so when a held
    /// message was settled, or when all that waits comes of messages that passing sessions alone wanted.
    pub(super) fn is_void_as_a_whole(&self) -> bool {
        self.ops.len() == self.void && (self.void > 0 || self.waited_for || self.urgent)
    }

    /// Those who waited for it wait for the batch before it now: it begins anew.
    pub(super) fn give_up(&mut self) {
        assert!(self.ops.len() == self.void, "I1: what was to be written is written");
        if self.urgent || self.waited_for {
            self.need(BatchId(self.id.0 - 1));
        }
        self.reset();
    }

    /// All that wanted the message at `place` of batch `batch` have settled it: it is not going to be written.
    pub(super) fn is_void(&self, batch: BatchId, place: usize) -> bool {
        batch == self.id
            && matches!(self.ops.get(place), Some(Op::Enqueue { targets, .. }) if targets.is_empty())
    }

    /// A message joins its queues; returns the operation's place.
    pub(super) fn enqueue(&mut self, message: Message, targets: Targets) -> usize {
        self.memory += message.memory() + size_of::<Op>() + (targets.len() - 1) * size_of::<Target>();
        if self.hold_millis > 0 {
            let place = u32::try_from(self.ops.len()).unwrap_or(u32::MAX);
            self.places.extend(targets.iter().map(|target| ((target.queue, target.seq), place)));
        }
        self.ops.push(Op::Enqueue { message, targets });
        self.ops.len() - 1
    }

    /// The message `seq` of a queue is done with; 0: it was handed out before the queue had a copy in the store. Runs grow
    /// where they stand. Returns whether a message has left the batch for good.
    pub(super) fn settle(&mut self, queue: &mut Queue, seq: Seq, size: u32) -> bool {
        let Some(id) = queue.id().filter(|_| seq > 0) else { return false };
        if self.hold_millis > 0 && queue.is_lasting() && queue.may_leave_out(seq) && self.take_out(id, seq) {
            queue.left_out();
            return true;
        }
        self.settle_stored(queue, seq, size);
        false
    }

    /// As [`settle`](Self::settle) for a message that does not leave the batch: it goes on somewhere else.
    pub(super) fn settle_stored(&mut self, queue: &mut Queue, seq: Seq, size: u32) {
        let Some(id) = queue.id().filter(|_| seq > 0) else { return };
        queue.is_stored(seq);
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

    /// Messages of a queue that the broker's table does not hold are done with.
    pub(super) fn settle_run(&mut self, queue: QueueId, first: Seq, count: u64, bytes: u64) {
        self.memory += size_of::<Op>();
        self.ops.push(Op::Settle { queue, first, count, bytes });
    }

    /// Takes a queue's message out of the batch, if it is there.
    fn take_out(&mut self, queue: QueueId, seq: Seq) -> bool {
        let Some(place) = self.places.remove(&(queue, seq)) else { return false };
        let Some(Op::Enqueue { targets, .. }) = self.ops.get_mut(place as usize) else { return false };
        targets.retain(|target| target.queue != queue);
        self.void += usize::from(targets.is_empty());
        true
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

    /// What is to be submitted now. `None`: nothing is there, or it is held.
    pub(super) fn take(&mut self, now: Now) -> Option<Batch> {
        if self.ops.len() == self.void {
            assert!(!self.urgent && !self.waited_for, "I1: nobody waits for a batch that will never be");
            self.reset();
            return None;
        }
        if self.waited_for && !self.urgent && self.memory < HELD_BYTES_MAX {
            let deadline = *self.deadline.get_or_insert(now.mono.plus_millis(self.hold_millis.into()));
            if now.mono < deadline {
                return None;
            }
        }
        let room = self.ops.len().min(OPS_KEPT_MAX);
        let mut ops = std::mem::replace(&mut self.ops, Vec::with_capacity(room));
        if self.void > 0 {
            ops.retain(|op| !matches!(op, Op::Enqueue { targets, .. } if targets.is_empty()));
        }
        let urgent = self.urgent || self.waited_for;
        let batch = Batch { id: self.id, ops, urgent, wall: now.wall, memory: self.memory };
        if urgent {
            self.urgent_through = self.id;
        }
        self.id = BatchId(self.id.0 + 1);
        self.reset();
        Some(batch)
    }

    fn reset(&mut self) {
        self.ops.clear();
        self.places.clear();
        (self.memory, self.void) = (0, 0);
        (self.urgent, self.waited_for, self.deadline) = (false, false, None);
    }
}

/// Operations for which room is made in the next batch, judging from the last one.
const OPS_KEPT_MAX: usize = 4096;

/// An event that may leave when `batch` is durable.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) batch: BatchId,
    /// The place in the batch of the only operation that it waits for: a message that may leave the batch again.
    pub(super) place: Option<usize>,
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

    /// The next event whose batch is durable, or whose message all consumers have settled.
    pub(super) fn next_durable(&mut self, committed: BatchId, building: &Building) -> Option<Waiter> {
        let front = self.list.front()?;
        let is_void = || front.place.is_some_and(|place| building.is_void(front.batch, place));
        if front.batch > committed && !is_void() {
            return None;
        }
        self.list.pop_front()
    }

    /// The batch `never` will not be submitted, since nothing is left of it: its events wait for the one before it alone.
    pub(super) fn advance(&mut self, never: BatchId) {
        for waiter in self.list.iter_mut().filter(|waiter| waiter.batch >= never) {
            (waiter.batch, waiter.place) = (BatchId(never.0 - 1), None);
        }
    }

    /// The newest batch that anything for the session waits for, on an earlier connection too.
    pub(super) fn newest_of(&self, session: SessionKey) -> Option<BatchId> {
        self.list.iter().filter(|waiter| waiter.session == session).map(|waiter| waiter.batch).max()
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// The connection that waits for `batch`, if nothing else waits for the store.
    pub(super) fn only_one(&self, batch: BatchId) -> Option<ConnId> {
        let waiter = self.list.front().filter(|waiter| self.list.len() == 1 && waiter.batch == batch)?;
        Some(waiter.conn)
    }

    pub(super) fn clear(&mut self) {
        self.list = VecDeque::new();
    }
}
