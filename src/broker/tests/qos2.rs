use super::*;
use crate::store::contract::Space;

/// The releases that were sent, and whether what they release was known.
fn releases(rig: &mut Rig, conn: ConnId) -> Vec<(u16, bool)> {
    let release = |event| match event {
        ClientEvent::DeliverRelease { delivery, known } => Some((delivery.get(), known)),
        _ => None,
    };
    rig.heard(conn).into_iter().filter_map(release).collect()
}

fn received(rig: &mut Rig, conn: ConnId, n: u16) {
    rig.send(conn, ClientCommand::Received { delivery: id(n) });
}

fn completed(rig: &mut Rig, conn: ConnId, n: u16) {
    rig.send(conn, ClientCommand::Completed { delivery: id(n) });
}

#[test]
fn a_repeated_publish_is_not_taken_twice_and_is_answered_again() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "t", Qos::AtLeastOnce);
    rig.auto = false;
    rig.publish(conn, "t", "x", Qos::ExactlyOnce, 7);
    rig.publish(conn, "t", "x", Qos::ExactlyOnce, 7);
    assert!(!rig.heard(conn).iter().any(|event| matches!(event, ClientEvent::Published { .. })));
    rig.settle_store();
    let heard = rig.heard(conn);
    assert_eq!(heard.iter().filter(|event| matches!(event, ClientEvent::Published { .. })).count(), 2);
    assert_eq!(rig.queue("a").messages, 1);
    rig.auto = true;
    rig.send(conn, ClientCommand::Release { tag: ReplyTag(7) });
    assert!(matches!(rig.heard(conn)[..], [ClientEvent::Released { tag: ReplyTag(7), known: true }]));
    rig.send(conn, ClientCommand::Release { tag: ReplyTag(7) });
    assert!(matches!(rig.heard(conn)[..], [ClientEvent::Released { known: false, .. }]));
    rig.publish(conn, "t", "y", Qos::ExactlyOnce, 7);
    assert_eq!(rig.queue("a").messages, 2);
}

#[test]
fn a_message_that_is_not_durable_yet_is_not_called_received_at_a_reconnect() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "t", Qos::AtLeastOnce);
    rig.auto = false;
    rig.publish(conn, "t", "x", Qos::ExactlyOnce, 7);
    rig.send(conn, ClientCommand::Lost);
    let conn = rig.connect_with("a", |_| {});
    assert!(rig.heard(conn).is_empty(), "what it sent before is not durable");
    rig.settle_store();
    match &rig.heard(conn)[0] {
        ClientEvent::Connected(connected) => assert_eq!(connected.unreleased, []),
        other => panic!("{other:?}"),
    }
    rig.publish(conn, "t", "x", Qos::ExactlyOnce, 7);
    assert!(rig.heard(conn).iter().any(|event| matches!(event, ClientEvent::Published { .. })));
    assert_eq!(rig.queue("a").messages, 1);
}

#[test]
fn what_was_received_and_not_released_survives_a_restart() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "t", Qos::AtLeastOnce);
    rig.publish(conn, "t", "x", Qos::ExactlyOnce, 7);
    rig.kill_and_restart(1);
    let conn = rig.connect_with("a", |_| {});
    match &rig.heard(conn)[0] {
        ClientEvent::Connected(connected) => assert_eq!(connected.unreleased, [ReplyTag(7)]),
        other => panic!("{other:?}"),
    }
    rig.publish(conn, "t", "x", Qos::ExactlyOnce, 7);
    assert_eq!(rig.queue("a").messages, 1);
}

#[test]
fn a_delivery_leaves_after_its_identifier_is_durable() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "t", Qos::ExactlyOnce);
    let publisher = rig.transient("p");
    rig.auto = false;
    rig.publish(publisher, "t", "x", Qos::ExactlyOnce, 1);
    assert!(rig.payloads(conn).is_empty());
    rig.commit(1);
    rig.turn();
    assert_eq!(rig.payloads(conn), ["x"]);
}

#[test]
fn a_release_leaves_after_the_receipt_is_durable_and_the_message_is_settled() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "t", Qos::ExactlyOnce);
    rig.publish(conn, "t", "x", Qos::ExactlyOnce, 1);
    rig.heard(conn);
    rig.auto = false;
    received(&mut rig, conn, 1);
    assert_eq!(rig.queue("a").messages, 0);
    assert_eq!(rig.store.last_is_urgent(), Some(true));
    assert!(releases(&mut rig, conn).is_empty());
    rig.settle_store();
    assert_eq!(releases(&mut rig, conn), [(1, true)]);
    completed(&mut rig, conn, 1);
    assert_eq!(rig.store.last_is_urgent(), Some(false));
    rig.settle_store();
    assert_eq!(rig.store.durable.rows_of(Space::OutboundQos2), 0);
}

#[test]
fn order_is_kept_between_deliveries_that_wait_for_the_store_and_others() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "t", Qos::ExactlyOnce);
    let publisher = rig.transient("p");
    rig.auto = false;
    rig.publish(publisher, "t", "1", Qos::ExactlyOnce, 1);
    rig.publish(publisher, "t", "2", Qos::AtLeastOnce, 2);
    assert!(rig.payloads(conn).is_empty());
    rig.settle_store();
    assert_eq!(rig.payloads(conn), ["1", "2"]);
}

#[test]
fn a_resumed_session_hears_releases_first_then_repeated_messages_then_new_ones() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "t", Qos::ExactlyOnce);
    let publisher = rig.transient("p");
    for n in 1..=4 {
        rig.publish(publisher, "t", &n.to_string(), Qos::ExactlyOnce, n);
    }
    rig.heard(conn);
    received(&mut rig, conn, 2);
    received(&mut rig, conn, 1);
    for restart in [false, true] {
        if restart {
            rig.kill_and_restart(1);
        } else {
            rig.lose(conn);
        }
        let (conn, present) = rig.durable("a");
        assert!(present);
        let heard = rig.heard(conn);
        let view: Vec<(u16, bool)> = heard
            .iter()
            .map(|event| match event {
                ClientEvent::DeliverRelease { delivery, known } => (delivery.get(), *known),
                ClientEvent::Deliver(d) => {
                    assert!(d.duplicate && d.qos == Qos::ExactlyOnce);
                    (d.id.unwrap().get(), false)
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(view, [(1, true), (2, true), (3, false), (4, false)], "restart: {restart}");
        rig.lose(conn);
    }
}

#[test]
fn identifiers_of_unfinished_deliveries_are_not_given_to_others_after_a_restart() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "t", Qos::ExactlyOnce);
    let publisher = rig.transient("p");
    for n in 1..=3 {
        rig.publish(publisher, "t", &n.to_string(), Qos::ExactlyOnce, n);
    }
    received(&mut rig, conn, 3);
    rig.kill_and_restart(1);
    let publisher = rig.transient("p");
    rig.publish(publisher, "t", "4", Qos::ExactlyOnce, 1);
    let (conn, _) = rig.durable("a");
    let delivered = rig.deliveries(conn);
    let view: Vec<_> = delivered.iter().map(|d| (payload(d), d.id.unwrap().get())).collect();
    assert_eq!(view, [("1".into(), 1), ("2".into(), 2), ("4".to_string(), 4)]);
}

#[test]
fn a_repeated_or_unknown_receipt_is_answered_and_a_wrong_one_ends_the_connection() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "t", Qos::ExactlyOnce);
    rig.publish(conn, "t", "x", Qos::ExactlyOnce, 1);
    rig.publish(conn, "t", "y", Qos::AtLeastOnce, 2);
    rig.heard(conn);
    received(&mut rig, conn, 1);
    received(&mut rig, conn, 1);
    received(&mut rig, conn, 77);
    assert_eq!(releases(&mut rig, conn), [(1, true), (1, true), (77, false)]);
    completed(&mut rig, conn, 1);
    completed(&mut rig, conn, 1);
    received(&mut rig, conn, 2);
    assert!(matches!(rig.heard(conn)[..], [ClientEvent::Close(CloseReason::ProtocolViolation)]));
}

#[test]
fn a_refused_delivery_leaves_no_row_behind() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "t", Qos::ExactlyOnce);
    rig.publish(conn, "t", "x", Qos::ExactlyOnce, 1);
    rig.send(conn, ClientCommand::Settle { delivery: id(1), accepted: false });
    assert_eq!(rig.store.durable.rows_of(Space::OutboundQos2), 0);
    assert_eq!(rig.queue("a").messages, 0);
}

#[test]
fn a_transient_session_runs_the_handshake_without_the_store() {
    let mut rig = Rig::new();
    let conn = rig.transient("a");
    rig.auto = false;
    rig.subscribe(conn, "t", Qos::ExactlyOnce);
    rig.publish(conn, "t", "x", Qos::ExactlyOnce, 1);
    rig.publish(conn, "t", "x", Qos::ExactlyOnce, 1);
    assert_eq!(rig.payloads(conn), ["x"]);
    received(&mut rig, conn, 1);
    received(&mut rig, conn, 1);
    assert_eq!(releases(&mut rig, conn), [(1, true), (1, true)]);
    completed(&mut rig, conn, 1);
    rig.send(conn, ClientCommand::Release { tag: ReplyTag(1) });
    assert!(matches!(rig.heard(conn)[..], [ClientEvent::Released { known: true, .. }]));
    assert_eq!(rig.store.uncommitted(), 0);
}
