//! The shell of a link: moves bytes, commands and events between the link machine, the local broker's port and the upstream's
//! socket. It decides nothing; see [`super::link`] for the order of calls.
//!
//! Bounds: `EVENTS_PER_TURN` broker events in one turn, [`WRITE_BUFFER_BYTES_HIGH`] plus one packet in the write buffer, one
//! command beside the port's own bound.

use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::{Sleep, sleep, sleep_until, timeout};
use tracing::{debug, error, info, warn};

use super::client_codec::{Codec, Credentials, encode_connect, encode_subscribe};
use super::client_connect::{Lookup, Resolver, Socket, Turn, connect, system_lookup};
use super::link::{Detached, Link, Notice, Transport};
use super::wire::Outgoing;
use super::{LinkConfig, LinkStatus, WRITE_BUFFER_BYTES_HIGH};
use crate::broker::api::{ClientCommand, ClientEvent, CloseReason};
use crate::port::{Port, PortRequests, port};
use crate::time::{Mono, Now, Timeline};

/// Broker events that one turn takes.
const EVENTS_PER_TURN: usize = 512;
/// Time to wait for acknowledgements before the link stops, in milliseconds.
const SHUTDOWN_DRAIN_MILLIS_MAX: u64 = 500;
/// Time to say goodbye on both sides, in milliseconds.
const SHUTDOWN_FLUSH_MILLIS_MAX: u64 = 1_000;
/// Pause before another attachment after the local broker ended one, in milliseconds.
const ATTACH_PAUSE_MILLIS: u64 = 1_000;

/// Reads both clocks for a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkClock {
    /// Where monotonic time starts: the process's start.
    pub started: Instant,
    /// The stable timeline of wall times.
    pub timeline: Timeline,
}

impl LinkClock {
    /// The reading now.
    #[must_use]
    pub fn now(&self) -> Now {
        self.timeline.at(Mono(u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)))
    }

    fn instant(&self, at: Mono) -> Instant {
        self.started + Duration::from_micros(at.0)
    }
}

/// Runs one link until `shutdown` becomes true or its sender is gone; then it stops within about two seconds. `config` has
/// passed [`super::check`]. The future is `Send` and needs a tokio runtime with IO and time; several links may share one.
pub async fn run_link(
    config: LinkConfig,
    ports: PortRequests,
    status: Arc<LinkStatus>,
    clock: LinkClock,
    shutdown: watch::Receiver<bool>,
) {
    let shell = Shell::new(config, status, clock, system_lookup());
    shell.run(ports, shutdown).await;
}

/// How one attachment ended.
enum Ended {
    /// The link stops.
    Stopped,
    /// The local broker is done with this attachment.
    Detached(Option<Detached>),
}

enum DialStep {
    Resolved(usize, Vec<std::net::SocketAddr>),
    Open(Box<Socket>),
    Failed(String),
}

type Dialing = Pin<Box<dyn Future<Output = DialStep> + Send>>;

/// What woke the shell.
enum Wake {
    Events(usize),
    Room,
    Dialed(DialStep),
    Socket(std::io::Result<Turn>),
    Timer,
    Shutdown,
}

pub(super) struct Shell {
    config: Arc<LinkConfig>,
    link: Link,
    codec: Codec,
    resolver: Arc<Mutex<Resolver>>,
    status: Arc<LinkStatus>,
    clock: LinkClock,
    socket: Option<Box<Socket>>,
    dialing: Option<Dialing>,
    /// A command that found the port full.
    stalled: Option<ClientCommand>,
    events: Vec<ClientEvent>,
}

impl Shell {
    pub(super) fn new(config: LinkConfig, status: Arc<LinkStatus>, clock: LinkClock, lookup: Lookup) -> Self {
        // The standard library's hash keys are random: good enough for jitter.
        let seed = RandomState::new().build_hasher().finish();
        Self {
            link: Link::new(config.clone(), seed),
            codec: Codec::new(&config),
            config: Arc::new(config),
            resolver: Arc::new(Mutex::new(Resolver::new(lookup))),
            status,
            clock,
            socket: None,
            dialing: None,
            stalled: None,
            events: Vec::new(),
        }
    }

    pub(super) async fn run(mut self, ports: PortRequests, mut shutdown: watch::Receiver<bool>) {
        while !*shutdown.borrow() {
            let (own, peer) = port(self.config.window);
            let asked = tokio::select! {
                asked = ports.send(peer) => asked.is_ok(),
                () = stop_asked(&mut shutdown) => false,
            };
            if !asked {
                break;
            }
            match self.attached(own, &mut shutdown).await {
                Ended::Stopped => break,
                Ended::Detached(why) => self.log_detached(why),
            }
            tokio::select! {
                () = sleep(Duration::from_millis(ATTACH_PAUSE_MILLIS)) => {}
                () = stop_asked(&mut shutdown) => {}
            }
        }
        self.report(self.clock.now());
    }

    async fn attached(&mut self, mut port: Port, shutdown: &mut watch::Receiver<bool>) -> Ended {
        self.link.handle_attached();
        let mut timer = pin!(sleep_until(Instant::now().into()));
        let mut closing: Option<Instant> = None;
        loop {
            self.pump(&port.commands);
            if closing.is_some_and(|at| self.link.is_quiet() || at <= Instant::now()) {
                self.say_goodbye(&port.commands).await;
                return Ended::Stopped;
            }
            self.arm(timer.as_mut(), closing);
            let wake = self.wait(&mut port, shutdown, timer.as_mut(), closing.is_none()).await;
            if let Wake::Shutdown = wake {
                self.link.begin_shutdown();
                closing = Some(Instant::now() + Duration::from_millis(SHUTDOWN_DRAIN_MILLIS_MAX));
            }
            if let Err(why) = self.handle(wake) {
                self.link.handle_detached(self.clock.now());
                self.stalled = None;
                self.pump(&port.commands);
                return Ended::Detached(why);
            }
        }
    }

    async fn wait(
        &mut self,
        port: &mut Port,
        shutdown: &mut watch::Receiver<bool>,
        timer: Pin<&mut Sleep>,
        may_stop: bool,
    ) -> Wake {
        let wants_read = self.link.wants_read();
        let is_stalled = self.stalled.is_some();
        tokio::select! {
            count = port.events.recv_many(&mut self.events, EVENTS_PER_TURN) => Wake::Events(count),
            _ = port.commands.reserve(), if is_stalled => Wake::Room,
            step = dialed(&mut self.dialing) => Wake::Dialed(step),
            turn = socket_turn(&mut self.socket, wants_read) => Wake::Socket(turn),
            () = timer => Wake::Timer,
            () = stop_asked(shutdown), if may_stop => Wake::Shutdown,
        }
    }

    /// Sets the timer to the link's next deadline. An earlier setting may stay: waking for nothing is harmless and rarer than
    /// deadlines that move.
    fn arm(&self, mut timer: Pin<&mut Sleep>, closing: Option<Instant>) {
        let link = self.link.next_deadline().map(|at| self.clock.instant(at));
        let far = Instant::now() + Duration::from_secs(3600);
        let wanted = link.into_iter().chain(closing).fold(far, Instant::min).into();
        if timer.is_elapsed() || wanted < timer.deadline() {
            timer.as_mut().reset(wanted);
        }
    }

    fn handle(&mut self, wake: Wake) -> Result<(), Option<Detached>> {
        let now = self.clock.now();
        match wake {
            Wake::Events(0) => return Err(None),
            Wake::Events(_) => {
                for event in self.events.drain(..) {
                    self.link.handle_event(event, now).map_err(Some)?;
                }
            }
            Wake::Dialed(step) => self.on_dial_step(step, now),
            Wake::Socket(Ok(Turn::Read)) => self.on_input(now),
            Wake::Socket(Ok(Turn::Written)) | Wake::Room | Wake::Shutdown => {}
            Wake::Socket(Ok(Turn::Closed)) => {
                self.link.handle_lost("the upstream closed the connection".to_owned(), now)
            }
            Wake::Socket(Err(e)) => self.link.handle_lost(format!("the connection broke: {e}"), now),
            Wake::Timer => self.link.handle_timeout(now),
        }
        Ok(())
    }

    fn on_dial_step(&mut self, step: DialStep, now: Now) {
        self.dialing = None;
        match step {
            DialStep::Resolved(index, found) => {
                self.link.handle_connecting();
                let config = self.config.clone();
                self.dialing = Some(Box::pin(async move {
                    match connect(found, &config.addresses[index], &config).await {
                        Ok(socket) => DialStep::Open(Box::new(socket)),
                        Err(why) => DialStep::Failed(why),
                    }
                }));
            }
            DialStep::Open(socket) => {
                self.socket = Some(socket);
                self.link.handle_connected(now);
            }
            DialStep::Failed(why) => self.link.handle_lost(why, now),
        }
    }

    fn on_input(&mut self, now: Now) {
        let Some(socket) = &mut self.socket else { return };
        loop {
            match self.codec.decode(&mut socket.input) {
                Ok(Some(packet)) => self.link.handle_packet(packet, now),
                Ok(None) => return,
                Err(why) => return self.link.handle_lost(why, now),
            }
        }
    }

    /// Carries out whatever the link wants now.
    fn pump(&mut self, commands: &mpsc::Sender<ClientCommand>) {
        let now = self.clock.now();
        while let Some(wish) = self.link.poll_transport() {
            self.socket = None;
            self.dialing = match wish {
                Transport::Close => None,
                Transport::Connect(index) => Some(self.resolve(index)),
            };
        }
        self.fill(now);
        self.tell_broker(commands);
        while let Some(notice) = self.link.poll_notice() {
            self.log(notice);
        }
        self.report(now);
    }

    fn resolve(&self, index: usize) -> Dialing {
        let (resolver, config) = (self.resolver.clone(), self.config.clone());
        Box::pin(async move {
            let address = &config.addresses[index];
            let patience = Duration::from_millis(config.connect_timeout_millis);
            match resolver.lock().await.resolve(&address.host, address.port, patience).await {
                Ok(found) => DialStep::Resolved(index, found),
                Err(why) => DialStep::Failed(why),
            }
        })
    }

    /// Fills the write buffer up to its bound.
    fn fill(&mut self, now: Now) {
        let Some(socket) = &mut self.socket else { return };
        while socket.output.len() < WRITE_BUFFER_BYTES_HIGH {
            let Some(packet) = self.link.poll_send(now) else { return };
            let done = match &packet {
                Outgoing::Connect { clean_start } => credentials(&self.config)
                    .and_then(|login| encode_connect(&self.config, *clean_start, login, &mut socket.output)),
                Outgoing::Subscribe { id } => encode_subscribe(&self.config, id.get(), &mut socket.output),
                other => self.codec.encode(other, self.link.packet_bytes_max(), &mut socket.output),
            };
            match (done, packet) {
                (Ok(()), _) => {}
                (Err(why), Outgoing::Publish(publish)) => self.link.handle_unsendable(&publish, why),
                (Err(why), _) => self.link.handle_lost(why, now),
            }
        }
    }

    fn tell_broker(&mut self, commands: &mpsc::Sender<ClientCommand>) {
        while let Some(command) = self.stalled.take().or_else(|| self.link.poll_local()) {
            match commands.try_send(command) {
                Ok(()) => {}
                Err(TrySendError::Full(command)) => {
                    self.stalled = Some(command);
                    return;
                }
                // The end of the events tells the same.
                Err(TrySendError::Closed(_)) => return,
            }
        }
    }

    /// Says goodbye on both sides, within a bound.
    async fn say_goodbye(&mut self, commands: &mpsc::Sender<ClientCommand>) {
        self.link.finish_shutdown(self.clock.now());
        self.pump(commands);
        let flush = async {
            while let Some(command) = self.stalled.take().or_else(|| self.link.poll_local()) {
                if commands.send(command).await.is_err() {
                    break;
                }
            }
            while let Some(socket) = self.socket.as_mut().filter(|socket| !socket.is_flushed()) {
                if socket.turn(false).await.is_err() {
                    break;
                }
            }
        };
        if timeout(Duration::from_millis(SHUTDOWN_FLUSH_MILLIS_MAX), flush).await.is_err() {
            debug!(link = %self.config.name, "stopped without saying goodbye");
        }
        self.socket = None;
        self.dialing = None;
    }

    fn report(&self, now: Now) {
        self.status.update(|snapshot| self.link.report(snapshot, now));
    }

    fn log_detached(&self, why: Option<Detached>) {
        let link = self.config.name.as_str();
        match why {
            None | Some(Detached::Closed(CloseReason::ShuttingDown)) => {
                debug!(link, "the local session ended")
            }
            Some(Detached::Closed(reason)) => {
                warn!(link, ?reason, "the local broker ended the link's session")
            }
            Some(Detached::Refused(refusal)) => {
                error!(link, ?refusal, "the local broker refuses the link's session")
            }
        }
    }

    fn log(&self, notice: Notice) {
        let link = self.config.name.as_str();
        match notice {
            Notice::Up => info!(link, "the link is up"),
            Notice::Down { why, pause_millis, repeated: false } => {
                warn!(link, pause_millis, "the link is down: {why}");
            }
            Notice::Down { why, pause_millis, .. } => {
                debug!(link, pause_millis, "the link is still down: {why}")
            }
            Notice::Alarm => error!(
                link,
                client_id = self.config.client_id,
                "connections end soon after the upstream accepted them: does another client use the same client_id?"
            ),
            Notice::Parked { topic, why } => warn!(link, topic, "a message is given up: {why}"),
            Notice::FilterRefused { filter, code } => {
                warn!(link, filter, code, "the upstream refuses the filter: nothing comes in through it");
            }
            Notice::LocalFilterRefused { filter } => {
                error!(link, filter, "the local broker refuses the filter: nothing goes out through it");
            }
            Notice::Loop { topic } => debug!(link, topic, "a message came back and is dropped"),
        }
    }
}

/// User name and password; the file is read anew for each connection.
fn credentials(config: &LinkConfig) -> Result<Credentials, String> {
    let password = match &config.password_file {
        None => config.password.as_ref().map(|secret| secret.0.clone()).unwrap_or_default(),
        Some(path) => std::fs::read_to_string(path)
            .map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
            .map_err(|e| format!("password_file {}: {e}", path.display()))?,
    };
    Ok(Credentials { username: config.username.clone().unwrap_or_default(), password })
}

async fn dialed(dialing: &mut Option<Dialing>) -> DialStep {
    match dialing {
        Some(step) => step.await,
        None => std::future::pending().await,
    }
}

async fn socket_turn(socket: &mut Option<Box<Socket>>, want_read: bool) -> std::io::Result<Turn> {
    match socket {
        Some(socket) => socket.turn(want_read).await,
        None => std::future::pending().await,
    }
}

/// Ends when the link is to stop.
async fn stop_asked(shutdown: &mut watch::Receiver<bool>) {
    // An error means that nobody can ask any more: the process is going down.
    drop(shutdown.wait_for(|stop| *stop).await);
}
