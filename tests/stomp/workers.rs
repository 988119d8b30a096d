//! Devices speak MQTT, workers STOMP, a queue lies between them, and the process is killed again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::client::{C2, Stomp};
use crate::harness::{Login, Message, PATIENCE, Random, Version, eventually};
use crate::{amount, gateway, stomp};

/// Publishes numbers, each until it is acknowledged; every attempt is a message of its own.
fn device(address: SocketAddr, stop: &AtomicBool) -> BTreeSet<String> {
    let mut acknowledged = BTreeSet::new();
    let (mut number, mut attempt) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut client) = Login::fresh(Version::V311, "device").open(address) else {
            thread::sleep(Duration::from_millis(2));
            continue;
        };
        loop {
            let body = format!("{number}/{attempt}");
            attempt += 1;
            if client.publish(&Message::new("$queue/work", &body, 1)).is_err() {
                break;
            }
            acknowledged.insert(body);
            number += 1;
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
    }
    acknowledged
}

/// What a worker has seen: each message, and whether it came flagged each time.
type Seen = Mutex<BTreeMap<String, Vec<bool>>>;

fn work(address: SocketAddr, stop: &AtomicBool, seen: &Seen) {
    while !stop.load(Ordering::Relaxed) {
        let Some(mut client) = Stomp::try_raw(address) else {
            thread::sleep(Duration::from_millis(2));
            continue;
        };
        client.try_send(C2);
        client.try_send(
            "SUBSCRIBE\nid:w\ndestination:/queue/work\nack:client-individual\nprefetch-count:20\n\n\0",
        );
        while !stop.load(Ordering::Relaxed) {
            match client.frame_within(Duration::from_millis(50)) {
                Ok(Some(frame)) if frame.command == "MESSAGE" => {
                    let again = frame.find("redelivered") == Some("true");
                    seen.lock().unwrap().entry(frame.text()).or_default().push(again);
                    client.try_send(format!("ACK\nid:{}\n\n\0", frame.header("ack")));
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }
}

#[test]
fn nothing_of_a_device_is_lost_to_its_worker_and_what_comes_again_says_so() {
    let mut gateway = gateway();
    let mut random = Random::for_test("workers");
    let (mqtt, address) = (gateway.address(), stomp(&gateway));
    let (stop_device, stop_worker) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let seen: Arc<Seen> = Arc::default();
    let publishing = thread::spawn({
        let stop = Arc::clone(&stop_device);
        move || device(mqtt, &stop)
    });
    let working = thread::spawn({
        let (stop, seen) = (Arc::clone(&stop_worker), Arc::clone(&seen));
        move || work(address, &stop, &seen)
    });
    for _ in 0..amount("TIDEGATE_KILLS", 20) {
        thread::sleep(Duration::from_millis(random.between(20, 200)));
        gateway.kill();
        gateway.restart();
    }
    stop_device.store(true, Ordering::Relaxed);
    let acknowledged = publishing.join().unwrap();
    eventually("every acknowledged message at the worker", PATIENCE, || {
        let seen = seen.lock().unwrap();
        let missing: Vec<&String> = acknowledged.iter().filter(|body| !seen.contains_key(*body)).collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(format!("{} are missing, as {:?}", missing.len(), missing[0]))
        }
    });
    stop_worker.store(true, Ordering::Relaxed);
    working.join().unwrap();
    assert!(acknowledged.len() > 20, "{} messages", acknowledged.len());
    for (body, flags) in &*seen.lock().unwrap() {
        assert!(flags[1..].iter().all(|again| *again), "{body} came again and did not say so: {flags:?}");
    }
    eprintln!("{} messages acknowledged, {} seen", acknowledged.len(), seen.lock().unwrap().len());
}
