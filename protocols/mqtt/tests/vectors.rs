//! Packets as bytes, written from the specifications: what each version accepts and means by them.
#![allow(clippy::unwrap_used)]

use tidegate_mqtt::Version::{V5, V31, V311};
use tidegate_mqtt::packet::{Packet, RetainHandling};
use tidegate_mqtt::{DecodeLimits, Encode, PacketId, Qos, ReasonCode, Version, decode};

const V3: [Version; 2] = [V31, V311];

/// Decodes `bytes`, lets `check` look at the packet, and expects the same bytes when it is encoded.
fn canonical(versions: &[Version], bytes: &[u8], check: impl Fn(Packet<'_>)) {
    for &version in versions {
        let packet = decode(version, bytes, &DecodeLimits::PROTOCOL).unwrap();
        check(packet);
        let mut out = Vec::new();
        packet.encode(version, &mut out).unwrap();
        assert_eq!(out, bytes, "{version}: {packet:?}");
    }
}

/// Decodes `bytes`, which are not the shortest form of what they say.
fn accepted(versions: &[Version], bytes: &[u8], check: impl Fn(Packet<'_>)) {
    for &version in versions {
        check(decode(version, bytes, &DecodeLimits::PROTOCOL).unwrap());
    }
}

fn id(id: u16) -> PacketId {
    PacketId::new(id).unwrap()
}

#[test]
fn connect_of_mqtt_3_1_1_with_everything() {
    let bytes =
        b"\x10\x1d\x00\x04MQTT\x04\xce\x00\x0a\x00\x02id\x00\x01t\x00\x02\xff\x00\x00\x01u\x00\x03pwd";
    canonical(&Version::ALL, bytes, |packet| {
        let Packet::Connect(connect) = packet else { panic!("{packet:?}") };
        assert_eq!((connect.version, connect.bridge), (V311, false));
        assert!(connect.clean_start);
        assert_eq!((connect.keep_alive, connect.client_id), (10, "id"));
        let will = connect.will.unwrap();
        assert_eq!((will.qos, will.retain), (Qos::AtLeastOnce, false));
        assert_eq!((will.topic, will.payload), ("t", &b"\xff\x00"[..]));
        assert_eq!((connect.user_name, connect.password), (Some("u"), Some(&b"pwd"[..])));
    });
}

#[test]
fn connect_of_mqtt_3_1_and_of_bridges() {
    for (level, bridge) in [(0x03, false), (0x83, true)] {
        let mut bytes = *b"\x10\x0f\x00\x06MQIsdp\x03\x02\x00\x3c\x00\x01a";
        bytes[10] = level;
        canonical(&Version::ALL, &bytes, |packet| {
            let Packet::Connect(connect) = packet else { panic!("{packet:?}") };
            assert_eq!((connect.version, connect.bridge), (V31, bridge));
        });
    }
    canonical(&[V5], b"\x10\x0d\x00\x04MQTT\x84\x02\x00\x3c\x00\x01a", |packet| {
        assert!(matches!(packet, Packet::Connect(connect) if connect.bridge && connect.version == V311));
    });
}

#[test]
fn a_user_name_that_is_flagged_may_be_missing_in_mqtt_3_1_only() {
    let bytes = b"\x10\x0f\x00\x06MQIsdp\x03\xc2\x00\x3c\x00\x01a";
    accepted(&[V31], bytes, |packet| {
        assert!(matches!(packet, Packet::Connect(c) if c.user_name.is_none() && c.password.is_none()));
    });
    assert!(decode(V311, b"\x10\x0d\x00\x04MQTT\x04\xc2\x00\x3c\x00\x01a", &DecodeLimits::PROTOCOL).is_err());
}

#[test]
fn connect_of_mqtt_5_with_properties_of_both_kinds() {
    let bytes = b"\x10\x33\x00\x04MQTT\x05\xf4\x00\x00\
        \x0e\x11\x00\x00\x00\x0a\x21\x00\x05\x27\x00\x00\x04\x00\x17\x00\
        \x00\x02id\
        \x0a\x18\x00\x00\x00\x05\x01\x01\x03\x00\x00\
        \x00\x01t\x00\x00\x00\x01u\x00\x01p";
    let mut bytes = bytes.to_vec();
    bytes[12] = 15;
    bytes[1] = (bytes.len() - 2) as u8;
    canonical(&[V5], &bytes, |packet| {
        let Packet::Connect(connect) = packet else { panic!("{packet:?}") };
        assert!(!connect.clean_start);
        let properties = connect.properties;
        assert_eq!(properties.session_expiry_interval(), Some(10));
        assert_eq!(properties.receive_maximum().map(|max| max.get()), Some(5));
        assert_eq!(properties.maximum_packet_size().map(|max| max.get()), Some(1024));
        assert_eq!(properties.request_problem_information(), Some(false));
        let will = connect.will.unwrap();
        assert_eq!((will.qos, will.retain, will.payload), (Qos::ExactlyOnce, true, &b""[..]));
        assert_eq!(will.properties.will_delay_interval(), Some(5));
        assert_eq!(will.properties.payload_format_indicator(), Some(true));
        assert_eq!(will.properties.content_type(), Some(""));
    });
}

#[test]
fn mqtt_5_allows_a_password_without_user_name() {
    canonical(&[V5], b"\x10\x10\x00\x04MQTT\x05\x42\x00\x00\x00\x00\x00\x00\x01p", |packet| {
        assert!(matches!(packet, Packet::Connect(c) if c.user_name.is_none() && c.password == Some(b"p")));
    });
}

#[test]
fn connack() {
    canonical(&[V311], b"\x20\x02\x01\x00", |packet| {
        assert!(matches!(packet, Packet::Connack(c) if c.session_present && c.reason == ReasonCode::Success));
    });
    accepted(&[V31], b"\x20\x02\x01\x00", |packet| {
        assert!(matches!(packet, Packet::Connack(c) if !c.session_present));
    });
    canonical(&V3, b"\x20\x02\x00\x05", |packet| {
        assert!(matches!(packet, Packet::Connack(c) if c.reason == ReasonCode::NotAuthorized));
    });
    canonical(&[V5], b"\x20\x0c\x01\x00\x09\x24\x01\x25\x00\x13\x00\x0a\x2a\x00", |packet| {
        let Packet::Connack(connack) = packet else { panic!("{packet:?}") };
        assert!(connack.session_present);
        assert_eq!(connack.properties.maximum_qos(), Some(Qos::AtLeastOnce));
        assert_eq!(connack.properties.retain_available(), Some(false));
        assert_eq!(connack.properties.server_keep_alive(), Some(10));
        assert_eq!(connack.properties.shared_subscription_available(), Some(false));
    });
}

#[test]
fn publish_of_every_quality() {
    canonical(&V3, b"\x31\x07\x00\x03a/bhi", |packet| {
        let Packet::Publish(publish) = packet else { panic!("{packet:?}") };
        assert_eq!((publish.dup, publish.qos, publish.retain), (false, Qos::AtMostOnce, true));
        assert_eq!((publish.topic, publish.packet_id, publish.payload), ("a/b", None, &b"hi"[..]));
    });
    canonical(&V3, b"\x3a\x07\x00\x03a/b\x00\x0a", |packet| {
        let Packet::Publish(publish) = packet else { panic!("{packet:?}") };
        assert_eq!((publish.dup, publish.qos), (true, Qos::AtLeastOnce));
        assert_eq!((publish.packet_id, publish.payload), (Some(id(10)), &b""[..]));
    });
    canonical(&[V5], b"\x34\x0d\x00\x03a/b\x00\x0a\x02\x01\x01\xe2\x82\xac", |packet| {
        let Packet::Publish(publish) = packet else { panic!("{packet:?}") };
        assert_eq!(publish.qos, Qos::ExactlyOnce);
        assert_eq!(publish.properties.payload_format_indicator(), Some(true));
        assert_eq!(publish.payload, "€".as_bytes());
    });
    canonical(&[V5], b"\x30\x06\x00\x00\x03\x23\x00\x05", |packet| {
        let Packet::Publish(publish) = packet else { panic!("{packet:?}") };
        assert_eq!(publish.topic, "");
        assert_eq!(publish.properties.topic_alias().map(|alias| alias.get()), Some(5));
    });
}

#[test]
fn publish_with_all_its_properties() {
    let bytes = b"\x30\x33\x00\x01t\x2d\
        \x01\x00\x02\x00\x00\x00\x3c\x03\x00\x02ct\x08\x00\x01r\x09\x00\x02\x00\xff\
        \x0b\x80\x01\x0b\x07\x23\x00\x01\x26\x00\x01k\x00\x01v\x26\x00\x01k\x00\x01w";
    let mut bytes = bytes.to_vec();
    bytes[1] = (bytes.len() - 2) as u8;
    bytes[5] = (bytes.len() - 6) as u8;
    canonical(&[V5], &bytes, |packet| {
        let Packet::Publish(publish) = packet else { panic!("{packet:?}") };
        let properties = publish.properties;
        assert_eq!(properties.payload_format_indicator(), Some(false));
        assert_eq!(properties.message_expiry_interval(), Some(60));
        assert_eq!(properties.content_type(), Some("ct"));
        assert_eq!(properties.response_topic(), Some("r"));
        assert_eq!(properties.correlation_data(), Some(&b"\x00\xff"[..]));
        assert!(properties.subscription_identifiers().map(|id| id.get()).eq([128, 7]));
        assert_eq!(properties.topic_alias().map(|alias| alias.get()), Some(1));
        assert!(properties.user_properties().eq([("k", "v"), ("k", "w")]));
        assert_eq!(properties.iter().count(), 10);
    });
}

#[test]
fn acknowledgements_of_messages() {
    for first in [0x40, 0x50, 0x62, 0x70] {
        canonical(&Version::ALL, &[first, 2, 0x12, 0x34], |packet| match packet {
            Packet::Puback(ack) | Packet::Pubrec(ack) | Packet::Pubrel(ack) | Packet::Pubcomp(ack) => {
                assert_eq!((ack.packet_id, ack.reason), (id(0x1234), ReasonCode::Success));
            }
            other => panic!("{other:?}"),
        });
    }
    canonical(&[V5], &[0x40, 3, 0, 1, 0x10], |packet| {
        assert!(matches!(packet, Packet::Puback(ack) if ack.reason == ReasonCode::NoMatchingSubscribers));
    });
    canonical(&[V5], b"\x50\x08\x00\x01\x97\x04\x1f\x00\x01x", |packet| {
        let Packet::Pubrec(ack) = packet else { panic!("{packet:?}") };
        assert_eq!(ack.reason, ReasonCode::QuotaExceeded);
        assert_eq!(ack.properties.reason_string(), Some("x"));
    });
    canonical(&[V5], &[0x62, 3, 0, 1, 0x92], |packet| {
        assert!(matches!(packet, Packet::Pubrel(ack) if ack.reason == ReasonCode::PacketIdentifierNotFound));
    });
    for long_form in [&[0x70, 3, 0, 1, 0][..], &[0x70, 4, 0, 1, 0, 0]] {
        accepted(&[V5], long_form, |packet| {
            assert!(matches!(packet, Packet::Pubcomp(ack) if ack.reason == ReasonCode::Success));
        });
    }
}

#[test]
fn mqtt_3_1_repeats_pubrel_and_subscribe_with_dup() {
    accepted(&[V31], &[0x6a, 2, 0, 1], |packet| assert!(matches!(packet, Packet::Pubrel(_))));
    accepted(&[V31], b"\x8a\x06\x00\x01\x00\x01a\x01", |packet| {
        assert!(matches!(packet, Packet::Subscribe(_)))
    });
    accepted(&[V31], b"\xc3\x00", |packet| assert_eq!(packet, Packet::Pingreq));
}

#[test]
fn subscribe() {
    canonical(&V3, b"\x82\x0e\x00\x0a\x00\x03a/b\x01\x00\x03c/+\x02", |packet| {
        let Packet::Subscribe(subscribe) = packet else { panic!("{packet:?}") };
        assert_eq!(subscribe.packet_id, id(10));
        let filters: Vec<_> = subscribe.filters.iter().map(|item| (item.filter, item.options.qos)).collect();
        assert_eq!(filters, [("a/b", Qos::AtLeastOnce), ("c/+", Qos::ExactlyOnce)]);
    });
    canonical(&[V5], b"\x82\x0d\x00\x0a\x02\x0b\x09\x00\x01#\x2e\x00\x01+\x18", |packet| {
        let Packet::Subscribe(subscribe) = packet else { panic!("{packet:?}") };
        assert_eq!(subscribe.properties.subscription_identifier().map(|id| id.get()), Some(9));
        let options: Vec<_> = subscribe.filters.iter().map(|item| item.options).collect();
        assert_eq!((options[0].qos, options[0].no_local), (Qos::ExactlyOnce, true));
        assert_eq!(
            (options[0].retain_as_published, options[0].retain_handling),
            (true, RetainHandling::DoNotSend)
        );
        assert_eq!((options[1].no_local, options[1].retain_handling), (false, RetainHandling::SendIfNew));
    });
    canonical(&Version::ALL[..2], b"\x82\x0f\x00\x01\x00\x0a$share/g/a\x01", |packet| {
        let Packet::Subscribe(subscribe) = packet else { panic!("{packet:?}") };
        let filter = subscribe.filters.iter().next().unwrap().filter;
        assert_eq!(tidegate_mqtt::topic::split_shared(filter), Some(("g", "a")));
    });
}

#[test]
fn suback() {
    canonical(&V3, &[0x90, 6, 0, 1, 0, 1, 2, 0x80], |packet| {
        let Packet::Suback(suback) = packet else { panic!("{packet:?}") };
        let expected = [
            ReasonCode::Success,
            ReasonCode::GrantedQos1,
            ReasonCode::GrantedQos2,
            ReasonCode::UnspecifiedError,
        ];
        assert!(suback.reasons.iter().eq(expected));
    });
    canonical(&[V5], &[0x90, 5, 0, 1, 0, 0x87, 0xa2], |packet| {
        let Packet::Suback(suback) = packet else { panic!("{packet:?}") };
        let expected = [ReasonCode::NotAuthorized, ReasonCode::WildcardSubscriptionsNotSupported];
        assert!(suback.reasons.iter().eq(expected));
    });
}

#[test]
fn unsubscribe_and_unsuback() {
    canonical(&V3, b"\xa2\x0a\x00\x0a\x00\x03a/b\x00\x01#", |packet| {
        let Packet::Unsubscribe(unsubscribe) = packet else { panic!("{packet:?}") };
        assert!(unsubscribe.filters.iter().eq(["a/b", "#"]));
    });
    canonical(&[V5], b"\xa2\x0d\x00\x0a\x07\x26\x00\x01k\x00\x01v\x00\x01a", |packet| {
        let Packet::Unsubscribe(unsubscribe) = packet else { panic!("{packet:?}") };
        assert_eq!(unsubscribe.properties.user_property(), Some(("k", "v")));
    });
    canonical(&V3, &[0xb0, 2, 0, 10], |packet| {
        assert!(matches!(packet, Packet::Unsuback(unsuback) if unsuback.reasons.iter().count() == 0));
    });
    canonical(&[V5], &[0xb0, 5, 0, 10, 0, 0, 0x11], |packet| {
        let Packet::Unsuback(unsuback) = packet else { panic!("{packet:?}") };
        assert!(unsuback.reasons.iter().eq([ReasonCode::Success, ReasonCode::NoSubscriptionExisted]));
    });
}

#[test]
fn pings_disconnect_and_auth() {
    canonical(&Version::ALL, &[0xc0, 0], |packet| assert_eq!(packet, Packet::Pingreq));
    canonical(&Version::ALL, &[0xd0, 0], |packet| assert_eq!(packet, Packet::Pingresp));
    canonical(&Version::ALL, &[0xe0, 0], |packet| {
        assert!(matches!(packet, Packet::Disconnect(d) if d.reason == ReasonCode::NORMAL_DISCONNECTION));
    });
    canonical(&[V5], &[0xe0, 1, 4], |packet| {
        assert!(matches!(packet, Packet::Disconnect(d) if d.reason == ReasonCode::DisconnectWithWill));
    });
    canonical(&[V5], b"\xe0\x07\x00\x05\x11\x00\x00\x00\x09", |packet| {
        assert!(matches!(packet, Packet::Disconnect(d) if d.properties.session_expiry_interval() == Some(9)));
    });
    canonical(&[V5], &[0xf0, 0], |packet| {
        assert!(matches!(packet, Packet::Auth(auth) if auth.reason == ReasonCode::Success));
    });
    canonical(&[V5], b"\xf0\x0a\x18\x08\x15\x00\x01m\x16\x00\x01d", |packet| {
        let Packet::Auth(auth) = packet else { panic!("{packet:?}") };
        assert_eq!(auth.reason, ReasonCode::ContinueAuthentication);
        assert_eq!(auth.properties.authentication_method(), Some("m"));
        assert_eq!(auth.properties.authentication_data(), Some(&b"d"[..]));
    });
}
