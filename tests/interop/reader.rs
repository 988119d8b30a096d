//! A subscriber with a kept session that reads for as long as the test runs.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::harness::{Deadline, Ledger, Login, PATIENCE, SHORT, Taken, Version, eventually};

/// Pause between two tries to connect.
const RETRY: Duration = Duration::from_millis(10);

/// Longest time without a new message at the end.
const STALL: Duration = PATIENCE.saturating_mul(2);

/// Runs in a thread of its own.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    address: SocketAddr,
    login: Login,
    over: AtomicBool,
    ledger: Mutex<Ledger>,
    new: AtomicU64,
    repeated: AtomicU64,
}

impl Reader {
    /// Subscribes before it returns.
    pub fn start(address: SocketAddr, filter: &str, qos: u8) -> Self {
        let login = Login::persistent(Version::V311, "reader");
        let mut client = login.open(address).unwrap();
        client.subscribe(filter, qos).unwrap();
        client.disconnect().unwrap();
        let shared = Arc::new(Shared {
            address,
            login,
            over: AtomicBool::new(false),
            ledger: Mutex::new(Ledger::new("reader")),
            new: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
        });
        let thread = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.run())
        };
        Self { shared, thread: Some(thread) }
    }

    /// Waits until each stream has so many messages; the number of repetitions.
    ///
    /// # Panics
    /// A fault in the streams, or no progress for too long.
    pub fn await_all(mut self, streams: &[(&str, u64)]) -> u64 {
        let mut moved = (0, Deadline::after(STALL));
        eventually("all messages", STALL.saturating_mul(20), || {
            let new = self.shared.new.load(Ordering::SeqCst);
            if new != moved.0 {
                moved = (new, Deadline::after(STALL));
            }
            let ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
            assert!(!ended, "the reader has failed; its message is above");
            let ledger = self.shared.ledger.lock().unwrap();
            let missing: Vec<_> =
                streams.iter().filter(|(name, count)| ledger.count(name) < *count).collect();
            if missing.is_empty() && ledger.is_settled() {
                return Ok(());
            }
            let counts: Vec<_> = streams.iter().map(|(name, _)| (*name, ledger.count(name))).collect();
            assert!(!moved.1.is_over(), "nothing new for {STALL:?}: {counts:?} of {streams:?}");
            Err(format!("{counts:?}"))
        });
        self.stop();
        self.shared.repeated.load(Ordering::SeqCst)
    }

    fn stop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        if let Some(Err(fault)) = self.thread.take().map(JoinHandle::join)
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(fault);
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn run(&self) {
        while !self.over.load(Ordering::SeqCst) {
            // The error is a broken connection; there will be another one.
            drop(self.read());
            std::thread::sleep(RETRY);
        }
    }

    fn read(&self) -> std::io::Result<()> {
        let mut client = self.login.open(self.address)?;
        assert!(client.connack.session_present, "the reader's session is lost");
        while !self.over.load(Ordering::SeqCst) {
            let Some(packet) = client.poll(SHORT)? else { continue };
            match self.ledger.lock().unwrap().take(&mut client, packet)? {
                Taken::New => self.new.fetch_add(1, Ordering::SeqCst),
                Taken::Again => self.repeated.fetch_add(1, Ordering::SeqCst),
                Taken::Nothing => 0,
            };
        }
        Ok(())
    }
}
