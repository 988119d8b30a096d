//! Who may do what, as configured, and the files that say it: passwords, rules and the key of tokens.
//!
//! Bound: [`ACCESS_FILE_BYTES_MAX`] for each file.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::place::{Place, SettingsError};
use super::{Listener, Settings};
use crate::access::lines::LineError;
use crate::access::token::TokenTerms;
use crate::access::{Policy, RuleSet, TokenKeys, Users};
use crate::broker::AccessRules;
use crate::net::hub::Access;

/// Size of one file in bytes.
pub const ACCESS_FILE_BYTES_MAX: u64 = 32 << 20;

/// Tokens in place of passwords.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtSettings {
    /// `HS256`, `RS256` or `ES256`.
    pub algorithm: String,
    /// The secret or the public key.
    pub key_file: PathBuf,
    /// What a token must say.
    pub terms: TokenTerms,
}

/// Who may do what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessSettings {
    /// Users and their passwords.
    pub password_file: Option<PathBuf>,
    /// Rules.
    pub acl_file: Option<PathBuf>,
    /// What no rule mentions is allowed.
    pub default_allow: bool,
    /// A session belongs to the user that made it.
    pub owned_sessions: bool,
    /// Wrong passwords that one address may send in a minute; 0: any number.
    pub failures_per_minute: u32,
    /// Memory that checking passwords may take, in bytes.
    pub hash_memory_bytes_max: u64,
    /// What a client is told that asks where it may have its answers sent.
    pub response_information: Option<String>,
    /// Tokens.
    pub jwt: Option<JwtSettings>,
}

impl AccessSettings {
    /// Clients can prove who they are.
    #[must_use]
    pub fn authenticates(&self) -> bool {
        self.password_file.is_some() || self.jwt.is_some()
    }

    /// The rules of the file. Without a file there are none.
    ///
    /// # Errors
    /// When the file cannot be read or a line of it is wrong, with its place.
    pub fn rules(&self) -> Result<Option<Arc<RuleSet>>, SettingsError> {
        let Some(path) = &self.acl_file else { return Ok(None) };
        let text = text(path)?;
        let set = RuleSet::parse(&path.display().to_string(), &text, self.default_allow);
        set.map(|set| Some(Arc::new(set))).map_err(|error| at_line(path, error))
    }

    fn users(&self) -> Result<Option<Arc<Users>>, SettingsError> {
        let Some(path) = &self.password_file else { return Ok(None) };
        let users = Users::parse(&text(path)?).map_err(|error| at_line(path, error))?;
        if users.memory() > self.hash_memory_bytes_max {
            let what = format!(
                "checking one of its passwords takes {} bytes, more than `access.hash_memory_max`; raise it, or set the \
                 passwords anew with: tidegate passwd FILE USER",
                users.memory()
            );
            return Err(SettingsError::new(Place::File(path.clone()), "", what));
        }
        Ok(Some(Arc::new(users)))
    }

    fn tokens(&self) -> Result<Option<Arc<TokenKeys>>, SettingsError> {
        let Some(jwt) = &self.jwt else { return Ok(None) };
        let keys = TokenKeys::new(&jwt.algorithm, &bytes(&jwt.key_file)?, &jwt.terms);
        let keys = keys.map_err(|what| SettingsError::new(Place::File(jwt.key_file.clone()), "", what))?;
        Ok(Some(Arc::new(keys)))
    }

    /// Files with secrets that everybody on this machine can read: a sentence for each.
    #[must_use]
    pub fn exposed_files(&self) -> Vec<String> {
        let secret = self.jwt.as_ref().filter(|jwt| jwt.algorithm == "HS256").map(|jwt| &jwt.key_file);
        let files = self.password_file.iter().chain(secret);
        let is_open = |path: &&PathBuf| {
            std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o007 != 0)
        };
        files
            .filter(is_open)
            .map(|path| {
                format!("{}: everybody on this machine can open it; run: chmod o= {0}", path.display())
            })
            .collect()
    }
}

impl Settings {
    /// Reads the files of passwords, rules and keys. All of them are good, or none counts.
    ///
    /// # Errors
    /// The first thing that is wrong, with its file and line.
    pub fn read_access(&self) -> Result<Access, SettingsError> {
        let access = &self.access;
        let policy = Policy {
            users: access.users()?,
            tokens: access.tokens()?,
            failures_per_minute: access.failures_per_minute,
            hash_memory_bytes_max: access.hash_memory_bytes_max,
        };
        let rules = AccessRules {
            rules: access.rules()?,
            owned_sessions: access.owned_sessions,
            response_information: access.response_information.as_deref().map(Arc::from),
        };
        Ok(Access {
            policy,
            rules,
            anonymous: self.listeners.iter().map(|Listener { anonymous, .. }| *anonymous).collect(),
        })
    }
}

fn at_line(path: &Path, error: LineError) -> SettingsError {
    let place = match error.line {
        0 => Place::File(path.to_owned()),
        line => Place::Line(path.to_owned(), line as usize),
    };
    SettingsError::new(place, "", error.what)
}

fn text(path: &Path) -> Result<String, SettingsError> {
    let bytes = bytes(path)?;
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        SettingsError::new(Place::Line(path.to_owned(), line), "", "is not UTF-8")
    })
}

fn bytes(path: &Path) -> Result<Vec<u8>, SettingsError> {
    let error = |what: String| SettingsError::new(Place::File(path.to_owned()), "", what);
    let file = std::fs::File::open(path).map_err(|e| error(format!("cannot be opened: {e}")))?;
    let mut bytes = Vec::new();
    file.take(ACCESS_FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| error(format!("cannot be read: {e}")))?;
    if bytes.len() as u64 > ACCESS_FILE_BYTES_MAX {
        return Err(error(format!("is larger than {ACCESS_FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}
