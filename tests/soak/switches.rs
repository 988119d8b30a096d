//! A queue that goes between memory and disk again and again while messages come and a slow consumer takes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::harness::{Gateway, PATIENCE, Random, eventually};
use crate::parameter;
use crate::wire::{Order, Wire};

const CLIENT: &str = "soak-switcher";
const PAYLOAD_BYTES: usize = 200;
/// The consumer looks whether it is to stop reading this often.
const GLANCE: Duration = Duration::from_millis(1);

/// The queue's messages live on disk alone.
fn spilled(gateway: &Gateway) -> bool {
    let status = gateway.status();
    let queue = status["queues"].as_array().unwrap().iter().find(|queue| queue["name"] == CLIENT).cloned();
    queue.is_some_and(|queue| queue["spilled"] == true)
}

fn await_mode(gateway: &Gateway, wanted: bool) {
    eventually("the other mode", PATIENCE, || {
        if spilled(gateway) == wanted { Ok(()) } else { Err(format!("spilled is not {wanted}")) }
    });
}

/// What the consumer, the publisher and the test tell each other.
#[derive(Default)]
struct Shared {
    stalled: AtomicBool,
    over: AtomicBool,
    /// Messages that were acknowledged to it.
    published: AtomicU64,
}

fn consume(mut consumer: Wire, shared: &Shared) -> Order {
    let mut order = Order::default();
    consumer.set_patience(GLANCE).unwrap();
    loop {
        if shared.stalled.load(SeqCst) {
            std::thread::sleep(GLANCE);
            continue;
        }
        // The last word of the publisher counts only if it was known before the read.
        let done = shared.over.load(SeqCst) && order.taken == shared.published.load(SeqCst);
        if consumer.take(|arrived| order.see(arrived)).unwrap() == 0 && done {
            return order;
        }
    }
}

/// Publishes in bursts of random lengths, slowly enough for a consumer that reads.
fn publish(mut publisher: Wire, shared: &Shared, mut random: Random) {
    let mut sent = 0;
    while !shared.over.load(SeqCst) {
        let burst = random.between(1, 200);
        publisher.publish("mode/1", sent..sent + burst, PAYLOAD_BYTES, 200).unwrap();
        sent += burst;
        shared.published.store(sent, SeqCst);
        std::thread::sleep(Duration::from_micros(random.between(0, 3000)));
    }
}

#[test]
fn order_holds_and_nothing_comes_twice_across_changes_between_memory_and_disk() {
    let switches: u64 = parameter("TIDEGATE_SOAK_SWITCHES").unwrap_or(60);
    let gateway = Gateway::with(&[
        "limits.queue_window_max=16KiB",
        "limits.queue_memory_max=256KiB",
        "limits.inflight_messages_max=20",
        "limits.inflight_bytes_max=8KiB",
    ]);
    let mut consumer = Wire::open(gateway.address(), CLIENT, false).unwrap();
    consumer.subscribe("mode/#").unwrap();
    let shared = Arc::new(Shared::default());
    let mut random = Random::for_test("switches");
    let branch = random.branch();
    let publisher = Wire::open(gateway.address(), "soak-publisher", true).unwrap();
    let reader = std::thread::spawn({
        let shared = shared.clone();
        move || consume(consumer, &shared)
    });
    let writer = std::thread::spawn({
        let shared = shared.clone();
        move || publish(publisher, &shared, branch)
    });
    for n in 0..switches {
        let spill = n % 2 == 0;
        shared.stalled.store(spill, SeqCst);
        await_mode(&gateway, spill);
        std::thread::sleep(Duration::from_millis(random.between(0, 5)));
    }
    shared.stalled.store(false, SeqCst);
    shared.over.store(true, SeqCst);
    writer.join().unwrap();
    let order = reader.join().unwrap();
    let published = shared.published.load(SeqCst);
    println!("{switches} changes of mode over {published} messages: {order:?}");
    assert_eq!(order, Order { taken: published, next: published, ..Order::default() });
}
