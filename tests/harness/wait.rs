//! Waiting for something that another process does, never longer than a deadline.

use std::time::{Duration, Instant};

/// How long a test waits for what should happen at once, on a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How often a condition without an event of its own is looked at.
const POLL: Duration = Duration::from_millis(5);

/// An end to waiting.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// That far from now.
    pub fn after(wait: Duration) -> Self {
        Self(Instant::now() + wait)
    }

    /// What is left, or `None` when nothing is.
    pub fn left(self) -> Option<Duration> {
        self.0.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    /// Nothing is left.
    pub fn is_over(self) -> bool {
        self.left().is_none()
    }
}

/// Looks until `probe` finds something.
///
/// # Panics
/// After `patience`, with `what` and the latest answer in the message.
pub fn eventually<T>(what: &str, patience: Duration, mut probe: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Deadline::after(patience);
    loop {
        match probe() {
            Ok(found) => return found,
            Err(latest) => assert!(!deadline.is_over(), "waited {patience:?} for: {what}; latest: {latest}"),
        }
        std::thread::sleep(POLL);
    }
}
