//! The command line.
pub mod demo;
