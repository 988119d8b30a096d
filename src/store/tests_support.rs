//! Helpers of the store's tests: batches, a driver that waits for events, and a small generator of random numbers.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::contract::*;
use super::shared::Notify;
use super::{Media, Store, StoreError, StoreOptions};
use crate::limits::Limits;
use crate::message::{DeliveryOptions, Message, MessageHead, Qos};
use crate::time::Wall;

/// Long enough for any event on a busy machine.
const EVENT_WAIT: Duration = Duration::from_secs(60);

pub fn options(path: &Path) -> StoreOptions {
    let limits = Limits { disk_reserve_bytes: 0, store_linger_millis: 20, ..Limits::default() };
    StoreOptions { ring_bytes: 1 << 20, ..StoreOptions::new(path.to_owned(), &limits) }
}

pub fn message(topic: &str, payload: &[u8]) -> Message {
    Message::new(topic, payload, MessageHead { qos: Qos::AtLeastOnce, ..MessageHead::default() })
}

pub fn numbered(n: u64, len: usize) -> Message {
    let mut payload = n.to_le_bytes().to_vec();
    payload.resize(len.max(8), n as u8);
    message("plant/7/temperature", &payload)
}

/// Like [`numbered`], of bytes that no two messages share: nothing can be squeezed.
pub fn noise(n: u64, len: usize) -> Message {
    let mut random = Random(n);
    let mut payload = n.to_le_bytes().to_vec();
    while payload.len() < len {
        payload.extend_from_slice(&random.next().to_le_bytes());
    }
    payload.truncate(len.max(8));
    message("plant/7/temperature", &payload)
}

pub fn enqueue(queue: u32, seq: Seq, message: Message) -> Op {
    let options = DeliveryOptions { qos: Qos::AtLeastOnce, ..DeliveryOptions::default() };
    Op::Enqueue { message, targets: [Target { queue: QueueId(queue), seq, options }].into_iter().collect() }
}

pub fn settle(queue: u32, first: Seq, count: u64, bytes: u64) -> Op {
    Op::Settle { queue: QueueId(queue), first, count, bytes }
}

/// An open store and the events it has sent.
pub struct Driver {
    pub store: Store,
    pub recovered: Recovered,
    bell: Receiver<()>,
    events: VecDeque<StoreEvent>,
    next_batch: u64,
    pub durable: BatchId,
    capacity: Option<Capacity>,
    failed: Option<String>,
}

impl Driver {
    pub fn open(options: StoreOptions) -> Result<Self, StoreError> {
        Self::open_with(|notify| Store::open(options, notify))
    }

    pub fn open_on(media: Arc<dyn Media>, options: StoreOptions) -> Result<Self, StoreError> {
        Self::open_with(|notify| Store::open_on(media, options, notify))
    }

    fn open_with(
        open: impl FnOnce(Notify) -> Result<(Store, Recovered), StoreError>,
    ) -> Result<Self, StoreError> {
        let (tx, bell) = sync_channel(1);
        let tx = Mutex::new(tx);
        let notify = Arc::new(move || {
            // A bell that rings already need not ring twice.
            let _ = tx.lock().unwrap().try_send(());
        });
        let (store, recovered) = open(notify)?;
        Ok(Self {
            store,
            recovered,
            bell,
            events: VecDeque::new(),
            next_batch: 0,
            durable: BatchId(0),
            capacity: None,
            failed: None,
        })
    }

    /// The capacity that was last told.
    pub fn seen_capacity(&self) -> Option<Capacity> {
        self.capacity
    }

    pub fn wait_for_capacity(&mut self) {
        let before = self.capacity;
        while self.capacity == before {
            self.wait();
        }
    }

    pub fn wait_failed(&mut self) -> String {
        loop {
            if let Some(reason) = self.failed.take() {
                return reason;
            }
            self.bell.recv_timeout(EVENT_WAIT).expect("the store answers");
            self.poll();
        }
    }

    pub fn submit(&mut self, ops: Vec<Op>, urgent: bool) -> BatchId {
        let (id, batch) = self.batch(ops, urgent);
        self.store.submit(batch);
        id
    }

    pub fn commit_here(&mut self, ops: Vec<Op>, urgent: bool) -> BatchId {
        let (id, batch) = self.batch(ops, urgent);
        self.store.commit_here(batch);
        id
    }

    fn batch(&mut self, ops: Vec<Op>, urgent: bool) -> (BatchId, Batch) {
        self.next_batch += 1;
        let id = BatchId(self.next_batch);
        let memory = ops.len() * 64;
        (id, Batch { id, ops, urgent, wall: Wall(self.next_batch), memory })
    }

    /// The newest receipt that is there already.
    pub fn receipt(&mut self) -> Option<BatchId> {
        self.poll();
        self.events.iter().rev().find_map(|event| match event {
            StoreEvent::Committed(receipt) => Some(receipt.through()),
            _ => None,
        })
    }

    pub fn commit(&mut self, ops: Vec<Op>) {
        let id = self.submit(ops, true);
        self.wait_durable(id);
    }

    /// The next event that is no receipt; receipts are noted.
    pub fn next_event(&mut self) -> StoreEvent {
        loop {
            match self.events.pop_front() {
                Some(StoreEvent::Committed(c)) => self.durable = self.durable.max(c.through()),
                Some(event) => return event,
                None => self.wait(),
            }
        }
    }

    pub fn wait_durable(&mut self, id: BatchId) {
        while self.durable < id {
            match self.events.iter().position(|e| matches!(e, StoreEvent::Committed(_))) {
                Some(at) => {
                    if let Some(StoreEvent::Committed(c)) = self.events.remove(at) {
                        self.durable = self.durable.max(c.through());
                    }
                }
                None => self.wait(),
            }
        }
    }

    fn wait(&mut self) {
        self.bell.recv_timeout(EVENT_WAIT).expect("the store answers");
        self.poll();
        assert_eq!(self.failed, None, "the store failed");
    }

    fn poll(&mut self) {
        let mut out = vec![];
        self.store.poll_events(&mut out);
        for event in out {
            match event {
                StoreEvent::Failed(reason) => self.failed = Some(reason),
                StoreEvent::Capacity(capacity) => self.capacity = Some(capacity),
                other => self.events.push_back(other),
            }
        }
    }

    pub fn page(&mut self, queue: u32, from: Seq, bytes_max: u32) -> Page {
        let request = PageRequest { queue: QueueId(queue), from, bytes_max, messages_max: 10_000 };
        self.store.load(request);
        let mut others = vec![];
        loop {
            match self.next_event() {
                StoreEvent::Page(page) => {
                    self.events.extend(others);
                    return page;
                }
                other => others.push(other),
            }
        }
    }

    /// Everything unsettled from `from` on.
    pub fn read_all(&mut self, queue: u32, mut from: Seq) -> Vec<PageEntry> {
        let mut all = vec![];
        loop {
            let page = self.page(queue, from, 64 << 10);
            if page.entries.is_empty() {
                return all;
            }
            from = page.next;
            all.extend(page.entries);
        }
    }
}

/// Numbers that look random and depend on the seed only.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}
