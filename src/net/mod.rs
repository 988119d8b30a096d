//! From bytes to commands and from events to bytes, without a socket.

pub mod hub;
mod mqtt;
pub mod outbox;
pub mod traffic;
