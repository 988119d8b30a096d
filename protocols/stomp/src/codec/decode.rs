//! Bytes to frames.

use super::Decoded;
use crate::error::{DecodeError, LimitExceeded, Malformed};
use crate::frame::{Frame, Headers};
use crate::limits::{DecodeLimits, FILLER_BYTES_MAX};
use crate::syntax::Syntax;
use crate::types::{Command, Version};
use alloc::borrow::Cow;
use core::ops::Range;
use memchr::{memchr, memchr2};

/// Looks for frames at the start of an input that grows.
///
/// # Call order
/// [`Decoder::decode`] with what has arrived; after `Gap` or `Frame` with the input without the consumed
/// bytes; after `Incomplete` with the same bytes and more behind them. After an error the decoder is good for
/// [`Decoder::receipt`] only.
///
/// # Faults of a header block
/// An unknown command or a faulty line is reported when the header block ends, so that the frame's `receipt`
/// can be read from it; [`Decoder::fault`] tells it earlier. Limits are reported as soon as they are exceeded.
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    stage: Stage,
    version: Version,
    command: Option<Command>,
    fault: Option<Malformed>,
    /// Of a command that has a body.
    content_length: Option<u32>,
    /// Header lines seen.
    count: u16,
    /// Where the command begins. All other positions are relative to it.
    start: usize,
    /// Bytes that need not be looked at again.
    at: usize,
    /// Where the present header line begins.
    line: usize,
    /// Where the header lines begin, and where the blank line does.
    headers: usize,
    headers_end: usize,
    /// Where the body begins.
    body: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Command,
    Headers,
    Body,
}

/// A complete frame: where its body lies, and its size.
struct Extent {
    body: Range<usize>,
    len: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder::new()
    }
}

impl Decoder {
    /// A decoder at the start of a frame.
    pub const fn new() -> Decoder {
        Decoder {
            stage: Stage::Command,
            version: Version::V12,
            command: None,
            fault: None,
            content_length: None,
            count: 0,
            start: 0,
            at: 0,
            line: 0,
            headers: 0,
            headers_end: 0,
            body: 0,
        }
    }

    /// Looks at the start of `input`. The version must not change within a frame. CONNECT and CONNECTED name
    /// their own version; for them `version` is ignored.
    ///
    /// # Errors
    /// The first fault of the frame.
    pub fn decode<'a>(
        &mut self,
        version: Version,
        input: &'a [u8],
        limits: &DecodeLimits,
    ) -> Result<Decoded<'a>, DecodeError> {
        if self.stage == Stage::Command || self.at > input.len() {
            *self = Decoder { version, start: gap_len(input), ..Decoder::new() };
        }
        let start = self.start;
        let rest = input.get(start..).unwrap_or_default();
        match self.scan(rest, limits)? {
            Some(extent) => {
                let frame = self.frame(rest, extent.body)?;
                *self = Decoder::new();
                Ok(Decoded::Frame { frame, consumed: start + extent.len })
            }
            None if start > 0 => {
                // The gap need not stay in the buffer for the frame's sake.
                *self = Decoder::new();
                Ok(Decoded::Gap { consumed: start })
            }
            None => Ok(Decoded::Incomplete { needed: self.needed(rest.len()) }),
        }
    }

    /// The command of the frame that is incomplete, once its line is complete.
    pub const fn command(&self) -> Option<Command> {
        self.command
    }

    /// What is already known to be wrong with the frame that is incomplete.
    pub const fn fault(&self) -> Option<Malformed> {
        self.fault
    }

    /// After an error: the receipt that the faulty frame asks for, as far as it has arrived in `input`, which
    /// is that of the failed call.
    pub fn receipt<'a>(&self, input: &'a [u8]) -> Option<Cow<'a, str>> {
        if self.stage == Stage::Command {
            return None;
        }
        let syntax = match self.command {
            Some(command) => Syntax::for_reading(self.version, command),
            None => Syntax::for_reading(self.version, Command::Send),
        };
        let mut rest = input.get(self.start + self.headers..)?;
        while let Some(end) = memchr2(b'\n', 0, rest) {
            let line = &rest[..end];
            if rest[end] == 0 || is_blank(line) {
                return None;
            }
            rest = &rest[end + 1..];
            if let Ok(line) = core::str::from_utf8(line)
                && let ("receipt", value) = syntax.split(syntax.strip(line))
                && syntax.check_line(line.as_bytes()).is_ok()
            {
                return Some(syntax.unescape(value));
            }
        }
        None
    }

    fn needed(&self, len: usize) -> usize {
        match (self.stage, self.content_length) {
            (Stage::Body, Some(length)) => self.body.saturating_add(length as usize).saturating_add(1),
            _ => len + 1,
        }
    }

    fn frame<'a>(&self, rest: &'a [u8], body: Range<usize>) -> Result<Frame<'a>, DecodeError> {
        let command = self.command.ok_or(Malformed::UnknownCommand)?;
        let lines = rest.get(self.headers..self.headers_end).unwrap_or_default();
        let lines = core::str::from_utf8(lines).map_err(|_| Malformed::Utf8)?;
        Ok(Frame {
            version: self.version,
            command,
            headers: Headers::new(lines, Syntax::for_reading(self.version, command)),
            body: rest.get(body).unwrap_or_default(),
        })
    }

    fn scan(&mut self, rest: &[u8], limits: &DecodeLimits) -> Result<Option<Extent>, DecodeError> {
        if self.stage == Stage::Command {
            self.scan_command(rest, limits)?;
        }
        if self.stage == Stage::Headers
            && let Some(extent) = self.scan_headers(rest, limits)?
        {
            return Ok(Some(extent));
        }
        match self.stage {
            Stage::Body => self.scan_body(rest, limits),
            _ => Ok(None),
        }
    }

    /// A command is short, so that it is looked at again with every byte.
    fn scan_command(&mut self, rest: &[u8], limits: &DecodeLimits) -> Result<(), DecodeError> {
        let max = limits.command_bytes_max;
        let window = &rest[..rest.len().min(usize::from(max) + 2)];
        let end = memchr(b'\n', window);
        let line = &window[..end.unwrap_or(window.len())];
        // Another protocol is recognised by its first bytes.
        let name = line.strip_suffix(b"\r").unwrap_or(line);
        if !name.iter().all(u8::is_ascii_uppercase) {
            return Err(Malformed::CommandLine.into());
        }
        if name.len() > usize::from(max) {
            return Err(LimitExceeded::CommandBytes { max }.into());
        }
        let Some(end) = end else {
            return Ok(());
        };
        self.command = Command::parse(name).filter(|command| command.is_in(self.version));
        if self.command.is_none() {
            self.fault = Some(Malformed::UnknownCommand);
        }
        self.stage = Stage::Headers;
        self.at = end + 1;
        self.line = end + 1;
        self.headers = end + 1;
        Ok(())
    }

    fn scan_headers(&mut self, rest: &[u8], limits: &DecodeLimits) -> Result<Option<Extent>, DecodeError> {
        loop {
            let found = memchr2(b'\n', 0, rest.get(self.at..).unwrap_or_default());
            let end = found.map_or(rest.len(), |found| self.at + found);
            let line = rest.get(self.line..end).unwrap_or_default();
            check_header_bytes(line, end + 1 - self.headers, limits)?;
            match found {
                None => {
                    self.at = end;
                    return Ok(None);
                }
                Some(_) if rest[end] == 0 => return self.end_without_blank_line(line, end).map(Some),
                Some(_) if is_blank(line) => {
                    self.end_headers(rest, end)?;
                    return Ok(None);
                }
                Some(_) => self.take_line(line, limits)?,
            }
            self.at = end + 1;
            self.line = end + 1;
        }
    }

    /// The specification's own example of DISCONNECT has no blank line (STOMP 1.1, "DISCONNECT").
    fn end_without_blank_line(&mut self, line: &[u8], nul: usize) -> Result<Extent, DecodeError> {
        if let Some(fault) = self.fault {
            return Err(fault.into());
        }
        if !line.is_empty() || self.command != Some(Command::Disconnect) {
            return Err(Malformed::NulInHeader.into());
        }
        self.headers_end = nul;
        Ok(Extent { body: nul..nul, len: nul + 1 })
    }

    fn take_line(&mut self, line: &[u8], limits: &DecodeLimits) -> Result<(), DecodeError> {
        if self.count >= limits.headers_max {
            return Err(LimitExceeded::Headers { max: limits.headers_max }.into());
        }
        self.count += 1;
        let Some(command) = self.command.filter(|_| self.fault.is_none()) else {
            return Ok(());
        };
        let syntax = match command.is_plain() {
            true => Syntax::Plain,
            false => Syntax::for_reading(self.version, command),
        };
        if let Err(fault) = syntax.check_line(line) {
            self.fault = Some(fault);
        } else if command.has_body() && self.content_length.is_none() {
            self.take_content_length(syntax, line, limits)?;
        }
        Ok(())
    }

    /// Refuses a body that is too long before any of it has arrived. The first header of the name counts.
    fn take_content_length(
        &mut self,
        syntax: Syntax,
        line: &[u8],
        limits: &DecodeLimits,
    ) -> Result<(), DecodeError> {
        let Some(value) = core::str::from_utf8(line).ok().and_then(|line| {
            let (name, value) = syntax.split(syntax.strip(line));
            (name == "content-length").then_some(value)
        }) else {
            return Ok(());
        };
        if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit()) {
            self.fault = Some(Malformed::ContentLength);
            return Ok(());
        }
        let max = limits.body_bytes_max;
        // Digits fail to parse only if the number is too large.
        match value.parse::<u32>() {
            Ok(length) if length <= max => self.content_length = Some(length),
            _ => return Err(LimitExceeded::BodyBytes { max }.into()),
        }
        Ok(())
    }

    /// The blank line is there, which begins at `self.line` and has its line feed at `end`.
    fn end_headers(&mut self, rest: &[u8], end: usize) -> Result<(), DecodeError> {
        if let Some(fault) = self.fault {
            return Err(fault.into());
        }
        self.headers_end = self.line;
        self.body = end + 1;
        self.at = end + 1;
        let command = self.command.ok_or(Malformed::UnknownCommand)?;
        let lines = rest.get(self.headers..self.headers_end).unwrap_or_default();
        let lines = core::str::from_utf8(lines).map_err(|_| Malformed::Utf8)?;
        if command.is_plain() {
            self.version = named_version(command, lines)?;
        }
        self.stage = Stage::Body;
        Ok(())
    }

    fn scan_body(&mut self, rest: &[u8], limits: &DecodeLimits) -> Result<Option<Extent>, DecodeError> {
        match (self.command.is_some_and(Command::has_body), self.content_length) {
            (true, Some(length)) => self.measured_body(rest, length),
            (true, None) => self.body_until_nul(rest, limits),
            // What STOMP 1.0 means by a body of other frames is not said.
            (false, _) if self.version == Version::V10 => {
                let extent = self.body_until_nul(rest, limits)?;
                Ok(extent.map(|extent| Extent { body: self.body..self.body, ..extent }))
            }
            (false, _) => self.no_body(rest),
        }
    }

    fn measured_body(&self, rest: &[u8], length: u32) -> Result<Option<Extent>, DecodeError> {
        let end = self.body.saturating_add(length as usize);
        match rest.get(end) {
            None => Ok(None),
            Some(0) => Ok(Some(Extent { body: self.body..end, len: end + 1 })),
            Some(_) => Err(Malformed::BodyNotTerminated.into()),
        }
    }

    fn body_until_nul(&mut self, rest: &[u8], limits: &DecodeLimits) -> Result<Option<Extent>, DecodeError> {
        let found = memchr(0, rest.get(self.at..).unwrap_or_default());
        let end = found.map_or(rest.len(), |found| self.at + found);
        if end - self.body > limits.body_bytes_max as usize {
            return Err(LimitExceeded::BodyBytes { max: limits.body_bytes_max }.into());
        }
        self.at = end;
        Ok(found.map(|_| Extent { body: self.body..end, len: end + 1 }))
    }

    /// Ends of lines are tolerated: old clients write one.
    fn no_body(&mut self, rest: &[u8]) -> Result<Option<Extent>, DecodeError> {
        for &byte in rest.get(self.at..).unwrap_or_default() {
            match byte {
                0 => return Ok(Some(Extent { body: self.body..self.body, len: self.at + 1 })),
                b'\r' | b'\n' => self.at += 1,
                _ => return Err(Malformed::UnexpectedBody.into()),
            }
            if self.at - self.body > FILLER_BYTES_MAX as usize {
                return Err(LimitExceeded::Filler { max: FILLER_BYTES_MAX }.into());
            }
        }
        Ok(None)
    }
}

/// Bytes at the start of `input` that belong to no frame: ends of lines and NULs.
pub(super) fn gap_len(input: &[u8]) -> usize {
    let mut len = 0;
    loop {
        match input.get(len..) {
            Some([b'\n' | 0, ..]) => len += 1,
            Some([b'\r', b'\n', ..]) => len += 2,
            _ => return len,
        }
    }
}

/// A blank line ends the headers; in STOMP 1.1 too if it has a carriage return.
fn is_blank(line: &[u8]) -> bool {
    matches!(line, b"" | b"\r")
}

/// `line` may be incomplete; `total` counts the byte that ends it.
fn check_header_bytes(line: &[u8], total: usize, limits: &DecodeLimits) -> Result<(), LimitExceeded> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() > limits.header_line_bytes_max as usize {
        return Err(LimitExceeded::HeaderLineBytes { max: limits.header_line_bytes_max });
    }
    if total > limits.header_bytes_max as usize {
        return Err(LimitExceeded::HeaderBytes { max: limits.header_bytes_max });
    }
    Ok(())
}

/// The version that CONNECT or CONNECTED names; 1.0 does not know the header.
fn named_version(command: Command, lines: &str) -> Result<Version, Malformed> {
    // What turns out to be of STOMP 1.0 is read with names trimmed: a padded header must not come to light there only.
    let headers = Headers::new(lines, Syntax::V10);
    match command {
        Command::Connected => match headers.get("version") {
            None => Ok(Version::V10),
            Some(number) => Version::parse(&number).ok_or(Malformed::Version),
        },
        _ => match headers.get("accept-version") {
            None => Ok(Version::V10),
            Some(accepted) => Ok(Version::negotiate(&accepted).unwrap_or(Version::V12)),
        },
    }
}
