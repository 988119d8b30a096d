//! WebSocket (RFC 6455), the server's side, without a socket: the opening handshake, and frames in both directions.
//!
//! Payload is handed on as it arrives: frames are never gathered, whatever their length, so a connection holds no more than the
//! header or the control frame that has begun. Frames and messages mean nothing to the protocol inside, which is a stream of
//! bytes [MQTT-6.0.0-2]. Extensions, and with them compression, are never agreed to.

mod handshake;

use std::io::Cursor;

use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

pub use handshake::{HEAD_BYTES_MAX, Upgrade, upgrade};

/// Longest header of a frame.
const FRAME_HEAD_BYTES_MAX: usize = 14;
/// Longest payload of a control frame.
const CONTROL_BYTES_MAX: u64 = 125;

/// All is well: what is closed has said all it wanted.
pub const CLOSE_NORMAL: u16 = 1000;
const CLOSE_PROTOCOL_ERROR: u16 = 1002;
const CLOSE_UNSUPPORTED_DATA: u16 = 1003;
const CLOSE_TOO_BIG: u16 = 1009;

/// What the payload of the current frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data,
    Ping,
    Pong,
    Close,
}

/// What was found in received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Bytes of payload, at the front of the buffer now.
    pub payload: usize,
    /// The connection is over, because the peer says so or broke the rules: the code to close it with.
    pub end: Option<u16>,
}

/// The frames of one connection. After an end nothing more is taken.
#[derive(Debug)]
pub struct Framing {
    /// Text frames carry payload too.
    text: bool,
    frame_bytes_max: u64,
    /// The start of a header whose end has not arrived.
    head: [u8; FRAME_HEAD_BYTES_MAX],
    head_bytes: u8,
    /// Inside of a frame: its kind, how much of it is to come, and its mask, turned so that its first byte is due.
    inside: Option<(Kind, u64, [u8; 4])>,
    /// A message has begun and its last frame has not.
    fragmented: bool,
    /// Payload of the control frame that is being received.
    control: Vec<u8>,
    ended: bool,
}

impl Framing {
    /// For a connection whose handshake is done. `text`: the protocol inside may come in text frames.
    #[must_use]
    pub fn new(text: bool, frame_bytes_max: u64) -> Self {
        Self {
            text,
            frame_bytes_max,
            head: [0; FRAME_HEAD_BYTES_MAX],
            head_bytes: 0,
            inside: None,
            fragmented: false,
            control: Vec::new(),
            ended: false,
        }
    }

    /// Unframes what was received: the payload moves to the front of `bytes`. What must be answered (pings) goes to `answers`.
    pub fn take(&mut self, bytes: &mut [u8], answers: &mut Vec<u8>) -> Taken {
        let (mut read, mut payload) = (0, 0);
        while read < bytes.len() && !self.ended {
            let Some((kind, left, mask)) = &mut self.inside else {
                match self.head(&bytes[read..]) {
                    Ok(used) => read += used,
                    Err(code) => return self.end(payload, code),
                }
                if let Some(code) = self.frame_end(answers) {
                    return self.end(payload, code);
                }
                continue;
            };
            let n = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len() - read);
            unmask(&mut bytes[read..read + n], *mask);
            mask.rotate_left(n % 4);
            *left -= n as u64;
            if *kind == Kind::Data {
                bytes.copy_within(read..read + n, payload);
                payload += n;
            } else {
                self.control.extend_from_slice(&bytes[read..read + n]);
            }
            read += n;
            if let Some(code) = self.frame_end(answers) {
                return self.end(payload, code);
            }
        }
        Taken { payload, end: None }
    }

    fn end(&mut self, payload: usize, code: u16) -> Taken {
        self.ended = true;
        Taken { payload, end: Some(code) }
    }

    /// Reads the header that `bytes` begins or goes on with; says how many of them belong to it.
    fn head(&mut self, bytes: &[u8]) -> Result<usize, u16> {
        let held = usize::from(self.head_bytes);
        let n = bytes.len().min(FRAME_HEAD_BYTES_MAX - held);
        self.head[held..held + n].copy_from_slice(&bytes[..n]);
        let mut cursor = Cursor::new(&self.head[..held + n]);
        match FrameHeader::parse(&mut cursor) {
            Ok(Some((header, length))) => {
                let used = cursor.position() as usize - held;
                self.head_bytes = 0;
                self.begin(&header, length)?;
                Ok(used)
            }
            Ok(None) => {
                self.head_bytes += n as u8;
                Ok(n)
            }
            Err(_) => Err(CLOSE_PROTOCOL_ERROR),
        }
    }

    fn begin(&mut self, header: &FrameHeader, length: u64) -> Result<(), u16> {
        let Some(mask) = header.mask.filter(|_| !header.rsv1 && !header.rsv2 && !header.rsv3) else {
            return Err(CLOSE_PROTOCOL_ERROR);
        };
        let kind = match header.opcode {
            OpCode::Control(control) => {
                if !header.is_final || length > CONTROL_BYTES_MAX {
                    return Err(CLOSE_PROTOCOL_ERROR);
                }
                match control {
                    Control::Ping => Kind::Ping,
                    Control::Pong => Kind::Pong,
                    Control::Close => Kind::Close,
                    Control::Reserved(_) => return Err(CLOSE_PROTOCOL_ERROR),
                }
            }
            OpCode::Data(data) => {
                if (data == Data::Continue) != self.fragmented || matches!(data, Data::Reserved(_)) {
                    return Err(CLOSE_PROTOCOL_ERROR);
                }
                if data == Data::Text && !self.text {
                    return Err(CLOSE_UNSUPPORTED_DATA);
                }
                self.fragmented = !header.is_final;
                Kind::Data
            }
        };
        if length > self.frame_bytes_max {
            return Err(CLOSE_TOO_BIG);
        }
        self.inside = Some((kind, length, mask));
        Ok(())
    }

    /// Leaves the frame if all of it is there. The code to close with, if it is a close.
    fn frame_end(&mut self, answers: &mut Vec<u8>) -> Option<u16> {
        let (kind, 0, _) = self.inside? else { return None };
        self.inside = None;
        let control = std::mem::take(&mut self.control);
        match kind {
            Kind::Data | Kind::Pong => None,
            Kind::Ping => {
                frame_head(OpCode::Control(Control::Pong), control.len(), answers);
                answers.extend_from_slice(&control);
                None
            }
            Kind::Close => Some(close_answer(&control)),
        }
    }
}

/// The code that answers a close frame.
fn close_answer(payload: &[u8]) -> u16 {
    let Some((code, reason)) = payload.split_first_chunk::<2>() else {
        return if payload.is_empty() { CLOSE_NORMAL } else { CLOSE_PROTOCOL_ERROR };
    };
    let code = u16::from_be_bytes(*code);
    let allowed = matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
    if allowed && std::str::from_utf8(reason).is_ok() { code } else { CLOSE_PROTOCOL_ERROR }
}

fn unmask(bytes: &mut [u8], mask: [u8; 4]) {
    let word = u32::from_ne_bytes(mask);
    let (words, rest) = bytes.as_chunks_mut::<4>();
    for four in words {
        *four = (u32::from_ne_bytes(*four) ^ word).to_ne_bytes();
    }
    rest.iter_mut().zip(mask).for_each(|(byte, key)| *byte ^= key);
}

fn frame_head(opcode: OpCode, len: usize, out: &mut Vec<u8>) {
    let header = FrameHeader { opcode, ..FrameHeader::default() };
    header.format(len as u64, out).expect("writing into a vector cannot fail");
}

/// The head of a message in one frame, whose `len` bytes of payload follow it.
pub fn message_head(text: bool, len: usize, out: &mut Vec<u8>) {
    frame_head(OpCode::Data(if text { Data::Text } else { Data::Binary }), len, out);
}

/// A whole close frame.
pub fn close_frame(code: u16, out: &mut Vec<u8>) {
    frame_head(OpCode::Control(Control::Close), 2, out);
    out.extend_from_slice(&code.to_be_bytes());
}

#[cfg(test)]
mod tests;
