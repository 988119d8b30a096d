//! Bytes to frames and back.
//!
//! A [`Decoder`] remembers how far it has looked, so that a frame that arrives in small pieces is looked at
//! once. [`decode_next`] looks without memory, [`decode`] takes exactly one frame. [`FrameWriter`] writes.

mod decode;
mod encode;

pub use decode::Decoder;
pub use encode::{END_OF_FRAME, FrameWriter};

use crate::error::{DecodeError, Malformed};
use crate::frame::Frame;
use crate::limits::DecodeLimits;
use crate::types::Version;

/// What the start of an input holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decoded<'a> {
    /// The frame is not complete.
    Incomplete {
        /// Bytes that the input must have to be worth another look: the size of the whole frame once its
        /// `content-length` was checked, one more than there are before. It is within the limits.
        needed: usize,
    },
    /// Bytes between frames, to be dropped: ends of lines (heart-beats among them) and stray NULs.
    Gap {
        /// How many; at least one.
        consumed: usize,
    },
    /// A frame.
    Frame {
        /// The frame.
        frame: Frame<'a>,
        /// Its size in bytes, with the gap before it.
        consumed: usize,
    },
}

/// Decodes the frame that `input` starts with. CONNECT and CONNECTED name their own version; for them `version`
/// is ignored.
///
/// # Errors
/// The first fault of the frame, as soon as it is certain.
pub fn decode_next<'a>(
    version: Version,
    input: &'a [u8],
    limits: &DecodeLimits,
) -> Result<Decoded<'a>, DecodeError> {
    Decoder::new().decode(version, input, limits)
}

/// Decodes one complete frame, with nothing but gaps around it.
///
/// # Errors
/// The first fault found. Missing bytes are `Malformed(Truncated)` here, and bytes after the frame
/// `TrailingBytes`.
pub fn decode<'a>(
    version: Version,
    input: &'a [u8],
    limits: &DecodeLimits,
) -> Result<Frame<'a>, DecodeError> {
    let Decoded::Frame { frame, consumed } = decode_next(version, input, limits)? else {
        return Err(Malformed::Truncated.into());
    };
    match decode::gap_len(&input[consumed..]) == input.len() - consumed {
        true => Ok(frame),
        false => Err(Malformed::TrailingBytes.into()),
    }
}
