//! The named limits of a connection and of the decoder. The last word of a name is its unit.

/// Bounds that the decoder holds a peer to.
///
/// `packet_bytes_max` is applied to the fixed header, before the body has arrived. A decoded packet borrows
/// from the input, so a packet costs no memory beside the buffer it lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Largest packet in bytes, its fixed header included (MQTT 5.0, 3.1.2.11.4).
    pub packet_bytes_max: u32,
    /// Most user properties in one property block.
    pub user_properties_max: u16,
    /// Most topic filters in one SUBSCRIBE or UNSUBSCRIBE.
    pub filters_max: u16,
}

impl DecodeLimits {
    /// What the protocol itself allows.
    pub const PROTOCOL: DecodeLimits =
        DecodeLimits { packet_bytes_max: u32::MAX, user_properties_max: u16::MAX, filters_max: u16::MAX };
}

impl Default for DecodeLimits {
    /// 1 MiB per packet, 128 user properties, 1024 filters.
    fn default() -> Self {
        DecodeLimits { packet_bytes_max: 1 << 20, user_properties_max: 128, filters_max: 1024 }
    }
}

/// Bounds of the server side of one connection; the values that MQTT 5.0 lets a server announce go into
/// CONNACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Limits of the decoder after the client was accepted. `packet_bytes_max` is announced as Maximum Packet
    /// Size.
    pub decode: DecodeLimits,
    /// Largest packet in bytes before the client was accepted: CONNECT with its will, and AUTH.
    pub login_packet_bytes_max: u32,
    /// Time in milliseconds from the opening of the connection to its acceptance.
    pub login_ms_max: u32,
    /// Most inbound PUBLISH packets of QoS 1 and 2 without a final acknowledgement, at least 1: Receive
    /// Maximum of MQTT 5.0, back-pressure ([`crate::Received::Blocked`]) in older versions, which cannot
    /// announce it.
    pub inflight_publishes_max: u16,
    /// Most inbound identifiers that a client before MQTT 5.0 has in use, unreleased QoS 2 messages included.
    /// Those do not block it, because the PUBREL that it would have to send lies behind; one more ends the
    /// connection.
    pub unreleased_publishes_max: u16,
    /// Topic Alias Maximum granted to the client; 0 forbids aliases.
    pub inbound_aliases_max: u16,
    /// Bytes of topic names held for inbound aliases, in total.
    pub inbound_alias_bytes_max: u32,
    /// Most topic aliases used towards the client, whatever it grants; 0 switches them off.
    pub outbound_aliases_max: u16,
    /// Bytes of topic names held for outbound aliases, in total.
    pub outbound_alias_bytes_max: u32,
    /// Whether MQTT 3.1 clients are held to client identifiers of at most 23 bytes (MQTT 3.1, "CONNECT").
    pub v31_short_client_ids: bool,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        ConnectionLimits {
            decode: DecodeLimits::default(),
            login_packet_bytes_max: 64 << 10,
            login_ms_max: 10_000,
            inflight_publishes_max: 1024,
            unreleased_publishes_max: 4096,
            inbound_aliases_max: 16,
            inbound_alias_bytes_max: 4096,
            outbound_aliases_max: 16,
            outbound_alias_bytes_max: 4096,
            v31_short_client_ids: false,
        }
    }
}

impl ConnectionLimits {
    /// Most heap bytes that one connection holds under these limits, apart from the driver's buffers and from
    /// identifiers that [`crate::Connection::seed_inbound`] is given.
    pub const fn heap_bytes_max(&self) -> usize {
        // Half of the slots of 4 bytes are free, and growing holds the old table beside the new one.
        let ids =
            larger(self.inflight_publishes_max, self.unreleased_publishes_max).next_power_of_two() * 2 * 4;
        // Lists of aliases grow by doubling; an entry has at most 24 bytes.
        let aliases = (self.inbound_aliases_max as usize + self.outbound_aliases_max as usize) * 2 * 24;
        let topics = self.inbound_alias_bytes_max as usize + self.outbound_alias_bytes_max as usize;
        // The authentication method, and the structure that holds the rare parts together.
        let method = self.login_packet_bytes_max as usize;
        ids + ids / 2 + aliases + topics + method + 256
    }
}

const fn larger(a: u16, b: u16) -> usize {
    if a > b { a as usize } else { b as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_limits_hold_a_connection_to_128_kib() {
        assert!(ConnectionLimits::default().heap_bytes_max() <= 128 << 10);
    }
}
