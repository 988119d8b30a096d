//! Text on the wire: what is no UTF-8 ends the connection, and what is travels as it is.

use tidegate_mqtt::packet::{Connect, Subscribe, SubscribeFilter, SubscribeOptions, Unsubscribe, Will};
use tidegate_mqtt::{Encode, PacketId, Property, Qos, Version};

use crate::harness::{Client, Gateway, Login, Message, for_all_versions};

/// Stands for the bytes that are no text.
const HOLE: &str = "@@@";

/// A surrogate, bytes that occur in no text, an overlong form, and the character that is forbidden.
const NO_TEXT: [[u8; 3]; 5] =
    [[0xed, 0xa0, 0x80], [0xff, 0xfe, 0xfd], [0xc0, 0x80, b'a'], [0xe2, 0x82, b'a'], [b'a', 0, b'b']];

/// The packet with the hole filled; it has exactly one.
fn filled(mut packet: Vec<u8>, bytes: [u8; 3]) -> Vec<u8> {
    let at: Vec<usize> =
        (0..packet.len() - 2).filter(|at| packet[*at..*at + 3] == *HOLE.as_bytes()).collect();
    assert_eq!(at.len(), 1, "one hole in {packet:?}");
    packet[at[0]..at[0] + 3].copy_from_slice(&bytes);
    packet
}

/// CONNECT packets with a hole in each of their texts.
fn connects(version: Version) -> Vec<Vec<u8>> {
    let plain = Connect {
        version,
        bridge: false,
        clean_start: true,
        keep_alive: 0,
        client_id: "client",
        will: None,
        user_name: None,
        password: None,
        properties: &[][..],
    };
    let will =
        |topic| Will { qos: Qos::AtMostOnce, retain: false, topic, payload: b"x", properties: &[][..] };
    let pair = [Property::UserProperty(("name", HOLE))];
    let encode = |connect: &Connect<'_, &[Property<'_>]>| {
        let mut out = Vec::new();
        connect.encode(version, &mut out).unwrap();
        out
    };
    let mut packets = vec![
        encode(&Connect { client_id: HOLE, ..plain }),
        encode(&Connect { will: Some(will(HOLE)), ..plain }),
        encode(&Connect { user_name: Some(HOLE), ..plain }),
    ];
    if version.is_v5() {
        packets.push(encode(&Connect { properties: &pair, ..plain }));
    }
    packets
}

/// Packets of an open connection with a hole in each of their texts.
fn others(version: Version) -> Vec<Vec<u8>> {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let id = PacketId::new(1).unwrap();
    let mut packets = vec![Message::new(HOLE, "x", 0).encode(version)];
    let mut out = Vec::new();
    let filters = [SubscribeFilter { filter: HOLE, options: SubscribeOptions::default() }];
    Subscribe { packet_id: id, properties: (), filters: filters.into_iter() }
        .encode(version, &mut out)
        .unwrap();
    packets.push(std::mem::take(&mut out));
    Unsubscribe { packet_id: id, properties: (), filters: [HOLE].into_iter() }
        .encode(version, &mut out)
        .unwrap();
    packets.push(out);
    if version.is_v5() {
        let plain = Message::new("a", "x", 0);
        packets.push(Message { content_type: Some(HOLE.into()), ..plain.clone() }.encode(version));
        packets.push(Message { response_topic: Some(HOLE.into()), ..plain.clone() }.encode(version));
        packets.push(Message { user: vec![pair(HOLE, "value")], ..plain.clone() }.encode(version));
        packets.push(Message { user: vec![pair("name", HOLE)], ..plain }.encode(version));
    }
    packets
}

#[test]
fn what_is_no_text_ends_the_connection_wherever_it_stands() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        for bytes in NO_TEXT {
            for packet in connects(version) {
                let mut client = Client::dial(gateway.address(), version, None).unwrap();
                client.raw(&filled(packet, bytes)).unwrap();
                let answer = client.closed().unwrap();
                let accepted = |p: &crate::harness::Packet| matches!(p, crate::harness::Packet::Connack(connack) if connack.reason == 0);
                assert!(!answer.iter().any(accepted), "{bytes:x?}: {answer:?}");
            }
            for packet in others(version) {
                let mut client = Login::fresh(version, "client").open(gateway.address()).unwrap();
                client.raw(&filled(packet, bytes)).unwrap();
                let reason = client.closed_because().unwrap();
                if version.is_v5() {
                    let expected = [0x81, 0x82, 0x8f, 0x90].map(Some);
                    assert!(expected.contains(&reason), "{bytes:x?}: {reason:x?}");
                }
            }
        }
        gateway.assert_serves();
    });
}

#[test]
fn a_byte_order_mark_is_a_character_like_any_other() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut marked = Login::fresh(version, "\u{feff}client").open(gateway.address()).unwrap();
        let mut plain = Login::fresh(version, "client").open(gateway.address()).unwrap();
        marked.subscribe("\u{feff}a/b", 1).unwrap();
        plain.subscribe("a/b", 1).unwrap();
        for topic in ["\u{feff}a/b", "a/b"] {
            plain.publish(&Message::new(topic, topic, 1)).unwrap();
        }
        marked.publish(&Message::new("\u{feff}a/b", "end", 1)).unwrap();
        plain.publish(&Message::new("a/b", "end", 1)).unwrap();
        let got = marked.messages_until("end").unwrap();
        assert_eq!(got.iter().map(|m| m.topic.as_str()).collect::<Vec<_>>(), ["\u{feff}a/b"]);
        let got = plain.messages_until("end").unwrap();
        assert_eq!(got.iter().map(|m| m.topic.as_str()).collect::<Vec<_>>(), ["a/b"]);
    });
}

#[test]
fn names_are_compared_byte_by_byte() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut client = Login::fresh(version, "client").open(gateway.address()).unwrap();
        // The same letter, composed and decomposed; upper and lower case; with and without a slash.
        for filter in ["\u{c5}", "acc", "/fin", "a//b"] {
            client.subscribe(filter, 1).unwrap();
        }
        for topic in ["A\u{30a}", "ACC", "fin", "/fin/", "a/b", "a//b/", " acc"] {
            client.publish(&Message::new(topic, topic, 1)).unwrap();
        }
        client.publish(&Message::new("acc", "end", 1)).unwrap();
        assert_eq!(client.messages_until("end").unwrap(), []);
    });
}
