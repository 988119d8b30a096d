//! Simulated clients through real sockets, against a broker that is just enough of one.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::checker::{Checker, Tally};
use super::client::{Pace, run as run_client};
use super::device::{Device, SharedChecker};

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(20), test).await.unwrap() });
}

/// A device that is under way against a listener of the test's.
struct Scene {
    listener: TcpListener,
    checker: SharedChecker,
    publishing: watch::Sender<bool>,
    device: JoinHandle<()>,
}

impl Scene {
    async fn start(per_second: u32) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let checker = SharedChecker::new(Checker::new(1));
        let publishing = watch::channel(true).0;
        let pace = Pace { per_second, publishing: publishing.subscribe() };
        let device = Device::new(0, checker.clone());
        let device = tokio::spawn(run_client(address, device, Some(pace), 1));
        Self { listener, checker, publishing, device }
    }

    fn tally(&self) -> Tally {
        self.checker.lock().tally()
    }

    /// Accepts a connection and grants the login.
    async fn accept(&self) -> TcpStream {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        assert_eq!(read_packet(&mut stream).await.0, 0x10);
        stream.write_all(&[0x20, 2, 0, 0]).await.unwrap();
        stream
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.device.abort();
    }
}

/// First byte and body of the next packet.
async fn read_packet(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let first = stream.read_u8().await.unwrap();
    let mut length = 0;
    for shift in [0, 7, 14, 21] {
        let byte = stream.read_u8().await.unwrap();
        length |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    (first, body)
}

/// Repetition flag and packet identifier of the next PUBLISH.
async fn read_publish(stream: &mut TcpStream) -> (bool, [u8; 2]) {
    let (first, body) = read_packet(stream).await;
    assert_eq!(first & 0xf6, 0x32, "a PUBLISH of QoS 1 without RETAIN");
    let topic = usize::from(u16::from_be_bytes([body[0], body[1]]));
    (first & 0x08 != 0, [body[2 + topic], body[3 + topic]])
}

async fn acknowledge(stream: &mut TcpStream, id: [u8; 2]) {
    stream.write_all(&[0x40, 2, id[0], id[1]]).await.unwrap();
}

#[test]
fn a_device_publishes_at_its_pace_until_it_is_told_to_stop() {
    run(async {
        let scene = Scene::start(200).await;
        let mut stream = scene.accept().await;
        let mut seen = 0;
        while seen < scene.tally().published.max(20) {
            let (dup, id) = read_publish(&mut stream).await;
            assert!(!dup);
            acknowledge(&mut stream, id).await;
            seen += 1;
            if seen == 20 {
                scene.publishing.send_replace(false);
            }
        }
        while scene.tally().acknowledged < seen {
            tokio::task::yield_now().await;
        }
        assert_eq!(scene.tally().published, seen);
    });
}

#[test]
fn a_device_returns_after_a_crash_of_the_broker_and_repeats_what_was_not_acknowledged() {
    run(async {
        let scene = Scene::start(200).await;
        let mut stream = scene.accept().await;
        let (_, first) = read_publish(&mut stream).await;
        let (_, second) = read_publish(&mut stream).await;
        acknowledge(&mut stream, first).await;
        while scene.tally().acknowledged == 0 {
            tokio::task::yield_now().await;
        }
        drop(stream);
        let mut stream = scene.accept().await;
        assert_eq!(read_publish(&mut stream).await, (true, second));
        assert_eq!(scene.tally().reconnects, 1);
    });
}
