use super::*;
use crate::store::contract::{QueueId, Recovered, Space};

#[test]
fn what_was_acknowledged_survives_a_power_cut_and_what_was_not_may_be_gone() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "t", Qos::AtLeastOnce);
    rig.lose(conn);
    let publisher = rig.transient("p");
    rig.publish(publisher, "t", "acknowledged", Qos::AtLeastOnce, 1);
    rig.auto = false;
    rig.publish(publisher, "t", "lost", Qos::AtLeastOnce, 2);
    rig.kill_and_restart(1);
    rig.auto = true;
    let (conn, present) = rig.durable("a");
    assert!(present);
    assert_eq!(rig.drain(conn), ["acknowledged"]);
}

#[test]
fn subscriptions_survive_with_their_options() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    let options = SubscribeOptions {
        qos: Qos::AtLeastOnce,
        no_local: true,
        retain_as_published: true,
        ..SubscribeOptions::default()
    };
    rig.subscribe_with(conn, "t/+", options, Some(12));
    rig.kill_and_restart(1);
    let (conn, _) = rig.durable("a");
    rig.publish(conn, "t/x", "own", Qos::AtLeastOnce, 1);
    let publisher = rig.transient("p");
    rig.retain(publisher, "t/x", "x", Qos::AtLeastOnce);
    let delivered = rig.deliveries(conn);
    assert_eq!(delivered.len(), 1);
    assert!(delivered[0].retain && delivered[0].subscription_ids.as_deref() == Some(&[12]));
    rig.send(conn, ClientCommand::Unsubscribe { tag: ReplyTag(1), filters: vec!["t/+".into()] });
    rig.kill_and_restart(1);
    assert_eq!(rig.broker.gauges().subscriptions, 0);
}

#[test]
fn expiry_counts_the_time_that_the_broker_was_down() {
    let mut rig = Rig::new();
    let expiry = |request: &mut ConnectRequest| request.expiry = SessionExpiry::After(100);
    let conn = rig.connect_with("away", expiry);
    rig.lose(conn);
    rig.connect_with("there", expiry);
    rig.advance_secs(50);
    let (conn, _) = rig.durable("clock");
    rig.lose(conn);
    rig.kill_and_restart(20);
    rig.advance_secs(29);
    assert_eq!(rig.broker.gauges().sessions, 3);
    rig.advance_secs(1);
    assert_eq!(rig.broker.gauges().sessions, 2, "50 s before, 20 s down, 30 s since");
    rig.kill_and_restart(0);
    rig.advance_secs(69);
    assert_eq!(rig.broker.gauges().sessions, 2);
    rig.advance_secs(1);
    assert_eq!(
        rig.broker.gauges().sessions,
        1,
        "it may have been there until the first restart, 100 s before"
    );
}

#[test]
fn a_clock_that_jumps_back_to_1970_expires_nothing_early_and_nothing_late() {
    let mut rig = Rig::new();
    let conn = rig.connect_with("a", |request| request.expiry = SessionExpiry::After(100));
    rig.lose(conn);
    let recovered = rig.store.restart();
    rig.timeline = Timeline::anchored(Wall(5), recovered.newest_wall);
    rig.mono = Mono(0);
    rig.broker = Broker::new(rig.limits.clone(), 1);
    rig.broker.restore(recovered, rig.now()).unwrap();
    rig.advance_secs(99);
    assert_eq!(rig.broker.gauges().sessions, 1);
    rig.advance_secs(1);
    assert_eq!(rig.broker.gauges().sessions, 0);
}

#[test]
fn a_session_that_was_to_end_with_its_connection_is_gone_after_a_restart() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.lose(conn);
    let conn = rig.connect_with("a", |request| request.expiry = SessionExpiry::WithConnection);
    assert!(!rig.heard(conn).is_empty());
    rig.kill_and_restart(1);
    rig.run_timers();
    assert_eq!(rig.broker.gauges().sessions, 0);
    assert!(rig.store.durable.rows.is_empty());
}

#[test]
fn queue_numbers_are_never_reused() {
    let mut rig = Rig::new();
    for _ in 0..3 {
        let (conn, _) = rig.durable("a");
        let end = Some(SessionExpiry::WithConnection);
        rig.send(conn, ClientCommand::Disconnect { with_will: false, expiry: end });
        rig.kill_and_restart(1);
    }
    rig.durable("a");
    assert_eq!(rig.queue("a").id, Some(QueueId(4)));
}

#[test]
fn leftovers_without_an_owner_are_deleted() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "$share/g/t", Qos::AtLeastOnce);
    let session: Vec<_> =
        rig.store.durable.rows.keys().filter(|(space, _)| *space == Space::Session).cloned().collect();
    session.iter().for_each(|key| {
        rig.store.durable.rows.remove(key);
    });
    rig.kill_and_restart(1);
    assert!(rig.store.durable.rows.is_empty() && rig.store.durable.queues.is_empty());
}

#[test]
fn rows_that_cannot_be_read_are_an_error_and_not_a_panic() {
    for space in
        [Space::Session, Space::Group, Space::Subscription, Space::Will, Space::Retained, Space::InboundQos2]
    {
        for key in [&b"a"[..], b"\xff\xff\xff\xff\xff", b"$share/g/t", b""] {
            for value in [&b""[..], b"\x01\x05\x00\x00\x00", b"\xff\xff\xff"] {
                let rows = vec![(space, key.into(), value.into())];
                let mut broker = Broker::new(Limits::default(), 1);
                let recovered = Recovered { rows, ..Recovered::default() };
                let _ = broker.restore(recovered, Now::default());
            }
        }
    }
}

#[test]
fn what_was_sent_before_a_restart_comes_again_marked_and_under_its_old_identifier() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "t", Qos::AtLeastOnce);
    let publisher = rig.transient("p");
    for n in 1..=5 {
        rig.publish(publisher, "t", &n.to_string(), Qos::AtLeastOnce, n);
    }
    let sent = rig.deliveries(conn);
    assert!(sent.iter().all(|delivery| !delivery.duplicate));
    rig.ack(conn, sent[0].id.unwrap());
    rig.ack(conn, sent[2].id.unwrap());
    rig.kill_and_restart(1);
    let publisher = rig.transient("p");
    rig.publish(publisher, "t", "6", Qos::AtLeastOnce, 1);
    let (conn, _) = rig.durable("a");
    let again = rig.deliveries(conn);
    let seen: Vec<_> = again.iter().map(|d| (payload(d), d.id, d.duplicate)).collect();
    let (two, four, five) = (sent[1].id, sent[3].id, sent[4].id);
    let expected = [("2", two, true), ("4", four, true), ("5", five, true), ("6", again[3].id, false)];
    assert_eq!(seen, expected.map(|(text, id, duplicate)| (text.to_owned(), id, duplicate)));
}

#[test]
fn what_was_never_sent_to_an_absent_client_is_not_marked_after_a_restart() {
    let mut rig = Rig::new();
    let conn = rig.connect_with("a", |request| request.receive_max = 2);
    rig.subscribe(conn, "t", Qos::AtLeastOnce);
    let publisher = rig.transient("p");
    for n in 1..=4 {
        rig.publish(publisher, "t", &n.to_string(), Qos::AtLeastOnce, n);
    }
    assert_eq!(rig.payloads(conn), ["1", "2"]);
    rig.lose(conn);
    for _ in 0..2 {
        rig.kill_and_restart(1);
    }
    let (conn, _) = rig.durable("a");
    let marks: Vec<_> = rig.deliveries(conn).iter().map(|d| (payload(d), d.duplicate)).collect();
    assert_eq!(marks, [("1", true), ("2", true), ("3", false), ("4", false)].map(|(t, d)| (t.to_owned(), d)));
}
