//! Escapes, trimming and repeated headers, from a sender of one version to a receiver of another. Numbers in
//! comments are rows of the list of what a STOMP server must do.
#![allow(clippy::unwrap_used)]

mod support;

use support::{Peer, after, refused};
use tidegate_stomp::Version::{V10, V11, V12};
use tidegate_stomp::connection::Delivery;
use tidegate_stomp::error::Malformed;
use tidegate_stomp::{Command, DecodeLimits, Event, Received, Version, decode};

const SINCE_11: [Version; 2] = [V11, V12];

/// The bytes of MESSAGE at a receiver of version `to`, for SEND with these header lines by a sender of version
/// `from`.
fn forwarded(from: Version, lines: &str, to: Version) -> String {
    let sender = after(from, format!("SEND\ndestination:/queue/a\n{lines}\n\nx\0").as_bytes());
    assert_eq!(sender.violation, None);
    let mut receiver = Receiver::new(to);
    let headers = sender.taken[0].headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    receiver.message(headers)
}

struct Receiver {
    peer: Peer,
    delivery: Delivery<'static>,
}

impl Receiver {
    fn new(version: Version) -> Receiver {
        let mut peer = Peer::open(version);
        let subscribe = b"SUBSCRIBE\nid:s\ndestination:/queue/a\n\n\0";
        let Ok(Received::Event { event: Event::Subscribe(it), .. }) = peer.connection.receive(subscribe, 0)
        else {
            panic!("no subscription");
        };
        let delivery = Delivery { subscription: it.subscription, destination: "/queue/a", tag: 1 };
        Receiver { peer, delivery }
    }

    fn message<'h>(&mut self, headers: impl Iterator<Item = (&'h str, &'h str)>) -> String {
        let Receiver { peer, delivery } = self;
        peer.connection.message(&mut peer.out, delivery, headers, b"x").unwrap();
        String::from_utf8(peer.bytes()).unwrap()
    }
}

#[track_caller]
fn holds_line(message: &str, line: &str) {
    let (headers, _) = message.split_once("\n\n").unwrap();
    assert!(headers.split('\n').any(|found| found == line), "no line {line:?} in {message:?}");
}

#[test]
fn what_a_version_escapes_comes_out_as_it_went_in() {
    // A071, A072, A075, A076, A083
    for (version, line) in [
        (V12, r"k\cey:a\nb\rc\\d\ce"),
        (V11, r"k\cey:a\nb\\c\cd"),
        (V12, r"x:a\\c"),
        (V11, r"x:\\n"),
        (V10, r"x:C:\temp\new"),
        (V11, "x: a "),
        (V12, "x: a "),
        (V11, "x:a\rb"),
    ] {
        holds_line(&forwarded(version, line, version), line);
    }
}

#[test]
fn headers_are_escaped_anew_for_each_receiver() {
    // A077, A078, A079, A082
    for (from, line, to, expected) in [
        (V10, r"x:C:\new", V12, r"x:C\c\\new"),
        (V10, r"x:C:\new", V11, r"x:C\c\\new"),
        (V12, r"x:a\ninjected\c1", V10, r"x:a\ninjected:1"),
        (V12, r"x:a\rb", V11, "x:a\rb"),
        (V12, r"x:a\rb", V10, r"x:a\rb"),
        (V11, "x:a\rb", V12, r"x:a\rb"),
        (V12, r"x\cy:1", V10, r"x\cy:1"),
        (V12, "x:a:b", V12, r"x:a\cb"),
        (V11, "x:a:b", V11, r"x:a\cb"),
    ] {
        let message = forwarded(from, line, to);
        holds_line(&message, expected);
        assert!(!message.contains("\ninjected"));
    }
}

#[test]
fn an_undefined_escape_is_a_fault() {
    // A073, A074
    for escape in [r"\t", r"\N", r"\C", r"\0", r"\ ", r"a\"] {
        for version in SINCE_11 {
            for line in [format!("x:{escape}"), format!("{escape}:x")] {
                let input = format!("SEND\ndestination:/queue/a\n{line}\nreceipt:z\n\ny\0");
                let found = decode(version, input.as_bytes(), &DecodeLimits::default());
                assert_eq!(found, Err(Malformed::Escape.into()), "{line}");
                assert_eq!(refused(version, input.as_bytes()).get("receipt-id"), Some("z"));
            }
        }
    }
    refused(V11, b"SEND\ndestination:/queue/a\nx:a\\rb\n\ny\0");
}

#[test]
fn headers_of_the_protocol_are_escaped_too() {
    // A080, A081
    let mut peer = after(V12, b"SUBSCRIBE\nid:s\\n1\ndestination:/queue/a\nreceipt:r\\c1\n\n\0");
    let receipt = String::from_utf8(peer.bytes()).unwrap();
    holds_line(&receipt, r"receipt-id:r\c1");
    peer.feed(b"SEND\ndestination:/queue/a\n\nx\0");
    holds_line(&String::from_utf8(peer.bytes()).unwrap(), r"subscription:s\n1");
    peer.feed(b"UNSUBSCRIBE\nid:s\\n1\n\n\0ACK\nid:no\\nx\\cy\nreceipt:q\\c1\n\n\0");
    let error = String::from_utf8(peer.out.clone()).unwrap();
    holds_line(&error, r"receipt-id:q\c1");
    assert_eq!(peer.error().get("x"), None);
}

#[test]
fn stomp_1_0_is_trimmed() {
    // A084
    let input = b"SUBSCRIBE\ndestination: /queue/a\nack: client\n\n\0SEND\n destination :/queue/a \n\nx\0";
    let mut peer = after(V10, input);
    assert_eq!(peer.messages().len(), 1);
    assert_eq!(peer.connection.deliveries(), 1);
}

#[test]
fn the_first_of_repeated_headers_wins_and_all_are_passed_on() {
    // A085, A086
    for version in Version::ALL {
        let message = forwarded(version, "foo:World\nfoo:Hello", version);
        assert!(message.contains("foo:World\nfoo:Hello\n"), "{message}");
        let peer = after(version, b"SEND\ndestination:/queue/a\ndestination:/queue/b\n\nx\0");
        assert_eq!(peer.stored(), [("/queue/a", &b"x"[..])]);
    }
}

#[test]
fn an_escape_may_be_cut_anywhere() {
    // A087
    for version in SINCE_11 {
        let mut peer = after(version, b"SEND\ndestination:/queue/a\nx:a\\");
        peer.feed(b"cb\n\ny\0");
        assert_eq!(peer.taken[0].headers, [("x".into(), "a:b".into())]);
    }
}

#[test]
fn headers_of_users_are_passed_on_and_those_of_the_protocol_are_not() {
    // A093, A094, A095, A102
    let users: String = (0..50).map(|n| format!("u{n}:{n}\n")).collect();
    let forged =
        "message-id:Thisisnotallowed\nsubscription:x\nack:x\nreceipt:r\ncontent-type:application/cbor";
    let message = forwarded(V12, &format!("{users}{forged}"), V12);
    assert!(message.contains(&users));
    holds_line(&message, "content-type:application/cbor");
    let frame = decode(V12, message.as_bytes(), &DecodeLimits::UNBOUNDED).unwrap();
    assert_eq!(frame.headers.get("subscription").as_deref(), Some("s"));
    for name in ["message-id", "subscription", "destination", "content-length"] {
        assert_eq!(frame.headers.iter().filter(|header| header.name == name).count(), 1, "{name}");
    }
    for name in ["ack", "receipt", "transaction"] {
        assert!(!frame.headers.contains(name), "{name}");
    }
    assert!(!forwarded(V12, "x:y", V12).contains("content-type"), "none is invented");
}

#[test]
fn names_that_forge_headers_of_the_protocol_are_left_out_by_the_connection() {
    let mut receiver = Receiver::new(V12);
    let forged = [("ack", "1"), ("message-id", "2"), ("receipt-id", "3"), ("x", "y")];
    let message = receiver.message(forged.into_iter());
    let frame = decode(V12, message.as_bytes(), &DecodeLimits::UNBOUNDED).unwrap();
    assert_eq!(frame.command, Command::Message);
    assert_eq!(frame.headers.user().count(), 1);
    assert!(frame.headers.get("message-id").unwrap().starts_with(support::SESSION));
}

#[test]
fn a_destination_comes_back_as_it_was_sent() {
    // A092
    for destination in ["/queue/a092", "/topic/a.b", "/queue/sp ace", "/topic/a/b"] {
        let input =
            format!("SUBSCRIBE\nid:s\ndestination:{destination}\n\n\0SEND\ndestination:{destination}\n\nx\0");
        for version in Version::ALL {
            let messages = after(version, input.as_bytes()).messages();
            assert_eq!(messages[0].get("destination"), Some(destination));
        }
    }
}

#[test]
fn any_octets_are_a_body() {
    // A103
    let body: Vec<u8> = (0..=255).collect();
    for version in Version::ALL {
        let mut peer = after(version, b"SUBSCRIBE\nid:s\ndestination:/queue/a\n\n\0");
        peer.feed(&[b"SEND\ndestination:/queue/a\ncontent-length:256\n\n", &body[..], b"\0"].concat());
        let message = &peer.messages()[0];
        assert_eq!((message.get("content-length"), &message.body), (Some("256"), &body));
    }
}
