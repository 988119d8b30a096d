//! What a resumed session gets again, and in which form.

use tidegate_mqtt::{PacketType, Version};

use crate::harness::{Client, Gateway, Login, Message, Packet, for_all_versions, for_both_versions};

/// How the subscriber's connection ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cut {
    Connection,
    Gateway,
}

const CUTS: [Cut; 2] = [Cut::Connection, Cut::Gateway];

/// A gateway and a kept session with three messages of this level, all sent to the client, none acknowledged.
fn with_unsettled(version: Version, qos: u8) -> (Gateway, Login, Client, Vec<Message>) {
    let gateway = Gateway::start();
    let login = Login::persistent(version, "subscriber");
    let mut subscriber = login.open(gateway.address()).unwrap();
    subscriber.subscribe("a/b", qos).unwrap();
    let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
    for text in ["one", "two", "three"] {
        publisher.publish(&Message::new("a/b", text, qos)).unwrap();
    }
    let sent: Vec<Message> = (0..3).map(|_| subscriber.take().unwrap()).collect();
    assert!(sent.iter().all(|message| !message.dup));
    (gateway, login, subscriber, sent)
}

fn resume(gateway: &mut Gateway, login: &Login, subscriber: Client, cut: Cut) -> Client {
    if cut == Cut::Gateway {
        gateway.kill();
        gateway.restart();
    }
    drop(subscriber);
    login.open(gateway.address()).unwrap()
}

#[test]
fn unacknowledged_messages_come_again_in_order_with_their_identifiers_and_the_dup_flag() {
    for_all_versions(|version| {
        for qos in 1..=2 {
            let (mut gateway, login, subscriber, sent) = with_unsettled(version, qos);
            let mut subscriber = resume(&mut gateway, &login, subscriber, Cut::Connection);
            for before in &sent {
                let again = subscriber.message().unwrap();
                assert_eq!(again, Message { dup: true, ..before.clone() });
            }
        }
    });
}

#[test]
fn unacknowledged_messages_come_again_just_so_after_a_kill() {
    for_all_versions(|version| {
        for qos in 1..=2 {
            let (mut gateway, login, subscriber, sent) = with_unsettled(version, qos);
            let mut subscriber = resume(&mut gateway, &login, subscriber, Cut::Gateway);
            for before in &sent {
                let again = subscriber.message().unwrap();
                assert_eq!(again, Message { dup: true, ..before.clone() });
            }
        }
    });
}

#[test]
fn what_was_acknowledged_does_not_come_again() {
    for_all_versions(|version| {
        for qos in 1..=2 {
            for cut in CUTS {
                let (mut gateway, login, mut subscriber, sent) = with_unsettled(version, qos);
                subscriber.settle(&sent[0]).unwrap();
                subscriber.ping().unwrap();
                if cut == Cut::Gateway {
                    // An acknowledgement of a subscriber is not answered; a later answered command is behind it.
                    subscriber.subscribe("fence", 0).unwrap();
                }
                let mut subscriber = resume(&mut gateway, &login, subscriber, cut);
                assert_eq!(subscriber.message().unwrap().text(), "two", "QoS {qos}, {cut:?}");
                assert_eq!(subscriber.message().unwrap().text(), "three", "QoS {qos}, {cut:?}");
            }
        }
    });
}

#[test]
fn a_resumed_exchange_of_level_2_goes_on_with_pubrel_and_not_with_publish() {
    for_all_versions(|version| {
        for cut in CUTS {
            let (mut gateway, login, mut subscriber, sent) = with_unsettled(version, 2);
            subscriber.ack(PacketType::Pubrec, sent[0].id).unwrap();
            subscriber.await_pubrel(sent[0].id).unwrap();
            let mut subscriber = resume(&mut gateway, &login, subscriber, cut);
            let first = subscriber.packet().unwrap();
            assert_eq!(first, Packet::Pubrel { id: sent[0].id, reason: 0 }, "{cut:?}");
            subscriber.ack(PacketType::Pubcomp, sent[0].id).unwrap();
            for before in &sent[1..] {
                let again = subscriber.message().unwrap();
                assert_eq!((again.id, again.text(), again.dup), (before.id, before.text(), true), "{cut:?}");
            }
        }
    });
}

#[test]
fn new_messages_come_after_those_that_are_sent_again() {
    for_all_versions(|version| {
        let (mut gateway, login, subscriber, _) = with_unsettled(version, 1);
        drop(subscriber);
        let mut publisher = Login::fresh(version, "publisher").open(gateway.address()).unwrap();
        publisher.publish(&Message::new("a/b", "four", 1)).unwrap();
        gateway.kill();
        gateway.restart();
        let mut subscriber = login.open(gateway.address()).unwrap();
        for text in ["one", "two", "three", "four"] {
            assert_eq!(subscriber.message().unwrap().text(), text);
        }
    });
}

#[test]
fn identifiers_of_unsettled_deliveries_are_not_given_to_others() {
    for_both_versions(|version| {
        let (gateway, _, mut subscriber, sent) = with_unsettled(version, 2);
        let mut publisher = Login::fresh(version, "other").open(gateway.address()).unwrap();
        for n in 0..500 {
            publisher.publish(&Message::new("a/b", n.to_string(), 1)).unwrap();
            let message = subscriber.take().unwrap();
            assert!(sent.iter().all(|unsettled| unsettled.id != message.id));
            subscriber.settle(&message).unwrap();
        }
    });
}
