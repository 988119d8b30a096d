//! What other threads may know about a link: a copy that the link's thread renews after each turn.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::time::{Mono, Now, Wall};

/// Where a link is on its way to the upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// Not started, not attached to the local broker, or stopped.
    #[default]
    Idle,
    /// Looks the upstream's name up.
    Resolving,
    /// Opens the TCP connection and the TLS session.
    Connecting,
    /// Waits for the answer to CONNECT.
    Handshake,
    /// Waits for the answer to SUBSCRIBE.
    Subscribing,
    /// Messages flow.
    Up,
    /// Pauses before the next attempt.
    Backoff,
}

/// What a link has counted since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkCounters {
    /// Connections that the upstream accepted.
    pub connects: u64,
    /// Attempts and connections that failed.
    pub failures: u64,
    /// PUBLISH packets sent, repetitions included.
    pub sent: u64,
    /// Their bytes: topic and payload.
    pub sent_bytes: u64,
    /// Messages that the upstream acknowledged.
    pub acked: u64,
    /// PUBLISH packets that were sent again after a connection broke.
    pub resent: u64,
    /// Messages given up: refused for good by the upstream, or too large for it.
    pub parked: u64,
    /// Of these: larger than the upstream takes.
    pub parked_oversized: u64,
    /// Outgoing messages whose life ended before they could be sent.
    pub expired: u64,
    /// Outgoing messages that no rule matches any more.
    pub unmatched: u64,
    /// QoS 0 messages dropped because the link was down or busy.
    pub qos0_dropped: u64,
    /// Acknowledgements for nothing that was under way.
    pub stray_acks: u64,
    /// Messages from upstream.
    pub received: u64,
    /// Their bytes: topic and payload.
    pub received_bytes: u64,
    /// Messages from upstream that are durable at the local broker.
    pub received_committed: u64,
    /// Messages from upstream dropped because they had been here before, or had crossed too many gateways.
    pub loops_dropped: u64,
    /// Messages from upstream dropped because no rule matches or the local broker refuses their topic.
    pub inbound_refused: u64,
    /// Inbound filters that the upstream refused.
    pub subscribe_refused: u64,
}

/// Everything that is known about a link at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkSnapshot {
    /// The link's name.
    pub name: String,
    /// Where it is.
    pub state: LinkState,
    /// The upstream address in use or tried last.
    pub address: String,
    /// When the connection in use came up, in milliseconds since the Unix epoch.
    pub connected_since_millis: Option<u64>,
    /// When the next attempt starts, in milliseconds since the Unix epoch.
    pub backoff_until_millis: Option<u64>,
    /// Deliveries held, settled neither by the upstream nor otherwise.
    pub unsettled: u64,
    /// Of these: sent on the connection in use.
    pub in_flight: u64,
    /// Connections do not last: most likely another client uses the same client identifier.
    pub alarm: bool,
    /// Why the last attempt or connection ended.
    pub last_error: Option<String>,
    /// Counters.
    #[serde(flatten)]
    pub counters: LinkCounters,
}

/// Shared between the link's thread, which writes, and anyone who reads.
#[derive(Debug, Default)]
pub struct LinkStatus {
    inner: Mutex<LinkSnapshot>,
}

impl LinkStatus {
    /// The status of a link that has not started yet.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { inner: Mutex::new(LinkSnapshot { name: name.to_owned(), ..LinkSnapshot::default() }) }
    }

    /// A copy of everything.
    #[must_use]
    pub fn snapshot(&self) -> LinkSnapshot {
        self.lock().clone()
    }

    /// Where the link is.
    #[must_use]
    pub fn state(&self) -> LinkState {
        self.lock().state
    }

    /// Messages flow.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.state() == LinkState::Up
    }

    /// Changes the copy. Keep `change` short: readers wait for it.
    pub fn update(&self, change: impl FnOnce(&mut LinkSnapshot)) {
        change(&mut self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, LinkSnapshot> {
        // A reader that panicked cannot leave the plain data half changed in a way that matters.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The wall time that corresponds to `at`, which may lie before or after `now`.
#[must_use]
pub fn wall_at(now: Now, at: Mono) -> Wall {
    Wall((now.wall.0 + at.millis_since(now.mono)).saturating_sub(now.mono.millis_since(at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_flat_json_with_the_state_as_a_word() {
        let status = LinkStatus::new("cloud");
        status.update(|s| {
            s.state = LinkState::Backoff;
            s.counters.acked = 7;
        });
        let json = serde_json::to_value(status.snapshot()).unwrap();
        assert_eq!(json["name"], "cloud");
        assert_eq!(json["state"], "backoff");
        assert_eq!(json["acked"], 7);
        assert_eq!(json["connected_since_millis"], serde_json::Value::Null);
    }

    #[test]
    fn a_monotonic_instant_is_told_in_wall_time() {
        let now = Now { mono: Mono(5_000_000), wall: Wall(100_000) };
        assert_eq!(wall_at(now, Mono(7_000_000)), Wall(102_000));
        assert_eq!(wall_at(now, Mono(1_000_000)), Wall(96_000));
    }
}
