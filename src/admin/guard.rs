//! Bounds of the admin interface's connections: how many, how many bytes a request may have, how long an exchange may take.
//!
//! The HTTP library has no limits of its own here that are small enough for a gateway, so they sit on the byte stream: what a
//! peer sends between two answers is a request and must be short; from one answer to the next no more than a fixed time may
//! pass. Trickled headers, idle connections and peers that do not read end that way too.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// Connections of one listener; more wait in the listener's backlog.
pub const CONNECTIONS_MAX: usize = 32;

/// Head and body of a request, in bytes.
pub const REQUEST_BYTES_MAX: usize = 16 << 10;

/// Milliseconds from one progress of an answer to the next, or from the start to the first.
pub const EXCHANGE_MILLIS_MAX: u64 = 30_000;

/// A listener that admits [`CONNECTIONS_MAX`] connections at a time.
#[derive(Debug)]
pub struct Capped<L> {
    listener: L,
    places: Arc<Semaphore>,
    exchange: Duration,
}

impl<L> Capped<L> {
    /// Admits connections of `listener`.
    pub fn new(listener: L) -> Self {
        Self::with(listener, CONNECTIONS_MAX, Duration::from_millis(EXCHANGE_MILLIS_MAX))
    }

    fn with(listener: L, connections_max: usize, exchange: Duration) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(connections_max)), exchange }
    }
}

impl<L: Listener> Listener for Capped<L> {
    type Io = Guarded<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let place = Arc::clone(&self.places).acquire_owned().await.expect("the semaphore is never closed");
        let (io, address) = self.listener.accept().await;
        (Guarded::new(io, self.exchange, place), address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// A byte stream with the bounds of one connection.
#[derive(Debug)]
pub struct Guarded<S> {
    io: S,
    exchange: Duration,
    deadline: Pin<Box<Sleep>>,
    unanswered_bytes: usize,
    _place: OwnedSemaphorePermit,
}

impl<S> Guarded<S> {
    fn new(io: S, exchange: Duration, place: OwnedSemaphorePermit) -> Self {
        let deadline = Box::pin(tokio::time::sleep(exchange));
        Self { io, exchange, deadline, unanswered_bytes: 0, _place: place }
    }

    fn check_deadline(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.deadline.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::Error::new(io::ErrorKind::TimedOut, "the exchange took too long")),
            Poll::Pending => Ok(()),
        }
    }

    fn answered(&mut self, written: usize) {
        if written > 0 {
            self.unanswered_bytes = 0;
            self.deadline.as_mut().reset(Instant::now() + self.exchange);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_deadline(context)?;
        let before = buffer.filled().len();
        std::task::ready!(Pin::new(&mut self.io).poll_read(context, buffer))?;
        self.unanswered_bytes += buffer.filled().len() - before;
        if self.unanswered_bytes > REQUEST_BYTES_MAX {
            // A read that fails must not have read anything.
            buffer.set_filled(before);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "the request is too large")));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check_deadline(context)?;
        let written = std::task::ready!(Pin::new(&mut self.io).poll_write(context, bytes))?;
        self.answered(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_deadline(context)?;
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_deadline(context)?;
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { tokio::time::timeout(Duration::from_secs(20), test).await.unwrap() });
    }

    async fn capped(connections_max: usize, exchange_ms: u64) -> (Capped<TcpListener>, std::net::SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (Capped::with(listener, connections_max, Duration::from_millis(exchange_ms)), address)
    }

    #[test]
    fn a_connection_above_the_cap_is_admitted_when_another_one_ends() {
        run(async {
            let (mut listener, address) = capped(1, 20_000).await;
            let _first = TcpStream::connect(address).await.unwrap();
            let _second = TcpStream::connect(address).await.unwrap();
            let (served, _) = listener.accept().await;
            let second = tokio::spawn(async move {
                listener.accept().await;
            });
            tokio::task::yield_now().await;
            assert!(!second.is_finished());
            drop(served);
            second.await.unwrap();
        });
    }

    #[test]
    fn a_request_that_does_not_end_is_cut_off() {
        run(async {
            let (mut listener, address) = capped(1, 20_000).await;
            let mut peer = TcpStream::connect(address).await.unwrap();
            let (mut served, _) = listener.accept().await;
            let writer = tokio::spawn(async move {
                let _refused = peer.write_all(&vec![b'x'; REQUEST_BYTES_MAX + 1]).await;
                peer
            });
            let error = served.read_to_end(&mut Vec::new()).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            writer.await.unwrap();
        });
    }

    #[test]
    fn a_peer_that_says_nothing_is_cut_off() {
        run(async {
            let (mut listener, address) = capped(1, 50).await;
            let _peer = TcpStream::connect(address).await.unwrap();
            let (mut served, _) = listener.accept().await;
            let error = served.read_u8().await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        });
    }
}
