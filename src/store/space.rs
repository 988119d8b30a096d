//! Keeps disk space reserved ahead of what the cold tier writes, so that it can always take in what the ring holds.
//!
//! redb extends its file by doubling, sparsely; real space is used as pages are written. `Space` reserves a *ballast* beyond the
//! last page ever written, at least as much as the ring and its queue can hold. When the ballast cannot be had any more, because
//! of the disk, its reserve or the configured budget, the store is full: no new messages come in, but everything accepted so
//! far still fits, and so do the copies that deleting needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::contract::Capacity;
use super::error::is_no_space;
use super::media::Media;

/// Space is reserved in steps of this many bytes.
const RESERVE_STEP_BYTES: u64 = 1 << 20;

/// Reservations ahead of one file's cold region.
#[derive(Debug)]
pub struct Space {
    media: Arc<dyn Media>,
    /// Where the region begins in the file.
    base: u64,
    ballast: u64,
    file_bytes_max: u64,
    disk_reserve_bytes: u64,
    /// End of the last page ever written, in the region.
    written: AtomicU64,
    /// End of what is reserved, in the region.
    reserved: AtomicU64,
}

impl Space {
    /// For the region from `base` on; `ballast` bytes are kept reserved.
    #[must_use]
    pub fn new(
        media: Arc<dyn Media>,
        base: u64,
        ballast: u64,
        file_bytes_max: Option<u64>,
        disk_reserve_bytes: u64,
    ) -> Self {
        let occupied = media.occupied().unwrap_or(0).saturating_sub(base);
        let length = media.size().unwrap_or(0).saturating_sub(base);
        let written = occupied.saturating_sub(ballast).min(length);
        let file_bytes_max = file_bytes_max.unwrap_or(u64::MAX);
        Self {
            media,
            base,
            ballast,
            file_bytes_max,
            disk_reserve_bytes,
            written: written.into(),
            reserved: occupied.into(),
        }
    }

    /// A page up to `end` was written.
    pub fn note_write(&self, end: u64) {
        let before = self.written.fetch_max(end, Ordering::Relaxed);
        if before < end {
            self.reserve_ballast();
        }
    }

    /// The region was cut to `len`.
    pub fn note_cut(&self, len: u64) {
        self.written.fetch_min(len, Ordering::Relaxed);
        self.reserved.fetch_min(len, Ordering::Relaxed);
    }

    /// Whether new messages may come in, if the region's live data is about `live` bytes.
    #[must_use]
    pub fn capacity(&self, live: u64) -> Capacity {
        let written = self.written.load(Ordering::Relaxed);
        // Pages that deletes have freed inside the region are as good as a ballast, once they are clearly enough.
        let free_inside = written.saturating_sub(live.saturating_add(live / 2));
        if self.reserve_ballast() || free_inside >= 2 * self.ballast {
            Capacity::Free
        } else {
            Capacity::Full
        }
    }

    /// The ballast is reserved, now or before.
    fn reserve_ballast(&self) -> bool {
        let from = self.reserved.load(Ordering::Relaxed);
        let needed = self.written.load(Ordering::Relaxed).saturating_add(self.ballast);
        if needed <= from {
            return true;
        }
        let to = needed.next_multiple_of(RESERVE_STEP_BYTES);
        if self.base.saturating_add(needed) > self.file_bytes_max {
            return false;
        }
        let free = self.media.free_space().unwrap_or(u64::MAX);
        if free < self.disk_reserve_bytes.saturating_add(to - from) {
            return false;
        }
        match self.media.reserve(self.base + from, to - from) {
            Err(e) if is_no_space(&e) => false,
            // A medium that fails in another way will say so at the next write.
            _ => {
                self.reserved.fetch_max(to, Ordering::Relaxed);
                true
            }
        }
    }
}
