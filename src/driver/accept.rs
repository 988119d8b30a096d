//! Listening sockets.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tracing::{debug, info, warn};

use crate::driver::connection;
use crate::driver::shell::{PeerIo, Shell};
use crate::net::origin::{Origin, PeerAddress, Protocol};
use crate::settings::{Listener, Transport};

/// Connections that the kernel keeps for us before they are accepted.
const BACKLOG: i32 = 1024;
/// Pause after `accept` failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Silence after which the kernel starts to probe a peer, for clients without an MQTT keep-alive.
const TCP_KEEPALIVE_IDLE: Duration = Duration::from_secs(120);
const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);

/// Binds every configured address.
///
/// # Errors
/// Names the address that cannot be bound and why.
pub fn bind(listeners: &[Listener]) -> anyhow::Result<Vec<TcpListener>> {
    // What the settings can say and this shell does not carry yet.
    let plain =
        |l: &&Listener| l.transport == Transport::Tcp && !l.proxy_protocol && l.connections_max.is_none();
    if let Some(other) = listeners.iter().find(|listener| !plain(listener)) {
        anyhow::bail!(
            "{}: this build listens on plain mqtt:// addresses alone, without `proxy_protocol` and `connections_max`",
            other.url
        );
    }
    listeners
        .iter()
        .filter_map(|listener| Some((listener, listener.addr()?)))
        .map(|(listener, addr)| {
            bind_one(addr).with_context(|| {
                format!(
                    "cannot listen on {}: is another broker running? Choose another address with --listen",
                    listener.url
                )
            })
        })
        .collect()
}

fn bind_one(addr: SocketAddr) -> anyhow::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(socket2::Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    info!(address = %socket.local_addr()?.as_socket().unwrap_or(addr), "listening for MQTT");
    Ok(TcpListener::from_std(socket.into())?)
}

/// Accepts for ever.
pub async fn run(shell: Rc<Shell>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, from)) => admit(&shell, stream, from),
            Err(error) => {
                warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn admit(shell: &Rc<Shell>, stream: TcpStream, from: SocketAddr) {
    let keepalive = TcpKeepalive::new().with_time(TCP_KEEPALIVE_IDLE).with_interval(TCP_KEEPALIVE_INTERVAL);
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive);
    let now = shell.now();
    let origin = Origin::plain(PeerAddress::Ip(from));
    let Some(id) = shell.hub.borrow_mut().open(Protocol::Mqtt, origin, now) else {
        debug!(%from, "connection refused: connections_max is reached");
        return;
    };
    shell.tick.notify_one();
    let (read, write) = stream.into_split();
    let io = PeerIo::Socket { half: write, blocked: false.into(), resume: Notify::new() };
    shell.add_peer(id, io);
    tokio::task::spawn_local(connection::serve(Rc::clone(shell), id, read));
}
