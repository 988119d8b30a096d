//! The demo's brokers: child processes of this program, each with a folder, a generated configuration and a log of its own.
//!
//! A child is killed when its [`Broker`] goes away, on every path out of the demo.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::process::{Child, Command};

use crate::admin::client;
use crate::admin::status::Status;

/// Milliseconds that a broker has to become ready.
pub const READY_MILLIS_MAX: u64 = 15_000;

/// The end of a log that an error shows, in bytes.
const LOG_TAIL_BYTES: u64 = 2000;

/// Free ports are looked for from here on: below the range that the system takes outgoing connections' ports from, so that
/// no client takes a broker's port while the broker is down.
const PORT_FIRST: u16 = 20_000;

/// Ports that are tried.
const PORTS_MAX: u16 = 12_000;

/// Environment variables that would change a child's configuration start so.
const VARIABLE_PREFIX: &str = "TIDEGATE";

/// One broker process and what belongs to it; outlives the process's lives.
#[derive(Debug)]
pub struct Broker {
    name: &'static str,
    address: SocketAddr,
    config: PathBuf,
    log: PathBuf,
    data_dir: PathBuf,
    child: Option<Child>,
    peak_rss_bytes: u64,
}

impl Broker {
    /// Prepares a broker in a new folder `name` of `parent`, listening on `address`. `upstream`: where its bridge goes.
    ///
    /// # Errors
    /// What the file system says.
    pub fn prepare(
        parent: &Path,
        name: &'static str,
        address: SocketAddr,
        upstream: Option<SocketAddr>,
    ) -> anyhow::Result<Self> {
        let folder = parent.join(name);
        let data_dir = folder.join("data");
        fs::create_dir(&folder)
            .and_then(|()| fs::create_dir(&data_dir))
            .with_context(|| format!("making the folder {}", folder.display()))?;
        let config = folder.join("tidegate.toml");
        fs::write(&config, config_text(&data_dir, address, upstream))
            .with_context(|| format!("writing {}", config.display()))?;
        let log = folder.join("log.txt");
        Ok(Self { name, address, config, log, data_dir, child: None, peak_rss_bytes: 0 })
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts `program run --config <generated>`; output goes to the end of the log.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn start(&mut self, program: &Path) -> anyhow::Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let log = log.with_context(|| format!("opening {}", self.log.display()))?;
        let mut command = Command::new(program);
        command.arg("run").arg("--config").arg(&self.config);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with(VARIABLE_PREFIX) {
                command.env_remove(&variable);
            }
        }
        let child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
        self.child = Some(child);
        Ok(())
    }

    /// Waits until the process serves clients; returns how long that took.
    ///
    /// # Errors
    /// When it ends, or is not ready within [`READY_MILLIS_MAX`]; the text shows the end of its log.
    pub async fn wait_until_ready(&mut self) -> anyhow::Result<Duration> {
        let start = Instant::now();
        loop {
            self.check_alive()?;
            if self.ask("/health/ready").await.is_ok() {
                return Ok(start.elapsed());
            }
            if start.elapsed() > Duration::from_millis(READY_MILLIS_MAX) {
                bail!(
                    "the {} did not become ready within {READY_MILLIS_MAX} ms\n{}",
                    self.name,
                    self.log_tail()
                );
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The process runs.
    ///
    /// # Errors
    /// When it has ended by itself.
    pub fn check_alive(&mut self) -> anyhow::Result<()> {
        let Some(child) = &mut self.child else {
            bail!("the {} was not started", self.name);
        };
        if let Some(exit) = child.try_wait()? {
            bail!("the {} ended by itself: {exit}\n{}", self.name, self.log_tail());
        }
        Ok(())
    }

    /// What the admin interface says now.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn status(&mut self) -> anyhow::Result<Status> {
        self.note_rss();
        let text = self.ask("/status").await?;
        serde_json::from_str(&text).with_context(|| format!("the status of the {}", self.name))
    }

    /// The largest resident set over all lives so far, in bytes; 0 when the system does not tell.
    pub fn peak_rss_bytes(&mut self) -> u64 {
        self.note_rss();
        self.peak_rss_bytes
    }

    /// Ends the process at once (SIGKILL), as a crash would.
    ///
    /// # Errors
    /// What the system says.
    pub async fn kill(&mut self) -> io::Result<()> {
        self.note_rss();
        match self.child.take() {
            Some(mut child) => child.kill().await,
            None => Ok(()),
        }
    }

    async fn ask(&self, path: &'static str) -> anyhow::Result<String> {
        let socket = self.data_dir.join("admin.sock");
        let answer = tokio::task::spawn_blocking(move || client::get(&socket, path)).await?;
        answer.with_context(|| format!("asking the {}", self.name))
    }

    fn note_rss(&mut self) {
        if let Some(pid) = self.child.as_ref().and_then(Child::id) {
            self.peak_rss_bytes = self.peak_rss_bytes.max(peak_rss_of(pid).unwrap_or(0));
        }
    }

    fn log_tail(&self) -> String {
        let tail = read_tail(&self.log).unwrap_or_default();
        format!("the end of its log ({}):\n{}", self.log.display(), String::from_utf8_lossy(&tail))
    }
}

fn config_text(data_dir: &Path, address: SocketAddr, upstream: Option<SocketAddr>) -> String {
    let data_dir = toml_edit::Value::from(data_dir.to_string_lossy().into_owned());
    let mut text = format!("[[listener]]\nurl = \"mqtt://{address}\"\n\n[store]\ndata_dir = {data_dir}\n");
    if let Some(upstream) = upstream {
        text.push_str(&format!(
            "\n[[bridge]]\nname = \"datacenter\"\nurl = \"mqtt://{upstream}\"\nclient_id = \"demo-gateway\"\n\
             protocol = 5\n\n\
             [[bridge.out]]\nfilter = \"devices/#\"\nqos = 1\n"
        ));
    }
    text
}

fn peak_rss_of(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn read_tail(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let start = file.metadata()?.len().saturating_sub(LOG_TAIL_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut tail = Vec::new();
    file.take(LOG_TAIL_BYTES).read_to_end(&mut tail)?;
    Ok(tail)
}

/// Loopback addresses with free ports, one for each of `N` brokers.
///
/// # Errors
/// When too few ports are free.
pub fn free_addresses<const N: usize>() -> anyhow::Result<[SocketAddr; N]> {
    let mut addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); N];
    let mut found = 0;
    // Demos that run at the same time start at different places.
    let start = u16::try_from(std::process::id().wrapping_mul(7) % u32::from(PORTS_MAX)).unwrap_or(0);
    for step in 0..PORTS_MAX {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT_FIRST + (start + step) % PORTS_MAX));
        if found < N && TcpListener::bind(address).is_ok() {
            addresses[found] = address;
            found += 1;
        }
        if found == N {
            return Ok(addresses);
        }
    }
    bail!("there is no free port between {PORT_FIRST} and {}", PORT_FIRST + PORTS_MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
    }

    fn prepared(dir: &Path) -> Broker {
        Broker::prepare(dir, "gateway", SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), None).unwrap()
    }

    #[test]
    fn the_generated_configuration_is_toml_with_the_keys_of_a_gateway() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1883));
        let upstream = SocketAddr::from((Ipv4Addr::LOCALHOST, 1884));
        let text = config_text(Path::new("/tmp/a \"quoted\" folder"), address, Some(upstream));
        let parsed: toml_edit::DocumentMut = text.parse().unwrap();
        assert_eq!(parsed["listener"][0]["url"].as_str(), Some("mqtt://127.0.0.1:1883"));
        assert_eq!(parsed["store"]["data_dir"].as_str(), Some("/tmp/a \"quoted\" folder"));
        assert_eq!(parsed["bridge"][0]["url"].as_str(), Some("mqtt://127.0.0.1:1884"));
        assert_eq!(parsed["bridge"][0]["out"][0]["filter"].as_str(), Some("devices/#"));
    }

    #[test]
    fn free_addresses_are_different_and_can_be_bound() {
        let [a, b] = free_addresses().unwrap();
        assert_ne!(a, b);
        let _both = (TcpListener::bind(a).unwrap(), TcpListener::bind(b).unwrap());
    }

    #[test]
    fn a_process_that_ends_by_itself_is_reported_with_the_end_of_its_log() {
        run(async {
            let dir = tempfile::tempdir().unwrap();
            let mut broker = prepared(dir.path());
            broker.start(Path::new("/bin/ls")).unwrap();
            let error = broker.wait_until_ready().await.unwrap_err().to_string();
            assert!(error.contains("ended by itself") && error.contains("log.txt"), "{error}");
            assert!(error.contains("--config"), "the log holds what the process said: {error}");
        });
    }

    #[test]
    fn a_process_is_killed_when_its_broker_goes_away() {
        run(async {
            let dir = tempfile::tempdir().unwrap();
            let program = dir.path().join("sleeper");
            fs::write(&program, "#!/bin/sh\nexec sleep 1000\n").unwrap();
            fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
            let mut broker = prepared(dir.path());
            broker.start(&program).unwrap();
            let pid = broker.child.as_ref().unwrap().id().unwrap();
            assert!(broker.peak_rss_bytes() > 0);
            drop(broker);
            // The runtime collects the process in the background; a process that waits for that runs no more.
            let is_gone = || match fs::read_to_string(format!("/proc/{pid}/stat")) {
                Ok(stat) => stat.contains(") Z "),
                Err(_) => true,
            };
            while !is_gone() {
                tokio::task::yield_now().await;
            }
        });
    }
}
