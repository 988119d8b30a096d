//! The store: one file, two tiers.
//!
//! A write-ahead ring takes every batch with one write and one sync; what the ring holds is also in memory. A checkpoint moves
//! what has not been settled meanwhile to redb, in the same file, and frees the ring. See [`Store`] for how to drive it,
//! [`layout`] for the file, [`record`] for the ring's format, [`segment`] for the cold tier's.

pub mod contract;

mod checkpoint;
mod cold;
mod cold_read;
mod cold_write;
mod counters;
mod error;
mod hot;
mod hot_queue;
pub mod layout;
mod loader;
mod media;
mod offset_backend;
mod probe;
pub mod record;
mod recover;
mod ring;
pub mod segment;
mod shared;
mod space;
mod store;
mod threads;
mod writer;

pub use counters::Counters;
pub use error::StoreError;
pub use media::{Media, RealFile};
pub use store::{Store, StoreOptions};

#[cfg(test)]
mod tests_file;
#[cfg(test)]
mod tests_support;
