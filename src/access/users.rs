//! The password file: one `USER:HASH` a line, empty lines and lines that begin with `#` aside.
//!
//! A line `$decoy$SECRET` may stand among them. From it the salts are made that a client gets which asks for SCRAM in the name of
//! somebody who is not there: they must stay the same from one day to the next, as those of users do.
//!
//! Bounds: [`USERS_MAX`].

use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hashbrown::HashMap;

use super::lines::{LineError, lines};
use super::password::Stored;
use super::scram::Verifier;

/// Users of one file.
pub const USERS_MAX: usize = 100_000;
/// Longest user name in bytes.
pub const USER_BYTES_MAX: usize = 1024;
/// What the line of the decoys' secret begins with.
pub const DECOY_PREFIX: &str = "$decoy$";
/// Bytes of that secret.
pub const DECOY_BYTES: usize = 32;

/// All users of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users {
    stored: HashMap<Box<str>, Stored>,
    /// The costliest line: what an unknown user is checked against.
    decoy: Option<Stored>,
    decoy_secret: Option<[u8; DECOY_BYTES]>,
    /// Users with SCRAM, by their iterations.
    scram: HashMap<NonZeroU32, usize>,
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
            if let Some(secret) = text.strip_prefix(DECOY_PREFIX).filter(|secret| !secret.contains(':')) {
                users.set_decoy_secret(secret.trim_end()).map_err(error)?;
                continue;
            }
            let Some((user, stored)) = text.split_once(':') else {
                return Err(error("expected USER:HASH".into()));
            };
            check_name(user).map_err(error)?;
            let stored =
                Stored::parse(stored.trim_end()).map_err(|what| error(format!("user \"{user}\": {what}")))?;
            if users.decoy.as_ref().is_none_or(|decoy| decoy.rounds() < stored.rounds()) {
                users.decoy = Some(stored.clone());
            }
            if let Some(verifier) = stored.scram() {
                *users.scram.entry(verifier.iterations()).or_default() += 1;
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

    fn set_decoy_secret(&mut self, text: &str) -> Result<(), String> {
        let secret = STANDARD.decode(text).ok().and_then(|secret| secret.try_into().ok());
        let secret =
            secret.ok_or("the secret of the decoys is damaged; remove the line and set a password")?;
        match self.decoy_secret.replace(secret) {
            None => Ok(()),
            Some(_) => Err("the secret of the decoys stands on an earlier line already; remove one".into()),
        }
    }

    /// What a user's proof is checked against.
    #[must_use]
    pub fn verifier(&self, user: &str) -> Option<&Verifier> {
        self.find(user)?.scram()
    }

    /// The iterations that most users with SCRAM have: what somebody who is not there seems to have. `None`: nobody has SCRAM.
    #[must_use]
    pub fn scram_iterations(&self) -> Option<NonZeroU32> {
        self.scram.iter().max_by_key(|(iterations, users)| (**users, **iterations)).map(|(most, _)| *most)
    }

    /// What decoys are made from, if the file says it.
    #[must_use]
    pub fn decoy_secret(&self) -> Option<&[u8; DECOY_BYTES]> {
        self.decoy_secret.as_ref()
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

    /// What users of this file lose when `new` takes its place: those that are no longer there, and those of whom SCRAM is no
    /// longer accepted; in the order of their names.
    #[must_use]
    pub fn lost_with(&self, new: Option<&Self>) -> (Vec<&str>, Vec<&str>) {
        let find = |user: &str| new.and_then(|new| new.find(user));
        let (mut gone, mut scram) = (Vec::new(), Vec::new());
        for (user, stored) in &self.stored {
            match find(user) {
                None => gone.push(&**user),
                Some(new) if stored.scram().is_some() && new.scram().is_none() => scram.push(&**user),
                Some(_) => {}
            }
        }
        gone.sort_unstable();
        scram.sort_unstable();
        (gone, scram)
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
    fn users_with_scram_are_told_apart_and_the_secret_of_decoys_is_read() {
        let argon2 = Stored::create(b"x", &[1; SALT_BYTES]);
        let scram = |rounds| Verifier::create(b"x", &[1; SALT_BYTES], NonZeroU32::new(rounds).unwrap());
        let secret = STANDARD.encode([7; DECOY_BYTES]);
        let text = format!(
            "$decoy${secret}\nann:{argon2}\nbob:{}\ncarl:{}\ndora:{}\n",
            scram(5000),
            scram(4096),
            scram(5000)
        );
        let users = Users::parse(&text).unwrap();
        assert_eq!(users.scram_iterations(), NonZeroU32::new(5000));
        assert_eq!(users.decoy_secret(), Some(&[7; DECOY_BYTES]));
        assert_eq!(users.verifier("bob"), Some(&scram(5000)));
        assert_eq!((users.verifier("ann"), users.verifier("eve"), users.len()), (None, None, 4));
        assert!(users.find("carl").unwrap().verify(b"x", &mut HashMemory::default()), "in plain, too");
        for (text, said) in [
            ("$decoy$AAAA", "line 1: the secret of the decoys is damaged"),
            (
                &format!("$decoy${secret}\n$decoy${secret}"),
                "line 2: the secret of the decoys stands on an earlier line",
            ),
            (&format!("ann:{}", scram(4095)), "4096 to 1000000 are possible"),
            ("ann:$scram-sha-256$i=4096", "damaged or cut off"),
        ] {
            let error = Users::parse(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        assert_eq!(Users::parse(&format!("ann:{argon2}")).unwrap().scram_iterations(), None);
    }

    #[test]
    fn what_users_lose_with_another_file_is_known() {
        let argon2 = Stored::create(b"x", &[1; SALT_BYTES]);
        let scram = Verifier::create(b"x", &[1; SALT_BYTES], NonZeroU32::new(4096).unwrap());
        let of = |text: String| Users::parse(&text).unwrap();
        let old = of(format!("dora:{argon2}\nbob:{scram}\ncarl:{scram}\nann:{argon2}\n"));
        let new = of(format!("bob:{argon2}\ncarl:{scram}\neve:{argon2}\n"));
        assert_eq!(old.lost_with(Some(&new)), (vec!["ann", "dora"], vec!["bob"]));
        assert_eq!(old.lost_with(None).0, ["ann", "bob", "carl", "dora"]);
        assert_eq!(old.lost_with(Some(&old)), (vec![], vec![]));
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
