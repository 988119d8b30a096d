//! How prepared transactions and decisions are stored.
//!
//! ```text
//! Prepared  number u32 BE | 0 u32 BE     -> 1 | prepared at varint (ms) | name
//!           number u32 BE | n u32 BE     -> 1 | 1 | message record                                        it publishes
//!                                           1 | 2 | how u8 (0 taken, 1 rejected, 2 rejected, goes back) | queue varint
//!                                                 | place varint | came back varint | delivery options | message record
//!                                           1 | 3 | queue varint | (length varint | message record)...     it publishes
//!                                                 the queue's messages; to these topics among others
//! Decided   number u32 BE | 0 u32 BE     -> 1 | committed u8 | name
//! ```

use bytes::Bytes;

use super::inflight::Held;
use super::rows::BadRow;
use crate::message::{DeliveryOptions, Message};
use crate::store::contract::{QueueId, Seq};
use crate::time::Wall;
use crate::varint::{put_varint, take_varint};

const VERSION: u8 = 1;
const PUBLISHES: u8 = 1;
const SETTLES: u8 = 2;
const PUBLISHES_QUEUE: u8 = 3;

/// A part as it was stored.
#[derive(Debug)]
pub enum StoredPart {
    /// It publishes this.
    Publish(Message),
    /// It settles a delivery: how, the queue, the place, the message.
    Settle(u8, QueueId, Seq, Held),
    /// It publishes the messages of this queue; samples of them, without payloads.
    Spill(QueueId, Vec<Message>),
}

/// The key of a part; part 0 is the head.
#[must_use]
pub fn part_key(number: u32, part: u32) -> Box<[u8]> {
    let mut key = number.to_be_bytes().to_vec();
    key.extend_from_slice(&part.to_be_bytes());
    key.into()
}

/// Takes a key apart.
///
/// # Errors
/// [`BadRow`] when it is none.
pub fn split_part_key(key: &[u8]) -> Result<(u32, u32), BadRow> {
    let bytes = <[u8; 8]>::try_from(key).map_err(|_| BadRow("transaction's key"))?;
    let [a, b, c, d, e, f, g, h] = bytes;
    Ok((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])))
}

/// The head of a transaction.
#[must_use]
pub fn head_row(xid: &str, since: Wall) -> Box<[u8]> {
    let mut out = vec![VERSION];
    put_varint(&mut out, since.0);
    out.extend_from_slice(xid.as_bytes());
    out.into()
}

/// Reads what [`head_row`] wrote.
///
/// # Errors
/// [`BadRow`] when it is no head.
pub fn read_head(value: &[u8]) -> Result<(Box<str>, Wall), BadRow> {
    let mut input = versioned(value)?;
    let since = Wall(take_varint(&mut input).ok_or(BadRow("transaction's time"))?);
    Ok((name(input)?, since))
}

/// A message that a transaction publishes.
#[must_use]
pub fn publish_row(message: &Message) -> Box<[u8]> {
    let mut out = vec![VERSION, PUBLISHES];
    message.encode(&mut out);
    out.into()
}

/// A delivery that a transaction settles.
#[must_use]
pub fn dequeue_row(queue: QueueId, seq: Seq, how: u8, held: &Held) -> Box<[u8]> {
    let mut out = vec![VERSION, SETTLES, how];
    put_varint(&mut out, u64::from(queue.0));
    put_varint(&mut out, seq);
    put_varint(&mut out, u64::from(held.redeliveries));
    held.options.encode(&mut out);
    held.message.encode(&mut out);
    out.into()
}

/// Messages that a transaction publishes from a queue of its own, and `samples` of them.
#[must_use]
pub fn spill_row(queue: QueueId, samples: &[Message]) -> Box<[u8]> {
    let mut out = vec![VERSION, PUBLISHES_QUEUE];
    put_varint(&mut out, u64::from(queue.0));
    for sample in samples {
        let mut record = Vec::new();
        sample.encode(&mut record);
        put_varint(&mut out, record.len() as u64);
        out.extend_from_slice(&record);
    }
    out.into()
}

/// Reads what [`publish_row`], [`dequeue_row`] or [`spill_row`] wrote.
///
/// # Errors
/// [`BadRow`] when it is none of them.
pub fn read_part(value: &[u8]) -> Result<StoredPart, BadRow> {
    match versioned(value)? {
        [PUBLISHES, record @ ..] => Ok(StoredPart::Publish(message(record)?)),
        [SETTLES, how, input @ ..] => {
            let mut input = input;
            let queue = take_u32(&mut input)?;
            let seq = take_varint(&mut input).ok_or(BadRow("transaction's place"))?;
            let redeliveries = take_u32(&mut input)?;
            let options = DeliveryOptions::decode(&mut input).map_err(|bad| BadRow(bad.0))?;
            let held = Held { message: message(input)?, options, consumer: None, redeliveries };
            Ok(StoredPart::Settle(*how, QueueId(queue), seq, held))
        }
        [PUBLISHES_QUEUE, input @ ..] => {
            let mut input = input;
            let queue = QueueId(take_u32(&mut input)?);
            let mut samples = Vec::new();
            while !input.is_empty() {
                let len = take_u32(&mut input)? as usize;
                let (record, rest) = input.split_at_checked(len).ok_or(BadRow("transaction's sample"))?;
                samples.push(message(record)?);
                input = rest;
            }
            Ok(StoredPart::Spill(queue, samples))
        }
        _ => Err(BadRow("transaction's part")),
    }
}

/// A decision.
#[must_use]
pub fn decision_row(xid: &str, committed: bool) -> Box<[u8]> {
    let mut out = vec![VERSION, u8::from(committed)];
    out.extend_from_slice(xid.as_bytes());
    out.into()
}

/// Reads what [`decision_row`] wrote.
///
/// # Errors
/// [`BadRow`] when it is none.
pub fn read_decision(value: &[u8]) -> Result<(Box<str>, bool), BadRow> {
    match versioned(value)? {
        [committed, rest @ ..] => Ok((name(rest)?, *committed != 0)),
        [] => Err(BadRow("decision")),
    }
}

fn versioned(value: &[u8]) -> Result<&[u8], BadRow> {
    match value.split_first() {
        Some((&VERSION, rest)) => Ok(rest),
        _ => Err(BadRow("unknown version")),
    }
}

fn name(bytes: &[u8]) -> Result<Box<str>, BadRow> {
    std::str::from_utf8(bytes).map(Into::into).map_err(|_| BadRow("transaction's name"))
}

fn message(record: &[u8]) -> Result<Message, BadRow> {
    Message::decode(&Bytes::copy_from_slice(record)).map_err(|bad| BadRow(bad.0))
}

fn take_u32(input: &mut &[u8]) -> Result<u32, BadRow> {
    take_varint(input).and_then(|n| u32::try_from(n).ok()).ok_or(BadRow("transaction's number"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::MessageHead;

    #[test]
    fn parts_heads_and_decisions_round_trip_and_cut_ones_are_refused_without_a_panic() {
        let message = Message::new("$queue/a", b"x", MessageHead::default());
        let held = Held {
            message: message.clone(),
            options: DeliveryOptions::default(),
            consumer: None,
            redeliveries: 3,
        };
        let rows = [
            head_row("xid", Wall(7)),
            publish_row(&message),
            dequeue_row(QueueId(5), 9, 2, &held),
            decision_row("x", true),
        ];
        assert_eq!(read_head(&rows[0]).unwrap(), ("xid".into(), Wall(7)));
        assert!(matches!(read_part(&rows[1]), Ok(StoredPart::Publish(m)) if m.payload() == b"x"));
        let Ok(StoredPart::Settle(2, QueueId(5), 9, back)) = read_part(&rows[2]) else { panic!("no part") };
        assert_eq!((back.redeliveries, back.message.topic()), (3, "$queue/a"));
        assert_eq!(read_decision(&rows[3]).unwrap(), ("x".into(), true));
        for row in &rows {
            for cut in 0..row.len() {
                let (_, _, _) = (read_head(&row[..cut]), read_part(&row[..cut]), read_decision(&row[..cut]));
            }
        }
        assert_eq!(split_part_key(&part_key(1, u32::MAX)), Ok((1, u32::MAX)));
    }
}
