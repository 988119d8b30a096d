//! Where a setting comes from, so that a complaint about it can point there.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// The place that set a key last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line of a file, counted from 1.
    Line(PathBuf, usize),
    /// A file as a whole.
    File(PathBuf),
    /// An environment variable.
    Variable(String),
    /// A command line flag, as it was written.
    Flag(String),
    /// Nobody set it.
    BuiltIn,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(file, line) => write!(f, "{}:{line}", file.display()),
            Self::File(file) => write!(f, "{}", file.display()),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::BuiltIn => f.write_str("built-in default"),
        }
    }
}

/// What is wrong with the configuration, where, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    /// Where it was written.
    pub place: Place,
    /// The key in dotted form, such as `limits.packet_max` or `bridge[0].url`; empty when no key is concerned.
    pub key: String,
    /// What is wrong and what is expected.
    pub what: String,
}

impl SettingsError {
    pub(super) fn new(place: Place, key: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place, key: key.into(), what: what.into() }
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for SettingsError {}

/// Which place set which key last.
#[derive(Clone, Debug, Default)]
pub(super) struct Origins(BTreeMap<String, Place>);

impl Origins {
    /// `place` sets `key`.
    pub fn set(&mut self, key: impl Into<String>, place: Place) {
        self.0.insert(key.into(), place);
    }

    /// Forgets `section` and everything below it.
    pub fn forget(&mut self, section: &str) {
        self.0.retain(|key, _| !key.starts_with(section));
    }

    /// Somebody set this very key.
    pub fn is_set(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// The place of `key`, or else of the section that holds it.
    pub fn of(&self, key: &str) -> Place {
        let mut key = key;
        loop {
            if let Some(place) = self.0.get(key) {
                return place.clone();
            }
            match key.rfind(['.', '[']) {
                Some(end) => key = &key[..end],
                None => return Place::BuiltIn,
            }
        }
    }

    /// An error about `key` at its place.
    pub fn error(&self, key: &str, what: impl Into<String>) -> SettingsError {
        SettingsError::new(self.of(key), key, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_nobody_set_is_complained_about_at_its_section() {
        let mut origins = Origins::default();
        origins.set("bridge[1]", Place::Line("a.toml".into(), 7));
        assert_eq!(origins.of("bridge[1].name"), Place::Line("a.toml".into(), 7));
        assert_eq!(origins.of("bridge[1].out[0].filter"), Place::Line("a.toml".into(), 7));
        assert_eq!(origins.of("bridge[0].name"), Place::BuiltIn);
        assert_eq!(
            origins.error("bridge[1].name", "is missing").to_string(),
            "a.toml:7: bridge[1].name: is missing"
        );
    }
}
