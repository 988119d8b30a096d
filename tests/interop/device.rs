//! Devices: programs that publish numbered messages with a client library and keep at it through every failure.
//!
//! The scripts read from their standard input how many messages they may have published in total, one number a line, and
//! write `acked <number>` for each message that the broker has taken over. At the end of their input they wait for the rest,
//! say goodbye and end.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::harness::{Deadline, PATIENCE};
use crate::tools::Tools;

/// Messages that `mosquitto_pub` is given at a time.
const BATCH: u64 = 25;

/// How long one run of `mosquitto_pub` may take before its messages are given to another one.
const BATCH_TIME: Duration = Duration::from_secs(5);

/// One device.
pub struct Device {
    topic: String,
    acknowledged: Arc<AtomicU64>,
    kind: Kind,
}

enum Kind {
    Script { child: Child, input: Option<ChildStdin>, reader: JoinHandle<()> },
    Batches { allowed: Option<SyncSender<u64>>, worker: JoinHandle<()> },
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} acknowledged", self.topic, self.acknowledged.load(Ordering::SeqCst))
    }
}

fn script(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "interop", name].iter().collect()
}

impl Device {
    /// paho-mqtt for Python, MQTT 3.1.1.
    pub fn paho(tools: &Tools, broker: SocketAddr, topic: &str, qos: u8) -> Self {
        let mut command = Command::new(&tools.python);
        command.arg("-u").arg(script("device_paho.py"));
        Self::script(command, &broker.port().to_string(), topic, qos)
    }

    /// MQTT.js, MQTT 5.0.
    pub fn mqtt_js(tools: &Tools, broker: SocketAddr, topic: &str, qos: u8) -> Self {
        Self::mqtt_js_at(tools, &format!("mqtt://{broker}"), None, topic, qos)
    }

    /// The same over any transport that its URL names. `authority`: whose certificates it trusts.
    pub fn mqtt_js_at(tools: &Tools, url: &str, authority: Option<&Path>, topic: &str, qos: u8) -> Self {
        let mut command = Command::new(&tools.node);
        command.arg(script("device_mqttjs.js"));
        if let Some(file) = authority {
            command.env("NODE_EXTRA_CA_CERTS", file);
        }
        Self::script(command, url, topic, qos)
    }

    fn script(mut command: Command, broker: &str, topic: &str, qos: u8) -> Self {
        let name = topic.replace('/', "-");
        command.args([broker, &name, topic, &qos.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let acknowledged = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&acknowledged);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                assert!(line.starts_with("acked "), "a device says: {line}");
                counter.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { topic: topic.into(), acknowledged, kind: Kind::Script { child, input, reader } }
    }

    /// `mosquitto_pub` at QoS 1, a batch of messages at a time; a batch that fails is given to it again.
    pub fn mosquitto_pub(tools: &Tools, broker: SocketAddr, topic: &str) -> Self {
        let acknowledged = Arc::new(AtomicU64::new(0));
        let (allowed, permits) = sync_channel(16);
        let worker = {
            let (tools, topic, counter) = (tools.clone(), topic.to_owned(), Arc::clone(&acknowledged));
            std::thread::spawn(move || publish_batches(&tools, broker, &topic, &permits, &counter))
        };
        Self { topic: topic.into(), acknowledged, kind: Kind::Batches { allowed: Some(allowed), worker } }
    }

    /// Lets it publish up to this number of messages in total.
    pub fn allow(&mut self, total: u64) {
        match &mut self.kind {
            Kind::Script { input, .. } => writeln!(input.as_mut().expect("not finished"), "{total}").unwrap(),
            Kind::Batches { allowed, .. } => allowed.as_ref().expect("not finished").send(total).unwrap(),
        }
    }

    /// Messages that the broker has acknowledged to it.
    pub fn acknowledged(&self) -> u64 {
        let (Kind::Script { reader: thread, .. } | Kind::Batches { worker: thread, .. }) = &self.kind;
        assert!(!thread.is_finished(), "{} has ended", self.topic);
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Ends its input and waits for its end.
    pub fn finish(mut self) {
        match &mut self.kind {
            Kind::Script { child, input, .. } => {
                drop(input.take());
                assert!(wait(child, PATIENCE), "{} did not end well", self.topic);
            }
            Kind::Batches { allowed, .. } => drop(allowed.take()),
        }
        let (Kind::Script { reader: thread, .. } | Kind::Batches { worker: thread, .. }) = self.kind;
        thread.join().unwrap();
    }
}

fn publish_batches(
    tools: &Tools,
    broker: SocketAddr,
    topic: &str,
    permits: &Receiver<u64>,
    counter: &AtomicU64,
) {
    let mut next = 0;
    while let Ok(allowed) = permits.recv() {
        while next < allowed {
            let end = allowed.min(next + BATCH);
            if publish_batch(tools, broker, topic, next..end) {
                counter.store(end, Ordering::SeqCst);
                next = end;
            } else {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// Whether the program says that all was taken over.
fn publish_batch(tools: &Tools, broker: SocketAddr, topic: &str, numbers: std::ops::Range<u64>) -> bool {
    let mut command = Command::new(&tools.mosquitto_pub);
    command.args(["-h", "127.0.0.1", "-p", &broker.port().to_string(), "-i", &topic.replace('/', "-")]);
    command.args(["-c", "-q", "1", "-t", topic, "-l"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let lines: String = numbers.map(|number| format!("{number}\n")).collect();
    let written = child.stdin.take().expect("it was piped").write_all(lines.as_bytes());
    wait(&mut child, BATCH_TIME) && written.is_ok()
}

/// Whether the process ended in time and well; it is killed otherwise.
fn wait(child: &mut Child, patience: Duration) -> bool {
    let deadline = Deadline::after(patience);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        if deadline.is_over() {
            drop(child.kill());
            drop(child.wait());
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
