//! MQTT 3.1, 3.1.1 and 5.0 without IO: packets, codec and the server side of one network connection.
//!
//! One packet model serves the three versions; [`Version`] is a parameter of the codec. Decoded packets
//! borrow from the input. Nothing in this crate owns a socket, a clock, a thread or a source of randomness,
//! and no byte that a peer sends makes it panic or allocate beyond a limit that its user has named.
//!
//! * [`types`], [`topic`], [`reason`]: the vocabulary.
//! * [`packet`]: one structure per control packet, used in both directions.
//! * [`property`]: the 27 properties of MQTT 5.0, a borrowed view of a property block and lists to encode.
//! * [`codec`]: fixed-header peek with limits, decoder, encoder.
//! * [`connection`]: the state machine of a server's end of a connection.
//! * [`client`]: a small client, for tests and simulated devices.
//! * [`fuzz`]: entry points for fuzzers.
//!
//! ```
//! use tidegate_mqtt::connection::Acceptance;
//! use tidegate_mqtt::{Connection, ConnectionLimits, Event, ReasonCode, Received, Violation};
//!
//! /// Handles what has arrived at `now` milliseconds and returns how much of it was consumed.
//! fn drive(conn: &mut Connection, input: &[u8], out: &mut Vec<u8>, now: u64) -> Result<usize, Violation> {
//!     let mut done = 0;
//!     while let Received::Event { consumed, event } = conn.receive(&input[done..], now)? {
//!         match event {
//!             Event::Connect(_) => {
//!                 if conn.accept(out, &Acceptance::default(), now).is_err() {
//!                     conn.disconnect(out, ReasonCode::UnspecifiedError, ());
//!                 }
//!             }
//!             Event::Publish(publish) => {
//!                 println!("{}: {:?}", conn.topic(publish.topic), publish.payload);
//!                 if let Some(id) = publish.packet_id {
//!                     conn.puback(out, id, ReasonCode::Success, ());
//!                 }
//!             }
//!             _ => {}
//!         }
//!         done += consumed;
//!     }
//!     Ok(done)
//! }
//!
//! let mut conn = Connection::new(ConnectionLimits::default(), 0);
//! let mut out = Vec::new();
//! let input = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01a\x32\x06\x00\x01t\x00\x01!";
//! assert_eq!(drive(&mut conn, input, &mut out, 0), Ok(input.len()));
//! assert_eq!(out, [0x20, 2, 0, 0, 0x40, 2, 0, 1]);
//! ```
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
