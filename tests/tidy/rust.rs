//! Rules for Rust sources.

use crate::code::{Token, paths, tokens};
use crate::tree::File;
use crate::{caught, finding, hold};

/// Files, or folders and common beginnings of names, that hold state machines and vocabulary: no clock, no socket, no file, no
/// thread. Of `protocols/` the sources alone.
const PURE: [&str; 17] = [
    "protocols/",
    "src/access/",
    "src/bridge/link",
    "src/bridge/rules",
    "src/broker/",
    "src/import/",
    "src/limits.rs",
    "src/message.rs",
    "src/net/stomp/",
    "src/queue/",
    "src/router/",
    "src/selector/",
    "src/session/",
    "src/store/contract.rs",
    "src/time.rs",
    "src/topic.rs",
    "src/varint.rs",
];

/// What pure files do not name: paths, or a single name anywhere.
const IMPURE: [&[&str]; 6] =
    [&["std", "fs"], &["std", "net"], &["std", "thread"], &["tokio"], &["Instant"], &["SystemTime"]];

/// A crate and the beginnings of the paths in `src/` that may name it.
const OWNERS: [(&str, &[&str]); 4] = [
    ("tidegate_mqtt", &["src/net/mqtt", "src/cli/demo/device.rs"]),
    ("tidegate_stomp", &["src/net/stomp"]),
    ("redb", &["src/store/"]),
    ("rumqttc", &["src/bridge/client"]),
];

/// Lines of one source file.
const FILE_LINES_MAX: usize = 600;

/// Names of channels without a bound.
const UNBOUNDED: [&str; 4] = ["unbounded", "unbounded_channel", "UnboundedReceiver", "UnboundedSender"];

/// Macros of unfinished work.
const UNFINISHED: [&str; 3] = ["todo", "unimplemented", "dbg"];

fn pure_files_touch_nothing_outside(file: &File) -> Vec<String> {
    let pure = PURE.iter().any(|start| file.path.starts_with(start));
    let source = file.is("rs") && (file.path.starts_with("src/") || file.path.contains("/src/"));
    if !pure || !source {
        return vec![];
    }
    let tokens = tokens(&file.text);
    let broken = |path: &[&str]| {
        IMPURE.iter().find(|impure| match impure {
            [name] => path.last() == Some(name),
            _ => path == **impure,
        })
    };
    let found = paths(&tokens).into_iter().filter_map(|(line, path)| Some((line, broken(&path)?)));
    found
        .map(|(line, what)| finding(file, line, &format!("a pure file names `{}`", what.join("::"))))
        .collect()
}

fn crates_are_named_by_their_owners_alone(file: &File) -> Vec<String> {
    if !file.is("rs") || !file.path.starts_with("src/") {
        return vec![];
    }
    let foreign = |token: &Token| {
        OWNERS.iter().find(|(name, owners)| {
            token.text == *name && !owners.iter().any(|owner| file.path.starts_with(owner))
        })
    };
    let found = tokens(&file.text);
    let found = found.iter().filter_map(|token| Some((token.line, foreign(token)?)));
    found
        .map(|(line, (name, owners))| finding(file, line, &format!("only {owners:?} may name `{name}`")))
        .collect()
}

fn files_are_short(file: &File) -> Vec<String> {
    let lines = file.text.lines().count();
    if !file.is("rs") || lines <= FILE_LINES_MAX {
        return vec![];
    }
    vec![finding(
        file,
        FILE_LINES_MAX,
        &format!("{lines} lines, {FILE_LINES_MAX} are the most: find the seam"),
    )]
}

fn channels_are_bounded(file: &File) -> Vec<String> {
    if !file.is("rs") {
        return vec![];
    }
    let tokens = tokens(&file.text);
    let text = |at: usize| tokens.get(at).map_or("", |token: &Token| token.text);
    let without_size = |at: usize| {
        let before = [at.checked_sub(2).map_or("", text), at.checked_sub(1).map_or("", text)];
        if text(at) != "channel" || before == ["oneshot", "::"] || before[1] == "fn" {
            return false;
        }
        let mut at = at + 1;
        if text(at) == "::" && text(at + 1) == "<" {
            at = (at..tokens.len()).find(|at| matches!(text(*at), "(" | ";")).unwrap_or(at);
            // A tuple as the type argument: the call's parenthesis follows the closing `>`.
            if at > 0 && text(at - 1) != ">" {
                at = (at..tokens.len()).find(|at| text(*at) == "(" && text(*at - 1) == ">").unwrap_or(at);
            }
        }
        text(at) == "(" && text(at + 1) == ")"
    };
    (0..tokens.len())
        .filter(|at| UNBOUNDED.contains(&text(*at)) || without_size(*at))
        .map(|at| finding(file, tokens[at].line, "a channel without a bound"))
        .collect()
}

fn nothing_is_unsafe(file: &File) -> Vec<String> {
    if !file.is("rs") {
        return vec![];
    }
    let found = tokens(&file.text).into_iter().filter(|token| token.text == "unsafe");
    found.map(|token| finding(file, token.line, "`unsafe`")).collect()
}

fn nothing_is_left_unfinished(file: &File) -> Vec<String> {
    if !file.is("rs") {
        return vec![];
    }
    let tokens = tokens(&file.text);
    let calls = tokens.windows(3).filter(|next| {
        UNFINISHED.contains(&next[0].text) && next[1].text == "!" && matches!(next[2].text, "(" | "[" | "{")
    });
    calls.map(|next| finding(file, next[0].line, &format!("`{}!`", next[0].text))).collect()
}

fn no_module_of_the_root_hides_core(file: &File) -> Vec<String> {
    if file.path != "src/lib.rs" && file.path != "src/main.rs" {
        return vec![];
    }
    let tokens = tokens(&file.text);
    let modules = tokens.windows(2).filter(|pair| pair[0].text == "mod" && pair[1].text == "core");
    modules.map(|pair| finding(file, pair[0].line, "a module `core` breaks `use core::fmt`")).collect()
}

#[test]
fn pure_files_name_no_clock_socket_file_or_thread() {
    hold(pure_files_touch_nothing_outside);
    let rule = pure_files_touch_nothing_outside;
    caught(rule, 1, "src/router/mod.rs", "use std::{collections::HashMap, fs};");
    caught(rule, 1, "src/topic.rs", "fn f() { std::thread::sleep(d) }");
    caught(rule, 1, "src/broker/mod.rs", "use std::net::SocketAddr;");
    caught(rule, 2, "src/bridge/link_window.rs", "use std::time::Instant;\nlet t = Instant::now();");
    caught(rule, 1, "src/store/contract.rs", "at: std::time::SystemTime,");
    caught(rule, 1, "protocols/mqtt/src/codec/read.rs", "use tokio::io;");
    caught(rule, 1, "src/time.rs", "use ::tokio::time;");
    caught(rule, 0, "src/store/ring.rs", "use std::fs::File;");
    caught(rule, 0, "protocols/mqtt/tests/vectors.rs", "use std::fs;");
    caught(rule, 0, "src/topic.rs", "// std::fs and Instant\nuse std::fmt; let s = \"tokio\";");
}

#[test]
fn each_outside_crate_has_one_owner() {
    hold(crates_are_named_by_their_owners_alone);
    let rule = crates_are_named_by_their_owners_alone;
    caught(rule, 1, "src/net/hub.rs", "use tidegate_mqtt::Packet;");
    caught(rule, 1, "src/cli/demo/mod.rs", "use tidegate_mqtt::Packet;");
    caught(rule, 1, "src/broker/mod.rs", "fn f(db: &redb::Database) {}");
    caught(rule, 1, "src/bridge/link.rs", "use rumqttc as mqtt;");
    caught(rule, 0, "src/net/mqtt_packets.rs", "use tidegate_mqtt::Packet;");
    caught(rule, 0, "src/cli/demo/device.rs", "use tidegate_mqtt::Packet;");
    caught(rule, 0, "src/store/cold.rs", "use redb::Database;");
    caught(rule, 0, "src/bridge/client_tls.rs", "use rumqttc::Client;");
    caught(rule, 0, "src/lib.rs", "//! redb is the store's");
}

#[test]
fn no_source_file_is_longer_than_600_lines() {
    hold(files_are_short);
    caught(files_are_short, 1, "src/lib.rs", &"\n".repeat(FILE_LINES_MAX + 1));
    caught(files_are_short, 0, "src/lib.rs", &"\n".repeat(FILE_LINES_MAX));
    caught(files_are_short, 0, "tests/data.csv", &"\n".repeat(FILE_LINES_MAX + 1));
}

#[test]
fn every_channel_has_a_bound() {
    hold(channels_are_bounded);
    let rule = channels_are_bounded;
    caught(rule, 1, "src/a.rs", "let (a, b) = mpsc::unbounded_channel();");
    caught(rule, 1, "src/a.rs", "fn f(a: UnboundedSender<u8>) {}");
    caught(rule, 1, "tests/a.rs", "let (a, b) = std::sync::mpsc::channel();");
    caught(rule, 1, "src/a.rs", "let (a, b) = channel::<u8>();");
    caught(rule, 1, "src/a.rs", "let (a, b) = mpsc::channel::<(u8, Vec<u8>)>();");
    caught(rule, 0, "src/a.rs", "let (a, b) = mpsc::channel::<(u8, u8)>(SIZE); let c = oneshot::channel();");
    caught(rule, 0, "src/a.rs", "let (a, b) = mpsc::channel(4); let c = watch::channel::<u8>(0);");
    caught(rule, 0, "src/a.rs", "fn channel() {} // mpsc::channel()");
}

#[test]
fn no_code_is_unsafe() {
    hold(nothing_is_unsafe);
    caught(nothing_is_unsafe, 1, "src/a.rs", "let x = unsafe { *p };");
    caught(nothing_is_unsafe, 0, "src/a.rs", "#![forbid(unsafe_code)] // unsafe");
}

#[test]
fn no_code_is_unfinished() {
    hold(nothing_is_left_unfinished);
    caught(nothing_is_left_unfinished, 3, "tests/a.rs", "todo!()\nunimplemented!(\"x\")\ndbg!(x)");
    caught(nothing_is_left_unfinished, 0, "src/a.rs", "let todo = 1; // todo!()\nlet s = \"dbg!\";");
}

#[test]
fn no_module_is_called_core() {
    hold(no_module_of_the_root_hides_core);
    caught(no_module_of_the_root_hides_core, 1, "src/lib.rs", "pub mod core;");
    caught(no_module_of_the_root_hides_core, 0, "src/lib.rs", "pub mod cores;");
}
