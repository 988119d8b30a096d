//! SEND, RECEIPT, MESSAGE.

use std::fmt::Write as _;

use crate::client::{C2, Stomp, assert_empty, assert_has};
use crate::harness::GatewayOptions;
use crate::{amount, gateway, stomp};

#[test]
fn a089_a_message_needs_a_destination() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("SEND\nreceipt:r\n\nx\0");
    assert_eq!(client.error().header("receipt-id"), "r");
}

#[test]
fn a090_an_empty_destination_is_an_error() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("SUBSCRIBE\r\nid:1\r\ndestination:\r\nreceipt:1\r\n\r\n\0\r\n");
    assert_eq!(client.error().header("receipt-id"), "1");
}

#[test]
fn a091_an_unknown_kind_of_destination_is_an_error() {
    let gateway = gateway();
    for destination in ["/nope/x", "foo"] {
        let mut client = Stomp::open(stomp(&gateway));
        client.send(format!("SEND\ndestination:{destination}\n\ny\0"));
        assert_eq!(client.error().header("message"), "unknown destination");
    }
}

#[test]
fn a092_a_message_arrives_under_the_destination_that_it_was_sent_to() {
    let gateway = gateway();
    for destination in ["/queue/a092", "/topic/a.b", "/queue/sp ace"] {
        let mut client = Stomp::open(stomp(&gateway));
        client.subscribe_to("s", destination, "");
        client.send(format!("SEND\ndestination:{destination}\n\nx\0"));
        assert_eq!(client.message().header("destination"), destination);
    }
}

#[test]
fn a093_headers_of_users_pass_through() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.subscribe("s", "a093", "auto");
    let lines = (0..50).fold(String::new(), |mut lines, i| {
        writeln!(lines, "u{i}:value {i}").unwrap();
        lines
    });
    client.send(format!("SEND\ndestination:/queue/a093\n{lines}\nx\0"));
    let message = client.message();
    let found: String = message
        .headers
        .iter()
        .filter(|(name, _)| name.starts_with('u') && name[1..].parse::<u8>().is_ok())
        .map(|(name, value)| format!("{name}:{value}\n"))
        .collect();
    assert_eq!(found, lines);
}

#[test]
fn a094_headers_that_speak_to_the_server_go_no_further() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("BEGIN\ntransaction:t\n\n\0SEND\ndestination:/queue/a094\nreceipt:r\ntransaction:t\n\nx\0COMMIT\ntransaction:t\n\n\0");
    client.receipt("r");
    client.subscribe("s", "a094", "auto");
    let message = client.message();
    assert_eq!((message.find("receipt"), message.find("transaction")), (None, None));
}

#[test]
fn a095_forged_headers_of_servers_go_no_further() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.subscribe("s", "a095", "auto");
    client.send("SEND\ndestination:/queue/a095\nmessage-id:Thisisnotallowed\ntimestamp:1234\nredelivered:true\nsubscription:x\nack:x\n\ny\0");
    let message = client.message();
    let all = |name: &str| message.headers.iter().filter(|(found, _)| found == name).count();
    assert_eq!([all("message-id"), all("subscription"), all("timestamp")], [1, 1, 1]);
    assert_ne!(message.header("message-id"), "Thisisnotallowed");
    assert_ne!(message.header("timestamp"), "1234");
    assert_eq!(message.header("subscription"), "s");
    assert_eq!((message.find("redelivered"), message.find("ack")), (None, None));
}

#[test]
fn a096_every_frame_may_ask_for_a_receipt() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.put("a096", "one");
    client.put("a096", "two");
    client.subscribe("first", "a096", "client-individual");
    let acks: Vec<String> =
        client.messages(2).iter().map(|message| message.header("ack").to_owned()).collect();
    client.send(format!(
        "SEND\ndestination:/topic/a096\nreceipt:1\n\nx\0\
         SUBSCRIBE\nid:second\ndestination:/topic/other\nreceipt:2\n\n\0\
         UNSUBSCRIBE\nid:second\nreceipt:3\n\n\0\
         BEGIN\ntransaction:t\nreceipt:4\n\n\0\
         COMMIT\ntransaction:t\nreceipt:5\n\n\0\
         BEGIN\ntransaction:t\nreceipt:6\n\n\0\
         ABORT\ntransaction:t\nreceipt:7\n\n\0\
         ACK\nid:{}\nreceipt:8\n\n\0\
         NACK\nid:{}\nrequeue:false\nreceipt:9\n\n\0\
         DISCONNECT\nreceipt:10\n\n\0",
        acks[0], acks[1]
    ));
    (1..=10).for_each(|id| client.receipt(&id.to_string()));
    client.end();
}

#[test]
fn a097_a_receipt_speaks_for_everything_before_it() {
    let mut gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    let mut bytes = String::new();
    for i in 0..1_000 {
        write!(bytes, "SEND\ndestination:/queue/a097\n\n{i}\0").unwrap();
    }
    client.send(bytes + "SEND\ndestination:/queue/a097\nreceipt:r\n\n1000\0");
    client.receipt("r");
    gateway.kill();
    gateway.restart();
    let bodies = crate::client::drain(stomp(&gateway), "a097");
    assert_eq!(bodies, (0..=1_000).map(|i| i.to_string()).collect::<Vec<_>>());
}

#[test]
fn a098_receipts_may_have_any_value() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    for receipt in ["", &"r".repeat(1024), "ключ😀", r"a\cb\nc"] {
        client.send(format!("SEND\ndestination:/queue/a098\nreceipt:{receipt}\n\nx\0"));
        client.receipt(receipt);
    }
}

#[test]
fn a099_the_receipt_of_a_subscription_comes_before_its_first_message() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.put("a099", "x");
    for destination in ["/queue/a099", "/topic/a099"] {
        client.send("SEND\ndestination:/topic/a099\nretain:true\n\nx\0");
        client.send(format!("SUBSCRIBE\nid:{destination}\ndestination:{destination}\nreceipt:r\n\n\0"));
        client.receipt("r");
        client.message();
    }
}

#[test]
fn a100_a_message_with_its_receipt_survives_the_process() {
    let mut gateway = GatewayOptions::new().start();
    let rounds = amount("TIDEGATE_STOMP_RECEIPTS", 20);
    for round in 0..rounds {
        let mut client = Stomp::open(stomp(&gateway));
        client.send(format!("SEND\ndestination:/queue/a100\nreceipt:r\n\n{round}\0"));
        client.receipt("r");
        gateway.kill();
        gateway.restart();
    }
    let bodies = crate::client::drain(stomp(&gateway), "a100");
    assert_eq!(bodies, (0..rounds).map(|round| round.to_string()).collect::<Vec<_>>());
}

#[test]
fn a101_the_receipt_of_a_message_in_a_transaction_is_no_commit() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("BEGIN\ntransaction:t\n\n\0SEND\ndestination:/queue/a101\ntransaction:t\nreceipt:r\n\nx\0");
    client.receipt("r");
    client.send("ABORT\ntransaction:t\n\n\0");
    client.disconnect();
    assert_empty(stomp(&gateway), "a101");
}

#[test]
fn a102_the_content_type_is_passed_on_and_never_made_up() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.subscribe("s", "a102", "auto");
    client.send("SEND\ndestination:/queue/a102\ncontent-type:application/cbor\n\nx\0");
    assert_eq!(client.message().header("content-type"), "application/cbor");
    client.send("SEND\ndestination:/queue/a102\n\nx\0");
    assert_eq!(client.message().find("content-type"), None);
}

#[test]
fn a103_a_body_of_any_bytes_arrives_with_its_length() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.subscribe("s", "a103", "auto");
    let body: Vec<u8> = (0..=255).collect();
    client.send("SEND\ndestination:/queue/a103\ncontent-length:256\n\n");
    client.send(&body);
    client.send("\0");
    let message = client.message();
    assert_eq!((message.header("content-length"), &message.body), ("256", &body));
}

#[test]
fn a104_what_has_arrived_before_the_connection_closed_is_processed() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    let bytes: String = (0..1_000).map(|i| format!("SEND\ndestination:/queue/a104\n\n{i}\0")).collect();
    client.send(bytes);
    drop(client);
    gateway.await_status("1,000 messages", |status| {
        (status["traffic"]["messages_in"][1].as_u64()? >= 1_000).then_some(())
    });
    let bodies = crate::client::drain(stomp(&gateway), "a104");
    assert_eq!(bodies, (0..1_000).map(|i| i.to_string()).collect::<Vec<_>>());
}

#[test]
fn messages_larger_than_a_read_arrive_whole() {
    let gateway = gateway();
    let mut client = Stomp::raw(stomp(&gateway));
    client.send(C2);
    client.connected();
    client.subscribe("s", "large", "auto");
    for size in [4_095, 4_096, 20_000, 1 << 20] {
        let body = vec![b'x'; size];
        client.send(format!("SEND\ndestination:/queue/large\ncontent-length:{size}\n\n"));
        client.send(&body);
        client.send("\0");
        assert_eq!(client.message().body, body);
    }
    client.disconnect();
    assert_has(stomp(&gateway), "large", []);
}
