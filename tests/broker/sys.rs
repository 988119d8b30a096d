//! The broker's own topics below `$SYS/`.

use crate::harness::{Client, Filter, Gateway, Login, Message, Version, for_both_versions};

/// What dashboards for Mosquitto read, with the beginning of the payload where it is no number.
const READ_BY_DASHBOARDS: [&str; 31] = [
    "version",
    "uptime",
    "clients/total",
    "clients/connected",
    "clients/disconnected",
    "clients/maximum",
    "clients/expired",
    "messages/received",
    "messages/sent",
    "messages/stored",
    "store/messages/count",
    "store/messages/bytes",
    "subscriptions/count",
    "retained messages/count",
    "heap/current",
    "heap/maximum",
    "publish/messages/received",
    "publish/messages/sent",
    "publish/messages/dropped",
    "publish/bytes/received",
    "publish/bytes/sent",
    "bytes/received",
    "bytes/sent",
    "load/messages/received/1min",
    "load/messages/sent/5min",
    "load/publish/received/15min",
    "load/publish/sent/1min",
    "load/publish/dropped/1min",
    "load/bytes/received/1min",
    "load/sockets/1min",
    "load/connections/15min",
];

/// An interval that does not come up within the test.
const NEVER: &str = "admin.sys_interval=12h";

fn value(client: &mut Client, name: &str) -> String {
    let topic = format!("$SYS/broker/{name}");
    client.subscribe(&topic, 1).unwrap();
    let message = client.message().unwrap();
    assert_eq!((message.topic.as_str(), message.retain, message.qos), (topic.as_str(), true, 0));
    client.unsubscribe(&[&topic]).unwrap();
    message.text()
}

#[test]
fn a_new_subscription_gets_the_values_of_now_as_retained_ones() {
    for_both_versions(|version| {
        let gateway = Gateway::with(&[NEVER]);
        let mut client = Login::fresh(version, "dashboard").open(gateway.address()).unwrap();
        for name in READ_BY_DASHBOARDS {
            let value = value(&mut client, name);
            match name {
                "version" => assert!(value.starts_with("tidegate version "), "{value}"),
                "uptime" => assert!(value.ends_with(" seconds"), "{value}"),
                _ => assert!(value.parse::<f64>().is_ok_and(|n| n >= 0.0), "{name}: {value}"),
            }
        }
        assert_eq!(value(&mut client, "clients/connected"), "1");
        let publishes: u64 = value(&mut client, "publish/messages/received").parse().unwrap();
        for n in 0..5 {
            client.publish(&Message::retained(&format!("kept/{n}"), "x", 1)).unwrap();
        }
        assert_eq!(value(&mut client, "publish/messages/received"), (publishes + 5).to_string());
        assert_eq!(value(&mut client, "retained messages/count"), "5");
        assert_eq!(value(&mut client, "store/messages/count"), "5");
    });
}

#[test]
fn a_subscription_gets_new_values_at_each_interval_without_the_retain_flag() {
    for_both_versions(|version| {
        let gateway = Gateway::with(&["admin.sys_interval=100ms"]);
        let mut client = Login::fresh(version, "dashboard").open(gateway.address()).unwrap();
        client.subscribe("$SYS/broker/bytes/received", 0).unwrap();
        let first = client.message().unwrap();
        assert!(first.retain);
        client.ping().unwrap();
        let before: u64 = first.text().parse().unwrap();
        loop {
            let next = client.message().unwrap();
            assert!(!next.retain);
            if next.text().parse::<u64>().unwrap() > before {
                break;
            }
        }
    });
}

#[test]
fn filters_that_begin_with_a_wildcard_do_not_match_them() {
    for_both_versions(|version| {
        let gateway = Gateway::with(&["admin.sys_interval=100ms"]);
        let mut client = Login::fresh(version, "everything").open(gateway.address()).unwrap();
        for filter in ["#", "+/broker/version", "+/broker/#"] {
            client.subscribe(filter, 0).unwrap();
        }
        let mut dashboard = Login::fresh(version, "dashboard").open(gateway.address()).unwrap();
        dashboard.subscribe("$SYS/broker/uptime", 0).unwrap();
        for _ in 0..3 {
            dashboard.message().unwrap();
        }
        dashboard.publish(&Message::new("a", "end", 1)).unwrap();
        assert_eq!(client.messages_until("end").unwrap(), []);
    });
}

#[test]
fn each_queue_has_topics_of_its_own() {
    for_both_versions(|version| {
        let gateway = Gateway::with(&[NEVER]);
        let login = Login::persistent(version, "line/7+#");
        let mut subscriber = login.open(gateway.address()).unwrap();
        subscriber.subscribe("a", 1).unwrap();
        subscriber.disconnect().unwrap();
        let mut client = Login::fresh(version, "dashboard").open(gateway.address()).unwrap();
        for _ in 0..3 {
            client.publish(&Message::new("a", "0123456789", 1)).unwrap();
        }
        let queue = "queues/line%2F7%2B%23";
        assert_eq!(value(&mut client, &format!("{queue}/messages")), "3");
        assert_eq!(value(&mut client, &format!("{queue}/inflight")), "0");
        assert_eq!(value(&mut client, &format!("{queue}/dropped")), "0");
        assert!(value(&mut client, &format!("{queue}/bytes")).parse::<u64>().unwrap() >= 30);
        assert!(value(&mut client, &format!("{queue}/oldest_age_seconds")).parse::<u64>().is_ok());
    });
}

#[test]
fn options_and_identifiers_of_a_subscription_hold_for_them_too() {
    let gateway = Gateway::with(&["admin.sys_interval=100ms"]);
    let mut client = Login::fresh(Version::V5, "dashboard").open(gateway.address()).unwrap();
    let live = Filter::new("$SYS/broker/uptime", 2).retain_handling(2).retain_as_published();
    client.subscribe_all(Some(77), &[live]).unwrap();
    let message = client.message().unwrap();
    assert!(message.retain, "as it was published");
    assert_eq!((message.subscription_ids, message.qos), (vec![77], 0));
    assert_eq!(client.subscribe_all(None, &[Filter::new("$share/g/$SYS/broker/uptime", 1)]).unwrap(), [1]);
}

#[test]
fn an_interval_of_zero_switches_them_off() {
    for_both_versions(|version| {
        let gateway = Gateway::with(&["admin.sys_interval=0ms"]);
        let mut client = Login::fresh(version, "dashboard").open(gateway.address()).unwrap();
        client.subscribe_all(None, &[Filter::new("$SYS/#", 0), Filter::new("a", 0)]).unwrap();
        client.publish(&Message::new("a", "end", 1)).unwrap();
        assert_eq!(client.messages_until("end").unwrap(), []);
    });
}
