//! Page requests on their way to the loader.
//!
//! Bound: the broker has at most one request under way for each queue, so there are never more than queues.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::contract::PageRequest;

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<PageRequest>,
    closed: bool,
}

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    bell: Condvar,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Plain data that no panic leaves half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The writer's end; the loader ends when it is dropped.
#[derive(Debug)]
pub struct LoadSender(Arc<Inner>);

/// The loader's end.
#[derive(Debug)]
pub struct LoadReceiver(Arc<Inner>);

/// Makes both ends.
#[must_use]
pub fn load_queue() -> (LoadSender, LoadReceiver) {
    let inner = Arc::new(Inner::default());
    (LoadSender(inner.clone()), LoadReceiver(inner))
}

impl LoadSender {
    /// Adds a request; never blocks.
    pub fn send(&self, request: PageRequest) {
        self.0.lock().waiting.push_back(request);
        self.0.bell.notify_one();
    }
}

impl Drop for LoadSender {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.bell.notify_one();
    }
}

impl LoadReceiver {
    /// Waits for the next request; `None`: there will be no more.
    #[must_use]
    pub fn recv(&self) -> Option<PageRequest> {
        let mut state = self.0.lock();
        loop {
            if let Some(request) = state.waiting.pop_front() {
                return Some(request);
            }
            if state.closed {
                return None;
            }
            state = self.0.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
