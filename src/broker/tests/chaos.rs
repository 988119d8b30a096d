//! Any command in any order: peers decide what the broker hears, so nothing that they say may end it or upset its accounts.
//!
//! Six connections send commands with few names, so that most of them meet something, while an operator empties, moves and ends
//! queues, ends sessions and changes the rules, and the disk fills up. After each turn the broker's accounts are compared with a
//! full scan and with the store. `TIDEGATE_SEED` repeats one run, `TIDEGATE_CHAOS_SEEDS` sets how many there are.

use std::sync::Arc;

use super::queues::{QUEUE, consumer};
use super::*;
use crate::access::RuleSet;
use crate::broker::AccessRules;
use crate::limits::{DEAD_LETTERS, Overflow, QueueDef, QueueLimits};
use crate::store::contract::Capacity;
use crate::store::tests_support::Random;

const CLIENTS: u64 = 6;
const STEPS: usize = 400;
const TOPICS: [&str; 6] = ["a/b", "a/c", QUEUE, "$queue/other", "$queue/tight", "a"];
const FILTERS: [&str; 8] =
    ["a/#", "a/b", "+/c", "#", QUEUE, "$share/g/a/#", "$share/g/$queue/other", "$share/h/a/b"];

const QUEUE_NAMES: [&str; 4] = ["jobs", "other", "tight", DEAD_LETTERS];

/// Wants messages whose size divided by three leaves this.
#[derive(Debug)]
struct Sized(u32);

impl Selector for Sized {
    fn wants(&self, message: &Message, _: u32) -> bool {
        message.size() % 3 == self.0
    }

    fn memory(&self) -> usize {
        size_of::<Self>()
    }
}

/// What is known of the queues, so that overflow, dead letters and their absence all come to pass.
fn queue_defs() -> Vec<QueueDef> {
    let tight = QueueLimits { messages_max: Some(5), bytes_max: None, overflow: Overflow::Reject };
    vec![
        QueueDef {
            name: "jobs".into(),
            redeliveries_max: Some(2),
            dead_letter_expired: true,
            ..QueueDef::default()
        },
        QueueDef {
            name: "tight".into(),
            bind: vec!["a/+".into()],
            limits: QueueLimits { overflow: Overflow::DropHead, ..tight },
            dead_letter: None,
            ..QueueDef::default()
        },
        QueueDef { name: DEAD_LETTERS.into(), limits: tight, ..QueueDef::default() },
    ]
}

struct Chaos {
    rig: Rig,
    random: Random,
    conns: Vec<Option<ConnId>>,
    seen: Vec<DeliveryId>,
}

impl Chaos {
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.random.below(all.len() as u64) as usize]
    }

    fn qos(&mut self) -> Qos {
        self.one_of(&[Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce])
    }

    fn tag(&mut self) -> ReplyTag {
        ReplyTag(self.random.below(4) as u16 + 1)
    }

    fn delivery(&mut self) -> DeliveryId {
        if self.seen.is_empty() || self.random.chance(8) {
            return id(self.random.below(6) as u16 + 1);
        }
        let seen = std::mem::take(&mut self.seen);
        let one = self.one_of(&seen);
        self.seen = seen;
        one
    }

    fn message(&mut self) -> Message {
        let (topic, qos) = (self.one_of(&TOPICS), self.qos());
        let retain = self.random.chance(6);
        let mut head = MessageHead { qos, retain, published: self.rig.now().wall, ..MessageHead::default() };
        if self.random.chance(8) {
            head.expires = Some(Wall(head.published.0 + 1000 * self.random.below(5)));
        }
        let payload = vec![b'x'; self.one_of(&[0, 10, 900])];
        Message::new(topic, &payload, head)
    }

    fn consume(&mut self) -> ClientCommand {
        let name = self.random.below(3) as u32;
        let queue = self.one_of(&[QUEUE, "$queue/other", "$queue/tight", "$queue/dead-letters"]);
        let selector = if self.random.chance(3) {
            let rest = self.random.below(3) as u32;
            Some(Arc::new(Sized(rest)) as Arc<dyn Selector>)
        } else {
            None
        };
        ClientCommand::Consume(Box::new(ConsumeRequest {
            queue: queue.into(),
            messages_max: self.one_of(&[1, 3, 100]),
            priority: self.one_of(&[0, 0, 5, -1]),
            exclusive: self.random.chance(8),
            browse: self.random.chance(4),
            selector,
            ..consumer(name)
        }))
    }

    fn transaction(&mut self) -> ClientCommand {
        let (tag, transaction) = (self.tag(), TransactionId(self.random.below(2) as u32));
        let (xid, commit): (Box<str>, bool) = (self.one_of(&["x", "y"]).into(), self.random.chance(2));
        match self.random.below(9) {
            0 | 1 => ClientCommand::Begin { tag, transaction },
            2 => ClientCommand::Commit { tag, transaction },
            3 => ClientCommand::Abort { tag, transaction },
            4 => ClientCommand::Prepare { tag, transaction, xid },
            5 => ClientCommand::Decide { tag, xid, commit },
            6 => {
                let action = TransactionAction::Settle(self.delivery());
                ClientCommand::Act { tag, transaction, action }
            }
            7 => {
                let action = TransactionAction::Reject { delivery: self.delivery(), requeue: commit };
                ClientCommand::Act { tag, transaction, action }
            }
            _ => {
                let action = TransactionAction::Publish(self.message());
                ClientCommand::Act { tag, transaction, action }
            }
        }
    }

    fn command(&mut self) -> ClientCommand {
        let tag = self.tag();
        match self.random.below(20) {
            0..=4 => ClientCommand::Publish(PublishRequest { tag, message: self.message() }),
            5 => ClientCommand::Release { tag },
            6 => {
                let options = SubscribeOptions { qos: self.qos(), ..SubscribeOptions::default() };
                let filters = vec![SubscribeFilter { filter: self.one_of(&FILTERS).into(), options }];
                ClientCommand::Subscribe { tag, subscription_id: None, filters }
            }
            7 => ClientCommand::Unsubscribe { tag, filters: vec![self.one_of(&FILTERS).into()] },
            8 | 9 => ClientCommand::Settle { delivery: self.delivery(), accepted: !self.random.chance(4) },
            10 => ClientCommand::Received { delivery: self.delivery() },
            11 => ClientCommand::Completed { delivery: self.delivery() },
            12 => ClientCommand::Reject { delivery: self.delivery(), requeue: self.random.chance(2) },
            13 => self.consume(),
            14 => ClientCommand::Cancel {
                tag,
                consumer: ConsumerId(self.random.below(3) as u32),
                requeue: self.random.chance(2),
            },
            15 if self.random.chance(2) => ClientCommand::Sync { tag },
            15 => ClientCommand::DeadLetter { delivery: self.delivery(), message: self.message() },
            _ => self.transaction(),
        }
    }

    fn connect(&mut self, client: usize) {
        let (clean, lasting) = (self.random.chance(3), self.random.chance(2));
        let conn = self.rig.connect_with(&format!("c{client}"), |request| {
            request.clean_start = clean;
            request.receive_max = 5;
            request.expiry = if lasting { SessionExpiry::After(60) } else { SessionExpiry::WithConnection };
            request.will = clean.then(|| will("a/b", 0));
        });
        self.conns[client] = Some(conn);
    }

    fn listen(&mut self, conn: ConnId) {
        for event in self.rig.heard(conn) {
            match event {
                ClientEvent::Deliver(delivery) => self.seen.extend(delivery.id),
                ClientEvent::Close(_) | ClientEvent::Refused(_) => {
                    self.conns
                        .iter_mut()
                        .filter(|other| **other == Some(conn))
                        .for_each(|other| *other = None);
                }
                _ => {}
            }
        }
        let surplus = self.seen.len().saturating_sub(12);
        self.seen.drain(..surplus);
    }

    /// What operators do, and what happens to the disk.
    fn operate(&mut self, client: usize) {
        let (name, other) = (self.one_of(&QUEUE_NAMES), self.one_of(&QUEUE_NAMES));
        let to = if self.random.chance(3) { None } else { Some(other) };
        let now = self.rig.now();
        let broker = &mut self.rig.broker;
        match self.random.below(12) {
            0 | 1 => drop(broker.purge_some(name, now)),
            2..=4 => drop(broker.move_some(name, to, now)),
            5 => drop(broker.peek(name, 5, now)),
            6 => drop(broker.delete_queue(name)),
            7 => drop(broker.disconnect_client(&format!("c{client}"), now)),
            8 => drop(broker.delete_session(&format!("c{client}"), now)),
            9 => drop(broker.decide("x", self.random.chance(2), now)),
            10 => {
                let full = if self.random.chance(2) { Capacity::Full } else { Capacity::Free };
                broker.store_event(StoreEvent::Capacity(full), now);
            }
            _ => {
                let rules = self.random.chance(2).then_some("allow all a/#\nallow read $queue/#\n");
                let rules = rules.map(|text| Arc::new(RuleSet::parse("acl", text, false).unwrap()));
                broker.set_access(AccessRules { rules, ..AccessRules::default() }, now);
            }
        }
        self.rig.turn();
    }

    fn step(&mut self) {
        let client = self.random.below(CLIENTS) as usize;
        match (self.conns[client], self.random.below(100)) {
            (_, 0) => {
                self.rig.kill_and_restart(1);
                self.conns = vec![None; CLIENTS as usize];
            }
            (_, 1..=3) => self.rig.advance_secs(1),
            (_, 4..=8) => self.rig.auto = !self.rig.auto,
            (_, 9..=12) => self.rig.settle_store(),
            (_, 41..=44) => self.operate(client),
            (None, _) => self.connect(client),
            (Some(conn), 13..=15) => {
                self.conns[client] = None;
                if self.random.chance(2) { self.rig.lose(conn) } else { self.rig.goodbye(conn) }
            }
            (Some(_), 16) => self.connect(client),
            (Some(conn), 17..=40) => {
                let command = self.command();
                // Several commands in one turn. Whoever may wait gives up after a while.
                let (may_wait, now) = (self.random.chance(2), self.rig.now());
                if let Some(command) = self.rig.broker.handle_or_wait(conn, command, may_wait, now) {
                    self.rig.settle_store();
                    self.rig.broker.handle(conn, *command, now);
                }
            }
            (Some(conn), _) => {
                let command = self.command();
                self.rig.send(conn, command);
                self.listen(conn);
            }
        }
    }
}

fn run(seed: u64) {
    let mut random = Random(seed);
    let limits = Limits {
        hold_millis: if random.chance(2) { 50 } else { 0 },
        queue_window_bytes_max: if random.chance(2) { 2 << 10 } else { 256 << 10 },
        queue_defs: queue_defs(),
        prepared_timeout_secs: random.chance(2).then_some(20),
        // With one byte every message of a transaction waits in the store.
        transaction_bytes_max: if random.chance(2) { 1 } else { 1 << 20 },
        ..Limits::default()
    };
    let conns = vec![None; CLIENTS as usize];
    let mut chaos = Chaos { rig: Rig::with(limits), random, conns, seen: vec![] };
    for _ in 0..STEPS {
        chaos.step();
    }
    chaos.rig.settle_store();
}

#[test]
fn no_order_of_commands_upsets_the_broker() {
    if let Ok(seed) = std::env::var("TIDEGATE_SEED") {
        return run(seed.parse().expect("TIDEGATE_SEED is a number"));
    }
    let seeds = std::env::var("TIDEGATE_CHAOS_SEEDS").map_or(200, |n| n.parse().expect("a number"));
    for seed in 0..seeds {
        if std::panic::catch_unwind(|| run(seed)).is_err() {
            panic!("TIDEGATE_SEED={seed}");
        }
    }
}
