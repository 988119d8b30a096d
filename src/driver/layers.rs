//! What is between a socket and the protocol on connections that are not plain: TLS, WebSocket frames, or both.
//!
//! Two machines without a socket, one inside the other. [`Layers::decode`] turns what one read brought into the protocol's bytes;
//! [`Layers::encode`] takes bytes of the protocol, and [`Layers::flush`] writes what came of them. Bytes are taken from an outbox
//! only while nothing waits here, so a connection that lags holds at most [`ENCODE_BYTES_MAX`] and a little beside its outbox.

use std::io::{self, ErrorKind, IoSlice, Read, Write};

use rustls::ServerConnection;

use crate::driver::stream::WriteHalf;
use crate::net::hub::Output;
use crate::net::websocket::{CLOSE_NORMAL, Framing, close_frame, message_head};

/// Bytes of the protocol that are encoded at a time.
pub const ENCODE_BYTES_MAX: usize = 16 << 10;
/// Answers to pings that may wait; further pings of a peer that does not read go unanswered.
const ANSWER_BYTES_MAX: usize = 4 << 10;

/// WebSocket frames, in both directions.
#[derive(Debug)]
pub struct WebSocket {
    /// What comes in.
    pub framing: Framing,
    /// What goes out goes in text frames where it is text.
    pub text: bool,
}

/// The layers of one connection.
#[derive(Debug)]
pub struct Layers {
    tls: Option<Box<ServerConnection>>,
    websocket: Option<WebSocket>,
    /// Frames that wait for the socket or for TLS.
    frames: Vec<u8>,
    written: usize,
    close_code: u16,
    closed: bool,
}

/// What one read was to the protocol.
#[derive(Debug)]
pub struct Decoded<'a> {
    /// Its bytes; may be empty.
    pub bytes: &'a [u8],
    /// Nothing follows: the peer said goodbye, or broke the rules of a layer.
    pub over: bool,
}

impl Layers {
    /// For a connection whose handshakes are done.
    #[must_use]
    pub fn new(tls: Option<Box<ServerConnection>>, websocket: Option<WebSocket>) -> Self {
        Self { tls, websocket, frames: Vec::new(), written: 0, close_code: CLOSE_NORMAL, closed: false }
    }

    /// Takes what was read from the socket. `plain` is a buffer to decrypt into.
    pub fn decode<'a>(&mut self, wire: &'a mut [u8], plain: &'a mut Vec<u8>) -> Decoded<'a> {
        let (bytes, over) = match &mut self.tls {
            Some(tls) => {
                plain.clear();
                let over = decrypt(tls, wire, plain).is_err();
                (&mut plain[..], over)
            }
            None => (wire, false),
        };
        let unframed = self.unframe(bytes);
        Decoded { bytes: unframed.bytes, over: over || unframed.over }
    }

    /// Takes what is inside of TLS already.
    pub fn unframe<'a>(&mut self, bytes: &'a mut [u8]) -> Decoded<'a> {
        let Some(websocket) = &mut self.websocket else { return Decoded { bytes, over: false } };
        let mut answers = Vec::new();
        let taken = websocket.framing.take(bytes, &mut answers);
        if let Some(code) = taken.end {
            self.close_code = code;
        }
        if self.frames.len() + answers.len() <= ANSWER_BYTES_MAX {
            self.push(&answers);
        }
        Decoded { bytes: &bytes[..taken.payload], over: taken.end.is_some() }
    }

    /// Something waits for the socket.
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.written < self.frames.len() || self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Takes bytes of the protocol, not more than [`ENCODE_BYTES_MAX`]; says how many. To be called only while nothing waits.
    pub fn encode(&mut self, output: &Output<'_>) -> usize {
        let single;
        let slices: &[IoSlice<'_>] = match output {
            Output::Single(bytes) => {
                single = [IoSlice::new(bytes)];
                &single
            }
            Output::Many(slices) => slices,
        };
        let all: usize = slices.iter().map(|slice| slice.len()).sum();
        let total = all.min(ENCODE_BYTES_MAX);
        if let Some(websocket) = &self.websocket {
            let text = websocket.text && is_text(slices, total);
            let mut head = Vec::new();
            message_head(text, total, &mut head);
            self.push(&head);
        }
        let mut left = total;
        for slice in slices {
            let n = slice.len().min(left);
            self.push(&slice[..n]);
            left -= n;
        }
        total
    }

    /// Says goodbye in each layer's own way, once.
    pub fn close(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        if self.websocket.is_some() {
            let mut frame = Vec::new();
            close_frame(self.close_code, &mut frame);
            self.push(&frame);
        }
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
    }

    /// Writes what waits; `false`: the socket takes no more now.
    ///
    /// # Errors
    /// When the socket is broken.
    pub fn flush(&mut self, socket: &WriteHalf) -> io::Result<bool> {
        let mut socket = Socket(socket);
        while self.has_output() {
            let result = match &mut self.tls {
                Some(tls) => tls.write_tls(&mut socket).map(|_| 0),
                None => socket.write(&self.frames[self.written..]),
            };
            match result {
                Ok(n) => self.written += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.frames = Vec::new();
        self.written = 0;
        Ok(true)
    }

    fn push(&mut self, bytes: &[u8]) {
        match &mut self.tls {
            // Its buffer has no bound of its own: this one's callers are bounded.
            Some(tls) => tls.writer().write_all(bytes).expect("rustls buffers without a bound"),
            None => self.frames.extend_from_slice(bytes),
        }
    }
}

/// Decrypts all of `wire` to the end of `plain`.
fn decrypt(tls: &mut ServerConnection, mut wire: &[u8], plain: &mut Vec<u8>) -> Result<(), ()> {
    while !wire.is_empty() {
        if tls.read_tls(&mut wire).is_err() {
            return Err(());
        }
        // What was decrypted before the fault counts; the alert for the peer waits in `tls`.
        let state = tls.process_new_packets();
        drain(tls, plain);
        if state.map_err(drop)?.peer_has_closed() {
            return Err(());
        }
    }
    Ok(())
}

/// Takes what is decrypted.
pub fn drain(tls: &mut ServerConnection, plain: &mut Vec<u8>) {
    // An error says that nothing is there now, or ever again.
    let _ = tls.reader().read_to_end(plain);
}

fn is_text(slices: &[IoSlice<'_>], total: usize) -> bool {
    let mut all: Vec<u8> = Vec::with_capacity(total);
    slices.iter().for_each(|slice| all.extend_from_slice(&slice[..slice.len().min(total - all.len())]));
    std::str::from_utf8(&all).is_ok()
}

/// A socket that never waits.
struct Socket<'a>(&'a WriteHalf);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
