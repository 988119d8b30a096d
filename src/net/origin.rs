//! Where a connection comes from: what the driver knows about it before its first byte is heard.
//!
//! A plain value, kept with the connection for as long as it lives, for access control and for the log.

use std::fmt;
use std::net::SocketAddr;

/// What is spoken on a connection. A listener's URL says it, or the WebSocket sub-protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// MQTT 3.1, 3.1.1 or 5.0.
    Mqtt,
    /// STOMP 1.0, 1.1 or 1.2.
    Stomp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mqtt => "MQTT",
            Self::Stomp => "STOMP",
        })
    }
}

/// The other end of a socket. Where the listener takes the PROXY protocol, this is what the proxy says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// A TCP peer.
    Ip(SocketAddr),
    /// A process of this machine, over a Unix socket.
    Local,
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Local => f.write_str("local"),
        }
    }
}

/// Where a connection comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its other end.
    pub peer: PeerAddress,
    /// Which of the configured listeners accepted it, counted from 0.
    pub listener: u16,
    /// Nobody between here and there can listen: TLS, or a Unix socket.
    pub secure: bool,
    /// The listener wants a line feed after each STOMP frame.
    pub trailing_lf: bool,
    /// The user name that the peer's verified certificate gives it.
    pub user: Option<Box<str>>,
}

impl Origin {
    /// A plain connection to the first listener.
    #[must_use]
    pub fn plain(peer: PeerAddress) -> Self {
        Self { peer, listener: 0, secure: false, trailing_lf: false, user: None }
    }
}
