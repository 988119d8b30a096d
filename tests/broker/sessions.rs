//! CONNECT, session present, takeover, clean start, session expiry.

use tidegate_mqtt::ReasonCode;

use crate::harness::{
    Client, Gateway, Login, Message, PATIENCE, Packet, Version, eventually, for_all_versions,
    for_both_versions,
};

#[test]
fn a_kept_session_is_resumed_with_what_was_published_meanwhile() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let login = Login::persistent(version, "device");
        let mut device = login.open(gateway.address()).unwrap();
        assert!(!device.connack.session_present);
        device.subscribe("a/b", 1).unwrap();
        device.disconnect().unwrap();

        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        publisher.publish(&Message::new("a/b", "while away", 1)).unwrap();

        let mut device = login.open(gateway.address()).unwrap();
        assert_eq!(device.connack.session_present, version != Version::V31, "MQTT 3.1 cannot say it");
        assert_eq!(device.message().unwrap().text(), "while away");
    });
}

#[test]
fn a_clean_start_throws_the_old_session_away() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut device = Login::persistent(version, "device").open(gateway.address()).unwrap();
        device.subscribe("a/b", 1).unwrap();
        device.disconnect().unwrap();
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        publisher.publish(&Message::new("a/b", "of the old session", 1)).unwrap();

        let mut device = Login::fresh(version, "device").open(gateway.address()).unwrap();
        assert!(!device.connack.session_present);
        device.subscribe("sentinel", 1).unwrap();
        publisher.publish(&Message::new("a/b", "without a subscription", 1)).unwrap();
        publisher.publish(&Message::new("sentinel", "end", 1)).unwrap();
        assert_eq!(device.messages_until("end").unwrap(), []);
        device.disconnect().unwrap();

        let device = Login::persistent(version, "device").open(gateway.address()).unwrap();
        assert!(!device.connack.session_present, "a clean session is not kept either");
    });
}

#[test]
fn a_session_that_ends_with_its_connection_is_gone_after_a_lost_connection_too() {
    for_both_versions(|version| {
        let gateway = Gateway::start();
        let mut device = Login::fresh(version, "device").open(gateway.address()).unwrap();
        device.subscribe("a/b", 1).unwrap();
        drop(device);
        gateway.await_status("the session's end", |status| {
            (status["sessions"]["connected"] == 0 && status["subscriptions"] == 0).then_some(())
        });
        let device = Login::persistent(version, "device").open(gateway.address()).unwrap();
        assert!(!device.connack.session_present);
    });
}

#[test]
fn sessions_and_their_messages_survive_a_clean_stop_and_a_kill() {
    for_all_versions(|version| {
        let mut gateway = Gateway::start();
        let login = Login::persistent(version, "device");
        let mut device = login.open(gateway.address()).unwrap();
        device.subscribe("a/+", 2).unwrap();
        device.disconnect().unwrap();
        let publish = |gateway: &Gateway, text: &str| {
            let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
            publisher.publish(&Message::new("a/1", text, 1)).unwrap();
            publisher.publish(&Message::new("a/2", text, 2)).unwrap();
        };

        publish(&gateway, "before the stop");
        assert!(gateway.stop().success());
        gateway.restart();
        publish(&gateway, "before the kill");
        gateway.kill();
        gateway.restart();
        publish(&gateway, "after both");

        let mut device = login.open(gateway.address()).unwrap();
        assert_eq!(device.connack.session_present, version != Version::V31);
        for text in ["before the stop", "before the kill", "after both"] {
            for topic in ["a/1", "a/2"] {
                let message = device.message().unwrap();
                assert_eq!((message.topic.as_str(), message.text().as_str()), (topic, text));
            }
        }
    });
}

#[test]
fn a_second_connection_takes_the_session_over_with_all_that_is_unsettled() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let login = Login::persistent(version, "device");
        let mut first = login.open(gateway.address()).unwrap();
        first.subscribe("a/b", 1).unwrap();
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        for text in ["one", "two", "three"] {
            publisher.publish(&Message::new("a/b", text, 1)).unwrap();
        }
        assert_eq!(first.message().unwrap().text(), "one");
        // A round trip makes sure that the acknowledgement has arrived before the other connection does.
        first.ping().unwrap();

        let mut second = login.open(gateway.address()).unwrap();
        let farewell = first.closed_because().unwrap();
        assert_eq!(farewell, version.is_v5().then_some(ReasonCode::SessionTakenOver.byte()));
        assert_eq!(second.message().unwrap().text(), "two");
        assert_eq!(second.message().unwrap().text(), "three");
        publisher.publish(&Message::new("a/b", "four", 1)).unwrap();
        assert_eq!(second.message().unwrap().text(), "four");
    });
}

#[test]
fn many_takeovers_in_a_row_leave_one_connection_that_works() {
    for_both_versions(|version| {
        let gateway = Gateway::start();
        let login = Login::persistent(version, "device");
        let mut device = login.open(gateway.address()).unwrap();
        device.subscribe("a/b", 1).unwrap();
        let mut old = Vec::new();
        for _ in 0..50 {
            old.push(std::mem::replace(&mut device, login.open(gateway.address()).unwrap()));
        }
        for mut client in old {
            client.closed().unwrap();
        }
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        publisher.publish(&Message::new("a/b", "once", 1)).unwrap();
        assert_eq!(device.message().unwrap().text(), "once");
    });
}

#[test]
fn a_session_expires_after_its_interval_and_not_before() {
    let gateway = Gateway::start();
    let long = Login::fresh(Version::V5, "long").clean(false).expiry(1000);
    let short = Login::fresh(Version::V5, "short").clean(false).expiry(1);
    for login in [&long, &short] {
        let mut device = login.open(gateway.address()).unwrap();
        device.subscribe("a/b", 1).unwrap();
        device.disconnect().unwrap();
    }
    gateway.await_status("the short session's end", |status| {
        (status["sessions"]["disconnected"] == 1 && status["subscriptions"] == 1).then_some(())
    });
    assert!(long.open(gateway.address()).unwrap().connack.session_present);
    assert!(!short.open(gateway.address()).unwrap().connack.session_present);
}

#[test]
fn the_time_that_a_session_was_away_counts_across_a_restart() {
    let mut gateway = Gateway::start();
    let login = Login::fresh(Version::V5, "short").clean(false).expiry(1);
    login.open(gateway.address()).unwrap().disconnect().unwrap();
    gateway.kill();
    gateway.restart();
    gateway
        .await_status("the session's end", |status| (status["sessions"]["disconnected"] == 0).then_some(()));
    assert!(!login.open(gateway.address()).unwrap().connack.session_present);
}

#[test]
fn a_disconnect_may_change_the_session_expiry() {
    let gateway = Gateway::start();
    let login = Login::persistent(Version::V5, "device");
    let device = login.open(gateway.address()).unwrap();
    device.disconnect_with(ReasonCode::Success, Some(0)).unwrap();
    assert!(!login.open(gateway.address()).unwrap().connack.session_present);
}

#[test]
fn a_client_without_a_name_gets_one_unless_its_session_is_to_be_kept() {
    let gateway = Gateway::start();
    let named = Login::fresh(Version::V5, "").open(gateway.address()).unwrap();
    let other = Login::fresh(Version::V5, "").open(gateway.address()).unwrap();
    let name = named.connack.assigned_id.clone().expect("MQTT 5.0 tells the name");
    assert_ne!(Some(&name), other.connack.assigned_id.as_ref());
    assert_ne!(name, "");
    Login::fresh(Version::V311, "").open(gateway.address()).unwrap().ping().unwrap();

    let invalid = ReasonCode::ClientIdentifierNotValid.byte();
    let refused = Login::persistent(Version::V311, "").ask(gateway.address()).unwrap();
    assert_eq!(refused.connack.reason, invalid);
    let refused = Login::fresh(Version::V31, "").ask(gateway.address()).unwrap();
    assert_eq!(refused.connack.reason, invalid);
}

#[test]
fn an_unknown_protocol_version_is_refused_and_the_connection_closed() {
    let gateway = Gateway::start();
    let mut bytes = Login::fresh(Version::V5, "device").encode();
    let level = bytes.windows(4).position(|w| w == b"MQTT").unwrap() + 4;
    bytes[level] = 6;
    let mut client = Client::dial(gateway.address(), Version::V5, None).unwrap();
    client.raw(&bytes).unwrap();
    // The answer's form is up to the version that the server would like; the end of the connection is not.
    assert!(client.closed().is_ok_and(|packets| packets.len() <= 1));
    gateway.assert_serves();
}

#[test]
fn a_second_connect_on_a_connection_ends_it() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let login = Login::fresh(version, "device");
        let mut client = login.open(gateway.address()).unwrap();
        client.raw(&login.encode()).unwrap();
        let reason = client.closed_because().unwrap();
        assert_eq!(reason, version.is_v5().then_some(ReasonCode::ProtocolError.byte()));
    });
}

#[test]
fn connections_over_the_limit_are_turned_away_until_there_is_room() {
    for_both_versions(|version| {
        let gateway = Gateway::with(&["limits.connections_max=4"]);
        let open = |n: u32| Login::fresh(version, &format!("device-{n}")).open(gateway.address());
        let mut clients: Vec<Client> = (0..4).map(|n| open(n).unwrap()).collect();
        assert!(open(4).is_err());
        clients.iter_mut().for_each(|client| client.ping().unwrap());
        clients.pop();
        eventually("room for another connection", PATIENCE, || open(5).map_err(|error| error.to_string()));
    });
}

#[test]
fn the_connack_announces_the_configured_limits() {
    let gateway = Gateway::with(&[
        "limits.receive_max=17",
        "limits.packet_max=123456",
        "limits.topic_aliases_max=9",
        "limits.session_expiry_max=60s",
    ]);
    let client = Login::persistent(Version::V5, "device").open(gateway.address()).unwrap();
    assert_eq!(client.connack.receive_max, Some(17));
    assert_eq!(client.connack.packet_max, Some(123_456));
    assert_eq!(client.connack.aliases, Some(9));
    assert_eq!(client.connack.expiry, Some(60));
}

#[test]
fn a_connection_without_traffic_is_answered_when_it_asks() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut client = Login::fresh(version, "device").keep_alive(60).open(gateway.address()).unwrap();
        client.ping().unwrap();
        assert_eq!(client.poll(crate::harness::SHORT).unwrap(), None::<Packet>);
    });
}
