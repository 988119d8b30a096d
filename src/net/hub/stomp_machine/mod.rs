//! Random conversations of several STOMP clients with a hub and its broker, compared frame by frame with a model that knows what
//! may come back: receipts and errors in order, messages of queues and topics, flags of what comes again, transactions,
//! prepared ones, kills, and which connections must end.
//!
//! Every step is one write of one client, of one or more frames that may break any rule, cut into pieces anywhere; then everything
//! becomes durable and is compared. `TIDEGATE_MACHINE_STEPS` sets the number of steps, `TIDEGATE_SEED` repeats a run. A fuzzer
//! makes the choices instead in [`fuzz`].

mod choices;
mod model;
mod raw;
mod wire;

#[cfg(feature = "simulation")]
pub use raw::fuzz_bytes;

use std::collections::{BTreeMap, VecDeque};

use super::Hub;
use crate::broker::Broker;
use crate::broker::api::ConnId;
use crate::limits::{Limits, QueueDef};
use crate::net::origin::{Origin, PeerAddress, Protocol};
use crate::store::fake::FakeStore;
use crate::time::{Mono, Now, Timeline, Wall};
use choices::Choices;
use model::{Action, Expected, Mode, Model, Number, Place, Verdict, Who};
use wire::{FORBIDDEN, Seen, frame};

const CLIENTS: u64 = 4;
const QUEUES: usize = 2;
const TOPICS: [&str; 3] = ["t/0", "t/1", "other"];
const FILTERS: [&str; 4] = ["t/0", "t/+", "#", "other"];
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Messages in a queue, or unacknowledged ones of a subscription, beyond which no more are sent.
const WAITING_MAX: usize = 30;
/// Prepared transactions beyond which some are decided first.
const PREPARED_MAX: usize = 12;
/// Steps that a failure shows.
const STEPS_SHOWN: usize = 30;

struct World {
    choices: Choices,
    limits: Limits,
    hub: Hub,
    store: FakeStore,
    mono: Mono,
    model: Model,
    sockets: BTreeMap<Who, ConnId>,
    read: BTreeMap<ConnId, Vec<u8>>,
    receipts: u64,
    /// Receipts of this step's SUBSCRIBE frames.
    subscribed: BTreeMap<String, Number>,
    /// The last steps, for people.
    steps: VecDeque<String>,
}

/// A frame, and whether anything behind it is heard.
type Said = (Vec<u8>, bool);

impl World {
    fn new(choices: Choices) -> Self {
        let endless = QueueDef { name: "q*".into(), redeliveries_max: None, ..QueueDef::default() };
        let limits =
            Limits { inflight_messages_max: u16::MAX, queue_defs: vec![endless], ..Limits::default() };
        Self {
            choices,
            hub: Hub::new(Broker::new(limits.clone(), 7), limits.clone()),
            limits,
            store: FakeStore::default(),
            mono: Mono(1),
            model: Model::default(),
            sockets: BTreeMap::new(),
            read: BTreeMap::new(),
            receipts: 0,
            subscribed: BTreeMap::new(),
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
            let len = if self.choices.chance(3) { self.choices.below(most) + 1 } else { most };
            let (part, tail) = rest.split_at(len as usize);
            let now = self.now();
            self.hub.received(id, part, now);
            if self.choices.chance(4) {
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

    fn connect(&mut self, who: Who) {
        let version = self.choices.one_of(&[10, 11, 12, 12]);
        self.note(format!("{who} connects: {version}"));
        let now = self.now();
        let origin = Origin::plain(PeerAddress::Local);
        let id = self.hub.open(Protocol::Stomp, origin, now).expect("there is room");
        self.sockets.insert(who, id);
        self.model.connect(who, version);
        let login = match version {
            10 => "CONNECT\n\n\0".to_owned(),
            version => format!("STOMP\naccept-version:1.{}\nhost:h\n\n\0", version - 10),
        };
        self.send(id, login.as_bytes());
    }

    /// One write: frames that the model has been told of, and perhaps some that nobody must hear.
    fn write(&mut self, who: Who) {
        let mut bytes = vec![];
        for _ in 0..=self.choices.below(4) {
            let (frame, goes_on) = self.frame(who);
            bytes.extend(frame);
            if !goes_on {
                bytes.extend(frame_for_nobody());
                break;
            }
        }
        self.note_and_send(who, &bytes);
    }

    fn frame(&mut self, who: Who) -> Said {
        match self.choices.below(100) {
            0..30 => self.message(who),
            30..58 => self.acknowledgement(who),
            58..66 => self.subscription(who),
            66..70 => self.unsubscription(who),
            70..77 => self.beginning(who),
            77..87 => self.ending(who),
            87..92 => self.decision(who),
            92..95 => (self.choices.one_of(&["\n", "\n\n", "\0\n"]).into(), true),
            95 => self.goodbye(who),
            96 => self.forbidden(who),
            _ => (vec![], true),
        }
    }

    /// A receipt that the frame asks for, sometimes.
    fn receipt(&mut self) -> Option<String> {
        self.choices.chance(3).then(|| {
            self.receipts += 1;
            format!("r{}", self.receipts)
        })
    }

    /// A frame with its receipt, which comes if the frame is right; otherwise the connection ends.
    fn say(&mut self, who: Who, command: &str, headers: &[(&str, &str)], body: &str, right: bool) -> Said {
        let receipt = self.receipt();
        let mut all: Vec<(&str, &str)> = receipt.iter().map(|receipt| ("receipt", &**receipt)).collect();
        all.extend(headers);
        let bytes = frame(command, &all, body);
        if right {
            self.model.expect(who).receipts.extend(receipt);
        } else {
            self.model.expect(who).error = Some(receipt);
            self.model.end(who);
        }
        (bytes, right)
    }

    fn transaction_or_none(&mut self, who: Who) -> Option<String> {
        if self.choices.chance(2) { self.open_transaction(who) } else { None }
    }

    fn open_transaction(&mut self, who: Who) -> Option<String> {
        let open: Vec<String> = self.model.connections[&who].transactions.keys().cloned().collect();
        if open.is_empty() { None } else { Some(self.choices.one_of(&open)) }
    }

    fn message(&mut self, who: Who) -> Said {
        let queue = self.choices.below(QUEUES as u64) as usize;
        let place = match self.choices.chance(2) {
            true => Place::Topic(self.choices.one_of(&TOPICS).to_owned()),
            false if self.model.bounds(queue).1 as usize > WAITING_MAX => return (vec![], true),
            false => Place::Queue(queue),
        };
        let (text, light) = (self.model.next_text(), self.choices.chance(6));
        let within = self.transaction_or_none(who);
        let destination = place.destination();
        let mut headers = vec![("destination", destination.as_str())];
        headers.extend(light.then_some(("persistent", "false")));
        headers.extend(within.as_deref().map(|name| ("transaction", name)));
        self.model.send(who, within.as_deref(), Action::Send(place, text.clone(), light));
        self.say(who, "SEND", &headers, &text, true)
    }

    /// Of a message that the client has, or of one that it had.
    fn acknowledgement(&mut self, who: Who) -> Said {
        let connection = &self.model.connections[&who];
        let all = connection.subscriptions.iter().flat_map(|one| {
            one.unacked.iter().enumerate().map(|(at, unacked)| (one.number, at, unacked.clone()))
        });
        let all: Vec<_> = all.collect();
        if all.is_empty() {
            return (vec![], true);
        }
        let version = connection.version;
        let (number, at, unacked) = self.choices.one_of(&all);
        let how = self.choices.one_of(&[Verdict::Accept, Verdict::Accept, Verdict::Return, Verdict::Bury]);
        let how = if version == 10 { Verdict::Accept } else { how };
        let within = self.transaction_or_none(who);
        let id = format!("s{number}");
        let mut headers = match version {
            10 => vec![("message-id", unacked.name.as_str())],
            11 => vec![("subscription", id.as_str()), ("message-id", unacked.name.as_str())],
            _ => vec![("id", unacked.name.as_str())],
        };
        headers.extend((how == Verdict::Bury).then_some(("requeue", "false")));
        headers.extend(within.as_deref().map(|name| ("transaction", name)));
        // What a transaction holds already can be acknowledged in it again, and nowhere else.
        let free = unacked.transaction.is_none();
        let right = free || unacked.transaction == within;
        if free {
            self.model.acknowledge(who, number, at, how, within.as_deref());
        }
        let command = if how == Verdict::Accept { "ACK" } else { "NACK" };
        self.say(who, command, &headers, "", right)
    }

    fn subscription(&mut self, who: Who) -> Said {
        let subscriptions = &self.model.connections[&who].subscriptions;
        let live = subscriptions.iter().filter(|one| one.live).count();
        // One delivery to several subscriptions that acknowledge it would wait for all of them.
        let waits =
            |one: &&model::Subscription| one.mode != Mode::Auto && matches!(one.place, Place::Topic(_));
        let has_waiting = subscriptions.iter().any(|one| waits(&one));
        if live >= 5 {
            return (vec![], true);
        }
        let mode = self.choices.one_of(&[Mode::Auto, Mode::Client, Mode::Individual]);
        let place = if self.choices.chance(3) && (mode == Mode::Auto || !has_waiting) {
            Place::Topic(self.choices.one_of(&FILTERS).to_owned())
        } else {
            Place::Queue(self.choices.below(QUEUES as u64) as usize)
        };
        let prefetch = self.choices.below(4) as usize + 1;
        let (number, destination, count) =
            (self.model.next_number(), place.destination(), prefetch.to_string());
        let (id, ack) = (format!("s{number}"), ["auto", "client", "client-individual"][mode as usize]);
        let headers =
            [("id", &*id), ("destination", &*destination), ("ack", ack), ("prefetch-count", &*count)];
        self.model.subscribe(who, place, mode, prefetch);
        let receipts = self.receipts;
        let said = self.say(who, "SUBSCRIBE", &headers, "", true);
        if self.receipts > receipts {
            self.subscribed.insert(format!("r{}", self.receipts), number);
        }
        said
    }

    fn unsubscription(&mut self, who: Who) -> Said {
        let live = self.model.connections[&who].subscriptions.iter().filter(|one| one.live);
        let live: Vec<Number> = live.map(|one| one.number).collect();
        if live.is_empty() {
            return (vec![], true);
        }
        let number = self.choices.one_of(&live);
        self.model.unsubscribe(who, number);
        self.say(who, "UNSUBSCRIBE", &[("id", &format!("s{number}"))], "", true)
    }

    fn beginning(&mut self, who: Who) -> Said {
        let name = self.choices.one_of(&NAMES);
        let free = !self.model.connections[&who].transactions.contains_key(name);
        let used = self.model.decided.len() + self.model.prepared.len();
        let xid = self.choices.chance(2).then(|| match self.choices.below(8) {
            0 => "x0".to_owned(),
            _ => format!("x{used}"),
        });
        let mut headers = vec![("transaction", name)];
        headers.extend(xid.as_deref().map(|xid| ("xid", xid)));
        if free {
            self.model.begin(who, name, xid.clone());
        }
        self.say(who, "BEGIN", &headers, "", free)
    }

    fn ending(&mut self, who: Who) -> Said {
        let Some(name) = self.open_transaction(who) else { return (vec![], true) };
        let has_xid = self.model.connections[&who].transactions[&name].xid.is_some();
        let headers = [("transaction", name.as_str()), ("phase", "prepare")];
        if self.choices.chance(3) {
            self.model.abort(who, &name);
            return self.say(who, "ABORT", &headers[..1], "", true);
        }
        if has_xid && self.choices.below(4) > 0 {
            let right = self.model.can_prepare(who, &name);
            if right {
                self.model.prepare(who, &name);
            }
            return self.say(who, "COMMIT", &headers, "", right);
        }
        self.model.commit(who, &name);
        self.say(who, "COMMIT", &headers[..1], "", true)
    }

    /// Of a prepared transaction, of one that was decided, or of one that never was.
    fn decision(&mut self, who: Who) -> Said {
        let names = self.model.prepared.keys().chain(self.model.decided.keys().take(2)).cloned();
        let mut names: Vec<String> = names.collect();
        if self.choices.chance(8) {
            names.push("never".into());
        }
        if names.is_empty() {
            return (vec![], true);
        }
        let (xid, commit) = (self.choices.one_of(&names), self.choices.chance(2));
        let right = self.model.decide(&xid, commit);
        self.say(who, if commit { "COMMIT" } else { "ABORT" }, &[("xid", &xid)], "", right)
    }

    fn goodbye(&mut self, who: Who) -> Said {
        let (bytes, _) = self.say(who, "DISCONNECT", &[], "", true);
        self.model.end(who);
        (bytes, false)
    }

    fn forbidden(&mut self, who: Who) -> Said {
        let text = self.choices.one_of(&FORBIDDEN);
        let receipt = self.receipt();
        let line = receipt.as_ref().map_or("\n".into(), |receipt| format!("\nreceipt:{receipt}\n"));
        let expected = self.model.expect(who);
        (expected.error, expected.early) = (Some(receipt), true);
        self.model.end(who);
        (text.replacen('\n', &line, 1).into_bytes(), false)
    }

    /// The socket is gone, perhaps in the middle of a frame.
    fn lose(&mut self, who: Who) {
        self.note(format!("{who} is lost"));
        let id = self.sockets[&who];
        let now = self.now();
        if self.choices.chance(2) {
            let whole = frame_for_nobody();
            let cut = self.choices.below(whole.len() as u64 - 1) + 1;
            self.hub.received(id, &whole[..cut as usize], now);
        }
        self.model.end(who);
        self.hub.lost(id, now);
    }

    fn kill(&mut self) {
        self.note("kill".into());
        self.model.kill();
        self.sockets.clear();
        self.read.clear();
        let recovered = self.store.restart();
        let mut broker = Broker::new(self.limits.clone(), 8);
        broker.restore(recovered, self.now()).expect("what was stored can be read");
        self.hub = Hub::new(broker, self.limits.clone());
        let now = self.now();
        self.hub.tick(now);
    }

    fn step(&mut self) {
        self.mono = Mono(self.mono.0 + 1);
        let who = self.choices.below(CLIENTS) as Who;
        match self.choices.below(300) {
            1 => self.kill(),
            2..6 if self.sockets.contains_key(&who) => self.lose(who),
            _ if !self.sockets.contains_key(&who) => self.connect(who),
            _ if self.model.prepared.len() > PREPARED_MAX => self.decide_one(who),
            _ => self.write(who),
        }
        self.settle();
        self.compare_all();
    }

    fn decide_one(&mut self, who: Who) {
        let (bytes, _) = self.decision(who);
        self.note_and_send(who, &bytes);
    }

    fn note_and_send(&mut self, who: Who, bytes: &[u8]) {
        self.note(format!("{who} sends {:?}", String::from_utf8_lossy(bytes)));
        self.send(self.sockets[&who], bytes);
    }

    fn compare_all(&mut self) {
        let all = self.sockets.clone();
        let expected: Vec<_> =
            all.iter().map(|(who, id)| (*who, *id, self.model.take_expected(*who))).collect();
        let (ended, open): (Vec<_>, Vec<_>) = expected.into_iter().partition(|(.., one)| one.ended.is_some());
        for (who, id, expected) in ended.into_iter().chain(open) {
            self.compare(who, id, expected);
        }
        self.subscribed.clear();
        self.model.check_rest();
        self.hub.broker().check();
        self.compare_counters();
    }

    fn compare_counters(&self) {
        let broker = self.hub.broker();
        for queue in broker.queues() {
            let Some(number) = queue.name.strip_prefix("$queue/q").and_then(|digits| digits.parse().ok())
            else {
                continue;
            };
            let (least, most) = self.model.bounds(number);
            assert!((least..=most).contains(&queue.messages), "{}: {least} to {most}", queue.messages);
        }
        let dead = broker.queues().find(|queue| queue.name == "$queue/dead-letters");
        assert_eq!(dead.map_or(0, |queue| queue.messages), self.model.dead, "dead letters");
        let prepared: Vec<String> = broker.prepared_transactions().map(|one| one.xid.into()).collect();
        assert_eq!(prepared, self.model.prepared.keys().cloned().collect::<Vec<_>>());
    }

    fn compare(&mut self, who: Who, id: ConnId, expected: Expected) {
        let mut seen = wire::parse(&self.read.remove(&id).unwrap_or_default());
        if expected.connected {
            assert!(!seen.is_empty() && seen.remove(0).command == "CONNECTED", "client {who}");
        }
        self.check_order_of_subscriptions(&seen);
        if let Some(receipt) = &expected.error {
            let error = seen.pop().filter(|frame| frame.command == "ERROR");
            let error = error.unwrap_or_else(|| panic!("client {who} is told of its fault"));
            let told = error.find("receipt-id");
            assert!(
                told == receipt.as_deref() || (expected.early && told.is_none()),
                "{error:?}: {receipt:?}"
            );
        }
        let (messages, answers): (Vec<_>, Vec<_>) =
            seen.into_iter().partition(|one| one.command == "MESSAGE");
        for message in &messages {
            let number = message.header("subscription").strip_prefix('s').and_then(|id| id.parse().ok());
            let number: Number = number.expect("identifiers are ours");
            match &expected.ended {
                None => self.model.heard(who, number, message),
                Some(all) => {
                    let one = all.iter().find(|one| one.number == number).expect("it was subscribed to");
                    self.model.heard_at_the_end(one, message);
                }
            }
        }
        let told = |frame: &Seen| (frame.command.clone(), frame.find("receipt-id").map(str::to_owned));
        let due = expected.receipts.iter().map(|id| ("RECEIPT".to_owned(), Some(id.clone())));
        assert_eq!(answers.iter().map(told).collect::<Vec<_>>(), due.collect::<Vec<_>>(), "client {who}");
        if expected.ended.is_none() {
            return assert!(!self.hub.is_ending(id), "client {who} was closed without a reason");
        }
        assert!(self.hub.is_ending(id), "client {who} must have been closed");
        let now = self.now();
        self.hub.closed(id, now);
        self.sockets.remove(&who);
        self.settle();
    }

    /// The receipt of SUBSCRIBE comes before its messages.
    fn check_order_of_subscriptions(&self, seen: &[Seen]) {
        for (at, frame) in seen.iter().enumerate().filter(|(_, frame)| frame.command == "RECEIPT") {
            let Some(number) = self.subscribed.get(frame.header("receipt-id")) else { continue };
            let id = format!("s{number}");
            let early = seen[..at].iter().find(|one| one.find("subscription") == Some(&id));
            assert_eq!(early, None, "a message before its subscription's receipt");
        }
    }
}

/// A message that must never arrive.
fn frame_for_nobody() -> Vec<u8> {
    frame("SEND", &[("destination", "/queue/q0")], "for nobody")
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.steps.iter().for_each(|step| eprintln!("{step}"));
        }
    }
}

/// Lets a fuzzer's input choose what clients do; panics if anything comes back that must not.
#[cfg(feature = "simulation")]
pub fn fuzz(input: &[u8]) {
    let mut world = World::new(Choices::Input(input.iter().rev().copied().collect()));
    while !world.choices.is_over() {
        world.step();
    }
}

#[cfg(test)]
#[test]
fn any_bytes_leave_the_hub_whole() {
    let mut random = Choices::Random(1);
    let frames = FORBIDDEN.iter().map(|text| text.as_bytes().to_vec());
    let mut frames: Vec<Vec<u8>> = frames.collect();
    frames.extend(wire::RIGHT.map(|text| text.as_bytes().to_vec()));
    for _ in 0..400 {
        let mut input = vec![];
        for _ in 0..random.below(12) {
            let mut piece = random.one_of(&frames);
            if random.chance(3) {
                let at = random.below(piece.len() as u64) as usize;
                piece[at] = random.below(256) as u8;
            }
            piece.truncate(255);
            input.extend([random.below(128) as u8, piece.len() as u8]);
            input.extend(piece);
        }
        raw::fuzz_bytes(&input);
    }
}

#[cfg(test)]
#[test]
fn whatever_stomp_clients_send_the_broker_does_what_may_happen_next() {
    /// Steps unless a variable says otherwise, and those of one world: fewer than there are decisions remembered.
    const STEPS: u64 = 30_000;
    const LIFE_STEPS: u64 = 500;
    let (seed, steps) = super::rig::seed_and_steps(STEPS);
    let mut world = World::new(Choices::Random(seed));
    for step in 0..steps {
        if step % LIFE_STEPS == LIFE_STEPS - 1 {
            let Choices::Random(state) = world.choices else { unreachable!("it was made so") };
            world = World::new(Choices::Random(state));
        }
        world.step();
    }
}
