//! Exchanges of extended authentication at the gate: a challenge for each client that asks for one, and the check of its answer.
//!
//! A user that is not there, or has no SCRAM, gets a challenge as everybody does: from a salt that depends on its name and a
//! secret. The same hashes are computed whoever asks, so neither answers nor times tell who exists.
//! Bounds: those of the [`Gate`], whose waiting logins and exchanges are counted together.

use std::sync::Arc;

use hashbrown::HashMap;
use ring::hmac;

use super::gate::Gate;
use super::scram::{self, BadExchange, ClientFirst, Exchange, NONCE_BYTES, Verifier};
use super::{AddressKey, Denied, Identity, Method, Opening};
use crate::time::Mono;

/// What an entry takes beside its texts, in bytes.
const ENTRY_BYTES: usize = size_of::<Open>() + size_of::<u64>();

/// A client that has been challenged.
#[derive(Debug)]
pub(super) struct Open {
    user: Arc<str>,
    exchange: Exchange,
    address: AddressKey,
    bytes: usize,
    since: Mono,
}

/// All clients that have been challenged and have not answered.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    open: HashMap<u64, Open>,
    bytes: usize,
    /// Challenges so far: no nonce is used twice.
    count: u64,
}

impl Exchanges {
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn take(&mut self, id: u64) -> Option<Open> {
        let open = self.open.remove(&id)?;
        self.bytes -= open.bytes;
        Some(open)
    }

    fn put(&mut self, id: u64, open: Open) {
        self.bytes += open.bytes;
        let before = self.open.insert(id, open);
        assert!(before.is_none(), "a client has one exchange at a time");
    }
}

impl Gate {
    /// The client with the number `id`, which has no exchange under way, asks for extended authentication: the challenge that it
    /// is sent. While it thinks, its connection keeps `kept_bytes` for it.
    ///
    /// # Errors
    /// Why it is refused at once.
    pub fn open_exchange(
        &mut self,
        id: u64,
        opening: &Opening,
        kept_bytes: usize,
        now: Mono,
    ) -> Result<Vec<u8>, Denied> {
        let iterations = self.policy.users.as_ref().and_then(|users| users.scram_iterations());
        let (Some(users), Some(iterations)) = (&self.policy.users, iterations) else {
            return Err(Denied::Method);
        };
        if *opening.method != *scram::METHOD {
            return Err(Denied::Method);
        }
        if !self.limiter.allows(opening.address, now) {
            return Err(Denied::TooManyFailures);
        }
        let first = ClientFirst::parse(&opening.message).map_err(Denied::Exchange)?;
        let user = first.user().map_err(Denied::Exchange)?;
        if opening.user.as_ref().is_some_and(|expected| **expected != *user) {
            return Err(Denied::OtherUser);
        }
        let secret = users.decoy_secret().map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret));
        let decoy = Verifier::decoy(secret.as_ref().unwrap_or(&self.key), &user, iterations);
        let verifier = users.verifier(&user).cloned().unwrap_or(decoy);
        let exchange = Exchange::open(&first, verifier, &self.nonce());
        let challenge = exchange.challenge().to_vec();
        let bytes = ENTRY_BYTES + user.len() + exchange.kept_bytes() + kept_bytes;
        if !self.has_room(bytes) {
            return Err(Denied::Busy);
        }
        let open = Open { user: user.into(), exchange, address: opening.address, bytes, since: now };
        self.exchanges.put(id, open);
        Ok(challenge)
    }

    /// The client has answered: who it is, and what proves to it that the server knows its password too. `None`: it was not
    /// asked.
    pub fn close_exchange(
        &mut self,
        id: u64,
        message: &[u8],
        now: Mono,
    ) -> Option<Result<(Identity, Vec<u8>), Denied>> {
        let Open { user, exchange, address, .. } = self.exchanges.take(id)?;
        let verifier = exchange.verifier().clone();
        let closed = exchange.close(message);
        // The password may have changed since the challenge.
        let current = self.policy.users.as_ref().and_then(|users| users.verifier(&user));
        let closed = match closed {
            Ok(_) if current != Some(&verifier) => Err(BadExchange::Proof),
            closed => closed,
        };
        Some(match closed {
            Ok(last) => {
                Ok((Identity { user: Some(user), method: Method::Scram, ..Identity::default() }, last))
            }
            Err(bad) => {
                self.limiter.failed(address, now);
                Err(Denied::Exchange(bad))
            }
        })
    }

    /// Since when the client has been thinking about its challenge; `None`: it has none.
    #[must_use]
    pub fn challenged_since(&self, id: u64) -> Option<Mono> {
        self.exchanges.open.get(&id).map(|open| open.since)
    }

    /// Clients that have been challenged and have not answered.
    #[must_use]
    pub fn challenged(&self) -> usize {
        self.exchanges.len()
    }

    /// A keyed hash of a counter: unlike any other, and known to nobody before it is sent.
    fn nonce(&mut self) -> [u8; NONCE_BYTES] {
        self.exchanges.count += 1;
        let mut context = hmac::Context::with_key(&self.key);
        context.update(b"nonce ");
        context.update(&self.exchanges.count.to_be_bytes());
        let mut nonce = [0; NONCE_BYTES];
        nonce.copy_from_slice(&context.sign().as_ref()[..NONCE_BYTES]);
        nonce
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::super::gate::{Policy, WAITING_MAX};
    use super::super::password::{SALT_BYTES, Stored};
    use super::super::scram::tests::answer_to;
    use super::super::users::Users;
    use super::*;

    const DECOYS: &str = "$decoy$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";

    fn verifier(password: &[u8]) -> Verifier {
        Verifier::create(password, &[3; SALT_BYTES], NonZeroU32::new(4096).unwrap())
    }

    fn policy(lines: &str) -> Policy {
        let users = Some(Arc::new(Users::parse(lines).unwrap()));
        Policy { users, failures_per_minute: 2, ..Policy::default() }
    }

    fn gate() -> Gate {
        let argon2 = Stored::create(b"right", &[3; SALT_BYTES]);
        let lines = format!("{DECOYS}ann:{}\nold:{argon2}\n", verifier(b"right"));
        Gate::new(policy(&lines), &[0; 32])
    }

    fn opening(user: &str) -> Opening {
        Opening {
            method: scram::METHOD.into(),
            message: format!("n,,n={user},r=abc").into_bytes().into(),
            user: None,
            address: AddressKey(Some(7)),
        }
    }

    fn prove(gate: &mut Gate, user: &str, password: &str) -> Result<Identity, Denied> {
        let challenge = gate.open_exchange(1, &opening(user), 0, Mono(0))?;
        let answer = answer_to(&opening(user).message, &challenge, password.as_bytes());
        gate.close_exchange(1, answer.as_bytes(), Mono(0)).unwrap().map(|(identity, _)| identity)
    }

    const WRONG: Denied = Denied::Exchange(BadExchange::Proof);

    #[test]
    fn a_right_proof_lets_in_and_a_wrong_one_counts_as_a_failure_of_its_address() {
        let mut gate = gate();
        let identity = prove(&mut gate, "ann", "right").unwrap();
        assert_eq!((identity.user.as_deref(), identity.method), (Some("ann"), Method::Scram));
        for user in ["ann", "old"] {
            assert_eq!(prove(&mut gate, user, "wrong"), Err(WRONG));
        }
        assert_eq!(prove(&mut gate, "ann", "right"), Err(Denied::TooManyFailures));
        assert_eq!(gate.close_exchange(1, b"", Mono(0)), None, "nobody has asked");
    }

    #[test]
    fn who_is_not_there_is_challenged_like_everybody_and_with_the_same_salt_each_time() {
        let salt_of = |gate: &mut Gate, user: &str| {
            let challenge = gate.open_exchange(9, &opening(user), 0, Mono(0)).unwrap();
            gate.forget(9);
            String::from_utf8(challenge).unwrap().split_once(",s=").unwrap().1.to_owned()
        };
        let mut one = gate();
        let mut other = Gate::new(one.policy().clone(), &[1; 32]);
        assert_eq!(salt_of(&mut one, "ann"), salt_of(&mut other, "ann"));
        for user in ["nobody", "old"] {
            let salt = salt_of(&mut one, user);
            assert_eq!(salt, salt_of(&mut other, user), "after a restart too");
            assert_eq!(salt.len(), salt_of(&mut one, "ann").len());
            assert_ne!(salt, salt_of(&mut one, "ann"));
        }
        assert_eq!(prove(&mut one, "nobody", "right"), Err(WRONG));
        assert_eq!(
            prove(&mut one, "old", "right"),
            Err(WRONG),
            "its password is right, but stored for something else"
        );
    }

    #[test]
    fn other_methods_and_files_without_scram_are_not_offered() {
        let mut gate = gate();
        let other = Opening { method: "SCRAM-SHA-1".into(), ..opening("ann") };
        assert_eq!(gate.open_exchange(1, &other, 0, Mono(0)), Err(Denied::Method));
        let hash = Stored::create(b"right", &[3; SALT_BYTES]);
        for policy in [policy(&format!("ann:{hash}\n")), Policy::default()] {
            gate.set_policy(policy);
            assert_eq!(gate.open_exchange(1, &opening("ann"), 0, Mono(0)), Err(Denied::Method));
        }
    }

    #[test]
    fn somebody_else_than_the_user_of_the_certificate_or_connection_is_refused() {
        let mut gate = gate();
        let opening = |user: &str| Opening { user: Some(user.into()), ..opening("ann") };
        assert_eq!(gate.open_exchange(1, &opening("bob"), 0, Mono(0)), Err(Denied::OtherUser));
        assert!(gate.open_exchange(1, &opening("ann"), 0, Mono(0)).is_ok());
    }

    #[test]
    fn a_password_that_changes_during_the_exchange_ends_it_and_nonces_are_never_the_same() {
        let mut gate = gate();
        let first = gate.open_exchange(1, &opening("ann"), 0, Mono(0)).unwrap();
        assert_ne!(gate.open_exchange(2, &opening("ann"), 0, Mono(0)).unwrap(), first);
        gate.set_policy(policy(&format!("ann:{}\n", verifier(b"other"))));
        let answer = answer_to(&opening("ann").message, &first, b"right");
        let closed = gate.close_exchange(1, answer.as_bytes(), Mono(0));
        assert_eq!(closed, Some(Err(WRONG)));
    }

    #[test]
    fn exchanges_are_bounded_and_leave_nothing_when_their_clients_go() {
        let mut gate = gate();
        for id in 0..WAITING_MAX as u64 {
            assert!(gate.open_exchange(id, &opening("ann"), 0, Mono(id)).is_ok());
        }
        assert_eq!(gate.challenged_since(5), Some(Mono(5)));
        assert_eq!(gate.open_exchange(99_999, &opening("ann"), 0, Mono(0)), Err(Denied::Busy));
        (0..WAITING_MAX as u64).for_each(|id| gate.forget(id));
        assert_eq!((gate.challenged(), gate.exchanges.bytes()), (0, 0));
        assert_eq!(gate.open_exchange(1, &opening("ann"), 8 << 20, Mono(0)), Err(Denied::Busy));
    }
}
