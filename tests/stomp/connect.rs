//! Connecting, negotiating, and the life of a connection.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::client::{C0, C2, Stomp, assert_empty};
use crate::harness::{Gateway, GatewayOptions, program};
use crate::{gateway, stomp};

const SHORT: Duration = Duration::from_millis(300);

#[test]
fn a001_a_bare_connect_is_answered() {
    let gateway = gateway();
    let mut client = Stomp::raw(stomp(&gateway));
    client.send(C0);
    let connected = client.connected();
    assert!(!connected.header("session").is_empty());
    assert!(connected.find("version").is_none_or(|version| version == "1.0"));
}

/// A gateway with users, whose passwords follow the colons.
fn with_users(users: &str) -> Gateway {
    let folder = tempfile::Builder::new().prefix("tidegate-test-").tempdir().unwrap();
    let mut child = Command::new(program())
        .current_dir(folder.path())
        .args(["passwd", "passwords", "--batch"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(users.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    GatewayOptions::new().config("[access]\npassword_file = \"passwords\"\n").start_in(folder)
}

#[test]
fn a002_version_1_0_trims_login_and_passcode() {
    let gateway = with_users("guest:guest\n");
    Stomp::with(stomp(&gateway), "CONNECT\nlogin: guest\npasscode: guest\n\n\0");
}

#[test]
fn a013_connect_is_never_unescaped() {
    let gateway = with_users("u:a\\cb\nv:p\\t1\n");
    for (user, password) in [("u", r"a\cb"), ("v", r"p\t1")] {
        let login = format!("CONNECT\naccept-version:1.2\nhost:h\nlogin:{user}\npasscode:{password}\n\n\0");
        Stomp::with(stomp(&gateway), &login);
    }
}

#[test]
fn a014_a_value_begins_behind_the_first_colon() {
    let gateway = with_users("u:a:b\n");
    Stomp::with(stomp(&gateway), "CONNECT\naccept-version:1.2\nhost:h\nlogin:u\npasscode:a:b\n\n\0");
}

#[test]
fn a015_passwords_are_not_trimmed_since_version_1_1() {
    let gateway = with_users("u: x\n");
    Stomp::with(stomp(&gateway), "CONNECT\naccept-version:1.2\nhost:h\nlogin:u\npasscode: x\n\n\0");
    let mut client = Stomp::raw(stomp(&gateway));
    client.send("CONNECT\naccept-version:1.2\nhost:h\nlogin:u\npasscode:x\n\n\0");
    client.error();
}

#[test]
fn a016_a_refused_login_shows_no_password() {
    let gateway = with_users("guest:guest\n");
    let mut client = Stomp::raw(stomp(&gateway));
    client.send("CONNECT\naccept-version:1.2\nhost:h\nlogin:guest\npasscode:SECRET-77\n\n\0");
    let error = client.error();
    assert!(!format!("{error:?} {}", error.text()).contains("SECRET"));
    assert!(!gateway.log().contains("SECRET"));
}

#[test]
fn a021_nothing_behind_a_refused_login_is_heard() {
    let gateway = with_users("guest:guest\n");
    let login =
        |passcode| format!("CONNECT\naccept-version:1.2\nhost:h\nlogin:guest\npasscode:{passcode}\n\n\0");
    let mut client = Stomp::raw(stomp(&gateway));
    client.send(login("wrong") + "SEND\ndestination:/queue/a021\n\nx\0");
    client.error();
    let mut client = Stomp::with(stomp(&gateway), &login("guest"));
    client.put("a021", "only");
    client.subscribe("s", "a021", "auto");
    assert_eq!(client.message().text(), "only");
}

#[test]
fn a003_connect_of_version_1_1_is_answered_in_it() {
    let gateway = gateway();
    let mut client = Stomp::raw(stomp(&gateway));
    client.send(crate::client::C1);
    assert_eq!(client.connected().header("version"), "1.1");
}

#[test]
fn a004_stomp_is_another_name_of_connect() {
    let gateway = gateway();
    for version in ["1.2", "1.1"] {
        let mut client = Stomp::raw(stomp(&gateway));
        client.send(format!("STOMP\naccept-version:{version}\nhost:h\n\n\0"));
        assert_eq!(client.connected().header("version"), version);
    }
}

fn version_for(accepted: &str) -> String {
    let gateway = gateway();
    let mut client = Stomp::raw(stomp(&gateway));
    client.send(format!("CONNECT\naccept-version:{accepted}\nhost:h\n\n\0"));
    client.connected().header("version").to_owned()
}

#[test]
fn a005_the_highest_common_version_is_spoken() {
    assert_eq!(version_for("1.0,1.1,2.0"), "1.1");
}

#[test]
fn a006_order_and_repetition_of_versions_do_not_matter() {
    assert_eq!(version_for("1.2,1.0,1.2,1.1"), "1.2");
}

#[test]
fn a007_unknown_versions_are_skipped_and_spaces_are_tolerated() {
    assert_eq!(version_for("0.9, 1.1,banana"), "1.1");
}

fn refuses_versions(accepted: &str) {
    let gateway = gateway();
    let mut client = Stomp::raw(stomp(&gateway));
    client.send(format!("CONNECT\naccept-version:{accepted}\nhost:h\n\n\0"));
    let error = client.error();
    assert_eq!(error.header("version"), "1.0,1.1,1.2");
    assert_eq!(error.header("content-type"), "text/plain");
    for version in ["1.0", "1.1", "1.2"] {
        assert!(error.text().contains(version), "{}", error.text());
    }
}

#[test]
fn a008_without_a_common_version_the_supported_ones_are_named() {
    refuses_versions("2.1");
}

#[test]
fn a009_an_empty_list_of_versions_has_none_in_common() {
    refuses_versions("");
}

#[test]
fn a010_stomp_without_versions_is_1_0() {
    let gateway = gateway();
    let mut client = Stomp::raw(stomp(&gateway));
    client.send("STOMP\n\n\0");
    assert!(client.connected().find("version").is_none_or(|version| version == "1.0"));
}

#[test]
fn a011_a_missing_host_is_forgiven() {
    let gateway = gateway();
    Stomp::with(stomp(&gateway), "CONNECT\naccept-version:1.2\n\n\0");
}

#[test]
fn a012_any_host_is_taken_where_there_are_no_virtual_hosts() {
    let gateway = gateway();
    Stomp::with(stomp(&gateway), "CONNECT\naccept-version:1.2\nhost:no-such-vhost\n\n\0");
}

#[test]
fn a017_connect_asks_for_no_receipt() {
    let gateway = gateway();
    let mut client = Stomp::with(stomp(&gateway), "CONNECT\naccept-version:1.2\nhost:h\nreceipt:r\n\n\0");
    client.silence(SHORT);
}

#[test]
fn a018_nothing_is_heard_before_connect() {
    let gateway = gateway();
    let mut client = Stomp::raw(stomp(&gateway));
    client.send("SEND\ndestination:/queue/a018\n\nx\0");
    client.error();
    assert_empty(stomp(&gateway), "a018");
}

#[test]
fn a019_a_connect_behind_another_frame_comes_too_late() {
    let gateway = gateway();
    let mut client = Stomp::raw(stomp(&gateway));
    client.send(format!("SEND\ndestination:/queue/a019\n\nx\0{C2}"));
    client.error();
    assert_empty(stomp(&gateway), "a019");
}

#[test]
fn a020_frames_may_follow_connect_without_waiting() {
    let gateway = gateway();
    let mut client = Stomp::raw(stomp(&gateway));
    client.send(format!("{C2}SEND\ndestination:/queue/a020\nreceipt:r\n\nx\0"));
    client.connected();
    client.receipt("r");
}

#[test]
fn a022_a_second_connect_is_an_error() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send(C2);
    client.error();
}

#[test]
fn a023_frames_of_servers_are_errors_from_a_client() {
    let gateway = gateway();
    for frame in
        ["CONNECTED\n\n\0", "MESSAGE\n\n\0", "RECEIPT\nreceipt-id:message-12345\n\n\0", "ERROR\n\n\0"]
    {
        let mut client = Stomp::open(stomp(&gateway));
        client.send(frame);
        client.error();
    }
}

#[test]
fn a024_each_connection_has_a_session_of_its_own() {
    let gateway = gateway();
    let mut sessions = BTreeSet::new();
    for _ in 0..1_000 {
        let mut client = Stomp::raw(stomp(&gateway));
        client.send(C2);
        let connected = client.connected();
        assert_eq!(connected.header("version"), "1.2");
        sessions.insert(connected.header("session").to_owned());
    }
    assert_eq!(sessions.len(), 1_000);
}

#[test]
fn a025_the_server_names_itself_as_the_grammar_wants() {
    let gateway = gateway();
    let mut client = Stomp::raw(stomp(&gateway));
    client.send(C2);
    let connected = client.connected();
    let server = connected.header("server");
    let (name, version) = server.split_once('/').unwrap();
    assert!(!name.is_empty() && !name.contains(' ') && !version.is_empty(), "{server}");
}

#[test]
fn a026_connect_has_no_body() {
    let gateway = gateway();
    let mut client = Stomp::raw(stomp(&gateway));
    client.send("CONNECT\naccept-version:1.2\nhost:h\n\njunk\0");
    client.error();
    Stomp::with(stomp(&gateway), "CONNECT\n\njunk\0");
}

#[test]
fn a027_a_login_that_does_not_end_is_closed_in_time() {
    let gateway = GatewayOptions::new().set("limits.login_timeout=1s").start();
    let begun = Instant::now();
    let mut silent = Stomp::raw(stomp(&gateway));
    silent.send("CONNECT\n");
    let mut dripping = Stomp::raw(stomp(&gateway));
    dripping.send("CONNECT\n");
    while begun.elapsed() < Duration::from_secs(5) && dripping.try_send("a") {
        if dripping.bytes_within(Duration::from_millis(100)).starts_with(b"ERROR") {
            break;
        }
    }
    assert!(begun.elapsed() < Duration::from_millis(2_200), "{:?}", begun.elapsed());
    silent.rest_within(Duration::from_secs(1));
}

#[test]
fn a028_other_protocols_are_closed_at_once() {
    let gateway = gateway();
    let tls: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03aaaaaaaa";
    let mqtt: &[u8] = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00";
    for hello in [tls, b"GET / HTTP/1.1\r\n\r\n", mqtt] {
        let mut client = Stomp::raw(stomp(&gateway));
        client.send(hello);
        client.rest_within(Duration::from_secs(2));
    }
}

#[test]
fn a029_connections_that_come_and_go_leave_nothing_behind() {
    let gateway = gateway();
    let come_and_go = |times: usize| (0..times).for_each(|_| drop(Stomp::open(stomp(&gateway))));
    let settle = || {
        gateway
            .await_status("no connections", |status| (status["traffic"]["connections"] == 0).then_some(()));
    };
    come_and_go(2_000);
    settle();
    let (memory, files) = (gateway.rss(), gateway.open_files());
    come_and_go(8_000);
    settle();
    // The connections that ask for the status come and go as well.
    assert!(gateway.open_files() <= files + 2, "{} files instead of {files}", gateway.open_files());
    assert!(gateway.rss() <= memory + (1 << 20), "{} bytes more", gateway.rss().saturating_sub(memory));
}
