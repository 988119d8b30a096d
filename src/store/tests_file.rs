//! The store on real files, with its threads.

use std::fs;

use super::contract::*;
use super::handle::{create_media, finish_creation};
use super::tests_support::*;
use super::{Media, RealFile, StoreError, StoreOptions};
use crate::message::{DeliveryOptions, Qos};

fn folder() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidegate.db");
    (folder, path)
}

/// Where redb begins, from the superblock.
fn cold_at(content: &[u8]) -> usize {
    let number = |at: usize| u64::from_le_bytes(content[at..at + 8].try_into().unwrap());
    usize::try_from(32768 + number(40) + number(48)).unwrap()
}

fn put(key: &[u8], value: &[u8]) -> Op {
    Op::Put { space: Space::Retained, key: key.into(), value: value.into() }
}

#[test]
fn what_was_committed_is_there_after_an_abandoned_and_after_a_closed_run() {
    let (_folder, path) = folder();
    let mut run = Driver::open(options(&path)).unwrap();
    assert_eq!(run.recovered.next_queue, QueueId(1));
    run.commit(vec![Op::CreateQueue { queue: QueueId(1) }, put(b"a", b"1"), put(b"b", b"1")]);
    let size = u64::from(noise(1, 100).size());
    for seq in 1..=100 {
        run.submit(vec![enqueue(1, seq, noise(seq, 100))], true);
    }
    run.commit(vec![
        settle(1, 1, 10, 10 * size),
        settle(1, 50, 1, size),
        Op::Delete { space: Space::Retained, key: (*b"b").into() },
        put(b"a", b"2"),
    ]);
    drop(run);
    for clean in [false, true, false] {
        let mut run = Driver::open(options(&path)).unwrap();
        let queue = RecoveredQueue { queue: QueueId(1), head: 11, tail: 101, messages: 89, bytes: 89 * size };
        assert_eq!(run.recovered.queues, vec![queue]);
        assert_eq!(run.recovered.rows, vec![(Space::Retained, (*b"a").into(), (*b"2").into())]);
        assert_eq!(run.recovered.next_queue, QueueId(2));
        assert!(run.recovered.newest_wall.0 >= 102);
        let seqs: Vec<_> = run.read_all(1, 1).iter().map(|e| e.seq).collect();
        let expected: Vec<_> = (11..=100).filter(|seq| *seq != 50).collect();
        assert_eq!(seqs, expected);
        if clean {
            run.store.close().unwrap();
        }
    }
}

#[test]
fn a_page_reflects_batches_submitted_before_though_they_are_not_durable_yet() {
    let (_folder, path) = folder();
    let mut run = Driver::open(options(&path)).unwrap();
    let size = u64::from(noise(1, 10).size());
    run.submit(vec![Op::CreateQueue { queue: QueueId(7) }], false);
    run.submit(vec![enqueue(7, 1, noise(1, 10)), enqueue(7, 2, noise(2, 10))], false);
    run.submit(vec![settle(7, 1, 1, size)], false);
    let page = run.page(7, 1, 1000);
    assert_eq!(page.entries.iter().map(|e| e.seq).collect::<Vec<_>>(), [2]);
    assert_eq!((page.from, page.next), (1, 3));
}

#[test]
fn a_batch_that_is_not_urgent_becomes_durable_after_the_linger_time() {
    let (_folder, path) = folder();
    let mut run = Driver::open(options(&path)).unwrap();
    let id = run.submit(vec![put(b"k", b"v")], false);
    run.wait_durable(id);
}

#[test]
fn a_batch_that_was_not_urgent_is_durable_at_once_when_somebody_waits_for_it_after_all() {
    let (_folder, path) = folder();
    let patient = StoreOptions { linger_millis: 3_600_000, ..options(&path) };
    let mut run = Driver::open(patient).unwrap();
    // Once while it is handed over, and once when it has been taken and lingers.
    for n in 0..20_u8 {
        let id = run.submit(vec![put(b"k", &[n])], false);
        if n % 2 == 1 {
            std::thread::yield_now();
        }
        run.store.hurry();
        run.wait_durable(id);
    }
}

#[test]
fn a_second_opener_is_refused_and_the_first_goes_on() {
    let (_folder, path) = folder();
    let mut run = Driver::open(options(&path)).unwrap();
    assert!(matches!(Driver::open(options(&path)), Err(StoreError::InUse { .. })));
    run.commit(vec![put(b"k", b"v")]);
    run.store.close().unwrap();
    assert_eq!(Driver::open(options(&path)).unwrap().recovered.rows.len(), 1);
}

#[test]
fn a_file_that_its_last_user_is_about_to_leave_is_waited_for() {
    let (_folder, path) = folder();
    let mut run = Driver::open(options(&path)).unwrap();
    run.commit(vec![put(b"k", b"v")]);
    let leaving = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        drop(run);
    });
    assert_eq!(Driver::open(options(&path)).unwrap().recovered.rows.len(), 1);
    leaving.join().unwrap();
}

#[test]
fn a_file_that_was_renamed_before_it_was_locked_does_not_count() {
    let (_folder, path) = folder();
    fs::write(&path, b"set aside").unwrap();
    let open = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    fs::rename(&path, path.with_extension("damaged-1")).unwrap();
    fs::write(&path, b"the new one").unwrap();
    assert!(matches!(RealFile::lock(open, &path), Err(StoreError::InUse { .. })));
    assert_eq!(RealFile::open(&path).unwrap().size().unwrap(), 11);
}

#[test]
fn of_two_that_start_with_a_damaged_file_one_sets_it_aside_and_the_other_is_refused() {
    for _ in 0..3 {
        let (folder, path) = folder();
        fs::write(&path, vec![0; 1 << 20]).unwrap();
        let both: Vec<_> = (0..2)
            .map(|_| {
                let path = path.clone();
                std::thread::spawn(move || Driver::open(options(&path)))
            })
            .collect();
        // Whoever wins keeps it open until both have tried.
        let both: Vec<_> = both.into_iter().map(|one| one.join().unwrap()).collect();
        assert_eq!(both.iter().filter(|one| one.is_ok()).count(), 1);
        let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names.len(), 2, "{names:?}");
        let mut winner = both.into_iter().find_map(Result::ok).unwrap();
        winner.commit(vec![put(b"k", b"v")]);
        winner.store.close().unwrap();
        assert_eq!(Driver::open(options(&path)).unwrap().recovered.rows.len(), 1);
    }
}

#[test]
fn a_file_that_somebody_else_has_made_meanwhile_is_not_replaced() {
    let (_folder, path) = folder();
    let (media, unfinished) = create_media(&path).unwrap();
    let mut run = Driver::open_on(media, options(&path)).unwrap();
    run.commit(vec![put(b"k", b"v")]);
    std::fs::write(&path, b"of another process").unwrap();
    assert!(finish_creation(&unfinished, &path).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"of another process");
}

#[test]
fn a_file_full_of_zeroes_is_set_aside_and_kept() {
    let (folder, path) = folder();
    Driver::open(options(&path)).unwrap().store.close().unwrap();
    let len = fs::metadata(&path).unwrap().len();
    for n in 1..=2 {
        fs::write(&path, vec![0; usize::try_from(len).unwrap()]).unwrap();
        let run = Driver::open(options(&path)).unwrap();
        let aside = folder.path().join(format!("tidegate.db.damaged-{n}"));
        assert_eq!(run.recovered.set_aside, Some(aside.clone()));
        assert_eq!(fs::metadata(aside).unwrap().len(), len);
    }
    fs::write(&path, b"").unwrap();
    assert!(Driver::open(options(&path)).unwrap().recovered.set_aside.is_some());
}

#[test]
fn a_file_whose_database_is_overwritten_is_set_aside() {
    let (_folder, path) = folder();
    let mut run = Driver::open(options(&path)).unwrap();
    run.commit(vec![put(b"k", b"v")]);
    run.store.close().unwrap();
    let mut content = fs::read(&path).unwrap();
    let base = cold_at(&content);
    content[base..].fill(0x5a);
    content[8192..32768].fill(0);
    fs::write(&path, content).unwrap();
    assert!(Driver::open(options(&path)).unwrap().recovered.set_aside.is_some());
}

#[test]
fn a_torn_first_page_of_the_database_is_restored_from_its_copy() {
    let (_folder, path) = folder();
    let mut run = Driver::open(options(&path)).unwrap();
    run.commit(vec![put(b"k", b"v")]);
    drop(run);
    let base = cold_at(&fs::read(&path).unwrap());
    let media = RealFile::open(&path).unwrap();
    media.write_at(base as u64, &[0x5a; 4096]).unwrap();
    drop(media);
    let run = Driver::open(options(&path)).unwrap();
    assert_eq!(run.recovered.set_aside, None);
    assert_eq!(run.recovered.rows.len(), 1);
}

#[test]
fn a_file_of_a_newer_format_is_refused_and_left_alone() {
    let (_folder, path) = folder();
    Driver::open(options(&path)).unwrap().store.close().unwrap();
    let mut content = fs::read(&path).unwrap();
    for at in [0, 4096] {
        content[at + 8] += 1;
        let crc = crc32c::crc32c(&content[at..at + 60]);
        content[at + 60..at + 64].copy_from_slice(&crc.to_le_bytes());
    }
    fs::write(&path, &content).unwrap();
    assert!(matches!(Driver::open(options(&path)), Err(StoreError::NewerFormat { .. })));
    assert!(fs::read(&path).unwrap() == content);
}

#[test]
fn two_hundred_thousand_messages_spill_and_drain_in_order() {
    let (_folder, path) = folder();
    let mut run = Driver::open(options(&path)).unwrap();
    run.commit(vec![Op::CreateQueue { queue: QueueId(1) }]);
    let total = 200_000;
    let mut last = BatchId(0);
    for first in (1..=total).step_by(500) {
        let ops = (first..first + 500).map(|seq| enqueue(1, seq, noise(seq, 100))).collect();
        last = run.submit(ops, true);
        if run.store.pending_memory() > 1 << 20 {
            run.wait_durable(last);
        }
    }
    run.wait_durable(last);
    drop(run);
    let mut run = Driver::open(options(&path)).unwrap();
    assert_eq!(run.recovered.queues[0].messages, total);
    let size = u64::from(noise(1, 100).size());
    let mut next = 1;
    while next <= total {
        let page = run.page(1, next, 256 << 10);
        assert!(!page.entries.is_empty());
        for entry in &page.entries {
            assert_eq!(entry.seq, next);
            assert_eq!(entry.message.payload()[..8], next.to_le_bytes());
            next += 1;
        }
        assert_eq!(page.next, next);
        let count = page.entries.len() as u64;
        last = run.submit(vec![settle(1, next - count, count, count * size)], false);
    }
    run.wait_durable(last);
    run.store.close().unwrap();
    let run = Driver::open(options(&path)).unwrap();
    let queue = &run.recovered.queues[0];
    assert_eq!((queue.head, queue.tail, queue.messages, queue.bytes), (total + 1, total + 1, 0, 0));
}

#[test]
fn pages_cross_the_border_between_the_tiers_and_skip_what_is_settled() {
    let (_folder, path) = folder();
    let mut run = Driver::open(options(&path)).unwrap();
    run.commit(vec![Op::CreateQueue { queue: QueueId(1) }]);
    let size = u64::from(noise(1, 500).size());
    // More than the ring holds, so that the first part is cold and the last part is hot.
    for seq in 1..=3000 {
        run.submit(vec![enqueue(1, seq, noise(seq, 500))], seq % 64 == 0);
    }
    let settled: Vec<_> = (1..=3000).filter(|seq| seq % 3 == 0).collect();
    for seq in &settled {
        run.submit(vec![settle(1, *seq, 1, size)], false);
    }
    let seqs: Vec<_> = run.read_all(1, 1).iter().map(|e| e.seq).collect();
    let expected: Vec<_> = (1..=3000).filter(|seq| seq % 3 != 0).collect();
    assert_eq!(seqs, expected);
    assert!(run.store.counters().all().contains(&("checkpoints_failed", 0)));
    let from_middle: Vec<_> = run.read_all(1, 1501).iter().map(|e| e.seq).collect();
    assert_eq!(from_middle, expected.iter().copied().filter(|seq| *seq >= 1501).collect::<Vec<_>>());
}

#[test]
fn large_messages_and_delivery_options_survive_the_cold_tier() {
    let (_folder, path) = folder();
    let mut big = options(&path);
    big.ring_bytes = 4 << 20;
    let mut run = Driver::open(big.clone()).unwrap();
    run.commit(vec![Op::CreateQueue { queue: QueueId(1) }]);
    let sizes = [10, 59_000, 61_000, 200_000, 500_000, 3];
    for (seq, len) in (1..).zip(sizes) {
        let options = DeliveryOptions {
            qos: Qos::ExactlyOnce,
            retain: seq % 2 == 0,
            subscription_ids: Some(vec![seq as u32].into()),
        };
        let target = Target { queue: QueueId(1), seq, options };
        run.commit(vec![Op::Enqueue { message: noise(seq, len), targets: [target].into_iter().collect() }]);
    }
    run.store.close().unwrap();
    let mut run = Driver::open(big).unwrap();
    let entries = run.read_all(1, 1);
    assert_eq!(entries.len(), sizes.len());
    for (entry, len) in entries.iter().zip(sizes) {
        assert_eq!(entry.message.payload(), noise(entry.seq, len).payload());
        assert_eq!(entry.options.retain, entry.seq % 2 == 0);
        assert_eq!(entry.options.subscription_ids.as_deref(), Some(&[entry.seq as u32][..]));
    }
    let bytes: u64 = entries.iter().map(|e| u64::from(e.message.size())).sum();
    run.commit(vec![settle(1, 1, 6, bytes)]);
    run.store.close().unwrap();
}

#[test]
fn a_deleted_queue_is_gone_with_its_messages_and_its_number_is_not_reused() {
    let (_folder, path) = folder();
    let mut run = Driver::open(options(&path)).unwrap();
    for queue in [1, 2] {
        run.commit(vec![Op::CreateQueue { queue: QueueId(queue) }]);
        for seq in 1..=2000 {
            run.submit(vec![enqueue(queue, seq, noise(seq, 700))], seq % 100 == 0);
        }
    }
    run.commit(vec![Op::DeleteQueue { queue: QueueId(2) }]);
    assert!(run.page(2, 1, 1000).entries.is_empty());
    run.store.close().unwrap();
    let mut run = Driver::open(options(&path)).unwrap();
    assert_eq!(run.recovered.queues.len(), 1);
    assert_eq!(run.recovered.next_queue, QueueId(3));
    assert!(run.page(2, 1, 1000).entries.is_empty());
    assert_eq!(run.read_all(1, 1).len(), 2000);
}

#[test]
fn a_lone_commit_is_one_block_and_one_sync_and_settled_messages_never_reach_the_database() {
    let (_folder, path) = folder();
    let mut run = Driver::open(options(&path)).unwrap();
    let size = u64::from(noise(1, 100).size());
    run.commit(vec![Op::CreateQueue { queue: QueueId(1) }]);
    for seq in 1..=1000 {
        let mut ops = vec![enqueue(1, seq, noise(seq, 100))];
        if seq > 5 {
            ops.push(settle(1, seq - 5, 1, size));
        }
        run.commit(ops);
    }
    let all = run.store.counters().all();
    let count = |name: &str| all.iter().find(|(n, _)| *n == name).unwrap().1;
    assert_eq!((count("commits"), count("ring_syncs"), count("ring_bytes")), (1001, 1001, 1001 * 4096));
    assert!(count("checkpoints") >= 4);
    assert_eq!(count("messages_folded"), 0);
    assert_eq!((count("messages_enqueued"), count("messages_settled")), (1000, 995));
}

#[test]
fn a_body_that_many_queues_want_is_stored_once_and_goes_with_the_last_of_them() {
    let (_folder, path) = folder();
    let mut big = options(&path);
    big.ring_bytes = 4 << 20;
    let mut run = Driver::open(big.clone()).unwrap();
    run.commit((1..=10).map(|queue| Op::CreateQueue { queue: QueueId(queue) }).collect());
    let len = |seq: Seq| if seq == 500 { 300_000 } else { 1000 };
    let size = |seq: Seq| u64::from(noise(seq, len(seq)).size());
    for seq in 1..=1000 {
        let options = DeliveryOptions { qos: Qos::AtLeastOnce, ..DeliveryOptions::default() };
        let targets = (1..=10).map(|queue| Target { queue: QueueId(queue), seq, options: options.clone() });
        let message = noise(seq, len(seq));
        run.submit(vec![Op::Enqueue { message, targets: targets.collect() }], seq % 50 == 0);
    }
    run.store.close().unwrap();
    let stored = |run: &Driver| {
        run.store.counters().all().into_iter().find(|(name, _)| *name == "cold_stored_bytes").unwrap().1
    };
    let mut run = Driver::open(big.clone()).unwrap();
    let bytes: u64 = (1..=1000).map(size).sum();
    assert!(stored(&run) < bytes + bytes / 5, "{} for {bytes}", stored(&run));
    for queue in 1..=10 {
        let entries = run.read_all(queue, 1);
        assert_eq!(entries.len(), 1000);
        for (entry, seq) in entries.iter().zip(1..) {
            assert_eq!((entry.seq, entry.message.payload()), (seq, noise(seq, len(seq)).payload()));
        }
    }
    // Nine are done in different ways; the bodies stay for the tenth.
    run.commit((1..=8).map(|queue| settle(queue, 1, 1000, bytes)).collect());
    run.commit(vec![Op::DeleteQueue { queue: QueueId(9) }]);
    run.store.close().unwrap();
    let mut run = Driver::open(big.clone()).unwrap();
    assert!(stored(&run) > bytes);
    assert_eq!(run.read_all(10, 1).len(), 1000);
    run.commit(vec![settle(10, 1, 1000, bytes)]);
    run.store.close().unwrap();
    let run = Driver::open(big).unwrap();
    assert!(stored(&run) < 1000, "{}", stored(&run));
}

#[test]
fn consumers_of_one_large_message_share_what_was_read_back() {
    let (_folder, path) = folder();
    let mut run = Driver::open(options(&path)).unwrap();
    let mut both = enqueue(1, 1, noise(1, 200_000));
    if let Op::Enqueue { targets, .. } = &mut both {
        targets.push(Target { queue: QueueId(2), seq: 1, options: DeliveryOptions::default() });
    }
    run.commit(vec![Op::CreateQueue { queue: QueueId(1) }, Op::CreateQueue { queue: QueueId(2) }, both]);
    run.store.close().unwrap();
    let mut run = Driver::open(options(&path)).unwrap();
    let mut payload = |queue| run.page(queue, 1, 1).entries[0].message.payload_shared();
    // An outbox keeps the payload alone.
    let (first, second) = (payload(1), payload(2));
    assert!(first == *noise(1, 200_000).payload());
    assert_eq!(first.as_ptr(), second.as_ptr());
    drop((first, second));
    assert!(payload(2) == *noise(1, 200_000).payload(), "it is read again when nobody has it any more");
}
