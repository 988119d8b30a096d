//! Kills the gateway under mixed load, again and again, and compares what is left with what was acknowledged.
//!
//! `TIDEGATE_KILLS` sets the number of kills, `TIDEGATE_SEED` repeats a sequence of choices. Moments are chosen by progress
//! of the load and at random: under load, shortly after a start (during recovery), and during a shutdown.
#![allow(clippy::unwrap_used)]

#[path = "../harness/mod.rs"]
mod harness;

mod black_hole;
mod outbox;
mod publisher;
mod retained;
mod stopped;
mod subscriber;
mod subscriptions;
mod wills;
mod world;

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use serde_json::Value;

use harness::{Deadline, Gateway, GatewayOptions, Login, Message, PATIENCE, Random, Version};
use publisher::Publisher;
use subscriber::{Manner, Subscriber};
use world::World;

/// Kills of a run that does not say otherwise.
const KILLS_DEFAULT: u64 = 20;

/// Publishers under load.
const PUBLISHERS: usize = 4;

/// Messages that each publisher may send between two kills: at least and at most.
const GRANT: (u64, u64) = (30, 250);

/// Longest delay in milliseconds from the moment that the progress calls for a kill to the kill.
const DELAY_MS: u64 = 20;

/// Of a hundred kills so many are meant for a process that is starting: most hit its recovery.
const EARLY_PERCENT: u64 = 20;

/// ... and so many for one that was asked to stop.
const STOPPING_PERCENT: u64 = 15;

/// From so many kills on, a tenth of them must have hit a recovery.
const RECOVERY_KILLS_FROM: u64 = 100;

/// Log lines around a recovery.
const BEGUN: &str = "starting";
const RECOVERED: &str = "store open";

/// Longest time in milliseconds from SIGTERM to SIGKILL.
const STOP_MS: u64 = 15;

fn kills() -> u64 {
    std::env::var("TIDEGATE_KILLS")
        .ok()
        .map_or(KILLS_DEFAULT, |text| text.parse().expect("TIDEGATE_KILLS is a number"))
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_of_level_2_comes_twice_whenever_the_gateway_is_killed() {
    let mut random = Random::for_test("kills");
    let options = GatewayOptions::new().set("limits.will_grace=1s").set("log.level=info");
    // A small ring and little memory bring checkpoints and queues on disk only into play.
    let small = [
        "store.ring=1MiB",
        "limits.packet_max=64KiB",
        "limits.queue_memory_max=256KiB",
        "limits.queue_window_max=32KiB",
    ];
    let settings = if random.chance(70) { &small[..] } else { &[] };
    let options = settings.iter().fold(options, |options, setting| options.set(setting));
    let mut gateway = options.start();
    let world = World::new(gateway.address());
    let mut subscribers = subscribers(&mut random);
    subscribers.iter_mut().for_each(|subscriber| subscriber.begin(&world));
    std::thread::scope(|scope| {
        for number in 0..PUBLISHERS {
            let (world, random) = (&world, random.branch());
            scope.spawn(move || world.guarded(|| Publisher::new(number, random).run(world)));
        }
        for subscriber in &mut subscribers {
            let world = &world;
            scope.spawn(move || world.guarded(|| subscriber.run(world)));
        }
        let (world, choices) = (&world, [random.branch(), random.branch(), random.branch()]);
        let [retained, subscriptions, wills] = choices;
        scope.spawn(move || world.guarded(|| retained::run(world, retained)));
        scope.spawn(move || world.guarded(|| subscriptions::run(world, subscriptions)));
        scope.spawn(move || world.guarded(|| wills::run(world, wills)));
        world.guarded(|| kill_again_and_again(world, &mut gateway, &mut random));
    });
    // All is there. Once more: what was settled must stay settled.
    gateway.kill();
    gateway.restart();
    nothing_is_left(&gateway, &world, &mut subscribers);
    eprintln!("{}", world.report());
}

/// Live ones and ones that come and go, of both versions.
fn subscribers(random: &mut Random) -> Vec<Subscriber> {
    [
        (Version::V5, Manner::Live),
        (Version::V311, Manner::Live),
        (Version::V5, Manner::ComesAndGoes),
        (Version::V311, Manner::ComesAndGoes),
        (Version::V5, Manner::Away),
    ]
    .into_iter()
    .enumerate()
    .map(|(number, (version, manner))| Subscriber::new(number, version, manner, random.branch()))
    .collect()
}

/// Where the kills have fallen.
#[derive(Debug, Default)]
struct Moments {
    in_recovery: u64,
    under_load: u64,
    stopping: u64,
    /// Before the program had begun, or after it had ended.
    beside: u64,
}

fn kill_again_and_again(world: &World, gateway: &mut Gateway, random: &mut Random) {
    let mut moments = Moments::default();
    // Its first start made the file; later ones find one, and their recovery is as long as the last one that was seen.
    let (mut log_from, mut recovery) = (0, Duration::from_millis(5));
    for kill in 0..kills() {
        world.next_round();
        let choice = random.below(100);
        if choice < EARLY_PERCENT {
            await_begin(gateway, log_from);
            std::thread::sleep(recovery.mul_f64(random.below(1000) as f64 / 1000.0));
        } else {
            progress(world, gateway, random);
            if choice < EARLY_PERCENT + STOPPING_PERCENT {
                gateway.signal_stop();
                pause(random.below(STOP_MS));
            } else {
                pause(random.below(DELAY_MS));
            }
        }
        // A process that was asked to stop may have ended before, and well.
        let code = gateway.kill().code();
        assert!(matches!(code, None | Some(0)));
        let log = gateway.log_from(log_from);
        if let Some(millis) = recovery_millis(&log) {
            recovery = Duration::from_millis(millis + 1);
        }
        match () {
            () if code.is_some() || !log.contains(BEGUN) => moments.beside += 1,
            () if !log.contains(RECOVERED) => moments.in_recovery += 1,
            () if log.contains("stopping") => moments.stopping += 1,
            () => moments.under_load += 1,
        }
        log_from = gateway.log_bytes();
        gateway.spawn();
        if kill % 20 == 19 {
            eprintln!("{} kills, {moments:?}: {}", kill + 1, world.report());
        }
    }
    assert!(kills() < RECOVERY_KILLS_FROM || moments.in_recovery * 10 >= kills(), "{moments:?}");
    progress(world, gateway, random);
    world.end();
    world.wait_until("all is delivered", || world.is_complete() || ended(gateway));
}

/// Waits until the process has reported its start: what comes next is its recovery.
fn await_begin(gateway: &mut Gateway, log_from: u64) {
    let deadline = Deadline::after(PATIENCE);
    while !gateway.log_from(log_from).contains(BEGUN) {
        assert!(!gateway.has_ended() && !deadline.is_over(), "the gateway does not start");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// How long the recovery took that this log tells of.
fn recovery_millis(log: &str) -> Option<u64> {
    let line = log.lines().find(|line| line.contains(RECOVERED))?;
    line.split_once("millis=")?.1.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Lets the load go on up to a random point: of what is acknowledged, of what is delivered, or of the other state.
fn progress(world: &World, gateway: &mut Gateway, random: &mut Random) {
    let grant = random.between(GRANT.0, GRANT.1);
    world.grant(grant);
    let messages = random.below(grant * PUBLISHERS as u64 * 9 / 10);
    let (what, counter, target) = match random.below(10) {
        0..5 => ("acknowledgements", &world.acknowledged, messages),
        // Two subscribers are there all the time.
        5..8 => ("deliveries", &world.delivered, messages * 2),
        _ => ("checks of other state", &world.checks, random.between(1, 3)),
    };
    let target = counter.load(SeqCst) + target;
    world.wait_until(what, || counter.load(SeqCst) >= target || ended(gateway));
}

/// A gateway that ends by itself is a fault.
fn ended(gateway: &mut Gateway) -> bool {
    assert!(!gateway.has_ended(), "the gateway has ended by itself");
    false
}

fn pause(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}

fn nothing_is_left(gateway: &Gateway, world: &World, subscribers: &mut [Subscriber]) {
    let mut publisher = Login::fresh(Version::V5, "end").open(gateway.address()).unwrap();
    publisher.publish(&Message::new("load/end", "end", 2)).unwrap();
    for subscriber in subscribers {
        subscriber.read_to_the_end(world);
    }
    // Wills may still be on their way to their watcher.
    gateway.await_status("empty queues of the subscribers", |status| {
        let mut queues = status["queues"].as_array()?.iter();
        let is_empty = |queue: &Value| {
            queue["messages"] == 0
                || !queue["name"].as_str().is_some_and(|name| name.starts_with("subscriber-"))
        };
        queues.all(is_empty).then_some(())
    });
}
