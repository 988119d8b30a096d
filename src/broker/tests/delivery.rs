use super::*;
use crate::message::MessageHead;

fn small() -> Limits {
    Limits { queue_window_bytes_max: 4096, queue_memory_bytes_max: 64 << 10, ..Limits::default() }
}

#[test]
fn the_window_bounds_what_is_under_way_and_acknowledgements_move_it() {
    let mut rig = Rig::new();
    let conn = rig.connect_with("a", |request| request.receive_max = 3);
    rig.heard(conn);
    rig.subscribe(conn, "t", Qos::AtLeastOnce);
    for n in 1..=5 {
        rig.publish(conn, "t", &n.to_string(), Qos::AtLeastOnce, n);
    }
    assert_eq!(rig.payloads(conn), ["1", "2", "3"]);
    rig.ack(conn, id(2));
    assert_eq!(rig.payloads(conn), ["4"]);
    assert_eq!(rig.queue("a").inflight, 3);
    rig.ack(conn, id(1));
    assert_eq!(rig.payloads(conn), ["5"]);
}

#[test]
fn bytes_bound_what_is_under_way_too_but_one_message_always_goes() {
    let mut rig = Rig::with(Limits { inflight_bytes_max: 1000, ..Limits::default() });
    let conn = rig.transient("a");
    rig.subscribe(conn, "t", Qos::AtLeastOnce);
    for n in 1..=2 {
        rig.publish(conn, "t", &"x".repeat(5000), Qos::AtLeastOnce, n);
    }
    assert_eq!(rig.payloads(conn).len(), 1);
    rig.ack(conn, id(1));
    assert_eq!(rig.payloads(conn).len(), 1);
}

#[test]
fn a_backlog_beyond_memory_spills_comes_back_in_pages_and_keeps_its_order() {
    let mut rig = Rig::with(small());
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "t", Qos::AtLeastOnce);
    rig.lose(conn);
    let publisher = rig.transient("p");
    for n in 0..1000u16 {
        rig.publish(publisher, "t", &n.to_string(), Qos::AtLeastOnce, n + 1);
    }
    let queue = rig.queue("a");
    assert_eq!((queue.messages, queue.in_memory_bytes, queue.spilled), (1000, 0, true));
    let (conn, _) = rig.durable("a");
    let mut seen = Vec::new();
    for n in 1000..1100u16 {
        let delivered = rig.deliveries(conn);
        seen.extend(delivered.iter().map(payload));
        delivered.iter().take(10).for_each(|d| rig.broker.handle(conn, settled(d.id.unwrap()), rig.now()));
        rig.turn();
        rig.publish(publisher, "t", &n.to_string(), Qos::AtLeastOnce, n + 1);
        assert!(rig.broker.gauges().queue_memory <= 64 << 10);
        delivered.iter().skip(10).for_each(|d| rig.broker.handle(conn, settled(d.id.unwrap()), rig.now()));
        rig.turn();
    }
    seen.extend(rig.drain(conn));
    let expected: Vec<String> = (0..1100).map(|n| n.to_string()).collect();
    assert_eq!(seen, expected);
    assert!(rig.broker.stats().loads > 10);
}

#[test]
fn nothing_is_loaded_for_a_queue_that_nobody_consumes() {
    let mut rig = Rig::with(small());
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "t", Qos::AtLeastOnce);
    rig.lose(conn);
    let publisher = rig.transient("p");
    for n in 1..100 {
        rig.publish(publisher, "t", "x", Qos::AtLeastOnce, n);
    }
    assert_eq!((rig.broker.stats().loads, rig.broker.gauges().queue_memory), (0, 0));
}

#[test]
fn many_slow_consumers_share_the_memory_budget_and_all_move_on() {
    let mut rig = Rig::with(Limits { queue_memory_bytes_max: 16 << 10, ..small() });
    let names: Vec<String> = (0..20).map(|n| format!("c{n}")).collect();
    let mut conns = Vec::new();
    for name in &names {
        let conn = rig.connect_with(name, |request| request.receive_max = 2);
        rig.heard(conn);
        rig.subscribe(conn, "t", Qos::AtLeastOnce);
        conns.push(conn);
    }
    let publisher = rig.transient("p");
    for n in 0..100u16 {
        rig.publish(publisher, "t", &n.to_string(), Qos::AtLeastOnce, n + 1);
        assert!(rig.broker.gauges().queue_memory <= 16 << 10);
    }
    let expected: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    for conn in conns {
        assert_eq!(rig.drain(conn), expected);
    }
}

#[test]
fn a_queue_whose_window_was_cut_down_goes_on_from_the_store() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "t", Qos::AtLeastOnce);
    rig.broker.set_congested(conn, true, rig.now());
    for n in 0..50u16 {
        rig.publish(conn, "t", &n.to_string(), Qos::AtLeastOnce, n + 1);
    }
    assert!(!rig.queue("a").spilled);
    rig.broker.budget = crate::queue::window::Budget::new(1);
    rig.broker.budget.add(rig.queue("a").in_memory_bytes, false);
    rig.broker.reclaim(1);
    assert!(rig.queue("a").spilled);
    rig.broker.set_congested(conn, false, rig.now());
    rig.turn();
    assert_eq!(rig.drain(conn).len(), 50);
}

#[test]
fn a_page_that_arrives_after_the_connection_was_lost_is_not_used() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "t", Qos::AtLeastOnce);
    rig.lose(conn);
    let publisher = rig.transient("p");
    for n in 1..=3 {
        rig.publish(publisher, "t", &n.to_string(), Qos::AtLeastOnce, n);
    }
    rig.auto = false;
    let (conn, _) = rig.durable("a");
    assert_eq!(rig.loads.len(), 1);
    rig.serve_page();
    rig.turn();
    assert_eq!(rig.payloads(conn), ["1", "2", "3"]);
    rig.lose(conn);
    let (conn, _) = rig.durable("a");
    let late = rig.loads.pop().unwrap();
    let late = rig.store.page(late);
    rig.lose(conn);
    let (conn, _) = rig.durable("a");
    assert!(rig.loads.is_empty(), "one page at a time");
    rig.broker.store_event(StoreEvent::Page(late), rig.now());
    rig.turn();
    assert!(rig.payloads(conn).is_empty());
    rig.settle_store();
    assert_eq!(rig.drain(conn), ["1", "2", "3"]);
}

#[test]
fn unacknowledged_messages_come_again_in_order_with_the_same_identifier() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "t", Qos::AtLeastOnce);
    for n in 1..=4 {
        rig.publish(conn, "t", &n.to_string(), Qos::AtLeastOnce, n);
    }
    let before = rig.deliveries(conn);
    rig.ack(conn, before[1].id.unwrap());
    rig.lose(conn);
    let publisher = rig.transient("p");
    rig.publish(publisher, "t", "5", Qos::AtLeastOnce, 5);
    let (conn, _) = rig.durable("a");
    let after = rig.deliveries(conn);
    let view: Vec<_> = after.iter().map(|d| (payload(d), d.id == Some(id(5)), d.duplicate)).collect();
    let expected = [("1", false, true), ("3", false, true), ("4", false, true), ("5", true, false)];
    assert_eq!(view, expected.map(|(text, new, duplicate)| (text.to_string(), new, duplicate)));
    assert_eq!((after[0].id, after[1].id), (before[0].id, before[2].id));
}

#[test]
fn expired_messages_are_settled_and_counted_instead_of_delivered() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "t", Qos::AtLeastOnce);
    rig.lose(conn);
    let publisher = rig.transient("p");
    for (payload, life) in [("short", Some(10)), ("long", None)] {
        let wall = rig.now().wall;
        let head = MessageHead {
            qos: Qos::AtLeastOnce,
            published: wall,
            expires: life.map(|seconds| wall.plus_secs(seconds)),
            ..MessageHead::default()
        };
        let message = Message::new("t", payload.as_bytes(), head);
        rig.send(publisher, ClientCommand::Publish(PublishRequest { tag: ReplyTag(1), message }));
    }
    rig.advance_secs(10);
    let (conn, _) = rig.durable("a");
    assert_eq!(rig.drain(conn), ["long"]);
    assert_eq!((rig.broker.stats().dropped_expired, rig.queue("a").counters.expired), (1, 1));
    assert_eq!(rig.queue("a").messages, 0);
}

#[test]
fn a_congested_connection_gets_its_messages_when_it_can_take_them() {
    let mut rig = Rig::new();
    let conn = rig.transient("a");
    rig.subscribe(conn, "t", Qos::AtLeastOnce);
    rig.broker.set_congested(conn, true, rig.now());
    for n in 1..=3 {
        rig.publish(conn, "t", &n.to_string(), Qos::AtLeastOnce, n);
    }
    assert!(rig.payloads(conn).is_empty());
    rig.broker.set_congested(conn, false, rig.now());
    rig.turn();
    assert_eq!(rig.payloads(conn), ["1", "2", "3"]);
}

#[test]
fn a_refused_delivery_is_done_with_and_an_unknown_acknowledgement_is_ignored() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "t", Qos::AtLeastOnce);
    rig.publish(conn, "t", "x", Qos::AtLeastOnce, 1);
    rig.send(conn, ClientCommand::Settle { delivery: id(1), accepted: false });
    assert_eq!((rig.queue("a").messages, rig.queue("a").counters.refused), (0, 1));
    rig.ack(conn, id(1));
    rig.ack(conn, id(9));
    assert_eq!(rig.broker.stats().acknowledgements_ignored, 2);
}
