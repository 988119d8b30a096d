//! tidegate: a durable edge message broker. See `src/README.md` for how the house is built.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod access;
pub mod admin;
pub mod bridge;
pub mod broker;
pub mod cli;
pub mod driver;
pub mod import;
pub mod limits;
pub mod logging;
pub mod message;
pub mod net;
pub mod port;
pub mod queue;
pub mod router;
pub mod selector;
pub mod session;
pub mod settings;
pub mod store;
pub mod time;
pub mod topic;
pub mod varint;
