//! Messages from upstream that wait for the local commit. Pure.
//!
//! Each gets a tag of its own for the local broker, since the upstream's packet identifiers start anew with each connection:
//! an answer that comes late must not acknowledge another message. A message that the local broker cannot take now (a queue or
//! the disk is full) is held and offered again, in order; it is not acknowledged meanwhile, so the upstream keeps it too.
//!
//! Bounds: `messages_max` messages and about `bytes_max` bytes, beyond which the upstream is not read. While messages are held
//! for want of room, reading goes on, because the acknowledgements that make room come the same way; what is over the bound is
//! then forgotten unacknowledged, and a new connection makes the upstream send it again.

use std::collections::{BTreeMap, HashMap};

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
    /// In the order of arrival.
    open: BTreeMap<u64, Open>,
    by_tag: HashMap<u16, u64>,
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
            by_tag: HashMap::new(),
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
        self.by_tag.insert(tag(number).0, number);
        self.open
            .insert(number, Open { connection: self.connection, id, qos2, held, message: message.clone() });
        (!held).then_some(tag(number))
    }

    /// The local broker answered. Returns what to tell the upstream, if it still listens.
    pub fn answered(&mut self, reply: ReplyTag, outcome: PublishOutcome, now: Mono) -> Option<Answer> {
        let number = *self.by_tag.get(&reply.0)?;
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
        self.by_tag.clear();
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

    /// Messages that the local broker has not answered yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.open.len()
    }

    fn is_full(&self) -> bool {
        self.open.len() >= self.messages_max || self.bytes >= self.bytes_max
    }

    fn remove(&mut self, number: u64) -> Option<Open> {
        let open = self.open.remove(&number)?;
        self.by_tag.remove(&tag(number).0);
        self.bytes -= u64::from(open.message.size());
        Some(open)
    }

    /// The next number whose tag is free; far fewer messages are open than there are tags.
    fn free_number(&mut self) -> u64 {
        loop {
            let number = self.next;
            self.next += 1;
            let used = tag(number) == ReplyTag(0) || self.by_tag.contains_key(&tag(number).0);
            if !used {
                return number;
            }
        }
    }
}

fn tag(number: u64) -> ReplyTag {
    ReplyTag((number & 0xffff) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::MessageHead;

    fn message() -> Message {
        Message::new("t", b"x", MessageHead::default())
    }

    #[test]
    fn a_late_answer_does_not_acknowledge_a_message_of_the_next_connection() {
        let mut inbound = Inbound::new(10, 1 << 20);
        let old = inbound.accept(1, false, &message()).unwrap();
        inbound.connection_ended();
        let new = inbound.accept(1, false, &message()).unwrap();
        assert_ne!(old, new);
        assert_eq!(inbound.answered(old, PublishOutcome::Accepted, Mono(0)), None);
        let answer = Answer { id: 1, qos2: false, reason: SUCCESS };
        assert_eq!(inbound.answered(new, PublishOutcome::NoSubscribers, Mono(0)), Some(answer));
        assert_eq!(inbound.answered(new, PublishOutcome::Accepted, Mono(0)), None);
    }

    #[test]
    fn messages_that_find_no_room_are_offered_again_in_order_with_growing_pauses() {
        let mut inbound = Inbound::new(10, 1 << 20);
        let first = inbound.accept(1, false, &message()).unwrap();
        assert_eq!(inbound.answered(first, PublishOutcome::QuotaExceeded, Mono(0)), None);
        assert_eq!(inbound.accept(2, true, &message()), None, "it waits behind the first");
        let at = inbound.retry_at().unwrap();
        assert!(inbound.retry(Mono(at.0 - 1)).is_empty());
        let offered: Vec<ReplyTag> = inbound.retry(at).into_iter().map(|(tag, _)| tag).collect();
        assert_eq!(offered.len(), 2);
        assert_eq!(offered[0], first);
        inbound.answered(first, PublishOutcome::QuotaExceeded, at);
        assert_eq!(inbound.retry_at(), Some(at.plus_millis(2 * RETRY_MILLIS_MIN)));
        let second = Answer { id: 2, qos2: true, reason: SUCCESS };
        assert_eq!(inbound.answered(offered[1], PublishOutcome::Accepted, at), Some(second));
    }

    #[test]
    fn a_full_window_stops_reading_but_not_while_it_waits_for_room() {
        let mut inbound = Inbound::new(2, 1 << 20);
        let tag = inbound.accept(1, false, &message()).unwrap();
        assert!(!inbound.pauses_reading());
        let other = inbound.accept(2, false, &message()).unwrap();
        assert!(inbound.pauses_reading());
        inbound.answered(tag, PublishOutcome::QuotaExceeded, Mono(0));
        assert!(!inbound.pauses_reading());
        assert_eq!(inbound.accept(3, false, &message()), None);
        inbound.answered(other, PublishOutcome::Accepted, Mono(0));
        let at = inbound.retry_at().unwrap();
        let (tag, _) = inbound.retry(at).remove(0);
        assert!(!inbound.wants_repetition());
        inbound.answered(tag, PublishOutcome::Accepted, at);
        assert!(inbound.wants_repetition(), "the third one was forgotten");
    }

    #[test]
    fn tags_in_use_are_skipped_when_the_numbers_wrap() {
        let mut inbound = Inbound::new(10, 1 << 20);
        let first = inbound.accept(1, false, &message()).unwrap();
        for _ in 0..70_000 {
            let tag = inbound.accept(2, false, &message()).unwrap();
            assert!(tag != first && tag != ReplyTag(0));
            inbound.answered(tag, PublishOutcome::Accepted, Mono(0)).unwrap();
        }
        assert_eq!(inbound.waiting(), 1);
    }
}
