//! One client's socket: reads it until the connection ends.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::ReadBuf;
use tokio::time::{Instant, timeout_at};

use crate::broker::api::ConnId;
use crate::driver::gate::Pass;
use crate::driver::layers::Decoded;
use crate::driver::shell::{PeerIo, READ_BYTES, SharedLayers, Shell};
use crate::driver::stream::ReadHalf;
use crate::net::hub::{Hub, Turn};

/// How long a publisher waits for the peers that it writes to. After that a peer that still lags loses QoS 0 messages
/// instead of holding publishers up.
const CONGESTION_WAIT: Duration = Duration::from_millis(20);
/// How long a connection that ended may take until its socket is closed the hard way.
const LINGER: Duration = Duration::from_secs(5);

/// What comes with a socket.
#[derive(Debug)]
pub struct Incoming {
    /// What is between it and the protocol; `None`: nothing.
    pub layers: Option<SharedLayers>,
    /// Bytes that were read from it already.
    pub early: Vec<u8>,
    /// The places that it holds.
    pub pass: Option<Box<Pass>>,
}

enum Read {
    /// So many bytes were handled.
    Bytes(usize, Turn),
    /// End of file, or an error.
    Over,
}

/// Reads until the end, then lets the last bytes out and forgets the connection. What an idle connection does not need is boxed:
/// its task is most of what it costs.
pub async fn serve(shell: Rc<Shell>, id: ConnId, mut read: ReadHalf, layers: Option<SharedLayers>) {
    loop {
        while shell.store_is_behind() {
            Box::pin(shell.room.notified()).await;
        }
        match poll_fn(|cx| poll_turn(&shell, id, &mut read, layers.as_ref(), cx)).await {
            Read::Bytes(_, Turn::End) => break Box::pin(linger(&shell, id, &mut read)).await,
            Read::Bytes(_, Turn::Congested) => Box::pin(wait_for_drain(&shell)).await,
            Read::Bytes(_, Turn::Blocked) => {
                if Box::pin(wait_for_answer(&shell, id, &read)).await == Waited::Broken {
                    break;
                }
                if shell.hub.borrow().is_ending(id) {
                    break Box::pin(linger(&shell, id, &mut read)).await;
                }
            }
            // The kernel has more: let the others have their turn, and the flusher.
            Read::Bytes(READ_BYTES, Turn::Continue) => tokio::task::yield_now().await,
            Read::Bytes(..) => {}
            Read::Over => {
                let now = shell.now();
                shell.hub.borrow_mut().lost(id, now);
                shell.flush.notify_one();
                break Box::pin(wait_until_finished(&shell, id, Instant::now() + LINGER)).await;
            }
        }
    }
    shell.remove(id);
}

fn poll_turn(
    shell: &Shell,
    id: ConnId,
    read: &mut ReadHalf,
    layers: Option<&SharedLayers>,
    cx: &mut Context<'_>,
) -> Poll<Read> {
    let mut scratch = shell.scratch.borrow_mut();
    let mut buffer = ReadBuf::new(&mut scratch);
    if ready!(read.poll_read(cx, &mut buffer)).is_err() || buffer.filled().is_empty() {
        return Poll::Ready(Read::Over);
    }
    let mut hub = shell.hub.borrow_mut();
    let turn = match layers {
        None => hear(shell, &mut hub, id, buffer.filled()),
        Some(layers) => hear_through(shell, &mut hub, id, layers, buffer.filled_mut()),
    };
    shell.flush.notify_one();
    Poll::Ready(Read::Bytes(buffer.filled().len(), turn))
}

#[inline]
fn hear(shell: &Shell, hub: &mut Hub, id: ConnId, bytes: &[u8]) -> Turn {
    let now = shell.now();
    let turn = hub.received(id, bytes, now);
    shell.submit_if_large(hub, now);
    turn
}

fn hear_through(shell: &Shell, hub: &mut Hub, id: ConnId, layers: &SharedLayers, wire: &mut [u8]) -> Turn {
    let mut plain = shell.plain.borrow_mut();
    let mut layers = layers.borrow_mut();
    let decoded = layers.decode(wire, &mut plain);
    let turn = hear_decoded(shell, hub, id, &decoded);
    if layers.has_output() {
        hub.touch(id);
    }
    turn
}

/// Bytes that came with the handshake.
pub fn hear_early(shell: &Shell, id: ConnId, layers: &SharedLayers, mut early: Vec<u8>) {
    let mut hub = shell.hub.borrow_mut();
    let mut layers = layers.borrow_mut();
    hear_decoded(shell, &mut hub, id, &layers.unframe(&mut early));
    if layers.has_output() {
        hub.touch(id);
    }
}

fn hear_decoded(shell: &Shell, hub: &mut Hub, id: ConnId, decoded: &Decoded<'_>) -> Turn {
    let mut turn = Turn::Continue;
    if !decoded.bytes.is_empty() {
        turn = hear(shell, hub, id, decoded.bytes);
    }
    if decoded.over {
        hub.lost(id, shell.now());
        turn = Turn::End;
    }
    turn
}

async fn wait_for_drain(shell: &Shell) {
    let until = Instant::now() + CONGESTION_WAIT;
    while shell.hub.borrow().is_congested() {
        if timeout_at(until, shell.drained.notified()).await.is_err() {
            shell.hub.borrow_mut().give_up_waiting();
        }
    }
}

/// How waiting without reading has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waited {
    /// The reader may go on.
    Answered,
    /// Nobody is there any more who could be answered.
    Broken,
}

async fn wait_for_answer(shell: &Shell, id: ConnId, read: &ReadHalf) -> Waited {
    let Some(peer) = shell.peer(id) else { return Waited::Answered };
    let PeerIo::Socket { resume, .. } = &*peer else { return Waited::Answered };
    let mut is_broken = false;
    while shell.hub.borrow().is_blocked(id) {
        // What waits for an answer has it soon, and what came behind it before the end is to count.
        if is_broken && shell.hub.borrow().is_held(id) {
            return Waited::Broken;
        }
        tokio::select! {
            biased;
            () = resume.notified() => {}
            () = read.broken(), if !is_broken => is_broken = true,
        }
    }
    Waited::Answered
}

/// Lets the last bytes out, then reads and discards until the peer has closed too: closing a socket with unread input would
/// reset it and could destroy what the peer has not read yet.
async fn linger(shell: &Shell, id: ConnId, read: &mut ReadHalf) {
    let until = Instant::now() + LINGER;
    wait_until_finished(shell, id, until).await;
    let discard = poll_fn(|cx| {
        loop {
            let mut scratch = shell.scratch.borrow_mut();
            let mut buffer = ReadBuf::new(&mut scratch);
            if ready!(read.poll_read(cx, &mut buffer)).is_err() || buffer.filled().is_empty() {
                return Poll::Ready(());
            }
        }
    });
    let _ = timeout_at(until, discard).await;
}

async fn wait_until_finished(shell: &Shell, id: ConnId, until: Instant) {
    while !(shell.hub.borrow().is_finished(id) && shell.layers_are_empty(id)) {
        if timeout_at(until, shell.drained.notified()).await.is_err() {
            return;
        }
    }
}
