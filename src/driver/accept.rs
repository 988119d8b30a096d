//! Connections become clients of the hub: plain ones as they are accepted here, others when the door has let them in.

use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use tokio::sync::{Notify, mpsc};
use tracing::debug;

use crate::driver::connection::{self, Incoming};
use crate::driver::door::{Admitted, DoorListener};
use crate::driver::gate::Gate;
use crate::driver::listening::{self, Bound, Listening};
use crate::driver::shell::{PeerIo, SharedLayers, Shell};
use crate::driver::stream::Stream;
use crate::driver::tls::{Certificates, ListenerCertificates};
use crate::net::origin::{Origin, PeerAddress, Protocol};
use crate::settings::{Listener, Transport};

/// All listeners, bound.
#[derive(Debug, Default)]
pub struct Listeners {
    /// Those that need no handshake.
    pub plain: Vec<PlainListener>,
    /// Those that do.
    pub doors: Vec<DoorListener>,
    /// What they show to clients.
    pub certificates: Certificates,
}

/// A listener whose connections are handed to the hub as they come.
#[derive(Debug)]
pub struct PlainListener {
    bound: Bound,
    protocol: Protocol,
    /// Of every connection, but for its peer.
    origin: Origin,
}

/// Binds every configured address and reads every certificate.
///
/// # Errors
/// Names the address that cannot be bound, or the file that cannot be used, and why.
pub fn bind(settings: &[Listener]) -> anyhow::Result<Listeners> {
    let mut listeners = Listeners::default();
    for (index, listener) in settings.iter().enumerate() {
        let index = u16::try_from(index).context("more listeners than can be counted")?;
        let certificates = ListenerCertificates::load(listener).map_err(|what| anyhow!(what))?;
        certificates.iter().for_each(|certificates| listeners.certificates.add(certificates));
        let bound = listening::bind(listener)?;
        let plain =
            matches!(listener.transport, Transport::Tcp | Transport::Unix) && !listener.proxy_protocol;
        match listener.protocol {
            Some(protocol) if plain => {
                let origin = Origin {
                    peer: PeerAddress::Local,
                    listener: index,
                    secure: listener.transport == Transport::Unix,
                    trailing_lf: listener.trailing_lf,
                    user: None,
                };
                listeners.plain.push(PlainListener { bound, protocol, origin });
            }
            _ => {
                listeners.doors.push(DoorListener { index, listener: listener.clone(), bound, certificates })
            }
        }
    }
    Ok(listeners)
}

/// Accepts for ever.
pub async fn run(shell: Rc<Shell>, listener: PlainListener, rate_max: Option<u32>, gate: Arc<Gate>) {
    let PlainListener { bound, protocol, origin } = listener;
    let mut listening = match Listening::new(bound, rate_max, Arc::clone(&gate)) {
        Ok(listening) => listening,
        Err(error) => return tracing::error!(%error, "a listener cannot run"),
    };
    loop {
        let (stream, peer) = listening.next().await;
        let address = match peer {
            PeerAddress::Ip(address) => Some(address.ip()),
            PeerAddress::Local => None,
        };
        if let Ok(pass) = gate.enter(origin.listener, address) {
            let incoming = Incoming { layers: None, early: Vec::new(), pass };
            admit(&shell, stream, protocol, Origin { peer, ..origin.clone() }, incoming);
        }
    }
}

/// Takes over what the door lets in, for ever.
pub async fn receive(shell: Rc<Shell>, mut admitted: mpsc::Receiver<Admitted>) {
    while let Some(Admitted { socket, layers, early, protocol, origin, pass }) = admitted.recv().await {
        let layers = layers.map(|layers| SharedLayers::new((*layers).into()));
        match socket.attach() {
            Ok(stream) => admit(&shell, stream, protocol, origin, Incoming { layers, early, pass }),
            Err(error) => debug!(%error, "a connection could not be taken over"),
        }
    }
}

fn admit(shell: &Rc<Shell>, stream: Stream, protocol: Protocol, origin: Origin, incoming: Incoming) {
    let now = shell.now();
    let from = origin.peer;
    let Some(id) = shell.hub.borrow_mut().open(protocol, origin, now) else {
        debug!(%from, "connection refused: connections_max is reached");
        return;
    };
    shell.watch_deadlines(&shell.hub.borrow());
    let (read, half) = stream.split();
    let Incoming { layers, early, pass } = incoming;
    let io = PeerIo::Socket {
        half,
        layers: layers.clone(),
        blocked: false.into(),
        resume: Notify::new(),
        _pass: pass,
    };
    shell.add_peer(id, io);
    if !early.is_empty()
        && let Some(layers) = &layers
    {
        connection::hear_early(shell, id, layers, early);
        shell.flush.notify_one();
    }
    tokio::task::spawn_local(connection::serve(Rc::clone(shell), id, read, layers));
}
