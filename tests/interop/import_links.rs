//! Mosquitto's bridges and its listeners with certificates, beside what tidegate makes of the same configuration.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_mqtt::Version;

use crate::harness::{
    Authority, Client, Far, Filter, Login, Message, PATIENCE, SHORT, Tunnel, eventually, free_port, program,
    run_program,
};
use crate::import::{HASH, Process};
use crate::tools::Tools;
use crate::upstream::Upstream;

/// Both directions, with every kind of prefix, whole topics, and a topic line without a direction.
const TOPICS: &str = "\
topic up/# out 1 \"\" site/
topic down/# in 1 \"\" site/
topic both/+ both 1 l/ r/
topic \"\" out 1 one/here one/there
topic \"\" in 1 two/here two/there
topic zero/# out 0 deep/local/ deep/remote/
topic plain/+
";
/// What is published on both sides; some of it lies just outside of what is bridged.
const PUBLISHED: [&str; 21] = [
    "up/a",
    "site/up/a",
    "down/a",
    "site/down/a",
    "l/both/a",
    "r/both/a",
    "l/both/a/b",
    "r/both/a/b",
    "one/here",
    "one/there",
    "two/here",
    "two/there",
    "two/there/more",
    "deep/local/zero/x",
    "deep/remote/zero/x",
    "plain/x",
    "plain/x/y",
    "other",
    "up",
    "site/up",
    "both/a",
];

/// A configuration for both brokers.
struct Edge {
    folder: TempDir,
    config: String,
}

impl Edge {
    fn new(config: String) -> Self {
        Self { folder: tempfile::Builder::new().prefix("tidegate-import-").tempdir().unwrap(), config }
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn mosquitto(&self, tools: &Tools) -> Process {
        // Without this line it drops root's rights and cannot read the folder.
        let root = if rustix::process::geteuid().is_root() { "user root\n" } else { "" };
        std::fs::write(self.file("run.conf"), format!("{root}{}", self.config)).unwrap();
        let mut command = Command::new(&tools.mosquitto);
        Process::start(command.arg("-c").arg(self.file("run.conf")), &self.file("mosquitto.txt"))
    }

    /// With the imported configuration.
    fn tidegate(&self) -> Process {
        std::fs::write(self.file("mosquitto.conf"), &self.config).unwrap();
        let [source, output] = ["mosquitto.conf", "new"].map(|name| self.file(name).display().to_string());
        let import = run_program(&["import-mosquitto", &source, "--output", &output], self.folder.path());
        assert_eq!(import.status.code(), Some(0), "{}", import.output);
        let mut command = Command::new(program());
        command.arg("run").arg("--config").arg(self.file("new/tidegate.toml"));
        command.arg("--data-dir").arg(self.file("data"));
        Process::start(&mut command, &self.file("tidegate.txt"))
    }
}

fn open(address: SocketAddr, name: &str) -> Client {
    let login = Login::fresh(Version::V311, name);
    eventually("the broker", PATIENCE, || login.open(address).map_err(|error| error.to_string()))
}

/// Messages that have come, as topic, text and level, sorted; without what only waited for the bridge.
fn seen(client: &mut Client, last: &str) -> Vec<String> {
    let mut messages = client.messages_until(last).unwrap();
    messages.retain(|message| message.text().contains(" from "));
    let mut all: Vec<_> =
        messages.iter().map(|m| format!("{} {} at level {}", m.topic, m.text(), m.qos)).collect();
    all.sort_unstable();
    all
}

/// Publishes on both sides and says what is seen on both.
fn carried(edge: SocketAddr, central: SocketAddr) -> [Vec<String>; 2] {
    let mut sides = [(edge, "edge"), (central, "central")].map(|(address, name)| {
        let mut watcher = open(address, &format!("watcher-{name}"));
        watcher.subscribe("#", 2).unwrap();
        (open(address, &format!("publisher-{name}")), watcher, name)
    });
    await_bridge(&mut sides);
    for topic in PUBLISHED {
        for (publisher, _, name) in &mut sides {
            for qos in 1..=2 {
                publisher.publish(&Message::new(topic, format!("{topic} from {name}"), qos)).unwrap();
            }
        }
    }
    // Each direction keeps its order, so what follows everything on one side says that the other side has it.
    sides[0].0.publish(&Message::new("up/end", "the edge is done", 1)).unwrap();
    let central = seen(&mut sides[1].1, "the edge is done");
    sides[1].0.publish(&Message::new("site/down/end", "the center is done", 1)).unwrap();
    [seen(&mut sides[0].1, "the center is done"), central]
}

/// Waits until something has crossed in each direction, and forgets it.
fn await_bridge(sides: &mut [(Client, Client, &str); 2]) {
    for (from, to, topic) in [(0, 1, "up/probe"), (1, 0, "site/down/probe")] {
        eventually("the bridge", PATIENCE, || {
            sides[from].0.publish(&Message::new(topic, "probe", 1)).unwrap();
            let arrived = sides[to].1.message_within(Duration::from_millis(300)).unwrap();
            arrived.map(drop).ok_or_else(|| "nothing has arrived".to_owned())
        });
    }
    for (publisher, watcher, name) in sides {
        let mark = format!("mark of {name}");
        publisher.publish(&Message::new("other/mark", &mark, 1)).unwrap();
        watcher.messages_until(&mark).unwrap();
    }
}

#[test]
fn imported_bridges_carry_the_same_messages_both_ways_under_the_same_names() {
    let Some(tools) = Tools::find() else { return };
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let mut all = Vec::new();
    for imported in [false, true] {
        let central = Upstream::start(&tools);
        let edge = Edge::new(format!(
            "listener {} 127.0.0.1\nallow_anonymous true\nmax_inflight_messages 100\nmax_queued_messages 5000\n\
             message_size_limit 100000\npersistence false\nconnection link\naddress {}\nnotifications false\n{TOPICS}",
            address.port(),
            central.address(),
        ));
        let process = if imported { edge.tidegate() } else { edge.mosquitto(&tools) };
        all.push(carried(address, central.address()));
        process.stop();
    }
    assert_eq!(all[1], all[0], "at the edge, and at the central broker");
    assert!(all[0].iter().all(|side| side.len() > 2 * PUBLISHED.len()), "{all:?}");
}

/// Whether clients come in, and what their names let them publish, one line for each question.
fn admitted(port: u16, authority: &Authority, folder: &Path) -> Vec<String> {
    let stranger = Authority::new("somebody else");
    let shown = [
        ("ann's certificate", authority.client(Some(&authority.sign("ann", folder)))),
        ("eve's certificate", authority.client(Some(&authority.sign("eve", folder)))),
        ("no certificate", authority.client(None)),
        ("a stranger's certificate", authority.client(Some(&stranger.sign("ann", &folder.join("foreign"))))),
    ];
    let mut said = Vec::new();
    for (name, config) in shown {
        let tunnel = Tunnel::to(Far::Tls(port, config));
        for (who, user) in [("no name", None), ("bob's password", Some("bob"))] {
            let login = Login::fresh(Version::V311, "c");
            let login = user.map_or(login.clone(), |user| login.user(user, "secret"));
            let Ok(mut client) = login.open(tunnel.address()) else {
                said.push(format!("{name} and {who}: refused"));
                continue;
            };
            client.subscribe_all(None, &[Filter::new("ann/#", 1), Filter::new("end", 1)]).unwrap();
            client.publish(&Message::new("ann/x", "x", 1)).unwrap();
            client.publish(&Message::new("end", "end", 1)).unwrap();
            let got = client.messages_until("end").unwrap().len();
            said.push(format!("{name} and {who}: let in, and gets {got} of ann's messages"));
        }
    }
    said
}

#[test]
fn imported_tls_listeners_let_the_same_certificates_in_under_the_same_names() {
    let Some(tools) = Tools::find() else { return };
    let files = tempfile::tempdir().unwrap();
    std::fs::create_dir(files.path().join("foreign")).unwrap();
    let authority = Authority::new("tidegate interop authority");
    authority.sign("server", files.path());
    authority.write(&files.path().join("ca.pem"));
    let at = |name: &str| files.path().join(name).display().to_string();
    std::fs::write(at("passwd"), format!("bob:{HASH}\n")).unwrap();
    std::fs::write(at("acl"), "topic readwrite end\npattern readwrite end\npattern readwrite %u/#\n")
        .unwrap();
    let mut all = Vec::new();
    for named in [true, false] {
        let (port, witness) = (free_port(), SocketAddr::from(([127, 0, 0, 1], free_port())));
        let names = if named { "use_identity_as_username true\n" } else { "" };
        let edge = Edge::new(format!(
            "per_listener_settings false\nallow_anonymous true\npassword_file {}\nacl_file {}\n\
             listener {port} 127.0.0.1\ncafile {}\ncertfile {}\nkeyfile {}\nrequire_certificate true\n{names}\
             listener {} 127.0.0.1\n",
            at("passwd"),
            at("acl"),
            at("ca.pem"),
            at("server.pem"),
            at("server.key"),
            witness.port(),
        ));
        for imported in [false, true] {
            let process = if imported { edge.tidegate() } else { edge.mosquitto(&tools) };
            open(witness, "witness");
            all.push(admitted(port, &authority, files.path()));
            process.stop();
        }
    }
    assert_eq!((&all[1], &all[3]), (&all[0], &all[2]));
    let ann = all[0].iter().filter(|line| line.ends_with("gets 1 of ann's messages")).count();
    assert!(ann > 0 && all[0].iter().any(|line| line.ends_with("refused")), "{all:?}");
}

#[test]
fn everything_that_mosquitto_tells_about_itself_has_its_topic_here() {
    let Some(tools) = Tools::find() else { return };
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let edge =
        Edge::new(format!("listener {} 127.0.0.1\nallow_anonymous true\nsys_interval 1\n", address.port()));
    let [theirs, ours] = [false, true].map(|imported| {
        let process = if imported { edge.tidegate() } else { edge.mosquitto(&tools) };
        let mut client = open(address, "dashboard");
        client.subscribe("$SYS/#", 0).unwrap();
        let mut topics = std::collections::BTreeSet::new();
        // Some topics come with a change alone: the client's own traffic makes them change.
        eventually("the last topic", PATIENCE, || {
            client.publish(&Message::new("x", "y", 1)).unwrap();
            while let Some(message) = client.message_within(SHORT).unwrap() {
                topics.insert(message.topic);
            }
            let done = ["version", "load/publish/sent/15min", "bytes/sent"]
                .iter()
                .all(|name| topics.contains(&format!("$SYS/broker/{name}")));
            if done { Ok(()) } else { Err(format!("{topics:?}")) }
        });
        process.stop();
        topics
    });
    assert!(theirs.len() > 30, "{theirs:?}");
    assert_eq!(theirs.difference(&ours).collect::<Vec<_>>(), Vec::<&String>::new());
}
