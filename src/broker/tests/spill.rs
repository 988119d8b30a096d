use super::queues::QUEUE;
use super::*;

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
    assert_eq!(rig.store.applied.rows_of(crate::store::contract::Space::Moving), 0);
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
fn the_part_in_the_store_is_bounded_for_one_and_for_all_and_cannot_be_prepared() {
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
    let prepare = ClientCommand::Prepare { tag: ReplyTag(1), transaction: T, xid: "x".into() };
    assert_eq!(rig.transact(a, prepare), TransactOutcome::Spilled);
    assert_eq!(rig.commit_transaction(a, T), TransactOutcome::Done);
    assert_eq!(rig.queue(QUEUE).messages, one);
    rig.goodbye(b);
    assert_eq!(rig.broker.spilled(), 0);
}
