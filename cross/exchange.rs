//! A store file that one program has written is read by another, and the other way round: everything comes back identical.
//!
//! The programs are `TIDEGATE_BIN` and `TIDEGATE_OTHER_BIN`, for example builds for two processors; without them both are the
//! one that was built with this test. `TIDEGATE_EXCHANGE_MESSAGES` is the length of the queue.
#![allow(clippy::unwrap_used)]

#[path = "../tests/harness/mod.rs"]
mod harness;

use std::path::PathBuf;

use harness::{Client, Gateway, Login, Message, Random, Version};

/// Messages in the queue, if not set.
const MESSAGES: usize = 2000;
/// Unacknowledged messages of the publisher.
const WINDOW: usize = 200;
const RETAINED: usize = 50;
/// Every so many messages one is of QoS 2, which the store keeps more about.
const QOS2_EVERY: usize = 1000;
/// Bytes of an ordinary payload, at most; every thousandth is this many times larger.
const PAYLOAD_BYTES: u64 = 200;
const LARGE: u64 = 500;

fn count() -> usize {
    std::env::var("TIDEGATE_EXCHANGE_MESSAGES").map_or(MESSAGES, |text| text.parse().expect("a number"))
}

fn other_program() -> Option<PathBuf> {
    std::env::var_os("TIDEGATE_OTHER_BIN").map(PathBuf::from)
}

/// How the writer ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Stopped,
    Killed,
}

fn message(random: &mut Random, n: usize) -> Message {
    let factor = if n % 1000 == 999 { LARGE } else { 1 };
    let size = random.below(PAYLOAD_BYTES * factor) as usize;
    let mut message = Message::new(&format!("plant/{}/{}", random.below(40), n % 7), random.bytes(size), 1);
    if random.chance(20) {
        message.user = vec![("n".into(), n.to_string()), ("n".into(), "again".into())];
        message.content_type = Some("application/octet-stream".into());
    }
    if random.chance(10) {
        message.correlation = Some(random.bytes(16));
        message.response_topic = Some("answers/here".into());
    }
    message
}

/// A session with a queue of messages, and retained messages.
fn fill(gateway: &Gateway, queued: &[Message], retained: &[Message]) {
    let mut consumer = Login::persistent(Version::V5, "consumer").open(gateway.address()).unwrap();
    consumer.subscribe("plant/#", 2).unwrap();
    consumer.disconnect().unwrap();
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    for part in queued.chunks(QOS2_EVERY) {
        let (last, rest) = part.split_last().unwrap();
        publisher.publish_all(rest.iter().cloned(), WINDOW).unwrap();
        assert!(publisher.publish(last).unwrap() < 0x80);
    }
    for message in retained {
        assert!(publisher.publish(message).unwrap() < 0x80);
    }
}

/// What was received as it was sent, but for what belongs to the delivery.
fn as_sent(received: Message) -> Message {
    Message { id: 0, dup: false, ..received }
}

fn take(client: &mut Client, expected: &[Message]) {
    for (n, wanted) in expected.iter().enumerate() {
        let received = as_sent(client.message().unwrap());
        assert!(received == *wanted, "message {n}: {wanted:?} came back as {received:?}");
    }
}

/// Everything comes back identical and in order, and nothing comes after it.
fn drain(gateway: &Gateway, queued: &[Message], retained: &[Message]) {
    let mut consumer = Login::persistent(Version::V5, "consumer").open(gateway.address()).unwrap();
    assert!(consumer.connack.session_present);
    take(&mut consumer, queued);
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    let end = Message::new("plant/end", "end", 1);
    publisher.publish(&end).unwrap();
    take(&mut consumer, &[end]);
    consumer.disconnect().unwrap();
    let mut reader = Login::fresh(Version::V5, "reader").open(gateway.address()).unwrap();
    for wanted in retained {
        reader.subscribe(&wanted.topic, 1).unwrap();
        assert_eq!(as_sent(reader.message().unwrap()), *wanted);
    }
}

fn exchange(writer: Option<PathBuf>, reader: Option<PathBuf>, end: End) {
    let mut random = Random::for_test("exchange");
    let mut queued: Vec<Message> = (0..count()).map(|n| message(&mut random, n)).collect();
    queued.iter_mut().skip(QOS2_EVERY - 1).step_by(QOS2_EVERY).for_each(|message| message.qos = 2);
    let retain = |n| Message::retained(&format!("state/{n}"), format!("value {n}"), 1);
    let retained: Vec<Message> = (0..RETAINED).map(retain).collect();

    let mut gateway = harness::GatewayOptions::new().program(writer).start();
    fill(&gateway, &queued, &retained);
    match end {
        End::Stopped => assert!(gateway.stop().success()),
        End::Killed => drop(gateway.kill()),
    }
    gateway.use_program(reader);
    gateway.restart();
    let waiting = gateway.await_status("the queue", |status| status["queues_total"]["messages"].as_u64());
    assert_eq!(waiting, queued.len() as u64);
    drain(&gateway, &queued, &retained);
    assert!(gateway.stop().success());
}

#[test]
fn what_the_first_program_wrote_comes_back_identical_from_the_other_after_a_stop() {
    exchange(None, other_program(), End::Stopped);
}

#[test]
fn what_the_first_program_wrote_comes_back_identical_from_the_other_after_a_kill() {
    exchange(None, other_program(), End::Killed);
}

#[test]
fn what_the_other_program_wrote_comes_back_identical_from_the_first_after_a_stop() {
    exchange(other_program(), None, End::Stopped);
}

#[test]
fn what_the_other_program_wrote_comes_back_identical_from_the_first_after_a_kill() {
    exchange(other_program(), None, End::Killed);
}
