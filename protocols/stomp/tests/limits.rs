//! Limits hold while a frame arrives. Numbers in comments are rows of the list of what a STOMP server must do.
#![allow(clippy::unwrap_used)]

mod support;

use support::{C2, Peer, after, refused};
use tidegate_stomp::Version::{V11, V12};
use tidegate_stomp::connection::ConnectionLimit;
use tidegate_stomp::error::LimitExceeded;
use tidegate_stomp::{
    ConnectionLimits, DecodeError, DecodeLimits, Decoded, Decoder, Version, Violation, decode_next,
};

const LIMITS: DecodeLimits = DecodeLimits {
    command_bytes_max: 12,
    header_line_bytes_max: 20,
    header_bytes_max: 50,
    headers_max: 3,
    body_bytes_max: 10,
};

fn exceeded(input: &[u8]) -> LimitExceeded {
    match decode_next(V12, input, &LIMITS) {
        Err(DecodeError::LimitExceeded(limit)) => limit,
        other => panic!("{other:?}"),
    }
}

/// The shortest prefix of an endless input that is refused.
fn refused_after(head: &str, filler: &str) -> (usize, LimitExceeded) {
    let mut input = head.as_bytes().to_vec();
    let mut decoder = Decoder::new();
    loop {
        match decoder.decode(V12, &input, &LIMITS) {
            Ok(Decoded::Incomplete { needed }) => {
                assert!(needed as u64 <= LIMITS.frame_bytes_max());
                input.extend_from_slice(filler.as_bytes());
            }
            Err(DecodeError::LimitExceeded(limit)) => return (input.len() - head.len(), limit),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_length_beyond_the_limit_is_refused_from_its_header() {
    // A046, A047
    for value in ["11", "4294967301", "18446744073709551621", "2147483647", "99999999999999999999999"] {
        let header = format!("SEND\ncontent-length:{value}\n");
        let limits = DecodeLimits { header_line_bytes_max: 60, ..LIMITS };
        let found = decode_next(V12, header.as_bytes(), &limits);
        assert_eq!(found, Err(LimitExceeded::BodyBytes { max: 10 }.into()), "{value}");
        for version in Version::ALL {
            if value.len() > 2 {
                refused(
                    version,
                    format!("SEND\ndestination:/queue/a\ncontent-length:{value}\n\nabcde\0").as_bytes(),
                );
            }
        }
    }
    assert!(decode_next(V12, b"SEND\ncontent-length:10\n\n", &LIMITS).is_ok());
}

#[test]
fn the_number_of_headers_is_limited_repeats_included() {
    // A065
    let lines = |count: usize, line: fn(usize) -> String| -> Vec<u8> {
        let lines: String = (0..count).map(line).collect();
        format!("SEND\ndestination:/queue/a\n{lines}\nx\0").into_bytes()
    };
    refused(V12, &lines(100, |n| format!("x{n}:\n")));
    refused(V12, &lines(100_000, |_| "x:\n".into()));
    assert_eq!(after(V12, &lines(99, |n| format!("x{n}:\n"))).stored().len(), 1);
    assert_eq!(exceeded(b"SEND\na:\nb:\nc:\nd:\n"), LimitExceeded::Headers { max: 3 });
}

#[test]
fn a_line_without_an_end_is_refused_at_the_limit() {
    // A066, A067
    assert_eq!(refused_after("SEND\nx:", "a"), (19, LimitExceeded::HeaderLineBytes { max: 20 }));
    assert_eq!(refused_after("", "A"), (13, LimitExceeded::CommandBytes { max: 12 }));
    let mut peer = after(V12, b"SEND\ndestination:/queue/a\nx:");
    for _ in 0..4 {
        peer.feed(&[b'a'; 5000]);
    }
    peer.error();
    assert_eq!(peer.stored(), []);
}

#[test]
fn all_headers_together_are_limited() {
    let lines = "a:23456789012345678\n".repeat(2);
    assert_eq!(
        exceeded(format!("SEND\n{lines}b:2345678901\n").as_bytes()),
        LimitExceeded::HeaderBytes { max: 50 }
    );
    assert!(decode_next(V12, format!("SEND\n{lines}b:2345\n\n").as_bytes(), &LIMITS).is_ok());
    // The blank line counts.
    assert_eq!(
        exceeded(format!("SEND\n{lines}b:2345678\n\n").as_bytes()),
        LimitExceeded::HeaderBytes { max: 50 }
    );
}

#[test]
fn a_body_without_an_end_is_refused_at_the_limit() {
    // A068
    assert_eq!(refused_after("SEND\n\n", "a"), (11, LimitExceeded::BodyBytes { max: 10 }));
    assert!(matches!(decode_next(V12, b"SEND\n\n0123456789\0", &LIMITS), Ok(Decoded::Frame { .. })));
    let (bytes, limit) = refused_after("ACK\n\n", "\n");
    assert_eq!((bytes, limit), (65, LimitExceeded::Filler { max: 64 }));
}

#[test]
fn before_login_the_limits_are_smaller() {
    // A069
    let mut peer = Peer::raw(b"CONNECT\naccept-version:1.2\nhost:h\nx:");
    let mut fed = 0;
    while peer.violation.is_none() {
        peer.feed(&[b'a'; 512]);
        fed += 512;
    }
    assert!(fed <= 8 << 10, "{fed}");
    peer.error();
    let wide = [&b"SEND\ndestination:/queue/a\nx:"[..], &[b'a'; 9000], b"\n\nx\0"].concat();
    assert_eq!(Peer::raw(&[C2, &wide[..]].concat()).stored().len(), 1, "after it they are wider");
}

#[test]
fn a_fault_in_a_header_does_not_lift_the_limits() {
    assert_eq!(refused_after("BOGUS\nx:", "a").1, LimitExceeded::HeaderLineBytes { max: 20 });
    assert_eq!(refused_after("SEND\nx:\\t\n", "y:\n").1, LimitExceeded::Headers { max: 3 });
}

#[test]
fn subscriptions_are_limited_ended_ones_with_unacknowledged_messages_included() {
    let limits = ConnectionLimits { subscriptions_max: 2, ..ConnectionLimits::default() };
    let subscribe = |id| format!("SUBSCRIBE\nid:{id}\ndestination:/queue/{id}\nack:client\n\n\0");
    let mut peer = Peer::open_with(V12, limits);
    peer.feed(subscribe("a").as_bytes());
    peer.feed(b"SEND\ndestination:/queue/a\n\nx\0UNSUBSCRIBE\nid:a\n\n\0");
    peer.feed(subscribe("b").as_bytes());
    assert_eq!((peer.violation, peer.connection.subscriptions()), (None, 2));
    peer.feed(subscribe("c").as_bytes());
    assert_eq!(peer.violation, Some(ConnectionLimit::Subscriptions { max: 2 }.into()));
}

#[test]
fn transactions_and_their_actions_are_limited() {
    // A147
    let begin = |n| format!("BEGIN\ntransaction:{n}\n\n\0");
    let sixteen: String = (0..16).map(begin).collect();
    let mut peer = after(V12, sixteen.as_bytes());
    assert_eq!((peer.violation, peer.connection.transactions()), (None, 16));
    peer.feed(begin(16).as_bytes());
    assert_eq!(peer.violation, Some(ConnectionLimit::Transactions { max: 16 }.into()));

    let action = "SEND\ndestination:/queue/a\ntransaction:0\n\nx\0";
    let mut peer = after(V11, (begin(0) + &action.repeat(1024)).as_bytes());
    assert_eq!(peer.violation, None);
    peer.feed(action.as_bytes());
    assert_eq!(peer.violation, Some(ConnectionLimit::Actions { max: 1024 }.into()));
    assert_eq!(peer.stored(), []);
}

#[test]
fn identifiers_are_limited_together() {
    let limits = ConnectionLimits { identifier_bytes_max: 10, ..ConnectionLimits::default() };
    let mut peer = Peer::open_with(V12, limits);
    peer.feed(b"SUBSCRIBE\nid:12345\ndestination:/queue/long-enough\n\n\0BEGIN\ntransaction:67890\n\n\0");
    assert_eq!(peer.violation, None);
    peer.feed(b"UNSUBSCRIBE\nid:12345\n\n\0SUBSCRIBE\nid:1234\ndestination:a\n\n\0");
    assert_eq!(peer.violation, None);
    peer.feed(b"SUBSCRIBE\nid:ab\ndestination:a\n\n\0");
    assert_eq!(peer.violation, Some(Violation::LimitExceeded(ConnectionLimit::IdentifierBytes { max: 10 })));
}

#[test]
fn too_many_receipts_hold_the_reader_up() {
    let limits = ConnectionLimits { receipts_max: 2, ..ConnectionLimits::default() };
    let mut peer = Peer::open_with(V12, limits);
    peer.slow = true;
    let send = |receipt| format!("SEND\ndestination:/queue/a\nreceipt:{receipt}\n\n{receipt}\0");
    peer.feed((send("a") + &send("b") + &send("c")).as_bytes());
    assert_eq!((peer.taken.len(), peer.connection.receipts_pending()), (2, 2));
    peer.feed(b"");
    assert_eq!(peer.taken.len(), 2, "nothing has changed");
    let first = peer.due[0];
    assert!(peer.pay(first));
    peer.feed(b"");
    assert_eq!((peer.taken.len(), peer.receipts()), (3, vec!["a".to_owned()]));
    peer.feed(b"SEND\ndestination:/queue/a\n\nwithout\0");
    assert_eq!(peer.taken.len(), 4, "a frame without a receipt does not wait");
}
