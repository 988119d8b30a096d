//! Checks passwords and tokens on a thread of their own, one at a time: a hash takes tens of milliseconds and some memory.

use std::rc::Rc;

use crate::driver::shell::Shell;

/// Runs the hub's jobs for ever.
pub async fn serve(shell: Rc<Shell>) {
    loop {
        shell.logins.notified().await;
        loop {
            let now = shell.now();
            let job = shell.hub.borrow_mut().next_login_job(now);
            shell.flush.notify_one();
            let Some(job) = job else { break };
            let done = tokio::task::spawn_blocking(move || job.run(system_secs())).await;
            let now = shell.now();
            // It fails only when the runtime ends.
            let Ok(done) = done else { return };
            shell.hub.borrow_mut().login_done(done, now);
            shell.tick.notify_one();
            shell.flush.notify_one();
        }
    }
}

/// The system's clock in seconds since 1970: what tokens are measured by.
fn system_secs() -> u64 {
    super::system_millis() / 1000
}
