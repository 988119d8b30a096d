//! CONNECT and its answer, extended authentication, and the time that a client has.
#![allow(clippy::unwrap_used)]

mod support;

use support::{Peer, connect, publish, saying};
use tidegate_mqtt::Version::{V5, V31, V311};
use tidegate_mqtt::connection::{Acceptance, SendError};
use tidegate_mqtt::packet::{Auth, Connect, Packet};
use tidegate_mqtt::{
    ConnectionLimits, Encode, Event, PacketType, Property, Qos, ReasonCode, Received, Version, Violation,
};

fn limits() -> ConnectionLimits {
    ConnectionLimits {
        inflight_publishes_max: 2,
        unreleased_publishes_max: 16,
        inbound_aliases_max: 2,
        ..ConnectionLimits::default()
    }
}

#[test]
fn the_first_packet_is_connect() {
    for version in Version::ALL {
        let mut peer = Peer::new(limits());
        let violation = peer.violation(&publish(version, Qos::AtMostOnce, "t", None, ()));
        assert_eq!(violation, Violation::NotConnected(PacketType::Publish));
        assert_eq!(peer.rejected(&violation), b"", "no version is known to answer in");
        assert_eq!(peer.violation(&[0xc0, 0]), Violation::Closed);
    }
}

#[test]
fn a_second_connect_ends_the_connection() {
    for version in Version::ALL {
        let mut peer = Peer::open(version, limits());
        let violation = peer.violation(&connect(version, ()));
        assert_eq!(violation, Violation::SecondConnect);
        let expected = if version == V5 { saying(0xe0, &[0x82], "a second CONNECT") } else { vec![] };
        assert_eq!(peer.rejected(&violation), expected);
    }
}

#[test]
fn an_unknown_protocol_level_is_answered_in_the_nearest_version() {
    let newer = saying(0x20, &[0, 0x84], "protocol level 9 is not supported");
    for (level, answer) in [(9, newer), (2, vec![0x20, 2, 0, 1])] {
        let mut bytes = connect(V311, ());
        bytes[8] = level;
        let mut peer = Peer::new(limits());
        let violation = peer.violation(&bytes);
        assert_eq!(peer.rejected(&violation), answer);
    }
}

#[test]
fn an_older_client_needs_an_identifier() {
    for (version, clean_start, fine) in
        [(V31, true, false), (V311, false, false), (V311, true, true), (V5, false, true)]
    {
        let mut bytes = Vec::new();
        Connect { clean_start, ..support::anonymous(version) }.encode(version, &mut bytes).unwrap();
        let mut peer = Peer::new(limits());
        if fine {
            assert!(matches!(peer.event(&bytes), Event::Connect(_)));
            continue;
        }
        let violation = peer.violation(&bytes);
        assert_eq!(violation, Violation::ClientIdentifier);
        assert_eq!(peer.rejected(&violation), [0x20, 2, 0, 2]);
    }
}

#[test]
fn mqtt_3_1_identifiers_may_be_held_to_23_characters() {
    let long = Connect { client_id: "123456789-123456789-1234", ..support::anonymous(V31) };
    let mut bytes = Vec::new();
    long.encode(V31, &mut bytes).unwrap();
    assert!(matches!(Peer::new(limits()).event(&bytes), Event::Connect(_)));
    let strict = ConnectionLimits { v31_short_client_ids: true, ..limits() };
    assert_eq!(Peer::new(strict).violation(&bytes), Violation::ClientIdentifier);
}

#[test]
fn what_follows_connect_waits_for_the_answer() {
    let mut peer = Peer::new(limits());
    peer.event(&connect(V311, ()));
    let early = publish(V311, Qos::AtMostOnce, "t", None, ());
    assert_eq!(peer.receive(&early), Ok(Received::Blocked));
    peer.accept();
    assert!(matches!(peer.event(&early), Event::Publish(_)));
}

#[test]
fn connack_announces_limits_and_what_the_server_cannot_do() {
    let mut peer = Peer::new(limits());
    peer.event(&connect(V5, Property::RequestResponseInformation(true)));
    let acceptance = Acceptance {
        session_present: true,
        maximum_qos: Qos::AtLeastOnce,
        assigned_client_id: Some("auto"),
        server_keep_alive: Some(20),
        shared_subscriptions: false,
        response_information: Some("info"),
        user_properties: &[("k", "v")],
        ..Acceptance::default()
    };
    let mut out = Vec::new();
    peer.connection.accept(&mut out, &acceptance, 100).unwrap();
    let Packet::Connack(connack) = support::decode(V5, &out) else { panic!() };
    assert!(connack.session_present);
    let properties = connack.properties;
    assert_eq!(properties.receive_maximum().map(|max| max.get()), Some(2));
    assert_eq!(properties.topic_alias_maximum(), Some(2));
    assert_eq!(properties.maximum_packet_size().map(|max| max.get()), Some(1 << 20));
    assert_eq!(properties.maximum_qos(), Some(Qos::AtLeastOnce));
    assert_eq!(properties.assigned_client_identifier(), Some("auto"));
    assert_eq!(properties.shared_subscription_available(), Some(false));
    assert_eq!(properties.response_information(), Some("info"));
    assert_eq!(properties.user_property(), Some(("k", "v")));
    assert_eq!(properties.retain_available(), None);
    assert_eq!(peer.connection.deadline(), Some(100 + 30_000), "1.5 times the server's keep alive");
}

#[test]
fn connack_of_the_older_versions_has_two_bytes() {
    for (version, present) in [(V31, 0), (V311, 1)] {
        let mut peer = Peer::new(limits());
        peer.event(&connect(version, ()));
        let acceptance =
            Acceptance { session_present: true, server_keep_alive: Some(1), ..Acceptance::default() };
        let mut out = Vec::new();
        peer.connection.accept(&mut out, &acceptance, 0).unwrap();
        assert_eq!(out, [0x20, 2, present, 0]);
        assert_eq!(peer.connection.deadline(), Some(90_000), "the client's own keep alive of 60 s");
    }
}

#[test]
fn a_refusal_carries_the_reason_in_the_words_of_the_version() {
    for (version, expected) in [(V311, &[0x20, 2, 0, 5][..]), (V5, b"\x20\x08\x00\x87\x05\x1f\x00\x02no")] {
        let mut peer = Peer::new(limits());
        peer.event(&connect(version, ()));
        let mut out = Vec::new();
        peer.connection.refuse(&mut out, ReasonCode::NotAuthorized, Property::ReasonString("no"));
        assert_eq!(out, expected);
        assert_eq!(peer.violation(&[0xc0, 0]), Violation::Closed);
    }
}

#[test]
fn a_login_has_its_time() {
    let mut peer = Peer::new(limits());
    assert_eq!(peer.connection.deadline(), Some(10_000));
    assert_eq!(peer.connection.check_deadline(9_999), Ok(()));
    assert_eq!(peer.connection.check_deadline(10_000), Err(Violation::Timeout));
    peer.event(&connect(V5, ()));
    assert_eq!(peer.connection.deadline(), Some(10_000), "CONNECT alone does not extend it");
}

#[test]
fn silence_of_one_and_a_half_keep_alives_ends_the_connection() {
    let mut peer = Peer::open(V5, limits());
    peer.now = 5_000;
    assert_eq!(peer.event(&[0xc0, 0]), Event::Ping);
    assert_eq!(peer.connection.deadline(), Some(95_000));
    let violation = peer.connection.check_deadline(95_000).unwrap_err();
    assert_eq!(peer.rejected(&violation), saying(0xe0, &[0x8d], "nothing arrived in time"));
    assert_eq!(peer.connection.deadline(), None);
}

#[test]
fn a_large_packet_on_a_slow_link_is_a_sign_of_life() {
    let mut peer = Peer::open(V311, limits());
    let bytes = [&[0x30, 0xff, 0x7f][..], &[0; 3000]].concat();
    peer.now = 1_000;
    assert!(matches!(peer.receive(&bytes[..3]), Ok(Received::Incomplete { needed: 16_386 })));
    assert_eq!(peer.connection.deadline(), Some(90_000), "three bytes are none");
    assert!(peer.receive(&bytes[..2000]).is_ok());
    assert_eq!(peer.connection.deadline(), Some(91_000));
    peer.now = 2_000;
    assert!(peer.receive(&bytes[..2001]).is_ok());
    assert_eq!(peer.connection.deadline(), Some(91_000), "nor is one more");
}

#[test]
fn keep_alive_zero_switches_supervision_off() {
    let mut bytes = Vec::new();
    let connect = Connect { keep_alive: 0, client_id: "c", ..support::anonymous(V311) };
    connect.encode(V311, &mut bytes).unwrap();
    let mut peer = Peer::new(limits());
    peer.event(&bytes);
    peer.accept();
    assert_eq!(peer.connection.deadline(), None);
}

#[test]
fn extended_authentication_goes_to_and_fro_before_the_answer() {
    let method = Property::AuthenticationMethod("SCRAM");
    let mut peer = Peer::new(limits());
    peer.event(&connect(V5, method));
    let ping = [0xc0, 0];
    assert_eq!(peer.violation(&ping), Violation::Unexpected(PacketType::Pingreq));
    let mut out = Vec::new();
    peer.connection.authenticate(&mut out, ReasonCode::ContinueAuthentication, Some(b"1")).unwrap();
    assert!(
        matches!(support::decode(V5, &out), Packet::Auth(a) if a.properties.authentication_data() == Some(b"1"))
    );
    assert!(matches!(peer.event(&auth(ReasonCode::ContinueAuthentication, "SCRAM")), Event::Auth(_)));
    let connack = peer.accept();
    let Packet::Connack(connack) = support::decode(V5, &connack) else { panic!() };
    assert_eq!(connack.properties.authentication_method(), Some("SCRAM"));
    assert!(matches!(peer.event(&auth(ReasonCode::ReAuthenticate, "SCRAM")), Event::Auth(_)));
    let other = peer.violation(&auth(ReasonCode::ReAuthenticate, "PLAIN"));
    assert_eq!(other, Violation::AuthenticationMethod);
}

#[test]
fn auth_without_a_method_in_connect_is_a_violation() {
    let mut peer = Peer::open(V5, limits());
    let violation = peer.violation(&auth(ReasonCode::ReAuthenticate, "SCRAM"));
    assert_eq!(violation, Violation::Unexpected(PacketType::Auth));
    let refused = peer.connection.authenticate(&mut Vec::new(), ReasonCode::Success, None);
    assert_eq!(refused, Err(SendError::NotOpen));
}

fn auth(reason: ReasonCode, method: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    Auth { reason, properties: Property::AuthenticationMethod(method) }.encode(V5, &mut bytes).unwrap();
    bytes
}

#[test]
fn malformed_packets_are_named_to_mqtt_5_clients_even_in_the_login() {
    let mut bytes = connect(V5, ());
    bytes[9] |= 0x01;
    let mut peer = Peer::new(limits());
    let violation = peer.violation(&bytes);
    let reason = "malformed packet: the connect flags are inconsistent";
    assert_eq!(peer.rejected(&violation), saying(0x20, &[0, 0x81], reason));
    let mut bytes = connect(V311, ());
    bytes[9] |= 0x01;
    let mut peer = Peer::new(limits());
    let violation = peer.violation(&bytes);
    assert_eq!(peer.rejected(&violation), b"", "no return code says malformed");
}

#[test]
fn bridges_are_recognised() {
    let mut bytes = Vec::new();
    Connect { bridge: true, client_id: "b", ..support::anonymous(V311) }.encode(V311, &mut bytes).unwrap();
    let mut peer = Peer::new(limits());
    peer.event(&bytes);
    assert!(peer.connection.is_bridge());
}

#[test]
fn connack_says_as_much_as_the_client_takes_and_lets_nobody_in_who_cannot_be_told_the_limits() {
    let max = |bytes: u32| Property::MaximumPacketSize(bytes.try_into().unwrap());
    // Receive Maximum and Maximum Packet Size have to be told; topic aliases are a favour.
    for (bytes, aliases, written) in [(16, Some(2), 16), (15, None, 13), (13, None, 13)] {
        let mut peer = Peer::new(limits());
        peer.event(&connect(V5, max(bytes)));
        let connack = peer.accept();
        assert_eq!(connack.len(), written, "{bytes}");
        let Packet::Connack(connack) = support::decode(V5, &connack) else { panic!() };
        assert_eq!(
            (connack.reason, connack.properties.topic_alias_maximum()),
            (ReasonCode::Success, aliases)
        );
        assert_eq!(connack.properties.receive_maximum().map(|max| max.get()), Some(2));
        let alias = Property::TopicAlias(tidegate_mqtt::TopicAlias::new(1).unwrap());
        let aliased = support::publish(V5, tidegate_mqtt::Qos::AtMostOnce, "t", None, alias);
        assert_eq!(peer.receive(&aliased).is_ok(), aliases.is_some(), "what was not granted is not taken");
    }
    for bytes in 1..13 {
        let mut peer = Peer::new(limits());
        let violation = peer.violation(&connect(V5, max(bytes)));
        assert_eq!(violation, Violation::ClientPacketSize(bytes));
        let bare: &[u8] = if bytes < 5 { &[] } else { &[0x20, 3, 0, 0x83, 0] };
        assert_eq!(peer.rejected(&violation), bare, "{bytes}");
    }
}

#[test]
fn what_is_told_beside_the_limits_is_left_out_where_it_may_be() {
    let properties =
        (Property::MaximumPacketSize(40.try_into().unwrap()), Property::RequestResponseInformation(true));
    let mut peer = Peer::new(limits());
    peer.event(&connect(V5, properties));
    let acceptance = Acceptance {
        assigned_client_id: Some("auto"),
        response_information: Some("a text that is longer than the client takes"),
        user_properties: &[("k", "v")],
        ..Acceptance::default()
    };
    let mut out = Vec::new();
    peer.connection.accept(&mut out, &acceptance, 0).unwrap();
    let Packet::Connack(connack) = support::decode(V5, &out) else { panic!() };
    assert_eq!(connack.properties.assigned_client_identifier(), Some("auto"));
    assert_eq!(connack.properties.response_information(), None);
    let long =
        Acceptance { assigned_client_id: Some("an identifier that is longer"), ..Acceptance::default() };
    let mut peer = Peer::new(limits());
    peer.event(&connect(V5, Property::MaximumPacketSize(20.try_into().unwrap())));
    out.clear();
    assert!(peer.connection.accept(&mut out, &long, 0).is_err() && out.is_empty());
    let violation = peer.connection.too_small_a_client();
    assert_eq!(peer.rejected(&violation), [0x20, 3, 0, 0x83, 0]);
}
