//! One process of the gateway: the hub and the store, with the driver's order of calls and without its sockets and threads.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tidegate::broker::Broker;
use tidegate::limits::{Limits, Overflow, QueueLimits, QueueRule};
use tidegate::message::Message;
use tidegate::net::hub::Hub;
use tidegate::store::contract::{PageRequest, QueueId, Recovered, RecoveredQueue, Space, StoreEvent};
use tidegate::store::simulation::{InlineStore, Sabotage, SimMedia};
use tidegate::store::{StoreError, StoreOptions};
use tidegate::time::{Mono, Now, Timeline, Wall};

use crate::action::Pace;
use crate::cast::{BOUNDED_MESSAGES_MAX, LOSSY_MESSAGES_MAX};
use crate::deals::PREPARED_TIMEOUT_SECS;
use crate::jobs::JOBS_FROM;
use crate::ledger::{Number, Verdict};
use crate::payload::number;
use crate::queues;
use crate::stock::Stock;

/// How long a batch that nobody waits for may linger, in microseconds.
const LINGER_MICROS: u64 = 500_000;
/// How often the store looks at the disk, in microseconds.
const LOOK_MICROS: u64 = 5_000_000;
/// Memory of a batch from which on it is submitted ahead of the round's end: the ring is small.
const BATCH_BYTES_HIGH: u64 = 4 << 10;

/// How large messages may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// A few of them fill everything.
    #[default]
    Small,
    /// Some are stored in several pieces.
    Large,
}

impl Scale {
    /// By what everything that bounds a single message is larger.
    pub fn factor(self) -> u32 {
        if self == Scale::Large { 20 } else { 1 }
    }
}

/// Limits so small that everything that happens at a limit happens all the time.
pub fn limits(scale: Scale) -> Limits {
    let factor = scale.factor();
    let wide = u64::from(factor);
    let bounded =
        |messages, overflow| QueueLimits { messages_max: Some(messages), bytes_max: None, overflow };
    let rule = |pattern: &str, limits| QueueRule { client_pattern: pattern.into(), limits };
    Limits {
        packet_bytes_max: (8 << 10) * factor,
        packet_bytes_before_login_max: 2 << 10,
        receive_max: 12,
        inflight_messages_max: 6,
        inflight_bytes_max: 6 << 10,
        queue_memory_bytes_max: (32 << 10) * wide,
        queue_window_bytes_max: 8 << 10,
        queue_rules: vec![
            rule("bounded-*", bounded(BOUNDED_MESSAGES_MAX, Overflow::Reject)),
            rule("lossy-*", bounded(LOSSY_MESSAGES_MAX, Overflow::DropHead)),
        ],
        outbox_high_bytes: 2 << 10,
        outbox_bytes_max: (5 << 10) * factor,
        outboxes_bytes_max: (64 << 10) * wide,
        read_buffers_bytes_max: (48 << 10) * wide,
        store_queue_bytes_max: (48 << 10) * wide,
        ring_bytes: (64 << 10) * wide,
        named_queues_max: 12,
        queue_defs: queues::definitions(),
        transaction_actions_max: 12,
        transaction_bytes_max: (6 << 10) * wide,
        transactions_bytes_max: (12 << 10) * wide,
        prepared_transactions_max: 5,
        prepared_timeout_secs: Some(PREPARED_TIMEOUT_SECS),
        store_cache_bytes: 1 << 20,
        disk_reserve_bytes: 0,
        ..Limits::default()
    }
}

/// The store's options for these limits.
pub fn options(scale: Scale) -> StoreOptions {
    StoreOptions::new(PathBuf::from("simulated"), &limits(scale))
}

/// How the gateway is configured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setting {
    pub scale: Scale,
    /// `durability.hold`.
    pub hold_millis: u32,
    /// Transactions are bounded as if nobody had said anything.
    pub long_transactions: bool,
}

/// What one process is like.
pub struct Gateway {
    limits: Limits,
    pub hub: Hub,
    pub store: InlineStore,
    timeline: Timeline,
    pub mono: u64,
    pub failed: Option<String>,
    events: Vec<StoreEvent>,
    waiting_since: Option<u64>,
    looked: u64,
}

/// Why a gateway did not start.
pub enum NotStarted {
    /// The power failed meanwhile, or the disk did.
    Store(StoreError),
    /// A promise is broken.
    Bad(String),
}

/// What the store held at the start.
#[derive(Debug, Default)]
pub struct Content {
    /// By name: a client identifier or a shared subscription.
    pub queues: BTreeMap<String, Vec<Number>>,
    /// By topic.
    pub retained: BTreeMap<String, Number>,
    /// Of messages to topics: those of committed transactions that are still on their way to their queues.
    pub moving: Vec<Number>,
    /// Jobs, and transactions that are prepared.
    pub stock: Stock,
}

/// Queues of the store that hold what committed transactions have still to move.
fn moving(recovered: &Recovered) -> Vec<QueueId> {
    let rows = recovered.rows.iter().filter(|row| row.0 == Space::Moving);
    rows.filter_map(|(_, key, _)| Some(QueueId(u32::from_be_bytes(*key.first_chunk()?)))).collect()
}

fn content(
    broker: &Broker,
    mut scanned: BTreeMap<QueueId, Vec<Number>>,
    retained: BTreeMap<String, Number>,
    moving: &[QueueId],
) -> Content {
    let mut content = Content { retained, ..Content::default() };
    for id in moving {
        let all = scanned.remove(id).unwrap_or_default();
        let (jobs, numbers): (Vec<u64>, Vec<u64>) = all.into_iter().partition(|n| *n >= JOBS_FROM);
        content.stock.moving.extend(jobs);
        content.moving.extend(numbers);
    }
    for queue in broker.queues() {
        let Some(id) = queue.id else { continue };
        let all = scanned.remove(&id).unwrap_or_default();
        let (jobs, numbers): (Vec<u64>, Vec<u64>) = all.into_iter().partition(|n| *n >= JOBS_FROM);
        content.stock.queues.insert(queue.name.to_owned(), jobs);
        content.queues.insert(queue.name.to_owned(), numbers);
    }
    content.stock.prepared = broker.prepared_transactions().map(|open| open.xid.into_string()).collect();
    content
}

impl Gateway {
    /// Opens the store, compares its counters with a full scan and takes up what it holds.
    pub fn start(
        media: Arc<SimMedia>,
        sabotage: Sabotage,
        system: u64,
        seed: u64,
        setting: Setting,
    ) -> Result<(Self, Content), NotStarted> {
        let (mut store, recovered) =
            InlineStore::open(media, &options(setting.scale), sabotage).map_err(NotStarted::Store)?;
        let scanned = scan(&mut store, &recovered)?;
        let retained = retained(&recovered)?;
        let moving = moving(&recovered);
        let timeline = Timeline::anchored(Wall(system), recovered.newest_wall);
        let mut limits = Limits { hold_millis: setting.hold_millis, ..limits(setting.scale) };
        if setting.long_transactions {
            let usual = Limits::default();
            limits.transaction_actions_max = usual.transaction_actions_max;
            limits.transaction_bytes_max = usual.transaction_bytes_max;
            limits.transactions_bytes_max = usual.transactions_bytes_max;
        }
        let mut broker = Broker::new(limits.clone(), seed);
        let restored = broker.restore(recovered, timeline.at(Mono(0)));
        restored.map_err(|error| NotStarted::Bad(format!("the store's rows: {error}")))?;
        broker.check();
        let content = content(&broker, scanned, retained, &moving);
        let hub = Hub::new(broker, limits.clone());
        let events = vec![];
        let gateway = Self {
            limits,
            hub,
            store,
            timeline,
            mono: 0,
            failed: None,
            events,
            waiting_since: None,
            looked: 0,
        };
        Ok((gateway, content))
    }

    pub fn now(&self) -> Now {
        self.timeline.at(Mono(self.mono))
    }

    /// The store is so far behind that nothing may be read.
    pub fn store_is_behind(&self) -> bool {
        self.store.pending_memory() > self.limits.store_queue_bytes_max
    }

    /// Hands the round's operations to the store, then the page requests.
    pub fn submit(&mut self) {
        let now = self.now();
        if let Some(batch) = self.hub.take_batch(now) {
            self.store.submit(batch);
        }
        if self.hub.take_hurry() {
            self.store.hurry();
        }
        let loads: Vec<PageRequest> = self.hub.take_loads().collect();
        loads.into_iter().for_each(|request| self.store.load(request));
    }

    /// As [`submit`](Self::submit), once there is much of it.
    pub fn submit_if_large(&mut self) {
        if self.hub.broker().batch_memory() as u64 > BATCH_BYTES_HIGH {
            self.submit();
        }
    }

    /// Deadlines that have come.
    pub fn tick(&mut self) {
        let now = self.now();
        // More than a few turns in a row would mean that a deadline never goes away.
        for _ in 0..8 {
            if self.hub.next_deadline().is_none_or(|at| at > now.mono) {
                return;
            }
            self.hub.tick(now);
            self.submit_if_large();
        }
    }

    /// The store's part of a round.
    pub fn work(&mut self, pace: Pace) {
        if self.mono >= self.looked + LOOK_MICROS && pace != Pace::Stuck {
            self.looked = self.mono;
            self.store.look_at_disk();
        }
        if pace != Pace::Stuck {
            let lingers = self.waiting_since.is_some_and(|since| self.mono >= since + LINGER_MICROS);
            self.store.turn(lingers || pace == Pace::Swift);
            self.store.serve_loads();
        }
        match pace {
            Pace::Crawl(writes) => self.store.fold(Some(writes)),
            Pace::Swift => self.store.fold(None),
            Pace::Stuck | Pace::Commit => {}
        }
        if pace == Pace::Swift {
            self.store.turn(true);
            self.store.serve_loads();
            self.store.fold(None);
        }
        if self.store.has_work() {
            self.waiting_since.get_or_insert(self.mono);
        } else {
            self.waiting_since = None;
        }
    }

    /// Carries the store's answers to the broker.
    pub fn hear_store(&mut self) {
        let now = self.now();
        let mut events = std::mem::take(&mut self.events);
        self.store.poll_events(&mut events);
        for event in events.drain(..) {
            if let StoreEvent::Failed(reason) = &event {
                self.failed = Some(reason.clone());
            }
            self.hub.store_event(event, now);
        }
        self.events = events;
        self.hub.finish_turn(now);
    }

    /// Bounds (I5) and counters (I4).
    pub fn check(&self) -> Verdict {
        self.hub.broker().check();
        let limits = &self.limits;
        let gauges = self.hub.broker().gauges();
        let (outboxes, reads) = self.hub.buffered();
        // What one turn may add: a read, and a message that is as large as they come.
        let turn = (8 << 10) + u64::from(limits.packet_bytes_max);
        let connections = self.hub.connections() as u64;
        // One message is always allowed, however large.
        let most = u64::from(limits.inflight_bytes_max.max(limits.packet_bytes_max));
        let bounds = [
            ("queued messages", gauges.queue_memory as u64, limits.queue_memory_bytes_max + turn),
            ("outboxes", outboxes, limits.outboxes_bytes_max + connections * most),
            ("partly received packets", reads, limits.read_buffers_bytes_max + turn),
            ("waiting for the store", self.store.pending_memory(), limits.store_queue_bytes_max + 2 * turn),
        ];
        match bounds.iter().find(|(_, used, max)| used > max) {
            Some((what, used, max)) => Err(format!("I5: {what}: {used} bytes, {max} are the most")),
            None => Ok(()),
        }
    }
}

fn retained(recovered: &Recovered) -> Result<BTreeMap<String, Number>, NotStarted> {
    let mut all = BTreeMap::new();
    for (_, key, value) in recovered.rows.iter().filter(|row| row.0 == Space::Retained) {
        let topic = String::from_utf8_lossy(key).into_owned();
        let message = Message::decode(&Bytes::copy_from_slice(value)).ok();
        let n = message.and_then(|message| number(message.payload()));
        all.insert(
            topic,
            n.ok_or_else(|| NotStarted::Bad("a retained message that nobody sent".to_owned()))?,
        );
    }
    Ok(all)
}

/// Reads every queue and compares it with what recovery says of it (I4).
fn scan(
    store: &mut InlineStore,
    recovered: &Recovered,
) -> Result<BTreeMap<QueueId, Vec<Number>>, NotStarted> {
    let mut all = BTreeMap::new();
    for queue in &recovered.queues {
        all.insert(queue.queue, scan_queue(store, queue)?);
    }
    Ok(all)
}

fn scan_queue(store: &mut InlineStore, queue: &RecoveredQueue) -> Result<Vec<Number>, NotStarted> {
    let id = queue.queue.0;
    let bad = |what: String| NotStarted::Bad(format!("queue {id}: {what}"));
    let (mut numbers, mut found, mut last, mut from) = (vec![], (0, 0), 0, 1);
    while from < queue.tail {
        let request = PageRequest { queue: queue.queue, from, bytes_max: 4000, messages_max: 16 };
        let page = store.page(&request).map_err(NotStarted::Store)?;
        if page.next <= from {
            return Err(bad(format!("a page from {from} leads to {}", page.next)));
        }
        for entry in &page.entries {
            if entry.seq <= last || entry.seq < queue.head || entry.seq >= queue.tail {
                return Err(bad(format!(
                    "I2: message {} after {last} in {}..{}",
                    entry.seq, queue.head, queue.tail
                )));
            }
            last = entry.seq;
            found = (found.0 + 1, found.1 + u64::from(entry.message.size()));
            // A retained topic's removal has no number.
            numbers.extend(number(entry.message.payload()));
        }
        from = page.next;
        if page.entries.is_empty() {
            break;
        }
    }
    if found != (queue.messages, queue.bytes) {
        let told = (queue.messages, queue.bytes);
        return Err(bad(format!("I4: {told:?} messages and bytes are counted, {found:?} are there")));
    }
    Ok(numbers)
}
