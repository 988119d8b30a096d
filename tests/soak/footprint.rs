//! What a gateway with a listener of every kind takes: time from its start to its first answer, and memory while nobody is there.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use crate::harness::{Authority, Gateway, GatewayOptions, PATIENCE, eventually, free_port};
use crate::{mib, parameter};

/// Starts when none are asked for; then the bounds do not hold.
const STARTS: usize = 3;
/// From `exec` to the notice that all listeners listen, as the median.
const START_MAX: Duration = Duration::from_millis(100);
/// All that is resident; most of it are pages of the program and its libraries, as far as the system happens to have them mapped.
const RSS_MAX: u64 = 10 << 20;
/// The part that is the process's own and cannot be taken back.
const PRIVATE_MAX: u64 = 2 << 20;
/// Sockets that listen: eight for clients, and the admin interface's two.
const LISTENERS: usize = 10;

/// Notices that wait to be looked at; there is one for each start.
const READY_WAITING: usize = 1;

/// Moments at which the process said that it is ready.
fn readiness(socket: &Path) -> Receiver<Instant> {
    let manager = UnixDatagram::bind(socket).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let (heard, moments) = sync_channel(READY_WAITING);
    std::thread::spawn(move || {
        let mut text = [0; 512];
        // Ends with the test, which drops the other end, or when nothing more comes.
        while let Ok(length) = manager.recv(&mut text) {
            let ready = text[..length].split(|byte| *byte == b'\n').any(|line| line == b"READY=1");
            if ready && heard.send(Instant::now()).is_err() {
                return;
            }
        }
    });
    moments
}

/// MQTT and STOMP, each over TCP, in TLS and over a Unix socket, and both over WebSocket, in TLS too. The first two are the harness's
/// own.
fn every_listener(folder: &Path) -> GatewayOptions {
    let (cert, key) = Authority::new("tidegate test authority").sign("server", folder);
    let tls = format!("cert_file = \"{}\"\nkey_file = \"{}\"\n", cert.display(), key.display());
    let mut options = GatewayOptions::new();
    let mut config = format!("admin.http = \"127.0.0.1:{}\"\n", free_port());
    for (scheme, more) in [("mqtts", tls.as_str()), ("stomps", &tls), ("wss", &tls), ("ws", "")] {
        let url = format!("{scheme}://127.0.0.1:{}", free_port());
        config.push_str(&format!("[[listener]]\nurl = \"{url}\"\n{more}"));
        options = options.listen(&url);
    }
    for scheme in ["mqtt", "stomp"] {
        options = options.listen(&format!("{scheme}+unix://{}", folder.join(scheme).display()));
    }
    options.config(&config)
}

/// Memory that no file stands behind, in bytes.
fn private(gateway: &Gateway) -> u64 {
    let path = format!("/proc/{}/status", gateway.pid().as_raw_nonzero());
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Sockets of this process on which it listens.
fn listening(gateway: &Gateway) -> usize {
    let pid = gateway.pid().as_raw_nonzero();
    let own: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok()?.into_os_string().into_string().ok())
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let listed = |file: &str, state: (usize, &str), inode: usize| -> usize {
        let text = std::fs::read_to_string(format!("/proc/{pid}/net/{file}")).unwrap_or_default();
        let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let ours = |words: &Vec<&str>| {
            words.get(state.0) == Some(&state.1)
                && words.get(inode).is_some_and(|inode| own.iter().any(|o| o == inode))
        };
        lines.filter(ours).count()
    };
    // TCP: state 0A; Unix: the flag of a socket that accepts.
    listed("tcp", (3, "0A"), 9) + listed("unix", (3, "00010000"), 6)
}

#[test]
fn with_every_listener_it_answers_at_once_and_rests_in_little_memory() {
    let wanted: Option<usize> = parameter("TIDEGATE_SOAK_STARTS");
    let files = tempfile::tempdir().unwrap();
    let socket = files.path().join("notify");
    let ready = readiness(&socket);
    let options = every_listener(files.path()).variable("NOTIFY_SOCKET", socket.to_str().unwrap());
    let (mut first, mut again, mut most) = (Vec::new(), Vec::new(), (0, 0));
    for _ in 0..wanted.unwrap_or(STARTS) {
        // In an empty folder: the store is made.
        let begun = Instant::now();
        let mut gateway = options.clone().start();
        first.push(ready.recv_timeout(PATIENCE).unwrap() - begun);
        eventually("every listener", PATIENCE, || match listening(&gateway) {
            LISTENERS => Ok(()),
            listening => Err(format!("{listening} of {LISTENERS} listen")),
        });
        assert!(gateway.stop().success());
        let begun = Instant::now();
        gateway.spawn();
        again.push(ready.recv_timeout(PATIENCE).unwrap() - begun);
        gateway.assert_serves();
        most = (most.0.max(gateway.rss()), most.1.max(private(&gateway)));
        assert!(gateway.stop().success());
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    let (first, again) = (median(&mut first), median(&mut again));
    eprintln!(
        "listening after {first:.1?} in an empty folder and {again:.1?} with its store; at rest {:.2} MiB, {:.2} MiB of them private, \
         with {LISTENERS} sockets that listen",
        mib(most.0),
        mib(most.1)
    );
    if wanted.is_some() {
        assert!(first <= START_MAX && again <= START_MAX, "{first:?} and {again:?}");
        assert!(most.0 <= RSS_MAX && most.1 <= PRIVATE_MAX, "{most:?} bytes");
    }
}
