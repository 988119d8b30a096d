//! Filters, overlapping subscriptions and the options of MQTT 5.0.

use tidegate_mqtt::ReasonCode;

use crate::harness::{Client, Filter, Gateway, Login, Message, Version, for_all_versions, for_both_versions};

/// Filter, topic, whether they match (MQTT 5.0, 4.7).
const MATCHES: [(&str, &str, bool); 28] = [
    ("sport/tennis/player1/#", "sport/tennis/player1", true),
    ("sport/tennis/player1/#", "sport/tennis/player1/ranking", true),
    ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", true),
    ("sport/tennis/player1/#", "sport/tennis/player12", false),
    ("sport/#", "sport", true),
    ("#", "anything/at/all", true),
    ("#", "/", true),
    ("#", "$private/a", false),
    ("+/a", "$private/a", false),
    ("$private/#", "$private/a", true),
    ("$private/+", "$private/a", true),
    ("sport/tennis/+", "sport/tennis/player1", true),
    ("sport/tennis/+", "sport/tennis/player1/ranking", false),
    ("sport/+", "sport", false),
    ("sport/+", "sport/", true),
    ("+/+", "/finance", true),
    ("/+", "/finance", true),
    ("+", "/finance", false),
    ("+/tennis/#", "sport/tennis", true),
    ("+/tennis/#", "tennis/tennis/x", true),
    ("a/+/c", "a/b/c", true),
    ("a/+/c", "a//c", true),
    ("a/+/c", "a/b/b/c", false),
    ("a/b", "A/b", false),
    ("a/b", "a/b/", false),
    ("/", "/", true),
    ("ünï/+", "ünï/çödé", true),
    ("a b/#", "a b/c d", true),
];

/// What `subscriber` gets of one message to `topic`, up to a sentinel that follows it.
fn deliveries(publisher: &mut Client, subscriber: &mut Client, message: &Message) -> Vec<Message> {
    publisher.publish(message).unwrap();
    publisher.publish(&Message::new("sentinel/end", "end", message.qos)).unwrap();
    subscriber.messages_until("end").unwrap()
}

#[test]
fn filters_match_as_the_specification_says() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        for (filter, topic, matches) in MATCHES {
            let mut subscriber = Login::fresh(version, "subscriber").open(gateway.address()).unwrap();
            subscriber.subscribe(filter, 1).unwrap();
            subscriber.subscribe("sentinel/end", 1).unwrap();
            publisher.publish(&Message::new(topic, "x", 1)).unwrap();
            publisher.publish(&Message::new("sentinel/end", "end", 1)).unwrap();
            // A filter that matches the sentinel too may bring it twice; the first one ends the wait.
            let got = subscriber.messages_until("end").unwrap();
            let hit = got.iter().any(|message| message.topic == topic);
            assert_eq!(hit, matches, "{filter} against {topic}");
        }
    });
}

#[test]
fn overlapping_subscriptions_bring_a_message_once_with_the_highest_level() {
    for_both_versions(|version| {
        let gateway = Gateway::start();
        let mut subscriber = Login::fresh(version, "subscriber").open(gateway.address()).unwrap();
        let filters = [Filter::new("a/#", 0), Filter::new("a/+", 2), Filter::new("a/b", 1)];
        assert_eq!(subscriber.subscribe_all(None, &filters).unwrap(), [0, 2, 1]);
        subscriber.subscribe("sentinel/end", 2).unwrap();
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        let got = deliveries(&mut publisher, &mut subscriber, &Message::new("a/b", "x", 2));
        assert_eq!(got.iter().map(|message| message.qos).collect::<Vec<_>>(), [2]);
    });
}

#[test]
fn a_delivery_names_every_subscription_that_it_answers() {
    let gateway = Gateway::start();
    let mut subscriber = Login::persistent(Version::V5, "subscriber").open(gateway.address()).unwrap();
    subscriber.subscribe_all(Some(1), &[Filter::new("a/#", 1)]).unwrap();
    subscriber.subscribe_all(Some(268_435_455), &[Filter::new("a/b", 1), Filter::new("c", 1)]).unwrap();
    subscriber.subscribe_all(None, &[Filter::new("sentinel/end", 1), Filter::new("d", 1)]).unwrap();
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    for (topic, expected) in
        [("a/b", vec![1, 268_435_455]), ("a/x", vec![1]), ("c", vec![268_435_455]), ("d", vec![])]
    {
        let got = deliveries(&mut publisher, &mut subscriber, &Message::new(topic, "x", 1));
        let mut ids: Vec<u32> = got.iter().flat_map(|message| message.subscription_ids.clone()).collect();
        ids.sort_unstable();
        assert_eq!(ids, expected, "{topic}");
    }
    // A new SUBSCRIBE replaces the identifier.
    subscriber.subscribe_all(Some(5), &[Filter::new("c", 1)]).unwrap();
    let got = deliveries(&mut publisher, &mut subscriber, &Message::new("c", "x", 1));
    assert_eq!(got[0].subscription_ids, [5]);
}

#[test]
fn subscriptions_with_their_options_survive_a_kill() {
    let mut gateway = Gateway::start();
    let login = Login::persistent(Version::V5, "subscriber");
    let mut subscriber = login.open(gateway.address()).unwrap();
    let keep = [Filter::new("keep/+", 1).retain_as_published(), Filter::new("sentinel/end", 1)];
    subscriber.subscribe_all(Some(42), &keep).unwrap();
    subscriber.subscribe_all(None, &[Filter::new("own", 1).no_local(), Filter::new("gone", 1)]).unwrap();
    subscriber.unsubscribe(&["gone"]).unwrap();
    gateway.kill();
    gateway.restart();
    let mut subscriber = login.open(gateway.address()).unwrap();
    subscriber.publish(&Message::new("own", "x", 1)).unwrap();
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    publisher.publish(&Message::new("gone", "x", 1)).unwrap();
    let got = deliveries(&mut publisher, &mut subscriber, &Message::retained("keep/a", "x", 1));
    assert_eq!(got.len(), 1, "{got:?}");
    assert_eq!(
        (got[0].topic.as_str(), got[0].retain, &got[0].subscription_ids[..]),
        ("keep/a", true, &[42][..])
    );
}

#[test]
fn a_repeated_subscription_replaces_the_level() {
    for_both_versions(|version| {
        let gateway = Gateway::start();
        let mut subscriber = Login::fresh(version, "subscriber").open(gateway.address()).unwrap();
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        for qos in [2, 0, 1] {
            subscriber.subscribe("a/b", qos).unwrap();
            publisher.publish(&Message::new("a/b", "x", 2)).unwrap();
            assert_eq!(subscriber.message().unwrap().qos, qos);
        }
    });
}

#[test]
fn after_unsuback_nothing_comes_any_more() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut subscriber = Login::fresh(version, "subscriber").open(gateway.address()).unwrap();
        subscriber.subscribe("a/b", 1).unwrap();
        subscriber.subscribe("sentinel/end", 1).unwrap();
        let codes = subscriber.unsubscribe(&["a/b", "never/was"]).unwrap();
        let expected = [0, ReasonCode::NoSubscriptionExisted.byte()];
        assert_eq!(codes, if version.is_v5() { &expected[..] } else { &[] });
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        assert_eq!(deliveries(&mut publisher, &mut subscriber, &Message::new("a/b", "x", 1)), []);
    });
}

#[test]
fn no_local_keeps_a_clients_own_messages_away_and_no_others() {
    let gateway = Gateway::start();
    let mut one = Login::fresh(Version::V5, "one").open(gateway.address()).unwrap();
    let mut two = Login::fresh(Version::V5, "two").open(gateway.address()).unwrap();
    one.subscribe_all(None, &[Filter::new("a/b", 1).no_local()]).unwrap();
    one.publish(&Message::new("a/b", "own", 1)).unwrap();
    two.publish(&Message::new("a/b", "other's", 1)).unwrap();
    assert_eq!(one.message().unwrap().text(), "other's");
}

#[test]
fn the_retain_flag_is_forwarded_only_where_the_subscription_asks_for_it() {
    let gateway = Gateway::start();
    let mut plain = Login::fresh(Version::V5, "plain").open(gateway.address()).unwrap();
    let mut keeping = Login::fresh(Version::V5, "keeping").open(gateway.address()).unwrap();
    plain.subscribe("a/b", 1).unwrap();
    keeping.subscribe_all(None, &[Filter::new("a/b", 1).retain_as_published()]).unwrap();
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    publisher.publish(&Message::retained("a/b", "retained", 1)).unwrap();
    publisher.publish(&Message::new("a/b", "not retained", 1)).unwrap();
    assert_eq!([plain.message().unwrap().retain, plain.message().unwrap().retain], [false, false]);
    assert_eq!([keeping.message().unwrap().retain, keeping.message().unwrap().retain], [true, false]);
}

#[test]
fn retain_handling_decides_when_retained_messages_are_sent() {
    let gateway = Gateway::start();
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    publisher.publish(&Message::retained("a/b", "kept", 1)).unwrap();
    // For each way of handling: what a first and a second SUBSCRIBE bring.
    for (handling, first, second) in [(0, 1, 1), (1, 1, 0), (2, 0, 0)] {
        let name = format!("subscriber-{handling}");
        let mut subscriber = Login::fresh(Version::V5, &name).open(gateway.address()).unwrap();
        subscriber.subscribe("sentinel/end", 1).unwrap();
        for expected in [first, second] {
            subscriber.subscribe_all(None, &[Filter::new("a/b", 1).retain_handling(handling)]).unwrap();
            publisher.publish(&Message::new("sentinel/end", "end", 1)).unwrap();
            let got = subscriber.messages_until("end").unwrap();
            assert_eq!(got.len(), expected, "handling {handling}");
            assert!(got.iter().all(|message| message.retain && message.text() == "kept"));
        }
    }
}

#[test]
fn filters_that_are_none_are_refused() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        for filter in ["", "a/#/b", "a#", "#/a", "a+/b", "+a", "a/b#"] {
            let mut client = Login::fresh(version, "client").open(gateway.address()).unwrap();
            match client.subscribe_all(None, &[Filter::new(filter, 1)]) {
                Ok(codes) => assert!(codes[0] >= 0x80, "{filter} was granted"),
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{filter}: {error}")
                }
            }
        }
        gateway.assert_serves();
    });
}

#[test]
fn names_with_wildcards_cannot_be_published_to() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut watcher = Login::fresh(version, "watcher").open(gateway.address()).unwrap();
        watcher.subscribe("#", 0).unwrap();
        for topic in ["a/+", "a/#", "+", "#", "a/b+"] {
            let mut client = Login::fresh(version, "client").open(gateway.address()).unwrap();
            client.send(&Message { id: 1, ..Message::new(topic, "x", 1) }).unwrap();
            match client.finish(1, 1) {
                Ok(reason) => assert!(reason >= 0x80, "{topic} was accepted"),
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{topic}: {error}"),
            }
        }
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        publisher.publish(&Message::new("fine", "end", 1)).unwrap();
        assert_eq!(watcher.messages_until("end").unwrap(), []);
    });
}

#[test]
fn clients_cannot_pretend_to_be_the_broker() {
    let gateway = Gateway::start();
    let mut watcher = Login::fresh(Version::V5, "watcher").open(gateway.address()).unwrap();
    watcher.subscribe_all(None, &[Filter::new("$SYS/fake", 1), Filter::new("sentinel/end", 1)]).unwrap();
    let mut client = Login::fresh(Version::V5, "client").open(gateway.address()).unwrap();
    let refused = client.publish(&Message::new("$SYS/fake", "x", 1));
    assert!(refused.is_err() || refused.is_ok_and(|reason| reason >= 0x80));
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    publisher.publish(&Message::new("sentinel/end", "end", 1)).unwrap();
    assert_eq!(watcher.messages_until("end").unwrap(), []);
}

#[test]
fn a_thousand_subscriptions_of_one_client_all_work() {
    for_both_versions(|version| {
        let gateway = Gateway::start();
        let mut subscriber = Login::fresh(version, "subscriber").open(gateway.address()).unwrap();
        let names: Vec<String> = (0..1000).map(|n| format!("floor/{}/room/{n}", n % 10)).collect();
        let filters: Vec<Filter<'_>> = names.iter().map(|name| Filter::new(name, 1)).collect();
        for part in filters.chunks(250) {
            assert!(subscriber.subscribe_all(None, part).unwrap().iter().all(|code| *code == 1));
        }
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        publisher.publish_all(names.iter().map(|name| Message::new(name, name, 1)), 50).unwrap();
        for name in &names {
            assert_eq!(subscriber.message().unwrap().topic, *name);
        }
    });
}
