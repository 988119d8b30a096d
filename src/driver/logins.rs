//! Checks passwords and tokens on a thread of their own, one at a time: a hash takes tens of milliseconds and some memory, which
//! that one thread uses again and again. It is started by the first login that needs it.

use std::io;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tokio::sync::mpsc;
use tracing::warn;

use crate::access::gate::{Done, Job};
use crate::access::password::HashMemory;
use crate::driver::shell::Shell;

/// The thread that checks.
struct Worker {
    jobs: SyncSender<Job>,
    done: mpsc::Receiver<Done>,
}

/// Runs the hub's jobs for ever.
pub async fn serve(shell: Rc<Shell>) {
    let mut worker: Option<Worker> = None;
    loop {
        shell.logins.notified().await;
        loop {
            let now = shell.now();
            let job = shell.hub.borrow_mut().next_login_job(now);
            shell.flush.notify_one();
            let Some(job) = job else { break };
            let done = check(&mut worker, job).await;
            let now = shell.now();
            shell.hub.borrow_mut().login_done(done, now);
            shell.tick.notify_one();
            shell.flush.notify_one();
        }
    }
}

/// Has the thread check a login. Where the system has no thread to give, clients wait for each other.
async fn check(worker: &mut Option<Worker>, job: Job) -> Done {
    if worker.is_none() {
        match Worker::start() {
            Ok(started) => *worker = Some(started),
            Err(error) => {
                warn!(%error, "there is no thread for checking passwords; everybody waits meanwhile")
            }
        }
    }
    let here = job.clone();
    if let Some(thread) = worker
        && thread.jobs.try_send(job).is_ok()
        && let Some(done) = thread.done.recv().await
    {
        return done;
    }
    *worker = None;
    here.run(system_secs(), &mut HashMemory::default())
}

impl Worker {
    fn start() -> io::Result<Self> {
        let (jobs, waiting) = sync_channel(1);
        let (results, done) = mpsc::channel(1);
        std::thread::Builder::new().name("logins".into()).spawn(move || work(&waiting, &results))?;
        Ok(Self { jobs, done })
    }
}

/// Ends with the broker's thread, which then takes no more results.
fn work(waiting: &Receiver<Job>, results: &mpsc::Sender<Done>) {
    let mut memory = HashMemory::default();
    while let Ok(job) = waiting.recv() {
        if results.blocking_send(job.run(system_secs(), &mut memory)).is_err() {
            return;
        }
    }
}

/// The system's clock in seconds since 1970: what tokens are measured by.
fn system_secs() -> u64 {
    super::system_millis() / 1000
}
