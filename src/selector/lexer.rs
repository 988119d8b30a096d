//! Words, numbers and signs of a selector.

use super::parser::Fault;

/// A token, and where it begins in bytes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) at: usize,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Name(Box<str>),
    Text(Box<str>),
    Int(i64),
    Float(f64),
    Word(Word),
    Sign(Sign),
    End,
}

/// Words of the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    And,
    Or,
    Not,
    Between,
    In,
    Like,
    Escape,
    Is,
    Null,
    True,
    False,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Plus,
    Minus,
    Times,
    Over,
    Open,
    Close,
    Comma,
}

const WORDS: [(&str, Word); 11] = [
    ("AND", Word::And),
    ("OR", Word::Or),
    ("NOT", Word::Not),
    ("BETWEEN", Word::Between),
    ("IN", Word::In),
    ("LIKE", Word::Like),
    ("ESCAPE", Word::Escape),
    ("IS", Word::Is),
    ("NULL", Word::Null),
    ("TRUE", Word::True),
    ("FALSE", Word::False),
];

/// Longer signs stand before their beginnings.
const SIGNS: [(&str, Sign); 13] = [
    ("<>", Sign::Unequal),
    ("<=", Sign::LessOrEqual),
    (">=", Sign::GreaterOrEqual),
    ("=", Sign::Equal),
    ("<", Sign::Less),
    (">", Sign::Greater),
    ("+", Sign::Plus),
    ("-", Sign::Minus),
    ("*", Sign::Times),
    ("/", Sign::Over),
    ("(", Sign::Open),
    (")", Sign::Close),
    (",", Sign::Comma),
];

/// Takes a selector apart.
#[derive(Debug)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The next token; `End` for ever once nothing is left.
    pub(super) fn next(&mut self) -> Result<Token, Fault> {
        let rest = &self.text[self.at..];
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        let at = self.at;
        let Some(first) = trimmed.chars().next() else { return Ok(Token { at, kind: Kind::End }) };
        let kind = match first {
            '\'' => Kind::Text(self.quoted('\'', "the text does not end: its ' is missing")?),
            '"' => {
                let name = self.quoted('"', "the name does not end: its \" is missing")?;
                if name.is_empty() {
                    return Err(Fault { at, what: "a name is empty" });
                }
                Kind::Name(name)
            }
            '0'..='9' => self.number()?,
            '.' if trimmed[1..].starts_with(|c: char| c.is_ascii_digit()) => self.number()?,
            _ if starts_name(first) => self.name(),
            _ => self.sign()?,
        };
        Ok(Token { at, kind })
    }

    /// Takes the next token if it is this word; says where it was.
    pub(super) fn take_word(&mut self, word: Word) -> Result<Option<usize>, Fault> {
        let before = self.at;
        let token = self.next()?;
        if token.kind == Kind::Word(word) {
            return Ok(Some(token.at));
        }
        self.at = before;
        Ok(None)
    }

    /// A quote within is written twice.
    fn quoted(&mut self, quote: char, unended: &'static str) -> Result<Box<str>, Fault> {
        let start = self.at;
        let mut text = String::new();
        self.at += 1;
        loop {
            let rest = &self.text[self.at..];
            let end = rest.find(quote).ok_or(Fault { at: start, what: unended })?;
            text.push_str(&rest[..end]);
            self.at += end + 1;
            if !self.text[self.at..].starts_with(quote) {
                return Ok(text.into());
            }
            text.push(quote);
            self.at += 1;
        }
    }

    fn name(&mut self) -> Kind {
        let rest = &self.text[self.at..];
        let len = rest.find(|c| !continues_name(c)).unwrap_or(rest.len());
        let name = &rest[..len];
        self.at += len;
        let word = WORDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(name));
        word.map_or_else(|| Kind::Name(name.into()), |(_, word)| Kind::Word(*word))
    }

    fn number(&mut self) -> Result<Kind, Fault> {
        let rest = &self.text[self.at..];
        let len = number_len(rest);
        let (digits, after) = rest.split_at(len);
        let fault = Fault { at: self.at, what: "the number is not written as one" };
        if after.starts_with(continues_name) {
            return Err(fault);
        }
        self.at += len;
        // A suffix says how the number is held, which makes no difference here.
        let plain = digits.trim_end_matches(['l', 'L']);
        if let Some(hex) = plain.strip_prefix("0x").or(plain.strip_prefix("0X")) {
            return i64::from_str_radix(hex, 16).map(Kind::Int).map_err(|_| fault);
        }
        if let Ok(whole) = plain.parse() {
            return Ok(Kind::Int(whole));
        }
        let plain = plain.trim_end_matches(['f', 'F', 'd', 'D']);
        plain.parse().map(Kind::Float).map_err(|_| fault)
    }

    fn sign(&mut self) -> Result<Kind, Fault> {
        let rest = &self.text[self.at..];
        let found = SIGNS.iter().find(|(text, _)| rest.starts_with(text));
        let (text, sign) = found.ok_or(Fault { at: self.at, what: "this character has no meaning here" })?;
        self.at += text.len();
        Ok(Kind::Sign(*sign))
    }
}

fn starts_name(c: char) -> bool {
    c.is_alphabetic() || matches!(c, '_' | '$')
}

fn continues_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$')
}

/// How long the number at the front of `text` is, its suffix included.
fn number_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let run = |from: usize, digit: fn(&u8) -> bool| {
        from + bytes[from..].iter().take_while(|byte| digit(byte)).count()
    };
    let mut at = if text.starts_with("0x") || text.starts_with("0X") {
        run(2, u8::is_ascii_hexdigit)
    } else {
        let mut at = run(0, u8::is_ascii_digit);
        if bytes.get(at) == Some(&b'.') {
            at = run(at + 1, u8::is_ascii_digit);
        }
        if matches!(bytes.get(at), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
            let end = run(at + 1 + sign, u8::is_ascii_digit);
            if end > at + 1 + sign {
                at = end;
            }
        }
        at
    };
    if matches!(bytes.get(at), Some(b'l' | b'L' | b'f' | b'F' | b'd' | b'D')) {
        at += 1;
    }
    at
}
