//! What comes before the protocol, on a thread of its own: PROXY protocol headers, TLS handshakes, WebSocket handshakes.
//!
//! A handshake costs more than a thousand messages, and a hostile peer can make it last. So neither holds up the broker's thread:
//! it gets a connection when the first byte of the protocol may come. The thread runs only where a listener needs it. Bounds: each
//! handshake as a whole has the time of a login; at most `handshakes_max` are under way, beyond which the oldest one makes room,
//! for an honest one is short; each holds a socket, a TLS machine and a request of at most 8 KiB.

mod carrier;
mod handshake;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tracing::{debug, error};

use crate::driver::gate::{Gate, Pass, count};
use crate::driver::layers::Layers;
use crate::driver::listening::{Bound, Listening};
use crate::driver::stream::{Detached, Stream};
use crate::driver::tls::ListenerCertificates;
use crate::limits::Limits;
use crate::net::origin::{Origin, PeerAddress, Protocol};
use crate::settings::Listener;

/// Connections that wait for the broker's thread; more wait in their handshakes.
pub const ADMITTED_MAX: usize = 64;

/// One listener whose connections need a handshake.
#[derive(Debug)]
pub struct DoorListener {
    /// Its place in the configuration.
    pub index: u16,
    /// Its settings.
    pub listener: Listener,
    /// Its socket.
    pub bound: Bound,
    /// There exactly where it has TLS.
    pub certificates: Option<Arc<ListenerCertificates>>,
}

/// A connection that is ready for its protocol.
#[derive(Debug)]
pub struct Admitted {
    /// Its socket.
    pub socket: Detached,
    /// What is between socket and protocol; `None`: nothing.
    pub layers: Option<Box<Layers>>,
    /// Bytes, inside of TLS, that came with the handshake.
    pub early: Vec<u8>,
    /// What it speaks.
    pub protocol: Protocol,
    /// Where it comes from.
    pub origin: Origin,
    /// Its places.
    pub pass: Option<Box<Pass>>,
}

/// What all handshakes share.
struct Door {
    gate: Arc<Gate>,
    admitted: mpsc::Sender<Admitted>,
    handshake: Duration,
    handshakes_max: usize,
    frame_bytes_max: u64,
    accept_rate_max: Option<u32>,
    /// Those under way, the oldest first; ended ones are removed when a new one comes.
    under_way: RefCell<VecDeque<AbortHandle>>,
}

/// Starts the thread; it ends with `stop`.
///
/// # Errors
/// When the system has no thread to give.
pub fn start(
    listeners: Vec<DoorListener>,
    limits: &Limits,
    gate: Arc<Gate>,
    admitted: mpsc::Sender<Admitted>,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let limits = limits.clone();
    std::thread::Builder::new().name("door".into()).spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return error!(%error, "listeners with TLS, WebSocket or PROXY protocol cannot run"),
        };
        let door = Rc::new(Door {
            gate,
            admitted,
            handshake: Duration::from_millis(limits.login_millis_max.into()),
            handshakes_max: limits.handshakes_max as usize,
            frame_bytes_max: handshake::frame_bytes_max(&limits),
            accept_rate_max: limits.accept_rate_max,
            under_way: RefCell::default(),
        });
        runtime.block_on(async move {
            for listener in listeners {
                tokio::task::spawn_local(accept(Rc::clone(&door), listener));
            }
            let _ = stop.wait_for(|stopped| *stopped).await;
        });
    })?;
    Ok(())
}

async fn accept(door: Rc<Door>, listener: DoorListener) {
    let DoorListener { index, listener, bound, certificates } = listener;
    let parts = Rc::new(handshake::Parts { index, listener, certificates });
    let mut listening = match Listening::new(bound, door.accept_rate_max, Arc::clone(&door.gate)) {
        Ok(listening) => listening,
        Err(error) => return error!(%error, url = parts.listener.url, "the listener cannot run"),
    };
    loop {
        let (stream, from) = listening.next().await;
        // What a proxy will tell is not known yet.
        let address = match from {
            PeerAddress::Ip(address) if !parts.listener.proxy_protocol => Some(address.ip()),
            _ => None,
        };
        if let Ok(pass) = door.gate.enter(index, address) {
            let task = handshake(Rc::clone(&door), Rc::clone(&parts), stream, from, pass);
            door.make_room();
            let handle = tokio::task::spawn_local(task).abort_handle();
            door.under_way.borrow_mut().push_back(handle);
        }
    }
}

impl Door {
    fn make_room(&self) {
        let mut under_way = self.under_way.borrow_mut();
        if under_way.len() >= self.handshakes_max {
            under_way.retain(|handle| !handle.is_finished());
        }
        if under_way.len() >= self.handshakes_max
            && let Some(oldest) = under_way.pop_front()
        {
            count(&self.gate.refusals.handshake_displaced);
            oldest.abort();
        }
    }
}

async fn handshake(
    door: Rc<Door>,
    parts: Rc<handshake::Parts>,
    stream: Stream,
    from: PeerAddress,
    pass: Option<Box<Pass>>,
) {
    let refusals = &door.gate.refusals;
    let url = &parts.listener.url;
    match timeout(door.handshake, parts.admit(stream, from, pass, door.frame_bytes_max)).await {
        // The broker's thread is gone: so is this one soon.
        Ok(Ok(admitted)) => drop(door.admitted.send(admitted).await),
        Ok(Err(reason)) => {
            count(&refusals.handshake_failed);
            debug!(%from, url, reason, "handshake failed");
        }
        Err(_) => {
            count(&refusals.handshake_late);
            debug!(%from, url, "handshake took too long");
        }
    }
}
