//! Name lookup and opening of upstream connections; bytes in and out of an open one.
//!
//! A name lookup runs on a thread of its own, since the system's resolver cannot be interrupted; never more than one at a time
//! for a link, however long it hangs. The thread is not waited for when the process stops.
//!
//! Bounds: one lookup thread, [`SOCKET_ADDRESSES_MAX`] addresses of a name, one packet and [`READ_BYTES`] in the read buffer.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::client_tls::handshake;
use super::{Address, LinkConfig};

/// Addresses of one name that are tried.
const SOCKET_ADDRESSES_MAX: usize = 8;
/// Bytes that one read takes.
pub const READ_BYTES: usize = 16 << 10;
/// Stack of the lookup thread in bytes.
const LOOKUP_STACK_BYTES: usize = 512 << 10;

/// Turns a name and a port into addresses; may block.
pub type Lookup = Arc<dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// The system's resolver.
pub fn system_lookup() -> Lookup {
    Arc::new(|host, port| Ok((host, port).to_socket_addrs()?.collect()))
}

type Answer = io::Result<Vec<SocketAddr>>;

/// Looks names up, one at a time.
pub struct Resolver {
    lookup: Lookup,
    pending: Option<(String, oneshot::Receiver<Answer>)>,
}

impl Resolver {
    /// Asks `lookup`.
    pub fn new(lookup: Lookup) -> Self {
        Self { lookup, pending: None }
    }

    /// The addresses of `host`, within `patience`. A lookup that takes longer goes on, and the next call waits for it.
    pub async fn resolve(
        &mut self,
        host: &str,
        port: u16,
        patience: Duration,
    ) -> Result<Vec<SocketAddr>, String> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        if self.pending.as_mut().is_some_and(|(name, answer)| name != host && !still_hangs(answer)) {
            self.pending = None;
        }
        let (name, answer) = match &mut self.pending {
            Some(pending) => pending,
            empty => empty.insert((host.to_owned(), start(&self.lookup, host, port)?)),
        };
        if name != host {
            return Err(format!("the lookup of {name} still hangs; {host} waits for it"));
        }
        let Ok(result) = timeout(patience, answer).await else {
            return Err(format!("the lookup of {host} takes longer than {} ms", patience.as_millis()));
        };
        self.pending = None;
        match result {
            Ok(Ok(found)) if !found.is_empty() => Ok(found),
            Ok(Ok(_)) => Err(format!("{host} has no address")),
            Ok(Err(e)) => Err(format!("{host} does not resolve: {e}")),
            Err(_) => Err(format!("the lookup of {host} ended without an answer")),
        }
    }
}

fn still_hangs(answer: &mut oneshot::Receiver<Answer>) -> bool {
    matches!(answer.try_recv(), Err(oneshot::error::TryRecvError::Empty))
}

fn start(lookup: &Lookup, host: &str, port: u16) -> Result<oneshot::Receiver<Answer>, String> {
    let (tell, answer) = oneshot::channel();
    let (lookup, host) = (lookup.clone(), host.to_owned());
    std::thread::Builder::new()
        .name("lookup".to_owned())
        .stack_size(LOOKUP_STACK_BYTES)
        // Nobody may wait for the answer any more; then it is of no use.
        .spawn(move || drop(tell.send(lookup(&host, port))))
        .map_err(|e| format!("no thread for the name lookup: {e}"))?;
    Ok(answer)
}

/// Opens a connection to the first of `found` that answers, TLS included.
///
/// # Errors
/// A sentence about the last address tried.
pub async fn connect(
    found: Vec<SocketAddr>,
    address: &Address,
    config: &LinkConfig,
) -> Result<Socket, String> {
    let mut last = format!("{} has no address", address.host);
    for target in found.into_iter().take(SOCKET_ADDRESSES_MAX) {
        match connect_to(target, address, config).await {
            Ok(socket) => return Ok(socket),
            Err(why) => last = why,
        }
    }
    Err(last)
}

async fn connect_to(target: SocketAddr, address: &Address, config: &LinkConfig) -> Result<Socket, String> {
    let patience = Duration::from_millis(config.connect_timeout_millis);
    let late = || format!("{target} did not answer within {} ms", patience.as_millis());
    let stream = timeout(patience, TcpStream::connect(target))
        .await
        .map_err(|_| late())?
        .map_err(|e| format!("no connection to {target}: {e}"))?;
    set_options(&stream, config).map_err(|e| format!("socket options for {target}: {e}"))?;
    if !address.tls {
        return Ok(Socket::new(Stream::Plain(stream)));
    }
    let session = timeout(patience, handshake(stream, &address.host, config.tls.as_ref()));
    let session = session.await.map_err(|_| format!("TLS: {}", late()))??;
    Ok(Socket::new(Stream::Tls(Box::new(session))))
}

/// The kernel gives up on a peer that acknowledges no data at about the time when the link does.
fn set_options(stream: &TcpStream, config: &LinkConfig) -> io::Result<()> {
    stream.set_nodelay(true)?;
    #[cfg(target_os = "linux")]
    {
        let patience = Duration::from_millis(config.ack_timeout_millis.saturating_mul(2));
        socket2::SockRef::from(stream).set_tcp_user_timeout(Some(patience))?;
    }
    Ok(())
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

/// What happened on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Bytes were appended to the input.
    Read,
    /// Bytes of the output were written.
    Written,
    /// The peer has closed its side.
    Closed,
}

/// An open connection with its buffers.
pub struct Socket {
    stream: Stream,
    /// Bytes received and not yet decoded.
    pub input: BytesMut,
    /// Bytes to be written.
    pub output: BytesMut,
    unflushed: bool,
}

impl Socket {
    fn new(stream: Stream) -> Self {
        Self { stream, input: BytesMut::new(), output: BytesMut::new(), unflushed: false }
    }

    /// Writes what is there and reads once if `want_read`; returns after something happened. May be dropped at any point.
    pub async fn turn(&mut self, want_read: bool) -> io::Result<Turn> {
        poll_fn(|cx| match &mut self.stream {
            Stream::Plain(stream) => {
                poll_turn(stream, &mut self.input, &mut self.output, &mut self.unflushed, want_read, cx)
            }
            Stream::Tls(stream) => poll_turn(
                &mut **stream,
                &mut self.input,
                &mut self.output,
                &mut self.unflushed,
                want_read,
                cx,
            ),
        })
        .await
    }

    /// Everything is with the kernel.
    pub fn is_flushed(&self) -> bool {
        self.output.is_empty() && !self.unflushed
    }
}

fn poll_turn(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    input: &mut BytesMut,
    output: &mut BytesMut,
    unflushed: &mut bool,
    want_read: bool,
    cx: &mut Context<'_>,
) -> Poll<io::Result<Turn>> {
    let wrote = poll_write(stream, output, unflushed, cx)?;
    if want_read {
        input.reserve(READ_BYTES);
        let mut space = (&mut *input).limit(READ_BYTES);
        if let Poll::Ready(read) = pin!(stream.read_buf(&mut space)).poll(cx) {
            return Poll::Ready(read.map(|n| if n == 0 { Turn::Closed } else { Turn::Read }));
        }
    }
    if wrote { Poll::Ready(Ok(Turn::Written)) } else { Poll::Pending }
}

/// Writes as much as the socket takes. A TLS session holds bytes of its own, which a flush hands on.
fn poll_write(
    stream: &mut (impl AsyncWrite + Unpin),
    output: &mut BytesMut,
    unflushed: &mut bool,
    cx: &mut Context<'_>,
) -> io::Result<bool> {
    let mut wrote = false;
    while !output.is_empty() {
        match pin!(stream.write(output)).poll(cx) {
            Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(Ok(n)) => output.advance(n),
            Poll::Ready(Err(e)) => return Err(e),
            Poll::Pending => return Ok(wrote),
        }
        wrote = true;
        *unflushed = true;
    }
    if *unflushed && let Poll::Ready(done) = pin!(stream.flush()).poll(cx) {
        done?;
        *unflushed = false;
        wrote = true;
    }
    Ok(wrote)
}
