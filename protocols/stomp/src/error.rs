//! What can be wrong with a frame, named by fault. No text here repeats what a peer has sent: it may be a
//! password.

use crate::types::{Command, Version};
use thiserror::Error;

/// Why bytes from the peer are not an acceptable frame. Missing bytes are not an error: see
/// [`crate::Decoded`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The bytes cannot be parsed.
    #[error("malformed frame, {0}")]
    Malformed(#[from] Malformed),
    /// The frame exceeds a limit of [`crate::DecodeLimits`].
    #[error("limit exceeded, {0}")]
    LimitExceeded(#[from] LimitExceeded),
}

/// Where a frame fails to parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// The command line holds something else than capital letters.
    #[error("the command line is not a command")]
    CommandLine,
    /// There is no such command in the version.
    #[error("the command is unknown")]
    UnknownCommand,
    /// A header line has no colon.
    #[error("a header line has no colon")]
    NoColon,
    /// A header has no name (STOMP 1.2, "Augmented BNF").
    #[error("a header has no name")]
    EmptyName,
    /// A header holds NUL, or the frame ends before its blank line.
    #[error("the frame ends within its headers")]
    NulInHeader,
    /// A carriage return stands elsewhere than before a line feed (STOMP 1.2, "Augmented BNF"); in STOMP 1.1
    /// it is an ordinary character.
    #[error("a header holds a carriage return")]
    CarriageReturn,
    /// A header is not UTF-8 (STOMP 1.1, "STOMP Frames").
    #[error("a header is not UTF-8")]
    Utf8,
    /// A backslash is followed by something that the version does not define (STOMP 1.2, "Value Encoding").
    #[error("a header has an undefined escape sequence")]
    Escape,
    /// `content-length` is not a number.
    #[error("content-length is not a number")]
    ContentLength,
    /// The octet after `content-length` octets is not NUL.
    #[error("the body is longer than its content-length")]
    BodyNotTerminated,
    /// A frame has a body that must not have one (STOMP 1.1, "Body").
    #[error("the frame must not have a body")]
    UnexpectedBody,
    /// CONNECTED names a version that is none of [`Version`].
    #[error("the version is unknown")]
    Version,
    /// The input ends before the frame, where exactly one frame was asked for.
    #[error("the frame is not complete")]
    Truncated,
    /// Bytes follow the frame, where exactly one frame was asked for.
    #[error("bytes follow the frame")]
    TrailingBytes,
}

/// Which limit a frame exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LimitExceeded {
    /// [`crate::DecodeLimits::command_bytes_max`].
    #[error("the command has more than {max} bytes")]
    CommandBytes {
        /// The limit.
        max: u16,
    },
    /// [`crate::DecodeLimits::header_line_bytes_max`].
    #[error("a header has more than {max} bytes")]
    HeaderLineBytes {
        /// The limit.
        max: u32,
    },
    /// [`crate::DecodeLimits::header_bytes_max`].
    #[error("the headers have more than {max} bytes")]
    HeaderBytes {
        /// The limit.
        max: u32,
    },
    /// [`crate::DecodeLimits::headers_max`].
    #[error("more than {max} headers")]
    Headers {
        /// The limit.
        max: u16,
    },
    /// [`crate::DecodeLimits::body_bytes_max`].
    #[error("the body has more than {max} bytes")]
    BodyBytes {
        /// The limit.
        max: u32,
    },
    /// More ends of lines before the final NUL of a frame without a body than any client writes.
    #[error("more than {max} bytes between the headers and the end of a frame without a body")]
    Filler {
        /// The limit.
        max: u32,
    },
}

/// Why a frame cannot be written. Nothing has been appended to the output then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// A header has no name.
    #[error("a header has no name")]
    EmptyName,
    /// A header holds NUL, which no version can carry.
    #[error("a header holds NUL")]
    NulInHeader,
    /// A header of CONNECT or CONNECTED, which have no escapes, holds an end of line or a colon in its name.
    #[error("a header of CONNECT or CONNECTED cannot be written without escapes")]
    Unescapable,
    /// The version has no such command.
    #[error("STOMP {version} has no {command} frame")]
    NotInVersion {
        /// The version.
        version: Version,
        /// The command.
        command: Command,
    },
    /// The body has another length than `content-length` says, or holds NUL without a `content-length`.
    #[error("the body and content-length contradict each other")]
    ContentLength,
    /// The command has no body (STOMP 1.1, "Body").
    #[error("{0} frames have no body")]
    UnexpectedBody(Command),
}
