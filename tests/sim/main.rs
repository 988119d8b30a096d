//! Deterministic simulation of the whole gateway.
#![allow(clippy::unwrap_used)]

mod action;
mod cast;
mod client;
mod gateway;
mod ledger;
mod random;
mod run;
mod speech;
mod world;
