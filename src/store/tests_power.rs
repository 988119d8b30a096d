//! Power cuts: random work on a tiny ring, the power fails at a random operation (also during checkpoints and recovery), and
//! what comes back must equal what was acknowledged, or that plus the commit that was under way.
//!
//! `TIDEGATE_POWER_CUTS` sets the number of cuts per style, `TIDEGATE_SEED` the first seed.
//!
//! Each opening compares the store's counters and every message with a scan (`difference`), and one cut in ten at least falls
//! into a checkpoint or a recovery.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::checkpoint;
use super::cold_read::ColdReader;
use super::contract::*;
use super::error::StoreError;
use super::hot::Snapshot;
use super::loader;
use super::recover::{self, Opened, Settings};
use super::shared::Shared;
use super::sim_media::{CutStyle, SimMedia};
use super::tests_model::{Model, size};
use super::tests_support::{Random, numbered};
use super::writer::{Cause, Staged, Writer};

const SETTINGS: Settings = Settings {
    ring_bytes: 96 << 10,
    cache_bytes: 1 << 20,
    disk_bytes_max: None,
    disk_reserve_bytes: 0,
    queue_bytes_max: 0,
    pause: Duration::ZERO,
    salt: 0x5eed,
};

/// Writes and syncs of a recovery, about.
const RECOVERY_OPERATIONS: u64 = 8;

fn env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// What the writer's side works on; also from inside a checkpoint.
struct Side {
    writer: Writer,
    model: Model,
    acked: Model,
    in_flight: Option<Model>,
    random: Random,
    next_batch: u64,
    dead: bool,
    commits: u64,
}

impl Side {
    /// Commits a few random batches. Returns a checkpoint to run, if one is due.
    fn work(&mut self) -> Result<Option<Snapshot>, StoreError> {
        for _ in 0..=self.random.below(3) {
            let mut after = self.model.clone();
            self.next_batch += 1;
            let mut batch = after.random_batch(&mut self.random, self.next_batch);
            loop {
                match self.writer.stage(batch)? {
                    Staged::Taken => break,
                    Staged::FlushFirst(back) => {
                        batch = back;
                        self.flush()?;
                    }
                    // The batch never happened.
                    Staged::NoRoom(_, bytes) => return Ok(self.writer.start_checkpoint(Cause::Room(bytes))),
                }
            }
            self.model = after;
        }
        self.flush()?;
        let cause = if self.random.chance(200) { Cause::Close } else { Cause::Threshold };
        Ok(self.writer.start_checkpoint(cause))
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        self.in_flight = Some(self.model.clone());
        if self.writer.flush()?.is_some() {
            self.acked = self.model.clone();
            self.commits += 1;
        }
        self.in_flight = None;
        Ok(())
    }
}

struct World {
    media: Arc<SimMedia>,
    shared: Arc<Shared>,
    side: Arc<Mutex<Side>>,
    release_early: bool,
    /// The power has failed while a checkpoint was under way.
    cut_in_checkpoint: Cell<bool>,
}

impl World {
    fn open(media: Arc<SimMedia>, seed: u64, model: Model) -> Result<(Self, Recovered), StoreError> {
        let Opened { shared, writer, recovered } = recover::open(media.clone(), &SETTINGS, Arc::new(|| {}))?;
        let side = Side {
            writer,
            acked: model.clone(),
            model,
            in_flight: None,
            random: Random(seed),
            next_batch: 0,
            dead: false,
            commits: 0,
        };
        let side = Arc::new(Mutex::new(side));
        let cut_in_checkpoint = Cell::new(false);
        Ok((Self { media, shared, side, release_early: false, cut_in_checkpoint }, recovered))
    }

    /// Works until the power fails.
    fn run(&self) {
        // The bound is far beyond the fuel: reaching it means that the writer is stuck.
        for turn in 0.. {
            if self.media.is_off() {
                return;
            }
            assert!(turn < 100_000, "the writer is stuck");
            let due = self.side.lock().unwrap().work();
            let result = match due {
                Ok(Some(snapshot)) => self.checkpoint(snapshot),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = result {
                assert!(self.media.is_off(), "only the power may fail: {error}");
            }
        }
    }

    /// Runs a checkpoint; commits go on in between its writes.
    fn checkpoint(&self, snapshot: Snapshot) -> Result<(), StoreError> {
        let side = self.side.clone();
        let interlude = move || {
            let mut side = side.lock().unwrap();
            if !side.dead && side.random.chance(2) {
                // A checkpoint is under way, so none is due; an error means that the power is off.
                side.dead = side.work().is_err();
            }
        };
        let point = snapshot.point;
        if self.release_early {
            self.side.lock().unwrap().writer.release_early(point);
        }
        self.media.set_interlude(self.shared.cold.region().base(), Some(Arc::new(interlude)));
        let outcome = checkpoint::run(&self.shared, snapshot);
        self.media.set_interlude(0, None);
        self.cut_in_checkpoint.set(self.media.is_off());
        self.side.lock().unwrap().writer.end_checkpoint(outcome?);
        Ok(())
    }
}

/// The first difference between the store and the model, bodies included.
fn difference(world: &World, recovered: &Recovered, model: &Model) -> Option<String> {
    if let Some(text) = model.difference(recovered) {
        return Some(text);
    }
    match super::verify::verify(&world.shared.cold) {
        Ok(found) if found.problem_count > 0 => return Some(format!("{:?}", found.problems)),
        Ok(_) => {}
        Err(error) => return Some(error.to_string()),
    }
    let mut reader = ColdReader::default();
    for (id, queue) in &model.queues {
        let mut found = vec![];
        let mut from = 1;
        loop {
            let request = PageRequest { queue: QueueId(*id), from, bytes_max: 3000, messages_max: 20 };
            let page = match loader::serve(&world.shared, &mut reader, &request) {
                Ok(page) => page,
                Err(error) => return Some(error.to_string()),
            };
            if page.entries.is_empty() {
                break;
            }
            from = page.next;
            found.extend(page.entries);
        }
        let seqs: Vec<_> = found.iter().map(|entry| entry.seq).collect();
        let expected: Vec<_> = queue.live.keys().copied().collect();
        if seqs != expected {
            return Some(format!("queue {id}: expected {expected:?}, found {seqs:?}"));
        }
        for entry in &found {
            let (n, len) = queue.live[&entry.seq];
            let good = entry.message.payload() == numbered(n, len).payload();
            if !good || u64::from(entry.message.size()) != size(&(n, len)) {
                return Some(format!("queue {id}: message {} has another body", entry.seq));
            }
        }
    }
    None
}

#[derive(Default)]
struct Control {
    release_early: bool,
    lie_every: Option<u64>,
}

#[derive(Debug, Default)]
struct Tally {
    cuts: u64,
    cuts_in_checkpoint: u64,
    cuts_in_recovery: u64,
    bad: u64,
    commits: u64,
    checkpoints: u64,
}

impl Control {
    fn is_on(&self) -> bool {
        self.release_early || self.lie_every.is_some()
    }
}

/// One store that lives through many power cuts. With a control, differences are counted and the store starts afresh.
struct Torture<'a> {
    seed: u64,
    random: Random,
    style: CutStyle,
    control: &'a Control,
    fresh: Vec<u8>,
    media: Arc<SimMedia>,
    /// What may be found after the next opening.
    expected: Vec<Model>,
    tally: Tally,
}

impl Torture<'_> {
    fn cut(&mut self) {
        let random = &mut self.random;
        self.media = Arc::new(self.media.after_power_cut(self.style, &mut || random.next()));
    }

    fn found_bad(&mut self, what: &str) {
        assert!(self.control.is_on(), "seed {}, cut {}: {what}", self.seed, self.tally.cuts);
        self.tally.bad += 1;
        self.tally.cuts += 1;
        self.media = Arc::new(SimMedia::holding(self.fresh.clone()));
        self.expected = vec![Model::new()];
    }

    /// Opens the store, compares it, works until the power fails.
    fn round(&mut self) {
        if self.random.chance(2) {
            self.media.cut_power_after(1 + self.random.below(RECOVERY_OPERATIONS));
        }
        let opened = World::open(self.media.clone(), self.random.next(), Model::new());
        let compared = opened.map(|(world, recovered)| {
            let all: Vec<_> = self.expected.iter().map(|m| difference(&world, &recovered, m)).collect();
            (world, all)
        });
        if self.media.is_off() {
            self.tally.cuts += 1;
            self.tally.cuts_in_recovery += 1;
            return self.cut();
        }
        match compared {
            Err(error) => self.found_bad(&error.to_string()),
            Ok((world, differences)) => match differences.iter().position(Option::is_none) {
                Some(at) => {
                    let model = self.expected.swap_remove(at);
                    self.work(world, &model);
                }
                None => {
                    drop(world);
                    self.found_bad(&format!("{differences:#?}"));
                }
            },
        }
    }

    fn work(&mut self, mut world: World, model: &Model) {
        {
            let mut side = world.side.lock().unwrap();
            (side.model, side.acked) = (model.clone(), model.clone());
        }
        world.release_early = self.control.release_early;
        if let Some(n) = self.control.lie_every {
            self.media.lie_every(n);
        }
        let most = if self.random.chance(3) { 1500 } else { 120 };
        self.media.cut_power_after(1 + self.random.below(most));
        world.run();
        self.tally.cuts += 1;
        self.tally.cuts_in_checkpoint += u64::from(world.cut_in_checkpoint.get());
        let side = world.side.lock().unwrap();
        self.tally.commits += side.commits;
        self.tally.checkpoints += world.shared.counters.checkpoints.load(Ordering::Relaxed);
        self.expected = std::iter::once(side.acked.clone()).chain(side.in_flight.clone()).collect();
        drop(side);
        self.cut();
    }
}

fn torture(seed: u64, cuts: u64, style: CutStyle, control: &Control) -> Tally {
    let media: Arc<dyn super::Media> = Arc::new(SimMedia::default());
    recover::create(&media, &SETTINGS).unwrap();
    let mut fresh = vec![0; media.size().unwrap() as usize];
    media.read_at(0, &mut fresh).unwrap();
    let mut torture = Torture {
        seed,
        random: Random(seed),
        style,
        control,
        media: Arc::new(SimMedia::holding(fresh.clone())),
        fresh,
        expected: vec![Model::new()],
        tally: Tally::default(),
    };
    while torture.tally.cuts < cuts {
        torture.round();
    }
    torture.tally
}

fn torture_in(grain: u64, garbage: bool, salt: u64) {
    let (seed, cuts) = (env("TIDEGATE_SEED", 1) ^ salt, env("TIDEGATE_POWER_CUTS", 150));
    println!("seed {seed}");
    let tally = torture(seed, cuts, CutStyle { grain, garbage }, &Control::default());
    println!("{tally:?}");
    assert_eq!(tally.bad, 0);
    assert!(tally.checkpoints > cuts / 4 && tally.commits > cuts, "{tally:?}");
    assert!(tally.cuts_in_checkpoint * 10 > cuts && tally.cuts_in_recovery * 10 > cuts, "{tally:?}");
}

#[test]
fn nothing_is_lost_or_comes_back_when_sectors_are_written_or_not() {
    torture_in(512, false, 0);
}

#[test]
fn nothing_is_lost_or_comes_back_when_pages_are_written_or_not() {
    torture_in(4096, false, 0x100);
}

#[test]
fn nothing_is_lost_or_comes_back_when_pages_being_written_become_garbage() {
    torture_in(4096, true, 0x200);
}

#[test]
fn the_torture_notices_syncs_that_do_nothing() {
    let control = Control { lie_every: Some(3), ..Control::default() };
    let tally = torture(7, 100, CutStyle { grain: 4096, garbage: false }, &control);
    println!("{tally:?}");
    assert!(tally.bad > 0);
}

#[test]
fn the_torture_notices_ring_space_that_is_used_again_before_the_checkpoint_is_durable() {
    let control = Control { release_early: true, ..Control::default() };
    let tally = torture(8, 100, CutStyle { grain: 4096, garbage: false }, &control);
    println!("{tally:?}");
    assert!(tally.bad > 0);
}
