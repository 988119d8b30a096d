//! QoS 0, 1 and 2 from publisher to subscriber: levels, order, content.

use tidegate_mqtt::{PacketType, ReasonCode};

use crate::harness::{
    Client, Filter, Gateway, Login, Message, Packet, Random, Version, for_all_versions, for_both_versions,
};

#[test]
fn a_message_arrives_with_the_lower_of_the_published_and_the_granted_level() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        for granted in 0..=2 {
            let mut subscriber =
                Login::fresh(version, &format!("subscriber-{granted}")).open(gateway.address()).unwrap();
            subscriber.subscribe("a/b", granted).unwrap();
            for published in 0..=2 {
                let text = format!("{published} to {granted}");
                assert!(publisher.publish(&Message::new("a/b", &text, published)).unwrap() < 0x80);
                let message = subscriber.message().unwrap();
                assert_eq!((message.text(), message.qos), (text, published.min(granted)));
                assert!(!message.dup && !message.retain);
                assert_eq!(message.id != 0, message.qos > 0);
            }
            subscriber.disconnect().unwrap();
        }
    });
}

#[test]
fn the_order_of_a_publisher_is_kept_at_every_level() {
    for_both_versions(|version| {
        let gateway = Gateway::start();
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        for qos in 0..=2 {
            let mut subscriber =
                Login::fresh(version, &format!("subscriber-{qos}")).open(gateway.address()).unwrap();
            subscriber.subscribe("a/+", qos).unwrap();
            for n in 0..200 {
                publisher.publish(&Message::new(&format!("a/{}", n % 3), n.to_string(), qos)).unwrap();
            }
            for n in 0..200 {
                assert_eq!(subscriber.message().unwrap().text(), n.to_string());
            }
            subscriber.disconnect().unwrap();
        }
    });
}

#[test]
fn a_fast_publisher_with_a_window_is_acknowledged_in_order_and_loses_nothing() {
    for_both_versions(|version| {
        let gateway = Gateway::start();
        let mut subscriber = Login::fresh(version, "subscriber").open(gateway.address()).unwrap();
        subscriber.subscribe("load", 1).unwrap();
        let address = gateway.address();
        let publisher = std::thread::spawn(move || {
            let mut publisher = Login::fresh(version, "publisher").open(address).unwrap();
            publisher.publish_all((0..5000).map(|n| Message::new("load", n.to_string(), 1)), 100).unwrap();
        });
        for n in 0..5000 {
            assert_eq!(subscriber.message().unwrap().text(), n.to_string());
        }
        publisher.join().unwrap();
    });
}

#[test]
fn acknowledgements_of_level_1_come_in_the_order_of_the_messages() {
    for_both_versions(|version| {
        let gateway = Gateway::start();
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        let mut bytes = Vec::new();
        for id in 1..=100u16 {
            let message = Message { id, ..Message::new(&format!("a/{}", id % 7), "x", 1) };
            bytes.extend(message.encode(version));
        }
        publisher.raw(&bytes).unwrap();
        for expected in 1..=100u16 {
            let packet = publisher.packet().unwrap();
            assert!(
                matches!(packet, crate::harness::Packet::Puback { id, .. } if id == expected),
                "{packet:?} is not the PUBACK of {expected}"
            );
        }
    });
}

#[test]
fn payloads_of_any_content_and_size_arrive_unchanged() {
    for_both_versions(|version| {
        let gateway = Gateway::start();
        let mut random = Random::for_test("payloads");
        let mut subscriber = Login::fresh(version, "subscriber").open(gateway.address()).unwrap();
        subscriber.subscribe("bytes", 2).unwrap();
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        for len in [0, 1, 127, 128, 4000, 4096, 16_383, 16_384, 65_535, 70_000, 300_000, 1_000_000] {
            for qos in 0..=2 {
                let payload = random.bytes(len);
                publisher.publish(&Message::new("bytes", &payload, qos)).unwrap();
                assert!(subscriber.message().unwrap().payload == payload, "{len} bytes at QoS {qos}");
            }
        }
    });
}

#[test]
fn large_payloads_survive_a_kill() {
    for_both_versions(|version| {
        let mut gateway = Gateway::start();
        let login = Login::persistent(version, "subscriber");
        let mut subscriber = login.open(gateway.address()).unwrap();
        subscriber.subscribe("bytes", 1).unwrap();
        subscriber.disconnect().unwrap();
        let mut random = Random::for_test("large payloads");
        let payloads: Vec<Vec<u8>> =
            [3000, 65_000, 66_000, 200_000, 1_000_000, 10].map(|len| random.bytes(len)).into();
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        for payload in &payloads {
            publisher.publish(&Message::new("bytes", payload, 1)).unwrap();
        }
        gateway.kill();
        gateway.restart();
        let mut subscriber = login.open(gateway.address()).unwrap();
        for payload in &payloads {
            assert!(subscriber.message().unwrap().payload == *payload, "{} bytes", payload.len());
        }
    });
}

#[test]
fn application_properties_travel_unchanged_and_survive_a_kill() {
    let mut gateway = Gateway::start();
    let login = Login::persistent(Version::V5, "subscriber");
    let mut live = Login::fresh(Version::V5, "live").open(gateway.address()).unwrap();
    let mut subscriber = login.open(gateway.address()).unwrap();
    for client in [&mut live, &mut subscriber] {
        client.subscribe("a/b", 1).unwrap();
    }
    subscriber.disconnect().unwrap();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let sent = Message {
        text: true,
        content_type: Some("text/plain".into()),
        response_topic: Some("answers/here".into()),
        correlation: Some(vec![0, 1, 255]),
        user: vec![pair("b", "1"), pair("a", "2"), pair("b", "1"), pair("", "")],
        ..Message::new("a/b", "hello", 1)
    };
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    publisher.publish(&sent).unwrap();
    assert_eq!(Message { id: 0, ..live.message().unwrap() }, sent);
    gateway.kill();
    gateway.restart();
    let mut subscriber = login.open(gateway.address()).unwrap();
    assert_eq!(Message { id: 0, dup: false, ..subscriber.message().unwrap() }, sent);
}

#[test]
fn versions_talk_to_each_other() {
    let gateway = Gateway::start();
    for from in Version::ALL {
        for to in Version::ALL {
            let mut subscriber = Login::fresh(to, "subscriber").open(gateway.address()).unwrap();
            subscriber.subscribe("a/b", 2).unwrap();
            let mut publisher = Login::fresh(from, "publisher").open(gateway.address()).unwrap();
            for qos in 0..=2 {
                publisher.publish(&Message::new("a/b", "hello", qos)).unwrap();
                let message = subscriber.message().unwrap();
                assert_eq!((message.text().as_str(), message.qos), ("hello", qos), "{from} to {to}");
            }
            subscriber.disconnect().unwrap();
            publisher.disconnect().unwrap();
        }
    }
}

#[test]
fn a_level_2_message_that_is_sent_twice_before_its_release_arrives_once() {
    for_all_versions(|version| {
        let mut gateway = Gateway::start();
        let login = Login::persistent(version, "publisher");
        let subscriber_login = Login::persistent(version, "subscriber");
        let mut subscriber = subscriber_login.open(gateway.address()).unwrap();
        subscriber.subscribe("a/b", 2).unwrap();
        let first = Message { id: 7, ..Message::new("a/b", "once", 2) };
        let again = Message { dup: true, ..first.clone() };

        let mut publisher = login.open(gateway.address()).unwrap();
        publisher.send(&first).unwrap();
        assert_eq!(publisher.await_pubrec(7).unwrap(), 0);
        publisher.send(&again).unwrap();
        assert_eq!(publisher.await_pubrec(7).unwrap(), 0);
        drop(publisher);

        let mut publisher = login.open(gateway.address()).unwrap();
        publisher.send(&again).unwrap();
        assert_eq!(publisher.await_pubrec(7).unwrap(), 0);
        gateway.kill();
        gateway.restart();

        let mut publisher = login.open(gateway.address()).unwrap();
        publisher.send(&again).unwrap();
        assert_eq!(publisher.await_pubrec(7).unwrap(), 0);
        assert_eq!(publisher.release(7).unwrap(), 0);
        publisher.send(&Message { id: 7, ..Message::new("a/b", "end", 2) }).unwrap();
        publisher.finish(2, 7).unwrap();

        let mut subscriber = subscriber_login.open(gateway.address()).unwrap();
        let got = subscriber.messages_until("end").unwrap();
        assert_eq!(got.iter().map(Message::text).collect::<Vec<_>>(), ["once"]);
    });
}

#[test]
fn a_release_of_an_unknown_message_is_answered() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        let reason = publisher.release(99).unwrap();
        let expected = if version.is_v5() { ReasonCode::PacketIdentifierNotFound.byte() } else { 0 };
        assert_eq!(reason, expected);
    });
}

#[test]
fn a_release_that_is_repeated_after_a_reconnect_is_no_error() {
    for_all_versions(|version| {
        let mut gateway = Gateway::start();
        let login = Login::persistent(version, "publisher");
        let mut publisher = login.open(gateway.address()).unwrap();
        publisher.publish(&Message { id: 7, ..Message::new("a/b", "once", 2) }).unwrap();
        // As if PUBCOMP had been lost, with the connection or with the process.
        let mut publisher = login.open(gateway.address()).unwrap();
        assert_eq!(publisher.release(7).unwrap(), 0);
        gateway.kill();
        gateway.restart();
        let mut publisher = login.open(gateway.address()).unwrap();
        assert_eq!(publisher.release(7).unwrap(), 0);
    });
}

#[test]
fn a_receipt_of_an_unknown_message_is_answered_and_a_repeated_one_like_the_first() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut client = Login::persistent(version, "client").open(gateway.address()).unwrap();
        client.subscribe("a/b", 2).unwrap();
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        publisher.publish(&Message::new("a/b", "x", 2)).unwrap();
        let message = client.take().unwrap();
        let release = |client: &mut Client, id: u16| {
            client.ack(PacketType::Pubrec, id).unwrap();
            client.packet().unwrap()
        };
        let unknown = if version.is_v5() { ReasonCode::PacketIdentifierNotFound.byte() } else { 0 };
        assert_eq!(release(&mut client, 4711), Packet::Pubrel { id: 4711, reason: unknown });
        for _ in 0..2 {
            assert_eq!(release(&mut client, message.id), Packet::Pubrel { id: message.id, reason: 0 });
        }
        // The release outlives the connection, and is known then too.
        let mut client = Login::persistent(version, "client").open(gateway.address()).unwrap();
        assert_eq!(client.packet().unwrap(), Packet::Pubrel { id: message.id, reason: 0 });
        assert_eq!(release(&mut client, message.id), Packet::Pubrel { id: message.id, reason: 0 });
        client.ack(PacketType::Pubcomp, message.id).unwrap();
        assert_eq!(release(&mut client, message.id), Packet::Pubrel { id: message.id, reason: unknown });
        client.ack(PacketType::Pubcomp, message.id).unwrap();
        client.ping().unwrap();
    });
}

#[test]
fn acknowledgements_that_belong_to_nothing_do_no_harm() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut client = Login::fresh(version, "client").open(gateway.address()).unwrap();
        client.subscribe("a/b", 1).unwrap();
        for kind in [PacketType::Puback, PacketType::Pubcomp] {
            client.ack(kind, 4711).unwrap();
        }
        client.publish(&Message::new("a/b", "fine", 1)).unwrap();
        assert_eq!(client.message().unwrap().text(), "fine");
    });
}

#[test]
fn a_subscriber_may_refuse_a_message_and_gets_the_next() {
    let gateway = Gateway::start();
    let mut subscriber =
        Login::fresh(Version::V5, "subscriber").receive_max(1).open(gateway.address()).unwrap();
    subscriber.subscribe_all(None, &[Filter::new("a/b", 2)]).unwrap();
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    for (text, qos) in [("refused 1", 1), ("refused 2", 2), ("taken", 2)] {
        publisher.publish(&Message::new("a/b", text, qos)).unwrap();
    }
    for kind in [PacketType::Puback, PacketType::Pubrec] {
        let message = subscriber.take().unwrap();
        assert!(message.text().starts_with("refused"));
        subscriber.ack_with(kind, message.id, ReasonCode::ImplementationSpecificError).unwrap();
    }
    assert_eq!(subscriber.message().unwrap().text(), "taken");
}
