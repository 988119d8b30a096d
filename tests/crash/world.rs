//! What the parts of the test share: the gateway's address, how far the load may go, how far it has come.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::harness::{Client, Deadline, Login, PATIENCE};

/// Longest time without any progress.
const STALL: Duration = PATIENCE.saturating_mul(2);

/// Pause between two tries to connect while the gateway is down.
const RETRY: Duration = Duration::from_millis(3);

/// Shared by all threads of the test.
#[derive(Debug)]
pub struct World {
    address: SocketAddr,
    failed: AtomicBool,
    over: AtomicBool,
    round: AtomicU64,
    granted: AtomicU64,
    /// Messages that publishers were told are safe.
    pub acknowledged: AtomicU64,
    /// Messages that subscribers got for the first time.
    pub delivered: AtomicU64,
    /// QoS 1 messages that came again, and QoS 2 ones before their release: allowed.
    pub repeated: AtomicU64,
    /// Comparisons of retained messages and subscriptions with the model, and wills.
    pub checks: AtomicU64,
    working: AtomicU64,
    /// Number of messages of each stream, once its publisher is done.
    totals: Mutex<BTreeMap<String, u64>>,
}

impl World {
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            failed: AtomicBool::new(false),
            over: AtomicBool::new(false),
            round: AtomicU64::new(0),
            granted: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            checks: AtomicU64::new(0),
            working: AtomicU64::new(0),
            totals: Mutex::new(BTreeMap::new()),
        }
    }

    /// Runs a part of the test; when it panics, the other parts end too.
    pub fn guarded(&self, part: impl FnOnce()) {
        struct Alarm<'a>(&'a World);
        impl Drop for Alarm<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.failed.store(true, Ordering::SeqCst);
                }
            }
        }
        let _alarm = Alarm(self);
        part();
    }

    /// Ends this part when another one has failed.
    pub fn check(&self) {
        assert!(!self.failed.load(Ordering::SeqCst), "another part of the test has failed");
    }

    /// Waits for a condition; any progress of the load extends the deadline.
    pub fn wait_until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let mut deadline = Deadline::after(STALL);
        let mut before = self.motion();
        while !done() {
            self.check();
            if self.motion() != before {
                before = self.motion();
                deadline = Deadline::after(STALL);
            }
            assert!(
                !deadline.is_over(),
                "nothing has moved for {STALL:?} while waiting for: {what}; {}",
                self.report()
            );
            std::thread::sleep(RETRY);
        }
    }

    fn motion(&self) -> u64 {
        let counters = [&self.acknowledged, &self.delivered, &self.repeated, &self.checks];
        counters.iter().map(|counter| counter.load(Ordering::SeqCst)).sum()
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connects, however often the gateway is killed meanwhile.
    pub fn connect(&self, login: &Login) -> Client {
        let deadline = Deadline::after(STALL);
        loop {
            self.check();
            match login.open(self.address) {
                Ok(client) => return client,
                Err(error) => assert!(!deadline.is_over(), "{} cannot connect: {error}", login.id),
            }
            std::thread::sleep(RETRY);
        }
    }

    /// Connects and holds the gateway to the session that it has acknowledged before.
    pub fn reconnect(&self, login: &Login, known: &mut bool) -> Client {
        let client = self.connect(login);
        assert!(client.connack.session_present || !*known, "the session of {} is lost", login.id);
        *known = true;
        client
    }

    pub fn next_round(&self) {
        self.round.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts the kills.
    pub fn round(&self) -> u64 {
        self.round.load(Ordering::SeqCst)
    }

    /// Lets each publisher send that many more messages.
    pub fn grant(&self, messages: u64) {
        self.granted.fetch_add(messages, Ordering::SeqCst);
    }

    /// Messages that each publisher may have sent up to now.
    pub fn granted(&self) -> u64 {
        self.granted.load(Ordering::SeqCst)
    }

    /// No more load; what was begun is brought to its end.
    pub fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    pub fn count_acknowledged(&self) {
        self.acknowledged.fetch_add(1, Ordering::SeqCst);
    }

    pub fn count_delivered(&self) {
        self.delivered.fetch_add(1, Ordering::SeqCst);
    }

    pub fn count_repeated(&self) {
        self.repeated.fetch_add(1, Ordering::SeqCst);
    }

    pub fn count_check(&self) {
        self.checks.fetch_add(1, Ordering::SeqCst);
    }

    /// A part that has to reach its end before the test does.
    pub fn begin_work(&self) {
        self.working.fetch_add(1, Ordering::SeqCst);
    }

    pub fn end_work(&self) {
        self.working.fetch_sub(1, Ordering::SeqCst);
    }

    pub fn is_complete(&self) -> bool {
        self.totals().is_some() && self.working.load(Ordering::SeqCst) == 0
    }

    pub fn add_total(&self, stream: String, count: u64) {
        self.totals.lock().unwrap().insert(stream, count);
    }

    /// The number of messages of all streams, when all publishers are done.
    pub fn totals(&self) -> Option<BTreeMap<String, u64>> {
        let totals = self.totals.lock().unwrap();
        (totals.len() == 2 * crate::PUBLISHERS).then(|| totals.clone())
    }

    pub fn report(&self) -> String {
        let get = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        format!(
            "{} messages acknowledged, {} delivered, {} allowed repetitions, {} checks of other state",
            get(&self.acknowledged),
            get(&self.delivered),
            get(&self.repeated),
            get(&self.checks)
        )
    }
}
