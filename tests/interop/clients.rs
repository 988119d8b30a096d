//! Client libraries as clients of the gateway alone: they publish, subscribe, and come back after it was killed.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rumqttc::{Client as RumqttClient, Connection, Event, MqttOptions, Packet as RumqttPacket, QoS};

use crate::harness::{Client, Deadline, Gateway, Login, Message, PATIENCE, Version};
use crate::tools;

/// Ended with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn kill_and_restart(gateway: &mut Gateway) {
    gateway.kill();
    gateway.restart();
}

/// The payloads of `topic` that rumqttc gets, until there are `count`; broken connections are part of the test.
fn collect(connection: &mut Connection, topic: &str, count: usize) -> Vec<String> {
    let deadline = Deadline::after(PATIENCE);
    let mut texts = Vec::new();
    while texts.len() < count {
        assert!(!deadline.is_over(), "rumqttc got {texts:?} and not {count} messages");
        match connection.recv_timeout(Duration::from_millis(100)) {
            Ok(Ok(Event::Incoming(RumqttPacket::Publish(publish)))) if publish.topic == topic => {
                texts.push(String::from_utf8_lossy(&publish.payload).into_owned());
            }
            Ok(Err(_)) => std::thread::sleep(Duration::from_millis(20)),
            _ => {}
        }
    }
    texts
}

#[test]
fn rumqttc_publishes_subscribes_and_returns_after_a_kill() {
    let mut gateway = Gateway::start();
    let mut options = MqttOptions::new("rumqttc", "127.0.0.1", gateway.address().port());
    options.set_clean_session(false).set_keep_alive(Duration::from_secs(5));
    let (client, mut connection) = RumqttClient::new(options, 64);
    client.subscribe("rumqttc/#", QoS::ExactlyOnce).unwrap();
    let levels = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];
    for (n, qos) in levels.into_iter().enumerate() {
        client.publish("rumqttc/own", qos, false, n.to_string()).unwrap();
    }
    let mut own = collect(&mut connection, "rumqttc/own", 3);
    own.sort_unstable();
    assert_eq!(own, ["0", "1", "2"]);
    kill_and_restart(&mut gateway);
    let mut other = Login::fresh(Version::V5, "other").open(gateway.address()).unwrap();
    for n in 0..50 {
        other.publish(&Message::new("rumqttc/other", n.to_string(), 1 + n % 2)).unwrap();
    }
    let expected: Vec<String> = (0..50).map(|n: u32| n.to_string()).collect();
    assert_eq!(collect(&mut connection, "rumqttc/other", 50), expected, "in order, none lost, none twice");
}

#[test]
fn eclipse_paho_for_c_publishes_and_subscribes() {
    let Some((publisher, subscriber)) = tools::paho_c() else { return };
    let mut gateway = Gateway::start();
    for (level, qos) in [("31", "1"), ("311", "2"), ("5", "2")] {
        let run = |program: &PathBuf, arguments: &[&str]| {
            let port = gateway.address().port().to_string();
            let mut command = Command::new(program);
            command
                .args(["-t", "paho-c/a", "-h", "127.0.0.1", "-p", &port, "-V", level, "-q", qos])
                .args(arguments);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
        };
        let mut listener = Process(run(&subscriber, &["-i", "paho-c-reader", "--no-delimiter"]));
        gateway.await_status("the subscription", |status| (status["subscriptions"] == 1).then_some(()));
        let mut sender = Process(run(&publisher, &["-i", "paho-c-writer", "-m", "hello from C"]));
        assert!(sender.0.wait().unwrap().success(), "paho_c_pub at level {level}");
        let mut output = listener.0.stdout.take().unwrap();
        let mut text = [0; 12];
        std::io::Read::read_exact(&mut output, &mut text).unwrap();
        assert_eq!(&text, b"hello from C", "level {level}");
        drop(listener);
        kill_and_restart(&mut gateway);
    }
}

/// Publishes to the flow's input until its output answers: at first the flow may not be there yet.
fn ask(client: &mut Client, text: &str, qos: u8) {
    let deadline = Deadline::after(PATIENCE.saturating_mul(2));
    let expected = format!("{text} was here");
    while !deadline.is_over() {
        client.publish(&Message::new("node-red/in/a", text, qos)).unwrap();
        let answer = client.message_within(Duration::from_millis(500)).unwrap();
        if answer.is_some_and(|message| message.topic == "node-red/out/a" && message.text() == expected) {
            return;
        }
    }
    panic!("the flow does not answer {text}");
}

#[test]
fn a_node_red_flow_subscribes_publishes_and_reconnects() {
    let Some(node) = tools::node_red() else { return };
    for (level, qos) in [("4", 1), ("5", 2)] {
        let mut gateway = Gateway::start();
        let folder = tempfile::tempdir().unwrap();
        let script: PathBuf =
            [env!("CARGO_MANIFEST_DIR"), "tests", "interop", "node_red.js"].iter().collect();
        let mut command = Command::new(&node);
        command.arg(script).arg(gateway.address().port().to_string()).arg(folder.path());
        command.args([level, &qos.to_string()]).stdin(Stdio::null()).stdout(Stdio::null());
        let _flow = Process(command.spawn().unwrap());
        for round in 0..2 {
            let mut client = Login::fresh(Version::V5, "tester").open(gateway.address()).unwrap();
            client.subscribe("node-red/out/#", 2).unwrap();
            ask(&mut client, &format!("round {round}"), qos);
            kill_and_restart(&mut gateway);
        }
    }
}
