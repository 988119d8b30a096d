//! How the cold tier stores messages: many in one value.
//!
//! ```text
//! segment key    queue u32 | first sequence number u64, big-endian
//! segment value  entry*, or squeezed (see the module `squeeze`). entry: gap varint | options | (length << 1 | chunked) varint | message, unless chunked
//!                gap: settled messages since the previous entry
//!                (length 0, chunked): pack varint, place varint and length varint of a shared message follow
//! index value    last u64 | count u32 | chunked u32 | stored u64 | earliest expiry u64, little-endian,
//!                then the packs that are referred to, ascending: varints, each less the one before
//! body key       queue u32 | seq u64 | chunk u32, big-endian; value: at most 65,000 bytes of a chunked message
//!                queue 0 (none has that number) | pack u64 | chunk u32: a pack
//! share          pack u64 -> segments that refer to it varint | stored bytes varint
//! ```
//! Values stay just below redb's page sizes, which are powers of two. A segment is never changed, only removed; a pack is
//! removed with the last segment that refers to it.

use bytes::Bytes;

use super::contract::{QueueId, Seq};
use super::hot::FoldEntry;
use super::layout::{le32, le64};
use super::share::{Place, Shares};
use super::squeeze::{Squeezer, plain};
use crate::message::{BadRecord, DeliveryOptions, Message};
use crate::varint::{put_varint, take_varint};

/// Largest value: just under a 64 KiB page.
pub const VALUE_BYTES_MAX: usize = 65_000;

/// Messages longer than this are stored in chunks of their own.
pub const INLINE_BYTES_MAX: usize = 60_000;

/// Messages of one segment: what a reader holds of a segment of tiny or shared messages is bounded too.
const SEGMENT_MESSAGES_MAX: usize = 2048;

/// The queue under whose number packs are stored.
pub const PACKS: QueueId = QueueId(0);

/// Sizes just under redb's page sizes, largest first.
pub const FILL_BYTES: [usize; 5] = [VALUE_BYTES_MAX, 32_600, 16_300, 8_100, 4_050];

/// A segment's key.
pub type SegmentKey = [u8; 12];

/// The key of the segment of `queue` that begins with `first`.
#[must_use]
pub fn segment_key(queue: QueueId, first: Seq) -> SegmentKey {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&queue.0.to_be_bytes());
    key[4..].copy_from_slice(&first.to_be_bytes());
    key
}

/// The parts of a segment's key.
#[must_use]
pub fn split_key(key: &SegmentKey) -> (QueueId, Seq) {
    let queue = u32::from_be_bytes(key[..4].try_into().expect("four bytes"));
    (QueueId(queue), u64::from_be_bytes(key[4..].try_into().expect("eight bytes")))
}

/// The key of a chunk of a large message.
#[must_use]
pub fn chunk_key(queue: QueueId, seq: Seq, chunk: u32) -> [u8; 16] {
    let mut key = [0; 16];
    key[..12].copy_from_slice(&segment_key(queue, seq));
    key[12..].copy_from_slice(&chunk.to_be_bytes());
    key
}

/// What is known of a segment without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// Its last message.
    pub last: Seq,
    /// Messages.
    pub count: u32,
    /// Of these, stored in chunks.
    pub chunked: u32,
    /// Bytes of the segment and its chunks.
    pub stored: u64,
    /// The earliest expiry time of its messages in milliseconds; the largest number if none expires.
    pub min_expiry: u64,
    /// Packs that it refers to, ascending.
    pub packs: Vec<u64>,
}

const INDEX_BYTES: usize = 32;

impl Index {
    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(INDEX_BYTES + 2 * self.packs.len());
        out.extend_from_slice(&self.last.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&self.chunked.to_le_bytes());
        out.extend_from_slice(&self.stored.to_le_bytes());
        out.extend_from_slice(&self.min_expiry.to_le_bytes());
        let mut before = 0;
        for pack in &self.packs {
            put_varint(&mut out, pack - before);
            before = *pack;
        }
        out
    }

    /// Reads the stored form; `None` when it is none.
    #[must_use]
    pub fn decode(raw: &[u8]) -> Option<Self> {
        let (fixed, mut list) = raw.split_at_checked(INDEX_BYTES)?;
        let mut packs = Vec::new();
        let mut pack = 0u64;
        while !list.is_empty() {
            pack = pack.checked_add(take_varint(&mut list)?)?;
            packs.push(pack);
        }
        Some(Self {
            last: le64(fixed),
            count: le32(&fixed[8..]),
            chunked: le32(&fixed[12..]),
            stored: le64(&fixed[16..]),
            min_expiry: le64(&fixed[24..]),
            packs,
        })
    }
}

/// Makes segments; keeps its working memory between them.
#[derive(Default)]
pub struct Packer {
    plain: Vec<u8>,
    /// Where each entry of `plain` ends.
    ends: Vec<usize>,
    squeezer: Squeezer,
}

impl Packer {
    /// Takes the next segment's worth off the front of `entries` (which is not empty); returns how many, the index and the value.
    pub fn pack(&mut self, entries: &[FoldEntry], shares: &Shares) -> (usize, Index, &[u8]) {
        self.put_entries(entries, shares);
        let Self { plain, ends, squeezer } = self;
        let (count, value) = match squeezer.fill(plain, ends) {
            Some(squeezed) => squeezed,
            None => {
                let target = FILL_BYTES.into_iter().find(|fill| *fill <= plain.len());
                let target = target.unwrap_or(FILL_BYTES[FILL_BYTES.len() - 1]);
                let count = ends.partition_point(|end| *end <= target).max(1);
                (count, &plain[..ends[count - 1]])
            }
        };
        (count, index_of(&entries[..count], shares, value.len()), value)
    }

    /// Fills `plain` with as many entries as any segment holds.
    fn put_entries(&mut self, entries: &[FoldEntry], shares: &Shares) {
        self.plain.clear();
        self.ends.clear();
        let mut expected = entries[0].seq;
        for entry in entries.iter().take(SEGMENT_MESSAGES_MAX) {
            put_varint(&mut self.plain, entry.seq - expected);
            entry.options.encode(&mut self.plain);
            put_body(entry, shares, &mut self.plain);
            if self.plain.len() > VALUE_BYTES_MAX && !self.ends.is_empty() {
                let end = self.ends[self.ends.len() - 1];
                return self.plain.truncate(end);
            }
            self.ends.push(self.plain.len());
            expected = entry.seq + 1;
        }
    }
}

/// The index of a segment of these entries whose value has `len` bytes.
fn index_of(entries: &[FoldEntry], shares: &Shares, len: usize) -> Index {
    let last = entries[entries.len() - 1].seq;
    let count = u32::try_from(entries.len()).expect("a segment's messages are bounded");
    let mut index =
        Index { last, count, chunked: 0, stored: len as u64, min_expiry: u64::MAX, packs: Vec::new() };
    for entry in entries {
        index.min_expiry = index.min_expiry.min(entry.message.expires().map_or(u64::MAX, |wall| wall.0));
        let size = entry.message.size() as usize;
        if let Some(place) = shares.place(&entry.message) {
            index.packs.push(place.pack);
        } else if size > INLINE_BYTES_MAX {
            index.chunked += 1;
            index.stored += size as u64;
        }
    }
    index.packs.sort_unstable();
    index.packs.dedup();
    index
}

fn put_body(entry: &FoldEntry, shares: &Shares, out: &mut Vec<u8>) {
    let size = entry.message.size() as usize;
    if let Some(place) = shares.place(&entry.message) {
        out.push(SHARED_WORD);
        for number in [place.pack, u64::from(place.at), u64::from(place.len)] {
            put_varint(out, number);
        }
        return;
    }
    let chunked = size > INLINE_BYTES_MAX;
    put_varint(out, (size as u64) << 1 | u64::from(chunked));
    if !chunked {
        entry.message.encode(out);
    }
}

/// The length word of a shared message: chunked and of length 0, which no chunked message has.
const SHARED_WORD: u8 = 1;

/// The fullest page that values of these sizes fill.
#[must_use]
pub fn fill_target(sizes: impl Iterator<Item = usize>) -> usize {
    let mut total = 0;
    for size in sizes {
        total += size;
        if total >= FILL_BYTES[0] {
            return FILL_BYTES[0];
        }
    }
    FILL_BYTES.into_iter().find(|fill| *fill <= total).unwrap_or(FILL_BYTES[4])
}

/// Where a stored message's bytes are.
#[derive(Clone, Debug)]
pub enum StoredBody {
    /// In the segment.
    Inline(Message),
    /// In chunk rows, this many bytes.
    Chunked(u64),
    /// In a pack.
    Shared(Place),
}

/// One message of a segment.
#[derive(Clone, Debug)]
pub struct StoredEntry {
    /// Its number.
    pub seq: Seq,
    /// How it is to be delivered.
    pub options: DeliveryOptions,
    /// Its bytes.
    pub body: StoredBody,
}

/// Reads a segment that begins with `first`.
///
/// # Errors
/// [`BadRecord`] when the value is no segment.
pub fn unpack(first: Seq, value: &[u8]) -> Result<Vec<StoredEntry>, BadRecord> {
    let value = plain(value)?;
    let mut entries = Vec::new();
    let mut input = &*value;
    let mut seq = first;
    while !input.is_empty() {
        let gap = take_varint(&mut input).ok_or(BadRecord("gap"))?;
        seq = seq.checked_add(gap).ok_or(BadRecord("gap"))?;
        let options = DeliveryOptions::decode(&mut input)?;
        let word = take_varint(&mut input).ok_or(BadRecord("message length"))?;
        let body = if word == u64::from(SHARED_WORD) {
            StoredBody::Shared(take_place(&mut input)?)
        } else if word & 1 == 1 {
            StoredBody::Chunked(word >> 1)
        } else {
            let len = usize::try_from(word >> 1).map_err(|_| BadRecord("message length"))?;
            let (record, rest) = input.split_at_checked(len).ok_or(BadRecord("message length"))?;
            input = rest;
            // A copy of its own: the consumer may hold one message of the segment for long.
            StoredBody::Inline(Message::decode(&Bytes::copy_from_slice(record))?)
        };
        entries.push(StoredEntry { seq, options, body });
        seq = seq.checked_add(1).ok_or(BadRecord("sequence number"))?;
    }
    Ok(entries)
}

fn take_place(input: &mut &[u8]) -> Result<Place, BadRecord> {
    let mut number = || take_varint(input).ok_or(BadRecord("shared message"));
    let (pack, at, len) = (number()?, number()?, number()?);
    let narrow = |n: u64| u32::try_from(n).map_err(|_| BadRecord("shared message"));
    Ok(Place { pack, at: narrow(at)?, len: narrow(len)? })
}
