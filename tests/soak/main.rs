//! Large amounts: memory, restart, order, space and wear, measured on the program itself.
//!
//! Without variables these are small runs that check what does not depend on the machine's speed. `TIDEGATE_SOAK_MESSAGES` and
//! the others in tests/README.md make them as large as wanted; then the bounds on time hold too, and the figures are worth
//! reading (`-- --nocapture --test-threads 1`).
#![allow(clippy::unwrap_used)]

#[path = "../harness/mod.rs"]
mod harness;

mod footprint;
mod outage;
mod policies;
mod space;
mod switches;
mod wear;
mod wire;

use std::fmt::Display;
use std::str::FromStr;

/// A number from the environment.
fn parameter<T: FromStr>(name: &str) -> Option<T>
where
    T::Err: Display,
{
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}

/// Bytes as MiB, for people.
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
