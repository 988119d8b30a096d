//! The demo's script: both brokers, the uplink between them, the devices, and what happens to them one after the other.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::DemoArgs;
use super::checker::{Checker, Tally};
use super::client::{self, Pace};
use super::device::{Consumer, Device, SharedChecker};
use super::display::{Outcome, Progress, Screen, Written};
use super::process::{Broker, free_addresses};
use super::proxy::Proxy;
use crate::admin::status::Status;

/// Milliseconds that the backlog gets to drain after the devices stopped.
pub const DRAIN_MILLIS_MAX: u64 = 30_000;

/// Milliseconds that the consumer gets to subscribe, and the link to connect for the first time.
const SETUP_MILLIS_MAX: u64 = 10_000;

/// Time between two looks at everything.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Missing messages that a failure names.
const EXAMPLES_MAX: usize = 10;

/// Shares of the publishing time in percent: all well, uplink cut, gateway restarted with the uplink still cut. The rest
/// follows the uplink's repair.
const NORMAL_PERCENT: u64 = 25;
const CUT_PERCENT: u64 = 25;
const RESTARTED_PERCENT: u64 = 25;

/// Plays the whole script in `folder`, with brokers that are processes of `program`.
///
/// # Errors
/// When something other than the outcome goes wrong: a process does not start or ends by itself, a folder cannot be written.
pub async fn play(args: &DemoArgs, folder: &Path, program: &Path) -> anyhow::Result<Outcome> {
    let mut stage = Stage::set_up(args, folder, program.to_owned()).await?;
    let share = |percent: u64| Duration::from_millis(args.seconds * 10 * percent);
    stage.connect_devices(args);
    stage.watch("everything is up", share(NORMAL_PERCENT), |_| false).await?;
    stage.proxy.cut();
    stage.watch("the uplink is cut", share(CUT_PERCENT), |_| false).await?;
    stage.kill_and_restart().await?;
    stage.watch("restarted, the uplink is still cut", share(RESTARTED_PERCENT), |_| false).await?;
    stage.proxy.repair();
    let repaired = Instant::now();
    let rest = share(100 - NORMAL_PERCENT - CUT_PERCENT - RESTARTED_PERCENT);
    stage.watch("the uplink is back", rest, |_| false).await?;
    stage.publishing.send_replace(false);
    let drain_max = Duration::from_millis(DRAIN_MILLIS_MAX);
    let drained = stage.watch("devices stopped, draining", drain_max, Tally::is_drained).await?;
    stage.finish(args, drained.then(|| repaired.elapsed())).await
}

/// Everything that runs; all of it stops when this goes away.
struct Stage {
    program: PathBuf,
    gateway: Broker,
    datacenter: Broker,
    proxy: Proxy,
    clients: JoinSet<()>,
    checker: SharedChecker,
    publishing: watch::Sender<bool>,
    screen: Screen,
    latest: Option<Status>,
    queued_max: u64,
    written: Written,
    restart: Duration,
}

impl Stage {
    async fn set_up(args: &DemoArgs, folder: &Path, program: PathBuf) -> anyhow::Result<Self> {
        let [gateway, datacenter] = free_addresses()?;
        let mut datacenter = Broker::prepare(folder, "datacenter", datacenter, None)?;
        let proxy = Proxy::start(datacenter.address()).await.context("opening the uplink")?;
        let mut gateway = Broker::prepare(folder, "gateway", gateway, Some(proxy.address()))?;
        let mut screen = Screen::stdout();
        screen.say(&introduction(args, &gateway, &datacenter));
        datacenter.start(&program)?;
        datacenter.wait_until_ready().await?;
        gateway.start(&program)?;
        gateway.wait_until_ready().await?;
        let mut stage = Self {
            program,
            gateway,
            datacenter,
            proxy,
            clients: JoinSet::new(),
            checker: SharedChecker::new(Checker::new(usize::from(args.devices))),
            publishing: watch::channel(true).0,
            screen,
            latest: None,
            queued_max: 0,
            written: Written::default(),
            restart: Duration::ZERO,
        };
        stage.connect_consumer().await?;
        stage.wait_for_link().await?;
        Ok(stage)
    }

    async fn connect_consumer(&mut self) -> anyhow::Result<()> {
        let (subscribed, mut granted) = watch::channel(false);
        let consumer = Consumer::new(self.checker.clone(), subscribed);
        self.clients.spawn(client::run(self.datacenter.address(), consumer, None, 0));
        let granted = granted.wait_for(|granted| *granted);
        tokio::time::timeout(Duration::from_millis(SETUP_MILLIS_MAX), granted)
            .await
            .context("the datacenter did not grant the consumer's subscription in time")??;
        Ok(())
    }

    /// So that the first phase shows messages passing through. A link that takes longer is not an error of its own.
    async fn wait_for_link(&mut self) -> anyhow::Result<()> {
        let end = Instant::now() + Duration::from_millis(SETUP_MILLIS_MAX);
        while Instant::now() < end {
            self.look().await?;
            let is_up = |status: &Status| status.links.iter().any(|link| link.connected_since.is_some());
            if self.latest.as_ref().is_some_and(is_up) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.screen.say("the link to the datacenter is not up yet; going on without it");
        Ok(())
    }

    fn connect_devices(&mut self, args: &DemoArgs) {
        for index in 0..usize::from(args.devices) {
            let device = Device::new(index, self.checker.clone());
            let pace = Pace { per_second: args.rate, publishing: self.publishing.subscribe() };
            let seed = u64::from(std::process::id()) << 32 | index as u64;
            self.clients.spawn(client::run(self.gateway.address(), device, Some(pace), seed));
        }
    }

    /// Shows progress until `time` has passed or `done` says so; returns whether it did.
    async fn watch(
        &mut self,
        phase: &str,
        time: Duration,
        done: impl Fn(&Tally) -> bool,
    ) -> anyhow::Result<bool> {
        let end = Instant::now() + time;
        loop {
            self.look().await?;
            let tally = self.show(phase);
            if done(&tally) {
                return Ok(true);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            tokio::time::sleep(left.min(LOOK_EVERY)).await;
        }
    }

    async fn look(&mut self) -> anyhow::Result<()> {
        self.gateway.check_alive()?;
        self.datacenter.check_alive()?;
        self.latest = self.gateway.status().await.ok();
        self.queued_max = self.queued_max.max(self.queued().unwrap_or(0));
        Ok(())
    }

    fn queued(&self) -> Option<u64> {
        self.latest.as_ref().map(|status| status.queues_total.messages)
    }

    fn show(&mut self, phase: &str) -> Tally {
        let tally = self.checker.lock().tally();
        let rss_bytes = self.latest.as_ref().map_or(0, |status| status.memory.rss_bytes);
        let progress = Progress { phase: phase.to_owned(), tally, queued: self.queued(), rss_bytes };
        self.screen.progress(&progress);
        tally
    }

    async fn kill_and_restart(&mut self) -> anyhow::Result<()> {
        self.add_written().await;
        self.gateway.kill().await.context("killing the gateway")?;
        self.latest = None;
        self.show("the gateway was killed (SIGKILL)");
        self.gateway.start(&self.program)?;
        self.restart = self.gateway.wait_until_ready().await?;
        Ok(())
    }

    /// Adds the counters of the gateway's present life.
    async fn add_written(&mut self) {
        if let Ok(status) = self.gateway.status().await {
            self.written.bytes += status.store.bytes_written_total();
            self.written.syncs += status.store.syncs_total();
            self.written.messages += status.store.messages_enqueued;
        }
    }

    async fn finish(mut self, args: &DemoArgs, drain: Option<Duration>) -> anyhow::Result<Outcome> {
        self.add_written().await;
        let peak_rss_bytes = self.gateway.peak_rss_bytes();
        // Stopped first, so that the counts are final.
        self.clients.shutdown().await;
        self.gateway.kill().await.context("stopping the gateway")?;
        self.datacenter.kill().await.context("stopping the datacenter")?;
        let outcome = {
            let checker = self.checker.lock();
            Outcome {
                devices: usize::from(args.devices),
                tally: checker.tally(),
                examples_of_missing: checker.examples_of_missing(EXAMPLES_MAX),
                peak_rss_bytes,
                written: self.written,
                queued_max: self.queued_max,
                restart: self.restart,
                drain,
                duration: self.screen.elapsed(),
            }
        };
        self.screen.say("");
        self.screen.say(super::display::table(&outcome).trim_end());
        Ok(outcome)
    }
}

fn introduction(args: &DemoArgs, gateway: &Broker, datacenter: &Broker) -> String {
    format!(
        "{} devices -> gateway {} -> uplink -> datacenter {}; {} messages per second, QoS 1, for {} s",
        args.devices,
        gateway.address(),
        datacenter.address(),
        u64::from(args.devices) * u64::from(args.rate),
        args.seconds
    )
}
