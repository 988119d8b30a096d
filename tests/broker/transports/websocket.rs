//! What is particular to WebSocket.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::World;
use crate::harness::{Login, PATIENCE, Version};

pub(super) const ASKS: &str = "GET /mqtt HTTP/1.1\r\nHost: gateway\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
pub(super) const MQTT: &str = "Sec-WebSocket-Protocol: mqtt\r\n\r\n";

fn ask(world: &World, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", world.ws)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

pub(super) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() < 126);
    [&[first, 0x80 | payload.len() as u8, 0, 0, 0, 0][..], payload].concat()
}

pub(super) fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

fn next_frame(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut start = [0; 2];
    stream.read_exact(&mut start).unwrap();
    let mut payload = vec![0; start[1].into()];
    stream.read_exact(&mut payload).unwrap();
    (start[0], payload)
}

fn opened(world: &World) -> TcpStream {
    let mut stream = ask(world, format!("{ASKS}{MQTT}").as_bytes());
    let answer = head(&mut stream).to_ascii_lowercase();
    assert!(
        answer.starts_with("http/1.1 101 ") && answer.contains("sec-websocket-protocol: mqtt\r\n"),
        "{answer}"
    );
    stream
}

#[test]
fn a_request_without_a_known_sub_protocol_is_answered_with_400() {
    let world = World::new();
    for headers in ["\r\n", "Sec-WebSocket-Protocol: chat\r\n\r\n"] {
        let mut stream = ask(&world, format!("{ASKS}{headers}").as_bytes());
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("mqtt"), "{answer}");
    }
}

#[test]
fn compression_is_not_agreed_to() {
    let world = World::new();
    let offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";
    let mut stream = ask(&world, format!("{ASKS}{offer}{MQTT}").as_bytes());
    let head = head(&mut stream).to_ascii_lowercase();
    assert!(head.contains("sec-websocket-protocol: mqtt") && !head.contains("extensions"), "{head}");
}

#[test]
fn frames_that_come_with_the_handshake_are_heard() {
    let world = World::new();
    let connect = Login::fresh(Version::V311, "eager").encode();
    let all = [format!("{ASKS}{MQTT}").as_bytes(), &frame(0x82, &connect), &frame(0x82, &[0xc0, 0])].concat();
    let mut stream = ask(&world, &all);
    head(&mut stream);
    let mut answers = Vec::new();
    while answers.len() < 6 {
        let (kind, payload) = next_frame(&mut stream);
        assert_eq!(kind, 0x82);
        answers.extend(payload);
    }
    assert_eq!(answers, [0x20, 2, 0, 0, 0xd0, 0]);
}

#[test]
fn packets_begin_and_end_anywhere_in_frames() {
    let world = World::new();
    let mut stream = opened(&world);
    let connect = Login::fresh(Version::V311, "pieces").encode();
    let (front, back) = connect.split_at(3);
    let back_and_more = [back, &[0xc0]].concat();
    for part in [front, &back_and_more, &[0, 0xc0, 0]] {
        stream.write_all(&frame(0x82, part)).unwrap();
    }
    let mut answers = Vec::new();
    while answers.len() < 8 {
        answers.extend(next_frame(&mut stream).1);
    }
    assert_eq!(answers, [0x20, 2, 0, 0, 0xd0, 0, 0xd0, 0]);
}

#[test]
fn pings_are_answered_and_a_close_is_answered_with_its_code() {
    let world = World::new();
    let mut stream = opened(&world);
    stream.write_all(&frame(0x89, b"there?")).unwrap();
    assert_eq!(next_frame(&mut stream), (0x8a, b"there?".to_vec()));
    stream.write_all(&frame(0x88, &[3, 0xe9, b'b', b'y', b'e'])).unwrap();
    assert_eq!(next_frame(&mut stream), (0x88, vec![3, 0xe9]));
    assert_eq!(stream.read(&mut [0; 9]).unwrap(), 0);
}

#[test]
fn text_and_broken_frames_are_closed_with_a_code() {
    let world = World::new();
    for (bytes, code) in [
        (frame(0x81, b"text"), 1003_u16),
        (vec![0x82, 2, 0xc0, 0], 1002),
        (frame(0xc2, b"x"), 1002),
        ([&[0x82, 0xff][..], &u64::MAX.to_be_bytes(), &[0; 4]].concat(), 1009),
    ] {
        let mut stream = opened(&world);
        stream.write_all(&bytes).unwrap();
        assert_eq!(next_frame(&mut stream), (0x88, code.to_be_bytes().to_vec()));
        assert_eq!(stream.read(&mut [0; 9]).unwrap(), 0);
    }
    world.gateway.assert_serves();
}

#[test]
fn a_will_is_published_when_a_websocket_ends_without_disconnect() {
    let world = World::new();
    let mut watcher = Login::fresh(Version::V5, "watcher").open(world.gateway.address()).unwrap();
    watcher.subscribe("will/ws", 1).unwrap();
    let login = Login::fresh(Version::V311, "mortal").will(crate::harness::Will::new("will/ws", "gone", 1));
    let mut stream = opened(&world);
    stream.write_all(&frame(0x82, &login.encode())).unwrap();
    assert_eq!(next_frame(&mut stream).1, [0x20, 2, 0, 0]);
    stream.write_all(&frame(0x88, &[])).unwrap();
    assert_eq!(watcher.message().unwrap().payload, b"gone");
}
