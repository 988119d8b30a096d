//! Tokens (JWT, RFC 7519) in place of a password: signature, times, issuer and audience, the user's name and rules of its own.
//!
//! One algorithm and one key are configured, and no token chooses another. A token must have an expiry, and its connection ends
//! there. Times are compared with the system's clock, so a gateway whose clock is not set refuses all tokens.
//! Bound: [`TOKEN_RULES_MAX`].

use std::fmt;
use std::sync::Arc;

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use ring::{hmac, signature as sign};
use serde_json::{Map, Value};
use signature::Verifier;

use super::{Identity, Method, RuleSet};

/// Rules in one token.
pub const TOKEN_RULES_MAX: usize = 256;
/// Bytes of a secret for HS256, as RFC 7518, 3.2 asks for.
pub const SECRET_BYTES_MIN: usize = 32;
/// Seconds by which the issuer's clock may be ahead of ours.
const SKEW_SECS: u64 = 60;
/// Before this time (January 2025) no gateway runs this: its clock was not set since it was switched on.
const CLOCK_SECS_MIN: u64 = 1_735_689_600;

/// Why a token is not good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    /// Not three parts of base64 with JSON inside.
    #[error("it is malformed")]
    Malformed,
    /// Another algorithm than the configured one.
    #[error("it is signed with another algorithm than jwt.algorithm")]
    Algorithm,
    /// The signature does not fit.
    #[error("its signature is wrong")]
    Signature,
    /// `exp` has passed.
    #[error("it has expired")]
    Expired,
    /// `exp` is absent or no number.
    #[error("it has no expiry (exp)")]
    NoExpiry,
    /// `nbf` lies ahead.
    #[error("it is not valid yet (nbf)")]
    NotYet,
    /// `aud` is not one of the configured ones.
    #[error("it is meant for another audience (aud)")]
    Audience,
    /// `iss` is not the configured one.
    #[error("it comes from another issuer (iss)")]
    Issuer,
    /// The claim that names the user is absent or no text.
    #[error("it names no user in the claim jwt.user_claim")]
    NoUser,
    /// The claim that holds rules holds something else.
    #[error("its rules (jwt.acl_claim) cannot be read")]
    BadRules,
    /// The system's clock is at the beginning of its time.
    #[error("the system's clock is not set, so its times cannot be checked")]
    ClockNotSet,
}

/// What a token is checked against.
#[derive(Clone)]
pub struct TokenKeys {
    algorithm: Algorithm,
    key: DecodingKey,
    validation: Validation,
    user_claim: Box<str>,
    acl_claim: Option<Box<str>>,
}

/// What is configured beside algorithm and key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenTerms {
    /// `iss` must be this.
    pub issuer: Option<String>,
    /// `aud` must hold this.
    pub audience: Option<String>,
    /// The claim that names the user.
    pub user_claim: String,
    /// The claim that holds rules.
    pub acl_claim: Option<String>,
}

impl fmt::Debug for TokenKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenKeys").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

impl TokenKeys {
    /// `key` is the content of the key file: a secret for HS256, a public key in PEM for RS256 and ES256.
    ///
    /// # Errors
    /// What is wrong with the key.
    pub fn new(algorithm: &str, key: &[u8], terms: &TokenTerms) -> Result<Self, String> {
        // Installing it again changes nothing.
        let _installed_before = CryptoProvider::install_default(&PROVIDER);
        let (algorithm, key) = match algorithm {
            "HS256" => (Algorithm::HS256, secret(key)?),
            "RS256" => (Algorithm::RS256, DecodingKey::from_rsa_pem(key).map_err(not_a_key("an RSA"))?),
            "ES256" => (Algorithm::ES256, DecodingKey::from_ec_pem(key).map_err(not_a_key("an EC (P-256)"))?),
            other => return Err(format!("\"{other}\" is not supported; expected HS256, RS256 or ES256")),
        };
        let mut validation = Validation::new(algorithm);
        validation.set_required_spec_claims::<&str>(&[]);
        // Times are checked here, with the clock that is handed in.
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.validate_aud = terms.audience.is_some();
        validation.aud = None;
        let mut required = Vec::new();
        if let Some(audience) = &terms.audience {
            validation.set_audience(&[audience]);
            required.push("aud");
        }
        if let Some(issuer) = &terms.issuer {
            validation.set_issuer(&[issuer]);
            required.push("iss");
        }
        validation.set_required_spec_claims(&required);
        Ok(Self {
            algorithm,
            key,
            validation,
            user_claim: terms.user_claim.as_str().into(),
            acl_claim: terms.acl_claim.as_deref().map(Into::into),
        })
    }

    /// Who holds the token at `now_secs`, in seconds since 1970 of the system's clock.
    ///
    /// # Errors
    /// Why it is not good.
    pub fn check(&self, token: &[u8], now_secs: u64) -> Result<Identity, BadToken> {
        if now_secs < CLOCK_SECS_MIN {
            return Err(BadToken::ClockNotSet);
        }
        let claims = decode::<Map<String, Value>>(token, &self.key, &self.validation)
            .map_err(|error| bad_token(&error))?
            .claims;
        let expires = seconds(claims.get("exp")).ok_or(BadToken::NoExpiry)?;
        if expires <= now_secs {
            return Err(BadToken::Expired);
        }
        if let Some(from) = claims.get("nbf")
            && seconds(Some(from)).ok_or(BadToken::Malformed)? > now_secs + SKEW_SECS
        {
            return Err(BadToken::NotYet);
        }
        let user = claims.get(&*self.user_claim).and_then(Value::as_str).filter(|user| !user.is_empty());
        let user: Arc<str> = user.ok_or(BadToken::NoUser)?.into();
        let claim = self.acl_claim.as_deref().and_then(|claim| claims.get(claim));
        let rules = claim.map(|claim| rules(&user, claim).ok_or(BadToken::BadRules)).transpose()?;
        Ok(Identity {
            user: Some(user),
            method: Method::Token,
            rules: rules.map(Arc::new),
            expires_secs: Some(expires),
        })
    }
}

/// Whether a password has the shape of a token.
#[must_use]
pub fn looks_like_one(password: &[u8]) -> bool {
    // A JSON object's beginning in base64.
    password.starts_with(b"ey") && password.iter().filter(|byte| **byte == b'.').count() == 2
}

fn secret(key: &[u8]) -> Result<DecodingKey, String> {
    let key = key.strip_suffix(b"\n").unwrap_or(key);
    let key = key.strip_suffix(b"\r").unwrap_or(key);
    if key.len() < SECRET_BYTES_MIN {
        return Err(format!(
            "the secret has {} bytes, and HS256 needs at least {SECRET_BYTES_MIN}: make one with openssl rand -base64 48",
            key.len()
        ));
    }
    DecodingKey::from_secret(key).map_err(not_a_key("a secret"))
}

fn not_a_key(kind: &str) -> impl Fn(Error) -> String {
    move |error| format!("is not {kind} public key in PEM: {error}")
}

/// Whole seconds; issuers write fractions too.
fn seconds(claim: Option<&Value>) -> Option<u64> {
    let claim = claim?;
    claim
        .as_u64()
        .or_else(|| claim.as_f64().filter(|secs| *secs >= 0.0 && secs.is_finite()).map(|s| s as u64))
}

fn bad_token(error: &Error) -> BadToken {
    match error.kind() {
        ErrorKind::InvalidAlgorithm | ErrorKind::InvalidAlgorithmName => BadToken::Algorithm,
        ErrorKind::InvalidSignature => BadToken::Signature,
        ErrorKind::InvalidAudience => BadToken::Audience,
        ErrorKind::InvalidIssuer => BadToken::Issuer,
        ErrorKind::MissingRequiredClaim(claim) if claim == "aud" => BadToken::Audience,
        ErrorKind::MissingRequiredClaim(_) => BadToken::Issuer,
        _ => BadToken::Malformed,
    }
}

/// A list of lines as in the file, or an object with lists of topics: `pub`, `sub` and `all`.
fn rules(user: &str, claim: &Value) -> Option<RuleSet> {
    let texts = |list: &Value| -> Option<Vec<String>> {
        list.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
    };
    let lines = match claim {
        Value::Array(_) => texts(claim)?,
        Value::Object(lists) => {
            let mut lines = Vec::new();
            for (name, list) in lists {
                let action = match name.as_str() {
                    "pub" | "publish" => "write",
                    "sub" | "subscribe" => "read",
                    "all" => "all",
                    _ => return None,
                };
                let quote = |topic: String| topic.replace('\\', "\\\\").replace('"', "\\\"");
                lines.extend(texts(list)?.into_iter().map(|t| format!("allow {action} \"{}\"", quote(t))));
            }
            lines
        }
        _ => return None,
    };
    let one_line_each = lines.iter().all(|line| !line.contains(['\n', '\r']));
    if lines.len() > TOKEN_RULES_MAX || !one_line_each {
        return None;
    }
    RuleSet::parse(&format!("token of {user}"), &lines.join("\n"), false).ok()
}

/// The same library as for TLS does the arithmetic.
static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::InvalidAlgorithm.into()),
    verifier_factory: |algorithm, key| {
        Ok(Box::new(RingVerifier { algorithm: *algorithm, key: key.try_get_as_bytes()?.to_vec() }))
    },
    key_utils: KeyUtils::new_unimplemented(),
};

struct RingVerifier {
    algorithm: Algorithm,
    key: Vec<u8>,
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let public = |algorithm: &'static dyn sign::VerificationAlgorithm| {
            sign::UnparsedPublicKey::new(algorithm, &self.key).verify(message, signature).is_ok()
        };
        let fits = match self.algorithm {
            Algorithm::HS256 => {
                hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, &self.key), message, signature).is_ok()
            }
            Algorithm::RS256 => public(&sign::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::ES256 => public(&sign::ECDSA_P256_SHA256_FIXED),
            _ => false,
        };
        if fits { Ok(()) } else { Err(signature::Error::new()) }
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
