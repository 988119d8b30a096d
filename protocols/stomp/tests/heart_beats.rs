//! Heart-beats of both sides. Numbers in comments are rows of the list of what a STOMP server must do.
#![allow(clippy::unwrap_used)]

mod support;

use support::Peer;
use tidegate_stomp::{ConnectionLimits, ConnectionOptions, HeartBeat, Received, Violation};

/// A server that wants `server` from a client that wants `client`, both as the `heart-beat` header has it.
fn agreed(server: (u32, u32), client: &str) -> Peer {
    let heart_beat = HeartBeat { send_ms: server.0, receive_ms: server.1 };
    let options = ConnectionOptions { heart_beat, ..ConnectionOptions::default() };
    let mut peer = Peer::new(ConnectionLimits::default(), options);
    peer.feed(format!("CONNECT\naccept-version:1.2\nhost:h\n{client}\n\0").as_bytes());
    let expected = format!("{},{}", server.0, server.1);
    assert_eq!(peer.frames()[0].get("heart-beat"), Some(expected.as_str()));
    peer
}

/// Lets time pass to `end` as a driver would. Returns when something was written.
fn run(peer: &mut Peer, end: u64) -> Result<Vec<u64>, (u64, Violation)> {
    let mut written = vec![];
    while let Some(deadline) = peer.connection.deadline().filter(|deadline| *deadline <= end) {
        peer.now = peer.now.max(deadline);
        let now = peer.now;
        peer.connection.check_deadline(&mut peer.out, now).map_err(|violation| (now, violation))?;
        if !peer.bytes().is_empty() {
            written.push(now);
        }
    }
    peer.now = end;
    Ok(written)
}

#[test]
fn without_a_wish_there_are_no_beats_and_nobody_is_supervised() {
    // A161
    for client in ["", "heart-beat:0,0\n"] {
        let mut peer = agreed((1000, 1000), client);
        assert_eq!(peer.connection.deadline(), None);
        assert_eq!(run(&mut peer, 120_000), Ok(vec![]));
    }
}

#[test]
fn the_server_is_never_silent_for_longer_than_agreed() {
    // A162
    for (server, client, interval) in
        [(1000, 1000, 1000_u64), (10, 1000, 1000), (1000, 100, 1000), (10, 300, 300), (10, 30, 30)]
    {
        let mut peer = agreed((server, 0), &format!("heart-beat:0,{client}\n"));
        let written = run(&mut peer, 30_000).unwrap();
        let mut last = 0;
        for at in written.iter().chain([&30_000]) {
            assert!(
                at - last <= interval.div_ceil(4) * 2,
                "silent from {last} to {at}: over half of what is agreed"
            );
            last = *at;
        }
        assert!(written.len() as u64 <= 2 * 30_000 / interval, "{} beats", written.len());
    }
}

#[test]
fn frames_take_the_place_of_beats() {
    let mut peer = agreed((1000, 0), "heart-beat:0,900\n");
    let mut last = 0;
    for n in 1..=100 {
        for at in run(&mut peer, n * 370).unwrap() {
            assert!(at - last <= 1000);
            last = at;
        }
        peer.feed(b"SEND\ndestination:/queue/a\nreceipt:r\n\nx\0");
        assert_eq!(peer.receipts(), ["r"]);
        last = peer.now;
    }
    // With a frame in every look, nothing else is written.
    let mut peer = agreed((900, 0), "heart-beat:0,900\n");
    for n in 1..=100 {
        assert_eq!(run(&mut peer, n * 200), Ok(vec![]));
        peer.feed(b"SEND\ndestination:/queue/a\nreceipt:r\n\nx\0");
        peer.bytes();
    }
}

#[test]
fn a_beat_is_one_line_feed() {
    let mut peer = agreed((1000, 0), "heart-beat:0,1000\n");
    while peer.out.is_empty() {
        peer.now = peer.connection.deadline().unwrap();
        peer.connection.check_deadline(&mut peer.out, peer.now).unwrap();
    }
    assert_eq!(peer.out, b"\n");
}

#[test]
fn a_late_client_is_tolerated_and_a_silent_one_is_not() {
    // A163
    let mut peer = agreed((0, 1000), "heart-beat:1000,0\n");
    assert_eq!(run(&mut peer, 1999), Ok(vec![]));
    assert_eq!(run(&mut peer, 60_000), Err((2000, Violation::Timeout)));
    let violation = Violation::Timeout;
    peer.connection.reject(&mut peer.out, &violation, peer.now);
    peer.error();
}

#[test]
fn tolerance_grows_with_the_interval() {
    let mut peer = agreed((0, 1), "heart-beat:10,0\n");
    assert_eq!(run(&mut peer, 60_000), Err((1010, Violation::Timeout)));
    let mut peer = agreed((0, 1), "heart-beat:30000,0\n");
    assert_eq!(run(&mut peer, 100_000), Err((60_000, Violation::Timeout)));
    let mut peer = agreed((0, u32::MAX), &format!("heart-beat:{},0\n", u32::MAX));
    assert_eq!(run(&mut peer, u64::from(u32::MAX)), Ok(vec![]));
}

#[test]
fn the_slower_wish_counts() {
    // A164
    let mut peer = agreed((0, 1000), "heart-beat:5000,0\n");
    for n in 1..=10 {
        assert_eq!(run(&mut peer, n * 5000), Ok(vec![]));
        peer.feed(b"\n");
    }
}

#[test]
fn any_byte_is_a_sign_of_life() {
    // A165
    let mut peer = agreed((0, 1000), "heart-beat:1000,0\n");
    peer.feed(b"SEND\ndestination:/queue/a\ncontent-length:100\n\n");
    for n in 1..=100 {
        assert_eq!(run(&mut peer, n * 1900), Ok(vec![]));
        peer.feed(b"x");
    }
    peer.feed(b"\0");
    assert_eq!(peer.taken.len(), 1);
    // Looking again at the same bytes is none.
    peer.feed(b"SEND\n");
    let since = peer.now;
    peer.now += 1500;
    peer.feed(b"");
    assert_eq!(peer.connection.deadline(), Some(since + 2000));
}

#[test]
fn a_client_that_is_not_read_from_is_not_supervised_and_still_gets_beats() {
    // A168
    let mut peer = agreed((1000, 1000), "heart-beat:1000,1000\n");
    peer.connection.pause();
    let written = run(&mut peer, 30_000).unwrap();
    assert!(written.len() >= 30, "{written:?}");
    peer.connection.resume(30_000);
    assert_eq!(run(&mut peer, 31_999).map(|written| written.len() >= 2), Ok(true));
    assert_eq!(run(&mut peer, 60_000), Err((32_000, Violation::Timeout)));
}

#[test]
fn a_client_that_waits_for_receipts_is_not_supervised() {
    let limits = ConnectionLimits { receipts_max: 1, ..ConnectionLimits::default() };
    let mut peer = Peer::new(limits, ConnectionOptions::default());
    peer.feed(b"CONNECT\naccept-version:1.2\nhost:h\nheart-beat:1000,0\n\n\0");
    peer.slow = true;
    let send = "SEND\ndestination:/queue/a\nreceipt:r\n\nx\0";
    peer.feed(send.repeat(2).as_bytes());
    assert_eq!(peer.connection.deadline(), None);
    peer.now = 50_000;
    let tag = peer.due[0];
    assert!(peer.pay(tag));
    peer.feed(b"");
    assert_eq!((peer.taken.len(), peer.connection.deadline()), (2, Some(52_000)));
    assert_eq!(peer.connection.receive(b"", 50_000), Ok(Received::Incomplete { needed: 1 }));
}

#[test]
fn stomp_1_0_has_no_heart_beats() {
    let mut peer = Peer::raw(b"CONNECT\nheart-beat:1000,1000\n\n\0");
    assert_eq!(peer.frames()[0].get("heart-beat"), None);
    assert_eq!(peer.connection.deadline(), None);
}
