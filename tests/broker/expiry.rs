//! Message expiry. Only here and for retained messages does a test let real time pass.

use std::time::Duration;

use crate::harness::{Gateway, Login, Message, Version};

/// Longer than an expiry interval of one second, whatever the rounding.
const OVER_ONE_SECOND: Duration = Duration::from_millis(2100);

fn queue_three(gateway: &Gateway, login: &Login) {
    let mut device = login.open(gateway.address()).unwrap();
    device.subscribe("a/b", 1).unwrap();
    device.disconnect().unwrap();
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    publisher.publish(&Message::new("a/b", "short", 1).with_expiry(1)).unwrap();
    publisher.publish(&Message::new("a/b", "long", 1).with_expiry(1000)).unwrap();
    publisher.publish(&Message::new("a/b", "end", 1)).unwrap();
}

fn assert_only_the_short_one_is_gone(gateway: &Gateway, login: &Login) {
    let mut device = login.open(gateway.address()).unwrap();
    let got = device.messages_until("end").unwrap();
    assert_eq!(got.iter().map(Message::text).collect::<Vec<_>>(), ["long"]);
    if login.version.is_v5() {
        assert!(got[0].expiry.is_some_and(|left| (900..=998).contains(&left)), "{got:?}");
    }
}

#[test]
fn an_expired_message_is_not_delivered_and_the_others_say_how_long_they_have_left() {
    let gateway = Gateway::start();
    let logins = [Version::V311, Version::V5].map(|v| Login::persistent(v, &format!("device-{v}")));
    for login in &logins {
        queue_three(&gateway, login);
    }
    std::thread::sleep(OVER_ONE_SECOND);
    for login in &logins {
        assert_only_the_short_one_is_gone(&gateway, login);
    }
}

#[test]
fn the_time_without_a_running_gateway_counts() {
    let mut gateway = Gateway::start();
    let login = Login::persistent(Version::V5, "device");
    queue_three(&gateway, &login);
    gateway.kill();
    std::thread::sleep(OVER_ONE_SECOND);
    gateway.restart();
    assert_only_the_short_one_is_gone(&gateway, &login);
}

#[test]
fn a_message_that_is_delivered_at_once_has_its_whole_life_before_it() {
    let gateway = Gateway::start();
    let mut subscriber = Login::fresh(Version::V5, "subscriber").open(gateway.address()).unwrap();
    subscriber.subscribe("a/b", 1).unwrap();
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    publisher.publish(&Message::new("a/b", "x", 1).with_expiry(1000)).unwrap();
    assert!(subscriber.message().unwrap().expiry.is_some_and(|left| (990..=1000).contains(&left)));
}

#[test]
fn an_expired_message_counts_as_dropped() {
    let gateway = Gateway::start();
    let login = Login::persistent(Version::V5, "device");
    queue_three(&gateway, &login);
    std::thread::sleep(OVER_ONE_SECOND);
    assert_only_the_short_one_is_gone(&gateway, &login);
    gateway.await_status("one dropped message", |status| {
        let dropped = status["traffic"]["dropped"].as_object()?;
        let total: u64 = dropped.values().filter_map(serde_json::Value::as_u64).sum();
        (total == 1).then_some(())
    });
}
