//! The end of a conversation. Numbers in comments are rows of the list of what a STOMP server must do.
#![allow(clippy::unwrap_used)]

mod support;

use support::{C2, Peer, after};
use tidegate_stomp::Version::V12;
use tidegate_stomp::connection::Failure;
use tidegate_stomp::{Command, Received, Version, Violation};

fn send(receipt: &str) -> String {
    format!("SEND\ndestination:/queue/a\nreceipt:{receipt}\n\n{receipt}\0")
}

/// A connection whose receipts are left to the test, with messages that ask for these.
fn owing(receipts: &[&str]) -> Peer {
    let mut peer = Peer::open(V12);
    peer.slow = true;
    receipts.iter().for_each(|receipt| peer.feed(send(receipt).as_bytes()));
    peer
}

fn pay(peer: &mut Peer, at: usize) {
    let tag = peer.due[at];
    assert!(peer.pay(tag));
}

#[test]
fn an_error_has_the_receipt_of_the_frame_at_fault_and_ends_the_conversation() {
    // A152, A153, A154
    for version in Version::ALL {
        let mut peer = after(version, b"COMMIT\ntransaction:t\nreceipt:z\n\n\0");
        let error = peer.error();
        assert_eq!(error.get("receipt-id"), Some("z"));
        assert_eq!(error.get("content-length").unwrap().parse(), Ok(error.body.len()));
        assert!(!error.body.is_empty());
        assert_eq!(peer.connection.receive(C2, 0), Ok(Received::Over));
    }
}

#[test]
fn an_error_says_nothing_that_the_client_has_sent() {
    // A155
    let secret = "SECRET-77";
    for frame in ["SEND\n§:\\t\n\n\0", "ACK\nid:§\n\n\0", "BEGIN\ntransaction:t\nack:§\n\n\0", "§\n\n\0"]
    {
        let input = frame.replace('§', secret);
        let mut peer = after(V12, [input.as_bytes(), b"BEGIN\ntransaction:t\n\n\0"].concat().as_slice());
        assert!(!String::from_utf8_lossy(&peer.out).contains(secret));
        peer.error();
    }
}

#[test]
fn frames_before_the_bad_one_count_and_frames_behind_it_do_not() {
    // A156
    let input = send("x") + "BOGUS\n\n\0" + &send("y");
    let mut peer = after(V12, input.as_bytes());
    assert_eq!(peer.stored(), [("/queue/a", &b"x"[..])]);
    let commands: Vec<_> = peer.frames().iter().map(|frame| frame.command).collect();
    assert_eq!(commands, [Command::Receipt, Command::Error]);
    assert!(peer.connection.is_closed());
}

#[test]
fn an_error_waits_for_receipts_of_earlier_frames() {
    let mut peer = owing(&["a", "b"]);
    peer.feed(b"BOGUS\nreceipt:z\n\n\0");
    assert!(peer.out.is_empty() && !peer.connection.is_closed());
    pay(&mut peer, 1);
    assert!(peer.out.is_empty());
    pay(&mut peer, 0);
    assert!(peer.connection.is_closed());
    let frames = peer.frames();
    let ids: Vec<_> = frames.iter().map(|frame| frame.get("receipt-id").unwrap()).collect();
    assert_eq!((ids, frames[2].command), (vec!["a", "b", "z"], Command::Error));
}

#[test]
fn an_error_does_not_wait_for_ever() {
    let mut peer = owing(&["a"]);
    peer.now = 5000;
    peer.feed(b"BOGUS\n\n\0");
    assert_eq!(peer.connection.deadline(), Some(6000));
    assert_eq!(peer.connection.check_deadline(&mut peer.out, 5999), Ok(()));
    assert!(!peer.connection.is_closed());
    assert_eq!(peer.connection.check_deadline(&mut peer.out, 6000), Ok(()));
    peer.error();
    let tag = peer.due[0];
    assert!(!peer.pay(tag), "it is too late");
    assert!(peer.out.is_empty());
}

#[test]
fn disconnect_is_answered_and_nothing_behind_it_is_read() {
    // A157, A158
    for version in Version::ALL {
        let mut peer = after(version, ("DISCONNECT\nreceipt:77\n\n\0".to_owned() + &send("x")).as_bytes());
        assert_eq!((peer.receipts(), peer.stored().len()), (vec!["77".to_owned()], 0));
        assert!(peer.connection.is_closed());
        assert!(after(version, b"DISCONNECT\n\n\0").connection.is_closed());
    }
}

#[test]
fn disconnect_waits_for_receipts_of_earlier_frames_for_a_while() {
    let mut peer = owing(&["a"]);
    peer.now = 100;
    peer.feed(b"DISCONNECT\nreceipt:d\n\n\0");
    pay(&mut peer, 1);
    assert!(peer.out.is_empty() && !peer.connection.is_closed() && !peer.connection.is_open());
    pay(&mut peer, 0);
    assert_eq!(peer.receipts(), ["a", "d"]);
    assert!(peer.connection.is_closed());

    let mut peer = owing(&["a"]);
    peer.feed(b"DISCONNECT\n\n\0");
    assert_eq!(peer.connection.deadline(), Some(1000));
    assert_eq!(peer.connection.check_deadline(&mut peer.out, 1000), Ok(()));
    assert!(peer.connection.is_closed() && peer.out.is_empty());
}

#[test]
fn a_frame_that_cannot_be_processed_ends_the_conversation_at_its_receipt() {
    let mut peer = owing(&["a", "b", "c"]);
    pay(&mut peer, 2);
    let failure = Failure { message: "queue is full", detail: "orders holds 1000 messages" };
    let tag = peer.due[1];
    peer.connection.fail(&mut peer.out, Some(tag), &failure, 0);
    assert!(peer.out.is_empty());
    pay(&mut peer, 0);
    let frames = peer.frames();
    assert_eq!((frames.len(), frames[0].get("receipt-id")), (2, Some("a")));
    let error = &frames[1];
    assert_eq!((error.get("message"), error.get("receipt-id")), (Some("queue is full"), Some("b")));
    assert_eq!(error.body, b"orders holds 1000 messages");
    assert!(peer.connection.is_closed());
}

#[test]
fn a_failure_behind_disconnect_takes_the_place_of_its_receipt() {
    let mut peer = owing(&["a"]);
    peer.feed(b"DISCONNECT\nreceipt:d\n\n\0");
    let tag = peer.due[0];
    let failure = Failure { message: "disk full", detail: "" };
    peer.connection.fail(&mut peer.out, Some(tag), &failure, 0);
    assert_eq!(peer.error().get("receipt-id"), Some("a"));
}

#[test]
fn there_is_one_error_whatever_goes_wrong_behind_it() {
    let mut peer = after(V12, b"BOGUS\n\n\0");
    let failure = Failure { message: "late", detail: "" };
    peer.connection.fail(&mut peer.out, None, &failure, 0);
    peer.connection.reject(&mut peer.out, &Violation::Timeout, 0);
    peer.error();
}

#[test]
fn any_text_of_the_server_becomes_an_error() {
    for (message, expected) in [("a\nb:c", "a\nb:c"), ("", "error"), ("a\0b", "error")] {
        let mut peer = Peer::open(V12);
        peer.connection.fail(&mut peer.out, None, &Failure { message, detail: "d" }, 0);
        assert_eq!(peer.error().get("message"), Some(expected));
    }
}
