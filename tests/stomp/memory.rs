//! What an idle connection costs.

use crate::client::Stomp;
use crate::harness::GatewayOptions;
use crate::{amount, stomp};

/// Memory of an idle connection in bytes: with nothing, and with a subscription to a queue and one to a topic. What waits for a
/// socket is larger where nothing is optimized, and the tables that all share, which double as they grow, are much for a few.
const IDLE_BYTES_MAX: u64 = 2 << 10;
const IDLE_BYTES_MAX_OF_FEW: u64 = 3 << 10;
const FEW: usize = 5_000;
const SUBSCRIBED_BYTES_MAX: u64 = 5 << 10;

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
fn an_idle_connection_costs_less_than_two_kibibytes_when_there_are_many() {
    let connections = amount("TIDEGATE_STOMP_IDLE", 1_000);
    let is_like_few = cfg!(debug_assertions) || connections < FEW;
    let each = cost(connections, |_| {});
    assert!(each < if is_like_few { IDLE_BYTES_MAX_OF_FEW } else { IDLE_BYTES_MAX }, "{each} bytes");
}

#[test]
fn an_idle_connection_with_two_subscriptions_costs_less_than_five_kibibytes() {
    let each = cost(amount("TIDEGATE_STOMP_IDLE", 1_000), |client| {
        client.subscribe("q", "idle", "client");
        client.subscribe_to("t", "/topic/idle/+", "");
    });
    assert!(each < SUBSCRIBED_BYTES_MAX, "{each} bytes");
}
