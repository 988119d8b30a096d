//! Logins: from what a client presents to a session, or a refusal.
//!
//! What can be decided at once is. A password that must be hashed waits, with its connection request, for a job that the driver
//! runs elsewhere ([`Hub::next_login_job`], [`Hub::login_done`]); the connection's time for logging in stands still meanwhile: whoever
//! is sent away because others are before it comes back at the end of the line. What the client sends behind its request is kept
//! and not read further.
//!
//! Bounds: those of the [`Gate`], which knows how much each connection keeps.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use tracing::{debug, info};

use super::Hub;
use crate::access::gate::{Begin, Done, Job, Verdict, address_key};
use crate::access::{AddressKey, Denied, Gate, Identity, Login, Method, Policy, Users};
use crate::broker::AccessRules;
use crate::broker::api::{ClientEvent, ConnId, ConnectRequest, Refusal};
use crate::limits::Limits;
use crate::net::adapter::Credentials;
use crate::net::origin::{Origin, PeerAddress};
use crate::time::{Mono, Now};

/// What a pair of texts takes beside them.
const PAIR_BYTES: usize = size_of::<(Box<str>, Box<str>)>();

/// Who may come in, and what it may do then.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// What logins are checked against.
    pub policy: Policy,
    /// What clients may do.
    pub rules: AccessRules,
    /// For each listener, whether it lets clients in that present nothing. Listeners that are not listed do.
    pub anonymous: Vec<bool>,
}

/// The logins of a hub.
#[derive(Debug)]
pub(super) struct Logins {
    pub(super) gate: Gate,
    anonymous: Vec<bool>,
    /// Connection requests whose login waits for a job, or for the client's next message.
    pub(super) waiting: HashMap<ConnId, Box<ConnectRequest>>,
    /// The last messages of extended authentications, for clients that have passed them and are not let in yet.
    pub(super) last_messages: HashMap<ConnId, Vec<u8>>,
    /// Since when open connections have been proving anew who they are, oldest first; those that are done may still be listed.
    pub(super) renewals: VecDeque<(Mono, ConnId)>,
    /// How long that may take, in milliseconds.
    pub(super) renewal_millis_max: u64,
    /// When connections end because their tokens do.
    ends: BinaryHeap<Reverse<(Mono, ConnId)>>,
    ready: Vec<(u64, Verdict)>,
}

impl Logins {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            gate: Gate::new(Policy::default(), &[0; 32]),
            anonymous: Vec::new(),
            waiting: HashMap::new(),
            last_messages: HashMap::new(),
            renewals: VecDeque::new(),
            renewal_millis_max: limits.login_millis_max.into(),
            ends: BinaryHeap::new(),
            ready: Vec::new(),
        }
    }

    fn takes_anonymous(&self, origin: Option<&Origin>) -> bool {
        origin.is_none_or(|origin| self.anonymous.get(usize::from(origin.listener)).copied().unwrap_or(true))
    }

    /// The next time at which a token ends.
    pub(super) fn next_end(&self) -> Option<Mono> {
        self.ends.peek().map(|Reverse((at, _))| *at)
    }
}

impl Hub {
    /// The key under which passwords are remembered: random, and told to nobody. Before the first login.
    pub fn set_login_seed(&mut self, seed: &[u8; 32]) {
        let policy = self.logins.gate.policy().clone();
        self.logins.gate = Gate::new(policy, seed);
    }

    /// So many login jobs may be under way at a time; 1 at first.
    pub fn set_login_threads(&mut self, threads: usize) {
        self.logins.gate.set_threads(threads);
    }

    /// Other terms are in force from now on. Connections whose login no longer counts end.
    pub fn set_access(&mut self, access: Access, now: Now) {
        let Access { policy, rules, anonymous } = access;
        self.logins.anonymous = anonymous;
        let old = self.logins.gate.policy();
        let mut over: Vec<ConnId> = self
            .broker
            .logins()
            .filter(|(conn, identity)| !self.still_counts(*conn, *identity, old, &policy))
            .map(|(conn, _)| conn)
            .collect();
        over.sort_unstable();
        self.logins.gate.set_policy(policy);
        for conn in over {
            self.broker.end_login(conn, now);
        }
        self.broker.set_access(rules, now);
        self.finish_turn(now);
    }

    /// The users whose passwords count now.
    #[must_use]
    pub fn users(&self) -> Option<Arc<Users>> {
        self.logins.gate.policy().users.clone()
    }

    fn still_counts(&self, conn: ConnId, identity: Option<&Identity>, old: &Policy, new: &Policy) -> bool {
        let origin = self.origin(conn);
        let stored =
            |policy: &Policy, user: &Arc<str>| policy.users.as_ref().and_then(|u| u.find(user).cloned());
        match identity.map_or((Method::Anonymous, None), |identity| (identity.method, identity.user.as_ref()))
        {
            _ if origin.is_none() => true,
            (Method::Password | Method::Scram, Some(user)) => stored(old, user) == stored(new, user),
            (Method::Token, _) => old.tokens == new.tokens,
            (Method::Certificate, _) => true,
            (Method::Anonymous | Method::Password | Method::Scram, _) => self.logins.takes_anonymous(origin),
        }
    }

    /// A client wants to log in.
    pub(super) fn log_in(
        &mut self,
        key: usize,
        credentials: Credentials,
        request: Box<ConnectRequest>,
        now: Now,
    ) {
        if let Some((method, message)) = credentials.extended {
            return self.open_exchange(key, method, message, request, now);
        }
        let slot = &self.slots[key];
        let (id, origin) = (slot.id, slot.origin.as_ref());
        let login = Login {
            user: credentials.user,
            password: credentials.password,
            certificate_user: origin.and_then(|origin| origin.user.as_deref()).map(Arc::from),
            address: origin.map_or(AddressKey(None), |origin| key_of(origin.peer)),
            anonymous_allowed: self.logins.takes_anonymous(origin),
        };
        match self.logins.gate.begin(id.0, login, kept_bytes(&request), now.mono) {
            Begin::Done(verdict) => self.decide(id, *request, verdict, now),
            Begin::Wait => {
                self.logins.waiting.insert(id, request);
            }
        }
    }

    /// The next login to check on another thread, if one more may be under way. Whoever needs no check any more is let in at once.
    pub fn next_login_job(&mut self, now: Now) -> Option<Job> {
        let mut ready = std::mem::take(&mut self.logins.ready);
        let job = self.logins.gate.next_job(&mut ready, now.mono);
        for (id, verdict) in ready.drain(..) {
            self.decide_waiting(ConnId(id), verdict, now);
        }
        self.logins.ready = ready;
        self.finish_turn(now);
        job
    }

    /// A job has ended.
    pub fn login_done(&mut self, done: Done, now: Now) {
        if let Some((id, verdict)) = self.logins.gate.finish(done, now.mono) {
            self.decide_waiting(ConnId(id), verdict, now);
            self.finish_turn(now);
        }
    }

    /// Logins wait for a job.
    #[must_use]
    #[inline]
    pub fn has_login_jobs(&self) -> bool {
        self.logins.gate.waiting() > 0
    }

    /// Logins that wait, or are being checked.
    #[must_use]
    pub fn logins_waiting(&self) -> usize {
        self.logins.waiting.len()
    }

    /// The client has said all that it has to say for its login: what it waits for is a hash, or the store.
    pub(super) fn owes_login(&self, key: usize) -> bool {
        let slot = &self.slots[key];
        let id = slot.id;
        let in_line =
            || self.logins.waiting.contains_key(&id) && self.logins.gate.challenged_since(id.0).is_none();
        !slot.peer.is_open() && (slot.attached || in_line())
    }

    fn decide_waiting(&mut self, id: ConnId, verdict: Verdict, now: Now) {
        if let Some(request) = self.logins.waiting.remove(&id) {
            self.decide(id, *request, verdict, now);
        }
    }

    pub(super) fn decide(&mut self, id: ConnId, request: ConnectRequest, verdict: Verdict, now: Now) {
        let Some(key) = self.key(id).filter(|key| !self.slots[*key].ending) else { return };
        match verdict {
            Ok(identity) => {
                if let Some(seconds) = identity.lasts_secs {
                    let end = now.mono.plus_millis(seconds.saturating_mul(1000));
                    self.logins.ends.push(Reverse((end, id)));
                }
                self.slots[key].attached = true;
                self.broker.connect_as(id, request, identity, now);
            }
            Err(denied) => {
                self.traffic.denied_logins += 1;
                self.tell_of(key, &request.client_id, denied);
                self.deliver(id, ClientEvent::Refused(refusal(denied)), now);
            }
        }
    }

    pub(super) fn tell_of(&self, key: usize, client: &str, denied: Denied) {
        let from = self.slots[key].origin.as_ref().map(|origin| origin.peer.to_string());
        let from = from.as_deref().unwrap_or("inside");
        match denied {
            // Whoever tries without end must not fill the log.
            Denied::TooManyFailures | Denied::Busy => debug!(from, client, %denied, "login refused"),
            _ => info!(from, client, %denied, "login refused"),
        }
    }

    /// The connection is over: nobody waits for its login any more.
    pub(super) fn forget_login(&mut self, id: ConnId) {
        let waited = !self.logins.waiting.is_empty() && self.logins.waiting.remove(&id).is_some();
        if waited || self.logins.gate.challenged() > 0 {
            self.logins.gate.forget(id.0);
        }
        self.logins.last_messages.remove(&id);
    }

    /// Ends the connections whose tokens have expired.
    pub(super) fn end_expired_logins(&mut self, now: Now) {
        while let Some(&Reverse((at, id))) = self.logins.ends.peek()
            && at <= now.mono
        {
            self.logins.ends.pop();
            self.broker.end_login(id, now);
        }
        // Connections with tokens come and go long before these end.
        if self.logins.ends.len() > 64 + 2 * self.slots.len() {
            let mut ends = std::mem::take(&mut self.logins.ends);
            ends.retain(|Reverse((_, id))| self.key(*id).is_some());
            self.logins.ends = ends;
        }
    }
}

fn refusal(denied: Denied) -> Refusal {
    match denied {
        Denied::Anonymous | Denied::Exchange(_) | Denied::OtherUser => Refusal::NotAuthorized,
        Denied::Method => Refusal::BadMethod,
        Denied::Credentials | Denied::Token(_) => Refusal::BadCredentials,
        Denied::TooManyFailures | Denied::Busy => Refusal::Busy,
    }
}

pub(super) fn key_of(peer: PeerAddress) -> AddressKey {
    match peer {
        PeerAddress::Ip(address) => match address.ip().to_canonical() {
            IpAddr::V4(ip) => address_key(&ip.octets()),
            IpAddr::V6(ip) => address_key(&ip.octets()),
        },
        PeerAddress::Local => AddressKey(None),
    }
}

/// What a request takes in memory while it waits.
pub(super) fn kept_bytes(request: &ConnectRequest) -> usize {
    let will = request.will.as_ref().map_or(0, |will| {
        let texts = will.properties.iter().flat_map(|properties| {
            let pairs = properties.user.iter().map(|(name, value)| name.len() + value.len() + PAIR_BYTES);
            let single = [&properties.content_type, &properties.response_topic];
            let single = single.into_iter().flatten().map(|text| text.len());
            pairs.chain(single).chain(properties.correlation_data.iter().map(|data| data.len()))
        });
        will.topic.len() + will.payload.len() + texts.sum::<usize>()
    });
    size_of::<ConnectRequest>() + request.client_id.len() + will
}
