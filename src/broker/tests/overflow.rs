use super::*;
use crate::limits::{Overflow, QueueLimits, QueueRule};
use crate::store::contract::Capacity;

fn bounded(messages: u64, overflow: Overflow) -> Limits {
    let limits = QueueLimits { messages_max: Some(messages), bytes_max: None, overflow };
    let rule = QueueRule { client_pattern: "small*".into(), limits };
    Limits { queue_rules: vec![rule], ..Limits::default() }
}

fn outcome(rig: &mut Rig, conn: ConnId) -> PublishOutcome {
    match rig.heard(conn)[..] {
        [ClientEvent::Published { outcome, .. }] => outcome,
        ref other => panic!("{other:?}"),
    }
}

fn away(rig: &mut Rig, client: &str) {
    let (conn, _) = rig.durable(client);
    rig.subscribe(conn, "t", Qos::AtLeastOnce);
    rig.lose(conn);
}

#[test]
fn a_refused_message_reaches_nobody_and_sending_resumes_after_the_overflow() {
    let mut rig = Rig::with(bounded(2, Overflow::Reject));
    away(&mut rig, "small");
    away(&mut rig, "other");
    let publisher = rig.transient("p");
    for n in 1..=3 {
        rig.publish(publisher, "t", &n.to_string(), Qos::AtLeastOnce, n);
        let expected = if n < 3 { PublishOutcome::Accepted } else { PublishOutcome::QuotaExceeded };
        assert_eq!(outcome(&mut rig, publisher), expected);
    }
    assert_eq!((rig.queue("small").messages, rig.queue("other").messages), (2, 2));
    let (conn, _) = rig.durable("small");
    assert_eq!(rig.drain(conn), ["1", "2"]);
    rig.publish(publisher, "t", "4", Qos::AtLeastOnce, 4);
    assert_eq!(outcome(&mut rig, publisher), PublishOutcome::Accepted);
    assert_eq!(rig.drain(conn), ["4"]);
    assert_eq!(rig.broker.stats().refused_quota, 1);
}

#[test]
fn drop_tail_drops_the_new_message_for_that_queue_alone_and_counts_it() {
    let mut rig = Rig::with(bounded(2, Overflow::DropTail));
    away(&mut rig, "small");
    away(&mut rig, "other");
    let publisher = rig.transient("p");
    for n in 1..=4 {
        rig.publish(publisher, "t", &n.to_string(), Qos::AtLeastOnce, n);
        assert_eq!(outcome(&mut rig, publisher), PublishOutcome::Accepted);
    }
    assert_eq!((rig.queue("small").messages, rig.queue("small").counters.dropped_new), (2, 2));
    assert_eq!(rig.queue("other").messages, 4);
    let (conn, _) = rig.durable("small");
    assert_eq!(rig.drain(conn), ["1", "2"]);
}

#[test]
fn drop_head_keeps_the_newest_messages_though_they_live_on_the_disk() {
    let mut rig = Rig::with(bounded(10, Overflow::DropHead));
    away(&mut rig, "small");
    let publisher = rig.transient("p");
    for n in 1..=100 {
        rig.publish(publisher, "t", &n.to_string(), Qos::AtLeastOnce, n);
    }
    let queue = rig.queue("small");
    assert_eq!((queue.messages, queue.counters.dropped_oldest), (10, 90));
    let (conn, _) = rig.durable("small");
    let expected: Vec<String> = (91..=100).map(|n| n.to_string()).collect();
    assert_eq!(rig.drain(conn), expected);
}

#[test]
fn drop_head_overshoots_by_a_bounded_number_while_the_disk_is_slow() {
    let mut rig = Rig::with(bounded(10, Overflow::DropHead));
    away(&mut rig, "small");
    let publisher = rig.transient("p");
    rig.auto = false;
    for n in 1..=3000 {
        rig.publish(publisher, "t", &n.to_string(), Qos::AtLeastOnce, n);
    }
    let queue = rig.queue("small");
    assert_eq!((queue.messages, queue.counters.dropped_new), (10 + 1024, 3000 - 10 - 1024));
    rig.settle_store();
    assert_eq!(rig.queue("small").messages, 10);
}

#[test]
fn drop_head_does_not_touch_what_is_under_way() {
    let mut rig = Rig::with(bounded(2, Overflow::DropHead));
    let conn = rig.connect_with("small", |request| request.receive_max = 2);
    rig.heard(conn);
    rig.subscribe(conn, "t", Qos::AtLeastOnce);
    let publisher = rig.transient("p");
    for n in 1..=6 {
        rig.publish(publisher, "t", &n.to_string(), Qos::AtLeastOnce, n);
    }
    assert_eq!(rig.drain(conn), ["1", "2", "6"]);
}

#[test]
fn a_full_store_refuses_what_it_would_have_to_keep_and_nothing_else() {
    let mut rig = Rig::new();
    away(&mut rig, "a");
    let publisher = rig.transient("p");
    rig.broker.store_event(StoreEvent::Capacity(Capacity::Full), rig.now());
    rig.publish(publisher, "t", "x", Qos::AtLeastOnce, 1);
    assert_eq!(outcome(&mut rig, publisher), PublishOutcome::QuotaExceeded);
    rig.publish(publisher, "elsewhere", "x", Qos::AtLeastOnce, 1);
    assert_eq!(outcome(&mut rig, publisher), PublishOutcome::NoSubscribers);
    let new = rig.connect_with("new", |_| {});
    assert!(matches!(rig.heard(new)[..], [ClientEvent::Refused(Refusal::QuotaExceeded)]));
    assert!(rig.durable("a").1, "a session that is there goes on");
    rig.broker.store_event(StoreEvent::Capacity(Capacity::Free), rig.now());
    rig.publish(publisher, "t", "y", Qos::AtLeastOnce, 1);
    assert_eq!(outcome(&mut rig, publisher), PublishOutcome::Accepted);
}

#[test]
fn a_slow_transient_subscriber_costs_only_itself() {
    let mut rig = Rig::with(Limits { queue_memory_bytes_max: 64 << 10, ..Limits::default() });
    let (slow, fine) = (rig.transient("slow"), rig.transient("fine"));
    for conn in [slow, fine] {
        rig.subscribe(conn, "t", Qos::AtLeastOnce);
    }
    rig.broker.set_congested(slow, true, rig.now());
    let publisher = rig.transient("p");
    let mut taken = 0;
    for n in 1..=1000 {
        rig.publish(publisher, "t", &"x".repeat(100), Qos::AtLeastOnce, n);
        taken += rig.drain(fine).len();
        assert!(rig.broker.gauges().queue_memory <= 64 << 10);
    }
    assert_eq!(taken, 1000);
    let queue = rig.queue("slow");
    assert_eq!((queue.messages, queue.counters.dropped_new, queue.counters.dropped_oldest), (1000, 0, 0));
    assert!(queue.id.is_some() && !queue.lasting, "its backlog went to disk");
    rig.broker.set_congested(slow, false, rig.now());
    rig.turn();
    assert_eq!(rig.drain(slow).len(), 1000, "nothing is lost while it is connected");
    assert_eq!(rig.queue("slow").id, None, "an empty queue needs the disk no longer");
}

#[test]
fn the_backlog_of_a_transient_subscriber_ends_with_its_connection_and_with_the_process() {
    let mut rig = Rig::with(Limits { queue_memory_bytes_max: 64 << 10, ..Limits::default() });
    let publisher = rig.transient("p");
    for lost in [true, false] {
        let slow = rig.transient("slow");
        rig.subscribe(slow, "t", Qos::AtLeastOnce);
        rig.broker.set_congested(slow, true, rig.now());
        for n in 1..=1000 {
            rig.publish(publisher, "t", &"x".repeat(100), Qos::AtLeastOnce, n);
        }
        assert_eq!(rig.store.applied.queues.len(), 1);
        if lost {
            rig.lose(slow);
        } else {
            rig.kill_and_restart(1);
        }
        assert_eq!(rig.store.applied.queues.len(), 0);
    }
}

#[test]
fn on_a_full_disk_a_slow_transient_subscriber_loses_messages_and_each_is_counted() {
    let mut rig = Rig::with(Limits { queue_memory_bytes_max: 64 << 10, ..Limits::default() });
    rig.broker.store_event(StoreEvent::Capacity(Capacity::Full), rig.now());
    let slow = rig.transient("slow");
    rig.subscribe(slow, "t", Qos::AtLeastOnce);
    rig.broker.set_congested(slow, true, rig.now());
    let publisher = rig.transient("p");
    for n in 1..=1000 {
        rig.publish(publisher, "t", &"x".repeat(100), Qos::AtLeastOnce, n);
        assert!(rig.broker.gauges().queue_memory <= 64 << 10);
    }
    let queue = rig.queue("slow");
    assert!(queue.counters.dropped_new > 0);
    assert_eq!(queue.messages + queue.counters.dropped_new + queue.counters.dropped_oldest, 1000);
}

#[test]
fn a_small_transient_queue_gets_memory_from_the_largest_one() {
    let mut rig = Rig::with(Limits { queue_memory_bytes_max: 64 << 10, ..Limits::default() });
    let hog = rig.transient("hog");
    rig.subscribe(hog, "big", Qos::AtLeastOnce);
    rig.broker.set_congested(hog, true, rig.now());
    let publisher = rig.transient("p");
    for n in 1..=1000 {
        rig.publish(publisher, "big", &"x".repeat(100), Qos::AtLeastOnce, n);
    }
    let small = rig.transient("small");
    rig.subscribe(small, "few", Qos::AtLeastOnce);
    rig.broker.set_congested(small, true, rig.now());
    for n in 1..=5 {
        rig.publish(publisher, "few", &n.to_string(), Qos::AtLeastOnce, n);
    }
    rig.broker.set_congested(small, false, rig.now());
    rig.turn();
    assert_eq!(rig.drain(small).len(), 5);
}
