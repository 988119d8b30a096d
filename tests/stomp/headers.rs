//! Escaping, trimming, repeated headers.

use std::net::SocketAddr;

use crate::client::{C0, C1, C2, Frame, Stomp, assert_empty, assert_has};
use crate::{gateway, stomp};

/// A header line from one client to another, who may speak different versions.
#[track_caller]
fn crosses(address: SocketAddr, sender: &str, receiver: &str, line: &str) -> Frame {
    let mut receiving = Stomp::with(address, receiver);
    receiving.subscribe_to("s", "/topic/headers", "");
    let mut sending = Stomp::with(address, sender);
    sending.send(format!("SEND\ndestination:/topic/headers\n{line}\n\nx\0"));
    receiving.message()
}

/// A line of a sender that arrives as `expected`.
#[track_caller]
fn arrives(sender: &str, receiver: &str, line: &str, expected: &str) {
    let gateway = gateway();
    let message = crosses(stomp(&gateway), sender, receiver, line);
    let (name, value) = expected.split_once(':').unwrap();
    assert_eq!(message.header(name), value, "{message:?}");
}

#[track_caller]
fn refused(address: SocketAddr, login: &str, line: &str) {
    let mut client = Stomp::with(address, login);
    client.send(format!("SEND\ndestination:/queue/refused\n{line}\n\ny\0"));
    client.error();
}

#[test]
fn a071_version_1_2_escapes_names_and_values() {
    let line = r"k\cey:a\nb\rc\\d\ce";
    arrives(C2, C2, line, line);
}

#[test]
fn a072_version_1_1_escapes_names_and_values() {
    let line = r"k\cey:a\nb\\c\cd";
    arrives(C1, C1, line, line);
}

#[test]
fn a073_an_escaped_carriage_return_is_undefined_in_version_1_1() {
    let gateway = gateway();
    refused(stomp(&gateway), C1, r"x:a\rb");
    assert_empty(stomp(&gateway), "refused");
}

#[test]
fn a074_undefined_escapes_are_errors() {
    let gateway = gateway();
    for escape in [r"\t", r"\N", r"\C", r"\0", r"\ ", r"\"] {
        refused(stomp(&gateway), C2, &format!("x:{escape}"));
    }
    assert_empty(stomp(&gateway), "refused");
}

#[test]
fn a075_escapes_are_decoded_in_one_pass() {
    arrives(C2, C2, r"x:a\\c", r"x:a\\c");
    arrives(C2, C2, r"x:\\n", r"x:\\n");
}

#[test]
fn a076_version_1_0_has_no_escapes() {
    arrives(C0, C0, r"x:C:\temp\new", r"x:C:\temp\new");
}

#[test]
fn a077_headers_are_written_as_the_receiver_reads_them() {
    arrives(C0, C2, r"x:C:\new", r"x:C\c\\new");
}

#[test]
fn a078_what_version_1_0_cannot_say_becomes_no_header() {
    let gateway = gateway();
    let message = crosses(stomp(&gateway), C2, C0, r"x:a\ninjected\c1");
    assert_eq!(message.find("injected"), None);
    assert_eq!(message.header("x"), r"a\ninjected:1");
}

#[test]
fn a079_a_carriage_return_is_an_ordinary_character_in_version_1_1() {
    arrives(C2, C1, r"x:a\rb", "x:a\rb");
}

#[test]
fn a080_headers_of_the_protocol_are_escaped_too() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("SUBSCRIBE\nid:s\\n1\ndestination:/queue/a080\nreceipt:r\\c1\n\n\0");
    client.receipt(r"r\c1");
    client.send("SEND\ndestination:/queue/a080\n\nx\0");
    assert_eq!(client.message().header("subscription"), r"s\n1");
}

#[test]
fn a081_headers_of_errors_are_escaped() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("SEND\ndestination:/bad\\nx\\cy\nreceipt:q\\c1\n\nz\0");
    let error = client.error();
    assert_eq!(error.header("receipt-id"), r"q\c1");
    assert_eq!(error.find("x"), None);
}

#[test]
fn a082_a_colon_in_a_value_need_not_be_escaped() {
    arrives(C2, C2, "x:a:b", r"x:a\cb");
}

#[test]
fn a083_values_are_not_trimmed() {
    arrives(C2, C2, "x: a ", "x: a ");
}

#[test]
fn a084_version_1_0_trims() {
    let gateway = gateway();
    let mut client = Stomp::with(stomp(&gateway), C0);
    client.send("SUBSCRIBE\ndestination: /queue/a084\nack: client\nreceipt: r\n\n\0");
    client.receipt("r");
    client.send("SEND\ndestination: /queue/a084\n\nx\0");
    assert_eq!(client.message().text(), "x");
    drop(client);
    assert_has(stomp(&gateway), "a084", ["x"]);
}

#[test]
fn a085_the_first_of_repeated_headers_counts_and_comes_first() {
    arrives(C2, C2, "foo:World\nfoo:Hello", "foo:World");
}

#[test]
fn a086_the_first_of_repeated_protocol_headers_counts() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("SEND\ndestination:/queue/a086\ndestination:/queue/b086\n\nx\0");
    client.disconnect();
    assert_has(stomp(&gateway), "a086", ["x"]);
    assert_empty(stomp(&gateway), "b086");
}

#[test]
fn a087_an_escape_may_arrive_in_two_pieces() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.subscribe("s", "a087", "auto");
    client.send(
        r"SEND
destination:/queue/a087
x:a\",
    );
    // The first piece is read before the second is there: a frame of another client has been answered meanwhile.
    client.another().put("other", "x");
    client.send("cb\n\ny\0");
    assert_eq!(client.message().header("x"), r"a\cb");
}

#[test]
fn a088_a_line_that_ends_within_an_escape_is_an_error() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("SEND\ndestination:/queue/a088\na\\\nb:c\n\nx\0SEND\ndestination:/queue/a088\n\ny\0");
    client.error();
    assert_empty(stomp(&gateway), "a088");
}
