//! The store: one file, two tiers.
pub mod contract;
