//! Frames as a client sends them, cut in every way.

use super::*;
use crate::net::origin::Protocol;

fn client_frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0x12, 0x00, 0xfe, 0x37];
    let mut frame = vec![first];
    match payload.len() {
        n @ ..=125 => frame.push(0x80 | n as u8),
        n @ ..=0xffff => {
            frame.push(0x80 | 126);
            frame.extend((n as u16).to_be_bytes());
        }
        n => {
            frame.push(0x80 | 127);
            frame.extend((n as u64).to_be_bytes());
        }
    }
    frame.extend(mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
    frame
}

/// Feeds `bytes` in pieces of `step`; gives the payload, the answers and the end.
fn feed(framing: &mut Framing, bytes: &[u8], step: usize) -> (Vec<u8>, Vec<u8>, Option<u16>) {
    let (mut payload, mut answers) = (vec![], vec![]);
    for piece in bytes.chunks(step) {
        let mut piece = piece.to_vec();
        let taken = framing.take(&mut piece, &mut answers);
        payload.extend_from_slice(&piece[..taken.payload]);
        if taken.end.is_some() {
            return (payload, answers, taken.end);
        }
    }
    (payload, answers, None)
}

#[test]
fn payload_is_the_same_however_frames_and_reads_cut_it() {
    let long: Vec<u8> = (0..70_000_u32).map(|i| i as u8).collect();
    let mut bytes = client_frame(0x82, b"");
    bytes.extend(client_frame(0x02, b"abc"));
    bytes.extend(client_frame(0x89, b"are you there"));
    bytes.extend(client_frame(0x00, b""));
    bytes.extend(client_frame(0x80, &[7; 300]));
    bytes.extend(client_frame(0x82, &long));
    bytes.extend(client_frame(0x8a, b"unasked"));
    let want = [b"abc", &[7; 300][..], &long].concat();
    for step in [1, 2, 3, 7, 1000, 16_384, 1 << 20] {
        let mut framing = Framing::new(false, 1 << 20);
        let (payload, answers, end) = feed(&mut framing, &bytes, step);
        assert_eq!((payload.len(), end), (want.len(), None), "{step}");
        assert!(payload == want, "{step}");
        assert_eq!(answers, [&[0x8a, 13][..], b"are you there"].concat());
    }
}

#[test]
fn each_breach_of_the_rules_has_its_code_and_what_came_before_is_kept() {
    let good = client_frame(0x82, b"ok");
    let mut unmasked = client_frame(0x82, b"");
    unmasked[1] = 0;
    for (bytes, code) in [
        (client_frame(0x81, b"text"), 1003),
        (unmasked, 1002),
        (client_frame(0xc2, b"compressed"), 1002),
        (client_frame(0x83, b"reserved"), 1002),
        (client_frame(0x8b, b"reserved"), 1002),
        (client_frame(0x80, b"continues nothing"), 1002),
        (client_frame(0x09, b"a ping in pieces"), 1002),
        (client_frame(0x89, &[0; 126]), 1002),
        ([client_frame(0x02, b""), client_frame(0x82, b"")].concat(), 1002),
        (client_frame(0x82, &[0; 1001]), 1009),
        (client_frame(0x88, &[]), 1000),
        (client_frame(0x88, &[3, 0xe9]), 1001),
        (client_frame(0x88, &[3]), 1002),
        (client_frame(0x88, &[3, 0xed]), 1002),
        (client_frame(0x88, &[3, 0xe8, 0xff]), 1002),
    ] {
        for step in [1, 1000] {
            let mut framing = Framing::new(false, 1000);
            let all = [&good[..], &bytes, &good].concat();
            let (payload, _, end) = feed(&mut framing, &all, step);
            assert_eq!((payload, end), (b"ok".to_vec(), Some(code)), "{bytes:?}");
            let (after, _, _) = feed(&mut framing, &good, 1000);
            assert_eq!(after, b"", "nothing is heard after the end");
        }
    }
    assert_eq!(feed(&mut Framing::new(true, 1000), &client_frame(0x81, b"text"), 9).0, b"text");
}

#[test]
fn a_length_of_all_ones_reserves_nothing() {
    let mut framing = Framing::new(false, 1000);
    let head = [0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4];
    assert_eq!(feed(&mut framing, &head, 1).2, Some(1009));
}

fn request(headers: &str) -> Vec<u8> {
    format!("GET /mqtt HTTP/1.1\r\nHost: gateway\r\n{headers}\r\n").into_bytes()
}

const ASKS: &str = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

#[test]
fn a_request_for_mqtt_is_answered_with_the_key_and_the_protocol_and_without_extensions() {
    let mut head = request(&format!(
        "{ASKS}Sec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Protocol: soap, MQTT\r\n"
    ));
    for cut in 0..head.len() {
        assert_eq!(upgrade(&head[..cut], None), Ok(None), "{cut}");
    }
    let length = head.len();
    head.extend([0x82, 0x80]);
    let upgrade = upgrade(&head, Some("/mqtt")).unwrap().unwrap();
    let response = String::from_utf8(upgrade.response).unwrap().to_ascii_lowercase();
    assert_eq!((upgrade.used, upgrade.protocol), (length, Protocol::Mqtt));
    assert!(response.starts_with("http/1.1 101 "), "{response}");
    assert!(response.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{response}");
    assert!(response.contains("sec-websocket-protocol: mqtt\r\n"), "{response}");
    assert!(!response.contains("extensions"), "{response}");
}

#[test]
fn a_request_that_names_no_sub_protocol_is_one_for_stomp() {
    let upgrade = upgrade(&request(ASKS), None).unwrap().unwrap();
    assert_eq!(upgrade.protocol, Protocol::Stomp);
    let response = String::from_utf8(upgrade.response).unwrap().to_ascii_lowercase();
    assert!(
        response.starts_with("http/1.1 101 ") && !response.contains("sec-websocket-protocol"),
        "{response}"
    );
}

#[test]
fn other_requests_are_refused_with_a_status_that_says_why() {
    let mqtt = "Sec-WebSocket-Protocol: mqtt\r\n";
    for (head, status) in [
        (request(&format!("{ASKS}Sec-WebSocket-Protocol: soap\r\n")), "400"),
        (request(mqtt), "400"),
        (request(&format!("{}{mqtt}", ASKS.replace("13", "8"))), "426"),
        (request(&format!("{}{mqtt}", ASKS.replace("dGhlIHNhbXBsZSBub25jZQ==", "x"))), "400"),
        ([b"POST".to_vec(), request(&format!("{ASKS}{mqtt}"))[3..].to_vec()].concat(), "400"),
        (b"\x10\x0c\0\x04MQTT\x04\x02\0\0\0\0".to_vec(), "400"),
        (vec![b'a'; HEAD_BYTES_MAX], "431"),
    ] {
        let answer = String::from_utf8(upgrade(&head, None).unwrap_err()).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    let elsewhere = upgrade(&request(&format!("{ASKS}{mqtt}")), Some("/other")).unwrap_err();
    assert!(elsewhere.starts_with(b"HTTP/1.1 404 "));
}

proptest::proptest! {
    #[test]
    fn random_bytes_are_never_a_panic_and_never_more_payload_than_bytes(
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300), step in 1..40_usize,
    ) {
        let (payload, answers, _) = feed(&mut Framing::new(true, 1 << 16), &bytes, step);
        proptest::prop_assert!(payload.len() + answers.len() <= bytes.len());
        let _ = upgrade(&bytes, None);
    }
}
