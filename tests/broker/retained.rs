//! Retained messages.

use std::collections::BTreeMap;

use crate::harness::{Client, Gateway, Login, Message, Version, for_all_versions, for_both_versions};

/// What a new subscription to `filter` is sent as retained, by topic.
fn retained(gateway: &Gateway, version: Version, filter: &str) -> BTreeMap<String, Message> {
    let mut reader = Login::fresh(version, "reader").open(gateway.address()).unwrap();
    reader.subscribe("sentinel/end", 1).unwrap();
    reader.subscribe(filter, 2).unwrap();
    reader.publish(&Message::new("sentinel/end", "end", 1)).unwrap();
    let messages = reader.messages_until("end").unwrap();
    reader.disconnect().unwrap();
    assert!(messages.iter().all(|message| message.retain), "{messages:?}");
    messages.into_iter().map(|message| (message.topic.clone(), message)).collect()
}

fn publisher(gateway: &Gateway, version: Version) -> Client {
    Login::fresh(version, "publisher").open(gateway.address()).unwrap()
}

#[test]
fn the_last_retained_message_of_a_topic_is_kept_until_an_empty_one_clears_it() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut publisher = publisher(&gateway, version);
        assert!(retained(&gateway, version, "a/b").is_empty());
        for qos in 0..=2 {
            publisher.publish(&Message::retained("a/b", format!("value {qos}"), qos)).unwrap();
            // QoS 0 is not answered; the ping is behind it.
            publisher.ping().unwrap();
            let kept = retained(&gateway, version, "a/b");
            assert_eq!(kept["a/b"].text(), format!("value {qos}"));
            assert_eq!(kept["a/b"].qos, qos);
        }
        publisher.publish(&Message::new("a/b", "not retained", 1)).unwrap();
        assert_eq!(retained(&gateway, version, "a/b")["a/b"].text(), "value 2");
        publisher.publish(&Message::retained("a/b", "", 1)).unwrap();
        assert!(retained(&gateway, version, "a/b").is_empty());
    });
}

#[test]
fn an_established_subscription_sees_retained_messages_as_ordinary_ones() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut subscriber = Login::fresh(version, "subscriber").open(gateway.address()).unwrap();
        subscriber.subscribe("a/b", 1).unwrap();
        let mut publisher = publisher(&gateway, version);
        for payload in ["value", ""] {
            publisher.publish(&Message::retained("a/b", payload, 1)).unwrap();
            let message = subscriber.message().unwrap();
            assert_eq!((message.text().as_str(), message.retain), (payload, false));
        }
    });
}

#[test]
fn a_wildcard_subscription_gets_the_retained_messages_of_all_matching_topics() {
    for_both_versions(|version| {
        let gateway = Gateway::start();
        let mut publisher = publisher(&gateway, version);
        let topics: Vec<String> = (0..500).map(|n| format!("house/{}/{n}", n % 5)).collect();
        publisher.publish_all(topics.iter().map(|topic| Message::retained(topic, topic, 1)), 50).unwrap();
        publisher.publish(&Message::retained("$hidden/x", "x", 1)).unwrap();
        for (filter, count) in
            [("house/#", 500), ("house/3/+", 100), ("house/+/7", 1), ("#", 500), ("+/hidden", 0)]
        {
            let kept = retained(&gateway, version, filter);
            assert_eq!(kept.len(), count, "{filter}");
            assert!(kept.iter().all(|(topic, message)| *topic == message.text()));
        }
    });
}

#[test]
fn retained_messages_survive_a_stop_and_a_kill() {
    for_all_versions(|version| {
        let mut gateway = Gateway::start();
        let set = |gateway: &Gateway, topic: &str, payload: &str| {
            publisher(gateway, version).publish(&Message::retained(topic, payload, 1)).unwrap();
        };
        set(&gateway, "r/kept", "1");
        set(&gateway, "r/replaced", "1");
        set(&gateway, "r/cleared", "1");
        assert!(gateway.stop().success());
        gateway.restart();
        assert_eq!(retained(&gateway, version, "r/#").len(), 3);
        set(&gateway, "r/replaced", "2");
        set(&gateway, "r/cleared", "");
        set(&gateway, "r/new", "2");
        gateway.kill();
        gateway.restart();
        let kept = retained(&gateway, version, "r/#");
        let texts: Vec<(&str, String)> = kept.iter().map(|(topic, m)| (topic.as_str(), m.text())).collect();
        let expected = [("r/kept", "1"), ("r/new", "2"), ("r/replaced", "2")];
        assert_eq!(texts, expected.map(|(topic, text)| (topic, text.to_owned())));
    });
}

#[test]
fn a_retained_message_of_level_0_survives_a_clean_stop() {
    for_both_versions(|version| {
        let mut gateway = Gateway::start();
        let mut publisher = publisher(&gateway, version);
        publisher.publish(&Message::retained("r/zero", "value", 0)).unwrap();
        publisher.ping().unwrap();
        assert!(gateway.stop().success());
        gateway.restart();
        assert_eq!(retained(&gateway, version, "r/#")["r/zero"].text(), "value");
    });
}

#[test]
fn an_expired_retained_message_is_sent_to_nobody() {
    let gateway = Gateway::start();
    let mut publisher = publisher(&gateway, Version::V5);
    publisher.publish(&Message::retained("r/short", "x", 1).with_expiry(1)).unwrap();
    publisher.publish(&Message::retained("r/long", "x", 1).with_expiry(1000)).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2100));
    let kept = retained(&gateway, Version::V5, "r/#");
    assert_eq!(kept.keys().collect::<Vec<_>>(), ["r/long"]);
    assert!(kept["r/long"].expiry.is_some_and(|left| (900..=998).contains(&left)), "{kept:?}");
}

#[test]
fn a_retained_message_reaches_a_subscriber_that_cannot_take_all_at_once() {
    let gateway = Gateway::start();
    let mut publisher = publisher(&gateway, Version::V5);
    publisher.publish_all((0..200).map(|n| Message::retained(&format!("r/{n}"), "x", 1)), 50).unwrap();
    let mut slow = Login::fresh(Version::V5, "slow").receive_max(1).open(gateway.address()).unwrap();
    slow.subscribe("r/#", 1).unwrap();
    let mut topics: Vec<String> = (0..200).map(|_| slow.message().unwrap().topic).collect();
    topics.sort_unstable();
    topics.dedup();
    assert_eq!(topics.len(), 200);
}
