//! Named queues, by MQTT and by the command line.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use tidegate_mqtt::{PacketType, ReasonCode};

use crate::harness::{
    Client, Gateway, GatewayOptions, Login, Message, PATIENCE, SHORT, Version, eventually, run_program,
};

const QUEUE: &str = "$queue/jobs";

fn client(gateway: &Gateway, id: &str) -> Client {
    Login::fresh(Version::V5, id).open(gateway.address()).unwrap()
}

fn worker(gateway: &Gateway, id: &str) -> Client {
    let mut worker = client(gateway, id);
    worker.subscribe(QUEUE, 1).unwrap();
    worker
}

fn jobs(topic: &str, range: std::ops::Range<u32>) -> impl Iterator<Item = Message> {
    range.map(move |n| Message::new(topic, n.to_string(), 1))
}

/// Runs `tidegate` on the gateway's folder; its answer as JSON.
fn tidegate(gateway: &Gateway, arguments: &[&str]) -> Value {
    let folder = gateway.folder().join("data").to_str().unwrap().to_owned();
    let all: Vec<&str> = arguments.iter().copied().chain(["--json", "--data-dir", &folder]).collect();
    let done = run_program(&all, Path::new(&folder));
    assert!(done.status.success(), "{arguments:?}: {done:?}");
    serde_json::from_str(&done.output).unwrap()
}

#[test]
fn a_message_waits_in_its_queue_for_the_first_worker_across_kill_9() {
    let mut gateway = Gateway::start();
    client(&gateway, "publisher").publish_all(jobs(QUEUE, 0..50), 50).unwrap();
    gateway.kill();
    gateway.restart();
    let mut worker = worker(&gateway, "worker");
    for n in 0..50 {
        let message = worker.message().unwrap();
        assert_eq!((message.text(), message.topic.as_str()), (n.to_string(), QUEUE));
    }
    assert!(worker.message_within(SHORT).unwrap().is_none());
}

#[test]
fn workers_compete_whether_they_subscribe_plainly_or_as_a_group() {
    let gateway = Gateway::start();
    let mut workers = [worker(&gateway, "a"), client(&gateway, "b")];
    workers[1].subscribe("$share/any/$queue/jobs", 1).unwrap();
    client(&gateway, "publisher").publish_all(jobs(QUEUE, 0..100), 50).unwrap();
    let (mut seen, mut shares) = (BTreeSet::new(), [0, 0]);
    eventually("all jobs", PATIENCE, || {
        for (share, worker) in shares.iter_mut().zip(workers.iter_mut()) {
            while let Some(message) = worker.message_within(SHORT).unwrap() {
                *share += 1;
                assert!(seen.insert(message.text()), "{} came twice", message.text());
            }
        }
        if seen.len() == 100 { Ok(()) } else { Err(format!("{} of 100", seen.len())) }
    });
    assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
}

#[test]
fn what_a_worker_took_and_did_not_acknowledge_goes_to_the_next_in_order_and_flagged() {
    let mut gateway = Gateway::start();
    client(&gateway, "publisher").publish_all(jobs(QUEUE, 0..10), 10).unwrap();
    let mut first = worker(&gateway, "first");
    for _ in 0..4 {
        first.take().unwrap();
    }
    drop(first);
    let mut second = worker(&gateway, "second");
    let taken: Vec<Message> = (0..10).map(|_| second.message().unwrap()).collect();
    let texts: Vec<_> = taken.iter().map(Message::text).collect();
    assert_eq!(texts, (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
    assert!(taken[..4].iter().all(|message| message.dup), "{taken:?}");
    gateway.stop();
}

#[test]
fn devices_fill_a_bound_queue_by_plain_publishing() {
    let config = "[[queue_def]]\nname = 'orders'\nbind = ['factory/+/orders']\n";
    let mut gateway = GatewayOptions::new().config(config).start();
    client(&gateway, "device").publish_all(jobs("factory/7/orders", 0..5), 5).unwrap();
    gateway.kill();
    gateway.restart();
    let mut worker = client(&gateway, "worker");
    worker.subscribe("$queue/orders", 1).unwrap();
    for n in 0..5 {
        let message = worker.message().unwrap();
        assert_eq!((message.text(), message.topic.as_str()), (n.to_string(), "factory/7/orders"));
    }
}

#[test]
fn a_refused_message_is_a_dead_letter_that_an_operator_finds_and_returns() {
    let gateway = Gateway::start();
    client(&gateway, "publisher").publish_all(jobs(QUEUE, 0..2), 2).unwrap();
    let mut picky = worker(&gateway, "picky");
    for _ in 0..2 {
        let message = picky.take().unwrap();
        picky.ack_with(PacketType::Puback, message.id, ReasonCode::UnspecifiedError).unwrap();
    }
    picky.ping().unwrap();
    drop(picky);
    let shown = tidegate(&gateway, &["queue", "show", "dead-letters"]);
    assert_eq!(shown["queues"][0]["messages"], 2, "{shown}");
    let peeked = tidegate(&gateway, &["queue", "peek", "dead-letters", "--count", "1"]);
    let properties = &peeked["messages"][0][0]["properties"];
    assert_eq!(properties[0], serde_json::json!(["dead-letter-origin", "jobs"]), "{peeked}");
    assert_eq!(properties[1], serde_json::json!(["dead-letter-reason", "rejected"]));
    let moved = tidegate(&gateway, &["queue", "move", "dead-letters"]);
    assert_eq!(moved["progress"], serde_json::json!([2, 0]));
    let mut patient = worker(&gateway, "patient");
    assert_eq!([(); 2].map(|()| patient.message().unwrap().text()), ["0", "1"]);
}

#[test]
fn an_operator_empties_and_ends_a_queue() {
    let gateway = Gateway::start();
    client(&gateway, "publisher").publish_all(jobs(QUEUE, 0..3000), 500).unwrap();
    assert_eq!(tidegate(&gateway, &["queue", "purge", "jobs"])["progress"], serde_json::json!([3000, 0]));
    client(&gateway, "publisher").publish_all(jobs(QUEUE, 0..3), 3).unwrap();
    assert_eq!(tidegate(&gateway, &["queue", "delete", "jobs"])["progress"], serde_json::json!([3, 0]));
    assert_eq!(tidegate(&gateway, &["queue", "list"])["queues"], serde_json::json!([]));
    assert_eq!(tidegate(&gateway, &["txn", "list"])["transactions"], serde_json::json!([]));
}
