//! Full queues under load: every message that was published is delivered, waits or is counted as dropped.

use std::time::Duration;

use serde_json::Value;
use tidegate_mqtt::ReasonCode;

use crate::harness::{Client, Gateway, Login, Message, Random, Version};
use crate::parameter;
use crate::wire::{Order, Wire};

const CLIENT: &str = "soak-bounded";
const QUEUE_MAX: u64 = 700;
const GROUP_MAX: u64 = 300;

/// Publishes a group; how many messages were accepted.
fn publish(publisher: &mut Client, first: u64, count: u64) -> u64 {
    let mut ids = Vec::new();
    for number in first..first + count {
        let mut message = Message::new("plant/1", "", 1);
        message.payload = [number.to_be_bytes().as_slice(), &[7; 200]].concat();
        message.id = publisher.next_id();
        publisher.send(&message).unwrap();
        ids.push(message.id);
    }
    let reasons = ids.into_iter().map(|id| publisher.finish(1, id).unwrap());
    let accepted = |reason: &u8| {
        assert!(*reason < 0x80 || *reason == ReasonCode::QuotaExceeded.byte(), "PUBACK 0x{reason:02x}");
        *reason < 0x80
    };
    reasons.filter(accepted).count() as u64
}

/// Messages that wait, and that were dropped, as the status shows it.
fn account(gateway: &Gateway) -> (u64, u64) {
    let status = gateway.status();
    let queue = status["queues"].as_array().unwrap().iter().find(|queue| queue["name"] == CLIENT).cloned();
    let queue = queue.expect("the queue is listed");
    let dropped = queue["dropped"].as_object().map_or(0, |c| c.values().filter_map(Value::as_u64).sum());
    (queue["messages"].as_u64().unwrap(), dropped)
}

/// The consumer comes, takes up to `count` messages while they come, and goes.
fn visit(gateway: &Gateway, count: u64, order: &mut Order) {
    let mut consumer = Wire::open(gateway.address(), CLIENT, false).unwrap();
    consumer.set_patience(Duration::from_millis(30)).unwrap();
    let end = order.taken.saturating_add(count);
    while order.taken < end && consumer.take(|arrived| order.see(arrived)).unwrap() > 0 {}
    consumer.close().unwrap();
}

/// What the consumer has acknowledged is settled when it is gone.
fn await_absence(gateway: &Gateway) {
    gateway.await_status("the consumer's absence", |status| {
        (status["sessions"]["disconnected"] == 1).then_some(())
    });
}

fn run(policy: &str, messages: u64, random: &mut Random) {
    let gateway = Gateway::with(&[
        &format!("queue.messages_max={QUEUE_MAX}"),
        &format!("queue.overflow={policy}"),
        "limits.queue_window_max=16KiB",
    ]);
    let mut consumer = Wire::open(gateway.address(), CLIENT, false).unwrap();
    consumer.subscribe("plant/#").unwrap();
    consumer.close().unwrap();
    let mut publisher = Login::fresh(Version::V5, "soak-publisher").open(gateway.address()).unwrap();
    let (mut sent, mut accepted, mut order) = (0, 0, Order::default());
    while sent < messages {
        let count = random.between(1, GROUP_MAX);
        accepted += publish(&mut publisher, sent, count);
        sent += count;
        if random.chance(40) {
            visit(&gateway, random.between(1, 2 * GROUP_MAX), &mut order);
            await_absence(&gateway);
        }
        let (queued, dropped) = account(&gateway);
        assert_eq!(accepted, order.taken + queued + dropped, "{policy}: after {sent} messages, {order:?}");
    }
    visit(&gateway, u64::MAX, &mut order);
    await_absence(&gateway);
    let (queued, dropped) = account(&gateway);
    println!(
        "{policy}: {sent} sent, {accepted} accepted = {} delivered + {queued} queued + {dropped} dropped",
        order.taken
    );
    assert_eq!((queued, accepted), (0, order.taken + dropped));
    assert_eq!(policy == "reject", accepted < sent, "only that policy refuses");
    assert_eq!(policy == "reject", dropped == 0, "and it drops nothing");
}

#[test]
fn every_overflow_policy_accounts_for_every_message() {
    let messages = parameter("TIDEGATE_SOAK_POLICY_MESSAGES").unwrap_or(5000);
    let mut random = Random::for_test("policies");
    for policy in ["reject", "drop-head", "drop-tail"] {
        run(policy, messages, &mut random);
    }
}
