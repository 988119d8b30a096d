//! What carries the bytes of a handshake: a socket, or TLS on it.

use std::io;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::driver::stream::Stream;
use crate::driver::tls_machine::{Heard, TlsMachine};

/// Bytes that are read at a time. More would only wait here for what is inside.
const READ_BYTES: usize = 2 << 10;

/// A connection before its protocol begins.
pub struct Carrier {
    stream: Stream,
    tls: Option<Box<TlsMachine>>,
    /// What has arrived, inside of TLS, and was not taken.
    heard: Vec<u8>,
}

impl Carrier {
    /// Without TLS.
    pub const fn plain(stream: Stream) -> Self {
        Self { stream, tls: None, heard: Vec::new() }
    }

    /// With TLS, once its handshake is done.
    ///
    /// # Errors
    /// Why the connection is closed.
    pub async fn secure(stream: Stream, config: Arc<ServerConfig>) -> Result<Self, String> {
        let tls = TlsMachine::new(config).map_err(|error| format!("TLS: {error}"))?;
        let mut carrier = Self { stream, tls: Some(Box::new(tls)), heard: Vec::new() };
        while carrier.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            carrier.listen().await?;
        }
        Ok(carrier)
    }

    /// What the peer has shown.
    pub fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.tls.as_ref()?.peer_certificates()
    }

    /// Nobody else reads along.
    pub const fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// What has arrived.
    pub fn heard(&self) -> &[u8] {
        &self.heard
    }

    /// Takes the first `n` bytes of it away.
    pub fn take(&mut self, n: usize) {
        self.heard.drain(..n);
        self.heard.shrink_to_fit();
    }

    /// Waits for more from the peer, and answers what belongs to TLS.
    ///
    /// # Errors
    /// When the peer has left or broke the rules.
    pub async fn listen(&mut self) -> Result<(), String> {
        let mut wire = [0; READ_BYTES];
        let read = self.stream.read(&mut wire).await.map_err(text)?;
        let wire = &mut wire[..read];
        let Some(tls) = &mut self.tls else {
            self.heard.extend_from_slice(wire);
            return if read == 0 { Err(left()) } else { Ok(()) };
        };
        let mut out = Vec::new();
        let result = tls.receive(wire, &mut self.heard, &mut out);
        self.stream.write_all(&out).await.map_err(text)?;
        match result {
            Err(error) => Err(format!("TLS: {error}")),
            // One who says goodbye may have said something before; the end of the stream follows.
            Ok(Heard::Open | Heard::Closed) if read > 0 => Ok(()),
            Ok(_) => Err(left()),
        }
    }

    /// Says something to the peer.
    ///
    /// # Errors
    /// When the socket is broken.
    pub async fn say(&mut self, bytes: &[u8]) -> Result<(), String> {
        let Some(tls) = &mut self.tls else { return self.stream.write_all(bytes).await.map_err(text) };
        let mut out = Vec::new();
        tls.send(bytes, &mut out);
        self.stream.write_all(&out).await.map_err(text)
    }

    /// Says a last word, then waits until the peer has closed too: closing a socket with unread input could destroy the answer.
    ///
    /// # Errors
    /// When the socket is broken.
    pub async fn refuse(&mut self, answer: &[u8]) -> Result<(), String> {
        self.say(answer).await?;
        let mut out = Vec::new();
        if let Some(tls) = &mut self.tls {
            tls.close(&mut out);
        }
        self.stream.write_all(&out).await.map_err(text)?;
        self.stream.shutdown().await.map_err(text)?;
        let mut waste = [0; 256];
        while self.stream.read(&mut waste).await.map_err(text)? > 0 {}
        Ok(())
    }

    /// The socket, what is between it and the protocol, and what has arrived for the protocol.
    pub fn into_parts(self) -> (Stream, Option<Box<TlsMachine>>, Vec<u8>) {
        (self.stream, self.tls, self.heard)
    }
}

fn text(error: io::Error) -> String {
    error.to_string()
}

fn left() -> String {
    "the peer left in the middle of the handshake".to_owned()
}
