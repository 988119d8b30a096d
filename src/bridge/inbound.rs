//! Messages from upstream that wait for the local commit. Pure.
//!
//! Each gets a tag of its own for the local broker, since the upstream's packet identifiers start anew with each connection:
//! an answer that comes late must not acknowledge another message. A message that the local broker cannot take now (a queue or
//! the disk is full) is held and offered again, in order; it is not acknowledged meanwhile, so the upstream keeps it too.
//!
//! Bounds: `messages_max` messages and about `bytes_max` bytes, beyond which the upstream is not read. While messages are held
//! for want of room, reading goes on, because the acknowledgements that make room come the same way; what is over the bound is
//! then forgotten unacknowledged, and a new connection makes the upstream send it again.

use std::collections::BTreeMap;

use crate::broker::api::{PublishOutcome, ReplyTag};
use crate::message::Message;
use crate::time::Mono;

use super::wire::{NOT_AUTHORIZED, SUCCESS, TOPIC_NAME_INVALID};

/// First pause before a message that found no room is offered again, in milliseconds; doubles up to
/// [`RETRY_MILLIS_MAX`].
const RETRY_MILLIS_MIN: u64 = 250;
/// Longest pause, in milliseconds.
const RETRY_MILLIS_MAX: u64 = 10_000;

/// What to tell the upstream about one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The upstream's packet identifier.
    pub id: u16,
    /// It came with QoS 2: PUBREC instead of PUBACK.
    pub qos2: bool,
    /// Reason code.
    pub reason: u8,
}

#[derive(Debug)]
struct Open {
    connection: u64,
    id: u16,
    qos2: bool,
    held: bool,
    message: Message,
}

/// The messages of one link.
#[derive(Debug)]
pub struct Inbound {
    open: BTreeMap<u64, Open>,
    next: u64,
    connection: u64,
    bytes: u64,
    messages_max: usize,
    bytes_max: u64,
    pause_millis: u64,
    retry_at: Option<Mono>,
    forgotten: bool,
}

impl Inbound {
    /// Nothing waits.
    #[must_use]
    pub fn new(messages_max: u16, bytes_max: u32) -> Self {
        Self {
            open: BTreeMap::new(),
            next: 1,
            connection: 0,
            bytes: 0,
            messages_max: usize::from(messages_max.max(1)),
            bytes_max: u64::from(bytes_max),
            pause_millis: RETRY_MILLIS_MIN,
            retry_at: None,
            forgotten: false,
        }
    }

    /// Takes a message of QoS 1 or 2. Returns the tag to publish it with now, or `None` when it is held or forgotten.
    pub fn accept(&mut self, id: u16, qos2: bool, message: &Message) -> Option<ReplyTag> {
        let held = self.retry_at.is_some();
        if held && self.is_full() {
            self.forgotten = true;
            return None;
        }
        let number = self.free_number();
        self.bytes += u64::from(message.size());
        self.open
            .insert(number, Open { connection: self.connection, id, qos2, held, message: message.clone() });
        (!held).then_some(tag(number))
    }

    /// The local broker answered. Returns what to tell the upstream, if it still listens.
    pub fn answered(&mut self, reply: ReplyTag, outcome: PublishOutcome, now: Mono) -> Option<Answer> {
        let number = self.open.keys().copied().find(|number| tag(*number) == reply)?;
        if outcome == PublishOutcome::QuotaExceeded {
            self.hold(number, now);
            return None;
        }
        let open = self.remove(number)?;
        self.pause_millis = RETRY_MILLIS_MIN;
        let reason = match outcome {
            PublishOutcome::TopicInvalid => TOPIC_NAME_INVALID,
            PublishOutcome::NotAuthorized => NOT_AUTHORIZED,
            _ => SUCCESS,
        };
        (open.connection == self.connection).then_some(Answer { id: open.id, qos2: open.qos2, reason })
    }

    fn hold(&mut self, number: u64, now: Mono) {
        match self.open.get_mut(&number) {
            Some(open) if open.connection == self.connection => {
                open.held = true;
                self.retry_at.get_or_insert(now.plus_millis(self.pause_millis));
            }
            // The upstream of that connection sends it again.
            _ => drop(self.remove(number)),
        }
    }

    /// Messages to offer again, in order, once their pause is over.
    pub fn retry(&mut self, now: Mono) -> Vec<(ReplyTag, Message)> {
        if self.retry_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.retry_at = None;
        self.pause_millis = (self.pause_millis * 2).min(RETRY_MILLIS_MAX);
        let held = self.open.iter_mut().filter(|(_, open)| open.held);
        held.map(|(number, open)| {
            open.held = false;
            (tag(*number), open.message.clone())
        })
        .collect()
    }

    /// When [`retry`](Self::retry) has something.
    #[must_use]
    pub fn retry_at(&self) -> Option<Mono> {
        self.retry_at
    }

    /// The connection is over: what the local broker was not offered yet comes again on the next one.
    pub fn connection_ended(&mut self) {
        self.connection += 1;
        self.retry_at = None;
        self.forgotten = false;
        let held: Vec<u64> =
            self.open.iter().filter(|(_, open)| open.held).map(|(number, _)| *number).collect();
        held.into_iter().for_each(|number| drop(self.remove(number)));
    }

    /// The local attachment is over: no answers come any more.
    pub fn clear(&mut self) {
        self.open.clear();
        self.bytes = 0;
    }

    /// Read no more from the upstream for now.
    #[must_use]
    pub fn pauses_reading(&self) -> bool {
        self.is_full() && self.retry_at.is_none()
    }

    /// Messages were forgotten, and there is room again: a new connection makes the upstream repeat them.
    #[must_use]
    pub fn wants_repetition(&self) -> bool {
        self.forgotten && self.retry_at.is_none() && self.open.is_empty()
    }

    fn is_full(&self) -> bool {
        self.open.len() >= self.messages_max || self.bytes >= self.bytes_max
    }

    fn remove(&mut self, number: u64) -> Option<Open> {
        let open = self.open.remove(&number)?;
        self.bytes -= u64::from(open.message.size());
        Some(open)
    }

    /// The next number whose tag is free; far fewer messages are open than there are tags.
    fn free_number(&mut self) -> u64 {
        loop {
            let number = self.next;
            self.next += 1;
            let used = tag(number) == ReplyTag(0) || self.open.keys().any(|open| tag(*open) == tag(number));
            if !used {
                return number;
            }
        }
    }
}

fn tag(number: u64) -> ReplyTag {
    ReplyTag((number & 0xffff) as u16)
}
