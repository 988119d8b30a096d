//! Time of the paths that every message takes, without a socket or a disk: routing, a hub's turn, and a group commit on a medium
//! in memory. `cargo bench --bench hot_paths`; the codec has a bench of its own in `protocols/mqtt`.
#![allow(clippy::unwrap_used)]

use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::{hint, io};

use divan::Bencher;
use divan::counter::ItemsCount;
use tidegate::broker::Broker;
use tidegate::broker::api::{ConnId, SubscribeOptions};
use tidegate::limits::Limits;
use tidegate::message::{DeliveryOptions, Message, MessageHead, Qos};
use tidegate::net::hub::{Hub, Output};
use tidegate::net::origin::{Origin, PeerAddress, Protocol};
use tidegate::router::{Router, Sink};
use tidegate::store::contract::{Batch, BatchId, Op, QueueId, StoreEvent, Target};
use tidegate::store::{Media, Store, StoreOptions};
use tidegate::time::{Mono, Now, Wall};

/// Messages of one read or one batch: what a busy gateway gathers in a round.
const GROUP: u16 = 64;
const TOPIC: &str = "plant/line-4/press/temperature";

fn main() {
    divan::main();
}

fn now() -> Now {
    Now { mono: Mono(1_000_000), wall: Wall(1_700_000_000_000) }
}

fn subscribed(filters: u32, cached: bool) -> Router {
    let mut router = if cached { Router::new() } else { Router::with_cache(0, 0) };
    let options = SubscribeOptions { qos: Qos::AtLeastOnce, ..SubscribeOptions::default() };
    for at in 0..filters {
        let filter = if at.is_multiple_of(2) { format!("in/{at}/+/x") } else { format!("+/first/{at}/x") };
        router.subscribe(&filter, Sink::Session(at % 100), options, None);
    }
    router
}

/// A topic that one of many filters with wildcards matches, looked up in the trie.
#[divan::bench(args = [100, 10_000, 100_000])]
fn route_in_trie(bencher: Bencher<'_, '_>, filters: u32) {
    let mut router = subscribed(filters, false);
    bencher.bench_local(|| hint::black_box(router.route(hint::black_box("in/42/y/x"))));
}

/// Topics in scattered order, each matching a filter of its own, so that memory is cold and nothing is remembered for long.
#[divan::bench(args = [100, 10_000, 100_000], sample_count = 20, sample_size = 20_000)]
fn route_scattered(bencher: Bencher<'_, '_>, filters: u32) {
    let mut router = subscribed(filters, true);
    let topic = |at: u32| {
        if at.is_multiple_of(2) { format!("in/{at}/y/x") } else { format!("y/first/{at}/x") }
    };
    let mut topics =
        (0_u32..).map(|i| i.wrapping_mul(7919) % filters).map(topic).take(100_000).collect::<Vec<_>>();
    topics.shrink_to_fit();
    let mut next = topics.iter().cycle();
    bencher.bench_local(|| hint::black_box(router.route(hint::black_box(next.next().unwrap()))));
}

/// The same topic again, remembered.
#[divan::bench]
fn route_in_cache(bencher: Bencher<'_, '_>) {
    let mut router = subscribed(100_000, true);
    bencher.bench_local(|| hint::black_box(router.route(hint::black_box("in/42/y/x"))));
}

/// A packet of MQTT 3.1.1 whose remaining length fits one byte.
fn packet(first: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    assert!(body.len() < 128);
    let mut bytes = vec![first, body.len() as u8];
    bytes.extend(body);
    bytes
}

fn text(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u16).to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

fn connect(hub: &mut Hub, name: &str, clean: bool) -> ConnId {
    let id = hub.open(Protocol::Mqtt, Origin::plain(PeerAddress::Local), now()).unwrap();
    let flags = if clean { 2 } else { 0 };
    hub.received(id, &packet(0x10, &[&text("MQTT"), &[4, flags, 0, 60], &text(name)]), now());
    id
}

fn subscribe(hub: &mut Hub, id: ConnId) {
    hub.received(id, &packet(0x82, &[&[0, 1], &text("plant/#"), &[1]]), now());
}

fn publishes() -> Vec<u8> {
    let one = |id: u16| packet(0x32, &[&text(TOPIC), &id.to_be_bytes(), &[7; 64]]);
    (1..=GROUP).flat_map(one).collect()
}

/// What a driver does at the end of a round. Returns what was written to `watched`.
fn write_all(hub: &mut Hub, watched: ConnId) -> Vec<u8> {
    let mut seen = vec![];
    while let Some(id) = hub.next_dirty() {
        while let Some(output) = hub.output(id) {
            let bytes = match output {
                Output::Single(bytes) => bytes.to_vec(),
                Output::Many(slices) => slices.iter().flat_map(|slice| slice.to_vec()).collect(),
            };
            hub.wrote(id, bytes.len(), now());
            if id == watched {
                seen.extend(bytes);
            }
        }
    }
    seen
}

/// PUBACKs for every PUBLISH with QoS 1 in `bytes`, whose packets are all short.
fn acknowledge(bytes: &[u8]) -> Vec<u8> {
    let (mut at, mut answers) = (0, vec![]);
    while at < bytes.len() {
        let topic = usize::from(bytes[at + 3]);
        if bytes[at] & 0xf0 == 0x30 {
            answers.extend([0x40, 2, bytes[at + 4 + topic], bytes[at + 5 + topic]]);
        }
        at += 2 + usize::from(bytes[at + 1]);
    }
    answers
}

/// One read of QoS 1 messages: decoded, routed, delivered, acknowledged by the subscriber and settled.
#[divan::bench]
fn hub_turn_without_store(bencher: Bencher<'_, '_>) {
    let mut hub = Hub::new(Broker::new(Limits::default(), 1), Limits::default());
    let (publisher, subscriber) =
        (connect(&mut hub, "publisher", true), connect(&mut hub, "subscriber", true));
    subscribe(&mut hub, subscriber);
    write_all(&mut hub, subscriber);
    let input = publishes();
    bencher.counter(ItemsCount::new(GROUP)).bench_local(|| {
        hub.received(publisher, &input, now());
        let acknowledgements = acknowledge(&write_all(&mut hub, subscriber));
        assert_eq!(acknowledgements.len(), 4 * usize::from(GROUP));
        hub.received(subscriber, &acknowledgements, now());
    });
}

/// A medium that keeps everything in memory.
#[derive(Debug, Default)]
struct Memory(Mutex<Vec<u8>>);

impl Media for Memory {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.lock().unwrap();
        let from = bytes.get(offset as usize..offset as usize + buf.len());
        buf.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut bytes = self.0.lock().unwrap();
        let end = offset as usize + data.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(data);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.lock().unwrap().resize(len as usize, 0);
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().len() as u64)
    }

    fn reserve(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn release(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn occupied(&self) -> io::Result<u64> {
        self.size()
    }

    fn free_space(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

/// A store whose disk costs nothing, and the bell of its events.
fn store() -> (Store, Receiver<()>) {
    let (bell, rung) = sync_channel(1);
    let options = StoreOptions::new("memory".into(), &Limits::default());
    let notify = Arc::new(move || {
        // A bell that rings already is enough.
        let _ = bell.try_send(());
    });
    let (store, _) = Store::open_on(Arc::new(Memory::default()), options, notify).unwrap();
    (store, rung)
}

/// Waits until a batch is durable.
fn await_commit(store: &Store, rung: &Receiver<()>, batch: BatchId) -> Vec<StoreEvent> {
    let mut events = vec![];
    let done = |event: &StoreEvent| matches!(event, StoreEvent::Committed(done) if done.through() >= batch);
    while !events.iter().any(done) {
        rung.recv().unwrap();
        store.poll_events(&mut events);
    }
    events
}

/// One batch of messages through the store: encoded, checksummed, written, indexed, answered and settled by the next batch; with
/// the hand-over between the threads.
#[divan::bench(args = [1, 64, 1024])]
fn commit_in_memory(bencher: Bencher<'_, '_>, messages: u64) {
    let (store, rung) = store();
    let queue = QueueId(1);
    let head = MessageHead { qos: Qos::AtLeastOnce, ..MessageHead::default() };
    let message = Message::new(TOPIC, &[7; 128], head);
    let options = DeliveryOptions { qos: Qos::AtLeastOnce, ..DeliveryOptions::default() };
    let (mut batch, mut first) = (0, 1);
    bencher.counter(ItemsCount::new(messages)).bench_local(|| {
        let mut ops = match batch {
            0 => vec![Op::CreateQueue { queue }],
            _ => {
                let bytes = messages * u64::from(message.size());
                vec![Op::Settle { queue, first: first - messages, count: messages, bytes }]
            }
        };
        ops.extend((first..first + messages).map(|seq| {
            let targets = std::iter::once(Target { queue, seq, options: options.clone() }).collect();
            Op::Enqueue { message: message.clone(), targets }
        }));
        (batch, first) = (batch + 1, first + messages);
        let memory = message.memory() * messages as usize;
        store.submit(Batch { id: BatchId(batch), ops, urgent: true, wall: now().wall, memory });
        await_commit(&store, &rung, BatchId(batch))
    });
}

/// As [`hub_turn_without_store`] with a subscriber whose session is durable: each acknowledgement waits for a commit in memory.
#[divan::bench]
fn hub_turn_with_store(bencher: Bencher<'_, '_>) {
    let mut hub = Hub::new(Broker::new(Limits::default(), 1), Limits::default());
    let (publisher, subscriber) =
        (connect(&mut hub, "publisher", true), connect(&mut hub, "subscriber", false));
    subscribe(&mut hub, subscriber);
    let (store, rung) = store();
    let commit = |hub: &mut Hub| {
        let Some(batch) = hub.take_batch(now()) else { return };
        let (id, urgent) = (batch.id, batch.urgent);
        store.submit(batch);
        if urgent {
            await_commit(&store, &rung, id).into_iter().for_each(|event| hub.store_event(event, now()));
            hub.finish_turn(now());
        }
    };
    commit(&mut hub);
    write_all(&mut hub, subscriber);
    let input = publishes();
    bencher.counter(ItemsCount::new(GROUP)).bench_local(|| {
        hub.received(publisher, &input, now());
        commit(&mut hub);
        let acknowledgements = acknowledge(&write_all(&mut hub, subscriber));
        assert_eq!(acknowledgements.len(), 4 * usize::from(GROUP));
        hub.received(subscriber, &acknowledgements, now());
    });
}
