//! What a store should hold, kept in plain maps, and random changes to it.

use std::collections::BTreeMap;

use super::contract::*;
use super::tests_support::{Random, enqueue, numbered, settle};
use crate::time::Wall;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelQueue {
    pub tail: Seq,
    /// Unsettled messages: number and length of the payload.
    pub live: BTreeMap<Seq, (u64, usize)>,
}

/// A payload that is stored in chunks.
const LARGE: usize = 61_000;

/// The expected content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    pub queues: BTreeMap<u32, ModelQueue>,
    pub rows: BTreeMap<(Space, Vec<u8>), Vec<u8>>,
    pub next_queue: u32,
    pub wall: u64,
    messages: u64,
}

pub fn size(entry: &(u64, usize)) -> u64 {
    u64::from(numbered(entry.0, entry.1).size())
}

impl ModelQueue {
    /// Everything below is settled.
    pub fn floor(&self) -> Seq {
        self.live.keys().next().copied().unwrap_or(self.tail)
    }
}

impl Model {
    pub fn new() -> Self {
        Self { next_queue: 1, ..Self::default() }
    }

    /// A random batch, which the model has seen already.
    pub fn random_batch(&mut self, random: &mut Random, id: u64) -> Batch {
        let mut ops = vec![];
        for _ in 0..=random.below(5) {
            self.random_op(random, &mut ops);
            let is_large =
                |op: &Op| matches!(op, Op::Enqueue { message, .. } if message.payload().len() >= LARGE);
            if ops.iter().any(is_large) {
                break;
            }
        }
        // A batch without operations is not written, and its time neither.
        self.wall += if ops.is_empty() { 0 } else { random.below(3) };
        Batch { id: BatchId(id), ops, urgent: true, wall: Wall(self.wall), memory: 0 }
    }

    fn random_op(&mut self, random: &mut Random, ops: &mut Vec<Op>) {
        let ids: Vec<u32> = self.queues.keys().copied().collect();
        if ids.is_empty() || (ids.len() < 6 && random.chance(40)) {
            let id = self.next_queue;
            self.next_queue += 1;
            self.queues.insert(id, ModelQueue { tail: 1, ..ModelQueue::default() });
            return ops.push(Op::CreateQueue { queue: QueueId(id) });
        }
        let id = ids[random.below(ids.len() as u64) as usize];
        match random.below(100) {
            0 => {
                self.queues.remove(&id);
                ops.push(Op::DeleteQueue { queue: QueueId(id) });
            }
            1..=49 => self.enqueue(id, random, ops),
            50..=89 => self.settle(id, random, ops),
            _ => self.row(random, ops),
        }
    }

    fn enqueue(&mut self, id: u32, random: &mut Random, ops: &mut Vec<Op>) {
        self.messages += 1;
        let len = match random.below(400) {
            // Alone in its batch: it takes most of what a record may have.
            0 if ops.is_empty() => LARGE as u64,
            1..=33 => random.below(9000),
            _ => random.below(300),
        };
        // Now and then a message goes to most queues, so that checkpoints have bodies to share.
        let others = if random.chance(3) { 1 + random.below(2) } else { 6 };
        let entry = (self.messages, len as usize);
        let message = numbered(entry.0, entry.1);
        let mut op = None;
        for (queue, state) in self.queues.iter_mut() {
            if *queue != id && !random.chance(others) {
                continue;
            }
            // What was settled before it got to the store.
            state.tail += if random.chance(10) { random.below(5) } else { 0 };
            state.live.insert(state.tail, entry);
            let single = enqueue(*queue, state.tail, message.clone());
            state.tail += 1;
            match (&mut op, single) {
                (Some(Op::Enqueue { targets, .. }), Op::Enqueue { targets: more, .. }) => {
                    targets.extend(more)
                }
                (op, single) => *op = Some(single),
            }
        }
        ops.extend(op);
    }

    fn settle(&mut self, id: u32, random: &mut Random, ops: &mut Vec<Op>) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        let keys: Vec<Seq> = queue.live.keys().copied().collect();
        if keys.is_empty() {
            return;
        }
        // Mostly in order, now and then from the middle.
        let at = if random.chance(4) { random.below(keys.len() as u64) as usize } else { 0 };
        let most = 1 + random.below(12);
        let first = keys[at];
        let count = (0..most).take_while(|i| queue.live.contains_key(&(first + i))).count() as u64;
        let bytes = (first..first + count).map(|seq| size(&queue.live.remove(&seq).unwrap())).sum();
        ops.push(settle(id, first, count, bytes));
        if random.chance(10) {
            ops.push(settle(id, first, count, bytes));
        }
    }

    fn row(&mut self, random: &mut Random, ops: &mut Vec<Op>) {
        let space = if random.chance(2) { Space::Retained } else { Space::Session };
        let key = vec![random.below(20) as u8];
        if random.chance(3) {
            self.rows.remove(&(space, key.clone()));
            return ops.push(Op::Delete { space, key: key.into() });
        }
        let value = vec![random.next() as u8; random.below(200) as usize];
        self.rows.insert((space, key.clone()), value.clone());
        ops.push(Op::Put { space, key: key.into(), value: value.into() });
    }

    /// The first difference between the model and what recovery reports; bodies are compared elsewhere.
    pub fn difference(&self, recovered: &Recovered) -> Option<String> {
        let queues: Vec<_> = self
            .queues
            .iter()
            .map(|(id, queue)| RecoveredQueue {
                queue: QueueId(*id),
                head: queue.floor(),
                tail: queue.tail,
                messages: queue.live.len() as u64,
                bytes: queue.live.values().map(size).sum(),
            })
            .collect();
        if queues != recovered.queues {
            return Some(format!("queues: expected {queues:?}, found {:?}", recovered.queues));
        }
        let rows: Vec<Row> = self
            .rows
            .iter()
            .map(|((space, key), value)| (*space, key.as_slice().into(), value.as_slice().into()))
            .collect();
        if rows != recovered.rows {
            return Some("rows".to_owned());
        }
        let rest = (QueueId(self.next_queue), Wall(self.wall));
        let found = (recovered.next_queue, recovered.newest_wall);
        (rest != found).then(|| format!("expected {rest:?}, found {found:?}"))
    }
}
