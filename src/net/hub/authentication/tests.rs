//! Random conversations of clients that prove who they are, beside a model that knows what each packet may lead to.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::access::scram::tests::answer_to;
use crate::access::scram::{ITERATIONS_MIN, SALT_BYTES, Verifier};
use crate::access::{Policy, Users};
use crate::broker::Broker;
use crate::broker::api::ConnId;
use crate::limits::Limits;
use crate::net::hub::{Access, Hub, rig};
use crate::net::origin::{Origin, PeerAddress, Protocol};
use crate::time::{Mono, Now, Timeline, Wall};

/// Steps of the model test.
const STEPS: u64 = 4_000;
/// Clients that take part.
const CLIENTS: u64 = 4;
const METHOD: &str = "SCRAM-SHA-256";

/// What a client may expect.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// It is not connected.
    Away,
    /// It has been asked, in its login or on an open connection: what is right, and whose name it gave.
    Asked { open: bool, challenge: Vec<u8>, user: &'static str },
    /// It is let in.
    Open,
}

/// What the broker said.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Connack(u8),
    Auth(u8, Vec<u8>),
    Disconnect(u8),
    Pong,
}

struct World {
    hub: Hub,
    mono: Mono,
    seed: u64,
    clients: BTreeMap<u64, (ConnId, State)>,
}

/// SplitMix64.
fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) % below
}

fn text(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text].concat()
}

fn with_length(body: &[u8]) -> Vec<u8> {
    let length = body.len();
    assert!(length < 1 << 14, "tests send short packets");
    let head = if length < 128 {
        vec![length as u8]
    } else {
        vec![(length & 0x7f) as u8 | 0x80, (length >> 7) as u8]
    };
    [&head[..], body].concat()
}

fn properties(method: &str, message: &[u8]) -> Vec<u8> {
    with_length(&[&[0x15][..], &text(method.as_bytes()), &[0x16], &text(message)].concat())
}

fn auth(reason: u8, method: &str, message: &[u8]) -> Vec<u8> {
    let body = [&[reason][..], &properties(method, message)].concat();
    [&[0xf0][..], &with_length(&body)].concat()
}

fn connect(client: u64, method: &str, message: &[u8]) -> Vec<u8> {
    let head = [&text(b"MQTT")[..], &[5, 2, 0, 0]].concat();
    let id = text(format!("client-{client}").as_bytes());
    let body = [&head[..], &properties(method, message), &id].concat();
    [&[0x10][..], &with_length(&body)].concat()
}

fn first(user: &str) -> Vec<u8> {
    format!("n,,n={user},r=nonce").into_bytes()
}

/// Takes apart what was sent to a client.
fn said(mut bytes: &[u8]) -> Vec<Said> {
    let mut all = Vec::new();
    while let [kind, rest @ ..] = bytes {
        let (length, used) = match rest {
            [low, high, ..] if low & 0x80 != 0 => (usize::from(low & 0x7f) | usize::from(*high) << 7, 2),
            [low, ..] => (usize::from(*low), 1),
            [] => panic!("a packet without a length"),
        };
        let body = &rest[used..used + length];
        all.push(match kind {
            0x20 => Said::Connack(body[1]),
            0xe0 => Said::Disconnect(body[0]),
            0xd0 => Said::Pong,
            0xf0 => {
                let data =
                    body.windows(2).rposition(|pair| pair == [0x16, 0]).map(|at| body[at + 3..].to_vec());
                Said::Auth(body[0], data.expect("there is always a message"))
            }
            other => panic!("0x{other:02x} is not expected"),
        });
        bytes = &rest[used + length..];
    }
    all
}

impl World {
    fn new(seed: u64) -> Self {
        let limits = Limits { login_millis_max: 1_000, ..Limits::default() };
        let hub = Hub::new(Broker::new(limits.clone(), 7), limits);
        let iterations = ITERATIONS_MIN.try_into().unwrap();
        let line =
            |user: &str| format!("{user}:{}\n", Verifier::create(b"right", &[3; SALT_BYTES], iterations));
        let users = Users::parse(&(line("ann") + &line("bob"))).unwrap();
        let policy = Policy { users: Some(Arc::new(users)), ..Policy::default() };
        let mut world = Self { hub, mono: Mono(1), seed, clients: BTreeMap::new() };
        let access = Access { policy, anonymous: vec![false], ..Access::default() };
        world.hub.set_access(access, world.now());
        world
    }

    fn now(&self) -> Now {
        Timeline::anchored(Wall(1_700_000_000_000), Wall(0)).at(self.mono)
    }

    fn below(&mut self, end: u64) -> u64 {
        random(&mut self.seed, end)
    }

    /// What was sent to a connection since the last time, and whether it has been closed.
    fn heard(&mut self, id: ConnId) -> (Vec<Said>, bool) {
        let now = self.now();
        let mut read = Vec::new();
        self.hub.finish_turn(now);
        while let Some(dirty) = self.hub.next_dirty() {
            let mut sent = Vec::new();
            self.hub.read_all(dirty, now, &mut sent);
            assert!(dirty == id || sent.is_empty(), "{dirty:?} hears of what another one did");
            read.extend(sent);
        }
        let over = self.hub.key(id).is_none_or(|key| self.hub.slots[key].ending);
        (said(&read), over)
    }

    fn send(&mut self, id: ConnId, bytes: &[u8]) -> (Vec<Said>, bool) {
        let at = self.below(bytes.len() as u64) as usize;
        let now = self.now();
        for part in [&bytes[..at], &bytes[at..]] {
            if !part.is_empty() {
                self.hub.received(id, part, now);
            }
        }
        self.heard(id)
    }

    fn step(&mut self) {
        let who = self.below(CLIENTS);
        let (id, state) = match self.clients.remove(&who) {
            Some(client) => client,
            None => {
                let origin = Origin::plain(PeerAddress::Local);
                (self.hub.open(Protocol::Mqtt, origin, self.now()).expect("there is room"), State::Away)
            }
        };
        let (heard, over, next) = match state {
            State::Away => self.log_in(who, id),
            State::Open => self.speak(id),
            State::Asked { open, challenge, user } => self.answer(id, open, &challenge, user),
        };
        assert_eq!(over, next.is_none(), "{who}: {heard:?}");
        match next {
            Some(state) => drop(self.clients.insert(who, (id, state))),
            None => self.hub.closed(id, self.now()),
        }
    }

    fn log_in(&mut self, who: u64, id: ConnId) -> (Vec<Said>, bool, Option<State>) {
        let user = ["ann", "bob", "nobody"][self.below(3) as usize];
        let (method, message, refusal) = match self.below(8) {
            0 => ("SCRAM-SHA-1", first(user), 0x8c),
            1 => (METHOD, b"n,,n=,r=x".to_vec(), 0x87),
            2 => (METHOD, [b"p=tls-unique,,", &first(user)[3..]].concat(), 0x87),
            _ => (METHOD, first(user), 0),
        };
        let (heard, over) = self.send(id, &connect(who, method, &message));
        let next = self.challenge(&heard, false, user, refusal);
        (heard, over, next)
    }

    /// A challenge if nothing is wrong, or else the refusal.
    fn challenge(&self, heard: &[Said], open: bool, user: &'static str, refusal: u8) -> Option<State> {
        match heard {
            [Said::Auth(0x18, challenge)] if refusal == 0 => {
                Some(State::Asked { open, challenge: challenge.clone(), user })
            }
            [Said::Connack(reason)] if !open && *reason == refusal => None,
            [Said::Disconnect(reason)] if open && *reason == refusal => None,
            other => panic!("{other:?} where 0x{refusal:02x} is due"),
        }
    }

    fn speak(&mut self, id: ConnId) -> (Vec<Said>, bool, Option<State>) {
        let user = self.hub.broker().identity(id).user.expect("it has proved it");
        let (user, other) = if &*user == "ann" { ("ann", "bob") } else { ("bob", "ann") };
        let (packet, refusal) = match self.below(10) {
            0..=3 => (auth(0x19, METHOD, &first(user)), 0),
            4 => (auth(0x19, METHOD, &first(other)), 0x87),
            5 => (auth(0x19, "PLAIN", &first(user)), 0x82),
            6 => (auth(0x18, METHOD, b"x"), 0x82),
            7 => {
                self.mono = Mono(self.mono.0 + 2_000_000);
                self.expire_others(id);
                return (vec![], false, Some(State::Open));
            }
            _ => {
                let (heard, over) = self.send(id, &[0xc0, 0]);
                assert_eq!(heard, [Said::Pong]);
                return (heard, over, Some(State::Open));
            }
        };
        let (heard, over) = self.send(id, &packet);
        let next = self.challenge(&heard, true, user, refusal);
        (heard, over, next)
    }

    /// Time passes, until everybody who was asked is too late.
    fn expire_others(&mut self, but: ConnId) {
        self.hub.tick(self.now());
        let late = std::mem::take(&mut self.clients);
        let mut sent: BTreeMap<ConnId, Vec<u8>> = BTreeMap::new();
        let now = self.now();
        while let Some(dirty) = self.hub.next_dirty() {
            let all = sent.entry(dirty).or_default();
            self.hub.read_all(dirty, now, all);
        }
        assert!(!sent.contains_key(&but));
        for (who, (id, state)) in late {
            let heard = said(&sent.remove(&id).unwrap_or_default());
            match &state {
                State::Asked { open: false, .. } => assert_eq!(heard, [Said::Connack(0x80)]),
                State::Asked { open: true, .. } => assert_eq!(heard, [Said::Disconnect(0x87)]),
                State::Open | State::Away => {
                    assert_eq!(heard, []);
                    self.clients.insert(who, (id, state));
                    continue;
                }
            }
            self.hub.closed(id, now);
        }
    }

    fn answer(
        &mut self,
        id: ConnId,
        open: bool,
        challenge: &[u8],
        user: &'static str,
    ) -> (Vec<Said>, bool, Option<State>) {
        let refused = |heard: &[Said], reason: u8| match open {
            true => assert_eq!(heard, [Said::Disconnect(reason)]),
            false => assert_eq!(heard, [Said::Connack(reason)]),
        };
        let exists = user != "nobody";
        let (packet, reason) = match self.below(8) {
            0 => (auth(0x18, METHOD, answer_to(&first(user), challenge, b"wrong").as_bytes()), 0x87),
            1 => (auth(0x18, METHOD, b"c=biws,r=x,p=AAAA"), 0x87),
            2 => (auth(0x19, METHOD, &first(user)), 0x82),
            3 => (auth(0x18, "SCRAM-SHA-1", b""), 0x82),
            4 if open => {
                let (heard, over) = self.send(id, &[0xc0, 0]);
                assert_eq!(heard, [Said::Pong], "everything else goes on");
                return (heard, over, Some(State::Asked { open, challenge: challenge.to_vec(), user }));
            }
            4 => (vec![0xc0, 0], 0x82),
            _ => {
                let right = answer_to(&first(user), challenge, b"right");
                (auth(0x18, METHOD, right.as_bytes()), if exists { 0 } else { 0x87 })
            }
        };
        let (heard, over) = self.send(id, &packet);
        if reason != 0 {
            refused(&heard, reason);
            return (heard, over, None);
        }
        match &heard[..] {
            [Said::Auth(0, last)] if open => assert!(last.starts_with(b"v=")),
            [Said::Connack(0)] if !open => {}
            other => panic!("{other:?} for the right answer"),
        }
        (heard, over, Some(State::Open))
    }
}

#[test]
fn whatever_clients_say_in_an_exchange_leads_to_what_it_may_lead_to() {
    let (seed, steps) = rig::seed_and_steps(STEPS);
    let mut world = World::new(seed);
    for _ in 0..steps {
        world.step();
        assert!(
            world.hub.logins.renewals.len() <= 2 * super::RENEWALS_MIN,
            "renewals are listed without end"
        );
    }
    let clients = std::mem::take(&mut world.clients);
    clients.into_values().for_each(|(id, _)| world.hub.closed(id, world.now()));
    assert_eq!(world.hub.logins.gate.challenged(), 0, "challenges are left over");
    assert!(world.hub.logins.waiting.is_empty() && world.hub.logins.last_messages.is_empty());
}
