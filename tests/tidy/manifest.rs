//! Rules for manifests and for the commented configuration file.

use crate::code::tokens;
use crate::tree::{File, repository};
use crate::{caught, finding, hold};

/// Where the keys of the configuration are declared: the public fields of the structs whose name starts with `Raw`.
const SETTINGS: &str = "src/settings/raw.rs";
/// Where every key stands with its default and its meaning.
const CONFIGURATION: &str = "config/tidegate.toml";

fn dependencies_have_reasons(file: &File) -> Vec<String> {
    if !file.path.ends_with("Cargo.toml") {
        return vec![];
    }
    let mut findings = vec![];
    let mut in_dependencies = false;
    let mut depth = 0;
    let mut previous = "";
    for (number, line) in file.lines() {
        let line = line.trim();
        if depth == 0 && line.starts_with('[') {
            in_dependencies = line.trim_end_matches(']').ends_with("dependencies");
            let one_table = line.contains("dependencies.");
            if one_table && !previous.starts_with('#') {
                findings.push(finding(file, number, "a dependency without a comment that gives the reason"));
            }
        } else if in_dependencies && depth == 0 && line.contains('=') && !line.starts_with('#') {
            // A crate of this workspace is part of the house.
            let own = line.contains("path =") || line.contains("path=");
            if !own && !previous.starts_with('#') {
                findings.push(finding(file, number, "a dependency without a comment that gives the reason"));
            }
        }
        if !line.starts_with('#') && in_dependencies {
            depth += line.matches(['[', '{']).count();
            depth -= line.matches([']', '}']).count().min(depth);
        }
        previous = line;
    }
    findings
}

/// The names of all keys and sections that the settings know.
fn declared_keys(settings: &str) -> Vec<(usize, String)> {
    let tokens = tokens(settings);
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let mut keys = vec![];
    let mut inside = false;
    for at in 0..tokens.len() {
        match text(at) {
            "struct" | "enum" => inside = text(at) == "struct" && text(at + 1).starts_with("Raw"),
            "impl" | "fn" => inside = false,
            "pub" if inside => {
                // A raw name, `r#in`, is three tokens.
                let name = if text(at + 1) == "r" && text(at + 2) == "#" { at + 3 } else { at + 1 };
                if text(name + 1) == ":" {
                    keys.push((tokens[name].line, text(name).to_owned()));
                }
            }
            _ => {}
        }
    }
    keys
}

/// The line, commented out or not, sets `key` or opens a section whose name ends in it.
fn mentions(line: &str, key: &str) -> bool {
    let line = line.trim_start_matches(['#', ' ']);
    if line.starts_with('[') {
        let name = line.trim_start_matches('[').split(']').next().unwrap_or("");
        return name.rsplit('.').next() == Some(key);
    }
    line.split_once('=').is_some_and(|(name, _)| name.trim() == key)
}

fn keys_are_in(configuration: &str) -> impl Fn(&File) -> Vec<String> {
    move |file| {
        if file.path != SETTINGS {
            return vec![];
        }
        let missing = |(line, key): (usize, String)| {
            let known = configuration.lines().any(|text| mentions(text, &key));
            (!known).then(|| finding(file, line, &format!("the key `{key}` is not in {CONFIGURATION}")))
        };
        declared_keys(&file.text).into_iter().filter_map(missing).collect()
    }
}

#[test]
fn every_dependency_has_a_reason() {
    hold(dependencies_have_reasons);
    let rule = dependencies_have_reasons;
    caught(rule, 1, "Cargo.toml", "[dependencies]\n# Why.\na = \"1\"\nb = \"1\"");
    caught(rule, 1, "protocols/x/Cargo.toml", "[dev-dependencies]\nb = { version = \"1\" }");
    caught(rule, 1, "Cargo.toml", "[target.'cfg(unix)'.dependencies]\n# Why.\n\nb = \"1\"");
    caught(rule, 1, "Cargo.toml", "[dependencies.b]\nversion = \"1\"");
    caught(
        rule,
        1,
        "Cargo.toml",
        "[dependencies]\n# Why.\na = { version = \"1\", features = [\n \"x\",\n] }\nb = \"1\"",
    );
    caught(
        rule,
        0,
        "Cargo.toml",
        "[package]\nname = \"a\"\n[dependencies]\nown = { path = \"own\" }\n# Why.\nb = \"1\"",
    );
}

#[test]
fn every_configuration_key_is_in_the_commented_file() {
    let configuration = repository().iter().find(|file| file.path == CONFIGURATION);
    let configuration = configuration.map_or("", |file| &*file.text);
    hold(keys_are_in(configuration));
    let settings = "pub struct RawStore { #[serde(default)] pub ring: Size, pub r#in: u8 }\n\
        pub struct Other { pub unseen: u8 }\nimpl RawStore { pub fn f() {} }";
    caught(keys_are_in(""), 2, SETTINGS, settings);
    caught(keys_are_in("# ring is a key\nin = 1"), 1, SETTINGS, settings);
    caught(keys_are_in("[store]\n# ring = \"8 MiB\"\n[[bridge.in]]"), 0, SETTINGS, settings);
    caught(keys_are_in(""), 0, "src/settings/other.rs", settings);
}
