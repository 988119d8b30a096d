//! What a commit costs the disk, beside a preallocated file that is appended to and SQLite.
//!
//! Bytes are those that the system wrote for the process (`/proc/<pid>/io`); when the temporary folder is on a device of its
//! own, the device's own count says the same with the file system's share.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::Gateway;
use crate::parameter;
use crate::wire::{Content, Order, Wire};

/// Topic and payload: 100 bytes.
const TOPIC: &str = "plant/1";
const PAYLOAD_BYTES: usize = 93;
const MESSAGE_BYTES: u64 = 100;
const GROUPS: [u64; 3] = [1, 10, 100];
const BLOCK_BYTES: u64 = 4096;
const STEADY_RATIO_MAX: f64 = 1.1;
const OUTAGE_RATIO_MAX: f64 = 1.6;
/// Beyond one block per commit an outage writes noise twice, to the ring and to its place; see `src/store/DURABILITY.md`.
const OUTAGE_NOISE_RATIO_MAX: f64 = 1.95;

/// What a number of commits has cost, per commit.
#[derive(Clone, Copy, Debug)]
struct Cost {
    process: f64,
    device: f64,
    syncs: f64,
    commits: u64,
}

impl Cost {
    fn print(&self, name: &str, group: u64) {
        let kib = |bytes: f64| bytes / 1024.0;
        println!(
            "{name:32} | {group:3} | {:8.2} | {:8.2} | {:6.3} | {}",
            kib(self.process),
            kib(self.device),
            self.syncs,
            self.commits
        );
    }
}

/// Bytes that the kernel wrote for a process.
fn written_by(process: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/io")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Bytes written to the device that holds `folder`, by whomever.
fn written_to_device(folder: &Path) -> u64 {
    let device = std::fs::metadata(folder).unwrap().dev();
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00);
    let text = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).unwrap_or_default();
    text.split_whitespace().nth(6).and_then(|sectors| sectors.parse::<u64>().ok()).unwrap_or(0) * 512
}

fn sum(causes: &Value) -> u64 {
    causes.as_object().map_or(0, |causes| causes.values().filter_map(Value::as_u64).sum())
}

/// Syncs and commits of the gateway so far, bytes of its process and of the device.
fn reading(gateway: &Gateway) -> [u64; 4] {
    let store = gateway.status()["store"].clone();
    let pid = gateway.pid().as_raw_nonzero().to_string();
    [
        sum(&store["syncs"]),
        store["commits"].as_u64().unwrap(),
        written_by(&pid),
        written_to_device(gateway.folder()),
    ]
}

/// Runs `commits` groups through a gateway.
fn gateway_cost(
    settings: &[&str],
    consumes: bool,
    content: Content,
    group: u64,
    commits: u64,
) -> (Cost, u64) {
    let gateway = Gateway::with(settings);
    let address = gateway.address();
    let mut consumer = Wire::open(address, "soak-consumer", false).unwrap();
    consumer.subscribe("plant/#").unwrap();
    let reader = if consumes {
        let total = (commits + 10) * group;
        Some(std::thread::spawn(move || consumer.take_in_order(total, &mut Order::default())))
    } else {
        consumer.close().unwrap();
        None
    };
    let mut publisher = Wire::open(address, "soak-publisher", true).unwrap();
    let mut first = 0;
    let mut publish = |count: u64| {
        for _ in 0..count {
            publisher.publish_group(TOPIC, first..first + group, PAYLOAD_BYTES, content).unwrap();
            first += group;
        }
    };
    publish(10);
    let before = reading(&gateway);
    publish(commits);
    let after = reading(&gateway);
    if let Some(reader) = reader {
        reader.join().unwrap().unwrap();
    }
    let [syncs, groups, process, device] = std::array::from_fn(|at| after[at] - before[at]);
    let each = |amount: u64| amount as f64 / commits as f64;
    (Cost { process: each(process), device: each(device), syncs: each(syncs), commits: groups }, syncs)
}

/// Appends groups to a file that is there as a whole already, each on a fresh block.
fn raw_cost(folder: &Path, group: u64, commits: u64) -> Cost {
    let length = (group * MESSAGE_BYTES) as usize;
    let step = (length as u64).next_multiple_of(BLOCK_BYTES);
    let file = File::create(folder.join("raw")).unwrap();
    for at in 0..commits {
        file.write_all_at(&vec![0; step as usize], at * step).unwrap();
    }
    file.sync_all().unwrap();
    let before = (written_by("self"), written_to_device(folder));
    let data = vec![7; length];
    for at in 0..commits {
        file.write_all_at(&data, at * step).unwrap();
        file.sync_data().unwrap();
    }
    let each = |amount: u64| amount as f64 / commits as f64;
    let process = each(written_by("self") - before.0);
    Cost { process, device: each(written_to_device(folder) - before.1), syncs: 1.0, commits }
}

const SQLITE: &str = "
import os, sqlite3, sys
path, group, commits = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
db = sqlite3.connect(path, isolation_level=None)
db.execute('pragma journal_mode=wal'); db.execute('pragma synchronous=full')
db.execute('create table q(seq integer primary key, topic text, body blob)')
def written():
    return int([l for l in open('/proc/self/io') if l.startswith('write_bytes')][0].split()[1])
def run(n):
    for _ in range(n):
        db.execute('begin')
        db.executemany('insert into q(topic, body) values(?, ?)', [('plant/1', os.urandom(93)) for _ in range(group)])
        db.execute('commit')
run(10)
before = written()
run(commits)
print(written() - before)
";

/// The same groups as transactions of SQLite, with a write-ahead log that is synced by each; `None` without Python.
fn sqlite_cost(folder: &Path, group: u64, commits: u64) -> Option<Cost> {
    let device = written_to_device(folder);
    let mut command = Command::new("python3");
    command.arg("-c").arg(SQLITE).arg(folder.join(format!("sqlite-{group}")));
    let output = command.arg(group.to_string()).arg(commits.to_string()).output().ok()?;
    let written: u64 = String::from_utf8(output.stdout).ok()?.trim().parse().ok()?;
    let each = |amount: u64| amount as f64 / commits as f64;
    let device = each(written_to_device(folder) - device);
    Some(Cost { process: each(written), device, syncs: f64::NAN, commits })
}

#[test]
fn a_commit_writes_hardly_more_than_what_it_holds() {
    let large: Option<u64> = parameter("TIDEGATE_SOAK_COMMITS");
    let commits = large.unwrap_or(100);
    let folder = tempfile::tempdir().unwrap();
    println!("KiB and syncs per commit         | msg | process  | device   | syncs  | commits");
    for group in GROUPS {
        let raw = raw_cost(folder.path(), group, commits);
        raw.print("preallocated append", group);
        let (steady, _) = gateway_cost(&[], true, Content::Noise, group, commits);
        steady.print("tidegate, passing through", group);
        let contents = [Content::Noise, Content::Mixed, Content::Readings];
        let outages = contents.map(|content| (content, gateway_cost(&[], false, content, group, commits).0));
        for (content, outage) in outages {
            outage.print(&format!("tidegate, outage, {content:?}").to_lowercase(), group);
        }
        let (held, syncs) = gateway_cost(&["durability.hold=5s"], true, Content::Noise, group, commits);
        held.print("tidegate, passing through, held", group);
        if let Some(sqlite) = sqlite_cost(folder.path(), group, commits) {
            sqlite.print("SQLite, WAL, FULL", group);
        }
        assert_eq!(syncs, 0, "what is settled while it is held is not written");
        if large.is_some() {
            let bound = |cost: Cost, ratio: f64| {
                assert!(cost.process <= ratio * raw.process, "{group}: {cost:?} against {raw:?}");
            };
            bound(steady, STEADY_RATIO_MAX);
            let full = group * MESSAGE_BYTES > BLOCK_BYTES;
            for (content, outage) in outages {
                let noise = full && content == Content::Noise;
                bound(outage, if noise { OUTAGE_NOISE_RATIO_MAX } else { OUTAGE_RATIO_MAX });
            }
        }
    }
}
