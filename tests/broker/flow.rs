//! Flow control in both directions, packet sizes, topic aliases.

use std::collections::BTreeMap;

use tidegate_mqtt::{PacketType, ReasonCode};

use crate::harness::{Client, Gateway, Login, Message, Packet, Version, for_both_versions};

/// PUBLISH packets that have arrived before the answer to a ping.
fn under_way(client: &mut Client) -> Vec<Message> {
    client.raw(&[0xc0, 0]).unwrap();
    let mut messages = Vec::new();
    loop {
        match client.packet().unwrap() {
            Packet::Publish(message) => messages.push(message),
            Packet::Pingresp => return messages,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_client_never_has_more_under_way_than_its_receive_maximum() {
    for qos in 1..=2 {
        let gateway = Gateway::start();
        let login = Login::persistent(Version::V5, "subscriber").receive_max(3);
        let mut subscriber = login.open(gateway.address()).unwrap();
        subscriber.subscribe("a/b", qos).unwrap();
        let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
        publisher.publish_all((0..10).map(|n| Message::new("a/b", n.to_string(), 1)), 10).unwrap();
        for n in 10..20 {
            publisher.publish(&Message::new("a/b", n.to_string(), qos)).unwrap();
        }
        let mut open: Vec<Message> = (0..3).map(|_| subscriber.take().unwrap()).collect();
        assert_eq!(under_way(&mut subscriber), []);
        for n in 3..20 {
            subscriber.settle(&open.remove(0)).unwrap();
            open.push(subscriber.take().unwrap());
            assert_eq!(open[2].text(), n.to_string());
            assert_eq!(under_way(&mut subscriber), []);
        }
    }
}

#[test]
fn a_pubrec_does_not_make_room_and_a_pubcomp_does() {
    let gateway = Gateway::start();
    let mut subscriber =
        Login::fresh(Version::V5, "subscriber").receive_max(1).open(gateway.address()).unwrap();
    subscriber.subscribe("a/b", 2).unwrap();
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    for text in ["one", "two"] {
        publisher.publish(&Message::new("a/b", text, 2)).unwrap();
    }
    let first = subscriber.take().unwrap();
    subscriber.ack(PacketType::Pubrec, first.id).unwrap();
    subscriber.await_pubrel(first.id).unwrap();
    assert_eq!(under_way(&mut subscriber), []);
    subscriber.ack(PacketType::Pubcomp, first.id).unwrap();
    assert_eq!(subscriber.take().unwrap().text(), "two");
}

#[test]
fn the_gateway_limits_what_is_under_way_to_clients_that_name_no_limit() {
    for_both_versions(|version| {
        let gateway = Gateway::with(&["limits.inflight_messages_max=7"]);
        let mut subscriber = Login::fresh(version, "subscriber").open(gateway.address()).unwrap();
        subscriber.subscribe("a/b", 1).unwrap();
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        publisher.publish_all((0..30).map(|n| Message::new("a/b", n.to_string(), 1)), 30).unwrap();
        let open: Vec<Message> = (0..7).map(|_| subscriber.take().unwrap()).collect();
        assert_eq!(under_way(&mut subscriber), []);
        for message in &open {
            subscriber.settle(message).unwrap();
        }
        for n in 7..30 {
            assert_eq!(subscriber.message().unwrap().text(), n.to_string());
        }
    });
}

#[test]
fn a_client_that_exceeds_the_announced_receive_maximum_is_closed() {
    let gateway = Gateway::with(&["limits.receive_max=5"]);
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    for id in 1..=5 {
        publisher.send(&Message { id, ..Message::new("a/b", "x", 2) }).unwrap();
    }
    for id in 1..=5 {
        publisher.await_pubrec(id).unwrap();
    }
    publisher.send(&Message { id: 6, ..Message::new("a/b", "x", 2) }).unwrap();
    assert_eq!(publisher.closed_because().unwrap(), Some(ReasonCode::ReceiveMaximumExceeded.byte()));
}

#[test]
fn an_old_client_that_sends_too_much_waits_until_it_has_released_something() {
    let gateway = Gateway::with(&["limits.receive_max=5"]);
    let mut publisher = Login::fresh(Version::V311, "publisher").open(gateway.address()).unwrap();
    let mut subscriber = Login::fresh(Version::V311, "subscriber").open(gateway.address()).unwrap();
    subscriber.subscribe("a/b", 2).unwrap();
    for id in 1..=8 {
        publisher.send(&Message { id, ..Message::new("a/b", id.to_string(), 2) }).unwrap();
    }
    // A client of MQTT 3.1.1 does not know the limit: it is slowed down, and loses nothing.
    let mut released = 0;
    while released < 8 {
        match publisher.packet().unwrap() {
            Packet::Pubrec { id, .. } => publisher.ack(PacketType::Pubrel, id).unwrap(),
            Packet::Pubcomp { .. } => released += 1,
            other => panic!("{other:?}"),
        }
    }
    for id in 1..=8 {
        assert_eq!(subscriber.message().unwrap().text(), id.to_string());
    }
}

#[test]
fn a_message_larger_than_the_client_takes_is_dropped_for_it_and_the_rest_flows() {
    let gateway = Gateway::start();
    let login = Login::persistent(Version::V5, "small").packet_max(200);
    let mut small = login.open(gateway.address()).unwrap();
    let mut large = Login::fresh(Version::V5, "large").open(gateway.address()).unwrap();
    for client in [&mut small, &mut large] {
        client.subscribe("a/b", 1).unwrap();
    }
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    let payloads = [10, 1000, 20, 150_000, 30].map(|len| vec![b'x'; len]);
    for payload in &payloads {
        assert!(publisher.publish(&Message::new("a/b", payload, 1)).unwrap() < 0x80);
    }
    for payload in &payloads {
        assert_eq!(large.message().unwrap().payload.len(), payload.len());
    }
    for len in [10, 20, 30] {
        assert_eq!(small.message().unwrap().payload.len(), len);
    }
    gateway.await_status("two dropped messages and an empty queue", |status| {
        let dropped = status["traffic"]["dropped"].as_object()?;
        let total: u64 = dropped.values().filter_map(serde_json::Value::as_u64).sum();
        (total == 2 && status["queues_total"]["messages"] == 0).then_some(())
    });
}

#[test]
fn topic_aliases_of_a_client_stand_for_its_topics() {
    let gateway = Gateway::with(&["limits.topic_aliases_max=3"]);
    let mut subscriber = Login::fresh(Version::V5, "subscriber").open(gateway.address()).unwrap();
    subscriber.subscribe("#", 1).unwrap();
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    let with_alias = |topic: &str, alias| Message { alias: Some(alias), ..Message::new(topic, "x", 1) };
    for (topic, alias, expected) in [
        ("first/topic", 1, "first/topic"),
        ("", 1, "first/topic"),
        ("second/topic", 3, "second/topic"),
        ("", 3, "second/topic"),
        ("", 1, "first/topic"),
        ("new/first", 1, "new/first"),
        ("", 1, "new/first"),
    ] {
        publisher.publish(&with_alias(topic, alias)).unwrap();
        let message = subscriber.message().unwrap();
        assert_eq!((message.topic.as_str(), message.alias), (expected, None));
    }
}

#[test]
fn an_alias_out_of_range_or_unknown_ends_the_connection() {
    let gateway = Gateway::with(&["limits.topic_aliases_max=3"]);
    for (topic, alias, reason) in
        [("a/b", 4, ReasonCode::TopicAliasInvalid), ("", 2, ReasonCode::ProtocolError)]
    {
        let mut client = Login::fresh(Version::V5, "client").open(gateway.address()).unwrap();
        client.send(&Message { alias: Some(alias), id: 1, ..Message::new(topic, "x", 1) }).unwrap();
        assert_eq!(client.closed_because().unwrap(), Some(reason.byte()));
    }
    // Aliases belong to a connection, not to a session.
    let login = Login::persistent(Version::V5, "device");
    let mut device = login.open(gateway.address()).unwrap();
    device.publish(&Message { alias: Some(1), ..Message::new("a/b", "x", 1) }).unwrap();
    device.disconnect().unwrap();
    let mut device = login.open(gateway.address()).unwrap();
    device.send(&Message { alias: Some(1), id: 1, ..Message::new("", "x", 1) }).unwrap();
    assert_eq!(device.closed_because().unwrap(), Some(ReasonCode::ProtocolError.byte()));
    gateway.assert_serves();
}

/// Resolves the aliases of the gateway, as a client does.
fn resolve(known: &mut BTreeMap<u16, String>, message: &Message) -> String {
    match message.alias {
        None => message.topic.clone(),
        Some(alias) if message.topic.is_empty() => known[&alias].clone(),
        Some(alias) => {
            known.insert(alias, message.topic.clone());
            message.topic.clone()
        }
    }
}

#[test]
fn the_gateway_uses_aliases_within_what_the_client_grants_and_starts_afresh_on_a_new_connection() {
    let gateway = Gateway::start();
    let login = Login::persistent(Version::V5, "subscriber").aliases(2);
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    login.open(gateway.address()).unwrap().subscribe("long/topic/#", 1).unwrap();
    for round in 0..2 {
        let mut subscriber = login.open(gateway.address()).unwrap();
        let mut known = BTreeMap::new();
        for n in 0..30 {
            let topic = format!("long/topic/name/that/repeats/{}", n % 5);
            publisher.publish(&Message::new(&topic, "x", 1)).unwrap();
            let message = subscriber.message().unwrap();
            assert!(message.alias.is_none_or(|alias| (1..=2).contains(&alias)), "round {round}: {message:?}");
            assert_eq!(resolve(&mut known, &message), topic, "round {round}");
        }
        drop(subscriber);
    }
}

#[test]
fn a_client_that_grants_no_aliases_gets_none() {
    let gateway = Gateway::start();
    let mut subscriber = Login::fresh(Version::V5, "subscriber").open(gateway.address()).unwrap();
    subscriber.subscribe("a/b", 1).unwrap();
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    for _ in 0..5 {
        publisher.publish(&Message::new("a/b", "x", 1)).unwrap();
        let message = subscriber.message().unwrap();
        assert_eq!((message.topic.as_str(), message.alias), ("a/b", None));
    }
}
