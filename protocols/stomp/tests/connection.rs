//! The server's end of a connection whose client is accepted: receipts, subscriptions, acknowledgements,
//! transactions. Numbers in comments are rows of the list of what a STOMP server must do.
#![allow(clippy::unwrap_used)]

mod support;

use support::{Peer, SESSION, Written, after, refused};
use tidegate_stomp::Version::{V10, V11, V12};
use tidegate_stomp::connection::{ConnectionLimit, Delivery, SendError};
use tidegate_stomp::{
    AckMode, Command, ConnectionLimits, ConnectionOptions, Event, Received, Version, Violation,
};

const SINCE_11: [Version; 2] = [V11, V12];

fn subscribe(id: &str, mode: &str) -> String {
    format!("SUBSCRIBE\nid:{id}\ndestination:/queue/a\nack:{mode}\n\n\0")
}

fn put(body: &str) -> String {
    format!("SEND\ndestination:/queue/a\n\n{body}\0")
}

/// A connection with one subscription `s` that has got messages with the tags 1 to `count`.
fn holding(version: Version, mode: &str, count: usize) -> (Peer, Vec<Written>) {
    let mut peer = after(version, subscribe("s", mode).as_bytes());
    (0..count).for_each(|n| peer.feed(put(&n.to_string()).as_bytes()));
    let messages = peer.messages();
    assert_eq!(messages.len(), count);
    (peer, messages)
}

/// ACK or NACK of a message as the version names it, with more header lines.
fn answer(version: Version, command: &str, message: &Written, more: &str) -> String {
    let id = match version {
        Version::V12 => format!("id:{}", message.get("ack").unwrap()),
        _ => format!("message-id:{}", message.get("message-id").unwrap()),
    };
    let subscription = match (version, message.get("subscription")) {
        (Version::V11, Some(subscription)) => format!("subscription:{subscription}\n"),
        _ => String::new(),
    };
    format!("{command}\n{id}\n{subscription}{more}\n\0")
}

fn ack(version: Version, message: &Written) -> String {
    answer(version, "ACK", message, "")
}

#[track_caller]
fn refused_with(version: Version, input: &str, expected: Violation) {
    let mut peer = after(version, input.as_bytes());
    assert_eq!(peer.violation, Some(expected), "{input}");
    peer.error();
}

fn missing(command: Command, header: &'static str) -> Violation {
    Violation::HeaderMissing { command, header }
}

fn invalid(command: Command, header: &'static str) -> Violation {
    Violation::HeaderInvalid { command, header }
}

#[test]
fn a_destination_is_needed_and_not_empty() {
    // A089, A090
    for version in Version::ALL {
        for command in ["SEND", "SUBSCRIBE"] {
            for destination in ["", "destination:\n"] {
                let input = format!("{command}\nid:1\n{destination}receipt:1\n\n\0");
                assert_eq!(refused(version, input.as_bytes()).get("receipt-id"), Some("1"));
            }
        }
    }
    refused_with(V12, "SEND\n\nx\0", missing(Command::Send, "destination"));
    refused_with(
        V12,
        "SUBSCRIBE\r\nid:1\r\ndestination:\r\n\r\n\0\r\n",
        invalid(Command::Subscribe, "destination"),
    );
}

#[test]
fn every_frame_with_a_receipt_gets_one_in_order() {
    // A096
    for version in SINCE_11 {
        let (mut peer, messages) = holding(version, "client-individual", 2);
        let input = [
            "SEND\ndestination:/queue/b\nreceipt:1\n\nx\0".to_owned(),
            "SUBSCRIBE\nid:t\ndestination:/queue/c\nreceipt:2\n\n\0".into(),
            "UNSUBSCRIBE\nid:t\nreceipt:3\n\n\0".into(),
            "BEGIN\ntransaction:t\nreceipt:4\n\n\0".into(),
            "COMMIT\ntransaction:t\nreceipt:5\n\n\0".into(),
            "BEGIN\ntransaction:t\nreceipt:6\n\n\0".into(),
            "ABORT\ntransaction:t\nreceipt:7\n\n\0".into(),
            answer(version, "ACK", &messages[0], "receipt:8\n"),
            answer(version, "NACK", &messages[1], "receipt:9\n"),
            "DISCONNECT\nreceipt:10\n\n\0".into(),
        ];
        peer.feed(input.concat().as_bytes());
        assert_eq!(peer.receipts(), (1..=10).map(|n| n.to_string()).collect::<Vec<_>>());
        assert_eq!(peer.settled, [1, -2]);
        assert!(peer.connection.is_closed());
    }
}

#[test]
fn receipts_leave_in_the_order_of_their_frames_whatever_is_processed_first() {
    let mut peer = Peer::open(V12);
    peer.slow = true;
    let send = |n| format!("SEND\ndestination:/queue/a\nreceipt:{n}\n\nx\0");
    peer.feed((1..=3).map(send).collect::<String>().as_bytes());
    let due = peer.due.clone();
    assert!(peer.pay(due[2]) && peer.pay(due[1]));
    assert!(peer.out.is_empty());
    assert!(peer.pay(due[0]));
    assert_eq!(peer.receipts(), ["1", "2", "3"]);
    assert!(!peer.pay(due[0]), "a frame is processed once");
}

#[test]
fn any_text_is_a_receipt() {
    // A098
    let long = "x".repeat(1024);
    for receipt in ["", &long, "日本語", r"a\cb\nc\\"] {
        let mut peer = after(V12, format!("SEND\ndestination:/queue/a\nreceipt:{receipt}\n\nx\0").as_bytes());
        assert_eq!(peer.bytes(), format!("RECEIPT\nreceipt-id:{receipt}\n\n\0\n").into_bytes());
    }
}

#[test]
fn the_receipt_of_subscribe_does_not_wait_behind_others_while_messages_flow() {
    // A099
    let mut peer = Peer::open(V12);
    peer.slow = true;
    let subscribe = "SUBSCRIBE\nid:s\ndestination:/queue/a\nreceipt:s\n\n\0";
    peer.feed(format!("SEND\ndestination:/queue/b\nreceipt:p\n\nx\0{subscribe}").as_bytes());
    assert_eq!((peer.due.len(), peer.connection.subscriptions()), (1, 0), "SUBSCRIBE is not read yet");
    let first = peer.due[0];
    peer.pay(first);
    peer.feed(b"");
    let second = peer.due[1];
    peer.pay(second);
    assert_eq!((peer.receipts(), peer.connection.subscriptions()), (vec!["p".into(), "s".into()], 1));
    peer.feed(subscribe.replace("id:s", "id:t").as_bytes());
    assert_eq!(peer.connection.subscriptions(), 2, "with nothing due it is read at once");
}

#[test]
fn a_subscription_has_an_identifier_of_its_own_since_stomp_1_1() {
    // A105, A106, A107
    for version in SINCE_11 {
        refused_with(version, "SUBSCRIBE\ndestination:/queue/a\n\n\0", missing(Command::Subscribe, "id"));
        refused_with(version, &subscribe("s", "auto").repeat(2), Violation::SubscriptionInUse);
        let again = subscribe("s", "auto") + "UNSUBSCRIBE\nid:s\n\n\0" + &subscribe("s", "auto");
        assert_eq!(after(version, again.as_bytes()).violation, None);
    }
    let mut peer = after(V10, format!("SUBSCRIBE\ndestination:/queue/a\n\n\0{}", put("x")).as_bytes());
    assert_eq!(peer.messages()[0].get("subscription"), None);
    refused_with(V10, &"SUBSCRIBE\ndestination:/queue/a\n\n\0".repeat(2), Violation::SubscriptionInUse);
}

#[test]
fn messages_are_settled_by_being_sent_unless_the_client_wants_to_acknowledge() {
    // A108, A109, A110, A111, A112
    for version in Version::ALL {
        let input = format!("SUBSCRIBE\nid:s\ndestination:/queue/a\n\n\0{}", put("x"));
        let mut peer = after(version, input.as_bytes());
        let message = &peer.messages()[0];
        assert_eq!((message.get("ack"), message.get("subscription")), (None, Some("s")));
        assert_eq!(message.get("destination"), Some("/queue/a"));
        assert_eq!(message.get("message-id"), Some(&*format!("{SESSION}-1-1")));
        assert_eq!(peer.connection.deliveries(), 0);
        for mode in ["client", "client-individual"] {
            let (peer, messages) = holding(version, mode, 1);
            assert_eq!(peer.connection.deliveries(), 1);
            assert_eq!(messages[0].get("ack").is_some(), version == V12);
        }
        refused_with(version, &subscribe("s", "foo"), invalid(Command::Subscribe, "ack"));
    }
}

#[test]
fn subscriptions_to_one_destination_get_copies_with_names_of_their_own() {
    // A113
    let (mut peer, _) = holding(V12, "client", 0);
    peer.feed((subscribe("t", "client-individual") + &put("x")).as_bytes());
    let messages = peer.messages();
    assert_eq!([messages[0].get("subscription"), messages[1].get("subscription")], [Some("s"), Some("t")]);
    assert_ne!(messages[0].get("message-id"), messages[1].get("message-id"));
    peer.feed((ack(V12, &messages[1]) + &ack(V12, &messages[0])).as_bytes());
    assert_eq!((peer.settled, peer.violation), (vec![2, 1], None));
}

#[test]
fn nothing_is_delivered_to_a_subscription_that_has_ended() {
    // A114
    let mut peer = Peer::open(V12);
    let input = b"SUBSCRIBE\nid:s\ndestination:/queue/a\n\n\0";
    let Ok(Received::Event { event: Event::Subscribe(it), .. }) = peer.connection.receive(input, 0) else {
        panic!("no subscription");
    };
    assert_eq!(peer.connection.ack_mode(it.subscription), Some(AckMode::Auto));
    let ended = peer.connection.receive(b"UNSUBSCRIBE\nid:s\n\n\0", 0).unwrap();
    assert!(matches!(ended, Received::Event { event: Event::Unsubscribe { subscription, .. }, .. }
        if subscription == it.subscription));
    let delivery = Delivery { subscription: it.subscription, destination: "/queue/a", tag: 1 };
    let sent = peer.connection.message(&mut peer.out, &delivery, [("x", "y")], b"");
    assert_eq!(sent, Err(SendError::SubscriptionUnknown));
    assert_eq!(peer.connection.ack_mode(it.subscription), None);
    assert!(peer.out.is_empty());
}

#[test]
fn stomp_1_0_unsubscribes_by_destination_or_identifier() {
    // A115
    for subscribed in ["", "id:s\n"] {
        for ended in ["destination:/queue/a\n", "id:s\n"] {
            let input = format!(
                "SUBSCRIBE\n{subscribed}destination:/queue/a\n\n\0UNSUBSCRIBE\n{ended}\n\0{}",
                put("x")
            );
            let mut peer = after(V10, input.as_bytes());
            let fits = !subscribed.is_empty() || ended.starts_with("dest");
            assert_eq!(peer.violation.is_none(), fits, "{input}");
            assert!(peer.messages().is_empty());
        }
    }
    refused_with(V10, "UNSUBSCRIBE\n\n\0", missing(Command::Unsubscribe, "destination"));
}

#[test]
fn unsubscribe_names_a_subscription() {
    // A116
    for version in SINCE_11 {
        let unknown = subscribe("s", "auto") + "UNSUBSCRIBE\nid:nope\n\n\0";
        refused_with(version, &unknown, Violation::SubscriptionUnknown);
        let by_destination = subscribe("s", "auto") + "UNSUBSCRIBE\ndestination:/queue/a\n\n\0";
        refused_with(version, &by_destination, missing(Command::Unsubscribe, "id"));
    }
}

#[test]
fn an_acknowledgement_behind_unsubscribe_still_settles() {
    // A117, A118
    for version in SINCE_11 {
        let (mut peer, messages) = holding(version, "client-individual", 3);
        peer.feed(b"UNSUBSCRIBE\nid:s\n\n\0");
        peer.feed(subscribe("s", "auto").as_bytes());
        peer.feed(answer(version, "ACK", &messages[0], "receipt:r\n").as_bytes());
        assert_eq!((peer.receipts(), &peer.settled), (vec!["r".to_owned()], &vec![1]));
        assert_eq!((peer.connection.deliveries(), peer.connection.subscriptions()), (2, 2));
        peer.feed((ack(version, &messages[2]) + &ack(version, &messages[1])).as_bytes());
        assert_eq!((peer.connection.deliveries(), peer.connection.subscriptions()), (0, 1));
    }
}

#[test]
fn each_version_names_messages_in_its_own_way() {
    // A121, A122, A123
    for version in Version::ALL {
        let (mut peer, messages) = holding(version, "client-individual", 1);
        peer.feed(ack(version, &messages[0]).as_bytes());
        assert_eq!((peer.settled, peer.violation), (vec![1], None));
    }
    let cases = [
        (V10, "ACK\nid:X\n\n\0", missing(Command::Ack, "message-id")),
        (V11, "ACK\nmessage-id:X\n\n\0", missing(Command::Ack, "subscription")),
        (V11, "NACK\nsubscription:s\n\n\0", missing(Command::Nack, "message-id")),
        (V11, "ACK\nmessage-id:X\nsubscription:other\n\n\0", Violation::DeliveryUnknown),
        (V12, "ACK\nmessage-id:X\n\n\0", missing(Command::Ack, "id")),
        (V12, "ACK\nack:X\n\n\0", missing(Command::Ack, "id")),
    ];
    for (version, input, expected) in cases {
        let (mut peer, messages) = holding(version, "client-individual", 1);
        peer.feed(input.replace('X', messages[0].get("message-id").unwrap()).as_bytes());
        assert_eq!((peer.violation, peer.settled.len()), (Some(expected), 0), "{version} {input}");
        peer.error();
    }
}

#[test]
fn in_client_mode_acknowledgements_speak_for_all_earlier_messages_of_their_subscription() {
    // A124, A125, A128
    for version in Version::ALL {
        let mut peer = after(version, (subscribe("s", "client") + &subscribe("t", "client")).as_bytes());
        (0..3).for_each(|n| peer.feed(put(&n.to_string()).as_bytes()));
        let messages = peer.messages();
        let of_s: Vec<_> = messages.iter().filter(|it| it.get("subscription") == Some("s")).collect();
        peer.feed(ack(version, of_s[1]).as_bytes());
        assert_eq!((&peer.settled, peer.connection.deliveries()), (&vec![1, 3], 4));
        if version != V10 {
            peer.settled.clear();
            peer.feed(answer(version, "NACK", messages.last().unwrap(), "").as_bytes());
            assert_eq!((&peer.settled, peer.connection.deliveries()), (&vec![-2, -4, -6], 1));
        }
    }
}

#[test]
fn in_individual_mode_acknowledgements_speak_for_one_message() {
    // A126, A127
    for version in Version::ALL {
        let (mut peer, messages) = holding(version, "client-individual", 5);
        peer.feed(ack(version, &messages[2]).as_bytes());
        assert_eq!((&peer.settled, peer.connection.deliveries()), (&vec![3], 4));
        if version != V10 {
            peer.feed(answer(version, "NACK", &messages[1], "requeue:false\n").as_bytes());
            assert_eq!((&peer.settled, peer.connection.deliveries()), (&vec![3, -2], 3));
        }
    }
}

#[test]
fn stomp_1_0_has_no_nack() {
    // A129
    let (mut peer, messages) = holding(V10, "client", 1);
    peer.feed(answer(V10, "NACK", &messages[0], "receipt:z\n").as_bytes());
    assert_eq!(peer.error().get("receipt-id"), Some("z"));
    assert!(peer.settled.is_empty());
}

#[test]
fn an_acknowledgement_that_names_nothing_settles_nothing() {
    // A130, A131
    for version in Version::ALL {
        let (mut peer, messages) = holding(version, "client-individual", 2);
        peer.feed(ack(version, &messages[0]).repeat(2).as_bytes());
        assert_eq!((peer.violation, &peer.settled), (Some(Violation::DeliveryUnknown), &vec![1]));
    }
    let foreign = format!("{}-1-1", SESSION.replace('a', "b"));
    let spelled = [
        foreign.as_str(),
        "",
        "1",
        "-1-1",
        "a7-1-1",
        "00000000000000A7-1-1",
        "+0000000000000a7-1-1",
        "00000000000000a7-1-01",
        "00000000000000a7-+1-1",
        "00000000000000a7-1-1-1",
        "00000000000000a7-1-",
        "00000000000000a7-4294967297-1",
        "00000000000000a7-1-18446744073709551617",
        "00000000000000a7-2-1",
        "00000000000000a7-1-9",
    ];
    for id in spelled {
        let (mut peer, _) = holding(V12, "client", 1);
        peer.feed(format!("ACK\nid:{id}\n\n\0").as_bytes());
        assert_eq!(peer.violation, Some(Violation::DeliveryUnknown), "{id}");
        assert!(peer.settled.is_empty());
    }
}

#[test]
fn a_message_that_needs_no_acknowledgement_gets_none() {
    let (mut peer, messages) = holding(V11, "auto", 1);
    peer.feed(ack(V11, &messages[0]).as_bytes());
    assert_eq!(peer.violation, Some(Violation::DeliveryUnknown));
}

#[test]
fn acknowledgements_in_a_transaction_count_with_its_end() {
    // A135, A136
    for version in Version::ALL {
        for (end, left) in [("COMMIT", 1), ("ABORT", 3)] {
            let (mut peer, messages) = holding(version, "client", 3);
            peer.feed(b"BEGIN\ntransaction:t\n\n\0");
            peer.feed(answer(version, "ACK", &messages[1], "transaction:t\n").as_bytes());
            assert_eq!((&peer.settled, peer.connection.deliveries()), (&vec![1, 2], 3));
            peer.feed(format!("{end}\ntransaction:t\nreceipt:r\n\n\0").as_bytes());
            assert_eq!((peer.receipts(), peer.connection.deliveries()), (vec!["r".to_owned()], left));
            peer.feed(ack(version, &messages[1]).as_bytes());
            assert_eq!(peer.violation.is_none(), end == "ABORT");
        }
        let (mut peer, messages) = holding(version, "client-individual", 1);
        peer.feed(b"BEGIN\ntransaction:t\n\n\0");
        peer.feed(answer(version, "ACK", &messages[0], "transaction:t\n").as_bytes());
        peer.feed(ack(version, &messages[0]).as_bytes());
        assert_eq!(peer.violation, Some(Violation::DeliveryUnknown), "it is the transaction's");
    }
}

#[test]
fn acknowledgements_in_a_transaction_may_come_in_any_order() {
    // A137
    for version in Version::ALL {
        for (mode, settled) in [("client", vec![1, 2]), ("client-individual", vec![2, 1])] {
            let (mut peer, messages) = holding(version, mode, 2);
            peer.feed(b"BEGIN\ntransaction:t\n\n\0");
            for message in messages.iter().rev() {
                peer.feed(answer(version, "ACK", message, "transaction:t\n").as_bytes());
            }
            peer.feed(b"COMMIT\ntransaction:t\nreceipt:1\n\n\0");
            assert_eq!((peer.receipts(), &peer.settled), (vec!["1".to_owned()], &settled));
            assert_eq!(peer.connection.deliveries(), 0);
        }
    }
}

#[test]
fn a_full_window_holds_messages_back() {
    let limits = ConnectionLimits { deliveries_max: 1, ..ConnectionLimits::default() };
    let mut peer = Peer::open_with(V12, limits);
    let input = subscribe("s", "client");
    let Ok(Received::Event { event: Event::Subscribe(it), .. }) =
        peer.connection.receive(input.as_bytes(), 0)
    else {
        panic!("no subscription");
    };
    let delivery = Delivery { subscription: it.subscription, destination: "/queue/a", tag: 7 };
    let send = |peer: &mut Peer| peer.connection.message(&mut peer.out, &delivery, [("x", "y")], b"b");
    assert_eq!(send(&mut peer), Ok(()));
    let message = peer.messages().remove(0);
    assert_eq!((send(&mut peer), peer.out.len()), (Err(SendError::WindowFull), 0));
    peer.feed(ack(V12, &message).as_bytes());
    assert_eq!(peer.settled, [7]);
    assert_eq!(send(&mut peer), Ok(()));
}

#[test]
fn the_body_of_a_message_may_be_left_to_the_caller() {
    let mut whole = after(V12, subscribe("s", "client").as_bytes());
    whole.feed(put("body").as_bytes());
    let mut peer = Peer::open(V12);
    let input = subscribe("s", "client");
    let Ok(Received::Event { event: Event::Subscribe(it), .. }) =
        peer.connection.receive(input.as_bytes(), 0)
    else {
        panic!("no subscription");
    };
    let delivery = Delivery { subscription: it.subscription, destination: "/queue/a", tag: 1 };
    let no_headers: [(&str, &str); 0] = [];
    peer.connection.message_head(&mut peer.out, &delivery, no_headers, 4).unwrap();
    peer.out.extend_from_slice(b"body");
    peer.connection.end_message(&mut peer.out);
    assert_eq!(peer.out, whole.out);
}

#[test]
fn a_transaction_takes_effect_as_a_whole_or_not_at_all() {
    // A138, A139, A145, A146
    for version in Version::ALL {
        let send = |n, name| format!("SEND\ndestination:/queue/a\ntransaction:{name}\n\n{n}\0");
        let begin = |name| format!("BEGIN\ntransaction:{name}\n\n\0");
        let input =
            begin("t1") + &begin("t2") + &send(1, "t1") + &send(2, "t2") + &send(3, "t1") + &send(4, "t2");
        let mut peer = after(version, input.as_bytes());
        assert_eq!((peer.stored().len(), peer.connection.transactions()), (0, 2));
        peer.feed(b"COMMIT\ntransaction:t2\n\n\0ABORT\ntransaction:t1\n\n\0");
        assert_eq!(peer.stored(), [("/queue/a", &b"2"[..]), ("/queue/a", b"4")]);
        peer.feed(begin("t1").as_bytes());
        assert_eq!((peer.violation, peer.connection.transactions()), (None, 1), "the name is free again");
    }
}

#[test]
fn transactions_are_named_and_open() {
    // A140, A141, A142
    for version in Version::ALL {
        for command in [Command::Begin, Command::Commit, Command::Abort] {
            refused_with(version, &format!("{command}\n\n\0"), missing(command, "transaction"));
        }
        refused_with(version, "BEGIN\ntransaction:\n\n\0", invalid(Command::Begin, "transaction"));
        refused_with(version, &"BEGIN\ntransaction:t\n\n\0".repeat(2), Violation::TransactionInUse);
        for frame in ["COMMIT", "ABORT", "SEND\ndestination:/queue/a"] {
            let input = format!("{frame}\ntransaction:nope\nreceipt:z\n\n\0");
            assert_eq!(refused(version, input.as_bytes()).get("receipt-id"), Some("z"));
        }
        let (mut peer, messages) = holding(version, "client", 1);
        peer.feed(answer(version, "ACK", &messages[0], "transaction:nope\n").as_bytes());
        assert_eq!((peer.violation, peer.settled.len()), (Some(Violation::TransactionUnknown), 0));
    }
}

#[test]
fn a_transaction_with_an_xid_is_prepared_and_decided_later() {
    let prepared = "BEGIN\ntransaction:t\nxid:x\n\n\0SEND\ndestination:/queue/a\ntransaction:t\n\n1\0\
                    COMMIT\ntransaction:t\nphase:prepare\nreceipt:p\n\n\0";
    let mut peer = after(V12, prepared.as_bytes());
    assert_eq!((peer.receipts(), &peer.prepared), (vec!["p".to_owned()], &vec!["1 messages".to_owned()]));
    assert_eq!((peer.stored(), peer.connection.transactions()), (vec![], 0));
    peer.feed(b"COMMIT\nxid:x\nreceipt:c\n\n\0ABORT\ntransaction:t\nxid:y\nreceipt:a\n\n\0");
    assert_eq!(peer.receipts(), ["c", "a"]);
    assert_eq!(peer.decided, [("x".to_owned(), true), ("y".to_owned(), false)]);
}

#[test]
fn only_a_transaction_with_an_xid_is_prepared() {
    let begin = "BEGIN\ntransaction:t\n\n\0";
    let prepare = "COMMIT\ntransaction:t\nphase:prepare\n\n\0";
    refused_with(V12, &format!("{begin}{prepare}"), missing(Command::Commit, "xid"));
    refused_with(V12, "COMMIT\nxid:x\nphase:prepare\n\n\0", missing(Command::Commit, "transaction"));
    refused_with(
        V12,
        &format!("{begin}COMMIT\ntransaction:t\nphase:later\n\n\0"),
        invalid(Command::Commit, "phase"),
    );
    refused_with(V12, "ABORT\nxid:x\nphase:prepare\n\n\0", invalid(Command::Abort, "phase"));
    refused_with(V12, "COMMIT\nxid:\n\n\0", invalid(Command::Commit, "xid"));
}

#[test]
fn a_trailing_line_feed_is_written_or_not_as_the_server_wants() {
    for (trailing_lf, end) in [(true, &b"\n\n\0\n"[..]), (false, b"\n\n\0")] {
        let options = ConnectionOptions { trailing_lf, ..ConnectionOptions::default() };
        let mut peer = Peer::new(ConnectionLimits::default(), options);
        let frames = "BEGIN\ntransaction:t\nreceipt:r\n\n\0";
        peer.feed(support::C2);
        for frame in ["", frames, &subscribe("s", "auto"), &put("x"), "BOGUS\n\n\0"] {
            peer.feed(frame.as_bytes());
            let bytes = peer.bytes();
            if !bytes.is_empty() {
                let end =
                    if bytes.starts_with(b"CONN") || bytes.starts_with(b"REC") { end } else { &end[2..] };
                assert!(bytes.ends_with(end), "{frame}");
                assert_eq!(bytes.ends_with(b"\n"), trailing_lf);
            }
        }
    }
}

#[test]
fn limits_of_a_connection_are_named_to_the_client() {
    let text = Violation::from(ConnectionLimit::Transactions { max: 16 }).to_string();
    assert_eq!(text, "limit exceeded, more than 16 open transactions");
}
