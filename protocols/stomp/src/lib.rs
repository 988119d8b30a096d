//! STOMP 1.0, 1.1 and 1.2 without IO: frames, codec and the server side of one network connection.
//!
//! One frame model serves the three versions; [`Version`] is a parameter of the codec. Decoded frames borrow
//! from the input. Nothing in this crate owns a socket, a clock, a thread or a source of randomness, and no
//! byte that a peer sends makes it panic or allocate beyond a limit that its user has named.
//!
//! * [`types`]: the vocabulary.
//! * [`frame`]: a frame and its headers as views of the input.
//! * [`codec`]: decoder with limits that resumes where it has stopped, encoder.
//! * [`connection`]: the state machine of a server's end of a connection.
//! * [`client`]: a small client, for tests and simulated clients.
//! * [`fuzz`]: entry points for fuzzers.
//!
//! ```
//! use tidegate_stomp::connection::{Acceptance, Failure};
//! use tidegate_stomp::{Connection, ConnectionLimits, ConnectionOptions, Event, Received, Violation};
//!
//! /// Handles what has arrived at `now` milliseconds and returns how much of it was consumed.
//! fn drive(conn: &mut Connection, input: &[u8], out: &mut Vec<u8>, now: u64) -> Result<usize, Violation> {
//!     let mut done = 0;
//!     while let Received::Event { consumed, event } = conn.receive(&input[done..], now)? {
//!         match event {
//!             Event::Connect(_) => {
//!                 let acceptance = Acceptance { session: 0x5eed, server: Some("example/1.0") };
//!                 if conn.accept(out, &acceptance, now).is_err() {
//!                     conn.fail(out, None, &Failure { message: "no room", detail: "" }, now);
//!                 }
//!             }
//!             Event::Send(send) => {
//!                 println!("{}: {:?}", send.destination, send.body);
//!                 if let Some(receipt) = send.receipt {
//!                     conn.receipt(out, receipt);
//!                 }
//!             }
//!             _ => {}
//!         }
//!         done += consumed;
//!     }
//!     Ok(done)
//! }
//!
//! let mut conn = Connection::new(ConnectionLimits::default(), ConnectionOptions::default(), 0);
//! let mut out = Vec::new();
//! let input = b"CONNECT\naccept-version:1.2\nhost:h\n\n\0SEND\ndestination:/queue/a\nreceipt:r\n\nx\0\n";
//! assert_eq!(drive(&mut conn, input, &mut out, 0), Ok(input.len()));
//! assert!(out.starts_with(b"CONNECTED\nversion:1.2\nsession:0000000000005eed\n"));
//! assert!(out.ends_with(b"RECEIPT\nreceipt-id:r\n\n\0\n"));
//! ```

#![no_std]
#![cfg_attr(test, allow(clippy::unwrap_used))]

extern crate alloc;

pub mod client;
pub mod codec;
pub mod connection;
pub mod error;
pub mod frame;
pub mod fuzz;
pub mod limits;
mod syntax;
pub mod types;

pub use codec::{Decoded, Decoder, FrameWriter, decode, decode_next};
pub use connection::{Connection, Event, Received, Violation};
pub use error::{DecodeError, EncodeError};
pub use frame::{Frame, Header, Headers};
pub use limits::{ConnectionLimits, ConnectionOptions, ConnectionSettings, DecodeLimits};
pub use types::{AckMode, Command, HeartBeat, Version};
