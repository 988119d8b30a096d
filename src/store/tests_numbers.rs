//! The store's promises in numbers: order across the borders of sequence numbers, large bodies, names as row keys.
//!
//! `TIDEGATE_NUMBERS_MESSAGES` and `TIDEGATE_NUMBERS_BODIES` make the runs as large as wanted.

use super::contract::*;
use super::tests_support::*;

const MIB: usize = 1 << 20;
const PER_BATCH: u64 = 1000;

fn parameter(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

fn restart(run: Driver, path: &std::path::Path) -> Driver {
    drop(run);
    Driver::open(options(path)).unwrap()
}

/// Reads the queue from `first` on; everything from there to `end` is there once, in order.
fn assert_whole(run: &mut Driver, queue: u32, first: Seq, end: Seq) {
    let mut next = first;
    while next < end {
        let page = run.page(queue, next, 256 << 10);
        assert!(!page.entries.is_empty(), "queue {queue} ends at {next} instead of {end}");
        for entry in page.entries {
            assert_eq!(entry.seq, next);
            assert_eq!(entry.message.payload(), numbered(next, 32).payload());
            next += 1;
        }
        assert_eq!(page.next, next);
    }
}

#[test]
fn messages_are_in_exact_order_across_the_borders_of_16_and_32_bits() {
    let count = parameter("TIDEGATE_NUMBERS_MESSAGES", 20_000) / 2;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidegate.db");
    let mut run = Driver::open(options(&path)).unwrap();
    // Numbers that are left out count as settled, so that a queue may begin anywhere.
    let queues = [(1, (1u64 << 16).saturating_sub(count / 2).max(1)), (2, (1 << 32) - count / 2)];
    for (queue, first) in &queues {
        run.commit(vec![Op::CreateQueue { queue: QueueId(*queue) }]);
        let mut last = BatchId(0);
        for seq in (*first..first + count).step_by(PER_BATCH as usize) {
            let end = (seq + PER_BATCH).min(first + count);
            last = run.submit((seq..end).map(|n| enqueue(*queue, n, numbered(n, 32))).collect(), true);
            if seq % (20 * PER_BATCH) < PER_BATCH {
                run.wait_durable(last);
            }
        }
        run.wait_durable(last);
        assert_whole(&mut run, *queue, *first, first + count);
    }
    run = restart(run, &path);
    for ((queue, first), found) in queues.iter().zip(run.recovered.queues.clone()) {
        assert_eq!((found.head, found.tail, found.messages), (*first, first + count, count));
        assert_whole(&mut run, *queue, *first, first + count);
    }
}

/// Every other size: 1 MiB less one byte, exactly, and one more.
fn body(n: u64) -> crate::message::Message {
    let mut random = Random(n);
    let len = MIB - 1 + (n % 3) as usize;
    let payload: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).take(len).collect();
    message("plant/7/image", &payload)
}

#[test]
fn bodies_around_a_mebibyte_are_the_same_byte_for_byte_after_a_restart() {
    let count = parameter("TIDEGATE_NUMBERS_BODIES", 50);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidegate.db");
    let options = || super::StoreOptions { ring_bytes: 8 << 20, ..options(&path) };
    let mut run = Driver::open(options()).unwrap();
    run.commit(vec![Op::CreateQueue { queue: QueueId(1) }]);
    for n in 1..=count {
        run.commit(vec![enqueue(1, n, body(n))]);
    }
    drop(run);
    let mut run = Driver::open(options()).unwrap();
    let mut next = 1;
    while next <= count {
        let page = run.page(1, next, MIB as u32);
        assert!(!page.entries.is_empty(), "the queue ends at {next}");
        for entry in page.entries {
            assert_eq!(entry.seq, next);
            assert!(entry.message.payload() == body(next).payload(), "message {next} has changed");
            next += 1;
        }
    }
}

#[test]
fn hostile_names_are_different_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidegate.db");
    let long = vec![0xff; 65_535];
    let names: Vec<&[u8]> = vec![
        b"",
        b"/",
        b"//",
        b"/a",
        b"a/",
        b"a/b",
        b"a",
        b".",
        b"..",
        b"a.b",
        b"a::b",
        b"a:",
        b":",
        b"::",
        b"\0",
        b"\0\0",
        b"a\0",
        b"a\0b",
        b"\x01",
        b"\xff",
        b"\xff\xff",
        b"a\xff",
        b"\xfe",
        "😀".as_bytes(),
        "😀/".as_bytes(),
        "é".as_bytes(),
        "e\u{301}".as_bytes(),
        b"A",
        b"$share/g/a",
        b"$share/g",
        b"10",
        b"9",
        &long,
        &long[1..],
    ];
    let spaces = [Space::Session, Space::Retained, Space::Will, Space::Group, Space::Broker];
    let mut rows: Vec<Row> = Vec::new();
    for space in spaces {
        for name in &names {
            let value = format!("{space:?} {} {}", rows.len(), name.len());
            rows.push((space, (*name).into(), value.into_bytes().into()));
        }
    }
    let mut run = Driver::open(options(&path)).unwrap();
    for (space, key, value) in rows.clone() {
        run.commit(vec![Op::Put { space, key, value }]);
    }
    rows.sort();
    // From the ring, then from the tables.
    run = restart(run, &path);
    assert_eq!(run.recovered.rows, rows);
    run.store.close().unwrap();
    run = Driver::open(options(&path)).unwrap();
    assert_eq!(run.recovered.rows, rows);
    // One row goes at a time, and no other with it.
    while let Some((space, key, _)) = rows.pop() {
        run.commit(vec![Op::Delete { space, key }]);
        if rows.len().is_multiple_of(40) {
            run = restart(run, &path);
            assert_eq!(run.recovered.rows, rows);
        }
    }
}
