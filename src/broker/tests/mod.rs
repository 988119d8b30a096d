//! Scenario tests against a store in memory, and a seeded random model test.

mod access;
mod chaos;
mod connect;
mod dead;
mod delivery;
mod desk;
mod expiry;
mod groups;
mod model;
mod overflow;
mod prepared;
mod publish;
mod qos2;
mod queues;
mod restart;
mod retained;
mod spill;
mod transactions;
mod waiting;
mod walks;
mod wills;

use std::collections::BTreeMap;

use super::api::*;
use super::{Broker, Effect};
use crate::limits::Limits;
use crate::message::{Message, MessageHead, Qos};
use crate::store::contract::{PageRequest, StoreEvent};
use crate::store::fake::FakeStore;
use crate::time::{Mono, Now, Timeline, Wall};

const START: Wall = Wall(1_700_000_000_000);

/// Answers of the store after one command; more would be pages that push each other out.
const ROUNDS_MAX: usize = 1000;

/// The broker, a store, and what every connection has heard.
struct Rig {
    broker: Broker,
    store: FakeStore,
    limits: Limits,
    timeline: Timeline,
    mono: Mono,
    heard: BTreeMap<ConnId, Vec<ClientEvent>>,
    loads: Vec<PageRequest>,
    /// Messages in all pages so far.
    read: u64,
    next_conn: u64,
    /// Each turn ends with everything durable and every page served.
    auto: bool,
}

impl Rig {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        Self {
            broker: Broker::new(limits.clone(), 7),
            store: FakeStore::default(),
            limits,
            timeline: Timeline::anchored(START, Wall(0)),
            mono: Mono(0),
            heard: BTreeMap::new(),
            loads: Vec::new(),
            read: 0,
            next_conn: 1,
            auto: true,
        }
    }

    fn now(&self) -> Now {
        self.timeline.at(self.mono)
    }

    fn send(&mut self, conn: ConnId, command: ClientCommand) {
        self.broker.handle(conn, command, self.now());
        self.turn();
    }

    /// What a driver does at the end of a turn.
    fn turn(&mut self) {
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "the store and the broker come to rest");
            if let Some(batch) = self.broker.take_batch(self.now()) {
                self.store.submit(batch);
            }
            self.compare();
            let mut effects = Vec::new();
            self.broker.take_effects(&mut effects);
            for effect in effects {
                match effect {
                    Effect::Client(conn, event) => self.heard.entry(conn).or_default().push(event),
                    Effect::Load(request) => self.loads.push(request),
                }
            }
            self.broker.check();
            if !self.auto || !(self.serve_page() || self.commit(usize::MAX)) {
                return;
            }
        }
    }

    /// I4: what the broker counts is what the store holds, and what is held.
    fn compare(&self) {
        if self.broker.batch.deadline().is_some() {
            return;
        }
        let mut stored = self.store.applied.queues.len();
        for queue in self.broker.queues() {
            let Some(id) = queue.id else { continue };
            let held = &self.store.applied.queues[&id];
            let bytes: u64 = held.entries.values().map(|(message, _)| u64::from(message.size())).sum();
            stored -= 1;
            if !queue.lasting {
                // What was under way when it got its copy in the store is not in there.
                let unstored = queue.messages - held.entries.len() as u64;
                assert!(
                    unstored <= u64::from(queue.inflight) && bytes <= queue.bytes,
                    "I4 of {}",
                    queue.name
                );
                continue;
            }
            assert_eq!(
                (held.entries.len() as u64, bytes),
                (queue.messages, queue.bytes),
                "I4 of {}",
                queue.name
            );
        }
        assert_eq!(stored, self.broker.spilled(), "the store has no queue that the broker does not know");
    }

    fn serve_page(&mut self) -> bool {
        let Some(request) = self.loads.pop() else { return false };
        let page = self.store.page(request);
        self.read += page.entries.len() as u64;
        self.broker.store_event(StoreEvent::Page(page), self.now());
        true
    }

    fn commit(&mut self, count: usize) -> bool {
        let Some(receipt) = self.store.commit(count) else { return false };
        self.broker.store_event(StoreEvent::Committed(receipt), self.now());
        true
    }

    /// Everything becomes durable, every page is served, once.
    fn settle_store(&mut self) {
        let auto = std::mem::replace(&mut self.auto, true);
        self.turn();
        self.auto = auto;
    }

    fn advance_secs(&mut self, seconds: u64) {
        self.mono = self.mono.plus_millis(seconds * 1000);
        self.run_timers();
    }

    fn run_timers(&mut self) {
        while self.broker.next_deadline().is_some_and(|at| at <= self.mono) {
            self.broker.tick(self.now());
            self.turn();
        }
    }

    /// kill -9 and a start after `seconds`.
    fn kill_and_restart(&mut self, seconds: u64) {
        let recovered = self.store.restart();
        let system = Wall(self.now().wall.0 + seconds * 1000);
        self.timeline = Timeline::anchored(system, recovered.newest_wall);
        self.mono = Mono(0);
        self.broker = Broker::new(self.limits.clone(), 8);
        self.heard.clear();
        self.loads.clear();
        self.broker.restore(recovered, self.now()).expect("what was stored can be read");
        self.turn();
    }

    fn heard(&mut self, conn: ConnId) -> Vec<ClientEvent> {
        self.heard.remove(&conn).unwrap_or_default()
    }

    fn connect_with(&mut self, client: &str, change: impl FnOnce(&mut ConnectRequest)) -> ConnId {
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        let mut request = ConnectRequest {
            client_id: client.into(),
            clean_start: false,
            expiry: SessionExpiry::Never,
            receive_max: 100,
            will: None,
            internal: false,
        };
        change(&mut request);
        self.send(conn, ClientCommand::Connect(Box::new(request)));
        conn
    }

    /// A durable session, welcomed; returns whether it was resumed.
    fn durable(&mut self, client: &str) -> (ConnId, bool) {
        let conn = self.connect_with(client, |_| {});
        let mut heard = self.heard(conn);
        if heard.is_empty() {
            self.commit(usize::MAX);
            self.turn();
            heard = self.heard(conn);
        }
        let Some(ClientEvent::Connected(connected)) = heard.first() else { panic!("{heard:?}") };
        let present = connected.session_present;
        self.heard.insert(conn, heard[1..].to_vec());
        (conn, present)
    }

    fn transient(&mut self, client: &str) -> ConnId {
        let conn = self.connect_with(client, |request| {
            request.clean_start = true;
            request.expiry = SessionExpiry::WithConnection;
        });
        let heard = self.heard(conn);
        assert!(matches!(heard[..], [ClientEvent::Connected(_)]), "{heard:?}");
        conn
    }

    fn subscribe(&mut self, conn: ConnId, filter: &str, qos: Qos) {
        self.subscribe_with(conn, filter, SubscribeOptions { qos, ..SubscribeOptions::default() }, None);
    }

    fn subscribe_with(&mut self, conn: ConnId, filter: &str, options: SubscribeOptions, id: Option<u32>) {
        let filters = vec![SubscribeFilter { filter: filter.into(), options }];
        self.send(conn, ClientCommand::Subscribe { tag: ReplyTag(900), subscription_id: id, filters });
        let heard = self.heard.get_mut(&conn).expect("something was heard");
        let at = heard.iter().position(|event| matches!(event, ClientEvent::Subscribed { .. }));
        let ClientEvent::Subscribed { outcomes, .. } = heard.remove(at.expect("an answer")) else {
            unreachable!()
        };
        assert!(matches!(outcomes[..], [SubscribeOutcome::Granted(_)]), "{outcomes:?}");
    }

    fn publish(&mut self, conn: ConnId, topic: &str, payload: &str, qos: Qos, tag: u16) {
        let message = self.message(topic, payload, qos, false);
        self.send(conn, ClientCommand::Publish(PublishRequest { tag: ReplyTag(tag), message }));
    }

    fn retain(&mut self, conn: ConnId, topic: &str, payload: &str, qos: Qos) {
        let message = self.message(topic, payload, qos, true);
        self.send(conn, ClientCommand::Publish(PublishRequest { tag: ReplyTag(1), message }));
    }

    fn message(&self, topic: &str, payload: &str, qos: Qos, retain: bool) -> Message {
        let head = MessageHead { qos, retain, published: self.now().wall, ..MessageHead::default() };
        Message::new(topic, payload.as_bytes(), head)
    }

    fn ack(&mut self, conn: ConnId, delivery: DeliveryId) {
        self.send(conn, ClientCommand::Settle { delivery, accepted: true });
    }

    fn lose(&mut self, conn: ConnId) {
        self.send(conn, ClientCommand::Lost);
    }

    fn goodbye(&mut self, conn: ConnId) {
        self.send(conn, ClientCommand::Disconnect { with_will: false, expiry: None });
    }

    /// Payloads delivered to `conn` since the last look; other events are dropped.
    fn payloads(&mut self, conn: ConnId) -> Vec<String> {
        self.deliveries(conn).iter().map(payload).collect()
    }

    fn deliveries(&mut self, conn: ConnId) -> Vec<Delivery> {
        let delivery = |event| match event {
            ClientEvent::Deliver(delivery) => Some(delivery),
            _ => None,
        };
        self.heard(conn).into_iter().filter_map(delivery).collect()
    }

    /// Acknowledges everything delivered until nothing more comes; returns the payloads.
    fn drain(&mut self, conn: ConnId) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let deliveries = self.deliveries(conn);
            if deliveries.is_empty() {
                return all;
            }
            for delivery in deliveries {
                all.push(payload(&delivery));
                match (delivery.qos, delivery.id) {
                    (Qos::AtLeastOnce, Some(id)) => self.broker.handle(conn, settled(id), self.now()),
                    (Qos::ExactlyOnce, Some(delivery)) => {
                        self.broker.handle(conn, ClientCommand::Received { delivery }, self.now());
                        self.broker.handle(conn, ClientCommand::Completed { delivery }, self.now());
                    }
                    _ => {}
                }
            }
            self.turn();
        }
    }

    fn queue(&self, name: &str) -> super::QueueStatus<'_> {
        self.broker.queues().find(|queue| queue.name == name).expect("the queue exists")
    }
}

fn settled(delivery: DeliveryId) -> ClientCommand {
    ClientCommand::Settle { delivery, accepted: true }
}

fn payload(delivery: &Delivery) -> String {
    String::from_utf8_lossy(delivery.message.payload()).into_owned()
}

fn id(n: u16) -> DeliveryId {
    DeliveryId::new(n).unwrap()
}

fn will(topic: &str, delay_secs: u32) -> Will {
    Will {
        topic: topic.into(),
        payload: b"gone".as_slice().into(),
        qos: Qos::AtLeastOnce,
        retain: false,
        properties: None,
        expiry_secs: None,
        delay_secs,
    }
}
