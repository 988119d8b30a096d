//! The message as every module shares it, and its one stored encoding.
//!
//! A [`Message`] is immutable and reference counted: a fan-out to a thousand queues holds one copy. Topic and payload lie in one
//! buffer. The encoding below is what the ring and the segments hold; its length is the message's *size* everywhere a byte is
//! counted, so that counters kept by the broker and by the store agree to the byte.
//!
//! ```text
//! flags u8 | published varint (ms) | [expires varint (ms)] | topic length varint | topic | [properties length varint | properties] | payload
//! flags: bits 0-1 QoS, bit 2 retain, bit 3 expires present, bit 4 properties present, bits 5-7 zero
//! properties: (tag u8 | value)*  tag 1 payload is UTF-8 text (no value), 2 content type, 3 response topic,
//!             4 correlation data (each: length varint, bytes), 5 user property (two of them)
//! ```

use std::sync::Arc;

use bytes::Bytes;

use crate::time::Wall;
use crate::varint::{put_bytes, put_varint, take_bytes, take_varint, varint_len};

/// Quality of service: how often a message may arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Qos {
    /// QoS 0.
    #[default]
    AtMostOnce = 0,
    /// QoS 1.
    AtLeastOnce = 1,
    /// QoS 2.
    ExactlyOnce = 2,
}

impl Qos {
    /// The level for the two low bits of `bits`; `None` for the reserved value 3.
    #[must_use]
    pub fn from_bits(bits: u8) -> Option<Self> {
        match bits & 3 {
            0 => Some(Self::AtMostOnce),
            1 => Some(Self::AtLeastOnce),
            2 => Some(Self::ExactlyOnce),
            _ => None,
        }
    }
}

/// Application properties that travel with a message unchanged (MQTT 5.0, 3.3.2.3; STOMP headers map onto them).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// The payload is UTF-8 text (Payload Format Indicator 1).
    pub payload_is_text: bool,
    /// MIME type of the payload.
    pub content_type: Option<Box<str>>,
    /// Where a response is expected.
    pub response_topic: Option<Box<str>>,
    /// Opaque to the broker; ties a response to its request.
    pub correlation_data: Option<Box<[u8]>>,
    /// Name and value pairs, in order, duplicates kept.
    pub user: Vec<(Box<str>, Box<str>)>,
}

impl Properties {
    /// Nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.payload_is_text
            && self.content_type.is_none()
            && self.response_topic.is_none()
            && self.correlation_data.is_none()
            && self.user.is_empty()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        if let Some(v) = &self.content_type {
            put_field(out, 2, v.as_bytes());
        }
        if let Some(v) = &self.response_topic {
            put_field(out, 3, v.as_bytes());
        }
        if let Some(v) = &self.correlation_data {
            put_field(out, 4, v);
        }
        for (name, value) in &self.user {
            put_field(out, 5, name.as_bytes());
            put_bytes(out, value.as_bytes());
        }
        if self.payload_is_text {
            out.push(1);
        }
    }

    fn encoded_len(&self) -> usize {
        let field = |n: usize| varint_len(n as u64) + n;
        let one = |v: Option<usize>| v.map_or(0, |n| 1 + field(n));
        usize::from(self.payload_is_text)
            + one(self.content_type.as_ref().map(|v| v.len()))
            + one(self.response_topic.as_ref().map(|v| v.len()))
            + one(self.correlation_data.as_ref().map(|v| v.len()))
            + self.user.iter().map(|(n, v)| 1 + field(n.len()) + field(v.len())).sum::<usize>()
    }

    fn decode(mut input: &[u8]) -> Result<Self, BadRecord> {
        let mut p = Self::default();
        while let Some((&tag, rest)) = input.split_first() {
            input = rest;
            match tag {
                1 => p.payload_is_text = true,
                2 => p.content_type = Some(take_text(&mut input)?.into()),
                3 => p.response_topic = Some(take_text(&mut input)?.into()),
                4 => {
                    p.correlation_data =
                        Some(take_bytes(&mut input).ok_or(BadRecord("correlation data"))?.into())
                }
                5 => {
                    let name = take_text(&mut input)?.into();
                    p.user.push((name, take_text(&mut input)?.into()));
                }
                _ => return Err(BadRecord("unknown property tag")),
            }
        }
        Ok(p)
    }
}

fn put_field(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    put_bytes(out, bytes);
}

fn take_text<'a>(input: &mut &'a [u8]) -> Result<&'a str, BadRecord> {
    let bytes = take_bytes(input).ok_or(BadRecord("a text runs past the end"))?;
    std::str::from_utf8(bytes).map_err(|_| BadRecord("a text is not UTF-8"))
}

/// A stored record that does not decode. The text names the part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stored message record: {0}")]
pub struct BadRecord(pub &'static str);

const FLAG_RETAIN: u8 = 1 << 2;
const FLAG_EXPIRES: u8 = 1 << 3;
const FLAG_PROPERTIES: u8 = 1 << 4;

#[derive(Debug)]
struct Inner {
    /// Holds the topic at `topic_at..` and the payload at `payload_at..`; may hold other bytes between and before them.
    data: Bytes,
    topic_at: u32,
    payload_at: u32,
    payload_len: u32,
    size: u32,
    topic_len: u16,
    qos: Qos,
    retain: bool,
    published: Wall,
    expires: Option<Wall>,
    properties: Option<Box<Properties>>,
}

/// One published message; cheap to clone.
#[derive(Clone, Debug)]
pub struct Message(Arc<Inner>);

/// What a message is made of, beside its topic and payload.
#[derive(Clone, Debug, Default)]
pub struct MessageHead {
    /// The publisher's quality of service.
    pub qos: Qos,
    /// The publisher's RETAIN flag.
    pub retain: bool,
    /// When it was accepted.
    pub published: Wall,
    /// When it must no longer be delivered; `None`: never.
    pub expires: Option<Wall>,
    /// Application properties; `None` when there are none.
    pub properties: Option<Box<Properties>>,
}

impl Message {
    /// Copies `topic` (at most 65,535 bytes) and `payload` into one buffer of their own.
    ///
    /// # Panics
    /// When the topic is longer than 65,535 bytes or the payload than 4 GiB: the callers' parsers refuse both.
    #[must_use]
    pub fn new(topic: &str, payload: &[u8], head: MessageHead) -> Self {
        let mut data = Vec::with_capacity(topic.len() + payload.len());
        data.extend_from_slice(topic.as_bytes());
        data.extend_from_slice(payload);
        Self::from_parts(Bytes::from(data), 0, topic.len(), topic.len(), payload.len(), head)
    }

    /// Shares `data`, in which the topic lies at `topic_at` and the payload at `payload_at`, without copying. For large
    /// packets; a small slice of a large buffer would pin all of it.
    ///
    /// # Panics
    /// When a range lies outside `data` or a length does not fit its width.
    #[must_use]
    pub fn from_parts(
        data: Bytes,
        topic_at: usize,
        topic_len: usize,
        payload_at: usize,
        payload_len: usize,
        head: MessageHead,
    ) -> Self {
        assert!(topic_at + topic_len <= data.len() && payload_at + payload_len <= data.len());
        let head = MessageHead { properties: head.properties.filter(|p| !p.is_empty()), ..head };
        let size = record_len(&head, topic_len, payload_len);
        Self(Arc::new(Inner {
            data,
            topic_at: u32::try_from(topic_at).expect("packets are shorter than 4 GiB"),
            payload_at: u32::try_from(payload_at).expect("packets are shorter than 4 GiB"),
            payload_len: u32::try_from(payload_len).expect("packets are shorter than 4 GiB"),
            size: u32::try_from(size).expect("packets are shorter than 4 GiB"),
            topic_len: u16::try_from(topic_len).expect("a topic is at most 65,535 bytes long"),
            qos: head.qos,
            retain: head.retain,
            published: head.published,
            expires: head.expires,
            properties: head.properties,
        }))
    }

    /// As [`new`](Self::new), but shares `whole` where the topic lies in it and a large payload makes up all but an eighth of it: the
    /// rest, the start of the next packet for instance, would stay in memory with the message.
    #[must_use]
    pub fn within(whole: Option<&Bytes>, topic: &str, payload: &[u8], head: MessageHead) -> Self {
        let place = |part: &[u8], whole: &Bytes| {
            let at = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
            (at + part.len() <= whole.len()).then_some(at)
        };
        if let Some(whole) = whole.filter(|whole| payload.len() >= whole.len() - whole.len() / 8)
            && payload.len() >= SHARE_BYTES_MIN
            && let (Some(topic_at), Some(payload_at)) =
                (place(topic.as_bytes(), whole), place(payload, whole))
        {
            return Self::from_parts(whole.clone(), topic_at, topic.len(), payload_at, payload.len(), head);
        }
        Self::new(topic, payload, head)
    }

    /// The same topic and payload, shared, with another head.
    #[must_use]
    pub fn with_head(&self, head: MessageHead) -> Self {
        let m = &*self.0;
        let (topic_at, payload_at) = (m.topic_at as usize, m.payload_at as usize);
        let topic_len = usize::from(m.topic_len);
        Self::from_parts(m.data.clone(), topic_at, topic_len, payload_at, m.payload_len as usize, head)
    }

    /// The topic name.
    #[must_use]
    pub fn topic(&self) -> &str {
        let at = self.0.topic_at as usize;
        std::str::from_utf8(&self.0.data[at..at + usize::from(self.0.topic_len)])
            .expect("checked when the message was made")
    }

    /// The topic name's bytes: no UTF-8 check, for encoders.
    #[must_use]
    #[inline]
    pub fn topic_bytes(&self) -> &[u8] {
        let at = self.0.topic_at as usize;
        &self.0.data[at..at + usize::from(self.0.topic_len)]
    }

    /// The payload.
    #[must_use]
    #[inline]
    pub fn payload(&self) -> &[u8] {
        let at = self.0.payload_at as usize;
        &self.0.data[at..at + self.0.payload_len as usize]
    }

    /// The payload as a shared slice, for large ones that are sent without a copy.
    #[must_use]
    pub fn payload_shared(&self) -> Bytes {
        let at = self.0.payload_at as usize;
        self.0.data.slice(at..at + self.0.payload_len as usize)
    }

    /// The publisher's quality of service.
    #[must_use]
    #[inline]
    pub fn qos(&self) -> Qos {
        self.0.qos
    }

    /// The publisher's RETAIN flag.
    #[must_use]
    #[inline]
    pub fn retain(&self) -> bool {
        self.0.retain
    }

    /// When it was accepted.
    #[must_use]
    pub fn published(&self) -> Wall {
        self.0.published
    }

    /// When it must no longer be delivered.
    #[must_use]
    #[inline]
    pub fn expires(&self) -> Option<Wall> {
        self.0.expires
    }

    /// It must no longer be delivered at `wall`.
    #[must_use]
    #[inline]
    pub fn is_expired(&self, wall: Wall) -> bool {
        self.0.expires.is_some_and(|at| at <= wall)
    }

    /// Application properties, if there are any.
    #[must_use]
    #[inline]
    pub fn properties(&self) -> Option<&Properties> {
        self.0.properties.as_deref()
    }

    /// Length of the stored encoding in bytes: the unit of every byte counter.
    #[must_use]
    #[inline]
    pub fn size(&self) -> u32 {
        self.0.size
    }

    /// Memory that this message keeps alive, in bytes (shared by all its clones).
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Inner>()
            + 2 * size_of::<usize>()
            + self.0.data.len()
            + self.0.properties.as_ref().map_or(0, |p| p.encoded_len() + 128)
    }

    /// Tells this message from every other one that is alive; clones are the same message.
    #[must_use]
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// Appends the stored encoding: exactly [`size`](Self::size) bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let before = out.len();
        self.encode_head(out);
        out.extend_from_slice(self.payload());
        assert_eq!(out.len() - before, self.0.size as usize, "a record is as long as it was counted");
    }

    /// Appends the stored encoding up to the payload, which follows as it is.
    pub fn encode_head(&self, out: &mut Vec<u8>) {
        let m = &*self.0;
        let mut flags = m.qos as u8;
        flags |= if m.retain { FLAG_RETAIN } else { 0 };
        flags |= if m.expires.is_some() { FLAG_EXPIRES } else { 0 };
        flags |= if m.properties.is_some() { FLAG_PROPERTIES } else { 0 };
        out.push(flags);
        put_varint(out, m.published.0);
        if let Some(at) = m.expires {
            put_varint(out, at.0);
        }
        put_varint(out, u64::from(m.topic_len));
        out.extend_from_slice(self.topic_bytes());
        if let Some(p) = &m.properties {
            put_varint(out, p.encoded_len() as u64);
            p.encode(out);
        }
    }

    /// Reads one whole record. Copies, unless `record` is large (then the payload shares its buffer).
    ///
    /// # Errors
    /// [`BadRecord`] when the bytes are no record.
    pub fn decode(record: &Bytes) -> Result<Self, BadRecord> {
        let mut input: &[u8] = record;
        let (&flags, rest) = input.split_first().ok_or(BadRecord("empty"))?;
        input = rest;
        if flags >> 5 != 0 {
            return Err(BadRecord("reserved flag bits"));
        }
        let published = Wall(take_varint(&mut input).ok_or(BadRecord("publish time"))?);
        let expires = if flags & FLAG_EXPIRES != 0 {
            Some(Wall(take_varint(&mut input).ok_or(BadRecord("expiry time"))?))
        } else {
            None
        };
        let topic = take_text(&mut input)?;
        if topic.len() > usize::from(u16::MAX) {
            return Err(BadRecord("topic too long"));
        }
        let properties = if flags & FLAG_PROPERTIES != 0 {
            let block = take_bytes(&mut input).ok_or(BadRecord("properties run past the end"))?;
            Some(Box::new(Properties::decode(block)?))
        } else {
            None
        };
        let head = MessageHead {
            qos: Qos::from_bits(flags).ok_or(BadRecord("QoS 3"))?,
            retain: flags & FLAG_RETAIN != 0,
            published,
            expires,
            properties,
        };
        if input.len() < SHARE_BYTES_MIN {
            return Ok(Self::new(topic, input, head));
        }
        let topic_at = topic.as_ptr() as usize - record.as_ptr() as usize;
        let payload_at = record.len() - input.len();
        Ok(Self::from_parts(record.clone(), topic_at, topic.len(), payload_at, input.len(), head))
    }
}

/// Payloads from this size on share the buffer they were read from instead of being copied.
pub const SHARE_BYTES_MIN: usize = 4096;

fn record_len(head: &MessageHead, topic_len: usize, payload_len: usize) -> usize {
    let properties = head.properties.as_ref().map_or(0, |p| {
        let n = p.encoded_len();
        varint_len(n as u64) + n
    });
    1 + varint_len(head.published.0)
        + head.expires.map_or(0, |w| varint_len(w.0))
        + varint_len(topic_len as u64)
        + topic_len
        + properties
        + payload_len
}

/// How one message is to be delivered to one queue's consumer; remembered with the queued copy, since the subscription may
/// change while the message waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryOptions {
    /// Granted quality of service: the lower one of the message's and the subscription's.
    pub qos: Qos,
    /// The RETAIN flag to send.
    pub retain: bool,
    /// Subscription identifiers of the subscriptions that matched, in ascending order (MQTT 5.0, 3.3.4); usually none.
    pub subscription_ids: Option<Arc<[u32]>>,
}

impl DeliveryOptions {
    /// Appends the stored encoding: flags (bits 0-1 QoS, bit 2 retain, bit 3 identifiers follow), then count and identifiers
    /// as varints.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let ids = self.subscription_ids.as_deref().unwrap_or(&[]);
        out.push(self.qos as u8 | u8::from(self.retain) << 2 | u8::from(!ids.is_empty()) << 3);
        if !ids.is_empty() {
            put_varint(out, ids.len() as u64);
            ids.iter().for_each(|id| put_varint(out, u64::from(*id)));
        }
    }

    /// Takes one encoding off the front of `input`.
    ///
    /// # Errors
    /// [`BadRecord`] when the bytes are no options.
    pub fn decode(input: &mut &[u8]) -> Result<Self, BadRecord> {
        let (&flags, rest) = input.split_first().ok_or(BadRecord("delivery options"))?;
        *input = rest;
        let mut options = Self {
            qos: Qos::from_bits(flags).ok_or(BadRecord("QoS 3"))?,
            retain: flags & 4 != 0,
            subscription_ids: None,
        };
        if flags & 8 != 0 {
            let n = take_varint(input).ok_or(BadRecord("subscription identifiers"))?;
            if n > input.len() as u64 {
                return Err(BadRecord("subscription identifiers"));
            }
            let mut ids =
                Vec::with_capacity(usize::try_from(n).map_err(|_| BadRecord("subscription identifiers"))?);
            for _ in 0..n {
                let id = take_varint(input).and_then(|v| u32::try_from(v).ok());
                ids.push(id.ok_or(BadRecord("subscription identifier"))?);
            }
            options.subscription_ids = Some(ids.into());
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(payload: usize) -> Message {
        let properties = Properties {
            payload_is_text: true,
            content_type: Some("text/plain".into()),
            response_topic: Some("answers/here".into()),
            correlation_data: Some(vec![0, 255].into()),
            user: vec![("a".into(), "1".into()), ("a".into(), "2".into())],
        };
        let head = MessageHead {
            qos: Qos::ExactlyOnce,
            retain: true,
            published: Wall(1_700_000_000_000),
            expires: Some(Wall(1_700_000_060_000)),
            properties: Some(Box::new(properties)),
        };
        Message::new("plant/7/temperature", &vec![9; payload], head)
    }

    #[test]
    fn a_message_shares_a_buffer_only_if_hardly_anything_else_lies_in_it() {
        for (len, is_shared) in [(20_000, true), (8_000, false)] {
            let topic = "t";
            let whole = Bytes::from([topic.as_bytes(), &vec![1; len], &[0; 2_000]].concat());
            let (name, payload) = (std::str::from_utf8(&whole[..1]).unwrap(), &whole[1..=len]);
            let message = Message::within(Some(&whole), name, payload, MessageHead::default());
            assert_eq!((message.topic(), message.payload().len()), (topic, len));
            assert_eq!(message.payload().as_ptr() == payload.as_ptr(), is_shared, "{len} bytes");
        }
    }

    #[test]
    fn a_record_round_trips_and_is_as_long_as_counted() {
        for payload in [0, 1, 200, 5_000, 100_000] {
            let message = sample(payload);
            let mut out = vec![];
            message.encode(&mut out);
            let back = Message::decode(&Bytes::from(out)).unwrap();
            assert_eq!(back.topic(), message.topic());
            assert_eq!(back.payload(), message.payload());
            assert_eq!(back.properties(), message.properties());
            assert_eq!((back.qos(), back.retain()), (message.qos(), message.retain()));
            assert_eq!((back.published(), back.expires()), (message.published(), message.expires()));
            assert_eq!(back.size(), message.size());
        }
    }

    #[test]
    fn a_cut_record_is_refused_or_shorter_but_never_panics() {
        let mut out = vec![];
        sample(0).encode(&mut out);
        for n in 0..out.len() {
            let _ = Message::decode(&Bytes::copy_from_slice(&out[..n]));
        }
    }

    #[test]
    fn delivery_options_round_trip() {
        let options = DeliveryOptions {
            qos: Qos::AtLeastOnce,
            retain: true,
            subscription_ids: Some(vec![1, 268_435_455].into()),
        };
        let mut out = vec![];
        options.encode(&mut out);
        let mut input = &out[..];
        assert_eq!(DeliveryOptions::decode(&mut input).unwrap(), options);
        assert!(input.is_empty());
    }
}
