//! Messages on their way down: acknowledged after the local commit, never before, and never in a circle.

use std::time::Duration;

use super::upstream::Upstream;
use super::*;
use crate::bridge::{LinkState, VIA_PROPERTY};
use crate::broker::api::{PublishOutcome, ReplyTag};
use crate::message::Qos;

#[tokio::test]
async fn an_inbound_message_is_acknowledged_after_the_local_commit() {
    for protocol in BOTH {
        let upstream = Upstream::start(protocol).await;
        let link = Running::start(with_inbound(config(protocol, upstream.port())));
        link.broker.with(|b| b.hold_commits = true);
        let mut peer = upstream.login_subscribed(false).await;
        peer.send(0x02, "down/a/b", 77, &[], b"hello").await;
        link.broker.until("published", |b| b.published.len() == 1).await;
        assert_eq!(peer.read_within(Duration::from_millis(50)).await, None, "not yet durable");
        link.broker.commit();
        assert_eq!(peer.expect(4).await.body, [0, 77]);
        link.broker.with(|b| {
            let message = &b.published[0].message;
            assert_eq!(
                (message.topic(), message.payload(), message.qos()),
                ("in/a/b", &b"hello"[..], Qos::AtLeastOnce)
            );
        });
        link.stop().await;
    }
}

#[tokio::test]
async fn a_commit_that_comes_after_a_reconnect_acknowledges_nothing_on_the_new_connection() {
    let upstream = Upstream::start(Protocol::V4).await;
    let link = Running::start(with_inbound(config(Protocol::V4, upstream.port())));
    link.broker.with(|b| b.hold_commits = true);
    let mut peer = upstream.login_subscribed(false).await;
    peer.send(0x02, "down/a", 1, &[], b"old").await;
    link.broker.until("published", |b| b.published.len() == 1).await;
    drop(peer);
    let mut peer = upstream.login_subscribed(true).await;
    link.broker.commit();
    assert_eq!(peer.read_within(Duration::from_millis(50)).await, None);
    peer.send(0x0a, "down/a", 1, &[], b"old").await;
    link.broker.until("published again", |b| b.published.len() == 2).await;
    link.broker.commit();
    assert_eq!(peer.expect(4).await.body, [0, 1]);
    link.stop().await;
}

#[tokio::test]
async fn nothing_is_published_before_the_subscription_is_granted() {
    for protocol in BOTH {
        let upstream = Upstream::start(protocol).await;
        let link = Running::start(with_inbound(config(protocol, upstream.port())));
        link.broker.enqueue_numbers(0..5);
        for session_present in [false, true] {
            let mut peer = upstream.accept().await;
            let connect = peer.expect(1).await;
            assert_eq!(connect.body[7] & 2, 0, "the session is kept");
            peer.connack(0, &[], session_present).await;
            let subscribe = peer.expect(8).await;
            assert_eq!(peer.read_within(Duration::from_millis(40)).await, None, "it waits for SUBACK");
            let options = subscribe.body.last().unwrap();
            // No Local, Retain As Published, only when new, QoS 1.
            assert_eq!(*options, if protocol == Protocol::V5 { 0b0001_1101 } else { 1 });
            assert!(String::from_utf8_lossy(&subscribe.body).contains("down/#"));
            let mut ack = subscribe.body[..2].to_vec();
            if protocol == Protocol::V5 {
                ack.push(0);
            }
            ack.push(1);
            peer.packet(0x90, &ack).await;
            peer.publishes(5).await;
        }
        link.stop().await;
    }
}

#[tokio::test]
async fn a_suback_that_never_comes_ends_the_connection() {
    let upstream = Upstream::start(Protocol::V4).await;
    let link = Running::start(with_inbound(config(Protocol::V4, upstream.port())));
    let mut peer = upstream.login().await;
    peer.expect(8).await;
    assert_eq!(peer.read().await, None);
    assert!(link.status.snapshot().last_error.unwrap().contains("SUBSCRIBE"));
    link.stop().await;
}

#[tokio::test]
async fn a_refused_filter_is_counted_and_the_way_up_stays_open() {
    let upstream = Upstream::start(Protocol::V5).await;
    let link = Running::start(with_inbound(config(Protocol::V5, upstream.port())));
    link.broker.enqueue_numbers(0..1);
    let mut peer = upstream.login().await;
    peer.answer_subscribe(&[0x87]).await;
    peer.serve(1).await;
    let snapshot = link.until("up", |s| s.counters.acked == 1).await;
    assert_eq!((snapshot.state, snapshot.counters.subscribe_refused), (LinkState::Up, 1));
    link.stop().await;
}

#[tokio::test]
async fn properties_retain_and_expiry_come_down_with_a_message() {
    let upstream = Upstream::start(Protocol::V5).await;
    let link = Running::start(with_inbound(config(Protocol::V5, upstream.port())));
    let mut peer = upstream.login_subscribed(false).await;
    let properties = b"\x01\x01\x02\0\0\x02\x58\x03\0\x01t\x08\0\x01r\x09\0\x01c\x26\0\x01k\0\x01v";
    peer.send(0x03, "down/x", 1, properties, b"p").await;
    peer.expect(4).await;
    link.broker.with(|b| {
        let message = &b.published[0].message;
        let properties = message.properties().unwrap();
        assert!(message.retain() && properties.payload_is_text);
        assert_eq!(message.expires().unwrap().millis_since(message.published()), 600_000);
        assert_eq!(properties.content_type.as_deref(), Some("t"));
        assert_eq!(properties.response_topic.as_deref(), Some("r"));
        assert_eq!(properties.correlation_data.as_deref(), Some(&b"c"[..]));
        assert_eq!(properties.user, [("k".into(), "v".into())]);
    });
    link.stop().await;
}

#[tokio::test]
async fn a_message_that_has_crossed_this_gateway_is_acknowledged_and_dropped() {
    let upstream = Upstream::start(Protocol::V5).await;
    let link = Running::start(with_inbound(config(Protocol::V5, upstream.port())));
    let mut peer = upstream.login_subscribed(false).await;
    for (id, gateway) in [(1, "gw"), (2, "other")] {
        let mut via = vec![0x26, 0, VIA_PROPERTY.len() as u8];
        via.extend_from_slice(VIA_PROPERTY.as_bytes());
        via.extend([0, gateway.len() as u8]);
        via.extend_from_slice(gateway.as_bytes());
        peer.send(0x02, "down/x", id, &via, b"").await;
        assert_eq!(peer.expect(4).await.body, [0, id as u8]);
    }
    assert_eq!(link.broker.with(|b| b.published.len()), 1);
    assert_eq!(link.until("counted", |s| s.counters.received == 2).await.counters.loops_dropped, 1);
    link.stop().await;
}

#[tokio::test]
async fn messages_that_no_rule_lets_in_are_acknowledged_and_counted() {
    let upstream = Upstream::start(Protocol::V4).await;
    let mut open = with_inbound(config(Protocol::V4, upstream.port()));
    open.inbound.push(Rule { filter: "wild/#".into(), ..Rule::default() });
    let link = Running::start(open);
    let mut peer = upstream.login().await;
    peer.answer_subscribe(&[1, 1]).await;
    for (id, topic) in [(1, "elsewhere"), (2, "wild/+"), (3, "down/")] {
        peer.send(0x02, topic, id, &[], b"").await;
        assert_eq!(peer.expect(4).await.body, [0, id as u8]);
    }
    assert_eq!(link.until("counted", |s| s.counters.received == 3).await.counters.inbound_refused, 2);
    assert_eq!(link.broker.with(|b| b.published[0].message.topic().to_owned()), "in/");
    link.stop().await;
}

#[tokio::test]
async fn a_message_that_finds_no_room_is_offered_again_and_not_acknowledged_meanwhile() {
    let upstream = Upstream::start(Protocol::V5).await;
    let link = Running::start(with_inbound(config(Protocol::V5, upstream.port())));
    link.broker.with(|b| b.outcome = Some(PublishOutcome::QuotaExceeded));
    let mut peer = upstream.login_subscribed(false).await;
    peer.send(0x02, "down/a", 1, &[], b"1").await;
    peer.send(0x02, "down/a", 2, &[], b"2").await;
    link.broker.until("offered twice", |b| b.published.len() >= 3).await;
    link.broker.enqueue_numbers(0..1);
    let id = peer.publish().await.id;
    peer.puback(id).await;
    link.broker.until_settled(1).await;
    link.broker.with(|b| b.outcome = None);
    assert_eq!(peer.expect(4).await.body, [0, 1]);
    assert_eq!(peer.expect(4).await.body, [0, 2]);
    link.stop().await;
}

#[tokio::test]
async fn a_topic_that_the_local_broker_refuses_is_told_to_the_upstream() {
    let upstream = Upstream::start(Protocol::V5).await;
    let link = Running::start(with_inbound(config(Protocol::V5, upstream.port())));
    link.broker.with(|b| b.outcome = Some(PublishOutcome::TopicInvalid));
    let mut peer = upstream.login_subscribed(false).await;
    peer.send(0x02, "down/a", 1, &[], b"").await;
    assert_eq!(peer.expect(4).await.body, [0, 1, 0x90]);
    link.stop().await;
}

#[tokio::test]
async fn qos_2_from_an_old_subscription_completes_also_across_a_reconnect() {
    for protocol in BOTH {
        let upstream = Upstream::start(protocol).await;
        let link = Running::start(with_inbound(config(protocol, upstream.port())));
        link.broker.enqueue_numbers(0..1);
        let mut peer = upstream.login_subscribed(true).await;
        peer.serve(1).await;
        peer.send(0x04, "down/a", 9, &[], b"").await;
        assert_eq!(peer.expect(5).await.body, [0, 9]);
        drop(peer);
        let mut peer = upstream.login_subscribed(true).await;
        peer.packet(0x62, &[0, 9]).await;
        assert_eq!(peer.expect(7).await.body, [0, 9]);
        link.broker.with(|b| assert_eq!(b.published.len(), 1));
        link.stop().await;
    }
}

#[tokio::test]
async fn qos_0_comes_down_as_qos_0() {
    let upstream = Upstream::start(Protocol::V4).await;
    let link = Running::start(with_inbound(config(Protocol::V4, upstream.port())));
    let mut peer = upstream.login_subscribed(false).await;
    peer.send(0, "down/a", 0, &[], b"x").await;
    link.broker.until("published", |b| b.published.len() == 1).await;
    link.broker.with(|b| {
        assert_eq!((b.published[0].tag, b.published[0].message.qos()), (ReplyTag(0), Qos::AtMostOnce))
    });
    link.stop().await;
}

#[tokio::test]
async fn a_flood_from_upstream_is_taken_at_the_pace_of_the_local_commits() {
    let upstream = Upstream::start(Protocol::V4).await;
    let mut narrow = with_inbound(config(Protocol::V4, upstream.port()));
    narrow.inbound_window = 10;
    let link = Running::start(narrow);
    link.broker.with(|b| b.hold_commits = true);
    let mut peer = upstream.login_subscribed(false).await;
    let payload = [0; 4096];
    for id in 1..=10 {
        peer.send(0x02, "down/a", id, &[], &payload).await;
    }
    link.broker.until("ten offered", |b| b.published.len() == 10).await;
    for id in 11..=60 {
        peer.send(0x02, "down/a", id, &[], &payload).await;
    }
    // More than one read's worth is not taken while ten wait.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(link.broker.with(|b| b.published.len()) <= 10 + 16 * 1024 / 4096 + 1);
    link.broker.with(|b| b.hold_commits = false);
    link.broker.commit();
    for id in 1..=60 {
        assert_eq!(peer.expect(4).await.body, [0, id]);
    }
    link.stop().await;
}

#[tokio::test]
async fn an_alias_that_was_not_granted_ends_the_connection() {
    let upstream = Upstream::start(Protocol::V5).await;
    let link = Running::start(with_inbound(config(Protocol::V5, upstream.port())));
    let mut peer = upstream.login_subscribed(false).await;
    peer.send(0x02, "", 1, &[0x23, 0, 1], b"").await;
    assert_eq!(peer.read().await, None);
    assert!(link.status.snapshot().last_error.unwrap().contains("alias"));
    link.stop().await;
}
