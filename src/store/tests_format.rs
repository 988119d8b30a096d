//! Files of every format that was ever written are opened by this program.
//!
//! `tests/data/store-v<N>.img` holds a file of format N: its length (u64), then each block that is not zero with its number
//! before it (u64), little-endian. `TIDEGATE_WRITE_SAMPLE=<path>` makes one of the current format.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::contract::*;
use super::layout::{FORMAT_VERSION, Superblock};
use super::media::RealFile;
use super::sim_media::{CutStyle, SimMedia};
use super::tests_support::*;
use super::{StoreOptions, recover};
use crate::message::{DeliveryOptions, Qos};

const BLOCK: usize = 4096;
const LARGE: usize = 61_000;
/// A queue of readings that are squeezed; there since format 3.
const READINGS: u32 = 4;
const READINGS_COUNT: u64 = 300;

fn small(path: &Path) -> StoreOptions {
    let mut options = options(path);
    options.ring_bytes = 128 << 10;
    options.queue_bytes_max = 0;
    options
}

fn data(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/store-v{version}.img"))
}

/// The file's content without its empty blocks.
fn shrink(content: &[u8]) -> Vec<u8> {
    let mut out = (content.len() as u64).to_le_bytes().to_vec();
    for (number, block) in (0u64..).zip(content.chunks(BLOCK)) {
        if block.iter().any(|byte| *byte != 0) {
            out.extend_from_slice(&number.to_le_bytes());
            out.extend_from_slice(block);
            out.resize(out.len() + BLOCK - block.len(), 0);
        }
    }
    out
}

fn grow(image: &[u8]) -> Vec<u8> {
    let number = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap()) as usize;
    let mut content = vec![0; number(0).next_multiple_of(BLOCK)];
    for at in (8..image.len()).step_by(BLOCK + 8) {
        let place = number(at) * BLOCK;
        content[place..place + BLOCK].copy_from_slice(&image[at + 8..at + 8 + BLOCK]);
    }
    content.truncate(number(0));
    content
}

fn fan_out(seq: Seq, len: usize) -> Op {
    let target = |queue| {
        let options = DeliveryOptions { qos: Qos::AtLeastOnce, ..DeliveryOptions::default() };
        Target { queue: QueueId(queue), seq, options }
    };
    Op::Enqueue { message: numbered(seq, len), targets: [1, 2, 3].into_iter().map(target).collect() }
}

/// A reading like most that an outage gathers: what one of them says is nearly what the one before it said.
fn reading(seq: Seq) -> Op {
    let text = format!("{{\"line\":3,\"temperature\":{},\"unit\":\"C\"}}", seq % 40);
    enqueue(READINGS, seq, message("plant/7/line/3/temperature", text.as_bytes()))
}

fn put(key: &[u8], value: &[u8]) -> Op {
    Op::Put { space: Space::Session, key: key.into(), value: value.into() }
}

fn len_of(seq: Seq) -> usize {
    if seq == 20 { LARGE } else { 700 }
}

fn size_of_message(seq: Seq) -> u64 {
    u64::from(numbered(seq, len_of(seq)).size())
}

/// Three queues with the same 60 messages, a third of them only in the ring; some are settled, queue 3 and one row are gone.
fn write_sample(path: &Path) {
    let mut run = Driver::open(small(path)).unwrap();
    run.commit((1..=3).map(|queue| Op::CreateQueue { queue: QueueId(queue) }).collect());
    for seq in 1..=40 {
        run.commit(vec![fan_out(seq, len_of(seq))]);
    }
    let bytes = (5..=9).map(size_of_message).sum();
    run.commit(vec![
        put(b"a", b"1"),
        put(b"b", b"2"),
        settle(1, 5, 5, bytes),
        settle(2, 20, 1, size_of_message(20)),
    ]);
    run.commit(vec![Op::CreateQueue { queue: QueueId(READINGS) }]);
    run.commit((1..=READINGS_COUNT).map(reading).collect());
    run.store.close().unwrap();
    let mut run = Driver::open(small(path)).unwrap();
    for seq in 41..=60 {
        run.commit(vec![fan_out(seq, len_of(seq))]);
    }
    run.commit(vec![
        put(b"a", b"3"),
        Op::Delete { space: Space::Session, key: (*b"b").into() },
        settle(1, 1, 1, size_of_message(1)),
        Op::DeleteQueue { queue: QueueId(3) },
    ]);
    drop(run);
}

fn check_sample(run: &mut Driver, version: u32) {
    assert_eq!(run.recovered.set_aside, None);
    let queues = if version < 3 { 2 } else { 3 };
    assert_eq!(run.recovered.next_queue, QueueId(2 + queues));
    assert_eq!(run.recovered.rows, vec![(Space::Session, (*b"a").into(), (*b"3").into())]);
    let settled = [vec![1, 5, 6, 7, 8, 9], vec![20]];
    for (queue, settled) in (1..).zip(settled) {
        let expected: Vec<_> = (1..=60).filter(|seq| !settled.contains(seq)).collect();
        let found = run.read_all(queue, 1);
        assert_eq!(found.iter().map(|entry| entry.seq).collect::<Vec<_>>(), expected);
        for entry in &found {
            assert_eq!(entry.message.payload(), numbered(entry.seq, len_of(entry.seq)).payload());
        }
        let state = run.recovered.queues.iter().find(|state| state.queue == QueueId(queue)).unwrap();
        assert_eq!((state.tail, state.messages), (61, expected.len() as u64));
        assert_eq!(state.bytes, expected.iter().map(|seq| size_of_message(*seq)).sum::<u64>());
    }
    assert_eq!(run.recovered.queues.len() as u32, queues);
    if version >= 3 {
        let found = run.read_all(READINGS, 1);
        assert_eq!(found.len() as u64, READINGS_COUNT);
        for entry in &found {
            let Op::Enqueue { message, .. } = reading(entry.seq) else {
                unreachable!("a reading is a message")
            };
            assert_eq!(
                (entry.message.topic(), entry.message.payload()),
                (message.topic(), message.payload())
            );
        }
    }
}

#[test]
fn a_sample_is_what_its_check_expects() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidegate.db");
    write_sample(&path);
    let image = shrink(&std::fs::read(&path).unwrap());
    std::fs::write(&path, grow(&image)).unwrap();
    check_sample(&mut Driver::open(small(&path)).unwrap(), FORMAT_VERSION);
    if let Ok(to) = std::env::var("TIDEGATE_WRITE_SAMPLE") {
        println!("{} bytes", image.len());
        std::fs::write(to, image).unwrap();
    }
}

#[test]
fn files_of_all_formats_are_opened_and_brought_up_to_date() {
    for version in 1..=FORMAT_VERSION {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tidegate.db");
        std::fs::write(&path, grow(&std::fs::read(data(version)).unwrap())).unwrap();
        assert_eq!(Superblock::read(&RealFile::open(&path).unwrap()).unwrap().version, version);
        let mut run = Driver::open(small(&path)).unwrap();
        check_sample(&mut run, version);
        // What the new format brings works with what the old one left.
        for seq in 61..=300 {
            run.submit(vec![two_queues(seq, 700)], seq % 10 == 0);
        }
        run.store.close().unwrap();
        assert_eq!(Superblock::read(&RealFile::open(&path).unwrap()).unwrap().version, FORMAT_VERSION);
        let mut run = Driver::open(small(&path)).unwrap();
        assert_eq!(run.read_all(1, 1).len(), 54 + 240);
        assert_eq!(run.read_all(2, 1).len(), 59 + 240);
    }
}

#[test]
fn an_upgrade_that_the_power_cuts_short_is_repeated_and_loses_nothing() {
    let mut random = Random(0x0b5e_55ed);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidegate.db");
    for version in 1..FORMAT_VERSION {
        let image = grow(&std::fs::read(data(version)).unwrap());
        let mut cuts = 0;
        for after in 1.. {
            let media = Arc::new(SimMedia::holding(image.clone()));
            media.cut_power_after(after);
            drop(recover::open(media.clone(), &small(&path).settings(), Arc::new(|| {})));
            if !media.is_off() {
                break;
            }
            for (grain, garbage) in [(512, false), (512, true), (4096, true)] {
                let left = media.after_power_cut(CutStyle { grain, garbage }, &mut || random.next());
                std::fs::write(&path, left.image()).unwrap();
                check_sample(&mut Driver::open(small(&path)).unwrap(), version);
                assert_eq!(
                    Superblock::read(&RealFile::open(&path).unwrap()).unwrap().version,
                    FORMAT_VERSION
                );
                cuts += 1;
            }
        }
        assert!(cuts >= 15, "from format {version} the power was cut {cuts} times");
    }
}

fn two_queues(seq: Seq, len: usize) -> Op {
    let mut op = fan_out(seq, len);
    if let Op::Enqueue { targets, .. } = &mut op {
        targets.truncate(2);
    }
    op
}
