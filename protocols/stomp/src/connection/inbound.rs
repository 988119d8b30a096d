//! Frames of a client that was accepted.

use super::Connection;
use super::books::Books;
use super::event::{
    Ack, ConnectionLimit, Event, ReceiptTag, Send, Subscribe, SubscriptionTag, TransactionEnd,
    TransactionTag, Violation,
};
use super::subscriptions::DeliveryKey;
use crate::frame::Frame;
use crate::types::{AckMode, Command, Version};
use alloc::borrow::Cow;
use alloc::vec::Vec;

impl Connection {
    /// Handles a frame other than CONNECT.
    pub(super) fn frame_received<'a>(&mut self, frame: &Frame<'a>) -> Result<Event<'a>, Violation> {
        match frame.command {
            Command::Send => self.send_received(frame),
            Command::Subscribe => self.subscribe_received(frame),
            Command::Unsubscribe => self.unsubscribe_received(frame),
            Command::Ack => self.ack_received(frame, false),
            Command::Nack => self.ack_received(frame, true),
            Command::Begin => self.begin_received(frame),
            Command::Commit => self.end_received(frame, true),
            Command::Abort => self.end_received(frame, false),
            Command::Disconnect => Ok(self.disconnect_received(frame)),
            Command::Connect | Command::Stomp => Err(Violation::SecondConnect),
            Command::Connected | Command::Message | Command::Receipt | Command::Error => {
                Err(Violation::Unexpected(frame.command))
            }
        }
    }

    fn send_received<'a>(&mut self, frame: &Frame<'a>) -> Result<Event<'a>, Violation> {
        let destination = required(frame, "destination")?;
        let transaction = match frame.headers.get("transaction") {
            Some(name) => Some(self.books.transactions.act(&name, &self.settings.limits)?.tag),
            None => None,
        };
        let receipt = self.note_receipt(frame);
        Ok(Event::Send(Send { destination, transaction, receipt, headers: frame.headers, body: frame.body }))
    }

    fn subscribe_received<'a>(&mut self, frame: &Frame<'a>) -> Result<Event<'a>, Violation> {
        let destination = required(frame, "destination")?;
        let id = match self.version {
            Version::V10 => frame.headers.get("id"),
            _ => Some(present(frame, "id")?),
        };
        let ack = match frame.headers.get("ack") {
            Some(mode) => AckMode::parse(&mode).ok_or(invalid(frame, "ack"))?,
            None => AckMode::Auto,
        };
        // Later versions unsubscribe by identifier alone.
        let kept = if self.version == Version::V10 { &*destination } else { "" };
        let subscription = self.books.subscriptions.add(id.as_deref(), kept, ack, &self.settings.limits)?;
        self.check_identifier_bytes()?;
        let receipt = self.note_receipt(frame);
        let headers = frame.headers;
        Ok(Event::Subscribe(Subscribe { subscription, id, destination, ack, receipt, headers }))
    }

    fn unsubscribe_received<'a>(&mut self, frame: &Frame<'a>) -> Result<Event<'a>, Violation> {
        let ended = match (frame.headers.get("id"), self.version) {
            (Some(id), _) => self.books.subscriptions.end_id(&id),
            (None, Version::V10) => {
                self.books.subscriptions.end_destination(&required(frame, "destination")?)
            }
            (None, _) => return Err(missing(frame, "id")),
        };
        let subscription = ended.ok_or(Violation::SubscriptionUnknown)?;
        let receipt = self.note_receipt(frame);
        Ok(Event::Unsubscribe { subscription, receipt, headers: frame.headers })
    }

    fn ack_received<'a>(&mut self, frame: &Frame<'a>, nack: bool) -> Result<Event<'a>, Violation> {
        let key = self.delivery_named(frame)?;
        let Books { subscriptions, transactions, settled, .. } = &mut *self.books;
        settled.clear();
        let transaction = match frame.headers.get("transaction") {
            Some(name) => {
                let transaction = transactions.act(&name, &self.settings.limits)?;
                let held = Some((transaction.tag, &mut transaction.held));
                subscriptions.settle(key, held, settled)?;
                Some(transaction.tag)
            }
            None => {
                subscriptions.settle(key, None, settled)?;
                None
            }
        };
        let receipt = self.note_receipt(frame);
        Ok(Event::Ack(Ack { subscription: key.0, nack, transaction, receipt, headers: frame.headers }))
    }

    /// The delivery that ACK or NACK names: by `message-id` in STOMP 1.0, with its subscription in 1.1, by `id`
    /// in 1.2.
    fn delivery_named(&self, frame: &Frame<'_>) -> Result<DeliveryKey, Violation> {
        let name = match self.version {
            Version::V12 => present(frame, "id")?,
            _ => present(frame, "message-id")?,
        };
        let key = self.parse_delivery(&name).ok_or(Violation::DeliveryUnknown)?;
        if self.version == Version::V11 {
            let subscription = present(frame, "subscription")?;
            let known = self.books.subscriptions.any(key.0).and_then(|found| found.id.as_deref());
            if known != Some(&*subscription) {
                return Err(Violation::DeliveryUnknown);
            }
        }
        Ok(key)
    }

    fn begin_received<'a>(&mut self, frame: &Frame<'a>) -> Result<Event<'a>, Violation> {
        let name = required(frame, "transaction")?;
        let xid = optional(frame, "xid")?;
        let transaction = self.books.transactions.begin(&name, xid.is_some(), &self.settings.limits)?;
        self.check_identifier_bytes()?;
        let receipt = self.note_receipt(frame);
        Ok(Event::Begin { transaction, xid, receipt, headers: frame.headers })
    }

    /// COMMIT and ABORT name a transaction of this connection, or a prepared one by its `xid`.
    fn end_received<'a>(&mut self, frame: &Frame<'a>, commit: bool) -> Result<Event<'a>, Violation> {
        let prepare = match frame.headers.get("phase") {
            Some(phase) if commit && phase == "prepare" => true,
            Some(_) => return Err(invalid(frame, "phase")),
            None => false,
        };
        let xid = optional(frame, "xid")?;
        let name = frame.headers.get("transaction");
        let open = name.as_deref().is_some_and(|name| self.books.transactions.is_open(name));
        match (name, xid) {
            (_, Some(xid)) if !open && !prepare => {
                let receipt = self.note_receipt(frame);
                Ok(Event::Decide { xid, commit, receipt, headers: frame.headers })
            }
            (Some(name), _) => {
                let transaction = self.end_transaction(frame, &name, commit, prepare)?;
                let end = match (commit, prepare) {
                    (true, false) => TransactionEnd::Commit,
                    (true, true) => TransactionEnd::Prepare,
                    (false, _) => TransactionEnd::Abort,
                };
                let receipt = self.note_receipt(frame);
                Ok(Event::End { transaction, end, receipt, headers: frame.headers })
            }
            (None, _) => Err(missing(frame, "transaction")),
        }
    }

    fn end_transaction(
        &mut self,
        frame: &Frame<'_>,
        name: &str,
        commit: bool,
        prepare: bool,
    ) -> Result<TransactionTag, Violation> {
        let ended = self.books.transactions.end(name)?;
        if prepare && !ended.has_xid {
            return Err(missing(frame, "xid"));
        }
        match commit {
            true => self.books.subscriptions.commit(&ended.held),
            false => self.books.subscriptions.roll_back(&ended.held),
        }
        Ok(ended.tag)
    }

    fn disconnect_received<'a>(&mut self, frame: &Frame<'a>) -> Event<'a> {
        let receipt = self.note_receipt(frame);
        self.end_reading();
        Event::Disconnect { receipt }
    }

    fn note_receipt(&mut self, frame: &Frame<'_>) -> Option<ReceiptTag> {
        frame.headers.get("receipt").map(|id| self.books.receipts.push(&id))
    }

    fn check_identifier_bytes(&self) -> Result<(), ConnectionLimit> {
        let max = self.settings.limits.identifier_bytes_max;
        let bytes = self.books.subscriptions.identifier_bytes() + self.books.transactions.identifier_bytes();
        if bytes > max as usize { Err(ConnectionLimit::IdentifierBytes { max }) } else { Ok(()) }
    }

    /// Reads what [`Connection::message`] has written: the session, the subscription and a number.
    fn parse_delivery(&self, name: &str) -> Option<DeliveryKey> {
        let (session, rest) = name.split_once('-')?;
        let (subscription, number) = rest.split_once('-')?;
        let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if session.len() != 16 || !session.bytes().all(hex) {
            return None;
        }
        if u64::from_str_radix(session, 16) != Ok(self.session) {
            return None;
        }
        let subscription = u32::try_from(canonical(subscription)?).ok()?;
        Some((SubscriptionTag(subscription), canonical(number)?))
    }

    /// The caller's tags of the deliveries that the last ACK or NACK event covers, the oldest first, until the
    /// next call of [`Connection::receive`]. Empty if an earlier frame of the same transaction has covered them.
    pub fn settled(&self) -> &[u64] {
        &self.books.settled
    }

    /// Gives the memory of a long list of settled deliveries back.
    pub(super) fn release_memory(&mut self) {
        const KEPT: usize = 64;
        if self.books.settled.capacity() > KEPT {
            self.books.settled = Vec::new();
        }
    }
}

/// A number in its one spelling.
fn canonical(digits: &str) -> Option<u64> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    if plain { digits.parse().ok() } else { None }
}

fn missing(frame: &Frame<'_>, header: &'static str) -> Violation {
    Violation::HeaderMissing { command: frame.command, header }
}

pub(super) fn invalid(frame: &Frame<'_>, header: &'static str) -> Violation {
    Violation::HeaderInvalid { command: frame.command, header }
}

/// A header that may be empty.
fn present<'a>(frame: &Frame<'a>, header: &'static str) -> Result<Cow<'a, str>, Violation> {
    frame.headers.get(header).ok_or(missing(frame, header))
}

/// A header that is not empty.
fn required<'a>(frame: &Frame<'a>, header: &'static str) -> Result<Cow<'a, str>, Violation> {
    optional(frame, header)?.ok_or(missing(frame, header))
}

/// A header that may be missing and is not empty.
fn optional<'a>(frame: &Frame<'a>, header: &'static str) -> Result<Option<Cow<'a, str>>, Violation> {
    match frame.headers.get(header) {
        Some(value) if value.is_empty() => Err(invalid(frame, header)),
        value => Ok(value),
    }
}
