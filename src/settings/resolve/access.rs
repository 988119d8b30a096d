//! `[access]` and `[jwt]`.

use super::Check;
use crate::access::password::HASH_MEMORY_BYTES_MAX;
use crate::access::token::TokenTerms;
use crate::settings::access::{AccessSettings, JwtSettings};
use crate::settings::place::SettingsError;
use crate::settings::raw::{RawAccess, RawDefault, RawJwt, RawSessions};

/// Wrong passwords that one address may send in a minute, at most.
const FAILURES_PER_MINUTE_MAX: u64 = 1_000_000;
/// What a client is told of where it may have its answers sent, in bytes, before names are filled in.
const RESPONSE_INFORMATION_BYTES_MAX: usize = 1024;
/// Memory that checking a password with our own parameters takes, in bytes.
const HASH_MEMORY_BYTES_MIN: u64 = 8 << 20;

/// Checks both sections; the files themselves are read when they are needed.
pub fn access(
    raw: &mut RawAccess,
    jwt: &mut RawJwt,
    check: &Check<'_>,
) -> Result<AccessSettings, SettingsError> {
    for (key, path) in
        [("access.password_file", &mut raw.password_file), ("access.acl_file", &mut raw.acl_file)]
    {
        if let Some(path) = path {
            *path = check.path(key, path);
        }
    }
    if raw.acl_file.is_none() && raw.default == RawDefault::Allow && check.origins.is_set("access.default") {
        return check.fail("access.default", "is about what no rule mentions: set `acl_file` too");
    }
    Ok(AccessSettings {
        password_file: raw.password_file.clone(),
        acl_file: raw.acl_file.clone(),
        default_allow: raw.default == RawDefault::Allow,
        owned_sessions: raw.sessions == RawSessions::OfUser,
        failures_per_minute: check.count(
            "access.failures_per_minute",
            raw.failures_per_minute,
            0..=FAILURES_PER_MINUTE_MAX,
        )?,
        hash_memory_bytes_max: check.size(
            "access.hash_memory_max",
            raw.hash_memory_max,
            HASH_MEMORY_BYTES_MIN..=HASH_MEMORY_BYTES_MAX,
        )?,
        response_information: response_information(raw, check)?,
        jwt: tokens(jwt, check)?,
    })
}

fn response_information(raw: &RawAccess, check: &Check<'_>) -> Result<Option<String>, SettingsError> {
    let Some(text) = &raw.response_information else { return Ok(None) };
    if text.is_empty() || text.len() > RESPONSE_INFORMATION_BYTES_MAX || text.contains(['+', '#', '\0']) {
        return check.fail(
            "access.response_information",
            format!("expected the beginning of a topic such as \"replies/%c\", without + and #, of at most {RESPONSE_INFORMATION_BYTES_MAX} bytes"),
        );
    }
    Ok(Some(text.clone()))
}

fn tokens(raw: &mut RawJwt, check: &Check<'_>) -> Result<Option<JwtSettings>, SettingsError> {
    let Some(path) = &mut raw.key_file else {
        for key in ["algorithm", "issuer", "audience", "acl_claim"] {
            if check.origins.is_set(&format!("jwt.{key}")) {
                return check.fail(&format!("jwt.{key}"), "has no effect without `key_file`; set it too");
            }
        }
        return Ok(None);
    };
    *path = check.path("jwt.key_file", path);
    let Some(algorithm) = raw.algorithm else {
        return check.fail("jwt.algorithm", "is missing: expected HS256, RS256 or ES256");
    };
    if raw.user_claim.is_empty() {
        return check.fail("jwt.user_claim", "is empty; it names the claim that holds the user's name");
    }
    Ok(Some(JwtSettings {
        algorithm: algorithm.name().to_owned(),
        key_file: path.clone(),
        terms: TokenTerms {
            issuer: raw.issuer.clone(),
            audience: raw.audience.clone(),
            user_claim: raw.user_claim.clone(),
            acl_claim: raw.acl_claim.clone(),
        },
    }))
}
