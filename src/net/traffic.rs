//! Counters of what passed the protocol adapters.

use serde::{Deserialize, Serialize};

/// Counts since the process started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes read from clients.
    pub bytes_in: u64,
    /// Bytes written to clients.
    pub bytes_out: u64,
    /// Packets from clients, of any type.
    pub packets_in: u64,
    /// Packets to clients, of any type.
    pub packets_out: u64,
    /// Messages published by clients, by QoS.
    pub messages_in: [u64; 3],
    /// Messages sent to clients, by QoS; repetitions count again.
    pub messages_out: [u64; 3],
    /// Topics and payloads of `messages_in`, in bytes.
    pub message_bytes_in: [u64; 3],
    /// Topics and payloads of `messages_out`, in bytes.
    pub message_bytes_out: [u64; 3],
    /// Connections that are over.
    pub closed: u64,
    /// Sockets accepted.
    pub accepted: u64,
    /// Sockets closed at once because of `connections_max`.
    pub refused_connections: u64,
    /// Connections that sent what is no packet, or a packet against the protocol.
    pub malformed: u64,
    /// Connections whose packet was larger than allowed.
    pub packet_too_large: u64,
    /// Logins refused: nothing presented, or something wrong.
    #[serde(default)]
    pub denied_logins: u64,
    /// Connections that did not log in in time.
    pub login_timeouts: u64,
    /// Connections that were silent for too long.
    pub keep_alive_timeouts: u64,
    /// Messages that a client does not take because of its Maximum Packet Size.
    pub oversized_for_client: u64,
    /// QoS 0 messages for links that had no place for them.
    pub dropped_at_port: u64,
    /// Messages and commits that had to wait for room.
    #[serde(default)]
    pub waited_for_room: u64,
    /// Connections ended because partly received packets took too much memory.
    pub read_buffer_limit: u64,
    /// Large packets whose connection had to wait until others were done with theirs.
    #[serde(default)]
    pub large_packets_held_back: u64,
}
