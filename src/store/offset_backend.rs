//! redb's storage: a region of the store's file.
//!
//! Beside moving offsets it does three things. It keeps **copies of redb's page 0**: both of redb's commit slots are in that
//! page, and a power cut that tears it while it is written would lose the database. Before each write that changes page 0, unless
//! the newest copy holds its present content, the page as it is goes to the older of two slots (page, then a trailer block with
//! magic, sequence and CRC), synced; a write that changes nothing is left out. It **trickles**: after every step it syncs and pauses, so that a
//! checkpoint does not pile up a burst in front of the ring's next commit. A step is 128 KiB, and more on a disk that syncs so fast that
//! no commit notices: each sync that makes a file grow costs about 24 KiB of the file system's journal. It **writes no page twice**: redb takes pages that its
//! small write buffer had to let go back into it to compute their checksums, and writes them again as they are; such a page is
//! compared with what is there and left alone. And when the disk is full it has the ballast of [`Space`] to draw on.

use std::collections::HashSet;
use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redb::{BackendError, StorageBackend};

use super::counters::{Counters, add};
use super::error::is_no_space;
use super::layout::{BLOCK_BYTES, HEADER_COPY_AT, le32, le64};
use super::media::Media;
use super::space::Space;

const PAGE: usize = BLOCK_BYTES as usize;
const COPY_MAGIC: &[u8; 8] = b"tg-page0";
/// The smallest step of the trickle.
pub(super) const TRICKLE_BYTES: u64 = 128 << 10;
/// The largest one.
const TRICKLE_BYTES_MAX: u64 = 2 << 20;
/// After a sync of anybody that took longer the step is halved, if all took less than half of this it is doubled: a commit may have to
/// wait for a step.
const TRICKLE_SYNC_MAX: Duration = Duration::from_millis(10);
/// Pages from this size on are compared before they are written again.
const COMPARED_BYTES_MIN: usize = 16 << 10;
/// Pages of one commit whose places are remembered for that.
const COMPARED_PAGES_MAX: usize = 16 << 10;

/// What outlives one opening of the database: the region, its first page and its counters.
#[derive(Debug)]
pub struct Region {
    media: Arc<dyn Media>,
    base: u64,
    space: Space,
    counters: Arc<Counters>,
    header: Mutex<HeaderPage>,
    /// Where large pages were written since the last commit.
    written: Mutex<HashSet<u64>>,
    unsynced: AtomicU64,
    /// The trickle's present step.
    step: AtomicU64,
    /// Sync and pause now and then while writing.
    pub trickle: AtomicBool,
    /// Length of the pause.
    pub pause: Duration,
}

#[derive(Debug)]
struct HeaderPage {
    /// Page 0 as it was last written.
    page: Box<[u8; PAGE]>,
    /// The newest copy equals `page`.
    copied: bool,
    /// Sequence of the newest copy.
    sequence: u64,
}

impl Region {
    /// The region from `base` on.
    ///
    /// # Errors
    /// When page 0 or its copies cannot be read.
    pub fn new(
        media: Arc<dyn Media>,
        base: u64,
        space: Space,
        counters: Arc<Counters>,
        pause: Duration,
    ) -> io::Result<Self> {
        let mut page = Box::new([0; PAGE]);
        if media.size()? >= base + BLOCK_BYTES {
            media.read_at(base, &mut page[..])?;
        }
        let newest = read_copies(&*media)?.into_iter().next();
        let sequence = newest.as_ref().map_or(0, |copy| copy.sequence);
        // An empty page needs no copy.
        let copied = page.iter().all(|b| *b == 0) || newest.is_some_and(|copy| copy.page == page);
        Ok(Self {
            media,
            base,
            space,
            counters,
            header: Mutex::new(HeaderPage { page, copied, sequence }),
            written: Mutex::default(),
            unsynced: AtomicU64::new(0),
            step: AtomicU64::new(TRICKLE_BYTES),
            trickle: AtomicBool::new(false),
            pause,
        })
    }

    /// The bounds of the file's size.
    #[must_use]
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Where it begins in the file.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.base
    }

    /// A commit begins: pages that earlier ones have written are not worth a comparison.
    pub fn begin_commit(&self) {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns whether something was written.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<bool> {
        if offset < BLOCK_BYTES {
            return self.write_header(offset, data).map(|()| true);
        }
        if data.len() >= COMPARED_BYTES_MIN && self.is_written(offset, data)? {
            return Ok(false);
        }
        self.media.write_at(self.base + offset, data).map(|()| true)
    }

    /// This commit has written just this page there already. Otherwise it is taken to write it now.
    fn is_written(&self, offset: u64, data: &[u8]) -> io::Result<bool> {
        let mut written = self.written.lock().map_err(|_| poisoned())?;
        if written.len() >= COMPARED_PAGES_MAX {
            written.clear();
        }
        if written.insert(offset) {
            return Ok(false);
        }
        let mut there = vec![0; data.len()];
        // What cannot be read is written again.
        Ok(self.media.read_at(self.base + offset, &mut there).is_ok() && there == data)
    }

    /// Copies page 0 if its newest copy is not equal to it, then remembers what the write makes of it.
    fn write_header(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut header = self.header.lock().map_err(|_| poisoned())?;
        let at = usize::try_from(offset).expect("inside page 0");
        let end = (at + data.len()).min(PAGE);
        if header.page[at..end] == data[..end - at] {
            // Writing the page again as it is would put it at risk while its newest copy may be older.
            let (_, rest) = data.split_at(end - at);
            return if rest.is_empty() { Ok(()) } else { self.media.write_at(self.base + BLOCK_BYTES, rest) };
        }
        if !header.copied {
            let sequence = header.sequence + 1;
            let place = HEADER_COPY_AT[(sequence % 2) as usize];
            self.media.write_at(place, &encode_copy(&header.page, sequence))?;
            self.media.sync_data()?;
            add(&self.counters.header_bytes, 2 * BLOCK_BYTES);
            add(&self.counters.header_syncs, 1);
            (header.sequence, header.copied) = (sequence, true);
        }
        self.media.write_at(self.base + offset, data)?;
        header.page[at..end].copy_from_slice(&data[..end - at]);
        header.copied = false;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.unsynced.store(0, Ordering::Relaxed);
        add(&self.counters.cold_syncs, 1);
        self.media.sync_data()
    }

    /// Syncs and pauses once a step was written, and chooses the next one's size by how long that took.
    fn trickle(&self, unsynced: u64) -> io::Result<()> {
        let step = self.step.load(Ordering::Relaxed);
        if unsynced < step || !self.trickle.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.sync()?;
        if let Some(took) = self.media.longest_sync() {
            self.step.store(next_step(step, took), Ordering::Relaxed);
        }
        std::thread::sleep(self.pause);
        Ok(())
    }
}

/// The step that follows one in whose time the longest sync took so long: a commit's sync may have written what the step had left.
fn next_step(step: u64, took: Duration) -> u64 {
    if took > TRICKLE_SYNC_MAX {
        (step / 2).max(TRICKLE_BYTES)
    } else if took < TRICKLE_SYNC_MAX / 2 {
        (step * 2).min(TRICKLE_BYTES_MAX)
    } else {
        step
    }
}

fn poisoned() -> io::Error {
    io::Error::other("a store thread panicked")
}

/// A copy of redb's page 0.
#[derive(Debug)]
pub struct HeaderCopy {
    /// The larger, the newer.
    pub sequence: u64,
    /// The page.
    pub page: Box<[u8; PAGE]>,
}

/// The valid copies, newest first.
///
/// # Errors
/// As the medium says.
pub fn read_copies(media: &dyn Media) -> io::Result<Vec<HeaderCopy>> {
    let mut copies = Vec::new();
    for at in HEADER_COPY_AT {
        let mut raw = vec![0; 2 * PAGE];
        media.read_at(at, &mut raw)?;
        let (page, trailer) = raw.split_at(PAGE);
        let sequence = le64(&trailer[8..]);
        if &trailer[..8] == COPY_MAGIC && le32(&trailer[16..]) == copy_crc(page, sequence) {
            let page = Box::new(page.try_into().expect("a page long"));
            copies.push(HeaderCopy { sequence, page });
        }
    }
    copies.sort_by_key(|copy| std::cmp::Reverse(copy.sequence));
    Ok(copies)
}

fn encode_copy(page: &[u8; PAGE], sequence: u64) -> Vec<u8> {
    let mut raw = vec![0; 2 * PAGE];
    raw[..PAGE].copy_from_slice(page);
    raw[PAGE..PAGE + 8].copy_from_slice(COPY_MAGIC);
    raw[PAGE + 8..PAGE + 16].copy_from_slice(&sequence.to_le_bytes());
    raw[PAGE + 16..PAGE + 20].copy_from_slice(&copy_crc(page, sequence).to_le_bytes());
    raw
}

fn copy_crc(page: &[u8], sequence: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&sequence.to_le_bytes()), page)
}

/// One opening's handle on the region.
#[derive(Clone, Debug)]
pub struct OffsetBackend(pub Arc<Region>);

impl StorageBackend for OffsetBackend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.media.size()?.saturating_sub(self.0.base))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.media.read_at(self.0.base + offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.media.set_len(self.0.base + len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let region = &*self.0;
        let written = match region.write(offset, data) {
            // The ballast is for this: what the ring holds must get in.
            Err(error) if is_no_space(&error) && region.space.release() => region.write(offset, data)?,
            other => other?,
        };
        if !written {
            return Ok(());
        }
        let len = data.len() as u64;
        add(&region.counters.cold_bytes, len);
        let unsynced = region.unsynced.fetch_add(len, Ordering::Relaxed) + len;
        region.trickle(unsynced)
    }

    // The store holds a lock on the whole file before redb sees it, and for longer: redb's own locks always succeed.
    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        whole_storage(start, end).map(|()| true)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        whole_storage(start, end).map(|()| true)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        whole_storage(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        whole_storage(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        whole_storage(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        whole_storage(start, end).map(|()| false)
    }
}

/// Only locks on everything are supported: the level that redb asks of a backend for one writing process.
fn whole_storage(start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
    let whole = matches!(start, Bound::Unbounded | Bound::Included(0)) && end == Bound::Unbounded;
    if whole { Ok(()) } else { Err(BackendError::Unsupported) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::layout::Superblock;
    use crate::store::sim_media::{CutStyle, SimMedia};

    /// A region whose page 0 is `page`, durably, and its medium.
    fn region_with(page: &[u8; PAGE]) -> (Region, Arc<SimMedia>, u64) {
        let superblock =
            Superblock { version: 1, sequence: 1, salt: 0, epoch: 1, ring_bytes: 64 << 10, ballast_bytes: 0 };
        let base = superblock.cold_at();
        let media = Arc::new(SimMedia::default());
        media.set_len(base + 2 * BLOCK_BYTES).unwrap();
        media.write_at(base, page).unwrap();
        media.sync_data().unwrap();
        let space = Space::new(media.clone(), &superblock, None, 0);
        let region = Region::new(media.clone(), base, space, Arc::default(), Duration::ZERO).unwrap();
        (region, media, base)
    }

    #[test]
    fn a_step_of_the_trickle_grows_on_a_fast_disk_and_shrinks_on_a_slow_one() {
        let ms = Duration::from_millis;
        let mut step = TRICKLE_BYTES;
        for took in [1, 1, 7, 1, 1, 1] {
            step = next_step(step, ms(took));
        }
        assert_eq!(step, TRICKLE_BYTES_MAX);
        for took in [11, 30, 200, 30, 30] {
            step = next_step(step, ms(took));
        }
        assert_eq!(step, TRICKLE_BYTES);
    }

    #[test]
    fn a_write_to_page_0_that_changes_nothing_does_not_reach_the_medium() {
        let page = [7; PAGE];
        let (region, media, _) = region_with(&page);
        media.cut_power_after(1);
        region.write(0, &page[..64]).unwrap();
        assert!(!media.is_off(), "nothing was written that a power cut could tear");
    }

    #[test]
    fn a_write_that_changes_page_0_comes_after_a_durable_copy_of_it() {
        let page = [7; PAGE];
        let (region, media, base) = region_with(&page);
        region.write(0, &[8; 64]).unwrap();
        let mut always = || 0;
        let after = media.after_power_cut(CutStyle { grain: BLOCK_BYTES, garbage: false }, &mut always);
        let newest = read_copies(&after).unwrap().into_iter().next().unwrap();
        assert_eq!(*newest.page, page);
        let mut there = [0; PAGE];
        after.read_at(base, &mut there).unwrap();
        assert_eq!((there[0], there[64]), (8, 7));
        // A second change of the same page needs its own copy.
        region.write(64, &[9; 64]).unwrap();
        let newest = read_copies(&*media).unwrap().into_iter().next().unwrap();
        assert_eq!((newest.sequence, newest.page[0], newest.page[64]), (2, 8, 7));
    }
}
