//! Selectors: conditions on the headers of a message, in the words of SQL-92 (and of JMS, which took them from there).
//!
//! ```text
//! condition  = condition OR condition | condition AND condition | NOT condition | predicate
//! predicate  = value (= | <> | < | <= | > | >=) value | value [NOT] BETWEEN value AND value
//!            | value [NOT] IN (literal, ...) | value [NOT] LIKE 'pattern' [ESCAPE 'c'] | value IS [NOT] NULL | value
//! value      = value (+ | - | * | /) value | (+ | -) value | literal | name | "any name" | (condition)
//! literal    = 'text' | 12 | 12.5 | 1e3 | 0x1F | TRUE | FALSE
//! ```
//!
//! Words of the language are taken in capital or small letters, names as they are written. A name has letters, digits, `_` and
//! `$`; any other name stands in double quotes, as `"content-type"`.
//!
//! A condition is true, false or unknown; only a true one selects. A header that is not there is NULL, and whatever is compared
//! with NULL is unknown. Headers are texts; what they are compared with decides what they mean:
//!
//! * beside a number, or in arithmetic, a header that looks like a number is one, as in ActiveMQ and Artemis; any other text
//!   is unlike every number (and NULL in arithmetic);
//! * beside a text, a header is a text, ordered by its code points;
//! * beside another header it is a number if both are, otherwise a text;
//! * beside TRUE or FALSE, and as a condition of its own, `true` and `false` in any letters count.
//!
//! Comparing values of different kinds is false, also with `<>`. Whole numbers divide to whole numbers; dividing by zero is NULL.
//!
//! Bounds: [`SELECTOR_BYTES_MAX`], [`PATTERN_CHARS_MAX`]; everything else follows from them. Nothing here calls itself, neither in
//! parsing nor in evaluation.

mod eval;
mod fields;
mod lexer;
mod like;
mod parser;
#[cfg(test)]
mod tests;

use std::fmt;

use like::Pattern;

/// Longest selector in bytes.
pub const SELECTOR_BYTES_MAX: usize = 4096;
/// Longest pattern of a LIKE in characters: matching takes at most this many steps for each character of a header.
pub const PATTERN_CHARS_MAX: usize = 256;

/// A selector that was checked, ready to be asked.
#[derive(Clone, PartialEq)]
pub struct Selector {
    text: Box<str>,
    program: Box<[Op]>,
}

/// What a selector asks headers of: a message.
pub trait Fields {
    /// The value of the first header of this name.
    fn field(&self, name: &str) -> Option<Field<'_>>;
}

/// A header's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field<'a> {
    /// Text: what it means depends on what it is compared with.
    Text(&'a str),
    /// A number.
    Number(i64),
    /// A truth value.
    Bool(bool),
}

/// The value of a condition; `None` stands for unknown.
pub type Truth = Option<bool>;

/// What is wrong with a selector, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at character {position}: {what}")]
pub struct SelectorError {
    /// The number of the character, counted from 1.
    pub position: usize,
    /// What is wrong.
    pub what: &'static str,
}

/// One step of a selector's program: it takes its operands from a stack and leaves its result there.
#[derive(Clone, Debug, PartialEq)]
enum Op {
    Text(Box<str>),
    Int(i64),
    Float(f64),
    Bool(bool),
    Field(Box<str>),
    Negate,
    Plus,
    Arithmetic(Arithmetic),
    Compare(Comparison),
    Between { negated: bool },
    In { negated: bool, list: Box<[Literal]> },
    Like { negated: bool, pattern: Pattern },
    IsNull { negated: bool },
    Not,
    And,
    Or,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A literal of an IN list.
#[derive(Clone, Debug, PartialEq)]
enum Literal {
    Text(Box<str>),
    Int(i64),
    Float(f64),
    Bool(bool),
}

impl Selector {
    /// Checks a selector.
    ///
    /// # Errors
    /// [`SelectorError`] says what is wrong with it, and where.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        if text.len() > SELECTOR_BYTES_MAX {
            let position = text.char_indices().take_while(|(at, _)| *at < SELECTOR_BYTES_MAX).count() + 1;
            return Err(SelectorError { position, what: "the selector is longer than 4096 bytes" });
        }
        let program = parser::parse(text).map_err(|fault| SelectorError {
            position: text.char_indices().take_while(|(at, _)| *at < fault.at).count() + 1,
            what: fault.what,
        })?;
        Ok(Self { text: text.into(), program })
    }

    /// The selector as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the condition is true of a message.
    #[must_use]
    pub fn selects(&self, fields: &impl Fields) -> bool {
        self.truth(fields) == Some(true)
    }

    /// The value of the condition for a message.
    #[must_use]
    pub fn truth(&self, fields: &impl Fields) -> Truth {
        eval::truth(&self.program, fields)
    }

    /// Memory that it takes, in bytes, at most.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.text.len() * (1 + size_of::<Op>())
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Selector({:?})", self.text)
    }
}
