//! Makes a new file, or brings an existing one back to the last acknowledged commit.
//!
//! Order: superblock, redb's page 0 (restored from a copy if it was torn), redb's tables, replay of the ring from the
//! checkpoint to the first record that does not fit, then the next epoch, synced: only from then on is the store served. The
//! cost is the ring plus the queues' rows, whatever the backlog.

use std::sync::Arc;
use std::time::Duration;

use super::cold::{Cold, Loaded, open_database};
use super::contract::{QueueId, Recovered};
use super::counters::{Counters, add};
use super::error::StoreError;
use super::hot::Hot;
use super::layout::{
    BALLAST_BYTES_MAX, BLOCK_BYTES, FORMAT_VERSION, RING_AT, RING_BYTES_MAX, RING_BYTES_MIN, Superblock,
};
use super::media::Media;
use super::offset_backend::{Region, read_copies};
use super::probe::Overlay;
use super::record::{Item, decode_body};
use super::ring::Ring;
use super::shared::{Notify, Shared};
use super::space::Space;
use super::upgrade;
use super::writer::Writer;
use crate::message::BadRecord;

/// What recovery needs to know.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Size of a new file's ring.
    pub ring_bytes: u64,
    /// redb's page cache.
    pub cache_bytes: u64,
    /// Bound on the file.
    pub disk_bytes_max: Option<u64>,
    /// Space left to others.
    pub disk_reserve_bytes: u64,
    /// Batches that may wait for the writer.
    pub queue_bytes_max: u64,
    /// How long a checkpoint pauses after each step of its trickle.
    pub pause: Duration,
    /// Part of the checksums of a new file.
    pub salt: u64,
}

impl Settings {
    /// The ring's size, checked.
    ///
    /// # Errors
    /// [`StoreError::Options`].
    pub fn checked_ring_bytes(&self) -> Result<u64, StoreError> {
        if (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&self.ring_bytes) {
            return Ok(self.ring_bytes.next_multiple_of(BLOCK_BYTES));
        }
        Err(StoreError::Options(format!(
            "the ring's size of {} bytes is not between {RING_BYTES_MIN} and {RING_BYTES_MAX}",
            self.ring_bytes
        )))
    }
}

/// The epoch of a new file.
pub const FIRST_EPOCH: u64 = 1;

/// Opens the cold tier of a store that was just made, to be filled.
///
/// # Errors
/// Of the medium or of redb.
pub fn open_for_copy(media: &Arc<dyn Media>, settings: &Settings) -> Result<Cold, StoreError> {
    let superblock = Superblock::read(&**media)?;
    open_cold(media, &superblock, settings, &Arc::new(Counters::default()))
}

/// Makes an empty store on an empty medium. Everything is durable when it returns.
///
/// # Errors
/// Of the medium or of redb.
pub fn create(media: &Arc<dyn Media>, settings: &Settings) -> Result<(), StoreError> {
    let ring_bytes = settings.checked_ring_bytes()?;
    let ballast = ring_bytes.saturating_add(settings.queue_bytes_max).min(BALLAST_BYTES_MAX);
    let superblock = Superblock {
        version: FORMAT_VERSION,
        sequence: 1,
        salt: settings.salt,
        epoch: FIRST_EPOCH,
        ring_bytes,
        ballast_bytes: ballast.next_multiple_of(BLOCK_BYTES),
    };
    let failed = "create its file";
    let zeroes = vec![0; 1 << 18];
    let end = superblock.ballast_at();
    media.set_len(superblock.cold_at()).map_err(StoreError::io(failed))?;
    // Written, not just extended: the ring must never run out of space.
    let mut at = 0;
    while at < end {
        let n = (end - at).min(zeroes.len() as u64);
        media.write_at(at, &zeroes[..n as usize]).map_err(StoreError::io(failed))?;
        at += n;
    }
    media.sync_data().map_err(StoreError::io(failed))?;
    let counters = Arc::new(Counters::default());
    let cold = open_cold(media, &superblock, settings, &counters)?;
    cold.create_tables()?;
    cold.close()?;
    // The superblock comes last: a file without one was never complete.
    superblock.write(&**media).map_err(StoreError::io(failed))?;
    Superblock { sequence: 2, ..superblock }.write(&**media).map_err(StoreError::io(failed))?;
    media.sync_data().map_err(StoreError::io(failed))
}

fn open_cold(
    media: &Arc<dyn Media>,
    superblock: &Superblock,
    settings: &Settings,
    counters: &Arc<Counters>,
) -> Result<Cold, StoreError> {
    let base = superblock.cold_at();
    let (max, reserve) = (settings.disk_bytes_max, settings.disk_reserve_bytes);
    let space = Space::new(media.clone(), superblock, max, reserve);
    let region = Region::new(media.clone(), base, space, counters.clone(), settings.pause)
        .map_err(StoreError::io("read its database"))?;
    let cache = usize::try_from(settings.cache_bytes).unwrap_or(usize::MAX);
    Cold::open(Arc::new(region), cache)
}

/// A store brought back.
pub struct Opened {
    /// For all threads.
    pub shared: Arc<Shared>,
    /// For the writer's thread.
    pub writer: Writer,
    /// For the broker.
    pub recovered: Recovered,
}

/// Opens the store on a medium that holds one. The caller has locked the file.
///
/// # Errors
/// [`StoreError::Damaged`] or [`StoreError::Database`] when the content cannot be used, others when the system failed.
pub fn open(media: Arc<dyn Media>, settings: &Settings, notify: Notify) -> Result<Opened, StoreError> {
    let superblock = read_afresh(&*media)?;
    let counters = Arc::new(Counters::default());
    restore_header(&media, superblock.cold_at())?;
    let cold = open_cold(&media, &superblock, settings, &counters)?;
    upgrade::run(&cold, superblock.version)?;
    let Loaded { meta, queues, rows } = cold.load()?;
    let mut hot = Hot::default();
    (hot.next_queue, hot.newest_wall) = (meta.next_queue, meta.newest_wall);
    for (id, queue) in queues {
        let has_segments = queue.segments > 0;
        hot.queues.insert(id, queue);
        if has_segments {
            hot.touch(id);
        }
    }
    let mut ring = Ring::new(media.clone(), &superblock, meta.lsn);
    let records = replay(&mut ring, meta.epoch, &mut hot)?;
    let superblock = next_epoch(&media, superblock, &counters)?;
    ring.set_epoch(superblock.epoch);
    tracing::debug!(records, epoch = superblock.epoch, "the store's ring was replayed");
    let recovered = Recovered {
        queues: hot.recovered_queues(),
        rows: hot.recovered_rows(rows),
        next_queue: QueueId(hot.next_queue.max(1)),
        newest_wall: hot.newest_wall,
        set_aside: None,
    };
    let shared = Arc::new(Shared::new(media, hot, cold, meta, counters, notify));
    let writer = Writer::new(shared.clone(), ring);
    Ok(Opened { shared, writer, recovered })
}

/// Reads the superblock, and lets everything that decides what is durable come from the disk: both tiers' heads and the ring.
/// What a failed commit may have left in the system's cache behind redb's first page belongs to no commit that is on the disk.
/// So the cost does not grow with the backlog.
fn read_afresh(media: &dyn Media) -> Result<Superblock, StoreError> {
    media.forget_cached(RING_AT);
    let superblock = Superblock::read(media)?;
    media.forget_cached(superblock.cold_at() + BLOCK_BYTES);
    Ok(superblock)
}

fn replay(ring: &mut Ring, epoch: u64, hot: &mut Hot) -> Result<u64, StoreError> {
    ring.replay(epoch, |lsn, body| {
        decode_body(&body, |item| {
            match item {
                Item::Op(op) => hot.apply(op, lsn, true)?,
                Item::Skip => {}
                Item::Wall(wall) => hot.newest_wall = hot.newest_wall.max(wall),
            }
            Ok::<(), StoreError>(())
        })
    })
}

impl From<BadRecord> for StoreError {
    fn from(bad: BadRecord) -> Self {
        Self::Damaged(bad.to_string())
    }
}

/// Begins a new epoch, in the current format: an upgrade is complete with it. The sync makes what was replayed durable too: it may have been in the page cache only.
fn next_epoch(
    media: &Arc<dyn Media>,
    superblock: Superblock,
    counters: &Counters,
) -> Result<Superblock, StoreError> {
    let next = Superblock {
        version: FORMAT_VERSION,
        sequence: superblock.sequence + 1,
        epoch: superblock.epoch + 1,
        ..superblock
    };
    next.write(&**media).map_err(StoreError::io("write its superblock"))?;
    media.sync_data().map_err(StoreError::io("write its superblock"))?;
    add(&counters.header_bytes, BLOCK_BYTES);
    add(&counters.header_syncs, 1);
    Ok(next)
}

/// Puts the newest copy of redb's page 0 that opens in place of one that does not.
fn restore_header(media: &Arc<dyn Media>, base: u64) -> Result<(), StoreError> {
    let Err(error) = probe(media, base, None) else { return Ok(()) };
    for copy in read_copies(&**media).map_err(StoreError::io("read its database"))? {
        if probe(media, base, Some(&copy.page)).is_ok() {
            tracing::warn!(%error, "the database's first page was torn; a copy of it takes its place");
            media.write_at(base, &copy.page[..]).map_err(StoreError::io("repair its database"))?;
            return media.sync_data().map_err(StoreError::io("repair its database"));
        }
    }
    Err(error)
}

fn probe(
    media: &Arc<dyn Media>,
    base: u64,
    page: Option<&[u8; BLOCK_BYTES as usize]>,
) -> Result<(), StoreError> {
    let overlay = Overlay::new(media.clone(), base, page).map_err(StoreError::io("read its database"))?;
    debug_assert!(base > RING_AT);
    // The probe's pages are dropped at once; a small cache will do.
    open_database(overlay, 1 << 20).map(drop)
}
