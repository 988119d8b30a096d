//! The server's end of one network connection: what the conversation on the wire needs, and nothing of queues,
//! topics or storage.
//!
//! # Call order
//! 1. [`Connection::new`] when the network connection opens.
//! 2. [`Connection::receive`] with the bytes that have arrived, after every read: after an event, hand over the
//!    rest (`input[consumed..]`) at once; after `Incomplete` or `Blocked`, the same bytes with more behind them.
//!    After `Over`, drop what arrives.
//! 3. After [`Event::Connect`]: [`Connection::accept`] or [`Connection::fail`]. Until then `receive` reports
//!    `Blocked` for what the client sends ahead.
//! 4. When a frame that asks for a receipt is processed: [`Connection::receipt`]. The connection writes receipts
//!    in the order of their frames, whatever the order of these calls.
//! 5. [`Connection::message`] for deliveries; [`Connection::settled`] after [`Event::Ack`] says which of them
//!    the client has acknowledged.
//! 6. [`Connection::check_deadline`] when [`Connection::deadline`] has passed; it writes heart-beats. Both use
//!    the caller's monotonic clock in milliseconds.
//! 7. After a [`Violation`]: [`Connection::reject`]. To end a connection for another reason:
//!    [`Connection::fail`]. When [`Connection::is_closed`], send what was written and close.
//!
//! Frames take effect on the connection's tables when they are received: a driver that cannot do what a frame
//! asks for has no answer but [`Connection::fail`], as the protocol has none.
//!
//! # Bounds
//! A connection holds receipts that are due, subscriptions, open transactions and unacknowledged deliveries; see
//! [`ConnectionLimits::heap_bytes_max`]. It holds no frame and no body.

mod books;
mod closing;
mod event;
mod inbound;
mod login;
mod outbound;
mod receipts;
mod subscriptions;
mod transactions;

pub use closing::Failure;
pub use event::{
    Ack, Connect, ConnectionLimit, Event, ReceiptTag, Received, Send, Subscribe, SubscriptionTag,
    TransactionEnd, TransactionTag, Violation,
};
pub use login::Acceptance;
pub use outbound::{Delivery, SendError};

use crate::codec::{Decoded, Decoder};
use crate::error::DecodeError;
use crate::frame::Frame;
use crate::limits::{ConnectionLimits, ConnectionOptions, ConnectionSettings};
use crate::types::{AckMode, Command, HeartBeat, Version};
use alloc::sync::Arc;
use alloc::vec::Vec;
use books::{Books, OnDemand};

/// How far the conversation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing but CONNECT is allowed.
    AwaitConnect,
    /// CONNECT has arrived and is not answered.
    Login,
    /// The client was accepted.
    Open,
    /// Nothing more is read; receipts are due.
    Closing,
    /// The conversation is over.
    Closed,
}

/// State of one network connection. The module's documentation says in which order to call its methods.
#[derive(Debug)]
pub struct Connection {
    settings: Arc<ConnectionSettings>,
    phase: Phase,
    /// The version of CONNECT; the latest one before it.
    version: Version,
    /// Whether a CONNECT has named `version`.
    version_known: bool,
    decoder: Decoder,
    /// Bytes of the input that have been seen and not consumed.
    seen: usize,
    session: u64,
    client_heart_beat: HeartBeat,
    /// The opening of the connection until it is accepted, the beginning of its end later.
    since_ms: u64,
    /// When bytes arrived last.
    heard_ms: u64,
    /// Longest silence of the client; 0 switches supervision off.
    silence_ms_max: u64,
    /// When to look whether something was written.
    beat_at_ms: u64,
    /// How often to look; 0 switches beats off.
    beat_ms: u32,
    /// Whether a frame was written since the last look.
    wrote: bool,
    /// Whether the last call of `receive` returned `Blocked`.
    blocked: bool,
    /// Whether the driver does not read from the client.
    paused: bool,
    books: OnDemand<Books>,
}

impl Connection {
    /// State for a connection that was opened at `now`, in milliseconds of a monotonic clock.
    pub fn new(limits: ConnectionLimits, options: ConnectionOptions, now: u64) -> Connection {
        Connection::sharing(Arc::new(ConnectionSettings { limits, options }), now)
    }

    /// The same with settings that many connections share.
    pub fn sharing(settings: Arc<ConnectionSettings>, now: u64) -> Connection {
        Connection {
            settings,
            phase: Phase::AwaitConnect,
            version: Version::V12,
            version_known: false,
            decoder: Decoder::new(),
            seen: 0,
            session: 0,
            client_heart_beat: HeartBeat::default(),
            since_ms: now,
            heard_ms: now,
            silence_ms_max: 0,
            beat_at_ms: now,
            beat_ms: 0,
            wrote: false,
            blocked: false,
            paused: false,
            books: OnDemand::default(),
        }
    }

    /// Takes the frame that `input` starts with.
    ///
    /// # Errors
    /// A [`Violation`] ends the connection: hand it to [`Connection::reject`]. Limits are checked while the
    /// frame arrives, and whether the first frame is CONNECT as soon as its command is there.
    pub fn receive<'a>(&mut self, input: &'a [u8], now: u64) -> Result<Received<'a>, Violation> {
        self.note_arrival(input.len(), now);
        let limits = match self.phase {
            Phase::AwaitConnect => self.settings.limits.login,
            Phase::Open => self.settings.limits.decode,
            Phase::Login if input.is_empty() => return Ok(Received::Incomplete { needed: 1 }),
            Phase::Login => return Ok(self.block()),
            Phase::Closing | Phase::Closed => return Ok(Received::Over),
        };
        match self.decoder.decode(self.version, input, &limits) {
            Ok(Decoded::Incomplete { needed }) => {
                self.check_first_command()?;
                Ok(Received::Incomplete { needed })
            }
            Ok(Decoded::Gap { consumed }) => {
                self.release_memory();
                Ok(self.consumed(consumed, Event::HeartBeat, now))
            }
            Ok(Decoded::Frame { frame, .. }) if self.has_to_wait(&frame) => Ok(self.block()),
            Ok(Decoded::Frame { frame, consumed }) => match self.take(&frame) {
                Ok(event) => Ok(self.consumed(consumed, event, now)),
                Err(violation) => {
                    self.keep_faulty_receipt(frame.headers.get("receipt"));
                    Err(violation)
                }
            },
            Err(error) => {
                let receipt = self.decoder.receipt(input);
                self.keep_faulty_receipt(receipt);
                Err(error.into())
            }
        }
    }

    /// When [`Connection::check_deadline`] is to be called, in milliseconds: the end of the time for logging in;
    /// later the next heart-beat of either side; at the end, when receipts are waited for no longer. `None` if
    /// nothing is supervised. A client is not supervised while it is `Blocked` or paused, because its beats may
    /// wait unread.
    pub fn deadline(&self) -> Option<u64> {
        match self.phase {
            Phase::AwaitConnect | Phase::Login => Some(self.since_after(self.settings.limits.login_ms_max)),
            Phase::Open => match (self.silence_deadline(), self.beat_deadline()) {
                (Some(silence), Some(beat)) => Some(silence.min(beat)),
                (silence, beat) => silence.or(beat),
            },
            Phase::Closing => Some(self.since_after(self.settings.limits.closing_ms_max)),
            Phase::Closed => None,
        }
    }

    /// Does what is due at `now`: writes a heart-beat if nothing else was written, or ends the waiting for
    /// receipts. A driver need not call it while bytes that were written earlier wait for the network.
    ///
    /// # Errors
    /// [`Violation::Timeout`] if the client is silent for too long.
    pub fn check_deadline(&mut self, out: &mut Vec<u8>, now: u64) -> Result<(), Violation> {
        match self.phase {
            Phase::AwaitConnect | Phase::Login
                if now >= self.since_after(self.settings.limits.login_ms_max) =>
            {
                Err(Violation::Timeout)
            }
            Phase::Open if self.silence_deadline().is_some_and(|deadline| now >= deadline) => {
                Err(Violation::Timeout)
            }
            Phase::Open => {
                self.beat(out, now);
                Ok(())
            }
            Phase::Closing if now >= self.since_after(self.settings.limits.closing_ms_max) => {
                self.close(out);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The driver stops reading from the client, which is not to be blamed for its silence.
    pub fn pause(&mut self) {
        self.paused = true;
    }

    /// The driver reads again.
    pub fn resume(&mut self, now: u64) {
        self.paused = false;
        self.heard_ms = now;
    }

    /// The version that CONNECT has led to; `None` before.
    pub fn version(&self) -> Option<Version> {
        self.version_known.then_some(self.version)
    }

    /// Whether the client was accepted and the conversation goes on.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether the conversation is over, with everything written: the driver sends it and closes.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// How the messages of a subscription are acknowledged; `None` if it has ended.
    pub fn ack_mode(&self, subscription: SubscriptionTag) -> Option<AckMode> {
        self.books.subscriptions.live(subscription).map(|found| found.mode)
    }

    /// Subscriptions, those included that have ended and have unacknowledged messages.
    pub fn subscriptions(&self) -> usize {
        self.books.subscriptions.len()
    }

    /// Open transactions.
    pub fn transactions(&self) -> usize {
        self.books.transactions.len()
    }

    /// Messages that are sent and neither acknowledged nor part of a decided transaction.
    pub fn deliveries(&self) -> usize {
        self.books.subscriptions.deliveries()
    }

    /// Any byte is a sign of life (STOMP 1.1, "Heart-beating").
    fn note_arrival(&mut self, len: usize, now: u64) {
        if len > self.seen {
            self.heard_ms = now;
        }
        self.seen = len;
    }

    fn consumed<'a>(&mut self, consumed: usize, event: Event<'a>, now: u64) -> Received<'a> {
        self.seen = self.seen.saturating_sub(consumed);
        if self.blocked {
            self.blocked = false;
            self.heard_ms = now;
        }
        if self.phase == Phase::Closing {
            self.since_ms = now;
        }
        Received::Event { consumed, event }
    }

    fn block<'a>(&mut self) -> Received<'a> {
        self.blocked = true;
        Received::Blocked
    }

    /// Whether receipts are due first: because there are too many, or because that of SUBSCRIBE would come
    /// behind the messages that it causes.
    fn has_to_wait(&self, frame: &Frame<'_>) -> bool {
        self.phase == Phase::Open
            && !self.books.receipts.is_empty()
            && (frame.command == Command::Subscribe || self.books.receipts.is_full(&self.settings.limits))
            && frame.headers.contains("receipt")
    }

    fn take<'a>(&mut self, frame: &Frame<'a>) -> Result<Event<'a>, Violation> {
        match self.phase {
            Phase::AwaitConnect => self.connect_received(frame),
            _ => self.frame_received(frame),
        }
    }

    /// What is not STOMP, or begins in the middle, is not waited for.
    fn check_first_command(&self) -> Result<(), Violation> {
        if self.phase != Phase::AwaitConnect {
            return Ok(());
        }
        match (self.decoder.fault(), self.decoder.command()) {
            (Some(fault), _) => Err(DecodeError::Malformed(fault).into()),
            (None, Some(command)) if !command.is_connect() => Err(Violation::NotConnected),
            _ => Ok(()),
        }
    }

    fn since_after(&self, ms: u32) -> u64 {
        self.since_ms.saturating_add(u64::from(ms))
    }

    fn silence_deadline(&self) -> Option<u64> {
        let supervised = self.silence_ms_max > 0 && !self.blocked && !self.paused;
        supervised.then(|| self.heard_ms.saturating_add(self.silence_ms_max))
    }

    fn beat_deadline(&self) -> Option<u64> {
        (self.beat_ms > 0).then_some(self.beat_at_ms)
    }

    /// Writes a line feed between frames if nothing was written since the last look.
    fn beat(&mut self, out: &mut Vec<u8>, now: u64) {
        if self.beat_deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        if !self.wrote {
            out.push(b'\n');
        }
        // A beat counts as written, so that every other look writes one on an idle connection.
        self.wrote = !self.wrote;
        self.beat_at_ms = now.saturating_add(u64::from(self.beat_ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Connection>() <= 640, "{} bytes", size_of::<Connection>());
    }
}
