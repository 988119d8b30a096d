//! Extended authentication: messages to and fro until it is known who a client is, in its login or later on an open connection.
//!
//! In a login the connection's time for it goes on, and the request waits as one does whose password is checked. On an open
//! connection everything else goes on meanwhile; an answer that is wrong, or does not come in the time of a login, ends it.
//!
//! Bounds: those of the [`Gate`](crate::access::Gate), and two listed renewals for each connection.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use tracing::debug;

use super::Hub;
use super::logins::{Logins, kept_bytes, key_of};
use crate::access::{AddressKey, Denied, Identity, Opening};
use crate::broker::api::{CloseReason, ConnId, ConnectRequest};
use crate::time::{Mono, Now};

/// Listings of renewals before those that are over are looked for.
const RENEWALS_MIN: usize = 64;

impl Logins {
    /// What is to be said to a client as it is let in.
    #[inline]
    pub(super) fn take_last_message(&mut self, id: ConnId) -> Option<Vec<u8>> {
        self.last_messages.remove(&id)
    }

    /// When the oldest renewal has to be over.
    pub(super) fn next_renewal_end(&self) -> Option<Mono> {
        self.renewals.front().map(|(since, _)| since.plus_millis(self.renewal_millis_max))
    }
}

impl Hub {
    /// A client asks for extended authentication in its login.
    pub(super) fn open_exchange(
        &mut self,
        key: usize,
        method: Box<str>,
        message: Box<[u8]>,
        request: Box<ConnectRequest>,
        now: Now,
    ) {
        let id = self.slots[key].id;
        let certificate = self.slots[key].origin.as_ref().and_then(|origin| origin.user.as_deref());
        let opening = self.opening(key, method, message, certificate.map(Arc::from));
        match self.logins.gate.open_exchange(id.0, &opening, kept_bytes(&request), now.mono) {
            Ok(challenge) => {
                self.logins.waiting.insert(id, request);
                self.say(key, &challenge, false, now);
            }
            Err(denied) => self.decide(id, *request, Err(denied), now),
        }
    }

    fn opening(&self, key: usize, method: Box<str>, message: Box<[u8]>, user: Option<Arc<str>>) -> Opening {
        let address = self.slots[key].origin.as_ref().map_or(AddressKey(None), |origin| key_of(origin.peer));
        Opening { method, message, user, address }
    }

    /// The client has sent a message of an extended authentication.
    pub(super) fn authentication_message(&mut self, key: usize, begins: bool, message: Box<[u8]>, now: Now) {
        let id = self.slots[key].id;
        let is_challenged = self.logins.gate.challenged_since(id.0).is_some();
        if begins == is_challenged {
            // It answers what it was not asked, or begins in the middle.
            return self.end_by_us(key, CloseReason::ProtocolViolation, now);
        }
        if begins {
            return self.renew(key, message, now);
        }
        match self.logins.gate.close_exchange(id.0, &message, now.mono) {
            Some(Ok((identity, last))) => self.exchange_passed(key, identity, last, now),
            Some(Err(denied)) => self.exchange_failed(key, denied, now),
            None => {}
        }
    }

    fn exchange_passed(&mut self, key: usize, identity: Identity, last: Vec<u8>, now: Now) {
        let id = self.slots[key].id;
        match self.logins.waiting.remove(&id) {
            Some(request) => {
                self.logins.last_messages.insert(id, last);
                self.decide(id, *request, Ok(identity), now);
            }
            None => {
                debug!(user = identity.user.as_deref(), "a client has proved anew who it is");
                self.say(key, &last, true, now);
            }
        }
    }

    fn exchange_failed(&mut self, key: usize, denied: Denied, now: Now) {
        let id = self.slots[key].id;
        match self.logins.waiting.remove(&id) {
            Some(request) => self.decide(id, *request, Err(denied), now),
            None => self.renewal_failed(key, denied, now),
        }
    }

    /// An open connection proves anew who its client is: the same as before.
    fn renew(&mut self, key: usize, message: Box<[u8]>, now: Now) {
        let id = self.slots[key].id;
        let user = self.broker.identity(id).user;
        let opening = self.opening(key, crate::access::scram::METHOD.into(), message, user);
        match self.logins.gate.open_exchange(id.0, &opening, 0, now.mono) {
            Ok(challenge) => {
                self.list_renewal(id, now.mono);
                self.say(key, &challenge, false, now);
            }
            Err(denied) => self.renewal_failed(key, denied, now),
        }
    }

    fn renewal_failed(&mut self, key: usize, denied: Denied, now: Now) {
        let id = self.slots[key].id;
        self.traffic.denied_logins += 1;
        let client = self.broker.client_id(id);
        self.tell_of(key, client.as_deref().unwrap_or_default(), denied);
        self.end_by_us(key, CloseReason::NotAuthorized, now);
    }

    fn list_renewal(&mut self, id: ConnId, since: Mono) {
        self.logins.renewals.push_back((since, id));
        if self.logins.renewals.len() > RENEWALS_MIN + 2 * self.slots.len() {
            let gate = &self.logins.gate;
            self.logins.renewals.retain(|(since, id)| gate.challenged_since(id.0) == Some(*since));
        }
    }

    /// Ends open connections that have not answered their challenge in time.
    pub(super) fn end_stale_renewals(&mut self, now: Now) {
        while let Some(&(since, id)) = self.logins.renewals.front()
            && since.plus_millis(self.logins.renewal_millis_max) <= now.mono
        {
            self.logins.renewals.pop_front();
            if self.logins.gate.challenged_since(id.0) == Some(since) {
                debug!("a client did not prove in time who it is");
                self.logins.gate.forget(id.0);
                self.traffic.login_timeouts += 1;
                if let Some(key) = self.key(id) {
                    self.end_by_us(key, CloseReason::NotAuthorized, now);
                }
            }
        }
    }

    /// Sends a message; a client that is too small for it is let go.
    fn say(&mut self, key: usize, message: &[u8], is_last: bool, now: Now) {
        self.answers.clear();
        self.traffic.packets_out += 1;
        let said = self.slots[key].peer.authenticate(message, is_last, &mut self.answers);
        self.flush_answers(key);
        if !said {
            self.end_unasked(key, now);
        }
    }
}
