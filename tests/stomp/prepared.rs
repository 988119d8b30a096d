//! Prepared transactions and kills of the process at twelve steps of the conversation: preparing, committing and rolling back, each
//! when half of the frame is sent, when all of it is, a moment later, and when its receipt is there.

use std::time::Duration;

use crate::client::{Stomp, drain};
use crate::harness::{Gateway, GatewayOptions, PATIENCE, Random, eventually};
use crate::{amount, stomp};

/// The longest moment between a frame and the kill, in microseconds: a commit takes about as long.
const MOMENT_MICROS: u64 = 2_000;

/// Memory of one transaction, in bytes.
const MEMORY: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Prepare,
    Commit,
    RollBack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Half,
    Sent,
    AMomentLater,
    Answered,
}

const STEPS: [Step; 3] = [Step::Prepare, Step::Commit, Step::RollBack];
const PLACES: [Place; 4] = [Place::Half, Place::Sent, Place::AMomentLater, Place::Answered];

/// The queues of every round: where messages come from, and where they go.
const QUEUES: [&str; 3] = ["prepared-in", "prepared-one", "prepared-two"];

/// What they hold when nothing has happened, while the transaction is prepared, and when it is committed.
const UNTOUCHED: [&[&str]; 3] = [&["1", "2", "3"], &[], &[]];
const OUT_OF_SIGHT: [&[&str]; 3] = [&["2"], &[], &[]];
const COMMITTED: [&[&str]; 3] = [&["2"], &["a"], &["b"]];
/// What a roll-back brings back when the rest was taken before.
const RETURNED: [&[&str]; 3] = [&["1", "3"], &[], &[]];
const SENT_ALONE: [&[&str]; 3] = [&[], &["a"], &["b"]];

#[track_caller]
fn assert_holds(gateway: &Gateway, expected: [&[&str]; 3]) {
    let held = QUEUES.map(|queue| drain(stomp(gateway), queue));
    let texts = held.each_ref().map(|bodies| bodies.iter().map(|body| body.trim_end()).collect::<Vec<_>>());
    assert_eq!(texts, expected.map(<[_]>::to_vec));
}

/// A program that has taken the first and the third of three messages in a transaction, and sent two, with so many spaces behind.
fn open(gateway: &Gateway, xid: &str, spaces: usize) -> Stomp {
    let mut client = Stomp::open(stomp(gateway));
    ["1", "2", "3"].iter().for_each(|body| client.put(QUEUES[0], body));
    client.subscribe("s", QUEUES[0], "client-individual");
    let acks: Vec<String> = client.messages(3).iter().map(|frame| frame.header("ack").to_owned()).collect();
    let spaces = " ".repeat(spaces);
    client.send(format!(
        "BEGIN\ntransaction:t\nxid:{xid}\n\n\0ACK\nid:{}\ntransaction:t\n\n\0\
         SEND\ndestination:/queue/{}\ntransaction:t\n\na{spaces}\0ACK\nid:{}\ntransaction:t\n\n\0\
         SEND\ndestination:/queue/{}\ntransaction:t\n\nb{spaces}\0",
        acks[0], QUEUES[1], acks[2], QUEUES[2]
    ));
    client
}

fn listed(gateway: &Gateway, xid: &str) -> bool {
    // The admin interface comes up a little after the listeners.
    let list = eventually("the list of transactions", PATIENCE, || {
        let list = gateway.run(&["txn", "list"]);
        if list.status.success() { Ok(list.output) } else { Err(list.output) }
    });
    list.contains(xid)
}

fn decide(gateway: &Gateway, xid: &str, commit: bool) {
    let mut client = Stomp::open(stomp(gateway));
    let command = if commit { "COMMIT" } else { "ABORT" };
    client.send(format!("{command}\nxid:{xid}\nreceipt:decided\n\n\0"));
    client.receipt("decided");
}

fn crash(gateway: &mut Gateway, xid: &str, spaces: usize, at: (Step, Place), random: &mut Random) {
    let (step, place) = at;
    let mut client = open(gateway, xid, spaces);
    let prepare = "COMMIT\ntransaction:t\nphase:prepare\nreceipt:r\n\n\0".to_owned();
    if step != Step::Prepare {
        client.send(&prepare);
        client.receipt("r");
    }
    let frame = match step {
        Step::Prepare => prepare,
        Step::Commit => format!("COMMIT\nxid:{xid}\nreceipt:r\n\n\0"),
        Step::RollBack => format!("ABORT\nxid:{xid}\nreceipt:r\n\n\0"),
    };
    match place {
        Place::Half => client.send(&frame[..frame.len() / 2]),
        _ => client.send(&frame),
    }
    match place {
        Place::Half | Place::Sent => {}
        Place::AMomentLater => std::thread::sleep(Duration::from_micros(random.below(MOMENT_MICROS))),
        // What is rolled back may be delivered again before the receipt.
        Place::Answered => client.await_receipt("r"),
    }
    gateway.kill();
    gateway.restart();
    // Whoever sends after a restart waits for what is committed and on its way.
    Stomp::open(stomp(gateway)).put("prepared-after", "");
    let listed = listed(gateway, xid);
    match place {
        Place::Half => assert_eq!(listed, step != Step::Prepare, "half a frame changes nothing"),
        Place::Answered => assert_eq!(listed, step == Step::Prepare, "what was answered is so"),
        _ => {}
    }
    match (listed, step) {
        (true, _) => decide_and_look(gateway, xid, random),
        (false, Step::Commit) => assert_holds(gateway, COMMITTED),
        (false, Step::Prepare | Step::RollBack) => assert_holds(gateway, UNTOUCHED),
    }
}

/// It is prepared: nothing of it is seen before its decision, and then all of it.
fn decide_and_look(gateway: &Gateway, xid: &str, random: &mut Random) {
    let (look, commit) = (random.chance(50), random.chance(50));
    if look {
        assert_holds(gateway, OUT_OF_SIGHT);
    }
    decide(gateway, xid, commit);
    assert!(!listed(gateway, xid));
    assert_holds(
        gateway,
        match (look, commit) {
            (false, true) => COMMITTED,
            (false, false) => UNTOUCHED,
            (true, true) => SENT_ALONE,
            (true, false) => RETURNED,
        },
    );
}

#[test]
fn a_kill_at_any_of_twelve_steps_leaves_all_of_a_prepared_transaction_or_nothing() {
    // A configuration file, because the list of transactions is asked for with it.
    let mut gateway =
        GatewayOptions::new().config("").set(&format!("limits.transaction_bytes_max={MEMORY}")).start();
    let mut random = Random::for_test("prepared");
    let crashes = amount("TIDEGATE_STOMP_CRASHES", 2);
    for (step, place) in STEPS.into_iter().flat_map(|step| PLACES.map(|place| (step, place))) {
        for n in 0..crashes {
            let xid = format!("{step:?}-{place:?}-{n}");
            // Every other one is too large for the memory.
            let spaces = if n % 2 == 0 { 0 } else { MEMORY };
            crash(&mut gateway, &xid, spaces, (step, place), &mut random);
        }
        eprintln!("{crashes} kills: {step:?}, {place:?}");
    }
}
