//! Store-and-forward links to upstream MQTT brokers (3.1.1 and 5.0, TCP and TLS).
//!
//! A link is an ordinary durable session of the local broker, attached through [`crate::port`]: its queue exists from the first
//! start on, whether or not the upstream was ever reached. It lives on a thread of its own, so that a hanging name lookup, a
//! slow handshake or a dead peer costs nothing but the link.
//!
//! | file | owns |
//! |---|---|
//! | `rules` | PURE: which topics cross the link and under which name; loop checks |
//! | `wire` | PURE: the packets of the upstream connection, in words that belong to no codec |
//! | `backoff` | PURE: pauses between attempts, the alarm about connections that never last |
//! | `window` | PURE: unsettled deliveries, packet identifiers, what is under way and what is to be sent again |
//! | `inbound` | PURE: messages from upstream that wait for the local commit |
//! | `link` | PURE: the state machine that joins them |
//! | `status` | counters that other threads read |
//! | `client`, `client_*` | the shell: name lookup, sockets, TLS, codec; moves bytes and decides nothing |
//!
//! Invariants:
//! * A delivery is settled only on the upstream's acknowledgement, or counted as parked, expired or matched by no rule.
//! * An inbound message of QoS 1 or 2 is acknowledged only after the local broker said that it is durable.
//! * What is sent again goes in its first order, under its first packet identifier, with DUP set.
//!
//! Bounds: `window` messages and about `inflight_bytes_max` bytes under way, as many held while the upstream is away,
//! `inbound_window` messages from upstream, [`WRITE_BUFFER_BYTES_HIGH`] plus one packet in the write buffer, one packet in the
//! read buffer.

pub mod backoff;
pub mod client;
mod client_codec;
mod client_connect;
#[cfg(test)]
mod client_tests;
mod client_tls;
pub mod inbound;
pub mod link;
pub mod rules;
pub mod status;
pub mod window;
pub mod wire;

use std::path::PathBuf;

use crate::message::Qos;

pub use client::{LinkClock, run_link};
pub use rules::check;
pub use status::{LinkSnapshot, LinkState, LinkStatus};

/// Bytes waiting to be written upstream, from which on nothing is added.
pub const WRITE_BUFFER_BYTES_HIGH: usize = 64 << 10;
/// Most messages under way on one link.
pub const WINDOW_MAX: u16 = 16_384;
/// Upstream addresses of one link.
pub const ADDRESSES_MAX: usize = 16;
/// Topic rules of one link and direction.
pub const RULES_MAX: usize = 256;
/// QoS 0 messages that wait for a place in the write buffer; beyond it they are dropped and counted.
pub const QOS0_WAITING_MAX: usize = 256;
/// Times that the upstream may refuse one message with a reason that could pass before the message is parked.
pub const REFUSALS_MAX: u8 = 3;
/// Gateways that a message may have crossed; one more hop and it is dropped.
pub const HOPS_MAX: usize = 16;
/// The user property that lists the gateways a message has crossed, one property for each.
pub const VIA_PROPERTY: &str = "tidegate-via";

/// One upstream link, checked by [`check`]. Plain data, filled by the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Letters, digits, `-`, `_` and `.`: names the session `$bridge/<name>` and the topic
    /// `$SYS/broker/connection/<name>/state`.
    pub name: String,
    /// Where the upstream is; tried in this order, again from the first one after a connection that lasted.
    pub addresses: Vec<Address>,
    /// MQTT version.
    pub protocol: Protocol,
    /// Client identifier at the upstream; two links with the same one throw each other out.
    pub client_id: String,
    /// Names this gateway in [`VIA_PROPERTY`]; the same for all its links. Empty: `client_id`.
    pub gateway_id: String,
    /// User name.
    pub username: Option<String>,
    /// Password; `password_file` wins.
    pub password: Option<Secret>,
    /// Holds the password; read anew for each connection, so that it can be changed while the link runs.
    pub password_file: Option<PathBuf>,
    /// Keep-alive interval in seconds, at least 1.
    pub keep_alive_secs: u16,
    /// Messages under way to the upstream, 1 to [`WINDOW_MAX`]; also what is held in memory while the upstream is away.
    pub window: u16,
    /// Bytes of messages under way; one message is always allowed.
    pub inflight_bytes_max: u32,
    /// Messages from upstream that may wait for the local commit (Receive Maximum that is announced), at least 1.
    pub inbound_window: u16,
    /// Largest packet in either direction, in bytes. The upstream's own limit (MQTT 5.0) lowers it; an upstream that speaks
    /// 3.1.1 cannot tell its limit, so set it here.
    pub packet_bytes_max: u32,
    /// For the name lookup, for each address, for the TLS handshake and for the answer to CONNECT, in milliseconds each.
    pub connect_timeout_millis: u64,
    /// Without any acknowledgement for this long while messages are under way, the connection counts as dead, in milliseconds.
    pub ack_timeout_millis: u64,
    /// Shortest pause between two rounds of attempts, in milliseconds.
    pub backoff_min_millis: u64,
    /// Longest pause, in milliseconds.
    pub backoff_max_millis: u64,
    /// A connection that lives this long resets the pauses and the failover list, in milliseconds.
    pub stable_after_millis: u64,
    /// How long the upstream keeps the session of a link that has `inbound` rules (MQTT 5.0), in seconds.
    pub session_expiry_secs: u32,
    /// Outgoing messages carry [`VIA_PROPERTY`] (MQTT 5.0 only): costs about 30 bytes a message and stops loops over several
    /// brokers.
    pub mark_path: bool,
    /// Certificates for addresses with `tls`; `None`: the system's roots, no client certificate.
    pub tls: Option<TlsConfig>,
    /// Topics that go up.
    pub out: Vec<Rule>,
    /// Topics that come down.
    pub inbound: Vec<Rule>,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            addresses: Vec::new(),
            protocol: Protocol::V5,
            client_id: String::new(),
            gateway_id: String::new(),
            username: None,
            password: None,
            password_file: None,
            keep_alive_secs: 60,
            window: 100,
            inflight_bytes_max: 1 << 20,
            inbound_window: 100,
            packet_bytes_max: 1 << 20,
            connect_timeout_millis: 10_000,
            ack_timeout_millis: 20_000,
            backoff_min_millis: 1_000,
            backoff_max_millis: 60_000,
            stable_after_millis: 20_000,
            session_expiry_secs: 7 * 24 * 3600,
            mark_path: true,
            tls: None,
            out: Vec::new(),
            inbound: Vec::new(),
        }
    }
}

impl LinkConfig {
    /// The client identifier of the link's session at the local broker.
    #[must_use]
    pub fn session_id(&self) -> String {
        format!("$bridge/{}", self.name)
    }

    /// The local topic that tells whether the link is up (`1`) or not (`0`), retained.
    #[must_use]
    pub fn state_topic(&self) -> String {
        format!("$SYS/broker/connection/{}/state", self.name)
    }

    /// The name of this gateway in [`VIA_PROPERTY`].
    #[must_use]
    pub fn via_id(&self) -> &str {
        if self.gateway_id.is_empty() { &self.client_id } else { &self.gateway_id }
    }
}

/// A text that no log shows.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// The MQTT version that a link speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// MQTT 3.1.1.
    V4,
    /// MQTT 5.0.
    #[default]
    V5,
}

/// One upstream address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Name or IP address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// TLS.
    pub tls: bool,
}

impl Address {
    /// Reads `mqtt://host[:port]` or `mqtts://host[:port]`; an IPv6 address stands in brackets. The default ports are 1883
    /// and 8883.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the text.
    pub fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| format!("`{url}` is no address: write mqtt://host:port or mqtts://host:port"))?;
        let tls = match scheme {
            "mqtt" | "tcp" => false,
            "mqtts" | "ssl" | "tls" => true,
            _ => return Err(format!("`{url}`: scheme `{scheme}` is unknown: write mqtt:// or mqtts://")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
            Some((host, tail)) => (host, tail.strip_prefix(':')),
            None => rest.rsplit_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
        };
        let plain_host = !host.is_empty() && !host.contains(['/', '@', '[', ']', '?', '#', ' ']);
        if !plain_host || (host.contains(':') && !rest.starts_with('[')) {
            return Err(format!(
                "`{url}`: `{host}` is no host name; credentials and paths have keys of their own"
            ));
        }
        let port = match port {
            None => {
                if tls {
                    8883
                } else {
                    1883
                }
            }
            Some(text) => text
                .parse()
                .ok()
                .filter(|port| *port != 0)
                .ok_or_else(|| format!("`{url}`: `{text}` is no port"))?,
        };
        Ok(Self { host: host.to_owned(), port, tls })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.tls { "mqtts" } else { "mqtt" };
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{scheme}://{}:{}", self.host, self.port)
        }
    }
}

/// Certificates of a link. Files are read anew for each connection, so that they can be renewed while the link runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsConfig {
    /// PEM file with the certificates of the authorities to trust; `None`: the system's.
    pub ca_file: Option<PathBuf>,
    /// PEM file with the client certificate and its chain; needs `key_file`.
    pub cert_file: Option<PathBuf>,
    /// PEM file with the client's private key.
    pub key_file: Option<PathBuf>,
    /// The name to be found in the upstream's certificate; `None`: the address's host.
    pub server_name: Option<String>,
}

/// Which topics cross a link, and how. `filter` stands for the part that both sides share: locally it is preceded by
/// `local_prefix`, upstream by `remote_prefix`. A topic that crosses loses one prefix and gains the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Topic filter without either prefix. Empty: each prefix is a whole topic.
    pub filter: String,
    /// In front of the filter at the local broker.
    pub local_prefix: String,
    /// In front of the filter at the upstream.
    pub remote_prefix: String,
    /// Highest quality of service; 2 is treated as 1, since a link delivers at least once.
    pub qos: Qos,
    /// Keep the RETAIN flag; otherwise it is cleared.
    pub retain: bool,
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            filter: "#".to_owned(),
            local_prefix: String::new(),
            remote_prefix: String::new(),
            qos: Qos::AtLeastOnce,
            retain: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_default_ports_and_ipv6_brackets() {
        let address = |host: &str, port, tls| Address { host: host.into(), port, tls };
        assert_eq!(Address::parse("mqtt://cloud.example"), Ok(address("cloud.example", 1883, false)));
        assert_eq!(Address::parse("mqtts://cloud.example/"), Ok(address("cloud.example", 8883, true)));
        assert_eq!(Address::parse("mqtts://[fd00::1]:9"), Ok(address("fd00::1", 9, true)));
        assert_eq!(Address::parse("mqtt://[::1]"), Ok(address("::1", 1883, false)));
        assert_eq!(address("::1", 5, false).to_string(), "mqtt://[::1]:5");
    }

    #[test]
    fn a_configuration_in_a_log_does_not_show_the_password() {
        let config = LinkConfig { password: Some(Secret("hunter2".into())), ..LinkConfig::default() };
        assert!(!format!("{config:?}").contains("hunter2"));
    }

    #[test]
    fn addresses_that_are_none_are_refused_with_the_reason() {
        for bad in [
            "cloud:1883",
            "http://x",
            "mqtt://",
            "mqtt://a:0",
            "mqtt://a:x",
            "mqtt://u@h",
            "mqtt://::1",
            "mqtt://a/b",
        ] {
            assert!(Address::parse(bad).is_err_and(|text| text.contains(bad)), "{bad}");
        }
    }
}
