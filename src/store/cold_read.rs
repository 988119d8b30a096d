//! Reads pages of messages from the cold tier, keeping the last few segments decoded: a queue that is drained in small pages
//! reads each of its segments about once.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use redb::{ReadOnlyTable, ReadTransaction, ReadableDatabase};

use super::cold::{BODY, Cold, SEGMENT, SEGMENT_INDEX, SHARE, damaged, redb_error};
use super::cold_write::decode_share;
use super::contract::{PageEntry, QueueId, Seq};
use super::counters::{Counters, add};
use super::error::StoreError;
use super::segment::{
    Index, PACKS, SegmentKey, StoredBody, StoredEntry, VALUE_BYTES_MAX, chunk_key, segment_key, split_key,
    unpack,
};
use super::share::Place;
use crate::message::Message;

/// Decoded segments that are kept: each takes at most about twice 65,000 bytes, more for messages of a few bytes.
const SEGMENTS_KEPT: usize = 8;

/// Room made at once for a large message; a damaged length asks for no more.
const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// Packs of shared messages that are kept: each takes at most 65,000 bytes.
const PACKS_KEPT: usize = 8;

/// Large shared messages that are found again while somebody still has their bytes, an outbox perhaps.
const LARGE_FOUND_MAX: usize = 64;

/// What is wanted of a queue's cold messages.
#[derive(Debug)]
pub struct ColdQuery {
    /// The queue.
    pub queue: QueueId,
    /// From here on; unsettled by the caller's knowledge.
    pub from: Seq,
    /// Up to here (exclusive).
    pub until: Seq,
    /// Settled runs from `from` on, in order.
    pub runs: Vec<(Seq, Seq)>,
    /// Stop after the message that reaches this many bytes.
    pub bytes_max: u64,
    /// Never more messages.
    pub messages_max: usize,
}

#[derive(Debug)]
struct Kept {
    queue: QueueId,
    first: Seq,
    last: Seq,
    entries: Arc<Vec<StoredEntry>>,
}

/// The loader's memory.
#[derive(Debug, Default)]
pub struct ColdReader {
    kept: Vec<Kept>,
    packs: Vec<(u64, Bytes)>,
    /// By their packs, the latest last: consumers of one large message share one copy of it.
    large: VecDeque<(u64, Weak<Vec<u8>>)>,
}

/// A decoded segment and where the next one may begin.
type Found = (Arc<Vec<StoredEntry>>, Seq);

struct Tables {
    segment: ReadOnlyTable<&'static SegmentKey, &'static [u8]>,
    index: ReadOnlyTable<&'static SegmentKey, &'static [u8]>,
    body: ReadOnlyTable<&'static [u8; 16], &'static [u8]>,
    share: ReadOnlyTable<u64, &'static [u8]>,
    _tx: ReadTransaction,
}

impl ColdReader {
    /// Unsettled messages in ascending order, and where to go on: everything unsettled before is among them.
    ///
    /// # Errors
    /// As redb says. A damaged segment is counted and skipped.
    pub fn read(
        &mut self,
        cold: &Cold,
        query: &ColdQuery,
        counters: &Counters,
    ) -> Result<(Vec<PageEntry>, Seq), StoreError> {
        let access = cold.access()?;
        let mut tables = None;
        let mut out = Vec::new();
        let mut bytes = 0;
        let mut runs = query.runs.as_slice();
        let mut next = query.from;
        while next < query.until {
            let Some((entries, after)) = self.segment_at(&access, &mut tables, query, next, counters)? else {
                return Ok((out, query.until));
            };
            let begin = entries.partition_point(|entry| entry.seq < next);
            for entry in &entries[begin..] {
                if entry.seq >= query.until {
                    return Ok((out, query.until));
                }
                if is_settled(&mut runs, entry.seq) {
                    continue;
                }
                let full = out.len() >= query.messages_max || bytes >= query.bytes_max;
                if full && !out.is_empty() {
                    return Ok((out, entry.seq));
                }
                let Some(message) = self.body_of(&access, &mut tables, query.queue, entry)? else {
                    add(&counters.segments_damaged, 1);
                    tracing::error!(
                        queue = query.queue.0,
                        seq = entry.seq,
                        "a stored message is damaged and lost"
                    );
                    continue;
                };
                bytes += u64::from(message.size());
                out.push(PageEntry { seq: entry.seq, options: entry.options.clone(), message });
            }
            next = after;
        }
        Ok((out, query.until))
    }

    /// The segment that holds `next` or, if none does, the first one behind it; and where the one after it may begin.
    fn segment_at(
        &mut self,
        database: &redb::Database,
        tables: &mut Option<Tables>,
        query: &ColdQuery,
        next: Seq,
        counters: &Counters,
    ) -> Result<Option<Found>, StoreError> {
        let holds = |kept: &Kept| kept.queue == query.queue && kept.first <= next && next <= kept.last;
        if let Some(at) = self.kept.iter().position(holds) {
            self.kept[at..].rotate_left(1);
            let kept = self.kept.last().expect("one was found");
            return Ok(Some((kept.entries.clone(), kept.last + 1)));
        }
        let tables = open(database, tables)?;
        let Some((key, index)) = find(tables, query.queue, next)? else { return Ok(None) };
        let (_, first) = split_key(&key);
        if first >= query.until {
            return Ok(None);
        }
        let value = tables.segment.get(&key).map_err(redb_error("read"))?;
        let entries = value.and_then(|value| unpack(first, value.value()).ok());
        let entries = Arc::new(entries.unwrap_or_else(|| {
            add(&counters.segments_damaged, 1);
            tracing::error!(
                queue = query.queue.0,
                first,
                "a stored segment is damaged: its messages are lost"
            );
            Vec::new()
        }));
        if self.kept.len() >= SEGMENTS_KEPT {
            self.kept.remove(0);
        }
        self.kept.push(Kept { queue: query.queue, first, last: index.last, entries: entries.clone() });
        Ok(Some((entries, index.last + 1)))
    }

    /// An entry's message; `None` when its bytes are damaged.
    fn body_of(
        &mut self,
        database: &redb::Database,
        tables: &mut Option<Tables>,
        queue: QueueId,
        entry: &StoredEntry,
    ) -> Result<Option<Message>, StoreError> {
        match &entry.body {
            StoredBody::Inline(message) => Ok(Some(message.clone())),
            StoredBody::Chunked(len) => {
                let record = read_chunks(open(database, tables)?, queue, entry.seq, *len)?;
                Ok(record.and_then(|record| Message::decode(&record.into()).ok()))
            }
            StoredBody::Shared(place) if place.len as usize > VALUE_BYTES_MAX => {
                self.large_body(database, tables, place)
            }
            StoredBody::Shared(place) => {
                let pack = self.pack(database, tables, place)?;
                let end = u64::from(place.at) + u64::from(place.len);
                let Some(pack) = pack.filter(|pack| end <= pack.len() as u64) else { return Ok(None) };
                let record = pack.slice(place.at as usize..end as usize);
                // A copy of its own, unless it is all there is: the consumer may hold one message of the pack for long.
                let record = if record.len() < pack.len() { Bytes::copy_from_slice(&record) } else { record };
                Ok(Message::decode(&record).ok())
            }
        }
    }

    /// A large message, which has a pack of its own.
    fn large_body(
        &mut self,
        database: &redb::Database,
        tables: &mut Option<Tables>,
        place: &Place,
    ) -> Result<Option<Message>, StoreError> {
        let known = self.large.iter().find(|(pack, _)| *pack == place.pack);
        let record = match known.and_then(|(_, record)| record.upgrade()) {
            Some(record) => record,
            None => {
                let len = u64::from(place.len);
                let Some(record) = read_chunks(open(database, tables)?, PACKS, place.pack, len)? else {
                    return Ok(None);
                };
                let record = Arc::new(record);
                self.large.retain(|(pack, record)| *pack != place.pack && record.strong_count() > 0);
                if self.large.len() >= LARGE_FOUND_MAX {
                    self.large.pop_front();
                }
                self.large.push_back((place.pack, Arc::downgrade(&record)));
                record
            }
        };
        Ok(Message::decode(&Bytes::from_owner(Owner(record))).ok())
    }

    fn pack(
        &mut self,
        database: &redb::Database,
        tables: &mut Option<Tables>,
        place: &Place,
    ) -> Result<Option<Bytes>, StoreError> {
        if let Some(at) = self.packs.iter().position(|(id, _)| *id == place.pack) {
            self.packs[at..].rotate_left(1);
            return Ok(self.packs.last().map(|(_, pack)| pack.clone()));
        }
        let tables = open(database, tables)?;
        let row = tables.share.get(place.pack).map_err(redb_error("read"))?;
        let Some((_, bytes)) = row.and_then(|row| decode_share(row.value())) else { return Ok(None) };
        let pack = read_chunks(tables, PACKS, place.pack, bytes)?.map(Bytes::from);
        if let Some(pack) = &pack {
            if self.packs.len() >= PACKS_KEPT {
                self.packs.remove(0);
            }
            self.packs.push((place.pack, pack.clone()));
        }
        Ok(pack)
    }
}

/// Keeps a record's bytes for everybody who has a part of them.
struct Owner(Arc<Vec<u8>>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn open<'a>(database: &redb::Database, tables: &'a mut Option<Tables>) -> Result<&'a Tables, StoreError> {
    if tables.is_none() {
        let tx = database.begin_read().map_err(redb_error("begin"))?;
        *tables = Some(Tables {
            segment: tx.open_table(SEGMENT).map_err(redb_error("open a table"))?,
            index: tx.open_table(SEGMENT_INDEX).map_err(redb_error("open a table"))?,
            body: tx.open_table(BODY).map_err(redb_error("open a table"))?,
            share: tx.open_table(SHARE).map_err(redb_error("open a table"))?,
            _tx: tx,
        });
    }
    Ok(tables.as_ref().expect("just opened"))
}

fn find(tables: &Tables, queue: QueueId, next: Seq) -> Result<Option<(SegmentKey, Index)>, StoreError> {
    let here = segment_key(queue, next);
    let start = segment_key(queue, 0);
    let before = tables.index.range::<&SegmentKey>(&start..=&here).map_err(redb_error("read"))?.next_back();
    if let Some(item) = before {
        let (key, raw) = item.map_err(redb_error("read"))?;
        let index = Index::decode(raw.value()).ok_or_else(|| damaged("a segment's index"))?;
        if index.last >= next {
            return Ok(Some((*key.value(), index)));
        }
    }
    let end = segment_key(queue, Seq::MAX);
    match tables.index.range::<&SegmentKey>(&here..=&end).map_err(redb_error("read"))?.next() {
        Some(item) => {
            let (key, raw) = item.map_err(redb_error("read"))?;
            let index = Index::decode(raw.value()).ok_or_else(|| damaged("a segment's index"))?;
            Ok(Some((*key.value(), index)))
        }
        None => Ok(None),
    }
}

/// Whether a run holds `seq`. Drops runs that end before it: calls come in ascending order.
fn is_settled(runs: &mut &[(Seq, Seq)], seq: Seq) -> bool {
    while let Some(((start, end), rest)) = runs.split_first() {
        if seq < *start {
            return false;
        }
        if seq < *end {
            return true;
        }
        *runs = rest;
    }
    false
}

/// The `len` bytes in the chunks of one large message or pack; `None` when they are not there.
fn read_chunks(
    tables: &Tables,
    queue: QueueId,
    number: u64,
    len: u64,
) -> Result<Option<Vec<u8>>, StoreError> {
    let (from, to) = (chunk_key(queue, number, 0), chunk_key(queue, number, u32::MAX));
    let mut record = Vec::new();
    for item in tables.body.range::<&[u8; 16]>(&from..=&to).map_err(redb_error("read"))? {
        let (_, chunk) = item.map_err(redb_error("read"))?;
        if record.is_empty() {
            record.reserve_exact(usize::try_from(len).unwrap_or(0).min(MESSAGE_BYTES_MAX));
        }
        record.extend_from_slice(chunk.value());
    }
    Ok((record.len() as u64 == len).then_some(record))
}
