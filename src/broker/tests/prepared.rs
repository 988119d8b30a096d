use super::queues::consumer;
use super::*;
use crate::store::contract::Space;

const OTHER: &str = "$queue/other";
const T: TransactionId = TransactionId(1);
const XID: &str = "xid-1";

fn prepare() -> ClientCommand {
    ClientCommand::Prepare { tag: ReplyTag(1), transaction: T, xid: XID.into() }
}

fn decide(commit: bool) -> ClientCommand {
    ClientCommand::Decide { tag: ReplyTag(1), xid: XID.into(), commit }
}

/// Three messages wait; a worker has them, and a transaction that takes the second and publishes two.
fn opened(rig: &mut Rig) -> ConnId {
    let (worker, publisher) = (rig.worker("w"), rig.transient("p"));
    rig.put(publisher, &["1", "2", "3"]);
    let sent = rig.deliveries(worker);
    rig.begin(worker, T);
    rig.act_publish(worker, T, OTHER, "a");
    let outcome = rig.act(worker, T, TransactionAction::Settle(sent[1].id.unwrap()));
    assert_eq!(outcome, TransactOutcome::Done);
    rig.act_publish(worker, T, OTHER, "b");
    worker
}

fn names(rig: &Rig) -> Vec<String> {
    rig.broker.prepared_transactions().map(|status| status.xid.into()).collect()
}

/// What fresh consumers find in both queues.
fn found(rig: &mut Rig) -> (Vec<String>, Vec<String>) {
    let worker = rig.transient("finder");
    rig.consume(worker, consumer(1));
    let jobs = rig.drain(worker);
    rig.consume(worker, ConsumeRequest { queue: OTHER.into(), ..consumer(2) });
    (jobs, rig.drain(worker))
}

#[test]
fn a_prepared_transaction_is_out_of_sight_until_it_is_committed_after_a_restart_and_from_anywhere() {
    let mut rig = Rig::new();
    let worker = opened(&mut rig);
    assert_eq!(rig.transact(worker, prepare()), TransactOutcome::Done);
    rig.lose(worker);
    rig.kill_and_restart(1);
    assert_eq!(names(&rig), [XID]);
    let status = rig.broker.prepared_transactions().next().unwrap();
    assert_eq!((status.publishes, status.settles), (2, 1));
    assert_eq!(found(&mut rig), (vec!["1".into(), "3".into()], vec![]));
    let conn = rig.transient("manager");
    assert_eq!(rig.transact(conn, decide(true)), TransactOutcome::Done);
    assert!(names(&rig).is_empty());
    assert_eq!(found(&mut rig), (vec![], vec!["a".into(), "b".into()]));
    assert_eq!(rig.store.durable.rows_of(Space::Prepared), 0);
}

#[test]
fn a_roll_back_restores_the_order_with_and_without_a_restart() {
    for restarts in [false, true] {
        let mut rig = Rig::new();
        let worker = opened(&mut rig);
        assert_eq!(rig.transact(worker, prepare()), TransactOutcome::Done);
        rig.lose(worker);
        if restarts {
            rig.kill_and_restart(1);
        }
        let conn = rig.transient("manager");
        assert_eq!(rig.transact(conn, decide(false)), TransactOutcome::Done);
        assert_eq!(found(&mut rig), (vec!["1".into(), "2".into(), "3".into()], vec![]));
    }
}

#[test]
fn a_decision_is_remembered_across_restarts() {
    let mut rig = Rig::new();
    let worker = opened(&mut rig);
    rig.transact(worker, prepare());
    assert_eq!(rig.transact(worker, decide(true)), TransactOutcome::Done);
    for _ in 0..2 {
        let conn = rig.transient("manager");
        assert_eq!(rig.transact(conn, decide(true)), TransactOutcome::Done);
        assert_eq!(rig.transact(conn, decide(false)), TransactOutcome::DecidedOtherwise);
        let other = ClientCommand::Decide { tag: ReplyTag(1), xid: "never".into(), commit: true };
        assert_eq!(rig.transact(conn, other), TransactOutcome::Unknown);
        rig.kill_and_restart(1);
    }
    assert_eq!(rig.queue(OTHER).messages, 2);
}

#[test]
fn a_name_in_use_or_used_lately_and_none_at_all_are_refused_and_the_transaction_stays_open() {
    let mut rig = Rig::new();
    let worker = opened(&mut rig);
    let named =
        |xid: &str| ClientCommand::Prepare { tag: ReplyTag(1), transaction: T, xid: xid.to_owned().into() };
    assert_eq!(rig.transact(worker, named("")), TransactOutcome::LimitExceeded);
    assert_eq!(rig.transact(worker, named(&"x".repeat(256))), TransactOutcome::LimitExceeded);
    assert_eq!(rig.transact(worker, named(XID)), TransactOutcome::Done);
    rig.begin(worker, T);
    assert_eq!(rig.transact(worker, named(XID)), TransactOutcome::AlreadyOpen);
    assert_eq!(rig.commit_transaction(worker, T), TransactOutcome::Done);
}

/// Kills the broker after each number of durable batches, at each point of preparing and deciding: what is found is the whole or
/// nothing, and what was prepared is listed.
#[test]
fn a_crash_at_any_point_leaves_the_whole_or_nothing() {
    // The second time what it publishes waits in the store.
    for (commit, bytes_max) in [true, false].into_iter().flat_map(|commit| [(commit, 1 << 20), (commit, 1)]) {
        for (step, durable) in (0..4).flat_map(|step| (0..5).map(move |durable| (step, durable))) {
            let mut rig = Rig::with(Limits { transaction_bytes_max: bytes_max, ..Limits::default() });
            let worker = opened(&mut rig);
            let was_durable = step > 0 && { rig.transact(worker, prepare()) == TransactOutcome::Done };
            rig.auto = false;
            match step {
                0 => rig.send(worker, prepare()),
                1 => rig.send(worker, decide(commit)),
                2 => {
                    rig.lose(worker);
                    let manager = rig.connect_with("m", |request| request.clean_start = true);
                    rig.settle_store();
                    rig.send(manager, decide(commit));
                }
                _ => {
                    rig.broker.decide(XID, commit, rig.now());
                    rig.turn();
                    rig.send(worker, decide(commit));
                }
            }
            for _ in 0..durable {
                rig.commit(1);
                rig.turn();
                rig.serve_page();
                rig.turn();
            }
            let answered =
                rig.heard.values().flatten().any(|event| {
                    matches!(event, ClientEvent::Transacted { outcome: TransactOutcome::Done, .. })
                });
            rig.auto = true;
            rig.kill_and_restart(1);
            rig.run_timers();
            let listed = names(&rig) == [XID];
            let (jobs, other) = found(&mut rig);
            let case = format!("commit {commit}, step {step}, {durable} durable, {bytes_max} B in memory");
            assert_eq!(rig.broker.spilled(), usize::from(listed && bytes_max == 1), "{case}: in the store");
            let whole = (jobs.len(), other.len());
            match (listed, step) {
                (true, _) => assert_eq!(whole, (2, 0), "{case}: out of sight"),
                (false, 0) => assert_eq!(whole, (3, 0), "{case}: it never happened"),
                (false, _) if commit => assert_eq!(whole, (2, 2), "{case}: all of it"),
                (false, _) => assert_eq!(whole, (3, 0), "{case}: nothing of it"),
            }
            assert!(jobs.is_sorted() && other.is_sorted(), "{case}: order");
            if step == 0 {
                assert!(!answered || listed, "{case}: what was answered is prepared");
            } else {
                assert!(was_durable && (!answered || !listed), "{case}: what was answered is decided");
            }
        }
    }
}

#[test]
fn nobody_decides_in_time_and_it_is_rolled_back_across_a_restart_too() {
    let mut rig = Rig::with(Limits { prepared_timeout_secs: Some(100), ..Limits::default() });
    let worker = opened(&mut rig);
    rig.transact(worker, prepare());
    rig.advance_secs(60);
    rig.kill_and_restart(20);
    rig.advance_secs(19);
    assert_eq!(names(&rig), [XID]);
    rig.advance_secs(2);
    assert!(names(&rig).is_empty());
    assert_eq!(found(&mut rig).0, ["1", "2", "3"]);
}

#[test]
fn only_so_many_can_be_prepared_and_only_with_deliveries_of_named_queues() {
    let mut rig = Rig::with(Limits { prepared_transactions_max: 1, ..Limits::default() });
    let worker = opened(&mut rig);
    assert_eq!(rig.transact(worker, prepare()), TransactOutcome::Done);
    rig.begin(worker, T);
    let second = ClientCommand::Prepare { tag: ReplyTag(1), transaction: T, xid: "second".into() };
    assert_eq!(rig.transact(worker, second.clone()), TransactOutcome::LimitExceeded);
    rig.transact(worker, decide(true));
    rig.subscribe(worker, "plain", Qos::AtLeastOnce);
    rig.publish(worker, "plain", "x", Qos::AtLeastOnce, 9);
    let sent = rig.deliveries(worker);
    rig.act(worker, T, TransactionAction::Settle(sent.last().unwrap().id.unwrap()));
    assert_eq!(rig.transact(worker, second), TransactOutcome::DeliveryUnknown);
}

#[test]
fn a_rejected_delivery_in_a_prepared_transaction_becomes_a_dead_letter_at_its_commit() {
    let mut rig = Rig::new();
    let (worker, publisher) = (rig.worker("w"), rig.transient("p"));
    rig.put(publisher, &["1", "2"]);
    let sent = rig.deliveries(worker);
    rig.begin(worker, T);
    for (delivery, requeue) in [(&sent[0], false), (&sent[1], true)] {
        rig.act(worker, T, TransactionAction::Reject { delivery: delivery.id.unwrap(), requeue });
    }
    rig.transact(worker, prepare());
    rig.kill_and_restart(1);
    let conn = rig.transient("manager");
    assert_eq!(rig.transact(conn, decide(true)), TransactOutcome::Done);
    assert_eq!(rig.queue("$queue/dead-letters").messages, 1);
    assert_eq!(found(&mut rig).0, ["2"]);
}
