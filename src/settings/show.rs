//! The configuration as people read it: the effective file and the memory sum.

use std::fmt::Write;

use super::units::Size;
use super::{Listener, Loaded, Transport};
use crate::bridge::{LinkConfig, WRITE_BUFFER_BYTES_HIGH};
use crate::limits::Limits;

/// Stands in for a secret.
const HIDDEN: &str = "***";

/// The merged configuration, every default and derived value written out, as TOML that loads again; secrets are hidden.
///
/// # Errors
/// When a path is not UTF-8, which TOML cannot hold.
pub fn effective_toml(loaded: &Loaded) -> Result<String, toml_edit::ser::Error> {
    let mut shown = loaded.effective.clone();
    for bridge in &mut shown.bridge {
        if let Some(password) = &mut bridge.password {
            HIDDEN.clone_into(password);
        }
    }
    toml_edit::ser::to_string_pretty(&shown)
}

/// Most memory of a TLS connection beside that of a plain one: the largest record partly received, one written, and the machine.
const TLS_BYTES_MAX: u64 = 40 << 10;
/// The same of a WebSocket: one frame that waits for the socket.
const WEBSOCKET_BYTES_MAX: u64 = 18 << 10;

/// Everything that may be in memory at once beside the program itself, in bytes, by part.
#[must_use]
pub fn memory_parts(limits: &Limits, bridges: &[LinkConfig], listeners: &[Listener]) -> Vec<(String, u64)> {
    let fixed = limits.memory_parts().into_iter().map(|(name, bytes)| (name.to_owned(), bytes));
    let kind = |name: &str, each: u64, is_kind: fn(&Listener) -> bool| {
        let most =
            |listener: &Listener| u64::from(listener.connections_max.unwrap_or(limits.connections_max));
        let sum: u64 = listeners.iter().filter(|listener| is_kind(listener)).map(most).sum();
        let connections = sum.min(limits.connections_max.into());
        (connections > 0).then(|| (format!("{name} ({} KiB each)", each >> 10), connections * each))
    };
    let layers = [
        kind("TLS connections", TLS_BYTES_MAX, |listener| listener.transport.is_tls()),
        kind("WebSockets", WEBSOCKET_BYTES_MAX, |listener| listener.transport == Transport::Ws),
    ];
    let fixed = fixed.chain(layers.into_iter().flatten());
    fixed.chain(bridges.iter().map(|link| (format!("bridge {}", link.name), link_memory(link)))).collect()
}

/// Messages under way, one packet in each buffer, and what came from upstream and waits for the local commit.
fn link_memory(link: &LinkConfig) -> u64 {
    let packet = u64::from(link.packet_bytes_max);
    let inbound = if link.inbound.is_empty() { 0 } else { u64::from(link.inbound_window) };
    u64::from(link.inflight_bytes_max) + WRITE_BUFFER_BYTES_HIGH as u64 + packet * (2 + inbound)
}

/// The sum of `parts`.
#[must_use]
pub fn memory_sum(parts: &[(String, u64)]) -> u64 {
    parts.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
}

/// `parts` and their sum, one line each.
#[must_use]
pub fn memory_table(parts: &[(String, u64)]) -> String {
    let mut table = String::new();
    let rows = parts.iter().map(|(name, bytes)| (name.as_str(), *bytes));
    for (name, bytes) in rows.chain([("sum", memory_sum(parts))]) {
        writeln!(table, "  {name:<34} {:>12}", about(bytes)).expect("writing into a string cannot fail");
    }
    table
}

/// A size with one digit after the point, for eyes only.
fn about(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => {
            let tenths = u128::from(bytes) * 10 / u128::from(unit);
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
        None => Size(bytes).to_string(),
    }
}
