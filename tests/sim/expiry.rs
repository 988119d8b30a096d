//! A pass over a long queue whose messages have expired, on the real store: how much it reads.

use std::path::PathBuf;
use std::sync::Arc;

use tidegate::broker::api::{
    ClientCommand, ConnId, ConnectRequest, PublishRequest, ReplyTag, SessionExpiry, SubscribeFilter,
    SubscribeOptions,
};
use tidegate::broker::{Broker, Effect};
use tidegate::limits::Limits;
use tidegate::message::{Message, MessageHead, Qos};
use tidegate::store::StoreOptions;
use tidegate::store::contract::StoreEvent;
use tidegate::store::simulation::{InlineStore, Sabotage, SimMedia};
use tidegate::time::{Mono, Now, Wall};

/// Messages that expire, and those behind them that do not.
const ROWS: u64 = 100_000;
const OTHERS: u64 = 2_000;
/// Seconds after which they do; a pass is never due before ten minutes have passed.
const LIFE_SECS: u64 = 1_200;

const START: Wall = Wall(1_700_000_000_000);

struct Rig {
    broker: Broker,
    store: InlineStore,
    now: Now,
    read: u64,
}

impl Rig {
    fn new() -> Self {
        let limits = Limits::default();
        let media = Arc::new(SimMedia::default());
        let options = StoreOptions::new(PathBuf::from("simulated"), &limits);
        InlineStore::create(&media, &options).unwrap();
        let (store, recovered) = InlineStore::open(media, &options, Sabotage::default()).unwrap();
        let mut broker = Broker::new(limits, 1);
        let now = Now { mono: Mono(0), wall: START };
        broker.restore(recovered, now).unwrap();
        Self { broker, store, now, read: 0 }
    }

    fn send(&mut self, conn: u64, command: ClientCommand) {
        self.broker.handle(ConnId(conn), command, self.now);
    }

    fn connect(&mut self, conn: u64, name: &str, expiry: SessionExpiry) {
        let request = ConnectRequest {
            client_id: name.into(),
            clean_start: false,
            expiry,
            receive_max: 10,
            will: None,
            internal: false,
        };
        self.send(conn, ClientCommand::Connect(Box::new(request)));
        self.turn();
    }

    fn publish(&mut self, count: u64, life_secs: u64) {
        for n in 0..count {
            let head = MessageHead {
                qos: Qos::AtLeastOnce,
                published: self.now.wall,
                expires: Some(self.now.wall.plus_secs(life_secs)),
                ..MessageHead::default()
            };
            let message = Message::new("plant/a", format!("reading {n}").as_bytes(), head);
            self.send(2, ClientCommand::Publish(PublishRequest { tag: ReplyTag(1), message }));
            if n % 500 == 499 {
                self.turn();
            }
        }
        self.turn();
    }

    /// Until nothing is left to be done.
    fn turn(&mut self) {
        let (mut effects, mut events) = (vec![], vec![]);
        loop {
            let batch = self.broker.take_batch(self.now);
            let mut is_idle = batch.is_none();
            batch.into_iter().for_each(|batch| self.store.submit(batch));
            self.broker.take_effects(&mut effects);
            for effect in effects.drain(..) {
                if let Effect::Load(request) = effect {
                    self.store.load(request);
                    is_idle = false;
                }
            }
            self.store.turn(true);
            self.store.fold(None);
            self.store.serve_loads();
            self.store.poll_events(&mut events);
            for event in events.drain(..) {
                is_idle = false;
                if let StoreEvent::Page(page) = &event {
                    self.read += page.entries.len() as u64;
                }
                self.broker.store_event(event, self.now);
            }
            if is_idle {
                return;
            }
        }
    }
}

#[test]
fn a_pass_over_a_hundred_thousand_expired_messages_reads_hardly_more_than_it_settles() {
    let mut rig = Rig::new();
    rig.connect(1, "absent", SessionExpiry::Never);
    let options = SubscribeOptions { qos: Qos::AtLeastOnce, ..SubscribeOptions::default() };
    let filters = vec![SubscribeFilter { filter: "plant/#".into(), options }];
    rig.send(1, ClientCommand::Subscribe { tag: ReplyTag(1), subscription_id: None, filters });
    rig.send(1, ClientCommand::Lost);
    rig.connect(2, "device", SessionExpiry::WithConnection);
    rig.publish(ROWS, LIFE_SECS);
    rig.publish(OTHERS, 100 * LIFE_SECS);
    assert_eq!((rig.read, rig.broker.gauges().queued), (0, ROWS + OTHERS));
    rig.now.mono = Mono(LIFE_SECS * 1_000_000);
    rig.now.wall = START.plus_secs(LIFE_SECS);
    rig.broker.tick(rig.now);
    rig.turn();
    println!("{} rows read for {} that have expired", rig.read, rig.broker.stats().dropped_expired);
    assert_eq!((rig.broker.stats().dropped_expired, rig.broker.gauges().queued), (ROWS, OTHERS));
    assert!(rig.read * 100 <= ROWS * 101, "{} rows read", rig.read);
}
