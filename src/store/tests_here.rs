//! Commits that the driver's thread makes itself, among those of the writer's thread.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::StoreOptions;
use super::contract::*;
use super::sim_media::{CutStyle, SimMedia};
use super::tests_support::*;

/// Commits after which any simulated disk has been quick for a while.
const COMMITS_MAX: u64 = 50_000;

fn small() -> StoreOptions {
    let mut options = options(Path::new("simulated"));
    options.ring_bytes = 256 << 10;
    options.queue_bytes_max = 128 << 10;
    options
}

/// An open store whose disk is quick, and the number of the next message of its queue 1, which is empty.
fn quick(media: &Arc<SimMedia>) -> (Driver, Seq) {
    let mut run = Driver::open_on(media.clone(), small()).unwrap();
    run.commit(vec![Op::CreateQueue { queue: QueueId(1) }]);
    let mut next = 1;
    while !run.store.is_quick() {
        assert!(next < COMMITS_MAX, "a disk without a head is quick");
        let message = noise(next, 10);
        let bytes = message.size().into();
        run.commit(vec![enqueue(1, next, message), settle(1, next, 1, bytes)]);
        next += 1;
    }
    (run, next)
}

fn commits_here(run: &Driver) -> u64 {
    run.store.counters().commits_here.load(Ordering::Relaxed)
}

#[test]
fn a_commit_made_here_is_durable_when_it_returns_and_takes_with_it_what_came_before() {
    let media = Arc::new(SimMedia::default());
    let (mut run, next) = quick(&media);
    let before = commits_here(&run);
    // Another process may keep this one from the processor for so long that the disk seems to stall.
    let mut seq = next;
    while commits_here(&run) == before {
        assert!(seq < COMMITS_MAX);
        run.submit(vec![enqueue(1, seq, noise(seq, 10))], false);
        let id = run.commit_here(vec![enqueue(1, seq + 1, noise(seq + 1, 10))], true);
        seq += 2;
        if commits_here(&run) > before {
            assert_eq!(run.receipt(), Some(id), "nobody was waited for");
        }
        run.wait_durable(id);
    }
    let mut random = Random(7);
    let after = media.after_power_cut(CutStyle { grain: 512, garbage: true }, &mut || random.next());
    drop(run);
    let mut run = Driver::open_on(Arc::new(after), small()).unwrap();
    let seqs: Vec<Seq> = run.read_all(1, 1).iter().map(|entry| entry.seq).collect();
    assert_eq!(seqs, (next..seq).collect::<Vec<_>>());
}

#[test]
fn commits_here_and_there_in_any_order_keep_the_order_and_lose_nothing() {
    let seed = std::time::UNIX_EPOCH.elapsed().map_or(1, |age| age.as_nanos() as u64);
    println!("TIDEGATE_SEED={seed}");
    let mut random = Random(seed);
    let media = Arc::new(SimMedia::default());
    let (mut run, mut next) = quick(&media);
    let mut oldest = next;
    let mut bytes = 0;
    for _ in 0..20_000 {
        let message = noise(next, random.below(600) as usize);
        bytes += u64::from(message.size());
        let mut ops = vec![enqueue(1, next, message)];
        next += 1;
        // Now and then everything is settled, else a backlog grows that the ring cannot hold.
        if random.chance(400) {
            ops.push(settle(1, oldest, next - oldest, std::mem::take(&mut bytes)));
            oldest = next;
        }
        match random.below(8) {
            0 => _ = run.submit(ops, true),
            1 => _ = run.submit(ops, false),
            _ => _ = run.commit_here(ops, !random.chance(20)),
        }
        if random.chance(50) {
            let page = run.page(1, oldest, 4096);
            assert_eq!(page.entries.first().map(|entry| entry.seq), (oldest < next).then_some(oldest));
        }
        if random.chance(20) {
            let last = run.submit(vec![], true);
            run.wait_durable(last);
        }
    }
    let last = run.commit_here(vec![], true);
    run.wait_durable(last);
    assert!(commits_here(&run) > 0);
    let expected: Vec<Seq> = (oldest..next).collect();
    let seqs = |run: &mut Driver| run.read_all(1, 1).iter().map(|entry| entry.seq).collect::<Vec<_>>();
    assert_eq!(seqs(&mut run), expected);
    drop(run);
    let mut run = Driver::open_on(media.clone(), small()).unwrap();
    assert_eq!(seqs(&mut run), expected);
    run.store.close().unwrap();
}

#[test]
fn what_a_commit_here_leaves_behind_becomes_durable_after_the_linger_time() {
    let media = Arc::new(SimMedia::default());
    let (mut run, next) = quick(&media);
    // Nobody waits: it is staged, and the writer's thread has to see to the rest.
    let id = run.commit_here(vec![enqueue(1, next, noise(next, 10))], false);
    run.wait_durable(id);
    run.store.close().unwrap();
}

#[test]
fn a_sync_that_fails_here_fails_the_store_and_gives_no_receipt() {
    let media = Arc::new(SimMedia::default());
    let (mut run, next) = quick(&media);
    media.fail_sync(1);
    let durable = run.durable;
    run.commit_here(vec![enqueue(1, next, noise(next, 10))], true);
    run.commit_here(vec![enqueue(1, next + 1, noise(next + 1, 10))], true);
    assert!(run.wait_failed().contains("the medium failed"));
    assert_eq!((run.durable, run.receipt()), (durable, None));
    assert!(run.store.close().is_err());
}
