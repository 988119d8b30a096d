//! The packets of the upstream connection in words that belong to no codec. Pure data.

use std::num::NonZeroU16;

use bytes::Bytes;

use crate::message::{Message, Properties, Qos};

/// Reason code: success.
pub const SUCCESS: u8 = 0x00;
/// Reason code: not authorized.
pub const NOT_AUTHORIZED: u8 = 0x87;
/// Reason code: another connection uses this client identifier.
pub const SESSION_TAKEN_OVER: u8 = 0x8e;
/// Reason code: the topic name is not accepted.
pub const TOPIC_NAME_INVALID: u8 = 0x90;
/// Reason code: the payload is not what its format indicator says.
pub const PAYLOAD_FORMAT_INVALID: u8 = 0x99;

/// A PUBLISH to the upstream.
#[derive(Clone, Debug)]
pub struct OutPublish {
    /// Packet identifier of a QoS 1 message; `None`: QoS 0.
    pub id: Option<NonZeroU16>,
    /// It may have been sent before.
    pub dup: bool,
    /// RETAIN flag.
    pub retain: bool,
    /// Topic name at the upstream.
    pub topic: String,
    /// Payload and properties.
    pub message: Message,
    /// What is left of its life, in seconds (MQTT 5.0).
    pub expiry_secs: Option<u32>,
}

/// A packet to the upstream.
#[derive(Clone, Debug)]
pub enum Outgoing {
    /// CONNECT; the rest of it is configuration.
    Connect {
        /// Start without the session of an earlier connection.
        clean_start: bool,
    },
    /// SUBSCRIBE to the filters of all inbound rules.
    Subscribe {
        /// Packet identifier.
        id: NonZeroU16,
    },
    /// PUBLISH.
    Publish(OutPublish),
    /// PUBACK.
    PubAck {
        /// Packet identifier.
        id: u16,
        /// Reason code (MQTT 5.0).
        reason: u8,
    },
    /// PUBREC.
    PubRec {
        /// Packet identifier.
        id: u16,
        /// Reason code (MQTT 5.0).
        reason: u8,
    },
    /// PUBCOMP.
    PubComp {
        /// Packet identifier.
        id: u16,
    },
    /// PINGREQ.
    Ping,
    /// DISCONNECT.
    Disconnect,
}

/// The upstream's answer to CONNECT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnAck {
    /// It resumes an earlier session.
    pub session_present: bool,
    /// `None`: accepted; otherwise why not.
    pub refused: Option<String>,
    /// Receive Maximum.
    pub receive_max: Option<u16>,
    /// Maximum Packet Size.
    pub packet_bytes_max: Option<u32>,
    /// Maximum QoS.
    pub qos_max: Option<u8>,
    /// RETAIN is not supported.
    pub no_retain: bool,
    /// Server Keep Alive in seconds.
    pub keep_alive_secs: Option<u16>,
}

/// A PUBLISH from the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InPublish {
    /// Packet identifier; 0 for QoS 0.
    pub id: u16,
    /// Quality of service.
    pub qos: Qos,
    /// RETAIN flag.
    pub retain: bool,
    /// Topic name at the upstream.
    pub topic: String,
    /// Payload.
    pub payload: Bytes,
    /// What is left of its life, in seconds.
    pub expiry_secs: Option<u32>,
    /// Application properties.
    pub properties: Properties,
}

/// A packet from the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// CONNACK.
    ConnAck(ConnAck),
    /// SUBACK.
    SubAck {
        /// Packet identifier.
        id: u16,
        /// One for each filter; 0x80 and above: refused.
        codes: Vec<u8>,
    },
    /// PUBLISH.
    Publish(InPublish),
    /// PUBACK.
    PubAck {
        /// Packet identifier.
        id: u16,
        /// Reason code; success in MQTT 3.1.1.
        reason: u8,
    },
    /// PUBREL.
    PubRel {
        /// Packet identifier.
        id: u16,
    },
    /// PINGRESP.
    Pong,
    /// DISCONNECT (MQTT 5.0).
    Disconnect {
        /// Reason code.
        reason: u8,
        /// What the upstream says about it.
        text: String,
    },
    /// A packet that answers nothing that a link sends (PUBREC, PUBCOMP, UNSUBACK).
    Stray,
}
