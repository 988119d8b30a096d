//! MQTT 3.1, 3.1.1 and 5.0 without IO: packets, codec and the server side of one network connection.
//!
//! One packet model serves the three versions; [`Version`] is a parameter of the codec. Decoded packets borrow
//! from the input. Nothing in this crate owns a socket, a clock, a thread or a source of randomness, and no byte
//! that a peer sends makes it panic or allocate beyond a limit that its user has named.
//!
//! * [`types`], [`topic`], [`reason`]: the vocabulary.
//! * [`packet`]: one structure per control packet, used in both directions.
//! * [`property`]: the 27 properties of MQTT 5.0, a borrowed view of a property block and lists to encode.
//! * [`codec`]: fixed-header peek with limits, decoder, encoder.
//! * [`connection`]: the state machine of a server's end of a connection.
//! * [`client`]: a small client, for tests and simulated devices.
//! * [`fuzz`]: entry points for fuzzers.
//!
//! Clause numbers such as `[MQTT-3.1.0-2]` are those of MQTT 5.0 unless the text names another version.

#![no_std]
#![cfg_attr(test, allow(clippy::unwrap_used))]

extern crate alloc;

pub mod client;
pub mod codec;
pub mod connection;
pub mod error;
pub mod fuzz;
mod id_table;
pub mod limits;
pub mod packet;
pub mod property;
mod reader;
pub mod reason;
pub mod topic;
pub mod types;

pub use codec::{Decoded, Encode, Frame, PublishHeader, decode, decode_next, encode_publish_header, peek};
pub use connection::{Connection, Event, Received, Violation};
pub use error::{DecodeError, EncodeError};
pub use limits::{ConnectionLimits, DecodeLimits};
pub use packet::Packet;
pub use property::{Properties, Property, PropertyList};
pub use reason::{ConnectReturnCode, ReasonCode};
pub use types::{PacketId, PacketType, Qos, SubscriptionId, TopicAlias, Version};
