//! What the operating system and the service manager say and hear.

use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tracing::{error, info, warn};

/// Waits for SIGTERM or SIGINT; says which it was. SIGHUP is passed on to `hangups`.
pub async fn wait_for_stop(hangups: &Notify) -> &'static str {
    let (Ok(mut term), Ok(mut int), Ok(mut hup)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()), signal(SignalKind::hangup()))
    else {
        warn!(
            "signals cannot be watched: stop the process with SIGKILL, which loses nothing that was acknowledged"
        );
        return std::future::pending().await;
    };
    loop {
        tokio::select! {
            _ = term.recv() => return "SIGTERM",
            _ = int.recv() => return "SIGINT",
            _ = hup.recv() => hangups.notify_one(),
        }
    }
}

/// A panic is a bug of ours in a thread that others wait for: end the process at once, the supervisor restarts it and
/// recovery does the rest.
pub fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        error!(%info, "bug: the process ends and can be restarted safely");
        report(info);
        std::process::abort();
    }));
}

/// As many descriptors as the system allows: each client takes one.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
    {
        warn!(%error, "the limit of open descriptors cannot be raised");
    }
}

/// Tells the service manager that clients are served.
pub fn notify_ready() {
    info!("ready");
    let _ = sd_notify::notify(&[NotifyState::Ready]);
}

/// Tells the service manager that the end has begun.
pub fn notify_stopping() {
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
}
