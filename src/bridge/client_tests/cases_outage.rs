//! Uplinks that are ill: cut, mute, deaf, unresolvable, slow, contested.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::sleep;

use super::upstream::{Peer, Upstream};
use super::*;
use crate::bridge::LinkState;
use crate::bridge::backoff::Jitter;

fn number(published: &super::upstream::Published) -> u32 {
    u32::from_be_bytes(published.payload[..4].try_into().unwrap())
}

#[tokio::test]
async fn without_a_session_at_the_upstream_everything_unsettled_goes_again_in_order_and_marked() {
    for protocol in BOTH {
        for session_present in [false, true] {
            let upstream = Upstream::start(protocol).await;
            let link = Running::start(config(protocol, upstream.port()));
            link.broker.enqueue_numbers(0..10);
            let mut peer = upstream.login().await;
            let first = peer.publishes(10).await;
            peer.puback(first[3].id).await;
            link.broker.until_settled(1).await;
            drop(peer);
            let mut peer = upstream.login_with(&[], session_present).await;
            let again = peer.serve(9).await;
            assert_eq!(again.iter().map(number).collect::<Vec<_>>(), [0, 1, 2, 4, 5, 6, 7, 8, 9]);
            for published in &again {
                assert!(published.dup);
                assert_eq!(published.id, first[number(published) as usize].id, "the first identifier");
            }
            link.broker.until_settled(10).await;
            assert_eq!(link.until("counted", |s| s.counters.acked == 10).await.counters.resent, 9);
            link.stop().await;
        }
    }
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_asked_for_until_it_does() {
    let upstream = Upstream::start(Protocol::V5).await;
    let tries = Arc::new(AtomicU32::new(0));
    let counted = tries.clone();
    let lookup: Lookup = Arc::new(move |host, port| {
        assert_eq!(host, "cloud.invalid");
        match counted.fetch_add(1, Ordering::Relaxed) {
            0..5 => Err(std::io::Error::other("NXDOMAIN")),
            _ => Ok(vec![([127, 0, 0, 1], port).into()]),
        }
    });
    let mut named = config(Protocol::V5, upstream.port());
    named.addresses[0].host = "cloud.invalid".into();
    let link = Running::start_with(named, lookup);
    link.broker.enqueue_numbers(0..5);
    let mut peer = upstream.login().await;
    assert!(tries.load(Ordering::Relaxed) >= 6);
    assert!(link.status.snapshot().last_error.unwrap().contains("does not resolve: NXDOMAIN"));
    peer.serve(5).await;
    link.broker.until_settled(5).await;
    link.stop().await;
}

#[tokio::test]
async fn a_lookup_that_hangs_is_waited_for_but_never_doubled() {
    let upstream = Upstream::start(Protocol::V5).await;
    let (running, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (r, m) = (running.clone(), most.clone());
    let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
    let released = std::sync::Mutex::new(released);
    let lookup: Lookup = Arc::new(move |_, port| {
        m.fetch_max(r.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        released.lock().unwrap().recv().unwrap();
        r.fetch_sub(1, Ordering::SeqCst);
        Ok(vec![([127, 0, 0, 1], port).into()])
    });
    let mut named = config(Protocol::V5, upstream.port());
    named.addresses[0].host = "cloud.invalid".into();
    named.connect_timeout_millis = 30;
    let link = Running::start_with(named, lookup);
    link.until("three attempts", |s| s.counters.failures >= 3).await;
    assert!(link.status.snapshot().last_error.unwrap().contains("takes longer than 30 ms"));
    release.send(()).unwrap();
    upstream.login().await;
    assert_eq!(most.load(Ordering::SeqCst), 1);
    drop(release);
    link.stop().await;
}

#[tokio::test]
async fn messages_sent_into_a_black_hole_arrive_all() {
    for protocol in BOTH {
        let upstream = Upstream::start(protocol).await;
        let link = Running::start(config(protocol, upstream.port()));
        let hole = upstream.login().await;
        let broker = link.broker.clone();
        let publisher = tokio::spawn(async move {
            for n in 0..200 {
                broker.enqueue_numbers(n..n + 1);
                sleep(Duration::from_millis(2)).await;
            }
        });
        let left = link.until("the hole is left", |s| s.counters.failures > 0).await;
        let error = left.last_error.unwrap();
        assert!(error.contains("acknowledged nothing for 400 ms"), "{error}");
        let mut seen = BTreeSet::new();
        while seen.len() < 200 {
            let mut peer = upstream.login().await;
            while seen.len() < 200
                && let Some(packet) = peer.read().await
            {
                let published = peer.parse(&packet);
                peer.puback(published.id).await;
                seen.insert(number(&published));
            }
        }
        publisher.await.unwrap();
        drop(hole);
        link.broker.until_settled(200).await;
        link.stop().await;
    }
}

#[tokio::test]
async fn a_connack_that_never_comes_ends_the_attempt() {
    for protocol in BOTH {
        let upstream = Upstream::start(protocol).await;
        let link = Running::start(config(protocol, upstream.port()));
        link.broker.enqueue_numbers(0..3);
        let mut mute = upstream.accept().await;
        mute.expect(1).await;
        assert_eq!(mute.read().await, None, "the link gives up");
        assert!(link.status.snapshot().last_error.unwrap().contains("CONNECT within 400 ms"));
        let mut peer = upstream.login().await;
        peer.serve(3).await;
        link.broker.until_settled(3).await;
        link.stop().await;
    }
}

#[tokio::test]
async fn an_upstream_that_stops_reading_leaves_the_local_broker_untouched() {
    let upstream = Upstream::start(Protocol::V4).await;
    let link = Running::start(config(Protocol::V4, upstream.port()));
    let deaf = upstream.login().await;
    link.until("up", |s| s.state == LinkState::Up).await;
    for _ in 0..200 {
        for _ in 0..50 {
            assert!(link.broker.send_qos0(&format!("out/{}", "x".repeat(1000))), "the port is drained");
        }
        tokio::task::yield_now().await;
        link.until("drained", |_| true).await;
    }
    link.broker.enqueue("out/last", b"1");
    let snapshot = link.until("the deaf one is left", |s| s.counters.failures > 0).await;
    assert!(snapshot.counters.qos0_dropped > 0, "the buffer is bounded");
    drop(deaf);
    let mut peer = upstream.login().await;
    assert_eq!(peer.serve(1).await[0].topic, "up/last");
    assert_eq!(link.broker.with(|b| b.overflows), 0);
    link.stop().await;
}

#[tokio::test]
async fn an_idle_peer_that_is_gone_is_found_out_by_pings() {
    let upstream = Upstream::start(Protocol::V5).await;
    let mut pinging = config(Protocol::V5, upstream.port());
    pinging.keep_alive_secs = 1;
    let link = Running::start(pinging);
    // Server Keep Alive 0 switches the server's check off, not ours, and brings no storm of pings.
    let mut peer = upstream.login_with(&[0x13, 0, 0], false).await;
    assert_eq!(peer.expect(12).await.body.len(), 0);
    peer.write(&[0xd0, 0]).await;
    assert_eq!(peer.read_within(Duration::from_millis(300)).await, None);
    peer.expect(12).await;
    assert_eq!(peer.read().await, None, "no answer: the connection is given up");
    assert!(link.status.snapshot().last_error.unwrap().contains("PINGREQ"));
    link.stop().await;
}

#[tokio::test]
async fn an_upstream_slower_than_the_deadline_gets_through_in_the_end() {
    let upstream = Upstream::start(Protocol::V4).await;
    let mut hasty = config(Protocol::V4, upstream.port());
    hasty.ack_timeout_millis = 60;
    let link = Running::start(hasty);
    link.broker.enqueue_numbers(0..3);
    for _ in 0..30 {
        let mut peer = upstream.login().await;
        while let Some(packet) = peer.read_within(Duration::from_millis(400)).await {
            if packet.kind == 3 {
                sleep(Duration::from_millis(100)).await;
                let id = peer.parse(&packet).id;
                peer.puback(id).await;
            }
        }
        if link.broker.with(|b| b.settled.len()) == 3 {
            return link.stop().await;
        }
    }
    panic!("three messages did not get through");
}

#[tokio::test]
async fn a_twin_with_the_same_client_identifier_raises_an_alarm_and_is_not_fought() {
    for protocol in BOTH {
        let upstream = Upstream::start(protocol).await;
        let mut contested = config(protocol, upstream.port());
        contested.backoff_max_millis = 400;
        contested.stable_after_millis = 5_000;
        let link = Running::start(contested);
        let lives = if protocol == Protocol::V5 { 1 } else { 5 };
        for _ in 0..lives {
            let mut peer = upstream.login().await;
            if protocol == Protocol::V5 {
                peer.packet(0xe0, &[0x8e, 0]).await;
            }
        }
        link.until("the alarm", |s| s.alarm).await;
        let started = Instant::now();
        for _ in 0..3 {
            drop(upstream.login().await);
        }
        // Two pauses of at least half the longest one lie between three connections.
        assert!(started.elapsed() >= Duration::from_millis(400), "{:?}", started.elapsed());
        link.stop().await;
    }
}

#[tokio::test]
async fn the_alarm_ends_when_a_connection_lasts() {
    let upstream = Upstream::start(Protocol::V5).await;
    let link = Running::start(config(Protocol::V5, upstream.port()));
    let mut peer = upstream.login().await;
    peer.packet(0xe0, &[0x8e, 0]).await;
    link.until("the alarm", |s| s.alarm).await;
    let _peer = upstream.login().await;
    link.until("calm", |s| !s.alarm && s.state == LinkState::Up).await;
    link.stop().await;
}

#[tokio::test]
async fn the_list_of_addresses_is_tried_in_order_without_pauses_inside() {
    let (dead, upstream) = (Upstream::start(Protocol::V5).await, Upstream::start(Protocol::V5).await);
    let mut listed = config(Protocol::V5, dead.port());
    listed.addresses.push(Address { port: upstream.port(), ..listed.addresses[0].clone() });
    listed.backoff_min_millis = 60_000;
    listed.backoff_max_millis = 60_000;
    drop(dead);
    let link = Running::start(listed);
    let _peer = upstream.login().await;
    let snapshot = link.until("up", |s| s.state == LinkState::Up).await;
    assert_eq!(snapshot.address, format!("mqtt://127.0.0.1:{}", upstream.port()));
    assert!(snapshot.connected_since_millis.unwrap() >= 1_700_000_000_000);
    link.stop().await;
}

/// How a connection of the long run ends.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Fin,
    Reset,
    LostAcks,
    MidPacket,
    BlackHole,
    Deaf,
}

const CUTS: [Cut; 6] = [Cut::Fin, Cut::Reset, Cut::LostAcks, Cut::MidPacket, Cut::BlackHole, Cut::Deaf];

#[tokio::test]
async fn twenty_cuts_lose_nothing_keep_the_first_deliveries_in_order_and_repeat_little() {
    const MESSAGES: u32 = 6_000;
    const WINDOW: u16 = 50;
    for (protocol, seed) in [(Protocol::V4, 4u64), (Protocol::V5, 5)] {
        println!("seed {seed}");
        let upstream = Upstream::start(protocol).await;
        let mut cut_often = config(protocol, upstream.port());
        cut_often.window = WINDOW;
        cut_often.ack_timeout_millis = 150;
        let link = Running::start(cut_often);
        link.broker.enqueue_numbers(0..MESSAGES);
        let mut jitter = Jitter::new(seed);
        let (mut seen, mut first) = (BTreeSet::new(), Vec::new());
        let mut note = |n: u32| {
            if seen.insert(n) {
                first.push(n);
            }
        };
        for cut in 0..20 {
            let (stream, _) = upstream.listener.accept().await.unwrap();
            let reset = matches!(CUTS[cut % 6], Cut::Reset);
            if reset {
                Peer::reset(&stream);
            }
            let mut peer = Peer::new(stream, protocol);
            peer.expect(1).await;
            peer.connack(0, &[], false).await;
            peer.serve(jitter.between(1, 280) as usize).await.iter().map(number).for_each(&mut note);
            end(&mut peer, CUTS[cut % 6], &mut note).await;
        }
        let mut peer = upstream.login().await;
        while seen_count(&link) < MESSAGES as usize {
            match peer.read_within(Duration::from_millis(200)).await {
                Some(packet) if packet.kind == 3 => {
                    let published = peer.parse(&packet);
                    note(number(&published));
                    peer.puback(published.id).await;
                }
                Some(_) => drop(peer.write(&[0xd0, 0]).await),
                None => {}
            }
        }
        assert_eq!(first.len() as u32, MESSAGES, "nothing is lost");
        assert!(first.is_sorted(), "first deliveries keep the order");
        let counters =
            link.until("all acknowledged", |s| s.counters.acked == u64::from(MESSAGES)).await.counters;
        assert!(counters.resent <= u64::from(WINDOW) * 20, "{counters:?}");
        assert_eq!((counters.parked, counters.connects), (0, 21));
        link.stop().await;
    }
}

fn seen_count(link: &Running) -> usize {
    link.broker.with(|b| b.settled.len())
}

async fn end(peer: &mut Peer, cut: Cut, note: &mut impl FnMut(u32)) {
    match cut {
        Cut::Fin | Cut::Reset => {}
        Cut::LostAcks => {
            // These arrive and their acknowledgements do not.
            for published in peer.publishes(10).await {
                note(number(&published));
            }
        }
        Cut::MidPacket => drop(peer.stream.read_exact(&mut [0; 5]).await),
        Cut::BlackHole => {
            while let Some(packet) = peer.read().await {
                if packet.kind == 3 {
                    let published = peer.parse(&packet);
                    note(number(&published));
                }
            }
        }
        Cut::Deaf => sleep(Duration::from_millis(250)).await,
    }
}
