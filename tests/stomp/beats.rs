//! Heart-beats. Real time passes here.

use std::time::{Duration, Instant};

use crate::client::Stomp;
use crate::{amount, gateway, stomp};

fn login(heart_beat: &str) -> String {
    format!("STOMP\naccept-version:1.2\nhost:h\nheart-beat:{heart_beat}\n\n\0")
}

/// Reads for so long; the silences on the way, in milliseconds, and whether nothing but line feeds came.
fn listen(client: &mut Stomp, time: Duration) -> (Vec<u128>, bool) {
    let (end, mut last) = (Instant::now() + time, Instant::now());
    let (mut silences, mut plain) = (vec![], true);
    while Instant::now() < end {
        let bytes = client.bytes_within(end - Instant::now());
        silences.push(last.elapsed().as_millis());
        last = Instant::now();
        plain &= bytes.iter().all(|byte| *byte == b'\n');
    }
    (silences, plain)
}

#[test]
fn a161_without_the_header_there_are_no_beats() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    let seconds = amount("TIDEGATE_STOMP_SILENCE_SECONDS", 4);
    client.bytes_within(Duration::from_millis(1));
    assert_eq!(client.bytes_within(Duration::from_secs(seconds as u64)), b"");
    client.put("a161", "alive");
}

#[test]
fn a162_the_server_beats_as_often_as_the_client_wants() {
    let gateway = gateway();
    let mut client = Stomp::raw(stomp(&gateway));
    // Nobody else is there: by now the gateway sleeps for longer than the first beat may take.
    client.bytes_pause(Duration::from_millis(100));
    client.send(login("0,1000"));
    let connected = client.connected();
    let offered: u32 = connected.header("heart-beat").split(',').next().unwrap().parse().unwrap();
    assert!(offered > 0);
    let (silences, plain) = listen(&mut client, Duration::from_secs(5));
    assert!(silences.iter().all(|silence| *silence < 1_000) && plain, "{silences:?}");
}

#[test]
fn a163_a_client_that_promised_to_beat_and_does_not_is_closed_with_patience() {
    let gateway = gateway();
    let mut client = Stomp::with(stomp(&gateway), &login("1000,0"));
    let begun = Instant::now();
    client.rest_within(Duration::from_secs(5));
    let silence = begun.elapsed();
    assert!(silence > Duration::from_millis(1_000) && silence <= Duration::from_millis(3_000), "{silence:?}");
}

#[test]
fn a164_the_slower_of_both_wishes_counts() {
    let gateway = gateway();
    let mut client = Stomp::with(stomp(&gateway), &login("5000,0"));
    client.bytes_within(Duration::from_millis(4_500));
    client.put("a164", "alive");
}

#[test]
fn a165_bytes_within_a_frame_are_signs_of_life() {
    let gateway = gateway();
    let mut client = Stomp::with(stomp(&gateway), &login("1000,0"));
    client.send("SEND\ndestination:/queue/a165\ncontent-length:20480\nreceipt:r\n\n");
    for _ in 0..10 {
        client.send(vec![b'x'; 2048]);
        assert_eq!(client.bytes_within(Duration::from_millis(500)), b"");
    }
    client.send("\0");
    client.receipt("r");
}

#[test]
fn a166_beats_come_between_frames_alone() {
    let gateway = gateway();
    let mut client = Stomp::with(stomp(&gateway), &login("0,100"));
    client.subscribe("s", "a166", "auto");
    let mut sender = client.another();
    let body = vec![b'x'; 1 << 20];
    for _ in 0..10 {
        sender.send(format!("SEND\ndestination:/queue/a166\ncontent-length:{}\n\n", body.len()));
        sender.send(&body);
        sender.send("\0");
    }
    for _ in 0..10 {
        client.bytes_pause(Duration::from_millis(150));
        assert!(client.message().body == body);
    }
}

#[test]
fn a167_a_malformed_heart_beat_is_an_error() {
    let gateway = gateway();
    for heart_beat in ["abc", "1", "-1,0", "1,2,3", "99999999999999999999,1"] {
        let mut client = Stomp::raw(stomp(&gateway));
        client.send(login(heart_beat));
        client.error();
    }
}

#[test]
fn a168_a_client_that_the_server_does_not_read_is_not_closed_for_its_silence() {
    let gateway = crate::harness::GatewayOptions::new().start();
    let mut client = Stomp::with(stomp(&gateway), &login("1000,1000"));
    client.subscribe("s", "a168", "client");
    // Nobody reads what comes back: the gateway stops reading this client, and its beats wait unread.
    let mut sender = client.another();
    for i in 0..200 {
        sender.send(format!("SEND\ndestination:/queue/a168\n\n{i}{}\0", "x".repeat(32 << 10)));
    }
    sender.disconnect();
    let end = Instant::now() + Duration::from_secs(6);
    while Instant::now() < end {
        client.send("\n");
        std::thread::sleep(Duration::from_millis(300));
    }
    client.send("SEND\ndestination:/topic/x\nreceipt:alive\n\nx\0");
    loop {
        let frame = client.frame();
        if frame.command == "RECEIPT" {
            break;
        }
        assert_eq!(frame.command, "MESSAGE");
    }
}
