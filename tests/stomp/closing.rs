//! ERROR, DISCONNECT, and the end of a connection.

use std::net::Shutdown;
use std::time::Duration;

use crate::client::{Stomp, assert_empty, assert_has};
use crate::harness::GatewayOptions;
use crate::{gateway, stomp};

const BAD: [&str; 4] = [
    "BOGUS\nreceipt:z\n\n\0",
    "SEND\nreceipt:z\n\nx\0",
    "UNSUBSCRIBE\nid:nope\nreceipt:z\n\n\0",
    "SUBSCRIBE\nid:s\ndestination:/nope/x\nreceipt:z\n\n\0",
];

#[test]
fn a152_every_error_is_followed_by_the_end() {
    let gateway = gateway();
    let mut other = Stomp::open(stomp(&gateway));
    for bad in BAD {
        let mut client = Stomp::open(stomp(&gateway));
        client.send(bad);
        client.error();
        other.put("a152", "still here");
    }
}

#[test]
fn a153_an_error_names_the_receipt_of_its_frame() {
    let gateway = gateway();
    for bad in BAD {
        let mut client = Stomp::open(stomp(&gateway));
        client.send(bad);
        assert_eq!(client.error().header("receipt-id"), "z");
    }
}

#[test]
fn a154_an_error_has_a_message_a_type_and_a_length() {
    let gateway = gateway();
    for bad in BAD {
        let mut client = Stomp::open(stomp(&gateway));
        client.send(bad);
        let error = client.error();
        assert!(!error.header("message").is_empty());
        assert_eq!(error.header("content-type"), "text/plain");
        assert_eq!(error.header("content-length"), error.body.len().to_string());
    }
}

#[test]
fn a155_an_error_tells_nothing_of_the_inside() {
    let gateway = gateway();
    for bad in BAD {
        let mut client = Stomp::open(stomp(&gateway));
        client.send(bad);
        let text = format!("{:?}", client.error());
        for part in ["src/", ".rs", "panicked", "tidegate::", "passcode"] {
            assert!(!text.contains(part), "{text}");
        }
    }
}

#[test]
fn a156_frames_before_the_bad_one_count_and_those_after_it_do_not() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("SEND\ndestination:/queue/a156\n\nx\0BOGUS\n\n\0SEND\ndestination:/queue/a156\n\ny\0");
    client.error();
    assert_has(stomp(&gateway), "a156", ["x"]);
}

#[test]
fn a157_the_receipt_of_disconnect_comes_before_the_end() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("DISCONNECT\nreceipt:77\n\n\0");
    client.receipt("77");
    client.end();
}

#[test]
fn a158_nothing_is_heard_after_disconnect() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("DISCONNECT\nreceipt:d\n\n\0SEND\ndestination:/queue/a158\n\nx\0");
    client.receipt("d");
    client.end();
    assert_empty(stomp(&gateway), "a158");
}

#[test]
fn a159_an_error_arrives_whatever_else_was_sent() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("BOGUS\n\n\0");
    client.try_send(vec![b'x'; 1 << 20]);
    let error = client.frame();
    assert_eq!(error.command, "ERROR");
}

#[test]
fn a160_a_client_that_has_said_all_still_gets_its_receipts() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("SEND\ndestination:/queue/a160\nreceipt:r\n\nx\0");
    client.shut_down(Shutdown::Write);
    client.receipt("r");
    client.end();
}

#[test]
fn a_goodbye_does_not_wait_for_what_lingers_in_the_store() {
    let gateway = GatewayOptions::new().set("store.linger=60s").start();
    for body in ["1", "2", "3"] {
        let mut client = Stomp::open(stomp(&gateway));
        client.subscribe("s", "lingering", "auto");
        client.send(format!("SEND\ndestination:/queue/lingering\n\n{body}\0"));
        assert_eq!(client.message().text(), body);
        // The message is settled as soon as it is written, in a batch that nobody waits for.
        client.silence(Duration::from_millis(20));
        client.disconnect();
    }
}
