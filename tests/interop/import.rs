//! Mosquitto serves clients with passwords, rules and a bridge; then tidegate does, with what it imported, and decides the same.

use std::fmt::Write;
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tidegate_mqtt::Version;

use crate::harness::{Client, Filter, Login, Message, PATIENCE, eventually, free_port, program, run_program};
use crate::tools::Tools;
use crate::upstream::Upstream;

/// Of the password "secret", as mosquitto_passwd writes it.
pub const HASH: &str = "$7$101$AeqTvLxu0XvZ6CYy$nEQoRCXQaWLx+aYouLLoHdxpTWxsgpRG+4syE94y5OYzHee8c4p6ARvWtEqxrFe1rrS9wY2I4Gcw7HewuYmgQQ==";
/// The administrator asks, these are asked about.
const USERS: [&str; 2] = ["ann", "bob"];
const RULES: &str = "\
topic readwrite guests/#
pattern write devices/%c/#
pattern read devices/%c/#
pattern readwrite users/%u/#
pattern deny users/%u/locked
pattern read end/#
user admin
topic readwrite #
user ann
topic readwrite home/#
topic deny home/secret
topic read plant/+/state
user bob
topic write home/door
topic home/bell
";
const TOPICS: [&str; 15] = [
    "guests/a",
    "devices/c-ann/x",
    "devices/c-bob/x/y",
    "devices/%c/x",
    "users/ann/a",
    "users/bob/a",
    "users/bob/locked",
    "users/bob/locked/more",
    "home",
    "home/door",
    "home/secret",
    "home/bell",
    "plant/1/state",
    "plant/1/2/state",
    "other",
];

/// A broker. It is killed at drop.
pub struct Process(Child);

impl Process {
    pub fn start(command: &mut Command, log: &Path) -> Self {
        let log = File::create(log).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Self(command.spawn().unwrap())
    }

    pub fn stop(mut self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

pub fn login(user: &str) -> Login {
    Login::fresh(Version::V311, &format!("c-{user}")).user(user, "secret")
}

fn open(address: SocketAddr, user: &str) -> Client {
    login(user).open(address).unwrap()
}

/// What a broker lets clients do, one line for each question.
fn decisions(address: SocketAddr) -> String {
    let mut said = String::new();
    eventually("the broker", PATIENCE, || {
        login("admin")
            .open(address)
            .map(|client| drop(client.disconnect()))
            .map_err(|error| error.to_string())
    });
    let fresh = || Login::fresh(Version::V311, "x");
    for (who, login) in [
        ("ann", login("ann")),
        ("a wrong password", fresh().user("ann", "Secret")),
        ("an unknown user", fresh().user("eve", "secret")),
        ("nobody", fresh()),
    ] {
        let reason = login.ask(address).unwrap().connack.reason;
        let _ = writeln!(said, "{who} may come in: {}", reason == 0);
    }
    for user in USERS {
        for topic in TOPICS {
            let _ = writeln!(said, "{user} may write {topic}: {}", arrives(address, user, topic, "admin"));
            let _ = writeln!(said, "{user} may read {topic}: {}", arrives(address, "admin", topic, user));
        }
    }
    said
}

/// Whether what one user publishes comes to another; one of them is the administrator. What must not come is told by the message
/// behind it.
fn arrives(address: SocketAddr, from: &str, topic: &str, to: &str) -> bool {
    carries(open(address, from), topic, open(address, to), from == "admin")
}

/// The same for two clients; `admin_writes`, or else it is the administrator who reads.
pub fn carries(mut writer: Client, topic: &str, mut reader: Client, admin_writes: bool) -> bool {
    reader.subscribe_all(None, &[Filter::new(topic, 1), Filter::new("end/#", 1)]).unwrap();
    writer.publish(&Message::new(topic, "x", 1)).unwrap();
    let admin = if admin_writes { &mut writer } else { &mut reader };
    admin.publish(&Message::new("end/now", "end", 1)).unwrap();
    !reader.messages_until("end").unwrap().is_empty()
}

/// The decisions of a broker, and the topics that came over its bridge meanwhile, in order.
fn served(address: SocketAddr, central: &Upstream) -> (String, Vec<String>) {
    let mut far = Login::fresh(Version::V311, "far").open(central.address()).unwrap();
    far.subscribe("up/#", 1).unwrap();
    let said = decisions(address);
    open(address, "admin").publish(&Message::new("home/last", "end", 1)).unwrap();
    let topics = far.messages_until("end").unwrap().into_iter().map(|message| message.topic);
    (said, topics.collect())
}

#[test]
fn an_imported_configuration_lets_the_same_clients_do_the_same_and_forwards_the_same() {
    let Some(tools) = Tools::find() else { return };
    let central = Upstream::start(&tools);
    let folder = tempfile::Builder::new().prefix("tidegate-import-").tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let users: String = ["admin", "ann", "bob"].iter().map(|user| format!("{user}:{HASH}\n")).collect();
    std::fs::write(file("passwd"), users).unwrap();
    std::fs::write(file("aclfile"), RULES).unwrap();
    let config = format!(
        "listener {} 127.0.0.1\nallow_anonymous false\npassword_file {}\nacl_file {}\n\
         connection central\naddress {}\ntopic home/# out 1 \"\" up/\nnotifications false\n",
        address.port(),
        file("passwd").display(),
        file("aclfile").display(),
        central.address(),
    );
    std::fs::write(file("mosquitto.conf"), &config).unwrap();
    // Without this line it drops root's rights and cannot read the folder.
    let root = if rustix::process::geteuid().is_root() { "user root\n" } else { "" };
    std::fs::write(file("run.conf"), format!("{root}{config}")).unwrap();

    let mut mosquitto = Command::new(&tools.mosquitto);
    let mosquitto = Process::start(mosquitto.arg("-c").arg(file("run.conf")), &file("mosquitto.txt"));
    let before = served(address, &central);
    mosquitto.stop();

    let [source, output] = ["mosquitto.conf", "new"].map(|name| file(name).display().to_string());
    let import = run_program(&["import-mosquitto", &source, "--output", &output], folder.path());
    assert_eq!(import.status.code(), Some(0), "{}", import.output);
    let mut tidegate = Command::new(program());
    tidegate.arg("run").arg("--config").arg(file("new/tidegate.toml")).arg("--data-dir").arg(file("data"));
    let tidegate = Process::start(&mut tidegate, &file("tidegate.txt"));
    let after = served(address, &central);
    tidegate.stop();

    assert_eq!(after.0, before.0, "{}", import.output);
    assert_eq!(after.1, before.1, "{}", import.output);
    let counts = ["true", "false"].map(|word| before.0.lines().filter(|line| line.ends_with(word)).count());
    assert!(counts.iter().all(|count| *count > 10) && before.1.len() > 5, "{counts:?} {:?}", before.1);
}
