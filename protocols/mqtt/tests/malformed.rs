//! Bytes that are refused, with the fault that is named and the reason code that it leads to.
#![allow(clippy::unwrap_used)]

use tidegate_mqtt::Version::{V5, V31, V311};
use tidegate_mqtt::error::{LimitExceeded, Malformed, ProtocolViolation};
use tidegate_mqtt::topic::TopicFault;
use tidegate_mqtt::{DecodeError, DecodeLimits, EncodeError, ReasonCode, Version, decode};

const ALL: &[Version] = &Version::ALL;
const SINCE_311: &[Version] = &[V311, V5];
const V3: &[Version] = &[V31, V311];

type Case<'c> = (&'c [Version], &'c [u8], DecodeError);

fn check(cases: &[Case<'_>]) {
    for (versions, bytes, expected) in cases {
        for &version in *versions {
            let found = decode(version, bytes, &DecodeLimits::PROTOCOL);
            assert_eq!(found, Err(*expected), "{version}: {bytes:02x?}");
        }
    }
}

fn malformed(fault: Malformed) -> DecodeError {
    fault.into()
}

fn violation(fault: ProtocolViolation) -> DecodeError {
    fault.into()
}

#[test]
fn fixed_headers_that_no_packet_has() {
    check(&[
        (ALL, &[0x00, 0], malformed(Malformed::PacketType)),
        (V3, &[0xf0, 0], malformed(Malformed::PacketType)),
        (ALL, &[0xc0, 0x80, 0x80, 0x80, 0x80, 0], malformed(Malformed::VariableByteInteger)),
        (&[V5], &[0xc0, 0x80, 0x00], malformed(Malformed::VariableByteInteger)),
        (SINCE_311, &[0xc1, 0], malformed(Malformed::Flags)),
        (SINCE_311, &[0x60, 2, 0, 1], malformed(Malformed::Flags)),
        (ALL, b"\x80\x06\x00\x01\x00\x01a\x01", malformed(Malformed::Flags)),
        (ALL, &[0xc0, 1, 0], malformed(Malformed::TrailingBytes)),
        (ALL, &[0x36, 5, 0, 1, b't', 0, 1], malformed(Malformed::Qos)),
        (SINCE_311, &[0x38, 3, 0, 1, b't'], malformed(Malformed::DupAtQos0)),
    ]);
}

#[test]
fn connect_that_is_not_one() {
    let name = malformed(Malformed::ProtocolName);
    let flags = malformed(Malformed::ConnectFlags);
    check(&[
        (ALL, b"\x10\x0d\x00\x04MQTX\x04\x02\x00\x3c\x00\x01a", name),
        (ALL, b"\x10\x0d\x00\x04MQTT\x06\x02\x00\x3c\x00\x01a", DecodeError::UnsupportedVersion { level: 6 }),
        (ALL, b"\x10\x0d\x00\x04MQTT\x03\x02\x00\x3c\x00\x01a", DecodeError::UnsupportedVersion { level: 3 }),
        (
            ALL,
            b"\x10\x0d\x00\x04MQTT\x85\x02\x00\x3c\x00\x01a",
            DecodeError::UnsupportedVersion { level: 0x85 },
        ),
        (ALL, b"\x11\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01a", malformed(Malformed::Flags)),
        (ALL, b"\x10\x0d\x00\x04MQTT\x04\x03\x00\x3c\x00\x01a", flags),
        (ALL, b"\x10\x0d\x00\x04MQTT\x04\x0a\x00\x3c\x00\x01a", flags),
        (ALL, b"\x10\x0d\x00\x04MQTT\x04\x22\x00\x3c\x00\x01a", flags),
        (ALL, b"\x10\x10\x00\x04MQTT\x04\x42\x00\x3c\x00\x01a\x00\x01p", flags),
        (ALL, b"\x10\x12\x00\x04MQTT\x04\x1e\x00\x3c\x00\x01a\x00\x01t\x00\x00", malformed(Malformed::Qos)),
        (ALL, b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x01ab", malformed(Malformed::TrailingBytes)),
        (ALL, b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01\x00", malformed(Malformed::NulCharacter)),
        (ALL, b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01\xff", malformed(Malformed::Utf8)),
        (ALL, b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x01", malformed(Malformed::Truncated)),
        (
            ALL,
            b"\x10\x12\x00\x04MQTT\x04\x06\x00\x3c\x00\x01a\x00\x01#\x00\x00",
            malformed(Malformed::TopicName(TopicFault::WildcardInName)),
        ),
    ]);
}

#[test]
fn publish_without_a_usable_topic() {
    let topic = |fault| malformed(Malformed::TopicName(fault));
    check(&[
        (V3, b"\x30\x03\x00\x01+", topic(TopicFault::WildcardInName)),
        (V3, b"\x30\x02\x00\x00", topic(TopicFault::Empty)),
        (V3, b"\x30\x03\x00\x01\x00", topic(TopicFault::NulCharacter)),
        (&[V5], b"\x30\x04\x00\x01#\x00", topic(TopicFault::WildcardInName)),
        (&[V5], b"\x30\x03\x00\x00\x00", violation(ProtocolViolation::TopicMissing)),
        (&[V5], b"\x30\x06\x00\x00\x03\x23\x00\x00", violation(ProtocolViolation::TopicAliasZero)),
        (V3, b"\x32\x05\x00\x01t\x00\x00", violation(ProtocolViolation::PacketIdZero)),
        (ALL, b"\x30\x03\x00\x05t", malformed(Malformed::Truncated)),
        (&[V5], b"\x30\x05\x00\x01t\x05\x00", malformed(Malformed::Truncated)),
    ]);
    assert_eq!(violation(ProtocolViolation::TopicAliasZero).reason_code(), ReasonCode::TopicAliasInvalid);
}

#[test]
fn acknowledgements_with_faults() {
    let code = |code| malformed(Malformed::ReasonCode { code });
    check(&[
        (ALL, &[0x40, 2, 0, 0], violation(ProtocolViolation::PacketIdZero)),
        (V3, &[0x40, 3, 0, 1, 0], malformed(Malformed::TrailingBytes)),
        (ALL, &[0x40, 1, 0], malformed(Malformed::Truncated)),
        (&[V5], &[0x40, 3, 0, 1, 0x03], code(0x03)),
        (&[V5], &[0x62, 3, 0, 1, 0x87], code(0x87)),
        (&[V5], &[0x40, 5, 0, 1, 0, 0, 0], malformed(Malformed::TrailingBytes)),
        (V3, &[0x20, 2, 0, 6], code(6)),
        (&[V311], &[0x20, 2, 2, 0], malformed(Malformed::AcknowledgeFlags)),
        (&[V311], &[0x20, 2, 1, 5], malformed(Malformed::AcknowledgeFlags)),
        (&[V5], &[0x20, 3, 0, 0x04, 0], code(4)),
        (V3, &[0x90, 3, 0, 1, 3], code(3)),
        (&[V5], &[0x90, 4, 0, 1, 0, 0x11], code(0x11)),
        (V3, &[0x90, 2, 0, 1], violation(ProtocolViolation::EmptyList)),
        (&[V5], &[0xb0, 3, 0, 1, 0], violation(ProtocolViolation::EmptyList)),
        (V3, &[0xb0, 3, 0, 1, 0], malformed(Malformed::TrailingBytes)),
        (V3, &[0xe0, 1, 0], malformed(Malformed::TrailingBytes)),
        (&[V5], &[0xe0, 1, 0x91], code(0x91)),
        (&[V5], &[0xf0, 1, 0x80], code(0x80)),
    ]);
}

#[test]
fn subscriptions_with_faults() {
    let filter = |fault| malformed(Malformed::TopicFilter(fault));
    check(&[
        (V3, &[0x82, 2, 0, 1], violation(ProtocolViolation::EmptyList)),
        (&[V5], &[0x82, 3, 0, 1, 0], violation(ProtocolViolation::EmptyList)),
        (V3, &[0xa2, 2, 0, 1], violation(ProtocolViolation::EmptyList)),
        (V3, b"\x82\x06\x00\x00\x00\x01a\x00", violation(ProtocolViolation::PacketIdZero)),
        (V3, b"\x82\x05\x00\x01\x00\x00\x00", filter(TopicFault::Empty)),
        (V3, b"\x82\x07\x00\x01\x00\x02a#\x00", filter(TopicFault::MisplacedWildcard)),
        (V3, b"\xa2\x06\x00\x01\x00\x02+a", filter(TopicFault::MisplacedWildcard)),
        (V3, b"\x82\x0d\x00\x01\x00\x08$share/g\x00", filter(TopicFault::SharedSubscription)),
        (ALL, b"\x82\x05\x00\x01\x00\x01a", malformed(Malformed::Truncated)),
        (&[V311], b"\x82\x06\x00\x01\x00\x01a\x04", malformed(Malformed::SubscriptionOptions)),
        (ALL.split_at(2).0, b"\x82\x06\x00\x01\x00\x01a\x03", malformed(Malformed::Qos)),
        (&[V5], b"\x82\x07\x00\x01\x00\x00\x01a\x40", malformed(Malformed::SubscriptionOptions)),
        (&[V5], b"\x82\x07\x00\x01\x00\x00\x01a\x30", violation(ProtocolViolation::RetainHandling)),
        (
            &[V5],
            b"\x82\x10\x00\x01\x00\x00\x0a$share/g/a\x04",
            violation(ProtocolViolation::NoLocalOnSharedSubscription),
        ),
    ]);
}

#[test]
fn property_blocks_with_faults() {
    check(&[
        (&[V5], b"\x30\x06\x00\x01t\x02\x24\x01", malformed(Malformed::Property { id: 0x24 })),
        (&[V5], b"\x30\x06\x00\x01t\x02\x04\x01", malformed(Malformed::Property { id: 0x04 })),
        (
            &[V5],
            b"\x30\x08\x00\x01t\x04\x01\x00\x01\x00",
            violation(ProtocolViolation::DuplicateProperty { id: 0x01 }),
        ),
        (&[V5], b"\x30\x06\x00\x01t\x02\x01\x02", violation(ProtocolViolation::PropertyValue { id: 0x01 })),
        (&[V5], b"\x30\x06\x00\x01t\x02\x02\x00", malformed(Malformed::Truncated)),
        (
            &[V5],
            b"\x30\x08\x00\x01t\x04\x08\x00\x01#",
            malformed(Malformed::TopicName(TopicFault::WildcardInName)),
        ),
        (&[V5], b"\xf0\x05\x18\x03\x16\x00\x00", violation(ProtocolViolation::AuthenticationMethodMissing)),
    ]);
}

#[test]
fn limits_name_what_is_exceeded() {
    let limits = DecodeLimits { packet_bytes_max: 64, user_properties_max: 1, filters_max: 1 };
    let exceeded = |version, bytes: &[u8], limit: LimitExceeded, reason| {
        let error = decode(version, bytes, &limits).unwrap_err();
        assert_eq!((error, error.reason_code()), (limit.into(), reason));
    };
    // Only the header is there: the body is not needed to refuse the packet.
    let bytes = LimitExceeded::PacketBytes { bytes: 65, bytes_max: 64 };
    exceeded(V311, &[0x30, 63], bytes, ReasonCode::PacketTooLarge);
    let largest = LimitExceeded::PacketBytes { bytes: 268_435_460, bytes_max: 64 };
    exceeded(V311, &[0x30, 0xff, 0xff, 0xff, 0x7f], largest, ReasonCode::PacketTooLarge);
    let filters = LimitExceeded::Filters { max: 1 };
    exceeded(V311, b"\x82\x0a\x00\x01\x00\x01a\x00\x00\x01b\x00", filters, ReasonCode::QuotaExceeded);
    exceeded(V311, b"\xa2\x08\x00\x01\x00\x01a\x00\x01b", filters, ReasonCode::QuotaExceeded);
    let users = LimitExceeded::UserProperties { max: 1 };
    let two = b"\xe0\x0c\x00\x0a\x26\x00\x00\x00\x00\x26\x00\x00\x00\x00";
    exceeded(V5, two, users, ReasonCode::QuotaExceeded);
}

#[test]
fn every_error_has_a_text_and_a_reason_that_disconnect_or_connack_may_carry() {
    use tidegate_mqtt::PacketType::{Connack, Disconnect};
    let errors = [
        malformed(Malformed::TopicFilter(TopicFault::MisplacedWildcard)),
        violation(ProtocolViolation::EmptyList),
        LimitExceeded::Filters { max: 3 }.into(),
        DecodeError::UnsupportedVersion { level: 9 },
    ];
    for error in errors {
        assert!(error.to_string().len() > 10);
        let reason = error.reason_code();
        assert!(reason.is_valid_in(Connack) || reason.is_valid_in(Disconnect), "{reason}");
    }
}

#[test]
fn what_a_version_cannot_say_is_an_error_and_writes_nothing() {
    use tidegate_mqtt::packet::{Auth, Publish};
    use tidegate_mqtt::{Encode, PacketId, Qos};
    let mut out = Vec::new();
    let auth = Auth { reason: ReasonCode::Success, properties: () };
    assert!(matches!(auth.encode(V311, &mut out), Err(EncodeError::NotInVersion { .. })));
    let long = "x".repeat(65_536);
    let publish = Publish {
        dup: false,
        qos: Qos::AtMostOnce,
        retain: false,
        topic: long.as_str(),
        packet_id: None,
        properties: (),
        payload: b"",
    };
    assert_eq!(publish.encode(V311, &mut out), Err(EncodeError::FieldTooLong));
    let contradictory = Publish { topic: "t", packet_id: Some(PacketId::MIN), ..publish };
    assert_eq!(contradictory.encode(V311, &mut out), Err(EncodeError::PacketId));
    let header = Publish { topic: "t", ..publish };
    let huge = tidegate_mqtt::encode_publish_header(&mut out, V311, &header.header(), usize::MAX);
    assert_eq!(huge, Err(EncodeError::PacketTooLarge));
    assert!(out.is_empty());
}
