//! The questions of state that are easy to get wrong: quotas, identifiers, half a packet, the last packets of a connection, and what a
//! queued copy remembers.

use std::time::Duration;

use tidegate_mqtt::{PacketType, ReasonCode};

use crate::harness::{
    Client, Connack, Filter, Gateway, Login, Message, Packet, Version, Will, for_all_versions,
    for_both_versions,
};

fn publisher(gateway: &Gateway, version: Version) -> Client {
    Login::fresh(version, "publisher").open(gateway.address()).unwrap()
}

/// What arrives before the answer to a ping, other than the answer.
fn before_pingresp(client: &mut Client) -> Vec<Packet> {
    client.raw(&[0xc0, 0]).unwrap();
    let mut packets = Vec::new();
    loop {
        match client.packet().unwrap() {
            Packet::Pingresp => return packets,
            packet => packets.push(packet),
        }
    }
}

#[test]
fn stray_acknowledgements_make_no_room_for_more_messages() {
    for qos in 1..=2 {
        let gateway = Gateway::start();
        let login = Login::fresh(Version::V5, "subscriber").receive_max(2);
        let mut subscriber = login.open(gateway.address()).unwrap();
        subscriber.subscribe("a", qos).unwrap();
        let mut publisher = publisher(&gateway, Version::V5);
        for n in 0..6 {
            publisher.publish(&Message::new("a", n.to_string(), qos)).unwrap();
        }
        let open = [subscriber.take().unwrap(), subscriber.take().unwrap()];
        for stray in [1000, 1001, 65_535] {
            subscriber.ack(PacketType::Puback, stray).unwrap();
            subscriber.ack(PacketType::Pubcomp, stray).unwrap();
        }
        assert_eq!(before_pingresp(&mut subscriber), []);
        // The same acknowledgement twice is one stray one.
        subscriber.settle(&open[0]).unwrap();
        subscriber.ack(if qos == 1 { PacketType::Puback } else { PacketType::Pubcomp }, open[0].id).unwrap();
        assert_eq!(subscriber.take().unwrap().text(), "2");
        assert_eq!(before_pingresp(&mut subscriber), []);
    }
}

#[test]
fn the_quota_of_a_subscriber_starts_anew_with_each_connection() {
    for qos in 1..=2 {
        let gateway = Gateway::start();
        let login = Login::persistent(Version::V5, "subscriber").receive_max(2);
        let mut subscriber = login.open(gateway.address()).unwrap();
        subscriber.subscribe("a", qos).unwrap();
        let mut publisher = publisher(&gateway, Version::V5);
        for n in 0..5 {
            publisher.publish(&Message::new("a", n.to_string(), qos)).unwrap();
        }
        for _ in 0..3 {
            let open = [subscriber.take().unwrap(), subscriber.take().unwrap()];
            assert_eq!([open[0].text(), open[1].text()], ["0", "1"]);
            assert_eq!(before_pingresp(&mut subscriber), []);
            subscriber = login.open(gateway.address()).unwrap();
        }
        let mut wide = Login { receive_max: Some(4), ..login }.open(gateway.address()).unwrap();
        for n in 0..4 {
            assert_eq!(wide.take().unwrap().text(), n.to_string());
        }
        assert_eq!(before_pingresp(&mut wide), []);
    }
}

#[test]
fn the_quota_of_a_publisher_starts_anew_with_each_connection() {
    let gateway = Gateway::with(&["limits.receive_max=2"]);
    let login = Login::persistent(Version::V5, "publisher");
    for round in 0..3u16 {
        let mut publisher = login.open(gateway.address()).unwrap();
        assert_eq!(publisher.connack.receive_max, Some(2));
        for n in 1..=2 {
            let id = round * 2 + n;
            publisher.send(&Message { id, ..Message::new("a", "x", 2) }).unwrap();
            assert!(publisher.await_pubrec(id).unwrap() < 0x80);
        }
    }
    let mut publisher = login.open(gateway.address()).unwrap();
    for id in 1..=6 {
        assert_eq!(publisher.release(id).unwrap(), 0, "all of them are still held: {id}");
    }
}

#[test]
fn identifiers_wrap_around_an_identifier_that_is_held() {
    for_both_versions(|version| {
        let gateway = Gateway::start();
        let mut subscriber = Login::fresh(version, "subscriber").open(gateway.address()).unwrap();
        subscriber.subscribe("a", 2).unwrap();
        let mut publisher = publisher(&gateway, version);
        publisher.publish(&Message::new("a", "held", 2)).unwrap();
        let held = subscriber.take().unwrap();
        let rest = std::thread::spawn(move || {
            publisher.publish_all((0..66_000).map(|_| Message::new("a", "x", 1)), 500).unwrap();
        });
        let (mut last, mut wrapped) = (held.id, false);
        for _ in 0..66_000 {
            let message = subscriber.take().unwrap();
            assert!(message.id != held.id && message.id != 0);
            wrapped |= message.id < last;
            last = message.id;
            subscriber.settle(&message).unwrap();
        }
        rest.join().unwrap();
        assert!(wrapped);
        subscriber.settle(&held).unwrap();
        subscriber.ping().unwrap();
    });
}

#[test]
fn half_a_packet_was_never_received() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut subscriber = Login::fresh(version, "subscriber").open(gateway.address()).unwrap();
        subscriber.subscribe("a", 2).unwrap();
        for qos in 0..=2 {
            let message = Message::new("a", "half a message", qos);
            let packet = Message { id: u16::from(qos > 0), ..message }.encode(version);
            for cut in [1, 2, packet.len() / 2, packet.len() - 1] {
                let mut publisher = Login::persistent(version, "torn").open(gateway.address()).unwrap();
                publisher.raw(&packet[..cut]).unwrap();
                publisher.half_close().unwrap();
                publisher.closed().unwrap();
            }
        }
        publisher(&gateway, version).publish(&Message::new("a", "end", 2)).unwrap();
        assert_eq!(subscriber.messages_until("end").unwrap(), []);
    });
}

#[test]
fn packets_that_come_with_the_end_of_the_stream_are_still_read() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut subscriber = Login::fresh(version, "subscriber").open(gateway.address()).unwrap();
        subscriber.subscribe("#", 2).unwrap();
        let will = Will::new("will", "must not come", 1);
        for round in 0..10 {
            let login = Login::fresh(version, "short").will(will.clone());
            let mut bytes = login.encode();
            for (qos, id) in [(0, 0), (1, 1), (2, 2)] {
                let message = Message::new("a", format!("{round} at level {qos}"), qos);
                bytes.extend(Message { id, ..message }.encode(version));
            }
            bytes.extend([0xe0, 0]);
            let mut publisher = Client::dial(gateway.address(), version, None).unwrap();
            publisher.raw(&bytes).unwrap();
            publisher.half_close().unwrap();
            publisher.closed().unwrap();
            for qos in 0..=2 {
                assert_eq!(subscriber.message().unwrap().text(), format!("{round} at level {qos}"));
            }
        }
        publisher(&gateway, version).publish(&Message::new("a", "end", 1)).unwrap();
        assert_eq!(subscriber.messages_until("end").unwrap(), []);
    });
}

#[test]
fn a_takeover_publishes_the_will_of_the_connection_that_it_ends() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut watcher = Login::fresh(version, "watcher").open(gateway.address()).unwrap();
        watcher.subscribe("will", 1).unwrap();
        for login in [Login::fresh(version, "device"), Login::persistent(version, "device")] {
            let mut first = login.clone().will(Will::new("will", "gone", 1)).open(gateway.address()).unwrap();
            let second = login.open(gateway.address()).unwrap();
            let reason = first.closed_because().unwrap();
            assert_eq!(reason, version.is_v5().then_some(ReasonCode::SessionTakenOver.byte()));
            assert_eq!(watcher.message().unwrap().text(), "gone");
            second.disconnect().unwrap();
        }
        publisher(&gateway, version).publish(&Message::new("will", "end", 1)).unwrap();
        assert_eq!(watcher.messages_until("end").unwrap(), []);
    });
}

#[test]
fn a_retained_message_says_how_long_it_has_left_across_a_restart() {
    let mut gateway = Gateway::start();
    publisher(&gateway, Version::V5).publish(&Message::retained("a", "x", 1).with_expiry(1000)).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    let left = |gateway: &Gateway| {
        let mut client = Login::fresh(Version::V5, "reader").open(gateway.address()).unwrap();
        client.subscribe("a", 1).unwrap();
        client.message().unwrap().expiry.unwrap()
    };
    let before = left(&gateway);
    assert!((900..=999).contains(&before), "{before}");
    gateway.kill();
    std::thread::sleep(Duration::from_millis(1100));
    gateway.restart();
    assert!((900..before).contains(&left(&gateway)));
}

#[test]
fn each_of_several_overlapping_filters_brings_the_retained_message_with_its_own_terms() {
    for_both_versions(|version| {
        let gateway = Gateway::start();
        publisher(&gateway, version).publish(&Message::retained("a/b", "kept", 2)).unwrap();
        let mut client = Login::fresh(version, "client").open(gateway.address()).unwrap();
        let filters = [Filter::new("a/#", 0), Filter::new("a/+", 2), Filter::new("a/b", 1)];
        assert_eq!(client.subscribe_all(None, &filters).unwrap(), [0, 2, 1]);
        let mut levels: Vec<u8> = (0..3)
            .map(|_| {
                let message = client.message().unwrap();
                assert!(message.retain && message.text() == "kept");
                message.qos
            })
            .collect();
        levels.sort_unstable();
        assert_eq!(levels, [0, 1, 2]);
        assert_eq!(before_pingresp(&mut client), []);
    });
}

#[test]
fn a_shared_filter_brings_no_retained_message_even_beside_one_that_does() {
    let gateway = Gateway::start();
    publisher(&gateway, Version::V5).publish(&Message::retained("a", "kept", 1)).unwrap();
    let mut client = Login::fresh(Version::V5, "client").open(gateway.address()).unwrap();
    let filters = [Filter::new("$share/g/a", 1), Filter::new("a", 1)];
    assert_eq!(client.subscribe_all(None, &filters).unwrap(), [1, 1]);
    assert!(client.message().unwrap().retain);
    assert_eq!(before_pingresp(&mut client), []);
}

#[test]
fn a_queued_copy_keeps_the_terms_under_which_it_was_queued() {
    for restart in [false, true] {
        let mut gateway = Gateway::start();
        let login = Login::persistent(Version::V5, "subscriber");
        let mut subscriber = login.open(gateway.address()).unwrap();
        subscriber.subscribe_all(Some(7), &[Filter::new("a", 1).retain_as_published()]).unwrap();
        subscriber.disconnect().unwrap();
        publisher(&gateway, Version::V5).publish(&Message::retained("a", "queued", 2)).unwrap();
        if restart {
            gateway.kill();
            gateway.restart();
        }
        let mut bytes = login.encode();
        // The subscription changes in the same moment as the client comes back.
        bytes.extend([0x82, 7, 0, 9, 0, 0, 1, b'a', 0x20]);
        let mut subscriber = Client::dial(gateway.address(), Version::V5, None).unwrap();
        subscriber.raw(&bytes).unwrap();
        let queued = subscriber.message().unwrap();
        assert_eq!((queued.qos, queued.retain, queued.subscription_ids), (1, true, vec![7]));
        publisher(&gateway, Version::V5).publish(&Message::retained("a", "live", 2)).unwrap();
        let live = subscriber.message().unwrap();
        assert_eq!((live.qos, live.retain, live.subscription_ids), (0, false, vec![]));
    }
}

#[test]
fn what_follows_a_refused_connect_is_not_processed() {
    for_both_versions(|version| {
        let gateway = Gateway::start();
        let mut subscriber = Login::fresh(version, "subscriber").open(gateway.address()).unwrap();
        subscriber.subscribe("a", 1).unwrap();
        let name = "x".repeat(2000);
        let mut bytes = Login::fresh(version, &name).encode();
        bytes.extend(Message::new("a", "must not come", 0).encode(version));
        let mut refused = Client::dial(gateway.address(), version, None).unwrap();
        refused.raw(&bytes).unwrap();
        let answer = refused.closed().unwrap();
        let refusal = |c: &Connack| c.reason == 0x85 && !c.session_present;
        assert!(matches!(&answer[..], [Packet::Connack(connack)] if refusal(connack)), "{answer:?}");
        publisher(&gateway, version).publish(&Message::new("a", "end", 1)).unwrap();
        assert_eq!(subscriber.messages_until("end").unwrap(), []);
    });
}

#[test]
fn a_level_2_exchange_that_has_begun_is_finished_though_the_message_expires() {
    let gateway = Gateway::start();
    let login = Login::persistent(Version::V5, "subscriber");
    let mut subscriber = login.open(gateway.address()).unwrap();
    subscriber.subscribe("a", 2).unwrap();
    publisher(&gateway, Version::V5).publish(&Message::new("a", "x", 2).with_expiry(1)).unwrap();
    let sent = subscriber.take().unwrap();
    std::thread::sleep(Duration::from_millis(2100));
    let mut subscriber = login.open(gateway.address()).unwrap();
    let again = subscriber.take().unwrap();
    assert_eq!((again.id, again.dup, again.text().as_str()), (sent.id, true, "x"));
    subscriber.settle(&again).unwrap();
}

#[test]
fn a_longer_keep_alive_than_allowed_is_replaced_and_the_client_told() {
    let gateway = Gateway::with(&["limits.keep_alive_max=1s"]);
    for asked in [0, 60] {
        let login = Login::fresh(Version::V5, "client").keep_alive(asked);
        let mut client = login.open(gateway.address()).unwrap();
        assert_eq!(client.connack.keep_alive, Some(1), "asked for {asked}");
        assert_eq!(client.closed_because().unwrap(), Some(ReasonCode::KeepAliveTimeout.byte()));
    }
    let client = Login::fresh(Version::V5, "client").keep_alive(1).open(gateway.address()).unwrap();
    assert_eq!(client.connack.keep_alive, None);
    let mut old = Login::fresh(Version::V311, "old").keep_alive(60).open(gateway.address()).unwrap();
    assert!(old.poll(Duration::from_millis(1800)).unwrap().is_none(), "it cannot be told");
    old.ping().unwrap();
}

#[test]
fn a_device_that_forgot_its_session_may_use_the_identifier_of_a_message_that_it_never_released() {
    for_all_versions(|version| {
        let mut gateway = Gateway::start();
        let mut subscriber = Login::persistent(version, "subscriber").open(gateway.address()).unwrap();
        subscriber.subscribe("a/b", 2).unwrap();
        let login = Login::persistent(version, "device");
        let mut device = login.open(gateway.address()).unwrap();
        device.send(&Message { id: 1, ..Message::new("a/b", "former life", 2) }).unwrap();
        device.await_pubrec(1).unwrap();
        assert_eq!(subscriber.message().unwrap().text(), "former life");
        for kill in [false, true] {
            if kill {
                gateway.kill();
                gateway.restart();
                subscriber = Login::persistent(version, "subscriber").open(gateway.address()).unwrap();
            }
            let mut device = login.open(gateway.address()).unwrap();
            for text in ["one", "two"] {
                device.send(&Message { id: 1, ..Message::new("a/b", text, 1) }).unwrap();
                assert!(device.finish(1, 1).unwrap() < 0x80);
                // After the kill the last one before it may come again.
                assert!(subscriber.messages_until(text).unwrap().iter().all(|message| message.dup));
            }
        }
        // What was begun can still be finished, and only once.
        let mut device = login.open(gateway.address()).unwrap();
        assert_eq!(device.release(1).unwrap(), 0);
        device.send(&Message { id: 1, ..Message::new("a/b", "next", 2) }).unwrap();
        assert!(device.finish(2, 1).unwrap() < 0x80);
        assert_eq!(subscriber.message().unwrap().text(), "next");
    });
}
