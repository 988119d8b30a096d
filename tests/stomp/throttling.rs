//! Publishers that find no room are not read until there is some.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use tidegate_mqtt::Version;

use crate::client::{C2, Frame, Stomp, assert_has, drain};
use crate::harness::{Gateway, GatewayOptions, Login, Message};
use crate::stomp;

const SHORT: Duration = Duration::from_millis(300);
/// What the gateway may grow by beside a flood that finds no room.
const GROWTH_BYTES_MAX: u64 = 8 << 20;
/// What the kernel may hold of a flood in its two socket buffers, and the gateway in its own.
const SOCKET_BYTES_MAX: usize = 32 << 20;

fn send(queue: &str, body: impl std::fmt::Display) -> String {
    format!("SEND\ndestination:/queue/{queue}\n\n{body}\0")
}

fn waiting(gateway: &Gateway, count: u64) {
    gateway.await_status("publishers that wait", |status| {
        (status["traffic"]["waiting_for_room"].as_u64()? == count).then_some(())
    });
}

fn bodies(frames: &[Frame]) -> Vec<String> {
    frames.iter().map(Frame::text).collect()
}

#[test]
fn a_publisher_to_a_full_queue_waits_until_a_worker_makes_room_and_loses_nothing() {
    let gateway = GatewayOptions::new().set("queue.messages_max=10").start();
    let mut publisher = Stomp::open(stomp(&gateway));
    for i in 0..100 {
        publisher.send(send("full", i));
    }
    publisher.send("SEND\ndestination:/queue/full\nreceipt:last\n\n100\0");
    waiting(&gateway, 1);
    publisher.silence(SHORT);
    let mut other = publisher.another();
    other.put("empty", "others are served");
    let mut worker = publisher.another();
    worker.subscribe("s", "full", "client-individual");
    for i in 0..=100 {
        let message = worker.message();
        assert_eq!(message.text(), i.to_string());
        worker.send(format!("ACK\nid:{}\n\n\0", message.header("ack")));
    }
    publisher.receipt("last");
    waiting(&gateway, 0);
    assert!(gateway.status()["traffic"]["waited_for_room"].as_u64().unwrap() > 0);
}

#[test]
fn a_flood_into_a_full_queue_stays_in_the_sockets() {
    let flood = "[[queue_def]]\nname = \"flood\"\nmessages_max = 10\n";
    let gateway = GatewayOptions::new().config(flood).start();
    let mut other = Stomp::open(stomp(&gateway));
    other.put("other", "warm");
    let before = gateway.rss();
    let frame = send("flood", "x".repeat(64 << 10));
    let floods: Vec<(TcpStream, usize)> = (0..4)
        .map(|_| {
            let mut socket = TcpStream::connect(stomp(&gateway)).unwrap();
            socket.set_write_timeout(Some(SHORT)).unwrap();
            socket.write_all(C2.as_bytes()).unwrap();
            let mut sent = 0;
            while sent < 4 * SOCKET_BYTES_MAX && socket.write_all(frame.as_bytes()).is_ok() {
                sent += frame.len();
            }
            (socket, sent)
        })
        .collect();
    waiting(&gateway, 4);
    assert!(floods.iter().all(|(_, sent)| *sent < SOCKET_BYTES_MAX), "TCP holds them back");
    let begun = Instant::now();
    (0..100).for_each(|_| other.put("other", "meanwhile"));
    assert!(begun.elapsed() < Duration::from_secs(10), "others are served");
    let grown = gateway.rss().saturating_sub(before);
    assert!(grown < GROWTH_BYTES_MAX, "{grown} bytes");
}

#[test]
fn a_publisher_that_has_waited_for_too_long_is_told_and_its_message_is_not_kept() {
    let gateway =
        GatewayOptions::new().set("queue.messages_max=1").set("limits.publisher_wait=500ms").start();
    let mut publisher = Stomp::open(stomp(&gateway));
    publisher.put("late", "1");
    let begun = Instant::now();
    publisher.send("SEND\ndestination:/queue/late\nreceipt:r\n\n2\0SEND\ndestination:/queue/late\n\n3\0");
    let error = publisher.error();
    assert!(begun.elapsed() >= Duration::from_millis(450));
    assert_eq!(error.header("receipt-id"), "r");
    waiting(&gateway, 0);
    assert_has(stomp(&gateway), "late", ["1"]);
}

#[test]
fn without_a_wait_a_publisher_is_told_at_once() {
    let gateway = GatewayOptions::new().set("queue.messages_max=1").set("limits.publisher_wait=0s").start();
    let mut publisher = Stomp::open(stomp(&gateway));
    publisher.put("now", "1");
    publisher.send(send("now", 2));
    publisher.error();
    let mut worker = Stomp::open(stomp(&gateway));
    worker.subscribe("s", "now", "client-individual");
    assert_eq!(worker.message().text(), "1");
    worker.silence(SHORT);
}

#[test]
fn a_publisher_that_waits_gets_heart_beats_and_is_not_closed_for_its_silence() {
    let gateway = GatewayOptions::new().set("queue.messages_max=1").start();
    let mut publisher =
        Stomp::with(stomp(&gateway), "STOMP\naccept-version:1.2\nhost:h\nheart-beat:200,200\n\n\0");
    publisher.send(send("beat", 1) + &send("beat", 2));
    waiting(&gateway, 1);
    let (end, mut beats) = (Instant::now() + Duration::from_secs(3), 0);
    while Instant::now() < end {
        let bytes = publisher.bytes_within(end - Instant::now());
        assert!(bytes.iter().all(|byte| *byte == b'\n'));
        beats += bytes.len();
    }
    assert!(beats >= 2, "{beats} beats; the gateway offers one in a second");
    assert_eq!(drain(stomp(&gateway), "beat"), ["1", "2"]);
    publisher.put("alive", "still");
}

#[test]
fn a_commit_that_finds_no_room_waits_as_a_whole() {
    let gateway = GatewayOptions::new().set("queue.messages_max=2").start();
    let mut publisher = Stomp::open(stomp(&gateway));
    publisher.put("whole", "1");
    publisher.put("whole", "2");
    publisher.send("BEGIN\ntransaction:t\n\n\0");
    for body in ["3", "4"] {
        publisher.send(format!("SEND\ndestination:/queue/whole\ntransaction:t\n\n{body}\0"));
    }
    publisher.send("COMMIT\ntransaction:t\nreceipt:c\n\n\0");
    waiting(&gateway, 1);
    publisher.silence(SHORT);
    let mut worker = publisher.another();
    worker.subscribe("s", "whole", "auto");
    assert_eq!(bodies(&worker.messages(4)), ["1", "2", "3", "4"]);
    publisher.receipt("c");
}

#[test]
fn a_publisher_that_is_gone_while_it_waits_leaves_nothing_behind() {
    let gateway = GatewayOptions::new().set("queue.messages_max=1").set("limits.publisher_wait=1s").start();
    let publisher = {
        let mut publisher = Stomp::open(stomp(&gateway));
        publisher.put("gone", "1");
        publisher.send(send("gone", "2"));
        publisher
    };
    waiting(&gateway, 1);
    publisher.shut_down(Shutdown::Both);
    drop(publisher);
    waiting(&gateway, 0);
    assert_has(stomp(&gateway), "gone", ["1"]);
}

#[test]
fn what_a_waiting_publisher_has_taken_goes_to_others_as_soon_as_its_connection_breaks() {
    let gateway = GatewayOptions::new().set("queue.messages_max=1").start();
    let mut publisher = Stomp::open(stomp(&gateway));
    publisher.put("broken", "1");
    publisher.subscribe("s", "broken", "client-individual");
    assert_eq!(publisher.message().text(), "1");
    publisher.send(send("broken", "2") + &send("broken", "3"));
    waiting(&gateway, 1);
    let mut worker = publisher.another();
    worker.subscribe("s", "broken", "client-individual");
    worker.silence(SHORT);
    publisher.reset();
    assert_eq!(worker.message().text(), "1");
    waiting(&gateway, 0);
}

#[test]
fn a_publisher_that_has_closed_its_side_while_it_waits_still_gets_its_message_in() {
    let gateway = GatewayOptions::new().set("queue.messages_max=1").start();
    let mut publisher = Stomp::open(stomp(&gateway));
    publisher.put("half", "1");
    publisher.send(send("half", "2"));
    waiting(&gateway, 1);
    publisher.shut_down(Shutdown::Write);
    let mut worker = publisher.another();
    worker.silence(SHORT);
    worker.subscribe("s", "half", "auto");
    assert_eq!(bodies(&worker.messages(2)), ["1", "2"]);
}

#[test]
fn an_mqtt_publisher_to_a_queue_that_blocks_waits_in_every_version() {
    let gateway = GatewayOptions::new().set("queue.messages_max=5").set("queue.overflow=block").start();
    for (version, name) in [(Version::V311, "old"), (Version::V5, "new")] {
        let mut publisher = Login::fresh(version, name).open(gateway.address()).unwrap();
        for i in 0..20 {
            let mut message = Message::new(&format!("$queue/{name}"), i.to_string(), 1);
            message.id = publisher.next_id();
            publisher.send(&message).unwrap();
        }
        waiting(&gateway, 1);
        let mut worker = Stomp::open(stomp(&gateway));
        worker.subscribe("s", name, "auto");
        let expected: Vec<_> = (0..20).map(|i| i.to_string()).collect();
        assert_eq!(bodies(&worker.messages(20)), expected);
        waiting(&gateway, 0);
        publisher.ping().unwrap();
    }
}
