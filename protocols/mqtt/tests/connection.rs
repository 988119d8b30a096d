//! The server's end of a connection whose client is accepted, packet by packet.
#![allow(clippy::unwrap_used)]

mod support;

use support::{Peer, connect, id, publish, saying};
use tidegate_mqtt::Version::{V5, V31, V311};
use tidegate_mqtt::connection::{DuplicateAnswer, SendError};
use tidegate_mqtt::packet::{Disconnect, Packet, SubscribeFilter, SubscribeOptions};
use tidegate_mqtt::{
    ConnectionLimits, DecodeLimits, Encode, Event, PacketType, Property, PublishHeader, Qos, ReasonCode,
    Received, SubscriptionId, TopicAlias, Version, Violation,
};

fn limits() -> ConnectionLimits {
    ConnectionLimits {
        inflight_publishes_max: 2,
        unreleased_publishes_max: 16,
        inbound_aliases_max: 2,
        ..ConnectionLimits::default()
    }
}

fn alias(alias: u16) -> Property<'static> {
    Property::TopicAlias(TopicAlias::new(alias).unwrap())
}

fn to_client<P>(topic: &str, properties: P) -> PublishHeader<'_, P> {
    PublishHeader { dup: false, qos: Qos::AtMostOnce, retain: false, topic, packet_id: None, properties }
}

#[test]
fn qos_1_is_acknowledged_and_gives_its_quota_back() {
    for version in Version::ALL {
        let mut peer = Peer::open(version, limits());
        let bytes = publish(version, Qos::AtLeastOnce, "t", Some(7), ());
        assert!(matches!(peer.event(&bytes), Event::Publish(p) if p.packet_id == Some(id(7))));
        assert_eq!(peer.connection.inbound_in_flight(), 1);
        let mut out = Vec::new();
        assert!(peer.connection.puback(&mut out, id(7), ReasonCode::Success, ()));
        assert_eq!(out, [0x40, 2, 0, 7]);
        assert!(!peer.connection.puback(&mut out, id(7), ReasonCode::Success, ()), "it is acknowledged once");
        assert_eq!(peer.connection.inbound_in_flight(), 0);
    }
}

#[test]
fn qos_2_is_taken_released_and_completed() {
    for version in Version::ALL {
        let mut peer = Peer::open(version, limits());
        let bytes = publish(version, Qos::ExactlyOnce, "t", Some(7), ());
        assert!(matches!(peer.event(&bytes), Event::Publish(_)));
        let pending = Event::Duplicate { packet_id: id(7), answer: DuplicateAnswer::Pending };
        assert_eq!(peer.event(&bytes), pending, "PUBREC is not sent yet");
        let mut out = Vec::new();
        assert!(peer.connection.pubrec(&mut out, id(7), ReasonCode::Success, ()));
        let again = Event::Duplicate { packet_id: id(7), answer: DuplicateAnswer::Pubrec };
        assert_eq!(peer.event(&bytes), again);
        assert!(peer.connection.pubrec(&mut out, id(7), ReasonCode::Success, ()));
        let released = peer.event(&[0x62, 2, 0, 7]);
        assert!(matches!(released, Event::Pubrel { known: true, .. }));
        assert!(peer.connection.pubcomp(&mut out, id(7), ReasonCode::Success, ()));
        assert_eq!(out, [0x50, 2, 0, 7, 0x50, 2, 0, 7, 0x70, 2, 0, 7]);
        assert_eq!(peer.connection.inbound_in_flight(), 0);
        assert!(matches!(peer.event(&bytes), Event::Publish(_)), "the identifier is free again");
    }
}

#[test]
fn a_pubrel_for_an_unknown_message_is_answered_with_its_reason() {
    let mut peer = Peer::open(V5, limits());
    assert!(matches!(peer.event(&[0x62, 2, 0, 7]), Event::Pubrel { known: false, .. }));
    let mut out = Vec::new();
    assert!(peer.connection.pubcomp(&mut out, id(7), ReasonCode::PacketIdentifierNotFound, ()));
    assert_eq!(out, [0x70, 3, 0, 7, 0x92]);
}

#[test]
fn a_pubrel_before_pubrec_is_a_violation() {
    let mut peer = Peer::open(V5, limits());
    peer.event(&publish(V5, Qos::ExactlyOnce, "t", Some(7), ()));
    assert_eq!(peer.violation(&[0x62, 2, 0, 7]), Violation::Unexpected(PacketType::Pubrel));
}

#[test]
fn a_pubrec_with_an_error_ends_the_exchange() {
    let mut peer = Peer::open(V5, limits());
    let bytes = publish(V5, Qos::ExactlyOnce, "t", Some(7), ());
    peer.event(&bytes);
    let mut out = Vec::new();
    assert!(peer.connection.pubrec(&mut out, id(7), ReasonCode::QuotaExceeded, ()));
    assert_eq!(out, [0x50, 3, 0, 7, 0x97]);
    assert_eq!(peer.connection.inbound_in_flight(), 0);
    assert!(matches!(peer.event(&bytes), Event::Publish(_)));
}

#[test]
fn more_messages_than_receive_maximum_end_an_mqtt_5_connection() {
    let mut peer = Peer::open(V5, limits());
    peer.event(&publish(V5, Qos::AtLeastOnce, "t", Some(1), ()));
    peer.event(&publish(V5, Qos::ExactlyOnce, "t", Some(2), ()));
    peer.event(&publish(V5, Qos::AtMostOnce, "t", None, ()));
    let mut out = Vec::new();
    peer.connection.pubrec(&mut out, id(2), ReasonCode::Success, ());
    let third = publish(V5, Qos::AtLeastOnce, "t", Some(3), ());
    let violation = peer.violation(&third);
    assert_eq!(violation, Violation::ReceiveMaximum);
    assert_eq!(peer.rejected(&violation), saying(0xe0, &[0x93], "receive maximum exceeded"));
}

#[test]
fn more_messages_than_the_window_slow_an_older_client_down() {
    for version in [V31, V311] {
        let mut peer = Peer::open(version, limits());
        peer.event(&publish(version, Qos::AtLeastOnce, "t", Some(1), ()));
        peer.event(&publish(version, Qos::ExactlyOnce, "t", Some(2), ()));
        let third = publish(version, Qos::ExactlyOnce, "t", Some(3), ());
        assert_eq!(peer.receive(&third), Ok(Received::Blocked));
        assert_eq!(peer.connection.deadline(), None, "its pings wait unread");
        // What the client would have to do to release message 2 lies behind message 3, so PUBREC is enough.
        peer.connection.pubrec(&mut Vec::new(), id(2), ReasonCode::Success, ());
        assert!(matches!(peer.event(&third), Event::Publish(_)));
        assert!(peer.connection.deadline().is_some());
    }
}

#[test]
fn unreleased_messages_of_an_older_client_are_bounded() {
    let mut peer = Peer::open(V311, limits());
    let mut out = Vec::new();
    for n in 1..=16 {
        peer.event(&publish(V311, Qos::ExactlyOnce, "t", Some(n), ()));
        assert!(peer.connection.pubrec(&mut out, id(n), ReasonCode::Success, ()));
    }
    let violation = peer.violation(&publish(V311, Qos::ExactlyOnce, "t", Some(17), ()));
    assert_eq!(violation, Violation::ReceiveMaximum);
}

#[test]
fn an_identifier_in_use_is_refused_in_mqtt_5_and_waits_in_older_versions() {
    for version in Version::ALL {
        let mut peer = Peer::open(version, limits());
        let bytes = publish(version, Qos::AtLeastOnce, "t", Some(1), ());
        peer.event(&bytes);
        let mut repeated = bytes.clone();
        repeated[0] |= 0x08;
        let pending = Event::Duplicate { packet_id: id(1), answer: DuplicateAnswer::Pending };
        assert_eq!(peer.event(&repeated), pending);
        if version == V5 {
            assert_eq!(peer.violation(&bytes), Violation::PacketIdInUse(id(1)));
            continue;
        }
        assert_eq!(peer.receive(&bytes), Ok(Received::Blocked));
        peer.connection.puback(&mut Vec::new(), id(1), ReasonCode::Success, ());
        assert!(matches!(peer.event(&bytes), Event::Publish(_)));
    }
}

#[test]
fn an_identifier_of_an_unreleased_message_may_carry_one_of_level_1_beside_it() {
    for version in Version::ALL {
        let mut peer = Peer::new(limits());
        peer.event(&connect(version, ()));
        peer.connection.seed_inbound([id(1)]);
        peer.accept();
        let bytes = publish(version, Qos::AtLeastOnce, "t", Some(1), ());
        assert!(matches!(peer.event(&bytes), Event::Publish(_)));
        assert_eq!(peer.connection.inbound_in_flight(), 1);
        let mut repeated = bytes.clone();
        repeated[0] |= 0x08;
        let pending = Event::Duplicate { packet_id: id(1), answer: DuplicateAnswer::Pending };
        assert_eq!(peer.event(&repeated), pending);
        // The older message is released in the midst of it.
        let mut out = Vec::new();
        assert!(matches!(peer.event(&[0x62, 2, 0, 1]), Event::Pubrel { known: true, .. }));
        assert!(peer.connection.pubcomp(&mut out, id(1), ReasonCode::Success, ()));
        assert!(peer.connection.puback(&mut out, id(1), ReasonCode::Success, ()));
        assert!(!peer.connection.puback(&mut out, id(1), ReasonCode::Success, ()));
        assert_eq!(out, [0x70, 2, 0, 1, 0x40, 2, 0, 1]);
        assert_eq!(peer.connection.inbound_in_flight(), 0);
        assert!(matches!(peer.event(&bytes), Event::Publish(_)), "nothing is left of either");
    }
}

#[test]
fn what_comes_beside_an_unreleased_message_counts_for_itself_and_leaves_it_alone() {
    for version in Version::ALL {
        let mut peer = Peer::open(version, limits());
        let mut out = Vec::new();
        let second = publish(version, Qos::ExactlyOnce, "t", Some(1), ());
        peer.event(&second);
        peer.connection.pubrec(&mut out, id(1), ReasonCode::Success, ());
        let first = publish(version, Qos::AtLeastOnce, "t", Some(1), ());
        for _ in 0..3 {
            assert!(matches!(peer.event(&first), Event::Publish(_)));
            match version {
                V5 => assert_eq!(peer.violation(&first), Violation::PacketIdInUse(id(1))),
                _ => assert_eq!(peer.receive(&first), Ok(Received::Blocked)),
            }
            assert!(peer.connection.puback(&mut out, id(1), ReasonCode::Success, ()));
        }
        let answer = DuplicateAnswer::Pubrec;
        assert_eq!(peer.event(&second), Event::Duplicate { packet_id: id(1), answer });
        // The quota is two, and the message of level 2 takes one of it in MQTT 5.0.
        peer.event(&first);
        let third = publish(version, Qos::AtLeastOnce, "t", Some(3), ());
        match version {
            V5 => assert_eq!(peer.violation(&third), Violation::ReceiveMaximum),
            _ => assert!(matches!(peer.event(&third), Event::Publish(_))),
        }
    }
}

#[test]
fn messages_of_an_earlier_connection_are_recognised() {
    for version in Version::ALL {
        let mut peer = Peer::new(limits());
        peer.event(&connect(version, ()));
        peer.connection.seed_inbound([id(1), id(2), id(3)]);
        peer.accept();
        assert_eq!(peer.connection.inbound_in_flight(), 0, "the quota starts anew");
        let mut repeated = publish(version, Qos::ExactlyOnce, "t", Some(1), ());
        repeated[0] |= 0x08;
        let answer = DuplicateAnswer::Pubrec;
        assert_eq!(peer.event(&repeated), Event::Duplicate { packet_id: id(1), answer });
        let mut out = Vec::new();
        assert!(peer.connection.pubrec(&mut out, id(1), ReasonCode::Success, ()));
        for n in [1, 2] {
            assert!(matches!(peer.event(&[0x62, 2, 0, n]), Event::Pubrel { known: true, .. }));
            assert!(peer.connection.pubcomp(&mut out, id(n.into()), ReasonCode::Success, ()));
        }
        assert_eq!(peer.connection.inbound_in_flight(), 0);
    }
}

#[test]
fn a_topic_alias_stands_for_the_last_topic_that_it_was_given() {
    let mut peer = Peer::open(V5, limits());
    for topic in ["a", "b"] {
        peer.event(&publish(V5, Qos::AtMostOnce, topic, None, alias(1)));
        let bytes = publish(V5, Qos::AtMostOnce, "", None, alias(1));
        let Ok(Received::Event { event: Event::Publish(publish), .. }) = peer.receive(&bytes) else {
            panic!()
        };
        assert_eq!(peer.connection.topic(publish.topic), topic);
    }
}

#[test]
fn topic_aliases_outside_what_was_granted_end_the_connection() {
    let mut peer = Peer::open(V5, limits());
    let unknown = peer.violation(&publish(V5, Qos::AtMostOnce, "", None, alias(2)));
    assert_eq!(unknown, Violation::UnknownTopicAlias(2));
    assert_eq!(peer.rejected(&unknown), saying(0xe0, &[0x82], "topic alias 2 was not given a topic"));
    let mut peer = Peer::open(V5, limits());
    let violation = peer.violation(&publish(V5, Qos::AtMostOnce, "t", None, alias(3)));
    assert_eq!(violation, Violation::TopicAlias(3));
    assert_eq!(peer.rejected(&violation), saying(0xe0, &[0x94], "topic alias 3 is not valid"));
    let small = ConnectionLimits { inbound_alias_bytes_max: 3, ..limits() };
    let mut peer = Peer::open(V5, small);
    assert_eq!(peer.violation(&publish(V5, Qos::AtMostOnce, "long", None, alias(1))), Violation::AliasBytes);
}

#[test]
fn a_client_may_not_send_subscription_identifiers() {
    let mut peer = Peer::open(V5, limits());
    let property = Property::SubscriptionIdentifier(SubscriptionId::new(1).unwrap());
    let violation = peer.violation(&publish(V5, Qos::AtMostOnce, "t", None, property));
    assert_eq!(violation, Violation::SubscriptionIdentifier);
}

#[test]
fn packets_of_a_server_are_refused_from_their_header() {
    for first_byte in [0x20, 0x90, 0xb0, 0xd0] {
        let mut peer = Peer::open(V311, limits());
        let violation = peer.violation(&[first_byte, 100]);
        assert!(matches!(violation, Violation::Unexpected(_)), "{violation}");
    }
}

#[test]
fn size_limits_are_smaller_before_the_login_and_apply_to_the_header() {
    let limits = ConnectionLimits {
        login_packet_bytes_max: 50,
        decode: DecodeLimits { packet_bytes_max: 200, ..DecodeLimits::default() },
        ..limits()
    };
    let mut peer = Peer::new(limits);
    assert_eq!(peer.violation(&[0x10, 49]).reason_code(), ReasonCode::PacketTooLarge);
    let mut peer = Peer::open(V5, limits);
    assert_eq!(peer.receive(&[0x30, 0xc5, 0x01]), Ok(Received::Incomplete { needed: 200 }));
    let violation = peer.violation(&[0x30, 0xc6, 0x01]);
    assert_eq!(
        peer.rejected(&violation),
        saying(0xe0, &[0x95], "limit exceeded: a packet of 201 bytes where 200 are allowed")
    );
}

#[test]
fn diagnostics_are_dropped_if_unwanted_or_too_large() {
    let text = "because of reasons";
    let unwanted = Peer::open_with(V5, limits(), Property::RequestProblemInformation(false));
    let small = Peer::open_with(V5, limits(), Property::MaximumPacketSize(20.try_into().unwrap()));
    for (mut peer, expected) in [(Peer::open(V5, limits()), 27), (unwanted, 5), (small, 5)] {
        peer.event(&publish(V5, Qos::AtLeastOnce, "t", Some(1), ()));
        let mut out = Vec::new();
        peer.connection.puback(&mut out, id(1), ReasonCode::NotAuthorized, Property::ReasonString(text));
        assert_eq!(out.len(), expected);
    }
}

#[test]
fn a_message_too_large_for_the_client_is_not_written() {
    let mut peer = Peer::open_with(V5, limits(), Property::MaximumPacketSize(20.try_into().unwrap()));
    let mut out = Vec::new();
    let header = to_client("t", ());
    assert_eq!(peer.connection.publish(&mut out, &header, &[0; 14]), Ok(()));
    assert_eq!(out.len(), 20);
    let too_large = Err(SendError::TooLarge { bytes: 21, bytes_max: 20 });
    assert_eq!(peer.connection.publish(&mut out, &header, &[0; 15]), too_large);
    assert_eq!(out.len(), 20);
}

#[test]
fn outbound_topics_get_aliases_where_the_client_takes_them() {
    let mut peer = Peer::open_with(V5, limits(), Property::TopicAliasMaximum(1));
    let mut out = Vec::new();
    for topic in ["a/b", "a/b", "c"] {
        peer.connection
            .publish(&mut out, &to_client(topic, Property::MessageExpiryInterval(9)), b"x")
            .unwrap();
    }
    let packets = support::decode_all(V5, &out);
    let seen: Vec<_> = packets
        .iter()
        .map(|packet| match packet {
            Packet::Publish(p) => (p.topic, p.properties.topic_alias().map(TopicAlias::get)),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(seen, [("a/b", Some(1)), ("", Some(1)), ("c", None)]);
}

#[test]
fn a_message_that_is_not_written_uses_no_alias() {
    let properties = [Property::TopicAliasMaximum(1), Property::MaximumPacketSize(20.try_into().unwrap())];
    let mut peer = Peer::open_with(V5, limits(), properties);
    let mut out = Vec::new();
    assert!(peer.connection.publish(&mut out, &to_client("a", ()), &[0; 50]).is_err());
    peer.connection.publish(&mut out, &to_client("b", ()), b"").unwrap();
    peer.connection.publish(&mut out, &to_client("b", ()), b"").unwrap();
    assert_eq!(support::decode_all(V5, &out).len(), 2);
    assert_eq!(out[..9], *b"\x30\x07\x00\x01b\x03\x23\x00\x01");
}

#[test]
fn answers_to_requests_have_the_form_of_the_version() {
    let filters = [SubscribeFilter { filter: "a", options: SubscribeOptions::with_qos(Qos::AtLeastOnce) }];
    for (version, suback, unsuback) in [
        (V311, &[0x90, 4, 0, 1, 1, 0x80][..], &[0xb0, 2, 0, 2][..]),
        (V5, &[0x90, 5, 0, 1, 0, 1, 0x87], &[0xb0, 4, 0, 2, 0, 0x11]),
    ] {
        let mut peer = Peer::open(version, limits());
        let request = support::subscribe(version, 1, &filters);
        assert!(matches!(peer.event(&request), Event::Subscribe(s) if s.filters.iter().eq(filters)));
        let mut out = Vec::new();
        let codes = [ReasonCode::GrantedQos1, ReasonCode::NotAuthorized];
        peer.connection.suback(&mut out, id(1), codes, ()).unwrap();
        assert_eq!(out, suback);
        out.clear();
        peer.connection.unsuback(&mut out, id(2), [ReasonCode::NoSubscriptionExisted], ()).unwrap();
        assert_eq!(out, unsuback);
        out.clear();
        peer.connection.pingresp(&mut out).unwrap();
        peer.connection.pubrel(&mut out, id(3), ReasonCode::Success).unwrap();
        assert_eq!(out, [0xd0, 0, 0x62, 2, 0, 3]);
    }
}

#[test]
fn acknowledgements_of_the_client_are_passed_on() {
    let mut peer = Peer::open(V5, limits());
    let ack = |event| match event {
        Event::Puback(ack) | Event::Pubrec(ack) | Event::Pubcomp(ack) => (ack.packet_id, ack.reason),
        other => panic!("{other:?}"),
    };
    assert_eq!(ack(peer.event(&[0x40, 3, 0, 9, 0x87])), (id(9), ReasonCode::NotAuthorized));
    assert_eq!(ack(peer.event(&[0x50, 2, 0, 9])), (id(9), ReasonCode::Success));
    assert_eq!(ack(peer.event(&[0x70, 2, 0, 9])), (id(9), ReasonCode::Success));
}

#[test]
fn after_disconnect_nothing_is_received_or_sent() {
    for version in Version::ALL {
        let mut peer = Peer::open(version, limits());
        assert!(matches!(peer.event(&[0xe0, 0]), Event::Disconnect(_)));
        assert_eq!(peer.violation(&[0xc0, 0]), Violation::Closed);
        let mut out = Vec::new();
        assert_eq!(peer.connection.publish(&mut out, &to_client("t", ()), b""), Err(SendError::NotOpen));
        peer.connection.disconnect(&mut out, ReasonCode::ServerShuttingDown, ());
        assert!(out.is_empty());
    }
}

#[test]
fn the_server_says_goodbye_in_mqtt_5_only() {
    for (version, expected) in [(V31, &b""[..]), (V311, b""), (V5, &[0xe0, 1, 0x8e])] {
        let mut peer = Peer::open(version, limits());
        let mut out = Vec::new();
        peer.connection.disconnect(&mut out, ReasonCode::SessionTakenOver, ());
        assert_eq!(out, expected);
        assert!(!peer.connection.is_open());
    }
}

#[test]
fn a_session_that_ends_with_its_connection_is_not_prolonged() {
    let mut bytes = Vec::new();
    let properties = Property::SessionExpiryInterval(5);
    Disconnect { reason: ReasonCode::Success, properties }.encode(V5, &mut bytes).unwrap();
    assert_eq!(Peer::open(V5, limits()).violation(&bytes), Violation::SessionExpiry);
    let mut peer = Peer::open_with(V5, limits(), Property::SessionExpiryInterval(1));
    assert!(matches!(peer.event(&bytes), Event::Disconnect(_)));
}
