//! Lines of words: how the files of rules are written, and where their mistakes are.

use std::fmt;

/// Longest line in bytes.
pub const LINE_BYTES_MAX: usize = 16 << 10;

/// A mistake in a file, with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError {
    /// Counted from 1; 0: the file as a whole.
    pub line: u32,
    /// What is wrong and what is expected.
    pub what: String,
}

impl LineError {
    pub(super) fn new(line: u32, what: impl Into<String>) -> Self {
        Self { line, what: what.into() }
    }

    /// With the name of the file in front, as people read places.
    #[must_use]
    pub fn in_file(&self, file: &str) -> String {
        match self.line {
            0 => format!("{file}: {}", self.what),
            line => format!("{file}:{line}: {}", self.what),
        }
    }
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for LineError {}

/// The lines of a text that say something, with their numbers from 1.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (u32, &str)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    (1..).zip(text.lines()).filter(|(_, line)| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with('#')
    })
}

/// A word of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// It stood between quotes: it is a name, whatever it looks like.
    pub(super) quoted: bool,
}

impl Word {
    /// The word is this keyword.
    pub(super) fn is(&self, keyword: &str) -> bool {
        !self.quoted && self.text == keyword
    }
}

/// Takes a line apart at white space. Between quotes white space is part of the word; `\"` and `\\` stand for themselves there.
pub(super) fn words(line: &str) -> Result<Vec<Word>, String> {
    if line.len() > LINE_BYTES_MAX {
        return Err(format!("is longer than {LINE_BYTES_MAX} bytes"));
    }
    let mut found = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let (word, tail) = match rest.strip_prefix('"') {
            Some(inside) => quoted(inside)?,
            None => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                (Word { text: rest[..end].to_owned(), quoted: false }, &rest[end..])
            }
        };
        if !tail.is_empty() && !tail.starts_with(char::is_whitespace) {
            return Err("has no space after a closing quote".into());
        }
        found.push(word);
        rest = tail.trim_start();
    }
    Ok(found)
}

fn quoted(inside: &str) -> Result<(Word, &str), String> {
    let mut text = String::new();
    let mut chars = inside.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((Word { text, quoted: true }, &inside[at + 1..])),
            '\\' => match chars.next() {
                Some((_, c @ ('"' | '\\'))) => text.push(c),
                _ => return Err("has a \\ that is followed by neither \" nor \\; write \\\\ for one".into()),
            },
            c => text.push(c),
        }
    }
    Err("has an opening quote without a closing one".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<String> {
        words(line).unwrap().into_iter().map(|word| word.text).collect()
    }

    #[test]
    fn words_are_separated_by_white_space_unless_it_is_quoted() {
        assert_eq!(texts("allow  read\ta/# "), ["allow", "read", "a/#"]);
        assert_eq!(texts(r#"user "two words" "a \"b\" \\" """#), ["user", "two words", r#"a "b" \"#, ""]);
        assert!(words(r#"user "#).unwrap()[0].is("user"));
        assert!(!words(r#""user""#).unwrap()[0].is("user"));
        for bad in [r#""open"#, r#""a"b"#, r#""\n""#] {
            assert!(words(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn comments_and_empty_lines_say_nothing() {
        let found: Vec<_> = lines("\u{feff}a\n\n  # b\n  c\r\n#d\ne # f").collect();
        assert_eq!(found, [(1, "a"), (4, "  c"), (6, "e # f")]);
    }
}
