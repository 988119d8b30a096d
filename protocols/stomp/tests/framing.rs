//! Frames, lengths and ends of lines as bytes. Numbers in comments are rows of the list of what a STOMP server
//! must do.
#![allow(clippy::unwrap_used)]

mod support;

use support::{C1, C2, Peer, after, refused};
use tidegate_stomp::Version::{V10, V11, V12};
use tidegate_stomp::error::Malformed;
use tidegate_stomp::{DecodeError, DecodeLimits, Decoded, Decoder, Frame, Version, decode, decode_next};

const SINCE_11: [Version; 2] = [V11, V12];

/// SEND to `/queue/a` with these lines and this rest.
fn send(rest: &str) -> Vec<u8> {
    format!("SEND\ndestination:/queue/a\n{rest}").into_bytes()
}

fn bodies(peer: &Peer) -> Vec<&[u8]> {
    peer.taken.iter().map(|taken| &taken.body[..]).collect()
}

fn fault(version: Version, bytes: &[u8]) -> DecodeError {
    decode(version, bytes, &DecodeLimits::default()).unwrap_err()
}

#[test]
fn lines_may_end_with_carriage_return_and_line_feed() {
    // A030, A032, A037; A034 for 1.0
    for version in [V10, V12] {
        let input = b"SEND\r\ndestination:/queue/a\r\nreceipt:r\n\r\nb\r\n\0\r\n\r\n";
        let mut peer = after(version, &[input, &send("\ny\0")[..]].concat());
        assert_eq!(peer.receipts(), ["r"]);
        assert_eq!(peer.stored(), [("/queue/a", &b"b\r\n"[..]), ("/queue/a", b"y")]);
    }
}

#[test]
fn a_carriage_return_elsewhere_is_a_fault() {
    // A033
    for version in [V10, V12] {
        refused(version, &send("x:a\rb\n\ny\0"));
        refused(version, &send("x:a\r\r\n\ny\0"));
        assert_eq!(fault(version, b"SEND\nx:a\rb\n\n\0"), Malformed::CarriageReturn.into());
    }
    assert_eq!(fault(V12, b"CONNECT\nx:a\rb\n\n\0"), Malformed::CarriageReturn.into());
    for version in Version::ALL {
        refused(version, b"\rSEND\ndestination:/queue/a\n\nx\0");
        refused(version, b"SE\rND\ndestination:/queue/a\n\nx\0");
    }
}

#[test]
fn a_carriage_return_is_data_in_stomp_1_1() {
    // A034
    let peer = after(V11, b"SEND\r\ndestination:/queue/a\nx:a\r\nz:a\rb\n\r\ny\0");
    assert_eq!(peer.taken[0].headers, [("x".into(), "a\r".into()), ("z".into(), "a\rb".into())]);
    assert_eq!(bodies(&peer), [b"y"]);
}

#[test]
fn ends_of_lines_and_stray_nuls_between_frames_do_not_matter() {
    // A035, A038
    for version in Version::ALL {
        for gap in ["\n\n\n\n", "\0\0", "\r\n\0\n", ""] {
            let peer = after(version, &[send("\nx\0"), gap.into(), send("\ny\0")].concat());
            assert_eq!(bodies(&peer), [b"x", b"y"]);
        }
    }
}

#[test]
fn gaps_are_consumed_before_the_next_frame_is_complete() {
    let limits = DecodeLimits::default();
    for (input, consumed) in [(&b"\n"[..], 1), (b"\n\r\n\0", 4), (b"\n\nSEN", 2), (b"\n\r", 1)] {
        assert_eq!(decode_next(V12, input, &limits), Ok(Decoded::Gap { consumed }));
    }
    assert_eq!(decode_next(V12, b"", &limits), Ok(Decoded::Incomplete { needed: 1 }));
    assert_eq!(decode_next(V12, b"\r", &limits), Ok(Decoded::Incomplete { needed: 2 }));
}

#[test]
fn as_many_octets_are_read_as_content_length_says() {
    // A039, A040, A042
    for version in Version::ALL {
        for (rest, body) in [
            ("content-length:5\n\na\0b\0c\0", &b"a\0b\0c"[..]),
            ("content-length:0\n\n\0", b""),
            ("content-length:10\n\nabc\x00123456\0", b"abc\x00123456"),
            ("content-length:003\n\nabc\0", b"abc"),
        ] {
            let mut peer =
                after(version, &[b"SUBSCRIBE\nid:s\ndestination:/queue/a\n\n\0", &send(rest)[..]].concat());
            assert_eq!(bodies(&peer), [body]);
            let message = &peer.messages()[0];
            assert_eq!(message.body, body);
            assert_eq!(message.get("content-length").unwrap().parse(), Ok(body.len()));
        }
    }
}

#[test]
fn a_body_that_goes_on_behind_its_length_is_a_fault() {
    // A041
    for version in Version::ALL {
        refused(version, &send("content-length:3\n\nabcd\0"));
        assert_eq!(fault(version, &send("content-length:3\n\nabcd\0")), Malformed::BodyNotTerminated.into());
    }
}

#[test]
fn without_content_length_a_body_ends_at_the_first_nul() {
    // A043
    for version in Version::ALL {
        let peer = after(version, &[send("\nabc\0"), send("\nd\0")].concat());
        assert_eq!(bodies(&peer), [&b"abc"[..], b"d"]);
    }
}

#[test]
fn a_content_length_that_is_no_number_is_refused_before_the_body() {
    // A044, A045
    let odd = ["-1", "-2147483648", "abc", "1x", "0x5", "+5", "1e3", "", "5.0", "٣"];
    for version in Version::ALL {
        for value in odd {
            let header = send(&format!("content-length:{value}\nreceipt:z\n\n"));
            assert_eq!(fault(version, &header), Malformed::ContentLength.into(), "{value}");
            assert_eq!(refused(version, &header).get("receipt-id"), Some("z"));
        }
    }
    for value in [" 5", "5 "] {
        SINCE_11.iter().for_each(|&version| {
            drop(refused(version, &send(&format!("content-length:{value}\n\nabcde\0"))))
        });
        let peer = after(V10, &send(&format!("content-length:{value}\n\nab\0de\0")));
        assert_eq!(bodies(&peer), [b"ab\0de"], "STOMP 1.0 trims");
    }
}

#[test]
fn the_first_content_length_counts() {
    // A048
    for version in Version::ALL {
        let peer = after(version, &send("content-length:3\ncontent-length:5\n\nabc\0"));
        assert_eq!(bodies(&peer), [b"abc"]);
        refused(version, &send("content-length:2\ncontent-length:3\n\nabc\0"));
    }
}

#[test]
fn content_length_means_nothing_where_there_is_no_body() {
    // A049
    for version in Version::ALL {
        for value in ["8511", "abc", "-1", "99999999999999999999"] {
            let input = format!("BEGIN\ntransaction:t\ncontent-length:{value}\nreceipt:r\n\n\0");
            assert_eq!(after(version, input.as_bytes()).receipts(), ["r"]);
        }
    }
}

#[test]
fn ends_of_lines_are_tolerated_where_a_body_is_not() {
    // A050
    for version in Version::ALL {
        let begin = b"BEGIN\ntransaction:t\nreceipt:r\n\n\n\r\n\0";
        assert_eq!(after(version, begin).receipts(), ["r"]);
    }
    let smuggled = b"BEGIN\ntransaction:t\n\n\nSEND\ndestination:/queue/a\n\nx\0";
    SINCE_11.iter().for_each(|&version| drop(refused(version, smuggled)));
    assert_eq!(after(V10, smuggled).stored(), [], "a body never becomes a frame");
}

#[test]
fn frames_arrive_in_any_pieces() {
    // A051
    for version in Version::ALL {
        let conversation = [
            support::connect(version),
            &send("content-length:5\nreceipt:r\n\na\0b\0c\0")[..],
            b"\n\nBEGIN\ntransaction:t\n\n\n\0",
            &send("transaction:t\nx:é\n\nabc\0"),
            b"COMMIT\ntransaction:t\nreceipt:c\n\n\0",
            b"DISCONNECT\nreceipt:77\n\n\0",
        ]
        .concat();
        let expected = Peer::raw(&conversation);
        assert_eq!(expected.taken.len(), 2);
        for cut in 0..=conversation.len() {
            let mut peer = Peer::raw(&conversation[..cut]);
            peer.feed(&conversation[cut..]);
            assert_eq!((&peer.out, &peer.taken), (&expected.out, &expected.taken), "cut at {cut}");
        }
        let mut peer = Peer::raw(b"");
        conversation.iter().for_each(|byte| peer.feed(&[*byte]));
        assert_eq!((&peer.out, &peer.taken), (&expected.out, &expected.taken));
        assert!(peer.connection.is_closed());
    }
}

#[test]
fn ten_thousand_frames_may_come_at_once() {
    // A052
    let mut input: Vec<u8> = (0..9999).flat_map(|n| send(&format!("\n{n}\0"))).collect();
    input.extend(send("receipt:last\n\n9999\0"));
    let mut peer = after(V12, &input);
    assert_eq!(peer.receipts(), ["last"]);
    assert!(peer.taken.iter().enumerate().all(|(n, taken)| taken.body == n.to_string().into_bytes()));
    assert_eq!(peer.taken.len(), 10_000);
}

#[test]
fn headers_are_utf_8_in_every_version() {
    // A053, A054
    for version in Version::ALL {
        let peer = after(version, &send("ключ:日本語😀\n\nx\0"));
        assert_eq!(peer.taken[0].headers, [("ключ".into(), "日本語😀".into())]);
        let invalid = [&send("x:")[..], b"\xc3\x28\nreceipt:z\n\ny\0"].concat();
        assert_eq!(fault(version, &invalid), Malformed::Utf8.into());
        assert_eq!(refused(version, &invalid).get("receipt-id"), Some("z"));
    }
}

#[test]
fn commands_are_taken_whole_and_as_they_are_written() {
    // A055, A057, A058
    for version in Version::ALL {
        for command in
            ["send", "SED", "SENDX", "SEXX", "ACKNOWLEDGE", "CONNECTX", "S", "SEND ", " SEND", "BOGUS"]
        {
            let input = format!("{command}\ndestination:/queue/a\nreceipt:z\n\nHello World\0");
            refused(version, input.as_bytes());
        }
    }
    let error = refused(V12, b"BOGUS\nreceipt:z\\c\n\n\0");
    assert_eq!(error.get("receipt-id"), Some("z:"));
    assert_eq!(fault(V12, b"BOGUS\n\n\0"), Malformed::UnknownCommand.into());
    assert_eq!(fault(V12, b"send\n\n\0"), Malformed::CommandLine.into());
}

#[test]
fn names_of_headers_are_case_sensitive() {
    // A056
    for version in Version::ALL {
        refused(version, b"SEND\nDestination:/queue/a\n\nx\0");
    }
}

#[test]
fn a_header_line_has_a_name_and_a_colon() {
    // A059, A060, A061, A088
    let cases =
        [("junk", Malformed::NoColon), ("x", Malformed::NoColon), (":invalid header", Malformed::EmptyName)];
    for version in Version::ALL {
        for (line, expected) in cases {
            let input = send(&format!("{line}\nreceipt:z\n\nx\0"));
            assert_eq!(fault(version, &input), expected.into());
            assert_eq!(refused(version, &input).get("receipt-id"), Some("z"));
        }
    }
    assert_eq!(fault(V10, b"SEND\n  :x\n\n\0"), Malformed::EmptyName.into());
    SINCE_11.iter().for_each(|&version| drop(refused(version, &send("a\\\n:x\n\ny\0"))));
}

#[test]
fn an_empty_value_is_a_value() {
    // A062
    for version in Version::ALL {
        assert_eq!(after(version, &send("x:\n\ny\0")).taken[0].headers, [("x".into(), String::new())]);
    }
}

#[test]
fn a_disconnect_without_a_blank_line_is_taken() {
    // A063
    for version in Version::ALL {
        let mut peer = after(version, b"DISCONNECT\nreceipt:77\n\0");
        assert_eq!(peer.receipts(), ["77"]);
        assert!(peer.connection.is_closed());
        assert!(after(version, b"DISCONNECT\n\0").connection.is_closed());
        refused(version, b"BEGIN\ntransaction:t\n\0");
    }
}

#[test]
fn a_nul_among_headers_is_a_fault() {
    // A064
    for version in Version::ALL {
        for rest in ["x:a\0b\n\ny\0", "x:a\n\0", "x\0"] {
            assert_eq!(fault(version, &send(rest)), Malformed::NulInHeader.into());
            refused(version, &send(rest));
        }
        refused(version, b"DISCONNECT\nreceipt:77\0");
        refused(version, b"SE\0ND\n\n\0");
    }
}

#[test]
fn an_error_behind_a_fault_that_is_certain_does_not_wait_for_the_body() {
    let mut peer = after(V12, &send("x:\\t\n"));
    assert!(peer.connection.is_open(), "the receipt may follow");
    peer.feed(b"receipt:z\n\n");
    assert_eq!(peer.error().get("receipt-id"), Some("z"));
}

#[test]
fn a_receipt_behind_a_fault_is_found_however_the_frame_arrives() {
    // A153
    let frames = ["SEND\nx:\\t\nreceipt:z\n\nx\0", "BOGUS\nreceipt:z\n\n\0", "ACK\nreceipt:z\n\n\0"];
    for frame in frames {
        for cut in 0..frame.len() {
            let mut peer = after(V12, &frame.as_bytes()[..cut]);
            peer.feed(&frame.as_bytes()[cut..]);
            assert_eq!(peer.error().get("receipt-id"), Some("z"), "{frame:?} cut at {cut}");
        }
    }
}

#[test]
fn every_prefix_of_a_frame_is_incomplete_and_never_asks_for_too_much() {
    let limits = DecodeLimits::default();
    let frames: [&[u8]; 4] =
        [C1, C2, b"SEND\ndestination:a\ncontent-length:5\n\na\0b\0c\0", b"ACK\r\nid:1\r\n\r\n\n\0"];
    for frame in frames {
        let mut decoder = Decoder::new();
        for len in 0..frame.len() {
            let fresh = decode_next(V12, &frame[..len], &limits).unwrap();
            assert_eq!(decoder.decode(V12, &frame[..len], &limits), Ok(fresh));
            let Decoded::Incomplete { needed } = fresh else { panic!("{fresh:?}") };
            assert!(len < needed && needed <= frame.len());
        }
        let whole = decoder.decode(V12, frame, &limits).unwrap();
        assert!(matches!(whole, Decoded::Frame { consumed, .. } if consumed == frame.len()));
    }
}

#[test]
fn the_whole_size_is_known_once_a_length_is() {
    let head = b"SEND\ndestination:a\ncontent-length:5000\n\n";
    let decoded = decode_next(V12, head, &DecodeLimits::default());
    assert_eq!(decoded, Ok(Decoded::Incomplete { needed: head.len() + 5001 }));
}

#[test]
fn exactly_one_frame_is_decoded_where_one_is_asked_for() {
    assert_eq!(fault(V12, b"ACK\nid:1\n\n"), Malformed::Truncated.into());
    assert_eq!(fault(V12, b"ACK\nid:1\n\n\0ACK"), Malformed::TrailingBytes.into());
    let limits = DecodeLimits::default();
    assert!(decode(V12, b"\nACK\nid:1\n\n\0\r\n\n", &limits).is_ok());
}

#[test]
fn connected_names_its_version() {
    let limits = DecodeLimits::default();
    let version =
        |bytes| -> Result<Version, _> { decode(V12, bytes, &limits).map(|frame: Frame<'_>| frame.version) };
    assert_eq!(version(b"CONNECTED\nsession:1\n\n\0"), Ok(V10));
    assert_eq!(version(b"CONNECTED\nversion:1.1\n\n\0"), Ok(V11));
    assert_eq!(version(b"CONNECTED\nversion:3.0\n\n\0"), Err(Malformed::Version.into()));
}

#[test]
fn bodies_and_values_are_borrowed_from_the_input() {
    let input = b"SEND\ndestination:/queue/a\n\nbody\0".to_vec();
    let frame = decode(V12, &input, &DecodeLimits::default()).unwrap();
    assert!(input.as_ptr_range().contains(&frame.body.as_ptr()));
    let destination = frame.headers.get("destination").unwrap();
    assert!(matches!(destination, std::borrow::Cow::Borrowed(_)));
    assert!(input.as_ptr_range().contains(&destination.as_ptr()));
}
