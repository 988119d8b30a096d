//! Who a client is and what it may do: users and their passwords, tokens, rules about topics, and the decisions on them.
//!
//! Everything here is pure: files come as text, the time as an argument. [`Gate`] decides logins, [`RuleSet`] holds the rules of
//! a file, and [`Rights`] are those of them that apply to one client; the broker and `tidegate acl explain` ask the same
//! [`Rights`], so they cannot differ.
//!
//! Invariants: a decision depends on the rules, the client and the question alone; no name that a client chooses widens what a
//! rule allows; an unknown user costs as much time as a wrong password.
//! Bounds: [`rules::RULES_MAX`], [`users::USERS_MAX`], [`gate::WAITING_MAX`], [`gate::VERIFIED_MAX`], [`scram::MESSAGE_BYTES_MAX`],
//! [`limiter::ADDRESSES_MAX`], [`password::HASH_MEMORY_BYTES_MAX`] for the hashes that are computed at a time.

mod exchange;
pub mod explain;
pub mod gate;
pub mod limiter;
pub mod lines;
pub mod password;
mod pattern;
pub mod rights;
pub mod rules;
pub mod scram;
#[cfg(test)]
pub(crate) mod tests;
pub mod token;
pub mod users;

use std::sync::Arc;

pub use gate::{Gate, Policy};
pub use rights::{Action, Decision, Reason, Rights};
pub use rules::RuleSet;
pub use token::TokenKeys;
pub use users::Users;

/// A topic with a client's names in the places of `%u` and `%c`; `None` when one of them could mean more than a level of its own.
#[must_use]
pub fn fill_in_names(topic: &str, user: Option<&str>, client: &str) -> Option<String> {
    pattern::fill_in(topic, &pattern::Names { user, client }).ok().map(Into::into)
}

/// What a client presents when it connects, in words that belong to no protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The user name it claims.
    pub user: Option<Box<str>>,
    /// The password, or a token.
    pub password: Option<Box<[u8]>>,
    /// The name in the certificate that the transport has verified.
    pub certificate_user: Option<Arc<str>>,
    /// Where it comes from: peers with the same key share the bound on wrong passwords.
    pub address: AddressKey,
    /// Its listener lets clients in that present nothing.
    pub anonymous_allowed: bool,
}

/// What a client presents that asks for an extended authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The method's name.
    pub method: Box<str>,
    /// Its first message.
    pub message: Box<[u8]>,
    /// Who it must prove to be: the name of its certificate, or the user of the connection if it proves it anew.
    pub user: Option<Arc<str>>,
    /// Where it comes from.
    pub address: AddressKey,
}

/// An address as far as counting goes. `None`: the peer is on this machine and not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressKey(pub Option<u128>);

/// How a client proved who it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Not at all.
    #[default]
    Anonymous,
    /// By a password of the password file.
    Password,
    /// By a certificate.
    Certificate,
    /// By a token.
    Token,
    /// By a proof that it knows a password, without sending it.
    Scram,
}

/// Who a client is, once it has proved it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Its name; `None`: anonymous.
    pub user: Option<Arc<str>>,
    /// How it was proved.
    pub method: Method,
    /// Rules of its own, from a token.
    pub rules: Option<Arc<RuleSet>>,
    /// Seconds from now on for which it lasts.
    pub lasts_secs: Option<u64>,
}

/// Why a login is refused. What the client is told of it is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// It presented nothing, and its listener asks for something.
    #[error("no user name or token, and its listener does not take anonymous clients")]
    Anonymous,
    /// The user is unknown or the password is wrong.
    #[error("unknown user or wrong password")]
    Credentials,
    /// The token is not good.
    #[error("token: {0}")]
    Token(token::BadToken),
    /// The extended authentication that it asks for is not offered.
    #[error("an authentication method that is not offered")]
    Method,
    /// The extended authentication has failed.
    #[error("SCRAM: {0}")]
    Exchange(scram::BadExchange),
    /// It has proved to be somebody else than who it was, or than its certificate says.
    #[error("SCRAM: another user than the one of its connection or certificate")]
    OtherUser,
    /// Too many wrong passwords came from its address.
    #[error("too many wrong passwords came from its address; it has to wait")]
    TooManyFailures,
    /// Too many logins wait for their turn.
    #[error("too many logins wait for their passwords to be checked")]
    Busy,
}
