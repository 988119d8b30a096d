//! One connection on its way through PROXY header, TLS and WebSocket handshake.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use rustls::ServerConnection;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use super::Admitted;
use crate::driver::gate::Pass;
use crate::driver::layers::{Layers, WebSocket, drain};
use crate::driver::stream::Stream;
use crate::driver::tls::ListenerCertificates;
use crate::limits::Limits;
use crate::net::origin::{Origin, PeerAddress, Protocol};
use crate::net::proxy_protocol::{self, Parsed};
use crate::net::websocket::{Framing, HEAD_BYTES_MAX, upgrade};
use crate::settings::{Listener, Transport};

/// Frames longer than so many of the largest packets are refused. They would cost nothing, but nobody honest sends them; and a
/// packet that is too large should be answered by its own protocol.
const FRAME_PACKETS_MAX: u64 = 4;
/// Bytes of a WebSocket handshake that are read at a time.
const READ_BYTES: usize = 1 << 10;

/// Longest WebSocket frame.
pub fn frame_bytes_max(limits: &Limits) -> u64 {
    u64::from(limits.packet_bytes_max) * FRAME_PACKETS_MAX
}

/// A listener and its certificates.
pub struct Parts {
    /// Its place in the configuration.
    pub index: u16,
    /// Its settings.
    pub listener: Listener,
    /// There exactly where it has TLS.
    pub certificates: Option<Arc<ListenerCertificates>>,
}

/// After TLS, if there is any.
struct Secured {
    stream: Stream,
    tls: Option<Box<ServerConnection>>,
    /// What is decrypted, or read, and belongs to what is inside.
    early: Vec<u8>,
    websocket: Option<Protocol>,
}

impl Parts {
    /// All handshakes.
    ///
    /// # Errors
    /// Why the connection is closed.
    pub async fn admit(
        &self,
        mut stream: Stream,
        mut from: PeerAddress,
        mut pass: Option<Box<Pass>>,
        frame_bytes_max: u64,
    ) -> Result<Admitted, String> {
        if self.listener.proxy_protocol {
            if let Some(told) = proxy_header(&mut stream).await? {
                from = PeerAddress::Ip(told);
            }
            if let (Some(pass), PeerAddress::Ip(address)) = (&mut pass, from) {
                pass.comes_from(address.ip()).map_err(|()| "too many connections of its address")?;
            }
        }
        let secured = self.secure(stream).await?;
        let user = match (&self.certificates, &secured.tls) {
            (Some(certificates), Some(tls)) => certificates.user(tls.peer_certificates())?,
            _ => None,
        };
        let Some(protocol) = secured.websocket.or(self.listener.protocol) else {
            return Err("no protocol was agreed on".to_owned());
        };
        let origin = Origin {
            peer: from,
            listener: self.index,
            secure: secured.tls.is_some() || self.listener.transport == Transport::Unix,
            trailing_lf: self.listener.trailing_lf,
            user,
        };
        let websocket = secured.websocket.map(|protocol| {
            let text = protocol == Protocol::Stomp;
            WebSocket { framing: Framing::new(text, frame_bytes_max), text }
        });
        let layered = secured.tls.is_some() || websocket.is_some();
        Ok(Admitted {
            socket: secured.stream.detach().map_err(|error| error.to_string())?,
            layers: layered.then(|| Box::new(Layers::new(secured.tls, websocket))),
            early: secured.early,
            protocol,
            origin,
            pass,
        })
    }

    /// TLS and WebSocket.
    async fn secure(&self, mut stream: Stream) -> Result<Secured, String> {
        let websocket = self.listener.transport.is_websocket();
        let path = self.listener.path.as_deref();
        let Some(certificates) = &self.certificates else {
            let (mut early, mut protocol) = (Vec::new(), None);
            if websocket {
                protocol = Some(open_websocket(&mut stream, path, &mut early).await?);
            }
            return Ok(Secured { stream, tls: None, early, websocket: protocol });
        };
        let accepted = TlsAcceptor::from(certificates.current()).accept(stream).await;
        let mut tls = accepted.map_err(|error| format!("TLS: {error}"))?;
        let (mut early, mut protocol) = (Vec::new(), None);
        if websocket {
            protocol = Some(open_websocket(&mut tls, path, &mut early).await?);
        }
        // What the handshake has left to say (session tickets) must be out before the socket moves.
        tls.flush().await.map_err(|error| format!("TLS: {error}"))?;
        let (stream, mut tls) = tls.into_inner();
        tls.set_buffer_limit(None);
        drain(&mut tls, &mut early);
        Ok(Secured { stream, tls: Some(Box::new(tls)), early, websocket: protocol })
    }
}

async fn proxy_header(stream: &mut Stream) -> Result<Option<std::net::SocketAddr>, String> {
    let mut header = Vec::with_capacity(proxy_protocol::PREFIX_BYTES);
    loop {
        match proxy_protocol::parse(&header).map_err(|error| error.to_string())? {
            Parsed::Done(from) => return Ok(from),
            Parsed::More(n) => {
                let have = header.len();
                header.resize(have + n, 0);
                stream.read_exact(&mut header[have..]).await.map_err(|error| error.to_string())?;
            }
        }
    }
}

/// The WebSocket handshake; what follows it stays in `rest`.
async fn open_websocket<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    path: Option<&str>,
    rest: &mut Vec<u8>,
) -> Result<Protocol, String> {
    loop {
        match upgrade(rest, path) {
            Ok(Some(upgrade)) => {
                stream.write_all(&upgrade.response).await.map_err(|error| error.to_string())?;
                rest.drain(..upgrade.used);
                rest.shrink_to_fit();
                return Ok(upgrade.protocol);
            }
            Ok(None) => {
                let room = READ_BYTES.min(HEAD_BYTES_MAX - rest.len());
                rest.reserve(room);
                let read = (&mut *stream).take(room as u64).read_buf(rest).await;
                if read.map_err(|error| error.to_string())? == 0 {
                    return Err("the peer left in the middle of its request".to_owned());
                }
            }
            Err(answer) => {
                refuse(stream, &answer).await.map_err(|error| error.to_string())?;
                return Err("the request was refused".to_owned());
            }
        }
    }
}

/// Answers, then waits until the peer has closed too: closing a socket with unread input could destroy the answer.
async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, answer: &[u8]) -> io::Result<()> {
    stream.write_all(answer).await?;
    poll_fn(|cx| Pin::new(&mut *stream).poll_shutdown(cx)).await?;
    let mut waste = [0; 256];
    while stream.read(&mut waste).await? > 0 {}
    Ok(())
}
