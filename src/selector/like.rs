//! Patterns of LIKE: `%` stands for any characters, `_` for one.

use super::PATTERN_CHARS_MAX;

/// A pattern that was checked.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pattern(Box<[Piece]>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Is(char),
    One,
    Any,
}

impl Pattern {
    pub(super) fn parse(text: &str, escape: Option<char>) -> Result<Self, &'static str> {
        let mut pieces = Vec::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            pieces.push(match c {
                c if Some(c) == escape => match chars.next() {
                    Some(next) if next == '%' || next == '_' || Some(next) == escape => Piece::Is(next),
                    _ => return Err("the escape character stands before something else than %, _ or itself"),
                },
                '%' => Piece::Any,
                '_' => Piece::One,
                c => Piece::Is(c),
            });
        }
        pieces.dedup_by(|next, before| *next == Piece::Any && *before == Piece::Any);
        if pieces.len() > PATTERN_CHARS_MAX {
            return Err("the pattern is longer than 256 characters");
        }
        Ok(Self(pieces.into()))
    }

    /// Goes back to the last `%` alone: an earlier one could only take what the later one takes as well.
    pub(super) fn matches(&self, text: &str) -> bool {
        let (mut piece, mut rest) = (0, text);
        let mut retry: Option<(usize, &str)> = None;
        loop {
            let next = rest.chars().next();
            let advances = match (self.0.get(piece), next) {
                (Some(Piece::Any), _) => {
                    piece += 1;
                    retry = Some((piece, rest));
                    continue;
                }
                (None, None) => return true,
                (Some(Piece::One), Some(_)) => true,
                (Some(Piece::Is(wanted)), Some(found)) => *wanted == found,
                _ => false,
            };
            if advances {
                piece += 1;
                rest = skip_one(rest);
                continue;
            }
            match retry {
                Some((after, from)) if !from.is_empty() => {
                    piece = after;
                    rest = skip_one(from);
                    retry = Some((after, rest));
                }
                _ => return false,
            }
        }
    }
}

fn skip_one(text: &str) -> &str {
    let mut chars = text.chars();
    chars.next();
    chars.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_that_goes_back_often_still_ends_soon() {
        let pattern = Pattern::parse(&"%a".repeat(100), None).unwrap();
        assert!(!pattern.matches(&"a".repeat(99)));
        assert!(pattern.matches(&"ba".repeat(4_000)));
        assert!(!pattern.matches(&"ab".repeat(8_000)));
    }

    #[test]
    fn long_patterns_are_refused() {
        assert!(Pattern::parse(&"a".repeat(256), None).is_ok());
        assert!(Pattern::parse(&"a".repeat(257), None).is_err());
        assert!(Pattern::parse(&"%".repeat(1000), None).is_ok(), "they are one");
    }
}
