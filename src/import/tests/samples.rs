//! The corpus in `samples/`: each is carried over, but for the lines that are listed here, and the result passes the check.

use super::*;

/// A file and the lines of it that are not carried over, as `LINE OPTION`.
type Sample = (&'static str, &'static str, &'static [&'static str]);

const SAMPLES: [Sample; 16] = [
    ("both-ways", include_str!("samples/both-ways.conf"), &[]),
    (
        "cloud-bridges",
        include_str!("samples/cloud-bridges.conf"),
        &[],
    ),
    ("debian", include_str!("samples/debian.conf"), &["3 pid_file", "8 log_dest"]),
    ("empty", include_str!("samples/empty.conf"), &[]),
    ("limits", include_str!("samples/limits.conf"), &[]),
    ("mistakes", include_str!("samples/mistakes.conf"), &[]),
    ("old-style", include_str!("samples/old-style.conf"), &[]),
    ("passwords", include_str!("samples/passwords.conf"), &[]),
    ("per-listener", include_str!("samples/per-listener.conf"), &[]),
    ("plugin", include_str!("samples/plugin.conf"), &[]),
    ("protections", include_str!("samples/protections.conf"), &[]),
    ("tls-clients", include_str!("samples/tls-clients.conf"), &[]),
    ("unix", include_str!("samples/unix.conf"), &[]),
    ("version-2-1", include_str!("samples/version-2-1.conf"), &[]),
    ("websockets", include_str!("samples/websockets.conf"), &[]),
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
        eprintln!("=== {name}\n{}\n{}", import.config, import.report);
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
