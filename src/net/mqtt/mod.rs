//! The translator between MQTT and the broker: the only place that knows both.
//!
//! A connection's conversation (versions, limits, keep-alive, aliases, quotas) is kept by [`tidegate_mqtt::Connection`]; sessions,
//! windows and messages are kept by the broker. An MQTT packet identifier is a [`ReplyTag`] on the way in and a
//! [`DeliveryId`](crate::broker::api::DeliveryId) on the way out.

mod inbound;
mod outbound;

use bytes::Bytes;
use tidegate_mqtt::connection::{Received, Violation};
use tidegate_mqtt::{Connection, ConnectionLimits, DecodeError, DecodeLimits, ReasonCode};
use tracing::debug;

use crate::broker::api::{ClientCommand, ReplyTag, SessionExpiry};
use crate::limits::Limits;
use crate::message::Qos;
use crate::net::adapter::Step;
use crate::net::traffic::Traffic;
use crate::time::{Mono, Now};

/// User properties of one packet.
const USER_PROPERTIES_MAX: u16 = 128;
/// Filters of one SUBSCRIBE or UNSUBSCRIBE.
const FILTERS_MAX: u16 = 8192;
/// Identifiers in use by a client before MQTT 5.0 that never releases its QoS 2 messages, in multiples of `receive_max`.
const UNRELEASED_FACTOR: u16 = 4;
/// Bytes of the topics behind one client's aliases, in either direction.
const ALIAS_BYTES_MAX: u32 = 8 << 10;

/// One client's MQTT conversation.
#[derive(Debug)]
pub(super) struct Adapter {
    connection: Connection,
    /// What CONNECT asked for; CONNACK says it only if something else was granted.
    requested_expiry: SessionExpiry,
    /// Longest keep alive in seconds; 0: any.
    keep_alive_max: u16,
    /// The keep alive that the client is told to use instead of its own.
    server_keep_alive: Option<u16>,
}

impl Adapter {
    /// For a socket that was just accepted.
    pub(super) fn new(limits: &Limits, now: Now) -> Self {
        let keep_alive_max = limits.keep_alive_max_secs.unwrap_or(0);
        let limits = ConnectionLimits {
            decode: DecodeLimits {
                packet_bytes_max: limits.packet_bytes_max,
                user_properties_max: USER_PROPERTIES_MAX,
                filters_max: FILTERS_MAX,
            },
            login_packet_bytes_max: limits.packet_bytes_before_login_max,
            login_ms_max: limits.login_millis_max,
            inflight_publishes_max: limits.receive_max,
            unreleased_publishes_max: limits.receive_max.saturating_mul(UNRELEASED_FACTOR),
            inbound_aliases_max: limits.topic_aliases_max,
            inbound_alias_bytes_max: ALIAS_BYTES_MAX,
            outbound_aliases_max: limits.topic_aliases_max,
            outbound_alias_bytes_max: ALIAS_BYTES_MAX,
            v31_short_client_ids: false,
        };
        Self {
            connection: Connection::new(limits, now.mono.as_millis()),
            requested_expiry: SessionExpiry::WithConnection,
            keep_alive_max,
            server_keep_alive: None,
        }
    }

    /// Takes the packet at the front of `input`; answers that need no broker go to `answers`. `shared` is the buffer that
    /// holds `input`, if a large message may share it.
    pub(super) fn next(
        &mut self,
        input: &[u8],
        shared: Option<&Bytes>,
        now: Now,
        answers: &mut Vec<u8>,
        traffic: &mut Traffic,
    ) -> Step {
        match self.connection.receive(input, now.mono.as_millis()) {
            Ok(Received::Event { consumed, event }) => {
                traffic.packets_in += 1;
                self.event(event, consumed, shared, now, answers, traffic)
            }
            Ok(Received::Incomplete { needed }) => Step::Incomplete { need: needed },
            Ok(Received::Blocked) => Step::Blocked,
            Err(violation) => {
                count_violation(&violation, traffic);
                debug!(%violation, "connection ended: the peer broke the protocol");
                self.connection.reject(answers, &violation);
                Step::End
            }
        }
    }

    /// When the client must have been heard of again; `None` if it need not.
    pub(super) fn deadline(&self) -> Option<Mono> {
        self.connection.deadline().map(|millis| Mono(millis.saturating_mul(1000)))
    }

    /// The client has logged in.
    pub(super) fn is_open(&self) -> bool {
        self.connection.is_open()
    }

    /// If this message is refused, the connection ends: the version has no other way to leave it with the client.
    pub(super) fn hangs_up_to_refuse(&self, command: &ClientCommand) -> bool {
        let v5 = self.connection.version().is_some_and(tidegate_mqtt::Version::is_v5);
        matches!(command, ClientCommand::Publish(request) if !v5 && request.message.qos() != Qos::AtMostOnce)
    }

    /// The deadline has passed.
    pub(super) fn expire(&mut self, answers: &mut Vec<u8>) {
        self.connection.reject(answers, &Violation::Timeout);
    }

    /// The next message of an extended authentication, which is the last one of a re-authentication if `is_last`. `false`: it
    /// cannot be said to this client.
    pub(super) fn authenticate(&mut self, message: &[u8], is_last: bool, answers: &mut Vec<u8>) -> bool {
        let reason = if is_last { ReasonCode::Success } else { ReasonCode::ContinueAuthentication };
        let said = self.connection.authenticate(answers, reason, Some(message)).is_ok();
        if !said {
            let violation = self.connection.too_small_a_client();
            self.connection.reject(answers, &violation);
        }
        said
    }
}

fn count_violation(violation: &Violation, traffic: &mut Traffic) {
    match violation {
        Violation::Decode(DecodeError::LimitExceeded(_)) => traffic.packet_too_large += 1,
        _ => traffic.malformed += 1,
    }
}

fn tag(id: tidegate_mqtt::PacketId) -> ReplyTag {
    ReplyTag(id.get())
}

fn qos_in(qos: tidegate_mqtt::Qos) -> crate::message::Qos {
    match qos {
        tidegate_mqtt::Qos::AtMostOnce => crate::message::Qos::AtMostOnce,
        tidegate_mqtt::Qos::AtLeastOnce => crate::message::Qos::AtLeastOnce,
        tidegate_mqtt::Qos::ExactlyOnce => crate::message::Qos::ExactlyOnce,
    }
}

fn qos_out(qos: crate::message::Qos) -> tidegate_mqtt::Qos {
    match qos {
        crate::message::Qos::AtMostOnce => tidegate_mqtt::Qos::AtMostOnce,
        crate::message::Qos::AtLeastOnce => tidegate_mqtt::Qos::AtLeastOnce,
        crate::message::Qos::ExactlyOnce => tidegate_mqtt::Qos::ExactlyOnce,
    }
}
