//! How header names and values are written: per version, and plain in CONNECT and CONNECTED.

use crate::error::{EncodeError, Malformed};
use crate::types::{Command, Version};
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use memchr::memchr;

/// The rules for one frame's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// CONNECT, STOMP and CONNECTED since STOMP 1.1: no escapes, nothing trimmed.
    Plain,
    /// STOMP 1.0: no escapes, spaces around names and values do not count.
    V10,
    /// STOMP 1.1: `\n`, `\c` and `\\`; a carriage return is an ordinary character.
    V11,
    /// STOMP 1.2: `\r` too; a carriage return may stand before a line feed.
    V12,
}

/// Which side of the colon a text stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Name,
    Value,
}

impl Syntax {
    /// How to read a frame's headers.
    pub(crate) const fn for_reading(version: Version, command: Command) -> Syntax {
        match version {
            Version::V10 => Syntax::V10,
            _ if command.is_plain() => Syntax::Plain,
            Version::V11 => Syntax::V11,
            Version::V12 => Syntax::V12,
        }
    }

    /// How to write a frame's headers.
    pub(crate) const fn for_writing(version: Version, command: Command) -> Syntax {
        if command.is_plain() { Syntax::Plain } else { Syntax::for_reading(version, command) }
    }

    /// A line without the carriage return that belongs to its end.
    pub(crate) fn strip(self, line: &str) -> &str {
        match self {
            Syntax::V11 => line,
            _ => line.strip_suffix('\r').unwrap_or(line),
        }
    }

    /// Checks a line, without its line feed, that is not blank.
    pub(crate) fn check_line(self, line: &[u8]) -> Result<(), Malformed> {
        let line = match self {
            Syntax::V11 => line,
            _ => line.strip_suffix(b"\r").unwrap_or(line),
        };
        let colon = memchr(b':', line).ok_or(Malformed::NoColon)?;
        let name = line[..colon].trim_ascii();
        // Spaces are a name where nothing is trimmed; a CONNECT may turn out to be one of STOMP 1.0.
        let trimmed_away = name.is_empty() && matches!(self, Syntax::V10 | Syntax::Plain);
        if colon == 0 || trimmed_away {
            return Err(Malformed::EmptyName);
        }
        if self != Syntax::V11 && memchr(b'\r', line).is_some() {
            return Err(Malformed::CarriageReturn);
        }
        self.check_escapes(line)
    }

    fn check_escapes(self, mut text: &[u8]) -> Result<(), Malformed> {
        if matches!(self, Syntax::Plain | Syntax::V10) {
            return Ok(());
        }
        while let Some(at) = memchr(b'\\', text) {
            text.get(at + 1).and_then(|&code| self.escaped(code)).ok_or(Malformed::Escape)?;
            text = &text[at + 2..];
        }
        Ok(())
    }

    /// What a backslash and `code` stand for.
    fn escaped(self, code: u8) -> Option<char> {
        match code {
            b'n' => Some('\n'),
            b'c' => Some(':'),
            b'\\' => Some('\\'),
            b'r' if self == Syntax::V12 => Some('\r'),
            _ => None,
        }
    }

    /// The two halves of a checked line, still escaped. A line without a colon is all name.
    pub(crate) fn split(self, line: &str) -> (&str, &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        match self {
            Syntax::V10 => (trim(name), trim(value)),
            _ => (name, value),
        }
    }

    /// What a checked name or value means. Decodes in one pass: `\\c` is a backslash and a `c`.
    pub(crate) fn unescape<'t>(self, text: &'t str) -> Cow<'t, str> {
        if matches!(self, Syntax::Plain | Syntax::V10) || !text.contains('\\') {
            return Cow::Borrowed(text);
        }
        let mut decoded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('\\') {
            decoded.push_str(before);
            let code = after.bytes().next().and_then(|code| self.escaped(code));
            decoded.push(code.unwrap_or('\\'));
            rest = if code.is_some() { &after[1..] } else { after };
        }
        decoded.push_str(rest);
        Cow::Owned(decoded)
    }

    /// Appends a name or a value.
    ///
    /// STOMP 1.0 cannot carry ends of lines, nor colons in names. There they become what later versions would
    /// write, so that a value never turns into a header.
    pub(crate) fn write(self, out: &mut Vec<u8>, text: &str, part: Part) -> Result<(), EncodeError> {
        let mut rest = text.as_bytes();
        while let Some(at) = rest.iter().position(|&byte| self.is_special(byte, part)) {
            out.extend_from_slice(&rest[..at]);
            let escape: &[u8] = match rest[at] {
                0 => return Err(EncodeError::NulInHeader),
                _ if self == Syntax::Plain => return Err(EncodeError::Unescapable),
                b'\n' => b"\\n",
                b'\r' => b"\\r",
                b':' => b"\\c",
                _ => b"\\\\",
            };
            out.extend_from_slice(escape);
            rest = &rest[at + 1..];
        }
        out.extend_from_slice(rest);
        Ok(())
    }

    fn is_special(self, byte: u8, part: Part) -> bool {
        match byte {
            0 | b'\n' => true,
            b'\r' => self != Syntax::V11,
            b':' => part == Part::Name || matches!(self, Syntax::V11 | Syntax::V12),
            b'\\' => matches!(self, Syntax::V11 | Syntax::V12),
            _ => false,
        }
    }
}

/// Removes the spaces and tabs that STOMP 1.0 clients write around names and values.
pub(crate) fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ESCAPING: [Syntax; 2] = [Syntax::V11, Syntax::V12];

    fn written(syntax: Syntax, text: &str, part: Part) -> Result<String, EncodeError> {
        let mut out = Vec::new();
        syntax.write(&mut out, text, part)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn escapes_are_decoded_in_one_pass() {
        for syntax in ESCAPING {
            for (wire, meaning) in [(r"a\\c", r"a\c"), (r"\\n", r"\n"), (r"\\\c", r"\:"), (r"a\cb", "a:b")] {
                assert_eq!(syntax.unescape(wire), meaning);
                assert_eq!(written(syntax, meaning, Part::Value).as_deref(), Ok(wire));
            }
        }
    }

    #[test]
    fn a_text_without_escapes_is_borrowed() {
        for syntax in [Syntax::Plain, Syntax::V10, Syntax::V11, Syntax::V12] {
            assert!(matches!(syntax.unescape("plain"), Cow::Borrowed("plain")));
        }
        assert!(matches!(Syntax::V10.unescape(r"C:\new"), Cow::Borrowed(r"C:\new")));
    }

    #[test]
    fn undefined_escapes_are_faults_in_names_and_values() {
        for undefined in [r"\t", r"\N", r"\C", r"\0", r"\ ", r"\", r"\\\", r"\é"] {
            for syntax in ESCAPING {
                for line in [alloc::format!("x:{undefined}"), alloc::format!("x{undefined}:y")] {
                    // A colon after a backslash is not a separator's fault but an undefined escape.
                    assert_eq!(syntax.check_line(line.as_bytes()), Err(Malformed::Escape), "{line}");
                }
            }
            assert_eq!(Syntax::V10.check_line(alloc::format!("x:{undefined}").as_bytes()), Ok(()));
        }
        assert_eq!(Syntax::V11.check_line(br"x:\r"), Err(Malformed::Escape));
        assert_eq!(Syntax::V12.check_line(br"x:\r"), Ok(()));
    }

    #[test]
    fn what_stomp_1_0_cannot_carry_never_becomes_a_header() {
        assert_eq!(written(Syntax::V10, "a\ninjected:1", Part::Value).as_deref(), Ok(r"a\ninjected:1"));
        assert_eq!(written(Syntax::V10, "a\rb", Part::Value).as_deref(), Ok(r"a\rb"));
        assert_eq!(written(Syntax::V10, "a:b", Part::Name).as_deref(), Ok(r"a\cb"));
        assert_eq!(written(Syntax::V10, r"C:\temp\new", Part::Value).as_deref(), Ok(r"C:\temp\new"));
    }

    #[test]
    fn a_carriage_return_is_an_ordinary_character_in_stomp_1_1() {
        assert_eq!(written(Syntax::V11, "a\rb", Part::Value).as_deref(), Ok("a\rb"));
        assert_eq!(written(Syntax::V12, "a\rb", Part::Value).as_deref(), Ok(r"a\rb"));
    }

    #[test]
    fn connect_writes_what_it_can_and_refuses_the_rest() {
        assert_eq!(written(Syntax::Plain, r"a\cb:c", Part::Value).as_deref(), Ok(r"a\cb:c"));
        assert_eq!(written(Syntax::Plain, "a\nb", Part::Value), Err(EncodeError::Unescapable));
        assert_eq!(written(Syntax::Plain, "a\r", Part::Value), Err(EncodeError::Unescapable));
        assert_eq!(written(Syntax::Plain, "a:b", Part::Name), Err(EncodeError::Unescapable));
    }

    #[test]
    fn nul_fits_into_no_header() {
        for syntax in [Syntax::Plain, Syntax::V10, Syntax::V11, Syntax::V12] {
            assert_eq!(written(syntax, "a\0", Part::Value), Err(EncodeError::NulInHeader));
        }
    }
}
