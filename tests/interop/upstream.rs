//! Mosquitto as the central broker, with persistence.

use std::fs::OpenOptions;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tidegate_mqtt::Version;

use crate::harness::{Login, PATIENCE, eventually, free_port};
use crate::tools::Tools;

/// The process and its files.
#[derive(Debug)]
pub struct Upstream {
    tools: Tools,
    folder: TempDir,
    port: u16,
    child: Option<Child>,
}

impl Upstream {
    pub fn start(tools: &Tools) -> Self {
        let folder = tempfile::Builder::new().prefix("tidegate-upstream-").tempdir().unwrap();
        let port = free_port();
        let config = format!(
            "listener {port} 127.0.0.1\nallow_anonymous true\npersistence true\npersistence_location {}/\n\
             max_queued_messages 0\nmax_inflight_messages 0\n{}",
            folder.path().display(),
            // Without this line it drops root's rights and cannot write to the folder.
            if rustix::process::geteuid().is_root() { "user root\n" } else { "" }
        );
        std::fs::write(folder.path().join("mosquitto.conf"), config).unwrap();
        let mut upstream = Self { tools: tools.clone(), folder, port, child: None };
        upstream.restart();
        upstream
    }

    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    pub fn restart(&mut self) {
        let log = self.folder.path().join("log.txt");
        let log = OpenOptions::new().create(true).append(true).open(log).unwrap();
        let mut command = Command::new(&self.tools.mosquitto);
        command.arg("-c").arg(self.folder.path().join("mosquitto.conf"));
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(command.spawn().unwrap());
        let probe = Login::fresh(Version::V311, "upstream-probe");
        eventually("the central broker", PATIENCE, || {
            probe
                .open(self.address())
                .map(|client| drop(client.disconnect()))
                .map_err(|error| error.to_string())
        });
    }

    /// SIGTERM: it saves what it holds, and loses nothing.
    pub fn stop(&mut self) {
        let mut child = self.child.take().expect("the central broker runs");
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert!(child.wait().unwrap().success());
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.path().join("log.txt")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!(
                "--- log of the central broker\n{}",
                lines[lines.len().saturating_sub(30)..].join("\n")
            );
        }
    }
}
