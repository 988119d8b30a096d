//! The cold tier: redb tables in the file's last region.
//!
//! One handle per store. Checkpoints write, page loads read, both through a shared lock; giving space back and reopening after
//! an error take it exclusively. What the tables hold is consistent as of the last checkpoint, whose place in the ring is part
//! of the same commit.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use redb::{Builder, Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};

use super::contract::{QueueId, Row, Seq, Space};
use super::error::StoreError;
use super::hot_queue::{HotQueue, Stamp};
use super::offset_backend::{OffsetBackend, Region};
use super::segment::SegmentKey;
use crate::time::Wall;
use crate::varint::{put_varint, take_varint};

/// Packed messages, see [`super::segment`].
pub const SEGMENT: TableDefinition<&SegmentKey, &[u8]> = TableDefinition::new("segment");
/// What is known of each segment without reading it.
pub const SEGMENT_INDEX: TableDefinition<&SegmentKey, &[u8]> = TableDefinition::new("segment_index");
/// Chunks of large messages.
pub const BODY: TableDefinition<&[u8; 16], &[u8]> = TableDefinition::new("body");
/// How many segments refer to a pack, and its stored size.
pub const SHARE: TableDefinition<u64, &[u8]> = TableDefinition::new("share");
/// Settled state and counters of each queue.
pub const QUEUE: TableDefinition<u32, &[u8]> = TableDefinition::new("queue");
/// Deleted queues some of whose segments are still there.
pub const DOOMED: TableDefinition<u32, ()> = TableDefinition::new("doomed");
/// Space byte and key of each row.
pub const ROW: TableDefinition<&[u8], &[u8]> = TableDefinition::new("row");
/// The checkpoint.
pub const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");

/// The only key of [`META`].
pub const META_KEY: &str = "checkpoint";

/// Passes of one compaction: where large pages lie in the way, one is not enough.
const COMPACT_PASSES_MAX: u32 = 4;

/// What belongs to the cold tier as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Counts checkpoints.
    pub serial: u64,
    /// LSN of the checkpoint.
    pub lsn: u64,
    /// Epoch of the record there.
    pub epoch: u64,
    /// The lowest identifier that no queue ever had.
    pub next_queue: u32,
    /// The newest time seen.
    pub newest_wall: Wall,
    /// Bytes of segments, chunks, packs and rows.
    pub stored_bytes: u64,
    /// The lowest number that no pack ever had.
    pub next_pack: u64,
}

impl Meta {
    /// The stored form: varints in the order of the fields.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let numbers = [
            self.serial,
            self.lsn,
            self.epoch,
            u64::from(self.next_queue),
            self.newest_wall.0,
            self.stored_bytes,
            self.next_pack,
        ];
        numbers.into_iter().for_each(|n| put_varint(&mut out, n));
        out
    }

    pub(super) fn decode(mut raw: &[u8]) -> Option<Self> {
        let mut next = || take_varint(&mut raw);
        Some(Self {
            serial: next()?,
            lsn: next()?,
            epoch: next()?,
            next_queue: u32::try_from(next()?).ok()?,
            newest_wall: Wall(next()?),
            stored_bytes: next()?,
            // Format 1 has no packs.
            next_pack: next().unwrap_or(0),
        })
    }
}

/// A queue's stored row: varints, the number of runs, then each run's start and length.
#[must_use]
pub fn encode_queue(stamp: &Stamp, segments: u64, runs: &[(Seq, Seq)]) -> Vec<u8> {
    let mut out = Vec::new();
    let numbers = [stamp.floor, stamp.tail, stamp.messages, stamp.bytes, segments, runs.len() as u64];
    numbers.into_iter().for_each(|n| put_varint(&mut out, n));
    for (start, end) in runs {
        put_varint(&mut out, *start);
        put_varint(&mut out, end - start);
    }
    out
}

pub(super) fn decode_queue(mut raw: &[u8]) -> Option<HotQueue> {
    let mut next = || take_varint(&mut raw);
    let floor = next()?;
    let tail = next()?;
    let mut queue = HotQueue {
        hot_first: tail,
        tail,
        floor,
        cold_messages: next()?,
        cold_bytes: next()?,
        segments: next()?,
        ..HotQueue::default()
    };
    for _ in 0..next()? {
        let start = next()?;
        queue.runs.insert(start, start.checked_add(next()?)?);
    }
    let stamp = Stamp {
        floor,
        tail,
        messages: queue.cold_messages,
        bytes: queue.cold_bytes,
        runs_changed: queue.runs_changed,
    };
    queue.written = Some(stamp);
    Some(queue)
}

/// Everything that is in memory while the store is open.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The checkpoint.
    pub meta: Meta,
    /// All queues as of the checkpoint (settled state may be ahead of it).
    pub queues: Vec<(QueueId, HotQueue)>,
    /// All rows, in order.
    pub rows: Vec<Row>,
}

/// The open database.
#[derive(Debug)]
pub struct Cold {
    region: Arc<Region>,
    cache_bytes: usize,
    database: RwLock<Option<Database>>,
}

/// Shared access to the open database.
pub struct Access<'a>(RwLockReadGuard<'a, Option<Database>>);

impl std::ops::Deref for Access<'_> {
    type Target = Database;

    fn deref(&self) -> &Database {
        self.0.as_ref().expect("checked when the access was given")
    }
}

impl Cold {
    /// Opens the region's database, or makes an empty one in an empty region.
    ///
    /// # Errors
    /// As redb says.
    pub fn open(region: Arc<Region>, cache_bytes: usize) -> Result<Self, StoreError> {
        let database = open_database(OffsetBackend(region.clone()), cache_bytes)?;
        Ok(Self { region, cache_bytes, database: RwLock::new(Some(database)) })
    }

    /// The region below.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// For reading and writing.
    ///
    /// # Errors
    /// After a failed reopening.
    pub fn access(&self) -> Result<Access<'_>, StoreError> {
        let guard = self.database.read().unwrap_or_else(PoisonError::into_inner);
        if guard.is_some() { Ok(Access(guard)) } else { Err(closed()) }
    }

    /// Creates all tables.
    ///
    /// # Errors
    /// As redb says.
    pub fn create_tables(&self) -> Result<(), StoreError> {
        let database = self.access()?;
        let mut tx = database.begin_write().map_err(redb_error("begin"))?;
        tx.set_quick_repair(true);
        {
            let failed = "create its tables";
            tx.open_table(SEGMENT).map_err(redb_error(failed))?;
            tx.open_table(SEGMENT_INDEX).map_err(redb_error(failed))?;
            tx.open_table(BODY).map_err(redb_error(failed))?;
            tx.open_table(SHARE).map_err(redb_error(failed))?;
            tx.open_table(QUEUE).map_err(redb_error(failed))?;
            tx.open_table(DOOMED).map_err(redb_error(failed))?;
            tx.open_table(ROW).map_err(redb_error(failed))?;
            let mut meta = tx.open_table(META).map_err(redb_error(failed))?;
            meta.insert(META_KEY, Meta::default().encode().as_slice()).map_err(redb_error(failed))?;
        }
        tx.commit().map_err(redb_error("commit"))
    }

    /// The checkpoint that is durable.
    ///
    /// # Errors
    /// As redb says, or damaged.
    pub fn meta(&self) -> Result<Meta, StoreError> {
        let tx = self.access()?.begin_read().map_err(redb_error("begin"))?;
        let table = tx.open_table(META).map_err(redb_error("open a table"))?;
        let raw = table.get(META_KEY).map_err(redb_error("read"))?;
        raw.and_then(|raw| Meta::decode(raw.value())).ok_or_else(|| damaged("the checkpoint's row"))
    }

    /// Reads what is in memory while the store is open: all queues, all rows, no message.
    ///
    /// # Errors
    /// As redb says, or damaged.
    pub fn load(&self) -> Result<Loaded, StoreError> {
        let mut loaded = Loaded { meta: self.meta()?, ..Loaded::default() };
        let tx = self.access()?.begin_read().map_err(redb_error("begin"))?;
        let table = tx.open_table(QUEUE).map_err(redb_error("open a table"))?;
        for item in table.iter().map_err(redb_error("read"))? {
            let (id, raw) = item.map_err(redb_error("read"))?;
            let queue = decode_queue(raw.value()).ok_or_else(|| damaged("a queue's row"))?;
            loaded.queues.push((QueueId(id.value()), queue));
        }
        let table = tx.open_table(ROW).map_err(redb_error("open a table"))?;
        for item in table.iter().map_err(redb_error("read"))? {
            let (key, value) = item.map_err(redb_error("read"))?;
            let (&space, key) = key.value().split_first().ok_or_else(|| damaged("a row's key"))?;
            let space = Space::from_u8(space).ok_or_else(|| damaged("a row's key"))?;
            loaded.rows.push((space, key.into(), value.value().into()));
        }
        Ok(loaded)
    }

    /// Closes and opens the database again: redb refuses everything after an error.
    ///
    /// # Errors
    /// As redb says; the cold tier is then closed.
    pub fn reopen(&self) -> Result<(), StoreError> {
        let mut guard = self.database.write().unwrap_or_else(PoisonError::into_inner);
        drop(guard.take());
        *guard = Some(open_database(OffsetBackend(self.region.clone()), self.cache_bytes)?);
        Ok(())
    }

    /// Moves everything to the front and cuts the file. Page loads and checkpoints wait meanwhile: the caller makes sure that
    /// little is stored.
    ///
    /// # Errors
    /// As redb says.
    pub fn compact(&self) -> Result<(), StoreError> {
        Self::compact_held(self.database.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`compact`](Self::compact), unless somebody is at work in the database; returns whether it was done.
    ///
    /// # Errors
    /// As redb says.
    pub fn compact_if_idle(&self) -> Result<bool, StoreError> {
        match self.database.try_write() {
            Ok(guard) => Self::compact_held(guard).map(|()| true),
            Err(TryLockError::Poisoned(poisoned)) => Self::compact_held(poisoned.into_inner()).map(|()| true),
            Err(TryLockError::WouldBlock) => Ok(false),
        }
    }

    fn compact_held(mut guard: RwLockWriteGuard<'_, Option<Database>>) -> Result<(), StoreError> {
        let database = guard.as_mut().ok_or_else(closed)?;
        for _ in 0..COMPACT_PASSES_MAX {
            if !database.compact().map_err(redb_error("give space back"))? {
                break;
            }
        }
        // Compaction leaves no record of the free pages; without one the next opening after a power cut reads everything.
        let mut tx = database.begin_write().map_err(redb_error("begin"))?;
        tx.set_quick_repair(true);
        tx.commit().map_err(redb_error("commit"))
    }

    /// Closes the database cleanly. Where the disk is too full for what redb notes down on closing, nothing is lost: it is left
    /// as a kill would leave it, with its last commit, and the next start looks after it.
    ///
    /// # Errors
    /// As redb says, but for a full disk.
    pub fn close(&self) -> Result<(), StoreError> {
        let mut guard = self.database.write().unwrap_or_else(PoisonError::into_inner);
        match guard.take().map(|database| database.close().map_err(redb_error("close"))) {
            Some(Err(error)) if error.is_no_space() => {
                tracing::warn!(
                    "the disk is full: the store is left as a kill would leave it, and loses nothing"
                );
                Ok(())
            }
            closed => closed.unwrap_or(Ok(())),
        }
    }
}

/// Opens a database on any storage.
///
/// # Errors
/// As redb says; a panic inside redb, which a damaged file may cause, counts as damage.
pub fn open_database(backend: impl StorageBackend, cache_bytes: usize) -> Result<Database, StoreError> {
    let open = std::panic::AssertUnwindSafe(|| {
        Builder::new().set_cache_size(cache_bytes).create_with_backend(backend)
    });
    match std::panic::catch_unwind(open) {
        Ok(result) => result.map_err(redb_error("open")),
        Err(_) => Err(damaged("redb's pages")),
    }
}

/// Wraps any error of redb; `what` completes "cannot ...".
pub(super) fn redb_error<E: Into<redb::Error>>(what: &'static str) -> impl FnOnce(E) -> StoreError {
    move |error| {
        match error.into() {
            // The system's fault, or the content's: the kind tells, see `StoreError::is_damage`.
            redb::Error::Io(source) => StoreError::Io { what, source },
            error => StoreError::Database { what, detail: error.to_string() },
        }
    }
}

pub(super) fn damaged(what: &str) -> StoreError {
    StoreError::Damaged(format!("{what} cannot be read"))
}

fn closed() -> StoreError {
    StoreError::Database { what: "be used", detail: "it is closed".to_owned() }
}
