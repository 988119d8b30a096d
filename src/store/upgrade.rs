//! Brings the file of an older program up to the current format.
//!
//! Each step leads from one format to the next, in one redb transaction, and is idempotent: the superblock names the new format
//! only after all steps, so that a power cut in between repeats them. A step takes time and memory by the number of queues and
//! rows at most, never by the number of messages: what it would have to rewrite, it lets the reader understand instead.
//! `tests/data` holds a file of each format.

use super::cold::{Cold, SHARE, redb_error};
use super::error::StoreError;
use super::layout::FORMAT_VERSION;

type Step = fn(&redb::WriteTransaction) -> Result<(), StoreError>;

/// The step at place N leads from format N + 1 to N + 2.
const STEPS: [Step; FORMAT_VERSION as usize - 1] = [add_packs, allow_squeezed_segments];

/// Runs all steps from the format `found` on; the caller then writes the superblock.
///
/// # Errors
/// As redb says.
pub fn run(cold: &Cold, found: u32) -> Result<(), StoreError> {
    for (step, from) in STEPS.iter().zip(1u32..).skip_while(|(_, from)| *from < found) {
        tracing::info!(from, to = from + 1, "bringing the store to a newer format");
        let database = cold.access()?;
        let mut tx = database.begin_write().map_err(redb_error("begin"))?;
        tx.set_quick_repair(true);
        step(&tx)?;
        tx.commit().map_err(redb_error("commit"))?;
    }
    Ok(())
}

/// Segments and rows of format 1 mean the same in format 2; only the packs' table is new.
fn add_packs(tx: &redb::WriteTransaction) -> Result<(), StoreError> {
    tx.open_table(SHARE).map(drop).map_err(redb_error("create its tables"))
}

/// All that is stored means the same in format 3, which an older program must not take for its own.
fn allow_squeezed_segments(_: &redb::WriteTransaction) -> Result<(), StoreError> {
    Ok(())
}
