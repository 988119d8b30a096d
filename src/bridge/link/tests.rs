//! The link machine alone, driven by hand.

use bytes::Bytes;

use super::*;
use crate::bridge::wire::{InPublish, OutPublish};
use crate::bridge::{Address, Rule};
use crate::broker::api::{ClientEvent, DeliveryId, PublishOutcome};
use crate::message::{Message, MessageHead, Properties, Qos};
use crate::time::Wall;

const SECOND: u64 = 1_000_000;

fn at(micros: u64) -> Now {
    Now { mono: Mono(micros), wall: Wall(1_000_000 + micros / 1000) }
}

fn config(addresses: usize, inbound: bool) -> LinkConfig {
    let address = |n| Address { host: format!("host{n}"), port: 1883, tls: false };
    LinkConfig {
        name: "l".into(),
        client_id: "id".into(),
        addresses: (0..addresses).map(address).collect(),
        window: 4,
        ack_timeout_millis: 5_000,
        out: vec![Rule::default()],
        inbound: if inbound { vec![Rule { filter: "down/#".into(), ..Rule::default() }] } else { vec![] },
        ..LinkConfig::default()
    }
}

/// A link that has been told to connect.
fn attached(config: LinkConfig) -> Link {
    let mut link = Link::new(config, 3);
    link.handle_attached();
    link.handle_event(ClientEvent::Connected(Box::default()), at(0)).unwrap();
    link
}

fn locals(link: &mut Link) -> Vec<ClientCommand> {
    std::iter::from_fn(|| link.poll_local()).collect()
}

fn packets(link: &mut Link, now: u64) -> Vec<Outgoing> {
    std::iter::from_fn(|| link.poll_send(at(now))).collect()
}

fn publishes(link: &mut Link, now: u64) -> Vec<OutPublish> {
    let publish = |packet| match packet {
        Outgoing::Publish(publish) => Some(publish),
        _ => None,
    };
    packets(link, now).into_iter().filter_map(publish).collect()
}

fn bring_up(link: &mut Link, now: u64) {
    assert!(matches!(link.poll_transport(), Some(Transport::Connect(_))));
    link.handle_connecting();
    link.handle_connected(at(now));
    assert!(matches!(packets(link, now)[..], [Outgoing::Connect { .. }]));
    link.handle_packet(Incoming::ConnAck(ConnAck::default()), at(now));
}

fn deliver(link: &mut Link, n: u16) {
    let delivery = Delivery {
        id: DeliveryId::new(n),
        message: Message::new("t", b"x", MessageHead::default()),
        qos: Qos::AtLeastOnce,
        retain: false,
        duplicate: false,
        subscription_ids: None,
        consumer: None,
        redeliveries: 0,
    };
    link.handle_event(ClientEvent::Deliver(delivery), at(0)).unwrap();
}

fn settled(link: &mut Link) -> Vec<(u16, bool)> {
    let settle = |command| match command {
        ClientCommand::Settle { delivery, accepted } => Some((delivery.get(), accepted)),
        ClientCommand::DeadLetter { delivery, .. } => Some((delivery.get(), false)),
        _ => None,
    };
    locals(link).into_iter().filter_map(settle).collect()
}

#[test]
fn a_link_passes_through_its_states_in_order() {
    let mut link = attached(config(1, true));
    assert_eq!(link.state(), LinkState::Resolving);
    link.handle_connecting();
    assert_eq!(link.state(), LinkState::Connecting);
    link.handle_connected(at(1));
    assert_eq!(link.state(), LinkState::Handshake);
    link.handle_packet(Incoming::ConnAck(ConnAck::default()), at(2));
    assert_eq!(link.state(), LinkState::Subscribing);
    let Outgoing::Subscribe { id } = packets(&mut link, 2).remove(1) else { panic!("no SUBSCRIBE") };
    link.handle_packet(Incoming::SubAck { id: id.get(), codes: vec![1] }, at(3));
    assert_eq!(link.state(), LinkState::Up);
    link.handle_lost("gone".into(), at(4));
    assert_eq!(link.state(), LinkState::Backoff);
    assert_eq!(link.poll_transport(), Some(Transport::Close));
    let due = link.next_deadline().unwrap();
    link.handle_timeout(Now { mono: due, ..at(0) });
    assert_eq!(link.poll_transport(), Some(Transport::Connect(0)));
}

#[test]
fn the_deadline_for_acknowledgements_counts_from_the_last_progress() {
    let mut link = attached(config(1, false));
    bring_up(&mut link, 0);
    deliver(&mut link, 1);
    deliver(&mut link, 2);
    let ids: Vec<u16> = publishes(&mut link, SECOND).iter().map(|p| p.id.unwrap().get()).collect();
    link.handle_timeout(at(5 * SECOND));
    link.handle_packet(Incoming::PubAck { id: ids[0], reason: 0 }, at(5 * SECOND));
    link.handle_timeout(at(9 * SECOND));
    assert_eq!(link.state(), LinkState::Up);
    assert_eq!(link.next_deadline(), Some(Mono(10 * SECOND)));
    link.handle_timeout(at(10 * SECOND));
    assert_eq!(link.state(), LinkState::Backoff);
    assert_eq!(settled(&mut link), [(1, true)]);
}

#[test]
fn patience_doubles_after_a_stall_without_progress_up_to_a_bound_and_shrinks_with_quick_answers() {
    let mut link = attached(config(1, false));
    deliver(&mut link, 1);
    let mut now = 0;
    for seconds in [5, 10, 20, 40, 40, 40] {
        bring_up(&mut link, now);
        assert_eq!(publishes(&mut link, now).len(), 1);
        link.handle_timeout(at(now + seconds * SECOND - 1));
        assert_eq!(link.state(), LinkState::Up, "{seconds}");
        now += seconds * SECOND;
        link.handle_timeout(at(now));
        assert_eq!(link.state(), LinkState::Backoff, "{seconds}");
        now = link.next_deadline().unwrap().0;
        link.handle_timeout(at(now));
        while link.poll_transport() == Some(Transport::Close) {}
        link.start_attempt();
    }
    bring_up(&mut link, now);
    for n in 2..40 {
        let id = publishes(&mut link, now)[0].id.unwrap().get();
        link.handle_packet(Incoming::PubAck { id, reason: 0 }, at(now));
        deliver(&mut link, n);
    }
    publishes(&mut link, now);
    assert_eq!(link.ack_deadline(), Some(Mono(now).plus_millis(5_000)));
}

#[test]
fn every_address_is_tried_before_the_link_pauses() {
    let mut link = attached(config(3, false));
    let mut tried = vec![];
    for _ in 0..3 {
        let Some(Transport::Connect(index)) = link.poll_transport() else { panic!("no attempt") };
        tried.push(index);
        link.handle_lost("refused".into(), at(1));
        assert_eq!(link.poll_transport(), Some(Transport::Close));
        link.handle_timeout(at(1));
    }
    assert_eq!(tried, [0, 1, 2]);
    assert_eq!(link.poll_transport(), None);
    assert_eq!(link.next_deadline(), Some(Mono(1).plus_millis(1_000)));
}

#[test]
fn a_connection_that_lasted_leads_back_to_the_first_address() {
    let mut link = attached(config(2, false));
    link.poll_transport();
    link.handle_lost("refused".into(), at(1));
    link.handle_timeout(at(1));
    link.poll_transport();
    link.handle_timeout(at(1));
    link.start_attempt();
    bring_up(&mut link, 2);
    link.handle_timeout(at(30 * SECOND));
    link.handle_lost("gone".into(), at(31 * SECOND));
    link.poll_transport();
    link.handle_timeout(at(40 * SECOND));
    assert_eq!(link.poll_transport(), Some(Transport::Connect(0)));
}

#[test]
fn nothing_is_sent_again_before_the_next_connection_is_up() {
    let mut link = attached(config(1, true));
    deliver(&mut link, 1);
    assert!(link.poll_send(at(0)).is_none());
    link.poll_transport();
    link.handle_connected(at(0));
    link.handle_packet(Incoming::ConnAck(ConnAck { session_present: true, ..ConnAck::default() }), at(0));
    assert!(publishes(&mut link, 0).is_empty());
}

#[test]
fn a_broken_upstream_that_speaks_before_connack_is_left() {
    let mut link = attached(config(1, false));
    link.poll_transport();
    link.handle_connected(at(0));
    link.handle_packet(Incoming::PubAck { id: 1, reason: 0 }, at(0));
    assert_eq!(link.state(), LinkState::Backoff);
}

#[test]
fn an_upstream_without_qos_1_is_refused_and_one_without_retain_gets_none() {
    let mut link = attached(config(1, false));
    link.poll_transport();
    link.handle_connected(at(0));
    link.handle_packet(Incoming::ConnAck(ConnAck { qos_max: Some(0), ..ConnAck::default() }), at(0));
    assert_eq!(link.state(), LinkState::Backoff);
    let mut link = attached(config(1, false));
    link.poll_transport();
    link.handle_connected(at(0));
    link.handle_packet(Incoming::ConnAck(ConnAck { no_retain: true, ..ConnAck::default() }), at(0));
    let delivery = Delivery {
        id: DeliveryId::new(1),
        message: Message::new("t", b"", MessageHead::default()),
        qos: Qos::AtLeastOnce,
        retain: true,
        duplicate: false,
        subscription_ids: None,
        consumer: None,
        redeliveries: 0,
    };
    link.handle_event(ClientEvent::Deliver(delivery), at(0)).unwrap();
    assert!(!publishes(&mut link, 0)[0].retain);
}

#[test]
fn the_servers_keep_alive_shortens_ours_and_a_ping_waits_for_silence() {
    let mut link = attached(config(1, false));
    link.poll_transport();
    link.handle_connected(at(0));
    packets(&mut link, 0);
    link.handle_packet(Incoming::ConnAck(ConnAck { keep_alive_secs: Some(8), ..ConnAck::default() }), at(0));
    assert_eq!(link.next_deadline(), Some(Mono(6 * SECOND)));
    link.handle_timeout(at(6 * SECOND));
    assert!(matches!(packets(&mut link, 6 * SECOND)[..], [Outgoing::Ping]));
    link.handle_packet(Incoming::Pong, at(7 * SECOND));
    link.handle_timeout(at(11 * SECOND));
    assert!(packets(&mut link, 11 * SECOND).is_empty());
    assert_eq!(link.state(), LinkState::Up);
}

#[test]
fn waiting_for_local_commits_is_not_held_against_the_upstream() {
    let mut tight = config(1, true);
    tight.inbound_window = 1;
    let mut link = attached(tight);
    bring_up(&mut link, 0);
    link.handle_packet(Incoming::SubAck { id: 1, codes: vec![1] }, at(0));
    deliver(&mut link, 1);
    assert_eq!(publishes(&mut link, 0).len(), 1);
    let publish = InPublish {
        id: 9,
        qos: Qos::AtLeastOnce,
        retain: false,
        topic: "down/x".into(),
        payload: Bytes::new(),
        expiry_secs: None,
        properties: Properties::default(),
    };
    link.handle_packet(Incoming::Publish(publish), at(0));
    assert!(!link.wants_read());
    let tag = locals(&mut link)
        .into_iter()
        .find_map(|command| match command {
            ClientCommand::Publish(request) if request.message.topic() == "down/x" => Some(request.tag),
            _ => None,
        })
        .unwrap();
    for second in [5, 10, 15] {
        link.handle_timeout(at(second * SECOND));
        assert_eq!(link.state(), LinkState::Up);
    }
    let published = ClientEvent::Published { tag, qos: Qos::AtLeastOnce, outcome: PublishOutcome::Accepted };
    link.handle_event(published, at(19 * SECOND)).unwrap();
    assert!(link.wants_read());
    link.handle_timeout(at(21 * SECOND));
    assert_eq!(link.state(), LinkState::Up, "the unread answers have their full time from now on");
    link.handle_timeout(at(24 * SECOND));
    assert_eq!(link.state(), LinkState::Backoff);
}

#[test]
fn what_was_held_belongs_to_the_broker_again_after_a_detachment() {
    let mut link = attached(config(1, false));
    bring_up(&mut link, 0);
    deliver(&mut link, 1);
    let id = publishes(&mut link, 0)[0].id.unwrap().get();
    link.handle_detached(at(1));
    assert_eq!(link.poll_transport(), Some(Transport::Close));
    link.handle_packet(Incoming::PubAck { id, reason: 0 }, at(1));
    assert!(locals(&mut link).is_empty());
    let mut snapshot = LinkSnapshot::default();
    link.report(&mut snapshot, at(1));
    assert_eq!((snapshot.unsettled, snapshot.state), (0, LinkState::Idle));
}

#[test]
fn notices_are_bounded_and_a_repeated_failure_says_so() {
    let mut link = attached(config(1, false));
    for n in 0..200 {
        link.handle_lost("refused".into(), at(n * 100 * SECOND));
        link.handle_timeout(at(n * 100 * SECOND + 99 * SECOND));
    }
    let notices: Vec<Notice> = std::iter::from_fn(|| link.poll_notice()).collect();
    assert_eq!(notices.len(), NOTICES_MAX);
    assert!(matches!(notices[0], Notice::Down { repeated: false, .. }));
    assert!(matches!(notices[1], Notice::Down { repeated: true, .. }));
}
