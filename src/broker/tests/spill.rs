use super::queues::QUEUE;
use super::*;
use crate::store::contract::Space;

const OTHER: &str = "$queue/other";
const T: TransactionId = TransactionId(1);

/// So little memory that the second of these messages is spilled.
fn rig() -> Rig {
    let limits = Limits {
        transaction_bytes_max: 1024,
        transaction_disk_bytes_max: 1 << 20,
        transactions_disk_bytes_max: 1 << 20,
        ..Limits::default()
    };
    Rig::with(limits)
}

fn text(n: usize) -> String {
    format!("{n:04}{}", "x".repeat(500))
}

impl Rig {
    fn act_many(&mut self, conn: ConnId, count: usize) {
        (0..count).for_each(|n| self.act_publish(conn, T, QUEUE, &text(n)));
    }

    fn store_bytes_in_memory(&self) -> u64 {
        self.broker.transaction_bytes
    }
}

#[test]
fn what_does_not_fit_in_memory_waits_in_the_store_and_arrives_in_order_after_one_deciding_batch() {
    let mut rig = rig();
    let (worker, publisher) = (rig.worker("w"), rig.transient("p"));
    rig.put(publisher, &["in"]);
    let sent = rig.deliveries(worker);
    rig.begin(worker, T);
    rig.act(worker, T, TransactionAction::Settle(sent[0].id.unwrap()));
    rig.act_many(worker, 700);
    assert!(rig.store_bytes_in_memory() <= 2048);
    assert_eq!(rig.broker.spilled(), 1);
    assert_eq!(rig.queue(QUEUE).messages, 1);
    assert_eq!(rig.commit_transaction(worker, T), TransactOutcome::Done);
    assert_eq!(rig.drain(worker), (0..700).map(text).collect::<Vec<_>>());
    assert_eq!((rig.broker.spilled(), rig.store_bytes_in_memory()), (0, 0));
    assert_eq!(rig.store.applied.rows_of(Space::Moving), 0);
    assert_eq!(rig.queue(QUEUE).messages, 0);
}

#[test]
fn what_is_not_committed_leaves_nothing_in_the_store() {
    for end in 0..3 {
        let mut rig = rig();
        let publisher = rig.transient("p");
        rig.begin(publisher, T);
        rig.act_many(publisher, 10);
        assert_eq!(rig.broker.spilled(), 1);
        match end {
            0 => {
                let abort = ClientCommand::Abort { tag: ReplyTag(1), transaction: T };
                assert_eq!(rig.transact(publisher, abort), TransactOutcome::Done);
            }
            1 => rig.lose(publisher),
            _ => rig.kill_and_restart(1),
        }
        assert_eq!(rig.broker.spilled(), 0);
        assert_eq!(rig.store.applied.queues.len(), rig.broker.queues().filter(|q| q.id.is_some()).count());
        assert!(!rig.broker.queues().any(|queue| queue.messages > 0));
    }
}

#[test]
fn a_kill_at_any_point_of_a_commit_leaves_all_or_nothing_in_order() {
    for survives in 0..12 {
        let mut rig = rig();
        let publisher = rig.transient("p");
        rig.put(publisher, &["before"]);
        rig.begin(publisher, T);
        rig.act_many(publisher, 600);
        rig.auto = false;
        rig.send(publisher, ClientCommand::Commit { tag: ReplyTag(9), transaction: T });
        for _ in 0..survives {
            rig.commit(1);
            rig.turn();
            rig.serve_page();
            rig.turn();
        }
        rig.auto = true;
        rig.kill_and_restart(1);
        rig.run_timers();
        let worker = rig.worker("w");
        let mut expected = vec!["before".to_owned()];
        if survives > 0 {
            expected.extend((0..600).map(text));
        }
        assert_eq!(rig.drain(worker), expected, "after {survives} steps");
        assert_eq!(rig.broker.spilled(), 0);
    }
}

#[test]
fn the_answer_and_what_the_publisher_sends_next_come_after_the_last_message_that_moves() {
    let mut rig = rig();
    let (worker, publisher) = (rig.worker("w"), rig.transient("p"));
    rig.begin(publisher, T);
    rig.act_many(publisher, 600);
    rig.auto = false;
    rig.send(publisher, ClientCommand::Commit { tag: ReplyTag(9), transaction: T });
    assert!(rig.heard(publisher).is_empty());
    let message = rig.message(QUEUE, "next", Qos::AtLeastOnce, false);
    let command = ClientCommand::Publish(PublishRequest { tag: ReplyTag(2), message });
    let now = rig.now();
    let command = rig.broker.handle_or_wait(publisher, command, true, now).expect("it waits");
    let other = rig.transient("o");
    let before = rig.broker.room_made();
    rig.publish(other, OTHER, "others go on", Qos::AtLeastOnce, 1);
    rig.settle_store();
    assert_ne!(rig.broker.room_made(), before);
    assert!(matches!(
        rig.heard(publisher)[..],
        [ClientEvent::Transacted { outcome: TransactOutcome::Done, .. }]
    ));
    let now = rig.now();
    assert!(rig.broker.handle_or_wait(publisher, *command, true, now).is_none());
    rig.settle_store();
    let mut expected: Vec<_> = (0..600).map(text).collect();
    expected.push("next".into());
    rig.auto = true;
    assert_eq!(rig.drain(worker), expected);
}

#[test]
fn the_part_in_the_store_is_bounded_for_one_and_for_all() {
    let limits = Limits {
        transaction_bytes_max: 1024,
        transaction_disk_bytes_max: 4_000,
        transactions_disk_bytes_max: 6_000,
        ..Limits::default()
    };
    let mut rig = Rig::with(limits);
    let (a, b) = (rig.transient("a"), rig.transient("b"));
    let fill = |rig: &mut Rig, conn| {
        rig.begin(conn, T);
        let mut count = 0;
        loop {
            let message = rig.message(QUEUE, &text(0), Qos::AtLeastOnce, false);
            match rig.act(conn, T, TransactionAction::Publish(message)) {
                TransactOutcome::Done => count += 1,
                outcome => break (count, outcome),
            }
        }
    };
    let (one, outcome) = fill(&mut rig, a);
    assert_eq!(outcome, TransactOutcome::LimitExceeded);
    let (two, _) = fill(&mut rig, b);
    assert!((6..12).contains(&one) && two < one, "{one} {two}");
    assert_eq!(rig.commit_transaction(a, T), TransactOutcome::LimitExceeded, "a part was refused");
    rig.begin(a, T);
    for _ in 0..one {
        let message = rig.message(QUEUE, &text(0), Qos::AtLeastOnce, false);
        assert_eq!(rig.act(a, T, TransactionAction::Publish(message)), TransactOutcome::Done);
    }
    assert_eq!(rig.commit_transaction(a, T), TransactOutcome::Done);
    assert_eq!(rig.queue(QUEUE).messages, one);
    rig.goodbye(b);
    assert_eq!(rig.broker.spilled(), 0);
}

fn prepare() -> ClientCommand {
    ClientCommand::Prepare { tag: ReplyTag(1), transaction: T, xid: "x".into() }
}

fn decide(commit: bool) -> ClientCommand {
    ClientCommand::Decide { tag: ReplyTag(1), xid: "x".into(), commit }
}

#[test]
fn what_is_prepared_stays_in_the_store_across_restarts_and_arrives_in_order_when_it_is_committed() {
    for by_client in [true, false] {
        let mut rig = rig();
        let publisher = rig.transient("p");
        rig.begin(publisher, T);
        rig.act_many(publisher, 700);
        assert_eq!(rig.transact(publisher, prepare()), TransactOutcome::Done);
        rig.lose(publisher);
        for _ in 0..2 {
            let status = rig.broker.prepared_transactions().next().unwrap();
            assert_eq!(
                (status.publishes, rig.broker.spilled(), rig.store_bytes_in_memory() < 2048),
                (700, 1, true)
            );
            assert!(!rig.broker.queues().any(|queue| queue.messages > 0), "out of sight");
            rig.kill_and_restart(1);
        }
        let manager = rig.transient("m");
        if by_client {
            assert_eq!(rig.transact(manager, decide(true)), TransactOutcome::Done);
            assert_eq!(rig.queue(QUEUE).messages, 700, "the answer comes when everything is there");
        } else {
            assert_eq!(rig.broker.decide("x", true, rig.now()), TransactOutcome::Done);
            rig.turn();
        }
        let worker = rig.worker("w");
        assert_eq!(rig.drain(worker), (0..700).map(text).collect::<Vec<_>>());
        assert_eq!((rig.broker.spilled(), rig.store_bytes_in_memory()), (0, 0));
        let left = |space| rig.store.applied.rows_of(space);
        assert_eq!((left(Space::Prepared), left(Space::Moving)), (0, 0));
    }
}

#[test]
fn what_is_prepared_and_rolled_back_or_refused_leaves_nothing_in_the_store() {
    for restarts in [false, true] {
        let mut rig = rig();
        let publisher = rig.transient("p");
        rig.begin(publisher, T);
        rig.act_many(publisher, 10);
        assert_eq!(rig.transact(publisher, prepare()), TransactOutcome::Done);
        if restarts {
            rig.kill_and_restart(1);
        }
        let manager = rig.transient("m");
        assert_eq!(rig.transact(manager, decide(false)), TransactOutcome::Done);
        assert_eq!((rig.broker.spilled(), rig.store_bytes_in_memory()), (0, 0));
        assert_eq!(rig.store.applied.queues.len(), rig.broker.queues().filter(|q| q.id.is_some()).count());
        assert_eq!(rig.store.applied.rows_of(Space::Prepared), 0);
    }
}

#[test]
fn a_decision_does_not_overtake_what_its_client_has_committed_before() {
    let mut rig = rig();
    let (worker, publisher) = (rig.worker("w"), rig.transient("p"));
    rig.begin(publisher, T);
    rig.act_publish(publisher, T, QUEUE, "last");
    assert_eq!(rig.transact(publisher, prepare()), TransactOutcome::Done);
    rig.begin(publisher, T);
    rig.act_many(publisher, 600);
    rig.auto = false;
    rig.send(publisher, ClientCommand::Commit { tag: ReplyTag(9), transaction: T });
    let now = rig.now();
    let command = rig.broker.handle_or_wait(publisher, decide(true), true, now).expect("it waits");
    rig.settle_store();
    assert!(rig.broker.handle_or_wait(publisher, *command, true, now).is_none());
    rig.auto = true;
    rig.settle_store();
    let expected: Vec<_> = (0..600).map(text).chain(["last".into()]).collect();
    assert_eq!(rig.drain(worker), expected);
}
