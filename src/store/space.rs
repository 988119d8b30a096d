//! Keeps disk space in hand, so that redb can always take in what the ring holds.
//!
//! Between the ring and redb's region the file has a *ballast*: a hole whose blocks are reserved, as many as the ring and the
//! writer's queue can hold. When the disk, its reserve or the configured budget is used up, the store is full: no new messages
//! come in; the ballast's blocks are given back when a write fails for want of them (or at once, when it is the file's own budget
//! that is used up), so that everything accepted so far still fits, and so do the copies that deleting needs. When there is space again, or deletes have freed enough pages inside redb's region, messages come in again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::contract::Capacity;
use super::layout::Superblock;
use super::media::Media;

/// Bounds of one file's size.
#[derive(Debug)]
pub struct Space {
    media: Arc<dyn Media>,
    ballast_at: u64,
    ballast_bytes: u64,
    file_bytes_max: u64,
    disk_reserve_bytes: u64,
    /// The ballast's blocks are reserved.
    held: AtomicBool,
    /// What was said last.
    full: AtomicBool,
}

impl Space {
    /// For the file that the superblock describes.
    #[must_use]
    pub fn new(
        media: Arc<dyn Media>,
        superblock: &Superblock,
        file_bytes_max: Option<u64>,
        disk_reserve_bytes: u64,
    ) -> Self {
        let space = Self {
            media,
            ballast_at: superblock.ballast_at(),
            ballast_bytes: superblock.ballast_bytes,
            file_bytes_max: file_bytes_max.unwrap_or(u64::MAX),
            disk_reserve_bytes,
            held: AtomicBool::new(false),
            full: AtomicBool::new(false),
        };
        // Whether an earlier run held it is unknown; from a known state the sums below are right.
        space.release();
        space
    }

    /// Whether new messages may come in, if redb's live data is about `live` bytes.
    #[must_use]
    pub fn capacity(&self, live: u64) -> Capacity {
        let occupied = self.media.occupied().unwrap_or(0);
        let free = self.media.free_space().unwrap_or(u64::MAX);
        let held = self.held.load(Ordering::Relaxed);
        let more = if held { self.ballast_bytes / 2 } else { self.ballast_bytes };
        let fits_file = occupied.saturating_add(more) <= self.file_bytes_max;
        // Full in time for the ballast to be still there; a full disk must have clearly more before it counts as free again.
        let was_full = self.full.load(Ordering::Relaxed);
        let spare = if held && !was_full { self.ballast_bytes / 2 } else { self.ballast_bytes };
        let fits_disk = free >= self.disk_reserve_bytes.saturating_add(spare);
        match (held, fits_file && fits_disk) {
            (true, true) => return self.remember(Capacity::Free),
            // The budget is the file's own: what the ballast gives back is there for the file.
            (true, false) if !fits_file => {
                self.release();
            }
            // On a full disk somebody else might take it: it is kept until a write fails for want of it.
            (true, false) => {}
            (false, true) if self.hold() => return self.remember(Capacity::Free),
            (false, _) => {}
        }
        // Pages that deletes have freed inside redb's region are as good as a ballast, once they are clearly enough.
        let ballast = if held { self.ballast_bytes } else { 0 };
        let inside = occupied.saturating_sub(self.ballast_at + ballast);
        let wanted = live.saturating_add(live / 2).saturating_add(2 * self.ballast_bytes);
        self.remember(if inside >= wanted { Capacity::Free } else { Capacity::Full })
    }

    fn remember(&self, now: Capacity) -> Capacity {
        self.full.store(now == Capacity::Full, Ordering::Relaxed);
        now
    }

    /// Gives the ballast's blocks back. Returns whether that has made room.
    pub fn release(&self) -> bool {
        let held = self.held.swap(false, Ordering::Relaxed);
        // A medium that cannot give blocks back fails here and keeps them: nothing is lost by that.
        let released = self.media.release(self.ballast_at, self.ballast_bytes);
        held && released.is_ok()
    }

    fn hold(&self) -> bool {
        let held = self.media.reserve(self.ballast_at, self.ballast_bytes).is_ok();
        self.held.store(held, Ordering::Relaxed);
        held
    }
}
