//! stub
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;

use super::{LinkConfig, LinkStatus};
use crate::port::PortRequests;
use crate::time::{Mono, Now, Timeline};

/// Reads both clocks for a link: the monotonic one from the process's start on, the wall clock on the stable timeline.
#[derive(Clone, Copy, Debug)]
pub struct LinkClock {
    /// The process's start.
    pub started: Instant,
    /// The anchor of the wall clock.
    pub timeline: Timeline,
}

impl LinkClock {
    /// The reading now.
    #[must_use]
    pub fn now(&self) -> Now {
        let micros = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.timeline.at(Mono(micros))
    }
}

/// Runs one link until `shutdown` becomes true or its sender is gone.
pub async fn run_link(
    config: LinkConfig,
    ports: PortRequests,
    status: Arc<LinkStatus>,
    clock: LinkClock,
    shutdown: watch::Receiver<bool>,
) {
    let _ = (config, ports, status, clock, shutdown);
}
