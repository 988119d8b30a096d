//! What an idle connection costs, by transport.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::World;
use crate::harness::{GatewayOptions, Login, PATIENCE, Version};

/// Connections that are measured, and as many before them as warm the process up.
const CONNECTIONS: u64 = 1000;

fn dial(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Logs in and is answered a ping, so that everything that a connection needs to speak was there once.
fn greet(
    stream: &mut (impl Read + Write),
    name: &str,
    frame: impl Fn(&[u8]) -> Vec<u8>,
    answer_bytes: usize,
) {
    stream.write_all(&frame(&Login::fresh(Version::V311, name).encode())).unwrap();
    stream.write_all(&frame(&[0xc0, 0])).unwrap();
    stream.read_exact(&mut vec![0; answer_bytes]).unwrap();
}

fn open_tls(port: u16, config: &Arc<ClientConfig>, name: &str) -> StreamOwned<ClientConnection, TcpStream> {
    let server = ServerName::try_from("localhost").unwrap();
    let mut stream = StreamOwned::new(ClientConnection::new(Arc::clone(config), server).unwrap(), dial(port));
    greet(&mut stream, name, <[u8]>::to_vec, 6);
    stream
}

fn open_websocket(port: u16, name: &str) -> TcpStream {
    let mut stream = dial(port);
    stream.write_all(format!("{}{}", super::websocket::ASKS, super::websocket::MQTT).as_bytes()).unwrap();
    super::websocket::head(&mut stream);
    // The answers are two packets, in one frame or two.
    greet(&mut stream, name, |bytes| super::websocket::frame(0x82, bytes), 8);
    stream
}

/// Bytes of memory for each connection that `open` makes.
fn cost<T>(world: &World, name: &str, open: impl Fn(u64) -> T) -> u64 {
    let warm: Vec<T> = (0..CONNECTIONS).map(&open).collect();
    world.gateway.assert_serves();
    let before = world.gateway.rss();
    let measured: Vec<T> = (CONNECTIONS..2 * CONNECTIONS).map(&open).collect();
    world.gateway.assert_serves();
    let each = world.gateway.rss().saturating_sub(before) / CONNECTIONS;
    eprintln!("{name}: {each} bytes for each idle connection");
    drop((warm, measured));
    each
}

#[test]
fn an_idle_connection_costs_little_over_every_transport() {
    let new = || World::with(GatewayOptions::new().set("limits.accept_rate_max=100000"));
    let world = new();
    let plain = cost(&world, "tcp", |n| {
        Login::fresh(Version::V311, &format!("plain-{n}")).open(world.gateway.address()).unwrap()
    });
    let world = new();
    let websocket = cost(&world, "ws", |n| open_websocket(world.ws, &format!("ws-{n}")));
    let world = new();
    let config = world.client();
    let tls = cost(&world, "tls", |n| open_tls(world.mqtts, &config, &format!("tls-{n}")));
    assert!(plain < 4 << 10, "{plain} bytes over TCP");
    assert!(websocket < 5 << 10, "{websocket} bytes over WebSocket");
    assert!(tls < 8 << 10, "{tls} bytes over TLS");
}
