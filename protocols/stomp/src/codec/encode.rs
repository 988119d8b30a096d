//! Frames to bytes.

use crate::error::EncodeError;
use crate::frame::{Frame, Header};
use crate::syntax::{Part, Syntax};
use crate::types::{Command, Version};
use alloc::vec::Vec;
use core::fmt::{self, Write};

/// The byte that ends every frame.
pub const END_OF_FRAME: u8 = 0;

/// Writes one frame, header by header, to the end of a buffer. A writer that is dropped before it is ended takes
/// back what it has written.
#[derive(Debug)]
pub struct FrameWriter<'o> {
    out: &'o mut Vec<u8>,
    /// Length of the buffer before this frame.
    start: usize,
    ended: bool,
    version: Version,
    command: Command,
    syntax: Syntax,
    /// The first `content-length`.
    announced: Option<usize>,
}

impl<'o> FrameWriter<'o> {
    /// Writes the command.
    ///
    /// # Errors
    /// If the version does not know it.
    pub fn new(
        out: &'o mut Vec<u8>,
        version: Version,
        command: Command,
    ) -> Result<FrameWriter<'o>, EncodeError> {
        if !command.is_in(version) {
            return Err(EncodeError::NotInVersion { version, command });
        }
        let start = out.len();
        out.extend_from_slice(command.as_str().as_bytes());
        out.push(b'\n');
        let syntax = Syntax::for_writing(version, command);
        Ok(FrameWriter { out, start, ended: false, version, command, syntax, announced: None })
    }

    /// Writes a header, escaped as the version wants it. STOMP 1.0 has no escapes: there ends of lines, and
    /// colons in names, become what later versions would write, literally.
    ///
    /// # Errors
    /// If the header has no name, holds NUL, or cannot be written without escapes where there are none.
    pub fn header(&mut self, name: &str, value: &str) -> Result<&mut Self, EncodeError> {
        if name.is_empty() {
            return Err(EncodeError::EmptyName);
        }
        self.syntax.write(self.out, name, Part::Name)?;
        self.out.push(b':');
        self.syntax.write(self.out, value, Part::Value)?;
        self.out.push(b'\n');
        if name == "content-length" && self.announced.is_none() {
            self.announced = value.parse().ok();
        }
        Ok(self)
    }

    /// Writes a header if there is a value.
    ///
    /// # Errors
    /// As [`FrameWriter::header`].
    pub fn optional(&mut self, name: &str, value: Option<&str>) -> Result<&mut Self, EncodeError> {
        match value {
            Some(value) => self.header(name, value),
            None => Ok(self),
        }
    }

    /// Writes headers.
    ///
    /// # Errors
    /// As [`FrameWriter::header`].
    pub fn headers<N: AsRef<str>, V: AsRef<str>>(
        &mut self,
        headers: impl IntoIterator<Item = (N, V)>,
    ) -> Result<&mut Self, EncodeError> {
        for (name, value) in headers {
            self.header(name.as_ref(), value.as_ref())?;
        }
        Ok(self)
    }

    /// Writes a header whose value is printed without an allocation.
    ///
    /// # Errors
    /// As [`FrameWriter::header`].
    pub fn display(&mut self, name: &str, value: fmt::Arguments<'_>) -> Result<&mut Self, EncodeError> {
        self.header(name, "")?;
        self.out.pop();
        let mut escaped = Escaped { out: self.out, syntax: self.syntax, error: None };
        // An error of the formatter is an error of the escaping below, or of a broken Display.
        let _ = escaped.write_fmt(value);
        if let Some(error) = escaped.error {
            return Err(error);
        }
        self.out.push(b'\n');
        Ok(self)
    }

    /// Announces the length of the body. The first `content-length` of a frame counts, so this comes before
    /// headers of others.
    ///
    /// # Errors
    /// None that a caller could cause; for chaining.
    pub fn content_length(&mut self, bytes: usize) -> Result<&mut Self, EncodeError> {
        self.display("content-length", format_args!("{bytes}"))?;
        self.announced.get_or_insert(bytes);
        Ok(self)
    }

    /// Ends the headers of a frame whose body of `bytes` bytes and [`END_OF_FRAME`] the caller writes.
    ///
    /// # Errors
    /// If the command has no body, or its announced length is another one.
    pub fn end_headers(mut self, bytes: usize) -> Result<(), EncodeError> {
        if !self.command.has_body() {
            return Err(EncodeError::UnexpectedBody(self.command));
        }
        if self.announced != Some(bytes) {
            return Err(EncodeError::ContentLength);
        }
        self.out.push(b'\n');
        self.ended = true;
        Ok(())
    }

    /// Writes the body and ends the frame. An empty body fits every command; a body without an announced
    /// length holds no NUL.
    ///
    /// # Errors
    /// If the body does not fit the command or its announced length.
    pub fn end(mut self, body: &[u8]) -> Result<(), EncodeError> {
        if self.command.has_body() {
            let fits = match self.announced {
                Some(length) => length == body.len(),
                None => !body.contains(&0),
            };
            if !fits {
                return Err(EncodeError::ContentLength);
            }
        } else if !body.is_empty() {
            return Err(EncodeError::UnexpectedBody(self.command));
        }
        self.out.push(b'\n');
        self.out.extend_from_slice(body);
        self.out.push(END_OF_FRAME);
        self.ended = true;
        Ok(())
    }

    /// The version that the frame is written in.
    pub const fn version(&self) -> Version {
        self.version
    }
}

impl Drop for FrameWriter<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.out.truncate(self.start);
        }
    }
}

/// Escapes what a formatter prints.
struct Escaped<'o> {
    out: &'o mut Vec<u8>,
    syntax: Syntax,
    error: Option<EncodeError>,
}

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.syntax.write(self.out, text, Part::Value).map_err(|error| {
            self.error = Some(error);
            fmt::Error
        })
    }
}

impl Frame<'_> {
    /// Appends the frame in its own version, its headers as they are.
    ///
    /// # Errors
    /// None for a frame that was decoded.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut writer = FrameWriter::new(out, self.version, self.command)?;
        writer.headers(self.headers.iter().map(|Header { name, value }| (name, value)))?;
        writer.end(self.body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_cannot_be_written_leaves_nothing_behind() {
        let mut out = b"before".to_vec();
        let faulty = |out: &mut Vec<u8>| -> Result<(), EncodeError> {
            let mut writer = FrameWriter::new(out, Version::V12, Command::Send)?;
            writer.header("destination", "/queue/a")?.header("x", "\0")?;
            writer.end(b"")
        };
        assert_eq!(faulty(&mut out), Err(EncodeError::NulInHeader));
        assert_eq!(out, b"before");
    }

    #[test]
    fn a_body_fits_its_command_and_its_announced_length() {
        let write = |command, announced: Option<usize>, body: &[u8]| {
            let mut out = Vec::new();
            let mut writer = FrameWriter::new(&mut out, Version::V12, command)?;
            if let Some(length) = announced {
                writer.content_length(length)?;
            }
            writer.end(body).map(|()| out)
        };
        assert_eq!(write(Command::Send, None, b"a\0"), Err(EncodeError::ContentLength));
        assert_eq!(write(Command::Send, Some(1), b"a\0"), Err(EncodeError::ContentLength));
        assert_eq!(write(Command::Ack, None, b"a"), Err(EncodeError::UnexpectedBody(Command::Ack)));
        assert_eq!(write(Command::Send, Some(2), b"a\0"), Ok(b"SEND\ncontent-length:2\n\na\0\0".to_vec()));
        assert_eq!(write(Command::Send, None, b""), Ok(b"SEND\n\n\0".to_vec()));
    }

    #[test]
    fn nack_is_not_in_stomp_1_0() {
        let error = FrameWriter::new(&mut Vec::new(), Version::V10, Command::Nack).unwrap_err();
        assert_eq!(error, EncodeError::NotInVersion { version: Version::V10, command: Command::Nack });
    }
}
