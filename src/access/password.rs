//! Passwords as they are stored: argon2id, and what Mosquitto writes.
//!
//! ```text
//! $argon2id$v=19$m=7168,t=5,p=1$<salt>$<hash>   PHC string, unpadded base64; argon2i and argon2d are read too
//! $scram-sha-256$i=10000$<salt>$<key>$<key>    see [`scram`](super::scram)
//! $7$<iterations>$<salt>$<hash>                 Mosquitto 2: PBKDF2 with HMAC-SHA512, base64
//! $6$<salt>$<hash>                              Mosquitto 1: SHA-512 of password and salt, base64
//! ```
//!
//! Bounds: [`HASH_MEMORY_BYTES_MAX`] and [`ROUNDS_MAX`] for what a stored line may cost.

use std::fmt;
use std::num::NonZeroU32;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use ring::{digest, pbkdf2};
use subtle::ConstantTimeEq;

use super::scram::{ITERATIONS_MAX, ITERATIONS_MIN, Verifier};

/// Memory that checking passwords may take, in bytes. Lines that ask for more are refused.
pub const HASH_MEMORY_BYTES_MAX: u64 = 64 << 20;
/// Iterations of PBKDF2, and passes of argon2 times its memory in KiB, that a line may ask for.
pub const ROUNDS_MAX: u32 = 10_000_000;
/// Longest password in bytes.
pub const PASSWORD_BYTES_MAX: usize = 4096;
/// Bytes of the salt of a new password.
pub const SALT_BYTES: usize = 16;

/// Of new passwords: 7 MiB and 5 passes, one of the settings that OWASP recommends, chosen for its little memory.
const MEMORY_KIB: u32 = 7168;
const PASSES: u32 = 5;
const HASH_BYTES: usize = 32;
/// Bytes of what Mosquitto's hashes make.
const SHA512_BYTES: usize = 64;

/// A stored password.
#[derive(Clone, PartialEq, Eq)]
pub struct Stored(Kind);

#[derive(Clone, PartialEq, Eq)]
enum Kind {
    Argon2 { algorithm: Algorithm, version: Version, cost: [u32; 3], salt: Box<[u8]>, hash: Box<[u8]> },
    Pbkdf2 { iterations: NonZeroU32, salt: Box<[u8]>, hash: Box<[u8]> },
    Sha512 { salt: Box<[u8]>, hash: Box<[u8]> },
    Scram(Box<Verifier>),
}

/// What hashes are computed in. One that is kept from one hash to the next grows to the largest and no further: large blocks that
/// come and go would leave holes.
#[derive(Default)]
pub struct HashMemory(Vec<Block>);

impl HashMemory {
    fn blocks(&mut self, count: usize) -> &mut [Block] {
        if self.0.len() < count {
            // The old blocks go before the new ones come.
            self.0 = Vec::new();
            self.0.resize_with(count, Block::default);
        }
        &mut self.0[..count]
    }
}

/// Neither hash nor salt.
impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Argon2 { .. } => "Stored(argon2)",
            Kind::Pbkdf2 { .. } => "Stored(PBKDF2-SHA512)",
            Kind::Sha512 { .. } => "Stored(SHA512)",
            Kind::Scram(_) => "Stored(SCRAM-SHA-256)",
        })
    }
}

impl Stored {
    /// Reads the part of a line behind the user name.
    ///
    /// # Errors
    /// What is wrong with it, and what to do.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.split('$');
        if parts.next() != Some("") {
            return Err("the password is not hashed; set it with: tidegate passwd FILE USER".into());
        }
        let kind = match parts.next() {
            Some("argon2id") => argon2_of(Algorithm::Argon2id, parts),
            Some("argon2i") => argon2_of(Algorithm::Argon2i, parts),
            Some("argon2d") => argon2_of(Algorithm::Argon2d, parts),
            Some("scram-sha-256") => Verifier::parse(parts).map(|verifier| Kind::Scram(Box::new(verifier))),
            Some("7") => pbkdf2_of(parts),
            Some("6") => sha512_of(parts),
            Some(other) => {
                return Err(format!(
                    "the kind of hash \"${other}$\" is not known; known are $argon2id$, $scram-sha-256$, $7$ and $6$. Set the password anew \
                     with: tidegate passwd FILE USER"
                ));
            }
            None => None,
        };
        let kind = kind
            .ok_or("the hash is damaged or cut off; set the password anew with: tidegate passwd FILE USER")?;
        let stored = Self(kind);
        if stored.memory() > HASH_MEMORY_BYTES_MAX || stored.rounds() > u64::from(ROUNDS_MAX) {
            return Err(format!(
                "checking this password would take {} bytes and {} rounds; {HASH_MEMORY_BYTES_MAX} and {ROUNDS_MAX} are \
                 the most. Set it anew with: tidegate passwd FILE USER",
                stored.memory(),
                stored.rounds()
            ));
        }
        if let Some(verifier) = stored.scram()
            && !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&verifier.iterations().get())
        {
            return Err(format!(
                "it has {} iterations of SCRAM; {ITERATIONS_MIN} to {ITERATIONS_MAX} are possible. Set it anew with: tidegate \
                 passwd FILE USER --scram",
                verifier.iterations()
            ));
        }
        Ok(stored)
    }

    /// What proofs of this password are checked against, if it was stored for that.
    #[must_use]
    pub fn scram(&self) -> Option<&Verifier> {
        match &self.0 {
            Kind::Scram(verifier) => Some(verifier),
            Kind::Argon2 { .. } | Kind::Pbkdf2 { .. } | Kind::Sha512 { .. } => None,
        }
    }

    /// Hashes a new password. `salt` is random.
    #[must_use]
    pub fn create(password: &[u8], salt: &[u8; SALT_BYTES]) -> String {
        let mut hash = [0; HASH_BYTES];
        let params =
            Params::new(MEMORY_KIB, PASSES, 1, Some(HASH_BYTES)).expect("the constants are in range");
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into(password, salt, &mut hash)
            .expect("the lengths of salt and hash are in range");
        let (salt, hash) = (STANDARD_NO_PAD.encode(salt), STANDARD_NO_PAD.encode(hash));
        format!("$argon2id$v=19$m={MEMORY_KIB},t={PASSES},p=1${salt}${hash}")
    }

    /// Whether this is the password. Takes tens of milliseconds by design.
    #[must_use]
    pub fn verify(&self, password: &[u8], room: &mut HashMemory) -> bool {
        match &self.0 {
            Kind::Argon2 { algorithm, version, cost: [memory, passes, lanes], salt, hash } => {
                let mut found = vec![0; hash.len()];
                Params::new(*memory, *passes, *lanes, Some(hash.len())).is_ok_and(|params| {
                    let blocks = room.blocks(params.block_count());
                    let argon2 = Argon2::new(*algorithm, *version, params);
                    argon2.hash_password_into_with_memory(password, salt, &mut found, blocks).is_ok()
                        && bool::from(found.ct_eq(hash))
                })
            }
            Kind::Pbkdf2 { iterations, salt, hash } => {
                pbkdf2::verify(pbkdf2::PBKDF2_HMAC_SHA512, *iterations, salt, password, hash).is_ok()
            }
            Kind::Sha512 { salt, hash } => {
                let mut context = digest::Context::new(&digest::SHA512);
                context.update(password);
                context.update(salt);
                bool::from(context.finish().as_ref().ct_eq(hash))
            }
            Kind::Scram(verifier) => verifier.verify(password),
        }
    }

    /// Memory that [`verify`](Self::verify) takes, in bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        match self.0 {
            Kind::Argon2 { cost: [memory, ..], .. } => u64::from(memory) << 10,
            Kind::Pbkdf2 { .. } | Kind::Sha512 { .. } | Kind::Scram(_) => 0,
        }
    }

    /// A measure of the time that [`verify`](Self::verify) takes.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        match &self.0 {
            Kind::Argon2 { cost: [memory, passes, _], .. } => u64::from(*memory) * u64::from(*passes),
            Kind::Pbkdf2 { iterations, .. } => u64::from(iterations.get()),
            Kind::Sha512 { .. } => 1,
            Kind::Scram(verifier) => u64::from(verifier.iterations().get()),
        }
    }
}

fn argon2_of<'a>(algorithm: Algorithm, mut parts: impl Iterator<Item = &'a str>) -> Option<Kind> {
    let mut part = parts.next()?;
    let mut version = Version::V0x10;
    if let Some(number) = part.strip_prefix("v=") {
        version = number.parse::<u32>().ok().and_then(|number| Version::try_from(number).ok())?;
        part = parts.next()?;
    }
    let mut cost = [None; 3];
    for pair in part.split(',') {
        let (name, value) = pair.split_once('=')?;
        let at = ["m", "t", "p"].iter().position(|known| *known == name)?;
        cost[at] = Some(value.parse::<u32>().ok()?);
    }
    let cost = [cost[0]?, cost[1]?, cost[2]?];
    let salt = STANDARD_NO_PAD.decode(parts.next()?).ok()?;
    let hash = STANDARD_NO_PAD.decode(parts.next()?).ok()?;
    Params::new(cost[0], cost[1], cost[2], Some(hash.len())).ok()?;
    let whole = parts.next().is_none() && salt.len() >= argon2::MIN_SALT_LEN;
    whole.then(|| Kind::Argon2 { algorithm, version, cost, salt: salt.into(), hash: hash.into() })
}

/// Decoded.
type SaltAndHash = (Box<[u8]>, Box<[u8]>);

fn pbkdf2_of<'a>(mut parts: impl Iterator<Item = &'a str>) -> Option<Kind> {
    let iterations = parts.next()?.parse().ok()?;
    let (salt, hash) = salt_and_sha512(parts)?;
    Some(Kind::Pbkdf2 { iterations, salt, hash })
}

fn sha512_of<'a>(parts: impl Iterator<Item = &'a str>) -> Option<Kind> {
    let (salt, hash) = salt_and_sha512(parts)?;
    Some(Kind::Sha512 { salt, hash })
}

fn salt_and_sha512<'a>(mut parts: impl Iterator<Item = &'a str>) -> Option<SaltAndHash> {
    let salt = STANDARD.decode(parts.next()?).ok()?;
    let hash = STANDARD.decode(parts.next()?).ok()?;
    (parts.next().is_none() && hash.len() == SHA512_BYTES && !salt.is_empty())
        .then(|| (salt.into(), hash.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by mosquitto_passwd 2.0.11, in its two ways, of the password "secret".
    const MOSQUITTO: [&str; 2] = [
        "$7$101$AeqTvLxu0XvZ6CYy$nEQoRCXQaWLx+aYouLLoHdxpTWxsgpRG+4syE94y5OYzHee8c4p6ARvWtEqxrFe1rrS9wY2I4Gcw7HewuYmgQQ==",
        "$6$JRBA7eItBZVURG4C$nBcGA9YR23i8ZKx9rfWk1js/CGdUgoY2t8Gv2tyLtY2Dmm/eZCG9FSBojNGci1xjtrxIXeluyryDEVdSpo7E5A==",
    ];

    #[test]
    fn a_new_password_is_found_again_and_no_other_is() {
        let line = Stored::create(b"s3cret", &[7; SALT_BYTES]);
        let stored = Stored::parse(&line).unwrap();
        assert!(line.starts_with("$argon2id$v=19$m=7168,t=5,p=1$"), "{line}");
        assert!(stored.verify(b"s3cret", &mut HashMemory::default()));
        for wrong in [&b""[..], b"S3cret", b"s3cret ", b"s3cre"] {
            assert!(!stored.verify(wrong, &mut HashMemory::default()));
        }
        assert_eq!(format!("{stored:?}"), "Stored(argon2)");
    }

    #[test]
    fn a_reference_hash_of_argon2_is_understood() {
        // The test vector of the reference implementation: password "password", salt "somesalt".
        let line = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";
        assert!(Stored::parse(line).unwrap().verify(b"password", &mut HashMemory::default()));
        assert!(!Stored::parse(line).unwrap().verify(b"passwore", &mut HashMemory::default()));
    }

    #[test]
    fn the_lines_of_mosquitto_are_understood() {
        for line in MOSQUITTO {
            let stored = Stored::parse(line).unwrap();
            assert!(stored.verify(b"secret", &mut HashMemory::default()), "{line}");
            assert!(!stored.verify(b"Secret", &mut HashMemory::default()), "{line}");
        }
    }

    #[test]
    fn a_line_that_is_damaged_or_too_dear_is_refused_with_a_remedy() {
        for (line, said) in [
            ("secret", "is not hashed"),
            ("", "damaged"),
            ("$", "not known"),
            ("$5$abc$def", "\"$5$\" is not known"),
            ("$argon2id$v=19$m=7168,t=5,p=1$c29tZXNhbHQ", "cut off"),
            ("$argon2id$v=19$m=7168,t=5$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4", "damaged"),
            (
                "$argon2id$v=19$m=2097152,t=1,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
                "would take",
            ),
            ("$7$0$c29tZXNhbHQ=$AAAA", "damaged"),
            ("$7$101$c29tZXNhbHQ=$AAAA", "damaged"),
            ("$6$c29tZXNhbHQ=$!!!!", "damaged"),
        ] {
            let error = Stored::parse(line).unwrap_err();
            assert!(error.contains(said), "{line}: {error}");
            assert!(error.contains("tidegate passwd FILE USER"), "{error}");
        }
    }
}
