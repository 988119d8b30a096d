//! What a connection tells its driver.

use crate::error::DecodeError;
use crate::packet::{Ack, Auth, Connect, Disconnect, Subscribe, SubscribeFilters, TopicFilters, Unsubscribe};
use crate::property::Properties;
use crate::reason::ReasonCode;
use crate::types::{PacketId, PacketType, Qos, TopicAlias};
use thiserror::Error;

/// Outcome of [`super::Connection::receive`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Received<'a> {
    /// A packet was consumed.
    Event {
        /// Bytes to remove from the front of the input once the event was handled.
        consumed: usize,
        /// What the packet means.
        event: Event<'a>,
    },
    /// The packet is not complete; nothing was consumed.
    Incomplete {
        /// Bytes that the input must have: the size of the whole packet once its fixed header is there. It is
        /// within the limits, so that a driver may make its buffer exactly this large.
        needed: usize,
    },
    /// A packet is complete but its turn has not come; nothing was consumed. Either CONNECT is not answered
    /// yet, or a client before MQTT 5.0 has `inflight_publishes_max` messages unacknowledged. The driver
    /// stops reading and calls again after it has written CONNACK or an acknowledgement.
    Blocked,
}

/// A packet that the connection's state allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// The client logs in. Answer with `accept` or `refuse`, or first with `continue_authentication`.
    Connect(Connect<'a>),
    /// A message. QoS 1 is answered with `puback`, QoS 2 with `pubrec`.
    Publish(InboundPublish<'a>),
    /// A message again whose identifier is still in use, not to be published a second time `[MQTT-4.3.3-10]`.
    Duplicate {
        /// The message.
        packet_id: PacketId,
        /// What to answer.
        answer: DuplicateAnswer,
    },
    /// The client has taken a QoS 1 message.
    Puback(Ack<Properties<'a>>),
    /// The client has taken a QoS 2 message. Answer with `pubrel`, unless the reason is an error
    /// `[MQTT-4.3.3-4]`.
    Pubrec(Ack<Properties<'a>>),
    /// The client releases a QoS 2 message. Answer with `pubcomp` `[MQTT-4.3.3-11]`.
    Pubrel {
        /// The packet.
        ack: Ack<Properties<'a>>,
        /// Whether the identifier was in use; if not, the answer's reason is `PacketIdentifierNotFound`.
        known: bool,
    },
    /// The client is done with a QoS 2 message.
    Pubcomp(Ack<Properties<'a>>),
    /// Answer with `suback` `[MQTT-3.8.4-1]`.
    Subscribe(Subscribe<Properties<'a>, SubscribeFilters<'a>>),
    /// Answer with `unsuback` `[MQTT-3.10.4-4]`.
    Unsubscribe(Unsubscribe<Properties<'a>, TopicFilters<'a>>),
    /// Answer with `pingresp` `[MQTT-3.12.4-1]`.
    Ping,
    /// The client leaves. Every later call of `receive` is a violation `[MQTT-3.14.4-2]`. The will is
    /// discarded unless the reason is `DisconnectWithWill` or another error `[MQTT-3.14.4-3]`.
    Disconnect(Disconnect<Properties<'a>>),
    /// A step of an extended authentication, within the login or later (MQTT 5.0, 4.12).
    Auth(Auth<Properties<'a>>),
}

/// What the repetition of a message calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateAnswer {
    /// Nothing: the first copy is still on its way, and its acknowledgement answers both.
    Pending,
    /// PUBREC was sent already, now or on an earlier connection: `pubrec` again, with success.
    Pubrec,
}

/// A message as it arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InboundPublish<'a> {
    /// Whether this may be a repetition.
    pub dup: bool,
    /// Quality of service.
    pub qos: Qos,
    /// Retain flag.
    pub retain: bool,
    /// The topic, to be resolved with [`super::Connection::topic`].
    pub topic: TopicRef<'a>,
    /// The packet identifier: `Some` exactly if the quality of service is not 0.
    pub packet_id: Option<PacketId>,
    /// The properties, a topic alias among them.
    pub properties: Properties<'a>,
    /// The payload.
    pub payload: &'a [u8],
}

/// Where a message's topic name is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicRef<'a> {
    /// In the packet.
    Name(&'a str),
    /// In the connection's table of aliases.
    Alias(TopicAlias),
}

/// Why the connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// A packet could not be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The first packet is not CONNECT `[MQTT-3.1.0-1]`.
    #[error("the first packet is {0:?}, not CONNECT")]
    NotConnected(PacketType),
    /// CONNECT came twice `[MQTT-3.1.0-2]`.
    #[error("a second CONNECT")]
    SecondConnect,
    /// A packet that only a server sends, or that the state of the login or of an authentication does not
    /// allow `[MQTT-3.1.2-30]`.
    #[error("{0:?} is not expected now")]
    Unexpected(PacketType),
    /// The client is to choose an identifier of allowed length `[MQTT-3.1.3-8 of MQTT 3.1.1]`.
    #[error("the client identifier is not valid")]
    ClientIdentifier,
    /// What the client must be told does not fit into its Maximum Packet Size `[MQTT-3.1.2-24]`.
    #[error("packets of at most {0} bytes are too small for what the server has to say")]
    ClientPacketSize(u32),
    /// More messages in flight than Receive Maximum allows `[MQTT-3.3.4-7]`.
    #[error("receive maximum exceeded")]
    ReceiveMaximum,
    /// An identifier in use came with another message `[MQTT-2.2.1-3]`.
    #[error("packet identifier {0} is in use")]
    PacketIdInUse(PacketId),
    /// The alias is larger than granted `[MQTT-3.3.2-9]`.
    #[error("topic alias {0} is not valid")]
    TopicAlias(u16),
    /// The alias stands alone and was never given a topic on this connection (MQTT 5.0, 3.3.4).
    #[error("topic alias {0} was not given a topic")]
    UnknownTopicAlias(u16),
    /// The topics of all aliases exceed `inbound_alias_bytes_max`.
    #[error("topic aliases hold too many bytes")]
    AliasBytes,
    /// A client's PUBLISH holds a subscription identifier `[MQTT-3.3.4-6]`.
    #[error("a client may not send a subscription identifier")]
    SubscriptionIdentifier,
    /// AUTH with another authentication method than CONNECT `[MQTT-4.12.0-5]`.
    #[error("the authentication method changed")]
    AuthenticationMethod,
    /// DISCONNECT sets a session expiry interval after CONNECT had set 0 `[MQTT-3.14.2-2]`.
    #[error("a session that ends with its connection cannot be prolonged")]
    SessionExpiry,
    /// Neither packets within 1.5 times the keep alive `[MQTT-3.1.2-22]`, nor a login in time.
    #[error("nothing arrived in time")]
    Timeout,
    /// Input after the end of the connection.
    #[error("the connection is closed")]
    Closed,
}

impl Violation {
    /// The reason code for CONNACK or DISCONNECT (MQTT 5.0, 4.13).
    pub const fn reason_code(&self) -> ReasonCode {
        match self {
            Violation::Decode(error) => error.reason_code(),
            Violation::ClientIdentifier => ReasonCode::ClientIdentifierNotValid,
            Violation::ClientPacketSize(_) => ReasonCode::ImplementationSpecificError,
            Violation::ReceiveMaximum => ReasonCode::ReceiveMaximumExceeded,
            Violation::TopicAlias(_) => ReasonCode::TopicAliasInvalid,
            Violation::AliasBytes => ReasonCode::QuotaExceeded,
            Violation::Timeout => ReasonCode::KeepAliveTimeout,
            Violation::NotConnected(_)
            | Violation::SecondConnect
            | Violation::Unexpected(_)
            | Violation::PacketIdInUse(_)
            | Violation::UnknownTopicAlias(_)
            | Violation::SubscriptionIdentifier
            | Violation::AuthenticationMethod
            | Violation::SessionExpiry
            | Violation::Closed => ReasonCode::ProtocolError,
        }
    }
}
