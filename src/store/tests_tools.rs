//! Operators' requests on an open store.

use super::contract::*;
use super::layout::Superblock;
use super::media::RealFile;
use super::tests_support::*;

const LEN: usize = 500;

/// What pages that are not full, the tables' inner nodes and redb's own records add to live bytes: a half, and a fixed part.
const SLACK_BYTES: u64 = 1 << 20;

/// The length that compaction leaves at most of a file with so many bytes of unsettled messages.
fn most_after_compaction(layout: &Superblock, live_bytes: u64) -> u64 {
    layout.cold_at() + live_bytes + live_bytes / 2 + SLACK_BYTES
}

fn fill(run: &mut Driver, total: u64) {
    run.commit((1..=3).map(|queue| Op::CreateQueue { queue: QueueId(queue) }).collect());
    for seq in 1..=total {
        let mut op = enqueue(1, seq, numbered(seq, LEN));
        if let Op::Enqueue { targets, .. } = &mut op {
            let more = [2, 3].map(|queue| Target { queue: QueueId(queue), ..targets[0].clone() });
            targets.extend(more);
        }
        run.submit(vec![op], seq % 100 == 0);
    }
    let size = u64::from(numbered(1, LEN).size());
    run.commit(vec![
        settle(1, 1, 10, 10 * size),
        Op::Put { space: Space::Will, key: (*b"k").into(), value: (*b"v").into() },
    ]);
}

#[test]
fn a_backup_of_a_store_in_use_holds_everything_acknowledged_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let (path, backup) = (folder.path().join("tidegate.db"), folder.path().join("copy/backup.db"));
    let mut run = Driver::open(options(&path)).unwrap();
    fill(&mut run, 6000);
    let tools = run.store.tools();
    let (tools_thread, to) = (tools.clone(), backup.clone());
    let copying = std::thread::spawn(move || tools_thread.backup(&to));
    // The store goes on meanwhile.
    for seq in 6001..=6200 {
        run.commit(vec![enqueue(1, seq, numbered(seq, LEN))]);
    }
    assert!(copying.join().unwrap().unwrap() > 3_000_000);
    assert!(tools.backup(&backup).is_err(), "nothing is overwritten");
    assert_eq!(run.read_all(2, 1).len(), 6000);
    let mut copy = Driver::open(options(&backup)).unwrap();
    assert_eq!(copy.recovered.set_aside, None);
    assert_eq!(copy.recovered.rows.len(), 1);
    assert!(copy.read_all(1, 1).len() >= 5990);
    for queue in [2, 3] {
        let entries = copy.read_all(queue, 1);
        assert_eq!(entries.len(), 6000);
        assert!(entries.iter().zip(1..).all(|(e, seq)| e.message.payload() == numbered(seq, LEN).payload()));
    }
    // It is a store like any other.
    let tail = copy.recovered.queues[1].tail;
    copy.commit(vec![enqueue(2, tail, numbered(tail, LEN))]);
    drop(copy);
    let mut copy = Driver::open(options(&backup)).unwrap();
    assert_eq!(copy.read_all(2, 1).len(), 6001);
    assert_eq!(copy.store.tools().verify().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_check_counts_what_is_there_and_names_what_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidegate.db");
    let mut run = Driver::open(options(&path)).unwrap();
    fill(&mut run, 3000);
    run.store.close().unwrap();
    let run = Driver::open(options(&path)).unwrap();
    let found = run.store.tools().verify().unwrap();
    assert_eq!((found.queues, found.messages, found.rows), (3, 3 * 3000 - 10, 1));
    assert!(found.packs > 10 && found.problems.is_empty(), "{found:?}");
    run.store.tools().lose_something().unwrap();
    let found = run.store.tools().verify().unwrap();
    assert!(found.problem_count >= 2, "{found:?}");
}

#[test]
fn compaction_on_request_gives_space_back_while_the_store_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidegate.db");
    let mut run = Driver::open(options(&path)).unwrap();
    fill(&mut run, 40_000);
    let size = u64::from(numbered(1, LEN).size());
    run.commit(vec![
        settle(1, 11, 29_990, 29_990 * size),
        settle(2, 1, 30_000, 30_000 * size),
        settle(3, 1, 30_000, 30_000 * size),
    ]);
    run.store.close().unwrap();
    let layout = Superblock::read(&RealFile::open(&path).unwrap()).unwrap();
    let mut run = Driver::open(options(&path)).unwrap();
    let (before, after) = run.store.tools().compact().unwrap();
    // How far the file had grown depends on how the checkpoints fell; what is left of it does not.
    let bound = most_after_compaction(&layout, (10_010 + 2 * 10_000) * size);
    assert!(after < before && after <= bound, "{before} -> {after}, at most {bound}");
    assert_eq!(run.read_all(3, 1).len(), 10_000);
    assert_eq!(run.store.tools().verify().unwrap().problems, Vec::<String>::new());
}
