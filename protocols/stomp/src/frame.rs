//! Frames as views of the bytes they came in.

use crate::syntax::Syntax;
use crate::types::{Command, Version};
use alloc::borrow::Cow;
use core::fmt;

/// A frame. It borrows from the input.
#[derive(Clone, Copy, PartialEq)]
pub struct Frame<'a> {
    /// The version whose rules the headers follow. CONNECT and CONNECTED name it themselves; it is 1.2 in a
    /// CONNECT that accepts no version.
    pub version: Version,
    /// The command.
    pub command: Command,
    /// The headers.
    pub headers: Headers<'a>,
    /// The body; empty unless [`Command::has_body`].
    pub body: &'a [u8],
}

impl fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Frame { version, command, headers, body } = self;
        write!(f, "{command} ({version}) {headers:?} with {} bytes", body.len())
    }
}

/// The headers of a frame in the order of the wire, repeated ones included. Names and values are decoded when
/// they are asked for, and borrowed where nothing is escaped.
///
/// Equality compares what the headers mean. `Debug` hides the passcode.
#[derive(Clone, Copy)]
pub struct Headers<'a> {
    /// Checked lines, each with its line feed, without the blank line.
    lines: &'a str,
    syntax: Syntax,
}

/// A decoded header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The name; not empty.
    pub name: Cow<'a, str>,
    /// The value.
    pub value: Cow<'a, str>,
}

/// Headers that the protocol gives a meaning. They concern one frame or one delivery and do not belong to the
/// message (STOMP 1.2, "Standard Headers").
const CONTROL: [&str; 8] = [
    "destination",
    "content-length",
    "transaction",
    "receipt",
    "receipt-id",
    "message-id",
    "subscription",
    "ack",
];

/// Whether a header of this name speaks to the peer and not to the receivers of a message: it is consumed, or
/// written by [`crate::Connection::message`] alone.
pub fn is_control_header(name: &str) -> bool {
    CONTROL.contains(&name)
}

impl<'a> Headers<'a> {
    /// `lines` have passed [`Syntax::check_line`].
    pub(crate) const fn new(lines: &'a str, syntax: Syntax) -> Headers<'a> {
        Headers { lines, syntax }
    }

    /// The value of the first header of this name: later ones do not count (STOMP 1.2, "Repeated Header
    /// Entries").
    pub fn get(&self, name: &str) -> Option<Cow<'a, str>> {
        let syntax = self.syntax;
        let matches = |raw: &str| if raw.contains('\\') { syntax.unescape(raw) == name } else { raw == name };
        self.raw().find(|(raw, _)| matches(raw)).map(|(_, value)| syntax.unescape(value))
    }

    /// Whether a header of this name is there.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// All headers.
    pub fn iter(&self) -> impl Iterator<Item = Header<'a>> + Clone + use<'a> {
        let syntax = self.syntax;
        self.raw()
            .map(move |(name, value)| Header { name: syntax.unescape(name), value: syntax.unescape(value) })
    }

    /// The headers that belong to the message: all but those of [`is_control_header`].
    pub fn user(&self) -> impl Iterator<Item = Header<'a>> + Clone + use<'a> {
        self.iter().filter(|header| !is_control_header(&header.name))
    }

    /// How many headers there are.
    pub fn len(&self) -> usize {
        self.raw().count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    fn raw(&self) -> impl Iterator<Item = (&'a str, &'a str)> + Clone + use<'a> {
        let syntax = self.syntax;
        self.lines.split_terminator('\n').map(move |line| syntax.split(syntax.strip(line)))
    }
}

impl PartialEq for Headers<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Headers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.iter().map(|Header { name, value }| match &*name {
            "passcode" => (name, Cow::Borrowed("(hidden)")),
            _ => (name, value),
        });
        f.debug_map().entries(shown).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec::Vec;

    #[test]
    fn the_first_of_repeated_headers_wins_and_all_are_kept() {
        let headers = Headers::new("foo:World\nfoo:Hello\n", Syntax::V12);
        assert_eq!(headers.get("foo").as_deref(), Some("World"));
        let values: Vec<_> = headers.iter().map(|header| header.value).collect();
        assert_eq!(values, ["World", "Hello"]);
        assert_eq!(headers.len(), 2);
    }

    #[test]
    fn escaped_names_are_found_by_what_they_mean() {
        let headers = Headers::new("k\\cey:1\nk:2\n", Syntax::V11);
        assert_eq!(headers.get("k:ey").as_deref(), Some("1"));
        assert_eq!(headers.get("k\\cey"), None);
        assert_eq!(headers.get("k").as_deref(), Some("2"));
    }

    #[test]
    fn nothing_shows_the_passcode() {
        for syntax in [Syntax::Plain, Syntax::V10, Syntax::V12] {
            let shown = format!("{:?}", Headers::new("login:u\npasscode: SECRET-77\n", syntax));
            assert!(shown.contains("login") && !shown.contains("SECRET"), "{shown}");
        }
    }

    #[test]
    fn control_headers_do_not_belong_to_the_message() {
        let headers = Headers::new("receipt:r\nx:1\nmessage-id:7\nack:y\ncontent-type:t\n", Syntax::V12);
        let names: Vec<_> = headers.user().map(|header| header.name).collect();
        assert_eq!(names, ["x", "content-type"]);
    }
}
