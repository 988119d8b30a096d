//! The broker's behaviour, chapter by chapter, over real sockets and a real process.
#![allow(clippy::unwrap_used)]

#[path = "../harness/mod.rs"]
mod harness;

mod access;
mod authentication;
mod crossings;
mod disk;
mod expiry;
mod flow;
mod hostile;
mod links;
mod overflow;
mod packets;
mod process;
mod qos;
mod queues;
mod redelivery;
mod retained;
mod sessions;
mod shared;
mod state;
mod strings;
mod subscriptions;
mod sys;
mod transports;
mod wills;
