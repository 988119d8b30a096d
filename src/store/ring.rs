//! The write-ahead ring: appends records, replays them, and knows how much room there is.
//!
//! Places are absolute ([`Lsn`]) and never reset; a record's place in the file is its LSN modulo the ring's size, and a record
//! may wrap. A record begins on a fresh block, so nothing acknowledged is ever written again before a checkpoint has passed it.
//! Invariants: `tail <= head <= tail + size`; only a durable checkpoint moves `tail`; `marks` are the starts of the records in
//! between, in order.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::error::StoreError;
use super::layout::{BLOCK_BYTES, RING_AT, Superblock};
use super::media::Media;
use super::record::{Encoder, HEADER_BYTES, Header, Lsn, frame_bytes};

/// A record boundary at which a checkpoint may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Everything before is in the cold tier.
    pub lsn: Lsn,
    /// Epoch of the record that begins there (the current one if none does yet): replay accepts no older one.
    pub epoch: u64,
}

/// The ring of one open store.
#[derive(Debug)]
pub struct Ring {
    media: Arc<dyn Media>,
    size: u64,
    salt: u64,
    epoch: u64,
    head: Lsn,
    tail: Lsn,
    marks: VecDeque<Point>,
}

impl Ring {
    /// The ring as the superblock describes it, with nothing before `from`.
    #[must_use]
    pub fn new(media: Arc<dyn Media>, superblock: &Superblock, from: Lsn) -> Self {
        Self {
            media,
            size: superblock.ring_bytes,
            salt: superblock.salt,
            epoch: superblock.epoch,
            head: from,
            tail: from,
            marks: VecDeque::new(),
        }
    }

    /// Where the next record begins.
    #[must_use]
    pub fn head(&self) -> Lsn {
        self.head
    }

    /// Where the records that are still needed begin.
    #[must_use]
    pub fn tail(&self) -> Lsn {
        self.tail
    }

    /// Bytes of the ring.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes that records still need.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.head - self.tail
    }

    /// Bytes kept for records without enqueues: acknowledgements must go on when the ring has no room for messages.
    #[must_use]
    pub fn reserve(&self) -> u64 {
        (self.size / 8).next_multiple_of(BLOCK_BYTES)
    }

    /// Largest record. Even with a reserve for acknowledgements it fits once a checkpoint has emptied the ring.
    #[must_use]
    pub fn record_bytes_max(&self) -> u64 {
        self.size / 4 * 3 / BLOCK_BYTES * BLOCK_BYTES
    }

    /// Bytes free for a record.
    #[must_use]
    pub fn room(&self, enqueues: bool) -> u64 {
        (self.size - self.used()).saturating_sub(if enqueues { self.reserve() } else { 0 })
    }

    /// Records of this and later runs carry `epoch`.
    pub fn set_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    /// Writes the record at the head and makes it durable; then it belongs to the ring. Returns the bytes written.
    ///
    /// # Errors
    /// It is then unknown whether the record is durable; the ring must not be written again.
    pub fn append(&mut self, encoder: &mut Encoder) -> io::Result<u64> {
        let frame = encoder.finish(self.salt, self.head, self.epoch);
        let len = frame.len() as u64;
        assert!(len <= self.size - self.used(), "room was checked before");
        let mut at = self.head;
        frame.write_out(|run| {
            self.write(at, run)?;
            at += run.len() as u64;
            io::Result::Ok(())
        })?;
        self.media.sync_data()?;
        self.marks.push_back(Point { lsn: self.head, epoch: self.epoch });
        self.head += len;
        Ok(len)
    }

    /// The point at the head: everything is before it.
    #[must_use]
    pub fn head_point(&self) -> Point {
        Point { lsn: self.head, epoch: self.epoch }
    }

    /// The last boundary at or before `limit`; `None` when that is before the tail.
    #[must_use]
    pub fn point_at_or_before(&self, limit: Lsn) -> Option<Point> {
        if limit >= self.head {
            return Some(self.head_point());
        }
        let after = self.marks.partition_point(|mark| mark.lsn <= limit);
        after.checked_sub(1).map(|i| self.marks[i])
    }

    /// The first boundary at or after `limit`.
    #[must_use]
    pub fn point_at_or_after(&self, limit: Lsn) -> Point {
        let before = self.marks.partition_point(|mark| mark.lsn < limit);
        self.marks.get(before).copied().unwrap_or_else(|| self.head_point())
    }

    /// A checkpoint at `lsn` is durable: the room before it is free.
    pub fn release(&mut self, lsn: Lsn) {
        assert!(self.tail <= lsn && lsn <= self.head, "a checkpoint stands inside the ring");
        self.tail = lsn;
        let before = self.marks.partition_point(|mark| mark.lsn < lsn);
        self.marks.drain(..before);
    }

    /// Reads records from the tail on, up to the first one that does not fit, and puts the head behind the last one. `epoch`
    /// is the checkpoint's. `each` gets each record's LSN and body.
    ///
    /// # Errors
    /// Of the medium or of `each`.
    pub fn replay(
        &mut self,
        epoch: u64,
        mut each: impl FnMut(Lsn, Bytes) -> Result<(), StoreError>,
    ) -> Result<u64, StoreError> {
        let mut oldest = epoch;
        let mut records = 0;
        while let Some((found, body)) = self.read_record(oldest).map_err(StoreError::io("read its ring"))? {
            let len = frame_bytes(body.len());
            each(self.head, body)?;
            self.marks.push_back(Point { lsn: self.head, epoch: found });
            self.head += len;
            oldest = found;
            records += 1;
        }
        Ok(records)
    }

    /// The record at the head, if one from `oldest` or a later epoch is there.
    fn read_record(&self, oldest: u64) -> io::Result<Option<(u64, Bytes)>> {
        let room = self.size - self.used();
        if room < BLOCK_BYTES {
            return Ok(None);
        }
        let mut head = [0; HEADER_BYTES];
        self.read(self.head, &mut head)?;
        let Some(header) = Header::parse(&head, self.head) else { return Ok(None) };
        if frame_bytes(header.body) > room || header.epoch < oldest || header.epoch > self.epoch {
            return Ok(None);
        }
        let mut frame = vec![0; HEADER_BYTES + header.body];
        self.read(self.head, &mut frame)?;
        if !Header::is_sound(&mut frame, self.salt) {
            return Ok(None);
        }
        Ok(Some((header.epoch, Bytes::from(frame).slice(HEADER_BYTES..))))
    }

    fn write(&self, lsn: Lsn, run: &[u8]) -> io::Result<()> {
        let place = lsn % self.size;
        let first = usize::try_from(self.size - place).map_or(run.len(), |n| n.min(run.len()));
        let (front, back) = run.split_at(first);
        self.media.append_at(RING_AT + place, front)?;
        if back.is_empty() { Ok(()) } else { self.media.append_at(RING_AT, back) }
    }

    fn read(&self, lsn: Lsn, buf: &mut [u8]) -> io::Result<()> {
        let place = lsn % self.size;
        let first = usize::try_from(self.size - place).map_or(buf.len(), |n| n.min(buf.len()));
        let (front, back) = buf.split_at_mut(first);
        self.media.read_at(RING_AT + place, front)?;
        if back.is_empty() { Ok(()) } else { self.media.read_at(RING_AT, back) }
    }
}
