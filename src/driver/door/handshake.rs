//! One connection on its way through PROXY header, TLS and WebSocket handshake.

use std::sync::Arc;

use tokio::io::AsyncReadExt;

use super::Admitted;
use super::carrier::Carrier;
use crate::driver::gate::Pass;
use crate::driver::layers::{Layers, WebSocket};
use crate::driver::stream::Stream;
use crate::driver::tls::ListenerCertificates;
use crate::limits::Limits;
use crate::net::origin::{Origin, PeerAddress, Protocol};
use crate::net::proxy_protocol::{self, Parsed};
use crate::net::websocket::{Framing, upgrade};
use crate::settings::{Listener, Transport};

/// Frames longer than so many of the largest packets are refused. They would cost nothing, but nobody honest sends them; and a
/// packet that is too large should be answered by its own protocol.
const FRAME_PACKETS_MAX: u64 = 4;

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
        let mut carrier = match &self.certificates {
            Some(certificates) => Carrier::secure(stream, certificates.current()).await?,
            None => Carrier::plain(stream),
        };
        let user = match &self.certificates {
            Some(certificates) => certificates.user(carrier.peer_certificates())?,
            None => None,
        };
        let framed = match self.listener.transport.is_websocket() {
            true => Some(open_websocket(&mut carrier, self.listener.path.as_deref()).await?),
            false => None,
        };
        let Some(protocol) = framed.or(self.listener.protocol) else {
            return Err("no protocol was agreed on".to_owned());
        };
        let origin = Origin {
            peer: from,
            listener: self.index,
            secure: carrier.is_secure() || self.listener.transport == Transport::Unix,
            trailing_lf: self.listener.trailing_lf,
            user,
        };
        let websocket = framed.map(|protocol| {
            let text = protocol == Protocol::Stomp;
            WebSocket { framing: Framing::new(text, frame_bytes_max), text }
        });
        let (stream, tls, early) = carrier.into_parts();
        let layered = tls.is_some() || websocket.is_some();
        Ok(Admitted {
            socket: stream.detach().map_err(|error| error.to_string())?,
            layers: layered.then(|| Box::new(Layers::new(tls, websocket))),
            early,
            protocol,
            origin,
            pass,
        })
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

/// The WebSocket handshake; what follows it stays in the carrier.
async fn open_websocket(carrier: &mut Carrier, path: Option<&str>) -> Result<Protocol, String> {
    loop {
        match upgrade(carrier.heard(), path) {
            Ok(Some(upgrade)) => {
                carrier.take(upgrade.used);
                carrier.say(&upgrade.response).await?;
                return Ok(upgrade.protocol);
            }
            Ok(None) => carrier.listen().await?,
            Err(answer) => {
                carrier.refuse(&answer).await?;
                return Err("the request was refused".to_owned());
            }
        }
    }
}
