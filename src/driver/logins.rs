//! Checks passwords and tokens on threads of their own: a hash takes tens of milliseconds and some memory, which its thread uses
//! again and again. A thread is started by the first login that needs it and has low priority, so that the broker's thread and
//! others take the processor from it whenever they have something to do.
//!
//! Bound: [`THREADS_MAX`]; how many are at work at a time is up to the hub, which knows what each takes.

use std::io;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::{debug, warn};

use crate::access::gate::{Done, Job};
use crate::access::password::HashMemory;
use crate::driver::shell::Shell;

/// Threads that check logins, on a machine with as many processors.
const THREADS_MAX: usize = 4;
/// Their priority, as a nice value: beside a thread of the usual one they get a tenth of a processor.
const NICENESS: i32 = 10;

/// A thread that had nothing to do for so long gives its memory back.
const IDLE: Duration = Duration::from_secs(10);

/// How many threads check logins on this machine.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX)
}

/// A thread that checks.
struct Worker {
    jobs: SyncSender<Job>,
    done: mpsc::Receiver<Done>,
}

/// Runs the hub's jobs for ever, one at a time. There is one such task for each thread.
pub async fn serve(shell: Rc<Shell>) {
    let mut worker: Option<Worker> = None;
    loop {
        shell.logins.notified().await;
        loop {
            let now = shell.now();
            let (job, more) = {
                let mut hub = shell.hub.borrow_mut();
                (hub.next_login_job(now), hub.has_login_jobs())
            };
            shell.flush.notify_one();
            let Some(job) = job else { break };
            if more {
                // Another task may have nothing to do.
                shell.logins.notify_one();
            }
            let done = check(&mut worker, job).await;
            let now = shell.now();
            shell.hub.borrow_mut().login_done(done, now);
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
    // Of this thread alone, as Linux has it.
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        debug!(%error, "passwords are checked with the usual priority");
    }
    let mut memory = HashMemory::default();
    loop {
        let job = match waiting.recv_timeout(IDLE) {
            Err(RecvTimeoutError::Timeout) => {
                memory = HashMemory::default();
                waiting.recv().ok()
            }
            received => received.ok(),
        };
        let Some(job) = job else { return };
        if results.blocking_send(job.run(system_secs(), &mut memory)).is_err() {
            return;
        }
    }
}

/// The system's clock in seconds since 1970: what tokens are measured by.
fn system_secs() -> u64 {
    super::system_millis() / 1000
}
