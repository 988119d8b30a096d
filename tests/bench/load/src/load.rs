//! Publishers and subscribers, and waiting for them.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tidegate_mqtt::{Packet, PacketId, Qos};
use tokio::task::{JoinHandle, spawn_local};

use crate::check::{Ledger, Payloads, Stamp, now_ns};
use crate::histogram::Histogram;
use crate::link::{Link, Login, Outgoing, wrong};
use crate::options::Options;

/// A publisher writes until so many bytes wait for its socket.
const WRITE_AHEAD_BYTES: usize = 64 << 10;
/// How often a waiting scenario looks.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// State that a task and the scenario share; all run on one thread.
pub type Shared<T> = Rc<RefCell<T>>;

/// The options and what is made of them once.
#[derive(Debug)]
pub struct Setup {
    /// The command line.
    pub options: Options,
    /// The payloads.
    pub payloads: Payloads,
}

impl Setup {
    /// The login of a client.
    pub fn login<'a>(&self, client_id: &'a str, persistent: bool) -> Login<'a> {
        let (version, window) = (self.options.version(), self.options.window);
        Login { client_id, persistent, clean: !persistent, version, window }
    }
}

/// What a publisher has done so far.
#[derive(Debug, Default)]
pub struct Sent {
    /// Messages handed to the socket.
    pub written: u64,
    /// Messages acknowledged for good.
    pub acknowledged: u64,
    /// From writing to acknowledgement.
    pub latency: Histogram,
    /// When the last acknowledgement came.
    pub last_ns: u64,
    /// It is over.
    pub finished: bool,
    /// Why it broke off.
    pub error: Option<String>,
}

/// Appends the topic of a message by its number.
pub type Topic = dyn Fn(u64, &mut String);

/// What to publish.
pub struct Job {
    /// The publisher's number.
    pub publisher: u32,
    /// Messages.
    pub count: u64,
    /// Set the RETAIN flag.
    pub retain: bool,
    /// The topic of a message by its number.
    pub topic: Box<Topic>,
}

impl Job {
    /// Everything to one topic.
    pub fn to_topic(publisher: u32, count: u64, topic: String) -> Job {
        let topic = Box::new(move |_, out: &mut String| out.push_str(&topic));
        Job { publisher, count, retain: false, topic }
    }
}

/// Starts a publisher.
pub fn publish(link: Link, setup: &Rc<Setup>, job: Job) -> Shared<Sent> {
    let sent = Shared::<Sent>::default();
    let publisher =
        Publisher { job, setup: setup.clone(), sent: sent.clone(), times: vec![], topic: String::new() };
    spawn_local(publisher.run(link));
    sent
}

struct Publisher {
    job: Job,
    setup: Rc<Setup>,
    sent: Shared<Sent>,
    /// When the message of a packet identifier left.
    times: Vec<u64>,
    topic: String,
}

impl Publisher {
    async fn run(mut self, mut link: Link) {
        let result = self.work(&mut link).await;
        if result.is_ok() {
            link.close().await;
        }
        let mut sent = self.sent.borrow_mut();
        sent.error = result.err().map(|error| error.to_string());
        sent.finished = true;
    }

    async fn work(&mut self, link: &mut Link) -> io::Result<()> {
        self.times.resize(usize::from(u16::MAX) + 1, 0);
        let end = Instant::now() + Duration::from_secs_f64(self.setup.options.seconds);
        let mut number = 0;
        let mut open = true;
        while open || link.out.len() > 0 || link.out.ids.messages() > 0 {
            open = open && number < self.job.count && Instant::now() < end;
            if open {
                number = self.write(number, &mut link.out)?;
                self.sent.borrow_mut().written = number;
            }
            link.turn().await?;
            link.take(|packet, out| self.acknowledged(packet, out).map(|()| false))?;
        }
        Ok(())
    }

    /// Writes as many messages as the window and the socket's buffer take. Returns the number of the next one.
    fn write(&mut self, mut number: u64, out: &mut Outgoing) -> io::Result<u64> {
        let qos = self.setup.options.qos();
        while number < self.job.count && out.len() < WRITE_AHEAD_BYTES {
            let now = now_ns();
            let mut id = None;
            if qos != Qos::AtMostOnce {
                id = out.ids.allocate_message();
                let Some(id) = id else { break };
                self.times[usize::from(id.get())] = now;
            }
            self.topic.clear();
            (self.job.topic)(number, &mut self.topic);
            let stamp = Stamp { publisher: self.job.publisher, number, sent_ns: now };
            out.publish((&self.topic, qos, self.job.retain), id, &self.setup.payloads, stamp)?;
            number += 1;
        }
        Ok(number)
    }

    fn acknowledged(&mut self, packet: &Packet<'_>, out: &mut Outgoing) -> io::Result<()> {
        match packet {
            Packet::Pubrec(ack) if !ack.reason.is_error() => out.answer(packet),
            Packet::Puback(ack) | Packet::Pubcomp(ack) | Packet::Pubrec(ack) => {
                if ack.reason.is_error() {
                    return Err(wrong(format!("the broker refused a message: {:?}", ack.reason)));
                }
                self.done(ack.packet_id, out)
            }
            other => Err(wrong(format!("a publisher got {:?}", other.packet_type()))),
        }
    }

    fn done(&mut self, id: PacketId, out: &mut Outgoing) -> io::Result<()> {
        if !out.ids.release(id) {
            return Err(wrong(format!("an acknowledgement of {id:?}, which is not in use")));
        }
        let mut sent = self.sent.borrow_mut();
        sent.last_ns = now_ns();
        let took = sent.last_ns.saturating_sub(self.times[usize::from(id.get())]);
        sent.latency.add(took);
        sent.acknowledged += 1;
        Ok(())
    }
}

/// A subscriber at work.
#[derive(Debug)]
pub struct Subscriber {
    /// What it has received.
    pub ledger: Shared<Ledger>,
    /// Its task; ends when the connection does.
    pub task: JoinHandle<()>,
}

/// Subscribes, and takes and acknowledges everything from then on. With `filters` empty the session has its subscriptions.
pub async fn subscribe(mut link: Link, setup: &Rc<Setup>, filters: &[String]) -> io::Result<Subscriber> {
    let ledger = Shared::<Ledger>::default();
    let mut inbox = Inbox { ledger: ledger.clone(), setup: setup.clone(), unreleased: HashSet::new() };
    if !filters.is_empty() {
        link.subscribe(filters, setup.options.qos(), |packet, out| inbox.arrived(packet, out)).await?;
    }
    let task = spawn_local(async move {
        loop {
            let step = link.take(|packet, out| inbox.arrived(packet, out).map(|()| false));
            if step.is_err() || link.turn().await.is_err() {
                return;
            }
        }
    });
    Ok(Subscriber { ledger, task })
}

/// The receiving end of a subscriber.
struct Inbox {
    ledger: Shared<Ledger>,
    setup: Rc<Setup>,
    /// QoS 2 messages between PUBLISH and PUBREL.
    unreleased: HashSet<PacketId>,
}

impl Inbox {
    fn arrived(&mut self, packet: &Packet<'_>, out: &mut Outgoing) -> io::Result<()> {
        if let Packet::Publish(publish) = packet {
            let twice = publish.qos == Qos::ExactlyOnce
                && publish.packet_id.is_some_and(|id| !self.unreleased.insert(id));
            if !twice {
                let mut ledger = self.ledger.borrow_mut();
                ledger.note(&self.setup.payloads, publish.payload);
                ledger.retained += u64::from(publish.retain);
            }
        }
        if let Packet::Pubrel(ack) = packet {
            self.unreleased.remove(&ack.packet_id);
        }
        out.answer(packet)
    }
}

/// Waits until `done`, or until `progress` has stood still for too long, or the run's limit.
pub async fn wait(options: &Options, done: impl Fn() -> bool, progress: impl Fn() -> u64) {
    let start = Instant::now();
    let (mut last, mut moved) = (progress(), Instant::now());
    while !done() && moved.elapsed() < options.silence() && start.elapsed() < options.limit() {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = progress();
        if now != last {
            (last, moved) = (now, Instant::now());
        }
    }
}
