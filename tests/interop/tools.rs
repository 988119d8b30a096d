//! The programs of others that the tests need.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// All of them, found.
#[derive(Clone, Debug)]
pub struct Tools {
    pub mosquitto: PathBuf,
    pub mosquitto_pub: PathBuf,
    pub python: OsString,
    pub node: PathBuf,
}

impl Tools {
    /// `None`, said loudly, when something is missing and that is allowed.
    ///
    /// # Panics
    /// Something is missing in CI, without `TIDEGATE_ALLOW_SKIP=1`.
    pub fn find() -> Option<Self> {
        found_or_skipped(Self::look())
    }

    fn look() -> Result<Self, String> {
        let python = std::env::var_os("TIDEGATE_PYTHON").unwrap_or_else(|| "python3".into());
        let tools = Self {
            mosquitto: program("mosquitto")?,
            mosquitto_pub: program("mosquitto_pub")?,
            python,
            node: program("node")?,
        };
        works(Command::new(&tools.python).args(["-c", "import paho.mqtt.client"]), "paho-mqtt for Python")?;
        works(Command::new(&tools.python).args(["-c", "import stomp"]), "stomp.py for Python")?;
        for package in ["mqtt", "stompit", "@stomp/stompjs"] {
            let asked = format!("require('{package}')");
            works(
                Command::new(&tools.node).args(["-e", &asked]),
                &format!("the package {package} for node"),
            )?;
        }
        Ok(tools)
    }
}

/// The broker and the publisher of Mosquitto, for tests that need no others. Missing ones are treated as in [`Tools::find`].
pub fn mosquitto() -> Option<[PathBuf; 2]> {
    let both = || Ok([program("mosquitto")?, program("mosquitto_pub")?]);
    found_or_skipped(both())
}

/// A Chromium. A missing one is treated as in [`Tools::find`].
pub fn chromium() -> Option<PathBuf> {
    let known = ["chromium", "chromium-browser", "google-chrome"];
    found_or_skipped(known.iter().find_map(|name| program(name).ok()).ok_or("chromium is missing".to_owned()))
}

/// A bundle for browsers, in a package that node finds.
pub fn bundle(node: &PathBuf, package: &str, file: &str) -> String {
    let find = format!(
        "const at = module.paths.concat(process.env.NODE_PATH.split(':')).map((d) => require('path').join(d, '{package}', '{file}'));\
         console.log(at.find((f) => require('fs').existsSync(f)))"
    );
    let output = Command::new(node).args(["-e", &find]).output().expect("node runs");
    let path = String::from_utf8(output.stdout).expect("a path");
    std::fs::read_to_string(path.trim()).expect("the package holds its bundle for browsers")
}

fn found_or_skipped<T>(found: Result<T, String>) -> Option<T> {
    found
        .inspect_err(|missing| {
            let allowed = std::env::var_os("TIDEGATE_ALLOW_SKIP").is_some_and(|value| value == "1");
            let in_ci = std::env::var_os("CI").is_some();
            assert!(allowed || !in_ci, "{missing}; see tests/README.md");
            eprintln!("SKIPPED, NOTHING WAS TESTED: {missing}; see tests/README.md");
        })
        .ok()
}

/// Publisher and subscriber of Eclipse Paho for C. Missing ones are treated as in [`Tools::find`].
pub fn paho_c() -> Option<(PathBuf, PathBuf)> {
    found_or_skipped(program("paho_c_pub").and_then(|publisher| Ok((publisher, program("paho_c_sub")?))))
}

/// A node that finds the package node-red. A missing one is treated as in [`Tools::find`].
pub fn node_red() -> Option<PathBuf> {
    found_or_skipped(program("node").and_then(|node| {
        works(
            Command::new(&node).args(["-e", "require.resolve('node-red')"]),
            "the package node-red for node",
        )?;
        Ok(node)
    }))
}

fn program(name: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let mut candidates = folders.map(|folder| folder.join(name));
    candidates.find(|candidate| candidate.is_file()).ok_or_else(|| format!("{name} is missing"))
}

fn works(command: &mut Command, what: &str) -> Result<(), String> {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if status.is_ok_and(|status| status.success()) { Ok(()) } else { Err(format!("{what} is missing")) }
}
