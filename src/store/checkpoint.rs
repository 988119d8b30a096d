//! Runs checkpoints and gives space back. One at a time: the writer takes the snapshot and waits for the outcome.

use super::cold_write::{Written, write_checkpoint};
use super::contract::Capacity;
use super::counters::{add, set};
use super::error::StoreError;
use super::hot::Snapshot;
use super::layout::BLOCK_BYTES;
use super::ring::Point;
use super::shared::Shared;

/// The file must be this many times larger than what it holds before space is given back.
const COMPACT_RATIO: u64 = 4;

/// Space that is not worth the effort of giving it back.
const COMPACT_BYTES_MIN: u64 = 16 << 20;

/// More live data than this is not moved while the store is in use: page loads wait meanwhile.
const COMPACT_LIVE_BYTES_MAX: u64 = 16 << 20;

/// How a checkpoint ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is durable: the ring is free up to here. `again`: settled segments are left to remove.
    Done {
        /// Where it stands.
        point: Point,
        /// Another one should follow.
        again: bool,
    },
    /// The disk is full: nothing has changed.
    NoSpace,
}

/// Writes the snapshot and forgets what it moved.
///
/// # Errors
/// Any failure but a full disk: the store must stop.
pub fn run(shared: &Shared, snapshot: Snapshot) -> Result<Outcome, StoreError> {
    let before = *shared.meta();
    match write_checkpoint(&shared.cold, &before, &snapshot) {
        Ok(written) => Ok(finish(shared, &snapshot, &written)),
        Err(error) if error.is_no_space() => no_space(shared, snapshot, before.serial + 1),
        Err(error) => Err(error),
    }
}

fn finish(shared: &Shared, snapshot: &Snapshot, written: &Written) -> Outcome {
    *shared.meta() = written.meta;
    shared.hot().finish(snapshot.point, &written.queues);
    add(&shared.counters.checkpoints, 1);
    add(&shared.counters.messages_folded, written.messages);
    add(&shared.counters.packs_written, written.packs);
    add(&shared.counters.segments_removed, written.removed);
    shared.check_capacity();
    Outcome::Done { point: snapshot.point, again: written.again }
}

/// redb must be opened again. The commit that failed may be durable all the same; its serial number tells. Then it counts as
/// done, with a count of segments that is too high rather than too low and the sweeps to be repeated.
fn no_space(shared: &Shared, snapshot: Snapshot, serial: u64) -> Result<Outcome, StoreError> {
    add(&shared.counters.checkpoints_failed, 1);
    shared.cold.reopen()?;
    shared.set_capacity(Capacity::Full);
    let meta = shared.cold.meta()?;
    if meta.serial != serial {
        shared.hot().put_back(snapshot);
        return Ok(Outcome::NoSpace);
    }
    let queues = snapshot.queues.iter().map(|fold| super::hot::FoldedQueue {
        queue: fold.queue,
        segments: fold.segments + fold.entries.len() as u64,
        swept: None,
    });
    let written = Written { queues: queues.collect(), again: true, meta, ..Written::default() };
    Ok(finish(shared, &snapshot, &written))
}

/// Gives space back to the disk if the file is much larger than what it holds and little has to be moved for it.
///
/// # Errors
/// Any failure but a full disk.
pub fn give_space_back(shared: &Shared) -> Result<bool, StoreError> {
    let file = shared.media.size().map_err(StoreError::io("read its file's length"))?;
    let file = file.saturating_sub(shared.cold.region().base());
    let stored = shared.meta().stored_bytes;
    let live = stored + stored / 2 + 64 * BLOCK_BYTES;
    if live > COMPACT_LIVE_BYTES_MAX || file < COMPACT_BYTES_MIN + COMPACT_RATIO * live {
        return Ok(false);
    }
    match shared.cold.compact_if_idle() {
        Ok(true) => {}
        Ok(false) => return Ok(false),
        Err(error) if error.is_no_space() => {
            shared.cold.reopen()?;
            return Ok(false);
        }
        Err(error) => return Err(error),
    }
    add(&shared.counters.compactions, 1);
    set(&shared.counters.file_bytes, shared.media.size().unwrap_or(0));
    shared.check_capacity();
    Ok(true)
}
