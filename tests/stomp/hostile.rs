//! Peers that mean no good cost themselves alone.

use std::time::Duration;

use crate::client::Stomp;
use crate::framing::pour;
use crate::harness::GatewayOptions;
use crate::{amount, gateway, stomp};

/// What the gateway may grow by while it is under attack.
const GROWTH_BYTES_MAX: u64 = 8 << 20;

#[test]
fn a_thousand_connections_that_announce_large_bodies_cost_little() {
    let gateway = gateway();
    let mut other = Stomp::open(stomp(&gateway));
    other.put("hostile", "before");
    let before = gateway.rss();
    let mut clients: Vec<Stomp> = (0..1_000).map(|_| Stomp::open(stomp(&gateway))).collect();
    for client in &mut clients {
        client.send("SEND\ndestination:/queue/hostile\ncontent-length:1048576\n\nand no more");
    }
    (0..100).for_each(|_| other.put("hostile", "meanwhile"));
    let grown = gateway.rss().saturating_sub(before);
    assert!(grown < GROWTH_BYTES_MAX, "{grown} bytes");
}

#[test]
fn header_lines_without_an_end_cost_little_and_others_are_served() {
    let gateway = gateway();
    let mut other = Stomp::open(stomp(&gateway));
    other.put("lines", "before");
    let (before, address) = (gateway.rss(), stomp(&gateway));
    let pouring: Vec<_> = (0..8)
        .map(|i| {
            std::thread::spawn(move || {
                for _ in 0..8 {
                    // Before and after the login.
                    let mut client = if i % 2 == 0 { Stomp::raw(address) } else { Stomp::open(address) };
                    pour(&mut client, if i % 2 == 0 { "CONNECT\nx:" } else { "SEND\nx:" }, 64 << 20);
                    client.error();
                }
            })
        })
        .collect();
    let mut most = 0;
    while !pouring.iter().all(std::thread::JoinHandle::is_finished) {
        other.put("lines", "meanwhile");
        most = most.max(gateway.rss().saturating_sub(before));
    }
    pouring.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(most < GROWTH_BYTES_MAX, "{most} bytes");
}

#[test]
fn clients_that_send_byte_by_byte_do_not_disturb_others() {
    let gateway = GatewayOptions::new().set("limits.login_timeout=2s").start();
    let mut other = Stomp::open(stomp(&gateway));
    other.put("slow", "before");
    let before = gateway.rss();
    let mut clients: Vec<Stomp> = (0..500)
        .map(|i| if i % 2 == 0 { Stomp::raw(stomp(&gateway)) } else { Stomp::open(stomp(&gateway)) })
        .collect();
    let frames = ["CONNECT\naccept-version:1.2\nhost:", "SEND\ndestination:/queue/slow\nx:"];
    let mut open = clients.len();
    for at in 0..40 {
        open = 0;
        for (i, client) in clients.iter_mut().enumerate() {
            let byte = frames[i % 2].as_bytes().get(at).copied().unwrap_or(b'a');
            open += usize::from(client.try_send([byte]));
        }
        other.put("slow", "meanwhile");
    }
    assert!(open >= 250, "those that have logged in may take their time");
    for client in clients.iter_mut().step_by(2) {
        client.rest_within(Duration::from_secs(5));
    }
    let grown = gateway.rss().saturating_sub(before);
    assert!(grown < GROWTH_BYTES_MAX, "{grown} bytes");
}

#[test]
fn a_client_that_never_reads_its_messages_costs_no_more_than_its_outbox() {
    let gateway = gateway();
    let mut slow = Stomp::open(stomp(&gateway));
    slow.subscribe_to("s", "/topic/flood", "ack:client\n");
    let mut sender = Stomp::open(stomp(&gateway));
    sender.put("x", "x");
    let before = gateway.rss();
    let body = "x".repeat(16 << 10);
    for i in 0..amount("TIDEGATE_STOMP_FLOOD", 2_000) {
        sender.send(format!("SEND\ndestination:/topic/flood\n\n{i}{body}\0"));
    }
    sender.send("SEND\ndestination:/topic/flood\nreceipt:last\n\nlast\0");
    sender.receipt("last");
    let grown = gateway.rss().saturating_sub(before);
    assert!(grown < 2 * GROWTH_BYTES_MAX, "{grown} bytes");
}
