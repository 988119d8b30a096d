use super::queues::{QUEUE, consumer, rig_with};
use super::*;
use crate::limits::{QueueDef, QueueLimits};

const OTHER: &str = "$queue/other";
const T: TransactionId = TransactionId(1);

impl Rig {
    pub(super) fn transact(&mut self, conn: ConnId, command: ClientCommand) -> TransactOutcome {
        self.send(conn, command);
        let heard = self.heard.get_mut(&conn).expect("an answer");
        let at = heard.iter().position(|event| matches!(event, ClientEvent::Transacted { .. }));
        let ClientEvent::Transacted { outcome, .. } = heard.remove(at.expect("an answer")) else {
            unreachable!()
        };
        outcome
    }

    pub(super) fn begin(&mut self, conn: ConnId, transaction: TransactionId) -> TransactOutcome {
        self.transact(conn, ClientCommand::Begin { tag: ReplyTag(1), transaction })
    }

    pub(super) fn act(
        &mut self,
        conn: ConnId,
        transaction: TransactionId,
        action: TransactionAction,
    ) -> TransactOutcome {
        self.transact(conn, ClientCommand::Act { tag: ReplyTag(1), transaction, action })
    }

    pub(super) fn act_publish(&mut self, conn: ConnId, transaction: TransactionId, topic: &str, text: &str) {
        let message = self.message(topic, text, Qos::AtLeastOnce, false);
        let outcome = self.act(conn, transaction, TransactionAction::Publish(message));
        assert_eq!(outcome, TransactOutcome::Done);
    }

    pub(super) fn commit_transaction(&mut self, conn: ConnId, transaction: TransactionId) -> TransactOutcome {
        self.transact(conn, ClientCommand::Commit { tag: ReplyTag(1), transaction })
    }
}

#[test]
fn nothing_is_seen_before_the_commit_and_everything_in_order_after_it() {
    let mut rig = Rig::new();
    let (worker, publisher) = (rig.worker("w"), rig.transient("p"));
    assert_eq!(rig.begin(publisher, T), TransactOutcome::Done);
    ["1", "2", "3"].iter().for_each(|text| rig.act_publish(publisher, T, QUEUE, text));
    assert!(rig.payloads(worker).is_empty());
    assert_eq!(rig.commit_transaction(publisher, T), TransactOutcome::Done);
    assert_eq!(rig.payloads(worker), ["1", "2", "3"]);
}

#[test]
fn a_commit_over_several_queues_and_an_acknowledgement_is_one_batch_before_its_answer_and_its_deliveries() {
    let mut rig = Rig::new();
    let (worker, other, publisher) = (rig.worker("w"), rig.transient("o"), rig.transient("p"));
    rig.consume(other, ConsumeRequest { queue: OTHER.into(), ..consumer(1) });
    rig.put(publisher, &["in"]);
    let sent = rig.deliveries(worker);
    rig.begin(worker, T);
    rig.act_publish(worker, T, OTHER, "out");
    rig.act_publish(worker, T, "$queue/third", "log");
    rig.act(worker, T, TransactionAction::Settle(sent[0].id.unwrap()));
    rig.auto = false;
    let before = rig.store.uncommitted();
    rig.send(worker, ClientCommand::Commit { tag: ReplyTag(9), transaction: T });
    assert!(rig.heard(worker).is_empty() && rig.payloads(other).is_empty());
    assert_eq!(rig.store.uncommitted() - before, 1);
    rig.settle_store();
    assert!(matches!(
        rig.heard(worker)[..],
        [ClientEvent::Transacted { outcome: TransactOutcome::Done, .. }]
    ));
    assert_eq!(rig.payloads(other), ["out"]);
    assert_eq!((rig.queue(QUEUE).messages, rig.queue("$queue/third").messages), (0, 1));
}

#[test]
fn what_found_no_place_in_a_window_leaves_after_the_commit_too_when_there_is_one() {
    let mut rig = Rig::with(Limits { inflight_messages_max: 1, ..Limits::default() });
    let (reader, _) = rig.durable("r");
    rig.subscribe(reader, "t", Qos::AtLeastOnce);
    let publisher = rig.transient("p");
    rig.publish(publisher, "t", "before", Qos::AtLeastOnce, 1);
    let sent = rig.deliveries(reader);
    rig.begin(publisher, T);
    rig.act_publish(publisher, T, "t", "within");
    rig.auto = false;
    rig.send(publisher, ClientCommand::Commit { tag: ReplyTag(9), transaction: T });
    rig.ack(reader, sent[0].id.unwrap());
    assert!(rig.payloads(reader).is_empty(), "the commit is not durable");
    rig.settle_store();
    assert_eq!(rig.payloads(reader), ["within"]);
}

#[test]
fn a_commit_that_was_not_durable_leaves_no_trace() {
    let mut rig = Rig::new();
    let (worker, publisher) = (rig.worker("w"), rig.transient("p"));
    rig.put(publisher, &["in"]);
    let sent = rig.deliveries(worker);
    rig.begin(worker, T);
    rig.act_publish(worker, T, OTHER, "out");
    rig.act(worker, T, TransactionAction::Settle(sent[0].id.unwrap()));
    rig.auto = false;
    rig.send(worker, ClientCommand::Commit { tag: ReplyTag(9), transaction: T });
    rig.kill_and_restart(1);
    assert_eq!(rig.queue(QUEUE).messages, 1);
    assert!(!rig.broker.queues().any(|queue| queue.name == OTHER && queue.messages > 0));
}

#[test]
fn an_abort_changes_nothing_and_a_delivery_can_be_settled_afterwards() {
    let mut rig = Rig::new();
    let (worker, publisher) = (rig.worker("w"), rig.transient("p"));
    rig.put(publisher, &["in"]);
    let sent = rig.deliveries(worker);
    rig.begin(worker, T);
    rig.act_publish(worker, T, OTHER, "out");
    rig.act(worker, T, TransactionAction::Settle(sent[0].id.unwrap()));
    let abort = ClientCommand::Abort { tag: ReplyTag(1), transaction: T };
    assert_eq!(rig.transact(worker, abort.clone()), TransactOutcome::Done);
    assert_eq!(rig.transact(worker, abort), TransactOutcome::Unknown);
    assert_eq!(rig.queue(QUEUE).messages, 1);
    rig.ack(worker, sent[0].id.unwrap());
    assert_eq!(rig.queue(QUEUE).messages, 0);
    assert!(!rig.broker.queues().any(|queue| queue.name == OTHER));
}

#[test]
fn the_end_of_the_connection_aborts_and_a_name_belongs_to_its_connection() {
    let mut rig = Rig::new();
    let (a, b, worker) = (rig.transient("a"), rig.transient("b"), rig.worker("w"));
    rig.begin(a, T);
    assert_eq!(rig.begin(b, T), TransactOutcome::Done);
    assert_eq!(rig.begin(b, T), TransactOutcome::AlreadyOpen);
    rig.act_publish(a, T, QUEUE, "a");
    rig.act_publish(b, T, QUEUE, "b");
    rig.goodbye(a);
    assert_eq!(rig.commit_transaction(b, T), TransactOutcome::Done);
    assert_eq!(rig.payloads(worker), ["b"]);
    assert_eq!(rig.begin(b, T), TransactOutcome::Done, "the name is free again");
}

#[test]
fn what_was_rejected_in_a_transaction_goes_back_at_its_commit() {
    let mut rig = Rig::new();
    let (worker, publisher) = (rig.worker("w"), rig.transient("p"));
    rig.put(publisher, &["1", "2"]);
    let sent = rig.deliveries(worker);
    rig.begin(worker, T);
    for (delivery, requeue) in [(&sent[0], true), (&sent[1], false)] {
        rig.act(worker, T, TransactionAction::Reject { delivery: delivery.id.unwrap(), requeue });
    }
    assert_eq!(rig.commit_transaction(worker, T), TransactOutcome::Done);
    assert_eq!(rig.payloads(worker), ["1"]);
    assert_eq!(rig.queue("$queue/dead-letters").messages, 1);
}

#[test]
fn one_refused_message_refuses_the_whole_and_what_was_planned_may_exceed_a_bound_once() {
    let limits = QueueLimits { messages_max: Some(2), ..QueueLimits::default() };
    let mut rig = rig_with(vec![QueueDef { name: "jobs".into(), limits, ..QueueDef::default() }]);
    let publisher = rig.transient("p");
    rig.begin(publisher, T);
    rig.act_publish(publisher, T, OTHER, "x");
    ["1", "2", "3"].iter().for_each(|text| rig.act_publish(publisher, T, QUEUE, text));
    assert_eq!(rig.commit_transaction(publisher, T), TransactOutcome::Done);
    assert_eq!(rig.queue(QUEUE).messages, 3);
    rig.begin(publisher, T);
    rig.act_publish(publisher, T, OTHER, "y");
    rig.act_publish(publisher, T, QUEUE, "4");
    let refused = TransactOutcome::Refused(PublishOutcome::QuotaExceeded);
    assert_eq!(rig.commit_transaction(publisher, T), refused);
    assert_eq!((rig.queue(OTHER).messages, rig.queue(QUEUE).messages), (1, 3));
    assert_eq!(rig.commit_transaction(publisher, T), TransactOutcome::Unknown);
}

#[test]
fn transactions_are_bounded_in_number_actions_and_bytes() {
    let limits = Limits {
        transactions_per_session_max: 2,
        transaction_actions_max: 3,
        transaction_bytes_max: 4000,
        transactions_bytes_max: 7000,
        transaction_disk_bytes_max: 0,
        ..Limits::default()
    };
    let mut rig = Rig::with(limits);
    let conn = rig.transient("p");
    let (second, third) = (TransactionId(2), TransactionId(3));
    assert_eq!([T, second].map(|id| rig.begin(conn, id)), [TransactOutcome::Done; 2]);
    assert_eq!(rig.begin(conn, third), TransactOutcome::LimitExceeded);
    (0..3).for_each(|_| rig.act_publish(conn, T, QUEUE, "x"));
    let publish = |rig: &mut Rig, id, text: &str| {
        let message = rig.message(QUEUE, text, Qos::AtLeastOnce, false);
        rig.act(conn, id, TransactionAction::Publish(message))
    };
    assert_eq!(publish(&mut rig, T, "y"), TransactOutcome::LimitExceeded);
    assert_eq!(publish(&mut rig, second, &"y".repeat(4000)), TransactOutcome::LimitExceeded);
    assert_eq!(publish(&mut rig, second, &"y".repeat(3500)), TransactOutcome::Done);
    assert_eq!(publish(&mut rig, second, &"y".repeat(1000)), TransactOutcome::LimitExceeded);
    assert_eq!(publish(&mut rig, third, "y"), TransactOutcome::Unknown);
    assert_eq!(rig.act(conn, T, TransactionAction::Settle(id(9))), TransactOutcome::DeliveryUnknown);
}

#[test]
fn a_transaction_of_which_something_was_refused_is_never_carried_out() {
    let mut rig = Rig::with(Limits { transaction_actions_max: 3, ..Limits::default() });
    let conn = rig.transient("p");
    rig.begin(conn, T);
    (0..3).for_each(|_| rig.act_publish(conn, T, QUEUE, "x"));
    let message = rig.message(QUEUE, "y", Qos::AtLeastOnce, false);
    assert_eq!(rig.act(conn, T, TransactionAction::Publish(message)), TransactOutcome::LimitExceeded);
    let prepare = ClientCommand::Prepare { tag: ReplyTag(1), transaction: T, xid: "x".into() };
    assert_eq!(rig.transact(conn, prepare), TransactOutcome::LimitExceeded);
    assert_eq!(rig.commit_transaction(conn, T), TransactOutcome::LimitExceeded);
    assert_eq!(rig.broker.gauges().queued, 0);
    rig.begin(conn, T);
    (0..3).for_each(|_| rig.act_publish(conn, T, QUEUE, "x"));
    assert_eq!(rig.commit_transaction(conn, T), TransactOutcome::Done);
    assert_eq!(rig.queue(QUEUE).messages, 3);
}

#[test]
fn a_message_settled_by_a_transaction_is_durable_before_its_publisher_hears_of_it() {
    let mut rig = Rig::with(Limits { hold_millis: 1000, ..Limits::default() });
    let (worker, publisher) = (rig.worker("w"), rig.transient("p"));
    rig.begin(worker, T);
    rig.put_within_turn(publisher, "in");
    let sent = rig.deliveries(worker);
    let message = rig.message(OTHER, "out", Qos::AtLeastOnce, false);
    for action in [TransactionAction::Settle(sent[0].id.unwrap()), TransactionAction::Publish(message)] {
        rig.within_turn(worker, ClientCommand::Act { tag: ReplyTag(1), transaction: T, action });
    }
    assert_eq!(rig.heard(worker).len(), 2);
    rig.within_turn(worker, ClientCommand::Commit { tag: ReplyTag(9), transaction: T });
    assert!(rig.heard(publisher).is_empty() && rig.heard(worker).is_empty());
    rig.settle_store();
    assert_eq!((rig.heard(publisher).len(), rig.heard(worker).len()), (1, 1));
}

#[test]
fn a_transaction_that_only_passing_sessions_want_needs_no_batch() {
    for hold_millis in [0, 1000] {
        let mut rig = Rig::with(Limits { hold_millis, ..Limits::default() });
        let (listener, publisher) = (rig.transient("l"), rig.transient("p"));
        rig.subscribe(listener, "a/#", Qos::ExactlyOnce);
        for (number, qos) in [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce].into_iter().enumerate() {
            rig.begin(publisher, T);
            let message = rig.message("a/b", &number.to_string(), qos, false);
            assert_eq!(rig.act(publisher, T, TransactionAction::Publish(message)), TransactOutcome::Done);
            assert_eq!(rig.commit_transaction(publisher, T), TransactOutcome::Done);
        }
        assert_eq!(rig.payloads(listener), ["0", "1", "2"]);
    }
}

/// A subscriber, and a publisher with a QoS 0 message in an open transaction.
fn light_transaction() -> (Rig, ConnId, ConnId) {
    let mut rig = Rig::new();
    let (subscriber, publisher) = (rig.transient("s"), rig.transient("p"));
    rig.subscribe(subscriber, "t", Qos::AtLeastOnce);
    rig.heard(subscriber);
    rig.begin(publisher, T);
    let message = rig.message("t", "1", Qos::AtMostOnce, false);
    rig.act(publisher, T, TransactionAction::Publish(message));
    (rig, subscriber, publisher)
}

/// A subscriber, and a publisher whose transaction with a QoS 0 message is committed and not durable.
fn light_commit() -> (Rig, ConnId, ConnId) {
    let (mut rig, subscriber, publisher) = light_transaction();
    rig.act_publish(publisher, T, QUEUE, "durable");
    rig.auto = false;
    rig.send(publisher, ClientCommand::Commit { tag: ReplyTag(9), transaction: T });
    (rig, subscriber, publisher)
}

fn light(rig: &Rig, text: &str) -> ClientCommand {
    let message = rig.message("t", text, Qos::AtMostOnce, false);
    ClientCommand::Publish(PublishRequest { tag: ReplyTag(0), message })
}

#[test]
fn a_qos_0_message_behind_a_commit_is_given_back_until_the_commit_is_durable() {
    let (mut rig, subscriber, publisher) = light_commit();
    let room = rig.broker.room_made();
    let other = rig.transient("other");
    let (mine, theirs) = (light(&rig, "2"), light(&rig, "another publisher's"));
    let back = rig.broker.handle_or_wait(publisher, mine, true, rig.now()).expect("it would overtake");
    assert!(rig.broker.handle_or_wait(other, theirs, true, rig.now()).is_none());
    rig.turn();
    assert_eq!(rig.payloads(subscriber), ["another publisher's"]);
    rig.settle_store();
    assert_ne!(rig.broker.room_made(), room, "it is to be tried again");
    assert!(rig.broker.handle_or_wait(publisher, *back, true, rig.now()).is_none());
    rig.turn();
    assert_eq!(rig.payloads(subscriber), ["1", "2"]);
}

#[test]
fn a_qos_0_message_of_a_client_that_cannot_wait_leaves_behind_the_commit() {
    let (mut rig, subscriber, publisher) = light_commit();
    rig.send(publisher, light(&rig, "2"));
    assert!(rig.payloads(subscriber).is_empty());
    rig.settle_store();
    rig.send(publisher, light(&rig, "3"));
    assert_eq!(rig.payloads(subscriber), ["1", "2", "3"]);
}

#[test]
fn nobody_waits_behind_a_commit_that_writes_nothing() {
    let (mut rig, subscriber, publisher) = light_transaction();
    rig.auto = false;
    rig.send(publisher, ClientCommand::Commit { tag: ReplyTag(9), transaction: T });
    let next = light(&rig, "2");
    assert!(rig.broker.handle_or_wait(publisher, next, true, rig.now()).is_none());
    rig.turn();
    assert_eq!(rig.payloads(subscriber), ["1", "2"]);
}

#[test]
fn who_decides_a_prepared_transaction_does_not_overtake_it_either() {
    let (mut rig, subscriber, publisher) = light_transaction();
    let prepare = ClientCommand::Prepare { tag: ReplyTag(2), transaction: T, xid: "x".into() };
    assert_eq!(rig.transact(publisher, prepare), TransactOutcome::Done);
    rig.auto = false;
    rig.send(publisher, ClientCommand::Decide { tag: ReplyTag(3), xid: "x".into(), commit: true });
    let next = light(&rig, "2");
    assert!(rig.broker.handle_or_wait(publisher, next, true, rig.now()).is_some());
    rig.settle_store();
    assert_eq!(rig.payloads(subscriber), ["1"]);
}
