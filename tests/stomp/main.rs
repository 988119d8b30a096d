//! STOMP 1.0, 1.1 and 1.2 as bytes in and bytes out, over real sockets and a real process.
//!
//! The tests whose names begin with `a` and a number are the rows of `checklist.txt`; a tidy test holds the two together.
#![allow(clippy::unwrap_used)]

#[path = "../harness/mod.rs"]
mod harness;

mod acks;
mod beats;
mod client;
mod closing;
mod connect;
mod framing;
mod headers;
mod sending;
mod subscribing;

use harness::{Gateway, GatewayOptions};

/// A gateway that speaks STOMP.
fn gateway() -> Gateway {
    GatewayOptions::new().start()
}
