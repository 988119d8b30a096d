//! The demo's uplink: a TCP proxy that can be cut.
//!
//! A cut is not a clean close. For [`DEAD_MILLIS`] the gateway's connections stay open and swallow what it sends, as a radio
//! link does that went out of range; then they break. While the uplink is down, new connections are closed at once. Bounds:
//! [`CONNECTIONS_MAX`] connections, the copy buffers of the runtime for each.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Connections at a time; more are closed at once.
pub const CONNECTIONS_MAX: usize = 16;

/// Milliseconds that a cut connection swallows bytes before it breaks.
pub const DEAD_MILLIS: u64 = 1500;

/// A running proxy; it stops when this goes away.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    up: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free loopback port and forwards to `target`.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (up, watched) = watch::channel(true);
        let task = tokio::spawn(accept(listener, target, watched));
        Ok(Self { address, up, task })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts the uplink.
    pub fn cut(&self) {
        self.up.send_replace(false);
    }

    /// Repairs it: new connections get through.
    pub fn repair(&self) {
        self.up.send_replace(true);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, up: watch::Receiver<bool>) {
    // Its members stop with it.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if *up.borrow() && connections.len() < CONNECTIONS_MAX => {
                    connections.spawn(forward(stream, target, up.clone()));
                }
                Ok(_) => {}
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn forward(mut near: TcpStream, target: SocketAddr, mut up: watch::Receiver<bool>) {
    let Ok(mut far) = TcpStream::connect(target).await else {
        return;
    };
    // Nagle's delay would be the proxy's, not the link's.
    let _best_effort = (near.set_nodelay(true), far.set_nodelay(true));
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => return,
        _ = up.wait_for(|up| !*up) => {}
    }
    drop(far);
    let swallow = async {
        let mut sink = [0; 4096];
        while near.read(&mut sink).await.is_ok_and(|count| count > 0) {}
    };
    let _broken = tokio::time::timeout(Duration::from_millis(DEAD_MILLIS), swallow).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { tokio::time::timeout(Duration::from_secs(20), test).await.unwrap() });
    }

    async fn target() -> (TcpListener, Proxy) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let proxy = Proxy::start(listener.local_addr().unwrap()).await.unwrap();
        (listener, proxy)
    }

    #[test]
    fn bytes_pass_both_ways() {
        run(async {
            let (listener, proxy) = target().await;
            let mut near = TcpStream::connect(proxy.address()).await.unwrap();
            let (mut far, _) = listener.accept().await.unwrap();
            near.write_all(b"up").await.unwrap();
            far.write_all(b"down").await.unwrap();
            let mut bytes = [0; 4];
            far.read_exact(&mut bytes[..2]).await.unwrap();
            assert_eq!(&bytes[..2], b"up");
            near.read_exact(&mut bytes).await.unwrap();
            assert_eq!(&bytes, b"down");
        });
    }

    #[test]
    fn a_cut_swallows_what_the_near_side_sends_and_then_breaks_the_connection() {
        run(async {
            let (listener, proxy) = target().await;
            let mut near = TcpStream::connect(proxy.address()).await.unwrap();
            let (mut far, _) = listener.accept().await.unwrap();
            proxy.cut();
            assert_eq!(far.read(&mut [0; 8]).await.unwrap(), 0, "the far side sees the end");
            near.write_all(b"into the void").await.unwrap();
            assert!(matches!(near.read(&mut [0; 8]).await, Ok(0) | Err(_)), "the near side sees it later");
        });
    }

    #[test]
    fn nothing_gets_through_before_the_uplink_is_repaired() {
        run(async {
            let (listener, proxy) = target().await;
            proxy.cut();
            let mut near = TcpStream::connect(proxy.address()).await.unwrap();
            assert!(matches!(near.read(&mut [0; 8]).await, Ok(0) | Err(_)));
            proxy.repair();
            let mut near = TcpStream::connect(proxy.address()).await.unwrap();
            let (mut far, _) = listener.accept().await.unwrap();
            near.write_all(b"x").await.unwrap();
            assert_eq!(far.read_u8().await.unwrap(), b'x');
        });
    }
}
