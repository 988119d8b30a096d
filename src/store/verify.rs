//! Compares everything that the cold tier counts with what is there: a full scan of one checkpoint's state.
//!
//! One read transaction sees one checkpoint, whatever is written meanwhile; while it is open, pages that later checkpoints free
//! are not used again, so on a busy store the file grows by what is written during the scan. Memory: a number per pack and
//! one segment at a time. What only the ring holds was checked when the file was opened.

use hashbrown::HashMap;
use redb::{ReadTransaction, ReadableDatabase, ReadableTable};

use super::cold::{
    BODY, Cold, DOOMED, META, META_KEY, Meta, QUEUE, ROW, SEGMENT, SEGMENT_INDEX, SHARE, damaged,
    decode_queue, redb_error,
};
use super::cold_write::decode_share;
use super::contract::QueueId;
use super::error::StoreError;
use super::hot_queue::HotQueue;
use super::segment::{Index, PACKS, StoredBody, chunk_key, segment_key, split_key, unpack};

/// Problems that are listed; more are counted only.
const PROBLEMS_MAX: usize = 50;

/// What a scan has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Queues.
    pub queues: u64,
    /// Segments, settled ones that wait for their removal included.
    pub segments: u64,
    /// Unsettled messages in them, per queue.
    pub messages: u64,
    /// Sum of their sizes.
    pub bytes: u64,
    /// Bodies that several queues share, in packs.
    pub packs: u64,
    /// Rows.
    pub rows: u64,
    /// Contradictions, in words.
    pub problems: Vec<String>,
    /// How many there are.
    pub problem_count: u64,
}

impl Verification {
    fn problem(&mut self, text: String) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(text);
        }
    }

    fn expect<T: PartialEq + std::fmt::Display>(&mut self, what: &str, counted: T, found: T) {
        if counted != found {
            self.problem(format!("{what}: {counted} by the count, {found} by the scan"));
        }
    }
}

struct Scan {
    tx: ReadTransaction,
    found: Verification,
    /// Segments that refer to each pack.
    references: HashMap<u64, u64>,
    stored: u64,
}

/// Scans the cold tier.
///
/// # Errors
/// As redb says. Contradictions are no error but part of the result.
pub fn verify(cold: &Cold) -> Result<Verification, StoreError> {
    // Held to the end: nobody may compact or reopen the database under the transaction.
    let access = cold.access()?;
    let tx = access.begin_read().map_err(redb_error("begin"))?;
    let mut scan = Scan { tx, found: Verification::default(), references: HashMap::new(), stored: 0 };
    scan.segments()?;
    scan.packs()?;
    scan.rows()?;
    let table = scan.tx.open_table(META).map_err(redb_error("open a table"))?;
    let meta = table.get(META_KEY).map_err(redb_error("read"))?;
    let meta =
        meta.and_then(|raw| Meta::decode(raw.value())).ok_or_else(|| damaged("the checkpoint's row"))?;
    scan.found.expect("stored bytes", meta.stored_bytes, scan.stored);
    Ok(scan.found)
}

impl Scan {
    /// All queues' rows, each compared with its segments; then segments that belong to no queue.
    fn segments(&mut self) -> Result<(), StoreError> {
        let queues = self.tx.open_table(QUEUE).map_err(redb_error("open a table"))?;
        let doomed = self.tx.open_table(DOOMED).map_err(redb_error("open a table"))?;
        let index = self.tx.open_table(SEGMENT_INDEX).map_err(redb_error("open a table"))?;
        for item in queues.iter().map_err(redb_error("read"))? {
            let (id, raw) = item.map_err(redb_error("read"))?;
            let queue = decode_queue(raw.value()).ok_or_else(|| damaged("a queue's row"))?;
            self.found.queues += 1;
            self.queue(QueueId(id.value()), Some(&queue))?;
        }
        for item in doomed.iter().map_err(redb_error("read"))? {
            self.queue(QueueId(item.map_err(redb_error("read"))?.0.value()), None)?;
        }
        let all = index.iter().map_err(redb_error("read"))?.count() as u64;
        self.found.expect("segments of known queues", all, self.found.segments);
        Ok(())
    }

    fn queue(&mut self, id: QueueId, queue: Option<&HotQueue>) -> Result<(), StoreError> {
        let index = self.tx.open_table(SEGMENT_INDEX).map_err(redb_error("open a table"))?;
        let (from, to) = (segment_key(id, 0), segment_key(id, u64::MAX));
        let (mut segments, mut messages, mut bytes, mut last) = (0u64, 0, 0, 0);
        for item in index.range::<&[u8; 12]>(&from..=&to).map_err(redb_error("read"))? {
            let (key, raw) = item.map_err(redb_error("read"))?;
            let (_, first) = split_key(key.value());
            let Some(index) = Index::decode(raw.value()) else {
                self.found.problem(format!("queue {}: the index of segment {first} cannot be read", id.0));
                continue;
            };
            if first <= last || index.last < first {
                self.found.problem(format!("queue {}: segment {first} is out of order", id.0));
            }
            last = index.last;
            segments += 1;
            self.stored += index.stored;
            let (m, b) = self.segment(id, first, &index, queue)?;
            (messages, bytes) = (messages + m, bytes + b);
        }
        self.found.segments += segments;
        self.found.messages += messages;
        self.found.bytes += bytes;
        if let Some(queue) = queue {
            self.found.expect(&format!("queue {}: messages", id.0), queue.cold_messages, messages);
            self.found.expect(&format!("queue {}: bytes", id.0), queue.cold_bytes, bytes);
            // After a full disk the count may be too high, never too low.
            if queue.segments < segments {
                self.found.expect(&format!("queue {}: segments", id.0), queue.segments, segments);
            }
            if segments > 0 && last >= queue.hot_first {
                self.found.problem(format!("queue {}: a segment ends behind the checkpoint", id.0));
            }
        }
        Ok(())
    }

    /// Unsettled messages of one segment and their bytes.
    fn segment(
        &mut self,
        id: QueueId,
        first: u64,
        index: &Index,
        queue: Option<&HotQueue>,
    ) -> Result<(u64, u64), StoreError> {
        let place = format!("queue {}: segment {first}", id.0);
        let table = self.tx.open_table(SEGMENT).map_err(redb_error("open a table"))?;
        let value = table.get(&segment_key(id, first)).map_err(redb_error("read"))?;
        let Some(entries) = value.and_then(|value| unpack(first, value.value()).ok()) else {
            self.found.problem(format!("{place} cannot be read"));
            return Ok((0, 0));
        };
        self.found.expect(&format!("{place}: messages"), u64::from(index.count), entries.len() as u64);
        self.found.expect(&format!("{place}: last"), index.last, entries.last().map_or(0, |entry| entry.seq));
        let (mut messages, mut bytes, mut packs) = (0, 0, Vec::new());
        for entry in &entries {
            let size = match &entry.body {
                StoredBody::Inline(message) => u64::from(message.size()),
                StoredBody::Chunked(len) => {
                    self.chunks(&place, id, entry.seq, *len)?;
                    *len
                }
                StoredBody::Shared(at) => {
                    packs.push(at.pack);
                    u64::from(at.len)
                }
            };
            if queue.is_some_and(|queue| !queue.is_settled(entry.seq)) {
                (messages, bytes) = (messages + 1, bytes + size);
            }
        }
        packs.sort_unstable();
        packs.dedup();
        if packs != index.packs {
            self.found.problem(format!("{place} refers to other packs than its index says"));
        }
        packs.into_iter().for_each(|pack| *self.references.entry(pack).or_default() += 1);
        Ok((messages, bytes))
    }

    fn chunks(&mut self, place: &str, id: QueueId, number: u64, len: u64) -> Result<(), StoreError> {
        let body = self.tx.open_table(BODY).map_err(redb_error("open a table"))?;
        let (from, to) = (chunk_key(id, number, 0), chunk_key(id, number, u32::MAX));
        let mut found = 0;
        for item in body.range::<&[u8; 16]>(&from..=&to).map_err(redb_error("read"))? {
            found += item.map_err(redb_error("read"))?.1.value().len() as u64;
        }
        self.found.expect(&format!("{place}: bytes of body {number}"), len, found);
        Ok(())
    }

    fn packs(&mut self) -> Result<(), StoreError> {
        let table = self.tx.open_table(SHARE).map_err(redb_error("open a table"))?;
        for item in table.iter().map_err(redb_error("read"))? {
            let (id, raw) = item.map_err(redb_error("read"))?;
            let (references, bytes) = decode_share(raw.value()).ok_or_else(|| damaged("a pack's count"))?;
            self.found.packs += 1;
            self.stored += bytes;
            let found = self.references.remove(&id.value()).unwrap_or(0);
            self.found.expect(&format!("pack {}: segments", id.value()), references, found);
            self.chunks("packs", PACKS, id.value(), bytes)?;
        }
        let mut missing: Vec<_> = self.references.drain().map(|(pack, _)| pack).collect();
        missing.sort_unstable();
        missing.into_iter().for_each(|pack| self.found.problem(format!("pack {pack} is missing")));
        self.orphans()
    }

    /// Packs' bodies that no row counts.
    fn orphans(&mut self) -> Result<(), StoreError> {
        let share = self.tx.open_table(SHARE).map_err(redb_error("open a table"))?;
        let body = self.tx.open_table(BODY).map_err(redb_error("open a table"))?;
        let (from, to) = (chunk_key(PACKS, 0, 0), chunk_key(PACKS, u64::MAX, u32::MAX));
        for item in body.range::<&[u8; 16]>(&from..=&to).map_err(redb_error("read"))? {
            let (key, _) = item.map_err(redb_error("read"))?;
            let pack = u64::from_be_bytes(key.value()[4..12].try_into().expect("eight bytes"));
            if share.get(pack).map_err(redb_error("read"))?.is_none() {
                self.found.problem(format!("pack {pack} is counted nowhere"));
            }
        }
        Ok(())
    }

    fn rows(&mut self) -> Result<(), StoreError> {
        let table = self.tx.open_table(ROW).map_err(redb_error("open a table"))?;
        for item in table.iter().map_err(redb_error("read"))? {
            let (key, value) = item.map_err(redb_error("read"))?;
            self.found.rows += 1;
            self.stored += (key.value().len() + value.value().len()) as u64;
        }
        Ok(())
    }
}
