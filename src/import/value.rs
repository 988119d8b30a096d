//! Values of options, as Mosquitto reads them.

/// Longest value that a complaint shows.
const SHOWN_CHARS_MAX: usize = 60;

/// The first word; behind it nothing but a comment may follow.
fn word(text: &str) -> Result<&str, String> {
    let mut words = text.split_whitespace();
    let first = words.next().ok_or("has no value")?;
    match words.next() {
        Some(next) if !next.starts_with('#') => Err(format!("expected one word, found \"{}\"", shown(text))),
        _ => Ok(first),
    }
}

/// A value as complaints show it.
pub fn shown(text: &str) -> String {
    let mut short: String =
        text.chars().take(SHOWN_CHARS_MAX).map(|c| if c.is_control() { '?' } else { c }).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// `true` or `false`, `1` or `0`.
///
/// # Errors
/// What is wrong.
pub fn boolean(text: &str) -> Result<bool, String> {
    match word(text)? {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        other => Err(format!("expected true or false, found \"{}\"", shown(other))),
    }
}

/// A whole number; as in C, `0x` begins a hexadecimal and `0` an octal one.
///
/// # Errors
/// What is wrong.
pub fn integer(text: &str) -> Result<i64, String> {
    let word = word(text)?;
    let (negative, digits) = match word.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, word.strip_prefix('+').unwrap_or(word)),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let parsed = match (hexadecimal, digits.strip_prefix('0')) {
        _ if digits.starts_with(['+', '-']) => None,
        (Some(rest), _) if rest.starts_with(['+', '-']) => None,
        (Some(rest), _) => i64::from_str_radix(rest, 16).ok(),
        (None, Some(rest)) if rest.starts_with(['+', '-']) => None,
        (None, Some(rest)) if !rest.is_empty() => i64::from_str_radix(rest, 8).ok(),
        _ => digits.parse().ok(),
    };
    let number = parsed.ok_or_else(|| format!("expected a whole number, found \"{}\"", shown(word)))?;
    Ok(if negative { -number } else { number })
}

/// A whole number in a range.
///
/// # Errors
/// What is wrong.
pub fn integer_in(text: &str, range: std::ops::RangeInclusive<i64>) -> Result<i64, String> {
    let number = integer(text)?;
    if range.contains(&number) {
        return Ok(number);
    }
    Err(format!("expected {} to {}, found {number}", range.start(), range.end()))
}

/// The rest of the line.
///
/// # Errors
/// When there is none.
pub fn string(text: &str) -> Result<&str, String> {
    let text = text.trim();
    if text.is_empty() { Err("has no value".into()) } else { Ok(text) }
}

/// A duration such as `14d`, in seconds.
///
/// # Errors
/// What is wrong.
pub fn duration_secs(text: &str) -> Result<u64, String> {
    const UNITS: [(char, u64); 6] =
        [('s', 1), ('h', 3600), ('d', 86_400), ('w', 7 * 86_400), ('m', 30 * 86_400), ('y', 365 * 86_400)];
    let word = word(text)?;
    let expected =
        || format!("expected a number and one of s h d w m y, such as 14d, found \"{}\"", shown(word));
    let unit = word.chars().last().ok_or_else(expected)?;
    let (_, factor) = UNITS.into_iter().find(|(known, _)| *known == unit).ok_or_else(expected)?;
    let number: u64 = word[..word.len() - unit.len_utf8()].parse().map_err(|_| expected())?;
    number.checked_mul(factor).filter(|secs| *secs > 0).ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_in_c() {
        let good = [("20", 20), (" 0x10 ", 16), ("010", 8), ("0", 0), ("-1", -1), ("+5 # five", 5)];
        for (text, number) in good {
            assert_eq!(integer(text), Ok(number), "{text}");
        }
        for bad in
            ["", " ", "x", "1 2", "0x", "08", "--1", "+-1", "0x-1", "0-1", "99999999999999999999", "1.5"]
        {
            assert!(integer(bad).is_err(), "{bad}");
        }
        assert_eq!(integer_in("7", 0..=5), Err("expected 0 to 5, found 7".into()));
    }

    #[test]
    fn booleans_and_durations_are_those_that_mosquitto_takes() {
        assert_eq!((boolean("true"), boolean("0"), boolean("1 # on")), (Ok(true), Ok(false), Ok(true)));
        assert!(boolean("yes").is_err() && boolean("").is_err());
        assert_eq!((duration_secs("14d"), duration_secs("2m")), (Ok(1_209_600), Ok(5_184_000)));
        for bad in ["", "14", "d", "0d", "1 d", "-1d", "1é", "99999999999999999y"] {
            assert!(duration_secs(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_a_complaint_shows_is_short_and_printable() {
        assert_eq!(shown("a\u{1b}b"), "a?b");
        assert!(shown(&"é".repeat(100)).chars().count() == SHOWN_CHARS_MAX + 1);
    }
}
