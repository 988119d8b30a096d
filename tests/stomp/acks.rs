//! ACK and NACK.

use std::time::Duration;

use crate::client::{C0, C1, Stomp, assert_empty, assert_has};
use crate::{amount, gateway, stomp};

const SHORT: Duration = Duration::from_millis(300);

/// A client with messages from 1 to `count` under way.
#[track_caller]
fn holding(
    address: std::net::SocketAddr,
    queue: &str,
    mode: &str,
    count: usize,
) -> (Stomp, Vec<crate::client::Frame>) {
    let mut client = Stomp::open(address);
    (1..=count).for_each(|i| client.put(queue, &i.to_string()));
    client.subscribe("s", queue, mode);
    let messages = client.messages(count);
    (client, messages)
}

#[test]
fn a121_version_1_0_acknowledges_by_message_id() {
    let gateway = gateway();
    let mut client = Stomp::with(stomp(&gateway), C0);
    client.send("SUBSCRIBE\ndestination:/queue/a121\nack:client\nreceipt:r\n\n\0");
    client.receipt("r");
    client.send("SEND\ndestination:/queue/a121\n\nx\0");
    let id = client.message().header("message-id").to_owned();
    client.send(format!("ACK\nmessage-id:{id}\nreceipt:a\n\n\0"));
    client.receipt("a");
    client.disconnect();
    assert_empty(stomp(&gateway), "a121");
}

#[test]
fn a122_version_1_1_acknowledges_by_message_id_and_subscription() {
    let gateway = gateway();
    for lines in ["both", "message-id", "subscription"] {
        let mut client = Stomp::with(stomp(&gateway), C1);
        client.put("a122", "x");
        client.subscribe("s", "a122", "client");
        let id = client.message().header("message-id").to_owned();
        match lines {
            "both" => {
                client.send(format!("ACK\nmessage-id:{id}\nsubscription:s\nreceipt:a\n\n\0"));
                client.receipt("a");
                client.disconnect();
                assert_empty(stomp(&gateway), "a122");
            }
            "message-id" => {
                client.send(format!("ACK\nmessage-id:{id}\n\n\0"));
                client.error();
                assert_has(stomp(&gateway), "a122", ["x"]);
            }
            _ => {
                client.send("ACK\nsubscription:s\n\n\0");
                client.error();
            }
        }
    }
}

#[test]
fn a123_version_1_2_acknowledges_by_id() {
    let gateway = gateway();
    let (mut client, messages) = holding(stomp(&gateway), "a123", "client", 1);
    client.ack(&messages[0]);
    for header in ["message-id", "ack"] {
        let (mut client, messages) = holding(stomp(&gateway), header, "client", 1);
        client.send(format!("ACK\n{header}:{}\n\n\0", messages[0].header("ack")));
        client.error();
    }
}

#[test]
fn a124_an_acknowledgement_in_client_mode_covers_earlier_messages() {
    let gateway = gateway();
    let (mut client, messages) = holding(stomp(&gateway), "a124", "client", 5);
    client.ack(&messages[2]);
    drop(client);
    assert_has(stomp(&gateway), "a124", ["4", "5"]);
}

#[test]
fn a125_and_no_message_of_another_subscription() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    for i in 1..=3 {
        client.put("a125", &format!("a{i}"));
        client.put("b125", &format!("b{i}"));
    }
    client.subscribe("s2", "b125", "client");
    client.messages(3);
    client.subscribe("s1", "a125", "client");
    let messages = client.messages(3);
    client.ack(&messages[2]);
    drop(client);
    assert_has(stomp(&gateway), "b125", ["b1", "b2", "b3"]);
    assert_empty(stomp(&gateway), "a125");
}

#[test]
fn a126_an_acknowledgement_in_client_individual_mode_covers_one_message() {
    let gateway = gateway();
    let (mut client, messages) = holding(stomp(&gateway), "a126", "client-individual", 5);
    client.ack(&messages[2]);
    drop(client);
    assert_has(stomp(&gateway), "a126", ["1", "2", "4", "5"]);
}

#[test]
fn a127_a_message_that_was_not_taken_comes_again_and_then_no_more() {
    let gateway = gateway();
    let (mut client, messages) = holding(stomp(&gateway), "a127", "client-individual", 3);
    client.nack(&messages[1]);
    let mut again = client.message();
    assert_eq!((again.text().as_str(), again.header("redelivered")), ("2", "true"));
    let mut times = 1;
    loop {
        assert_eq!(again.header("redelivery-count"), times.to_string());
        client.send(format!("NACK\nid:{}\n\n\0", again.header("ack")));
        match client.frame_within(SHORT) {
            Ok(Some(frame)) => again = frame,
            Ok(None) => break,
            Err(end) => panic!("{end}"),
        }
        times += 1;
        assert!(times < 100, "it comes for ever");
    }
    client.ack(&messages[0]);
    client.ack(&messages[2]);
    client.disconnect();
    assert_empty(stomp(&gateway), "a127");
}

#[test]
fn a128_a_nack_in_client_mode_covers_earlier_messages() {
    let gateway = gateway();
    let (mut client, messages) = holding(stomp(&gateway), "a128", "client", 5);
    client.send(format!("NACK\nid:{}\nreceipt:n\n\n\0", messages[2].header("ack")));
    let mut again = vec![];
    for _ in 0..4 {
        let frame = client.frame();
        if frame.command == "MESSAGE" {
            again.push(frame.text());
        }
    }
    assert_eq!(again, ["1", "2", "3"]);
    client.silence(SHORT);
}

#[test]
fn a129_version_1_0_has_no_nack() {
    let gateway = gateway();
    let mut client = Stomp::with(stomp(&gateway), C0);
    client.send("NACK\nmessage-id:1\n\n\0");
    client.error();
}

#[test]
fn a130_an_acknowledgement_of_nothing_is_an_error() {
    let gateway = gateway();
    let (mut client, _messages) = holding(stomp(&gateway), "a130", "client-individual", 2);
    client.send("ACK\nid:12345\n\n\0");
    client.error();
    assert_has(stomp(&gateway), "a130", ["1", "2"]);
    let (mut client, messages) = holding(stomp(&gateway), "b130", "client-individual", 2);
    client.ack(&messages[0]);
    client.send(format!("ACK\nid:{}\n\n\0", messages[0].header("ack")));
    client.error();
    assert_has(stomp(&gateway), "b130", ["2"]);
}

#[test]
fn a131_nobody_acknowledges_for_another_connection() {
    let gateway = gateway();
    let (mut client, messages) = holding(stomp(&gateway), "a131", "client", 1);
    let mut other = client.another();
    other.send(format!("ACK\nid:{}\n\n\0", messages[0].header("ack")));
    other.error();
    client.send("SEND\ndestination:/topic/x\nreceipt:r\n\nx\0");
    client.receipt("r");
    drop(client);
    assert_has(stomp(&gateway), "a131", ["1"]);
}

#[test]
fn a132_an_acknowledgement_right_before_the_connection_closes_counts() {
    let gateway = gateway();
    for round in 0..amount("TIDEGATE_STOMP_ROUNDS", 50) {
        let queue = format!("a132-{round}");
        let (mut client, messages) = holding(stomp(&gateway), &queue, "client", 1);
        client.send(format!("ACK\nid:{}\n\n\0", messages[0].header("ack")));
        drop(client);
        assert_empty(stomp(&gateway), &queue);
    }
}

#[test]
fn a133_what_a_lost_connection_had_returns_in_its_place() {
    let gateway = gateway();
    let (client, messages) = holding(stomp(&gateway), "a133", "client", 10);
    assert!(messages.iter().all(|message| message.find("redelivered").is_none()));
    let mut other = client.another();
    other.put("a133", "later");
    client.reset();
    other.subscribe("s", "a133", "client");
    for i in 1..=10 {
        let message = other.message();
        assert_eq!((message.text(), message.header("redelivered")), (i.to_string(), "true"));
    }
    assert_eq!(other.message().text(), "later");
}

#[test]
fn a134_a_peer_that_is_dead_loses_no_more_than_its_socket_took() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.subscribe_to("s", "/queue/a134", "prefetch-count:1000\n");
    let mut sender = client.another();
    let filler = "x".repeat(8 << 10);
    for i in 0..1_000 {
        sender.send(format!("SEND\ndestination:/queue/a134\n\n{i:04}{filler}\0"));
    }
    sender.disconnect();
    client.reset();
    let left = crate::client::drain(stomp(&gateway), "a134");
    let numbers: Vec<usize> = left.iter().map(|body| body[..4].parse().unwrap()).collect();
    assert!(numbers.len() > 100, "{} are left", numbers.len());
    assert_eq!(numbers, (1_000 - numbers.len()..1_000).collect::<Vec<_>>(), "the rest is there, in order");
}

#[test]
fn a135_an_acknowledgement_in_a_transaction_is_part_of_it() {
    let gateway = gateway();
    let (mut client, messages) = holding(stomp(&gateway), "a135", "client", 1);
    client.send("BEGIN\ntransaction:t\n\n\0");
    client.answer("ACK", &messages[0], "transaction:t\n");
    drop(client);
    assert_has(stomp(&gateway), "a135", ["1"]);
}

#[test]
fn a136_after_a_rollback_a_message_is_acknowledged_again() {
    let gateway = gateway();
    let (mut client, messages) = holding(stomp(&gateway), "a136", "client", 1);
    client.send("BEGIN\ntransaction:t\n\n\0");
    client.answer("ACK", &messages[0], "transaction:t\n");
    client.send("ABORT\ntransaction:t\n\n\0");
    client.ack(&messages[0]);
    client.disconnect();
    assert_empty(stomp(&gateway), "a136");
}

#[test]
fn a137_acknowledgements_in_a_transaction_come_in_any_order() {
    let gateway = gateway();
    for mode in ["client", "client-individual"] {
        let (mut client, messages) = holding(stomp(&gateway), "a137", mode, 2);
        client.send("BEGIN\ntransaction:t\n\n\0");
        for message in [&messages[1], &messages[0]] {
            client.send(format!("ACK\nid:{}\ntransaction:t\n\n\0", message.header("ack")));
        }
        client.send("COMMIT\ntransaction:t\nreceipt:1\n\n\0");
        client.receipt("1");
        client.disconnect();
        assert_empty(stomp(&gateway), "a137");
    }
}
