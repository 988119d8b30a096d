//! What every protocol adapter tells the hub.

use crate::broker::api::{ClientCommand, ConnectRequest};

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
    /// A packet, or a part of what it says, for a branch of the connection; 0 is none.
    Branch {
        /// Its length.
        used: usize,
        /// Which one.
        branch: u32,
        /// What it says.
        command: ClientCommand,
    },
    /// The client wants to log in: whoever it is, the request goes on to the broker once that is known.
    Login {
        /// The packet's length.
        used: usize,
        /// What it presents.
        credentials: Credentials,
        /// What it asks for.
        request: Box<ConnectRequest>,
    },
    /// The next message of an extended authentication, or the first one of a new one on an open connection.
    Authenticate {
        /// The packet's length.
        used: usize,
        /// It begins anew.
        begins: bool,
        /// What it says.
        message: Box<[u8]>,
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

/// What a client presents to prove who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The user name.
    pub user: Option<Box<str>>,
    /// The password, or a token.
    pub password: Option<Box<[u8]>>,
    /// It asks for an extended authentication: the method and its first message.
    pub extended: Option<(Box<str>, Box<[u8]>)>,
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
