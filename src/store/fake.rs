//! A store in memory: small, strict and faithful to the contract. It keeps two states, one with everything that was submitted
//! (pages are served from it) and one with what is durable (a restart finds it).

use std::collections::{BTreeMap, VecDeque};

use crate::message::{DeliveryOptions, Message};
use crate::store::contract::{
    Batch, BatchId, Committed, Op, Page, PageEntry, PageRequest, QueueId, Recovered, RecoveredQueue, Seq,
    Space,
};
use crate::time::Wall;

#[derive(Clone, Default)]
pub(crate) struct StoredQueue {
    pub(crate) tail: Seq,
    pub(crate) entries: BTreeMap<Seq, (Message, DeliveryOptions)>,
}

type RowKey = (Space, Box<[u8]>);

#[derive(Clone, Default)]
pub(crate) struct State {
    pub(crate) queues: BTreeMap<QueueId, StoredQueue>,
    pub(crate) rows: BTreeMap<RowKey, Box<[u8]>>,
    next_queue: u32,
    newest: Wall,
}

impl State {
    fn apply(&mut self, op: &Op) {
        match op {
            Op::Enqueue { message, targets } => {
                assert!(!targets.is_empty(), "an enqueue has a target");
                for target in targets {
                    let queue = self.queues.get_mut(&target.queue).expect("the queue exists");
                    // Numbers are left out where a held message was settled before it got here.
                    assert!(target.seq >= queue.tail, "sequence numbers ascend");
                    queue.tail = target.seq + 1;
                    queue.entries.insert(target.seq, (message.clone(), target.options.clone()));
                }
            }
            Op::Settle { queue, first, count, bytes } => {
                let queue = self.queues.get_mut(queue).expect("the queue exists");
                let mut sum = 0;
                for seq in *first..first + count {
                    let (message, _) = queue.entries.remove(&seq).expect("a message is settled once");
                    sum += u64::from(message.size());
                }
                assert_eq!(sum, *bytes, "settled bytes are those that were enqueued");
            }
            Op::CreateQueue { queue } => {
                assert!(queue.0 >= self.next_queue.max(1), "queue numbers are never reused");
                self.next_queue = queue.0 + 1;
                self.queues.insert(*queue, StoredQueue { tail: 1, entries: BTreeMap::new() });
            }
            Op::DeleteQueue { queue } => {
                self.queues.remove(queue).expect("a queue is deleted once");
            }
            Op::Put { space, key, value } => {
                self.rows.insert((*space, key.clone()), value.clone());
            }
            Op::Delete { space, key } => {
                self.rows.remove(&(*space, key.clone()));
            }
        }
    }

    pub(crate) fn rows_of(&self, space: Space) -> usize {
        self.rows.keys().filter(|(other, _)| *other == space).count()
    }
}

#[derive(Default)]
pub(crate) struct FakeStore {
    pub(crate) applied: State,
    pub(crate) durable: State,
    waiting: VecDeque<Batch>,
    last: BatchId,
    pub(crate) urgent: u64,
}

impl FakeStore {
    pub(crate) fn submit(&mut self, batch: Batch) {
        assert_eq!(batch.id.0, self.last.0 + 1, "batches are numbered in order");
        assert!(!batch.ops.is_empty());
        self.last = batch.id;
        self.urgent += u64::from(batch.urgent);
        batch.ops.iter().for_each(|op| self.applied.apply(op));
        self.applied.newest = batch.wall;
        self.waiting.push_back(batch);
    }

    pub(crate) fn uncommitted(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn last_is_urgent(&self) -> Option<bool> {
        self.waiting.back().map(|batch| batch.urgent)
    }

    pub(crate) fn last_ops(&self) -> Vec<Op> {
        self.waiting.back().map(|batch| batch.ops.clone()).unwrap_or_default()
    }

    /// Makes the oldest `count` batches durable.
    pub(crate) fn commit(&mut self, count: usize) -> Option<Committed> {
        let mut through = None;
        for _ in 0..count.min(self.waiting.len()) {
            let batch = self.waiting.pop_front()?;
            batch.ops.iter().for_each(|op| self.durable.apply(op));
            self.durable.newest = batch.wall;
            through = Some(Committed::for_test(batch.id));
        }
        through
    }

    pub(crate) fn page(&self, request: PageRequest) -> Page {
        let (mut entries, mut bytes, mut next) = (Vec::new(), 0, request.from + 1);
        if let Some(queue) = self.applied.queues.get(&request.queue) {
            next = queue.tail.max(request.from);
            for (seq, (message, options)) in queue.entries.range(request.from..) {
                if bytes >= request.bytes_max || entries.len() >= request.messages_max as usize {
                    next = *seq;
                    break;
                }
                bytes += message.size();
                entries.push(PageEntry { seq: *seq, options: options.clone(), message: message.clone() });
            }
        }
        Page { queue: request.queue, from: request.from, entries, next }
    }

    /// Power fails: what is not durable is gone. What a new process finds.
    pub(crate) fn restart(&mut self) -> Recovered {
        self.waiting.clear();
        self.last = BatchId(0);
        self.applied = self.durable.clone();
        let queues = self.durable.queues.iter().map(|(id, queue)| RecoveredQueue {
            queue: *id,
            head: queue.entries.keys().next().copied().unwrap_or(queue.tail),
            tail: queue.tail,
            messages: queue.entries.len() as u64,
            bytes: queue.entries.values().map(|(message, _)| u64::from(message.size())).sum(),
        });
        Recovered {
            queues: queues.collect(),
            rows: self
                .durable
                .rows
                .iter()
                .map(|((space, key), value)| (*space, key.clone(), value.clone()))
                .collect(),
            next_queue: QueueId(self.durable.next_queue.max(1)),
            newest_wall: self.durable.newest,
            set_aside: None,
        }
    }
}
