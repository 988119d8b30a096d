//! The world: the cast, the wires between it and the gateway, the disk, the clocks, and the order in which things happen.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use tidegate::store::simulation::{CutStyle, InlineStore, Sabotage, SimMedia};

use crate::action::{Action, Pace, Step};
use crate::cast::{CLIENTS, LINK};
use crate::client::Client;
use crate::gateway::{Gateway, NotStarted, Scale, Setting, options};
use crate::jobs::Book;
use crate::ledger::{Ledger, Verdict};
use crate::random::Random;
use crate::worker::{WORKERS, Worker};

/// Openings that may fail before a start that is let through.
const OPENINGS_MAX: u32 = 40;
/// After so long without work the store has committed what nobody waits for.
const LINGERED_MILLIS: u64 = 600;
/// The system clock at the beginning of a run.
pub const SYSTEM_START: u64 = 1_700_000_000_000;

/// What is planted, for the tests that must notice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Control {
    pub sabotage: Sabotage,
    /// Every n-th sync does nothing.
    pub lie_every: Option<u64>,
}

/// What a run went through, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(pub BTreeMap<&'static str, u64>);

impl Tally {
    pub fn count(&mut self, name: &'static str, n: u64) {
        *self.0.entry(name).or_default() += n;
    }

    pub fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    pub fn add(&mut self, other: &Self) {
        other.0.iter().for_each(|(name, n)| self.count(name, *n));
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|(name, n)| writeln!(f, "{n:>10} {name}"))
    }
}

/// How the power fails.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    style: CutStyle,
    pub(super) again: u32,
}

pub struct World {
    pub media: Arc<SimMedia>,
    pub(super) gateway: Option<Gateway>,
    pub clients: Vec<Client>,
    pub workers: Vec<Worker>,
    /// Connections whose peers are gone.
    pub(super) orphans: Vec<tidegate::broker::api::ConnId>,
    pub ledger: Ledger,
    pub book: Book,
    /// Of this step.
    pub random: Random,
    control: Control,
    system: u64,
    pub(super) cut: Cut,
    capacity: Option<u64>,
    pub black_hole: bool,
    /// Of the next process.
    pub(super) setting: Setting,
    /// Messages that this process has refused.
    refused: u64,
    pub tally: Tally,
}

/// An empty store, made once of each scale.
pub fn fresh(scale: Scale) -> Vec<u8> {
    static FRESH: [OnceLock<Vec<u8>>; 2] = [const { OnceLock::new() }; 2];
    FRESH[usize::from(scale == Scale::Large)]
        .get_or_init(|| {
            let media = Arc::new(SimMedia::default());
            InlineStore::create(&media, &options(scale)).expect("an empty store can be made");
            media.image()
        })
        .clone()
}

impl World {
    pub fn new(scale: Scale, control: Control) -> Result<Self, String> {
        let style = CutStyle { grain: 512, garbage: false };
        let mut world = Self {
            media: Arc::new(SimMedia::holding(fresh(scale))),
            gateway: None,
            clients: (0..CLIENTS).map(Client::new).collect(),
            workers: (0..WORKERS).map(Worker::new).collect(),
            orphans: vec![],
            ledger: Ledger::new(),
            book: Book::default(),
            random: Random(0),
            control,
            system: SYSTEM_START,
            cut: Cut { style, again: 0 },
            capacity: None,
            black_hole: false,
            setting: Setting { scale, ..Setting::default() },
            refused: 0,
            tally: Tally::default(),
        };
        world.tally.count("runs", 1);
        world.start(0)?;
        Ok(world)
    }

    pub(super) fn gateway(&mut self) -> &mut Gateway {
        self.gateway.as_mut().expect("it was started")
    }

    /// Starts the gateway; the first `cuts` openings are cut short.
    pub(super) fn start(&mut self, mut cuts: u32) -> Verdict {
        for _ in 0..OPENINGS_MAX {
            if cuts > 0 {
                let after = 1 + self.random.below(14);
                self.media.cut_power_after(after);
            }
            let seed = self.random.next();
            let started =
                Gateway::start(self.media.clone(), self.control.sabotage, self.system, seed, self.setting);
            if self.media.is_off() {
                drop(started);
                cuts = cuts.saturating_sub(1);
                self.tally.count("power cuts during recovery", 1);
                self.tally.count("power cuts", 1);
                self.lose_power();
                continue;
            }
            self.media.keep_power();
            let (gateway, content) = match started {
                Ok(started) => started,
                Err(NotStarted::Bad(what)) => return Err(what),
                Err(NotStarted::Store(error)) => {
                    // A disk that fails or is full is the only excuse; the operator sees to it.
                    if self.capacity.is_none() && !self.media.is_failing() {
                        return Err(format!("the store cannot be opened: {error}"));
                    }
                    self.media.stop_failing();
                    self.give_space();
                    continue;
                }
            };
            self.tally.count("starts", 1);
            if let Some(n) = self.control.lie_every {
                self.media.lie_every(n);
            }
            self.gateway = Some(gateway);
            let wall = self.gateway().now().wall.0;
            self.refused = 0;
            self.ledger.started(wall);
            self.book.started();
            self.book.pass_time(wall);
            self.ledger.check_content(&content)?;
            self.book.take_stock(&content.stock)?;
            return self.settle_deals();
        }
        Err("the gateway does not start".to_owned())
    }

    pub(super) fn give_space(&mut self) {
        self.capacity = None;
        self.media.set_capacity(None);
    }

    /// The disk as the power left it.
    pub(super) fn lose_power(&mut self) {
        let random = &mut self.random;
        let left = self.media.after_power_cut(self.cut.style, &mut || random.next());
        self.media = Arc::new(left);
        self.media.set_capacity(self.capacity);
    }

    /// The process is gone: its connections with it. What had left the gateway may still arrive.
    pub(super) fn end_process(&mut self) -> Verdict {
        let Some(gateway) = self.gateway.take() else { return Ok(()) };
        let now = gateway.now();
        self.count_process(&gateway);
        drop(gateway);
        for client in &mut self.clients {
            if !self.random.chance(4) {
                client.read(&mut self.ledger, now)?;
            }
            client.lose(&mut self.ledger);
            // Nothing tells a client that its goodbye is durable.
            client.cancelled.clear();
        }
        for number in 0..WORKERS {
            if !self.random.chance(4) {
                self.read_worker(number)?;
            }
            self.workers[number].lose(&mut self.book, &mut self.ledger)?;
        }
        self.settle_deals()?;
        self.orphans.clear();
        Ok(())
    }

    pub(super) fn count_refusals(&mut self) {
        let now = self.gateway().hub.broker().stats().refused_quota;
        self.ledger.refusals += now - std::mem::replace(&mut self.refused, now);
    }

    fn count_process(&mut self, gateway: &Gateway) {
        for (name, value) in gateway.store.counters().all() {
            if matches!(
                name,
                "checkpoints" | "checkpoints_failed" | "commits" | "ring_waits" | "pages_loaded"
            ) {
                self.tally.count(name, value);
            }
        }
        let stats = gateway.hub.broker().stats();
        for (name, value) in [
            ("refused: quota", stats.refused_quota),
            ("published again with QoS 2", stats.published_again),
            ("redelivered", stats.redelivered),
            ("dropped: oldest", stats.dropped_oldest),
            ("dropped: expired", stats.dropped_expired),
            ("dropped: congested", stats.dropped_congested),
            ("shared: moved", stats.moved),
            ("shared: returned", stats.returned),
            ("wills", stats.wills),
            ("takeovers", stats.takeovers),
            ("sessions expired", stats.sessions_expired),
            ("windows trimmed", stats.windows_trimmed),
            ("violations", stats.violations),
            ("dead letters", stats.dead_letters),
            ("copies browsed", stats.browsed),
            ("transactions timed out", stats.prepared_timed_out),
            ("never written", stats.never_written),
        ] {
            self.tally.count(name, value);
        }
    }

    /// Carries out one step.
    pub fn step(&mut self, at: usize, step: &Step) -> Verdict {
        self.random = Random(step.seed);
        self.ledger.step = at;
        self.tally.count("steps", 1);
        self.act(&step.action, step.pace)?;
        let millis = 1 + self.random.below(30);
        self.pass(millis);
        for _ in 0..step.rounds {
            self.round(step.pace)?;
        }
        self.check()
    }

    pub(super) fn check(&mut self) -> Verdict {
        let wall = self.gateway().now().wall.0;
        for client in self.clients.iter().filter(|client| client.is_open()) {
            self.ledger.is_there(client.number);
        }
        self.ledger.pass_time(wall);
        self.book.pass_time(wall);
        let full = self.gateway().hub.broker().gauges().store_full;
        self.tally.count("steps with a full store", u64::from(full));
        self.gateway().check()
    }

    pub(super) fn pass(&mut self, millis: u64) {
        self.system += millis;
        self.gateway().mono += millis * 1000;
        let wall = self.gateway().now().wall.0;
        for client in self.clients.iter().filter(|client| client.is_open()) {
            self.ledger.is_there(client.number);
        }
        self.ledger.pass_time(wall);
        self.book.pass_time(wall);
    }

    fn act(&mut self, action: &Action, pace: Pace) -> Verdict {
        let now = self.gateway().now();
        match action {
            Action::Connect { client, clean } if *client != LINK => self.connect(*client, *clean),
            Action::Connect { .. } => {}
            Action::UplinkUp => {
                self.black_hole = false;
                if !self.clients[LINK].is_open() {
                    self.connect(LINK, false);
                }
                self.clients[LINK].settle(now);
            }
            Action::BlackHole => {
                self.black_hole = true;
                self.clients[LINK].holding = true;
            }
            Action::UplinkDown => self.drop_connection(LINK),
            Action::Drop { client } => self.drop_connection(*client),
            Action::Goodbye { client } => self.clients[*client].goodbye(now),
            Action::Publish { client, count, draft } => {
                for _ in 0..*count {
                    self.clients[*client].publish(draft, &mut self.ledger, now);
                }
            }
            Action::Subscribe { client, filter, qos } => {
                self.clients[*client].subscribe(filter, *qos, &mut self.ledger, now);
            }
            Action::Unsubscribe { client, filter } => {
                self.clients[*client].unsubscribe(filter, &mut self.ledger, now);
            }
            Action::Hold { client } => self.clients[*client].holding = true,
            Action::Settle { client } => self.clients[*client].settle(now),
            Action::Stall { client, on } => self.clients[*client].stalled = *on,
            Action::Tick { millis } => {
                self.pass((*millis).min(LINGERED_MILLIS));
                if *millis > LINGERED_MILLIS && !self.round(pace)? {
                    self.pass(*millis - LINGERED_MILLIS);
                }
            }
            Action::Idle => {
                self.pass(5_500);
                self.gateway().store.idle();
            }
            Action::ClockJump { millis } => {
                self.system = self.system.saturating_add_signed(*millis).max(1_000);
            }
            Action::Work { worker, deed } => return self.work(*worker, deed),
            Action::Desk(desk) => self.desk(*desk),
            disaster => return self.disaster(disaster),
        }
        Ok(())
    }

    fn disaster(&mut self, action: &Action) -> Verdict {
        match action {
            Action::SyncFails { n } => self.media.fail_sync(*n),
            Action::WriteFails { n } => self.media.fail_write(*n),
            Action::DiskFull { pages } => {
                self.capacity = Some(self.media.occupied_bytes() + pages * 4096);
                self.media.set_capacity(self.capacity);
            }
            Action::FillUp => {
                self.media.fill_up();
                self.capacity = Some(self.media.occupied_bytes());
            }
            Action::SpaceBack => self.give_space(),
            Action::PowerCut { after, again, page_grain, garbage } => {
                let grain = if *page_grain { 4096 } else { 512 };
                self.cut = Cut { style: CutStyle { grain, garbage: *garbage }, again: *again };
                self.media.cut_power_after(*after);
            }
            Action::Kill => {
                self.tally.count("kills", 1);
                let in_checkpoint = u64::from(self.gateway().store.is_mid_fold());
                self.tally.count("kills during a checkpoint", in_checkpoint);
                let left = Arc::new(self.media.after_kill());
                self.end_process()?;
                self.media = left;
                let again = u32::from(self.random.chance(3));
                return self.start(again);
            }
            Action::Restart => return self.restart(),
            Action::Configure { hold_millis } => {
                self.setting.hold_millis = *hold_millis;
                return self.restart();
            }
            _ => {}
        }
        Ok(())
    }

    /// An orderly end and a new start.
    pub(super) fn restart(&mut self) -> Verdict {
        self.tally.count("restarts", 1);
        let now = self.gateway().now();
        self.gateway().hub.shutdown(now);
        for _ in 0..4 {
            if self.gateway.is_none() || self.round(Pace::Swift)? {
                return Ok(());
            }
        }
        let Some(mut gateway) = self.gateway.take() else { return Ok(()) };
        gateway.submit();
        self.count_process(&gateway);
        let closed = gateway.store.close();
        for client in &mut self.clients {
            client.read(&mut self.ledger, now)?;
            client.lose(&mut self.ledger);
        }
        for number in 0..WORKERS {
            self.read_worker(number)?;
            self.workers[number].lose(&mut self.book, &mut self.ledger)?;
        }
        self.settle_deals()?;
        self.orphans.clear();
        if self.media.is_off() {
            self.tally.count("power cuts", 1);
            self.lose_power();
            return self.start(self.cut.again);
        }
        if let Err(error) = &closed {
            if !self.media.has_failed_once() {
                return Err(format!("the store does not close: {error}"));
            }
            self.tally.count("disk failures", 1);
            self.lose_power();
            return self.start(0);
        }
        if closed.is_ok_and(|whole| whole) {
            let cancelled = self.clients.iter_mut().flat_map(|client| std::mem::take(&mut client.cancelled));
            cancelled.for_each(|n| self.ledger.will_is_cancelled(n));
        }
        self.media = Arc::new(self.media.after_kill());
        self.start(0)
    }
}
