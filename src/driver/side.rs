//! The side thread: links and the admin interface, so that what hangs there (a name lookup, a TLS handshake, a slow scraper)
//! costs local clients nothing.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{oneshot, watch};
use tracing::{error, warn};

use crate::admin::desk::Desk;
use crate::admin::reload::ReloadSource;
use crate::admin::{self, AdminOptions, Owner, StatusSource};
use crate::bridge::{LinkClock, LinkConfig, LinkStatus, run_link};
use crate::port::PortRequests;
use crate::settings::Settings;
use crate::store::StoreTools;

/// Threads for name look-ups.
const BLOCKING_THREADS_MAX: usize = 8;

/// The running thread.
#[derive(Debug)]
pub struct Side {
    links: Vec<Arc<LinkStatus>>,
    done: oneshot::Receiver<()>,
}

/// What the thread needs.
#[derive(Debug)]
pub struct SideParts {
    /// Where links get their ports.
    pub ports: PortRequests,
    /// For the admin interface.
    pub tools: StoreTools,
    /// For the admin interface too.
    pub desk: Desk,
    /// Where the admin interface gets its snapshots.
    pub source: StatusSource,
    /// Where the admin interface asks for the configuration to be read again.
    pub reloads: ReloadSource,
    /// Becomes true when everything is to stop.
    pub stop: watch::Receiver<bool>,
    /// For the links' timers.
    pub clock: LinkClock,
}

/// Starts the thread.
///
/// # Errors
/// When the system has no thread or no runtime to give.
pub fn start(settings: &Settings, parts: SideParts) -> io::Result<Side> {
    let links: Vec<_> = settings.bridges.iter().map(|link| Arc::new(LinkStatus::new(&link.name))).collect();
    let configs = settings.bridges.clone();
    let admin = AdminOptions { socket: settings.admin.socket.clone(), http: settings.admin.http };
    let statuses = links.clone();
    let (done_tx, done) = oneshot::channel();
    std::thread::Builder::new().name("side".into()).spawn(move || {
        let builder = Builder::new_current_thread()
            .enable_all()
            .thread_name("side-blocking")
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .build_local(LocalOptions::default());
        match builder {
            Ok(runtime) => {
                runtime.block_on(run(configs, statuses, admin, parts));
                runtime.shutdown_background();
            }
            Err(error) => error!(%error, "links and the admin interface cannot run"),
        }
        let _ = done_tx.send(());
    })?;
    Ok(Side { links, done })
}

async fn run(
    configs: Vec<LinkConfig>,
    statuses: Vec<Arc<LinkStatus>>,
    admin: AdminOptions,
    parts: SideParts,
) {
    let mut tasks = tokio::task::JoinSet::new();
    for (config, status) in configs.into_iter().zip(statuses) {
        tasks.spawn_local(run_link(config, parts.ports.clone(), status, parts.clock, parts.stop.clone()));
    }
    let (source, mut stop) = (parts.source, parts.stop);
    let owner = Owner { tools: parts.tools, desk: parts.desk, reloads: parts.reloads };
    let shutdown = stop.clone();
    tasks.spawn_local(async move {
        let socket = admin.socket.clone();
        if let Err(error) = admin::serve_with_owner(admin, source, Some(owner), shutdown).await {
            error!(%error, socket = %socket.display(), "the admin interface is not available; clients are served all the same");
        }
    });
    let _ = stop.wait_for(|stopped| *stopped).await;
    while tasks.join_next().await.is_some() {}
}

impl Side {
    /// The links' statuses, in the order of the configuration.
    #[must_use]
    pub fn links(&self) -> Vec<Arc<LinkStatus>> {
        self.links.clone()
    }

    /// Waits until the thread has ended, at most so long.
    pub async fn join(self, at_most: Duration) {
        if tokio::time::timeout(at_most, self.done).await.is_err() {
            warn!("links or the admin interface did not stop in time");
        }
    }
}
