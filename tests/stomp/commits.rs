//! What a commit costs: one durable commit however many queues it touches, and no memory that stays.

use std::fmt::Write as _;

use crate::client::Stomp;
use crate::harness::Gateway;
use crate::{amount, gateway, stomp};

/// Messages that go round, each of them in a transaction of its own.
const ROUND: usize = 100;
/// Transactions before memory is looked at: whatever grows to a size of its own has grown by then.
const WARM: usize = 5_000;
/// Commits that are counted one by one.
const COUNTED: u64 = 200;
/// Queues that such a commit sends to.
const QUEUES: usize = 5;

/// Group commits and writes of the ring's syncs so far.
fn commits_and_syncs(gateway: &Gateway) -> (u64, u64) {
    let store = gateway.status()["store"].clone();
    (store["commits"].as_u64().unwrap(), store["syncs"]["ring"].as_u64().unwrap())
}

/// Takes what has been delivered, each message in a transaction that sends another one in its place; waits for the last commit.
fn go_round(client: &mut Stomp) {
    let acks: Vec<String> =
        client.messages(ROUND).iter().map(|frame| frame.header("ack").to_owned()).collect();
    let mut frames = String::new();
    for (i, ack) in acks.iter().enumerate() {
        let receipt = if i + 1 == acks.len() { "receipt:r\n" } else { "" };
        write!(
            frames,
            "BEGIN\ntransaction:{i}\n\n\0ACK\nid:{ack}\ntransaction:{i}\n\n\0\
             SEND\ndestination:/queue/round\ntransaction:{i}\n\nx\0\
             SEND\ndestination:/topic/nobody\ntransaction:{i}\n\nx\0\
             COMMIT\ntransaction:{i}\n{receipt}\n\0"
        )
        .unwrap();
    }
    client.send(frames);
}

#[test]
fn transactions_that_come_and_go_leave_no_memory_behind() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    (0..ROUND).for_each(|_| client.put("round", "x"));
    client.subscribe("s", "round", "client-individual");
    let run = |transactions: usize, client: &mut Stomp| {
        let rounds = transactions.div_ceil(ROUND);
        for _ in 0..rounds {
            go_round(client);
            // Messages of the next round may overtake the receipt of this one.
            client.await_receipt("r");
        }
        rounds * ROUND
    };
    run(WARM, &mut client);
    let before = gateway.rss();
    let commits = run(amount("TIDEGATE_STOMP_TRANSACTIONS", 10_000), &mut client);
    let grown = gateway.rss().saturating_sub(before);
    eprintln!("{commits} commits, {grown} bytes more");
    assert!(grown < 1 << 20, "{grown} bytes");
}

#[test]
fn a_commit_is_one_durable_commit_however_many_queues_it_touches() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    for from in ["from-1", "from-2"] {
        (0..COUNTED).for_each(|_| client.put(from, "x"));
    }
    let both = ["from-1", "from-2"]
        .map(|from| format!("SUBSCRIBE\nid:{from}\ndestination:/queue/{from}\nack:client-individual\n\n\0"));
    client.send(both.concat());
    let messages = client.messages(2 * COUNTED as usize);
    let (first, second): (Vec<_>, Vec<_>) =
        messages.iter().partition(|message| message.header("subscription") == "from-1");
    let before = commits_and_syncs(&gateway);
    for (one, two) in first.into_iter().zip(second) {
        let mut frames = "BEGIN\ntransaction:t\n\n\0".to_owned();
        for ack in [one, two].map(|message| message.header("ack")) {
            write!(frames, "ACK\nid:{ack}\ntransaction:t\n\n\0").unwrap();
        }
        for to in 0..QUEUES {
            write!(frames, "SEND\ndestination:/queue/to-{to}\ntransaction:t\n\nx\0").unwrap();
        }
        client.send(frames + "COMMIT\ntransaction:t\nreceipt:r\n\n\0");
        client.receipt("r");
    }
    let after = commits_and_syncs(&gateway);
    assert_eq!((after.0 - before.0, after.1 - before.1), (COUNTED, COUNTED));
}
