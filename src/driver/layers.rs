//! What is between a socket and the protocol on connections that are not plain: TLS, WebSocket frames, or both.
//!
//! Two machines without a socket, one inside the other. [`Layers::decode`] turns what one read brought into the protocol's bytes;
//! [`Layers::encode`] takes bytes of the protocol, and [`Layers::flush`] writes what came of them. Bytes are taken from an outbox
//! only while nothing waits here, so a connection that lags holds at most [`ENCODE_BYTES_MAX`] and a little beside its outbox.

use std::io::{self, ErrorKind, IoSlice};

use crate::driver::stream::WriteHalf;
use crate::driver::tls_machine::{Heard, TlsMachine};
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
    tls: Option<Box<TlsMachine>>,
    websocket: Option<WebSocket>,
    /// What waits for the socket; owns no memory while nothing does.
    out: Vec<u8>,
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
    pub fn new(tls: Option<Box<TlsMachine>>, websocket: Option<WebSocket>) -> Self {
        Self { tls, websocket, out: Vec::new(), written: 0, close_code: CLOSE_NORMAL, closed: false }
    }

    /// Takes what was read from the socket. `plain` is a buffer to decrypt into.
    pub fn decode<'a>(&mut self, wire: &'a mut [u8], plain: &'a mut Vec<u8>) -> Decoded<'a> {
        let (bytes, over) = match &mut self.tls {
            Some(tls) => {
                plain.clear();
                let heard = tls.receive(wire, plain, &mut self.out);
                (&mut plain[..], !matches!(heard, Ok(Heard::Open)))
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
        if !answers.is_empty() && self.out.len() + answers.len() <= ANSWER_BYTES_MAX {
            self.push(&answers);
        }
        Decoded { bytes: &bytes[..taken.payload], over: taken.end.is_some() }
    }

    /// Something waits for the socket.
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.written < self.out.len()
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
        let mut frame = Vec::new();
        if let Some(websocket) = &self.websocket {
            let text = websocket.text && is_text(slices, total);
            message_head(text, total, &mut frame);
        }
        match slices {
            [all] if frame.is_empty() => self.push(&all[..total]),
            // Together, because each record of TLS has its price.
            _ => {
                gather(slices, total, &mut frame);
                self.push(&frame);
            }
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
            tls.close(&mut self.out);
        }
    }

    /// Writes what waits; `false`: the socket takes no more now.
    ///
    /// # Errors
    /// When the socket is broken.
    pub fn flush(&mut self, socket: &WriteHalf) -> io::Result<bool> {
        while self.has_output() {
            match socket.try_write(&self.out[self.written..]) {
                Ok(n) => self.written += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out = Vec::new();
        self.written = 0;
        Ok(true)
    }

    fn push(&mut self, bytes: &[u8]) {
        match &mut self.tls {
            Some(tls) => tls.send(bytes, &mut self.out),
            None => self.out.extend_from_slice(bytes),
        }
    }
}

fn is_text(slices: &[IoSlice<'_>], total: usize) -> bool {
    let mut all = Vec::new();
    gather(slices, total, &mut all);
    std::str::from_utf8(&all).is_ok()
}

/// Adds the first `total` bytes of `slices` to `all`.
fn gather(slices: &[IoSlice<'_>], total: usize, all: &mut Vec<u8>) {
    let mut left = total;
    all.reserve(total);
    for slice in slices {
        let n = slice.len().min(left);
        all.extend_from_slice(&slice[..n]);
        left -= n;
    }
}
