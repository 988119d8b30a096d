//! What the store has done, for metrics: plain atomics, each written by one thread and read by any.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Numbers since the store was opened, and a few gauges.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        impl Counters {
            /// All numbers with their names, for a metrics page.
            #[must_use]
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Ordering::Relaxed)),)*]
            }
        }
    };
}

counters! {
    /// Group commits.
    commits,
    /// Those of them that the driver's thread has made itself.
    commits_here,
    /// Batches in them.
    batches,
    /// Syncs of the ring: one per commit.
    ring_syncs,
    /// Bytes written to the ring, padding included.
    ring_bytes,
    /// Syncs by the cold tier.
    cold_syncs,
    /// Bytes written by the cold tier.
    cold_bytes,
    /// Syncs of superblocks and header copies.
    header_syncs,
    /// Bytes of superblocks and header copies.
    header_bytes,
    /// Messages enqueued, counted per queue.
    messages_enqueued,
    /// Sum of their sizes.
    message_bytes_enqueued,
    /// Messages settled.
    messages_settled,
    /// Checkpoints that became durable.
    checkpoints,
    /// Checkpoints that failed because the disk was full.
    checkpoints_failed,
    /// Messages moved to the cold tier, counted per queue.
    messages_folded,
    /// Packs of messages that several queues wanted, each stored once.
    packs_written,
    /// Segments removed from the cold tier.
    segments_removed,
    /// Segments that could not be read: their messages are lost.
    segments_damaged,
    /// Times that space was given back to the disk.
    compactions,
    /// Pages answered.
    pages_loaded,
    /// Messages in them.
    page_messages,
    /// Times that a batch waited for room in the ring.
    ring_waits,
    /// Gauge: bytes of the ring in use.
    ring_used_bytes,
    /// Gauge: size of the ring.
    ring_size_bytes,
    /// Gauge: length of the file.
    file_bytes,
    /// Gauge: bytes of messages and rows in the cold tier.
    cold_stored_bytes,
    /// Gauge: memory of batches that were submitted and not yet applied.
    pending_bytes,
    /// Gauge: 1 while the disk or its budget is full.
    capacity_full,
}

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// Sets a gauge.
pub(super) fn set(gauge: &AtomicU64, value: u64) {
    gauge.store(value, Ordering::Relaxed);
}
