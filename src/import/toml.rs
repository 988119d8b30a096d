//! The file that is written: sections and keys, each with the line that it comes from.

use std::fmt::Write;

/// Longest line of comments.
const COMMENT_CHARS_MAX: usize = 120;

/// A section with its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// With its brackets.
    header: String,
    keys: Vec<Key>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    name: &'static str,
    /// As TOML.
    value: String,
    comment: String,
}

impl Table {
    /// `[name]`
    #[must_use]
    pub fn section(name: &str) -> Self {
        Self { header: format!("[{name}]"), keys: Vec::new() }
    }

    /// `[[name]]`
    #[must_use]
    pub fn element(name: &str) -> Self {
        Self { header: format!("[[{name}]]"), keys: Vec::new() }
    }

    /// Adds a key, or gives it another value; `comment` says where it comes from.
    pub fn set(
        &mut self,
        name: &'static str,
        value: impl Into<toml_edit::Value>,
        comment: impl Into<String>,
    ) {
        let key = Key { name, value: value.into().to_string().trim().to_owned(), comment: comment.into() };
        match self.keys.iter_mut().find(|known| known.name == name) {
            Some(known) => *known = key,
            None => self.keys.push(key),
        }
    }

    /// The value of a key, as TOML.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        self.keys.iter().find(|key| key.name == name).map(|key| key.value.as_str())
    }

    /// There are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn write(&self, out: &mut String) {
        let _ = writeln!(out, "\n{}", self.header);
        for Key { name, value, comment } in &self.keys {
            if comment.is_empty() {
                let _ = writeln!(out, "{name} = {value}");
            } else {
                let _ = writeln!(out, "{name} = {value}  # {}", one_line(comment));
            }
        }
    }
}

/// The whole file: `head` in comments, then the tables, in order; empty sections are left out.
#[must_use]
pub fn document(head: &[String], tables: &[Table]) -> String {
    let mut out = String::new();
    for line in head {
        for part in wrapped(&one_line(line)) {
            let _ = writeln!(out, "{}", format!("# {part}").trim_end());
        }
    }
    for table in tables.iter().filter(|table| !table.is_empty()) {
        table.write(&mut out);
    }
    out
}

/// A comment must not end early: what follows would be configuration.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is always a line");
        if last.chars().count() + 1 + word.chars().count() > COMMENT_CHARS_MAX && !last.trim().is_empty() {
            lines.push(format!("  {word}"));
        } else {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_and_comments_stay_on_their_line() {
        let mut table = Table::element("bridge");
        table.set("name", "a\"b\\c\nd", "m.conf:1\n[evil]");
        table.set("name", "x\ty", "m.conf:2");
        table.set("window", 5, "");
        let text = document(&["one\ntwo".into()], &[table, Table::section("log")]);
        let parsed: toml_edit::DocumentMut = text.parse().unwrap();
        let bridge = parsed["bridge"].as_array_of_tables().unwrap().get(0).unwrap();
        assert_eq!(bridge["name"].as_str(), Some("x\ty"));
        assert_eq!(bridge["window"].as_integer(), Some(5));
        assert!(text.starts_with("# one two\n") && !text.contains("[log]"), "{text}");
    }

    #[test]
    fn long_comments_are_wrapped() {
        let text = document(&["word ".repeat(60)], &[]);
        assert!(
            text.lines().all(|line| line.starts_with('#') && line.chars().count() <= COMMENT_CHARS_MAX + 2)
        );
    }
}
