//! The broker: the one state machine that owns sessions, routing and queues.
pub mod api;
