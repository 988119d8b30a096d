//! Slow, broken and hostile peers: each costs only itself.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::Duration;

use tidegate_mqtt::ReasonCode;

use crate::harness::{
    Client, Gateway, Login, Message, PATIENCE, Random, Version, eventually, for_all_versions,
    for_both_versions,
};

const MIB: u64 = 1 << 20;

/// Sent as the first bytes of a connection.
const BEFORE_LOGIN: [&[u8]; 16] = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    &[0x00, 0x00],
    &[0xff, 0xff, 0xff, 0xff, 0xff],
    &[0x10, 0xff, 0xff, 0xff, 0xff],
    &[0x10, 0x00],
    &[0x10, 0x02, 0x00, 0x04],
    &[0x10, 0xff, 0xff, 0xff, 0x7f],
    &[0x10, 0x0c, 0x00, 0x04, b'M', b'Q', b'T', b'X', 4, 2, 0, 0, 0, 0],
    &[0x10, 0x0c, 0x00, 0x04, b'M', b'Q', b'T', b'T', 4, 3, 0, 0, 0, 0],
    &[0x10, 0x0c, 0x00, 0x04, b'M', b'Q', b'T', b'T', 4, 2, 0, 0, 0, 9],
    &[0x11, 0x0c, 0x00, 0x04, b'M', b'Q', b'T', b'T', 4, 2, 0, 0, 0, 0],
    &[0x10, 0x0d, 0x00, 0x04, b'M', b'Q', b'T', b'T', 5, 2, 0, 0, 5, 0, 0],
    &[0x30, 0x05, 0x00, 0x01, b'a', b'x', b'y'],
    &[0xc0, 0x00],
    &[0xe0, 0x00],
];

/// Sent after a login, all versions.
const AFTER_LOGIN: [&[u8]; 18] = [
    &[0x00, 0x00],
    &[0x20, 0x02, 0x00, 0x00],
    &[0x30, 0xff, 0xff, 0xff, 0xff],
    &[0x30, 0x00],
    &[0x30, 0x01, 0x00],
    &[0x30, 0x03, 0x00, 0x05, b'a'],
    &[0x30, 0x04, 0x00, 0x02, 0xc3, 0x28],
    &[0x30, 0x05, 0x00, 0x03, 0xed, 0xa0, 0x80],
    &[0x30, 0x05, 0x00, 0x03, b'a', 0x00, b'b'],
    &[0x36, 0x05, 0x00, 0x01, b'a', 0x00, 0x01],
    &[0x32, 0x05, 0x00, 0x01, b'a', 0x00, 0x00],
    &[0x82, 0x02, 0x00, 0x01],
    &[0x82, 0x00],
    &[0x82, 0x06, 0x00, 0x01, 0x00, 0x01, b'a', 0x03],
    &[0x90, 0x03, 0x00, 0x01, 0x00],
    &[0xa2, 0x02, 0x00, 0x01],
    &[0xb0, 0x02, 0x00, 0x01],
    &[0x40, 0x00],
];

/// Sends `bytes`, then the end of the stream, and waits until the broker has closed the connection.
fn offend(client: &mut Client, bytes: &[u8]) {
    // The broker may close before everything is written; that is no failure.
    let written = client.raw(bytes).and_then(|()| client.half_close());
    if let Err(error) = written {
        assert!(matches!(
            error.kind(),
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::NotConnected
        ));
    }
    match client.closed() {
        Ok(_) => {}
        // The answer to bytes of no known version may be of any version.
        Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidData, "{error} after {bytes:02x?}"),
    }
}

#[test]
fn malformed_packets_end_their_connection_and_leave_everybody_else_alone() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut witness = Login::fresh(version, "witness").open(gateway.address()).unwrap();
        let round = || {
            for bytes in BEFORE_LOGIN {
                offend(&mut Client::dial(gateway.address(), version, None).unwrap(), bytes);
            }
            for bytes in AFTER_LOGIN {
                offend(&mut Login::fresh(version, "offender").open(gateway.address()).unwrap(), bytes);
            }
        };
        round();
        let before = gateway.rss();
        for _ in 0..10 {
            round();
            witness.ping().unwrap();
        }
        let grown = gateway.rss().saturating_sub(before);
        assert!(
            grown < 4 * MIB,
            "{grown} bytes of memory for {} offenders",
            10 * (BEFORE_LOGIN.len() + AFTER_LOGIN.len())
        );
        gateway.assert_serves();
    });
}

#[test]
fn malformed_packets_are_refused_without_waiting_for_more() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        // The end of the stream is not what closes these connections.
        for bytes in [&[0x00, 0x00][..], &[0x36, 0x05, 0x00, 0x01, b'a', 0x00, 0x01], &[0x82, 0x00]] {
            let mut client = Login::fresh(version, "offender").open(gateway.address()).unwrap();
            client.raw(bytes).unwrap();
            let reason = client.closed_because().unwrap();
            assert!(
                !version.is_v5() || reason.is_some_and(|reason| reason >= 0x80),
                "{bytes:02x?}: {reason:?}"
            );
        }
    });
}

#[test]
fn random_bytes_and_damaged_packets_do_no_harm() {
    for_all_versions(|version| {
        let gateway = Gateway::start();
        let mut random = Random::for_test("damaged packets");
        for _ in 0..150 {
            let mut bytes = Login::fresh(version, "damaged").encode();
            bytes.extend(Message { id: 1, ..Message::new("a/b", "hello", 1) }.encode(version));
            bytes.extend([0xc0, 0x00]);
            for _ in 0..random.between(1, 4) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next() as u8;
            }
            let mut client = Client::dial(gateway.address(), version, None).unwrap();
            offend(&mut client, &bytes);
            let len = random.between(1, 300) as usize;
            let noise = random.bytes(len);
            offend(&mut Client::dial(gateway.address(), version, None).unwrap(), &noise);
        }
        gateway.assert_serves();
    });
}

#[test]
fn a_packet_over_the_limit_is_refused_from_its_header() {
    for_all_versions(|version| {
        let gateway = Gateway::with(&["limits.packet_max=64KiB"]);
        let mut client = Login::fresh(version, "client").open(gateway.address()).unwrap();
        // PUBLISH with a remaining length of 128 MiB; the body is never sent.
        client.raw(&[0x30, 0x80, 0x80, 0x80, 0x40]).unwrap();
        let reason = client.closed_because().unwrap();
        assert_eq!(reason, version.is_v5().then_some(ReasonCode::PacketTooLarge.byte()));
        // Within the limit all is well.
        let mut client = Login::fresh(version, "client").open(gateway.address()).unwrap();
        assert!(client.publish(&Message::new("a/b", vec![0; 60_000], 1)).unwrap() < 0x80);
    });
}

#[test]
fn before_the_login_a_smaller_limit_holds() {
    for_both_versions(|version| {
        let gateway = Gateway::with(&["limits.packet_before_login_max=4KiB"]);
        let mut client = Client::dial(gateway.address(), version, None).unwrap();
        client.raw(&[0x10, 0x80, 0x80, 0x04]).unwrap();
        client.closed().unwrap();
        gateway.assert_serves();
    });
}

#[test]
fn connections_that_never_log_in_are_closed_and_cost_little() {
    const SOCKETS: usize = 5000;
    let gateway = Gateway::with(&["limits.login_timeout=3s"]);
    gateway.assert_serves();
    let before = gateway.rss();
    let mut sockets: Vec<TcpStream> = Vec::with_capacity(SOCKETS);
    let half = &Login::fresh(Version::V5, "half").encode()[..9];
    for n in 0..SOCKETS {
        let mut socket = TcpStream::connect(gateway.address()).unwrap();
        if n % 2 == 1 {
            // The broker may already have closed it.
            drop(std::io::Write::write_all(&mut socket, half));
        }
        sockets.push(socket);
        if n % 1000 == 999 {
            gateway.assert_serves();
        }
    }
    let grown = gateway.rss().saturating_sub(before);
    assert!(grown < 24 * MIB, "{grown} bytes of memory for {SOCKETS} sockets");
    for socket in &mut sockets {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        if let Err(error) = socket.read_to_end(&mut Vec::new()) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
    }
    gateway.assert_serves();
    gateway.await_status("the end of all connections", |status| {
        (status["traffic"]["connections"] == 0).then_some(())
    });
}

#[test]
fn a_connect_that_trickles_in_is_cut_off_at_the_login_timeout() {
    for_both_versions(|version| {
        let gateway = Gateway::with(&["limits.login_timeout=1s"]);
        let mut client = Client::dial(gateway.address(), version, None).unwrap();
        let bytes = Login::fresh(version, "a-client-with-a-long-name-that-takes-its-time").encode();
        let mut sent = 0;
        // One byte each 200 ms: the whole CONNECT would take over ten seconds.
        while let Ok(None) = client.poll(Duration::from_millis(200)) {
            assert!(sent + 1 < bytes.len(), "the trickled CONNECT was waited for");
            if client.raw(&bytes[sent..=sent]).is_err() {
                break;
            }
            sent += 1;
        }
        gateway.assert_serves();
    });
}

fn numbered(topic: &str, number: u32, qos: u8) -> Message {
    Message::new(topic, format!("{number:01024}"), qos)
}

/// Many times what a socket and the broker's memory take.
const FLOOD: u32 = 20_000;

/// Messages that a healthy subscriber gets before the next ones are published, so that it is never slow.
const PACE: u32 = 100;

#[test]
fn a_subscriber_that_does_not_read_costs_only_itself() {
    for qos in 0..=1 {
        for stuck in [Login::fresh(Version::V5, "stuck"), Login::persistent(Version::V5, "stuck")] {
            eprintln!("--- QoS {qos}, {stuck:?}");
            let gateway = Gateway::start();
            let login = stuck.receive_buffer(4096).receive_max(65_535);
            let mut stuck = login.open(gateway.address()).unwrap();
            stuck.subscribe("load", qos).unwrap();
            let mut healthy = Login::fresh(Version::V5, "healthy").open(gateway.address()).unwrap();
            healthy.subscribe("load", qos).unwrap();
            let before = gateway.rss();
            let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
            for start in (0..FLOOD).step_by(PACE as usize) {
                let part = start..start + PACE;
                if qos == 1 {
                    let messages = part.clone().map(|number| numbered("load", number, 1));
                    publisher.publish_all(messages, PACE as usize).unwrap();
                } else {
                    part.clone().for_each(|number| publisher.send(&numbered("load", number, 0)).unwrap());
                }
                for number in part {
                    assert_eq!(healthy.message().unwrap().text().parse(), Ok(number));
                }
            }
            let grown = gateway.rss().saturating_sub(before);
            assert!(grown < 64 * MIB, "{grown} bytes of memory at QoS {qos}");
            gateway.assert_serves();
        }
    }
}

#[test]
fn a_subscriber_that_does_not_read_leaves_room_for_another_one_that_only_lags() {
    // Its window of deliveries under way, and a twentieth of the memory for queues.
    const LAG: u32 = 5000;
    let gateway = Gateway::start();
    // Neither session outlives its connection, so their queues share the memory for queues and nothing else.
    let login = Login::fresh(Version::V5, "stuck").receive_buffer(4096);
    let mut stuck = login.open(gateway.address()).unwrap();
    let mut lagging = Login::fresh(Version::V5, "lagging").open(gateway.address()).unwrap();
    stuck.subscribe("load", 1).unwrap();
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    publisher.publish_all((0..FLOOD).map(|number| numbered("load", number, 1)), 100).unwrap();
    lagging.subscribe("load", 1).unwrap();
    publisher.publish_all((0..LAG).map(|number| numbered("load", number, 1)), 100).unwrap();
    for number in 0..LAG {
        assert_eq!(lagging.message().unwrap().text().parse(), Ok(number));
    }
}

#[test]
fn a_backlog_far_larger_than_memory_allows_arrives_complete_and_in_order() {
    const COUNT: u32 = 30_000;
    let mut gateway = Gateway::with(&["limits.queue_memory_max=1MiB", "limits.queue_window_max=128KiB"]);
    let login = Login::persistent(Version::V5, "device");
    login.open(gateway.address()).unwrap().subscribe("load", 1).unwrap();
    let before = gateway.rss();
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    publisher.publish_all((0..COUNT).map(|number| numbered("load", number, 1)), 100).unwrap();
    let grown = gateway.rss().saturating_sub(before);
    assert!(grown < 48 * MIB, "{grown} bytes of memory for a backlog of {COUNT} KiB");
    gateway.kill();
    gateway.restart();
    let mut device = login.open(gateway.address()).unwrap();
    for n in 0..COUNT {
        assert_eq!(device.message().unwrap().text(), format!("{n:01024}"));
    }
}

#[test]
fn clients_that_come_and_go_by_the_thousand_leave_nothing_behind() {
    let gateway = Gateway::start();
    let visit = |count: u32| {
        for n in 0..count {
            let login = Login::fresh(Version::ALL[n as usize % 3], &format!("visitor-{n}"));
            let mut client = login.open(gateway.address()).unwrap();
            client.subscribe(&format!("visit/{n}"), 1).unwrap();
            if n % 2 == 0 {
                client.disconnect().unwrap();
            }
        }
        gateway.await_status("an empty house", |status| {
            (status["subscriptions"] == 0 && status["sessions"]["connected"] == 0).then_some(())
        });
    };
    visit(500);
    let before = gateway.rss();
    visit(3000);
    let grown = gateway.rss().saturating_sub(before);
    assert!(grown < 8 * MIB, "{grown} bytes of memory after 3,000 visitors");
    let totals = gateway.status()["queues_total"].clone();
    assert_eq!((&totals["messages"], &totals["bytes"]), (&0.into(), &0.into()));
}

fn descriptors(gateway: &Gateway) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", gateway.pid().as_raw_nonzero())).unwrap().count()
}

#[test]
fn a_client_that_says_goodbye_and_reads_nothing_costs_no_descriptor_for_long() {
    let gateway = Gateway::start();
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    publisher.ping().unwrap();
    // The admin interface answers: everything that the process opens at its start is open.
    gateway.status();
    let before = descriptors(&gateway);
    let mut stuck: Vec<Client> = (0..3)
        .map(|n| Login::fresh(Version::V5, &format!("stuck-{n}")).receive_buffer(4096))
        .map(|login| login.open(gateway.address()).unwrap())
        .collect();
    stuck.iter_mut().for_each(|client| client.subscribe("load", 0).unwrap());
    (0..FLOOD).for_each(|number| publisher.send(&numbered("load", number, 0)).unwrap());
    publisher.ping().unwrap();
    assert!(descriptors(&gateway) > before, "the stuck clients have sockets");
    // Their sockets stay open, and full.
    stuck.iter_mut().for_each(|client| client.raw(&[0xe0, 0]).unwrap());
    eventually("their descriptors are free again", PATIENCE, || match descriptors(&gateway) {
        now if now <= before => Ok(()),
        now => Err(format!("{now} instead of {before}")),
    });
}

#[test]
fn a_client_that_never_reads_its_answers_is_not_read_either() {
    let gateway = Gateway::start();
    let login = Login::fresh(Version::V5, "asker").receive_buffer(4096);
    let asker = login.open(gateway.address()).unwrap();
    let before = gateway.rss();
    let mut socket = asker.writer().unwrap();
    socket.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let pings = [0xc0, 0].repeat(32 << 10);
    // 64 MiB of questions, unless the broker stops to take them.
    let taken = (0..1024).take_while(|_| std::io::Write::write_all(&mut socket, &pings).is_ok()).count();
    let grown = gateway.rss().saturating_sub(before);
    assert!(taken < 1024 && grown < 16 * MIB, "{grown} bytes of memory after {taken} writes");
    gateway.assert_serves();
}
