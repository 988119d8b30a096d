//! Deterministic simulation of the whole gateway: the real protocol code, hub, broker and store on a simulated disk, clock and
//! network, with simulated clients and a reference that knows what was promised to whom.
//!
//! `TIDEGATE_SIM_SEEDS=from..to` or `TIDEGATE_SIM_SECONDS=n` with the test `campaign` runs more seeds than the fixed ones.
#![allow(clippy::unwrap_used)]

mod action;
mod cast;
mod client;
mod deals;
mod deeds;
mod expiry;
mod finish;
mod frames;
mod gateway;
mod jobs;
mod ledger;
mod network;
mod payload;
mod queues;
mod random;
mod run;
mod speech;
mod stock;
mod transactions;
mod wire;
mod work;
mod worker;
mod world;

use std::time::{Duration, Instant};

use action::{Step, Theme};
use run::{STEPS, run, seed};
use tidegate::store::contract::Space;
use tidegate::store::simulation::Sabotage;
use world::{Control, Tally};

/// Seeds that failed once, one a line, each with a comment.
const FAILED_ONCE: &str = include_str!("seeds.txt");
/// Seeds that every run of the tests repeats.
const FIXED: std::ops::Range<u64> = 1..201;
/// The first seed of a campaign that is bounded by time, unless `TIDEGATE_SIM_SEEDS` names one.
const CAMPAIGN_FROM: u64 = 1_000_000;
/// Seeds that a planted fault may survive.
const CONTROL_SEEDS: u64 = 300;

fn all(seeds: impl Iterator<Item = (u64, Vec<Step>)>, goes_on: impl Fn() -> bool) -> Tally {
    let mut tally = Tally::default();
    let mut bad = vec![];
    for (n, list) in seeds {
        if !goes_on() || bad.len() >= 5 {
            break;
        }
        match seed(n, list, Control::default()) {
            Ok(one) => tally.add(&one),
            Err(text) => {
                println!("{text}\n");
                bad.push(n);
            }
        }
    }
    println!("{tally}");
    assert!(bad.is_empty(), "seeds that failed: {bad:?}");
    tally
}

/// A number, and `devices` if the seed is about those alone.
fn failed_once() -> impl Iterator<Item = (u64, Vec<Step>)> {
    FAILED_ONCE.lines().filter_map(|line| {
        let (number, theme) = line.split('#').next()?.trim().split_once(' ')?;
        let n = number.parse().expect("a line of seeds.txt begins with a number");
        let list = if theme == "devices" {
            action::steps_about(Theme::Devices, n, STEPS)
        } else {
            action::steps(n, STEPS)
        };
        Some((n, list))
    })
}

#[test]
fn seeds_that_failed_once_hold_now() {
    let tally = all(failed_once(), || true);
    assert!(tally.of("runs") > 0, "no line of seeds.txt was understood");
}

#[test]
fn what_was_promised_is_kept_through_everything_that_the_fixed_seeds_bring() {
    let about_devices = FIXED.map(|n| (n, action::steps_about(Theme::Devices, n, STEPS)));
    let about_all = FIXED.map(|n| (n, action::steps(n, STEPS)));
    let tally = all(about_devices.chain(about_all), || true);
    for name in [
        "power cuts during a checkpoint",
        "power cuts during recovery",
        "kills during a checkpoint",
        "disk failures",
        "checkpoints",
        "checkpoints_failed",
        "pages_loaded",
        "steps with a full store",
        "refused: quota",
        "ring_waits",
        "dropped: congested",
        "redelivered",
        "dropped: oldest",
        "dropped: expired",
        "shared: moved",
        "shared: returned",
        "wills",
        "takeovers",
        "sessions expired",
        "windows trimmed",
        "jobs taken",
        "jobs purged",
        "jobs moved",
        "queues deleted",
        "dead letters",
        "copies browsed",
        "transactions done",
        "transactions without effect",
        "transactions timed out",
        "never written",
    ] {
        assert!(tally.of(name) > 0, "the seeds bring no \"{name}\" about");
    }
}

/// Only on request: see the head of the file.
#[test]
fn campaign() {
    let range = std::env::var("TIDEGATE_SIM_SEEDS").ok().map(|text| {
        let (from, to) = text.split_once("..").expect("TIDEGATE_SIM_SEEDS is from..to");
        from.parse().expect("a number")..to.parse().expect("a number")
    });
    let seconds = std::env::var("TIDEGATE_SIM_SECONDS").ok().map(|text| text.parse().expect("seconds"));
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    if range.is_none() && until.is_none() {
        return;
    }
    let seeds = range.unwrap_or(CAMPAIGN_FROM..u64::MAX);
    all(seeds.map(|n| (n, action::steps(n, STEPS))), || until.is_none_or(|until| Instant::now() < until));
}

#[test]
fn a_seed_repeats_itself() {
    for n in 1..6 {
        let list = action::steps(n, STEPS);
        let [first, second] = [0; 2].map(|_| run(&list, Control::default()).map_err(|failure| failure.what));
        assert_eq!(first, second, "seed {n}");
    }
}

/// Some seed must notice the planted fault, and nothing when there is none.
fn is_noticed(theme: Theme, control: Control) {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let noticed = (1..=CONTROL_SEEDS).find_map(|n| {
        let list = action::steps_about(theme, n, STEPS);
        let failure = run(&list, control).err()?;
        run(&list, Control::default()).is_ok().then_some((n, failure))
    });
    std::panic::set_hook(hook);
    let (n, failure) = noticed.expect("no seed notices the fault");
    println!("seed {n}, step {}: {}", failure.at, failure.what);
}

#[test]
fn the_simulation_notices_syncs_that_do_nothing() {
    is_noticed(Theme::Devices, Control { lie_every: Some(3), ..Control::default() });
}

#[test]
fn the_simulation_notices_ring_space_that_is_used_again_before_the_checkpoint_is_durable() {
    let sabotage = Sabotage { release_early: true, ..Sabotage::default() };
    is_noticed(Theme::Devices, Control { sabotage, ..Control::default() });
}

#[test]
fn the_simulation_notices_acknowledgements_before_the_commit() {
    let sabotage = Sabotage { acknowledge_early: true, ..Sabotage::default() };
    is_noticed(Theme::Devices, Control { sabotage, ..Control::default() });
}

#[test]
fn the_simulation_notices_transactions_that_are_committed_in_two_steps() {
    let sabotage = Sabotage { split_batches: true, ..Sabotage::default() };
    is_noticed(Theme::Queues, Control { sabotage, ..Control::default() });
}

#[test]
fn the_simulation_notices_prepared_transactions_that_are_not_stored() {
    let sabotage = Sabotage { rows_lost: Some(Space::Prepared), ..Sabotage::default() };
    is_noticed(Theme::Queues, Control { sabotage, ..Control::default() });
}

#[test]
fn the_simulation_notices_decisions_that_are_not_stored() {
    let sabotage = Sabotage { rows_lost: Some(Space::Decided), ..Sabotage::default() };
    is_noticed(Theme::Queues, Control { sabotage, ..Control::default() });
}

#[test]
fn the_simulation_notices_redeliveries_that_are_not_flagged_after_a_kill() {
    let sabotage = Sabotage { rows_frozen: Some(Space::NamedQueue), ..Sabotage::default() };
    is_noticed(Theme::Queues, Control { sabotage, ..Control::default() });
}
