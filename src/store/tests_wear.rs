//! What an outage writes: nobody consumes, everything is moved to the cold tier sooner or later.
//!
//! `TIDEGATE_WEAR_MESSAGES=400000 cargo test --release --lib store::tests_wear -- --nocapture` prints a table of a longer run;
//! `TIDEGATE_WEAR_DIR` names a folder on the file system to be measured.

use std::path::PathBuf;

use super::StoreOptions;
use super::contract::*;
use super::tests_support::*;
use crate::limits::Limits;

/// Bytes that this process had the kernel write to the disk.
fn written_by_process() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|n| n.parse().unwrap())
}

struct Wear {
    ring: f64,
    cold: f64,
    header: f64,
    process: f64,
    syncs: f64,
    checkpoints: u64,
    pages: Vec<(&'static str, u64)>,
}

/// What a sensor says: text, of which little changes from one message to the next.
fn reading(n: u64, len: usize) -> crate::message::Message {
    let (line, value) = (n % 7, Random(n | 1).next() % 10_000);
    let mut text = format!(
        "{{\"line\":{line},\"time\":{},\"temperature\":{}.{:02},\"unit\":\"C\",\"status\":\"ok\"",
        1_700_000_000 + n,
        value / 100,
        value % 100
    );
    while text.len() + 1 < len {
        text.push_str(&format!(",\"s{}\":{}", text.len(), Random(n + text.len() as u64).next() % 1000));
    }
    text.truncate(len - 1);
    text.push('}');
    message(&format!("plant/7/line/{line}/temperature"), text.as_bytes())
}

type Sample = fn(u64, usize) -> crate::message::Message;

fn outage(folder: &std::path::Path, sample: Sample, len: usize, per_commit: u64, commits: u64) -> Wear {
    let path = folder.join(format!("wear-{len}-{per_commit}.db"));
    let mut options = StoreOptions::new(path.clone(), &Limits { disk_reserve_bytes: 0, ..Limits::default() });
    options.cache_bytes = env("TIDEGATE_WEAR_CACHE").unwrap_or(options.cache_bytes);
    let mut run = Driver::open(options).unwrap();
    run.commit(vec![Op::CreateQueue { queue: QueueId(1) }]);
    let counters = |run: &Driver| run.store.counters().all();
    let (before, io_before) = (counters(&run), written_by_process());
    let mut seq = 1;
    for _ in 0..commits {
        run.commit((seq..seq + per_commit).map(|n| enqueue(1, n, sample(n, len))).collect());
        seq += per_commit;
    }
    let (after, io_after) = (counters(&run), written_by_process());
    let delta: Vec<_> =
        before.iter().zip(&after).map(|((name, b), (_, a))| (*name, a.saturating_sub(*b))).collect();
    let of = |name: &str| delta.iter().find(|(n, _)| *n == name).unwrap().1;
    let each = |bytes: u64| bytes as f64 / (seq - 1) as f64;
    let wear = Wear {
        ring: each(of("ring_bytes")),
        cold: each(of("cold_bytes")),
        header: each(of("header_bytes")),
        process: each(io_after - io_before),
        syncs: (of("ring_syncs") + of("cold_syncs") + of("header_syncs")) as f64 / commits as f64,
        checkpoints: of("checkpoints"),
        pages: delta,
    };
    drop(run);
    std::fs::remove_file(path).unwrap();
    wear
}

#[test]
fn an_outage_writes_each_message_about_twice_and_each_commit_one_block_more() {
    let folder = tempfile::tempdir().unwrap();
    let folder = std::env::var("TIDEGATE_WEAR_DIR").map_or(folder.path().to_owned(), PathBuf::from);
    let messages = env("TIDEGATE_WEAR_MESSAGES").unwrap_or(20_000);
    println!(
        "payload | bytes per message: its bytes | per commit | ring | cold | header | sum | process | syncs per commit | checkpoints"
    );
    let samples: [(&str, Sample); 2] = [("noise", noise), ("readings", reading)];
    for (name, sample) in samples {
        for len in [100, 256, 1024] {
            for (per_commit, commits) in [(1, messages / 20), (10, messages / 40), (100, messages / 100)] {
                let w = outage(&folder, sample, len, per_commit, commits);
                let sum = w.ring + w.cold + w.header;
                let once = len as f64 + 50.0;
                // Noise is written twice, what can be squeezed once and a half.
                let times = if name == "noise" { 3.0 } else { 2.0 };
                let most = times * once + 2.0 * 4096.0 / per_commit as f64;
                assert!(sum < most, "{sum} bytes a message of {len} bytes, {per_commit} per commit, {name}");
                println!(
                    "{name:8} | {len:5} | {per_commit:4} | {:7.1} | {:7.1} | {:6.1} | {sum:7.1} | {:7.1} | {:6.3} | {}",
                    w.ring, w.cold, w.header, w.process, w.syncs, w.checkpoints
                );
                if std::env::var("TIDEGATE_WEAR_DETAILS").is_ok() {
                    println!("      {:?}", w.pages);
                }
            }
        }
    }
}
