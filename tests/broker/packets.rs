//! Packets and their answers, one by one: identifiers, flags, codes, and what a packet may not do.

use tidegate_mqtt::packet::Connect;
use tidegate_mqtt::{Encode, PacketType, Property, Version};

use crate::harness::{
    Client, Connack, Filter, Gateway, GatewayOptions, Login, Message, Packet, Will, for_all_versions,
    for_both_versions,
};

fn open(gateway: &Gateway, version: Version, name: &str) -> Client {
    Login::fresh(version, name).open(gateway.address()).unwrap()
}

fn texts(messages: &[Message]) -> Vec<String> {
    messages.iter().map(Message::text).collect()
}

#[test]
fn an_answer_has_the_identifier_of_its_request_and_a_code_for_each_filter_in_order() {
    for_both_versions(|version| {
        let gateway = Gateway::with(&["limits.topic_levels_max=4"]);
        let mut client = open(&gateway, version, "client");
        let failed = if version.is_v5() { 0x8f } else { 0x80 };
        for id in [1, 2, 3] {
            let filters = [("a", 2), ("b", 0), ("c/d/e/f/g", 1), ("d", 1)].map(|(f, q)| Filter::new(f, q));
            assert_eq!(client.send_subscribe(None, &filters).unwrap(), id * 2 - 1);
            let Packet::Suback { id: of, reasons } = client.packet().unwrap() else { panic!("no SUBACK") };
            assert_eq!((of, reasons), (id * 2 - 1, vec![2, 0, failed, 1]));
            let sent = client.send_unsubscribe(&["b", "never", "a", "d"]).unwrap();
            let Packet::Unsuback { id: of, reasons } = client.packet().unwrap() else {
                panic!("no UNSUBACK")
            };
            assert_eq!(of, sent);
            assert_eq!(reasons, if version.is_v5() { vec![0, 0x11, 0, 0] } else { vec![] });
        }
    });
}

#[test]
fn many_filters_in_one_packet_act_like_as_many_packets() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut client = open(&gateway, version, "client");
        // The same filter twice: the last one holds.
        let filters = [Filter::new("a", 2), Filter::new("b", 1), Filter::new("a", 0)];
        assert_eq!(client.subscribe_all(None, &filters).unwrap(), [2, 1, 0]);
        for topic in ["a", "b"] {
            client.publish(&Message::new(topic, topic, 2)).unwrap();
        }
        let (first, second) = (client.message().unwrap(), client.message().unwrap());
        let mut got = [(first.text(), first.qos), (second.text(), second.qos)];
        got.sort();
        assert_eq!(got, [("a".to_owned(), 0), ("b".to_owned(), 1)]);
        client.unsubscribe(&["a", "b"]).unwrap();
        client.subscribe("end", 1).unwrap();
        for topic in ["a", "b", "end"] {
            client.publish(&Message::new(topic, topic, 1)).unwrap();
        }
        assert_eq!(client.messages_until("end").unwrap(), []);
    });
}

#[test]
fn an_unsubscribe_ends_exactly_the_filter_that_it_names() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut client = open(&gateway, version, "client");
        for filter in ["a/+", "a/#", "end"] {
            client.subscribe(filter, 1).unwrap();
        }
        for other in ["a/b", "+/+", "#", "A/+", "a/+/", "a"] {
            client.unsubscribe(&[other]).unwrap();
        }
        client.unsubscribe(&["a/#"]).unwrap();
        for topic in ["a/b", "a/b/c", "end"] {
            client.publish(&Message::new(topic, topic, 1)).unwrap();
        }
        assert_eq!(texts(&client.messages_until("end").unwrap()), ["a/b"]);
    });
}

#[test]
fn what_was_sent_before_an_unsubscribe_is_delivered_to_the_end() {
    for_all_versions(|version| {
        for qos in 1..=2 {
            let gateway = Gateway::start();
            let login = Login::persistent(version, "subscriber");
            let mut subscriber = login.open(gateway.address()).unwrap();
            subscriber.subscribe("a", qos).unwrap();
            let mut publisher = open(&gateway, version, "publisher");
            publisher.publish(&Message::new("a", "begun", qos)).unwrap();
            let sent = subscriber.take().unwrap();
            subscriber.unsubscribe(&["a"]).unwrap();
            publisher.publish(&Message::new("a", "too late", qos)).unwrap();
            let mut subscriber = login.open(gateway.address()).unwrap();
            let again = subscriber.message().unwrap();
            assert_eq!((again.id, again.dup, again.text().as_str()), (sent.id, true, "begun"));
            subscriber.subscribe("end", 1).unwrap();
            publisher.publish(&Message::new("end", "end", 1)).unwrap();
            assert_eq!(subscriber.messages_until("end").unwrap(), []);
        }
    });
}

#[test]
fn a_repeated_subscription_brings_retained_messages_again_and_loses_no_others() {
    for_both_versions(|version| {
        let gateway = Gateway::start();
        let mut publisher = open(&gateway, version, "publisher");
        publisher.publish(&Message::retained("kept", "kept", 1)).unwrap();
        let mut subscriber = open(&gateway, version, "subscriber");
        subscriber.subscribe("#", 1).unwrap();
        assert!(subscriber.message().unwrap().retain);
        let sender = std::thread::spawn(move || {
            publisher.publish_all((0..2000).map(|n| Message::new("live", n.to_string(), 1)), 20).unwrap();
        });
        let (mut live, mut retained) = (0, 0);
        while live < 2000 {
            if live % 100 == 0 {
                subscriber.send_subscribe(None, &[Filter::new("#", 1)]).unwrap();
            }
            let message = subscriber.message().unwrap();
            if message.retain {
                retained += 1;
            } else {
                assert_eq!(message.text(), live.to_string());
                live += 1;
            }
        }
        sender.join().unwrap();
        assert!(retained > 0);
    });
}

#[test]
fn reserved_bits_of_a_fixed_header_end_the_connection() {
    // Each packet as it should be, but for the four low bits of its first byte.
    let right: [&[u8]; 8] = [
        &[0x40, 2, 0, 1],
        &[0x50, 2, 0, 1],
        &[0x62, 2, 0, 1],
        &[0x70, 2, 0, 1],
        b"\x82\x06\x00\x01\x00\x01a\x00",
        b"\xa2\x05\x00\x01\x00\x01a",
        &[0xc0, 0],
        &[0xe0, 0],
    ];
    for_both_versions(|version| {
        let gateway = Gateway::start();
        for packet in right {
            for wrong in (0..16).map(|flags| packet[0] & 0xf0 | flags).filter(|byte| *byte != packet[0]) {
                let mut client = open(&gateway, version, "client");
                let mut bytes = packet.to_vec();
                bytes[0] = wrong;
                client.raw(&bytes).unwrap();
                let reason = client.closed_because().unwrap();
                assert_eq!(reason, version.is_v5().then_some(0x81), "{bytes:02x?}");
            }
        }
    });
}

#[test]
fn connack_comes_first_and_once() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let login = Login::persistent(version, "subscriber");
        let mut subscriber = login.open(gateway.address()).unwrap();
        subscriber.subscribe("a", 2).unwrap();
        subscriber.disconnect().unwrap();
        let mut publisher = open(&gateway, version, "publisher");
        for qos in 1..=2 {
            publisher.publish(&Message::new("a", "waits", qos)).unwrap();
        }
        // `open` fails when anything else is first.
        let mut subscriber = login.open(gateway.address()).unwrap();
        for _ in 0..2 {
            subscriber.message().unwrap();
        }
        subscriber.raw(&[0xc0, 0]).unwrap();
        assert_eq!(subscriber.packet().unwrap(), Packet::Pingresp);
    });
}

#[test]
fn an_identifier_that_was_acknowledged_names_a_new_message_whatever_its_dup_flag() {
    for_all_versions(|version| {
        for qos in 1..=2 {
            let gateway = Gateway::start();
            let mut client = open(&gateway, version, "client");
            client.subscribe("a", qos).unwrap();
            for (text, dup) in [("first", true), ("second", false), ("third", true)] {
                let message = Message { id: 7, dup, ..Message::new("a", text, qos) };
                client.send(&message).unwrap();
                assert!(client.finish(qos, 7).unwrap() < 0x80);
                let got = client.message().unwrap();
                assert_eq!((got.text().as_str(), got.dup), (text, false), "the flag is not handed on");
            }
        }
    });
}

#[test]
fn client_identifiers_of_up_to_23_letters_and_digits_are_taken_and_told_apart() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let names =
            ["a", "A", "0123456789abcdefghijklm", "nopqrstuvwxyzABCDEFGHIJ", "KLMNOPQRSTUVWXYZ0123456"];
        let mut clients: Vec<Client> = names.iter().map(|name| open(&gateway, version, name)).collect();
        for client in &mut clients {
            client.ping().unwrap();
        }
    });
}

#[test]
fn a_message_without_the_retain_flag_and_the_end_of_a_session_leave_the_retained_one_alone() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut publisher = open(&gateway, version, "publisher");
        publisher.publish(&Message::retained("a", "level 2", 2)).unwrap();
        publisher.publish(&Message::retained("a", "level 0", 0)).unwrap();
        publisher.publish(&Message::new("a", "not retained", 1)).unwrap();
        publisher.publish(&Message::new("a", "", 1)).unwrap();
        publisher.disconnect().unwrap();
        let mut reader = open(&gateway, version, "reader");
        reader.subscribe("a", 2).unwrap();
        let kept = reader.message().unwrap();
        assert_eq!((kept.text().as_str(), kept.qos, kept.retain), ("level 0", 0, true));
    });
}

#[test]
fn an_authentication_method_that_is_not_known_is_refused() {
    let gateway = Gateway::start();
    let properties = [Property::AuthenticationMethod("no such method"), Property::AuthenticationData(b"x")];
    let connect = Connect {
        version: Version::V5,
        bridge: false,
        clean_start: true,
        keep_alive: 0,
        client_id: "client",
        will: None,
        user_name: None,
        password: None,
        properties: &properties[..],
    };
    let mut bytes = Vec::new();
    connect.encode(Version::V5, &mut bytes).unwrap();
    let mut client = Client::dial(gateway.address(), Version::V5, None).unwrap();
    client.raw(&bytes).unwrap();
    let answer = client.closed().unwrap();
    assert!(matches!(&answer[..], [Packet::Connack(c)] if c.reason == 0x8c), "{answer:?}");
    // AUTH is for clients that named a method.
    let mut client = open(&gateway, Version::V5, "client");
    client.raw(&[0xf0, 0]).unwrap();
    assert_eq!(client.closed_because().unwrap(), Some(0x82));
}

#[test]
fn response_information_is_given_to_who_asks_and_may_be_told_it() {
    let config = "[access]\nresponse_information = \"replies/%c\"\n";
    let gateway = GatewayOptions::new().config(config).start();
    let told = |login: Login| login.open(gateway.address()).unwrap().connack;
    let asking = |id: &str| Login::fresh(Version::V5, id).response_information(true);
    assert_eq!(told(asking("pump 3")).response_information.as_deref(), Some("replies/pump 3"));
    let made_up = told(asking(""));
    let expected = format!("replies/{}", made_up.assigned_id.unwrap());
    assert_eq!(made_up.response_information, Some(expected));
    for quiet in
        [Login::fresh(Version::V5, "c"), asking("c").response_information(false), asking("a/b"), asking("#")]
    {
        assert_eq!(told(quiet).response_information, None);
    }
    told(Login::fresh(Version::V311, "old"));
    let unconfigured = Gateway::start();
    assert_eq!(asking("c").open(unconfigured.address()).unwrap().connack.response_information, None);
}

#[test]
fn nothing_follows_a_goodbye_in_either_direction() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut subscriber = open(&gateway, version, "subscriber");
        subscriber.subscribe("a", 1).unwrap();
        let mut publisher = open(&gateway, version, "publisher");
        let mut bytes = vec![0xe0, 0];
        bytes.extend(Message { id: 1, ..Message::new("a", "after the goodbye", 1) }.encode(version));
        publisher.raw(&bytes).unwrap();
        assert_eq!(publisher.closed().unwrap(), []);
        open(&gateway, version, "other").publish(&Message::new("a", "end", 1)).unwrap();
        assert_eq!(subscriber.messages_until("end").unwrap(), []);
        // The broker's own goodbye, to a client that broke the rules, is its last packet.
        subscriber.raw(&[0x40, 2, 0, 0, 0xc0, 0]).unwrap();
        let last = subscriber.closed().unwrap();
        assert!(
            last.iter().all(|packet| matches!(packet, Packet::Disconnect { .. })) && last.len() < 2,
            "{last:?}"
        );
    });
}

#[test]
fn an_acknowledgement_of_the_wrong_kind_does_not_end_an_exchange() {
    for_both_versions(|version| {
        let gateway = Gateway::start();
        let login = Login::persistent(version, "subscriber");
        let mut subscriber = login.open(gateway.address()).unwrap();
        subscriber.subscribe("a", 2).unwrap();
        open(&gateway, version, "publisher").publish(&Message::new("a", "x", 2)).unwrap();
        let sent = subscriber.take().unwrap();
        for wrong in [PacketType::Puback, PacketType::Pubcomp] {
            subscriber.ack(wrong, sent.id).unwrap();
            subscriber.closed().unwrap();
            subscriber = login.open(gateway.address()).unwrap();
            let again = subscriber.take().unwrap();
            assert_eq!((again.id, again.dup), (sent.id, true));
        }
        subscriber.settle(&sent).unwrap();
    });
}

/// CONNECT of a device whose packets are small, with the identifier of another one.
fn small(bytes: u32) -> Login {
    Login::persistent(Version::V5, "device").packet_max(bytes).will(Will::new("will", "gone", 1))
}

#[test]
fn a_client_too_small_for_any_connack_that_lets_it_in_is_told_so_if_it_takes_five_bytes() {
    let gateway = Gateway::start();
    let mut watcher = open(&gateway, Version::V311, "watcher");
    watcher.subscribe("will", 1).unwrap();
    let mut device = Login::persistent(Version::V5, "device").open(gateway.address()).unwrap();
    for bytes in [1, 4] {
        let mut client = Client::dial(gateway.address(), Version::V5, None).unwrap();
        client.raw(&small(bytes).encode()).unwrap();
        assert_eq!(client.closed().unwrap(), [], "{bytes}");
    }
    for bytes in [5, 12] {
        let refused = small(bytes).ask(gateway.address()).unwrap();
        assert_eq!(refused.connack, Connack { reason: 0x83, ..Connack::default() }, "{bytes}");
    }
    device.ping().unwrap();
    drop(device);
    let mut client = small(13).open(gateway.address()).unwrap();
    assert!(client.connack.session_present && client.connack.aliases.is_none());
    client.ping().unwrap();
    client.disconnect().unwrap();
    watcher.publish(&Message::new("will", "end", 1)).unwrap();
    assert_eq!(watcher.messages_until("end").unwrap(), [], "who was not let in leaves no will");
}

#[test]
fn a_client_too_small_for_its_own_identifier_is_not_let_in_and_leaves_no_will() {
    let gateway = Gateway::start();
    let mut watcher = open(&gateway, Version::V311, "watcher");
    watcher.subscribe("will", 1).unwrap();
    let nameless = Login { id: String::new(), ..small(16) }.clean(true);
    assert_eq!(nameless.ask(gateway.address()).unwrap().connack.reason, 0x83);
    watcher.publish(&Message::new("will", "end", 1)).unwrap();
    assert_eq!(watcher.messages_until("end").unwrap(), []);
}

#[test]
fn an_answer_too_large_for_the_client_ends_the_connection_with_a_reason() {
    let gateway = Gateway::start();
    let mut client = Login::fresh(Version::V5, "client").packet_max(20).open(gateway.address()).unwrap();
    let filters: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    let filters: Vec<Filter> = filters.iter().map(|filter| Filter::new(filter, 0)).collect();
    client.send_subscribe(None, &filters).unwrap();
    assert_eq!(client.closed_because().unwrap(), Some(0x83));
}
