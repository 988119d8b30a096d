//! SUBSCRIBE and UNSUBSCRIBE.

use std::time::Duration;

use crate::client::{C0, Stomp, assert_empty, assert_has};
use crate::{gateway, stomp};

const SHORT: Duration = Duration::from_millis(300);

#[test]
fn a105_a_subscription_has_an_id_since_version_1_1() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("SUBSCRIBE\ndestination:/queue/a105\n\n\0");
    client.error();
    let mut client = Stomp::with(stomp(&gateway), C0);
    client.send("SUBSCRIBE\ndestination:/queue/a105\nreceipt:r\n\n\0");
    client.receipt("r");
}

#[test]
fn a106_an_id_names_one_subscription_at_a_time() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.put("a106", "x");
    client.subscribe("s", "a106", "client");
    assert_eq!(client.message().text(), "x");
    client.send("SUBSCRIBE\nid:s\ndestination:/queue/other\n\n\0");
    client.error();
    assert_has(stomp(&gateway), "a106", ["x"]);
}

#[test]
fn a107_ids_belong_to_their_connection() {
    let gateway = gateway();
    let mut one = Stomp::open(stomp(&gateway));
    let mut two = Stomp::open(stomp(&gateway));
    one.subscribe("s", "a107", "auto");
    two.subscribe("s", "a107", "auto");
    one.send("UNSUBSCRIBE\nid:s\nreceipt:u\n\n\0");
    one.receipt("u");
    one.subscribe("s", "b107", "auto");
}

#[test]
fn a108_messages_are_acknowledged_by_themselves_unless_asked_otherwise() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.put("a108", "x");
    client.subscribe_to("s", "/queue/a108", "");
    assert_eq!(client.message().find("ack"), None);
    client.disconnect();
    assert_empty(stomp(&gateway), "a108");
}

#[test]
fn a109_an_unknown_mode_of_acknowledgement_is_an_error() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("SUBSCRIBE\nid:s\ndestination:/queue/a109\nack:foo\n\n\0");
    client.error();
}

#[test]
fn a110_version_1_0_may_acknowledge_one_by_one() {
    let gateway = gateway();
    let mut client = Stomp::with(stomp(&gateway), C0);
    client.send("SUBSCRIBE\ndestination:/queue/a110\nack:client-individual\nreceipt:r\n\n\0");
    client.receipt("r");
}

#[test]
fn a111_a_message_names_its_destination_its_subscription_and_itself() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.subscribe("s", "a111", "auto");
    client.send("SEND\ndestination:/queue/a111\n\nx\0");
    let message = client.message();
    assert_eq!((message.header("destination"), message.header("subscription")), ("/queue/a111", "s"));
    assert!(!message.header("message-id").is_empty());
    let mut old = Stomp::with(stomp(&gateway), C0);
    old.send("SUBSCRIBE\ndestination:/queue/b111\nreceipt:r\n\n\0");
    old.receipt("r");
    old.send("SEND\ndestination:/queue/b111\n\nx\0");
    assert!(!old.message().header("message-id").is_empty());
}

#[test]
fn a112_a_message_that_is_to_be_acknowledged_says_how() {
    let gateway = gateway();
    for mode in ["client", "client-individual"] {
        let mut client = Stomp::open(stomp(&gateway));
        client.put("a112", "x");
        client.subscribe("s", "a112", mode);
        assert!(!client.message().header("ack").is_empty());
    }
}

#[test]
fn a113_two_subscriptions_to_a_topic_get_a_message_each() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.subscribe_to("s1", "/topic/a113", "ack:client\n");
    client.subscribe_to("s2", "/topic/a113", "ack:client\n");
    client.send("SEND\ndestination:/topic/a113\n\nx\0");
    let messages = client.messages(2);
    for header in ["subscription", "message-id", "ack"] {
        assert_ne!(messages[0].header(header), messages[1].header(header));
    }
    messages.iter().for_each(|message| client.ack(message));
    client.silence(SHORT);
}

#[test]
fn a114_nothing_comes_after_the_receipt_of_unsubscribe() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.subscribe_to("s", "/topic/a114", "");
    let mut sender = client.another();
    for i in 0..1_000 {
        sender.send(format!("SEND\ndestination:/topic/a114\n\n{i}\0"));
        if i == 500 {
            client.send("UNSUBSCRIBE\nid:s\nreceipt:u\n\n\0");
        }
    }
    loop {
        let frame = client.frame();
        if frame.command == "RECEIPT" {
            break;
        }
    }
    sender.disconnect();
    client.silence(SHORT);
}

#[test]
fn a115_version_1_0_may_unsubscribe_by_destination() {
    let gateway = gateway();
    let mut client = Stomp::with(stomp(&gateway), C0);
    client.send(
        "SUBSCRIBE\ndestination:/queue/a115\n\n\0UNSUBSCRIBE\ndestination:/queue/a115\nreceipt:u\n\n\0",
    );
    client.receipt("u");
    client.send("SEND\ndestination:/queue/a115\nreceipt:r\n\nx\0");
    client.receipt("r");
    client.silence(SHORT);
    client.disconnect();
    assert_has(stomp(&gateway), "a115", ["x"]);
}

#[test]
fn a116_an_unknown_id_cannot_be_unsubscribed() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("UNSUBSCRIBE\nid:nope\n\n\0");
    client.error();
}

#[test]
fn a117_an_acknowledgement_after_unsubscribe_still_counts() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.put("a117", "x");
    client.subscribe("s", "a117", "client");
    let message = client.message();
    client.send("UNSUBSCRIBE\nid:s\nreceipt:u\n\n\0");
    client.receipt("u");
    client.ack(&message);
    client.disconnect();
    assert_empty(stomp(&gateway), "a117");
}

#[test]
fn a118_what_was_not_acknowledged_returns_once() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    ["1", "2", "3"].iter().for_each(|body| client.put("a118", body));
    client.subscribe("s", "a118", "client");
    let messages = client.messages(3);
    client.ack(&messages[0]);
    client.send("UNSUBSCRIBE\nid:s\nreceipt:u\n\n\0");
    client.receipt("u");
    client.disconnect();
    assert_has(stomp(&gateway), "a118", ["2", "3"]);
}

#[test]
fn a119_a_faulty_selector_is_an_error_with_its_place() {
    let gateway = gateway();
    for (selector, place) in [("foo.bar = 1", 4), ("   ", 4), (") foo = 'bar' (", 1)] {
        let mut client = Stomp::open(stomp(&gateway));
        client
            .send(format!("SUBSCRIBE\nid:s\ndestination:/queue/a119\nselector:{selector}\nreceipt:r\n\n\0"));
        let error = client.error();
        assert_eq!((error.header("message"), error.header("receipt-id")), ("invalid selector", "r"));
        assert!(error.text().contains(&format!("at character {place}: ")), "{}", error.text());
    }
}

#[test]
fn a120_a_subscription_to_a_queue_cannot_be_durable() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.put("a120", "x");
    client.send("SUBSCRIBE\nid:s\ndestination:/queue/a120\ndurable:true\n\n\0");
    client.error();
    assert_has(stomp(&gateway), "a120", ["x"]);
}

#[test]
fn a_selector_of_a_queue_leaves_the_rest_to_others() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    for size in [5, 15, 7, 25] {
        client.send(format!("SEND\ndestination:/queue/sizes\nsize:{size}\n\n{size}\0"));
    }
    client.subscribe_to("large", "/queue/sizes", "selector:size > 10\n");
    assert_eq!(client.messages(2).iter().map(|message| message.text()).collect::<Vec<_>>(), ["15", "25"]);
    client.silence(SHORT);
    client.disconnect();
    assert_has(stomp(&gateway), "sizes", ["5", "7"]);
}

#[test]
fn a_selector_of_a_topic_drops_what_it_does_not_select() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.subscribe_to("s", "/topic/sizes/+", "selector:colour IN ('red', 'green') AND NOT size > 10\n");
    for (colour, size) in [("red", 5), ("blue", 5), ("green", 11), ("green", 10)] {
        client.send(format!("SEND\ndestination:/topic/sizes/x\ncolour:{colour}\nsize:{size}\n\n{colour}\0"));
    }
    assert_eq!(client.messages(2).iter().map(|message| message.text()).collect::<Vec<_>>(), ["red", "green"]);
    client.silence(SHORT);
}

#[test]
fn wildcards_subscribe_to_many_topics_and_retained_messages_come_at_once() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("SEND\ndestination:/topic/plant/7/level\nretain:true\nreceipt:r\n\n42\0");
    client.receipt("r");
    client.subscribe_to("s", "/topic/plant/+/level", "");
    let retained = client.message();
    assert_eq!((retained.header("retained"), retained.text().as_str()), ("true", "42"));
    client.subscribe_to("all", "/topic/plant/#", "");
    client.message();
    client.send("SEND\ndestination:/topic/plant/8/level\n\n43\0");
    let subscriptions: Vec<String> =
        client.messages(2).iter().map(|message| message.header("subscription").to_owned()).collect();
    assert_eq!(subscriptions, ["s", "all"]);
    client.send("SEND\ndestination:/topic/plant/7/level\nretain:true\nreceipt:gone\n\n\0");
    client.messages(2);
    client.receipt("gone");
    let mut late = client.another();
    late.subscribe_to("s", "/topic/plant/#", "");
    late.silence(SHORT);
}

#[test]
fn a_temporary_queue_takes_answers_to_requests() {
    let gateway = gateway();
    let mut asking = Stomp::open(stomp(&gateway));
    let mut answering = Stomp::open(stomp(&gateway));
    answering.subscribe("s", "questions", "auto");
    asking.subscribe_to("answers", "/temp-queue/answers", "");
    asking.send(
        "SEND\ndestination:/queue/questions\nreply-to:/temp-queue/answers\ncorrelation-id:c7\n\n6 x 7\0",
    );
    let question = answering.message();
    assert!(question.header("reply-to").starts_with("/remote-temp-queue/"));
    answering.send(format!(
        "SEND\ndestination:{}\ncorrelation-id:{}\n\n42\0",
        question.header("reply-to"),
        question.header("correlation-id")
    ));
    let answer = asking.message();
    assert_eq!(answer.header("destination"), "/temp-queue/answers");
    assert_eq!((answer.header("subscription"), answer.header("correlation-id")), ("answers", "c7"));
    assert_eq!(answer.text(), "42");
    let mut spying = asking.another();
    spying.send(format!("SUBSCRIBE\nid:s\ndestination:{}\n\n\0", question.header("reply-to")));
    spying.error();
}

#[test]
fn a_browser_sees_what_waits_takes_nothing_and_is_told_the_end() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    ["1", "2", "3"].iter().for_each(|body| client.put("browsed", body));
    client.subscribe_to("s", "/queue/browsed", "browser:true\n");
    let bodies: Vec<String> = client.messages(3).iter().map(|message| message.text()).collect();
    assert_eq!(bodies, ["1", "2", "3"]);
    assert_eq!(client.message().header("browser"), "end");
    client.disconnect();
    assert_has(stomp(&gateway), "browsed", ["1", "2", "3"]);
}
