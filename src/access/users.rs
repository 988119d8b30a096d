//! The password file: one `USER:HASH` a line, empty lines and lines that begin with `#` aside.
//!
//! Bounds: [`USERS_MAX`].

use hashbrown::HashMap;

use super::lines::{LineError, lines};
use super::password::Stored;

/// Users of one file.
pub const USERS_MAX: usize = 100_000;
/// Longest user name in bytes.
pub const USER_BYTES_MAX: usize = 1024;

/// All users of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users {
    stored: HashMap<Box<str>, Stored>,
    /// The costliest line: what an unknown user is checked against.
    decoy: Option<Stored>,
}

impl Users {
    /// Reads a file.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(text: &str) -> Result<Self, LineError> {
        let mut users = Self::default();
        for (line, text) in lines(text) {
            let error = |what: String| LineError::new(line, what);
            let Some((user, stored)) = text.split_once(':') else {
                return Err(error("expected USER:HASH".into()));
            };
            check_name(user).map_err(error)?;
            let stored =
                Stored::parse(stored.trim_end()).map_err(|what| error(format!("user \"{user}\": {what}")))?;
            if users.decoy.as_ref().is_none_or(|decoy| decoy.rounds() < stored.rounds()) {
                users.decoy = Some(stored.clone());
            }
            if users.stored.insert(user.into(), stored).is_some() {
                return Err(error(format!("user \"{user}\" stands on an earlier line already; remove one")));
            }
            if users.stored.len() > USERS_MAX {
                return Err(error(format!("there are more than {USERS_MAX} users")));
            }
        }
        Ok(users)
    }

    /// What is stored for a user.
    #[must_use]
    pub fn find(&self, user: &str) -> Option<&Stored> {
        self.stored.get(user)
    }

    /// What the password of an unknown user is checked against, in vain, so that it takes as long as a known one.
    #[must_use]
    pub fn decoy(&self) -> Option<&Stored> {
        self.decoy.as_ref()
    }

    /// Memory that the costliest check takes, in bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.stored.values().map(Stored::memory).max().unwrap_or(0)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.stored.len()
    }

    /// There are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stored.is_empty()
    }
}

/// Whether a name can stand in a password file.
///
/// # Errors
/// What is wrong with it.
pub fn check_name(user: &str) -> Result<(), String> {
    match user {
        "" => Err("the user name is empty".into()),
        _ if user.len() > USER_BYTES_MAX => {
            Err(format!("the user name is longer than {USER_BYTES_MAX} bytes"))
        }
        _ if user.contains(':') => Err("the user name contains a colon, which ends it in the file".into()),
        _ if user.chars().any(char::is_control) => Err("the user name contains a control character".into()),
        _ if user.starts_with('#') || user.trim() != user => {
            Err("the user name begins with # or has spaces at an end".into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::password::{HashMemory, SALT_BYTES};
    use super::*;

    #[test]
    fn users_are_read_and_mistakes_told_with_their_lines() {
        let hash = Stored::create(b"x", &[1; SALT_BYTES]);
        let users = Users::parse(&format!("# people\nann:{hash}\n\nbob:{hash}\r\n")).unwrap();
        assert_eq!(users.len(), 2);
        assert!(users.find("bob").unwrap().verify(b"x", &mut HashMemory::default()));
        assert_eq!(users.find("carl"), None);
        for (text, said) in [
            ("ann", "line 1: expected USER:HASH"),
            (":x", "the user name is empty"),
            ("\nann:secret", "line 2: user \"ann\": the password is not hashed"),
            (&format!("ann:{hash}\nann:{hash}"), "line 2: user \"ann\" stands on an earlier line"),
        ] {
            let error = Users::parse(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn an_unknown_user_is_checked_against_the_costliest_line() {
        let hash = Stored::create(b"x", &[1; SALT_BYTES]);
        let cheap = "$6$JRBA7eItBZVURG4C$nBcGA9YR23i8ZKx9rfWk1js/CGdUgoY2t8Gv2tyLtY2Dmm/eZCG9FSBojNGci1xjtrxIXeluyryDEVdSpo7E5A==";
        let users = Users::parse(&format!("ann:{cheap}\nbob:{hash}\n")).unwrap();
        assert_eq!(users.decoy(), users.find("bob"));
        assert_eq!(users.memory(), 7168 << 10);
    }
}
