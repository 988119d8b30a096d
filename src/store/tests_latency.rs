//! A commit does not wait for the whole of a checkpoint that is being written to a slow card.
//!
//! The card writes one thing at a time: a commit's sync has to write whatever else is unsynced by then. So what a checkpoint leaves
//! unsynced must never be more than one step of its trickle.
//!
//! `TIDEGATE_CARD_KIB_PER_SECOND=4096 cargo test --release --lib store::tests_latency -- --nocapture` gives the card a speed and
//! measures how long commits take.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::StoreOptions;
use super::contract::*;
use super::media::{Media, RealFile};
use super::offset_backend::TRICKLE_BYTES;
use super::tests_support::*;
use crate::limits::Limits;

/// The largest page that redb writes at once for the store's rows.
const PAGE_BYTES_MAX: u64 = 128 << 10;

/// What the card needs for a sync beside writing.
const SYNC_TIME: Duration = Duration::from_millis(2);

const MIB: u64 = 1 << 20;

/// Between two commits, when the card has a speed.
const COMMIT_EVERY: Duration = Duration::from_millis(10);

/// A file on a card that writes at sync, one sync after the other.
#[derive(Debug)]
struct Card {
    file: RealFile,
    bytes_per_second: Option<u64>,
    /// Written by commits to the ring, and by everybody else.
    unsynced_ring: AtomicU64,
    unsynced_other: AtomicU64,
    /// The most that others had left unsynced.
    other_most: AtomicU64,
    longest_sync_micros: AtomicU64,
    busy: Mutex<()>,
}

impl Card {
    fn new(path: &std::path::Path, bytes_per_second: Option<u64>) -> Self {
        Self {
            file: RealFile::create(path).unwrap(),
            bytes_per_second,
            unsynced_ring: AtomicU64::new(0),
            unsynced_other: AtomicU64::new(0),
            other_most: AtomicU64::new(0),
            longest_sync_micros: AtomicU64::new(0),
            busy: Mutex::default(),
        }
    }
}

impl Media for Card {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let len = data.len() as u64;
        let other = self.unsynced_other.fetch_add(len, Ordering::SeqCst) + len;
        self.other_most.fetch_max(other, Ordering::SeqCst);
        self.file.write_at(offset, data)
    }

    fn append_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.unsynced_ring.fetch_add(data.len() as u64, Ordering::SeqCst);
        self.file.write_at(offset, data)
    }

    fn sync_data(&self) -> io::Result<()> {
        let begun = Instant::now();
        let _busy = self.busy.lock().unwrap();
        let ring = self.unsynced_ring.swap(0, Ordering::SeqCst);
        let other = self.unsynced_other.swap(0, Ordering::SeqCst);
        if let Some(rate) = self.bytes_per_second {
            std::thread::sleep(SYNC_TIME + Duration::from_secs_f64((ring + other) as f64 / rate as f64));
        }
        self.longest_sync_micros.fetch_max(begun.elapsed().as_micros() as u64, Ordering::SeqCst);
        Ok(())
    }

    /// Without a speed nothing is measured: a disk of memory would let the steps grow.
    fn longest_sync(&self) -> Option<Duration> {
        let longest = Duration::from_micros(self.longest_sync_micros.swap(0, Ordering::SeqCst));
        self.bytes_per_second.map(|_| longest)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.reserve(offset, len)
    }

    fn release(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.release(offset, len)
    }

    fn occupied(&self) -> io::Result<u64> {
        self.file.occupied()
    }

    fn free_space(&self) -> io::Result<u64> {
        self.file.free_space()
    }
}

fn noise(n: u64, len: usize) -> crate::message::Message {
    let mut random = Random(n);
    let payload: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).take(len).collect();
    message("plant/7/line/3/temperature", &payload)
}

/// Commits eight kilobytes at a time; how long each commit took.
fn commits(run: &mut Driver, first: Seq, count: u64, every: Option<Duration>) -> Vec<Duration> {
    let begun = Instant::now();
    let mut took = Vec::new();
    for n in 0..count {
        if let Some(every) = every {
            std::thread::sleep((every * n as u32).saturating_sub(begun.elapsed()));
        }
        let seq = first + 8 * n;
        let at = Instant::now();
        run.commit((seq..seq + 8).map(|seq| enqueue(1, seq, noise(seq, 1000))).collect());
        took.push(at.elapsed());
    }
    took
}

fn quantile(sorted: &[Duration], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3
}

fn report(what: &str, mut took: Vec<Duration>) -> f64 {
    took.sort();
    let [half, most, all] = [0.5, 0.99, 1.0].map(|share| quantile(&took, share));
    println!("{what}: commit in {half:.1} ms (median), {most:.1} ms (p99), {all:.1} ms (longest)");
    most
}

#[test]
fn a_commit_finds_no_more_than_one_step_of_a_checkpoint_unsynced() {
    let speed: Option<u64> =
        std::env::var("TIDEGATE_CARD_KIB_PER_SECOND").ok().map(|text| text.parse().expect("KiB per second"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidegate.db");
    let card = Arc::new(Card::new(&path, speed.map(|kib| kib << 10)));
    let options = StoreOptions::new(path, &Limits { disk_reserve_bytes: 0, ..Limits::default() });
    let mut run = Driver::open_on(card.clone(), options).unwrap();
    run.commit(vec![Op::CreateQueue { queue: QueueId(1) }]);
    let every = speed.map(|_| COMMIT_EVERY);
    // The ring's first megabyte needs no checkpoint yet.
    let quiet = commits(&mut run, 1, 100, every);
    let counters = |run: &Driver| {
        let counters = run.store.counters();
        [&counters.checkpoints, &counters.ring_waits, &counters.cold_bytes].map(|c| c.load(Ordering::Relaxed))
    };
    let before = counters(&run);
    card.other_most.store(0, Ordering::SeqCst);
    let busy = commits(&mut run, 801, 2000, every);
    let after = counters(&run);
    let [checkpoints, waits, bytes] = std::array::from_fn(|at| after[at] - before[at]);
    let most = card.other_most.load(Ordering::SeqCst);
    println!(
        "{checkpoints} checkpoints wrote {bytes} bytes, {waits} waits for the ring, at most {most} bytes unsynced"
    );
    assert!(checkpoints > 5 && bytes > 8 * MIB, "{checkpoints} checkpoints wrote {bytes} bytes");
    // While commits wait for room in the ring, no commit is held up by a checkpoint's haste.
    if waits == 0 {
        assert!(
            most <= TRICKLE_BYTES + PAGE_BYTES_MAX,
            "a commit may have had to write {most} bytes of others"
        );
    }
    if let Some(kib) = speed {
        assert_eq!(waits, 0, "the card is fast enough for this load");
        let quiet = report("without checkpoints", quiet);
        let busy = report("beside checkpoints", busy);
        let step = 2.0 * ((TRICKLE_BYTES >> 10) as f64 / kib as f64 * 1e3 + SYNC_TIME.as_secs_f64() * 1e3);
        assert!(
            busy <= quiet + step,
            "{busy} ms beside checkpoints, {quiet} without: more than {step} between"
        );
    }
}
