//! What the operating system and the service manager say and hear.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tracing::{error, info, warn};

/// Signs of life within the service manager's patience.
const WATCHDOG_BEATS: u32 = 3;
/// Shortest time between two of them.
const WATCHDOG_BEAT_MIN: Duration = Duration::from_millis(10);

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

/// Raises the limit of open descriptors as far as the system allows, since each client takes one; says how far that is. `None`: no
/// limit.
pub fn raise_descriptor_limit() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        Ok(()) => limit.maximum,
        Err(error) => {
            warn!(%error, "the limit of open descriptors cannot be raised");
            limit.current
        }
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

/// Tells the service manager, if it wants to hear it, that this thread still takes its turns. A thread that hangs goes silent,
/// and the service manager ends the process and starts it again.
pub async fn feed_watchdog() {
    let Some(patience) = sd_notify::watchdog_enabled() else { return };
    let mut beat = tokio::time::interval((patience / WATCHDOG_BEATS).max(WATCHDOG_BEAT_MIN));
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        let _ = sd_notify::notify(&[NotifyState::Watchdog]);
    }
}
