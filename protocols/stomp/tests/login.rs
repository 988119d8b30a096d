//! CONNECT, negotiation and what comes before and right behind it. Numbers in comments are rows of the list of
//! what a STOMP server must do.
#![allow(clippy::unwrap_used)]

mod support;

use support::{C0, C1, C2, Peer, written};
use tidegate_stomp::connection::{Acceptance, Failure, SendError};
use tidegate_stomp::error::Malformed;
use tidegate_stomp::{
    Command, Connection, ConnectionLimits, ConnectionOptions, DecodeError, Event, HeartBeat, Received,
    Version, Violation,
};

/// What a client gets for this CONNECT: the version of CONNECTED.
#[track_caller]
fn connected(input: &[u8]) -> String {
    let mut peer = Peer::raw(input);
    let frames = peer.frames();
    assert_eq!(frames.len(), 1, "{frames:?}");
    assert_eq!(frames[0].command, Command::Connected);
    assert!(peer.connection.is_open());
    frames[0].get("version").unwrap().to_owned()
}

fn login<'a>(connection: &mut Connection, input: &'a [u8]) -> tidegate_stomp::connection::Connect<'a> {
    match connection.receive(input, 0) {
        Ok(Received::Event { consumed, event: Event::Connect(connect) }) => {
            assert_eq!(consumed, input.len());
            connect
        }
        other => panic!("{other:?}"),
    }
}

fn fresh() -> Connection {
    Connection::new(ConnectionLimits::default(), ConnectionOptions::default(), 0)
}

#[test]
fn a_bare_connect_is_one_of_stomp_1_0_and_gets_a_session() {
    // A001, A010
    for input in [C0, b"STOMP\n\n\0", b"CONNECT\r\n\r\n\0\r\n"] {
        assert_eq!(connected(input), "1.0");
    }
    let frames = Peer::raw(C0).frames();
    assert_eq!(frames[0].get("session"), Some(support::SESSION));
    assert_eq!(frames[0].get("heart-beat"), None);
}

#[test]
fn values_of_stomp_1_0_are_trimmed() {
    // A002
    let mut connection = fresh();
    let connect = login(&mut connection, b"CONNECT\nlogin: guest\npasscode: guest \n\n\0");
    assert_eq!((connect.login.as_deref(), connect.passcode.as_deref()), (Some("guest"), Some("guest")));
}

#[test]
fn the_highest_common_version_is_spoken_under_either_name() {
    // A003 to A007
    for command in ["CONNECT", "STOMP"] {
        for (accepted, expected) in [
            ("1.1", "1.1"),
            ("1.2", "1.2"),
            ("1.0,1.1,2.0", "1.1"),
            ("1.2,1.0,1.2,1.1", "1.2"),
            ("0.9, 1.1,banana", "1.1"),
            ("1.0", "1.0"),
        ] {
            let input = format!("{command}\naccept-version:{accepted}\nhost:h\n\n\0");
            assert_eq!(connected(input.as_bytes()), expected);
        }
    }
}

#[test]
fn no_common_version_is_an_error_that_names_those_supported() {
    // A008, A009
    for accepted in ["2.1", "", "1", "banana"] {
        let mut peer = Peer::raw(format!("CONNECT\naccept-version:{accepted}\nhost:h\n\n\0").as_bytes());
        assert_eq!(peer.violation, Some(Violation::UnsupportedVersion));
        let error = peer.error();
        assert_eq!(error.get("version"), Some("1.0,1.1,1.2"));
        let body = String::from_utf8(error.body).unwrap();
        assert!(["1.0", "1.1", "1.2"].iter().all(|version| body.contains(version)), "{body}");
    }
}

#[test]
fn a_missing_host_is_left_to_the_caller_or_refused() {
    // A011, A012
    let input = b"CONNECT\naccept-version:1.2\n\n\0";
    assert_eq!(login(&mut fresh(), input).host, None);
    assert_eq!(login(&mut fresh(), C2).host.as_deref(), Some("h"));
    let strict = ConnectionOptions { host_required: true, ..ConnectionOptions::default() };
    let mut peer = Peer::new(ConnectionLimits::default(), strict);
    peer.feed(input);
    peer.error();
    let mut peer = Peer::new(ConnectionLimits::default(), strict);
    peer.feed(C0);
    assert!(peer.connection.is_open(), "STOMP 1.0 knows no hosts");
}

#[test]
fn connect_is_not_escaped_and_a_value_begins_behind_the_first_colon() {
    // A013, A014, A015
    for passcode in ["a\\cb", "p\\t1", "a:b", " x", "x ", "\\", ""] {
        for version in ["1.1", "1.2"] {
            let input =
                format!("CONNECT\naccept-version:{version}\nhost:h\nlogin:u\npasscode:{passcode}\n\n\0");
            assert_eq!(login(&mut fresh(), input.as_bytes()).passcode.as_deref(), Some(passcode));
        }
    }
}

#[test]
fn a_refused_login_is_an_error_without_the_passcode() {
    // A016
    let input = b"CONNECT\naccept-version:1.2\nhost:h\nlogin:u\npasscode:SECRET-77\n\n\0";
    let mut connection = fresh();
    let event = connection.receive(input, 0);
    let logged = format!("{event:?}");
    assert!(logged.contains("login") && !logged.contains("SECRET-77"), "{logged}");
    let mut out = vec![];
    connection.fail(&mut out, None, &Failure { message: "not authorized", detail: "" }, 0);
    assert!(connection.is_closed());
    assert_eq!(written(Version::V12, &out)[0].get("message"), Some("not authorized"));
    assert_eq!(connection.accept(&mut out, &Acceptance::default(), 0), Err(SendError::NotOpen));
    assert_eq!(connection.receive(C2, 0), Ok(Received::Over));
}

#[test]
fn connect_has_no_receipt() {
    // A017
    let mut peer = Peer::raw(b"CONNECT\naccept-version:1.2\nhost:h\nreceipt:r\n\n\0");
    assert_eq!(peer.frames().len(), 1);
    assert_eq!(peer.connection.receipts_pending(), 0);
}

#[test]
fn nothing_comes_before_connect() {
    // A018, A019
    let send = b"SEND\ndestination:/queue/a\n\nx\0";
    for input in [&send[..], &[send, C2].concat(), b"MESSAGE\n\n\0", b"DISCONNECT\n\n\0"] {
        let mut peer = Peer::raw(input);
        assert_eq!(peer.violation, Some(Violation::NotConnected));
        peer.error();
        assert_eq!(peer.stored(), []);
    }
    let mut peer = Peer::raw(b"SEND\n");
    peer.error();
}

#[test]
fn frames_behind_connect_wait_for_its_answer() {
    // A020, A021
    let send = b"SEND\ndestination:/queue/a\nreceipt:r\n\nx\0";
    let mut peer = Peer::raw(&[C2, send].concat());
    let commands: Vec<_> = peer.frames().iter().map(|frame| frame.command).collect();
    assert_eq!(commands, [Command::Connected, Command::Receipt]);
    let bad = b"CONNECT\naccept-version:1.2\nhost:h\nlogin:u\npasscode:wrong\n\n\0";
    let mut peer = Peer::raw(&[bad, &send[..]].concat());
    peer.error();
    assert_eq!(peer.stored(), []);

    let mut connection = fresh();
    login(&mut connection, C2);
    assert_eq!(connection.receive(send, 0), Ok(Received::Blocked));
    assert_eq!(connection.receive(b"", 0), Ok(Received::Incomplete { needed: 1 }));
    connection.accept(&mut vec![], &Acceptance::default(), 0).unwrap();
    assert!(matches!(connection.receive(send, 0), Ok(Received::Event { event: Event::Send(_), .. })));
}

#[test]
fn a_second_connect_is_an_error() {
    // A022
    for second in [C0, C1, C2] {
        let mut peer = Peer::raw(&[C2, second].concat());
        assert_eq!(peer.violation, Some(Violation::SecondConnect));
        peer.error();
    }
}

#[test]
fn frames_of_a_server_are_errors() {
    // A023
    for frame in
        ["CONNECTED\n\n\0", "MESSAGE\n\n\0", "RECEIPT\nreceipt-id:message-12345\n\n\0", "ERROR\n\n\0"]
    {
        let mut peer = Peer::raw(&[C2, frame.as_bytes()].concat());
        assert!(matches!(peer.violation, Some(Violation::Unexpected(_))));
        peer.error();
    }
}

#[test]
fn connected_says_who_the_server_is() {
    // A024, A025
    let bytes = Peer::raw(C2).bytes();
    assert_eq!(
        bytes,
        b"CONNECTED\nversion:1.2\nsession:00000000000000a7\nserver:test/1.0\nheart-beat:1000,1000\n\n\0\n"
    );
}

#[test]
fn connect_has_no_body_since_stomp_1_1() {
    // A026
    let mut peer = Peer::raw(b"CONNECT\naccept-version:1.2\nhost:h\n\njunk\0");
    assert_eq!(peer.violation, Some(DecodeError::Malformed(Malformed::UnexpectedBody).into()));
    peer.error();
    assert_eq!(connected(b"CONNECT\n\njunk\0"), "1.0");
}

#[test]
fn a_login_has_to_be_done_in_time_although_bytes_keep_arriving() {
    // A027
    let limits = ConnectionLimits { login_ms_max: 3000, ..ConnectionLimits::default() };
    let mut connection = Connection::new(limits, ConnectionOptions::default(), 500);
    let mut out = vec![];
    for (at, len) in (0..3).zip(1..) {
        let now = 500 + at * 1000;
        assert_eq!(connection.receive(&C2[..len], now), Ok(Received::Incomplete { needed: len + 1 }));
        assert_eq!(connection.deadline(), Some(3500));
        assert_eq!(connection.check_deadline(&mut out, now), Ok(()));
    }
    let timeout = connection.check_deadline(&mut out, 3500).unwrap_err();
    assert_eq!(timeout, Violation::Timeout);
    connection.reject(&mut out, &timeout, 3500);
    assert!(connection.is_closed());
    assert_eq!(connection.deadline(), None);
}

#[test]
fn another_protocol_is_recognised_by_its_first_bytes() {
    // A028
    let others: [&[u8]; 6] = [
        b"\x16\x03\x01",
        b"GET / HTTP/1.1\r\n",
        b"\x10\x0c\x00\x04MQTT",
        b"EHLO x\r\n",
        b"QUIT\r\n",
        b"connect\n",
    ];
    for other in others {
        let mut peer = Peer::raw(other);
        assert!(matches!(peer.violation, Some(Violation::Decode(DecodeError::Malformed(_)))));
        peer.error();
    }
}

#[test]
fn ends_of_lines_may_come_before_connect() {
    // A030, A031, A036
    for gap in ["\n\n", "\r\n\n", "\0\n"] {
        assert_eq!(connected(&[gap.as_bytes(), C2].concat()), "1.2");
    }
    assert_eq!(connected(b"STOMP\r\naccept-version:1.2\r\nhost:h\r\n\r\n\0\r\n"), "1.2");
    assert_eq!(connected(b"CONNECT\r\naccept-version:1.1\r\nhost:h\r\n\r\n\0"), "1.1");
}

#[test]
fn a_malformed_heart_beat_is_an_error_where_the_version_has_one() {
    // A167
    for value in ["abc", "1", "-1,0", "1,2,3", "99999999999999999999,1", ""] {
        let header = format!("heart-beat:{value}\n\n\0");
        let mut peer = Peer::raw(format!("CONNECT\naccept-version:1.2\nhost:h\n{header}").as_bytes());
        let (command, name) = (Command::Connect, "heart-beat");
        assert_eq!(peer.violation, Some(Violation::HeaderInvalid { command, header: name }));
        peer.error();
        assert_eq!(connected(format!("CONNECT\n{header}").as_bytes()), "1.0");
    }
    let connect =
        login(&mut fresh(), b"CONNECT\naccept-version:1.1\nhost:h\nheart-beat:5,70\n\n\0").heart_beat;
    assert_eq!(connect, HeartBeat { send_ms: 5, receive_ms: 70 });
}
