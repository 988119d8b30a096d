//! The corpus in `samples/`: each is carried over, but for the lines that are listed here, and the result passes the check.

use super::*;

/// A file and the lines of it that are not carried over, as `LINE OPTION`.
type Sample = (&'static str, &'static str, &'static [&'static str]);

const SAMPLES: [Sample; 16] = [
    ("both-ways", include_str!("samples/both-ways.conf"), &[]),
    ("cloud-bridges", include_str!("samples/cloud-bridges.conf"), &[]),
    ("debian", include_str!("samples/debian.conf"), &["3 pid_file", "8 log_dest"]),
    ("empty", include_str!("samples/empty.conf"), &[]),
    ("limits", include_str!("samples/limits.conf"), &["8 memory_limit", "15 check_retain_source"]),
    (
        "mistakes",
        include_str!("samples/mistakes.conf"),
        &[
            "1 Listener",
            "2 listner",
            "3 listener",
            "4 allow_anonymous",
            "5 max_queued_messages",
            "6 persistence",
            "7 topic",
            "8 connection",
            "9 topic",
            "10 address",
            "12 include_dir",
            "13 log_dest",
            "14 persistent_client_expiration",
            "0 listener",
        ],
    ),
    (
        "old-style",
        include_str!("samples/old-style.conf"),
        &["7 user", "13 log_facility", "14 queue_qos0_messages"],
    ),
    ("passwords", include_str!("samples/passwords.conf"), &[]),
    (
        "per-listener",
        include_str!("samples/per-listener.conf"),
        &["13 listener", "14 password_file", "15 allow_anonymous", "16 certfile", "17 keyfile"],
    ),
    (
        "plugin",
        include_str!("samples/plugin.conf"),
        &["2 plugin", "3 plugin_opt_config_file", "4 listener", "5 allow_anonymous", "0 listener"],
    ),
    (
        "protections",
        include_str!("samples/protections.conf"),
        &[
            "2 listener",
            "3 mount_point",
            "4 listener",
            "5 psk_hint",
            "6 listener",
            "7 bind_interface",
            "8 listener",
            "9 capath",
            "10 certfile",
            "11 keyfile",
            "12 require_certificate",
            "13 crlfile",
            "14 listener",
            "15 listener",
            "16 protocol",
            "17 listener",
            "18 certfile",
            "21 plugin_opt_x",
            "22 connection",
            "23 address",
            "24 bridge_identity",
            "25 bridge_psk",
            "26 topic",
        ],
    ),
    ("tls-clients", include_str!("samples/tls-clients.conf"), &[]),
    ("unix", include_str!("samples/unix.conf"), &[]),
    (
        "version-2-1",
        include_str!("samples/version-2-1.conf"),
        &["11 proxy_protocol_v2_require_tls", "20 bridge_tcp_keepalive"],
    ),
    ("websockets", include_str!("samples/websockets.conf"), &["5 http_dir", "10 websockets_origin"]),
    ("windows", include_str!("samples/windows.conf"), &[]),
];

fn files(text: &str) -> Memory {
    Memory::new(text)
        .file("debian.d/10-network.conf", include_str!("samples/debian.d/10-network.conf"))
        .file("debian.d/20-bridge.conf", include_str!("samples/debian.d/20-bridge.conf"))
        .file("debian.d/30-off.conf.disabled", include_str!("samples/debian.d/30-off.conf.disabled"))
        .file("passwd", include_str!("samples/passwd"))
        .file("other-passwd", include_str!("samples/other-passwd"))
        .file("acl", include_str!("samples/acl"))
}

#[test]
fn each_sample_is_carried_over_but_for_the_lines_that_are_listed() {
    let mut wrong = Vec::new();
    for (name, text, left) in SAMPLES {
        let files = files(text);
        let import = files.import(Target::Folder).unwrap();
        let dropped: Vec<_> = import
            .report
            .findings()
            .iter()
            .filter(|finding| finding.verdict == Some(Verdict::Dropped))
            .map(|finding| format!("{} {}", finding.place.line, finding.option))
            .collect();
        if dropped != left {
            wrong.push(format!("{name}: {dropped:?}"));
        }
        assert_each_line_is_reported(&files, &import);
        checked(&import).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    assert_eq!(wrong, Vec::<String>::new());
}
