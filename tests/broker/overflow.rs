//! Full queues: each policy keeps what it says, and every message is accounted for.

use serde_json::Value;
use tidegate_mqtt::ReasonCode;

use crate::harness::{Gateway, Login, Message, Version, for_both_versions};

const LIMIT: u64 = 10;
const PUBLISHED: u64 = 25;

fn gateway(overflow: &str) -> Gateway {
    Gateway::with(&[&format!("queue.messages_max={LIMIT}"), &format!("queue.overflow={overflow}")])
}

fn away(gateway: &Gateway) -> Login {
    let login = Login::persistent(Version::V5, "device");
    let mut device = login.open(gateway.address()).unwrap();
    device.subscribe("a/b", 1).unwrap();
    device.disconnect().unwrap();
    login
}

/// Publishes with a new message each time; how many were accepted.
fn publish(gateway: &Gateway) -> u64 {
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    (0..PUBLISHED)
        .map(|n| publisher.publish(&Message::new("a/b", n.to_string(), 1)).unwrap())
        .filter(|reason| match *reason {
            0..0x80 => true,
            code => {
                assert_eq!(code, ReasonCode::QuotaExceeded.byte());
                false
            }
        })
        .count() as u64
}

fn sum(causes: &Value) -> u64 {
    causes.as_object().map_or(0, |causes| causes.values().filter_map(Value::as_u64).sum())
}

/// Messages and drops of the device's queue, when the status shows it.
fn queue(status: &Value) -> Option<(u64, u64)> {
    let queues = status["queues"].as_array()?;
    let queue = queues.iter().find(|queue| queue["name"] == "device")?;
    Some((queue["messages"].as_u64()?, sum(&queue["dropped"])))
}

fn delivered(gateway: &Gateway, login: &Login) -> Vec<u64> {
    let mut device = login.open(gateway.address()).unwrap();
    (0..LIMIT).map(|_| device.message().unwrap().text().parse().unwrap()).collect()
}

fn assert_no_more(gateway: &Gateway, login: &Login) {
    let mut device = login.open(gateway.address()).unwrap();
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    publisher.publish(&Message::new("a/b", "end", 1)).unwrap();
    assert_eq!(device.messages_until("end").unwrap(), []);
}

#[test]
fn with_reject_the_publisher_is_told_and_the_first_messages_are_kept() {
    let gateway = gateway("reject");
    let login = away(&gateway);
    assert_eq!(publish(&gateway), LIMIT);
    gateway.await_status("a full queue", |status| queue(status).filter(|(messages, _)| *messages == LIMIT));
    assert_eq!(delivered(&gateway, &login), (0..LIMIT).collect::<Vec<_>>());
    assert_no_more(&gateway, &login);
}

#[test]
fn with_reject_an_old_publisher_is_closed_so_that_it_keeps_its_message() {
    let gateway = gateway("reject");
    let login = away(&gateway);
    let mut publisher = Login::fresh(Version::V311, "publisher").open(gateway.address()).unwrap();
    let accepted = (0..PUBLISHED)
        .take_while(|n| publisher.publish(&Message::new("a/b", n.to_string(), 1)).is_ok())
        .count();
    assert_eq!(accepted as u64, LIMIT);
    assert_eq!(delivered(&gateway, &login), (0..LIMIT).collect::<Vec<_>>());
    // With the queue drained the same publisher is welcome again.
    let mut publisher = Login::fresh(Version::V311, "publisher").open(gateway.address()).unwrap();
    publisher.publish(&Message::new("a/b", "again", 1)).unwrap();
}

#[test]
fn with_drop_head_the_newest_messages_are_kept_and_the_dropped_counted() {
    let gateway = gateway("drop-head");
    let login = away(&gateway);
    assert_eq!(publish(&gateway), PUBLISHED);
    let (messages, dropped) = gateway.await_status("the drops", |status| {
        queue(status).filter(|(messages, dropped)| messages + dropped == PUBLISHED)
    });
    assert_eq!((messages, dropped), (LIMIT, PUBLISHED - LIMIT));
    assert_eq!(sum(&gateway.status()["traffic"]["dropped"]), PUBLISHED - LIMIT);
    assert_eq!(delivered(&gateway, &login), (PUBLISHED - LIMIT..PUBLISHED).collect::<Vec<_>>());
    assert_no_more(&gateway, &login);
}

#[test]
fn with_drop_tail_the_oldest_messages_are_kept_and_the_dropped_counted() {
    let gateway = gateway("drop-tail");
    let login = away(&gateway);
    assert_eq!(publish(&gateway), PUBLISHED);
    let (messages, dropped) = gateway.await_status("the drops", |status| {
        queue(status).filter(|(messages, dropped)| messages + dropped == PUBLISHED)
    });
    assert_eq!((messages, dropped), (LIMIT, PUBLISHED - LIMIT));
    assert_eq!(delivered(&gateway, &login), (0..LIMIT).collect::<Vec<_>>());
    assert_no_more(&gateway, &login);
}

#[test]
fn what_a_policy_has_dropped_stays_dropped_after_a_kill() {
    for (overflow, first) in [("drop-head", PUBLISHED - LIMIT), ("drop-tail", 0), ("reject", 0)] {
        let mut gateway = gateway(overflow);
        let login = away(&gateway);
        publish(&gateway);
        gateway.kill();
        gateway.restart();
        assert_eq!(delivered(&gateway, &login), (first..first + LIMIT).collect::<Vec<_>>(), "{overflow}");
        assert_no_more(&gateway, &login);
    }
}

#[test]
fn a_full_queue_of_one_client_is_no_matter_to_others() {
    for_both_versions(|version| {
        let gateway = gateway("drop-head");
        away(&gateway);
        let mut other = Login::fresh(version, "other").open(gateway.address()).unwrap();
        other.subscribe("a/b", 1).unwrap();
        assert_eq!(publish(&gateway), PUBLISHED);
        for n in 0..PUBLISHED {
            assert_eq!(other.message().unwrap().text(), n.to_string());
        }
    });
}

#[test]
fn a_limit_in_bytes_holds_as_well() {
    for_both_versions(|version| {
        let gateway = Gateway::with(&["queue.bytes_max=10KiB", "queue.overflow=drop-head"]);
        let login = away(&gateway);
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        let body = |n: u32| format!("{n:01000}");
        for n in 0..50 {
            publisher.publish(&Message::new("a/b", body(n), 1)).unwrap();
        }
        let status = gateway.status();
        let bytes = status["queues_total"]["bytes"].as_u64().unwrap();
        assert!(bytes <= 10 << 10, "{bytes} bytes");
        let kept = status["queues_total"]["messages"].as_u64().unwrap() as u32;
        assert!((5..=10).contains(&kept), "{kept} messages");
        let mut device = login.open(gateway.address()).unwrap();
        for n in 50 - kept..50 {
            assert_eq!(device.message().unwrap().text(), body(n));
        }
    });
}
