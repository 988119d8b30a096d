use super::*;
use crate::limits::QueueDef;
use crate::store::contract::{Recovered, Space};

pub(super) const QUEUE: &str = "$queue/jobs";

pub(super) fn consumer(n: u32) -> ConsumeRequest {
    ConsumeRequest {
        tag: ReplyTag(1),
        consumer: ConsumerId(n),
        queue: QUEUE.into(),
        messages_max: 100,
        bytes_max: 1 << 20,
        priority: 0,
        exclusive: false,
        selector: None,
        browse: false,
    }
}

/// A broker with these definitions, started.
pub(super) fn rig_with(defs: Vec<QueueDef>) -> Rig {
    let mut rig = Rig::with(Limits { queue_defs: defs, ..Limits::default() });
    rig.broker.restore(Recovered::default(), rig.now()).unwrap();
    rig.turn();
    rig
}

impl Rig {
    pub(super) fn consume(&mut self, conn: ConnId, request: ConsumeRequest) -> ConsumeOutcome {
        self.send(conn, ClientCommand::Consume(Box::new(request)));
        let heard = self.heard.get_mut(&conn).expect("an answer");
        let at = heard.iter().position(|event| matches!(event, ClientEvent::Consuming { .. }));
        let ClientEvent::Consuming { outcome, .. } = heard.remove(at.expect("an answer")) else {
            unreachable!()
        };
        outcome
    }

    pub(super) fn worker(&mut self, client: &str) -> ConnId {
        let conn = self.transient(client);
        assert_eq!(self.consume(conn, consumer(1)), ConsumeOutcome::Started);
        conn
    }

    pub(super) fn put(&mut self, conn: ConnId, texts: &[&str]) {
        for (n, text) in texts.iter().enumerate() {
            self.publish(conn, QUEUE, text, Qos::AtLeastOnce, n as u16 + 1);
        }
    }

    /// A command without the end of its turn: what it did stays in the batch.
    pub(super) fn within_turn(&mut self, conn: ConnId, command: ClientCommand) {
        self.broker.handle(conn, command, self.now());
        let mut effects = Vec::new();
        self.broker.take_effects(&mut effects);
        for effect in effects {
            if let Effect::Client(conn, event) = effect {
                self.heard.entry(conn).or_default().push(event);
            }
        }
    }

    pub(super) fn put_within_turn(&mut self, conn: ConnId, text: &str) {
        let message = self.message(QUEUE, text, Qos::AtLeastOnce, false);
        self.within_turn(conn, ClientCommand::Publish(PublishRequest { tag: ReplyTag(1), message }));
    }

    pub(super) fn reject(&mut self, conn: ConnId, delivery: DeliveryId, requeue: bool) {
        self.send(conn, ClientCommand::Reject { delivery, requeue });
    }
}

#[test]
fn a_queue_is_made_by_the_first_message_and_keeps_it_until_somebody_comes_across_restarts() {
    let mut rig = Rig::new();
    let publisher = rig.transient("p");
    rig.put(publisher, &["1", "2"]);
    rig.publish(publisher, QUEUE, "zero", Qos::AtMostOnce, 0);
    let answers = rig.heard(publisher);
    assert!(matches!(answers[0], ClientEvent::Published { outcome: PublishOutcome::Accepted, .. }));
    rig.kill_and_restart(1);
    assert_eq!(rig.queue(QUEUE).messages, 3);
    let worker = rig.worker("w");
    assert_eq!(rig.drain(worker), ["1", "2", "zero"]);
    assert_eq!(rig.queue(QUEUE).messages, 0);
}

#[test]
fn the_answer_to_a_publisher_waits_for_the_disk() {
    let mut rig = Rig::new();
    let publisher = rig.transient("p");
    rig.auto = false;
    rig.put(publisher, &["1"]);
    assert!(rig.heard(publisher).is_empty());
    rig.settle_store();
    assert_eq!(rig.heard(publisher).len(), 1);
}

#[test]
fn consumers_and_subscriptions_of_all_kinds_compete_for_it() {
    let mut rig = Rig::new();
    let worker = rig.worker("w");
    let plain = rig.transient("plain");
    rig.subscribe(plain, QUEUE, Qos::AtLeastOnce);
    let (shared, _) = rig.durable("shared");
    rig.subscribe(shared, "$share/g/$queue/jobs", Qos::AtLeastOnce);
    let publisher = rig.transient("p");
    rig.put(publisher, &["1", "2", "3", "4", "5", "6"]);
    let mut all = rig.drain(worker);
    assert_eq!(all.len(), 2);
    all.extend(rig.drain(plain));
    all.extend(rig.drain(shared));
    all.sort();
    assert_eq!(all, ["1", "2", "3", "4", "5", "6"]);
}

#[test]
fn the_queue_outlives_its_consumers() {
    let mut rig = Rig::new();
    let plain = rig.transient("plain");
    rig.subscribe(plain, QUEUE, Qos::AtLeastOnce);
    rig.send(plain, ClientCommand::Unsubscribe { tag: ReplyTag(1), filters: vec![QUEUE.into()] });
    let publisher = rig.transient("p");
    rig.put(publisher, &["1"]);
    rig.lose(plain);
    rig.kill_and_restart(1);
    let worker = rig.worker("w");
    assert_eq!(rig.drain(worker), ["1"]);
    assert_eq!(rig.store.durable.rows_of(Space::NamedQueue), 1);
}

#[test]
fn a_subscription_to_the_queue_survives_a_restart_with_its_session() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, QUEUE, Qos::AtLeastOnce);
    rig.kill_and_restart(1);
    let publisher = rig.transient("p");
    rig.put(publisher, &["1"]);
    let (conn, _) = rig.durable("a");
    assert_eq!(rig.drain(conn), ["1"]);
}

#[test]
fn one_session_may_subscribe_under_two_filters_and_leaves_with_the_second() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, QUEUE, Qos::AtLeastOnce);
    rig.subscribe(conn, "$share/g/$queue/jobs", Qos::AtLeastOnce);
    rig.send(conn, ClientCommand::Unsubscribe { tag: ReplyTag(1), filters: vec![QUEUE.into()] });
    let publisher = rig.transient("p");
    rig.put(publisher, &["1"]);
    assert_eq!(rig.drain(conn), ["1"]);
    let filters = vec!["$share/g/$queue/jobs".into()];
    rig.send(conn, ClientCommand::Unsubscribe { tag: ReplyTag(1), filters });
    rig.put(publisher, &["2"]);
    assert!(rig.payloads(conn).is_empty());
    assert_eq!(rig.queue(QUEUE).messages, 1);
}

#[test]
fn what_a_consumer_has_not_settled_returns_in_its_place_and_is_flagged() {
    let mut rig = Rig::new();
    let gone = rig.worker("gone");
    let publisher = rig.transient("p");
    rig.put(publisher, &["1", "2", "3", "4"]);
    let sent = rig.deliveries(gone);
    assert!(sent.iter().all(|d| !d.duplicate && d.redeliveries == 0 && d.consumer == Some(ConsumerId(1))));
    rig.ack(gone, sent[1].id.unwrap());
    rig.put(publisher, &["5"]);
    rig.lose(gone);
    let worker = rig.worker("w");
    let sent = rig.deliveries(worker);
    assert_eq!(sent.iter().map(payload).collect::<Vec<_>>(), ["1", "3", "4", "5"]);
    assert!(sent.iter().all(|d| d.duplicate && d.redeliveries == 1));
}

#[test]
fn after_a_kill_what_may_have_been_delivered_is_flagged() {
    let mut rig = Rig::new();
    let publisher = rig.transient("p");
    rig.put(publisher, &["1", "2"]);
    let worker = rig.worker("w");
    assert_eq!(rig.payloads(worker), ["1", "2"]);
    rig.kill_and_restart(1);
    let publisher = rig.transient("p");
    rig.put(publisher, &["3"]);
    let worker = rig.worker("w");
    let sent = rig.deliveries(worker);
    let flags: Vec<_> = sent.iter().map(|d| (payload(d), d.redeliveries)).collect();
    assert_eq!(flags, [("1".into(), 1), ("2".into(), 1), ("3".into(), 0)]);
}

#[test]
fn a_delivery_from_the_backlog_waits_until_the_mark_that_flags_it_is_durable() {
    let mut rig = Rig::new();
    let publisher = rig.transient("p");
    rig.put(publisher, &["1"]);
    let worker = rig.transient("w");
    rig.auto = false;
    rig.send(worker, ClientCommand::Consume(Box::new(consumer(1))));
    rig.auto = true;
    // The page that brings the message is served, its mark is not durable.
    while rig.serve_page() {}
    rig.auto = false;
    rig.turn();
    assert!(rig.payloads(worker).is_empty());
    rig.settle_store();
    assert_eq!(rig.payloads(worker), ["1"]);
}

#[test]
fn a_rejected_message_goes_back_to_its_place_or_leaves() {
    let mut rig = Rig::new();
    let worker = rig.transient("w");
    rig.consume(worker, ConsumeRequest { messages_max: 2, ..consumer(1) });
    let publisher = rig.transient("p");
    rig.put(publisher, &["1", "2", "3"]);
    let sent = rig.deliveries(worker);
    assert_eq!(sent.len(), 2, "the consumer's window");
    rig.reject(worker, sent[0].id.unwrap(), true);
    let again = rig.deliveries(worker);
    assert_eq!((payload(&again[0]), again[0].redeliveries), ("1".into(), 1));
    rig.reject(worker, again[0].id.unwrap(), false);
    assert_eq!(rig.payloads(worker), ["3"]);
    assert_eq!(rig.queue(QUEUE).messages, 2);
}

#[test]
fn a_cancelled_consumer_gets_nothing_more_and_what_it_has_may_go_back_at_once_or_later() {
    let mut rig = Rig::new();
    let (a, b) = (rig.worker("a"), rig.transient("b"));
    let publisher = rig.transient("p");
    rig.put(publisher, &["1", "2", "3"]);
    rig.consume(b, consumer(7));
    let sent = rig.deliveries(a);
    rig.ack(a, sent[0].id.unwrap());
    let cancel = |requeue| ClientCommand::Cancel { tag: ReplyTag(2), consumer: ConsumerId(1), requeue };
    rig.send(a, cancel(false));
    assert!(rig.payloads(b).is_empty(), "still under way");
    rig.ack(a, sent[1].id.unwrap());
    assert_eq!(rig.consume(a, consumer(1)), ConsumeOutcome::Started);
    rig.lose(a);
    assert_eq!(rig.drain(b), ["3"]);
    let c = rig.worker("c");
    rig.put(publisher, &["4", "5"]);
    rig.send(c, cancel(true));
    assert_eq!(rig.drain(b).len(), 2);
    let heard = rig.heard(c);
    assert!(matches!(heard.last(), Some(ClientEvent::Cancelled { existed: true, .. })), "{heard:?}");
    rig.send(c, cancel(true));
    assert!(matches!(rig.heard(c)[..], [ClientEvent::Cancelled { existed: false, .. }]));
}

#[test]
fn several_consumers_of_one_connection_have_their_own_windows() {
    let mut rig = Rig::new();
    let conn = rig.transient("w");
    for n in [1, 2] {
        rig.consume(conn, ConsumeRequest { messages_max: 1, ..consumer(n) });
    }
    assert_eq!(rig.consume(conn, consumer(2)), ConsumeOutcome::AlreadyThere);
    let publisher = rig.transient("p");
    rig.put(publisher, &["1", "2", "3"]);
    let sent = rig.deliveries(conn);
    let who: Vec<_> = sent.iter().map(|d| d.consumer.unwrap().0).collect();
    assert_eq!(who, [1, 2]);
    rig.ack(conn, sent[1].id.unwrap());
    let sent = rig.deliveries(conn);
    assert_eq!((sent[0].consumer, payload(&sent[0])), (Some(ConsumerId(2)), "3".into()));
}

#[test]
fn bytes_bound_a_consumers_window_but_for_one_message() {
    let mut rig = Rig::new();
    let conn = rig.transient("w");
    rig.consume(conn, ConsumeRequest { bytes_max: 1, ..consumer(1) });
    let publisher = rig.transient("p");
    rig.put(publisher, &["1", "2"]);
    assert_eq!(rig.payloads(conn), ["1"]);
}

#[test]
fn higher_priorities_come_first_and_an_exclusive_consumer_gets_everything() {
    let mut rig = Rig::new();
    let (low, high, alone) = (rig.worker("low"), rig.transient("high"), rig.transient("alone"));
    rig.consume(high, ConsumeRequest { priority: 1, messages_max: 2, ..consumer(1) });
    let publisher = rig.transient("p");
    rig.put(publisher, &["1", "2", "3"]);
    assert_eq!(rig.payloads(high), ["1", "2"]);
    assert_eq!(rig.payloads(low), ["3"]);
    rig.consume(alone, ConsumeRequest { exclusive: true, ..consumer(1) });
    rig.put(publisher, &["4", "5"]);
    assert_eq!(rig.payloads(alone), ["4", "5"]);
    rig.lose(alone);
    assert_eq!(rig.payloads(low), ["4", "5"]);
}

#[test]
fn a_bound_queue_is_filled_by_plain_publishing_and_keeps_the_topics() {
    let def = QueueDef { name: "orders".into(), bind: vec!["f/+/orders".into()], ..QueueDef::default() };
    let mut rig = rig_with(vec![def]);
    let publisher = rig.transient("p");
    rig.publish(publisher, "f/1/orders", "1", Qos::AtLeastOnce, 1);
    rig.publish(publisher, "f/2/orders", "2", Qos::AtMostOnce, 0);
    rig.publish(publisher, "f/2/other", "3", Qos::AtLeastOnce, 2);
    rig.kill_and_restart(1);
    let worker = rig.transient("w");
    rig.consume(worker, ConsumeRequest { queue: "$queue/orders".into(), ..consumer(1) });
    let sent = rig.deliveries(worker);
    let topics: Vec<_> = sent.iter().map(|d| d.message.topic()).collect();
    assert_eq!(topics, ["f/1/orders", "f/2/orders"]);
    let publisher = rig.transient("p");
    rig.publish(publisher, "f/3/orders", "4", Qos::AtLeastOnce, 1);
    assert_eq!(rig.payloads(worker), ["4"], "the filter is bound again");
}

#[test]
fn a_full_queue_refuses_as_it_is_defined() {
    let limits = crate::limits::QueueLimits { messages_max: Some(1), ..Default::default() };
    let mut rig = rig_with(vec![QueueDef { name: "jo*".into(), limits, ..QueueDef::default() }]);
    let publisher = rig.transient("p");
    rig.put(publisher, &["1", "2"]);
    let answers = rig.heard(publisher);
    let ClientEvent::Published { outcome, .. } = answers[1] else { panic!("{answers:?}") };
    assert_eq!((outcome, rig.queue(QUEUE).messages), (PublishOutcome::QuotaExceeded, 1));
}

#[test]
fn names_that_are_none_and_more_queues_than_allowed_are_refused() {
    let mut rig = Rig::with(Limits { named_queues_max: 2, ..Limits::default() });
    let conn = rig.transient("w");
    let mut ask = |queue: &str, n| rig.consume(conn, ConsumeRequest { queue: queue.into(), ..consumer(n) });
    for queue in ["$queue/", "$queue/a+", "$queue/#", "queue/a", "$queue", "", "$queue/a\0"] {
        assert_eq!(ask(queue, 1), ConsumeOutcome::NameInvalid, "{queue}");
    }
    let hostile = ["$queue/../a", "$queue/\u{1F980}::\u{ff}"];
    assert_eq!(hostile.map(|queue| ask(queue, queue.len() as u32)), [ConsumeOutcome::Started; 2]);
    assert_eq!(ask("$queue/third", 9), ConsumeOutcome::QuotaExceeded);
    rig.publish(conn, "$queue/third", "x", Qos::AtLeastOnce, 1);
    let heard = rig.heard(conn);
    assert!(matches!(heard[..], [ClientEvent::Published { outcome: PublishOutcome::QuotaExceeded, .. }]));
    let filters = vec![SubscribeFilter { filter: "$queue/+".into(), options: SubscribeOptions::default() }];
    rig.send(conn, ClientCommand::Subscribe { tag: ReplyTag(1), subscription_id: None, filters });
    let heard = rig.heard(conn);
    let ClientEvent::Subscribed { outcomes, .. } = &heard[0] else { panic!("{heard:?}") };
    assert_eq!(outcomes[..], [SubscribeOutcome::FilterInvalid]);
}

#[test]
fn a_retained_flag_has_no_meaning_for_a_queue() {
    let mut rig = Rig::new();
    let publisher = rig.transient("p");
    rig.retain(publisher, QUEUE, "x", Qos::AtLeastOnce);
    assert_eq!(rig.broker.gauges().retained, 0);
    let worker = rig.worker("w");
    assert!(!rig.deliveries(worker)[0].retain);
}

#[test]
fn a_consumer_hears_that_it_consumes_before_its_first_message() {
    let mut rig = Rig::new();
    let (worker, publisher) = (rig.transient("w"), rig.transient("p"));
    rig.auto = false;
    rig.send(worker, ClientCommand::Consume(Box::new(consumer(1))));
    rig.put(publisher, &["1"]);
    assert!(rig.heard(worker).is_empty(), "the queue is not durable yet");
    rig.settle_store();
    let heard = rig.heard(worker);
    assert!(matches!(heard[..], [ClientEvent::Consuming { .. }, ClientEvent::Deliver(_)]), "{heard:?}");
}

#[test]
fn a_qos_2_message_reaches_a_subscription_as_such_and_a_consumer_settles_it_at_once() {
    let mut rig = Rig::new();
    let publisher = rig.transient("p");
    rig.publish(publisher, QUEUE, "1", Qos::ExactlyOnce, 1);
    let worker = rig.worker("w");
    assert_eq!(rig.drain(worker), ["1"]);
    rig.lose(worker);
    let (plain, _) = rig.durable("plain");
    rig.subscribe(plain, QUEUE, Qos::ExactlyOnce);
    rig.publish(publisher, QUEUE, "2", Qos::ExactlyOnce, 2);
    let sent = rig.deliveries(plain);
    assert_eq!(sent[0].qos, Qos::ExactlyOnce);
    assert_eq!(rig.queue(QUEUE).messages, 0);
}

#[test]
fn who_waits_for_what_went_to_the_store_without_hurry_has_the_store_hurry() {
    let mut rig = Rig::new();
    let (worker, publisher) = (rig.worker("w"), rig.transient("p"));
    rig.put(publisher, &["1"]);
    let sent = rig.deliveries(worker);
    rig.auto = false;
    rig.send(worker, settled(sent[0].id.unwrap()));
    assert_eq!((rig.store.last_is_urgent(), rig.broker.take_hurry()), (Some(false), false));
    for _ in 0..2 {
        rig.send(worker, ClientCommand::Sync { tag: ReplyTag(7) });
    }
    assert!(rig.heard(worker).is_empty(), "it is not durable");
    assert!(rig.broker.take_hurry());
    assert!(!rig.broker.take_hurry(), "it is said once");
    rig.commit(1);
    rig.turn();
    assert_eq!(rig.heard(worker).len(), 2);
    rig.send(worker, ClientCommand::Sync { tag: ReplyTag(7) });
    assert!(!rig.broker.take_hurry(), "all is durable");
}

#[test]
fn what_a_consumer_left_unsettled_counts_for_the_next_one_of_its_name() {
    let mut rig = Rig::new();
    let worker = rig.transient("w");
    let one_at_a_time = ConsumeRequest { messages_max: 1, ..consumer(1) };
    rig.consume(worker, one_at_a_time.clone());
    let publisher = rig.transient("p");
    rig.put(publisher, &["1", "2"]);
    let first = rig.deliveries(worker);
    let cancel = ClientCommand::Cancel { tag: ReplyTag(1), consumer: ConsumerId(1), requeue: false };
    rig.send(worker, cancel);
    rig.consume(worker, one_at_a_time);
    assert!(rig.deliveries(worker).is_empty());
    rig.ack(worker, first[0].id.unwrap());
    assert_eq!(rig.payloads(worker), ["2"]);
}
