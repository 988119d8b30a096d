//! The link's state machine. Pure: no socket, no clock, no thread; random numbers come from a seed.
//!
//! ```text
//! Idle -> Resolving -> Connecting -> Handshake [-> Subscribing] -> Up
//!            ^                 any failure, at any point            |
//!            +------------------- Backoff <-------------------------+
//! ```
//! A driver calls, in this order and for ever: a `handle_*` for whatever happened; then [`Link::poll_transport`],
//! [`Link::poll_local`], [`Link::poll_send`] (as long as its write buffer has room) and [`Link::poll_notice`] until each says
//! `None`; then it waits for the next event, at most until [`Link::next_deadline`], and reads the socket only while
//! [`Link::wants_read`].
//!
//! Invariants: a delivery is settled on the upstream's acknowledgement or given up and counted, never otherwise; nothing is
//! published before SUBACK; an inbound message is acknowledged after the local broker answered; a packet that answers nothing
//! changes nothing.
//!
//! Bounds: the window, the inbound window, [`QOS0_WAITING_MAX`] messages of QoS 0, [`NOTICES_MAX`] notices,
//! [`LOCAL_COMMANDS_HIGH`] commands plus what one read brings.

mod inflow;
mod outflow;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::num::NonZeroU16;

use super::backoff::{Backoff, Ended};
use super::inbound::Inbound;
use super::rules::{Direction, RuleSet};
use super::status::{LinkCounters, LinkSnapshot, LinkState, wall_at};
use super::window::Window;
use super::wire::{ConnAck, Incoming, Outgoing, SESSION_TAKEN_OVER};
use super::{LinkConfig, QOS0_WAITING_MAX};
use crate::broker::api::{ClientCommand, CloseReason, Delivery, Refusal};
use crate::time::{Mono, Now};

/// Notices that wait for the log; beyond it new ones are dropped.
pub const NOTICES_MAX: usize = 64;
/// Commands for the local broker that wait for a place in its port, from which on the upstream is not read.
pub const LOCAL_COMMANDS_HIGH: usize = 1024;
/// The patience for acknowledgements grows up to this multiple of the configured one.
const PATIENCE_FACTOR_MAX: u64 = 8;

/// What to do with the upstream connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Give up whatever is there and open a connection to the address with this index.
    Connect(usize),
    /// Give up whatever is there.
    Close,
}

/// Something that an operator may want to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Messages flow.
    Up,
    /// An attempt or a connection ended.
    Down {
        /// Why.
        why: String,
        /// The next attempt starts after so many milliseconds.
        pause_millis: u64,
        /// The attempt before ended for the same reason.
        repeated: bool,
    },
    /// Connections do not last.
    Alarm,
    /// A message was given up.
    Parked {
        /// Its topic at the local broker.
        topic: String,
        /// Why.
        why: String,
    },
    /// The upstream refused a filter.
    FilterRefused {
        /// The filter, as the upstream got it.
        filter: String,
        /// Reason code.
        code: u8,
    },
    /// The local broker refused a filter.
    LocalFilterRefused {
        /// The filter.
        filter: String,
    },
    /// A message came back; it was dropped.
    Loop {
        /// Its topic at the upstream.
        topic: String,
    },
}

/// Why the attachment to the local broker is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detached {
    /// The session was refused.
    Refused(Refusal),
    /// The broker ended it.
    Closed(CloseReason),
}

/// What one upstream connection has agreed on and where it stands.
#[derive(Clone, Debug, Default)]
struct Connection {
    accepted_at: Option<Mono>,
    packet_bytes_max: u32,
    no_retain: bool,
    keep_alive_millis: u64,
    subscribe_id: Option<NonZeroU16>,
    last_sent: Mono,
    last_received: Mono,
    ping_sent: Option<Mono>,
    /// When an acknowledgement came last, or the wait for one began.
    progress_at: Mono,
    progressed: bool,
}

/// One link.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    out_rules: RuleSet,
    in_rules: RuleSet,
    state: LinkState,
    address: usize,
    backoff: Backoff,
    window: Window,
    inbound: Inbound,
    qos0: VecDeque<Delivery>,
    connection: Connection,
    phase_deadline: Option<Mono>,
    patience_millis: u64,
    packets: VecDeque<Outgoing>,
    locals: VecDeque<ClientCommand>,
    transport: Option<Transport>,
    notices: VecDeque<Notice>,
    counters: LinkCounters,
    last_error: Option<String>,
    closing: bool,
}

impl Link {
    /// A link that is not attached yet. `seed` feeds the jitter of its pauses.
    #[must_use]
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        let backoff = Backoff::new(
            config.backoff_min_millis,
            config.backoff_max_millis,
            config.stable_after_millis,
            seed,
        );
        Self {
            out_rules: RuleSet::new(Direction::Out, &config.out),
            in_rules: RuleSet::new(Direction::In, &config.inbound),
            state: LinkState::Idle,
            address: 0,
            backoff,
            window: Window::new(config.window, config.inflight_bytes_max),
            inbound: Inbound::new(config.inbound_window, config.inflight_bytes_max),
            qos0: VecDeque::new(),
            connection: Connection::default(),
            phase_deadline: None,
            patience_millis: config.ack_timeout_millis,
            packets: VecDeque::new(),
            locals: VecDeque::new(),
            transport: None,
            notices: VecDeque::new(),
            counters: LinkCounters::default(),
            last_error: None,
            closing: false,
            config,
        }
    }

    /// The upstream's name is resolved; the connection is being opened.
    pub fn handle_connecting(&mut self) {
        if self.state == LinkState::Resolving {
            self.state = LinkState::Connecting;
        }
    }

    /// The connection is open, TLS included.
    pub fn handle_connected(&mut self, now: Now) {
        if !matches!(self.state, LinkState::Resolving | LinkState::Connecting) {
            return;
        }
        self.state = LinkState::Handshake;
        self.connection =
            Connection { last_sent: now.mono, last_received: now.mono, ..Connection::default() };
        self.phase_deadline = Some(now.mono.plus_millis(self.config.connect_timeout_millis));
        self.packets.push_back(Outgoing::Connect { clean_start: self.in_rules.is_empty() });
    }

    /// The attempt failed or the connection broke.
    pub fn handle_lost(&mut self, why: String, now: Now) {
        self.fail(why, false, now);
    }

    /// A packet from the upstream.
    pub fn handle_packet(&mut self, packet: Incoming, now: Now) {
        self.connection.last_received = now.mono;
        self.connection.ping_sent = None;
        match (self.state, packet) {
            (LinkState::Handshake, Incoming::ConnAck(ack)) => self.on_connack(ack, now),
            (LinkState::Subscribing | LinkState::Up, packet) => self.on_packet(packet, now),
            (LinkState::Handshake, other) => {
                self.fail(
                    format!("the upstream sent {} before its answer to CONNECT", kind(&other)),
                    false,
                    now,
                );
            }
            // A rest of a connection that was given up.
            _ => {}
        }
    }

    fn on_packet(&mut self, packet: Incoming, now: Now) {
        match packet {
            Incoming::PubAck { id, reason } => self.on_puback(id, reason, now),
            Incoming::Publish(publish) => self.on_publish(publish, now),
            Incoming::PubRel { id } => self.packets.push_back(Outgoing::PubComp { id }),
            Incoming::SubAck { id, codes } => self.on_suback(id, &codes, now),
            Incoming::Disconnect { reason, text } => {
                let why = format!("the upstream ended the connection: reason 0x{reason:02x} {text}");
                self.fail(why.trim_end().to_owned(), reason == SESSION_TAKEN_OVER, now);
            }
            Incoming::Stray => self.counters.stray_acks += 1,
            Incoming::Pong => {}
            Incoming::ConnAck(_) => self.fail("the upstream answered CONNECT twice".to_owned(), false, now),
        }
    }

    fn on_connack(&mut self, ack: ConnAck, now: Now) {
        if let Some(why) = ack.refused {
            return self.fail(format!("the upstream refused the connection: {why}"), false, now);
        }
        if ack.qos_max == Some(0) && !self.out_rules.is_empty() {
            let why = "the upstream takes only QoS 0, which would lose messages".to_owned();
            return self.fail(why, false, now);
        }
        self.counters.connects += 1;
        // A server keep-alive of 0 switches off the server's check, not ours.
        let server = ack.keep_alive_secs.filter(|secs| *secs > 0).unwrap_or(u16::MAX);
        self.connection = Connection {
            accepted_at: Some(now.mono),
            packet_bytes_max: ack.packet_bytes_max.unwrap_or(u32::MAX).min(self.config.packet_bytes_max),
            no_retain: ack.no_retain,
            keep_alive_millis: u64::from(server.min(self.config.keep_alive_secs)) * 1000,
            ..self.connection.clone()
        };
        self.window.rewind(self.config.window.min(ack.receive_max.unwrap_or(u16::MAX)));
        if self.in_rules.is_empty() {
            return self.go_up(now);
        }
        let id = self.window.free_id();
        self.connection.subscribe_id = Some(id);
        self.packets.push_back(Outgoing::Subscribe { id });
        self.state = LinkState::Subscribing;
        self.phase_deadline = Some(now.mono.plus_millis(self.config.ack_timeout_millis));
    }

    fn on_suback(&mut self, id: u16, codes: &[u8], now: Now) {
        if self.state != LinkState::Subscribing
            || self.connection.subscribe_id.is_none_or(|own| own.get() != id)
        {
            self.counters.stray_acks += 1;
            return;
        }
        let refused: Vec<(String, u8)> = self
            .in_rules
            .subscriptions()
            .zip(codes)
            .filter(|(_, code)| **code >= 0x80)
            .map(|((filter, _), code)| (filter.to_owned(), *code))
            .collect();
        self.counters.subscribe_refused += refused.len() as u64;
        let useless = self.out_rules.is_empty() && refused.len() == self.in_rules.subscriptions().len();
        for (filter, code) in refused {
            self.notice(Notice::FilterRefused { filter, code });
        }
        if useless {
            return self.fail("the upstream refused every filter".to_owned(), false, now);
        }
        self.go_up(now);
    }

    fn go_up(&mut self, now: Now) {
        self.state = LinkState::Up;
        self.phase_deadline = None;
        self.connection.progress_at = now.mono;
        self.publish_state(true, now);
        self.notice(Notice::Up);
    }

    /// A deadline may have passed.
    pub fn handle_timeout(&mut self, now: Now) {
        self.excuse_upstream(now);
        let due = self.phase_deadline.is_some_and(|at| at <= now.mono);
        match self.state {
            LinkState::Backoff if due => self.start_attempt(),
            LinkState::Handshake if due => {
                let millis = self.config.connect_timeout_millis;
                self.fail(format!("the upstream did not answer CONNECT within {millis} ms"), false, now);
            }
            LinkState::Subscribing if due => {
                let millis = self.config.ack_timeout_millis;
                self.fail(format!("the upstream did not answer SUBSCRIBE within {millis} ms"), false, now);
            }
            LinkState::Subscribing | LinkState::Up => self.check_liveness(now),
            _ => {}
        }
        self.offer_held(now);
    }

    fn check_liveness(&mut self, now: Now) {
        if self.backoff.is_grown() {
            let lived = self.connection.accepted_at.map_or(0, |at| now.mono.millis_since(at));
            if lived >= self.backoff.stable_millis() {
                self.backoff.settle();
            }
        }
        if self.ack_deadline().is_some_and(|at| at <= now.mono) {
            return self.fail_stalled(now);
        }
        if let Some(sent) = self.connection.ping_sent {
            if sent.plus_millis(self.config.ack_timeout_millis) <= now.mono {
                let millis = self.config.ack_timeout_millis;
                self.fail(format!("the upstream did not answer PINGREQ within {millis} ms"), false, now);
            }
        } else if self.ping_at() <= now.mono {
            self.connection.ping_sent = Some(now.mono);
            self.packets.push_back(Outgoing::Ping);
        }
    }

    /// While the upstream is not read, its answers may lie unread: that wait is ours and is not held against it.
    fn excuse_upstream(&mut self, now: Now) {
        if !self.wants_read() {
            self.connection.progress_at = now.mono;
            self.connection.last_received = now.mono;
            self.connection.ping_sent = self.connection.ping_sent.map(|_| now.mono);
        }
    }

    fn fail_stalled(&mut self, now: Now) {
        let millis = self.patience_millis;
        if !self.connection.progressed {
            // An upstream that is merely slower than our patience must get through some day.
            let most = self.config.ack_timeout_millis.saturating_mul(PATIENCE_FACTOR_MAX);
            self.patience_millis = self.patience_millis.saturating_mul(2).min(most);
        }
        self.fail(format!("the upstream acknowledged nothing for {millis} ms"), false, now);
    }

    /// The local broker's answer made room, or a pause is over.
    fn offer_held(&mut self, now: Now) {
        for (tag, message) in self.inbound.retry(now.mono) {
            self.publish_local(tag, message);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Mono> {
        let live = matches!(self.state, LinkState::Subscribing | LinkState::Up);
        let ping = self.connection.ping_sent.map(|at| at.plus_millis(self.config.ack_timeout_millis));
        let stable = self.connection.accepted_at.filter(|_| self.backoff.is_grown());
        [
            self.phase_deadline,
            self.inbound.retry_at(),
            self.ack_deadline().filter(|_| live),
            live.then(|| ping.unwrap_or_else(|| self.ping_at())),
            stable.map(|at| at.plus_millis(self.backoff.stable_millis())).filter(|_| live),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn ack_deadline(&self) -> Option<Mono> {
        (self.window.in_flight() > 0).then(|| self.connection.progress_at.plus_millis(self.patience_millis))
    }

    /// A ping is due when either direction was silent for three quarters of the keep-alive interval: the one side keeps the
    /// upstream content, the other finds out that it is gone.
    fn ping_at(&self) -> Mono {
        let since = self.connection.last_sent.min(self.connection.last_received);
        since.plus_millis(self.connection.keep_alive_millis / 4 * 3)
    }

    fn start_attempt(&mut self) {
        self.state = LinkState::Resolving;
        self.phase_deadline = None;
        self.transport = Some(Transport::Connect(self.address));
    }

    fn fail(&mut self, why: String, taken_over: bool, now: Now) {
        if matches!(self.state, LinkState::Idle | LinkState::Backoff) {
            return;
        }
        self.counters.failures += 1;
        let lived = self.connection.accepted_at.map(|at| now.mono.millis_since(at));
        let ended = match lived {
            _ if taken_over => Ended::TakenOver,
            None => Ended::Refused,
            Some(millis) => Ended::Lived(millis),
        };
        let had_alarm = self.backoff.alarm();
        self.close_connection(now);
        let pause_millis = self.next_address(ended);
        if self.backoff.alarm() && !had_alarm {
            self.notice(Notice::Alarm);
        }
        let repeated = self.last_error.as_ref() == Some(&why);
        self.last_error = Some(why.clone());
        self.notice(Notice::Down { why, pause_millis, repeated });
        self.state = LinkState::Backoff;
        self.phase_deadline = Some(now.mono.plus_millis(pause_millis));
    }

    /// Chooses the next address and the pause before it, in milliseconds.
    fn next_address(&mut self, ended: Ended) -> u64 {
        let next = (self.address + 1) % self.config.addresses.len().max(1);
        match ended {
            Ended::Lived(millis) if millis >= self.backoff.stable_millis() => {
                self.address = 0;
                self.backoff.pause(ended)
            }
            // Nothing answers here: go through the list before pausing.
            Ended::Refused if next != 0 => {
                self.address = next;
                0
            }
            _ => {
                self.address = next;
                self.backoff.pause(ended)
            }
        }
    }

    fn close_connection(&mut self, now: Now) {
        if self.state == LinkState::Up {
            self.publish_state(false, now);
        }
        self.transport = Some(Transport::Close);
        self.packets.clear();
        self.counters.qos0_dropped += self.qos0.len() as u64;
        self.qos0.clear();
        self.window.rewind(self.config.window);
        self.inbound.connection_ended();
        self.connection = Connection::default();
    }

    /// No new message is sent any more; see [`is_quiet`](Self::is_quiet).
    pub fn begin_shutdown(&mut self) {
        self.closing = true;
    }

    /// Nothing is under way in either direction: stopping now repeats nothing.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.state != LinkState::Up || (self.window.in_flight() == 0 && self.inbound.waiting() == 0)
    }

    /// Says goodbye on both sides. Only `poll_*` calls may follow.
    pub fn finish_shutdown(&mut self, now: Now) {
        if self.state != LinkState::Idle {
            self.publish_state(false, now);
        }
        self.locals.push_back(ClientCommand::Disconnect { with_will: false, expiry: None });
        if matches!(self.state, LinkState::Up | LinkState::Subscribing) {
            self.packets.push_back(Outgoing::Disconnect);
        }
        self.state = LinkState::Idle;
        self.phase_deadline = None;
    }

    /// What to do with the connection.
    pub fn poll_transport(&mut self) -> Option<Transport> {
        self.transport.take()
    }

    /// The next command for the local broker.
    pub fn poll_local(&mut self) -> Option<ClientCommand> {
        self.locals.pop_front()
    }

    /// The next thing to log.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// More from the upstream can be taken now.
    #[must_use]
    pub fn wants_read(&self) -> bool {
        !self.inbound.pauses_reading() && self.locals.len() < LOCAL_COMMANDS_HIGH
    }

    /// Where the link is.
    #[must_use]
    pub fn state(&self) -> LinkState {
        self.state
    }

    /// The upstream's bound on a packet, ours included, in bytes.
    #[must_use]
    pub fn packet_bytes_max(&self) -> u32 {
        match self.connection.packet_bytes_max {
            0 => self.config.packet_bytes_max,
            bytes => bytes,
        }
    }

    /// Renews what other threads see.
    pub fn report(&self, snapshot: &mut LinkSnapshot, now: Now) {
        let address = self.config.addresses.get(self.address);
        if snapshot.state != self.state || snapshot.last_error != self.last_error {
            snapshot.address = address.map(ToString::to_string).unwrap_or_default();
            snapshot.last_error.clone_from(&self.last_error);
        }
        let up = self.connection.accepted_at.filter(|_| self.state == LinkState::Up);
        snapshot.state = self.state;
        if up.is_some() != snapshot.connected_since_millis.is_some() {
            snapshot.connected_since_millis = up.map(|at| wall_at(now, at).0);
        }
        let pause = self.phase_deadline.filter(|_| self.state == LinkState::Backoff);
        snapshot.backoff_until_millis = pause.map(|at| wall_at(now, at).0);
        snapshot.unsettled = self.window.unsettled() as u64;
        snapshot.in_flight = self.window.in_flight() as u64;
        snapshot.alarm = self.backoff.alarm();
        snapshot.counters = self.counters;
    }

    fn notice(&mut self, notice: Notice) {
        if self.notices.len() < NOTICES_MAX {
            self.notices.push_back(notice);
        }
    }
}

fn kind(packet: &Incoming) -> &'static str {
    match packet {
        Incoming::ConnAck(_) => "CONNACK",
        Incoming::SubAck { .. } => "SUBACK",
        Incoming::Publish(_) => "PUBLISH",
        Incoming::PubAck { .. } => "PUBACK",
        Incoming::PubRel { .. } => "PUBREL",
        Incoming::Pong => "PINGRESP",
        Incoming::Disconnect { .. } => "DISCONNECT",
        Incoming::Stray => "an acknowledgement",
    }
}
