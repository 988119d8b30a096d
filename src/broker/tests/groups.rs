use super::*;
use crate::store::contract::Space;

const SHARED: &str = "$share/g/t";

fn durable_member(rig: &mut Rig, client: &str, qos: Qos) -> ConnId {
    let (conn, _) = rig.durable(client);
    rig.subscribe(conn, SHARED, qos);
    conn
}

fn transient_member(rig: &mut Rig, client: &str, qos: Qos) -> ConnId {
    let conn = rig.transient(client);
    rig.subscribe(conn, SHARED, qos);
    conn
}

fn publish_all(rig: &mut Rig, conn: ConnId, numbers: std::ops::RangeInclusive<u16>, qos: Qos) {
    for n in numbers {
        rig.publish(conn, "t", &n.to_string(), qos, n);
        rig.send(conn, ClientCommand::Release { tag: ReplyTag(n) });
    }
}

#[test]
fn members_take_turns_and_each_message_goes_to_one() {
    let mut rig = Rig::new();
    let a = durable_member(&mut rig, "a", Qos::AtLeastOnce);
    let b = transient_member(&mut rig, "b", Qos::AtLeastOnce);
    let publisher = rig.transient("p");
    publish_all(&mut rig, publisher, 1..=4, Qos::AtLeastOnce);
    assert_eq!(rig.payloads(a), ["1", "3"]);
    assert_eq!(rig.payloads(b), ["2", "4"]);
    rig.publish(publisher, "t", "zero", Qos::AtMostOnce, 0);
    assert_eq!(rig.payloads(a).len() + rig.payloads(b).len(), 1);
}

#[test]
fn a_member_with_a_full_window_is_passed_over() {
    let mut rig = Rig::new();
    let slow = rig.connect_with("slow", |request| request.receive_max = 1);
    rig.heard(slow);
    rig.subscribe(slow, SHARED, Qos::AtLeastOnce);
    let fast = durable_member(&mut rig, "fast", Qos::AtLeastOnce);
    let publisher = rig.transient("p");
    publish_all(&mut rig, publisher, 1..=5, Qos::AtLeastOnce);
    assert_eq!((rig.payloads(slow).len(), rig.payloads(fast).len()), (1, 4));
}

#[test]
fn a_leaving_member_loses_nothing_and_its_messages_go_to_others_in_order() {
    let mut rig = Rig::new();
    let gone = transient_member(&mut rig, "gone", Qos::AtLeastOnce);
    let publisher = rig.transient("p");
    publish_all(&mut rig, publisher, 1..=5, Qos::AtLeastOnce);
    assert_eq!(rig.payloads(gone).len(), 5);
    rig.ack(gone, id(2));
    let stays = durable_member(&mut rig, "stays", Qos::AtLeastOnce);
    publish_all(&mut rig, publisher, 6..=6, Qos::AtLeastOnce);
    rig.lose(gone);
    let mut all = rig.drain(stays);
    assert!(rig.payloads(gone).is_empty() || all.contains(&"6".to_string()));
    all.retain(|text| text != "6");
    assert_eq!(all, ["1", "3", "4", "5"]);
    assert_eq!(rig.queue(SHARED).messages, 0);
}

#[test]
fn messages_wait_while_all_members_are_away_and_survive_a_restart() {
    let mut rig = Rig::new();
    let a = durable_member(&mut rig, "a", Qos::AtLeastOnce);
    let publisher = rig.transient("p");
    publish_all(&mut rig, publisher, 1..=2, Qos::AtLeastOnce);
    rig.lose(a);
    publish_all(&mut rig, publisher, 3..=4, Qos::AtLeastOnce);
    rig.kill_and_restart(1);
    let (a, _) = rig.durable("a");
    assert_eq!(rig.drain(a), ["1", "2", "3", "4"]);
}

#[test]
fn a_group_becomes_durable_with_its_first_durable_member_and_keeps_its_messages() {
    let mut rig = Rig::new();
    let first = rig.connect_with("first", |request| {
        request.expiry = SessionExpiry::WithConnection;
        request.receive_max = 2;
    });
    rig.heard(first);
    rig.subscribe(first, SHARED, Qos::AtLeastOnce);
    let publisher = rig.transient("p");
    publish_all(&mut rig, publisher, 1..=5, Qos::AtLeastOnce);
    assert_eq!(rig.payloads(first), ["1", "2"]);
    rig.ack(first, id(1));
    assert_eq!(rig.payloads(first), ["3"]);
    assert_eq!(rig.store.durable.queues.len(), 0);
    let second = durable_member(&mut rig, "second", Qos::AtLeastOnce);
    assert_eq!(rig.store.durable.rows_of(Space::Group), 1);
    assert_eq!(rig.payloads(second), ["4", "5"]);
    rig.ack(first, id(2));
    rig.kill_and_restart(1);
    let (second, _) = rig.durable("second");
    assert_eq!(rig.drain(second), ["3", "4", "5"]);
}

#[test]
fn the_queue_goes_with_the_last_member() {
    let mut rig = Rig::new();
    let a = durable_member(&mut rig, "a", Qos::AtLeastOnce);
    let publisher = rig.transient("p");
    publish_all(&mut rig, publisher, 1..=2, Qos::AtLeastOnce);
    rig.send(a, ClientCommand::Unsubscribe { tag: ReplyTag(1), filters: vec![SHARED.into()] });
    assert_eq!(rig.broker.gauges().groups, 0);
    assert_eq!((rig.store.durable.rows_of(Space::Group), rig.store.durable.queues.len()), (0, 1));
    rig.ack(a, id(1));
    rig.lose(a);
    assert_eq!(rig.broker.gauges().queue_memory, 0);
}

#[test]
fn what_a_member_has_under_way_stays_with_it_when_it_only_unsubscribes() {
    let mut rig = Rig::new();
    let a = durable_member(&mut rig, "a", Qos::AtLeastOnce);
    let publisher = rig.transient("p");
    publish_all(&mut rig, publisher, 1..=2, Qos::AtLeastOnce);
    let b = durable_member(&mut rig, "b", Qos::AtLeastOnce);
    rig.send(a, ClientCommand::Unsubscribe { tag: ReplyTag(1), filters: vec![SHARED.into()] });
    assert!(rig.payloads(b).is_empty());
    rig.ack(a, id(1));
    rig.lose(a);
    assert_eq!(rig.drain(b), ["2"]);
}

#[test]
fn a_qos_2_message_stays_with_the_member_that_got_it() {
    let mut rig = Rig::new();
    let a = durable_member(&mut rig, "a", Qos::ExactlyOnce);
    let publisher = rig.transient("p");
    publish_all(&mut rig, publisher, 1..=2, Qos::ExactlyOnce);
    assert_eq!(rig.payloads(a), ["1", "2"]);
    let b = durable_member(&mut rig, "b", Qos::ExactlyOnce);
    rig.send(a, ClientCommand::Received { delivery: id(1) });
    rig.lose(a);
    assert!(rig.payloads(b).is_empty());
    rig.kill_and_restart(1);
    let (b, _) = rig.durable("b");
    let (a, _) = rig.durable("a");
    assert!(rig.payloads(b).is_empty());
    assert_eq!(rig.drain(a), ["2"]);
}

#[test]
fn a_moved_qos_2_message_leaves_after_the_move_is_durable() {
    let mut rig = Rig::new();
    let durable = durable_member(&mut rig, "d", Qos::ExactlyOnce);
    rig.lose(durable);
    let transient = transient_member(&mut rig, "t", Qos::ExactlyOnce);
    rig.broker.set_congested(transient, true, rig.now());
    let publisher = rig.transient("p");
    rig.publish(publisher, "t", "x", Qos::ExactlyOnce, 1);
    rig.auto = false;
    rig.broker.set_congested(transient, false, rig.now());
    rig.turn();
    assert!(rig.payloads(transient).is_empty());
    rig.settle_store();
    assert_eq!(rig.payloads(transient), ["x"]);
    rig.kill_and_restart(1);
    let (durable, _) = rig.durable("d");
    rig.settle_store();
    assert!(rig.payloads(durable).is_empty(), "it went to another member");
}

#[test]
fn members_options_apply_to_each_and_a_qos_0_group_queues_nothing() {
    let mut rig = Rig::new();
    let conn = rig.transient("a");
    let options = SubscribeOptions { retain_as_published: true, ..SubscribeOptions::default() };
    rig.subscribe_with(conn, SHARED, options, Some(3));
    let publisher = rig.transient("p");
    rig.retain(publisher, "t", "x", Qos::AtLeastOnce);
    let delivered = rig.deliveries(conn);
    assert_eq!(delivered[0].qos, Qos::AtMostOnce);
    assert!(delivered[0].retain && delivered[0].subscription_ids.as_deref() == Some(&[3]));
    let other = durable_member(&mut rig, "b", Qos::AtLeastOnce);
    publish_all(&mut rig, publisher, 1..=4, Qos::AtLeastOnce);
    assert_eq!((rig.payloads(conn).len(), rig.drain(other).len()), (2, 2));
    assert_eq!(rig.queue(SHARED).messages, 0);
}

#[test]
fn a_members_own_backlog_does_not_starve_its_group() {
    let mut rig = Rig::new();
    let conn = rig.connect_with("a", |request| request.receive_max = 1);
    rig.heard(conn);
    rig.subscribe(conn, "own", Qos::AtLeastOnce);
    rig.subscribe(conn, SHARED, Qos::AtLeastOnce);
    let publisher = rig.transient("p");
    for n in 1..=10 {
        rig.publish(publisher, "own", &format!("own{n}"), Qos::AtLeastOnce, n);
        rig.publish(publisher, "t", &format!("shared{n}"), Qos::AtLeastOnce, n);
    }
    let all = rig.drain(conn);
    let shared = all[..10].iter().filter(|text| text.starts_with("shared")).count();
    assert!((4..=6).contains(&shared), "{all:?}");
    assert_eq!(all.len(), 20);
}
