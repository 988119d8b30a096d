//! The translator between STOMP and the broker: the only place that knows both.
//!
//! A connection's conversation (versions, limits, receipts in order, heart-beats, which messages are unacknowledged) is kept by
//! [`tidegate_stomp::Connection`]; sessions, queues and messages are kept by the broker. A connection has a session of the broker
//! that ends with it, and one more, a *branch*, for each durable subscription that it consumes.
//!
//! What asks for a receipt is answered when the broker has answered it, which it does when what was asked for is durable. In
//! `auto` mode a message is settled when the socket has taken its last byte: what a dead peer did not get goes to the next.
//!
//! Bounds: at most [`Limits::receive_max`] messages of a client are unanswered, then it is not read; what it has subscribed to and
//! not acknowledged is bounded by the connection's limits.

mod crossing;
mod destination;
mod inbound;
mod outbound;
mod selecting;
mod settling;
mod subscriptions;
mod transactions;
mod work;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tidegate_stomp::connection::{ReceiptTag, Received, SubscriptionTag, Violation};
use tidegate_stomp::{
    Connection, ConnectionLimits, ConnectionOptions, ConnectionSettings, DecodeError, DecodeLimits,
};
use tracing::debug;

use crate::broker::api::{ClientCommand, ClientEvent, ConnId, ConnectRequest, ReplyTag};
use crate::limits::Limits;
use crate::net::adapter::{Credentials, Step};
use crate::net::origin::Origin;
use crate::net::traffic::Traffic;
use crate::time::{Mono, Now};
pub(in crate::net) use outbound::Writer;
use work::Work;

/// What CONNECTED says of the server.
const SERVER: &str = concat!("tidegate/", env!("CARGO_PKG_VERSION"));
/// Header lines of a frame.
const HEADERS_MAX: u16 = 100;
/// Bytes of all header lines of a frame.
const HEADER_BYTES_MAX: u32 = 64 << 10;
/// Bytes of one header line.
const HEADER_LINE_BYTES_MAX: u32 = 16 << 10;
/// Bytes of the header lines of CONNECT.
const LOGIN_HEADER_BYTES_MAX: u32 = 8 << 10;
/// Subscriptions of one connection.
const SUBSCRIPTIONS_MAX: u16 = 1024;
/// Messages of one connection that are sent and not acknowledged, over all its subscriptions.
const DELIVERIES_MAX: u32 = 16 << 10;
/// How long the last receipts may take, in milliseconds.
const CLOSING_MILLIS_MAX: u32 = 1_500;

/// What a client that just closes its side would have said.
const GOODBYE: &[u8] = b"DISCONNECT\n\n\0";

/// A command for the broker, and the branch that it is for; 0 is the connection itself.
pub(in crate::net) type Routed = (u32, ClientCommand);

/// One client's STOMP conversation.
#[derive(Debug)]
pub(in crate::net) struct Adapter {
    connection: Connection,
    /// The broker's name for the client; empty before it has one.
    client: Box<str>,
    work: Work,
    /// Messages among what the broker has not answered yet.
    publishing: u32,
    publishing_max: u32,
    /// Subscriptions among them.
    subscribing: u16,
    last_tag: u16,
    /// A login that is to be taken on.
    login: Option<Box<(Credentials, Box<ConnectRequest>)>>,
    /// The deadline is another one than before.
    deadline_moved: bool,
}

/// A command without an answer.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    branch: u32,
    tag: ReplyTag,
    receipt: Option<ReceiptTag>,
    what: Asked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Publish,
    Subscribe(SubscriptionTag),
    /// A branch has to be there first.
    Open(SubscriptionTag),
    Other,
}

impl Asked {
    fn is_subscription(self) -> bool {
        matches!(self, Asked::Subscribe(_) | Asked::Open(_))
    }
}

/// What all connections share: the protocol's settings, without and with a line feed behind each frame.
#[derive(Clone, Debug)]
pub(in crate::net) struct Shared([Arc<ConnectionSettings>; 2]);

impl Shared {
    /// For connections with these limits.
    pub(in crate::net) fn new(limits: &Limits) -> Self {
        let limits = connection_limits(limits);
        Self([false, true].map(|trailing_lf| {
            let options = ConnectionOptions { trailing_lf, ..ConnectionOptions::default() };
            Arc::new(ConnectionSettings { limits, options })
        }))
    }
}

fn connection_limits(limits: &Limits) -> ConnectionLimits {
    let defaults = ConnectionLimits::default();
    ConnectionLimits {
        decode: DecodeLimits {
            header_line_bytes_max: HEADER_LINE_BYTES_MAX,
            header_bytes_max: HEADER_BYTES_MAX,
            headers_max: HEADERS_MAX,
            body_bytes_max: limits.packet_bytes_max,
            ..defaults.decode
        },
        login: DecodeLimits {
            header_line_bytes_max: LOGIN_HEADER_BYTES_MAX.min(limits.packet_bytes_before_login_max),
            header_bytes_max: LOGIN_HEADER_BYTES_MAX.min(limits.packet_bytes_before_login_max),
            ..defaults.login
        },
        login_ms_max: limits.login_millis_max,
        closing_ms_max: CLOSING_MILLIS_MAX,
        subscriptions_max: SUBSCRIPTIONS_MAX,
        deliveries_max: DELIVERIES_MAX,
        ..defaults
    }
}

impl Adapter {
    /// For a connection that was just accepted.
    pub(in crate::net) fn new(shared: &Shared, limits: &Limits, origin: &Origin, now: Now) -> Self {
        let settings = Arc::clone(&shared.0[usize::from(origin.trailing_lf)]);
        Self {
            connection: Connection::sharing(settings, now.mono.as_millis()),
            client: Box::default(),
            work: Work::default(),
            publishing: 0,
            publishing_max: limits.receive_max.into(),
            subscribing: 0,
            last_tag: 0,
            login: None,
            deadline_moved: false,
        }
    }

    /// Takes the frame at the front of `input`; answers that need no broker go to `answers`. `shared` is the buffer that holds
    /// `input`, if a large message may share it.
    pub(in crate::net) fn next(
        &mut self,
        input: &[u8],
        shared: Option<&Bytes>,
        now: Now,
        answers: &mut Vec<u8>,
        traffic: &mut Traffic,
    ) -> Step {
        if let Some(step) = self.next_command(0) {
            return step;
        }
        if self.connection.is_closed() {
            return Step::End;
        }
        if self.must_wait() && !input.is_empty() && self.connection.is_open() {
            return Step::Blocked;
        }
        match self.connection.receive(input, now.mono.as_millis()) {
            Ok(Received::Event { consumed, event }) => {
                self.event(event, shared, now, answers, traffic);
                if let Some(login) = self.login.take() {
                    let (credentials, request) = *login;
                    return Step::Login { used: consumed, credentials, request };
                }
                self.next_command(consumed).unwrap_or(Step::Answered { used: consumed })
            }
            Ok(Received::Incomplete { needed }) => Step::Incomplete { need: needed },
            Ok(Received::Blocked) => Step::Blocked,
            Ok(Received::Over) if input.is_empty() => Step::Incomplete { need: 1 },
            Ok(Received::Over) => Step::Answered { used: input.len() },
            Err(violation) => {
                count_violation(&violation, traffic);
                debug!(%violation, "connection ends: the peer broke the protocol");
                self.connection.reject(answers, &violation, now.mono.as_millis());
                self.deadline_moved = true;
                if self.connection.is_closed() { Step::End } else { Step::Answered { used: input.len() } }
            }
        }
    }

    /// Too many messages have no answer, or whether a durable subscription exists is not known: if not, nothing that follows it counts.
    fn must_wait(&self) -> bool {
        let opens = |asked: &Waiting| matches!(asked.what, Asked::Open(_));
        self.publishing >= self.publishing_max
            || (self.subscribing > 0 && self.work.waiting.iter().any(opens))
    }

    fn next_command(&mut self, used: usize) -> Option<Step> {
        let commands = &mut self.work.begun()?.commands;
        let (branch, command) = commands.pop_front()?;
        if commands.is_empty() {
            *commands = VecDeque::new();
        }
        Some(match branch {
            0 => Step::Command { used, command },
            branch => Step::Branch { used, branch, command },
        })
    }

    /// When [`check_deadline`](Self::check_deadline) is due; `None`: nothing is to be done by then.
    pub(in crate::net) fn deadline(&self) -> Option<Mono> {
        self.connection.deadline().map(|millis| Mono(millis.saturating_mul(1000)))
    }

    /// The deadline, if it is another one since the last call.
    pub(in crate::net) fn moved_deadline(&mut self) -> Option<Mono> {
        if std::mem::take(&mut self.deadline_moved) { self.deadline() } else { None }
    }

    /// The client has logged in.
    pub(in crate::net) fn is_open(&self) -> bool {
        self.connection.is_open()
    }

    /// Does what is due. `excused`: the client's silence does not count, since it may not have been read. `false`: the
    /// conversation is over.
    pub(in crate::net) fn check_deadline(
        &mut self,
        excused: bool,
        now: Now,
        answers: &mut Vec<u8>,
        traffic: &mut Traffic,
    ) -> bool {
        let millis = now.mono.as_millis();
        if excused {
            self.connection.pause();
        }
        let checked = self.connection.check_deadline(answers, millis);
        if excused {
            self.connection.resume(millis);
        }
        if let Err(violation) = checked {
            let open = self.connection.is_open();
            *(if open { &mut traffic.keep_alive_timeouts } else { &mut traffic.login_timeouts }) += 1;
            self.connection.reject(answers, &violation, millis);
        }
        !self.connection.is_closed()
    }

    /// The hub's names of the branches.
    pub(in crate::net) fn branches(&mut self) -> &mut BTreeMap<u32, ConnId> {
        &mut self.work.branches
    }

    /// The broker has just refused what was asked last, as `refusal` will answer: nothing that follows is heard.
    pub(in crate::net) fn refused(&mut self, refusal: &ClientEvent, now: Now, answers: &mut Vec<u8>) {
        if let Some(message) = outbound::fault(refusal) {
            let receipt = self.work.waiting.back().and_then(|asked| asked.receipt);
            self.fail(receipt, &inbound::Refused::because(message), now, answers);
        }
    }

    /// Bytes have arrived, perhaps in the middle of a frame: the client is alive.
    pub(in crate::net) fn heard(&mut self, now: Now) {
        self.connection.resume(now.mono.as_millis());
    }

    /// The client has said all: it is read to its end as if it had said goodbye, and still gets its receipts. `false`: it has none
    /// to get.
    pub(in crate::net) fn said_all(&mut self, now: Now) -> bool {
        if self.work.waiting.iter().all(|asked| asked.receipt.is_none()) {
            return false;
        }
        let goodbye = self.connection.receive(GOODBYE, now.mono.as_millis());
        self.deadline_moved = true;
        goodbye.is_ok() && !self.connection.is_closed()
    }

    /// Notes what the broker is asked, to be answered under the tag that is returned.
    fn ask(&mut self, branch: u32, receipt: Option<ReceiptTag>, what: Asked) -> ReplyTag {
        self.last_tag = self.last_tag.checked_add(1).unwrap_or(1);
        let tag = ReplyTag(self.last_tag);
        self.publishing += u32::from(what == Asked::Publish);
        self.subscribing += u16::from(what.is_subscription());
        self.work.waiting.push_back(Waiting { branch, tag, receipt, what });
        tag
    }

    /// What was asked under this tag. Answers come in order, but for those of branches.
    fn answered(&mut self, branch: u32, tag: ReplyTag) -> Option<Waiting> {
        let at = self.work.waiting.iter().position(|asked| asked.tag == tag && asked.branch == branch)?;
        let asked = self.work.waiting.remove(at)?;
        self.publishing -= u32::from(asked.what == Asked::Publish);
        self.subscribing -= u16::from(asked.what.is_subscription());
        if self.work.waiting.is_empty() {
            self.work.waiting = VecDeque::new();
        }
        Some(asked)
    }
}

fn count_violation(violation: &Violation, traffic: &mut Traffic) {
    match violation {
        Violation::Decode(DecodeError::LimitExceeded(_)) => traffic.packet_too_large += 1,
        _ => traffic.malformed += 1,
    }
}
