//! The hub with real bytes and a store that commits when it is told to.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::net::origin::PeerAddress;
use crate::store::contract::{BatchId, Committed, StoreEvent};
use crate::time::{Timeline, Wall};

const MILLI: u64 = 1_000;

struct Rig {
    hub: Hub,
    mono: Mono,
    /// The last batch that was submitted.
    submitted: BatchId,
    /// Peers that read nothing.
    stuck: BTreeSet<ConnId>,
    /// What everybody else has read.
    read: BTreeMap<ConnId, Vec<u8>>,
}

impl Rig {
    fn new(limits: Limits) -> Self {
        Self {
            hub: Hub::new(Broker::new(limits.clone(), 7), limits),
            mono: Mono(1),
            submitted: BatchId(0),
            stuck: BTreeSet::new(),
            read: BTreeMap::new(),
        }
    }

    fn now(&self) -> Now {
        Timeline::anchored(Wall(1_700_000_000_000), Wall(0)).at(self.mono)
    }

    /// What a driver does at the end of a round; nothing becomes durable.
    fn write(&mut self) {
        let now = self.now();
        loop {
            if let Some(batch) = self.hub.take_batch(now) {
                self.submitted = batch.id;
            }
            self.hub.take_loads().for_each(drop);
            for _ in 0..self.hub.dirty_len() {
                let Some(id) = self.hub.next_dirty() else { break };
                if !self.stuck.contains(&id) {
                    self.hub.read_all(id, now, self.read.entry(id).or_default());
                }
            }
            self.hub.finish_turn(now);
            if !self.hub.has_work() {
                return;
            }
        }
    }

    /// Everything submitted becomes durable.
    fn commit(&mut self) {
        self.write();
        let now = self.now();
        self.hub.store_event(StoreEvent::Committed(Committed::for_test(self.submitted)), now);
        self.hub.finish_turn(now);
        self.write();
    }

    fn receive(&mut self, id: ConnId, bytes: &[u8]) -> Turn {
        let turn = self.hub.received(id, bytes, self.now());
        self.write();
        turn
    }

    fn open(&mut self) -> ConnId {
        self.hub.open(Protocol::Mqtt, Origin::plain(PeerAddress::Local), self.now()).unwrap()
    }

    fn connect(&mut self, client_id: &str) -> ConnId {
        let id = self.open();
        self.receive(id, &connect(client_id, true, 0));
        self.commit();
        assert_eq!(self.take(id)[0], 0x20, "CONNACK");
        id
    }

    fn take(&mut self, id: ConnId) -> Vec<u8> {
        self.read.remove(&id).unwrap_or_default()
    }

    fn pass(&mut self, millis: u64) {
        self.mono = Mono(self.mono.0 + millis * MILLI);
        self.hub.tick(self.now());
        self.write();
    }

    fn outbox(&self, id: ConnId) -> usize {
        self.hub.slots[index(id)].outbox.len()
    }
}

/// A packet of MQTT 3.1.1 with its length.
fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    let mut left = body.len();
    loop {
        let byte = (left % 128) as u8;
        left /= 128;
        out.push(if left > 0 { byte | 0x80 } else { byte });
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(body);
    out
}

fn text(text: &str) -> Vec<u8> {
    let mut out = (text.len() as u16).to_be_bytes().to_vec();
    out.extend_from_slice(text.as_bytes());
    out
}

fn connect(client_id: &str, clean: bool, keep_alive: u16) -> Vec<u8> {
    let mut body = text("MQTT");
    body.extend([4, u8::from(clean) << 1]);
    body.extend(keep_alive.to_be_bytes());
    body.extend(text(client_id));
    packet(0x10, &body)
}

fn publish(topic: &str, payload: &[u8], qos: u8, id: u16) -> Vec<u8> {
    let mut body = text(topic);
    if qos > 0 {
        body.extend(id.to_be_bytes());
    }
    body.extend_from_slice(payload);
    packet(0x30 | qos << 1, &body)
}

fn subscribe(filter: &str, qos: u8) -> Vec<u8> {
    let mut body = vec![0, 1];
    body.extend(text(filter));
    body.push(qos);
    packet(0x82, &body)
}

const PING: [u8; 2] = [0xc0, 0];
const DISCONNECT: [u8; 2] = [0xe0, 0];

#[test]
fn a_client_that_asks_and_never_reads_the_answers_is_not_read_any_more() {
    let mut rig =
        Rig::new(Limits { outbox_bytes_max: 64 << 10, outbox_high_bytes: 16 << 10, ..Limits::default() });
    let id = rig.connect("a");
    rig.stuck.insert(id);
    let pings = PING.repeat(8 << 10);
    let read = (0..100).take_while(|_| rig.receive(id, &pings) != Turn::Blocked).count();
    assert!(read < 10, "{read} reads");
    assert!(rig.hub.is_blocked(id) && rig.outbox(id) < 128 << 10, "{} bytes", rig.outbox(id));
    rig.stuck.remove(&id);
    rig.hub.touch(id);
    rig.write();
    assert_eq!(rig.hub.take_unblocked().collect::<Vec<_>>(), [id]);
    assert!(!rig.hub.is_blocked(id));
    assert_eq!(rig.receive(id, &PING), Turn::Continue);
}

#[test]
fn all_outboxes_together_stay_within_their_bound() {
    let limits = Limits { outboxes_bytes_max: 1 << 20, ..Limits::default() };
    let mut rig = Rig::new(limits);
    let publisher = rig.connect("publisher");
    for n in 0..100 {
        let id = rig.connect(&format!("subscriber-{n}"));
        rig.receive(id, &subscribe("t", 0));
        rig.stuck.insert(id);
    }
    for _ in 0..200 {
        rig.receive(publisher, &publish("t", &[7; 1000], 0, 0));
    }
    let (bytes, _) = rig.hub.buffered();
    assert!(bytes < 2 << 20, "{bytes} bytes wait for peers that do not read");
    // Whoever reads gets messages again.
    let id = *rig.stuck.first().unwrap();
    rig.stuck.remove(&id);
    rig.hub.touch(id);
    rig.write();
    rig.take(id);
    rig.receive(publisher, &publish("t", &[7; 10], 0, 0));
    assert_eq!(rig.take(id), publish("t", &[7; 10], 0, 0));
}

#[test]
fn congestion_marks_are_balanced_whatever_ends_a_connection() {
    let limits = Limits { outbox_bytes_max: 8 << 10, outbox_high_bytes: 4 << 10, ..Limits::default() };
    for end in 0..4 {
        let mut rig = Rig::new(limits.clone());
        let publisher = rig.connect("publisher");
        let id = rig.connect("subscriber");
        rig.receive(id, &subscribe("t", 0));
        rig.stuck.insert(id);
        for _ in 0..20 {
            rig.receive(publisher, &publish("t", &[7; 1000], 0, 0));
        }
        assert!(rig.hub.is_congested());
        if end % 2 == 1 {
            rig.hub.give_up_waiting();
        }
        if end / 2 == 1 {
            rig.hub.abandon(id, rig.now());
        }
        rig.hub.lost(id, rig.now());
        rig.hub.closed(id, rig.now());
        assert!(!rig.hub.is_congested());
        assert_eq!(rig.hub.buffered(), (0, 0));
    }
}

#[test]
fn what_a_drained_outbox_makes_possible_is_done_without_another_wake_up() {
    let limits = Limits { outbox_bytes_max: 8 << 10, outbox_high_bytes: 4 << 10, ..Limits::default() };
    let mut rig = Rig::new(limits);
    let publisher = rig.connect("publisher");
    let id = rig.open();
    rig.receive(id, &connect("subscriber", false, 0));
    rig.commit();
    rig.receive(id, &subscribe("t", 2));
    rig.commit();
    rig.stuck.insert(id);
    for _ in 0..20 {
        rig.receive(publisher, &publish("t", &[7; 1000], 0, 0));
    }
    rig.receive(publisher, &publish("t", b"once", 2, 1));
    rig.commit();
    let before = rig.submitted;
    rig.stuck.remove(&id);
    rig.hub.touch(id);
    rig.write();
    // The message leaves once its identifier is durable: that is submitted now.
    assert!(rig.submitted > before);
    rig.commit();
    assert!(rig.take(id).ends_with(b"once"));
}

#[test]
fn connections_that_come_and_go_leave_no_deadlines_behind() {
    let mut rig = Rig::new(Limits::default());
    for _ in 0..2000 {
        let id = rig.open();
        rig.receive(id, &connect("visitor", true, u16::MAX));
        rig.commit();
        rig.receive(id, &DISCONNECT);
        rig.hub.closed(id, rig.now());
    }
    assert!(rig.hub.deadlines.len() < 300, "{} deadlines", rig.hub.deadlines.len());
}

#[test]
fn a_goodbye_that_had_to_wait_for_an_answer_ends_the_connection_in_time_too() {
    let mut rig = Rig::new(Limits::default());
    let id = rig.open();
    rig.receive(id, &connect("a", false, 0));
    rig.commit();
    rig.receive(id, &subscribe("t", 1));
    rig.commit();
    rig.pass(11_000);
    // The second message has to wait for the acknowledgement of the first one, and the goodbye behind it.
    let bytes = [publish("t", b"x", 1, 1), publish("t", b"y", 1, 1), DISCONNECT.to_vec()].concat();
    assert_eq!(rig.receive(id, &bytes), Turn::Blocked);
    rig.commit();
    assert!(rig.hub.is_ending(id) && !rig.hub.is_blocked(id));
    rig.pass(5_001);
    assert_eq!(rig.hub.take_finished(), [id]);
}

#[test]
fn partly_received_packets_that_take_too_much_memory_end_the_largest_one() {
    let limits = Limits { read_buffers_bytes_max: 256 << 10, ..Limits::default() };
    let mut rig = Rig::new(limits);
    let (greedy, modest) = (rig.connect("greedy"), rig.connect("modest"));
    let large = publish("t", &vec![7; 1 << 19], 0, 0);
    let mut at = 0;
    while rig.hub.buffered().1 < 200 << 10 {
        assert_eq!(rig.receive(greedy, &large[at..at + (8 << 10)]), Turn::Continue);
        at += 8 << 10;
    }
    let small = publish("t", &vec![7; 60 << 10], 0, 0);
    for part in small[..56 << 10].chunks(8 << 10) {
        assert_eq!(rig.receive(modest, part), Turn::Continue);
    }
    assert!(rig.hub.is_ending(greedy) && !rig.hub.is_ending(modest));
    assert!(rig.hub.buffered().1 < 128 << 10, "what it had sent is forgotten at once");
    assert_eq!(rig.hub.traffic().read_buffer_limit, 1);
}

/// Three packets of 100 KiB, of which two fit beside each other.
fn crowd(rig: &mut Rig) -> ([ConnId; 3], Vec<u8>) {
    let ids = ["a", "b", "c"].map(|name| rig.connect(name));
    (ids, publish("t", &vec![7; 100 << 10], 1, 1))
}

fn narrow() -> Limits {
    Limits { read_buffers_bytes_max: 280 << 10, ..Limits::default() }
}

#[test]
fn large_packets_that_do_not_fit_beside_each_other_are_received_one_after_the_other() {
    let mut rig = Rig::new(narrow());
    let ([a, b, c], large) = crowd(&mut rig);
    assert_eq!(
        [a, b, c].map(|id| rig.receive(id, &large[..9000])),
        [Turn::Continue, Turn::Continue, Turn::Blocked]
    );
    assert!(rig.hub.is_blocked(c));
    // What was on its way already is kept, and a keep-alive does not pass meanwhile.
    assert_eq!(rig.receive(c, &large[9000..9100]), Turn::Blocked);
    for at in (9000..large.len()).step_by(9000) {
        assert!(rig.hub.is_blocked(c));
        rig.receive(a, &large[at..(at + 9000).min(large.len())]);
    }
    assert_eq!(rig.hub.take_unblocked().collect::<Vec<_>>(), [c]);
    assert!(!rig.hub.is_blocked(c));
    // The next one of the first comes after it.
    assert_eq!(rig.receive(a, &large[..9000]), Turn::Blocked);
    rig.receive(c, &large[9100..]);
    rig.receive(b, &large[9000..]);
    assert_eq!(rig.hub.take_unblocked().collect::<Vec<_>>(), [a]);
    rig.receive(a, &large[9000..]);
    assert_eq!((rig.hub.buffered().1, rig.hub.traffic().large_packets_held_back), (0, 2));
    assert_eq!(rig.hub.traffic().messages_in, [0, 4, 0]);
}

#[test]
fn a_peer_that_goes_gives_its_place_or_its_wish_for_one_back() {
    let mut rig = Rig::new(narrow());
    let ([a, b, c], large) = crowd(&mut rig);
    let d = rig.connect("d");
    for id in [a, b, c, d] {
        rig.receive(id, &large[..9000]);
    }
    rig.hub.closed(c, rig.now());
    assert_eq!(rig.hub.take_unblocked().count(), 0);
    rig.hub.lost(a, rig.now());
    assert_eq!(rig.hub.take_unblocked().collect::<Vec<_>>(), [d]);
}

#[test]
fn a_peer_that_stops_in_a_large_packet_is_ended_only_once_another_one_needs_its_place() {
    let mut rig = Rig::new(narrow());
    let ([a, b, c], large) = crowd(&mut rig);
    rig.receive(a, &large[..9000]);
    rig.pass(60_000);
    assert!(!rig.hub.is_ending(a));
    rig.receive(b, &large[..9000]);
    rig.receive(c, &large[..9000]);
    rig.pass(1);
    assert!(rig.hub.is_ending(a) && !rig.hub.is_ending(b) && !rig.hub.is_blocked(c));
}

#[test]
fn the_length_of_a_packet_alone_reserves_no_memory() {
    let mut rig = Rig::new(Limits::default());
    for n in 0..100 {
        let id = rig.connect(&format!("c{n}"));
        rig.receive(id, &publish("t", &vec![7; 60 << 10], 0, 0)[..5]);
    }
    assert!(rig.hub.buffered().1 <= 100 * (4 << 10), "{} bytes", rig.hub.buffered().1);
}

#[test]
fn silence_does_not_count_while_nothing_is_read() {
    let mut rig = Rig::new(Limits::default());
    let id = rig.open();
    rig.receive(id, &connect("a", true, 2));
    rig.commit();
    for _ in 0..20 {
        rig.hub.reading_is_paused(rig.now());
        rig.pass(1_000);
        assert!(!rig.hub.is_ending(id));
    }
    rig.receive(id, &PING);
    rig.pass(2_000);
    assert!(!rig.hub.is_ending(id));
    rig.pass(8_000);
    assert!(rig.hub.is_ending(id));
    assert_eq!(rig.hub.traffic().keep_alive_timeouts, 1);
}

#[test]
fn what_waits_for_an_answer_is_handled_in_order_and_completely() {
    let mut rig = Rig::new(Limits { receive_max: 3, ..Limits::default() });
    let subscriber = rig.connect("subscriber");
    rig.receive(subscriber, &subscribe("t", 0));
    rig.take(subscriber);
    let id = rig.open();
    let mut bytes = connect("a", false, 0);
    for n in 1..=20 {
        bytes.extend(publish("t", &[n as u8; 5], 1, n));
    }
    let (now, later) = bytes.split_at(bytes.len() - 3);
    assert_eq!(rig.receive(id, now), Turn::Blocked);
    assert_eq!(rig.hub.buffered().1 as usize, rig.hub.slots[index(id)].partial.capacity());
    for _ in 0..10 {
        rig.commit();
    }
    assert!(!rig.hub.is_blocked(id));
    assert_eq!(rig.receive(id, later), Turn::Continue);
    rig.commit();
    let want: Vec<u8> = (1..=20).flat_map(|n| publish("t", &[n; 5], 0, 0)).collect();
    assert_eq!(rig.take(subscriber), want);
    let acks: Vec<u8> = (1..=20).flat_map(|n| [0x40, 2, 0, n]).collect();
    assert_eq!(rig.take(id)[4..], acks);
    assert_eq!(rig.hub.buffered(), (0, 0));
}

#[test]
fn packets_arrive_whole_whatever_the_reads_cut_them_into() {
    let mut rig = Rig::new(Limits::default());
    let subscriber = rig.connect("subscriber");
    rig.receive(subscriber, &subscribe("t", 0));
    rig.take(subscriber);
    let publisher = rig.connect("publisher");
    let mut bytes = Vec::new();
    for len in [0, 1, 200, 5_000, 70_000, 3, 4096, 300_000, 9] {
        bytes.extend(publish("t", &vec![len as u8; len], 0, 0));
    }
    for step in [1, 7, 1000, 16 << 10, bytes.len()] {
        for part in bytes.chunks(step) {
            rig.receive(publisher, part);
        }
        assert!(rig.take(subscriber) == bytes, "in parts of {step}");
        assert_eq!(rig.hub.buffered(), (0, 0));
    }
}

#[test]
fn nothing_overtakes_a_message_that_is_refused_by_hanging_up() {
    let queue = crate::limits::QueueLimits { messages_max: Some(1), ..Default::default() };
    let mut rig = Rig::new(Limits { queue, ..Limits::default() });
    let away = rig.open();
    rig.receive(away, &connect("away", false, 0));
    rig.commit();
    rig.receive(away, &subscribe("full", 1));
    rig.commit();
    rig.hub.lost(away, rig.now());
    rig.hub.closed(away, rig.now());
    let publisher = rig.connect("publisher");
    let messages = [
        publish("full", b"first", 1, 1),
        publish("full", b"refused", 1, 2),
        publish("elsewhere", b"behind it", 1, 3),
    ];
    assert_eq!(rig.receive(publisher, &messages.concat()), Turn::End);
    rig.commit();
    assert_eq!(rig.hub.broker().stats().published, [0, 2, 0]);
    assert!(rig.take(publisher).is_empty(), "its connection was over before anything was durable");
}

/// One user, whose password is "secret", hashed in a way that costs nothing.
fn guarded() -> Rig {
    const ANN: &str = "ann:$6$JRBA7eItBZVURG4C$nBcGA9YR23i8ZKx9rfWk1js/CGdUgoY2t8Gv2tyLtY2Dmm/eZCG9FSBojNGci1xjtrxIXeluyryDEVdSpo7E5A==";
    let mut rig = Rig::new(Limits::default());
    let users = Some(std::sync::Arc::new(crate::access::Users::parse(ANN).unwrap()));
    let policy = crate::access::Policy { users, ..crate::access::Policy::default() };
    rig.hub.set_access(Access { policy, anonymous: vec![false], ..Access::default() }, rig.now());
    rig
}

fn connect_as(client_id: &str, password: &str) -> Vec<u8> {
    let head = [&text("MQTT")[..], &[4, 0xc2, 0, 0]].concat();
    packet(0x10, &[head, text(client_id), text("ann"), text(password)].concat())
}

#[test]
fn whoever_waits_for_a_hash_is_not_sent_away_for_being_late_and_whoever_says_nothing_is() {
    let mut rig = guarded();
    let stomp = rig.hub.open(Protocol::Stomp, Origin::plain(PeerAddress::Local), rig.now()).unwrap();
    rig.receive(stomp, b"CONNECT\naccept-version:1.2\nhost:h\nlogin:ann\npasscode:secret\n\n\0");
    let waiting: Vec<ConnId> = ["secret", "Secret", "secret"]
        .iter()
        .enumerate()
        .map(|(n, password)| {
            let id = rig.open();
            rig.receive(id, &connect_as(&n.to_string(), password));
            id
        })
        .collect();
    let silent = rig.open();
    for _ in 0..100 {
        rig.pass(1_000);
    }
    assert!(rig.hub.take_finished().contains(&silent));
    assert_eq!((rig.hub.traffic().login_timeouts, rig.hub.logins_waiting()), (1, 4));
    while let Some(job) = rig.hub.next_login_job(rig.now()) {
        rig.hub.login_done(job.run(0, &mut crate::access::password::HashMemory::default()), rig.now());
        // What is decided waits for the store, which has its time too.
        rig.pass(11_000);
    }
    rig.commit();
    assert!(rig.take(stomp).starts_with(b"CONNECTED\n"));
    let codes: Vec<Vec<u8>> = waiting.iter().map(|id| rig.take(*id)).collect();
    assert_eq!(codes, [[0x20, 2, 0, 0], [0x20, 2, 0, 4], [0x20, 2, 0, 0]]);
    assert_eq!(rig.hub.traffic().login_timeouts, 1);
}
