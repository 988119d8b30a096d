//! Peers that have not logged in: bounded in number, time and memory.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::World;
use crate::harness::{GatewayOptions, Login, PATIENCE, Random, Version, free_port};

/// Handshakes that hang at a time, more than may be under way.
const HALF_OPEN: usize = 300;

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Reads to the end, however it comes.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock) => panic!("{error}"),
        _ => all,
    }
}

#[test]
fn handshakes_that_never_end_make_room_for_honest_ones_and_are_gone_after_the_login_timeout() {
    let world = World::with(GatewayOptions::new().set("limits.login_timeout=3s"));
    world.gateway.assert_serves();
    // The admin interface comes up behind the listeners, with descriptors of its own.
    world.gateway.status();
    let (descriptors, memory) = (world.gateway.descriptors(), world.gateway.rss());
    let ports = [world.mqtts, world.ws, world.wss, world.proxied];
    let mut hanging: Vec<_> = (0..HALF_OPEN).map(|i| connect(ports[i % ports.len()])).collect();
    for stream in &mut hanging {
        // The start of a TLS record, of an HTTP request or of a PROXY header: some wait for more, some are refused.
        let _ = stream.write_all(&[0x16, 3, 1, 2, 0]);
    }
    world.await_refused("handshake_displaced", 10);
    for (_, tunnel) in world.tunnels() {
        Login::fresh(Version::V5, "honest").open(tunnel.address()).unwrap().disconnect().unwrap();
    }
    world.await_refused("handshake_late", 1);
    hanging.iter_mut().for_each(|stream| drop(rest(stream)));
    drop(hanging);
    crate::harness::eventually("all descriptors are given back", PATIENCE, || {
        let now = world.gateway.descriptors();
        if now <= descriptors + 2 { Ok(()) } else { Err(format!("{now} after {descriptors}")) }
    });
    let grown = world.gateway.rss().saturating_sub(memory);
    assert!(grown < 16 << 20, "{grown} bytes more");
}

#[test]
fn hostile_bytes_end_their_own_connection_alone() {
    let world = World::new();
    let mut random = Random::for_test("hostile bytes before a login");
    let mut streams = Vec::new();
    for port in [world.mqtts, world.mutual, world.ws, world.wss, world.proxied] {
        for length in [1, 15, 16, 40, 300, 5000] {
            let mut stream = connect(port);
            let mut bytes = random.bytes(length);
            if port == world.proxied && length > 15 {
                bytes[..12].copy_from_slice(b"\r\n\r\n\0\r\nQUIT\n");
            }
            // A listener that has had enough resets the connection, perhaps before all of it is written.
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            streams.push(stream);
        }
    }
    streams.iter_mut().for_each(|stream| drop(rest(stream)));
    world.gateway.assert_serves();
}

#[test]
fn a_bad_proxy_header_closes_and_only_the_proxied_listener_takes_one() {
    let world = World::new();
    for header in [
        &b"PROXY TCP4 999.0.0.1 1.1.1.1 1 1\r\n"[..],
        b"\x10\x0c\0\x04MQTT\x04\x02\0\0\0\0",
        b"GET / HTTP/1.1\r\n\r\n",
    ] {
        let mut stream = connect(world.proxied);
        stream.write_all(header).unwrap();
        assert_eq!(rest(&mut stream), b"");
    }
    let mut stream = TcpStream::connect(world.gateway.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"PROXY TCP4 10.0.0.7 127.0.0.1 4242 1883\r\n").unwrap();
    assert_eq!(rest(&mut stream), b"", "a plain listener knows no such header");
}

#[test]
fn an_address_has_its_share_of_connections_and_gets_it_back() {
    let world = World::with(GatewayOptions::new().set("limits.connections_per_address_max=3"));
    let address = world.gateway.address();
    // The probe of the start may still hold a place.
    world
        .gateway
        .await_status("no connection", |status| (status["traffic"]["connections"] == 0).then_some(()));
    let held: Vec<_> =
        ["a", "b", "c"].iter().map(|id| Login::fresh(Version::V5, id).open(address).unwrap()).collect();
    assert!(Login::fresh(Version::V5, "d").open(address).is_err());
    assert!(world.refused("address_full") >= 1);
    // A Unix socket has no address, and the proxy's clients have their own.
    UnixStream::connect(&world.socket).unwrap();
    let header = b"PROXY TCP4 10.0.0.7 127.0.0.1 4242 1883\r\n".to_vec();
    let tunnel = crate::harness::Tunnel::to(crate::harness::Far::Tcp(world.proxied, header));
    let proxied = Login::fresh(Version::V5, "e").open(tunnel.address()).unwrap();
    drop((held, proxied));
    crate::harness::eventually("a place is free again", PATIENCE, || {
        Login::fresh(Version::V5, "d").open(address).map(drop).map_err(|error| error.to_string())
    });
}

#[test]
fn a_listener_has_its_own_bound_and_accepting_its_pace() {
    let port = free_port();
    let url = format!("mqtt://127.0.0.1:{port}");
    let config = format!("[[listener]]\nurl = \"{url}\"\nconnections_max = 2\n");
    let options = GatewayOptions::new().listen(&url).set("limits.accept_rate_max=5").config(&config);
    let gateway = options.start();
    let own: std::net::SocketAddr = ([127, 0, 0, 1], port).into();
    let _held = ["a", "b"].map(|id| Login::fresh(Version::V5, id).open(own).unwrap());
    assert!(Login::fresh(Version::V5, "c").open(own).is_err());
    let started = std::time::Instant::now();
    for number in 0..15 {
        Login::fresh(Version::V5, &format!("paced-{number}")).open(gateway.address()).unwrap();
    }
    assert!(started.elapsed() >= Duration::from_millis(1500), "{:?}", started.elapsed());
    let refused = &gateway.status()["traffic"]["refused_connections"];
    assert!(refused["listener_full"].as_u64() >= Some(1) && refused["accept_delayed"].as_u64() >= Some(5));
}
