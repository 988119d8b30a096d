//! The file's size: a slow queue beside a fast one, and the end of a session with a long backlog.
//!
//! What counts is the space that the file takes on the disk. Its length runs ahead of that: redb extends a file in steps that
//! double, and what was never written takes no space.

use std::time::{Duration, Instant};

use crate::harness::Gateway;
use crate::wire::{Order, Wire};
use crate::{mib, parameter};

/// Messages between two looks at the file.
const ROUND: u64 = 1000;
/// Messages of the slow queue per round.
const SLOW_PER_ROUND: u64 = 10;
/// In this many rounds out of each [`CYCLE`] the fast consumer is away, so that its messages get between the slow ones.
const AWAY: u64 = 5;
const CYCLE: u64 = 100;
/// What the file may be larger than what lives, and by which factor all of it.
const SLACK_BYTES: u64 = 16 << 20;
const FACTOR: f64 = 1.5;

/// Length of the store's file and what it takes on the disk.
fn file(gateway: &Gateway) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(gateway.store_file()).unwrap();
    (found.len(), found.blocks() * 512)
}

/// A session with these subscriptions that nobody uses for now.
fn leave_session(gateway: &Gateway, client_id: &str, filter: &str) {
    let mut client = Wire::open(gateway.address(), client_id, false).unwrap();
    client.subscribe(filter).unwrap();
    client.close().unwrap();
}

fn live_bytes(gateway: &Gateway) -> u64 {
    gateway.status()["queues_total"]["bytes"].as_u64().unwrap()
}

#[test]
fn a_slow_queue_does_not_pin_the_space_of_a_fast_one() {
    let large: Option<u64> = parameter("TIDEGATE_SOAK_MESSAGES");
    let count = large.unwrap_or(100_000);
    let backlog_mib: u64 =
        parameter("TIDEGATE_SOAK_BACKLOG_MIB").unwrap_or(if large.is_some() { 100 } else { 24 });
    let fast_bytes: usize = parameter("TIDEGATE_SOAK_FAST_BYTES").unwrap_or(1024);
    let gateway = Gateway::start();
    leave_session(&gateway, "soak-slow", "slow/#");
    leave_session(&gateway, "soak-fast", "fast/#");
    let mut publisher = Wire::open(gateway.address(), "soak-publisher", true).unwrap();
    let (mut slow_sent, mut slow) = (backlog_mib * 1024, Order::default());
    publisher.publish("slow/1", 0..slow_sent, 1024, 1000).unwrap();
    let mut slow_consumer = Wire::open(gateway.address(), "soak-slow", false).unwrap();
    let mut fast_consumer = Some(Wire::open(gateway.address(), "soak-fast", false).unwrap());
    let (mut fast, mut fast_sent, mut round) = (Order::default(), 0, 0);
    let mut worst = (0.0, 0, 0);
    while fast_sent < count {
        publisher.publish("fast/1", fast_sent..fast_sent + ROUND, fast_bytes, 1000).unwrap();
        publisher.publish("slow/1", slow_sent..slow_sent + SLOW_PER_ROUND, 1024, 1000).unwrap();
        fast_sent += ROUND;
        slow_sent += SLOW_PER_ROUND;
        slow_consumer.take_at_most(SLOW_PER_ROUND, &mut slow).unwrap();
        let away = round % CYCLE < AWAY;
        if away {
            fast_consumer = None;
        } else {
            let consumer = fast_consumer
                .get_or_insert_with(|| Wire::open(gateway.address(), "soak-fast", false).unwrap());
            consumer.take_in_order(fast_sent - fast.taken, &mut fast).unwrap();
        }
        round += 1;
        let live = live_bytes(&gateway);
        let (length, taken) = file(&gateway);
        let share = taken as f64 / (live + SLACK_BYTES) as f64;
        if share > worst.0 {
            worst = (share, live, taken);
        }
        if round % (count / ROUND / 20).max(100) == 0 {
            println!(
                "{fast_sent}: live {:.1} MiB, on the disk {:.1} MiB, length {:.1} MiB",
                mib(live),
                mib(taken),
                mib(length)
            );
        }
    }
    println!(
        "{count} messages beside a backlog of {backlog_mib} MiB: disk space at most {:.2} x (live bytes + 16 MiB): {:.1} MiB with {:.1} MiB live",
        worst.0,
        mib(worst.2),
        mib(worst.1)
    );
    assert_eq!((fast.inversions, slow.inversions), (0, 0));
    assert!(worst.0 <= FACTOR, "{} bytes on the disk for {} live ones", worst.2, worst.1);
}

#[test]
fn the_end_of_a_session_with_a_long_backlog_hardly_grows_the_file() {
    let count: u64 = parameter("TIDEGATE_SOAK_MESSAGES").unwrap_or(100_000);
    let gateway = Gateway::start();
    leave_session(&gateway, "soak-gone", "plant/#");
    let mut publisher = Wire::open(gateway.address(), "soak-publisher", true).unwrap();
    publisher.publish("plant/1", 0..count, 100, 1000).unwrap();
    let (before, _) = file(&gateway);
    let begun = Instant::now();
    let mut client = Wire::open(gateway.address(), "soak-gone", true).unwrap();
    let answered = begun.elapsed();
    let (mut most, mut quiet, mut last) = (before, 0, 0);
    // The purge is over when checkpoints have come to rest.
    while quiet < 30 {
        let written = gateway.status()["store"]["checkpoints"].as_u64().unwrap();
        most = most.max(file(&gateway).0);
        quiet = if written == last { quiet + 1 } else { 0 };
        last = written;
        std::thread::sleep(Duration::from_millis(50));
    }
    let (after, blocks) = file(&gateway);
    println!(
        "purge of {count} messages: CONNACK after {:.0} ms; file {:.1} MiB before, at most {:.1}, {:.1} after ({:.1} on the disk)",
        answered.as_secs_f64() * 1e3,
        mib(before),
        mib(most),
        mib(after),
        mib(blocks)
    );
    assert_eq!(live_bytes(&gateway), 0);
    assert!(most <= before + SLACK_BYTES, "from {before} to {most} bytes");
    client.subscribe("plant/#").unwrap();
    publisher.publish("plant/1", count..count + 10, 100, 10).unwrap();
    let mut order = Order { next: count, ..Order::default() };
    client.take_in_order(10, &mut order).unwrap();
    assert_eq!(order.inversions, 0);
}
