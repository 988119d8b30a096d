//! A consumer's process that is stopped (SIGSTOP) in the middle of its work: its socket stays open and nobody reads it.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Gateway, Login, Message, Version};

/// Tells a process of this binary that it is the consumer, and of which gateway.
const GATEWAY: &str = "TIDEGATE_TEST_CONSUMER_OF";
/// Messages of one kilobyte: far more than sockets hold.
const MESSAGES: u64 = 20_000;
/// The consumer is stopped when it has taken so many.
const BEFORE: u64 = 500;
const LAST: &str = "last";

/// Not a test by itself: what the process does that another test starts. It prints what it takes, and comes back when it is
/// thrown out.
#[test]
fn a_consumer_in_a_process_of_its_own() {
    let Ok(address) = std::env::var(GATEWAY) else { return };
    let address: SocketAddr = address.parse().unwrap();
    let login = Login::persistent(Version::V5, "stopped").keep_alive(1);
    let mut out = std::io::stdout();
    loop {
        let Ok(mut client) = login.open(address) else { continue };
        drop(client.subscribe("work/#", 1));
        while let Ok(message) = client.message() {
            writeln!(out, "took {}", message.text()).unwrap();
            if message.text().starts_with(LAST) {
                return;
            }
        }
    }
}

fn consumer(gateway: &Gateway) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "stopped::a_consumer_in_a_process_of_its_own", "--nocapture"]);
    command.env(GATEWAY, gateway.address().to_string()).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn a_stopped_consumer_holds_nobody_up_and_gets_everything_when_it_goes_on() {
    let gateway = Gateway::with(&["limits.queue_memory_max=1MiB", "limits.queue_window_max=64KiB"]);
    let mut child = consumer(&gateway);
    let pid = Pid::from_child(&child);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut next = move || -> String {
        lines.find_map(|line| line.rsplit_once("took ").map(|(_, text)| text.to_owned())).unwrap()
    };
    let mut device = Login::fresh(Version::V5, "device").open(gateway.address()).unwrap();
    gateway.await_status("the consumer", |status| (status["subscriptions"] == 1).then_some(()));
    let text = |n: u64| format!("{n} {}", "x".repeat(1000));
    let mut taken = 0;
    for n in 0..MESSAGES {
        device.publish(&Message::new("work/a", text(n), 1)).unwrap();
        if n < BEFORE {
            assert_eq!(next(), text(n));
            taken += 1;
        } else if n == BEFORE {
            kill_process(pid, Signal::STOP).unwrap();
        }
    }
    gateway.await_status("the end of its connection", |status| {
        (status["sessions"]["disconnected"] == 1).then_some(())
    });
    assert!(gateway.rss() < 64 << 20, "{} bytes", gateway.rss());
    device.publish(&Message::new("work/a", LAST, 1)).unwrap();
    kill_process(pid, Signal::CONT).unwrap();
    loop {
        let line = next();
        if line == LAST {
            break;
        }
        let n: u64 = line.split(' ').next().unwrap().parse().unwrap();
        // What was in its socket comes a second time.
        assert!(n <= taken, "{n} after {taken}");
        taken = taken.max(n + 1);
    }
    assert_eq!(taken, MESSAGES);
    assert!(child.wait().unwrap().success());
}
