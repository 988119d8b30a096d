//! From bytes to commands and from events to bytes, without a socket.
//!
//! A protocol adapter is one folder beside `mqtt`. It answers with `adapter::Step` and `adapter::Encoded`, and the hub knows
//! it by a variant of its `Peer`.

mod adapter;
pub mod hub;
mod mqtt;
pub mod origin;
pub mod outbox;
pub mod proxy_protocol;
mod stomp;
pub mod traffic;
pub mod websocket;
