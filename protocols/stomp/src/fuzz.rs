//! Entry points for fuzzers. They panic if the crate breaks a promise, and only then.
//!
//! Decoding takes no memory that its result could show: a frame borrows from the input. What
//! [`fuzz_connection`] checks of memory is that a connection's tables stay within their limits.

use crate::codec::{Decoded, Decoder, decode, decode_next};
use crate::connection::{
    Acceptance, Connection, Delivery, Event, Failure, ReceiptTag, Received, SubscriptionTag, Violation,
};
use crate::error::DecodeError;
use crate::frame::Frame;
use crate::limits::{ConnectionLimits, ConnectionOptions, DecodeLimits};
use crate::types::{AckMode, HeartBeat, Version};
use alloc::vec::Vec;

/// Limits small enough that a fuzzer's inputs reach them.
const DECODE: DecodeLimits = DecodeLimits {
    command_bytes_max: 16,
    header_line_bytes_max: 64,
    header_bytes_max: 256,
    headers_max: 8,
    body_bytes_max: 128,
};

const LIMITS: ConnectionLimits = ConnectionLimits {
    decode: DECODE,
    login: DecodeLimits { body_bytes_max: 8, ..DECODE },
    login_ms_max: 1000,
    closing_ms_max: 100,
    receipts_max: 3,
    receipt_bytes_max: 16,
    subscriptions_max: 3,
    transactions_max: 2,
    transaction_actions_max: 3,
    identifier_bytes_max: 64,
    deliveries_max: 6,
};

/// Decodes `input` in every version. A frame that decodes has the meaning of what it is encoded to, no part of it
/// is a frame, and it does not matter in what pieces it arrives.
pub fn fuzz_decode(input: &[u8]) {
    for version in Version::ALL {
        for limits in [DecodeLimits::UNBOUNDED, DECODE] {
            let whole = decode_next(version, input, &limits);
            check_pieces(version, input, &limits, &whole);
            if let Ok(Decoded::Frame { frame, consumed }) = whole {
                check_round_trip(version, &frame);
                check_prefixes(version, &input[..consumed], &limits);
            }
        }
    }
}

fn check_round_trip(version: Version, frame: &Frame<'_>) {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes).expect("what decodes can be encoded");
    let again = decode(version, &bytes, &DecodeLimits::UNBOUNDED).expect("what we encode decodes");
    assert_eq!(&again, frame, "the encoding changed the frame");
}

/// Cutting a frame anywhere leaves an incomplete one. Long frames are cut at some places only.
fn check_prefixes(version: Version, frame: &[u8], limits: &DecodeLimits) {
    let step = frame.len() / 64 + 1;
    for len in (0..frame.len()).step_by(step) {
        match decode_next(version, &frame[..len], limits) {
            Ok(Decoded::Incomplete { needed }) => assert!(len < needed && needed <= frame.len()),
            Ok(Decoded::Gap { consumed }) => assert!((1..=len).contains(&consumed)),
            other => panic!("{len} bytes of {} are not incomplete: {other:?}", frame.len()),
        }
    }
}

/// Lets the input grow in front of one decoder, which must come to the same end as with the whole input.
fn check_pieces(
    version: Version,
    input: &[u8],
    limits: &DecodeLimits,
    whole: &Result<Decoded<'_>, DecodeError>,
) {
    let step = input.len() / 64 + 1;
    let (mut decoder, mut dropped) = (Decoder::new(), 0);
    let lengths = (0..input.len()).step_by(step).chain([input.len()]);
    for len in lengths {
        let Some(rest) = input.get(dropped..len) else {
            continue;
        };
        match (decoder.decode(version, rest, limits), whole) {
            (Ok(Decoded::Incomplete { needed }), _) => {
                assert!(needed > rest.len() && needed as u64 <= limits.frame_bytes_max());
            }
            (Ok(Decoded::Gap { consumed }), _) => dropped += consumed,
            (
                Ok(Decoded::Frame { frame, consumed }),
                Ok(Decoded::Frame { frame: expected, consumed: end }),
            ) => {
                assert_eq!((&frame, dropped + consumed), (expected, *end));
                return;
            }
            (Err(_), Err(_)) => return,
            (found, _) => panic!("{found:?} in pieces, {whole:?} at once"),
        }
    }
    let unfinished = matches!(whole, Ok(Decoded::Incomplete { .. } | Decoded::Gap { .. }));
    assert!(unfinished, "nothing in pieces, {whole:?} at once");
}

/// Plays `input` to a connection. Its first byte chooses how the server answers; the rest is what the client
/// sends. Every answer must be a frame of the connection's version.
pub fn fuzz_connection(input: &[u8]) {
    let Some((&choice, input)) = input.split_first() else {
        return;
    };
    let options = ConnectionOptions {
        trailing_lf: choice & 1 != 0,
        host_required: choice & 2 != 0,
        heart_beat: HeartBeat { send_ms: 30, receive_ms: 1 },
        ..ConnectionOptions::default()
    };
    let connection = Connection::new(LIMITS, options, 0);
    let mut server = Server { connection, choice, now: 0, out: Vec::new(), due: Vec::new(), sent: 0 };
    server.play(input);
    server.finish();
    let version = server.connection.version().unwrap_or(Version::V12);
    check_output(version, &server.out);
}

/// A server without a broker behind it: it echoes each message to every subscription.
struct Server {
    connection: Connection,
    choice: u8,
    now: u64,
    out: Vec<u8>,
    due: Vec<ReceiptTag>,
    sent: u64,
}

impl Server {
    fn play(&mut self, mut input: &[u8]) {
        let mut subscriptions = Vec::new();
        loop {
            self.now += 7;
            match self.connection.receive(input, self.now) {
                Ok(Received::Event { consumed, event }) => {
                    assert!((1..=input.len()).contains(&consumed));
                    self.answer(&event, &mut subscriptions);
                    input = &input[consumed..];
                }
                Ok(Received::Incomplete { needed }) => {
                    assert!(needed > input.len() && needed as u64 <= DECODE.frame_bytes_max());
                    return;
                }
                Ok(Received::Blocked) if !self.due.is_empty() => self.pay(),
                Ok(Received::Blocked) => return,
                Ok(Received::Over) => return,
                Err(violation) => return self.reject(&violation),
            }
            self.check_tables();
            if let Err(violation) = self.connection.check_deadline(&mut self.out, self.now) {
                return self.reject(&violation);
            }
        }
    }

    fn reject(&mut self, violation: &Violation) {
        self.connection.reject(&mut self.out, violation, self.now);
        assert_eq!(self.connection.receive(b"SEND\n\n\0", self.now), Ok(Received::Over));
    }

    /// Answers as a broker would, slowly if the choice says so.
    fn answer(&mut self, event: &Event<'_>, subscriptions: &mut Vec<SubscriptionTag>) {
        match event {
            Event::Connect(_) if self.choice & 4 != 0 => {
                let failure = Failure { message: "no\nroom", detail: "" };
                self.connection.fail(&mut self.out, None, &failure, self.now);
            }
            Event::Connect(_) => {
                let acceptance = Acceptance { session: 7, server: Some("fuzz/1") };
                assert_eq!(self.connection.accept(&mut self.out, &acceptance, self.now), Ok(()));
            }
            Event::Send(send) => {
                for &subscription in subscriptions.iter() {
                    self.sent += 1;
                    let delivery = Delivery { subscription, destination: &send.destination, tag: self.sent };
                    let headers = send.headers.user().map(|header| (header.name, header.value));
                    let _ = self.connection.message(&mut self.out, &delivery, headers, send.body);
                }
                self.settle(send.receipt);
            }
            Event::Subscribe(subscribe) => {
                subscriptions.push(subscribe.subscription);
                self.settle(subscribe.receipt);
            }
            Event::Unsubscribe { subscription, receipt, .. } => {
                subscriptions.retain(|open| open != subscription);
                self.settle(*receipt);
            }
            Event::Ack(ack) => {
                assert!(ack.transaction.is_some() || !self.connection.settled().is_empty());
                assert!(self.connection.settled().is_sorted());
                self.settle(ack.receipt);
            }
            Event::Begin { receipt, .. }
            | Event::End { receipt, .. }
            | Event::Decide { receipt, .. }
            | Event::Disconnect { receipt } => self.settle(*receipt),
            Event::HeartBeat => {}
        }
        if let [first, ..] = subscriptions[..] {
            assert!(matches!(
                self.connection.ack_mode(first),
                Some(AckMode::Auto | AckMode::Client | AckMode::ClientIndividual)
            ));
        }
    }

    /// Remembers a receipt, and writes all if the server is quick.
    fn settle(&mut self, receipt: Option<ReceiptTag>) {
        self.due.extend(receipt);
        if self.choice & 8 == 0 {
            self.pay();
        }
    }

    /// Processes the frames with receipts, the newest first.
    fn pay(&mut self) {
        for tag in core::mem::take(&mut self.due).into_iter().rev() {
            assert!(self.connection.receipt(&mut self.out, tag));
        }
    }

    fn check_tables(&self) {
        assert!(self.connection.receipts_pending() <= usize::from(LIMITS.receipts_max));
        assert!(self.connection.subscriptions() <= usize::from(LIMITS.subscriptions_max));
        assert!(self.connection.transactions() <= usize::from(LIMITS.transactions_max));
        assert!(self.connection.deliveries() <= LIMITS.deliveries_max as usize);
    }

    /// However the conversation has ended, it does not stay half closed.
    fn finish(&mut self) {
        let ending = !self.connection.is_open() && self.connection.deadline().is_some();
        if ending && self.connection.version().is_some() {
            self.now += u64::from(LIMITS.login_ms_max);
            if let Err(violation) = self.connection.check_deadline(&mut self.out, self.now) {
                self.connection.reject(&mut self.out, &violation, self.now);
            }
            assert!(self.connection.is_closed());
            assert_eq!(self.connection.deadline(), None);
        }
    }
}

/// Everything that was written is a sequence of whole frames that a server may send, and nothing follows ERROR.
fn check_output(version: Version, mut out: &[u8]) {
    let mut last = None;
    while !out.is_empty() {
        match decode_next(version, out, &DecodeLimits::UNBOUNDED) {
            Ok(Decoded::Frame { frame, consumed }) => {
                assert!(frame.command.is_from_server());
                assert_ne!(last, Some(crate::types::Command::Error), "{frame:?} after ERROR");
                last = Some(frame.command);
                out = &out[consumed..];
            }
            Ok(Decoded::Gap { consumed }) => out = &out[consumed..],
            other => panic!("the server wrote what no client can read: {other:?}"),
        }
    }
}
