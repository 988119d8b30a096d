//! A sender of each version, a receiver of each version, and everything that both know.

use crate::harness::{Client, Gateway, Login, Message, PATIENCE, SHORT, Version, Will, eventually};

/// Calls `test` for each sender and receiver, with a gateway of its own.
fn for_all_pairs(test: impl Fn(&mut Gateway, Version, Version)) {
    for from in Version::ALL {
        for to in Version::ALL {
            eprintln!("--- from {from} to {to}");
            test(&mut Gateway::start(), from, to);
        }
    }
}

fn client(gateway: &Gateway, version: Version, name: &str) -> Client {
    Login::fresh(version, name).open(gateway.address()).unwrap()
}

/// Publishes one message of each level.
fn publish(gateway: &Gateway, from: Version, topic: &str, retain: bool) {
    let mut sender = client(gateway, from, "sender");
    for qos in 0..=2 {
        let message = Message { retain, ..Message::new(&format!("{topic}/{qos}"), qos.to_string(), qos) };
        assert!(sender.publish(&message).unwrap() < 0x80);
    }
    sender.ping().unwrap();
}

#[test]
fn a_session_that_was_away_gets_what_waits_for_it_across_a_kill() {
    for_all_pairs(|gateway, from, to| {
        let login = Login::persistent(to, "receiver");
        login.open(gateway.address()).unwrap().subscribe("a/+", 2).unwrap();
        publish(gateway, from, "a", false);
        gateway.kill();
        gateway.restart();
        let mut receiver = login.open(gateway.address()).unwrap();
        for qos in 1..=2 {
            let message = receiver.message().unwrap();
            assert_eq!((message.text(), message.qos, message.retain), (qos.to_string(), qos, false));
        }
    });
}

#[test]
fn retained_messages_come_with_their_level_and_flag() {
    for_all_pairs(|gateway, from, to| {
        publish(gateway, from, "r", true);
        let mut receiver = client(gateway, to, "receiver");
        receiver.subscribe("r/+", 2).unwrap();
        let mut seen: Vec<_> = (0..3).map(|_| receiver.message().unwrap()).collect();
        seen.sort_by_key(|message| message.qos);
        for (qos, message) in (0..).zip(&seen) {
            assert_eq!((message.text(), message.qos, message.retain), (qos.to_string(), qos, true));
        }
        // Once it is there the subscription gets them like any others, and an empty one clears.
        let mut sender = client(gateway, from, "clearer");
        sender.publish(&Message::retained("r/1", "", 1)).unwrap();
        let message = receiver.message().unwrap();
        assert_eq!((message.topic.as_str(), message.payload.len(), message.retain), ("r/1", 0, false));
        receiver.disconnect().unwrap();
        let mut receiver = client(gateway, to, "receiver");
        receiver.subscribe("r/1", 2).unwrap();
        sender.publish(&Message::new("r/1", "end", 1)).unwrap();
        assert_eq!(receiver.messages_until("end").unwrap(), []);
    });
}

#[test]
fn a_will_reaches_everybody_and_is_retained_if_it_says_so() {
    for_all_pairs(|gateway, from, to| {
        let mut receiver = client(gateway, to, "receiver");
        receiver.subscribe("w", 2).unwrap();
        let will = Will { retain: true, ..Will::new("w", "gone", 2) };
        drop(Login::fresh(from, "mortal").will(will).open(gateway.address()).unwrap());
        let message = receiver.message().unwrap();
        assert_eq!((message.text().as_str(), message.qos, message.retain), ("gone", 2, false));
        let mut late = client(gateway, to, "late");
        late.subscribe("w", 1).unwrap();
        let message = late.message().unwrap();
        assert_eq!((message.text().as_str(), message.qos, message.retain), ("gone", 1, true));
    });
}

#[test]
fn the_members_of_a_group_share_whatever_their_versions() {
    for_all_pairs(|gateway, from, to| {
        let mut members = [client(gateway, from, "one"), client(gateway, to, "two")];
        members.iter_mut().for_each(|member| member.subscribe("$share/group/s/#", 2).unwrap());
        publish(gateway, from, "s", false);
        publish(gateway, to, "s", false);
        let mut seen = Vec::new();
        eventually("all messages", PATIENCE, || {
            for member in &mut members {
                while let Some(message) = member.message_within(SHORT).unwrap() {
                    seen.push(message.text());
                }
            }
            if seen.len() == 6 { Ok(()) } else { Err(format!("{seen:?}")) }
        });
        seen.sort_unstable();
        assert_eq!(seen, ["0", "0", "1", "1", "2", "2"]);
    });
}

#[test]
fn a_message_that_is_not_acknowledged_comes_again_flagged_with_its_identifier() {
    for_all_pairs(|gateway, from, to| {
        let login = Login::persistent(to, "receiver");
        let mut receiver = login.open(gateway.address()).unwrap();
        receiver.subscribe("d/+", 2).unwrap();
        publish(gateway, from, "d", false);
        let first: Vec<Message> = (0..3).map(|_| receiver.take().unwrap()).filter(|m| m.qos > 0).collect();
        drop(receiver);
        let mut receiver = login.open(gateway.address()).unwrap();
        for before in &first {
            let again = receiver.message().unwrap();
            assert_eq!((again.text(), again.id, again.dup), (before.text(), before.id, true));
        }
    });
}
