//! STOMP client libraries: they produce, consume in order, come back to what they had not acknowledged, roll back and commit.

use std::ffi::OsStr;
use std::process::Command;

use crate::harness::Gateway;
use crate::tools::Tools;

fn run(program: impl AsRef<OsStr>, script: &str, arguments: &[&str]) {
    let gateway = Gateway::start();
    let port = gateway.stomp_address().port().to_string();
    let script = format!("{}/tests/interop/{script}", env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(program).arg(script).arg(port).args(arguments).output().unwrap();
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.trim() == "done", "{said}\n{wrong}");
}

#[test]
fn stomp_py_produces_consumes_returns_and_commits_in_each_version() {
    let Some(tools) = Tools::find() else { return };
    for version in ["1.0", "1.1", "1.2"] {
        run(&tools.python, "client_stomp_py.py", &[version]);
    }
}

#[test]
fn stompit_produces_consumes_returns_and_commits() {
    let Some(tools) = Tools::find() else { return };
    run(&tools.node, "client_stompit.js", &[]);
}
