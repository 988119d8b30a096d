//! Acknowledgements that are held: what every consumer settles in time is never handed to the store.

use super::api::*;
use super::{Broker, Effect};
use crate::limits::Limits;
use crate::message::{Message, MessageHead, Qos};
use crate::store::contract::{Batch, Committed, Op, StoreEvent};
use crate::time::{Mono, Now, Wall};

const HOLD_MILLIS: u32 = 250;
const PUBLISHER: ConnId = ConnId(1);

struct World {
    broker: Broker,
    now: Now,
    /// Everything that left, in order.
    effects: Vec<Effect>,
    batches: u64,
}

impl World {
    /// A publisher and durable consumers of everything, numbered from 2 on.
    fn new(hold_millis: u32, consumers: u64) -> Self {
        let limits = Limits { hold_millis, ..Limits::default() };
        let now = Now { mono: Mono(1_000_000), wall: Wall(1_700_000_000_000) };
        let mut world = Self { broker: Broker::new(limits, 7), now, effects: vec![], batches: 0 };
        world.connect(PUBLISHER, SessionExpiry::WithConnection);
        for n in 2..2 + consumers {
            world.connect(ConnId(n), SessionExpiry::Never);
            let options = SubscribeOptions { qos: Qos::AtLeastOnce, ..SubscribeOptions::default() };
            let filters = vec![SubscribeFilter { filter: "#".into(), options }];
            let command = ClientCommand::Subscribe { tag: ReplyTag(1), subscription_id: None, filters };
            world.command(ConnId(n), command);
            world.commit();
        }
        world.effects.clear();
        world
    }

    fn connect(&mut self, conn: ConnId, expiry: SessionExpiry) {
        let request = ConnectRequest {
            client_id: format!("client-{}", conn.0).into(),
            clean_start: false,
            expiry,
            receive_max: 1000,
            will: None,
            internal: false,
        };
        self.command(conn, ClientCommand::Connect(Box::new(request)));
        self.commit();
    }

    fn command(&mut self, conn: ConnId, command: ClientCommand) {
        self.broker.handle(conn, command, self.now);
    }

    /// What a driver does at the end of a round.
    fn round(&mut self) -> Option<Batch> {
        let batch = self.broker.take_batch(self.now);
        self.broker.take_effects(&mut self.effects);
        batch
    }

    /// A round after which the store has written what there was.
    fn commit(&mut self) {
        if let Some(batch) = self.round() {
            self.batches += 1;
            let receipt = StoreEvent::Committed(Committed::for_test(batch.id));
            self.broker.store_event(receipt, self.now);
            self.broker.take_effects(&mut self.effects);
        }
    }

    fn wait(&mut self, millis: u64) {
        self.now.mono = self.now.mono.plus_millis(millis);
        self.now.wall.0 += millis;
    }

    fn publish(&mut self, tag: u16) {
        let head = MessageHead { qos: Qos::AtLeastOnce, ..MessageHead::default() };
        let message = Message::new("a/b", &tag.to_le_bytes(), head);
        self.command(PUBLISHER, ClientCommand::Publish(PublishRequest { tag: ReplyTag(tag), message }));
    }

    /// The deliveries that have left for `conn` since the last call of this kind.
    fn deliveries(&mut self, conn: ConnId) -> Vec<DeliveryId> {
        let mut found = vec![];
        self.effects.retain(|effect| match effect {
            Effect::Client(to, ClientEvent::Deliver(delivery)) if *to == conn => {
                found.extend(delivery.id);
                false
            }
            _ => true,
        });
        found
    }

    fn settle(&mut self, conn: ConnId, delivery: DeliveryId) {
        self.command(conn, ClientCommand::Settle { delivery, accepted: true });
    }

    /// Acknowledgements that have left for the publisher since the last call.
    fn published(&mut self) -> Vec<u16> {
        let mut found = vec![];
        self.effects.retain(|effect| match effect {
            Effect::Client(PUBLISHER, ClientEvent::Published { tag, .. }) => {
                found.push(tag.0);
                false
            }
            _ => true,
        });
        found
    }
}

#[test]
fn what_every_consumer_settles_in_time_is_never_written_and_acknowledged_at_once() {
    let mut world = World::new(HOLD_MILLIS, 2);
    let before = world.batches;
    for tag in 1..=20_000 {
        world.publish(tag);
        world.commit();
        assert!(world.published().is_empty());
        let first = world.deliveries(ConnId(2))[0];
        let second = world.deliveries(ConnId(3))[0];
        world.settle(ConnId(2), first);
        world.commit();
        assert!(world.published().is_empty(), "the other one has not settled it");
        world.settle(ConnId(3), second);
        world.commit();
        assert_eq!(world.published(), [tag]);
        world.wait(1);
    }
    assert_eq!(world.batches, before);
    assert_eq!(world.broker.stats().never_written, 40_000);
    assert!(world.broker.batch.deadline().is_none());
}

#[test]
fn what_is_left_when_the_time_is_over_is_written_and_acknowledged_after_that() {
    let mut world = World::new(HOLD_MILLIS, 1);
    for tag in 1..=3 {
        world.publish(tag);
    }
    assert!(world.round().is_none());
    let ids = world.deliveries(ConnId(2));
    world.settle(ConnId(2), ids[1]);
    assert!(world.round().is_none());
    // The first one is still under way, and acknowledgements keep their order.
    assert!(world.published().is_empty());
    let deadline = world.broker.next_deadline().unwrap();
    assert_eq!(deadline, world.now.mono.plus_millis(HOLD_MILLIS.into()));
    world.wait(HOLD_MILLIS.into());
    let batch = world.round().unwrap();
    assert!(batch.urgent);
    let seqs: Vec<_> = batch
        .ops
        .iter()
        .map(|op| if let Op::Enqueue { targets, .. } = op { targets[0].seq } else { 0 })
        .collect();
    assert_eq!(seqs, [1, 3]);
    assert!(world.published().is_empty());
    world.broker.store_event(StoreEvent::Committed(Committed::for_test(batch.id)), world.now);
    world.round();
    assert_eq!(world.published(), [1, 2, 3]);
    // From now on the store knows them: they are settled there.
    world.settle(ConnId(2), ids[0]);
    let batch = world.round().unwrap();
    assert!(!batch.urgent && matches!(batch.ops[..], [Op::Settle { first: 1, count: 1, .. }]));
}

#[test]
fn nothing_is_held_without_a_time_for_it_or_when_somebody_else_waits() {
    let mut world = World::new(0, 1);
    world.publish(1);
    assert!(world.round().unwrap().urgent);
    let mut world = World::new(HOLD_MILLIS, 1);
    world.publish(1);
    assert!(world.round().is_none());
    let filters = vec!["#".into()];
    world.command(ConnId(2), ClientCommand::Unsubscribe { tag: ReplyTag(2), filters });
    assert!(world.round().unwrap().urgent);
}

#[test]
fn a_consumer_that_goes_away_while_its_message_is_held_gets_it_later() {
    let mut world = World::new(HOLD_MILLIS, 1);
    world.publish(1);
    assert!(world.round().is_none());
    world.command(ConnId(2), ClientCommand::Lost);
    world.wait(HOLD_MILLIS.into());
    let batch = world.round().unwrap();
    assert!(batch.ops.iter().any(|op| matches!(op, Op::Enqueue { targets, .. } if targets.len() == 1)));
}

#[test]
fn at_the_end_nothing_is_held() {
    let mut world = World::new(HOLD_MILLIS, 1);
    world.publish(1);
    assert!(world.round().is_none());
    world.broker.shutdown(world.now);
    assert!(world.round().is_some());
}
