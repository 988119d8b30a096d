//! Durable subscriptions.

use std::time::Duration;

use crate::client::{Frame, Stomp};
use crate::harness::{Login, Message, Version};
use crate::{gateway, stomp};

const SHORT: Duration = Duration::from_millis(300);
const DURABLE: &str = "durable:true\nack:client\n";

#[track_caller]
fn bodies(client: &mut Stomp, count: usize) -> Vec<String> {
    client.messages(count).iter().map(Frame::text).collect()
}

#[test]
fn a_durable_subscription_resumes_after_its_connection_and_the_process() {
    let mut gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.subscribe_to("reports", "/topic/plant/+/report", DURABLE);
    client.send("SEND\ndestination:/topic/plant/1/report\n\nfirst\0");
    let first = client.message();
    assert_eq!((first.text().as_str(), first.header("subscription")), ("first", "reports"));
    client.ack(&first);
    client.disconnect();
    let mut device = Login::fresh(Version::V5, "device").open(gateway.address()).unwrap();
    device.publish(&Message::new("plant/2/report", "second", 1)).unwrap();
    gateway.kill();
    gateway.restart();
    let mut other = Stomp::open(stomp(&gateway));
    other.send("SEND\ndestination:/topic/plant/3/report\nreceipt:r\n\nthird\0");
    other.receipt("r");
    let mut client = Stomp::open(stomp(&gateway));
    client.subscribe_to("reports", "/topic/plant/+/report", DURABLE);
    assert_eq!(bodies(&mut client, 2), ["second", "third"]);
    client.reset();
    let mut client = Stomp::open(stomp(&gateway));
    client.subscribe_to("any", "/dsub/reports", "ack:client\n");
    let again = client.messages(2);
    for (message, body) in again.iter().zip(["second", "third"]) {
        assert_eq!((message.text().as_str(), message.header("redelivered")), (body, "true"));
        assert_eq!(message.header("subscription"), "any");
    }
}

#[test]
fn a_durable_subscription_ends_when_it_is_unsubscribed_as_one() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.subscribe_to("s", "/topic/a", DURABLE);
    client.send("UNSUBSCRIBE\nid:s\nreceipt:u\n\n\0SEND\ndestination:/topic/a\nreceipt:r\n\nkept\0");
    client.receipt("u");
    client.receipt("r");
    client.subscribe_to("s", "/topic/a", DURABLE);
    assert_eq!(bodies(&mut client, 1), ["kept"]);
    client.send(
        "UNSUBSCRIBE\nid:s\ndurable:true\nreceipt:u\n\n\0SEND\ndestination:/topic/a\nreceipt:r\n\nlost\0",
    );
    client.receipt("u");
    client.receipt("r");
    client.send("SUBSCRIBE\nid:s\ndestination:/dsub/s\nreceipt:d\n\n\0");
    let error = client.error();
    assert!(error.header("message").contains("no such durable subscription"), "{error:?}");
    assert_eq!(error.header("receipt-id"), "d");
}

#[test]
fn a_durable_subscription_has_one_consumer_at_a_time() {
    let gateway = gateway();
    let mut first = Stomp::open(stomp(&gateway));
    first.subscribe_to("s", "/topic/a", "durable-subscription-name:shared\n");
    let mut second = first.another();
    second.subscribe_to("s", "/topic/a", "activemq.subscriptionName:shared\n");
    assert!(first.error().header("message").contains("another connection"));
    second.send("SEND\ndestination:/topic/a\n\nx\0");
    assert_eq!(bodies(&mut second, 1), ["x"]);
    second.silence(SHORT);
}

#[test]
fn messages_cannot_be_sent_to_a_durable_subscription() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("SEND\ndestination:/dsub/s\n\nx\0");
    client.error();
}

#[test]
fn an_acknowledgement_of_a_durable_subscription_is_part_of_its_transaction() {
    let mut gateway = gateway();
    for (end, left) in [("ABORT", vec!["1", "2"]), ("COMMIT", vec!["2"])] {
        let mut client = Stomp::open(stomp(&gateway));
        client.subscribe_to("d", "/topic/wide", "durable:true\nack:client-individual\n");
        if end == "ABORT" {
            client.send("SEND\ndestination:/topic/wide\n\n1\0SEND\ndestination:/topic/wide\n\n2\0");
        }
        let ack = client.messages(2)[0].header("ack").to_owned();
        client.send("BEGIN\ntransaction:t\n\n\0");
        client.send(format!("ACK\nid:{ack}\ntransaction:t\n\n\0"));
        client.send(format!("SEND\ndestination:/queue/wide\ntransaction:t\n\n{end}\0"));
        client.send(format!("{end}\ntransaction:t\nreceipt:e\n\n\0"));
        client.receipt("e");
        gateway.kill();
        gateway.restart();
        let mut again = Stomp::open(stomp(&gateway));
        again.subscribe_to("d", "/dsub/d", "ack:client-individual\n");
        let bodies: Vec<String> = again.messages(left.len()).iter().map(|frame| frame.text()).collect();
        assert_eq!(bodies, left, "after {end}");
        again.silence(Duration::from_millis(200));
    }
    assert_eq!(crate::client::drain(stomp(&gateway), "wide"), ["COMMIT"]);
}
