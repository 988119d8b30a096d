use super::*;

fn outcomes(rig: &mut Rig, conn: ConnId) -> Vec<(u16, PublishOutcome)> {
    let published = |event| match event {
        ClientEvent::Published { tag, outcome, .. } => Some((tag.0, outcome)),
        _ => None,
    };
    rig.heard(conn).into_iter().filter_map(published).collect()
}

#[test]
fn a_publisher_is_acknowledged_after_the_message_is_durable_and_not_before() {
    let mut rig = Rig::new();
    let (subscriber, _) = rig.durable("s");
    rig.subscribe(subscriber, "t", Qos::AtLeastOnce);
    let publisher = rig.transient("p");
    rig.auto = false;
    rig.publish(publisher, "t", "x", Qos::AtLeastOnce, 1);
    assert_eq!(rig.payloads(subscriber), ["x"], "the delivery may leave before");
    assert!(outcomes(&mut rig, publisher).is_empty());
    assert_eq!(rig.store.last_is_urgent(), Some(true));
    rig.commit(1);
    rig.turn();
    assert_eq!(outcomes(&mut rig, publisher), [(1, PublishOutcome::Accepted)]);
}

#[test]
fn an_acknowledgement_that_waits_for_nothing_leaves_at_once() {
    let mut rig = Rig::new();
    let publisher = rig.transient("p");
    rig.auto = false;
    rig.publish(publisher, "t", "x", Qos::AtLeastOnce, 1);
    assert_eq!(outcomes(&mut rig, publisher), [(1, PublishOutcome::NoSubscribers)]);
    rig.subscribe(publisher, "t", Qos::AtLeastOnce);
    rig.publish(publisher, "t", "x", Qos::AtLeastOnce, 2);
    assert_eq!(outcomes(&mut rig, publisher), [(2, PublishOutcome::Accepted)]);
}

#[test]
fn acknowledgements_of_one_publisher_keep_the_order_of_its_messages() {
    let mut rig = Rig::new();
    let (subscriber, _) = rig.durable("s");
    rig.subscribe(subscriber, "durable", Qos::AtLeastOnce);
    let publisher = rig.transient("p");
    let other = rig.transient("q");
    rig.auto = false;
    rig.publish(publisher, "durable", "x", Qos::AtLeastOnce, 1);
    rig.publish(publisher, "nobody", "x", Qos::AtLeastOnce, 2);
    rig.publish(other, "nobody", "x", Qos::AtLeastOnce, 3);
    assert!(outcomes(&mut rig, publisher).is_empty());
    assert_eq!(outcomes(&mut rig, other), [(3, PublishOutcome::NoSubscribers)], "others do not wait");
    rig.settle_store();
    let tags: Vec<u16> = outcomes(&mut rig, publisher).iter().map(|(tag, _)| *tag).collect();
    assert_eq!(tags, [1, 2]);
}

#[test]
fn one_operation_enqueues_a_message_for_all_durable_queues() {
    let mut rig = Rig::new();
    for client in ["a", "b", "c"] {
        let (conn, _) = rig.durable(client);
        rig.subscribe(conn, "t", Qos::AtLeastOnce);
    }
    let publisher = rig.transient("p");
    rig.subscribe(publisher, "t", Qos::AtLeastOnce);
    rig.auto = false;
    rig.publish(publisher, "t", "x", Qos::AtLeastOnce, 1);
    let ops = rig.store.last_ops();
    assert!(matches!(&ops[..], [crate::store::contract::Op::Enqueue { targets, .. }] if targets.len() == 3));
}

#[test]
fn acknowledged_runs_are_stored_as_one_operation_and_are_not_urgent() {
    let mut rig = Rig::new();
    let (conn, _) = rig.durable("a");
    rig.subscribe(conn, "t", Qos::AtLeastOnce);
    for n in 1..=10 {
        rig.publish(conn, "t", "x", Qos::AtLeastOnce, n);
    }
    rig.auto = false;
    for n in 1..=10 {
        rig.broker.handle(conn, settled(id(n)), rig.now());
    }
    rig.turn();
    let ops = rig.store.last_ops();
    assert!(matches!(ops[..], [crate::store::contract::Op::Settle { first: 1, count: 10, .. }]), "{ops:?}");
    assert_eq!(rig.store.last_is_urgent(), Some(false));
}

#[test]
fn a_topic_with_a_wildcard_or_of_the_brokers_own_is_refused() {
    let mut rig = Rig::new();
    let publisher = rig.transient("p");
    for topic in ["a/+", "#", "", "$SYS/broker/uptime"] {
        rig.publish(publisher, topic, "x", Qos::AtLeastOnce, 1);
        assert_eq!(outcomes(&mut rig, publisher), [(1, PublishOutcome::TopicInvalid)], "{topic}");
    }
    assert_eq!(rig.broker.stats().refused_topic, 4);
}

#[test]
fn topics_of_the_brokers_own_are_delivered_and_never_stored() {
    let mut rig = Rig::new();
    let (subscriber, _) = rig.durable("s");
    rig.subscribe(subscriber, "$SYS/#", Qos::AtLeastOnce);
    let inside = rig.connect_with("broker", |request| {
        request.internal = true;
        request.clean_start = true;
        request.expiry = SessionExpiry::WithConnection;
    });
    rig.auto = false;
    rig.heard(inside);
    rig.retain(inside, "$SYS/broker/clients", "1", Qos::AtLeastOnce);
    assert_eq!(outcomes(&mut rig, inside), [(1, PublishOutcome::Accepted)]);
    let delivered = rig.deliveries(subscriber);
    assert_eq!((delivered.len(), delivered[0].qos), (1, Qos::AtMostOnce));
    assert_eq!(rig.store.uncommitted(), 0);
}

#[test]
fn no_local_keeps_a_publishers_own_messages_away_from_it() {
    let mut rig = Rig::new();
    let conn = rig.transient("a");
    let options = SubscribeOptions { qos: Qos::AtLeastOnce, no_local: true, ..SubscribeOptions::default() };
    rig.subscribe_with(conn, "t", options, None);
    rig.publish(conn, "t", "mine", Qos::AtLeastOnce, 1);
    let other = rig.transient("b");
    rig.publish(other, "t", "theirs", Qos::AtLeastOnce, 1);
    assert_eq!(rig.payloads(conn), ["theirs"]);
}

#[test]
fn qos_zero_is_sent_to_who_is_there_and_counted_where_it_is_dropped() {
    let mut rig = Rig::new();
    let (away, _) = rig.durable("away");
    rig.subscribe(away, "t", Qos::AtLeastOnce);
    rig.lose(away);
    let (slow, fine) = (rig.transient("slow"), rig.transient("fine"));
    rig.subscribe(slow, "t", Qos::AtMostOnce);
    rig.subscribe(fine, "t", Qos::AtMostOnce);
    rig.broker.set_congested(slow, true, rig.now());
    let publisher = rig.transient("p");
    rig.publish(publisher, "t", "x", Qos::AtMostOnce, 0);
    assert_eq!(rig.payloads(fine), ["x"]);
    assert!(rig.payloads(slow).is_empty());
    let stats = *rig.broker.stats();
    assert_eq!((stats.dropped_offline, stats.dropped_congested), (1, 1));
    let (away, _) = rig.durable("away");
    assert!(rig.payloads(away).is_empty());
}

#[test]
fn the_lower_quality_of_service_is_granted_and_the_subscription_identifier_sent() {
    let mut rig = Rig::new();
    let conn = rig.transient("a");
    let options = SubscribeOptions { qos: Qos::AtLeastOnce, ..SubscribeOptions::default() };
    rig.subscribe_with(conn, "t", options, Some(42));
    rig.publish(conn, "t", "x", Qos::ExactlyOnce, 1);
    rig.publish(conn, "t", "y", Qos::AtMostOnce, 0);
    let delivered = rig.deliveries(conn);
    assert_eq!(delivered.iter().map(|d| d.qos).collect::<Vec<_>>(), [Qos::AtLeastOnce, Qos::AtMostOnce]);
    assert!(delivered.iter().all(|d| d.subscription_ids.as_deref() == Some(&[42])));
}

#[test]
fn subscribing_reports_each_filter_and_keeps_the_bounds() {
    let mut rig = Rig::with(Limits { subscriptions_per_session_max: 2, ..Limits::default() });
    let conn = rig.transient("a");
    let filter = |filter: &str, no_local| SubscribeFilter {
        filter: filter.into(),
        options: SubscribeOptions { no_local, ..SubscribeOptions::default() },
    };
    let filters = vec![
        filter("a", false),
        filter("b/#/c", false),
        filter("$share/g/x", true),
        filter("b", false),
        filter("c", false),
        filter("a", true),
    ];
    rig.send(conn, ClientCommand::Subscribe { tag: ReplyTag(5), subscription_id: None, filters });
    use SubscribeOutcome::*;
    let granted = Granted(Qos::AtMostOnce);
    match &rig.heard(conn)[..] {
        [ClientEvent::Subscribed { tag: ReplyTag(5), outcomes }] => {
            assert_eq!(**outcomes, [granted, FilterInvalid, SharedNoLocal, granted, QuotaExceeded, granted]);
        }
        other => panic!("{other:?}"),
    }
    let filters = vec!["a".into(), "zzz".into(), "b/#/c".into()];
    rig.send(conn, ClientCommand::Unsubscribe { tag: ReplyTag(6), filters });
    match &rig.heard(conn)[..] {
        [ClientEvent::Unsubscribed { existed, .. }] => assert_eq!(**existed, [Some(true), Some(false), None]),
        other => panic!("{other:?}"),
    }
    rig.publish(conn, "a", "x", Qos::AtMostOnce, 0);
    assert!(rig.payloads(conn).is_empty());
}

#[test]
fn the_memory_of_subscriptions_is_counted_and_bounded() {
    let bound = 64 << 10;
    let mut rig = Rig::with(Limits { subscriptions_bytes_max: bound, ..Limits::default() });
    let conn = rig.transient("a");
    let mut subscribe = |n: u16| {
        let filters = vec![SubscribeFilter {
            filter: format!("plant/{n}/line/+/temperature").into(),
            options: SubscribeOptions::default(),
        }];
        rig.send(conn, ClientCommand::Subscribe { tag: ReplyTag(n), subscription_id: None, filters });
        match &rig.heard(conn)[..] {
            [ClientEvent::Subscribed { outcomes, .. }] => outcomes[0] == SubscribeOutcome::QuotaExceeded,
            other => panic!("{other:?}"),
        }
    };
    let refused = (0..2000).find(|n| subscribe(*n)).expect("there is a bound");
    assert!(refused > 50, "{refused} subscriptions fill {bound} bytes");
    assert!(!subscribe(0), "a filter that is there already takes no more");
    let full = rig.broker.gauges();
    // The table that was grown last may overshoot.
    assert!(
        (full.subscription_memory as u64) < 2 * bound && full.subscription_memory as u64 >= bound,
        "{full:?}"
    );
    let filters = (0..refused).map(|n| format!("plant/{n}/line/+/temperature").into()).collect();
    rig.send(conn, ClientCommand::Unsubscribe { tag: ReplyTag(1), filters });
    assert_eq!(rig.broker.gauges().subscriptions, 0);
}
