//! The ring's record: what one group commit writes.
//!
//! ```text
//! frame:  magic u32 | crc u32 | lsn u64 | epoch u64 | body length u32 | 0 u32 | body | zeroes to the end of the block
//!         crc is CRC32C over the salt, the header with crc = 0, and the body; numbers are little-endian
//! body:   item*, each a tag byte and then
//!         1 enqueue  target count varint, (queue varint, [seq varint], options)*, message length varint, message
//!         2 settle   queue, first, count, bytes as varints
//!         3 create   queue varint          4 delete queue   queue varint
//!         5 put      space u8, key, value  6 delete         space u8, key      (each: length varint, bytes)
//!         7 wall     milliseconds varint   8 skip           queue, next sequence number as varints
//! ```
//! A queue's sequence number is written with its first enqueue in a record only; each further one is one more, unless a skip
//! says otherwise.

use bytes::Bytes;
use hashbrown::HashMap;

use super::contract::{Batch, Op, QueueId, Seq, Space, Target, Targets};
use super::frame::{BODY_BYTES_MIN, Frame, FrameMark};
use super::layout::{BLOCK_BYTES, le32, le64};
use crate::message::{BadRecord, DeliveryOptions, Message};
use crate::time::Wall;
use crate::varint::{put_bytes, put_varint, take_bytes, take_varint};

/// A place in the endless log of which the ring holds the last part: bytes since the file was made.
pub type Lsn = u64;

/// Length of a frame's header.
pub const HEADER_BYTES: usize = 32;

const MAGIC: u32 = 0x3147_4454;

const ENQUEUE: u8 = 1;
const SETTLE: u8 = 2;
const CREATE_QUEUE: u8 = 3;
const DELETE_QUEUE: u8 = 4;
const PUT: u8 = 5;
const DELETE: u8 = 6;
const WALL: u8 = 7;
const SKIP: u8 = 8;

/// Bytes that a frame with this body takes in the ring.
#[must_use]
pub fn frame_bytes(body: usize) -> u64 {
    ((HEADER_BYTES + body) as u64).next_multiple_of(BLOCK_BYTES)
}

/// Builds one record at a time in a buffer that is used again and again. Large payloads are not copied into it.
#[derive(Debug)]
pub struct Encoder {
    frame: Frame,
    /// Next sequence number of each queue that the record has enqueued to.
    next: HashMap<QueueId, Seq>,
    /// The same for the queue used last: most records have long runs of one queue.
    latest: Option<(QueueId, Seq)>,
    wall: Option<Wall>,
    enqueues: bool,
}

/// A state of an [`Encoder`] to return to.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    frame: FrameMark,
    enqueues: bool,
}

impl Default for Encoder {
    fn default() -> Self {
        Self {
            frame: Frame::starting_with(vec![0; HEADER_BYTES]),
            next: HashMap::new(),
            latest: None,
            wall: None,
            enqueues: false,
        }
    }
}

impl Encoder {
    /// Nothing was added yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frame.buffer.len() == HEADER_BYTES
    }

    /// Some operation is an enqueue.
    #[must_use]
    pub fn has_enqueues(&self) -> bool {
        self.enqueues
    }

    /// Bytes that the record takes in the ring.
    #[must_use]
    pub fn frame_bytes(&self) -> u64 {
        frame_bytes(self.frame.len() - HEADER_BYTES)
    }

    /// Here [`rewind`](Self::rewind) returns to.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { frame: self.frame.mark(), enqueues: self.enqueues }
    }

    /// Takes back what was added since `mark`. Nothing may be added before the next [`clear`](Self::clear): what the record
    /// knows of its queues is not taken back.
    pub fn rewind(&mut self, mark: Mark) {
        self.frame.rewind(mark.frame);
        self.enqueues = mark.enqueues;
    }

    /// Begins the next record.
    pub fn clear(&mut self) {
        self.frame.clear(HEADER_BYTES);
        self.next.clear();
        self.latest = None;
        self.wall = None;
        self.enqueues = false;
    }

    /// Gives back memory that one large record took, down to `bytes`.
    pub fn shrink(&mut self, bytes: usize) {
        self.frame.buffer.shrink_to(bytes);
    }

    /// Adds all operations of a batch.
    pub fn add(&mut self, batch: &Batch) {
        if self.wall.is_none_or(|wall| wall < batch.wall) {
            self.wall = Some(batch.wall);
            self.frame.buffer.push(WALL);
            put_varint(&mut self.frame.buffer, batch.wall.0);
        }
        for op in &batch.ops {
            self.add_op(op);
        }
    }

    fn add_op(&mut self, op: &Op) {
        match op {
            Op::Enqueue { message, targets } => self.add_enqueue(message, targets),
            Op::Settle { queue, first, count, bytes } => {
                self.frame.buffer.push(SETTLE);
                for number in [u64::from(queue.0), *first, *count, *bytes] {
                    put_varint(&mut self.frame.buffer, number);
                }
            }
            Op::CreateQueue { queue } => self.add_queue(CREATE_QUEUE, *queue),
            Op::DeleteQueue { queue } => self.add_queue(DELETE_QUEUE, *queue),
            Op::Put { space, key, value } => {
                self.frame.buffer.extend_from_slice(&[PUT, *space as u8]);
                put_bytes(&mut self.frame.buffer, key);
                put_bytes(&mut self.frame.buffer, value);
            }
            Op::Delete { space, key } => {
                self.frame.buffer.extend_from_slice(&[DELETE, *space as u8]);
                put_bytes(&mut self.frame.buffer, key);
            }
        }
    }

    fn add_queue(&mut self, tag: u8, queue: QueueId) {
        self.frame.buffer.push(tag);
        put_varint(&mut self.frame.buffer, u64::from(queue.0));
    }

    fn add_enqueue(&mut self, message: &Message, targets: &Targets) {
        assert!(!targets.is_empty(), "a message is enqueued to at least one queue");
        self.enqueues = true;
        for target in targets {
            let expected = self.expected(target.queue);
            self.latest = expected.map(|seq| (target.queue, seq));
            if let Some(seq) = expected.filter(|seq| *seq != target.seq) {
                assert!(seq < target.seq, "a queue's numbers rise");
                self.frame.buffer.push(SKIP);
                put_varint(&mut self.frame.buffer, u64::from(target.queue.0));
                put_varint(&mut self.frame.buffer, target.seq);
                self.latest = Some((target.queue, target.seq));
            }
        }
        self.frame.buffer.push(ENQUEUE);
        put_varint(&mut self.frame.buffer, targets.len() as u64);
        for target in targets {
            put_varint(&mut self.frame.buffer, u64::from(target.queue.0));
            if self.expected(target.queue).is_none() {
                put_varint(&mut self.frame.buffer, target.seq);
            }
            self.latest = Some((target.queue, target.seq + 1));
            target.options.encode(&mut self.frame.buffer);
        }
        put_varint(&mut self.frame.buffer, u64::from(message.size()));
        if message.payload().len() < BODY_BYTES_MIN {
            return message.encode(&mut self.frame.buffer);
        }
        let before = self.frame.len();
        message.encode_head(&mut self.frame.buffer);
        self.frame.push_body(message.payload_shared());
        assert_eq!(
            self.frame.len() - before,
            message.size() as usize,
            "a record is as long as it was counted"
        );
    }

    /// The queue's next number, if the record has one. Afterwards `latest` is free to be set.
    fn expected(&mut self, queue: QueueId) -> Option<Seq> {
        match self.latest {
            Some((latest, seq)) if latest == queue => return Some(seq),
            Some((latest, seq)) => self.next.insert(latest, seq),
            None => None,
        };
        self.next.get(&queue).copied()
    }

    /// Completes the frame with its header and padding; it is what the ring writes.
    pub fn finish(&mut self, salt: u64, lsn: Lsn, epoch: u64) -> &Frame {
        let body = self.frame.len() - HEADER_BYTES;
        let body_len = u32::try_from(body).expect("the ring is smaller than 4 GiB");
        let header = &mut self.frame.buffer[..HEADER_BYTES];
        header[..4].copy_from_slice(&MAGIC.to_le_bytes());
        header[4..8].fill(0);
        header[8..16].copy_from_slice(&lsn.to_le_bytes());
        header[16..24].copy_from_slice(&epoch.to_le_bytes());
        header[24..28].copy_from_slice(&body_len.to_le_bytes());
        header[28..].fill(0);
        let crc = frame_crc(salt, self.frame.pieces());
        self.frame.buffer[4..8].copy_from_slice(&crc.to_le_bytes());
        let padded = usize::try_from(frame_bytes(body)).expect("the ring fits in memory");
        let padding = padded - self.frame.len();
        self.frame.buffer.resize(self.frame.buffer.len() + padding, 0);
        &self.frame
    }
}

/// Checksum of a frame whose `crc` field is zero.
fn frame_crc<'a>(salt: u64, pieces: impl Iterator<Item = &'a [u8]>) -> u32 {
    pieces.fold(crc32c::crc32c(&salt.to_le_bytes()), crc32c::crc32c_append)
}

/// A frame's header, not yet believed.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// The opening in which it was written.
    pub epoch: u64,
    /// Length of the body.
    pub body: usize,
}

impl Header {
    /// The header at the front of `block` if it is one for `lsn`.
    #[must_use]
    pub fn parse(block: &[u8], lsn: Lsn) -> Option<Self> {
        let fits = le32(block) == MAGIC && le64(&block[8..]) == lsn && le32(&block[28..]) == 0;
        fits.then(|| Self { epoch: le64(&block[16..]), body: le32(&block[24..]) as usize })
    }

    /// The checksum of `frame` (header and body) is right.
    #[must_use]
    pub fn is_sound(frame: &mut [u8], salt: u64) -> bool {
        let stored = le32(&frame[4..]);
        frame[4..8].fill(0);
        frame_crc(salt, std::iter::once(&*frame)) == stored
    }
}

/// What a record's body consists of.
#[derive(Debug)]
pub enum Item {
    /// An operation.
    Op(Op),
    /// The time of those that follow.
    Wall(Wall),
    /// The next number of a queue is another one.
    Skip,
}

/// Calls `each` with every item of `body`, in order.
///
/// # Errors
/// The first item that does not decode, or the first error of `each`.
pub fn decode_body<E: From<BadRecord>>(
    body: &Bytes,
    mut each: impl FnMut(Item) -> Result<(), E>,
) -> Result<(), E> {
    let mut next = HashMap::new();
    let mut input: &[u8] = body;
    while let Some((&tag, rest)) = input.split_first() {
        input = rest;
        each(decode_item(tag, &mut input, body, &mut next)?)?;
    }
    Ok(())
}

fn decode_item(
    tag: u8,
    input: &mut &[u8],
    body: &Bytes,
    next: &mut HashMap<QueueId, Seq>,
) -> Result<Item, BadRecord> {
    let op = match tag {
        ENQUEUE => decode_enqueue(input, body, next)?,
        SETTLE => Op::Settle {
            queue: take_queue(input)?,
            first: take_number(input)?,
            count: take_number(input)?,
            bytes: take_number(input)?,
        },
        CREATE_QUEUE => Op::CreateQueue { queue: take_queue(input)? },
        DELETE_QUEUE => Op::DeleteQueue { queue: take_queue(input)? },
        PUT => Op::Put {
            space: take_space(input)?,
            key: take_bytes(input).ok_or(BadRecord("row key"))?.into(),
            value: take_bytes(input).ok_or(BadRecord("row value"))?.into(),
        },
        DELETE => Op::Delete {
            space: take_space(input)?,
            key: take_bytes(input).ok_or(BadRecord("row key"))?.into(),
        },
        WALL => return Ok(Item::Wall(Wall(take_number(input)?))),
        SKIP => {
            let queue = take_queue(input)?;
            next.insert(queue, take_number(input)?);
            return Ok(Item::Skip);
        }
        _ => return Err(BadRecord("unknown item")),
    };
    Ok(Item::Op(op))
}

fn decode_enqueue(
    input: &mut &[u8],
    body: &Bytes,
    next: &mut HashMap<QueueId, Seq>,
) -> Result<Op, BadRecord> {
    let count = take_number(input)?;
    if count > input.len() as u64 {
        return Err(BadRecord("targets"));
    }
    let mut targets = Targets::new();
    for _ in 0..count {
        let queue = take_queue(input)?;
        let seq = match next.get(&queue) {
            Some(seq) => *seq,
            None => take_number(input)?,
        };
        next.insert(queue, seq.checked_add(1).ok_or(BadRecord("sequence number"))?);
        targets.push(Target { queue, seq, options: DeliveryOptions::decode(input)? });
    }
    let record = take_bytes(input).ok_or(BadRecord("message"))?;
    Ok(Op::Enqueue { message: Message::decode(&body.slice_ref(record))?, targets })
}

fn take_number(input: &mut &[u8]) -> Result<u64, BadRecord> {
    take_varint(input).ok_or(BadRecord("number"))
}

fn take_queue(input: &mut &[u8]) -> Result<QueueId, BadRecord> {
    u32::try_from(take_number(input)?).map(QueueId).map_err(|_| BadRecord("queue"))
}

fn take_space(input: &mut &[u8]) -> Result<Space, BadRecord> {
    let (&byte, rest) = input.split_first().ok_or(BadRecord("space"))?;
    *input = rest;
    Space::from_u8(byte).ok_or(BadRecord("space"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::contract::BatchId;
    use crate::store::tests_support::{enqueue, numbered, settle};

    fn batch(ops: Vec<Op>) -> Batch {
        Batch { id: BatchId(1), ops, urgent: true, wall: Wall(5), memory: 0 }
    }

    fn decode(body: &[u8]) -> Result<Vec<String>, BadRecord> {
        let mut items = vec![];
        decode_body::<BadRecord>(&Bytes::copy_from_slice(body), |item| {
            items.push(format!("{item:?}"));
            Ok(())
        })?;
        Ok(items)
    }

    fn sample() -> Vec<Op> {
        let mut fan_out = enqueue(1, 8, numbered(3, 20));
        if let Op::Enqueue { targets, .. } = &mut fan_out {
            targets.push(Target { queue: QueueId(900), seq: 70_001, options: DeliveryOptions::default() });
        }
        vec![
            Op::CreateQueue { queue: QueueId(900) },
            enqueue(1, 7, numbered(1, 20)),
            enqueue(900, 70_000, numbered(2, 5_000)),
            fan_out,
            enqueue(900, 70_002, numbered(5, 1)),
            enqueue(900, 70_009, numbered(6, 1)),
            enqueue(1, 9, numbered(4, 0)),
            settle(1, 3, 2, 99),
            Op::Put { space: Space::Will, key: (*b"k").into(), value: (*b"v").into() },
            Op::Delete { space: Space::Group, key: (*b"k").into() },
            Op::DeleteQueue { queue: QueueId(1) },
        ]
    }

    #[test]
    fn all_operations_round_trip_and_a_cut_body_never_panics() {
        let mut encoder = Encoder::default();
        encoder.add(&batch(sample()));
        let body = encoder.frame.buffer[HEADER_BYTES..].to_vec();
        // One item for the time, one for the numbers left out.
        assert_eq!(decode(&body).unwrap().len(), sample().len() + 2);
        // Encoded again, what was decoded gives the same bytes: nothing was lost.
        let mut again = Encoder::default();
        let mut ops = vec![];
        decode_body::<BadRecord>(&Bytes::copy_from_slice(&body), |item| {
            ops.extend(if let Item::Op(op) = item { Some(op) } else { None });
            Ok(())
        })
        .unwrap();
        again.add(&batch(ops));
        assert_eq!(again.frame.buffer[HEADER_BYTES..], body);
        for n in 0..body.len() {
            let _ = decode(&body[..n]);
        }
    }

    #[test]
    fn a_frame_counts_only_at_its_place_with_its_salt_and_whole() {
        let mut encoder = Encoder::default();
        encoder.add(&batch(sample()));
        let frame = encoder.finish(77, 8192, 3).pieces().collect::<Vec<_>>().concat();
        assert!((frame.len() as u64).is_multiple_of(BLOCK_BYTES));
        assert!(Header::parse(&frame, 4096).is_none());
        let header = Header::parse(&frame, 8192).unwrap();
        assert_eq!(header.epoch, 3);
        let used = HEADER_BYTES + header.body;
        assert!(Header::is_sound(&mut frame[..used].to_vec(), 77));
        assert!(!Header::is_sound(&mut frame[..used].to_vec(), 78));
        for at in (0..used).step_by(37) {
            let mut bad = frame[..used].to_vec();
            bad[at] ^= 0x10;
            assert!(!Header::is_sound(&mut bad, 77), "byte {at}");
        }
    }

    #[test]
    fn a_large_body_is_framed_as_if_it_were_copied() {
        let large = |n: u64| enqueue(1, n, numbered(n, 200_000));
        let mut encoder = Encoder::default();
        encoder.add(&batch(vec![large(1), settle(1, 1, 1, 200_000)]));
        let mark = encoder.mark();
        encoder.add(&batch(vec![large(2)]));
        encoder.rewind(mark);
        assert!(encoder.frame.buffer.len() < 1000, "the body is not in the buffer");
        let frame = encoder.finish(77, 8192, 3).pieces().collect::<Vec<_>>().concat();
        assert!((frame.len() as u64).is_multiple_of(BLOCK_BYTES));
        let header = Header::parse(&frame, 8192).unwrap();
        let used = HEADER_BYTES + header.body;
        assert!(Header::is_sound(&mut frame[..used].to_vec(), 77));
        let mut ops = vec![];
        decode_body::<BadRecord>(&Bytes::copy_from_slice(&frame[HEADER_BYTES..used]), |item| {
            ops.extend(if let Item::Op(op) = item { Some(op) } else { None });
            Ok(())
        })
        .unwrap();
        let Op::Enqueue { message, .. } = &ops[0] else { panic!("{:?}", ops.len()) };
        assert!(message.payload() == numbered(1, 200_000).payload() && ops.len() == 2);
        encoder.clear();
        assert!(encoder.is_empty());
    }

    #[test]
    fn rewinding_takes_back_exactly_the_last_batch() {
        let mut encoder = Encoder::default();
        encoder.add(&batch(vec![settle(1, 1, 1, 1)]));
        let (mark, before) = (encoder.mark(), encoder.frame.buffer.clone());
        encoder.add(&batch(sample()));
        assert!(encoder.has_enqueues());
        encoder.rewind(mark);
        assert!(!encoder.has_enqueues() && encoder.frame.buffer == before);
    }
}
