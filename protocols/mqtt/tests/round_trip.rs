//! Packets and properties made at random survive encoding and decoding, and are incomplete wherever they are
//! cut.
#![allow(clippy::unwrap_used)]

mod support;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::num::{NonZeroU16, NonZeroU32};
use support::{decode, encoded};
use tidegate_mqtt::packet::{
    Ack, Auth, Connack, Connect, Disconnect, Packet, Publish, RetainHandling, Suback, Subscribe,
    SubscribeFilter, SubscribeOptions, Unsuback, Unsubscribe, Will,
};
use tidegate_mqtt::property::{PropertyContext, PropertyId};
use tidegate_mqtt::topic::{check_topic_filter, check_topic_name};
use tidegate_mqtt::{
    DecodeLimits, Decoded, Encode, PacketId, PacketType, Properties, Property, PropertyList, Qos, ReasonCode,
    SubscriptionId, TopicAlias, Version,
};

/// Storage that properties borrow from.
#[derive(Clone, Debug)]
struct Values {
    texts: Vec<String>,
    bytes: Vec<u8>,
    number: u32,
}

fn values() -> impl Strategy<Value = Values> {
    let texts = vec("[a-z€\u{10348}/]{1,12}", 3);
    (texts, vec(any::<u8>(), 0..20), any::<u32>()).prop_map(|(texts, bytes, number)| Values {
        texts,
        bytes,
        number,
    })
}

/// The property with this identifier, with a value from the storage.
fn property(id: PropertyId, values: &Values) -> Property<'_> {
    let Values { texts, bytes, number } = values;
    let text = texts[0].as_str();
    let flag = number & 1 != 0;
    let short = *number as u16;
    match id {
        PropertyId::PayloadFormatIndicator => Property::PayloadFormatIndicator(flag),
        PropertyId::MessageExpiryInterval => Property::MessageExpiryInterval(*number),
        PropertyId::ContentType => Property::ContentType(text),
        PropertyId::ResponseTopic => Property::ResponseTopic(text),
        PropertyId::CorrelationData => Property::CorrelationData(bytes),
        PropertyId::SubscriptionIdentifier => {
            Property::SubscriptionIdentifier(SubscriptionId::new((number >> 4).max(1)).unwrap())
        }
        PropertyId::SessionExpiryInterval => Property::SessionExpiryInterval(*number),
        PropertyId::AssignedClientIdentifier => Property::AssignedClientIdentifier(text),
        PropertyId::ServerKeepAlive => Property::ServerKeepAlive(short),
        PropertyId::AuthenticationMethod => Property::AuthenticationMethod(text),
        PropertyId::AuthenticationData => Property::AuthenticationData(bytes),
        PropertyId::RequestProblemInformation => Property::RequestProblemInformation(flag),
        PropertyId::WillDelayInterval => Property::WillDelayInterval(*number),
        PropertyId::RequestResponseInformation => Property::RequestResponseInformation(flag),
        PropertyId::ResponseInformation => Property::ResponseInformation(text),
        PropertyId::ServerReference => Property::ServerReference(text),
        PropertyId::ReasonString => Property::ReasonString(text),
        PropertyId::ReceiveMaximum => Property::ReceiveMaximum(NonZeroU16::new(short.max(1)).unwrap()),
        PropertyId::TopicAliasMaximum => Property::TopicAliasMaximum(short),
        PropertyId::TopicAlias => Property::TopicAlias(TopicAlias::new(short.max(1)).unwrap()),
        PropertyId::MaximumQos => Property::MaximumQos(if flag { Qos::AtLeastOnce } else { Qos::AtMostOnce }),
        PropertyId::RetainAvailable => Property::RetainAvailable(flag),
        PropertyId::UserProperty => Property::UserProperty((&texts[1], &texts[2])),
        PropertyId::MaximumPacketSize => {
            Property::MaximumPacketSize(NonZeroU32::new((*number).max(1)).unwrap())
        }
        PropertyId::WildcardSubscriptionAvailable => Property::WildcardSubscriptionAvailable(flag),
        PropertyId::SubscriptionIdentifierAvailable => Property::SubscriptionIdentifierAvailable(flag),
        PropertyId::SharedSubscriptionAvailable => Property::SharedSubscriptionAvailable(flag),
    }
}

/// Properties that the context may hold: those that `choice` selects, repeated ones twice.
fn properties<'v>(context: PropertyContext, choice: u32, values: &'v Values) -> Vec<Property<'v>> {
    let allowed = PropertyId::ALL.iter().copied().filter(|id| id.is_allowed_in(context));
    let chosen = allowed.enumerate().filter(|(at, _)| choice >> at & 1 != 0).map(|(_, id)| id);
    let repeated = chosen.flat_map(|id| std::iter::repeat_n(id, if id.repeats_in(context) { 2 } else { 1 }));
    let list: Vec<_> = repeated.map(|id| property(id, values)).collect();
    let has = |id| list.iter().any(|property| property.id() == id);
    // Data of an authentication needs its method.
    match has(PropertyId::AuthenticationData) && !has(PropertyId::AuthenticationMethod) {
        true => list.into_iter().filter(|property| property.id() != PropertyId::AuthenticationData).collect(),
        false => list,
    }
}

fn raw(list: &[Property<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    list.write(&mut out);
    assert_eq!(list.encoded_len(), Ok(out.len()));
    out
}

fn reason_in(packet: PacketType, choice: u32) -> ReasonCode {
    let valid: Vec<_> = ReasonCode::ALL.iter().filter(|reason| reason.is_valid_in(packet)).collect();
    *valid[choice as usize % valid.len()]
}

fn version() -> impl Strategy<Value = Version> {
    select(&Version::ALL[..])
}

fn qos() -> impl Strategy<Value = Qos> {
    select(vec![Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce])
}

fn packet_id() -> impl Strategy<Value = PacketId> {
    (1..=u16::MAX).prop_map(|id| PacketId::new(id).unwrap())
}

fn topic() -> impl Strategy<Value = String> {
    "[a-z0-9 /$€\u{10348}]{1,40}".prop_filter("a topic name", |topic| check_topic_name(topic).is_ok())
}

fn filter() -> impl Strategy<Value = String> {
    let level = prop_oneof![Just("+".to_owned()), "[a-z€]{0,6}"];
    let plain = (vec(level, 1..5), any::<bool>()).prop_map(|(levels, hash)| {
        let levels = levels.join("/");
        if hash { format!("{levels}/#") } else { levels }
    });
    let shared = (any::<bool>(), plain).prop_map(|(shared, plain)| match shared {
        true => format!("$share/group/{plain}"),
        false => plain,
    });
    shared.prop_filter("a filter", |filter| check_topic_filter(filter).is_ok())
}

fn options() -> impl Strategy<Value = SubscribeOptions> {
    let handling = select(vec![RetainHandling::Send, RetainHandling::SendIfNew, RetainHandling::DoNotSend]);
    (qos(), any::<bool>(), any::<bool>(), handling).prop_map(
        |(qos, no_local, retain_as_published, retain_handling)| SubscribeOptions {
            qos,
            no_local,
            retain_as_published,
            retain_handling,
        },
    )
}

/// What `packet` decodes to is written as the same bytes again, and its prefixes are incomplete.
fn check_bytes(version: Version, bytes: &[u8]) -> Result<(), TestCaseError> {
    let packet = decode(version, bytes);
    prop_assert_eq!(encoded(version, &packet), bytes);
    prop_assert_eq!(packet.packet_len(version), Ok(bytes.len()));
    for len in 0..bytes.len() {
        let cut = tidegate_mqtt::decode_next(version, &bytes[..len], &DecodeLimits::PROTOCOL);
        match cut {
            Ok(Decoded::Incomplete { needed }) => prop_assert!(needed > len && needed <= bytes.len().max(2)),
            other => prop_assert!(false, "cut at {}: {:?}", len, other),
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn property_blocks(values in values(), choice in any::<u32>()) {
        for context in PropertyContext::ALL {
            let list = properties(context, choice, &values);
            let raw = raw(&list);
            let view = Properties::parse(&raw, context, &DecodeLimits::PROTOCOL).unwrap();
            prop_assert!(view.iter().eq(list.iter().copied()));
            for id in PropertyId::ALL {
                prop_assert_eq!(view.contains(*id), list.iter().any(|property| property.id() == *id));
            }
            let users = list.iter().filter(|property| property.id() == PropertyId::UserProperty).count();
            prop_assert_eq!(view.user_properties().count(), users);
        }
    }

    #[test]
    fn connect(
        (version, values, choice) in (version(), values(), any::<u32>()),
        (clean_start, retain, bridge) in any::<(bool, bool, bool)>(),
        (qos, topic, keep_alive) in (qos(), topic(), any::<u16>()),
        (has_will, user_name, password) in (any::<bool>(), any::<Option<bool>>(), any::<bool>()),
    ) {
        let in_v5 = |context| match version {
            Version::V5 => raw(&properties(context, choice, &values)),
            _ => Vec::new(),
        };
        let (raw_properties, raw_will) = (in_v5(PropertyContext::Connect), in_v5(PropertyContext::Will));
        let view = |raw, context| Properties::parse(raw, context, &DecodeLimits::PROTOCOL).unwrap();
        let will = has_will.then_some(Will {
            qos,
            retain,
            topic: &topic,
            payload: &values.bytes,
            properties: view(&raw_will, PropertyContext::Will),
        });
        let connect = Connect {
            version,
            bridge: bridge && version != Version::V5,
            clean_start,
            keep_alive,
            client_id: &values.texts[0],
            will,
            user_name: user_name.map(|_| values.texts[1].as_str()),
            password: (password && (user_name.is_some() || version == Version::V5)).then_some(&values.bytes[..]),
            properties: view(&raw_properties, PropertyContext::Connect),
        };
        let bytes = encoded(version, &connect);
        prop_assert_eq!(decode(Version::V311, &bytes), Packet::Connect(connect));
        check_bytes(version, &bytes)?;
    }

    #[test]
    fn publish(
        (version, values, choice) in (version(), values(), any::<u32>()),
        (dup, retain) in any::<(bool, bool)>(),
        (qos, topic, id) in (qos(), topic(), packet_id()),
        payload in vec(any::<u8>(), 0..400),
    ) {
        let list = properties(PropertyContext::Publish, choice, &values);
        let packet_id = (qos != Qos::AtMostOnce).then_some(id);
        let packet = Publish { dup, qos, retain, topic: &topic, packet_id, properties: &list[..], payload: &payload };
        let bytes = encoded(version, &packet);
        let Packet::Publish(found) = decode(version, &bytes) else { panic!() };
        prop_assert_eq!(found.dup, dup && qos != Qos::AtMostOnce);
        prop_assert_eq!((found.qos, found.retain, found.packet_id), (qos, retain, packet_id));
        prop_assert_eq!((found.topic, found.payload), (&topic[..], &payload[..]));
        let expected = if version == Version::V5 { &list[..] } else { &[] };
        prop_assert!(found.properties.iter().eq(expected.iter().copied()));
        let mut in_parts = Vec::new();
        tidegate_mqtt::encode_publish_header(&mut in_parts, version, &packet.header(), payload.len()).unwrap();
        in_parts.extend_from_slice(&payload);
        prop_assert_eq!(&in_parts, &bytes);
        let len = tidegate_mqtt::codec::publish_len(version, &packet.header(), payload.len());
        prop_assert_eq!(len, Ok(bytes.len()));
        check_bytes(version, &bytes)?;
    }

    #[test]
    fn acknowledgements(version in version(), values in values(), choice in any::<u32>(), id in packet_id()) {
        for (kind, context) in [
            (PacketType::Puback, PropertyContext::Puback),
            (PacketType::Pubrec, PropertyContext::Pubrec),
            (PacketType::Pubrel, PropertyContext::Pubrel),
            (PacketType::Pubcomp, PropertyContext::Pubcomp),
        ] {
            let list = properties(context, choice, &values);
            let reason = if version == Version::V5 { reason_in(kind, choice) } else { ReasonCode::Success };
            let mut bytes = Vec::new();
            let ack = Ack { packet_id: id, reason, properties: &list[..] };
            ack.encode_as(kind, version, &mut bytes).unwrap();
            prop_assert_eq!(ack.packet_len(version), Ok(bytes.len()));
            let packet = decode(version, &bytes);
            prop_assert_eq!(packet.packet_type(), kind);
            let (Packet::Puback(found) | Packet::Pubrec(found) | Packet::Pubrel(found) | Packet::Pubcomp(found)) =
                packet else { panic!() };
            prop_assert_eq!((found.packet_id, found.reason), (id, reason));
            check_bytes(version, &bytes)?;
        }
    }

    #[test]
    fn subscribe_and_unsubscribe(
        (version, values, choice) in (version(), values(), any::<u32>()),
        id in packet_id(),
        items in vec((filter(), options()), 1..6),
    ) {
        let filters: Vec<_> = items.iter().map(|(filter, options)| {
            let mut options = *options;
            options.no_local &= !filter.starts_with("$share/");
            if version != Version::V5 {
                options = SubscribeOptions::with_qos(options.qos);
            }
            SubscribeFilter { filter, options }
        }).collect();
        let list = properties(PropertyContext::Subscribe, choice, &values);
        let subscribe = Subscribe { packet_id: id, properties: &list[..], filters: filters.iter().copied() };
        let bytes = encoded(version, &subscribe);
        let Packet::Subscribe(found) = decode(version, &bytes) else { panic!() };
        prop_assert!(found.filters.iter().eq(filters.iter().copied()));
        check_bytes(version, &bytes)?;

        let names = filters.iter().map(|item| item.filter);
        let list = properties(PropertyContext::Unsubscribe, choice, &values);
        let unsubscribe = Unsubscribe { packet_id: id, properties: &list[..], filters: names.clone() };
        let bytes = encoded(version, &unsubscribe);
        let Packet::Unsubscribe(found) = decode(version, &bytes) else { panic!() };
        prop_assert!(found.filters.iter().eq(names));
        check_bytes(version, &bytes)?;
    }

    #[test]
    fn suback_and_unsuback(
        (version, values, id) in (version(), values(), packet_id()),
        choices in vec(any::<u32>(), 1..6),
    ) {
        let codes = choices.iter().map(|&choice| reason_in(PacketType::Suback, choice));
        let list = properties(PropertyContext::Suback, choices[0], &values);
        let bytes = encoded(version, &Suback { packet_id: id, properties: &list[..], reasons: codes.clone() });
        let Packet::Suback(found) = decode(version, &bytes) else { panic!() };
        let as_sent = codes.map(|code| match version {
            Version::V5 => code,
            _ if code.is_error() => ReasonCode::UnspecifiedError,
            _ => code,
        });
        prop_assert!(found.reasons.iter().eq(as_sent));
        check_bytes(version, &bytes)?;

        let codes = choices.iter().map(|&choice| reason_in(PacketType::Unsuback, choice));
        let list = properties(PropertyContext::Unsuback, choices[0], &values);
        let bytes = encoded(version, &Unsuback { packet_id: id, properties: &list[..], reasons: codes.clone() });
        let Packet::Unsuback(found) = decode(version, &bytes) else { panic!() };
        prop_assert_eq!(found.reasons.iter().count(), if version == Version::V5 { codes.len() } else { 0 });
        check_bytes(version, &bytes)?;
    }

    #[test]
    fn connack_disconnect_and_auth(version in version(), values in values(), choice in any::<u32>()) {
        let reason = reason_in(PacketType::Connack, choice);
        let list = properties(PropertyContext::Connack, choice, &values);
        let connack = Connack { session_present: choice & 64 != 0, reason, properties: &list[..] };
        let bytes = encoded(version, &connack);
        let Packet::Connack(found) = decode(version, &bytes) else { panic!() };
        prop_assert_eq!(found.reason.is_error(), reason.is_error());
        prop_assert!(version != Version::V5 || found.reason == reason);
        check_bytes(version, &bytes)?;

        let list = properties(PropertyContext::Disconnect, choice, &values);
        let reason = reason_in(PacketType::Disconnect, choice);
        let bytes = encoded(version, &Disconnect { reason, properties: &list[..] });
        check_bytes(version, &bytes)?;

        let list = properties(PropertyContext::Auth, choice, &values);
        let reason = reason_in(PacketType::Auth, choice);
        let bytes = encoded(Version::V5, &Auth { reason, properties: &list[..] });
        check_bytes(Version::V5, &bytes)?;
    }
}
