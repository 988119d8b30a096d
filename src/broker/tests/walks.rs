use std::sync::Arc;

use super::queues::{QUEUE, consumer};
use super::*;
use crate::limits::QueueDef;

/// Wants payloads that contain the text.
#[derive(Debug)]
struct Contains(&'static str);

impl Selector for Contains {
    fn wants(&self, message: &Message, _: u32) -> bool {
        String::from_utf8_lossy(message.payload()).contains(self.0)
    }

    fn memory(&self) -> usize {
        self.0.len()
    }
}

fn choosy(text: &'static str) -> ConsumeRequest {
    ConsumeRequest { selector: Some(Arc::new(Contains(text))), ..consumer(1) }
}

/// A small memory, so that backlogs are in the store alone.
fn small() -> Rig {
    Rig::with(Limits {
        queue_memory_bytes_max: 64 << 10,
        queue_window_bytes_max: 4 << 10,
        queue_defs: vec![QueueDef { redeliveries_max: None, ..QueueDef::default() }],
        ..Limits::default()
    })
}

fn ends(rig: &mut Rig, conn: ConnId) -> (Vec<String>, usize) {
    let heard = rig.heard(conn);
    let ends = heard.iter().filter(|event| matches!(event, ClientEvent::BrowseEnd { .. })).count();
    let texts = heard.iter().filter_map(|event| match event {
        ClientEvent::Deliver(delivery) => Some(payload(delivery)),
        _ => None,
    });
    (texts.collect(), ends)
}

#[test]
fn a_consumer_gets_what_it_wants_and_the_rest_waits_for_others_in_order() {
    let mut rig = Rig::new();
    let worker = rig.transient("w");
    rig.consume(worker, choosy("b"));
    let publisher = rig.transient("p");
    rig.put(publisher, &["a1", "b1", "a2", "b2", "a3"]);
    assert_eq!(rig.drain(worker), ["b1", "b2"]);
    let other = rig.worker("other");
    assert_eq!(rig.drain(other), ["a1", "a2", "a3"]);
}

#[test]
fn what_one_consumer_wants_lies_behind_a_deep_backlog_that_is_read_once() {
    let mut rig = small();
    let publisher = rig.transient("p");
    for n in 0..2000 {
        let text = if n % 500 == 499 { format!("wanted{n}") } else { format!("other{n}") };
        rig.publish(publisher, QUEUE, &text, Qos::AtLeastOnce, 1);
    }
    let worker = rig.transient("w");
    let read = rig.read;
    rig.consume(worker, choosy("wanted"));
    assert_eq!(rig.drain(worker), ["wanted499", "wanted999", "wanted1499", "wanted1999"]);
    let once = rig.read - read;
    assert!(once < 2500, "{once}");
    rig.publish(publisher, QUEUE, "wanted2000", Qos::AtLeastOnce, 1);
    assert_eq!(rig.drain(worker), ["wanted2000"]);
    assert!(rig.read - read - once < 200, "{}", rig.read - read - once);
    let other = rig.worker("other");
    let rest = rig.drain(other);
    assert_eq!((rest.len(), &*rest[0], &*rest[1995]), (1996, "other0", "other1998"));
}

#[test]
fn what_was_taken_out_of_turn_goes_back_to_its_place() {
    let mut rig = small();
    let publisher = rig.transient("p");
    for n in 0..600 {
        rig.publish(
            publisher,
            QUEUE,
            &format!("{}{n}", if n % 2 == 0 { "a" } else { "b" }),
            Qos::AtLeastOnce,
            1,
        );
    }
    let worker = rig.transient("w");
    rig.consume(worker, ConsumeRequest { messages_max: 1000, ..choosy("b") });
    let sent = rig.deliveries(worker).len();
    assert!(sent >= 100, "{sent}");
    let choosy_too = rig.transient("c");
    rig.consume(choosy_too, choosy("b1"));
    rig.lose(worker);
    assert!(rig.payloads(choosy_too).contains(&"b1".to_owned()));
    rig.lose(choosy_too);
    let other = rig.worker("other");
    let all = rig.drain(other);
    let numbers: Vec<u32> = all.iter().map(|text| text[1..].parse().unwrap()).collect();
    assert_eq!(numbers, (0..600).collect::<Vec<_>>());
}

#[test]
fn choosy_and_plain_consumers_together_take_every_message_once() {
    for seed in 0..20_u64 {
        let mut rig = small();
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = move |n: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % n
        };
        let publisher = rig.transient("p");
        let (mut put, mut taken) = (0, Vec::new());
        for round in 0..60 {
            for _ in 0..next(40) {
                rig.publish(
                    publisher,
                    QUEUE,
                    &format!("{}{put}", ["a", "b", "c"][put % 3]),
                    Qos::AtLeastOnce,
                    1,
                );
                put += 1;
            }
            let conn = rig.transient(&format!("w{round}"));
            let request = match next(4) {
                0 => consumer(1),
                1 => choosy("a"),
                2 => choosy("b"),
                _ => ConsumeRequest { messages_max: 1, ..choosy("c") },
            };
            rig.consume(conn, request);
            for delivery in rig.deliveries(conn) {
                if next(3) > 0 {
                    taken.push(payload(&delivery));
                    rig.ack(conn, delivery.id.unwrap());
                }
            }
            if next(2) == 0 {
                taken.extend(rig.drain(conn));
            }
            rig.lose(conn);
        }
        let last = rig.worker("last");
        taken.extend(rig.drain(last));
        taken.sort_unstable();
        let mut all: Vec<_> = (0..put).map(|n| format!("{}{n}", ["a", "b", "c"][n % 3])).collect();
        all.sort_unstable();
        assert_eq!(taken, all, "seed {seed}");
    }
}

#[test]
fn a_browser_sees_what_waits_takes_nothing_and_hears_the_end_once() {
    for count in [0, 3, 700] {
        let mut rig = small();
        let publisher = rig.transient("p");
        for n in 0..count {
            rig.publish(publisher, QUEUE, &n.to_string(), Qos::AtLeastOnce, 1);
        }
        let browser = rig.transient("b");
        rig.consume(browser, ConsumeRequest { browse: true, ..consumer(1) });
        let (texts, end) = ends(&mut rig, browser);
        assert_eq!(texts, (0..count).map(|n| n.to_string()).collect::<Vec<_>>());
        assert_eq!(end, 1);
        rig.publish(publisher, QUEUE, "late", Qos::AtLeastOnce, 1);
        assert_eq!(ends(&mut rig, browser), (vec![], 0));
        let worker = rig.worker("w");
        assert_eq!(rig.drain(worker).len(), count + 1);
    }
}

#[test]
fn a_browser_that_cannot_be_sent_more_goes_on_later_where_it_was() {
    let mut rig = small();
    let publisher = rig.transient("p");
    for n in 0..100 {
        rig.publish(publisher, QUEUE, &n.to_string(), Qos::AtLeastOnce, 1);
    }
    let browser = rig.transient("b");
    rig.broker.set_congested(browser, true, rig.now());
    rig.consume(browser, ConsumeRequest { browse: true, ..consumer(1) });
    assert_eq!(ends(&mut rig, browser), (vec![], 0));
    rig.broker.set_congested(browser, false, rig.now());
    rig.turn();
    let (texts, end) = ends(&mut rig, browser);
    assert_eq!((texts.len(), end), (100, 1));
}
