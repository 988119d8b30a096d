//! A long outage of the only consumer, a kill in the middle, and the drain.

use std::time::{Duration, Instant};

use crate::harness::{Gateway, PATIENCE};
use crate::wire::{Order, Wire};
use crate::{mib, parameter};

const TOPIC: &str = "plant/7/line/3";
const PAYLOAD_BYTES: usize = 1024;
/// Unacknowledged messages of the publisher.
const WINDOW: u64 = 1000;
/// Where the first memory reading is taken.
const EARLY: u64 = 50_000;
/// Messages of the comparison without an outage.
const DIRECT_MAX: u64 = 300_000;
/// Messages between two readings of the memory.
const CHUNK: u64 = 10_000;
const RSS_MAX: u64 = 32 << 20;
const RSS_GROWTH_MAX: u64 = 4 << 20;
const RESTART_MAX: Duration = Duration::from_millis(250);
const DRAIN_RATIO_MIN: f64 = 0.8;

/// Publishes `count` messages while the consumer takes them; messages per second.
fn direct_rate(gateway: &Gateway, count: u64) -> f64 {
    let address = gateway.address();
    let mut consumer = Wire::open(address, "soak-direct", false).unwrap();
    consumer.subscribe("direct/#").unwrap();
    let begun = Instant::now();
    let publisher = std::thread::spawn(move || {
        Wire::open(address, "soak-publisher", true).unwrap().publish(
            "direct/1",
            0..count,
            PAYLOAD_BYTES,
            WINDOW,
        )
    });
    let mut order = Order::default();
    consumer.take_in_order(count, &mut order).unwrap();
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    publisher.join().unwrap().unwrap();
    assert_eq!((order.taken, order.again, order.inversions), (count, 0, 0));
    consumer.close().unwrap();
    Wire::open(address, "soak-direct", true).unwrap().close().unwrap();
    rate
}

/// Starts the killed gateway again; the consumer is back and has its first message after this long.
fn restart_to_first(gateway: &mut Gateway, order: &mut Order) -> (Wire, Duration) {
    let begun = Instant::now();
    gateway.spawn();
    let mut consumer = loop {
        match Wire::open(gateway.address(), "soak-consumer", false) {
            Ok(consumer) => break consumer,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "the gateway does not serve: {error}"),
        }
        std::thread::sleep(Duration::from_micros(500));
    };
    while consumer.take(|arrived| order.see(arrived)).unwrap() == 0 {}
    (consumer, begun.elapsed())
}

#[test]
fn a_backlog_of_any_length_costs_no_memory_and_comes_back_in_order_after_a_kill() {
    let large: Option<u64> = parameter("TIDEGATE_SOAK_MESSAGES");
    let count = large.unwrap_or(60_000);
    let mut gateway = Gateway::start();
    let direct = direct_rate(&gateway, count.min(DIRECT_MAX));
    let mut consumer = Wire::open(gateway.address(), "soak-consumer", false).unwrap();
    consumer.subscribe("plant/#").unwrap();
    consumer.close().unwrap();

    let mut publisher = Wire::open(gateway.address(), "soak-publisher", true).unwrap();
    let (mut sent, mut early, mut most) = (0, 0, 0);
    let begun = Instant::now();
    while sent < count {
        let next = (sent + CHUNK).min(count);
        publisher.publish(TOPIC, sent..next, PAYLOAD_BYTES, WINDOW).unwrap();
        sent = next;
        let rss = gateway.rss();
        most = most.max(rss);
        if sent == EARLY {
            early = rss;
        }
    }
    let filled = count as f64 / begun.elapsed().as_secs_f64();
    let end = gateway.rss();
    println!(
        "outage of {count} x {PAYLOAD_BYTES} B: {filled:.0} messages/s in, RSS {:.1} MiB at {EARLY}, {:.1} at the end, at most {:.1}; file {:.0} MiB",
        mib(early),
        mib(end),
        mib(most),
        mib(std::fs::metadata(gateway.store_file()).unwrap().len())
    );
    gateway.kill();
    drop(publisher);

    let mut order = Order::default();
    let (mut consumer, first) = restart_to_first(&mut gateway, &mut order);
    let begun = Instant::now();
    let before = order.taken;
    while order.taken < count {
        consumer.take_in_order((count - order.taken).min(CHUNK), &mut order).unwrap();
        most = most.max(gateway.rss());
    }
    let drained = (count - before) as f64 / begun.elapsed().as_secs_f64();
    println!(
        "kill -9, then {:.0} ms from start to the first delivery; drained in order at {drained:.0} messages/s, {:.2} of the {direct:.0} without an outage; RSS at most {:.1} MiB",
        first.as_secs_f64() * 1e3,
        drained / direct,
        mib(most)
    );
    assert_eq!((order.taken, order.again, order.inversions), (count, 0, 0));
    assert!(most <= RSS_MAX, "RSS {} MiB", mib(most));
    assert!(most <= early + RSS_GROWTH_MAX, "RSS {} MiB after {} MiB at {EARLY}", mib(most), mib(early));
    if large.is_some() {
        assert!(first <= RESTART_MAX, "{first:?} from the start to the first delivery");
        assert!(drained >= DRAIN_RATIO_MIN * direct, "drained {drained:.0}/s, direct {direct:.0}/s");
    }
    consumer.close().unwrap();
}
