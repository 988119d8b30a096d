//! Between the plain client of these tests and a listener with TLS, WebSocket, or a Unix socket: a small server that carries each
//! connection over the transport that it is told, with client implementations that are not the broker's.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{Bytes, Message};

/// What a tunnel's far end is.
#[derive(Clone, Debug)]
pub enum Far {
    /// TLS to a port of 127.0.0.1.
    Tls(u16, Arc<ClientConfig>),
    /// WebSocket, with frames of so many bytes at most.
    Ws(u16, usize),
    /// Both.
    Wss(u16, Arc<ClientConfig>, usize),
    /// A Unix socket.
    Unix(PathBuf),
    /// TCP, after these bytes.
    Tcp(u16, Vec<u8>),
}

/// Carries connections until it is dropped.
#[derive(Debug)]
pub struct Tunnel {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Tunnel {
    /// Listens on a port of its own.
    pub fn to(far: Far) -> Self {
        let listener = StdListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("sockets can be made to not block");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let listener = TcpListener::from_std(listener).expect("a listening socket");
                tokio::select! {
                    _ = stopped => {}
                    () = accept(listener, far) => {}
                }
            });
        });
        Self { address, stop: Some(stop), thread: Some(thread) }
    }

    /// Where a client connects to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, far: Far) {
    while let Ok((near, _)) = listener.accept().await {
        let far = far.clone();
        // An end that fails closes the near side, which is what the client sees.
        tokio::spawn(async move { drop(carry(near, far).await) });
    }
}

async fn carry(mut near: TcpStream, far: Far) -> io::Result<()> {
    near.set_nodelay(true)?;
    match far {
        Far::Tls(port, config) => {
            let mut far = tls(port, config).await?;
            copy_bidirectional(&mut near, &mut far).await.map(drop)
        }
        Far::Ws(port, frame) => websocket(near, dial(port).await?, frame).await,
        Far::Wss(port, config, frame) => websocket(near, tls(port, config).await?, frame).await,
        Far::Unix(path) => {
            copy_bidirectional(&mut near, &mut UnixStream::connect(path).await?).await.map(drop)
        }
        Far::Tcp(port, first) => {
            let mut far = dial(port).await?;
            far.write_all(&first).await?;
            copy_bidirectional(&mut near, &mut far).await.map(drop)
        }
    }
}

async fn dial(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn tls(port: u16, config: Arc<ClientConfig>) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(config).connect(name, dial(port).await?).await
}

async fn websocket<S: AsyncRead + AsyncWrite + Unpin>(
    near: TcpStream,
    far: S,
    frame_max: usize,
) -> io::Result<()> {
    let mut request = "ws://localhost/mqtt".into_client_request().map_err(io::Error::other)?;
    request.headers_mut().insert("Sec-WebSocket-Protocol", HeaderValue::from_static("mqtt"));
    let (far, _) = client_async(request, far).await.map_err(io::Error::other)?;
    let (mut out, mut back) = far.split();
    let (mut read, mut write) = near.into_split();
    let up = async move {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let n = read.read(&mut buffer).await?;
            if n == 0 {
                return out.close().await.map_err(io::Error::other);
            }
            for part in buffer[..n].chunks(frame_max) {
                let frame = Message::Binary(Bytes::copy_from_slice(part));
                out.feed(frame).await.map_err(io::Error::other)?;
            }
            out.flush().await.map_err(io::Error::other)?;
        }
    };
    let down = async move {
        while let Some(message) = back.next().await {
            match message.map_err(io::Error::other)? {
                Message::Binary(bytes) => write.write_all(&bytes).await?,
                Message::Close(_) => break,
                _ => {}
            }
        }
        write.shutdown().await
    };
    // The far side ends the connection; what it says last must arrive.
    let (up, down) = tokio::join!(up, down);
    up.and(down)
}
