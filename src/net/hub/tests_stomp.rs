//! STOMP clients whose frames arrive in one read, or wait together for the store.

use std::collections::BTreeMap;

use super::Hub;
use crate::broker::Broker;
use crate::broker::api::ConnId;
use crate::limits::Limits;
use crate::net::origin::{Origin, PeerAddress, Protocol};
use crate::store::fake::FakeStore;
use crate::time::{Mono, Now, Timeline, Wall};

struct Rig {
    hub: Hub,
    store: FakeStore,
    read: BTreeMap<ConnId, Vec<u8>>,
}

impl Rig {
    fn new() -> Self {
        let limits = Limits::default();
        let hub = Hub::new(Broker::new(limits.clone(), 7), limits);
        Self { hub, store: FakeStore::default(), read: BTreeMap::new() }
    }

    fn now() -> Now {
        Timeline::anchored(Wall(1_700_000_000_000), Wall(0)).at(Mono(1))
    }

    fn connect(&mut self) -> ConnId {
        let origin = Origin::plain(PeerAddress::Local);
        let id = self.hub.open(Protocol::Stomp, origin, Self::now()).unwrap();
        let answer = self.say(id, &["STOMP\naccept-version:1.2\nhost:h\n\n"]);
        assert!(answer[0].starts_with("CONNECTED"), "{answer:?}");
        id
    }

    /// The frames arrive in one read, and then everything becomes durable: what is answered.
    fn say(&mut self, id: ConnId, frames: &[&str]) -> Vec<String> {
        let bytes: String = frames.iter().flat_map(|frame| [*frame, "\0"]).collect();
        self.hub.received(id, bytes.as_bytes(), Self::now());
        self.hear(id)
    }

    /// Everything becomes durable: what a client has been sent since it was asked last.
    fn hear(&mut self, id: ConnId) -> Vec<String> {
        self.hub.settle(&mut self.store, Self::now(), &mut self.read);
        let bytes = String::from_utf8(self.read.remove(&id).unwrap_or_default()).unwrap();
        bytes.split_terminator('\0').map(str::to_owned).collect()
    }

    fn messages(&self, queue: &str) -> Option<u64> {
        let found = self.hub.broker().queues().find(|found| found.name == queue);
        found.map(|queue| queue.messages)
    }

    fn settled(&self) -> u64 {
        self.hub.broker().stats().settled
    }
}

/// The bodies of messages to a subscription.
fn bodies<'a>(frames: &'a [String], subscription: &str) -> Vec<&'a str> {
    let line = format!("\nsubscription:{subscription}\n");
    let its = frames.iter().filter(|frame| frame.starts_with("MESSAGE") && frame.contains(&line));
    its.map(|frame| frame.split_once("\n\n").unwrap().1).collect()
}

/// What ACK names of the messages.
fn names(frames: &[String]) -> Vec<&str> {
    let lines = frames.iter().flat_map(|frame| frame.lines());
    lines.filter_map(|line| line.strip_prefix("ack:")).collect()
}

const SEND: &str = "SEND\ndestination:/queue/q\n\nnot heard";

#[test]
fn nothing_counts_that_was_read_together_with_what_the_broker_refuses() {
    let refused: [&[&str]; 5] = [
        &["COMMIT\nxid:unknown\nreceipt:r\n\n"],
        &["BEGIN\ntransaction:t\nxid:taken\n\n", "COMMIT\ntransaction:t\nphase:prepare\nreceipt:r\n\n"],
        &["SUBSCRIBE\nid:s\ndestination:/topic/$share/g/$SYS/#\nreceipt:r\n\n"],
        &["SUBSCRIBE\nid:s\ndestination:/dsub/unknown\nreceipt:r\n\n"],
        &["SEND\ndestination:/topic/$SYS/x\nreceipt:r\n\n"],
    ];
    for frames in refused {
        let mut rig = Rig::new();
        let first = rig.connect();
        let prepare = "COMMIT\ntransaction:t\nphase:prepare\n\n";
        rig.say(first, &["BEGIN\ntransaction:t\nxid:taken\n\n", prepare]);
        let id = rig.connect();
        let behind = [
            SEND,
            "COMMIT\nxid:taken\n\n",
            "SUBSCRIBE\nid:w\ndestination:/queue/w\n\n",
            "DISCONNECT\nreceipt:d\n\n",
        ];
        let heard = rig.say(
            id,
            &["SEND\ndestination:/queue/before\n\nx"]
                .into_iter()
                .chain(frames.iter().copied())
                .chain(behind)
                .collect::<Vec<_>>(),
        );
        assert_eq!(heard.len(), 1, "{heard:?}");
        assert!(heard[0].starts_with("ERROR") && heard[0].contains("receipt-id:r\n"), "{heard:?}");
        assert_eq!((rig.messages("$queue/before"), rig.messages("$queue/q")), (Some(1), None), "{frames:?}");
        assert_eq!(rig.messages("$queue/w"), None);
        assert_eq!(rig.hub.broker().prepared_transactions().count(), 1, "it is not decided");
        assert!(rig.hub.is_ending(id));
    }
}

#[test]
fn a_second_subscription_to_a_filter_gets_what_comes_after_it_alone() {
    let mut rig = Rig::new();
    let id = rig.connect();
    let heard = rig.say(
        id,
        &[
            "SUBSCRIBE\nid:a\ndestination:/topic/t\n\n",
            "SEND\ndestination:/topic/t\n\n1",
            "SEND\ndestination:/topic/t\npersistent:false\n\n2",
            "SUBSCRIBE\nid:b\ndestination:/topic/t\n\n",
            "SEND\ndestination:/topic/t\n\n3",
            "SUBSCRIBE\nid:c\ndestination:/topic/t\n\n",
            "UNSUBSCRIBE\nid:b\n\n",
            "SEND\ndestination:/topic/t\n\n4",
        ],
    );
    assert_eq!(bodies(&heard, "a"), ["1", "2", "3", "4"]);
    assert_eq!((bodies(&heard, "b"), bodies(&heard, "c")), (vec![], vec!["4"]));
    let heard = rig.say(id, &["UNSUBSCRIBE\nid:a\n\n", "SEND\ndestination:/topic/t\n\n5"]);
    assert_eq!((heard.len(), bodies(&heard, "c")), (1, vec!["5"]));
}

/// A client with one message that went to two subscriptions, and what each of them names it.
fn shared() -> (Rig, ConnId, String, String) {
    let mut rig = Rig::new();
    let id = rig.connect();
    let heard = rig.say(
        id,
        &[
            "SUBSCRIBE\nid:a\ndestination:/topic/t\nack:client\n\n",
            "SUBSCRIBE\nid:b\ndestination:/topic/+\nack:client-individual\n\n",
            "SEND\ndestination:/topic/t\n\nx",
        ],
    );
    let [a, b] = names(&heard)[..] else { panic!("{heard:?}") };
    let (a, b) = (a.to_owned(), b.to_owned());
    (rig, id, a, b)
}

#[test]
fn a_message_for_two_subscriptions_is_settled_when_both_have_acknowledged_it() {
    let (mut rig, id, a, b) = shared();
    rig.say(id, &[&format!("ACK\nid:{a}\n\n")]);
    assert_eq!(rig.settled(), 0);
    rig.say(id, &[&format!("ACK\nid:{b}\n\n")]);
    assert_eq!(rig.settled(), 1);
}

#[test]
fn an_acknowledgement_of_one_of_two_subscriptions_that_is_rolled_back_does_not_count() {
    let (mut rig, id, a, b) = shared();
    let begin = "BEGIN\ntransaction:t\n\n";
    let within = |name: &str| format!("ACK\nid:{name}\ntransaction:t\n\n");
    rig.say(id, &[begin, &within(&a), "ABORT\ntransaction:t\n\n"]);
    rig.say(id, &[&format!("ACK\nid:{a}\n\n")]);
    assert_eq!(rig.settled(), 0, "the other one has not");
    rig.say(id, &[begin, &within(&b)]);
    assert_eq!(rig.settled(), 0, "it is not committed");
    rig.say(id, &["COMMIT\ntransaction:t\n\n"]);
    assert_eq!(rig.settled(), 1);
}

#[test]
fn a_transaction_that_acknowledges_for_both_subscriptions_settles_at_its_commit() {
    let (mut rig, id, a, b) = shared();
    let within = |name: &str| format!("ACK\nid:{name}\ntransaction:t\n\n");
    rig.say(id, &["BEGIN\ntransaction:t\n\n", &within(&a), &within(&b)]);
    assert_eq!(rig.settled(), 0);
    let heard = rig.say(id, &["COMMIT\ntransaction:t\nreceipt:r\n\n"]);
    assert_eq!((rig.settled(), heard.len()), (1, 1), "{heard:?}");
    assert!(heard[0].starts_with("RECEIPT"));
}
