//! The admin interface over real sockets, with a status source of the test's own.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;

use tempfile::TempDir;

use super::client::{ClientError, get, get_tcp};
use super::status::{Health, HealthState};
use super::*;

/// A served admin interface; stops when it goes away.
struct Admin {
    dir: TempDir,
    http: Option<SocketAddr>,
    shutdown: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<io::Result<()>>>,
}

impl Admin {
    fn socket(&self) -> PathBuf {
        socket_in(self.dir.path())
    }

    fn stop(&mut self) -> io::Result<()> {
        self.shutdown.send_replace(true);
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap())
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        let _already_failing = self.stop();
    }
}

fn socket_in(dir: &Path) -> PathBuf {
    dir.join("admin.sock")
}

fn free_address() -> SocketAddr {
    std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// Serves on a thread of its own; `answer` gets each request for a snapshot.
fn start(http: bool, answer: impl FnMut(StatusRequest) + Send + 'static) -> Admin {
    let dir = tempfile::tempdir().unwrap();
    let http = http.then(free_address);
    let options = AdminOptions { socket: socket_in(dir.path()), http };
    let (shutdown, stopping) = watch::channel(false);
    let thread = std::thread::spawn(move || serve_on_this_thread(options, stopping, answer));
    let admin = Admin { dir, http, shutdown, thread: Some(thread) };
    while std::os::unix::net::UnixStream::connect(admin.socket()).is_err() {
        assert!(!admin.thread.as_ref().unwrap().is_finished(), "the server gave up");
        std::thread::yield_now();
    }
    admin
}

fn serve_on_this_thread(
    options: AdminOptions,
    stopping: watch::Receiver<bool>,
    mut answer: impl FnMut(StatusRequest) + Send + 'static,
) -> io::Result<()> {
    let (source, mut requests) = status_channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::spawn(async move {
            while let Some(request) = requests.recv().await {
                answer(request);
            }
        });
        serve(options, source, stopping).await
    })
}

fn status_with(state: HealthState) -> Status {
    let health = Health { state, reasons: vec!["because".into()] };
    Status { version: "7.7".into(), health, ..Status::default() }
}

fn start_with(state: HealthState) -> Admin {
    start(false, move |request| {
        let _gone = request.send(status_with(state));
    })
}

fn code(result: Result<String, ClientError>) -> (u16, String) {
    match result {
        Ok(body) => (200, body),
        Err(ClientError::Refused { code, body }) => (code, body),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_status_arrives_whole_over_the_socket_and_over_tcp() {
    let admin = start(true, |request| {
        let _gone = request.send(status_with(HealthState::Ready));
    });
    let over_socket: Status = serde_json::from_str(&get(&admin.socket(), "/status").unwrap()).unwrap();
    assert_eq!(over_socket, status_with(HealthState::Ready));
    let mut answer = Err(ClientError::BadAnswer("not asked yet"));
    // The socket is up first; the address follows at once.
    for _ in 0..10_000 {
        answer = get_tcp(admin.http.unwrap(), "/status");
        if answer.is_ok() {
            break;
        }
        std::thread::yield_now();
    }
    assert_eq!(serde_json::from_str::<Status>(&answer.unwrap()).unwrap(), over_socket);
}

#[test]
fn metrics_are_text_with_the_prefix() {
    let admin = start_with(HealthState::Ready);
    let text = get(&admin.socket(), "/metrics").unwrap();
    assert!(text.contains("tidegate_build_info{version=\"7.7\"} 1"), "{text}");
}

#[test]
fn a_degraded_gateway_is_well_and_says_why() {
    let admin = start_with(HealthState::Degraded);
    for path in ["/health", "/health/live", "/health/ready"] {
        let (code, body) = code(get(&admin.socket(), path));
        assert_eq!(code, 200, "{path}");
        assert_eq!(body, r#"{"state":"degraded","reasons":["because"]}"#);
    }
}

#[test]
fn a_gateway_that_starts_is_live_and_not_ready() {
    let admin = start_with(HealthState::Live);
    assert_eq!(code(get(&admin.socket(), "/health")).0, 200);
    assert_eq!(code(get(&admin.socket(), "/health/live")).0, 200);
    assert_eq!(code(get(&admin.socket(), "/health/ready")).0, 503);
}

#[test]
fn a_stalled_broker_is_not_live() {
    let mut kept = Vec::new();
    let admin = start(false, move |request| kept.push(request));
    let (code, body) = code(get(&admin.socket(), "/health/live"));
    assert_eq!(code, 503);
    let health: Health = serde_json::from_str(&body).unwrap();
    assert_eq!(health.state, HealthState::NotLive);
    assert!(health.reasons[0].contains("did not answer"), "{body}");
}

#[test]
fn a_broker_that_is_gone_is_not_live() {
    let admin = start(false, drop);
    let (health_code, body) = code(get(&admin.socket(), "/health"));
    assert_eq!((health_code, body.contains("has stopped")), (503, true), "{body}");
    assert_eq!(code(get(&admin.socket(), "/status")).0, 503);
    assert_eq!(code(get(&admin.socket(), "/metrics")).0, 503);
}

#[test]
fn an_unknown_path_lists_what_there_is() {
    let admin = start_with(HealthState::Ready);
    let (code, body) = code(get(&admin.socket(), "/nothing?x=1"));
    assert_eq!(code, 404);
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["error"], "there is nothing at /nothing");
    assert_eq!(body["paths"], serde_json::json!(http::PATHS));
}

#[test]
fn nothing_can_be_written() {
    let admin = start_with(HealthState::Ready);
    let mut stream = std::os::unix::net::UnixStream::connect(admin.socket()).unwrap();
    stream
        .write_all(b"POST /status HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
}

#[test]
fn a_head_without_an_end_is_cut_off() {
    let admin = start_with(HealthState::Ready);
    let mut stream = std::os::unix::net::UnixStream::connect(admin.socket()).unwrap();
    let mut head = b"GET /status HTTP/1.1\r\nX: ".to_vec();
    head.resize(guard::REQUEST_BYTES_MAX + 1, b'x');
    let _cut_off_early = stream.write_all(&head);
    let mut answer = Vec::new();
    let _reset = stream.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP/1.1 200"));
}

#[test]
fn stopping_ends_the_server_despite_an_open_connection_and_removes_the_socket() {
    let mut admin = start_with(HealthState::Ready);
    let _idle = std::os::unix::net::UnixStream::connect(admin.socket()).unwrap();
    admin.stop().unwrap();
    assert!(!admin.socket().exists());
}

#[test]
fn an_address_that_others_can_reach_is_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let http = Some("0.0.0.0:0".parse().unwrap());
    let (source, _requests) = status_channel();
    let (_shutdown, stopping) = watch::channel(false);
    let options = AdminOptions { socket: socket_in(dir.path()), http };
    let error = runtime.block_on(serve(options, source, stopping)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn an_address_that_is_taken_is_an_error_that_names_it() {
    let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = taken.local_addr().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(bind_loopback(address)).unwrap_err();
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    assert!(TcpStream::connect(address).is_ok());
}
