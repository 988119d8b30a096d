use super::*;
use crate::store::contract::Space;

fn with_will(rig: &mut Rig, client: &str, delay: u32, expiry: SessionExpiry) -> ConnId {
    let conn = rig.connect_with(client, |request| {
        request.will = Some(will("w", delay));
        request.expiry = expiry;
    });
    let heard = rig.heard(conn);
    assert!(matches!(heard[..], [ClientEvent::Connected(_)]), "{heard:?}");
    conn
}

fn watcher(rig: &mut Rig) -> ConnId {
    let conn = rig.transient("watcher");
    rig.subscribe(conn, "w", Qos::AtLeastOnce);
    conn
}

#[test]
fn a_will_is_durable_before_the_client_is_welcomed_and_goes_with_a_clean_end() {
    let mut rig = Rig::new();
    let watcher = watcher(&mut rig);
    rig.auto = false;
    let conn = rig.connect_with("a", |request| {
        request.will = Some(will("w", 0));
        request.expiry = SessionExpiry::WithConnection;
    });
    assert!(rig.heard(conn).is_empty());
    rig.settle_store();
    assert_eq!(rig.store.durable.rows_of(Space::Will), 1);
    rig.goodbye(conn);
    rig.settle_store();
    assert_eq!(rig.store.durable.rows_of(Space::Will), 0);
    assert!(rig.payloads(watcher).is_empty());
}

#[test]
fn a_lost_connection_publishes_the_will_once() {
    let mut rig = Rig::new();
    let watcher = watcher(&mut rig);
    for (expiry, client) in [(SessionExpiry::WithConnection, "a"), (SessionExpiry::Never, "b")] {
        let conn = with_will(&mut rig, client, 0, expiry);
        rig.lose(conn);
        rig.advance_secs(1000);
        assert_eq!(rig.drain(watcher), ["gone"]);
    }
    assert_eq!(rig.store.durable.rows_of(Space::Will), 0);
    assert_eq!(rig.broker.stats().wills, 2);
}

#[test]
fn a_disconnect_can_ask_for_the_will() {
    let mut rig = Rig::new();
    let watcher = watcher(&mut rig);
    let conn = with_will(&mut rig, "a", 0, SessionExpiry::WithConnection);
    rig.send(conn, ClientCommand::Disconnect { with_will: true, expiry: None });
    assert_eq!(rig.drain(watcher), ["gone"]);
}

#[test]
fn a_delayed_will_is_not_published_when_the_client_is_back_in_time() {
    let mut rig = Rig::new();
    let watcher = watcher(&mut rig);
    let conn = with_will(&mut rig, "a", 60, SessionExpiry::Never);
    rig.lose(conn);
    rig.advance_secs(59);
    let (conn, _) = rig.durable("a");
    rig.advance_secs(1000);
    assert!(rig.payloads(watcher).is_empty());
    rig.goodbye(conn);
    let conn = with_will(&mut rig, "a", 60, SessionExpiry::Never);
    rig.lose(conn);
    rig.advance_secs(60);
    assert_eq!(rig.drain(watcher), ["gone"]);
}

#[test]
fn a_will_does_not_wait_longer_than_its_session_lives() {
    let mut rig = Rig::new();
    let watcher = watcher(&mut rig);
    let conn = with_will(&mut rig, "a", 600, SessionExpiry::After(10));
    rig.lose(conn);
    rig.advance_secs(9);
    assert!(rig.payloads(watcher).is_empty());
    rig.advance_secs(1);
    assert_eq!(rig.drain(watcher), ["gone"]);
    let conn = with_will(&mut rig, "b", 600, SessionExpiry::Never);
    rig.lose(conn);
    rig.connect_with("b", |request| request.clean_start = true);
    assert_eq!(rig.drain(watcher), ["gone"], "a clean start ends the session");
}

#[test]
fn takeover_publishes_the_will_unless_it_waits_and_the_session_goes_on() {
    let mut rig = Rig::new();
    let watcher = watcher(&mut rig);
    with_will(&mut rig, "a", 0, SessionExpiry::Never);
    let conn = with_will(&mut rig, "a", 30, SessionExpiry::Never);
    assert_eq!(rig.drain(watcher), ["gone"], "no delay");
    let conn2 = with_will(&mut rig, "a", 30, SessionExpiry::Never);
    rig.lose(conn);
    rig.advance_secs(100);
    assert!(rig.payloads(watcher).is_empty(), "resumed within the delay");
    let _ = conn2;
    rig.connect_with("a", |request| request.clean_start = true);
    assert_eq!(rig.drain(watcher), ["gone"], "the session ended");
}

#[test]
fn the_will_of_a_half_open_connection_never_lands_after_its_successors_messages() {
    let mut rig = Rig::new();
    let watcher = watcher(&mut rig);
    let old = with_will(&mut rig, "a", 0, SessionExpiry::WithConnection);
    let new = with_will(&mut rig, "a", 0, SessionExpiry::WithConnection);
    rig.publish(new, "w", "online", Qos::AtLeastOnce, 1);
    rig.lose(old);
    rig.advance_secs(100);
    assert_eq!(rig.drain(watcher), ["gone", "online"]);
}

#[test]
fn after_a_restart_the_will_of_a_client_that_stays_away_is_published() {
    let mut rig = Rig::new();
    let (observer, _) = rig.durable("observer");
    rig.subscribe(observer, "w", Qos::AtLeastOnce);
    with_will(&mut rig, "returns", 0, SessionExpiry::WithConnection);
    with_will(&mut rig, "stays-away", 0, SessionExpiry::WithConnection);
    with_will(&mut rig, "slow", 100, SessionExpiry::Never);
    rig.kill_and_restart(3600);
    let (observer, _) = rig.durable("observer");
    let back = rig.transient("returns");
    rig.advance_secs(29);
    assert!(rig.payloads(observer).is_empty());
    rig.advance_secs(1);
    assert_eq!(rig.drain(observer), ["gone"]);
    rig.advance_secs(69);
    assert!(rig.payloads(observer).is_empty());
    rig.advance_secs(1);
    assert_eq!(rig.drain(observer), ["gone"]);
    assert_eq!(rig.store.durable.rows_of(Space::Will), 0);
    let _ = back;
}

#[test]
fn after_a_restart_a_session_that_ended_still_gets_its_grace_before_the_will() {
    let mut rig = Rig::new();
    with_will(&mut rig, "a", 10, SessionExpiry::After(5));
    rig.kill_and_restart(3600);
    let watcher = watcher(&mut rig);
    rig.advance_secs(29);
    assert_eq!(rig.broker.gauges().sessions, 1, "the session is over");
    assert!(rig.payloads(watcher).is_empty());
    rig.advance_secs(1);
    assert_eq!(rig.drain(watcher), ["gone"]);
}

#[test]
fn a_retained_will_is_retained_and_its_expiry_counts_from_its_publication() {
    let mut rig = Rig::new();
    let conn = rig.connect_with("a", |request| {
        request.will = Some(Will { retain: true, expiry_secs: Some(10), ..will("w", 0) });
    });
    rig.advance_secs(100);
    rig.lose(conn);
    assert_eq!(rig.broker.gauges().retained, 1);
    let watcher = watcher(&mut rig);
    let delivered = rig.deliveries(watcher);
    assert!(delivered[0].retain);
    assert_eq!(delivered[0].message.expires(), Some(rig.now().wall.plus_secs(10)));
    rig.advance_secs(10);
    assert_eq!(rig.broker.gauges().retained, 0);
}

#[test]
fn a_will_that_finds_the_store_full_is_published_later() {
    let mut rig = Rig::new();
    let (observer, _) = rig.durable("observer");
    rig.subscribe(observer, "w", Qos::AtLeastOnce);
    let conn = with_will(&mut rig, "a", 0, SessionExpiry::Never);
    rig.broker.store_event(StoreEvent::Capacity(crate::store::contract::Capacity::Full), rig.now());
    rig.lose(conn);
    rig.advance_secs(60);
    assert!(rig.payloads(observer).is_empty());
    rig.broker.store_event(StoreEvent::Capacity(crate::store::contract::Capacity::Free), rig.now());
    rig.advance_secs(5);
    assert_eq!(rig.drain(observer), ["gone"]);
}
