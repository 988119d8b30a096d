//! The admin interface: health, metrics and status over HTTP, on a Unix socket beside the store and, if asked for, on a
//! loopback TCP address. It reads and never changes anything, but for jobs of the store (see [`store`]) and of queues
//! (see [`desk`]), and reading the configuration again (see [`reload`]), all on the socket alone.
//!
//! It runs on the side thread's runtime and asks the driver for a [`Status`] through a bounded channel; a driver that does not
//! answer in time is reported as not live and costs nothing else. Bounds: [`guard::CONNECTIONS_MAX`] connections for each
//! listener, [`guard::REQUEST_BYTES_MAX`] for a request, [`guard::EXCHANGE_MILLIS_MAX`] for an exchange,
//! [`STATUS_REQUESTS_MAX`] requests that wait for the driver, [`STATUS_MILLIS_MAX`] for its answer.

pub mod client;
pub mod desk;
pub mod guard;
mod http;
pub mod metrics;
pub mod reload;
mod socket;
pub mod status;
pub mod store;
pub mod sys_topics;
pub mod table;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

pub use status::Status;

use crate::store::StoreTools;

/// Requests for a snapshot that may wait for the driver.
pub const STATUS_REQUESTS_MAX: usize = 16;

/// Milliseconds that the driver has to answer one.
pub const STATUS_MILLIS_MAX: u64 = 2000;

/// Milliseconds that open exchanges get to end when the process stops.
const SHUTDOWN_MILLIS_MAX: u64 = 1000;

/// Where to serve.
#[derive(Clone, Debug)]
pub struct AdminOptions {
    /// Path of the Unix socket.
    pub socket: PathBuf,
    /// A loopback address to serve on as well.
    pub http: Option<SocketAddr>,
}

/// A request for a snapshot: the driver sends the answer through it.
pub type StatusRequest = oneshot::Sender<Status>;

/// The driver's end of the request channel.
pub type StatusRequests = mpsc::Receiver<StatusRequest>;

/// Asks the driver for snapshots. Cheap to clone.
#[derive(Clone, Debug)]
pub struct StatusSource {
    requests: mpsc::Sender<StatusRequest>,
}

/// The driver did not answer within [`STATUS_MILLIS_MAX`], or is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoStatus {
    /// Too slow.
    #[error("the broker did not answer within {STATUS_MILLIS_MAX} ms")]
    Stalled,
    /// No longer there.
    #[error("the broker has stopped")]
    Gone,
}

/// Makes both ends of the request channel.
#[must_use]
pub fn status_channel() -> (StatusSource, StatusRequests) {
    let (requests, receiver) = mpsc::channel(STATUS_REQUESTS_MAX);
    (StatusSource { requests }, receiver)
}

impl StatusSource {
    /// A snapshot.
    ///
    /// # Errors
    /// When the driver is stalled or gone.
    pub async fn status(&self) -> Result<Status, NoStatus> {
        let (sender, answer) = oneshot::channel();
        let ask = async {
            self.requests.send(sender).await.map_err(|_| NoStatus::Gone)?;
            answer.await.map_err(|_| NoStatus::Gone)
        };
        tokio::time::timeout(Duration::from_millis(STATUS_MILLIS_MAX), ask)
            .await
            .unwrap_or(Err(NoStatus::Stalled))
    }
}

/// Serves until `shutdown` holds `true` or its sender is gone, then removes the socket file.
///
/// # Errors
/// When the socket or the address cannot be bound: another process answers on the socket, its path is no socket, or the
/// address is not a loopback one.
pub async fn serve(
    options: AdminOptions,
    source: StatusSource,
    shutdown: watch::Receiver<bool>,
) -> io::Result<()> {
    serve_with_owner(options, source, None, shutdown).await
}

/// What the owner of the process may ask for, on the socket.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The store's figures and jobs.
    pub tools: StoreTools,
    /// Named queues and prepared transactions.
    pub desk: desk::Desk,
    /// Reading the configuration again.
    pub reloads: reload::ReloadSource,
}

/// As [`serve`], with what the owner may ask for on the socket.
///
/// # Errors
/// As [`serve`].
pub async fn serve_with_owner(
    options: AdminOptions,
    source: StatusSource,
    owner: Option<Owner>,
    shutdown: watch::Receiver<bool>,
) -> io::Result<()> {
    let local = socket::bind(&options.socket).await?;
    let remote = match options.http {
        Some(address) => Some(bind_loopback(address).await?),
        None => None,
    };
    tracing::info!(socket = %options.socket.display(), http = ?options.http, "the admin interface is up");
    let router = http::router(source);
    let owners = owner.map_or_else(
        || router.clone(),
        |owner| {
            let own = store::router(owner.tools).merge(desk::router(owner.desk));
            router.clone().merge(own).merge(reload::router(owner.reloads))
        },
    );
    let on_socket = serve_on(local, owners, shutdown.clone());
    let on_address = async {
        match remote {
            Some(listener) => serve_on(listener, router, shutdown.clone()).await,
            None => Ok(()),
        }
    };
    let served = tokio::try_join!(on_socket, on_address);
    // The process may have been asked to stop by way of its folder's removal; then the socket is gone already.
    let _gone_already = std::fs::remove_file(&options.socket);
    served.map(|_| ())
}

async fn bind_loopback(address: SocketAddr) -> io::Result<TcpListener> {
    if !address.ip().is_loopback() {
        let text = format!("the admin interface serves loopback addresses only, and {address} is not one");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    TcpListener::bind(address)
        .await
        .map_err(|error| io::Error::new(error.kind(), format!("admin address {address}: {error}")))
}

async fn serve_on<L>(listener: L, router: axum::Router, mut shutdown: watch::Receiver<bool>) -> io::Result<()>
where
    L: axum::serve::Listener,
    L::Addr: std::fmt::Debug,
{
    let mut stopped = shutdown.clone();
    let server = axum::serve(guard::Capped::new(listener), router).with_graceful_shutdown(async move {
        // An error means that nobody can ask any more: stop too.
        let _sender_is_gone = shutdown.wait_for(|stop| *stop).await;
    });
    let give_up = async move {
        let _sender_is_gone = stopped.wait_for(|stop| *stop).await;
        tokio::time::sleep(Duration::from_millis(SHUTDOWN_MILLIS_MAX)).await;
    };
    tokio::select! {
        served = server => served,
        () = give_up => Ok(()),
    }
}

#[cfg(test)]
mod tests;
