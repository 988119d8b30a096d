//! Rules about the repository itself, as tests: who may name what, how long a file may be, what must not be written.
//!
//! `tree` finds the files, `code` reads Rust just far enough to tell names from comments and texts, and the other modules
//! hold the rules: each is a function from a file to findings, and each has a test that feeds it a bad example.
#![allow(clippy::unwrap_used)]

mod code;
mod manifest;
mod prose;
mod rust;
mod statements;
mod stomp;
mod tree;

use tree::{File, repository};

/// A broken rule: where and what, for people.
fn finding(file: &File, line: usize, what: &str) -> String {
    format!("{}:{line}: {what}", file.path)
}

/// Fails with every finding of `rule` over the repository.
fn hold(rule: impl Fn(&File) -> Vec<String>) {
    let findings: Vec<String> = repository().iter().flat_map(rule).collect();
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

/// Feeds a rule a file that it must complain about `times` times.
#[track_caller]
fn caught(rule: impl Fn(&File) -> Vec<String>, times: usize, path: &str, text: &str) {
    let findings = rule(&File { path: path.into(), text: text.into() });
    assert_eq!(findings.len(), times, "{findings:?}");
}
