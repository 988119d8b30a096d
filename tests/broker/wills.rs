//! Will messages: when they are published, and when not.

use tidegate_mqtt::ReasonCode;

use crate::harness::{Client, Gateway, Login, Message, Version, Will, for_all_versions, for_both_versions};

fn watcher(gateway: &Gateway) -> Client {
    let mut watcher = Login::fresh(Version::V5, "watcher").open(gateway.address()).unwrap();
    watcher.subscribe("will/#", 1).unwrap();
    watcher
}

fn with_will(version: Version, name: &str) -> Login {
    Login::fresh(version, name).will(Will::new(&format!("will/{name}"), name, 1))
}

/// Everything that `watcher` got up to now.
fn seen(gateway: &Gateway, watcher: &mut Client) -> Vec<String> {
    let mut publisher = Login::fresh(Version::V5, "sentinel").open(gateway.address()).unwrap();
    publisher.publish(&Message::new("will/sentinel", "end", 1)).unwrap();
    watcher.messages_until("end").unwrap().iter().map(Message::text).collect()
}

#[test]
fn a_lost_connection_publishes_the_will_and_a_goodbye_does_not() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut watcher = watcher(&gateway);
        with_will(version, "polite").open(gateway.address()).unwrap().disconnect().unwrap();
        drop(with_will(version, "lost").open(gateway.address()).unwrap());
        let will = watcher.message().unwrap();
        assert_eq!((will.topic.as_str(), will.text().as_str(), will.qos), ("will/lost", "lost", 1));
        assert_eq!(seen(&gateway, &mut watcher), Vec::<String>::new());
    });
}

#[test]
fn a_goodbye_with_will_publishes_it() {
    let gateway = Gateway::start();
    let mut watcher = watcher(&gateway);
    let client = with_will(Version::V5, "asked").open(gateway.address()).unwrap();
    client.disconnect_with(ReasonCode::DisconnectWithWill, None).unwrap();
    assert_eq!(watcher.message().unwrap().text(), "asked");
}

#[test]
fn a_client_that_misbehaves_is_closed_and_its_will_published() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut watcher = watcher(&gateway);
        let mut client = with_will(version, "rude").open(gateway.address()).unwrap();
        client.raw(&[0x00, 0x00]).unwrap();
        client.closed().unwrap();
        assert_eq!(watcher.message().unwrap().text(), "rude");
    });
}

#[test]
fn a_silent_client_is_closed_after_its_keep_alive_and_its_will_published() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut watcher = watcher(&gateway);
        let mut client = with_will(version, "silent").keep_alive(1).open(gateway.address()).unwrap();
        assert_eq!(watcher.message().unwrap().text(), "silent");
        let reason = client.closed_because().unwrap();
        assert_eq!(reason, version.is_v5().then_some(ReasonCode::KeepAliveTimeout.byte()));
    });
}

#[test]
fn a_client_that_speaks_within_its_keep_alive_is_left_alone() {
    for_both_versions(|version| {
        let gateway = Gateway::start();
        let mut watcher = watcher(&gateway);
        let mut client = with_will(version, "lively").keep_alive(1).open(gateway.address()).unwrap();
        let silent = with_will(version, "silent").keep_alive(3).open(gateway.address()).unwrap();
        // The pings go on until the silent client's keep-alive is over, three times as long as the lively one's.
        let will = loop {
            client.ping().unwrap();
            if let Some(will) = watcher.message_within(std::time::Duration::from_millis(300)).unwrap() {
                break will;
            }
        };
        assert_eq!(will.text(), "silent");
        client.ping().unwrap();
        drop(silent);
    });
}

#[test]
fn a_will_of_every_level_arrives_and_is_retained_if_it_says_so() {
    for_all_versions(|version| {
        for qos in 0..=2 {
            let gateway = Gateway::start();
            let mut watcher = Login::fresh(version, "watcher").open(gateway.address()).unwrap();
            watcher.subscribe("will/#", 2).unwrap();
            let will = Will { retain: true, ..Will::new("will/kept", "gone", qos) };
            drop(Login::fresh(version, "client").will(will).open(gateway.address()).unwrap());
            let live = watcher.message().unwrap();
            assert_eq!((live.text().as_str(), live.qos, live.retain), ("gone", qos, false));
            let mut late = Login::fresh(version, "late").open(gateway.address()).unwrap();
            late.subscribe("will/#", 2).unwrap();
            let kept = late.message().unwrap();
            assert_eq!((kept.text().as_str(), kept.qos, kept.retain), ("gone", qos, true));
        }
    });
}

#[test]
fn a_delayed_will_is_published_when_the_client_stays_away() {
    let gateway = Gateway::start();
    let mut watcher = watcher(&gateway);
    let will = Will::new("will/away", "away", 1).with_delay(1);
    drop(Login::persistent(Version::V5, "away").will(will).open(gateway.address()).unwrap());
    assert_eq!(seen(&gateway, &mut watcher), Vec::<String>::new());
    assert_eq!(watcher.message().unwrap().text(), "away");
}

#[test]
fn a_delayed_will_is_not_published_when_the_client_comes_back_in_time() {
    let gateway = Gateway::start();
    let mut watcher = watcher(&gateway);
    let delayed = |name: &str, seconds| {
        let will = Will::new(&format!("will/{name}"), name, 1).with_delay(seconds);
        Login::persistent(Version::V5, name).will(will)
    };
    drop(delayed("back", 2).open(gateway.address()).unwrap());
    let back = Login::persistent(Version::V5, "back").open(gateway.address()).unwrap();
    assert!(back.connack.session_present);
    drop(delayed("away", 3).open(gateway.address()).unwrap());
    assert_eq!(watcher.message().unwrap().text(), "away", "the other will's moment has passed by now");
}

#[test]
fn the_end_of_the_session_publishes_a_delayed_will_at_once() {
    let gateway = Gateway::start();
    let mut watcher = watcher(&gateway);
    let will = Will::new("will/ended", "ended", 1).with_delay(10_000);
    drop(Login::fresh(Version::V5, "ended").will(will).open(gateway.address()).unwrap());
    assert_eq!(watcher.message().unwrap().text(), "ended");
    let will = Will::new("will/expired", "expired", 1).with_delay(10_000);
    drop(Login::persistent(Version::V5, "expired").expiry(1).will(will).open(gateway.address()).unwrap());
    assert_eq!(watcher.message().unwrap().text(), "expired");
}

#[test]
fn a_takeover_does_not_fire_a_delayed_will() {
    let gateway = Gateway::start();
    let mut watcher = watcher(&gateway);
    let will = Will::new("will/taken", "taken", 1).with_delay(1);
    let login = Login::persistent(Version::V5, "device").will(will);
    let mut first = login.open(gateway.address()).unwrap();
    let second = login.open(gateway.address()).unwrap();
    first.closed().unwrap();
    let other = Will::new("will/other", "other", 1).with_delay(2);
    drop(Login::persistent(Version::V5, "other").will(other).open(gateway.address()).unwrap());
    assert_eq!(watcher.message().unwrap().text(), "other");
    second.disconnect().unwrap();
}

#[test]
fn the_will_of_a_connection_that_was_taken_over_never_lands_after_the_new_ones_word() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut watcher = watcher(&gateway);
        let will = Will { retain: true, ..Will::new("will/state", "offline", 1) };
        let login = Login::persistent(version, "device").will(will);
        let mut old = Vec::new();
        for _ in 0..20 {
            let mut device = login.open(gateway.address()).unwrap();
            device.publish(&Message::retained("will/state", "online", 1)).unwrap();
            old.push(device);
        }
        let device = old.pop().unwrap();
        for mut client in old {
            client.closed().unwrap();
        }
        assert_eq!(seen(&gateway, &mut watcher).last().map(String::as_str), Some("online"));
        device.disconnect().unwrap();
    });
}

#[test]
fn wills_of_clients_that_never_return_after_a_kill_are_published_after_the_grace() {
    for_all_versions(|version| {
        let mut gateway = Gateway::with(&["limits.will_grace=1s"]);
        let login = Login::persistent(Version::V5, "watcher");
        let mut watcher = login.open(gateway.address()).unwrap();
        watcher.subscribe("will/#", 1).unwrap();
        let fresh = with_will(version, "fresh").open(gateway.address()).unwrap();
        let kept = Login::persistent(version, "kept").will(Will::new("will/kept", "kept", 1));
        let kept = kept.open(gateway.address()).unwrap();
        with_will(version, "polite").open(gateway.address()).unwrap().disconnect().unwrap();
        // A goodbye has no answer; this one is behind it, and answered only when both are safe.
        watcher.subscribe("fence", 0).unwrap();
        gateway.kill();
        gateway.restart();
        drop((fresh, kept));
        let mut watcher = login.open(gateway.address()).unwrap();
        let mut wills = [watcher.message().unwrap().text(), watcher.message().unwrap().text()];
        wills.sort_unstable();
        assert_eq!(wills, ["fresh", "kept"]);
        assert_eq!(seen(&gateway, &mut watcher), Vec::<String>::new());
    });
}

#[test]
fn a_client_that_returns_within_the_grace_after_a_kill_keeps_its_will() {
    let mut gateway = Gateway::with(&["limits.will_grace=3s"]);
    let login = Login::persistent(Version::V5, "watcher");
    let mut watcher = login.open(gateway.address()).unwrap();
    watcher.subscribe("will/#", 1).unwrap();
    let returning =
        Login::persistent(Version::V311, "returning").will(Will::new("will/returning", "returning", 1));
    let before = returning.open(gateway.address()).unwrap();
    let away = with_will(Version::V311, "away").open(gateway.address()).unwrap();
    gateway.kill();
    gateway.restart();
    drop((before, away));
    let back = returning.open(gateway.address()).unwrap();
    let mut watcher = login.open(gateway.address()).unwrap();
    assert_eq!(watcher.message().unwrap().text(), "away");
    assert_eq!(seen(&gateway, &mut watcher), Vec::<String>::new());
    drop(back);
    assert_eq!(watcher.message().unwrap().text(), "returning");
}
