//! Large bodies: what they cost in memory, and that they come back as they were.
//!
//! Bodies are noise that depends on their number alone; both ends make and check it in blocks.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Barrier};

use crate::harness::{Gateway, GatewayOptions};
use crate::wire::{Wire, put_noise};
use crate::{mib, parameter};

const TOPIC: &str = "plant/camera";
const MIB: usize = 1 << 20;
const BLOCK_BYTES: usize = 64 << 10;
/// What a body may take of memory, in quarters of its size.
const QUARTERS_MAX: u64 = 5;
/// What everything else may take beside a body.
const CONSTANT_BYTES: u64 = 6 << 20;
const RECEIVERS: usize = 3;

fn block(number: u64, at: usize, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len + 8);
    put_noise(&mut out, number << 32 | (at / BLOCK_BYTES) as u64, len);
    out
}

/// The places and lengths of a body's blocks.
fn blocks(bytes: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..bytes).step_by(BLOCK_BYTES).map(move |at| (at, BLOCK_BYTES.min(bytes - at)))
}

/// Sends a QoS 1 PUBLISH; `begun` is called once its beginning is sent.
fn publish(wire: &mut Wire, number: u64, bytes: usize, begun: impl FnOnce()) -> io::Result<()> {
    let mut head = vec![0x32];
    let mut rest = 2 + TOPIC.len() + 2 + bytes;
    while rest > 0 {
        head.push((rest % 128) as u8 | if rest > 127 { 0x80 } else { 0 });
        rest /= 128;
    }
    head.extend_from_slice(&(TOPIC.len() as u16).to_be_bytes());
    head.extend_from_slice(TOPIC.as_bytes());
    head.extend_from_slice(&[0, 1]);
    wire.stream().write_all(&head)?;
    let mut begun = Some(begun);
    for (at, len) in blocks(bytes) {
        wire.stream().write_all(&block(number, at, len))?;
        if let Some(begun) = begun.take() {
            begun();
        }
    }
    let mut answer = [0; 4];
    wire.stream().read_exact(&mut answer)?;
    if answer == [0x40, 2, 0, 1] { Ok(()) } else { Err(io::Error::other(format!("PUBACK {answer:02x?}"))) }
}

/// Reads the head of a PUBLISH; returns its packet identifier and the length of its body.
fn begin(wire: &mut Wire) -> io::Result<([u8; 2], usize)> {
    let mut byte = [0];
    wire.stream().read_exact(&mut byte)?;
    if byte[0] >> 4 != 3 {
        return Err(io::Error::other(format!("a packet of type {}", byte[0] >> 4)));
    }
    let (mut length, mut shift) = (0, 0);
    loop {
        wire.stream().read_exact(&mut byte)?;
        length |= usize::from(byte[0] & 0x7f) << shift;
        shift += 7;
        if byte[0] < 0x80 {
            break;
        }
    }
    let mut head = vec![0; 2 + TOPIC.len() + 2];
    wire.stream().read_exact(&mut head)?;
    Ok(([head[head.len() - 2], head[head.len() - 1]], length - head.len()))
}

/// Reads and checks a body from its block `from` on.
fn check(wire: &mut Wire, number: u64, bytes: usize, from: usize) -> io::Result<()> {
    for (at, len) in blocks(bytes).skip(from) {
        let mut got = vec![0; len];
        wire.stream().read_exact(&mut got)?;
        assert!(got == block(number, at, len), "the body differs in the block at {at}");
    }
    Ok(())
}

/// Takes one body of this size and acknowledges it if asked to.
fn take(wire: &mut Wire, number: u64, bytes: usize, settle: bool) -> io::Result<()> {
    let (id, length) = begin(wire)?;
    assert_eq!(length, bytes);
    check(wire, number, bytes, 0)?;
    if settle {
        wire.stream().write_all(&[0x40, 2, id[0], id[1]])?;
    }
    Ok(())
}

fn gateway(body: usize) -> Gateway {
    let packet = body + MIB;
    let size = |key: &str, bytes: usize| format!("{key}={bytes}");
    GatewayOptions::new()
        .set(&size("limits.packet_max", packet.min(256 * MIB)))
        .set(&size("limits.read_buffers_max", 2 * packet))
        .set(&size("limits.store_queue_max", packet))
        .set(&size("store.ring", (4 * packet.next_multiple_of(MIB)).clamp(8 * MIB, 1 << 30)))
        .set("limits.memory_budget=16GiB")
        .start()
}

fn receivers(address: SocketAddr) -> Vec<Wire> {
    let open = |n| Wire::open(address, &format!("soak-receiver-{n}"), false).unwrap();
    (0..RECEIVERS).map(open).collect()
}

/// All receivers take the body; one of them has read only its beginning before the others are done.
fn deliver(gateway: &Gateway, body: usize, settle: bool) {
    let mut all = receivers(gateway.address());
    let mut slow = all.pop().unwrap();
    let (id, length) = begin(&mut slow).unwrap();
    assert_eq!(length, body);
    for receiver in &mut all {
        take(receiver, 1, body, settle).unwrap();
    }
    check(&mut slow, 1, body, 0).unwrap();
    if settle {
        slow.stream().write_all(&[0x40, 2, id[0], id[1]]).unwrap();
    }
    all.into_iter().chain([slow]).for_each(|receiver| receiver.close().unwrap());
}

fn assert_once(what: &str, body: usize, before: u64, peak: u64) {
    let grown = peak.saturating_sub(before);
    println!(
        "body of {:.0} MiB, {what}: {:.1} MiB more than the {:.1} of an idle gateway, {:.2} of the body",
        mib(body as u64),
        mib(grown),
        mib(before),
        grown as f64 / body as f64
    );
    let most = body as u64 / 4 * QUARTERS_MAX + CONSTANT_BYTES;
    assert!(grown <= most, "{what}: {} MiB for a body of {} MiB", mib(grown), mib(body as u64));
}

fn a_body_is_there_once(body: usize) {
    let mut gateway = gateway(body);
    for mut receiver in receivers(gateway.address()) {
        receiver.subscribe("plant/#").unwrap();
        receiver.close().unwrap();
    }
    let before = gateway.rss();
    let mut publisher = Wire::open(gateway.address(), "soak-publisher", true).unwrap();
    publish(&mut publisher, 1, body, || ()).unwrap();
    assert_once("published", body, before, gateway.peak_rss());
    gateway.kill();
    gateway.restart();
    deliver(&gateway, body, false);
    assert_once("replayed after a kill and delivered", body, before, gateway.peak_rss());
    // The end of the process moves it to the cold tier.
    gateway.stop();
    gateway.restart();
    deliver(&gateway, body, true);
    assert_once("delivered from the cold tier", body, before, gateway.peak_rss());
    for queue in gateway.status()["queues"].as_array().unwrap() {
        assert_eq!(queue["messages"], 0, "{queue}");
    }
}

#[test]
fn a_large_body_is_in_memory_once_however_many_receive_it_and_however_slowly() {
    match parameter::<usize>("TIDEGATE_SOAK_BODY_MIB") {
        Some(mebibytes) => a_body_is_there_once(mebibytes * MIB),
        None => [1, 24].into_iter().for_each(|mebibytes| a_body_is_there_once(mebibytes * MIB)),
    }
}

#[test]
fn publishers_of_large_bodies_take_turns_within_the_bound_on_memory() {
    const PUBLISHERS: usize = 16;
    const BODY: usize = 2 * MIB - 100;
    let gateway = GatewayOptions::new()
        .set("limits.packet_max=2MiB")
        .set("limits.read_buffers_max=6MiB")
        .set("limits.store_queue_max=2MiB")
        .start();
    let mut receiver = Wire::open(gateway.address(), "soak-receiver", false).unwrap();
    receiver.subscribe("plant/#").unwrap();
    receiver.close().unwrap();
    let before = gateway.rss();
    // Every one of them has begun to send before the first can be done.
    let begun = Arc::new(Barrier::new(PUBLISHERS));
    let publishers = (0..PUBLISHERS).map(|n| {
        let (address, begun) = (gateway.address(), begun.clone());
        std::thread::spawn(move || {
            let mut wire = Wire::open(address, &format!("soak-publisher-{n}"), true).unwrap();
            publish(&mut wire, n as u64, BODY, || {
                begun.wait();
            })
        })
    });
    let publishers: Vec<_> = publishers.collect();
    publishers.into_iter().for_each(|publisher| publisher.join().unwrap().unwrap());
    let grown = gateway.peak_rss() - before;
    println!(
        "{PUBLISHERS} bodies of 2 MiB at once: {:.1} MiB more than the {:.1} of an idle gateway",
        mib(grown),
        mib(before)
    );
    // What is received, what waits for the store, what the ring of 8 MiB holds, and a body between each two of them.
    let most = (6 + 2 + 8 + 2 * 2) << 20;
    assert!(grown <= most + CONSTANT_BYTES, "{} MiB", mib(grown));
    let mut receiver = Wire::open(gateway.address(), "soak-receiver", false).unwrap();
    for _ in 0..PUBLISHERS {
        let (id, length) = begin(&mut receiver).unwrap();
        assert_eq!(length, BODY);
        let mut body = vec![0; BODY];
        receiver.stream().read_exact(&mut body).unwrap();
        let number =
            (0..PUBLISHERS as u64).find(|n| body[..BLOCK_BYTES] == block(*n, 0, BLOCK_BYTES)).unwrap();
        assert!(blocks(BODY).all(|(at, len)| body[at..at + len] == block(number, at, len)));
        receiver.stream().write_all(&[0x40, 2, id[0], id[1]]).unwrap();
    }
    receiver.close().unwrap();
}
