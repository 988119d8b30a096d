//! One checkpoint's transaction: moves messages to segments, writes changed queues and rows, removes settled segments.

use redb::{Durability, ReadableTable, Table, WriteTransaction};

use hashbrown::HashMap;

use super::cold::{
    BODY, Cold, DOOMED, META, META_KEY, Meta, QUEUE, ROW, SEGMENT, SEGMENT_INDEX, SHARE, damaged,
    encode_queue, redb_error,
};
use super::contract::{QueueId, Seq};
use super::error::StoreError;
use super::hot::{FoldEntry, FoldedQueue, QueueFold, Snapshot};
use super::segment::{
    INLINE_BYTES_MAX, Index, PACKS, Packer, SegmentKey, VALUE_BYTES_MAX, chunk_key, segment_key, split_key,
};
use super::share::Shares;
use crate::message::Message;
use crate::varint::{put_varint, take_varint};

/// Segments that one checkpoint removes at most; the rest is left for the next one.
pub const SWEEP_SEGMENTS_MAX: usize = 2048;

/// What a checkpoint has done.
#[derive(Debug, Default)]
pub struct Written {
    /// Per queue of the snapshot.
    pub queues: Vec<FoldedQueue>,
    /// Settled segments are left.
    pub again: bool,
    /// Messages moved.
    pub messages: u64,
    /// Segments removed.
    pub removed: u64,
    /// Packs of shared messages written.
    pub packs: u64,
    /// The checkpoint's row.
    pub meta: Meta,
}

/// Writes the snapshot as checkpoint number `before.serial + 1`.
///
/// # Errors
/// As redb says. It is then unknown whether the checkpoint is durable.
pub fn write_checkpoint(cold: &Cold, before: &Meta, snapshot: &Snapshot) -> Result<Written, StoreError> {
    let database = cold.access()?;
    cold.region().begin_commit();
    let mut tx = database.begin_write().map_err(redb_error("begin"))?;
    tx.set_durability(Durability::Immediate).map_err(redb_error("begin"))?;
    tx.set_quick_repair(true);
    let meta = Meta {
        serial: before.serial + 1,
        lsn: snapshot.point.lsn,
        epoch: snapshot.point.epoch,
        next_queue: snapshot.next_queue,
        newest_wall: snapshot.newest_wall,
        stored_bytes: before.stored_bytes,
        next_pack: before.next_pack,
    };
    let mut written = Written { meta, ..Written::default() };
    {
        let mut tables = Tables::open(&tx)?;
        tables.shares = Shares::plan(&snapshot.queues, written.meta.next_pack);
        tables.write_packs(&mut written)?;
        for fold in &snapshot.queues {
            let done = tables.write_queue(fold, &mut written)?;
            written.queues.push(done);
        }
        tables.write_shares()?;
        tables.remove_queues(&snapshot.deleted, &mut written)?;
        for ((space, key), value) in &snapshot.rows {
            tables.write_row(*space as u8, key, value.as_deref(), &mut written.meta)?;
        }
        let mut table = tx.open_table(META).map_err(redb_error("open a table"))?;
        table.insert(META_KEY, written.meta.encode().as_slice()).map_err(redb_error("write"))?;
    }
    tx.commit().map_err(redb_error("commit"))?;
    Ok(written)
}

struct Tables<'tx> {
    segment: Table<'tx, &'static SegmentKey, &'static [u8]>,
    index: Table<'tx, &'static SegmentKey, &'static [u8]>,
    body: Table<'tx, &'static [u8; 16], &'static [u8]>,
    share: Table<'tx, u64, &'static [u8]>,
    queue: Table<'tx, u32, &'static [u8]>,
    doomed: Table<'tx, u32, ()>,
    row: Table<'tx, &'static [u8], &'static [u8]>,
    shares: Shares,
    /// Segments that refer to each new pack.
    references: HashMap<u64, u64>,
    packer: Packer,
    buffer: Vec<u8>,
    sweeps_left: usize,
}

impl<'tx> Tables<'tx> {
    fn open(tx: &'tx WriteTransaction) -> Result<Self, StoreError> {
        let failed = "open a table";
        Ok(Self {
            segment: tx.open_table(SEGMENT).map_err(redb_error(failed))?,
            index: tx.open_table(SEGMENT_INDEX).map_err(redb_error(failed))?,
            body: tx.open_table(BODY).map_err(redb_error(failed))?,
            share: tx.open_table(SHARE).map_err(redb_error(failed))?,
            queue: tx.open_table(QUEUE).map_err(redb_error(failed))?,
            doomed: tx.open_table(DOOMED).map_err(redb_error(failed))?,
            row: tx.open_table(ROW).map_err(redb_error(failed))?,
            shares: Shares::default(),
            references: HashMap::new(),
            packer: Packer::default(),
            buffer: Vec::new(),
            sweeps_left: SWEEP_SEGMENTS_MAX,
        })
    }

    fn write_queue(&mut self, fold: &QueueFold, written: &mut Written) -> Result<FoldedQueue, StoreError> {
        let mut segments =
            fold.segments + self.write_segments(fold.queue, &fold.entries, &mut written.meta)?;
        written.messages += fold.entries.len() as u64;
        let mut swept = Some(fold.floor);
        for (start, end) in &fold.sweeps {
            let removed = self.sweep(fold.queue, *start, *end, written)?;
            segments = segments.saturating_sub(removed);
            if self.sweeps_left == 0 {
                swept = None;
                written.again = true;
                break;
            }
        }
        if let Some((stamp, runs)) = &fold.row {
            let row = encode_queue(stamp, segments, runs);
            self.queue.insert(fold.queue.0, row.as_slice()).map_err(redb_error("write"))?;
        }
        Ok(FoldedQueue { queue: fold.queue, segments, swept })
    }

    fn write_segments(
        &mut self,
        queue: QueueId,
        mut entries: &[FoldEntry],
        meta: &mut Meta,
    ) -> Result<u64, StoreError> {
        let mut segments = 0;
        let mut packer = std::mem::take(&mut self.packer);
        while let Some(first) = entries.first() {
            let key = segment_key(queue, first.seq);
            let (count, index, value) = packer.pack(entries, &self.shares);
            let (now, rest) = entries.split_at(count);
            if index.chunked > 0 {
                self.write_chunks(queue, now)?;
            }
            self.segment.insert(&key, value).map_err(redb_error("write"))?;
            self.index.insert(&key, index.encode().as_slice()).map_err(redb_error("write"))?;
            meta.stored_bytes += index.stored;
            index.packs.iter().for_each(|pack| *self.references.entry(*pack).or_default() += 1);
            entries = rest;
            segments += 1;
        }
        self.packer = packer;
        Ok(segments)
    }

    fn write_chunks(&mut self, queue: QueueId, entries: &[FoldEntry]) -> Result<(), StoreError> {
        for entry in entries.iter().filter(|e| e.message.size() as usize > INLINE_BYTES_MAX) {
            if self.shares.place(&entry.message).is_none() {
                self.write_large(queue, entry.seq, &entry.message)?;
            }
        }
        Ok(())
    }

    /// Writes a message's chunks straight from its payload: only the first one is put together in memory.
    fn write_large(&mut self, queue: QueueId, number: u64, message: &Message) -> Result<(), StoreError> {
        let mut first = Vec::with_capacity(VALUE_BYTES_MAX);
        message.encode_head(&mut first);
        let mut payload = message.payload();
        if first.len() < VALUE_BYTES_MAX {
            let (front, rest) = payload.split_at(payload.len().min(VALUE_BYTES_MAX - first.len()));
            first.extend_from_slice(front);
            payload = rest;
        }
        let parts = first.chunks(VALUE_BYTES_MAX).chain(payload.chunks(VALUE_BYTES_MAX));
        for (chunk, part) in (0u32..).zip(parts) {
            let key = chunk_key(queue, number, chunk);
            self.body.insert(&key, part).map_err(redb_error("write"))?;
        }
        Ok(())
    }

    fn write_packs(&mut self, written: &mut Written) -> Result<(), StoreError> {
        let shares = std::mem::take(&mut self.shares);
        let mut buffer = std::mem::take(&mut self.buffer);
        for pack in shares.packs() {
            buffer.clear();
            match pack.messages.as_slice() {
                [large] if large.size() as usize > INLINE_BYTES_MAX => {
                    self.write_large(PACKS, pack.id, large)?
                }
                messages => {
                    messages.iter().for_each(|message| message.encode(&mut buffer));
                    let key = chunk_key(PACKS, pack.id, 0);
                    self.body.insert(&key, buffer.as_slice()).map_err(redb_error("write"))?;
                }
            }
            written.meta.next_pack = pack.id + 1;
            written.meta.stored_bytes += pack.bytes();
            written.packs += 1;
        }
        (self.shares, self.buffer) = (shares, buffer);
        Ok(())
    }

    /// Each new pack's count; called once all segments that refer to it are written.
    fn write_shares(&mut self) -> Result<(), StoreError> {
        for pack in self.shares.packs() {
            let references = self.references.get(&pack.id).copied().unwrap_or(0);
            assert!(references > 0, "a pack is made for segments of this checkpoint");
            let row = encode_share(references, pack.bytes());
            self.share.insert(pack.id, row.as_slice()).map_err(redb_error("write"))?;
        }
        Ok(())
    }

    /// A segment that refers to `pack` is gone.
    fn release_pack(&mut self, pack: u64, written: &mut Written) -> Result<(), StoreError> {
        let row = self.share.get(pack).map_err(redb_error("read"))?;
        let (references, bytes) =
            row.and_then(|row| decode_share(row.value())).ok_or_else(|| damaged("a pack's count"))?;
        if references > 1 {
            let row = encode_share(references - 1, bytes);
            self.share.insert(pack, row.as_slice()).map_err(redb_error("write"))?;
            return Ok(());
        }
        self.share.remove(pack).map_err(redb_error("remove"))?;
        written.meta.stored_bytes = written.meta.stored_bytes.saturating_sub(bytes);
        self.remove_bodies(PACKS, pack, pack)
    }

    fn remove_bodies(&mut self, queue: QueueId, first: u64, last: u64) -> Result<(), StoreError> {
        let (from, to) = (chunk_key(queue, first, 0), chunk_key(queue, last, u32::MAX));
        self.body.retain_in::<&[u8; 16], _>(&from..=&to, |_, _| false).map_err(redb_error("remove"))
    }

    /// Removes the segments that lie in `start..end` as a whole, from the first one on, as many as are allowed.
    fn sweep(
        &mut self,
        queue: QueueId,
        start: Seq,
        end: Seq,
        written: &mut Written,
    ) -> Result<u64, StoreError> {
        let mut found = Vec::new();
        let range = segment_key(queue, start)..segment_key(queue, end);
        for item in self.index.range::<&SegmentKey>(&range.start..&range.end).map_err(redb_error("read"))? {
            if found.len() >= self.sweeps_left {
                break;
            }
            let (key, raw) = item.map_err(redb_error("read"))?;
            let index = Index::decode(raw.value()).ok_or_else(|| damaged("a segment's index"))?;
            if index.last >= end {
                break;
            }
            found.push((*key.value(), index));
        }
        for (key, index) in &found {
            self.remove_segment(key, index, written)?;
            written.meta.stored_bytes = written.meta.stored_bytes.saturating_sub(index.stored);
        }
        self.sweeps_left -= found.len();
        written.removed += found.len() as u64;
        Ok(found.len() as u64)
    }

    fn remove_segment(
        &mut self,
        key: &SegmentKey,
        index: &Index,
        written: &mut Written,
    ) -> Result<(), StoreError> {
        self.segment.remove(key).map_err(redb_error("remove"))?;
        self.index.remove(key).map_err(redb_error("remove"))?;
        if index.chunked > 0 {
            let (queue, first) = split_key(key);
            self.remove_bodies(queue, first, index.last)?;
        }
        index.packs.iter().try_for_each(|pack| self.release_pack(*pack, written))
    }

    fn remove_queues(&mut self, deleted: &[QueueId], written: &mut Written) -> Result<(), StoreError> {
        for queue in deleted {
            self.queue.remove(queue.0).map_err(redb_error("remove"))?;
            self.doomed.insert(queue.0, ()).map_err(redb_error("write"))?;
        }
        while self.sweeps_left > 0 {
            let Some(queue) = self.doomed.first().map_err(redb_error("read"))?.map(|(id, _)| id.value())
            else {
                return Ok(());
            };
            self.sweep(QueueId(queue), 0, Seq::MAX, written)?;
            if self.sweeps_left > 0 {
                self.doomed.remove(queue).map_err(redb_error("remove"))?;
            }
        }
        written.again |= self.doomed.first().map_err(redb_error("read"))?.is_some();
        Ok(())
    }

    fn write_row(
        &mut self,
        space: u8,
        key: &[u8],
        value: Option<&[u8]>,
        meta: &mut Meta,
    ) -> Result<(), StoreError> {
        let mut name = Vec::with_capacity(key.len() + 1);
        name.push(space);
        name.extend_from_slice(key);
        let old = match value {
            Some(value) => self.row.insert(name.as_slice(), value).map_err(redb_error("write"))?,
            None => self.row.remove(name.as_slice()).map_err(redb_error("remove"))?,
        };
        let old = old.map_or(0, |old| old.value().len() + name.len());
        meta.stored_bytes = meta.stored_bytes.saturating_sub(old as u64);
        meta.stored_bytes += value.map_or(0, |value| value.len() + name.len()) as u64;
        Ok(())
    }
}

/// A pack's row: varints.
fn encode_share(references: u64, bytes: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, references);
    put_varint(&mut out, bytes);
    out
}

/// How many segments refer to a pack, and its stored size.
pub(super) fn decode_share(mut raw: &[u8]) -> Option<(u64, u64)> {
    Some((take_varint(&mut raw)?, take_varint(&mut raw)?))
}
