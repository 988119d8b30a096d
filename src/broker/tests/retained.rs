use super::*;
use crate::store::contract::Space;

fn subscribe(rig: &mut Rig, conn: ConnId, filter: &str, retain_handling: RetainHandling) {
    let options = SubscribeOptions { qos: Qos::AtLeastOnce, retain_handling, ..SubscribeOptions::default() };
    rig.subscribe_with(conn, filter, options, Some(9));
    rig.run_timers();
}

#[test]
fn a_retained_message_reaches_later_subscribers_and_an_empty_one_removes_it() {
    let mut rig = Rig::new();
    let publisher = rig.transient("p");
    rig.retain(publisher, "t/1", "on", Qos::AtLeastOnce);
    rig.retain(publisher, "t/2", "zero", Qos::AtMostOnce);
    let conn = rig.transient("a");
    subscribe(&mut rig, conn, "t/#", RetainHandling::Send);
    let delivered = rig.deliveries(conn);
    let view: Vec<_> = delivered.iter().map(|d| (payload(d), d.qos, d.retain)).collect();
    assert_eq!(view, [("on".into(), Qos::AtLeastOnce, true), ("zero".to_string(), Qos::AtMostOnce, true)]);
    assert_eq!(delivered[0].subscription_ids.as_deref(), Some(&[9u32][..]));
    rig.retain(publisher, "t/1", "", Qos::AtLeastOnce);
    assert_eq!(rig.deliveries(conn)[0].message.payload(), b"");
    assert_eq!((rig.broker.gauges().retained, rig.store.durable.rows_of(Space::Retained)), (1, 1));
}

#[test]
fn retained_messages_survive_a_restart_those_of_qos_0_too() {
    let mut rig = Rig::new();
    let publisher = rig.transient("p");
    rig.retain(publisher, "t/0", "zero", Qos::AtMostOnce);
    rig.retain(publisher, "t/1", "one", Qos::AtLeastOnce);
    rig.kill_and_restart(1);
    let conn = rig.transient("a");
    subscribe(&mut rig, conn, "t/+", RetainHandling::Send);
    assert_eq!(rig.payloads(conn), ["zero", "one"]);
}

#[test]
fn a_retained_publication_is_acknowledged_after_it_is_durable() {
    let mut rig = Rig::new();
    let publisher = rig.transient("p");
    rig.auto = false;
    rig.retain(publisher, "t", "x", Qos::AtLeastOnce);
    assert!(rig.heard(publisher).is_empty());
    rig.settle_store();
    assert_eq!(rig.heard(publisher).len(), 1);
    rig.retain(publisher, "t", "y", Qos::AtMostOnce);
    assert_eq!(rig.store.last_is_urgent(), Some(false));
}

#[test]
fn retain_handling_decides_when_they_are_sent() {
    let mut rig = Rig::new();
    let publisher = rig.transient("p");
    rig.retain(publisher, "t", "x", Qos::AtLeastOnce);
    let conn = rig.transient("a");
    for (handling, expected) in
        [(RetainHandling::Skip, 0), (RetainHandling::SendIfNew, 0), (RetainHandling::Send, 1)]
    {
        subscribe(&mut rig, conn, "t", handling);
        assert_eq!(rig.drain(conn).len(), expected, "{handling:?}");
    }
    let other = rig.transient("b");
    subscribe(&mut rig, other, "t", RetainHandling::SendIfNew);
    assert_eq!(rig.drain(other).len(), 1);
}

#[test]
fn live_messages_carry_the_flag_only_if_the_subscription_asks_for_it() {
    let mut rig = Rig::new();
    let (plain, keeps) = (rig.transient("a"), rig.transient("b"));
    rig.subscribe(plain, "t", Qos::AtMostOnce);
    let options = SubscribeOptions { retain_as_published: true, ..SubscribeOptions::default() };
    rig.subscribe_with(keeps, "t", options, None);
    rig.retain(plain, "t", "x", Qos::AtLeastOnce);
    assert!(!rig.deliveries(plain)[0].retain);
    assert!(rig.deliveries(keeps)[0].retain);
}

#[test]
fn a_huge_set_is_sent_in_slices_and_other_clients_are_served_in_between() {
    let mut rig = Rig::new();
    let publisher = rig.transient("p");
    for n in 0..5000u32 {
        rig.retain(publisher, &format!("t/{n:04}"), &n.to_string(), Qos::AtLeastOnce);
    }
    rig.heard(publisher);
    let (conn, _) = rig.durable("a");
    subscribe_quietly(&mut rig, conn);
    let first = rig.deliveries(conn);
    assert!(first.len() <= 1024, "{}", first.len());
    let mut seen: Vec<String> = first.iter().map(payload).collect();
    first.iter().for_each(|d| rig.broker.handle(conn, settled(d.id.unwrap()), rig.now()));
    rig.turn();
    while seen.len() < 5000 {
        let before = seen.len();
        seen.extend(rig.drain(conn));
        rig.run_timers();
        assert!(seen.len() > before || !rig.heard.is_empty(), "stuck at {before}");
        assert!(rig.queue("a").messages <= 1024 + 128);
    }
    let expected: Vec<String> = (0..5000).map(|n: u32| n.to_string()).collect();
    assert_eq!(seen, expected);
    assert_eq!(rig.broker.next_deadline(), None, "no work is left over");
}

fn subscribe_quietly(rig: &mut Rig, conn: ConnId) {
    let options = SubscribeOptions { qos: Qos::AtLeastOnce, ..SubscribeOptions::default() };
    rig.subscribe_with(conn, "t/#", options, None);
}

#[test]
fn the_answer_to_a_subscription_comes_before_its_retained_messages() {
    let mut rig = Rig::new();
    let publisher = rig.transient("p");
    rig.retain(publisher, "t", "x", Qos::AtLeastOnce);
    let (conn, _) = rig.durable("a");
    let filters = vec![SubscribeFilter {
        filter: "t".into(),
        options: SubscribeOptions { qos: Qos::AtLeastOnce, ..SubscribeOptions::default() },
    }];
    rig.send(conn, ClientCommand::Subscribe { tag: ReplyTag(1), subscription_id: None, filters });
    rig.run_timers();
    let heard = rig.heard(conn);
    assert!(matches!(heard[..], [ClientEvent::Subscribed { .. }, ClientEvent::Deliver(_)]), "{heard:?}");
}

#[test]
fn retained_messages_are_bounded_and_a_refusal_is_told() {
    let mut rig = Rig::with(Limits { retained_messages_max: 1, ..Limits::default() });
    let publisher = rig.transient("p");
    rig.retain(publisher, "a", "x", Qos::AtLeastOnce);
    rig.heard(publisher);
    rig.retain(publisher, "b", "x", Qos::AtLeastOnce);
    let refused = ClientEvent::Published {
        tag: ReplyTag(1),
        qos: Qos::AtLeastOnce,
        outcome: PublishOutcome::QuotaExceeded,
    };
    assert_eq!(format!("{:?}", rig.heard(publisher)), format!("{:?}", [refused]));
    assert_eq!(rig.broker.stats().retained_refused, 1);
}

#[test]
fn a_retained_message_expires_across_a_restart() {
    let mut rig = Rig::new();
    let publisher = rig.transient("p");
    let wall = rig.now().wall;
    let head = MessageHead {
        qos: Qos::AtLeastOnce,
        retain: true,
        published: wall,
        expires: Some(wall.plus_secs(100)),
        ..MessageHead::default()
    };
    let message = Message::new("t", b"x", head);
    rig.send(publisher, ClientCommand::Publish(PublishRequest { tag: ReplyTag(1), message }));
    rig.kill_and_restart(50);
    assert_eq!(rig.broker.gauges().retained, 1);
    rig.advance_secs(49);
    assert_eq!(rig.broker.gauges().retained, 1);
    rig.advance_secs(1);
    assert_eq!((rig.broker.gauges().retained, rig.store.durable.rows.len()), (0, 0));
}

#[test]
fn large_retained_messages_are_sent_a_few_at_a_time_and_each_once() {
    let mut rig = Rig::new();
    let publisher = rig.transient("p");
    for n in 0..40 {
        rig.retain(publisher, &format!("t/{n:02}"), &format!("{n:030000}"), Qos::AtMostOnce);
    }
    let conn = rig.transient("a");
    let filters = vec![SubscribeFilter { filter: "t/#".into(), options: SubscribeOptions::default() }];
    rig.send(conn, ClientCommand::Subscribe { tag: ReplyTag(1), subscription_id: None, filters });
    let first = rig.payloads(conn);
    assert!(first.len() <= 8 * 3, "{}", first.len());
    rig.run_timers();
    let all: Vec<usize> =
        first.into_iter().chain(rig.payloads(conn)).map(|text| text.parse().unwrap()).collect();
    assert_eq!(all, (0..40).collect::<Vec<_>>());
}

#[test]
fn a_removal_is_acknowledged_after_an_earlier_one_of_the_same_topic_is_durable() {
    let mut rig = Rig::new();
    let (first, second) = (rig.transient("p"), rig.transient("q"));
    rig.retain(first, "t", "x", Qos::AtLeastOnce);
    rig.auto = false;
    rig.retain(first, "t", "", Qos::AtMostOnce);
    rig.retain(second, "t", "", Qos::AtLeastOnce);
    assert!(rig.heard(second).is_empty(), "after a power cut the value would be there again");
    rig.settle_store();
    assert_eq!(rig.heard(second).len(), 1);
    rig.retain(second, "t", "", Qos::AtLeastOnce);
    assert_eq!(rig.heard(second).len(), 1, "there is nothing to wait for");
}
