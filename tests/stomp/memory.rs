//! What an idle connection costs.

use crate::client::Stomp;
use crate::harness::GatewayOptions;
use crate::{amount, stomp};

/// Memory of an idle connection in bytes: with nothing, and with a subscription to a queue and one to a topic. What waits for a
/// socket is larger where nothing is optimized.
const IDLE_BYTES_MAX: u64 = if cfg!(debug_assertions) { 3 << 10 } else { 2 << 10 };
const SUBSCRIBED_BYTES_MAX: u64 = 5 << 10;
/// Connections when nobody asks for a number. The tables that all share double as they grow, so it takes many to be exact.
const CONNECTIONS: usize = if cfg!(debug_assertions) { 1_000 } else { 5_000 };

/// Bytes for each of so many connections.
fn cost(connections: usize, then: fn(&mut Stomp)) -> u64 {
    let gateway = GatewayOptions::new().set("limits.connections_max=20000").start();
    let open = |count: usize| -> Vec<Stomp> {
        let mut clients: Vec<Stomp> = (0..count).map(|_| Stomp::open(stomp(&gateway))).collect();
        clients.iter_mut().for_each(then);
        clients
    };
    // What all of them share is there before.
    let _first = open(100);
    let before = gateway.rss();
    let clients = open(connections);
    let each = gateway.rss().saturating_sub(before) / connections as u64;
    eprintln!("{} connections, {each} bytes each", clients.len());
    each
}

#[test]
fn an_idle_connection_costs_less_than_two_kibibytes() {
    let each = cost(amount("TIDEGATE_STOMP_IDLE", CONNECTIONS), |_| {});
    assert!(each < IDLE_BYTES_MAX, "{each} bytes");
}

#[test]
fn an_idle_connection_with_two_subscriptions_costs_less_than_five_kibibytes() {
    let each = cost(amount("TIDEGATE_STOMP_IDLE", CONNECTIONS), |client| {
        client.subscribe("q", "idle", "client");
        client.subscribe_to("t", "/topic/idle/+", "");
    });
    assert!(each < SUBSCRIBED_BYTES_MAX, "{each} bytes");
}
