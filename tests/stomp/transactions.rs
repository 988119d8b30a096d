//! Transactions.

use std::net::Shutdown;
use std::time::{Duration, Instant};

use crate::client::{Frame, Stomp, assert_empty, assert_has};
use crate::harness::{GatewayOptions, Random};
use crate::{amount, gateway, stomp};

const SHORT: Duration = Duration::from_millis(300);

fn begin(name: &str) -> String {
    format!("BEGIN\ntransaction:{name}\n\n\0")
}

fn send(name: &str, queue: &str, body: &str) -> String {
    format!("SEND\ndestination:/queue/{queue}\ntransaction:{name}\n\n{body}\0")
}

#[track_caller]
fn finish(client: &mut Stomp, command: &str, name: &str) {
    client.send(format!("{command}\ntransaction:{name}\nreceipt:end\n\n\0"));
    client.receipt("end");
}

#[track_caller]
fn refused(address: std::net::SocketAddr, frames: &str) -> Frame {
    let mut client = Stomp::open(address);
    client.send(frames);
    client.error()
}

#[test]
fn a138_a_transaction_is_seen_as_a_whole_and_not_before_its_commit() {
    let gateway = gateway();
    let mut watching = Stomp::open(stomp(&gateway));
    watching.subscribe("s", "a138", "auto");
    let mut client = watching.another();
    client.send(begin("t") + &send("t", "a138", "1") + &send("t", "a138", "2") + &send("t", "a138", "3"));
    watching.silence(SHORT);
    finish(&mut client, "COMMIT", "t");
    let bodies: Vec<String> = watching.messages(3).iter().map(Frame::text).collect();
    assert_eq!(bodies, ["1", "2", "3"]);
}

#[test]
fn a139_a_rollback_leaves_nothing() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send(begin("t") + &send("t", "a139", "x"));
    finish(&mut client, "ABORT", "t");
    assert_empty(stomp(&gateway), "a139");
}

#[test]
fn a140_transactions_have_names() {
    let gateway = gateway();
    for command in ["BEGIN", "COMMIT", "ABORT"] {
        refused(stomp(&gateway), &format!("{command}\n\n\0"));
    }
}

#[test]
fn a141_an_open_transaction_cannot_begin_again() {
    let gateway = gateway();
    refused(stomp(&gateway), &(begin("t") + &send("t", "a141", "x") + &begin("t")));
    assert_empty(stomp(&gateway), "a141");
}

#[test]
fn a142_a_transaction_that_is_not_open_is_an_error() {
    let gateway = gateway();
    for command in ["COMMIT", "ABORT"] {
        refused(stomp(&gateway), &format!("{command}\ntransaction:nope\n\n\0"));
    }
    refused(stomp(&gateway), &send("nope", "a142", "x"));
    assert_empty(stomp(&gateway), "a142");
    let mut client = Stomp::open(stomp(&gateway));
    client.put("a142", "kept");
    client.subscribe("s", "a142", "client");
    let ack = client.message().header("ack").to_owned();
    client.send(format!("ACK\nid:{ack}\ntransaction:nope\n\n\0"));
    client.error();
    assert_has(stomp(&gateway), "a142", ["kept"]);
}

#[test]
fn a143_the_end_of_a_connection_rolls_back_what_is_open() {
    let mut gateway = gateway();
    let open = |address| {
        let mut client = Stomp::open(address);
        client.send(begin("t") + &send("t", "a143", "x"));
        client.send("SEND\ndestination:/queue/other\nreceipt:r\n\nx\0");
        client.receipt("r");
        client
    };
    open(stomp(&gateway)).disconnect();
    open(stomp(&gateway)).shut_down(Shutdown::Both);
    open(stomp(&gateway)).reset();
    assert_empty(stomp(&gateway), "a143");
    let _client = open(stomp(&gateway));
    gateway.kill();
    gateway.restart();
    assert_empty(stomp(&gateway), "a143");
}

#[test]
fn a144_names_of_transactions_belong_to_their_connection() {
    let gateway = gateway();
    let mut one = Stomp::open(stomp(&gateway));
    let mut two = one.another();
    one.send(begin("t") + &send("t", "a144", "one"));
    two.send(begin("t") + &send("t", "a144", "two"));
    finish(&mut two, "COMMIT", "t");
    finish(&mut one, "ABORT", "t");
    assert_has(stomp(&gateway), "a144", ["two"]);
}

#[test]
fn a145_a_name_is_free_after_the_end_of_its_transaction() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    for (body, end) in [("1", "COMMIT"), ("2", "ABORT"), ("3", "COMMIT")] {
        client.send(begin("t") + &send("t", "a145", body));
        finish(&mut client, end, "t");
    }
    assert_has(stomp(&gateway), "a145", ["1", "3"]);
}

#[test]
fn a146_several_transactions_may_interleave() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send(begin("t1") + &begin("t2"));
    for i in 1..=3 {
        client.send(send("t1", "a146", &format!("one {i}")) + &send("t2", "a146", &format!("two {i}")));
    }
    finish(&mut client, "COMMIT", "t2");
    finish(&mut client, "ABORT", "t1");
    assert_has(stomp(&gateway), "a146", ["two 1", "two 2", "two 3"]);
}

#[test]
fn a147_the_number_of_transactions_and_of_their_actions_is_bounded() {
    let gateway = gateway();
    let seventeen: String = (0..17).map(|i| begin(&i.to_string())).collect();
    refused(stomp(&gateway), &seventeen);
    let too_many = begin("t") + &send("t", "a147", "x").repeat(1_025);
    refused(stomp(&gateway), &too_many);
    assert_empty(stomp(&gateway), "a147");
}

#[test]
fn a148_a_kill_during_a_commit_leaves_all_or_nothing() {
    let mut gateway = gateway();
    let mut random = Random::for_test("commits");
    for round in 0..amount("TIDEGATE_STOMP_COMMITS", 15) {
        let queue = |name: &str| format!("a148-{name}-{round}");
        let mut client = Stomp::open(stomp(&gateway));
        client.put(&queue("in"), "in");
        client.subscribe("s", &queue("in"), "client");
        let ack = client.message().header("ack").to_owned();
        client.send(begin("t") + &send("t", &queue("one"), "one") + &send("t", &queue("two"), "two"));
        client.send(format!("ACK\nid:{ack}\ntransaction:t\n\n\0COMMIT\ntransaction:t\n\n\0"));
        std::thread::sleep(Duration::from_micros(random.below(3_000)));
        gateway.kill();
        gateway.restart();
        let left = ["in", "one", "two"].map(|name| crate::client::drain(stomp(&gateway), &queue(name)).len());
        assert!(left == [1, 0, 0] || left == [0, 1, 1], "round {round}: {left:?}");
    }
}

#[test]
fn a149_a_commit_with_its_receipt_survives_the_process() {
    let mut gateway = gateway();
    let rounds = amount("TIDEGATE_STOMP_RECEIPTS", 15);
    for round in 0..rounds {
        let mut client = Stomp::open(stomp(&gateway));
        client.send(begin("t") + &send("t", "a149", &round.to_string()));
        finish(&mut client, "COMMIT", "t");
        gateway.kill();
        gateway.restart();
    }
    let bodies = crate::client::drain(stomp(&gateway), "a149");
    assert_eq!(bodies, (0..rounds).map(|round| round.to_string()).collect::<Vec<_>>());
}

#[test]
fn a150_a_large_transaction_completes_or_is_an_error() {
    let gateway = GatewayOptions::new().set("limits.queue_memory_max=16MiB").start();
    let mut client = Stomp::open(stomp(&gateway));
    client.send(begin("t"));
    let body = "x".repeat(64 << 10);
    let begun = Instant::now();
    let all = (0..1_024).all(|_| client.try_send(send("t", "a150", &body)));
    if all {
        client.try_send("COMMIT\ntransaction:t\nreceipt:end\n\n\0");
    }
    let answer = client.frame();
    assert!(["RECEIPT", "ERROR"].contains(&&*answer.command));
    assert!(begun.elapsed() < Duration::from_secs(60));
    let committed = answer.command == "RECEIPT";
    drop(client);
    let left = crate::client::drain(stomp(&gateway), "a150").len();
    assert_eq!(left, if committed { 1_024 } else { 0 });
}

#[test]
fn a_transaction_beyond_its_memory_waits_on_the_disk_and_is_committed_whole_and_in_order() {
    let mut gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.put("large", "before");
    let before = gateway.rss();
    let body = "x".repeat(32 << 10);
    let open = |client: &mut Stomp| {
        client.send(begin("t"));
        for i in 0..1_000 {
            client.send(send("t", "large", &format!("{i} {body}")));
        }
        client.send("SEND\ndestination:/queue/other\nreceipt:there\n\nx\0");
        client.receipt("there");
    };
    open(&mut client);
    let grown = gateway.rss().saturating_sub(before);
    assert!(grown < 28 << 20, "{grown} bytes: the ring and what is around it, not the transaction");
    let work = |gateway: &crate::harness::Gateway| gateway.status()["work"].clone();
    assert!(work(&gateway)["transactions_disk_bytes"].as_u64().unwrap() > 30 << 20);
    gateway.kill();
    gateway.restart();
    assert_has(stomp(&gateway), "large", ["before"]);
    let mut client = Stomp::open(stomp(&gateway));
    client.put("large", "before");
    open(&mut client);
    client.send("COMMIT\ntransaction:t\n\n\0");
    client.put("large", "after");
    let bodies = crate::client::drain(stomp(&gateway), "large");
    let numbers: Vec<&str> = bodies.iter().map(|body| body.split(' ').next().unwrap()).collect();
    let expected: Vec<String> = (0..1_000).map(|i| i.to_string()).collect();
    assert_eq!((numbers[0], numbers[1_001]), ("before", "after"));
    assert_eq!(numbers[1..1_001], expected);
    assert_eq!(work(&gateway)["transactions_disk_bytes"], 0);
}

#[test]
fn a_kill_during_a_large_commit_leaves_all_or_nothing() {
    let mut gateway = gateway();
    let mut random = Random::for_test("large commits");
    let body = "x".repeat(16 << 10);
    for round in 0..amount("TIDEGATE_STOMP_COMMITS", 15) {
        let queue = |name: &str| format!("wide-{name}-{round}");
        let mut client = Stomp::open(stomp(&gateway));
        client.put(&queue("in"), "in");
        client.subscribe("s", &queue("in"), "client");
        let ack = client.message().header("ack").to_owned();
        client.send(begin("t") + &format!("ACK\nid:{ack}\ntransaction:t\n\n\0"));
        for i in 0..200 {
            client.send(send("t", &queue("out"), &format!("{i} {body}")));
        }
        client.send("COMMIT\ntransaction:t\nreceipt:c\n\n\0");
        std::thread::sleep(Duration::from_micros(random.below(60_000)));
        gateway.kill();
        gateway.restart();
        let left = crate::client::drain(stomp(&gateway), &queue("in")).len();
        let out = crate::client::drain(stomp(&gateway), &queue("out"));
        assert!(
            (left, out.len()) == (1, 0) || (left, out.len()) == (0, 200),
            "{round}: {left} {}",
            out.len()
        );
        assert!(out.iter().enumerate().all(|(i, body)| body.starts_with(&format!("{i} "))));
    }
}

#[test]
fn a151_a_commit_after_unsubscribe_settles() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.put("a151", "x");
    client.subscribe("s", "a151", "client");
    let ack = client.message().header("ack").to_owned();
    client.send(begin("t"));
    client.send(format!("ACK\nid:{ack}\ntransaction:t\n\n\0UNSUBSCRIBE\nid:s\nreceipt:u\n\n\0"));
    client.receipt("u");
    finish(&mut client, "COMMIT", "t");
    client.disconnect();
    assert_empty(stomp(&gateway), "a151");
}

#[test]
fn a_prepared_transaction_waits_for_its_decision_across_a_kill() {
    // The second has a part on the disk.
    for count in [1, 300] {
        let mut gateway = GatewayOptions::new().set("limits.transaction_bytes_max=64KiB").start();
        for (xid, command, kept) in [("x-1", "COMMIT", count), ("x-2", "ABORT", 0)] {
            let mut client = Stomp::open(stomp(&gateway));
            client.send(format!("BEGIN\ntransaction:t\nxid:{xid}\n\n\0"));
            for i in 0..count {
                client.send(send("t", xid, &format!("{i} {}", "x".repeat(1_000))));
            }
            client.send("COMMIT\ntransaction:t\nphase:prepare\nreceipt:p\n\n\0");
            client.receipt("p");
            gateway.kill();
            gateway.restart();
            assert_empty(stomp(&gateway), xid);
            assert_eq!(gateway.status()["work"]["transactions_prepared"], 1);
            let mut other = Stomp::open(stomp(&gateway));
            for receipt in ["first", "again"] {
                other.send(format!("{command}\nxid:{xid}\nreceipt:{receipt}\n\n\0"));
                other.receipt(receipt);
            }
            let bodies = crate::client::drain(stomp(&gateway), xid);
            let numbers: Vec<String> =
                bodies.iter().map(|body| body.split(' ').next().unwrap().to_owned()).collect();
            assert_eq!(numbers, (0..kept).map(|i| i.to_string()).collect::<Vec<_>>());
            assert_eq!(gateway.status()["work"]["transactions_disk_bytes"], 0);
        }
    }
}

#[test]
fn a_prepared_transaction_that_nobody_decides_is_rolled_back_logged_and_counted() {
    let gateway = GatewayOptions::new().set("limits.prepared_timeout=1s").start();
    let mut client = Stomp::open(stomp(&gateway));
    client.send(format!("BEGIN\ntransaction:t\nxid:forgotten-1\n\n\0{}", send("t", "late", "x")));
    client.send("COMMIT\ntransaction:t\nphase:prepare\nreceipt:p\n\n\0");
    client.receipt("p");
    gateway.await_status("the time-out", |status| {
        let work = &status["work"];
        (work["transactions"]["timed_out"] == 1 && work["transactions_prepared"] == 0).then_some(())
    });
    let log = gateway.log();
    let line = log.lines().find(|line| line.contains("forgotten-1")).expect("a line with its name");
    assert!(line.contains("rolled back") && line.contains("WARN"), "{line}");
    assert_empty(stomp(&gateway), "late");
    let (_, metrics) = gateway.get("/metrics");
    for line in ["tidegate_transactions_total{outcome=\"timed_out\"} 1", "tidegate_transactions_prepared 0"] {
        assert!(metrics.contains(line), "{line}");
    }
}
