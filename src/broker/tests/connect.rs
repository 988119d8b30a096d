use super::*;

fn connected(rig: &mut Rig, conn: ConnId) -> Connected {
    match rig.heard(conn).into_iter().next() {
        Some(ClientEvent::Connected(connected)) => *connected,
        other => panic!("{other:?}"),
    }
}

fn refusal(rig: &mut Rig, conn: ConnId) -> Refusal {
    match rig.heard(conn)[..] {
        [ClientEvent::Refused(refusal)] => refusal,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_durable_session_is_durable_before_its_client_hears_of_it() {
    let mut rig = Rig::new();
    rig.auto = false;
    let conn = rig.connect_with("a", |_| {});
    assert!(rig.heard(conn).is_empty());
    assert_eq!(rig.store.last_is_urgent(), Some(true));
    rig.settle_store();
    assert!(!connected(&mut rig, conn).session_present);
}

#[test]
fn a_session_whose_time_runs_while_it_is_away_is_stored_as_connected_before_its_client_hears_of_it() {
    let mut rig = Rig::new();
    let expiry = |request: &mut ConnectRequest| request.expiry = SessionExpiry::After(100);
    let conn = rig.connect_with("a", expiry);
    rig.lose(conn);
    rig.auto = false;
    let conn = rig.connect_with("a", expiry);
    assert!(rig.heard(conn).is_empty());
    rig.settle_store();
    assert!(connected(&mut rig, conn).session_present);
}

#[test]
fn a_takeover_is_answered_when_what_the_connection_before_it_asked_for_is_durable() {
    let mut rig = Rig::new();
    rig.auto = false;
    let first = rig.connect_with("a", |_| {});
    let second = rig.connect_with("a", |_| {});
    assert_eq!(rig.heard(first).len(), 1, "only that it is taken over");
    assert!(rig.heard(second).is_empty(), "the session itself is not durable");
    rig.settle_store();
    assert!(connected(&mut rig, second).session_present);
}

#[test]
fn a_transient_session_touches_the_store_in_no_way() {
    let mut rig = Rig::new();
    rig.auto = false;
    let conn = rig.transient("a");
    rig.subscribe(conn, "t", Qos::AtLeastOnce);
    rig.publish(conn, "t", "x", Qos::AtLeastOnce, 1);
    assert_eq!(rig.payloads(conn), ["x"]);
    rig.ack(conn, id(1));
    rig.goodbye(conn);
    assert_eq!(rig.store.uncommitted(), 0);
    assert_eq!(rig.broker.gauges().sessions, 0);
}

#[test]
fn a_durable_session_is_resumed_with_its_subscriptions_and_messages() {
    let mut rig = Rig::new();
    let (conn, present) = rig.durable("a");
    assert!(!present);
    rig.subscribe(conn, "t/#", Qos::AtLeastOnce);
    rig.lose(conn);
    let publisher = rig.transient("p");
    for n in 0..5 {
        rig.publish(publisher, "t/x", &n.to_string(), Qos::AtLeastOnce, n + 1);
    }
    let (conn, present) = rig.durable("a");
    assert!(present);
    assert_eq!(rig.drain(conn), ["0", "1", "2", "3", "4"]);
    assert_eq!(rig.queue("a").messages, 0);
}

#[test]
fn a_clean_start_throws_the_old_session_away_with_all_its_rows() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "t", Qos::AtLeastOnce);
    rig.publish(conn, "t", "old", Qos::AtLeastOnce, 1);
    rig.lose(conn);
    let conn = rig.connect_with("a", |request| request.clean_start = true);
    assert!(!connected(&mut rig, conn).session_present);
    rig.publish(conn, "t", "new", Qos::AtLeastOnce, 1);
    assert!(rig.payloads(conn).is_empty());
    assert_eq!(rig.store.durable.rows.len(), 1, "its session's row");
}

#[test]
fn takeover_closes_the_old_connection_and_loses_nothing() {
    let mut rig = Rig::new();
    let (old, _) = rig.durable("a");
    rig.subscribe(old, "t", Qos::AtLeastOnce);
    rig.publish(old, "t", "1", Qos::AtLeastOnce, 1);
    rig.publish(old, "t", "2", Qos::AtLeastOnce, 2);
    assert_eq!(rig.payloads(old), ["1", "2"]);
    rig.ack(old, id(1));
    let (new, present) = rig.durable("a");
    assert!(present);
    assert!(matches!(rig.heard(old)[..], [ClientEvent::Close(CloseReason::TakenOver)]));
    let again = rig.deliveries(new);
    assert_eq!((again.len(), again[0].id, again[0].duplicate), (1, Some(id(2)), true));
    rig.lose(old);
    assert_eq!(rig.broker.stats().commands_ignored, 1);
    assert_eq!(rig.broker.gauges().connections, 1);
}

#[test]
fn a_session_ends_when_its_time_is_over_and_not_while_its_client_is_there() {
    let mut rig = Rig::new();
    let conn = rig.connect_with("a", |request| request.expiry = SessionExpiry::After(60));
    rig.advance_secs(1000);
    rig.lose(conn);
    rig.advance_secs(59);
    assert_eq!(rig.broker.gauges().sessions, 1);
    rig.advance_secs(1);
    assert_eq!(rig.broker.gauges().sessions, 0);
    assert!(rig.store.durable.rows.is_empty() && rig.store.durable.queues.is_empty());
}

#[test]
fn disconnect_can_shorten_a_session_but_not_keep_one_that_was_to_end() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    let end = Some(SessionExpiry::WithConnection);
    rig.send(conn, ClientCommand::Disconnect { with_will: false, expiry: end });
    assert_eq!(rig.broker.gauges().sessions, 0);
    let conn = rig.transient("b");
    let keep = Some(SessionExpiry::After(100));
    rig.send(conn, ClientCommand::Disconnect { with_will: false, expiry: keep });
    assert_eq!(rig.broker.gauges().sessions, 0);
}

#[test]
fn expiry_is_capped_by_the_limit() {
    let mut rig = Rig::with(Limits { session_expiry_max_secs: Some(10), ..Limits::default() });
    let conn = rig.connect_with("a", |_| {});
    assert_eq!(connected(&mut rig, conn).expiry, SessionExpiry::After(10));
}

#[test]
fn client_identifiers_are_made_up_differ_and_are_checked() {
    let mut rig = Rig::new();
    let clean = |request: &mut ConnectRequest| request.clean_start = true;
    let (a, b) = (rig.connect_with("", clean), rig.connect_with("", clean));
    let (a, b) = (connected(&mut rig, a), connected(&mut rig, b));
    assert!(a.assigned_client_id.is_some() && a.assigned_client_id != b.assigned_client_id);
    // MQTT 5.0 lets such a client keep its session: it is told its name.
    let kept = rig.connect_with("", |_| {});
    let kept = connected(&mut rig, kept);
    assert!(kept.assigned_client_id.is_some() && kept.expiry == SessionExpiry::Never);
    let long = rig.connect_with(&"x".repeat(1025), |_| {});
    assert_eq!(refusal(&mut rig, long), Refusal::ClientIdInvalid);
    let wild = rig.connect_with("w", |request| request.will = Some(will("a/#", 0)));
    assert_eq!(refusal(&mut rig, wild), Refusal::WillInvalid);
}

#[test]
fn sessions_are_bounded_and_known_clients_still_get_in() {
    let mut rig = Rig::with(Limits { sessions_max: 1, ..Limits::default() });
    rig.durable("a");
    let other = rig.connect_with("b", |_| {});
    assert_eq!(refusal(&mut rig, other), Refusal::QuotaExceeded);
    assert!(rig.durable("a").1);
}

#[test]
fn a_second_connect_on_a_connection_ends_it() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    let request = ConnectRequest {
        client_id: "b".into(),
        clean_start: true,
        expiry: SessionExpiry::Never,
        receive_max: 1,
        will: None,
        internal: false,
    };
    rig.send(conn, ClientCommand::Connect(Box::new(request)));
    assert!(matches!(rig.heard(conn)[..], [ClientEvent::Close(CloseReason::ProtocolViolation)]));
    assert_eq!(rig.broker.gauges().connections, 0);
}

#[test]
fn commands_of_unknown_connections_are_ignored_and_counted() {
    let mut rig = Rig::new();
    rig.send(ConnId(99), ClientCommand::Settle { delivery: id(1), accepted: true });
    rig.publish(ConnId(99), "t", "x", Qos::AtLeastOnce, 1);
    assert_eq!(rig.broker.stats().commands_ignored, 2);
    assert!(rig.heard(ConnId(99)).is_empty());
}

#[test]
fn after_a_store_error_nothing_is_acknowledged_any_more() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "t", Qos::AtLeastOnce);
    rig.auto = false;
    rig.publish(conn, "t", "x", Qos::AtLeastOnce, 1);
    rig.heard(conn);
    rig.broker.store_event(StoreEvent::Failed("disk".into()), rig.now());
    rig.commit(1);
    rig.publish(conn, "u", "x", Qos::AtLeastOnce, 2);
    assert!(rig.heard(conn).is_empty());
}

#[test]
fn shutdown_closes_every_connection_and_keeps_durable_sessions() {
    let mut rig = Rig::new();
    let (a, _) = rig.durable("a");
    rig.subscribe(a, "t", Qos::AtLeastOnce);
    let b = rig.transient("b");
    rig.broker.shutdown(rig.now());
    rig.turn();
    for conn in [a, b] {
        assert!(matches!(rig.heard(conn)[..], [ClientEvent::Close(CloseReason::ShuttingDown)]));
    }
    rig.kill_and_restart(5);
    assert!(rig.durable("a").1);
}

#[test]
fn an_operator_can_end_connections_and_sessions() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    assert!(rig.broker.disconnect_client("a", rig.now()));
    rig.turn();
    assert!(matches!(rig.heard(conn)[..], [ClientEvent::Close(CloseReason::Administrative)]));
    assert!(!rig.broker.disconnect_client("a", rig.now()));
    assert!(rig.broker.delete_session("a", rig.now()) && !rig.broker.delete_session("a", rig.now()));
    rig.turn();
    assert!(rig.store.durable.rows.is_empty());
}
