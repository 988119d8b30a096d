//! What can be wrong with a packet, named by fault.

use crate::reason::ReasonCode;
use crate::topic::TopicFault;
use crate::types::{PacketType, Version};
use thiserror::Error;

/// Why bytes from the peer are not an acceptable packet. Missing bytes are not an error: see
/// [`crate::Decoded`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The bytes cannot be parsed (MQTT 5.0, 1.2, "Malformed Packet").
    #[error("malformed packet: {0}")]
    Malformed(#[from] Malformed),
    /// The packet parses but says what the protocol forbids (MQTT 5.0, 1.2, "Protocol Error").
    #[error("protocol violation: {0}")]
    ProtocolViolation(#[from] ProtocolViolation),
    /// The packet exceeds a limit of [`crate::DecodeLimits`].
    #[error("limit exceeded: {0}")]
    LimitExceeded(#[from] LimitExceeded),
    /// CONNECT asks for a protocol level that is none of [`Version`] `[MQTT-3.1.2-2]`.
    #[error("protocol level {level} is not supported")]
    UnsupportedVersion {
        /// The level byte of CONNECT.
        level: u8,
    },
}

impl DecodeError {
    /// The reason code for CONNACK or DISCONNECT (MQTT 5.0, 4.13).
    pub const fn reason_code(&self) -> ReasonCode {
        match self {
            DecodeError::Malformed(_) => ReasonCode::MalformedPacket,
            DecodeError::ProtocolViolation(ProtocolViolation::TopicAliasZero) => {
                ReasonCode::TopicAliasInvalid
            }
            DecodeError::ProtocolViolation(_) => ReasonCode::ProtocolError,
            DecodeError::LimitExceeded(LimitExceeded::PacketBytes { .. }) => ReasonCode::PacketTooLarge,
            DecodeError::LimitExceeded(_) => ReasonCode::QuotaExceeded,
            DecodeError::UnsupportedVersion { .. } => ReasonCode::UnsupportedProtocolVersion,
        }
    }
}

/// Where a packet fails to parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// A variable byte integer has more than four bytes, or more than it needs `[MQTT-1.5.5-1]`.
    #[error("a variable byte integer is too long")]
    VariableByteInteger,
    /// The packet type is 0, or 15 before MQTT 5.0 (2.1.2).
    #[error("the packet type is reserved")]
    PacketType,
    /// Flags of the fixed header differ from what the type fixes `[MQTT-2.1.3-1]`.
    #[error("reserved flags of the fixed header are set")]
    Flags,
    /// A field ends behind its packet or its property block.
    #[error("a field runs past the end of the packet")]
    Truncated,
    /// Bytes follow the last field.
    #[error("bytes follow the last field")]
    TrailingBytes,
    /// A string is not UTF-8 `[MQTT-1.5.4-1]`.
    #[error("a string is not UTF-8")]
    Utf8,
    /// A string holds U+0000 `[MQTT-1.5.4-2]`.
    #[error("a string holds the character U+0000")]
    NulCharacter,
    /// The protocol name of CONNECT is unknown `[MQTT-3.1.2-1]`.
    #[error("the protocol name is neither MQTT nor MQIsdp")]
    ProtocolName,
    /// The connect flags contradict each other or set the reserved bit `[MQTT-3.1.2-3]`.
    #[error("the connect flags are inconsistent")]
    ConnectFlags,
    /// The acknowledge flags of CONNACK are not 0 or 1 `[MQTT-3.2.2-1]`.
    #[error("the acknowledge flags are invalid")]
    AcknowledgeFlags,
    /// A quality of service is 3 `[MQTT-3.3.1-4]`.
    #[error("the quality of service is 3")]
    Qos,
    /// DUP is set on a PUBLISH of QoS 0 `[MQTT-3.3.1-2]`.
    #[error("DUP is set on a QoS 0 message")]
    DupAtQos0,
    /// A topic name is wrong.
    #[error("the topic name {0}")]
    TopicName(TopicFault),
    /// A topic filter is wrong.
    #[error("the topic filter {0}")]
    TopicFilter(TopicFault),
    /// Reserved bits of subscription options are set `[MQTT-3.8.3-5]`.
    #[error("reserved subscription options are set")]
    SubscriptionOptions,
    /// A property identifier is unknown `[MQTT-2.2.2-2]` or not allowed in this packet.
    #[error("property 0x{id:02X} is unknown or not allowed here")]
    Property {
        /// The identifier.
        id: u8,
    },
    /// A reason or return code is unknown or not allowed in this packet.
    #[error("code 0x{code:02X} is unknown or not allowed here")]
    ReasonCode {
        /// The code.
        code: u8,
    },
}

/// Which rule a well-formed packet breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProtocolViolation {
    /// A packet identifier is 0 `[MQTT-2.2.1-3]`.
    #[error("the packet identifier is 0")]
    PacketIdZero,
    /// A property occurs twice that may occur once (MQTT 5.0, 2.2.2.2).
    #[error("property 0x{id:02X} occurs twice")]
    DuplicateProperty {
        /// The identifier.
        id: u8,
    },
    /// A property has a value outside its range.
    #[error("property 0x{id:02X} has a value outside its range")]
    PropertyValue {
        /// The identifier.
        id: u8,
    },
    /// A topic alias is 0 `[MQTT-3.3.2-8]`.
    #[error("the topic alias is 0")]
    TopicAliasZero,
    /// A PUBLISH has neither a topic name nor an alias (MQTT 5.0, 3.3.2.1).
    #[error("the message has neither a topic name nor a topic alias")]
    TopicMissing,
    /// Authentication Data comes without Authentication Method (MQTT 5.0, 3.1.2.11.10).
    #[error("authentication data without authentication method")]
    AuthenticationMethodMissing,
    /// SUBSCRIBE or UNSUBSCRIBE without a filter `[MQTT-3.8.3-2]`, `[MQTT-3.10.3-2]`, or their answer without
    /// a code.
    #[error("the list of filters or codes is empty")]
    EmptyList,
    /// Retain Handling is 3 (MQTT 5.0, 3.8.3.1).
    #[error("retain handling is 3")]
    RetainHandling,
    /// No Local on a shared subscription `[MQTT-3.8.3-4]`.
    #[error("No Local is set on a shared subscription")]
    NoLocalOnSharedSubscription,
}

/// Which limit a packet exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LimitExceeded {
    /// [`crate::DecodeLimits::packet_bytes_max`].
    #[error("a packet of {bytes} bytes where {bytes_max} are allowed")]
    PacketBytes {
        /// Size of the packet with its fixed header.
        bytes: u32,
        /// The limit.
        bytes_max: u32,
    },
    /// [`crate::DecodeLimits::user_properties_max`].
    #[error("more than {max} user properties")]
    UserProperties {
        /// The limit.
        max: u16,
    },
    /// [`crate::DecodeLimits::filters_max`].
    #[error("more than {max} topic filters")]
    Filters {
        /// The limit.
        max: u16,
    },
}

/// Why a packet cannot be written. Nothing has been appended to the output then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// A string or binary field has more than 65,535 bytes (MQTT 5.0, 1.5.4).
    #[error("a field is longer than 65535 bytes")]
    FieldTooLong,
    /// The packet would have more than 268,435,455 bytes (MQTT 5.0, 2.1.4).
    #[error("the packet is larger than the protocol allows")]
    PacketTooLarge,
    /// A PUBLISH of QoS 1 or 2 lacks a packet identifier, or one of QoS 0 has one `[MQTT-2.2.1-2]`.
    #[error("packet identifier and quality of service contradict each other")]
    PacketId,
    /// The version has no such packet.
    #[error("MQTT {version} has no {packet:?} packet")]
    NotInVersion {
        /// The version.
        version: Version,
        /// The packet.
        packet: PacketType,
    },
}
