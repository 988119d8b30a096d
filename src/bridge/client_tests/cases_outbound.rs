//! Messages on their way up over connections that work, with upstreams that set limits, refuse, or answer oddly.

use std::time::Duration;

use super::upstream::{Peer, Published, Upstream};
use super::*;
use crate::bridge::{LinkState, TlsConfig, VIA_PROPERTY};
use crate::message::{Message, MessageHead, Properties, Qos};

fn numbers(published: &[Published]) -> Vec<u32> {
    published.iter().map(|p| u32::from_be_bytes(p.payload[..4].try_into().unwrap())).collect()
}

#[tokio::test]
async fn what_was_queued_before_the_upstream_was_ever_reached_flows_in_order() {
    for protocol in BOTH {
        let upstream = Upstream::start(protocol).await;
        let port = upstream.port();
        drop(upstream.listener);
        let link = Running::start(config(protocol, port));
        link.broker.enqueue_numbers(0..300);
        link.until("failed attempts", |s| s.counters.failures > 3).await;
        assert!(link.status.snapshot().last_error.unwrap().contains("no connection to 127.0.0.1"));
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let upstream = Upstream { listener, protocol };
        let mut peer = upstream.login().await;
        let published = peer.serve(300).await;
        assert_eq!(numbers(&published), (0..300).collect::<Vec<_>>());
        assert!(published.iter().all(|p| p.topic.starts_with("up/") && !p.dup && p.id != 0));
        link.broker.until_settled(300).await;
        assert!(link.broker.with(|b| b.settled.iter().all(|(_, accepted)| *accepted)));
        link.stop().await;
    }
}

#[tokio::test]
async fn the_session_is_durable_and_asks_for_no_echo() {
    let upstream = Upstream::start(Protocol::V5).await;
    let link = Running::start(config(Protocol::V5, upstream.port()));
    let _peer = upstream.login().await;
    link.broker.until("state 1", |b| b.states == ["0", "1"]).await;
    link.broker.with(|b| {
        let connect = &b.connects[0];
        assert_eq!(
            (&*connect.client_id, connect.clean_start, connect.internal),
            ("$bridge/cloud", false, true)
        );
        assert_eq!(connect.receive_max, 20);
        assert_eq!(&*connect.will.as_ref().unwrap().topic, "$SYS/broker/connection/cloud/state");
        assert_eq!(&*b.filters[0].filter, "out/#");
        let options = b.filters[0].options;
        assert!(options.no_local && options.retain_as_published && options.qos == Qos::AtLeastOnce);
    });
    link.stop().await;
}

#[tokio::test]
async fn one_acknowledgement_makes_room_for_one_message() {
    let upstream = Upstream::start(Protocol::V4).await;
    let link = Running::start(config(Protocol::V4, upstream.port()));
    link.broker.enqueue_numbers(0..40);
    let mut peer = upstream.login().await;
    let first = peer.publishes(20).await;
    assert_eq!(peer.read_within(Duration::from_millis(50)).await, None, "the window is full");
    peer.puback(first[0].id).await;
    assert_eq!(numbers(&[peer.publish().await]), [20]);
    link.stop().await;
}

#[tokio::test]
async fn acknowledgements_in_reverse_order_settle_everything_once() {
    for protocol in BOTH {
        let upstream = Upstream::start(protocol).await;
        let link = Running::start(config(protocol, upstream.port()));
        link.broker.enqueue_numbers(0..60);
        let mut peer = upstream.login().await;
        for _ in 0..3 {
            let batch = peer.publishes(20).await;
            for published in batch.iter().rev() {
                peer.puback(published.id).await;
            }
        }
        link.broker.until_settled(60).await;
        let snapshot = link.until("60 acknowledged", |s| s.counters.acked == 60).await;
        assert_eq!((snapshot.counters.resent, snapshot.counters.failures), (0, 0));
        link.stop().await;
    }
}

#[tokio::test]
async fn no_message_carries_an_alias_though_the_upstream_grants_them() {
    let upstream = Upstream::start(Protocol::V5).await;
    let mut quiet = config(Protocol::V5, upstream.port());
    quiet.mark_path = false;
    let link = Running::start(quiet);
    (0..10).for_each(|_| link.broker.enqueue("out/same", b"x"));
    let grants = [0x22, 0, 10];
    for dup in [false, true] {
        let mut peer = upstream.login_with(&grants, false).await;
        for published in peer.publishes(10).await {
            assert_eq!((published.topic.as_str(), published.dup), ("up/same", dup));
            assert!(published.properties.is_empty());
        }
    }
    link.stop().await;
}

#[tokio::test]
async fn the_receive_maximum_of_each_connection_is_kept() {
    let upstream = Upstream::start(Protocol::V5).await;
    let link = Running::start(config(Protocol::V5, upstream.port()));
    link.broker.enqueue_numbers(0..80);
    let mut peer = upstream.login_with(&[0x21, 0, 100], false).await;
    assert_eq!(peer.publishes(20).await.len(), 20, "our own window is smaller");
    drop(peer);
    let mut peer = upstream.login_with(&[0x21, 0, 5], true).await;
    let mut seen = Vec::new();
    while seen.len() < 80 {
        let batch = peer.publishes(5).await;
        assert_eq!(peer.read_within(Duration::from_millis(5)).await, None, "five at a time");
        for published in batch.iter().rev() {
            peer.puback(published.id).await;
        }
        seen.extend(numbers(&batch));
    }
    assert_eq!(seen, (0..80).collect::<Vec<_>>());
    link.broker.until_settled(80).await;
    link.stop().await;
}

#[tokio::test]
async fn a_message_too_large_for_the_upstream_is_parked_and_the_rest_flows() {
    for protocol in BOTH {
        let upstream = Upstream::start(protocol).await;
        let mut limited = config(protocol, upstream.port());
        let limit: &[u8] = match protocol {
            Protocol::V4 => {
                limited.packet_bytes_max = 1024;
                &[]
            }
            Protocol::V5 => &[0x27, 0, 0, 4, 0],
        };
        let link = Running::start(limited);
        link.broker.enqueue_numbers(0..3);
        link.broker.enqueue("out/big", &[7; 2000]);
        link.broker.enqueue_numbers(3..6);
        let mut peer = upstream.login_with(limit, false).await;
        assert_eq!(numbers(&peer.serve(6).await), [0, 1, 2, 3, 4, 5]);
        link.broker.until_settled(7).await;
        link.broker.with(|b| {
            let refused: Vec<_> = b.settled.iter().filter(|(_, accepted)| !accepted).collect();
            assert_eq!(refused, [&("out/big".to_owned(), false)]);
        });
        let counters = link.until("6 acknowledged", |s| s.counters.acked == 6).await.counters;
        assert_eq!(
            (counters.parked, counters.parked_oversized, counters.sent, counters.failures),
            (1, 1, 6, 0)
        );
        link.stop().await;
    }
}

#[tokio::test]
async fn a_message_that_the_upstream_refuses_for_good_is_parked_and_its_place_is_free_again() {
    let upstream = Upstream::start(Protocol::V5).await;
    let link = Running::start(config(Protocol::V5, upstream.port()));
    link.broker.enqueue_numbers(0..60);
    let mut peer = upstream.login_with(&[0x21, 0, 5], false).await;
    for n in 0..60u32 {
        let id = peer.publish().await.id;
        match n % 4 {
            0 => peer.puback_reason(id, 0x87).await,
            1 => peer.puback_reason(id, 0x10).await,
            _ => drop(peer.puback(id).await),
        }
    }
    link.broker.until_settled(60).await;
    let counters = link.until("60 answers", |s| s.counters.acked + s.counters.parked == 60).await.counters;
    assert_eq!((counters.acked, counters.parked, counters.failures), (45, 15, 0));
    link.stop().await;
}

#[tokio::test]
async fn a_message_refused_for_an_unnamed_reason_is_parked_after_three_tries() {
    let upstream = Upstream::start(Protocol::V5).await;
    let link = Running::start(config(Protocol::V5, upstream.port()));
    link.broker.enqueue_numbers(0..2);
    for attempt in 0..3 {
        let mut peer = upstream.login().await;
        let poison = peer.publish().await;
        assert_eq!((numbers(std::slice::from_ref(&poison)), poison.dup), (vec![0], attempt > 0));
        peer.puback_reason(poison.id, 0x80).await;
        if attempt == 2 {
            assert_eq!(numbers(&peer.serve(1).await), [1], "the connection lives on");
            link.broker
                .until("one parked, one accepted", |b| {
                    b.settled == [("out/0".to_owned(), false), ("out/1".to_owned(), true)]
                })
                .await;
        }
    }
    link.stop().await;
}

#[tokio::test]
async fn a_used_up_quota_never_parks_a_message() {
    let upstream = Upstream::start(Protocol::V5).await;
    let link = Running::start(config(Protocol::V5, upstream.port()));
    link.broker.enqueue_numbers(0..1);
    for _ in 0..6 {
        let mut peer = upstream.login().await;
        let id = peer.publish().await.id;
        peer.puback_reason(id, 0x97).await;
    }
    let mut peer = upstream.login().await;
    peer.serve(1).await;
    link.broker.until("accepted", |b| b.settled == [("out/0".to_owned(), true)]).await;
    link.stop().await;
}

async fn answer_with_strays(peer: &mut Peer, count: usize) {
    for _ in 0..count {
        let id = peer.publish().await.id;
        peer.puback(id.wrapping_add(4000)).await;
        peer.packet(0x50, &id.to_be_bytes()).await;
        peer.puback(id).await;
        peer.puback(id).await;
    }
}

#[tokio::test]
async fn acknowledgements_for_nothing_are_counted_and_change_nothing() {
    for protocol in BOTH {
        let upstream = Upstream::start(protocol).await;
        let link = Running::start(config(protocol, upstream.port()));
        link.broker.enqueue_numbers(0..30);
        let mut peer = upstream.login().await;
        peer.puback(1).await;
        answer_with_strays(&mut peer, 30).await;
        link.broker.until_settled(30).await;
        let counters = link.until("strays", |s| s.counters.stray_acks >= 90).await.counters;
        assert_eq!((counters.acked, counters.resent, counters.failures), (30, 0, 0));
        link.stop().await;
    }
}

#[tokio::test]
async fn a_stray_acknowledgement_after_every_connack_does_not_keep_the_link_from_draining() {
    let upstream = Upstream::start(Protocol::V4).await;
    let link = Running::start(config(Protocol::V4, upstream.port()));
    link.broker.enqueue_numbers(0..50);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..5 {
        let mut peer = upstream.login().await;
        peer.puback(60_000).await;
        seen.extend(numbers(&peer.serve(10).await));
    }
    assert_eq!(seen.len(), 50);
    link.broker.until_settled(50).await;
    link.stop().await;
}

#[tokio::test]
async fn properties_retain_and_what_is_left_of_the_life_cross_the_link() {
    let upstream = Upstream::start(Protocol::V5).await;
    let link = Running::start(config(Protocol::V5, upstream.port()));
    let properties = Properties {
        content_type: Some("a/b".into()),
        response_topic: Some("r".into()),
        correlation_data: Some(b"c"[..].into()),
        user: vec![("k".into(), "v".into())],
        payload_is_text: true,
    };
    let head = MessageHead {
        qos: Qos::ExactlyOnce,
        retain: true,
        published: Wall(1_700_000_000_000),
        expires: Some(Wall(1_700_000_600_000)),
        properties: Some(Box::new(properties)),
    };
    link.broker.enqueue_message(Message::new("out/x", b"hello", head));
    let mut peer = upstream.login().await;
    let published = peer.serve(1).await.remove(0);
    assert!(published.retain && published.payload == b"hello");
    let text = published.properties;
    assert_eq!(text[..2], [1, 1], "payload format");
    assert_eq!(text[2], 2, "message expiry");
    let left = u32::from_be_bytes(text[3..7].try_into().unwrap());
    assert!((580..=600).contains(&left), "{left}");
    let rest = String::from_utf8_lossy(&text[7..]).into_owned();
    for part in
        ["\u{8}\0\u{1}r", "\t\0\u{1}c", "&\0\u{1}k\0\u{1}v", VIA_PROPERTY, "\0\u{2}gw", "\u{3}\0\u{3}a/b"]
    {
        assert!(rest.contains(part), "{part:?} in {rest:?}");
    }
    link.stop().await;
}

#[tokio::test]
async fn expired_messages_and_those_that_no_rule_matches_are_settled_and_counted() {
    let upstream = Upstream::start(Protocol::V5).await;
    let link = Running::start(config(Protocol::V5, upstream.port()));
    let head = MessageHead { expires: Some(Wall(1)), ..MessageHead::default() };
    link.broker.enqueue_message(Message::new("out/old", b"", head));
    link.broker.enqueue("elsewhere/x", b"");
    link.broker.enqueue_numbers(0..1);
    let mut peer = upstream.login().await;
    assert_eq!(numbers(&peer.serve(1).await), [0]);
    link.broker.until_settled(3).await;
    let counters = link.until("counters", |s| s.counters.acked == 1).await.counters;
    assert_eq!((counters.expired, counters.unmatched, counters.parked), (1, 1, 0));
    link.stop().await;
}

#[tokio::test]
async fn retain_and_quality_follow_the_rule_and_the_upstreams_abilities() {
    let upstream = Upstream::start(Protocol::V5).await;
    let mut plain = config(Protocol::V5, upstream.port());
    plain.out[0].retain = false;
    plain.out[0].qos = Qos::AtMostOnce;
    let link = Running::start(plain);
    let head = MessageHead { qos: Qos::AtLeastOnce, retain: true, ..MessageHead::default() };
    link.broker.enqueue_message(Message::new("out/x", b"", head));
    let mut peer = upstream.login().await;
    let published = peer.publish().await;
    assert_eq!((published.retain, published.id), (false, 0));
    link.broker.until_settled(1).await;
    link.stop().await;
}

#[tokio::test]
async fn messages_of_qos_0_go_while_the_link_is_up_and_are_dropped_otherwise() {
    let upstream = Upstream::start(Protocol::V4).await;
    let link = Running::start(config(Protocol::V4, upstream.port()));
    link.broker.until("attached", |b| !b.filters.is_empty()).await;
    assert!(link.broker.send_qos0("out/early"));
    link.until("one dropped", |s| s.counters.qos0_dropped == 1).await;
    let mut peer = upstream.login().await;
    link.until("up", |s| s.state == LinkState::Up).await;
    assert!(link.broker.send_qos0("out/live"));
    let published = peer.publish().await;
    assert_eq!((published.topic.as_str(), published.id), ("up/live", 0));
    link.stop().await;
}

#[tokio::test]
async fn stopping_waits_for_acknowledgements_and_says_goodbye_on_both_sides() {
    for protocol in BOTH {
        let upstream = Upstream::start(protocol).await;
        let link = Running::start(config(protocol, upstream.port()));
        link.broker.enqueue_numbers(0..1);
        let mut peer = upstream.login().await;
        let id = peer.publish().await.id;
        link.stop.send(true).unwrap();
        assert_eq!(peer.read_within(Duration::from_millis(30)).await, None);
        peer.puback(id).await;
        assert_eq!(peer.expect(14).await.body.len(), 0);
        assert_eq!(peer.read().await, None);
        link.task.await.unwrap();
        link.broker.until("goodbye", |b| b.disconnected).await;
        link.broker.with(|b| {
            assert_eq!(b.settled, [("out/0".to_owned(), true)]);
            assert_eq!(b.states, ["0", "1", "0"]);
        });
        assert_eq!(link.status.state(), LinkState::Idle);
    }
}

#[tokio::test]
async fn a_link_stops_within_its_bound_while_the_upstream_is_silent() {
    let upstream = Upstream::start(Protocol::V4).await;
    let link = Running::start(config(Protocol::V4, upstream.port()));
    let _mute = upstream.accept().await;
    link.until("handshake", |s| s.state == LinkState::Handshake).await;
    link.stop().await;
}

#[tokio::test]
async fn a_session_that_the_local_broker_ended_is_attached_again_with_nothing_lost() {
    let upstream = Upstream::start(Protocol::V4).await;
    let link = Running::start(config(Protocol::V4, upstream.port()));
    link.broker.enqueue_numbers(0..30);
    let mut peer = upstream.login().await;
    assert_eq!(peer.serve(10).await.len(), 10);
    link.broker.until_settled(10).await;
    link.broker.close();
    let mut peer = upstream.login().await;
    assert_eq!(numbers(&peer.serve(20).await), (10..30).collect::<Vec<_>>());
    link.broker.until_settled(30).await;
    assert_eq!(link.broker.with(|b| b.connects.len()), 2);
    link.stop().await;
}

#[tokio::test]
async fn a_connection_that_the_upstream_refuses_is_tried_again_with_the_reason_shown() {
    for (protocol, code, text) in [
        (Protocol::V4, 4, "password"),
        (Protocol::V4, 5, "not authorized"),
        (Protocol::V5, 0x86, "password"),
        (Protocol::V5, 0x84, "protocol = 4"),
    ] {
        let upstream = Upstream::start(protocol).await;
        let link = Running::start(config(protocol, upstream.port()));
        for _ in 0..2 {
            let mut peer = upstream.accept().await;
            peer.expect(1).await;
            peer.connack(code, &[], false).await;
        }
        let snapshot = link.until("refused twice", |s| s.counters.failures >= 2).await;
        assert!(snapshot.last_error.as_ref().unwrap().contains(text), "{snapshot:?}");
        assert!(!snapshot.alarm && snapshot.counters.connects == 0);
        link.stop().await;
    }
}

#[tokio::test]
async fn connect_carries_credentials_and_a_password_file_is_read_anew() {
    for protocol in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        std::fs::write(&path, "first\n").unwrap();
        let upstream = Upstream::start(protocol).await;
        let mut secret = config(protocol, upstream.port());
        secret.username = Some("edge".into());
        secret.password_file = Some(path.clone());
        let link = Running::start(secret);
        for password in ["first", "second"] {
            let mut peer = upstream.accept().await;
            let connect = peer.expect(1).await;
            let tail = format!("\0\u{4}edge\0{}{password}", char::from(password.len() as u8));
            assert!(connect.body.ends_with(tail.as_bytes()));
            let text = String::from_utf8_lossy(&connect.body).into_owned();
            assert!(text.contains("gw-cloud"));
            assert_eq!(connect.body[7], 0b1100_0010, "user name, password, clean start");
            std::fs::write(&path, "second").unwrap();
        }
        link.stop().await;
    }
}

#[tokio::test]
async fn tls_settings_without_a_tls_address_are_refused() {
    let mut wrong = config(Protocol::V4, 1);
    wrong.tls = Some(TlsConfig::default());
    assert!(crate::bridge::check(&wrong).is_err());
}
