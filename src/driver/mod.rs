//! The IO shell: threads, sockets and clocks around the [`Hub`]. It moves bytes and decides nothing.
//!
//! One tokio `current_thread` runtime carries all client sockets and the broker. The store writes on its own thread, links and the
//! admin interface live on the side thread. Order of a round: sockets are read (each read is a turn of the hub), then the flusher
//! submits the round's operations to the store and only then writes every dirty outbox once. A lone batch on a quick disk is the
//! exception: the flusher commits it itself, after it has written the outboxes.

mod accept;
mod connection;
mod desk;
mod door;
mod flush;
mod gate;
mod layers;
mod listening;
mod logins;
mod pace;
mod ports;
mod reload;
mod shell;
mod side;
mod signals;
mod status;
mod stream;
mod sys;
mod tls;
mod tls_machine;

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use crate::admin;
use crate::bridge::LinkClock;
use crate::broker::Broker;
use crate::driver::accept::Listeners;
use crate::driver::gate::Gate;
use crate::driver::reload::Reloader;
use crate::driver::shell::{Clock, Shell};
use crate::driver::side::SideParts;
use crate::driver::tls::ListenerCertificates;
use crate::net::hub::{Access, Hub};
use crate::settings::Settings;
use crate::store::{Store, StoreOptions};
use crate::time::{Timeline, Wall};

pub use reload::{Load, Reload};

/// How long clients get to take their last bytes at shutdown.
const GOODBYE_MAX: Duration = Duration::from_secs(3);
/// Descriptors that are no clients': files, listeners, links, the admin interface, handshakes.
const OWN_DESCRIPTORS: u64 = 128;
/// Links that may ask for a port at a time.
const PORT_REQUESTS_MAX: usize = 16;

/// Runs the broker until a signal ends it.
///
/// # Errors
/// When it cannot start (a port in use, a store in use or of a newer version) or the store fails while it runs.
pub fn run(mut settings: Settings, access: Access, reload: Reload) -> anyhow::Result<()> {
    if let Some(descriptors) = signals::raise_descriptor_limit() {
        fit_connections(&mut settings, descriptors);
    }
    signals::abort_on_panic();
    let runtime = Builder::new_current_thread()
        .enable_all()
        .thread_name("blocking")
        .build_local(LocalOptions::default())?;
    runtime.block_on(serve(settings, access, reload))
}

/// Reads the certificates and keys of all listeners, to find what `run` would stumble over.
///
/// # Errors
/// Names the listener, the file and the remedy.
pub fn check_certificates(settings: &Settings) -> anyhow::Result<()> {
    for listener in &settings.listeners {
        ListenerCertificates::load(listener).map_err(|what| anyhow::anyhow!(what))?;
    }
    Ok(())
}

/// More connections than descriptors would only be promised.
fn fit_connections(settings: &mut Settings, descriptors: u64) {
    let most = u32::try_from(descriptors.saturating_sub(OWN_DESCRIPTORS).max(1)).unwrap_or(u32::MAX);
    let configured = settings.limits.connections_max;
    if configured > most {
        warn!(
            configured,
            descriptors,
            "limits.connections_max is lowered to {most}: this process may not open more descriptors; raise the hard \
             limit (LimitNOFILE= in the systemd unit, `ulimit -Hn` in a shell)"
        );
        settings.limits.connections_max = most;
    }
}

async fn serve(settings: Settings, access: Access, reload: Reload) -> anyhow::Result<()> {
    let started = Instant::now();
    let listeners = accept::bind(&settings.listeners)?;
    let wake = Arc::new(Notify::new());
    let (store, mut recovered) = open_store(&settings, Arc::clone(&wake))?;
    let system = system_millis();
    let timeline = Timeline::anchored(Wall(system), recovered.newest_wall);
    let clock = Clock::new(started, timeline);
    let set_aside = recovered.set_aside.take();
    if let Some(path) = &set_aside {
        error!(moved_to = %path.display(), "the store could not be opened: it was set aside, and an empty one was started");
    }
    let queues = recovered.queues.len();
    let waiting: u64 = recovered.queues.iter().map(|q| q.messages).sum();
    let mut broker =
        Broker::new(settings.limits.clone(), system ^ u64::from(std::process::id()).rotate_left(32));
    broker.restore(recovered, clock.now()).context("the store holds rows that this version cannot read")?;
    info!(queues, messages = waiting, millis = started.elapsed().as_millis() as u64, "store open");

    let tools = store.tools();
    let mut hub = Hub::new(broker, settings.limits.clone());
    hub.set_login_seed(&random_seed()?);
    let login_threads = logins::threads();
    hub.set_login_threads(login_threads);
    hub.set_access(access, clock.now());
    let shell = Rc::new(Shell::new(hub, store, clock, settings.limits.store_queue_bytes_max));
    let (port_tx, port_rx) = mpsc::channel(PORT_REQUESTS_MAX);
    let (source, status_rx) = admin::status_channel();
    let (reloads, requests) = admin::reload::reload_channel();
    let (desk, desk_rx) = admin::desk::desk_channel();
    let (stop_tx, stop) = watch::channel(false);
    let stop_doors = stop.clone();
    let parts = SideParts {
        ports: port_tx,
        tools,
        desk,
        source,
        reloads,
        stop,
        clock: LinkClock { started, timeline },
    };
    let side = side::start(&settings, parts).context("the side thread could not start")?;
    let gate = Arc::new(Gate::new(&settings.listeners, &settings.limits));
    let reporter = Rc::new(status::Reporter::new(&settings, side.links(), set_aside, Arc::clone(&gate)));

    tokio::task::spawn_local(flush::run(Rc::clone(&shell)));
    tokio::task::spawn_local(flush::timers(Rc::clone(&shell)));
    tokio::task::spawn_local(flush::store_events(Rc::clone(&shell), wake));
    for _ in 0..login_threads {
        tokio::task::spawn_local(logins::serve(Rc::clone(&shell)));
    }
    tokio::task::spawn_local(ports::serve(Rc::clone(&shell), port_rx));
    tokio::task::spawn_local(desk::serve(Rc::clone(&shell), desk_rx));
    tokio::task::spawn_local(status::serve(Rc::clone(&shell), Rc::clone(&reporter), status_rx));
    if let Some(interval) = settings.admin.sys_interval {
        tokio::task::spawn_local(sys::run(Rc::clone(&shell), reporter, interval));
    }
    let certificates = listeners.certificates.clone();
    let accepting = start_accepting(&shell, listeners, &settings, &gate, stop_doors)?;
    let hangups = Rc::new(Notify::new());
    let reloader =
        Reloader { reload, requests, hangups: Rc::clone(&hangups), certificates, started_with: settings };
    tokio::task::spawn_local(reloader.serve(Rc::clone(&shell)));
    signals::notify_ready();
    tokio::task::spawn_local(signals::feed_watchdog());

    let ended = tokio::select! {
        name = signals::wait_for_stop(&hangups) => { info!(signal = name, "stopping"); Ok(()) }
        reason = shell.failed() => Err(anyhow::anyhow!("the store failed and nothing can be acknowledged any more: {reason}. Restart after the disk is in order: everything acknowledged is in the file")),
    };
    signals::notify_stopping();
    accepting.iter().for_each(JoinHandle::abort);
    let _ = stop_tx.send(true);
    side.join(GOODBYE_MAX).await;
    if ended.is_ok() {
        goodbye(&shell).await;
        shell.close_store().context("the store could not be closed cleanly; nothing acknowledged is lost")?;
        info!("stopped");
    } else {
        warn!("stopped after a failure of the store");
    }
    ended
}

fn start_accepting(
    shell: &Rc<Shell>,
    listeners: Listeners,
    settings: &Settings,
    gate: &Arc<Gate>,
    stop: watch::Receiver<bool>,
) -> anyhow::Result<Vec<JoinHandle<()>>> {
    let rate_max = settings.limits.accept_rate_max;
    let plain = listeners.plain.into_iter();
    let mut accepting: Vec<_> = plain
        .map(|listener| {
            tokio::task::spawn_local(accept::run(Rc::clone(shell), listener, rate_max, Arc::clone(gate)))
        })
        .collect();
    if !listeners.doors.is_empty() {
        let (admitted_tx, admitted) = mpsc::channel(door::ADMITTED_MAX);
        door::start(listeners.doors, &settings.limits, Arc::clone(gate), admitted_tx, stop)
            .context("the thread for handshakes could not start")?;
        accepting.push(tokio::task::spawn_local(accept::receive(Rc::clone(shell), admitted)));
    }
    Ok(accepting)
}

/// What nobody can guess.
fn random_seed() -> anyhow::Result<[u8; 32]> {
    let mut seed = [0; 32];
    let filled = SystemRandom::new().fill(&mut seed);
    filled.map_err(|_| anyhow::anyhow!("the system has no random bytes to give")).map(|()| seed)
}

/// Milliseconds since the Unix epoch; 0 for a date before it. The standard library's clock ends in 2038 where the C library
/// counts seconds in 32 bits, as it does on 32-bit ARM up to Debian 11.
fn system_millis() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000)
}

fn open_store(
    settings: &Settings,
    wake: Arc<Notify>,
) -> anyhow::Result<(Store, crate::store::contract::Recovered)> {
    let limits = &settings.limits;
    let options = StoreOptions {
        path: settings.store_path.clone(),
        ring_bytes: limits.ring_bytes,
        cache_bytes: limits.store_cache_bytes,
        disk_bytes_max: limits.disk_bytes_max,
        disk_reserve_bytes: limits.disk_reserve_bytes,
        linger_millis: limits.store_linger_millis,
        queue_bytes_max: limits.store_queue_bytes_max,
    };
    Store::open(options, Arc::new(move || wake.notify_one()))
        .with_context(|| format!("the store {} cannot be opened", settings.store_path.display()))
}

/// Tells every client that the broker stops and gives it a moment to hear it.
async fn goodbye(shell: &Rc<Shell>) {
    shell.shutdown();
    let until = tokio::time::Instant::now() + GOODBYE_MAX;
    while !shell.is_quiet() {
        if tokio::time::timeout_at(until, shell.drained.notified()).await.is_err() {
            return;
        }
    }
}
