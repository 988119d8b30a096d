//! A client's socket, TCP or Unix, in two halves. Enums instead of trait objects: the plain path stays as direct as a socket's own.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

/// Silence after which the kernel starts to probe a peer, for clients without an MQTT keep-alive.
const TCP_KEEPALIVE_IDLE: Duration = Duration::from_secs(120);
const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);

/// A whole socket.
#[derive(Debug)]
pub enum Stream {
    /// TCP.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
}

/// What is read from.
#[derive(Debug)]
pub enum ReadHalf {
    /// TCP.
    Tcp(tcp::OwnedReadHalf),
    /// A Unix socket.
    Unix(unix::OwnedReadHalf),
}

/// What is written to.
#[derive(Debug)]
pub enum WriteHalf {
    /// TCP.
    Tcp(tcp::OwnedWriteHalf),
    /// A Unix socket.
    Unix(unix::OwnedWriteHalf),
}

/// A socket between two event loops.
#[derive(Debug)]
pub enum Detached {
    /// TCP.
    Tcp(std::net::TcpStream),
    /// A Unix socket.
    Unix(std::os::unix::net::UnixStream),
}

impl Stream {
    /// Sets what makes small packets prompt and dead peers known.
    pub fn prepare(&self) {
        if let Self::Tcp(stream) = self {
            let keepalive =
                TcpKeepalive::new().with_time(TCP_KEEPALIVE_IDLE).with_interval(TCP_KEEPALIVE_INTERVAL);
            // A socket that the peer has closed already may refuse; reading it tells.
            let _ = stream.set_nodelay(true);
            let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
        }
    }

    /// Two halves, for the reader and the flusher.
    #[must_use]
    pub fn split(self) -> (ReadHalf, WriteHalf) {
        match self {
            Self::Tcp(stream) => {
                let (read, write) = stream.into_split();
                (ReadHalf::Tcp(read), WriteHalf::Tcp(write))
            }
            Self::Unix(stream) => {
                let (read, write) = stream.into_split();
                (ReadHalf::Unix(read), WriteHalf::Unix(write))
            }
        }
    }

    /// Leaves this thread's event loop.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn detach(self) -> io::Result<Detached> {
        Ok(match self {
            Self::Tcp(stream) => Detached::Tcp(stream.into_std()?),
            Self::Unix(stream) => Detached::Unix(stream.into_std()?),
        })
    }
}

impl Detached {
    /// Joins this thread's event loop.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn attach(self) -> io::Result<Stream> {
        Ok(match self {
            Self::Tcp(stream) => Stream::Tcp(TcpStream::from_std(stream)?),
            Self::Unix(stream) => Stream::Unix(UnixStream::from_std(stream)?),
        })
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

impl ReadHalf {
    /// Reads what is there.
    #[inline]
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(half) => Pin::new(half).poll_read(cx, buf),
            Self::Unix(half) => Pin::new(half).poll_read(cx, buf),
        }
    }

    /// Waits until the connection is broken, a reset for example, without reading. That the peer sends no more is none: it may
    /// still want its answers.
    pub async fn broken(&self) {
        // An error of the readiness itself means as much.
        let _ = match self {
            Self::Tcp(half) => half.ready(Interest::ERROR).await,
            Self::Unix(half) => half.ready(Interest::ERROR).await,
        };
    }
}

impl WriteHalf {
    /// Writes what the socket takes.
    ///
    /// # Errors
    /// `WouldBlock` when it takes nothing now.
    #[inline]
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(half) => half.try_write(bytes),
            Self::Unix(half) => half.try_write(bytes),
        }
    }

    /// The same from several places.
    ///
    /// # Errors
    /// `WouldBlock` when it takes nothing now.
    #[inline]
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(half) => half.try_write_vectored(slices),
            Self::Unix(half) => half.try_write_vectored(slices),
        }
    }

    /// Waits until it may take more.
    ///
    /// # Errors
    /// When the socket is broken.
    pub async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(half) => half.writable().await,
            Self::Unix(half) => half.writable().await,
        }
    }

    /// Ends one direction or both.
    pub fn shutdown(&self, how: Shutdown) {
        // A peer that is gone needs no telling.
        let _ = SockRef::from(self).shutdown(how);
    }
}

impl AsFd for WriteHalf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(half) => half.as_ref().as_fd(),
            Self::Unix(half) => half.as_ref().as_fd(),
        }
    }
}
