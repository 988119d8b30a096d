//! SCRAM-SHA-256 (RFC 5802, RFC 7677): the server's side of an exchange, and what a password file keeps for it.
//!
//! ```text
//! $scram-sha-256$i=10000$<salt>$<stored key>$<server key>   base64; the names are those of RFC 5802, section 3
//! ```
//!
//! Call order: [`ClientFirst::parse`], [`Exchange::open`] with the [`Verifier`] of the user, or one of [`Verifier::decoy`] for a
//! user that is not known, then [`Exchange::close`] once. Channel binding is not offered. What is computed here for a login are a
//! few hashes: the slow part is done by the client.
//!
//! Bounds: [`MESSAGE_BYTES_MAX`], [`ITERATIONS_MIN`], [`ITERATIONS_MAX`].

use std::fmt;
use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac, pbkdf2};
use subtle::ConstantTimeEq;

/// What the method is called on the wire.
pub const METHOD: &str = "SCRAM-SHA-256";
/// Longest message of a client in bytes.
pub const MESSAGE_BYTES_MAX: usize = 4096;
/// Iterations that a stored line must have: the least that RFC 7677 allows.
pub const ITERATIONS_MIN: u32 = 4096;
/// Iterations of a new line: a small device computes them at each login.
pub const ITERATIONS: u32 = 10_000;
/// Iterations that a stored line may have.
pub const ITERATIONS_MAX: u32 = 1_000_000;
/// Bytes of the salt of a new line.
pub const SALT_BYTES: usize = 16;
/// Bytes of the salt that a stored line may have.
const SALT_BYTES_MAX: usize = 64;
/// Bytes of the nonce's part that is the server's, before they are written as text.
pub const NONCE_BYTES: usize = 18;

const HASH_BYTES: usize = digest::SHA256_OUTPUT_LEN;

type Hash = [u8; HASH_BYTES];

/// Why an exchange has failed. A wrong proof is not told apart from an unknown user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadExchange {
    /// The message is not one of RFC 5802.
    #[error("the message is malformed: {0}")]
    Malformed(&'static str),
    /// The client insists on channel binding, which is not offered.
    #[error("the client asks for channel binding, which is not offered")]
    ChannelBinding,
    /// The client asks for something that this server does not know.
    #[error("the client asks for an extension that is not known")]
    Extension,
    /// It wants to act for somebody else.
    #[error("the client wants to act as another user than the one whose password it has")]
    OtherIdentity,
    /// The nonce is not the one of this exchange.
    #[error("the nonce is not the one of this exchange")]
    Nonce,
    /// The proof is wrong.
    #[error("unknown user or wrong password")]
    Proof,
}

/// What is kept of a password: enough to check a proof, and not enough to make one.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    iterations: NonZeroU32,
    salt: Box<[u8]>,
    stored_key: Hash,
    server_key: Hash,
}

/// None of the keys.
impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Verifier(i={})", self.iterations)
    }
}

/// As a password file has it, behind the user name.
impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [salt, stored, server] =
            [&self.salt[..], &self.stored_key, &self.server_key].map(|bytes| STANDARD.encode(bytes));
        write!(f, "$scram-sha-256$i={}${salt}${stored}${server}", self.iterations)
    }
}

impl Verifier {
    /// Reads what stands behind `$scram-sha-256$`; `None` when it is damaged.
    pub(super) fn parse<'a>(mut parts: impl Iterator<Item = &'a str>) -> Option<Self> {
        let iterations = parts.next()?.strip_prefix("i=")?.parse().ok()?;
        let mut decoded = || STANDARD.decode(parts.next()?).ok();
        let salt: Box<[u8]> = decoded()?.into();
        let stored_key = decoded()?.try_into().ok()?;
        let server_key = decoded()?.try_into().ok()?;
        let whole = parts.next().is_none() && (1..=SALT_BYTES_MAX).contains(&salt.len());
        whole.then_some(Self { iterations, salt, stored_key, server_key })
    }

    /// For a new password. `salt` is random. Takes milliseconds for each thousand of iterations on a small machine.
    #[must_use]
    pub fn create(password: &[u8], salt: &[u8; SALT_BYTES], iterations: NonZeroU32) -> Self {
        let salted = salted(password, salt, iterations);
        let stored_key = hash(&mac(&salted, b"Client Key"));
        Self { iterations, salt: salt[..].into(), stored_key, server_key: mac(&salted, b"Server Key") }
    }

    /// For a user who has none: the same for the same name and `key`, and no proof is right for it.
    #[must_use]
    pub fn decoy(key: &hmac::Key, user: &str, iterations: NonZeroU32) -> Self {
        let make = |what: &[u8]| {
            let mut context = hmac::Context::with_key(key);
            context.update(what);
            context.update(user.as_bytes());
            as_hash(context.sign().as_ref())
        };
        let salt = make(b"salt of ")[..SALT_BYTES].into();
        Self { iterations, salt, stored_key: make(b"stored key of "), server_key: make(b"server key of ") }
    }

    /// Whether this is the password, for a client that sends it as it is.
    #[must_use]
    pub fn verify(&self, password: &[u8]) -> bool {
        let client_key = mac(&salted(password, &self.salt, self.iterations), b"Client Key");
        hash(&client_key).ct_eq(&self.stored_key).into()
    }

    /// Of the hash.
    #[must_use]
    pub fn iterations(&self) -> NonZeroU32 {
        self.iterations
    }
}

/// The first message of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientFirst<'a> {
    /// Header of channel binding, with the comma at its end.
    header: &'a str,
    /// What stands behind it.
    bare: &'a str,
    /// As it was sent: with `=2C` for a comma.
    name: &'a str,
    nonce: &'a str,
}

impl<'a> ClientFirst<'a> {
    /// Reads the message.
    ///
    /// # Errors
    /// [`BadExchange`] but for `Nonce` and `Proof`.
    pub fn parse(message: &'a [u8]) -> Result<Self, BadExchange> {
        let text = text(message)?;
        let malformed = BadExchange::Malformed("expected n,,n=USER,r=NONCE");
        let mut parts = text.splitn(3, ',');
        let (Some(binding), Some(authorization), Some(bare)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed);
        };
        match binding {
            "n" | "y" => {}
            _ if binding.starts_with("p=") => return Err(BadExchange::ChannelBinding),
            _ => return Err(malformed),
        }
        let authorization = match authorization {
            "" => None,
            named => Some(named.strip_prefix("a=").ok_or(malformed)?),
        };
        let mut fields = bare.split(',');
        let first = fields.next().unwrap_or_default();
        if first.starts_with("m=") {
            return Err(BadExchange::Extension);
        }
        let name = first.strip_prefix("n=").filter(|name| !name.is_empty()).ok_or(malformed)?;
        let nonce = fields.next().and_then(|field| field.strip_prefix("r=")).ok_or(malformed)?;
        if !is_nonce(nonce) {
            return Err(BadExchange::Malformed("the nonce is empty or has characters that it must not have"));
        }
        if authorization.is_some_and(|authorization| authorization != name) {
            return Err(BadExchange::OtherIdentity);
        }
        let header = &text[..text.len() - bare.len()];
        Ok(Self { header, bare, name, nonce })
    }

    /// The user's name.
    ///
    /// # Errors
    /// When an equals sign in it begins neither `=2C` nor `=3D`.
    pub fn user(&self) -> Result<String, BadExchange> {
        let mut parts = self.name.split('=');
        let mut user = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (sign, rest) = match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
                (Some(rest), _) => (',', rest),
                (_, Some(rest)) => ('=', rest),
                _ => return Err(BadExchange::Malformed("= in a user name is written =3D, a comma =2C")),
            };
            user.push(sign);
            user.push_str(rest);
        }
        Ok(user)
    }
}

/// An exchange whose second message is awaited.
#[derive(Clone, Debug)]
pub struct Exchange {
    verifier: Verifier,
    /// The client's first message, without its header, and the server's, with a comma between them.
    transcript: String,
    /// Where the server's message begins.
    challenge_at: usize,
    /// What the client must send back of its header.
    binding: String,
    /// Both parts of the nonce.
    nonce: String,
}

impl Exchange {
    /// Answers the first message. `nonce` has never been used before and cannot be guessed.
    #[must_use]
    pub fn open(first: &ClientFirst<'_>, verifier: Verifier, nonce: &[u8; NONCE_BYTES]) -> Self {
        let nonce = format!("{}{}", first.nonce, STANDARD.encode(nonce));
        let salt = STANDARD.encode(&verifier.salt);
        let mut transcript = format!("{},", first.bare);
        let challenge_at = transcript.len();
        transcript += &format!("r={nonce},s={salt},i={}", verifier.iterations);
        Self { verifier, transcript, challenge_at, binding: STANDARD.encode(first.header), nonce }
    }

    /// The server's first message.
    #[must_use]
    pub fn challenge(&self) -> &[u8] {
        &self.transcript.as_bytes()[self.challenge_at..]
    }

    /// What it is checked against.
    #[must_use]
    pub fn verifier(&self) -> &Verifier {
        &self.verifier
    }

    /// Memory that it takes beside its own size, in bytes.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.transcript.len() + self.binding.len() + self.nonce.len() + self.verifier.salt.len()
    }

    /// Takes the client's second message; the server's last one, which proves that it knows the password too.
    ///
    /// # Errors
    /// [`BadExchange`].
    pub fn close(self, message: &[u8]) -> Result<Vec<u8>, BadExchange> {
        let text = text(message)?;
        let malformed = BadExchange::Malformed("expected c=BINDING,r=NONCE,p=PROOF");
        let (unproven, proof) = text.rsplit_once(",p=").ok_or(malformed)?;
        let mut fields = unproven.split(',');
        let binding = fields.next().and_then(|field| field.strip_prefix("c=")).ok_or(malformed)?;
        let second = fields.next().ok_or(malformed)?;
        if second.starts_with("m=") {
            return Err(BadExchange::Extension);
        }
        if second.strip_prefix("r=").ok_or(malformed)? != self.nonce {
            return Err(BadExchange::Nonce);
        }
        if binding != self.binding {
            return Err(BadExchange::ChannelBinding);
        }
        let proof: Hash = STANDARD.decode(proof).ok().and_then(|p| p.try_into().ok()).ok_or(malformed)?;
        let said = format!("{},{unproven}", self.transcript);
        let signature = mac(&self.verifier.stored_key, said.as_bytes());
        let mut client_key = proof;
        client_key.iter_mut().zip(signature).for_each(|(byte, sign)| *byte ^= sign);
        if !bool::from(hash(&client_key).ct_eq(&self.verifier.stored_key)) {
            return Err(BadExchange::Proof);
        }
        let signature = STANDARD.encode(mac(&self.verifier.server_key, said.as_bytes()));
        Ok(format!("v={signature}").into_bytes())
    }
}

fn text(message: &[u8]) -> Result<&str, BadExchange> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(BadExchange::Malformed("it is too long"));
    }
    std::str::from_utf8(message).map_err(|_| BadExchange::Malformed("it is not UTF-8"))
}

fn is_nonce(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
}

/// A password that is text is prepared as RFC 5802 asks for; any other one counts as it is.
fn salted(password: &[u8], salt: &[u8], iterations: NonZeroU32) -> Hash {
    let prepared = std::str::from_utf8(password).ok().and_then(|text| stringprep::saslprep(text).ok());
    let password = prepared.as_ref().map_or(password, |text| text.as_bytes());
    let mut out = [0; HASH_BYTES];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, salt, password, &mut out);
    out
}

fn mac(key: &Hash, data: &[u8]) -> Hash {
    as_hash(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data).as_ref())
}

fn hash(data: &[u8]) -> Hash {
    as_hash(digest::digest(&digest::SHA256, data).as_ref())
}

fn as_hash(bytes: &[u8]) -> Hash {
    bytes.try_into().expect("what SHA-256 makes has this length")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const USER: &str = "n=user,r=rOprNGfwEbeRWgbNEkqO";
    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const PROOF: &str = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

    fn pencil() -> Verifier {
        let salt: [u8; SALT_BYTES] = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap().try_into().unwrap();
        Verifier::create(b"pencil", &salt, NonZeroU32::new(4096).unwrap())
    }

    /// The exchange of RFC 7677, section 3, whose server has another way to write its part of the nonce.
    fn published() -> Exchange {
        let verifier = pencil();
        let transcript = format!("{USER},r={NONCE},s={},i=4096", STANDARD.encode(&verifier.salt));
        Exchange {
            verifier,
            transcript,
            challenge_at: USER.len() + 1,
            binding: "biws".into(),
            nonce: NONCE.into(),
        }
    }

    /// What a client with this password answers to a challenge, having begun with this message.
    pub(crate) fn answer_to(first: &[u8], challenge: &[u8], password: &[u8]) -> String {
        let first = ClientFirst::parse(first).unwrap();
        let challenge = std::str::from_utf8(challenge).unwrap();
        let mut fields = challenge.split(',').map(|field| &field[2..]);
        let mut next = || fields.next().unwrap();
        let (nonce, salt, iterations) = (next(), STANDARD.decode(next()).unwrap(), next().parse().unwrap());
        let unproven = format!("c={},r={nonce}", STANDARD.encode(first.header));
        let key = mac(&salted(password, &salt, iterations), b"Client Key");
        let signature = mac(&hash(&key), format!("{},{challenge},{unproven}", first.bare).as_bytes());
        let proof: Vec<u8> = key.iter().zip(signature).map(|(byte, sign)| byte ^ sign).collect();
        format!("{unproven},p={}", STANDARD.encode(proof))
    }

    #[test]
    fn the_exchange_that_rfc_7677_shows_is_understood() {
        let first = format!("n,,{USER}");
        let first = ClientFirst::parse(first.as_bytes()).unwrap();
        assert_eq!((first.header, first.bare, first.nonce), ("n,,", USER, "rOprNGfwEbeRWgbNEkqO"));
        assert_eq!(first.user().unwrap(), "user");
        let challenge = format!("r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
        assert_eq!(published().challenge(), challenge.as_bytes());
        let last = published().close(format!("c=biws,r={NONCE},p={PROOF}").as_bytes()).unwrap();
        assert_eq!(last, b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn a_second_message_that_differs_in_anything_is_refused() {
        let proof = PROOF;
        let malformed = BadExchange::Malformed("expected c=BINDING,r=NONCE,p=PROOF");
        for (message, error) in [
            (format!("c=biws,r={NONCE},p={}", proof.replace("dH", "dI")), BadExchange::Proof),
            (format!("c=biws,r={NONCE},x=y,p={proof}"), BadExchange::Proof),
            (format!("c=eSws,r={NONCE},p={proof}"), BadExchange::ChannelBinding),
            (format!("c=biws,r={NONCE}x,p={proof}"), BadExchange::Nonce),
            ("c=biws,r=,p=".into(), BadExchange::Nonce),
            (format!("c=biws,m=x,r={NONCE},p={proof}"), BadExchange::Extension),
            (format!("c=biws,r={NONCE},p=dHzb"), malformed),
            (format!("c=biws,r={NONCE}"), malformed),
            (format!("r={NONCE},c=biws,p={proof}"), malformed),
            (String::new(), malformed),
            ("p=".into(), malformed),
            ("c=,p=".into(), malformed),
        ] {
            assert_eq!(published().close(message.as_bytes()), Err(error), "{message}");
        }
        assert!(matches!(published().close(b"\xff"), Err(BadExchange::Malformed(_))));
        assert!(matches!(published().close(&[b'c'; MESSAGE_BYTES_MAX + 1]), Err(BadExchange::Malformed(_))));
    }

    #[test]
    fn a_first_message_is_taken_apart_or_refused() {
        for (message, user) in [
            ("n,,n=ann,r=x", "ann"),
            ("y,,n=a=2Cb=3Dc=3D,r=x", "a,b=c="),
            ("n,a=ann,n=ann,r=x", "ann"),
            ("n,,n=ann,r=x,later=extension", "ann"),
        ] {
            assert_eq!(ClientFirst::parse(message.as_bytes()).unwrap().user().unwrap(), user, "{message}");
        }
        for message in ["p=tls-unique,,n=ann,r=x", "p=tls-exporter,,n=ann,r=x"] {
            assert_eq!(ClientFirst::parse(message.as_bytes()), Err(BadExchange::ChannelBinding), "{message}");
        }
        assert_eq!(ClientFirst::parse(b"n,a=bob,n=ann,r=x"), Err(BadExchange::OtherIdentity));
        assert_eq!(ClientFirst::parse(b"n,,m=must,n=ann,r=x"), Err(BadExchange::Extension));
        for message in [
            "",
            ",",
            ",,",
            "n",
            "n,,",
            "n,,n=ann",
            "n,,n=ann,r=",
            "n,,n=ann,r=a\u{7f}",
            "n,,n=ann,r=\u{e9}",
            "n,,n=,r=x",
            "n,,r=x,n=ann",
            "q,,n=ann,r=x",
            "n,b,n=ann,r=x",
            "n,n=ann,r=x",
            "p,,n=ann,r=x",
        ] {
            let error = ClientFirst::parse(message.as_bytes()).unwrap_err();
            assert!(matches!(error, BadExchange::Malformed(_)), "{message}: {error}");
        }
        for name in ["=", "a=", "a=2c", "a=3", "=2D", "a==3D"] {
            let message = format!("n,,n={name},r=x");
            let user = ClientFirst::parse(message.as_bytes()).unwrap().user();
            assert!(matches!(user, Err(BadExchange::Malformed(_))), "{name}");
        }
    }

    #[test]
    fn a_stored_line_is_read_as_it_was_written_and_checks_plain_passwords_too() {
        let line = pencil().to_string();
        assert!(line.starts_with("$scram-sha-256$i=4096$W22ZaJ0SNY7soEsUEjb6gQ==$"), "{line}");
        let read = Verifier::parse(line["$scram-sha-256$".len()..].split('$')).unwrap();
        assert_eq!(read, pencil());
        assert!(read.verify(b"pencil") && !read.verify(b"Pencil") && !read.verify(b""));
        assert_eq!(format!("{read:?}"), "Verifier(i=4096)");
        for damaged in ["", "i=4096", "i=0$AAAA$AAAA$AAAA", "4096$AAAA$AAAA$AAAA", "i=4096$AAAA$AAAA$AAAA"] {
            assert_eq!(Verifier::parse(damaged.split('$')), None, "{damaged}");
        }
        assert_eq!(Verifier::parse(format!("{line}$x")["$scram-sha-256$".len()..].split('$')), None);
    }

    #[test]
    fn a_password_is_prepared_as_text_and_counts_as_it_is_if_it_is_none() {
        let salt = [7; SALT_BYTES];
        let verifier = |password: &[u8]| Verifier::create(password, &salt, NonZeroU32::new(4096).unwrap());
        // A soft hyphen says nothing; the ligature and the wide letter are others for plain ones (RFC 4013, section 3).
        assert!(verifier("I\u{ad}X".as_bytes()).verify(b"IX"));
        assert!(verifier("\u{fb01}\u{ff21}".as_bytes()).verify(b"fiA"));
        assert!(verifier(b"\xff\x01").verify(b"\xff\x01") && !verifier(b"\xff\x01").verify(b"\xff"));
        assert!(verifier(b"tab\there").verify(b"tab\there"));
    }

    #[test]
    fn a_decoy_is_the_same_for_a_name_each_time_and_nobody_passes_it() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &[9; 32]);
        let iterations = NonZeroU32::new(4096).unwrap();
        let decoy = Verifier::decoy(&key, "ann", iterations);
        assert_eq!(decoy, Verifier::decoy(&key, "ann", iterations));
        assert_ne!(decoy.salt, Verifier::decoy(&key, "bob", iterations).salt);
        assert_ne!(
            decoy.salt,
            Verifier::decoy(&hmac::Key::new(hmac::HMAC_SHA256, b"x"), "ann", iterations).salt
        );
        let first = ClientFirst::parse(b"n,,n=ann,r=abc").unwrap();
        let exchange = Exchange::open(&first, decoy, &[1; NONCE_BYTES]);
        let said = answer_to(b"n,,n=ann,r=abc", exchange.challenge(), b"guess");
        assert_eq!(exchange.close(said.as_bytes()), Err(BadExchange::Proof));
    }

    #[test]
    fn an_exchange_ends_well_only_with_the_password_and_its_own_nonce() {
        let begun = b"y,,n=user,r=abc";
        let open =
            |nonce| Exchange::open(&ClientFirst::parse(begun).unwrap(), pencil(), &[nonce; NONCE_BYTES]);
        let answer = |begun: &[u8], password: &[u8]| answer_to(begun, open(1).challenge(), password);
        let right = answer(begun, b"pencil");
        assert!(open(1).close(right.as_bytes()).unwrap().starts_with(b"v="));
        assert_eq!(
            open(2).close(right.as_bytes()),
            Err(BadExchange::Nonce),
            "an answer to an earlier challenge"
        );
        let other_header = answer(b"n,,n=user,r=abc", b"pencil");
        assert_eq!(open(1).close(other_header.as_bytes()), Err(BadExchange::ChannelBinding));
        let wrong = answer(begun, b"pencils");
        assert_eq!(open(1).close(wrong.as_bytes()), Err(BadExchange::Proof));
    }
}
