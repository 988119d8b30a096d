//! The named limits of a connection and of the decoder. The last word of a name is its unit.

use crate::types::HeartBeat;

/// Bounds that the decoder holds a peer to, while it reads. A decoded frame borrows from the input, so a frame
/// costs no memory beside the buffer it lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Longest command line in bytes, without its end of line.
    pub command_bytes_max: u16,
    /// Longest header line in bytes as it is written, without its end of line.
    pub header_line_bytes_max: u32,
    /// All header lines of a frame in bytes, with their ends and the blank line.
    pub header_bytes_max: u32,
    /// Most header lines of a frame, repeated headers counted.
    pub headers_max: u16,
    /// Largest body in bytes, whether it is announced by `content-length` or ended by NUL.
    pub body_bytes_max: u32,
}

impl DecodeLimits {
    /// Nothing but what the types can hold.
    pub const UNBOUNDED: DecodeLimits = DecodeLimits {
        command_bytes_max: u16::MAX,
        header_line_bytes_max: u32::MAX,
        header_bytes_max: u32::MAX,
        headers_max: u16::MAX,
        body_bytes_max: u32::MAX,
    };

    /// Bytes of the largest frame: [`crate::Decoded::Incomplete`] never asks for more.
    pub const fn frame_bytes_max(&self) -> u64 {
        let command = self.command_bytes_max as u64 + 2;
        let body =
            if self.body_bytes_max > FILLER_BYTES_MAX { self.body_bytes_max } else { FILLER_BYTES_MAX };
        command + self.header_bytes_max as u64 + body as u64 + 1
    }
}

/// Ends of lines that are tolerated where a frame without a body has its body: old clients write one.
pub(crate) const FILLER_BYTES_MAX: u32 = 64;

impl Default for DecodeLimits {
    /// 64 bytes for the command, 100 headers of 16 KiB and 64 KiB together, 1 MiB for the body.
    fn default() -> Self {
        DecodeLimits {
            command_bytes_max: 64,
            header_line_bytes_max: 16 << 10,
            header_bytes_max: 64 << 10,
            headers_max: 100,
            body_bytes_max: 1 << 20,
        }
    }
}

/// Bounds of the server side of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Limits of the decoder after the client was accepted.
    pub decode: DecodeLimits,
    /// Limits of the decoder before.
    pub login: DecodeLimits,
    /// Time in milliseconds from the opening of the connection to its acceptance, whatever arrives meanwhile.
    pub login_ms_max: u32,
    /// Time in milliseconds that the end of a conversation waits for receipts of earlier frames.
    pub closing_ms_max: u32,
    /// Most receipts that are asked for and not written; more are back-pressure
    /// ([`crate::Received::Blocked`]).
    pub receipts_max: u16,
    /// Bytes of their identifiers beyond which there is back-pressure. One identifier may exceed them.
    pub receipt_bytes_max: u32,
    /// Most subscriptions, those included that have ended and have unacknowledged messages.
    pub subscriptions_max: u16,
    /// Most transactions that are open at a time.
    pub transactions_max: u16,
    /// Most SEND, ACK and NACK frames in one transaction.
    pub transaction_actions_max: u32,
    /// Bytes of subscription identifiers and transaction names held, in total. STOMP 1.0 adds destinations.
    pub identifier_bytes_max: u32,
    /// Most messages that are sent and neither acknowledged nor part of a decided transaction.
    pub deliveries_max: u32,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        ConnectionLimits {
            decode: DecodeLimits::default(),
            login: DecodeLimits {
                command_bytes_max: 64,
                header_line_bytes_max: 8 << 10,
                header_bytes_max: 8 << 10,
                headers_max: 32,
                body_bytes_max: 256,
            },
            login_ms_max: 10_000,
            closing_ms_max: 1000,
            receipts_max: 1024,
            receipt_bytes_max: 64 << 10,
            subscriptions_max: 256,
            transactions_max: 16,
            transaction_actions_max: 1024,
            identifier_bytes_max: 64 << 10,
            deliveries_max: 1024,
        }
    }
}

impl ConnectionLimits {
    /// Most heap bytes that one connection holds under these limits, apart from the driver's buffers.
    pub const fn heap_bytes_max(&self) -> usize {
        let line = self.decode.header_line_bytes_max as usize;
        // Lists grow by doubling, and the old list lies beside the new one meanwhile.
        let receipts = self.receipts_max as usize * 24 * 3 + self.receipt_bytes_max as usize + line;
        // A node of a tree is at least half full, and has its keys and values beside 12 pointers for 11 entries.
        let subscriptions = self.subscriptions_max as usize * 64 * 3;
        let deliveries = self.deliveries_max as usize * (32 * 2 + 24);
        // The list of the last acknowledgement, and the lists of what transactions have acknowledged.
        let settled = self.deliveries_max as usize * (8 + 16) * 3;
        let transactions = self.transactions_max as usize * 64 * 3;
        // The receipt of a faulty frame, then the encoded ERROR.
        let closing = 2 * line + 4096;
        receipts
            + subscriptions
            + deliveries
            + settled
            + transactions
            + closing
            + self.identifier_bytes_max as usize
    }
}

/// What a server wants from its connections, beside limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// Whether a line feed follows each frame. Some clients wait for it, some devices cannot read it.
    pub trailing_lf: bool,
    /// Whether CONNECT without `host` is refused since STOMP 1.1. The specification requires it of clients,
    /// and many leave it out.
    pub host_required: bool,
    /// The heart-beat that the server offers and asks for.
    pub heart_beat: HeartBeat,
    /// How late a client's heart-beat may be, in percent of the interval. A late beat is not a dead peer.
    pub tolerance_percent: u16,
    /// How late a client's heart-beat may be at least, in milliseconds.
    pub tolerance_ms_min: u32,
}

impl Default for ConnectionOptions {
    /// A trailing line feed; beats each second if the client wants them, twice as late as agreed at most.
    fn default() -> Self {
        ConnectionOptions {
            trailing_lf: true,
            host_required: false,
            heart_beat: HeartBeat { send_ms: 1000, receive_ms: 1000 },
            tolerance_percent: 100,
            tolerance_ms_min: 1000,
        }
    }
}

/// Everything that is set for a connection; many may share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionSettings {
    /// Bounds.
    pub limits: ConnectionLimits,
    /// Wishes.
    pub options: ConnectionOptions,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_limits_hold_a_connection_to_512_kib() {
        let bytes = ConnectionLimits::default().heap_bytes_max();
        assert!(bytes <= 512 << 10, "{bytes}");
    }
}
