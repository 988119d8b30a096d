//! Expired messages of queues without a consumer.

use super::*;
use crate::broker::expiry::PASS_MILLIS_MIN;

const PASS_SECS: u64 = PASS_MILLIS_MIN / 1000;

/// Publishes `count` messages at once; `life` in seconds.
fn publish_many(rig: &mut Rig, publisher: ConnId, count: u64, life: Option<u64>) {
    let now = rig.now();
    for n in 0..count {
        let head = MessageHead {
            qos: Qos::AtLeastOnce,
            published: now.wall,
            expires: life.map(|seconds| now.wall.plus_secs(seconds)),
            ..MessageHead::default()
        };
        let message = Message::new("t", format!("{n} of {life:?}").as_bytes(), head);
        let request = PublishRequest { tag: ReplyTag(1), message };
        rig.broker.handle(publisher, ClientCommand::Publish(request), now);
    }
    rig.turn();
}

/// A durable session "a" that is away, and a publisher.
fn absent() -> (Rig, ConnId) {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "t", Qos::AtLeastOnce);
    rig.lose(conn);
    let publisher = rig.transient("p");
    (rig, publisher)
}

#[test]
fn a_pass_settles_the_expired_messages_of_an_absent_consumer_and_reads_hardly_more() {
    let (mut rig, publisher) = absent();
    publish_many(&mut rig, publisher, 30_000, Some(2 * PASS_SECS));
    publish_many(&mut rig, publisher, 1000, Some(100 * PASS_SECS));
    rig.advance_secs(2 * PASS_SECS - 1);
    assert_eq!((rig.queue("a").messages, rig.read), (31_000, 0));
    rig.advance_secs(1);
    assert_eq!((rig.queue("a").messages, rig.broker.stats().dropped_expired), (1000, 30_000));
    assert!(rig.read <= 30_300, "{} messages read", rig.read);
    assert_eq!(rig.queue("a").in_memory_bytes, 0);
    let read = rig.read;
    rig.advance_secs(97 * PASS_SECS);
    assert_eq!(rig.read, read, "nothing is read before the next one expires");
    rig.advance_secs(PASS_SECS);
    assert_eq!(rig.queue("a").messages, 0);
    assert_eq!(rig.broker.next_deadline(), None);
}

#[test]
fn a_delivery_that_was_under_way_is_repeated_though_the_messages_behind_it_have_expired() {
    let (mut rig, publisher) = absent();
    let conn = rig.connect_with("a", |request| request.receive_max = 2);
    publish_many(&mut rig, publisher, 300, Some(5));
    let sent = rig.payloads(conn);
    assert_eq!(sent.len(), 2);
    rig.lose(conn);
    publish_many(&mut rig, publisher, 3, None);
    rig.advance_secs(PASS_SECS);
    assert_eq!((rig.queue("a").messages, rig.queue("a").counters.expired), (5, 298));
    let (conn, _) = rig.durable("a");
    let got = rig.drain(conn);
    assert_eq!((&got[..2], got.len()), (&sent[..], 5));
}

#[test]
fn a_message_that_never_expires_holds_up_those_behind_it_and_is_not_read_again_and_again() {
    let (mut rig, publisher) = absent();
    publish_many(&mut rig, publisher, 1, None);
    publish_many(&mut rig, publisher, 1000, Some(5));
    rig.advance_secs(100 * PASS_SECS);
    assert_eq!((rig.queue("a").messages, rig.read), (1001, 0));
    let (conn, _) = rig.durable("a");
    assert_eq!(rig.drain(conn), ["0 of None"]);
}

#[test]
fn a_consumer_that_comes_back_during_a_pass_gets_what_is_still_good_in_order() {
    let (mut rig, publisher) = absent();
    publish_many(&mut rig, publisher, 600, Some(5));
    publish_many(&mut rig, publisher, 400, None);
    rig.auto = false;
    rig.advance_secs(PASS_SECS);
    assert!(rig.serve_page());
    rig.turn();
    let (conn, _) = rig.durable("a");
    rig.auto = true;
    rig.turn();
    let expected: Vec<_> = (0..400).map(|n| format!("{n} of None")).collect();
    assert_eq!(rig.drain(conn), expected);
    assert_eq!((rig.queue("a").messages, rig.queue("a").counters.expired), (0, 600));
}

#[test]
fn a_pass_follows_a_restart() {
    let (mut rig, publisher) = absent();
    publish_many(&mut rig, publisher, 500, Some(5));
    rig.kill_and_restart(100);
    assert_eq!(rig.queue("a").messages, 500);
    rig.advance_secs(PASS_SECS);
    assert_eq!((rig.queue("a").messages, rig.broker.next_deadline()), (0, None));
}

#[test]
fn the_queue_of_a_shared_subscription_without_connected_members_gets_a_pass_too() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "$share/g/t", Qos::AtLeastOnce);
    rig.lose(conn);
    let publisher = rig.transient("p");
    publish_many(&mut rig, publisher, 500, Some(5));
    publish_many(&mut rig, publisher, 1, None);
    rig.advance_secs(PASS_SECS);
    assert_eq!((rig.queue("$share/g/t").messages, rig.broker.stats().dropped_expired), (1, 500));
}

#[test]
fn a_queue_that_goes_takes_its_plan_along() {
    let (mut rig, publisher) = absent();
    publish_many(&mut rig, publisher, 5, Some(5));
    assert!(rig.broker.next_deadline().is_some());
    assert!(rig.broker.delete_session("a", rig.now()));
    rig.turn();
    assert_eq!(rig.broker.next_deadline(), None);
}
