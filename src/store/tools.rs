//! What an operator may ask of an open store: figures, a full check, a backup, space back. Everything here blocks and belongs
//! on a thread where that costs nobody anything; the store goes on meanwhile.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable};

use super::cold::{
    BODY, DOOMED, META, META_KEY, Meta, QUEUE, ROW, SEGMENT, SEGMENT_INDEX, SHARE, damaged, redb_error,
};
use super::error::StoreError;
use super::gate::Gate;
use super::handle::{create_media, finish_creation};
use super::recover::{self, Settings};
use super::shared::Shared;
use super::verify::{Verification, verify};

/// How long a backup waits for the checkpoint that it begins with.
const CHECKPOINT_WAIT_MAX: Duration = Duration::from_secs(300);

/// How often it looks whether that is done.
const CHECKPOINT_LOOK_EVERY: Duration = Duration::from_millis(20);

/// Values that a backup writes in one transaction; each has at most 65,000 bytes.
const COPIED_AT_ONCE_MAX: usize = 256;

/// A handle for an operator's requests. Cheap to clone.
#[derive(Clone)]
pub struct StoreTools {
    shared: Arc<Shared>,
    gate: Arc<Gate>,
    settings: Settings,
}

impl std::fmt::Debug for StoreTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoreTools")
    }
}

impl StoreTools {
    pub(super) fn new(shared: Arc<Shared>, gate: Arc<Gate>, settings: Settings) -> Self {
        Self { shared, gate, settings }
    }

    /// All counters and gauges.
    #[must_use]
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        self.shared.check_capacity();
        self.shared.counters.all()
    }

    /// Scans everything in the cold tier and compares it with what is counted.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn verify(&self) -> Result<Verification, StoreError> {
        verify(&self.shared.cold)
    }

    /// Gives free space inside the file back to the disk. Page loads and checkpoints wait meanwhile, and it writes up to twice
    /// what is stored. Returns the file's size before and after.
    ///
    /// # Errors
    /// As redb says.
    pub fn compact(&self) -> Result<(u64, u64), StoreError> {
        let size = || self.shared.media.size().map_err(StoreError::io("read its file's length"));
        let before = size()?;
        match self.shared.cold.compact() {
            Err(error) if error.is_no_space() => {
                self.shared.cold.reopen()?;
                return Err(error);
            }
            other => other?,
        }
        self.shared.check_capacity();
        Ok((before, size()?))
    }

    /// Writes a store with everything that was acknowledged before this call to `to`, which must not exist; it appears under
    /// that name when it is complete and durable. It begins with a checkpoint; then one read transaction is copied, so the
    /// backup is the state of one moment. Returns its size.
    ///
    /// # Errors
    /// When `to` exists, the system refuses, or the checkpoint does not come (the disk is full).
    pub fn backup(&self, to: &Path) -> Result<u64, StoreError> {
        if to.try_exists().map_err(StoreError::io("look at the backup's place"))? {
            return Err(StoreError::Options(format!("{} exists already", to.display())));
        }
        self.checkpoint()?;
        let (media, unfinished) = create_media(to)?;
        recover::create(&media, &self.settings)?;
        let target = recover::open_for_copy(&media, &self.settings)?;
        // Held to the end: nobody may compact or reopen the database under the transaction.
        let access = self.shared.cold.access()?;
        let source = access.begin_read().map_err(redb_error("begin"))?;
        copy_tables(&source, &*target.access()?)?;
        target.close()?;
        media.sync_data().map_err(StoreError::io("sync the backup"))?;
        finish_creation(&unfinished, to)?;
        media.size().map_err(StoreError::io("read the backup's length"))
    }

    /// Removes a pack and a segment behind everybody's back.
    #[cfg(test)]
    pub(super) fn lose_something(&self) -> Result<(), StoreError> {
        let tx = self.shared.cold.access()?.begin_write().map_err(redb_error("begin"))?;
        {
            let mut share = tx.open_table(SHARE).map_err(redb_error("open a table"))?;
            share.pop_first().map_err(redb_error("remove"))?;
            let mut segment = tx.open_table(SEGMENT).map_err(redb_error("open a table"))?;
            segment.pop_last().map_err(redb_error("remove"))?;
        }
        tx.commit().map_err(redb_error("commit"))
    }

    /// Waits until everything that is in the ring now is in the cold tier.
    fn checkpoint(&self) -> Result<(), StoreError> {
        let target = self.shared.head.load(Ordering::Acquire);
        let until = Instant::now() + CHECKPOINT_WAIT_MAX;
        while self.shared.meta().lsn < target {
            if self.shared.has_failed() || Instant::now() > until {
                return Err(StoreError::Options(
                    "the checkpoint that a backup begins with did not come".into(),
                ));
            }
            self.gate.want_checkpoint();
            std::thread::sleep(CHECKPOINT_LOOK_EVERY);
        }
        Ok(())
    }
}

/// Copies one table, a few values at a time.
macro_rules! copy_table {
    ($source:expr, $target:expr, $table:expr) => {{
        let from = $source.open_table($table).map_err(redb_error("open a table"))?;
        let mut rest = from.iter().map_err(redb_error("read"))?.peekable();
        while rest.peek().is_some() {
            let mut tx = $target.begin_write().map_err(redb_error("begin"))?;
            tx.set_quick_repair(true);
            {
                let mut to = tx.open_table($table).map_err(redb_error("open a table"))?;
                for item in rest.by_ref().take(COPIED_AT_ONCE_MAX) {
                    let (key, value) = item.map_err(redb_error("read"))?;
                    to.insert(key.value(), value.value()).map_err(redb_error("write"))?;
                }
            }
            tx.commit().map_err(redb_error("commit"))?;
        }
    }};
}

/// Copies everything. The checkpoint's row comes last, for a ring that has no record yet.
fn copy_tables(source: &ReadTransaction, target: &Database) -> Result<(), StoreError> {
    copy_table!(source, target, SEGMENT);
    copy_table!(source, target, SEGMENT_INDEX);
    copy_table!(source, target, BODY);
    copy_table!(source, target, SHARE);
    copy_table!(source, target, QUEUE);
    copy_table!(source, target, DOOMED);
    copy_table!(source, target, ROW);
    let from = source.open_table(META).map_err(redb_error("open a table"))?;
    let meta = from.get(META_KEY).map_err(redb_error("read"))?;
    let meta =
        meta.and_then(|raw| Meta::decode(raw.value())).ok_or_else(|| damaged("the checkpoint's row"))?;
    let meta = Meta { epoch: recover::FIRST_EPOCH, ..meta };
    let mut tx = target.begin_write().map_err(redb_error("begin"))?;
    tx.set_quick_repair(true);
    {
        let mut to = tx.open_table(META).map_err(redb_error("open a table"))?;
        to.insert(META_KEY, meta.encode().as_slice()).map_err(redb_error("write"))?;
    }
    tx.commit().map_err(redb_error("commit"))
}
