//! Entry points for fuzzers. They panic if the crate breaks a promise, and only then.
//!
//! Decoding takes no memory that its result could show: a packet borrows from the input. What
//! [`fuzz_connection`] checks of memory is that a connection's identifiers stay within its limits.

use crate::codec::{Decoded, Encode, decode, decode_next};
use crate::connection::{Acceptance, Connection, DuplicateAnswer, Event, Received};
use crate::limits::{ConnectionLimits, DecodeLimits};
use crate::packet::Packet;
use crate::property::{Property, PropertyIter};
use crate::reason::ReasonCode;
use crate::types::{PacketType, Qos, Version};
use alloc::vec::Vec;

/// Limits small enough that a fuzzer's inputs reach them.
const LIMITS: ConnectionLimits = ConnectionLimits {
    decode: DecodeLimits { packet_bytes_max: 2048, user_properties_max: 4, filters_max: 8 },
    login_packet_bytes_max: 512,
    login_ms_max: 1000,
    inflight_publishes_max: 4,
    unreleased_publishes_max: 8,
    inbound_aliases_max: 3,
    inbound_alias_bytes_max: 64,
    outbound_aliases_max: 3,
    outbound_alias_bytes_max: 64,
    v31_short_client_ids: false,
};

/// Decodes `input` in every version. A packet that decodes has the meaning of what it is encoded to, and no
/// part of it is a packet.
pub fn fuzz_decode(input: &[u8]) {
    for version in Version::ALL {
        if let Ok(Decoded::Packet { packet, consumed }) = decode_next(version, input, &DecodeLimits::PROTOCOL)
        {
            check_round_trip(version, &packet);
            check_prefixes(version, &input[..consumed]);
        }
    }
}

fn check_round_trip(version: Version, packet: &Packet<'_>) {
    let mut bytes = Vec::new();
    packet.encode(version, &mut bytes).expect("what decodes can be encoded");
    assert_eq!(packet.packet_len(version), Ok(bytes.len()));
    let again = decode(version, &bytes, &DecodeLimits::PROTOCOL).expect("what we encode decodes");
    assert_eq!(&again, packet, "the encoding changed the packet");
}

/// Cutting a packet anywhere leaves an incomplete one. Long packets are cut at some places only.
fn check_prefixes(version: Version, packet: &[u8]) {
    let step = packet.len() / 64 + 1;
    for len in (0..packet.len()).step_by(step) {
        match decode_next(version, &packet[..len], &DecodeLimits::PROTOCOL) {
            Ok(Decoded::Incomplete { needed }) => assert!(len < needed && needed <= packet.len().max(2)),
            other => panic!("{len} bytes of {} are not incomplete: {other:?}", packet.len()),
        }
    }
}

/// Plays `input` to a connection. Its first byte chooses how the server answers; the rest is what the client
/// sends. Every answer must be a packet of the connection's version.
pub fn fuzz_connection(input: &[u8]) {
    let Some((&choice, mut input)) = input.split_first() else {
        return;
    };
    let mut connection = Connection::new(LIMITS, 0);
    let mut out = Vec::new();
    for now in 0u64.. {
        match connection.receive(input, now) {
            Ok(Received::Event { consumed, event }) => {
                assert!((2..=input.len()).contains(&consumed));
                answer(&mut connection, &event, choice, &mut out, now);
                input = &input[consumed..];
            }
            Ok(Received::Incomplete { needed }) => {
                assert!(needed > input.len() && needed <= LIMITS.decode.packet_bytes_max as usize);
                break;
            }
            Ok(Received::Blocked) => break,
            Err(violation) => {
                connection.reject(&mut out, &violation);
                assert!(connection.receive(&[0xc0, 0], now).is_err());
                break;
            }
        }
        assert!(connection.inbound_in_flight() <= LIMITS.inflight_publishes_max);
    }
    if let Some(version) = connection.version() {
        check_output(version, &out);
    }
}

/// Answers as a broker would, slowly if the choice says so.
fn answer(connection: &mut Connection, event: &Event<'_>, choice: u8, out: &mut Vec<u8>, now: u64) {
    let slow = choice & 1 != 0;
    match event {
        Event::Connect(_) if choice & 2 == 0 => {
            let _ = connection.accept(out, &Acceptance::default(), now);
        }
        Event::Connect(_) if choice & 4 == 0 => {
            let _ = connection.authenticate(out, ReasonCode::ContinueAuthentication, None);
        }
        Event::Connect(_) => connection.refuse(out, ReasonCode::NotAuthorized, ()),
        Event::Publish(publish) => {
            assert!(!connection.topic(publish.topic).is_empty());
            match publish.packet_id {
                Some(id) if publish.qos == Qos::AtLeastOnce && !slow => {
                    assert!(connection.puback(out, id, ReasonCode::Success, ()));
                }
                Some(id) if publish.qos == Qos::ExactlyOnce => {
                    let users =
                        PropertyIter(publish.properties.user_properties().map(Property::UserProperty));
                    assert!(connection.pubrec(out, id, ReasonCode::Success, users));
                }
                _ => {}
            }
        }
        Event::Duplicate { packet_id, answer: DuplicateAnswer::Pubrec } => {
            assert!(connection.pubrec(out, *packet_id, ReasonCode::Success, ()));
        }
        Event::Pubrel { ack, known } if *known && !slow => {
            assert!(connection.pubcomp(out, ack.packet_id, ReasonCode::Success, ()));
        }
        Event::Subscribe(subscribe) => {
            let granted = subscribe.filters.map(|item| ReasonCode::granted(item.options.qos));
            let _ = connection.suback(out, subscribe.packet_id, granted, ());
        }
        Event::Auth(_) if !connection.is_open() => {
            let _ = connection.accept(out, &Acceptance::default(), now);
        }
        _ => {}
    }
}

/// Everything that was written is a sequence of whole packets that a server may send.
fn check_output(version: Version, mut out: &[u8]) {
    while !out.is_empty() {
        match decode_next(version, out, &DecodeLimits::PROTOCOL) {
            Ok(Decoded::Packet { packet, consumed }) => {
                assert!(!matches!(packet.packet_type(), PacketType::Connect | PacketType::Subscribe));
                out = &out[consumed..];
            }
            other => panic!("the server wrote what no client can read: {other:?}"),
        }
    }
}
