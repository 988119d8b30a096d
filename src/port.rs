//! A client inside this process: how a bridge link, which lives on a thread of its own, attaches to the broker like any
//! other connection. Both channels are bounded; the broker bounds deliveries by the session's receive maximum.

use tokio::sync::mpsc;

use crate::broker::api::{ClientCommand, ClientEvent};

/// Commands that may wait for the broker, in messages.
pub const PORT_COMMANDS_MAX: usize = 256;

/// QoS 0 messages that may wait for the link; those beyond are dropped. They have places of their own, so that they take none
/// from what must not be lost.
pub const PORT_UNQUEUED_MAX: usize = 256;

/// The link's end. Dropping it ends the connection (`ClientCommand::Lost`).
#[derive(Debug)]
pub struct Port {
    /// To the broker. Waits when the broker is behind.
    pub commands: mpsc::Sender<ClientCommand>,
    /// From the broker. Closed when the broker ended the connection.
    pub events: mpsc::Receiver<ClientEvent>,
}

/// The broker's end.
#[derive(Debug)]
pub struct PortPeer {
    /// From the link.
    pub commands: mpsc::Receiver<ClientCommand>,
    /// To the link. An event that finds no place ends the connection: the window bounds what may be under way.
    pub events: mpsc::Sender<ClientEvent>,
}

/// Makes both ends. `receive_max` is the window that the link's `Connect` will offer.
#[must_use]
pub fn port(receive_max: u16) -> (Port, PortPeer) {
    let (command_tx, command_rx) = mpsc::channel(PORT_COMMANDS_MAX);
    let never_lost = 2 * usize::from(receive_max) + PORT_COMMANDS_MAX + 16;
    let (event_tx, event_rx) = mpsc::channel(never_lost + PORT_UNQUEUED_MAX);
    (Port { commands: command_tx, events: event_rx }, PortPeer { commands: command_rx, events: event_tx })
}

/// Where a link gets its port: the driver serves the requests.
pub type PortRequests = mpsc::Sender<PortPeer>;
