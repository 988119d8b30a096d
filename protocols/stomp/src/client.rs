//! A small client without IO, for tests and simulated clients.
//!
//! # Call order
//! [`Client::connect`], then [`Client::receive`] for what arrives; CONNECTED sets the version. In between
//! whatever the client has to say. All methods append to a buffer of the caller, and nothing if they fail.

use crate::codec::{Decoded, Decoder, FrameWriter};
use crate::error::{DecodeError, EncodeError};
use crate::frame::Frame;
use crate::limits::DecodeLimits;
use crate::types::{AckMode, Command, HeartBeat, Version};
use alloc::string::String;
use alloc::vec::Vec;

/// Headers beside those that a method names, such as `receipt` and `transaction`.
pub type Extra<'h> = &'h [(&'h str, &'h str)];

/// What a client says in CONNECT.
#[derive(Clone, Copy, Debug)]
pub struct Login<'a> {
    /// The versions that the client speaks. With 1.0 alone it sends the CONNECT of STOMP 1.0.
    pub versions: &'a [Version],
    /// The virtual host.
    pub host: &'a str,
    /// User and password.
    pub login: Option<(&'a str, &'a str)>,
    /// What the client offers and wants.
    pub heart_beat: HeartBeat,
}

/// A client's end of a connection. It remembers the version and nothing of its messages.
#[derive(Clone, Debug)]
pub struct Client {
    version: Version,
    limits: DecodeLimits,
    decoder: Decoder,
}

impl Client {
    /// A client that has not connected.
    pub const fn new(limits: DecodeLimits) -> Client {
        Client { version: Version::V12, limits, decoder: Decoder::new() }
    }

    /// The version of the last CONNECTED; the latest one before.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Writes CONNECT.
    ///
    /// # Errors
    /// [`EncodeError`].
    pub fn connect(&self, out: &mut Vec<u8>, login: &Login<'_>) -> Result<(), EncodeError> {
        let mut frame = FrameWriter::new(out, Version::V12, Command::Connect)?;
        if login.versions != [Version::V10] {
            let numbers: Vec<&str> = login.versions.iter().map(|version| version.as_str()).collect();
            let numbers: String = numbers.join(",");
            let HeartBeat { send_ms, receive_ms } = login.heart_beat;
            frame.header("accept-version", &numbers)?.header("host", login.host)?;
            frame.display("heart-beat", format_args!("{send_ms},{receive_ms}"))?;
        }
        if let Some((user, password)) = login.login {
            frame.header("login", user)?.header("passcode", password)?;
        }
        frame.end(b"")
    }

    /// Looks at what has arrived; as [`Decoder::decode`].
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn receive<'a>(&mut self, input: &'a [u8]) -> Result<Decoded<'a>, DecodeError> {
        let decoded = self.decoder.decode(self.version, input, &self.limits)?;
        if let Decoded::Frame { frame, .. } = &decoded
            && frame.command == Command::Connected
        {
            self.version = frame.version;
        }
        Ok(decoded)
    }

    /// Writes SEND with its `content-length`.
    ///
    /// # Errors
    /// [`EncodeError`].
    pub fn send(
        &self,
        out: &mut Vec<u8>,
        destination: &str,
        body: &[u8],
        extra: Extra<'_>,
    ) -> Result<(), EncodeError> {
        let mut frame = FrameWriter::new(out, self.version, Command::Send)?;
        frame.content_length(body.len())?.header("destination", destination)?;
        frame.headers(extra.iter().copied())?;
        frame.end(body)
    }

    /// Writes SUBSCRIBE.
    ///
    /// # Errors
    /// [`EncodeError`].
    pub fn subscribe(
        &self,
        out: &mut Vec<u8>,
        id: &str,
        destination: &str,
        ack: AckMode,
        extra: Extra<'_>,
    ) -> Result<(), EncodeError> {
        let mut frame = FrameWriter::new(out, self.version, Command::Subscribe)?;
        frame.header("id", id)?.header("destination", destination)?.header("ack", ack.as_str())?;
        frame.headers(extra.iter().copied())?;
        frame.end(b"")
    }

    /// Writes UNSUBSCRIBE.
    ///
    /// # Errors
    /// [`EncodeError`].
    pub fn unsubscribe(&self, out: &mut Vec<u8>, id: &str, extra: Extra<'_>) -> Result<(), EncodeError> {
        self.named(out, Command::Unsubscribe, ("id", id), extra)
    }

    /// Writes ACK for a MESSAGE, as the version names it.
    ///
    /// # Errors
    /// [`EncodeError`].
    pub fn ack(&self, out: &mut Vec<u8>, message: &Frame<'_>, extra: Extra<'_>) -> Result<(), EncodeError> {
        self.answer(out, Command::Ack, message, extra)
    }

    /// Writes NACK for a MESSAGE.
    ///
    /// # Errors
    /// [`EncodeError`]; STOMP 1.0 has no NACK.
    pub fn nack(&self, out: &mut Vec<u8>, message: &Frame<'_>, extra: Extra<'_>) -> Result<(), EncodeError> {
        self.answer(out, Command::Nack, message, extra)
    }

    /// Writes BEGIN.
    ///
    /// # Errors
    /// [`EncodeError`].
    pub fn begin(&self, out: &mut Vec<u8>, transaction: &str, extra: Extra<'_>) -> Result<(), EncodeError> {
        self.named(out, Command::Begin, ("transaction", transaction), extra)
    }

    /// Writes COMMIT.
    ///
    /// # Errors
    /// [`EncodeError`].
    pub fn commit(&self, out: &mut Vec<u8>, transaction: &str, extra: Extra<'_>) -> Result<(), EncodeError> {
        self.named(out, Command::Commit, ("transaction", transaction), extra)
    }

    /// Writes ABORT.
    ///
    /// # Errors
    /// [`EncodeError`].
    pub fn abort(&self, out: &mut Vec<u8>, transaction: &str, extra: Extra<'_>) -> Result<(), EncodeError> {
        self.named(out, Command::Abort, ("transaction", transaction), extra)
    }

    /// Writes DISCONNECT with a receipt.
    ///
    /// # Errors
    /// [`EncodeError`].
    pub fn disconnect(&self, out: &mut Vec<u8>, receipt: &str) -> Result<(), EncodeError> {
        self.named(out, Command::Disconnect, ("receipt", receipt), &[])
    }

    /// Writes a heart-beat.
    pub fn heart_beat(&self, out: &mut Vec<u8>) {
        out.push(b'\n');
    }

    fn answer(
        &self,
        out: &mut Vec<u8>,
        command: Command,
        message: &Frame<'_>,
        extra: Extra<'_>,
    ) -> Result<(), EncodeError> {
        let value = |name| message.headers.get(name).unwrap_or_default();
        let mut frame = FrameWriter::new(out, self.version, command)?;
        match self.version {
            Version::V12 => frame.header("id", &value("ack"))?,
            Version::V11 => frame
                .header("subscription", &value("subscription"))?
                .header("message-id", &value("message-id"))?,
            Version::V10 => frame.header("message-id", &value("message-id"))?,
        };
        frame.headers(extra.iter().copied())?;
        frame.end(b"")
    }

    fn named(
        &self,
        out: &mut Vec<u8>,
        command: Command,
        (name, value): (&str, &str),
        extra: Extra<'_>,
    ) -> Result<(), EncodeError> {
        let mut frame = FrameWriter::new(out, self.version, command)?;
        frame.header(name, value)?.headers(extra.iter().copied())?;
        frame.end(b"")
    }
}
