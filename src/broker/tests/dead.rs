use super::queues::{QUEUE, consumer, rig_with};
use super::*;
use crate::broker::dead;
use crate::broker::desk::DeskError;
use crate::limits::{QueueDef, QueueLimits};

const DEAD: &str = "$queue/dead-letters";

fn story(delivery: &Delivery) -> Vec<(String, String)> {
    let user = &delivery.message.properties().expect("a dead letter has properties").user;
    user.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn undertaker(rig: &mut Rig) -> ConnId {
    let conn = rig.transient("undertaker");
    rig.consume(conn, ConsumeRequest { queue: DEAD.into(), ..consumer(1) });
    conn
}

#[test]
fn a_message_rejected_for_good_becomes_a_dead_letter_with_its_story() {
    let mut rig = Rig::new();
    let worker = rig.worker("w");
    let publisher = rig.transient("p");
    rig.put(publisher, &["1", "2"]);
    let sent = rig.deliveries(worker);
    rig.reject(worker, sent[0].id.unwrap(), false);
    rig.ack(worker, sent[1].id.unwrap());
    rig.kill_and_restart(1);
    let conn = undertaker(&mut rig);
    let letters = rig.deliveries(conn);
    assert_eq!((letters.len(), payload(&letters[0]), letters[0].message.topic()), (1, "1".into(), QUEUE));
    let expected = [(dead::ORIGIN, "jobs"), (dead::REASON, "rejected"), (dead::COUNT, "0")];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(story(&letters[0])[..3], expected);
    assert_eq!(rig.queue(QUEUE).messages, 0);
}

#[test]
fn a_dead_letter_leaves_when_its_end_in_the_other_queue_is_durable() {
    let mut rig = Rig::new();
    let worker = rig.worker("w");
    let conn = undertaker(&mut rig);
    let publisher = rig.transient("p");
    rig.put(publisher, &["1"]);
    let sent = rig.deliveries(worker);
    rig.auto = false;
    rig.reject(worker, sent[0].id.unwrap(), false);
    assert!(rig.deliveries(conn).is_empty());
    rig.settle_store();
    assert_eq!(rig.payloads(conn), ["1"]);
}

#[test]
fn a_message_that_comes_back_too_often_becomes_a_dead_letter() {
    let mut rig = rig_with(vec![QueueDef {
        name: "jobs".into(),
        redeliveries_max: Some(2),
        dead_letter: Some("dead-letters".into()),
        ..QueueDef::default()
    }]);
    let worker = rig.worker("w");
    let publisher = rig.transient("p");
    rig.put(publisher, &["1"]);
    for n in 0..=2 {
        let sent = rig.deliveries(worker);
        assert_eq!(sent[0].redeliveries, n);
        rig.reject(worker, sent[0].id.unwrap(), true);
    }
    assert!(rig.deliveries(worker).is_empty());
    let conn = undertaker(&mut rig);
    let letters = rig.deliveries(conn);
    assert_eq!(story(&letters[0])[1..3].iter().map(|s| &*s.1).collect::<Vec<_>>(), ["redeliveries", "3"]);
    assert_eq!(rig.broker.stats().dead_letters, 1);
}

#[test]
fn a_worker_that_dies_of_a_message_does_not_meet_it_for_ever() {
    let mut rig = Rig::new();
    let publisher = rig.transient("p");
    rig.put(publisher, &["poison"]);
    for _ in 0..=crate::limits::REDELIVERIES_MAX {
        let worker = rig.worker("w");
        assert_eq!(rig.payloads(worker), ["poison"]);
        rig.lose(worker);
    }
    let worker = rig.worker("w");
    assert!(rig.payloads(worker).is_empty());
    assert_eq!(rig.queue(DEAD).messages, 1);
}

#[test]
fn the_original_and_the_dead_letter_change_places_in_one_batch() {
    let mut rig = Rig::new();
    let worker = rig.worker("w");
    let publisher = rig.transient("p");
    rig.put(publisher, &["1"]);
    let sent = rig.deliveries(worker);
    rig.auto = false;
    rig.reject(worker, sent[0].id.unwrap(), false);
    rig.kill_and_restart(1);
    assert_eq!(rig.queue(QUEUE).messages, 1);
    assert!(!rig.broker.queues().any(|queue| queue.name == DEAD && queue.messages > 0));
}

#[test]
fn a_message_under_a_held_acknowledgement_is_durable_before_its_publisher_hears_of_it() {
    let mut rig = Rig::with(Limits { hold_millis: 1000, ..Limits::default() });
    let worker = rig.worker("w");
    let publisher = rig.transient("p");
    rig.put_within_turn(publisher, "1");
    let sent = rig.deliveries(worker);
    let delivery = sent[0].id.unwrap();
    rig.within_turn(worker, ClientCommand::Reject { delivery, requeue: false });
    assert!(rig.heard(publisher).is_empty(), "neither the message nor the dead letter is durable");
    assert!(rig.broker.take_batch(rig.now()).is_none(), "the acknowledgement is held");
    rig.mono = rig.mono.plus_millis(2000);
    rig.settle_store();
    assert_eq!(rig.heard(publisher).len(), 1);
    assert_eq!(rig.queue(DEAD).messages, 1);
}

#[test]
fn a_dead_letter_queue_that_takes_nothing_leaves_the_message_where_it_is() {
    let mut rig = rig_with(vec![QueueDef {
        name: "dead-letters".into(),
        limits: QueueLimits { messages_max: Some(1), ..QueueLimits::default() },
        ..QueueDef::default()
    }]);
    let worker = rig.worker("w");
    let publisher = rig.transient("p");
    rig.put(publisher, &["1", "2"]);
    let sent = rig.deliveries(worker);
    sent.iter().for_each(|delivery| rig.reject(worker, delivery.id.unwrap(), false));
    assert_eq!((rig.queue(QUEUE).messages, rig.queue(DEAD).messages), (1, 1));
    assert_eq!(rig.payloads(worker), ["2"]);
}

#[test]
fn the_dead_of_a_dead_letter_queue_are_dropped_and_so_are_those_of_a_queue_defined_so() {
    let mut rig = rig_with(vec![QueueDef { name: "jobs".into(), dead_letter: None, ..QueueDef::default() }]);
    let worker = rig.worker("w");
    let publisher = rig.transient("p");
    rig.put(publisher, &["1"]);
    let sent = rig.deliveries(worker);
    rig.reject(worker, sent[0].id.unwrap(), false);
    rig.publish(publisher, DEAD, "2", Qos::AtLeastOnce, 1);
    let conn = undertaker(&mut rig);
    let sent = rig.deliveries(conn);
    rig.reject(conn, sent[0].id.unwrap(), false);
    assert_eq!((rig.queue(QUEUE).messages, rig.queue(DEAD).messages), (0, 0));
}

#[test]
fn expired_messages_are_dead_letters_where_it_is_defined() {
    let define = |name: &str, dead_letter_expired| QueueDef {
        name: name.into(),
        dead_letter_expired,
        ..QueueDef::default()
    };
    let mut rig = rig_with(vec![define("jobs", true), define("other", false)]);
    let publisher = rig.transient("p");
    for queue in [QUEUE, "$queue/other"] {
        let head = MessageHead {
            qos: Qos::AtLeastOnce,
            published: rig.now().wall,
            expires: Some(rig.now().wall.plus_secs(5)),
            ..MessageHead::default()
        };
        let message = Message::new(queue, b"late", head);
        rig.send(publisher, ClientCommand::Publish(PublishRequest { tag: ReplyTag(1), message }));
    }
    rig.advance_secs(10);
    let worker = rig.worker("w");
    rig.consume(worker, ConsumeRequest { queue: "$queue/other".into(), ..consumer(2) });
    assert!(rig.payloads(worker).is_empty());
    let conn = undertaker(&mut rig);
    let letters = rig.deliveries(conn);
    assert_eq!((letters.len(), &*story(&letters[0])[1].1), (1, "expired"));
    assert_eq!(letters[0].message.expires(), None);
}

#[test]
fn what_a_link_can_never_pass_on_is_a_dead_letter() {
    let mut rig = Rig::new();
    let link = rig.connect_with("$bridge/up", |request| request.internal = true);
    rig.heard(link);
    rig.subscribe(link, "t", Qos::AtLeastOnce);
    let publisher = rig.transient("p");
    rig.publish(publisher, "t", "poison", Qos::AtLeastOnce, 1);
    rig.publish(publisher, "t", "good", Qos::AtLeastOnce, 2);
    let sent = rig.deliveries(link);
    let (delivery, message) = (sent[0].id.unwrap(), sent[0].message.clone());
    rig.send(link, ClientCommand::DeadLetter { delivery, message });
    rig.ack(link, sent[1].id.unwrap());
    rig.kill_and_restart(1);
    assert_eq!(rig.queue("$bridge/up").messages, 0);
    let conn = undertaker(&mut rig);
    let letters = rig.deliveries(conn);
    assert_eq!((payload(&letters[0]), letters[0].message.topic()), ("poison".into(), "t"));
    assert_eq!(story(&letters[0])[..2].iter().map(|s| &*s.1).collect::<Vec<_>>(), ["$bridge/up", "poison"]);
    rig.lose(conn);
    let now = rig.now();
    let letters = "dead-letters";
    let progress = rig.broker.move_some(letters, None, now).map(|progress| (progress.done, progress.left));
    assert_eq!(progress, Ok((0, 1)), "its page has to be read first");
    rig.turn();
    assert_eq!(rig.broker.move_some(letters, None, now), Err(DeskError::FromLink));
    assert_eq!(rig.broker.move_some(letters, Some("again"), now).map(|progress| progress.done), Ok(1));
    rig.turn();
    assert_eq!((rig.queue("$queue/again").messages, rig.queue("$queue/dead-letters").messages), (1, 0));
}
