//! Random conversations of several clients with a hub and its broker, compared packet by packet with a model that knows what may
//! happen next: answers, deliveries, identifiers, DUP flags, quotas, wills, takeovers, kills, and which connections must end.
//!
//! Every step is one write of one client, of one or more packets that may break any rule, cut into pieces anywhere; then everything
//! becomes durable and is compared. `TIDEGATE_MACHINE_STEPS` sets the number of steps, `TIDEGATE_SEED` repeats a run.

mod model;
mod wire;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Hub, rig};
use crate::broker::Broker;
use crate::broker::api::ConnId;
use crate::limits::Limits;
use crate::net::origin::{Origin, PeerAddress, Protocol};
use crate::store::fake::FakeStore;
use crate::time::{Mono, Now, Timeline, Wall};
use model::{Expected, INFLIGHT_MAX, Model, RECEIVE_MAX, Who};
use wire::{Login, PUBACK, PUBCOMP, PUBREC, PUBREL, Seen};

const CLIENTS: u64 = 5;
const TOPICS: [&str; 3] = ["t/0", "t/1", "other"];
const FILTERS: [&str; 4] = ["t/0", "t/+", "#", "other"];
/// Messages that may wait for one client before it has to come and take some.
const WAITING_MAX: usize = 60;
/// Identifiers from here on are never given to a delivery: queues do not get that long.
const STRAY: u16 = 60_000;
/// Steps that a failure shows.
const STEPS_SHOWN: usize = 40;
const STEPS: u64 = 60_000;
/// Packets that no client may send once it is connected.
const FORBIDDEN: [&[u8]; 10] = [
    &[0x00, 0],
    &[0x20, 2, 0, 0],
    &[0x90, 3, 0, 1, 0],
    &[0xb0, 2, 0, 1],
    &[0xd0, 0],
    &[0x36, 5, 0, 1, b'a', 0, 1],
    &[0x82, 2, 0, 1],
    &[0x40, 2, 0, 0],
    &[0x30, 3, 0, 1, b'+'],
    &[0x30, 0xff, 0xff, 0xff, 0xff],
];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

struct World {
    random: Random,
    limits: Limits,
    hub: Hub,
    store: FakeStore,
    mono: Mono,
    model: Model,
    sockets: BTreeMap<Who, ConnId>,
    versions: BTreeMap<ConnId, u8>,
    read: BTreeMap<ConnId, Vec<u8>>,
    /// The last steps, for people.
    steps: VecDeque<String>,
}

impl World {
    fn new(seed: u64) -> Self {
        let limits = Limits {
            receive_max: RECEIVE_MAX as u16,
            inflight_messages_max: INFLIGHT_MAX as u16,
            ..Limits::default()
        };
        Self {
            random: Random(seed),
            hub: Hub::new(Broker::new(limits.clone(), 7), limits.clone()),
            limits,
            store: FakeStore::default(),
            mono: Mono(1),
            model: Model::default(),
            sockets: BTreeMap::new(),
            versions: BTreeMap::new(),
            read: BTreeMap::new(),
            steps: VecDeque::new(),
        }
    }

    fn now(&self) -> Now {
        Timeline::anchored(Wall(1_700_000_000_000), Wall(0)).at(self.mono)
    }

    /// Everything becomes durable, every page is served, every byte is read.
    fn settle(&mut self) {
        let now = self.now();
        self.hub.settle(&mut self.store, now, &mut self.read);
    }

    fn send(&mut self, id: ConnId, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let most = rest.len() as u64;
            let len = if self.random.below(3) == 0 { self.random.below(most) + 1 } else { most };
            let (part, tail) = rest.split_at(len as usize);
            let now = self.now();
            self.hub.received(id, part, now);
            if self.random.below(4) == 0 {
                self.settle();
            }
            rest = tail;
        }
    }

    fn note(&mut self, step: String) {
        self.steps.push_back(step);
        if self.steps.len() > STEPS_SHOWN {
            self.steps.pop_front();
        }
    }

    fn login(&mut self, who: Who) -> Login {
        let random = &mut self.random;
        let version = random.one_of(&[3, 4, 5, 5]);
        let clean = random.below(4) == 0;
        let will = random.below(3) == 0;
        let topic = random.one_of(&TOPICS).to_owned();
        Login {
            version,
            name: format!("client-{who}"),
            clean,
            kept: random.below(4) != 0,
            window: random.below(8) as u16 + 1,
            will: will.then(|| (topic, format!("will-{}", self.model.next_text()))),
        }
    }

    fn connect(&mut self, who: Who) {
        let login = self.login(who);
        self.note(format!("{who} connects: {login:?}"));
        let now = self.now();
        let id =
            self.hub.open(Protocol::Mqtt, Origin::plain(PeerAddress::Local), now).expect("there is room");
        let old = self.sockets.insert(who, id);
        self.versions.insert(id, login.version);
        self.model.connect(who, &login);
        self.send(id, &login.encode());
        self.settle();
        if let Some(expected) = self.model.taken_over.take() {
            self.compare(who, old.expect("it was connected"), expected);
        }
    }

    /// One write: packets that the model has been told of.
    fn write(&mut self, who: Who) {
        let mut bytes = Vec::new();
        let mut used = BTreeSet::new();
        for _ in 0..=self.random.below(4) {
            if !self.model.is_connected(who) {
                break;
            }
            bytes.extend(self.packet(who, &mut used));
        }
        self.note(format!("{who} sends {bytes:02x?}"));
        let id = self.sockets[&who];
        self.send(id, &bytes);
        self.settle();
    }

    /// `used`: identifiers of this write's own messages. What becomes of one that comes twice before it is answered depends on
    /// when the store answers.
    fn packet(&mut self, who: Who, used: &mut BTreeSet<u16>) -> Vec<u8> {
        let version = self.model.version(who);
        let id = self.random.below(9) as u16 + 1;
        match self.random.below(100) {
            0..40 => {
                let (qos, dup) = (self.random.below(3) as u8, self.random.below(4) == 0);
                if qos > 0 && (used.len() >= RECEIVE_MAX || !used.insert(id)) {
                    return vec![];
                }
                let (topic, text) = (self.random.one_of(&TOPICS), self.model.next_text());
                // A quota that is full for a moment is no fault of what is unfinished afterwards.
                let pending = used.len() > 1;
                if pending && self.model.is_near_quota(who, used.len()) {
                    return vec![];
                }
                self.model.publish(who, topic, &text, qos, id);
                wire::publish(version, topic, &text, qos, id, dup && qos > 0)
            }
            40..68 => self.acknowledgement(who, version),
            68..78 if !used.contains(&id) => {
                self.model.acknowledge(who, PUBREL, id, 0);
                used.insert(id);
                wire::ack(PUBREL, id, 0)
            }
            78..86 => {
                let (filter, qos) = (self.random.one_of(&FILTERS), self.random.below(3) as u8);
                self.model.subscribe(who, id, filter, qos);
                wire::subscribe(version, id, filter, qos)
            }
            86..90 => {
                let filter = self.random.one_of(&FILTERS);
                self.model.unsubscribe(who, id, filter);
                wire::unsubscribe(version, id, filter)
            }
            90..95 => {
                self.model.ping(who);
                vec![0xc0, 0]
            }
            95..97 => {
                self.model.goodbye(who);
                vec![0xe0, 0]
            }
            97 => {
                self.model.violation(who);
                self.random.one_of(&FORBIDDEN).to_vec()
            }
            98 => {
                self.model.violation(who);
                self.login(who).encode()
            }
            _ => vec![],
        }
    }

    /// Mostly for a delivery that is unfinished, sometimes for none, and not always the right one.
    fn acknowledgement(&mut self, who: Who, version: u8) -> Vec<u8> {
        let unfinished = self.model.unfinished(who);
        let stray = unfinished.is_empty() || self.random.below(12) == 0;
        let id = if stray { STRAY + self.random.below(30) as u16 } else { self.random.one_of(&unfinished) };
        let right = self.model.kind_for(who, id).filter(|_| self.random.below(16) != 0);
        let kind = right.unwrap_or_else(|| self.random.one_of(&[PUBACK, PUBREC, PUBCOMP]));
        let refuses = kind == PUBREC && version == 5 && self.random.below(6) == 0;
        let code = if refuses { 0x83 } else { 0 };
        self.model.acknowledge(who, kind, id, code);
        wire::ack(kind, id, code)
    }

    /// The socket is gone, perhaps in the middle of a packet.
    fn lose(&mut self, who: Who) {
        self.note(format!("{who} is lost"));
        let id = self.sockets[&who];
        if self.random.below(2) == 0 {
            let version = self.model.version(who);
            let packet = wire::publish(version, "t/0", "half", 1, 8, false);
            let cut = self.random.below(packet.len() as u64 - 1) + 1;
            let now = self.now();
            self.hub.received(id, &packet[..cut as usize], now);
        }
        self.model.lost(who);
        let now = self.now();
        self.hub.lost(id, now);
        self.settle();
    }

    fn kill(&mut self) {
        self.note("kill".into());
        self.model.killed();
        self.sockets.clear();
        self.versions.clear();
        self.read.clear();
        let recovered = self.store.restart();
        let mut broker = Broker::new(self.limits.clone(), 8);
        broker.restore(recovered, self.now()).expect("what was stored can be read");
        self.hub = Hub::new(broker, self.limits.clone());
        let now = self.now();
        self.hub.tick(now);
        self.settle();
    }

    fn step(&mut self) {
        self.mono = Mono(self.mono.0 + 1);
        let who = self.random.below(CLIENTS) as Who;
        let full = (0..CLIENTS as Who).any(|who| self.model.waiting(who) > WAITING_MAX);
        match self.random.below(1000) {
            0 => self.kill(),
            1..10 if self.model.is_connected(who) => self.lose(who),
            10..14 => self.connect(who),
            _ if !self.model.is_connected(who) => self.connect(who),
            _ if full => self.drain(who),
            _ => self.write(who),
        }
        self.compare_all();
    }

    /// Takes what waits, properly, so that queues stay short.
    fn drain(&mut self, who: Who) {
        self.note(format!("{who} settles all"));
        let id = self.sockets[&who];
        for delivery in self.model.unfinished(who) {
            let Some(kind) = self.model.kind_for(who, delivery) else { continue };
            self.model.acknowledge(who, kind, delivery, 0);
            self.send(id, &wire::ack(kind, delivery, 0));
        }
        self.settle();
    }

    fn compare_all(&mut self) {
        for (who, id) in self.sockets.clone() {
            let expected = self.model.take_expected(who);
            self.compare(who, id, expected);
        }
        self.hub.broker().check();
    }

    fn compare(&mut self, who: Who, id: ConnId, expected: Expected) {
        let version = self.versions[&id];
        let seen = wire::parse(version, &self.read.remove(&id).unwrap_or_default());
        let (mut answers, mut deliveries, mut light) = (vec![], vec![], vec![]);
        for packet in seen {
            match &packet {
                Seen::Publish { qos: 0, .. } => light.push(packet),
                Seen::Publish { .. } | Seen::Ack { kind: PUBREL, .. } => deliveries.push(packet),
                _ => answers.push(packet),
            }
        }
        let over = self.model_is_over(who, id);
        let goodbye = match answers.last() {
            Some(Seen::Disconnect { code }) => Some(*code),
            _ => None,
        };
        if goodbye.is_some_and(|code| code >= 0x80) && expected.closed {
            answers.pop();
        }
        let complete = expected.closed || light.len() == expected.light.len();
        assert!(
            complete && expected.light.starts_with(&light),
            "level 0 to client {who}: {light:?}, due {:?}",
            expected.light
        );
        if !over {
            self.learn(who, &expected.deliveries, &mut deliveries);
        }
        compare_answers(&answers, &expected, who);
        if expected.closed {
            assert!(self.hub.is_ending(id), "client {who} must have been closed");
        } else {
            assert_eq!(deliveries, expected.deliveries, "deliveries to client {who}");
        }
        if over {
            let now = self.now();
            self.hub.closed(id, now);
            self.settle();
            self.versions.remove(&id);
            if self.sockets.get(&who) == Some(&id) {
                self.sockets.remove(&who);
            }
        } else {
            assert!(!self.hub.is_ending(id), "client {who} was closed without a reason");
        }
    }

    /// The model knows this connection no more.
    fn model_is_over(&self, who: Who, id: ConnId) -> bool {
        !self.model.is_connected(who) || self.sockets.get(&who) != Some(&id)
    }

    /// Identifiers that the broker was free to choose; they are taken out of the comparison.
    fn learn(&mut self, who: Who, expected: &[Seen], deliveries: &mut [Seen]) {
        for (expected, seen) in expected.iter().zip(deliveries) {
            if let (Seen::Publish { id: 0, .. }, Seen::Publish { text, id, .. }) = (expected, seen) {
                self.model.chosen(who, text, *id);
                *id = 0;
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.steps.iter().for_each(|step| eprintln!("{step}"));
        }
    }
}

/// Answers that need no store may overtake others, but CONNACK comes first and acknowledgements of level 1 keep their order. What
/// was on its way when the connection ended may have been sent or not.
fn compare_answers(seen: &[Seen], expected: &Expected, who: Who) {
    let acks = |list: &[Seen]| -> Vec<Seen> {
        list.iter().filter(|packet| matches!(packet, Seen::Ack { kind: PUBACK, .. })).cloned().collect()
    };
    let sorted = |list: &[Seen]| {
        let mut list = list.to_vec();
        list.sort();
        list
    };
    let connack = seen.iter().position(|packet| matches!(packet, Seen::Connack { .. }));
    assert!(connack.is_none_or(|at| at == 0), "CONNACK comes first: {seen:?}");
    if !expected.closed {
        assert_eq!(sorted(seen), sorted(&expected.answers), "answers to client {who}");
        assert_eq!(acks(seen), acks(&expected.answers), "order of answers to client {who}");
        return;
    }
    let mut left = sorted(&expected.answers);
    for packet in seen {
        let at = left.iter().position(|other| other == packet);
        left.remove(at.unwrap_or_else(|| panic!("{packet:?} to client {who}; due: {:?}", expected.answers)));
    }
    assert!(acks(&expected.answers).starts_with(&acks(seen)), "order of answers to client {who}");
}

#[test]
fn whatever_clients_send_the_broker_does_what_may_happen_next() {
    let (seed, steps) = rig::seed_and_steps(STEPS);
    let mut world = World::new(seed);
    for _ in 0..steps {
        world.step();
    }
}
