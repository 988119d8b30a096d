//! How sessions, subscriptions, wills and QoS 2 states are stored.
//!
//! ```text
//! Session       client identifier            -> 1 | queue varint | expiry varint (0 with the connection, 1 never, n: n - 1 seconds)
//!                                               | connected u8 | disconnected varint (ms)
//!                                               | flags u8, absent in older rows: bits 0-1 owner (0 none, 1 by password or
//!                                                 certificate, 2 by token), 2 "sent below this place", a varint, follows
//!                                               | the owner's name
//! Subscription  number u32 BE | filter       -> options u8 (bits 0-1 QoS, 2 No Local, 3 retain as published, 4-5 retain handling)
//!                                               | identifier varint (0: none)
//! Will          client identifier            -> 1 | delay varint (s) | expiry varint (0 never, n: n - 1 seconds) | message record
//! InboundQos2   number u32 BE | tag u16 BE   -> 1
//! OutboundQos2  number u32 BE | id u16 BE    -> stage u8 (1 sent, 2 received) | place in the session's queue varint
//! Group         $share/<group>/<filter>      -> queue varint
//! NamedQueue    $queue/<name>                -> 1 | queue varint | what may have been handed out lies below: varint
//! ```
//!
//! A durable session's *number* is that of its queue, which is never reused; so rows that outlived their session by a bug could
//! never be taken for another's.

use std::sync::Arc;

use bytes::Bytes;

use crate::broker::api::{DeliveryId, ReplyTag, RetainHandling, SessionExpiry, SubscribeOptions, Will};
use crate::message::{Message, MessageHead, Qos};
use crate::store::contract::{QueueId, Seq};
use crate::time::Wall;
use crate::varint::{put_varint, take_varint};

use super::inflight::Stage;

/// A stored row that does not decode. The text names the part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stored row: {0}")]
pub struct BadRow(pub &'static str);

const VERSION: u8 = 1;
/// Of a session's flags: the place follows up to which its queue was sent.
const HAS_PLACE: u8 = 4;

/// A durable session as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Its queue, whose number is the session's number too.
    pub queue: QueueId,
    /// Life after the connection.
    pub expiry: SessionExpiry,
    /// A client was connected when the row was written.
    pub connected: bool,
    /// When the connection ended; has no meaning while one is there.
    pub disconnected: Wall,
    /// Messages below this place of the queue were sent at some time; has no meaning while a client is there.
    pub sent_below: Seq,
    /// The user that it belongs to.
    pub owner: Option<Owner>,
}

/// The user that a session belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its name.
    pub user: Arc<str>,
    /// It proved that by a token.
    pub by_token: bool,
}

impl SessionRow {
    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Box<[u8]> {
        let mut out = vec![VERSION];
        put_varint(&mut out, u64::from(self.queue.0));
        let expiry = match self.expiry {
            SessionExpiry::WithConnection => 0,
            SessionExpiry::Never => 1,
            SessionExpiry::After(seconds) => u64::from(seconds) + 1,
        };
        put_varint(&mut out, expiry);
        out.push(u8::from(self.connected));
        put_varint(&mut out, self.disconnected.0);
        let kind = self.owner.as_ref().map_or(0, |owner| if owner.by_token { 2 } else { 1 });
        out.push(kind | HAS_PLACE);
        put_varint(&mut out, self.sent_below);
        if let Some(owner) = &self.owner {
            out.extend_from_slice(owner.user.as_bytes());
        }
        out.into()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`BadRow`] when the bytes are no session.
    pub fn decode(mut input: &[u8]) -> Result<Self, BadRow> {
        take_version(&mut input)?;
        let queue = take_u32(&mut input, "session's queue")?;
        let expiry = match take(&mut input, "session's expiry")? {
            0 => SessionExpiry::WithConnection,
            1 => SessionExpiry::Never,
            n => SessionExpiry::After(u32::try_from(n - 1).map_err(|_| BadRow("session's expiry"))?),
        };
        let (&connected, rest) = input.split_first().ok_or(BadRow("session's connection"))?;
        input = rest;
        let disconnected = Wall(take(&mut input, "session's end of connection")?);
        let (&flags, mut rest) = input.split_first().unwrap_or((&0, &[]));
        let sent_below = if flags & HAS_PLACE == 0 { 0 } else { take(&mut rest, "session's place")? };
        let owner = take_owner(flags & !HAS_PLACE, rest)?;
        Ok(Self { queue: QueueId(queue), expiry, connected: connected != 0, disconnected, sent_below, owner })
    }
}

/// The end of a session's row.
fn take_owner(kind: u8, name: &[u8]) -> Result<Option<Owner>, BadRow> {
    match kind {
        0 => return Ok(None),
        1..=2 => {}
        _ => return Err(BadRow("session's owner")),
    }
    let user = std::str::from_utf8(name).map_err(|_| BadRow("session's owner"))?;
    Ok(Some(Owner { user: user.into(), by_token: kind == 2 }))
}

/// A subscription's terms as they are stored.
#[must_use]
pub fn encode_subscription(options: &SubscribeOptions, subscription_id: Option<u32>) -> Box<[u8]> {
    let handling = match options.retain_handling {
        RetainHandling::Send => 0u8,
        RetainHandling::SendIfNew => 1,
        RetainHandling::Skip => 2,
    };
    let flags = options.qos as u8
        | u8::from(options.no_local) << 2
        | u8::from(options.retain_as_published) << 3
        | handling << 4;
    let mut out = vec![flags];
    put_varint(&mut out, u64::from(subscription_id.unwrap_or(0)));
    out.into()
}

/// Reads what [`encode_subscription`] wrote.
///
/// # Errors
/// [`BadRow`] when the bytes are no subscription.
pub fn decode_subscription(mut input: &[u8]) -> Result<(SubscribeOptions, Option<u32>), BadRow> {
    let (&flags, rest) = input.split_first().ok_or(BadRow("subscription"))?;
    input = rest;
    let options = SubscribeOptions {
        qos: Qos::from_bits(flags).ok_or(BadRow("subscription's QoS"))?,
        no_local: flags & 4 != 0,
        retain_as_published: flags & 8 != 0,
        retain_handling: match flags >> 4 {
            0 => RetainHandling::Send,
            1 => RetainHandling::SendIfNew,
            2 => RetainHandling::Skip,
            _ => return Err(BadRow("subscription's retain handling")),
        },
    };
    let id = take_u32(&mut input, "subscription identifier")?;
    Ok((options, (id != 0).then_some(id)))
}

/// A key that starts with a session's number.
#[must_use]
pub fn numbered_key(number: QueueId, rest: &[u8]) -> Box<[u8]> {
    let mut key = Vec::with_capacity(4 + rest.len());
    key.extend_from_slice(&number.0.to_be_bytes());
    key.extend_from_slice(rest);
    key.into()
}

/// The key of a QoS 2 state.
#[must_use]
pub fn qos2_key(number: QueueId, id: u16) -> Box<[u8]> {
    numbered_key(number, &id.to_be_bytes())
}

/// Takes a key apart that [`numbered_key`] made.
///
/// # Errors
/// [`BadRow`] when it is too short.
pub fn split_key(key: &[u8]) -> Result<(QueueId, &[u8]), BadRow> {
    let (number, rest) = key.split_first_chunk::<4>().ok_or(BadRow("key without a session number"))?;
    Ok((QueueId(u32::from_be_bytes(*number)), rest))
}

/// Reads the packet identifier of a QoS 2 state's key.
///
/// # Errors
/// [`BadRow`] when it is none.
pub fn tag_of(rest: &[u8]) -> Result<ReplyTag, BadRow> {
    let bytes = <[u8; 2]>::try_from(rest).map_err(|_| BadRow("packet identifier"))?;
    Ok(ReplyTag(u16::from_be_bytes(bytes)))
}

/// The value of an inbound QoS 2 state.
#[must_use]
pub fn encode_inbound() -> Box<[u8]> {
    [VERSION].into()
}

/// The value of an outbound QoS 2 state.
#[must_use]
pub fn encode_outbound(stage: Stage, seq: Seq) -> Box<[u8]> {
    let mut out = vec![if stage == Stage::AwaitCompleted { 2 } else { 1 }];
    put_varint(&mut out, seq);
    out.into()
}

/// Reads an outbound QoS 2 state: its key's rest and its value. A message that was sent and not received is parked.
///
/// # Errors
/// [`BadRow`] when it is none.
pub fn decode_outbound(rest: &[u8], mut value: &[u8]) -> Result<(DeliveryId, Stage, Seq), BadRow> {
    let id = DeliveryId::new(tag_of(rest)?.0).ok_or(BadRow("delivery identifier"))?;
    let (&stage, tail) = value.split_first().ok_or(BadRow("delivery's stage"))?;
    value = tail;
    let stage = match stage {
        1 => Stage::Parked,
        2 => Stage::AwaitCompleted,
        _ => return Err(BadRow("delivery's stage")),
    };
    Ok((id, stage, take(&mut value, "delivery's place")?))
}

/// The value of a group: its queue.
#[must_use]
pub fn encode_group(queue: QueueId) -> Box<[u8]> {
    let mut out = vec![];
    put_varint(&mut out, u64::from(queue.0));
    out.into()
}

/// Reads what [`encode_group`] wrote.
///
/// # Errors
/// [`BadRow`] when it is no group.
pub fn decode_group(mut value: &[u8]) -> Result<QueueId, BadRow> {
    take_u32(&mut value, "group's queue").map(QueueId)
}

/// The value of a named queue: its queue, and its mark.
#[must_use]
pub fn encode_named(queue: QueueId, mark: Seq) -> Box<[u8]> {
    let mut out = vec![VERSION];
    put_varint(&mut out, u64::from(queue.0));
    put_varint(&mut out, mark);
    out.into()
}

/// Reads what [`encode_named`] wrote.
///
/// # Errors
/// [`BadRow`] when it is no named queue.
pub fn decode_named(mut value: &[u8]) -> Result<(QueueId, Seq), BadRow> {
    take_version(&mut value)?;
    let queue = take_u32(&mut value, "named queue's number").map(QueueId)?;
    Ok((queue, take(&mut value, "named queue's mark")?))
}

/// A will as it is stored.
#[must_use]
pub fn encode_will(will: &Will) -> Box<[u8]> {
    let mut out = vec![VERSION];
    put_varint(&mut out, u64::from(will.delay_secs));
    put_varint(&mut out, will.expiry_secs.map_or(0, |seconds| u64::from(seconds) + 1));
    will_message(will, Wall(0)).encode(&mut out);
    out.into()
}

/// The message that a will becomes when it is published at `wall`.
#[must_use]
pub fn will_message(will: &Will, wall: Wall) -> Message {
    let head = MessageHead {
        qos: will.qos,
        retain: will.retain,
        published: wall,
        expires: will
            .expiry_secs
            .filter(|_| wall > Wall(0))
            .map(|seconds| wall.plus_secs(u64::from(seconds))),
        properties: will.properties.clone(),
    };
    Message::new(&will.topic, &will.payload, head)
}

/// Reads what [`encode_will`] wrote.
///
/// # Errors
/// [`BadRow`] when it is no will.
pub fn decode_will(mut value: &[u8]) -> Result<Will, BadRow> {
    take_version(&mut value)?;
    let delay_secs = take_u32(&mut value, "will's delay")?;
    let expiry = take(&mut value, "will's expiry")?;
    let message = Message::decode(&Bytes::copy_from_slice(value)).map_err(|bad| BadRow(bad.0))?;
    Ok(Will {
        topic: message.topic().into(),
        payload: message.payload().into(),
        qos: message.qos(),
        retain: message.retain(),
        properties: message.properties().map(|properties| Box::new(properties.clone())),
        expiry_secs: match expiry {
            0 => None,
            n => Some(u32::try_from(n - 1).map_err(|_| BadRow("will's expiry"))?),
        },
        delay_secs,
    })
}

fn take_version(input: &mut &[u8]) -> Result<(), BadRow> {
    match input.split_first() {
        Some((&VERSION, rest)) => {
            *input = rest;
            Ok(())
        }
        _ => Err(BadRow("unknown version")),
    }
}

fn take(input: &mut &[u8], what: &'static str) -> Result<u64, BadRow> {
    take_varint(input).ok_or(BadRow(what))
}

fn take_u32(input: &mut &[u8], what: &'static str) -> Result<u32, BadRow> {
    u32::try_from(take(input, what)?).map_err(|_| BadRow(what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Properties;

    #[test]
    fn sessions_round_trip() {
        for expiry in [
            SessionExpiry::WithConnection,
            SessionExpiry::Never,
            SessionExpiry::After(1),
            SessionExpiry::After(u32::MAX),
        ] {
            let owner = Some(Owner { user: "ann".into(), by_token: true });
            let (queue, disconnected, sent_below) = (QueueId(7), Wall(99), 1 << 40);
            let row = SessionRow { queue, expiry, connected: true, disconnected, sent_below, owner };
            assert_eq!(SessionRow::decode(&row.encode()), Ok(row));
        }
    }

    #[test]
    fn subscriptions_round_trip() {
        for handling in [RetainHandling::Send, RetainHandling::SendIfNew, RetainHandling::Skip] {
            let options = SubscribeOptions {
                qos: Qos::ExactlyOnce,
                no_local: true,
                retain_as_published: true,
                retain_handling: handling,
            };
            for id in [None, Some(268_435_455)] {
                assert_eq!(decode_subscription(&encode_subscription(&options, id)), Ok((options, id)));
            }
        }
    }

    #[test]
    fn wills_round_trip_with_their_properties() {
        let will = Will {
            topic: "a/b".into(),
            payload: b"gone".as_slice().into(),
            qos: Qos::AtLeastOnce,
            retain: true,
            properties: Some(Box::new(Properties {
                user: vec![("k".into(), "v".into())],
                ..Properties::default()
            })),
            expiry_secs: Some(60),
            delay_secs: 5,
        };
        assert_eq!(decode_will(&encode_will(&will)), Ok(will));
    }

    #[test]
    fn outbound_states_round_trip_and_what_was_sent_comes_back_parked() {
        let key = qos2_key(QueueId(3), 515);
        let (number, rest) = split_key(&key).unwrap();
        assert_eq!(number, QueueId(3));
        let sent = decode_outbound(rest, &encode_outbound(Stage::AwaitReceived, 9)).unwrap();
        assert_eq!(sent, (DeliveryId::new(515).unwrap(), Stage::Parked, 9));
        let received = decode_outbound(rest, &encode_outbound(Stage::AwaitCompleted, 9)).unwrap();
        assert_eq!(received.1, Stage::AwaitCompleted);
    }

    #[test]
    fn damaged_rows_are_refused_without_a_panic() {
        let will = encode_will(&Will {
            topic: "t".into(),
            payload: Box::default(),
            qos: Qos::AtMostOnce,
            retain: false,
            properties: None,
            expiry_secs: None,
            delay_secs: 0,
        });
        for n in 0..will.len() {
            let _ = decode_will(&will[..n]);
        }
        assert!(SessionRow::decode(&[]).is_err() && SessionRow::decode(&[2, 1]).is_err());
        assert!(decode_subscription(&[0xff]).is_err() && split_key(&[1, 2]).is_err());
    }
}
