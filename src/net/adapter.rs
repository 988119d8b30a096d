//! What every protocol adapter tells the hub.

use crate::broker::api::ClientCommand;

/// What the front of the input was.
#[derive(Debug)]
pub enum Step {
    /// A packet that the broker must hear of.
    Command {
        /// Its length.
        used: usize,
        /// What it says.
        command: ClientCommand,
    },
    /// A packet that was answered here.
    Answered {
        /// Its length.
        used: usize,
    },
    /// The packet's end has not arrived.
    Incomplete {
        /// Bytes that are needed.
        need: usize,
    },
    /// It has to wait until the broker has answered something earlier.
    Blocked,
    /// The conversation is over: the peer misbehaved or was refused.
    End,
}

/// How an event was put into the outbox.
#[derive(Debug)]
pub enum Encoded {
    /// As it should be.
    Done,
    /// Not at all: the client does not take packets of this size. The delivery counts as done [MQTT-3.1.2-25].
    TooLarge(Option<ClientCommand>),
    /// The version has no word for it: the connection must end.
    Unspeakable,
}
