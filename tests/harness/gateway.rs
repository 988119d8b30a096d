//! The broker as a process of its own.

use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tidegate_mqtt::Version;

use super::admin;
use super::login::Login;
use super::wait::{Deadline, PATIENCE, eventually};

/// Ports that the system does not hand out to outgoing connections, so that nobody takes one while its broker is down.
const PORTS: std::ops::Range<u16> = 15_000..32_000;

/// Lines of a log that a failure shows.
const LOG_LINES_SHOWN: usize = 60;

/// A port of 127.0.0.1 on which nothing listens.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let span = PORTS.end - PORTS.start;
    let start = (std::process::id().wrapping_mul(131) % u32::from(span)) as u16;
    for _ in 0..span {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + (u32::from(start) + u32::from(step)).rem_euclid(u32::from(span)) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no port of {PORTS:?} is free");
}

/// The program under test: built with the tests, or named by `TIDEGATE_BIN`.
pub fn program() -> PathBuf {
    std::env::var_os("TIDEGATE_BIN").map_or_else(|| env!("CARGO_BIN_EXE_tidegate").into(), PathBuf::from)
}

/// How a gateway is started.
#[derive(Clone, Debug, Default)]
pub struct GatewayOptions {
    settings: Vec<String>,
    variables: Vec<(String, String)>,
    program: Option<PathBuf>,
    config: Option<String>,
    expected_errors: Vec<String>,
    listen: Vec<String>,
}

impl GatewayOptions {
    pub fn new() -> Self {
        Self::default()
    }

    /// `--set key=value`.
    pub fn set(mut self, setting: &str) -> Self {
        self.settings.push(setting.into());
        self
    }

    /// An environment variable of the process.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Another program than the one under test; `None`: that one.
    pub fn program(mut self, program: Option<PathBuf>) -> Self {
        self.program = program;
        self
    }

    /// Contents of the configuration file; `{port}` in it is the port that is listened on.
    pub fn config(mut self, toml: &str) -> Self {
        self.config = Some(toml.into());
        self
    }

    /// One more listener, which the configuration file may describe.
    pub fn listen(mut self, url: &str) -> Self {
        self.listen.push(url.into());
        self
    }

    /// ERROR lines that contain `part` belong to the test.
    pub fn expect_error(mut self, part: &str) -> Self {
        self.expected_errors.push(part.into());
        self
    }

    /// Starts it in a folder of its own and waits until it serves.
    pub fn start(self) -> Gateway {
        let folder = tempfile::Builder::new().prefix("tidegate-test-").tempdir().expect("a temporary folder");
        self.start_in(folder)
    }

    /// Starts it on existing data.
    pub fn start_in(self, folder: TempDir) -> Gateway {
        let mut gateway =
            Gateway { options: self, folder, port: free_port(), stomp_port: free_port(), child: None };
        gateway.restart();
        gateway
    }
}

/// How a process ended.
#[derive(Clone, Debug)]
pub struct Stopped {
    pub status: ExitStatus,
    /// Everything that it has written.
    pub output: String,
}

/// A running gateway. At drop the process is killed, and an ERROR line in its log that was not expected fails the test.
#[derive(Debug)]
pub struct Gateway {
    options: GatewayOptions,
    folder: TempDir,
    port: u16,
    stomp_port: u16,
    child: Option<Child>,
}

impl Gateway {
    /// With built-in defaults.
    pub fn start() -> Self {
        GatewayOptions::new().start()
    }

    /// With defaults but for these `key=value` settings.
    pub fn with(settings: &[&str]) -> Self {
        settings.iter().fold(GatewayOptions::new(), |options, setting| options.set(setting)).start()
    }

    /// Where it listens for MQTT.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Where it listens for STOMP.
    pub fn stomp_address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.stomp_port).into()
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn store_file(&self) -> PathBuf {
        self.folder().join("data/tidegate.db")
    }

    fn log_file(&self) -> PathBuf {
        self.folder().join("log.txt")
    }

    /// Bytes that all runs so far have logged.
    pub fn log_bytes(&self) -> u64 {
        std::fs::metadata(self.log_file()).map_or(0, |found| found.len())
    }

    /// What was logged from byte `from` on.
    pub fn log_from(&self, from: u64) -> String {
        let bytes = std::fs::read(self.log_file()).unwrap_or_default();
        let from = usize::try_from(from).map_or(bytes.len(), |from| from.min(bytes.len()));
        String::from_utf8_lossy(&bytes[from..]).into_owned()
    }

    /// What all runs so far have logged.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.log_file()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The command that starts a gateway in `folder` on these ports; its output is appended to the log.
    fn command(&self, port: u16, stomp_port: u16, log: &Path) -> Command {
        let output = OpenOptions::new().create(true).append(true).open(log).expect("a log file");
        let mut command = Command::new(self.options.program.clone().unwrap_or_else(program));
        command.arg("run").arg("--data-dir").arg(self.folder().join("data"));
        command.arg("--listen").arg(format!("mqtt://127.0.0.1:{port}"));
        command.arg("--listen").arg(format!("stomp://127.0.0.1:{stomp_port}"));
        for url in &self.options.listen {
            command.arg("--listen").arg(url);
        }
        if let Some(toml) = &self.options.config {
            let file = self.folder().join("tidegate.toml");
            let toml = toml.replace("{port}", &port.to_string());
            std::fs::write(&file, toml).expect("the temporary folder can be written");
            command.arg("--config").arg(file);
        }
        for setting in &self.options.settings {
            command.arg("--set").arg(setting);
        }
        command.envs(self.options.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(output.try_clone().expect("a second handle")).stderr(output);
        command
    }

    /// The next start is one of another program; `None`: the one under test.
    pub fn use_program(&mut self, program: Option<PathBuf>) {
        self.options.program = program;
    }

    /// Starts the process on the same data and port and does not wait for it.
    pub fn spawn(&mut self) {
        assert!(self.child.is_none(), "the gateway runs already");
        std::fs::create_dir_all(self.folder().join("data")).expect("the temporary folder can be written");
        let child = self.command(self.port, self.stomp_port, &self.log_file()).spawn();
        self.child =
            Some(child.unwrap_or_else(|error| panic!("cannot start {}: {error}", program().display())));
    }

    /// Starts the process on the same data and port and waits until it serves.
    pub fn restart(&mut self) {
        self.spawn();
        self.await_ready();
    }

    /// Waits until a CONNECT is answered.
    pub fn await_ready(&mut self) {
        let deadline = Deadline::after(PATIENCE);
        let probe = Login::fresh(Version::V311, "harness-probe");
        loop {
            // A refusal is an answer too.
            match probe.ask(self.address()) {
                Ok(client) => return drop(client.disconnect()),
                Err(error) => {
                    assert!(!deadline.is_over(), "the gateway does not serve: {error}\n{}", self.log_end())
                }
            }
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten()) {
                panic!("the gateway ended with {status} at its start\n{}", self.log_end());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Runs a second process on the same data and another port until it ends by itself.
    pub fn second_process(&self) -> Stopped {
        let log = self.folder().join("second.txt");
        let child = self.command(free_port(), free_port(), &log).spawn().expect("the program can be started");
        await_end(child, &log)
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("the gateway runs"))
    }

    /// The process has ended without being asked to.
    pub fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().is_ok_and(|status| status.is_some()))
    }

    /// SIGKILL, and waits for the end. A status with a code is that of a process that had ended before.
    pub fn kill(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("the gateway runs");
        child.kill().expect("own children can be killed");
        child.wait().expect("own children can be waited for")
    }

    /// SIGHUP.
    pub fn signal_reload(&self) {
        kill_process(self.pid(), Signal::HUP).expect("own children can be signalled");
    }

    /// A command of the program with this gateway's configuration, for example `reload`; its arguments come before.
    pub fn run(&self, arguments: &[&str]) -> Stopped {
        let data = self.folder().join("data").display().to_string();
        let config = self.folder().join("tidegate.toml").display().to_string();
        let own = ["--data-dir", &data, "--config", &config];
        run_program(&[arguments, &own[..]].concat(), self.folder())
    }

    /// Descriptors that the process has open.
    pub fn descriptors(&self) -> usize {
        let path = format!("/proc/{}/fd", self.pid().as_raw_nonzero());
        std::fs::read_dir(path).expect("the process runs").count()
    }

    /// SIGTERM without waiting.
    pub fn signal_stop(&self) {
        kill_process(self.pid(), Signal::TERM).expect("own children can be signalled");
    }

    /// SIGTERM, and waits for the end.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal_stop();
        self.await_stop()
    }

    /// Waits for an end that was asked for.
    pub fn await_stop(&mut self) -> ExitStatus {
        let child = self.child.take().expect("the gateway runs");
        await_end(child, &self.log_file()).status
    }

    /// Resident memory in bytes.
    pub fn rss(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The most that was resident so far.
    pub fn peak_rss(&self) -> u64 {
        self.memory("VmHWM:")
    }

    fn memory(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.pid().as_raw_nonzero());
        let text = std::fs::read_to_string(path).expect("the process runs");
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("every process has one");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib << 10
    }

    /// Descriptors that the process has open.
    pub fn open_files(&self) -> usize {
        let path = format!("/proc/{}/fd", self.pid().as_raw_nonzero());
        std::fs::read_dir(path).expect("the process runs").count()
    }

    /// `GET path` of the admin interface: status code and body.
    pub fn get(&self, path: &str) -> (u16, String) {
        let socket = self.folder().join("data/admin.sock");
        eventually("the admin interface", PATIENCE, || {
            admin::get(&socket, path).map_err(|error| error.to_string())
        })
    }

    /// `GET /status`.
    pub fn status(&self) -> Value {
        let (code, body) = self.get("/status");
        assert_eq!(code, 200, "{body}");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error} in {body}"))
    }

    /// Looks at the status until `found` is satisfied with it.
    pub fn await_status<T>(&self, what: &str, found: impl Fn(&Value) -> Option<T>) -> T {
        eventually(what, PATIENCE, || {
            let status = self.status();
            found(&status).ok_or_else(|| status.to_string())
        })
    }

    /// Other clients are served: one connects, subscribes, publishes and gets its message.
    pub fn assert_serves(&self) {
        let mut client = Login::fresh(Version::V5, "harness-witness").open(self.address()).unwrap();
        client.subscribe("harness/witness", 1).unwrap();
        client.publish(&super::Message::new("harness/witness", "still here", 1)).unwrap();
        assert_eq!(client.message().unwrap().payload, b"still here");
        client.disconnect().unwrap();
    }

    fn log_end(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }

    fn unexpected_errors(&self) -> Vec<String> {
        let is_error = |line: &String| {
            line.contains("ERROR ") || line.contains("\"level\":\"ERROR\"") || line.contains("panicked at")
        };
        let expected = |line: &String| self.options.expected_errors.iter().any(|part| line.contains(part));
        let log = self.log();
        log.lines().map(strip_colour).filter(is_error).filter(|line| !expected(line)).collect()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
        if std::thread::panicking() {
            eprintln!("--- log of the gateway on port {}\n{}", self.port, self.log_end());
            return;
        }
        let errors = self.unexpected_errors();
        assert!(errors.is_empty(), "the gateway logged errors:\n{}", errors.join("\n"));
    }
}

fn strip_colour(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, rest)| rest))
}

/// Waits for the end of a process, which is killed when it takes too long.
fn await_end(mut child: Child, log: &Path) -> Stopped {
    let deadline = Deadline::after(PATIENCE);
    loop {
        if let Some(status) = child.try_wait().expect("own children can be waited for") {
            let output = String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).into_owned();
            return Stopped { status, output };
        }
        if deadline.is_over() {
            child.kill().expect("own children can be killed");
            child.wait().expect("own children can be waited for");
            panic!("the process did not end within {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs the program with `arguments` until it ends.
pub fn run_program(arguments: &[&str], folder: &Path) -> Stopped {
    let log = folder.join("program.txt");
    let output = File::create(&log).expect("a log file");
    let child = Command::new(program())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(output.try_clone().expect("a second handle"))
        .stderr(output)
        .spawn()
        .expect("the program can be started");
    await_end(child, &log)
}
