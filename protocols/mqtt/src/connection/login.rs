//! CONNECT, its answer, and extended authentication.

use super::event::{Event, Violation};
use super::outbound::SendError;
use super::{Connection, Phase};
use crate::codec::{Encode, Frame, check_header, check_login_level, decode_body};
use crate::error::DecodeError;
use crate::packet::{Auth, Connack, Connect, Packet};
use crate::property::{Properties, Property, PropertyIter, PropertyList};
use crate::reason::ReasonCode;
use crate::types::{PacketType, Qos, VARIABLE_BYTE_INTEGER_MAX, Version};
use alloc::string::ToString;
use alloc::vec::Vec;
use core::num::{NonZeroU16, NonZeroU32};

/// Longest client identifier of MQTT 3.1 in characters.
const V31_CLIENT_ID_CHARS_MAX: usize = 23;

/// Most properties that [`Acceptance`] and the limits put into CONNACK, user properties aside.
const CONNACK_PROPERTIES_MAX: usize = 16;

/// How much CONNACK says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detail {
    Full,
    /// Without what a client may go without: its absence promises nothing that the server does not keep.
    Terse,
}

/// What CONNACK tells an accepted client, beside the limits of the connection, which it announces by itself:
/// Receive Maximum, Maximum Packet Size, Topic Alias Maximum, and the authentication method. Before MQTT 5.0
/// only `session_present` is sent.
#[derive(Clone, Copy, Debug)]
pub struct Acceptance<'a> {
    /// Whether a session is resumed `[MQTT-3.2.2-3]`.
    pub session_present: bool,
    /// The session expiry interval in seconds, if it is not the one that the client asked for.
    pub session_expiry: Option<u32>,
    /// Highest quality of service that the server takes.
    pub maximum_qos: Qos,
    /// Whether retained messages are kept.
    pub retain_available: bool,
    /// The identifier of a client that came without one `[MQTT-3.1.3-6]`.
    pub assigned_client_id: Option<&'a str>,
    /// A keep alive in seconds that replaces the client's `[MQTT-3.1.2-21]`. Without effect before MQTT 5.0,
    /// whose clients cannot be told.
    pub server_keep_alive: Option<u16>,
    /// Whether filters may hold wildcards.
    pub wildcard_subscriptions: bool,
    /// Whether subscriptions may have identifiers.
    pub subscription_identifiers: bool,
    /// Whether subscriptions may be shared.
    pub shared_subscriptions: bool,
    /// Response Information; sent only if the client asked for it `[MQTT-3.1.2-28]`.
    pub response_information: Option<&'a str>,
    /// Server Reference.
    pub server_reference: Option<&'a str>,
    /// The last data of an extended authentication.
    pub authentication_data: Option<&'a [u8]>,
    /// User properties; dropped if CONNACK would be too large for the client `[MQTT-3.2.2-20]`.
    pub user_properties: &'a [(&'a str, &'a str)],
}

impl Default for Acceptance<'_> {
    /// A new session on a server that can do everything.
    fn default() -> Self {
        Acceptance {
            session_present: false,
            session_expiry: None,
            maximum_qos: Qos::ExactlyOnce,
            retain_available: true,
            assigned_client_id: None,
            server_keep_alive: None,
            wildcard_subscriptions: true,
            subscription_identifiers: true,
            shared_subscriptions: true,
            response_information: None,
            server_reference: None,
            authentication_data: None,
            user_properties: &[],
        }
    }
}

impl Connection {
    pub(super) fn connect_received<'a>(
        &mut self,
        frame: &Frame,
        body: &'a [u8],
    ) -> Result<Event<'a>, Violation> {
        if let Some(version) = check_login_level(body) {
            self.version = version;
            self.version_known = true;
        }
        check_header(self.version, frame)?;
        let connect = match decode_body(self.version, frame, body, &self.login_limits())? {
            Packet::Connect(connect) => connect,
            other => return Err(super::unexpected(&other)),
        };
        self.check_client_id(&connect)?;
        self.adopt(&connect);
        if !self.has_room_for_connack() {
            return Err(Violation::ClientPacketSize(self.client_packet_bytes_max));
        }
        self.phase = Phase::Login;
        Ok(Event::Connect(connect))
    }

    /// Whether the client takes the smallest CONNACK that lets it in. A client that does not is turned away before
    /// anything is done for it: a session that another connection has must not suffer.
    fn has_room_for_connack(&self) -> bool {
        if self.client_packet_bytes_max == u32::MAX {
            return true;
        }
        let acceptance = Acceptance::default();
        let properties = self.announced(&acceptance, Detail::Terse);
        let (session_present, reason) = (false, ReasonCode::Success);
        let connack = Connack { session_present, reason, properties: properties.as_slice() };
        connack.packet_len(self.version).is_ok_and(|bytes| self.check_size(bytes).is_ok())
    }

    /// `[MQTT-3.1.3-7 of MQTT 3.1.1]`, and MQTT 3.1, "CONNECT", where an empty identifier is not known.
    fn check_client_id(&self, connect: &Connect<'_>) -> Result<(), Violation> {
        let valid = match connect.version {
            Version::V5 => true,
            Version::V311 => connect.clean_start || !connect.client_id.is_empty(),
            Version::V31 if self.limits.v31_short_client_ids => {
                (1..=V31_CLIENT_ID_CHARS_MAX).contains(&connect.client_id.chars().count())
            }
            Version::V31 => !connect.client_id.is_empty(),
        };
        if valid { Ok(()) } else { Err(Violation::ClientIdentifier) }
    }

    fn adopt(&mut self, connect: &Connect<'_>) {
        let properties = &connect.properties;
        self.bridge = connect.bridge;
        self.keep_alive_ms = supervision_ms(connect.keep_alive);
        self.client_receive_maximum = properties.receive_maximum().map_or(u16::MAX, NonZeroU16::get);
        self.client_packet_bytes_max = properties.maximum_packet_size().map_or(u32::MAX, NonZeroU32::get);
        self.client_topic_alias_maximum = properties.topic_alias_maximum().unwrap_or(0);
        self.response_information = properties.request_response_information().unwrap_or(false);
        self.problem_information =
            connect.version.is_v5() && properties.request_problem_information().unwrap_or(true);
        self.session_ends_with_connection = properties.session_expiry_interval().unwrap_or(0) == 0;
        if let Some(method) = properties.authentication_method() {
            self.extras().authentication_method = Some(method.into());
        }
    }

    /// Writes CONNACK and lets the client in. Where it does not fit into the client's packets, user properties, response
    /// information and topic aliases are left out.
    ///
    /// # Errors
    /// [`SendError`]; nothing is written and the client is not let in then.
    pub fn accept(
        &mut self,
        out: &mut Vec<u8>,
        acceptance: &Acceptance<'_>,
        now: u64,
    ) -> Result<(), SendError> {
        if self.phase != Phase::Login {
            return Err(SendError::NotOpen);
        }
        if self.write_acceptance(out, acceptance, Detail::Full).is_err() {
            self.write_acceptance(out, acceptance, Detail::Terse)?;
            self.limits.inbound_aliases_max = 0;
        }
        if let Some(seconds) = acceptance.server_keep_alive.filter(|_| self.version.is_v5()) {
            self.keep_alive_ms = supervision_ms(seconds);
        }
        self.phase = Phase::Open;
        self.resumed = acceptance.session_present;
        self.since_ms = now;
        self.blocked = false;
        Ok(())
    }

    fn write_acceptance(
        &self,
        out: &mut Vec<u8>,
        acceptance: &Acceptance<'_>,
        detail: Detail,
    ) -> Result<(), SendError> {
        let users = acceptance.user_properties;
        let users = PropertyIter(users.iter().map(|&pair| Property::UserProperty(pair)));
        let listed = self.announced(acceptance, detail);
        let (session_present, reason) = (acceptance.session_present, ReasonCode::Success);
        self.send_diagnosed(out, &users, |users| Connack {
            session_present,
            reason,
            properties: (listed.as_slice(), users),
        })
    }

    /// The properties of CONNACK that differ from what their absence says (MQTT 5.0, 3.2.2.3).
    fn announced<'p>(
        &'p self,
        acceptance: &Acceptance<'p>,
        detail: Detail,
    ) -> heapless::Vec<Property<'p>, CONNACK_PROPERTIES_MAX> {
        let limits = &self.limits;
        let receive_maximum = NonZeroU16::new(limits.inflight_publishes_max.max(1));
        let packet_bytes = NonZeroU32::new(limits.decode.packet_bytes_max.max(1));
        let largest = VARIABLE_BYTE_INTEGER_MAX + 5;
        let off = |available: bool, property| (!available).then_some(property);
        let max_qos = acceptance.maximum_qos;
        let full = detail == Detail::Full;
        let response = acceptance.response_information.filter(|_| full && self.response_information);
        let aliases = full && limits.inbound_aliases_max > 0;
        [
            acceptance.session_expiry.map(Property::SessionExpiryInterval),
            receive_maximum.filter(|max| max.get() < u16::MAX).map(Property::ReceiveMaximum),
            off(max_qos == Qos::ExactlyOnce, Property::MaximumQos(max_qos)),
            off(acceptance.retain_available, Property::RetainAvailable(false)),
            packet_bytes.filter(|max| max.get() < largest).map(Property::MaximumPacketSize),
            acceptance.assigned_client_id.map(Property::AssignedClientIdentifier),
            off(!aliases, Property::TopicAliasMaximum(limits.inbound_aliases_max)),
            off(acceptance.wildcard_subscriptions, Property::WildcardSubscriptionAvailable(false)),
            off(acceptance.subscription_identifiers, Property::SubscriptionIdentifierAvailable(false)),
            off(acceptance.shared_subscriptions, Property::SharedSubscriptionAvailable(false)),
            acceptance.server_keep_alive.map(Property::ServerKeepAlive),
            response.map(Property::ResponseInformation),
            acceptance.server_reference.map(Property::ServerReference),
            self.authentication_method().map(Property::AuthenticationMethod),
            acceptance.authentication_data.map(Property::AuthenticationData),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Writes CONNACK with an error and ends the conversation. `details` may hold a reason string, a server
    /// reference and user properties; they are dropped if they do not fit. Before MQTT 5.0 the nearest return
    /// code is sent.
    pub fn refuse(&mut self, out: &mut Vec<u8>, reason: ReasonCode, details: impl PropertyList) {
        if self.phase == Phase::Login {
            self.write_refusal(out, reason, details);
        }
        self.phase = Phase::Closed;
    }

    /// CONNACK with an error, if it has room at the client.
    pub(super) fn write_refusal(
        &mut self,
        out: &mut Vec<u8>,
        reason: ReasonCode,
        details: impl PropertyList,
    ) {
        let reason = match reason.is_error() && reason.is_valid_in(PacketType::Connack) {
            true => reason,
            false => ReasonCode::UnspecifiedError,
        };
        let connack = |properties| Connack { session_present: false, reason, properties };
        // A client that takes no CONNACK learns it from the closed connection.
        let _ = self.send_diagnosed(out, &details, connack);
    }

    /// Writes AUTH: `ContinueAuthentication` for the next step, `Success` to end a re-authentication. The
    /// method is that of CONNECT `[MQTT-4.12.0-5]`.
    ///
    /// # Errors
    /// [`SendError`]; `NotOpen` also if CONNECT named no method `[MQTT-4.12.0-6]`.
    pub fn authenticate(
        &mut self,
        out: &mut Vec<u8>,
        reason: ReasonCode,
        data: Option<&[u8]>,
    ) -> Result<(), SendError> {
        let method = match (self.phase, self.authentication_method()) {
            (Phase::Login | Phase::Open, Some(method)) => Property::AuthenticationMethod(method),
            _ => return Err(SendError::NotOpen),
        };
        let auth = Auth { reason, properties: (method, data.map(Property::AuthenticationData)) };
        self.send(out, &auth)
    }

    /// AUTH belongs to an exchange that CONNECT has opened, with the same method.
    pub(super) fn auth_received<'a>(&self, auth: Auth<Properties<'a>>) -> Result<Event<'a>, Violation> {
        let expected = matches!(
            (auth.reason, self.phase),
            (ReasonCode::ContinueAuthentication, Phase::Login | Phase::Open)
                | (ReasonCode::ReAuthenticate, Phase::Open)
        );
        match self.authentication_method() {
            Some(method) if expected => match auth.properties.authentication_method() == Some(method) {
                true => Ok(Event::Auth(auth)),
                false => Err(Violation::AuthenticationMethod),
            },
            _ => Err(Violation::Unexpected(PacketType::Auth)),
        }
    }

    /// The authentication method that CONNECT named.
    pub fn authentication_method(&self) -> Option<&str> {
        self.extras.as_deref()?.authentication_method.as_deref()
    }

    /// Writes what the version lets a server say about a violation, and ends the conversation. In MQTT 5.0 that
    /// is a reason code with a text, in DISCONNECT once the client is accepted and in CONNACK before; in older
    /// versions CONNACK, where the fault has a code, or nothing (MQTT 5.0, 4.13; MQTT 3.1.1, 3.1.4 and 4.8).
    pub fn reject(&mut self, out: &mut Vec<u8>, violation: &Violation) {
        let reason = violation.reason_code();
        let has_return_code = matches!(
            violation,
            Violation::Decode(DecodeError::UnsupportedVersion { .. }) | Violation::ClientIdentifier
        );
        let text = self.version.is_v5().then(|| violation.to_string());
        let text = text.as_deref().map(Property::ReasonString);
        match self.phase {
            Phase::Open => self.write_disconnect(out, reason, text),
            Phase::AwaitConnect | Phase::Login if !self.version_known => {}
            Phase::AwaitConnect | Phase::Login if self.version.is_v5() || has_return_code => {
                self.write_refusal(out, reason, text);
            }
            Phase::AwaitConnect | Phase::Login | Phase::Closed => {}
        }
        self.phase = Phase::Closed;
    }
}

/// One and a half times the keep alive `[MQTT-3.1.2-22]`.
const fn supervision_ms(keep_alive_seconds: u16) -> u32 {
    keep_alive_seconds as u32 * 1500
}
