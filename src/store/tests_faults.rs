//! Full disks and failing ones, on a simulated medium, with the store's threads.

use std::sync::Arc;

use super::contract::*;
use super::sim_media::SimMedia;
use super::tests_support::*;
use super::{Media, StoreOptions};

const RING: u64 = 256 << 10;

fn small() -> StoreOptions {
    let mut options = options(std::path::Path::new("simulated"));
    options.ring_bytes = RING;
    options.queue_bytes_max = 128 << 10;
    options
}

fn open(media: &Arc<SimMedia>, options: StoreOptions) -> Driver {
    Driver::open_on(media.clone(), options).unwrap()
}

/// Enqueues one message at a time until the store says that it is full; returns how many.
fn fill(run: &mut Driver, first: Seq, most: u64) -> u64 {
    for n in 0..most {
        let id = run.submit(vec![enqueue(1, first + n, noise(first + n, 1000))], true);
        run.wait_durable(id);
        if run.seen_capacity() == Some(Capacity::Full) {
            return n + 1;
        }
    }
    most
}

fn message_bytes() -> u64 {
    u64::from(noise(1, 1000).size())
}

#[test]
fn a_full_disk_keeps_everything_acknowledged_and_a_drain_makes_room_again() {
    let media = Arc::new(SimMedia::default());
    let mut run = open(&media, small());
    run.commit(vec![Op::CreateQueue { queue: QueueId(1) }]);
    media.set_capacity(Some(media.size().unwrap() + (4 << 20)));
    let stored = fill(&mut run, 1, 20_000);
    assert!(stored > 500 && stored < 20_000, "{stored}");
    // What was under way when the broker heard of it still comes in.
    let late: u64 = 64;
    for seq in stored + 1..=stored + late {
        run.commit(vec![enqueue(1, seq, noise(seq, 1000))]);
    }
    let total = stored + late;
    drop(run);
    let mut run = open(&media, small());
    let all = run.read_all(1, 1);
    assert_eq!(all.len() as u64, total);
    for (entry, seq) in all.iter().zip(1..) {
        assert_eq!((entry.seq, entry.message.payload()), (seq, noise(seq, 1000).payload()));
    }
    // One acknowledgement per commit: far more than the ring has blocks.
    for seq in 1..=total - 10 {
        run.commit(vec![settle(1, seq, 1, message_bytes())]);
    }
    while run.seen_capacity() == Some(Capacity::Full) {
        run.wait_for_capacity();
    }
    let more = fill(&mut run, total + 1, 200);
    assert_eq!(more, 200);
    let seqs: Vec<_> = run.read_all(1, 1).iter().map(|e| e.seq).collect();
    assert_eq!(seqs, (total - 9..=total + 200).collect::<Vec<_>>());
    run.store.close().unwrap();
}

#[test]
fn a_disk_that_is_full_without_warning_stops_messages_but_loses_none() {
    let media = Arc::new(SimMedia::default());
    let mut run = open(&media, small());
    run.commit(vec![Op::CreateQueue { queue: QueueId(1) }]);
    let stored = fill(&mut run, 1, 600);
    // Not even what was reserved can be written any more: redb meets the end itself.
    media.fill_up();
    let mut last = BatchId(0);
    for seq in stored + 1..=stored + 400 {
        last = run.submit(vec![enqueue(1, seq, noise(seq, 1000))], true);
    }
    while run.seen_capacity() != Some(Capacity::Full) {
        run.wait_for_capacity();
    }
    media.set_capacity(None);
    run.wait_durable(last);
    assert_eq!(run.read_all(1, 1).len() as u64, stored + 400);
    run.store.close().unwrap();
    let mut run = open(&media, small());
    assert_eq!(run.read_all(1, 1).len() as u64, stored + 400);
}

#[test]
fn the_configured_size_of_the_file_is_a_full_disk_too() {
    let media = Arc::new(SimMedia::default());
    let mut options = small();
    options.disk_bytes_max = Some(6 << 20);
    let mut run = open(&media, options);
    run.commit(vec![Op::CreateQueue { queue: QueueId(1) }]);
    media.set_capacity(Some(64 << 20));
    let stored = fill(&mut run, 1, 20_000);
    assert!(stored > 500 && stored < 6000, "{stored}");
    assert!(media.occupied().unwrap() <= 6 << 20);
}

#[test]
fn after_a_failed_sync_no_receipt_leaves_and_what_had_one_is_recovered() {
    let media = Arc::new(SimMedia::default());
    let mut run = open(&media, small());
    run.commit(vec![Op::CreateQueue { queue: QueueId(1) }, enqueue(1, 1, noise(1, 10))]);
    media.fail_sync(1);
    run.submit(vec![enqueue(1, 2, noise(2, 10))], true);
    run.submit(vec![enqueue(1, 3, noise(3, 10))], true);
    let durable = run.durable;
    assert!(run.wait_failed().contains("the medium failed"));
    assert_eq!(run.durable, durable);
    assert!(run.store.close().is_err());
    let run = open(&media, small());
    assert!(run.recovered.queues[0].messages >= 1);
}

#[test]
fn space_returns_to_the_disk_after_a_drain() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidegate.db");
    let mut run = Driver::open(options(&path)).unwrap();
    run.commit(vec![Op::CreateQueue { queue: QueueId(1) }]);
    let total = 60_000;
    let mut last = BatchId(0);
    for first in (1..=total).step_by(100) {
        let ops = (first..first + 100).map(|seq| enqueue(1, seq, noise(seq, 1000))).collect();
        last = run.submit(ops, true);
    }
    run.wait_durable(last);
    run.store.close().unwrap();
    let full = std::fs::metadata(&path).unwrap().len();
    let mut run = Driver::open(options(&path)).unwrap();
    for first in (1..=total).step_by(10_000) {
        run.commit(vec![settle(1, first, 10_000, 10_000 * message_bytes())]);
    }
    run.store.close().unwrap();
    let run = Driver::open(options(&path)).unwrap();
    assert!(run.store.give_space_back_now().unwrap());
    let after = std::fs::metadata(&path).unwrap().len();
    assert!(full > 60 << 20 && after < 12 << 20, "{full} -> {after}");
    drop(run);
    assert_eq!(Driver::open(options(&path)).unwrap().recovered.queues[0].tail, total + 1);
}

/// A small ext4 on a loop device; unmounted when it goes away.
struct Loop {
    folder: tempfile::TempDir,
}

impl Loop {
    /// `None` where this process may not mount.
    fn mount(mebibytes: u64) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let (image, at) = (folder.path().join("disk.img"), folder.path().join("disk"));
        std::fs::create_dir(&at).unwrap();
        std::fs::File::create(&image).unwrap().set_len(mebibytes << 20).unwrap();
        let run = |program: &str, args: &[&std::ffi::OsStr]| {
            let status = std::process::Command::new(program)
                .args(args)
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null())
                .status();
            status.is_ok_and(|status| status.success())
        };
        let made = run("mkfs.ext4", &["-q".as_ref(), "-m0".as_ref(), image.as_ref()]);
        let mounted = made && run("mount", &["-o".as_ref(), "loop".as_ref(), image.as_ref(), at.as_ref()]);
        mounted.then_some(Self { folder })
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("disk")
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _busy = std::process::Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

#[test]
fn on_a_real_disk_that_is_completely_full_a_drain_goes_on_and_service_returns_by_itself() {
    let Some(disk) = Loop::mount(24) else {
        eprintln!(
            "SKIPPED: this process may not mount a loop device (it takes root, mkfs.ext4 and loop devices)"
        );
        return;
    };
    let path = disk.path().join("tidegate.db");
    let mut options = options(&path);
    options.queue_bytes_max = 1 << 20;
    let mut run = Driver::open(options.clone()).unwrap();
    run.commit(vec![Op::CreateQueue { queue: QueueId(1) }]);
    let stored = fill(&mut run, 1, 60_000);
    assert!(stored > 2000 && stored < 60_000, "{stored}");
    // Somebody else takes the last byte.
    let hog = disk.path().join("hog");
    let mut file = std::fs::File::create(&hog).unwrap();
    while std::io::Write::write_all(&mut file, &[1; 4096]).is_ok() {}
    drop(file);
    let mut seq = 1;
    while seq + 50 < stored / 2 {
        run.commit(vec![settle(1, seq, 50, 50 * message_bytes())]);
        seq += 50;
    }
    // One acknowledgement per commit, more of them than the ring has blocks.
    for _ in 0..600 {
        run.commit(vec![settle(1, seq, 1, message_bytes())]);
        seq += 1;
    }
    assert_eq!(run.page(1, seq, 1000).entries[0].seq, seq);
    std::fs::remove_file(hog).unwrap();
    while run.seen_capacity() == Some(Capacity::Full) {
        run.wait_for_capacity();
    }
    run.commit(vec![enqueue(1, stored + 1, noise(stored + 1, 1000))]);
    run.store.close().unwrap();
    let mut run = Driver::open(options).unwrap();
    let seqs: Vec<_> = run.read_all(1, 1).iter().map(|entry| entry.seq).collect();
    assert_eq!(seqs, (seq..=stored + 1).collect::<Vec<_>>());
    assert_eq!(run.store.tools().verify().unwrap().problems, Vec::<String>::new());
    run.store.close().unwrap();
}
