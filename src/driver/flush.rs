//! The end of each round: operations go to the store, then bytes go to sockets. Also timers and the store's answers.

use std::io::ErrorKind;
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::{Notify, mpsc};
use tracing::{error, warn};

use crate::broker::api::{ClientEvent, ConnId, Delivery};
use crate::driver::layers::Layers;
use crate::driver::shell::{PeerIo, Shell};
use crate::driver::stream::WriteHalf;
use crate::net::hub::{Hub, Output};
use crate::port::PORT_UNQUEUED_MAX;
use crate::store::contract::StoreEvent;

/// Rounds without a pause before other tasks get their turn.
const ROUNDS_MAX: usize = 4;
/// Longest sleep of the timers, in milliseconds: so often they see whether the store is behind.
const TICK_MILLIS_MAX: u64 = 1_000;

/// Flushes whenever somebody asks for it. Since the request is queued behind every socket that is ready, one flush serves
/// them all.
pub async fn run(shell: Rc<Shell>) {
    loop {
        shell.flush.notified().await;
        for _ in 0..ROUNDS_MAX {
            if round(&shell) {
                // Who has waited for the commit is answered before anybody else is read.
                hear_store(&shell, &mut Vec::new());
            }
            if !shell.hub.borrow().has_work() {
                break;
            }
        }
        if shell.hub.borrow().has_work() {
            shell.flush.notify_one();
        }
        shell.drained.notify_waiters();
    }
}

/// Says whether it has made a commit itself.
fn round(shell: &Rc<Shell>) -> bool {
    let mut hub = shell.hub.borrow_mut();
    let now = shell.now();
    let here = shell.commits_here(&mut hub, now);
    if !here {
        shell.submit(&mut hub, now);
    }
    let mut left = hub.dirty_len();
    while left > 0
        && let Some(id) = hub.next_dirty()
    {
        left -= 1;
        write(shell, &mut hub, id);
    }
    if here {
        shell.commit_here(&mut hub, now);
    }
    hub.finish_turn(now);
    for id in hub.take_unblocked() {
        if let Some(peer) = shell.peer(id)
            && let PeerIo::Socket { resume, .. } = &*peer
        {
            resume.notify_one();
        }
    }
    if hub.broker().sys_is_asked() {
        shell.sys_asked.notify_one();
    }
    if hub.has_login_jobs() {
        shell.logins.notify_one();
    }
    shell.watch_deadlines(&hub);
    here
}

fn write(shell: &Rc<Shell>, hub: &mut Hub, id: ConnId) {
    let Some(peer) = shell.peer(id) else { return };
    match &*peer {
        PeerIo::Port(events) => {
            while let Some(event) = hub.next_port_event(id) {
                send_to_port(shell, hub, id, events, event);
            }
            if hub.is_ending(id) {
                // The link learns the end from its closed channel and drops its own end.
                shell.forget_peer(id);
            }
        }
        PeerIo::Socket { blocked, .. } if blocked.get() => {}
        PeerIo::Socket { half, layers, blocked, resume, .. } => {
            let all = match layers {
                None => write_socket(shell, hub, id, half),
                Some(layers) => write_layered(shell, hub, id, half, &mut layers.borrow_mut()),
            };
            if !all {
                blocked.set(true);
                tokio::task::spawn_local(wait_writable(Rc::clone(shell), id, Rc::clone(&peer)));
            } else if hub.is_finished(id) {
                resume.notify_one();
                half.shutdown(Shutdown::Write);
            }
        }
    }
}

/// The window bounds everything but QoS 0 messages: those have a part of the port's places and are lost beyond it, counted;
/// anything else that finds no place is a fault of the link.
fn send_to_port(
    shell: &Shell,
    hub: &mut Hub,
    id: ConnId,
    events: &mpsc::Sender<ClientEvent>,
    event: ClientEvent,
) {
    let may_be_lost = matches!(event, ClientEvent::Deliver(Delivery { id: None, .. }));
    if may_be_lost && events.capacity() <= events.max_capacity().saturating_sub(PORT_UNQUEUED_MAX) {
        return hub.count_port_drop();
    }
    if events.try_send(event).is_err() {
        hub.lost(id, shell.now());
    }
}

/// Writes what the socket takes; `false` when it takes no more and something is left.
fn write_socket(shell: &Shell, hub: &mut Hub, id: ConnId, half: &WriteHalf) -> bool {
    loop {
        let result = match hub.output(id) {
            None => return true,
            Some(Output::Single(bytes)) => half.try_write(bytes),
            Some(Output::Many(slices)) => half.try_write_vectored(&slices),
        };
        match result {
            Ok(n) => hub.wrote(id, n, shell.now()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => {
                hub.abandon(id, shell.now());
                return true;
            }
        }
    }
}

/// The same through layers. The last thing that they write is their goodbye.
fn write_layered(shell: &Shell, hub: &mut Hub, id: ConnId, half: &WriteHalf, layers: &mut Layers) -> bool {
    loop {
        match layers.flush(half) {
            Ok(true) => {}
            Ok(false) => return false,
            Err(_) => {
                hub.abandon(id, shell.now());
                return true;
            }
        }
        match hub.output(id) {
            Some(output) => {
                let n = layers.encode(&output);
                hub.wrote(id, n, shell.now());
            }
            None => {
                if hub.is_finished(id) {
                    layers.close();
                }
                if !layers.has_output() {
                    return true;
                }
            }
        }
    }
}

async fn wait_writable(shell: Rc<Shell>, id: ConnId, peer: Rc<PeerIo>) {
    let PeerIo::Socket { half, blocked, .. } = &*peer else { return };
    let result = half.writable().await;
    blocked.set(false);
    let now = shell.now();
    let mut hub = shell.hub.borrow_mut();
    if result.is_err() {
        hub.abandon(id, now);
    }
    hub.touch(id);
    shell.flush.notify_one();
}

/// Calls the hub when its next deadline has come.
pub async fn timers(shell: Rc<Shell>) {
    loop {
        let latest = shell.now().mono.plus_millis(TICK_MILLIS_MAX);
        let until = shell.hub.borrow().next_deadline().map_or(latest, |at| at.min(latest));
        shell.asleep_until.set(until);
        let _ = tokio::time::timeout_at(shell.instant(until), shell.tick.notified()).await;
        serve_deadlines(&shell);
        // What is left over must not be served before what this round has made is written.
        tokio::task::yield_now().await;
    }
}

fn serve_deadlines(shell: &Shell) {
    let now = shell.now();
    let mut hub = shell.hub.borrow_mut();
    if shell.store_is_behind() {
        hub.reading_is_paused(now);
    }
    if hub.next_deadline().is_some_and(|at| at <= now.mono) {
        hub.tick(now);
        for xid in hub.broker_mut().take_timed_out() {
            warn!(%xid, outcome = "rolled back", "nobody decided a prepared transaction within limits.prepared_timeout");
        }
        for id in hub.take_finished() {
            close_hard(shell, id);
        }
        shell.flush.notify_one();
    }
}

fn close_hard(shell: &Shell, id: ConnId) {
    if let Some(peer) = shell.peer(id)
        && let PeerIo::Socket { half, resume, .. } = &*peer
    {
        resume.notify_one();
        half.shutdown(Shutdown::Both);
    }
}

/// Carries the store's answers to the broker.
pub async fn store_events(shell: Rc<Shell>, wake: Arc<Notify>) {
    let mut events = Vec::new();
    loop {
        wake.notified().await;
        hear_store(&shell, &mut events);
        shell.flush.notify_one();
    }
}

fn hear_store(shell: &Shell, events: &mut Vec<StoreEvent>) {
    shell.with_store(|store| store.poll_events(events));
    if events.is_empty() {
        return;
    }
    let now = shell.now();
    let mut hub = shell.hub.borrow_mut();
    for event in events.drain(..) {
        if let StoreEvent::Failed(reason) = &event {
            error!(%reason, "the store failed: acknowledging stops");
            shell.fail(reason.clone());
        }
        hub.store_event(event, now);
    }
    hub.finish_turn(now);
    drop(hub);
    shell.room.notify_waiters();
}
