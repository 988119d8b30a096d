//! Stub.
#![allow(clippy::unwrap_used)]

#[path = "../harness/mod.rs"]
mod harness;
