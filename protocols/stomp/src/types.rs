//! The vocabulary: versions, commands, acknowledgement modes, heart-beats.

use core::fmt;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// STOMP 1.0: no escapes, values are trimmed.
    V10,
    /// STOMP 1.1: escapes, heart-beats, NACK.
    V11,
    /// STOMP 1.2: carriage returns before line feeds and in escapes, `ack` identifiers.
    V12,
}

/// All versions as the `version` header of an ERROR lists them.
pub(crate) const VERSIONS: &str = "1.0,1.1,1.2";

impl Version {
    /// All versions, the oldest first.
    pub const ALL: [Version; 3] = [Version::V10, Version::V11, Version::V12];

    /// The version's number as it is written in headers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Version::V10 => "1.0",
            Version::V11 => "1.1",
            Version::V12 => "1.2",
        }
    }

    /// The version with this number.
    pub fn parse(text: &str) -> Option<Version> {
        Version::ALL.into_iter().find(|version| version.as_str() == text)
    }

    /// The highest version that an `accept-version` header names (STOMP 1.1, "Protocol Negotiation"). Unknown
    /// numbers and spaces around numbers are skipped; `None` if nothing else is there.
    pub fn negotiate(accept_version: &str) -> Option<Version> {
        accept_version.split(',').filter_map(|number| Version::parse(number.trim_matches(' '))).max()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A frame's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// A client logs in.
    Connect,
    /// The other name of CONNECT (STOMP 1.1, "CONNECT or STOMP Frame").
    Stomp,
    /// The server lets the client in.
    Connected,
    /// A client sends a message.
    Send,
    /// A client wants messages.
    Subscribe,
    /// A client wants no more messages.
    Unsubscribe,
    /// A client has consumed a message.
    Ack,
    /// A client has not consumed a message; since STOMP 1.1.
    Nack,
    /// A client opens a transaction.
    Begin,
    /// A client commits a transaction.
    Commit,
    /// A client rolls a transaction back.
    Abort,
    /// A client leaves.
    Disconnect,
    /// The server delivers a message.
    Message,
    /// The server has processed a frame.
    Receipt,
    /// The server closes the connection.
    Error,
}

impl Command {
    /// All commands.
    pub const ALL: [Command; 15] = [
        Command::Connect,
        Command::Stomp,
        Command::Connected,
        Command::Send,
        Command::Subscribe,
        Command::Unsubscribe,
        Command::Ack,
        Command::Nack,
        Command::Begin,
        Command::Commit,
        Command::Abort,
        Command::Disconnect,
        Command::Message,
        Command::Receipt,
        Command::Error,
    ];

    /// The command's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Command::Connect => "CONNECT",
            Command::Stomp => "STOMP",
            Command::Connected => "CONNECTED",
            Command::Send => "SEND",
            Command::Subscribe => "SUBSCRIBE",
            Command::Unsubscribe => "UNSUBSCRIBE",
            Command::Ack => "ACK",
            Command::Nack => "NACK",
            Command::Begin => "BEGIN",
            Command::Commit => "COMMIT",
            Command::Abort => "ABORT",
            Command::Disconnect => "DISCONNECT",
            Command::Message => "MESSAGE",
            Command::Receipt => "RECEIPT",
            Command::Error => "ERROR",
        }
    }

    /// The command with exactly this name; names are case sensitive (STOMP 1.2, "STOMP Frames").
    pub fn parse(name: &[u8]) -> Option<Command> {
        Command::ALL.into_iter().find(|command| command.as_str().as_bytes() == name)
    }

    /// Whether frames with this command may have a body (STOMP 1.1, "Body").
    pub const fn has_body(self) -> bool {
        matches!(self, Command::Send | Command::Message | Command::Error)
    }

    /// Whether the version knows the command. STOMP is taken in every version.
    pub fn is_in(self, version: Version) -> bool {
        self != Command::Nack || version != Version::V10
    }

    /// Whether the command opens a conversation: CONNECT or STOMP.
    pub const fn is_connect(self) -> bool {
        matches!(self, Command::Connect | Command::Stomp)
    }

    /// Whether only a server sends the command.
    pub const fn is_from_server(self) -> bool {
        matches!(self, Command::Connected | Command::Message | Command::Receipt | Command::Error)
    }

    /// Whether headers are written as they are, without escapes, in every version (STOMP 1.1, "Value
    /// Encoding").
    pub(crate) const fn is_plain(self) -> bool {
        matches!(self, Command::Connect | Command::Stomp | Command::Connected)
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How the messages of a subscription are acknowledged (STOMP 1.2, "SUBSCRIBE ack Header").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AckMode {
    /// A message is consumed when it is sent.
    #[default]
    Auto,
    /// ACK and NACK speak for all earlier messages of the subscription too.
    Client,
    /// ACK and NACK speak for one message.
    ClientIndividual,
}

impl AckMode {
    /// The value of the `ack` header.
    pub const fn as_str(self) -> &'static str {
        match self {
            AckMode::Auto => "auto",
            AckMode::Client => "client",
            AckMode::ClientIndividual => "client-individual",
        }
    }

    /// The mode with this name.
    pub fn parse(text: &str) -> Option<AckMode> {
        [AckMode::Auto, AckMode::Client, AckMode::ClientIndividual]
            .into_iter()
            .find(|mode| mode.as_str() == text)
    }
}

/// The two numbers of a `heart-beat` header (STOMP 1.1, "Heart-beating"). Zero means never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeartBeat {
    /// The shortest interval in milliseconds at which the sender of the header can send something.
    pub send_ms: u32,
    /// The interval in milliseconds at which the sender of the header wants to receive something.
    pub receive_ms: u32,
}

impl HeartBeat {
    /// Reads `<digits>,<digits>`; `None` for anything else and for numbers above `u32::MAX`.
    pub fn parse(text: &str) -> Option<HeartBeat> {
        let (send, receive) = text.split_once(',')?;
        Some(HeartBeat { send_ms: number(send)?, receive_ms: number(receive)? })
    }

    /// The interval at which this side sends to `peer`; 0 if it does not.
    pub fn interval_to(self, peer: HeartBeat) -> u32 {
        match (self.send_ms, peer.receive_ms) {
            (0, _) | (_, 0) => 0,
            (can, wanted) => can.max(wanted),
        }
    }
}

/// Digits and nothing else: `parse` alone would take a sign.
fn number(text: &str) -> Option<u32> {
    match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse().ok(),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_common_version_is_chosen_whatever_the_order() {
        let cases = [
            ("1.0,1.1,2.0", Some(Version::V11)),
            ("1.2,1.0,1.2,1.1", Some(Version::V12)),
            ("0.9, 1.1,banana", Some(Version::V11)),
            ("2.1", None),
            ("", None),
            ("1", None),
        ];
        for (accepted, expected) in cases {
            assert_eq!(Version::negotiate(accepted), expected, "{accepted}");
        }
    }

    #[test]
    fn names_of_commands_are_taken_whole_and_as_they_are_written() {
        assert!(Command::ALL.into_iter().all(|it| Command::parse(it.as_str().as_bytes()) == Some(it)));
        for name in ["send", "SENDX", "SEN", "SED", "ACKNOWLEDGE", "CONNECTX", ""] {
            assert_eq!(Command::parse(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn heart_beats_are_two_plain_numbers() {
        assert_eq!(HeartBeat::parse("0,1000"), Some(HeartBeat { send_ms: 0, receive_ms: 1000 }));
        for text in ["", "abc", "1", "-1,0", "+1,0", "1,2,3", "1,", ",", "1, 2", "99999999999999999999,1"] {
            assert_eq!(HeartBeat::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_slower_of_two_wishes_counts_and_zero_means_never() {
        let server = HeartBeat { send_ms: 1000, receive_ms: 1000 };
        let interval = |send_ms, receive_ms| {
            let client = HeartBeat { send_ms, receive_ms };
            (server.interval_to(client), client.interval_to(server))
        };
        assert_eq!(interval(0, 0), (0, 0));
        assert_eq!(interval(5000, 100), (1000, 5000));
        assert_eq!(interval(10, 7000), (7000, 1000));
    }
}
