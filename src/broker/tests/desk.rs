use super::queues::{QUEUE, consumer, rig_with};
use super::*;
use crate::broker::desk::{DeskError, Progress};
use crate::limits::QueueDef;

fn small() -> Rig {
    Rig::with(Limits {
        queue_memory_bytes_max: 64 << 10,
        queue_window_bytes_max: 4 << 10,
        ..Limits::default()
    })
}

fn fill(rig: &mut Rig, queue: &str, count: usize) {
    let publisher = rig.transient("filler");
    for n in 0..count {
        rig.publish(publisher, queue, &n.to_string(), Qos::AtLeastOnce, 1);
    }
}

/// Calls until nothing is left; returns how much was done and the calls that it took.
fn finish(
    rig: &mut Rig,
    mut call: impl FnMut(&mut Broker, Now) -> Result<Progress, DeskError>,
) -> (u64, usize) {
    let mut sum = 0;
    for calls in 1..10_000 {
        let now = rig.now();
        let progress = call(&mut rig.broker, now).unwrap();
        sum += progress.done;
        rig.turn();
        if progress.left == 0 {
            return (sum, calls);
        }
    }
    panic!("no end, {sum} done");
}

#[test]
fn a_purge_goes_through_a_deep_queue_in_parts_and_spares_what_is_under_way() {
    let mut rig = small();
    let worker = rig.transient("w");
    rig.consume(worker, ConsumeRequest { messages_max: 2, ..consumer(1) });
    fill(&mut rig, QUEUE, 3000);
    let sent = rig.deliveries(worker);
    let (done, calls) = finish(&mut rig, |broker, now| broker.purge_some("jobs", now));
    assert_eq!(done, 2998);
    assert!(calls > 10, "{calls}");
    assert_eq!(rig.queue(QUEUE).messages, 2);
    rig.ack(worker, sent[0].id.unwrap());
    fill(&mut rig, QUEUE, 1);
    assert_eq!(rig.payloads(worker), ["0"]);
}

#[test]
fn dead_letters_go_back_to_where_they_come_from_without_their_story() {
    let mut rig = small();
    fill(&mut rig, QUEUE, 300);
    let worker = rig.worker("w");
    let mut rejected = 0;
    while rejected < 300 {
        for delivery in rig.deliveries(worker) {
            rig.reject(worker, delivery.id.unwrap(), false);
            rejected += 1;
        }
    }
    rig.lose(worker);
    assert_eq!((rig.queue(QUEUE).messages, rig.queue("$queue/dead-letters").messages), (0, 300));
    let (done, _) = finish(&mut rig, |broker, now| broker.move_some("dead-letters", None, now));
    assert_eq!(done, 300);
    rig.kill_and_restart(1);
    let worker = rig.worker("w");
    let first = rig.deliveries(worker);
    assert!(first.iter().all(|delivery| delivery.message.properties().is_none()));
    first.iter().for_each(|delivery| rig.ack(worker, delivery.id.unwrap()));
    let rest = rig.drain(worker);
    let all: Vec<String> = first.iter().map(payload).chain(rest).collect();
    assert_eq!(all, (0..300).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[test]
fn what_cannot_be_moved_stays_and_the_reason_is_told() {
    let mut rig = Rig::new();
    fill(&mut rig, QUEUE, 2);
    let now = rig.now();
    rig.broker.peek("jobs", 1, now).unwrap();
    rig.turn();
    assert_eq!(rig.broker.move_some("jobs", None, now), Err(DeskError::NoOrigin));
    assert_eq!(rig.broker.move_some("jobs", Some("jobs"), now), Err(DeskError::SameQueue));
    assert_eq!(rig.broker.move_some("none", Some("jobs"), now), Err(DeskError::NoSuchQueue));
    rig.turn();
    assert_eq!(rig.queue(QUEUE).messages, 2);
    let (done, _) = finish(&mut rig, |broker, now| broker.move_some("jobs", Some("other"), now));
    assert_eq!((done, rig.queue("$queue/other").messages), (2, 2));
}

#[test]
fn a_peek_shows_what_waits_first_and_takes_nothing() {
    let mut rig = small();
    fill(&mut rig, QUEUE, 500);
    let now = rig.now();
    let (progress, seen) = rig.broker.peek("jobs", 3, now).unwrap();
    rig.turn();
    assert_eq!((progress, seen.len()), (Progress { done: 0, left: 500 }, 0), "a page is on its way");
    let (_, seen) = rig.broker.peek("jobs", 3, now).unwrap();
    let texts: Vec<_> = seen.iter().map(|message| message.payload().to_vec()).collect();
    assert_eq!(texts, [b"0", b"1", b"2"]);
    let worker = rig.worker("w");
    assert_eq!(rig.drain(worker).len(), 500);
}

#[test]
fn a_queue_ends_when_nobody_uses_it_and_no_definition_wants_it() {
    let mut rig = rig_with(vec![QueueDef { name: "kept".into(), ..QueueDef::default() }]);
    let worker = rig.worker("w");
    fill(&mut rig, QUEUE, 2);
    assert_eq!(rig.broker.delete_queue("jobs"), Err(DeskError::InUse));
    assert_eq!(rig.broker.delete_queue("kept"), Err(DeskError::Defined));
    rig.lose(worker);
    assert_eq!(rig.broker.delete_queue("jobs"), Ok(2));
    rig.turn();
    assert_eq!(rig.broker.delete_queue("jobs"), Err(DeskError::NoSuchQueue));
    rig.kill_and_restart(1);
    assert!(!rig.broker.queues().any(|queue| queue.name == QUEUE));
    fill(&mut rig, QUEUE, 1);
    assert_eq!(rig.queue(QUEUE).messages, 1);
}
