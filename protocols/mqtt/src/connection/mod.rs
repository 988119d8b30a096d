//! The server's end of one network connection: what the conversation on the wire needs, and nothing of the
//! session.
//!
//! # Call order
//! 1. [`Connection::new`] when the network connection opens.
//! 2. [`Connection::receive`] with the bytes that have arrived, again and again: after an event, hand over
//!    the rest (`input[consumed..]`) at once; after `Incomplete` or `Blocked`, the same bytes with more
//!    behind them.
//! 3. After [`Event::Connect`]: [`Connection::accept`] or [`Connection::refuse`], with extended
//!    authentication any number of [`Connection::authenticate`] before. Until then `receive` reports
//!    `Blocked` for what the client sends ahead `[MQTT-3.1.4-5]`. A resumed session calls
//!    [`Connection::seed_inbound`] right before `accept`.
//! 4. Answers and messages through the writing methods, which append packets to a buffer of the caller. They
//!    give back the client's quota, so an acknowledgement is written through the connection that its message
//!    came from.
//! 5. [`Connection::check_deadline`] when [`Connection::deadline`] has passed. Both use the caller's
//!    monotonic clock in milliseconds.
//! 6. After a [`Violation`]: [`Connection::reject`], send what it wrote, close. To end a connection for
//!    another reason: [`Connection::disconnect`]. Both are final.
//!
//! # Bounds
//! A connection holds the packet identifiers in use, the topics of aliases and the authentication method; see
//! [`ConnectionLimits::heap_bytes_max`]. It holds no packet and no payload.

mod alias;
mod event;
mod inbound;
mod login;
mod outbound;

pub use event::{DuplicateAnswer, Event, InboundPublish, Received, TopicRef, Violation};
pub use login::Acceptance;
pub use outbound::SendError;

use crate::codec::{Frame, check_header, decode_body, peek};
use crate::limits::{ConnectionLimits, DecodeLimits};
use crate::packet::{Disconnect, Packet};
use crate::property::Properties;
use crate::types::{PacketType, Version};
use alias::{InboundAliases, OutboundAliases};
use alloc::boxed::Box;
use inbound::InboundIds;

/// Bytes of a large packet whose arrival counts as a sign of life.
const PROGRESS_BYTES_MIN: u32 = 1024;

/// How far the conversation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing but CONNECT is allowed `[MQTT-3.1.0-1]`.
    AwaitConnect,
    /// CONNECT has arrived and is not answered.
    Login,
    /// The client was accepted.
    Open,
    /// The conversation is over.
    Closed,
}

/// State of one network connection. The module's documentation says in which order to call its methods.
#[derive(Debug)]
pub struct Connection {
    limits: ConnectionLimits,
    phase: Phase,
    /// The version of CONNECT; the latest one before it.
    version: Version,
    /// Whether a CONNECT has named `version`.
    version_known: bool,
    /// Whether the last call of `receive` returned `Blocked`.
    blocked: bool,
    bridge: bool,
    /// Request Problem Information, always false before MQTT 5.0.
    problem_information: bool,
    response_information: bool,
    /// CONNECT left the session expiry interval at 0 (MQTT 5.0, 3.14.2.2.2).
    session_ends_with_connection: bool,
    /// The client goes on with a session that was there.
    resumed: bool,
    /// The opening of the connection until it is accepted, the last sign of life from then on.
    since_ms: u64,
    /// 1.5 times the keep alive; 0 switches supervision off.
    keep_alive_ms: u32,
    /// Bytes of an incomplete packet when they last counted as a sign of life.
    partial_bytes: u32,
    client_packet_bytes_max: u32,
    client_receive_maximum: u16,
    client_topic_alias_maximum: u16,
    inbound: InboundIds,
    extras: Option<Box<Extras>>,
}

/// What few connections use.
#[derive(Debug, Default)]
struct Extras {
    inbound_aliases: InboundAliases,
    outbound_aliases: OutboundAliases,
    authentication_method: Option<Box<str>>,
}

impl Connection {
    /// State for a connection that was opened at `now`, in milliseconds of a monotonic clock.
    pub fn new(limits: ConnectionLimits, now: u64) -> Connection {
        Connection {
            limits,
            phase: Phase::AwaitConnect,
            version: Version::V5,
            version_known: false,
            blocked: false,
            bridge: false,
            problem_information: false,
            response_information: false,
            session_ends_with_connection: false,
            resumed: false,
            since_ms: now,
            keep_alive_ms: 0,
            partial_bytes: 0,
            client_packet_bytes_max: u32::MAX,
            client_receive_maximum: u16::MAX,
            client_topic_alias_maximum: 0,
            inbound: InboundIds::new(),
            extras: None,
        }
    }

    /// Takes the packet that `input` starts with.
    ///
    /// # Errors
    /// A [`Violation`] ends the connection: hand it to [`Connection::reject`] and close. Size limits and the
    /// order of packets are checked as soon as the fixed header is there.
    #[inline]
    pub fn receive<'a>(&mut self, input: &'a [u8], now: u64) -> Result<Received<'a>, Violation> {
        let Some(frame) = peek(input, self.packet_bytes_max(input))? else {
            return Ok(Received::Incomplete { needed: input.len() + 1 });
        };
        if self.phase != Phase::Open && !self.admits(frame.packet_type)? {
            self.blocked = true;
            return Ok(Received::Blocked);
        }
        check_header(self.version, &frame)?;
        self.check_direction(frame.packet_type)?;
        let consumed = frame.total_len();
        let Some(body) = input.get(usize::from(frame.header_len)..consumed) else {
            self.note_progress(input.len(), now);
            return Ok(Received::Incomplete { needed: consumed });
        };
        // Each arm builds its outcome in place: moving a large enum costs more than decoding a small message.
        match frame.packet_type {
            PacketType::Publish => self.receive_publish(&frame, body, now),
            _ => self.receive_other(&frame, body, now),
        }
    }

    /// The topic name of a message, until the next call of [`Connection::receive`].
    ///
    /// # Panics
    /// If the message came from another connection.
    #[inline]
    pub fn topic<'t>(&'t self, topic: TopicRef<'t>) -> &'t str {
        match topic {
            TopicRef::Name(name) => name,
            TopicRef::Alias(alias) => {
                let extras = self.extras.as_deref().expect("receive hands out known aliases only");
                extras.inbound_aliases.topic(alias).expect("receive hands out known aliases only")
            }
        }
    }

    /// When [`Connection::check_deadline`] is to be called, in milliseconds: the end of the time for logging
    /// in, later 1.5 times the keep alive after the last packet `[MQTT-3.1.2-22]`. `None` if nothing is
    /// supervised, also while the client is `Blocked`: its PINGREQ may wait unread.
    #[inline]
    pub fn deadline(&self) -> Option<u64> {
        match self.phase {
            Phase::AwaitConnect | Phase::Login => {
                Some(self.since_ms.saturating_add(u64::from(self.limits.login_ms_max)))
            }
            Phase::Open if self.keep_alive_ms == 0 || self.blocked => None,
            Phase::Open => Some(self.since_ms.saturating_add(u64::from(self.keep_alive_ms))),
            Phase::Closed => None,
        }
    }

    /// Whether the client is still within its time.
    ///
    /// # Errors
    /// [`Violation::Timeout`] from the deadline on.
    #[inline]
    pub fn check_deadline(&self, now: u64) -> Result<(), Violation> {
        match self.deadline() {
            Some(deadline) if now >= deadline => Err(Violation::Timeout),
            _ => Ok(()),
        }
    }

    /// The version that CONNECT named, or the one nearest to a level that it named in vain; `None` before.
    #[inline]
    pub fn version(&self) -> Option<Version> {
        self.version_known.then_some(self.version)
    }

    /// Whether the client was accepted and the conversation goes on.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether CONNECT marked a bridge.
    pub fn is_bridge(&self) -> bool {
        self.bridge
    }

    /// Messages of QoS 1 and 2 that the client takes before it acknowledges one (MQTT 5.0, 3.1.2.11.3);
    /// 65,535 before MQTT 5.0. The session holds to it: its window outlives the connection.
    pub fn client_receive_maximum(&self) -> u16 {
        self.client_receive_maximum
    }

    /// Largest packet in bytes that the client takes (MQTT 5.0, 3.1.2.11.4).
    pub fn client_packet_bytes_max(&self) -> u32 {
        self.client_packet_bytes_max
    }

    /// Whether CONNACK may hold Response Information (MQTT 5.0, 3.1.2.11.6).
    pub fn wants_response_information(&self) -> bool {
        self.response_information
    }

    /// Whether answers may hold reason strings and user properties (MQTT 5.0, 3.1.2.11.7).
    pub fn wants_problem_information(&self) -> bool {
        self.problem_information
    }

    /// The end of a conversation in which something that must be said does not fit into the client's packets.
    pub fn too_small_a_client(&self) -> Violation {
        Violation::ClientPacketSize(self.client_packet_bytes_max)
    }

    /// Inbound messages that count against the client's quota now.
    pub fn inbound_in_flight(&self) -> u16 {
        self.inbound.in_flight()
    }

    /// The limit for the packet at the front of the input. What follows CONNECT waits for the answer in the
    /// driver's buffer and is held to the limit of its own time.
    #[inline]
    fn packet_bytes_max(&self, input: &[u8]) -> u32 {
        match self.phase {
            Phase::Open | Phase::Closed => self.limits.decode.packet_bytes_max,
            Phase::Login if input.first().is_some_and(|byte| byte >> 4 != PacketType::Auth as u8) => {
                self.limits.decode.packet_bytes_max
            }
            Phase::AwaitConnect | Phase::Login => self.limits.login_packet_bytes_max,
        }
    }

    /// Before the client is accepted: whether the packet is to be handled now (true) or later (false).
    #[cold]
    fn admits(&self, packet_type: PacketType) -> Result<bool, Violation> {
        match (self.phase, packet_type) {
            (Phase::AwaitConnect, PacketType::Connect) => Ok(true),
            (Phase::AwaitConnect, other) => Err(Violation::NotConnected(other)),
            (Phase::Login, PacketType::Connect) => Err(Violation::SecondConnect),
            (Phase::Login, PacketType::Auth | PacketType::Disconnect) => Ok(true),
            // [MQTT-3.1.2-30]
            (Phase::Login, other) if self.authentication_method().is_some() => {
                Err(Violation::Unexpected(other))
            }
            (Phase::Login, _) => Ok(false),
            (Phase::Open, _) => Ok(true),
            (Phase::Closed, _) => Err(Violation::Closed),
        }
    }

    /// A client may not send what only a server sends, nor CONNECT twice `[MQTT-3.1.0-2]`: known from the
    /// fixed header.
    #[inline]
    fn check_direction(&self, packet_type: PacketType) -> Result<(), Violation> {
        match packet_type {
            PacketType::Connect if self.phase == Phase::Open => Err(Violation::SecondConnect),
            PacketType::Connack | PacketType::Suback | PacketType::Unsuback | PacketType::Pingresp => {
                Err(Violation::Unexpected(packet_type))
            }
            _ => Ok(()),
        }
    }

    /// Lets the arrival of a large packet's parts count as a sign of life: on a slow link one packet may take
    /// longer than the keep alive.
    #[cold]
    fn note_progress(&mut self, bytes: usize, now: u64) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if self.phase == Phase::Open && bytes >= self.partial_bytes.saturating_add(PROGRESS_BYTES_MIN) {
            self.partial_bytes = bytes;
            self.since_ms = now;
        }
    }

    /// A packet was taken: the client is alive and not blocked.
    #[inline]
    fn note_packet(&mut self, now: u64) {
        if self.phase == Phase::Open {
            self.since_ms = now;
        }
        self.partial_bytes = 0;
        self.blocked = false;
    }

    fn receive_other<'a>(
        &mut self,
        frame: &Frame,
        body: &'a [u8],
        now: u64,
    ) -> Result<Received<'a>, Violation> {
        let event = match frame.packet_type {
            PacketType::Connect => self.connect_received(frame, body)?,
            _ => self.other_received(frame, body)?,
        };
        self.note_packet(now);
        Ok(Received::Event { consumed: frame.total_len(), event })
    }

    /// Handles a packet other than CONNECT and PUBLISH.
    fn other_received<'a>(&mut self, frame: &Frame, body: &'a [u8]) -> Result<Event<'a>, Violation> {
        match decode_body(self.version, frame, body, &self.limits.decode)? {
            Packet::Puback(ack) => Ok(Event::Puback(ack)),
            Packet::Pubrec(ack) => Ok(Event::Pubrec(ack)),
            Packet::Pubcomp(ack) => Ok(Event::Pubcomp(ack)),
            Packet::Pubrel(ack) => match self.inbound.release(ack.packet_id) {
                Some(known) => Ok(Event::Pubrel { ack, known }),
                None => Err(Violation::Unexpected(PacketType::Pubrel)),
            },
            Packet::Subscribe(subscribe) => Ok(Event::Subscribe(subscribe)),
            Packet::Unsubscribe(unsubscribe) => Ok(Event::Unsubscribe(unsubscribe)),
            Packet::Pingreq => {
                // A client pings when it has nothing else to say.
                self.inbound.release_memory();
                Ok(Event::Ping)
            }
            Packet::Disconnect(disconnect) => self.disconnect_received(disconnect),
            Packet::Auth(auth) => self.auth_received(auth),
            other => Err(unexpected(&other)),
        }
    }

    fn disconnect_received<'a>(
        &mut self,
        disconnect: Disconnect<Properties<'a>>,
    ) -> Result<Event<'a>, Violation> {
        let expiry = disconnect.properties.session_expiry_interval().unwrap_or(0);
        if expiry != 0 && self.session_ends_with_connection {
            return Err(Violation::SessionExpiry);
        }
        self.phase = Phase::Closed;
        Ok(Event::Disconnect(disconnect))
    }

    /// Decoder limits of the login: those of the connection with the smaller packet.
    fn login_limits(&self) -> DecodeLimits {
        DecodeLimits { packet_bytes_max: self.limits.login_packet_bytes_max, ..self.limits.decode }
    }

    fn extras(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }
}

fn unexpected(packet: &Packet<'_>) -> Violation {
    Violation::Unexpected(packet.packet_type())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Connection>() <= 200, "{} bytes", size_of::<Connection>());
    }
}
