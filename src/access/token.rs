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
use ring::{digest, hmac, signature as sign};
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
    /// Of everything that it was made from.
    fingerprint: Box<[u8]>,
}

/// Made from the same.
impl PartialEq for TokenKeys {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
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
        let fingerprint = format!("{algorithm:?} {terms:?} {key:?}");
        let fingerprint = digest::digest(&digest::SHA256, fingerprint.as_bytes()).as_ref().into();
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
            fingerprint,
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
            lasts_secs: Some(expires - now_secs),
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

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use serde_json::json;

    use super::*;

    /// Made by `openssl`, as are the tokens below: for "ann", issued by "plant" for "gateway", valid until 2100.
    const RSA_KEY: &str = "\
-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAzVzBOT9xC3iCT7GwxJvQ
cSZjB38X65Jq247+Lx/g61lyQ6qU4GEvxbaS6YPhuf3+u6vX2cA6x3fAxtfEYCvl
KMYJad1fe9qpDZLNkDsb2kyGoRWwTWKcRnXjK90IovFhPM9tB00+0nqlg8MW9csy
wGfiEjYt1yuLQ7xQqOvzoV5BnztxWeEkwV+kRKCpoX4lJ/bpzXJJUjTFw7geJZie
2dKuTeRziOwv6HS/hdXhadcdjVzVQoO+6uC6vg8++S/LscbR65Y0pWVyFn+S4jaX
ntIP2Ow/E9sJ8k22qjxQbrxcpO3/9vWKiEW5O2fpcFWgQNIt4anuVx9lj7HD5l48
NwIDAQAB
-----END PUBLIC KEY-----";
    const EC_KEY: &str = "\
-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEiLlb63wlAvXHarGOF0hPUxB4K1UT
Md2om3joO+P3FvyRpd3Fp4mhSsCefsDzNRWX0hvoVXUDI9iv7m9u7Nc9Eg==
-----END PUBLIC KEY-----";
    const RSA_TOKEN: &str = concat!(
        "eyJhbGciOiAiUlMyNTYiLCAidHlwIjogIkpXVCJ9.eyJzdWIiOiAiYW5uIiwgImV4cCI6IDQxMDI0NDQ4MDAsICJpc3M",
        "iOiAicGxhbnQiLCAiYXVkIjogWyJnYXRld2F5Il19.U_FSTWXdYD1iQq8y3UVkMi1MLfW3gppc8UwvtGeTGaQaJe8Hbg",
        "Cp9Vjhjm0W3jO-QyIusLU6zARRynV9Rk6Tr_7rguc-upQClBtf5GEZbBiOQkPtT2w72qUYI7Mfee_CfIOD2_PtmgVxyM",
        "ttUq-H8IzMGPpRyNuiE_-a9ktHquuueZzo0A8XWkC9jn8ZZSCipbAjBiwdQDELFIQGIFx0RYkhT-w7uJ_w2jxAuCTYLp",
        "yCLheAs-fqIXYx6I_onikY50p-BnM1ODoF_dOxT_X-JatPGJd9DT5043J4du979B439O_vDW7ODwxrwcGxJa7nQklvdu",
        "CrSCL4TW_8CF1Z1g",
    );
    const EC_TOKEN: &str = concat!(
        "eyJhbGciOiAiRVMyNTYiLCAidHlwIjogIkpXVCJ9.eyJzdWIiOiAiYW5uIiwgImV4cCI6IDQxMDI0NDQ4MDAsICJpc3M",
        "iOiAicGxhbnQiLCAiYXVkIjogWyJnYXRld2F5Il19.SStU9FxThaz8xd_AJDL3Gz35cuGULmCFK0rjB30n0rQ4djQfXZ",
        "I0I7TaoaLSTYpalO5utJGDotwi4-AnfBrlKA",
    );
    const SECRET: &[u8] = b"a secret of thirty-two bytes, or more\n";
    const NOW: u64 = 1_800_000_000;

    fn terms() -> TokenTerms {
        TokenTerms { user_claim: "sub".into(), ..TokenTerms::default() }
    }

    fn signed(header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(header), part(claims));
        let key = hmac::Key::new(hmac::HMAC_SHA256, &SECRET[..SECRET.len() - 1]);
        let tag = hmac::sign(&key, message.as_bytes());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag.as_ref()))
    }

    fn token(claims: &Value) -> String {
        signed(&json!({ "alg": "HS256", "typ": "JWT" }), claims)
    }

    fn check(terms: &TokenTerms, token: &str) -> Result<Identity, BadToken> {
        TokenKeys::new("HS256", SECRET, terms).unwrap().check(token.as_bytes(), NOW)
    }

    #[test]
    fn tokens_of_each_algorithm_are_taken_and_changed_ones_are_not() {
        for (algorithm, key, token) in [("RS256", RSA_KEY, RSA_TOKEN), ("ES256", EC_KEY, EC_TOKEN)] {
            let keys = TokenKeys::new(algorithm, key.as_bytes(), &terms()).unwrap();
            let identity = keys.check(token.as_bytes(), NOW).unwrap();
            assert_eq!((identity.user.as_deref(), identity.method), (Some("ann"), Method::Token));
            assert_eq!(identity.lasts_secs, Some(4_102_444_800 - NOW));
            for at in [token.len() / 3, token.len() - 20] {
                let mut changed = token.to_owned().into_bytes();
                changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
                assert!(keys.check(&changed, NOW).is_err(), "{algorithm} at {at}");
            }
            let other = if algorithm == "RS256" { EC_TOKEN } else { RSA_TOKEN };
            assert_eq!(keys.check(other.as_bytes(), NOW), Err(BadToken::Algorithm));
        }
        assert!(check(&terms(), &token(&json!({ "sub": "ann", "exp": NOW + 9 }))).is_ok());
    }

    #[test]
    fn a_public_key_is_no_secret_and_no_algorithm_is_none() {
        let keys = TokenKeys::new("RS256", RSA_KEY.as_bytes(), &terms()).unwrap();
        let claims = json!({ "sub": "ann", "exp": NOW + 9 });
        for algorithm in ["none", "HS256", "HS512", "hs256"] {
            let forged = signed(&json!({ "alg": algorithm }), &claims);
            assert!(keys.check(forged.as_bytes(), NOW).is_err(), "{algorithm}");
            if algorithm != "HS256" {
                assert!(check(&terms(), &forged).is_err(), "{algorithm}");
            }
        }
    }

    #[test]
    fn times_issuer_audience_and_user_are_checked() {
        let good = json!({ "sub": "ann", "exp": NOW + 9, "nbf": NOW - 9, "iss": "plant", "aud": "gateway" });
        let with = |name: &str, value: Value| {
            let mut claims = good.clone();
            claims[name] = value;
            check(
                &TokenTerms { issuer: Some("plant".into()), audience: Some("gateway".into()), ..terms() },
                &token(&claims),
            )
        };
        assert_eq!(with("x", json!(1)).unwrap().lasts_secs, Some(9));
        assert_eq!(with("exp", json!(NOW)), Err(BadToken::Expired));
        assert_eq!(with("exp", json!("soon")), Err(BadToken::NoExpiry));
        assert_eq!(with("exp", Value::Null), Err(BadToken::NoExpiry));
        assert_eq!(with("nbf", json!(NOW + 3600)), Err(BadToken::NotYet));
        assert_eq!(with("nbf", json!("now")), Err(BadToken::Malformed));
        assert_eq!(with("nbf", json!(NOW + 30)).map(|id| id.lasts_secs), Ok(Some(9)));
        assert_eq!(with("iss", json!("other")), Err(BadToken::Issuer));
        assert_eq!(with("aud", json!(["other"])), Err(BadToken::Audience));
        assert!(with("aud", json!(["other", "gateway"])).is_ok());
        assert_eq!(with("sub", json!(5)), Err(BadToken::NoUser));
        assert_eq!(with("sub", json!("")), Err(BadToken::NoUser));
        let named = TokenTerms { user_claim: "device".into(), ..TokenTerms::default() };
        let claims = json!({ "device": "d1", "exp": NOW + 9, "aud": "anybody" });
        assert_eq!(check(&named, &token(&claims)).unwrap().user.as_deref(), Some("d1"));
        let keys = TokenKeys::new("HS256", SECRET, &terms()).unwrap();
        assert_eq!(keys.check(token(&good).as_bytes(), 60), Err(BadToken::ClockNotSet));
        for nonsense in ["", ".", "..", "a.b.c", "eyJ9.eyJ9.x"] {
            assert!(keys.check(nonsense.as_bytes(), NOW).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn a_token_may_bring_rules() {
        let terms = TokenTerms { acl_claim: Some("acl".into()), ..terms() };
        let with = |acl: Value| check(&terms, &token(&json!({ "sub": "ann", "exp": NOW + 9, "acl": acl })));
        let rules = |acl| with(acl).unwrap().rules.unwrap();
        assert_eq!(rules(json!(["allow write a/%c", "deny all #"])).len(), 2);
        assert_eq!(rules(json!({ "pub": ["a \"b\"", "c"], "sub": ["d/#"], "all": [] })).len(), 3);
        assert_eq!(check(&terms, &token(&json!({ "sub": "ann", "exp": NOW + 9 }))).unwrap().rules, None);
        for bad in [
            json!("allow all #"),
            json!(["allow"]),
            json!([1]),
            json!({ "x": [] }),
            json!(["allow read a\nallow all #"]),
        ] {
            assert_eq!(with(bad.clone()).unwrap_err(), BadToken::BadRules, "{bad}");
        }
    }

    #[test]
    fn a_key_that_is_none_is_refused_in_words() {
        let said = |algorithm, key: &str| TokenKeys::new(algorithm, key.as_bytes(), &terms()).unwrap_err();
        assert!(said("HS256", "short").contains("at least 32"));
        assert!(said("RS256", EC_KEY).contains("RSA public key"));
        assert!(said("ES256", "nonsense").contains("EC (P-256) public key"));
        assert!(said("PS256", RSA_KEY).contains("expected HS256, RS256 or ES256"));
    }
}
