//! The store: one file, two tiers.
//!
//! A write-ahead ring takes every batch with one write and one sync; what the ring holds is also in memory. A checkpoint moves
//! what has not been settled meanwhile to redb, in the same file, and frees the ring. See [`Store`] for how to drive it,
//! `layout` for the file, `record` for the ring's format, `segment` for the cold tier's.

pub mod contract;

mod checkpoint;
mod cold;
mod cold_read;
mod cold_write;
mod counters;
mod error;
mod frame;
mod gate;
mod handle;
mod hot;
mod hot_queue;
mod layout;
mod load_queue;
mod loader;
mod media;
mod offset_backend;
mod pace;
mod probe;
mod record;
mod recover;
mod ring;
mod segment;
mod share;
mod shared;
mod space;
mod squeeze;
mod threads;
mod tools;
mod upgrade;
mod verify;
mod worker;
mod writer;

pub use counters::Counters;
pub use error::StoreError;
pub use handle::{Store, StoreOptions};
pub use media::{Media, RealFile};
pub use tools::StoreTools;
pub use verify::Verification;

#[cfg(any(test, feature = "simulation"))]
#[cfg_attr(not(test), allow(dead_code, reason = "the tests of the pure modules alone use all of it"))]
pub(crate) mod fake;
#[cfg(any(test, feature = "simulation"))]
mod sim_media;
#[cfg(feature = "simulation")]
pub mod simulation;
#[cfg(test)]
mod tests_faults;
#[cfg(test)]
mod tests_file;
#[cfg(test)]
mod tests_format;
#[cfg(test)]
mod tests_here;
#[cfg(test)]
mod tests_latency;
#[cfg(test)]
mod tests_model;
#[cfg(test)]
mod tests_numbers;
#[cfg(test)]
mod tests_power;
#[cfg(test)]
pub(crate) mod tests_support;
#[cfg(test)]
mod tests_tools;
#[cfg(test)]
mod tests_wear;
