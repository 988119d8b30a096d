//! Included folders, and listeners with settings of their own: Mosquitto decides, then tidegate with what it imported.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use tempfile::TempDir;
use tidegate_mqtt::Version;

use crate::harness::{Client, Login, PATIENCE, Stopped, eventually, free_port, program, run_program};
use crate::import::{HASH, Process, carries, login};
use crate::tools::mosquitto;

/// Files of a folder, in no particular order. Those that do not end in `.conf` are not read.
const INCLUDED: [&str; 12] = [
    "a.conf",
    "_last.conf",
    "B.conf",
    "10.conf",
    "Ab.conf",
    "2.conf",
    "aa.conf",
    "b.conf",
    "aB.conf",
    "a-b.conf",
    "zz.CONF",
    "zz.conf.off",
];
/// A packet that both brokers may be told to take.
const PACKET_BYTES: usize = 100_000;

/// Files for both brokers.
struct Site {
    folder: TempDir,
    /// The broker and the publisher.
    mosquitto: [PathBuf; 2],
}

impl Site {
    /// `None`: Mosquitto is missing, and may be.
    fn find() -> Option<Self> {
        let folder = tempfile::Builder::new().prefix("tidegate-import-").tempdir().unwrap();
        std::fs::create_dir(folder.path().join("conf.d")).unwrap();
        Some(Self { mosquitto: mosquitto()?, folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn shown(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn passwords(&self, name: &str, users: &[&str]) {
        self.write(name, &users.iter().map(|user| format!("{user}:{HASH}\n")).collect::<String>());
    }

    /// Mosquitto with `config` as its main file; what it says goes into `mosquitto.txt`.
    fn mosquitto(&self, config: &str) -> Process {
        // Without this line it drops root's rights and cannot read the folder.
        let root = if rustix::process::geteuid().is_root() { "user root\n" } else { "" };
        self.write("run.conf", &format!("{root}{config}"));
        let mut command = Command::new(&self.mosquitto[0]);
        Process::start(command.arg("-v").arg("-c").arg(self.path("run.conf")), &self.path("mosquitto.txt"))
    }

    fn import(&self, config: &str, to: &str) -> Stopped {
        let source = format!("{to}.conf");
        self.write(&source, config);
        let [source, output] = [self.shown(&source), self.shown(to)];
        run_program(&["import-mosquitto", &source, "--output", &output], self.folder.path())
    }

    /// Tidegate with what was imported `to` a folder.
    fn tidegate(&self, to: &str) -> Process {
        let mut command = Command::new(program());
        command.arg("run").arg("--config").arg(self.path(to).join("tidegate.toml"));
        command.arg("--data-dir").arg(self.path(&format!("{to}-data")));
        Process::start(&mut command, &self.path(&format!("{to}.txt")))
    }

    /// How `mosquitto_pub` ends with these arguments, after publishing at level 1.
    fn publish(&self, address: SocketAddr, arguments: &[&str]) -> ExitStatus {
        let mut command = Command::new(&self.mosquitto[1]);
        command.args(["-h", "127.0.0.1", "-p", &address.port().to_string(), "-q", "1", "-t", "t", "-m", "x"]);
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap()
    }

    /// Who comes in at an address, by the client of Mosquitto.
    fn doors(&self, address: SocketAddr, said: &mut String) {
        for (who, arguments) in [
            ("ann", &["-u", "ann", "-P", "secret"][..]),
            ("bob", &["-u", "bob", "-P", "secret"]),
            ("a wrong password", &["-u", "ann", "-P", "Secret"]),
            ("an unknown user", &["-u", "eve", "-P", "secret"]),
            ("nobody", &[]),
        ] {
            let _ = writeln!(said, "{who} comes in: {}", self.publish(address, arguments).success());
        }
    }
}

fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], free_port()).into()
}

fn anonymous() -> Login {
    Login::fresh(Version::V311, "c-nobody")
}

fn open(address: SocketAddr, login: &Login) -> Client {
    eventually("the broker", PATIENCE, || login.open(address).map_err(|error| error.to_string()))
}

/// What one client may read and write at its address, as the administrator sees it at another.
fn rights(who: &Login, address: SocketAddr, admin: SocketAddr, topics: &[&str], said: &mut String) {
    let boss = || open(admin, &login("admin"));
    for topic in topics {
        let writes = carries(open(address, who), topic, boss(), false);
        let reads = carries(boss(), topic, open(address, who), true);
        let _ = writeln!(said, "{:?} at {topic}: writes {writes}, reads {reads}", who.user);
    }
}

/// So many decisions were for it, and against it.
fn assert_has_both(said: &str) {
    for word in ["true", "false"] {
        assert!(said.matches(word).count() > 3, "{said}");
    }
}

#[test]
fn included_files_are_read_in_the_order_of_mosquitto_and_the_last_one_holds() {
    let Some(site) = Site::find() else { return };
    for (n, name) in INCLUDED.iter().enumerate() {
        site.write(&format!("conf.d/{name}"), &format!("max_packet_size {}\n", PACKET_BYTES + n));
    }
    let address = loopback();
    let config = format!(
        "listener {} 127.0.0.1\nallow_anonymous true\ninclude_dir {}\n",
        address.port(),
        site.shown("conf.d")
    );
    let bound = || {
        let client = open(address, &Login::fresh(Version::V5, "c"));
        client.connack.packet_max.unwrap()
    };
    let mosquitto = site.mosquitto(&config);
    let before = bound();
    mosquitto.stop();
    let import = site.import(&config, "new");
    assert_eq!(import.status.code(), Some(0), "{}", import.output);
    let tidegate = site.tidegate("new");
    assert_eq!(bound(), before, "{}", import.output);
    tidegate.stop();

    let log = std::fs::read_to_string(site.path("mosquitto.txt")).unwrap();
    let read: Vec<&str> = log
        .lines()
        .filter_map(|line| line.split_once("Loading config file ").map(|(_, path)| path))
        .filter_map(|path| path.rsplit('/').next())
        .collect();
    let told: Vec<&str> = import
        .output
        .lines()
        .filter(|line| line.contains(": max_packet_size: "))
        .filter_map(|line| line.split_once("/conf.d/")?.1.split(':').next())
        .collect();
    assert_eq!(told, read);
    assert_eq!(read.len(), INCLUDED.len() - 2);
}

/// Two listeners, each in a file of its own: one for anybody on this machine, one for users; the same rules for both.
#[test]
fn listeners_with_settings_of_their_own_and_common_rules_let_the_same_clients_do_the_same() {
    let Some(site) = Site::find() else { return };
    let [local, users] = [loopback(), loopback()];
    site.passwords("passwd", &["admin", "ann", "bob"]);
    site.write(
        "aclfile",
        "topic readwrite public/#\ntopic read end/#\nuser admin\ntopic readwrite #\n\
         user ann\ntopic readwrite home/#\ntopic read end/#\nuser bob\ntopic write plant/door\ntopic read end/#\n",
    );
    let rules = site.shown("aclfile");
    site.write(
        "conf.d/10-local.conf",
        &format!("listener {} 127.0.0.1\nallow_anonymous true\nacl_file {rules}\n", local.port()),
    );
    site.write(
        "conf.d/20-users.conf",
        &format!(
            "listener {} 127.0.0.1\nallow_anonymous false\npassword_file {}\nacl_file {rules}\n",
            users.port(),
            site.shown("passwd")
        ),
    );
    let config = format!("per_listener_settings true\ninclude_dir {}\n", site.shown("conf.d"));
    let decisions = || {
        let mut said = String::new();
        let topics = ["public/a", "home/a", "plant/door", "other"];
        rights(&anonymous(), local, users, &topics, &mut said);
        for user in ["ann", "bob"] {
            rights(&login(user), users, users, &topics, &mut said);
            rights(&login(user), local, users, &topics, &mut said);
        }
        site.doors(users, &mut said);
        said
    };
    let mosquitto = site.mosquitto(&config);
    let before = decisions();
    assert!(site.publish(local, &["-u", "ann", "-P", "Secret"]).success(), "it has no passwords to check");
    mosquitto.stop();
    let import = site.import(&config, "new");
    assert_eq!(import.status.code(), Some(0), "{}", import.output);
    assert!(import.output.contains("clients that give a user name need its password"), "{}", import.output);
    let tidegate = site.tidegate("new");
    assert_eq!(decisions(), before, "{}", import.output);
    assert!(!site.publish(local, &["-u", "ann", "-P", "Secret"]).success(), "as the report says");
    assert!(site.publish(local, &[]).success());
    tidegate.stop();
    assert_has_both(&before);
}

/// Two listeners with users and rules of their own. One broker here has one of each: the second listener is left out, and the
/// report says what to do: a second broker.
#[test]
fn a_listener_with_other_passwords_and_rules_lets_nobody_in_until_it_has_a_broker_of_its_own() {
    let Some(site) = Site::find() else { return };
    let addresses = [loopback(), loopback()];
    site.passwords("passwd-0", &["admin", "ann"]);
    site.passwords("passwd-1", &["admin", "bob"]);
    let own = |user, topic| {
        format!("user admin\ntopic readwrite #\nuser {user}\ntopic readwrite {topic}/#\ntopic read end/#\n")
    };
    site.write("aclfile-0", &own("ann", "home"));
    site.write("aclfile-1", &own("bob", "plant"));
    let listeners = [0, 1].map(|n| {
        let (passwords, rules) = (site.shown(&format!("passwd-{n}")), site.shown(&format!("aclfile-{n}")));
        format!("listener {} 127.0.0.1\npassword_file {passwords}\nacl_file {rules}\n", addresses[n].port())
    });
    let decisions = |n: usize| {
        let mut said = String::new();
        let user = login(["ann", "bob"][n]);
        rights(&user, addresses[n], addresses[n], &["home/a", "plant/a", "other"], &mut said);
        site.doors(addresses[n], &mut said);
        said
    };
    let per_listener = |lines: &str| format!("per_listener_settings true\n{lines}");
    let both = per_listener(&listeners.concat());
    let mosquitto = site.mosquitto(&both);
    let before = [decisions(0), decisions(1)];
    mosquitto.stop();

    let import = site.import(&both, "new");
    assert_eq!(import.status.code(), Some(3), "{}", import.output);
    for said in [
        ":5: listener: NOT carried over: the listener is left out: it has another password_file than",
        "and there is one for all listeners; run a second broker",
        ":6: password_file: NOT carried over",
        ":7: acl_file: NOT carried over",
    ] {
        assert!(import.output.contains(said), "{said}\n{}", import.output);
    }
    let first = site.tidegate("new");
    assert_eq!(decisions(0), before[0], "{}", import.output);
    assert!(Login::fresh(Version::V311, "c").open(addresses[1]).is_err(), "nobody reaches it");

    let import = site.import(&per_listener(&listeners[1]), "second");
    assert_eq!(import.status.code(), Some(0), "{}", import.output);
    let second = site.tidegate("second");
    assert_eq!([decisions(0), decisions(1)], before, "{}", import.output);
    first.stop();
    second.stop();
    assert_has_both(&before.concat());
}

#[test]
fn a_listener_with_pre_shared_keys_is_closed_and_the_report_names_the_line_and_what_to_do() {
    let Some(site) = Site::find() else { return };
    let [plain, keys] = [loopback(), loopback()];
    site.write("psk", "device:0123456789abcdef\n");
    let config = format!(
        "listener {} 127.0.0.1\nallow_anonymous true\nlistener {} 127.0.0.1\npsk_hint gateway\npsk_file {}\n\
         connection up\naddress 127.0.0.1:1\nbridge_psk 0123\nbridge_identity me\ntopic # out 1\n",
        plain.port(),
        keys.port(),
        site.shown("psk")
    );
    let import = site.import(&config, "new");
    assert_eq!(import.status.code(), Some(3), "{}", import.output);
    let clients =
        "TLS with pre-shared keys is not supported; give the clients certificates, or passwords over TLS";
    let bridge =
        "TLS with pre-shared keys is not supported; give the bridge a certificate or a password over TLS";
    for (line, option, said) in [
        (4, "psk_hint", clients),
        (5, "psk_file", clients),
        (8, "bridge_psk", bridge),
        (9, "bridge_identity", bridge),
    ] {
        let said = format!("new.conf:{line}: {option}: NOT carried over: {said}");
        assert!(import.output.contains(&said), "{said}\n{}", import.output);
    }
    let tidegate = site.tidegate("new");
    drop(open(plain, &anonymous()));
    assert!(anonymous().open(keys).is_err(), "without its keys it is not open to others");
    tidegate.stop();
}
