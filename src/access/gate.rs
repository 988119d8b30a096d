//! The gate: decides logins. What takes long is handed out as a [`Job`] for another thread to do: as many at a time as there are
//! threads, and as fit into the memory for hashes.
//!
//! Extended authentication is decided in two steps that need no job: [`Gate::open_exchange`] and [`Gate::close_exchange`].
//!
//! Call order: [`Gate::begin`] for each login; when it says [`Begin::Wait`], [`Gate::next_job`] hands out work whenever another
//! job may be under way, and [`Gate::finish`] takes its result and names whom it is for. [`Gate::forget`] when a waiting client goes away.
//!
//! A password that was found right is remembered by a keyed hash, so that a thousand devices that come back at a time do not
//! wait for a thousand slow hashes. Wrong passwords are bounded for each address; the bound never holds up a remembered one.
//! Bounds: [`WAITING_MAX`], [`WAITING_BYTES_MAX`], [`LOGIN_BYTES_MAX`], [`VERIFIED_MAX`].

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use ring::hmac;

use super::exchange::Exchanges;
use super::limiter::Limiter;
use super::password::HashMemory;
use super::token::{TokenKeys, looks_like_one};
use super::users::Users;
use super::{AddressKey, Denied, Identity, Login, Method};
use crate::time::Mono;

/// Logins that may wait for their turn.
pub const WAITING_MAX: usize = 4096;
/// Memory of the logins that wait, in bytes, with what their connections keep for them.
pub const WAITING_BYTES_MAX: usize = 4 << 20;
/// User name and password, or token, in bytes.
pub const LOGIN_BYTES_MAX: usize = 16 << 10;
/// Passwords that are remembered as right.
pub const VERIFIED_MAX: usize = 16_384;

/// What logins are checked against.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Of the password file.
    pub users: Option<Arc<Users>>,
    /// For tokens.
    pub tokens: Option<Arc<TokenKeys>>,
    /// Wrong passwords that one address may send in a minute; 0: any number.
    pub failures_per_minute: u32,
    /// Memory that all hashes under way may take together, in bytes; there is always one.
    pub hash_memory_bytes_max: u64,
}

/// The answer to a login.
pub type Verdict = Result<Identity, Denied>;

/// What becomes of a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// It is decided.
    Done(Verdict),
    /// It is decided by a job.
    Wait,
}

/// A login to be checked on another thread.
#[derive(Clone, Debug)]
pub struct Job {
    id: u64,
    login: Login,
    mark: Mark,
    policy: Policy,
    round: u32,
}

/// A job's result.
#[derive(Clone, Debug)]
pub struct Done {
    job: Job,
    found: Found,
}

/// What a job has found. It names no user: what outlives the job is not allocated between the large blocks of the thread that
/// hashes, where it would keep their memory from being used again.
#[derive(Clone, Debug)]
enum Found {
    Password,
    Token(Identity),
    Nothing(Denied),
}

/// A keyed hash of a user and a password.
type Mark = [u8; 32];

/// A login that waits for its turn.
#[derive(Debug)]
struct Waiting {
    id: u64,
    login: Login,
    bytes: usize,
}

/// Decides logins.
#[derive(Debug)]
pub struct Gate {
    pub(super) policy: Policy,
    /// Counts changes of the policy.
    round: u32,
    pub(super) key: hmac::Key,
    verified: HashMap<Mark, Arc<str>>,
    /// Oldest first.
    order: VecDeque<Mark>,
    pub(super) limiter: Limiter,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    pub(super) exchanges: Exchanges,
    /// Jobs handed out.
    under_way: usize,
    /// Threads that do them.
    threads: usize,
}

impl Gate {
    /// `seed` is random and known to nobody.
    #[must_use]
    pub fn new(policy: Policy, seed: &[u8; 32]) -> Self {
        Self {
            limiter: Limiter::new(policy.failures_per_minute),
            policy,
            round: 0,
            key: hmac::Key::new(hmac::HMAC_SHA256, seed),
            verified: HashMap::new(),
            order: VecDeque::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            exchanges: Exchanges::default(),
            under_way: 0,
            threads: 1,
        }
    }

    /// Clients are checked against another policy from now on. Passwords of users whose line is the same stay remembered.
    pub fn set_policy(&mut self, policy: Policy) {
        let of =
            |policy: &Policy, user: &str| policy.users.as_ref().and_then(|users| users.find(user).cloned());
        let old = &self.policy;
        self.verified.retain(|_, user| of(old, user) == of(&policy, user));
        let verified = &self.verified;
        self.order.retain(|mark| verified.contains_key(mark));
        self.limiter.set_per_minute(policy.failures_per_minute);
        self.policy = policy;
        self.round = self.round.wrapping_add(1);
    }

    /// So many jobs may be under way at a time, where their memory allows it; 1 at first.
    pub fn set_threads(&mut self, threads: usize) {
        self.threads = threads.max(1);
    }

    fn may_start_job(&self) -> bool {
        let each = self.policy.users.as_ref().map_or(0, |users| users.memory()).max(1);
        let fitting = usize::try_from(self.policy.hash_memory_bytes_max / each).unwrap_or(usize::MAX);
        self.under_way < fitting.clamp(1, self.threads)
    }

    /// What clients are checked against.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// A client with the number `id` wants to log in. While it waits its connection keeps `kept_bytes` for it.
    pub fn begin(&mut self, id: u64, login: Login, kept_bytes: usize, now: Mono) -> Begin {
        if let Some(user) = &login.certificate_user {
            let user = Some(Arc::clone(user));
            return Begin::Done(Ok(Identity { user, method: Method::Certificate, ..Identity::default() }));
        }
        let has_user = login.user.as_deref().is_some_and(|user| !user.is_empty());
        let checks = self.policy.users.is_some() || self.policy.tokens.is_some();
        if !checks || (!has_user && login.password.is_none()) {
            return Begin::Done(match login.anonymous_allowed {
                true => Ok(Identity::default()),
                false => Err(Denied::Anonymous),
            });
        }
        let size =
            login.user.as_deref().map_or(0, str::len) + login.password.as_deref().map_or(0, <[u8]>::len);
        if size > LOGIN_BYTES_MAX {
            return Begin::Done(Err(Denied::Credentials));
        }
        let mark = self.mark(&login);
        if let Some(user) = self.verified.get(&mark) {
            return Begin::Done(Ok(by_password(user)));
        }
        let bytes = size + kept_bytes;
        if !self.limiter.allows(login.address, now) {
            return Begin::Done(Err(Denied::TooManyFailures));
        }
        if !self.has_room(bytes) {
            return Begin::Done(Err(Denied::Busy));
        }
        self.waiting_bytes += bytes;
        self.waiting.push_back(Waiting { id, login, bytes });
        Begin::Wait
    }

    /// Another login of this size may wait.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.waiting.len() + self.exchanges.len() < WAITING_MAX
            && self.waiting_bytes + self.exchanges.bytes() + bytes <= WAITING_BYTES_MAX
    }

    /// The client went away before its turn came, or in the middle of an exchange.
    pub fn forget(&mut self, id: u64) {
        if self.exchanges.take(id).is_some() {
            return;
        }
        let bytes = &mut self.waiting_bytes;
        self.waiting.retain(|waiting| {
            let stays = waiting.id != id;
            *bytes -= if stays { 0 } else { waiting.bytes };
            stays
        });
    }

    /// Logins that wait, without those that are being checked.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The next login to check, if one more may be under way. One whose password was found right meanwhile comes back in `ready`.
    pub fn next_job(&mut self, ready: &mut Vec<(u64, Verdict)>, now: Mono) -> Option<Job> {
        while self.may_start_job()
            && let Some(Waiting { id, login, bytes }) = self.waiting.pop_front()
        {
            self.waiting_bytes -= bytes;
            let mark = self.mark(&login);
            if let Some(user) = self.verified.get(&mark) {
                ready.push((id, Ok(by_password(user))));
            } else if !self.limiter.allows(login.address, now) {
                ready.push((id, Err(Denied::TooManyFailures)));
            } else {
                self.under_way += 1;
                return Some(Job { id, login, mark, policy: self.policy.clone(), round: self.round });
            }
        }
        None
    }

    /// A job has ended. `None`: its login is checked again, since the policy has changed meanwhile.
    pub fn finish(&mut self, done: Done, now: Mono) -> Option<(u64, Verdict)> {
        self.under_way = self.under_way.checked_sub(1).expect("a result is of a job that was handed out");
        let Done { job, found } = done;
        if job.round != self.round {
            self.waiting.push_front(Waiting { id: job.id, login: job.login, bytes: 0 });
            return None;
        }
        let verdict = match found {
            Found::Password => {
                let user: Arc<str> = job.login.user.as_deref().unwrap_or_default().into();
                self.remember(job.mark, &user);
                Ok(by_password(&user))
            }
            Found::Token(identity) => Ok(identity),
            Found::Nothing(denied) => {
                self.limiter.failed(job.login.address, now);
                Err(denied)
            }
        };
        Some((job.id, verdict))
    }

    fn remember(&mut self, mark: Mark, user: &Arc<str>) {
        if self.order.len() >= VERIFIED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.verified.remove(&oldest);
        }
        if self.verified.insert(mark, Arc::clone(user)).is_none() {
            self.order.push_back(mark);
        }
    }

    fn mark(&self, login: &Login) -> Mark {
        let mut context = hmac::Context::with_key(&self.key);
        let user = login.user.as_deref().unwrap_or_default();
        context.update(&(user.len() as u64).to_be_bytes());
        context.update(user.as_bytes());
        context.update(login.password.as_deref().unwrap_or_default());
        let mut mark = [0; 32];
        mark.copy_from_slice(context.sign().as_ref());
        mark
    }
}

fn by_password(user: &Arc<str>) -> Identity {
    Identity { user: Some(Arc::clone(user)), method: Method::Password, ..Identity::default() }
}

impl Job {
    /// Checks the login; `system_secs` is the system's clock in seconds since 1970. Takes tens of milliseconds.
    #[must_use]
    pub fn run(self, system_secs: u64, memory: &mut HashMemory) -> Done {
        let found = self.found(system_secs, memory);
        Done { job: self, found }
    }

    fn found(&self, system_secs: u64, memory: &mut HashMemory) -> Found {
        let password = self.login.password.as_deref().unwrap_or_default();
        if let Some(tokens) = self.policy.tokens.as_ref().filter(|_| looks_like_one(password)) {
            let checked = tokens.check(password, system_secs);
            return checked.map_or_else(|bad| Found::Nothing(Denied::Token(bad)), Found::Token);
        }
        let user = self.login.user.as_deref().unwrap_or_default();
        let Some(users) = &self.policy.users else { return Found::Nothing(Denied::Credentials) };
        let Some(stored) = users.find(user) else {
            let _in_vain = users.decoy().is_some_and(|decoy| decoy.verify(password, memory));
            return Found::Nothing(Denied::Credentials);
        };
        if stored.verify(password, memory) { Found::Password } else { Found::Nothing(Denied::Credentials) }
    }
}

/// The key of an address: an IPv6 network of 64 bits counts as one, as it belongs to one host or site.
#[must_use]
pub fn address_key(octets: &[u8]) -> AddressKey {
    let mut key = [0; 16];
    match octets.len() {
        4 => key[12..].copy_from_slice(octets),
        16 => key[..8].copy_from_slice(&octets[..8]),
        _ => return AddressKey(None),
    }
    // Set apart from each other: an IPv4 address is no network of IPv6.
    AddressKey(Some(u128::from_be_bytes(key) | u128::from(octets.len() == 4) << 40))
}

#[cfg(test)]
mod tests {
    use super::super::password::{SALT_BYTES, Stored};
    use super::*;

    const HOUR: u64 = 3600;

    fn policy() -> Policy {
        let users = format!("ann:{}\n", Stored::create(b"right", &[3; SALT_BYTES]));
        let users = Some(Arc::new(Users::parse(&users).unwrap()));
        Policy { users, failures_per_minute: 2, ..Policy::default() }
    }

    fn login(user: &str, password: &str) -> Login {
        Login {
            user: Some(user.into()),
            password: Some(password.as_bytes().into()),
            certificate_user: None,
            address: AddressKey(Some(9)),
            anonymous_allowed: false,
        }
    }

    fn run(gate: &mut Gate, now: Mono) -> Option<(u64, Verdict)> {
        let mut ready = Vec::new();
        let job = gate.next_job(&mut ready, now);
        match job {
            Some(job) => gate.finish(job.run(HOUR, &mut HashMemory::default()), now),
            None => ready.pop(),
        }
    }

    fn ann() -> Verdict {
        Ok(by_password(&"ann".into()))
    }

    #[test]
    fn a_right_password_is_checked_once_and_remembered() {
        let mut gate = Gate::new(policy(), &[0; 32]);
        let now = Mono(0);
        assert_eq!(gate.begin(1, login("ann", "right"), 0, now), Begin::Wait);
        assert_eq!(gate.begin(2, login("ann", "right"), 0, now), Begin::Wait);
        assert_eq!(run(&mut gate, now), Some((1, ann())));
        assert_eq!(run(&mut gate, now), Some((2, ann())), "the second one needs no job");
        assert_eq!(gate.begin(3, login("ann", "right"), 0, now), Begin::Done(ann()));
        assert_eq!(gate.begin(4, login("ann", "wrong"), 0, now), Begin::Wait);
        assert_eq!(run(&mut gate, now), Some((4, Err(Denied::Credentials))));
    }

    #[test]
    fn as_many_passwords_are_checked_at_a_time_as_threads_and_memory_allow() {
        let mut gate = Gate::new(policy(), &[0; 32]);
        let now = Mono(0);
        (0..9).for_each(|id| assert_eq!(gate.begin(id, login("ann", &id.to_string()), 0, now), Begin::Wait));
        let mut jobs = Vec::new();
        let mut take = |gate: &mut Gate| {
            let before = jobs.len();
            jobs.extend(std::iter::from_fn(|| gate.next_job(&mut Vec::new(), now)));
            jobs.len() - before
        };
        assert_eq!(take(&mut gate), 1, "one at a time unless more is said");
        gate.set_threads(4);
        assert_eq!(take(&mut gate), 0, "there is memory for one");
        gate.set_policy(Policy { hash_memory_bytes_max: 3 * (7168 << 10), ..policy() });
        assert_eq!((take(&mut gate), take(&mut gate)), (2, 0));
        gate.set_policy(Policy { hash_memory_bytes_max: u64::MAX, ..policy() });
        assert_eq!(take(&mut gate), 1, "as many as threads");
        let done = jobs.remove(0).run(HOUR, &mut HashMemory::default());
        gate.finish(done, now);
        assert!(gate.next_job(&mut Vec::new(), now).is_some());
    }

    #[test]
    fn another_hash_forgets_what_was_remembered_and_a_job_under_way_starts_over() {
        let mut gate = Gate::new(policy(), &[0; 32]);
        let now = Mono(0);
        gate.begin(1, login("ann", "right"), 0, now);
        run(&mut gate, now);
        gate.set_policy(gate.policy().clone());
        assert_eq!(gate.begin(2, login("ann", "right"), 0, now), Begin::Done(ann()), "nothing has changed");
        gate.begin(3, login("ann", "wrong"), 0, now);
        let job = gate.next_job(&mut Vec::new(), now).unwrap();
        let users = format!("ann:{}\n", Stored::create(b"wrong", &[4; SALT_BYTES]));
        let users = Some(Arc::new(Users::parse(&users).unwrap()));
        gate.set_policy(Policy { users, ..policy() });
        assert_eq!(gate.begin(4, login("ann", "right"), 0, now), Begin::Wait, "no longer remembered");
        assert_eq!(gate.finish(job.run(HOUR, &mut HashMemory::default()), now), None);
        assert_eq!(run(&mut gate, now), Some((3, ann())), "by the new file");
        assert_eq!(run(&mut gate, now), Some((4, Err(Denied::Credentials))));
    }

    #[test]
    fn an_address_with_too_many_wrong_passwords_waits_but_for_remembered_ones() {
        let mut gate = Gate::new(policy(), &[0; 32]);
        let now = Mono(0);
        gate.begin(1, login("ann", "right"), 0, now);
        run(&mut gate, now);
        for (id, user) in [(2, "ann"), (3, "nobody")] {
            assert_eq!(gate.begin(id, login(user, "wrong"), 0, now), Begin::Wait);
            assert_eq!(run(&mut gate, now), Some((id, Err(Denied::Credentials))));
        }
        assert_eq!(gate.begin(4, login("ann", "wrong"), 0, now), Begin::Done(Err(Denied::TooManyFailures)));
        assert_eq!(gate.begin(5, login("ann", "right"), 0, now), Begin::Done(ann()));
        assert_eq!(gate.begin(6, login("ann", "wrong"), 0, Mono(60_000_000)), Begin::Wait);
    }

    #[test]
    fn who_presents_nothing_is_anonymous_where_that_is_allowed() {
        let nothing =
            |allowed| Login { user: None, password: None, anonymous_allowed: allowed, ..login("", "") };
        let mut gate = Gate::new(policy(), &[0; 32]);
        assert_eq!(gate.begin(1, nothing(true), 0, Mono(0)), Begin::Done(Ok(Identity::default())));
        assert_eq!(gate.begin(1, nothing(false), 0, Mono(0)), Begin::Done(Err(Denied::Anonymous)));
        let with_certificate = Login { certificate_user: Some("unit".into()), ..nothing(false) };
        let Begin::Done(Ok(identity)) = gate.begin(1, with_certificate, 0, Mono(0)) else { panic!() };
        assert_eq!((identity.user.as_deref(), identity.method), (Some("unit"), Method::Certificate));
        let mut open = Gate::new(Policy::default(), &[0; 32]);
        let claimed = Login { anonymous_allowed: true, ..login("root", "whatever") };
        let unproven = open.begin(1, claimed, 0, Mono(0));
        assert_eq!(unproven, Begin::Done(Ok(Identity::default())), "a name that nobody checks is no name");
    }

    #[test]
    fn a_client_that_went_away_costs_no_hash_and_the_line_is_bounded() {
        let mut gate = Gate::new(policy(), &[0; 32]);
        for id in 0..WAITING_MAX as u64 {
            assert_eq!(gate.begin(id, login("ann", &id.to_string()), 0, Mono(0)), Begin::Wait);
        }
        assert_eq!(gate.begin(9, login("ann", "x"), 0, Mono(0)), Begin::Done(Err(Denied::Busy)));
        for id in 0..WAITING_MAX as u64 {
            gate.forget(id);
        }
        assert!(gate.next_job(&mut Vec::new(), Mono(0)).is_none());
    }

    #[test]
    fn addresses_of_one_network_count_as_one() {
        let v6 = |last: u8, fourth: u8| {
            let mut octets = [0x20, 1, 0xd, 0xb8, 0, 0, 0, fourth, 0, 0, 0, 0, 0, 0, 0, 0];
            octets[15] = last;
            address_key(&octets)
        };
        assert_eq!(v6(1, 7), v6(2, 7));
        assert_ne!(v6(1, 7), v6(1, 8));
        assert_ne!(address_key(&[10, 0, 0, 1]), address_key(&[10, 0, 0, 2]));
        assert_eq!(address_key(&[]), AddressKey(None));
    }
}
