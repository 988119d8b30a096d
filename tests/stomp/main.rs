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
mod commits;
mod connect;
mod crossing;
mod durable;
mod framing;
mod headers;
mod hostile;
mod memory;
mod prepared;
mod sending;
mod subscribing;
mod throttling;
mod transactions;
mod versions;
mod workers;

use std::net::SocketAddr;

use harness::{Gateway, GatewayOptions};

/// A gateway with the built-in defaults.
fn gateway() -> Gateway {
    GatewayOptions::new().start()
}

/// Where a gateway speaks STOMP.
fn stomp(gateway: &Gateway) -> SocketAddr {
    gateway.stomp_address()
}

/// How often something is tried: what the variable says, or the smaller amount of a daily run.
fn amount(variable: &str, daily: usize) -> usize {
    std::env::var(variable).ok().map_or(daily, |text| text.parse().expect("the variable is a number"))
}
