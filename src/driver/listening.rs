//! Listening sockets, and accepting from them.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{TcpListener, UnixListener};
use tracing::{debug, info, warn};

use crate::driver::gate::{Gate, count};
use crate::driver::pace::Pace;
use crate::driver::stream::Stream;
use crate::net::origin::PeerAddress;
use crate::settings::{Endpoint, Listener};
use crate::time::Mono;

/// Connections that the kernel keeps for us before they are accepted.
const BACKLOG: i32 = 1024;
/// Pause after `accept` failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound socket that no event loop knows yet.
#[derive(Debug)]
pub enum Bound {
    /// TCP.
    Tcp(std::net::TcpListener),
    /// A Unix socket.
    Unix(std::os::unix::net::UnixListener),
}

/// Binds a configured address.
///
/// # Errors
/// Names the address that cannot be bound and why.
pub fn bind(listener: &Listener) -> anyhow::Result<Bound> {
    match &listener.endpoint {
        Endpoint::Ip(addr) => bind_tcp(*addr, listener).with_context(|| {
            format!(
                "cannot listen on {}: is another broker running? Choose another address with --listen",
                listener.url
            )
        }),
        Endpoint::Path(path) => bind_unix(path, listener)
            .with_context(|| format!("cannot listen on {}: may this user write the folder?", listener.url)),
    }
}

fn bind_tcp(addr: SocketAddr, listener: &Listener) -> anyhow::Result<Bound> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(socket2::Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    let address = socket.local_addr()?.as_socket().unwrap_or(addr);
    match listener.protocol {
        Some(protocol) => info!(%address, url = listener.url, "listening for {protocol}"),
        None => info!(%address, url = listener.url, "listening for WebSockets"),
    }
    Ok(Bound::Tcp(socket.into()))
}

/// Replaces a socket on which nobody answers.
fn bind_unix(path: &Path, listener: &Listener) -> anyhow::Result<Bound> {
    match fs::symlink_metadata(path) {
        Ok(meta) if !meta.file_type().is_socket() => anyhow::bail!("the path exists and is not a socket"),
        Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)?,
            _ => anyhow::bail!("another process answers on this socket"),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(path)?)?;
    if let Some(mode) = listener.mode {
        // Before anybody can connect: nobody can until the socket listens.
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
            .context("its permissions cannot be set")?;
    }
    socket.listen(BACKLOG)?;
    info!(path = %path.display(), url = listener.url, "listening for {}", listener.protocol.map_or("WebSockets".into(), |p| p.to_string()));
    Ok(Bound::Unix(socket.into()))
}

#[derive(Debug)]
enum Socketed {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A listening socket of this thread's event loop.
#[derive(Debug)]
pub struct Listening {
    socket: Socketed,
    pace: Pace,
    started: Instant,
    gate: Arc<Gate>,
    /// `accept` failed the last time: it was told already.
    failing: bool,
}

impl Listening {
    /// Joins this thread's event loop.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new(bound: Bound, rate_max: Option<u32>, gate: Arc<Gate>) -> io::Result<Self> {
        let socket = match bound {
            Bound::Tcp(listener) => Socketed::Tcp(TcpListener::from_std(listener)?),
            Bound::Unix(listener) => Socketed::Unix(UnixListener::from_std(listener)?),
        };
        Ok(Self { socket, pace: Pace::new(rate_max), started: Instant::now(), gate, failing: false })
    }

    /// The next connection, at the listener's pace.
    pub async fn next(&mut self) -> (Stream, PeerAddress) {
        loop {
            match self.accept().await {
                Ok((stream, from)) => {
                    self.failing = false;
                    stream.prepare();
                    self.keep_pace().await;
                    return (stream, from);
                }
                Err(error) if concerns_one_connection(&error) => {
                    debug!(%error, "a peer left before it was accepted");
                }
                Err(error) => {
                    count(&self.gate.refusals.accept_failed);
                    if !std::mem::replace(&mut self.failing, true) {
                        warn!(%error, "connections cannot be accepted; they wait until the system has room again");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn accept(&self) -> io::Result<(Stream, PeerAddress)> {
        match &self.socket {
            Socketed::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                Ok((Stream::Tcp(stream), PeerAddress::Ip(from)))
            }
            Socketed::Unix(listener) => Ok((Stream::Unix(listener.accept().await?.0), PeerAddress::Local)),
        }
    }

    async fn keep_pace(&mut self) {
        let now = Mono(self.started.elapsed().as_micros() as u64);
        if let Some(at) = self.pace.next(now) {
            count(&self.gate.refusals.accept_delayed);
            tokio::time::sleep(Duration::from_micros(at.0 - now.0)).await;
        }
    }
}

/// The error belongs to the connection that was about to be accepted, not to us: the next one may be well. See accept(2).
fn concerns_one_connection(error: &io::Error) -> bool {
    const OF_ONE: [Errno; 11] = [
        Errno::CONNABORTED,
        Errno::CONNRESET,
        Errno::PROTO,
        Errno::NETDOWN,
        Errno::NOPROTOOPT,
        Errno::HOSTDOWN,
        Errno::HOSTUNREACH,
        Errno::OPNOTSUPP,
        Errno::NETUNREACH,
        Errno::PERM,
        Errno::INTR,
    ];
    Errno::from_io_error(error).is_some_and(|code| OF_ONE.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_want_of_means_pauses_accepting() {
        let of_one = |code: Errno| concerns_one_connection(&io::Error::from(code));
        for code in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS] {
            assert!(!of_one(code), "{code}");
        }
        for code in [Errno::CONNABORTED, Errno::PROTO, Errno::PERM] {
            assert!(of_one(code), "{code}");
        }
    }
}
