//! A link between a scripted upstream and a stand-in for the local broker, over real sockets on the loopback.

mod broker;
mod cases_inbound;
mod cases_outage;
mod cases_outbound;
mod cases_tls;
mod upstream;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::broker::FakeBroker;
use super::client::Shell;
use super::client_connect::{Lookup, system_lookup};
use super::{Address, LinkClock, LinkConfig, LinkSnapshot, LinkStatus, Protocol, Rule};
use crate::time::{Timeline, Wall};

/// Longest wait for anything in a test.
const PATIENCE: Duration = Duration::from_secs(10);
/// The versions that a link speaks.
const BOTH: [Protocol; 2] = [Protocol::V4, Protocol::V5];

/// Short deadlines and one rule that sends `out/...` up as `up/...`.
fn config(protocol: Protocol, port: u16) -> LinkConfig {
    LinkConfig {
        name: "cloud".into(),
        addresses: vec![Address { host: "127.0.0.1".into(), port, tls: false }],
        protocol,
        client_id: "gw-cloud".into(),
        gateway_id: "gw".into(),
        window: 20,
        connect_timeout_millis: 400,
        ack_timeout_millis: 400,
        backoff_min_millis: 5,
        backoff_max_millis: 40,
        stable_after_millis: 150,
        out: vec![Rule { local_prefix: "out/".into(), remote_prefix: "up/".into(), ..Rule::default() }],
        ..LinkConfig::default()
    }
}

/// With a rule that brings `down/...` in as `in/...`.
fn with_inbound(config: LinkConfig) -> LinkConfig {
    let rule = Rule { local_prefix: "in/".into(), remote_prefix: "down/".into(), ..Rule::default() };
    LinkConfig { inbound: vec![rule], ..config }
}

/// A running link.
struct Running {
    broker: FakeBroker,
    status: Arc<LinkStatus>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Running {
    fn start(config: LinkConfig) -> Self {
        Self::start_with(config, system_lookup())
    }

    fn start_with(config: LinkConfig, lookup: Lookup) -> Self {
        super::check(&config).unwrap();
        let (broker, ports) = FakeBroker::start();
        let status = Arc::new(LinkStatus::new(&config.name));
        let clock = LinkClock {
            started: Instant::now(),
            timeline: Timeline::anchored(Wall(1_700_000_000_000), Wall(0)),
        };
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(Shell::new(config, status.clone(), clock, lookup).run(ports, stopped));
        Self { broker, status, stop, task }
    }

    /// Waits for a status that fits.
    async fn until(&self, what: &str, fits: impl Fn(&LinkSnapshot) -> bool) -> LinkSnapshot {
        let started = Instant::now();
        loop {
            let snapshot = self.status.snapshot();
            if fits(&snapshot) {
                return snapshot;
            }
            assert!(started.elapsed() < PATIENCE, "waited in vain for: {what}; {snapshot:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn stop(self) {
        self.stop.send(true).unwrap();
        tokio::time::timeout(PATIENCE, self.task).await.expect("the link stops within its bound").unwrap();
    }
}
