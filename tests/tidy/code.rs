//! Rust as names and punctuation: comments, texts and characters are left out.

/// A name, a `::`, or one character of punctuation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// Where it stands.
    pub line: usize,
    /// Its text.
    pub text: &'a str,
}

impl Token<'_> {
    /// A name or a keyword.
    pub fn is_name(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

/// The tokens of a source text.
pub fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = vec![];
    let mut at = 0;
    let mut line = 1;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let skipped = skip(rest);
        let length = if skipped > 0 {
            skipped
        } else if c.is_alphanumeric() || c == '_' {
            rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            c.len_utf8()
        };
        if skipped == 0 && !c.is_whitespace() {
            found.push(Token { line, text: &rest[..length] });
        }
        line += rest[..length].matches('\n').count();
        at += length;
    }
    found
}

/// Length of the comment, text or character at the start of `rest`; 0 if none starts there.
fn skip(rest: &str) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment(rest);
    }
    let after_prefix = rest.trim_start_matches(['b', 'c', 'r']);
    let prefix = rest.len() - after_prefix.len();
    let hashes = after_prefix.len() - after_prefix.trim_start_matches('#').len();
    if prefix <= 2 && rest[..prefix].contains('r') && after_prefix[hashes..].starts_with('"') {
        let close = format!("\"{}", "#".repeat(hashes));
        let body = prefix + hashes + 1;
        return rest[body..].find(&close).map_or(rest.len(), |n| body + n + close.len());
    }
    if prefix <= 1 && after_prefix.starts_with('"') {
        return prefix + quoted(after_prefix, '"');
    }
    if prefix <= 1 && after_prefix.starts_with('\'') {
        let mut chars = after_prefix.chars().skip(1);
        let (first, second) = (chars.next(), chars.next());
        if first == Some('\\') || second == Some('\'') {
            return prefix + quoted(after_prefix, '\'');
        }
    }
    0
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Every path that the tokens name, with `use` trees unfolded: `use std::{fs, net::*}` names `std::fs` and `std::net::*`.
pub fn paths<'a>(tokens: &[Token<'a>]) -> Vec<(usize, Vec<&'a str>)> {
    let mut found = vec![];
    let mut path: Vec<&str> = vec![];
    let mut bases: Vec<usize> = vec![];
    let mut in_use = false;
    let mut previous = "";
    for token in tokens {
        let continues = previous == "::" || (in_use && matches!(previous, "{" | "," | "use"));
        match token.text {
            "use" => (in_use, path) = (true, vec![]),
            "::" => {}
            "{" if in_use => bases.push(path.len()),
            "}" | "," if in_use => {
                if token.text == "}" {
                    bases.pop();
                }
                path.truncate(bases.last().copied().unwrap_or(0));
            }
            "as" if in_use => {}
            _ if in_use && previous == "as" => {}
            ";" => (in_use, path, bases) = (false, vec![], vec![]),
            text if token.is_name() || text == "*" => {
                if !continues {
                    path.clear();
                }
                path.push(text);
                found.push((token.line, path.clone()));
            }
            _ => path.clear(),
        }
        previous = token.text;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_texts_hold_no_names() {
        let source = "a // b\n/* c /* d */ e */ f \"g\\\" h\" r#\"i \" j\"# b\"k\" 'l' '\\'' '\\u{1}' m<'n>('o') 1u8 rust::p";
        let names: Vec<_> =
            tokens(source).into_iter().filter(Token::is_name).map(|t| (t.line, t.text)).collect();
        assert_eq!(names, [(1, "a"), (2, "f"), (2, "m"), (2, "n"), (2, "rust"), (2, "p")]);
    }

    #[test]
    fn use_trees_unfold_into_paths() {
        let source = "use a::{b::{c, d}, e as f, g::*};\nh::i(j, ::k::l);";
        let found: Vec<String> =
            paths(&tokens(source)).into_iter().map(|(_, path)| path.join("::")).collect();
        for path in ["a::b::c", "a::b::d", "a::e", "a::g::*", "h::i", "j", "k::l"] {
            assert!(found.iter().any(|known| known == path), "{path}: {found:?}");
        }
        assert!(!found.iter().any(|path| path == "a::c" || path == "a::d"), "{found:?}");
    }
}
