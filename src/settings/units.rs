//! The units that a configuration is written in: sizes, durations, counts and their absence.
//!
//! Each type parses from text (environment variables and flags hold nothing else) and, where TOML has a number, from that
//! number; each displays in the largest unit that loses nothing, so that what `tidegate check` prints can be read back.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

/// A number of bytes: `8MiB`, `64KiB`, `512B` or plain bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// A duration in milliseconds: `250ms`, `10s`, `5m`, `12h`, `90d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub u64);

/// A plain number, without the leniency of reading `yes` or `1.5` as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub u64);

/// A value, or the word that says there is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound<T>(pub Option<T>);

/// What every unit can do; the derive-like glue below turns it into serde.
pub trait Unit: Copy + fmt::Display + FromStr {
    /// Ends the sentence "expected ...".
    const EXPECTED: &'static str;
    /// The same where the absence of a bound is allowed too.
    const EXPECTED_OR_NONE: &'static str;
    /// The word for the absence of a bound.
    const NONE: &'static str;

    /// From a TOML integer; `None` where a bare number would be ambiguous.
    fn from_number(number: u64) -> Option<Self>;
}

const SIZE_UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const SPAN_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl Unit for Size {
    const EXPECTED: &'static str = "a size such as \"8MiB\", \"64KiB\" or a number of bytes";
    const EXPECTED_OR_NONE: &'static str =
        "a size such as \"8MiB\", \"64KiB\", a number of bytes, or \"unlimited\"";
    const NONE: &'static str = "unlimited";

    fn from_number(number: u64) -> Option<Self> {
        Some(Self(number))
    }
}

impl Unit for Span {
    const EXPECTED: &'static str =
        "a duration with its unit, such as \"250ms\", \"10s\", \"5m\", \"12h\" or \"90d\"";
    const EXPECTED_OR_NONE: &'static str =
        "a duration with its unit, such as \"250ms\", \"10s\", \"5m\", \"12h\" or \"90d\", or \"never\"";
    const NONE: &'static str = "never";

    fn from_number(_: u64) -> Option<Self> {
        None
    }
}

impl Unit for Count {
    const EXPECTED: &'static str = "a whole number";
    const EXPECTED_OR_NONE: &'static str = "a whole number or \"unlimited\"";
    const NONE: &'static str = "unlimited";

    fn from_number(number: u64) -> Option<Self> {
        Some(Self(number))
    }
}

/// The text is no value of this unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAUnit;

/// Splits `8MiB` into 8 and `MiB`; digits only in front.
fn number_and_unit(text: &str) -> Result<(u64, &str), NotAUnit> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    Ok((number.parse().map_err(|_| NotAUnit)?, unit.trim_start()))
}

fn scaled(number: u64, unit: &str, units: &[(&str, u64)]) -> Result<u64, NotAUnit> {
    let (_, factor) = units.iter().find(|(name, _)| *name == unit).ok_or(NotAUnit)?;
    number.checked_mul(*factor).ok_or(NotAUnit)
}

fn write_scaled(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let exact = units.iter().find(|(_, factor)| value != 0 && value.is_multiple_of(*factor));
    let (name, factor) =
        exact.or(units.iter().find(|(_, factor)| *factor == 1)).expect("each table has a unit of one");
    write!(f, "{}{name}", value / factor)
}

impl FromStr for Size {
    type Err = NotAUnit;

    fn from_str(text: &str) -> Result<Self, NotAUnit> {
        let (number, unit) = number_and_unit(text)?;
        scaled(number, if unit.is_empty() { "B" } else { unit }, &SIZE_UNITS).map(Self)
    }
}

impl FromStr for Span {
    type Err = NotAUnit;

    fn from_str(text: &str) -> Result<Self, NotAUnit> {
        let (number, unit) = number_and_unit(text)?;
        scaled(number, if number == 0 && unit.is_empty() { "ms" } else { unit }, &SPAN_UNITS).map(Self)
    }
}

impl FromStr for Count {
    type Err = NotAUnit;

    fn from_str(text: &str) -> Result<Self, NotAUnit> {
        text.trim().parse().map(Self).map_err(|_| NotAUnit)
    }
}

impl<T: Unit> FromStr for Bound<T> {
    type Err = NotAUnit;

    fn from_str(text: &str) -> Result<Self, NotAUnit> {
        if text.trim() == T::NONE {
            return Ok(Self(None));
        }
        text.parse().map(|value| Self(Some(value))).map_err(|_| NotAUnit)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_scaled(f, self.0, &SIZE_UNITS)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_scaled(f, self.0, &SPAN_UNITS)
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl<T: Unit> fmt::Display for Bound<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str(T::NONE),
        }
    }
}

/// Reads text and numbers, and refuses everything else with the unit's own words.
struct Reader<T> {
    expected: &'static str,
    from_text: fn(&str) -> Option<T>,
    from_number: fn(u64) -> Option<T>,
}

impl<T> Visitor<'_> for Reader<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.from_text)(text)
            .ok_or_else(|| E::custom(format!("expected {}, found \"{text}\"", self.expected)))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        (self.from_number)(number)
            .ok_or_else(|| E::custom(format!("expected {}, found {number}", self.expected)))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::custom(format!("expected {}, found {number}", self.expected))),
        }
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<T, E> {
        Err(E::custom(format!("expected {}, found {value}", self.expected)))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<T, E> {
        Err(E::custom(format!("expected {}, found {value}", self.expected)))
    }
}

macro_rules! serde_for {
    ($($unit:ty),*) => {$(
        impl<'de> Deserialize<'de> for $unit {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Reader {
                    expected: Self::EXPECTED,
                    from_text: |text| text.parse().ok(),
                    from_number: Self::from_number,
                })
            }
        }
    )*};
}
serde_for!(Size, Span, Count);

impl<'de, T: Unit> Deserialize<'de> for Bound<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader {
            expected: T::EXPECTED_OR_NONE,
            from_text: |text| text.parse().ok(),
            from_number: |number| T::from_number(number).map(|value| Self(Some(value))),
        })
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<T: Unit + Serialize> Serialize for Bound<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(value) => value.serialize(serializer),
            None => serializer.serialize_str(T::NONE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_binary_units_and_plain_bytes() {
        for (text, bytes) in
            [("8MiB", 8 << 20), ("64KiB", 64 << 10), ("512B", 512), ("7", 7), ("1 GiB", 1 << 30), ("0", 0)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["8MB", "8mib", "-1", "", "MiB", "1.5MiB", "99999999999TiB"] {
            assert_eq!(text.parse::<Size>(), Err(NotAUnit), "{text}");
        }
    }

    #[test]
    fn durations_need_their_unit() {
        for (text, millis) in
            [("250ms", 250), ("10s", 10_000), ("5m", 300_000), ("2h", 7_200_000), ("90d", 7_776_000_000)]
        {
            assert_eq!(text.parse(), Ok(Span(millis)), "{text}");
        }
        for text in ["10", "never", "1 fortnight", "s", "1h30m"] {
            assert_eq!(text.parse::<Span>(), Err(NotAUnit), "{text}");
        }
        assert_eq!("never".parse::<Bound<Span>>(), Ok(Bound(None)));
    }

    #[test]
    fn what_is_displayed_reads_back_as_the_same_value() {
        for bytes in [0, 1, 1023, 1024, 1 << 20, (1 << 20) + 1, 3 << 30, u64::MAX] {
            assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
            assert_eq!(Span(bytes).to_string().parse(), Ok(Span(bytes)));
        }
        assert_eq!(Size(8 << 20).to_string(), "8MiB");
        assert_eq!(Span(90 * 86_400_000).to_string(), "90d");
        assert_eq!(Bound::<Count>(None).to_string(), "unlimited");
    }
}
