//! Logins, access rules, and reading both again while clients are served.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use tempfile::TempDir;
use tidegate_mqtt::ReasonCode;

use crate::harness::{
    Client, Filter, Gateway, GatewayOptions, Login, Message, PATIENCE, Version, Will, eventually,
    for_all_versions, for_both_versions,
};

/// Made by mosquitto_passwd 2.0.11 in its two ways: the password is "secret".
const MOSQUITTO: &str = "\
old:$6$JRBA7eItBZVURG4C$nBcGA9YR23i8ZKx9rfWk1js/CGdUgoY2t8Gv2tyLtY2Dmm/eZCG9FSBojNGci1xjtrxIXeluyryDEVdSpo7E5A==
new:$7$101$AeqTvLxu0XvZ6CYy$nEQoRCXQaWLx+aYouLLoHdxpTWxsgpRG+4syE94y5OYzHee8c4p6ARvWtEqxrFe1rrS9wY2I4Gcw7HewuYmgQQ==
";
/// Before MQTT 5.0 return code 4, which the tests' client reads as this.
const BAD_PASSWORD: u8 = 0x86;
/// Return code 5.
const NOT_AUTHORIZED: u8 = 0x87;
const SECRET: &str = "a secret of at least thirty-two bytes";

/// A folder for a gateway, with what it is configured by.
pub(crate) struct Place {
    folder: TempDir,
    config: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("tidegate-test-").tempdir().unwrap();
        Self { folder, config: "[access]\nfailures_per_minute = 0\n".into() }
    }

    pub(crate) fn file(self, name: &str, content: &str) -> Self {
        std::fs::write(self.folder.path().join(name), content).unwrap();
        self
    }

    /// A password file with these users, each of whom has its name as its password.
    fn users(self, users: &[&str]) -> Self {
        self.users_stored_with(users, &[])
    }

    /// The same with more arguments of `passwd`.
    pub(crate) fn users_stored_with(mut self, users: &[&str], arguments: &[&str]) -> Self {
        let batch: String = users.iter().map(|user| format!("{user}:{user}\n")).collect();
        passwd(self.folder.path(), &[&["passwords", "--batch"], arguments].concat(), &batch);
        self.config += "password_file = \"passwords\"\n";
        self
    }

    pub(crate) fn failures_per_minute(mut self, failures: u32) -> Self {
        self.config =
            self.config.replace("failures_per_minute = 0", &format!("failures_per_minute = {failures}"));
        self
    }

    pub(crate) fn rules(mut self, rules: &str) -> Self {
        self = self.file("acl", rules);
        self.config += "acl_file = \"acl\"\n";
        self
    }

    pub(crate) fn config(mut self, more: &str) -> Self {
        self.config += more;
        self
    }

    pub(crate) fn options(self) -> (GatewayOptions, TempDir) {
        (GatewayOptions::new().config(&self.config), self.folder)
    }

    pub(crate) fn start(self) -> Gateway {
        let (options, folder) = self.options();
        options.start_in(folder)
    }
}

/// `tidegate passwd` in `folder`, with `input` on its standard input; what it says.
pub(crate) fn passwd(folder: &Path, arguments: &[&str], input: &str) -> String {
    let mut child = Command::new(crate::harness::program())
        .current_dir(folder)
        .arg("passwd")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    for password in input.lines().filter_map(|line| line.split_once(':')).map(|(_, password)| password) {
        assert!(password.len() < 5 || !said.contains(password), "{said}");
    }
    said
}

fn login(version: Version, user: &str) -> Login {
    Login::fresh(version, &format!("of-{user}")).user(user, user)
}

fn open(gateway: &Gateway, version: Version, user: &str) -> Client {
    login(version, user).open(gateway.address()).unwrap()
}

fn refusal(gateway: &Gateway, login: &Login) -> u8 {
    login.ask(gateway.address()).unwrap().connack.reason
}

pub(crate) fn reload(gateway: &Gateway) {
    let done = gateway.run(&["reload"]);
    assert!(done.status.success(), "{}", done.output);
    assert!(done.output.starts_with("reloaded: "), "{}", done.output);
}

fn write(gateway: &Gateway, name: &str, content: &str) {
    std::fs::write(gateway.folder().join(name), content).unwrap();
}

#[test]
fn a_login_is_answered_in_the_words_of_its_version() {
    for_all_versions(|version| {
        let gateway = Place::new().users(&["ann", "bob"]).start();
        let good = login(version, "ann");
        assert_eq!(refusal(&gateway, &good), 0);
        for (user, password) in [("ann", "bob"), ("ann", ""), ("nobody", "ann"), ("", "ann")] {
            let wrong = Login::fresh(version, "x").user(user, password);
            assert_eq!(refusal(&gateway, &wrong), BAD_PASSWORD, "{user} {password}");
        }
        let nothing = Login::fresh(version, "x");
        assert_eq!(refusal(&gateway, &nothing), NOT_AUTHORIZED);
        let status = gateway.status();
        assert!(status["traffic"]["denied"]["login"].as_u64() >= Some(5), "{status}");
        let log = gateway.log();
        assert!(log.contains("unknown user or wrong password") && !log.contains("nobody"), "{log}");
    });
}

#[test]
fn a_listener_may_let_clients_in_that_present_nothing() {
    let listener = "[[listener]]\nurl = \"mqtt://127.0.0.1:{port}\"\nallow_anonymous = true\n";
    let gateway = Place::new().users(&["ann"]).config(listener).start();
    for_both_versions(|version| {
        assert_eq!(refusal(&gateway, &Login::fresh(version, "x")), 0);
        assert_eq!(refusal(&gateway, &login(version, "ann")), 0);
        let wrong = Login::fresh(version, "y").user("ann", "wrong");
        assert_eq!(refusal(&gateway, &wrong), BAD_PASSWORD, "a wrong password is not nothing");
    });
}

#[test]
fn password_files_of_mosquitto_are_taken_as_they_are() {
    let gateway = Place::new().file("passwords", MOSQUITTO).config("password_file = \"passwords\"\n").start();
    for_both_versions(|version| {
        for user in ["old", "new"] {
            assert_eq!(refusal(&gateway, &Login::fresh(version, user).user(user, "secret")), 0);
            let wrong = Login::fresh(version, user).user(user, "Secret");
            assert_eq!(refusal(&gateway, &wrong), BAD_PASSWORD);
        }
    });
}

#[test]
fn passwords_are_set_changed_and_deleted_by_command() {
    let place = Place::new().users(&["ann"]);
    passwd(place.folder.path(), &["passwords", "bob"], "first one\n");
    passwd(place.folder.path(), &["passwords", "bob"], "second one\n");
    let gateway = place.start();
    let bob = |password: &str| refusal(&gateway, &Login::fresh(Version::V5, "b").user("bob", password));
    assert_eq!((bob("first one"), bob("second one")), (BAD_PASSWORD, 0));
    passwd(gateway.folder(), &["passwords", "bob", "--delete"], "");
    reload(&gateway);
    assert_eq!(bob("second one"), BAD_PASSWORD);
    assert_eq!(refusal(&gateway, &login(Version::V5, "ann")), 0);
}

#[test]
fn rules_are_applied_and_told_in_true_codes() {
    for_both_versions(|version| {
        let rules =
            "deny subscribe exactly #\nallow read,write own/%u/# \nallow read news/+\nallow read pub/%c\n";
        let gateway = Place::new().users(&["ann", "bob"]).rules(rules).start();
        let (mut ann, mut bob) = (open(&gateway, version, "ann"), open(&gateway, version, "bob"));
        let filters = [
            "own/ann/#",
            "own/bob/#",
            "own/#",
            "#",
            "news/a",
            "news/#",
            "pub/of-ann",
            "pub/other",
            "$share/g/own/#",
        ];
        let filters: Vec<_> = filters.into_iter().map(|filter| Filter::new(filter, 1)).collect();
        let refused = if version.is_v5() { NOT_AUTHORIZED } else { 0x80 };
        let outcomes = [1, refused, 1, refused, 1, 1, 1, refused, refused];
        assert_eq!(ann.subscribe_all(None, &filters).unwrap(), outcomes);
        let refused = if version.is_v5() { NOT_AUTHORIZED } else { 0 };
        assert_eq!(bob.publish(&Message::new("own/ann/a", "of bob", 1)).unwrap(), refused);
        assert_eq!(bob.publish(&Message::new("own/ann/a", "of bob", 2)).unwrap(), refused);
        bob.publish(&Message::new("own/ann/a", "of bob", 0)).unwrap();
        bob.publish(&Message::new("own/bob/a", "of bob", 1)).unwrap();
        ann.publish(&Message::new("own/ann/a", "of ann", 1)).unwrap();
        assert_eq!(
            ann.message().unwrap().text(),
            "of ann",
            "what lies in own/# and is not hers is kept from her"
        );
        let denied = gateway.status()["traffic"]["denied"].clone();
        assert_eq!(
            (denied["publish"].as_u64(), denied["subscribe"].as_u64()),
            (Some(3), Some(4)),
            "{denied}"
        );
        let will = |topic| Login::fresh(version, "w").user("bob", "bob").will(Will::new(topic, "x", 0));
        assert_eq!(refusal(&gateway, &will("own/ann/w")), NOT_AUTHORIZED);
        assert_eq!(refusal(&gateway, &will("own/bob/w")), 0);
    });
}

#[test]
fn the_explanation_says_what_the_broker_does() {
    let rules = "allow all own/%u/#\ndeny read secret/#\nallow read # user ann\nallow write in/%c user b*\n";
    let gateway = Place::new().users(&["ann", "bob", "b+b"]).rules(rules).start();
    let questions = [
        ("ann", "write", "own/ann/x"),
        ("ann", "write", "own/bob/x"),
        ("ann", "write", "in/of-ann"),
        ("bob", "write", "in/of-bob"),
        ("bob", "write", "in/of-ann"),
        ("b+b", "write", "own/b+b/x"),
        ("b+b", "write", "in/of-b+b"),
        ("ann", "subscribe", "#"),
        ("ann", "subscribe", "secret/#"),
        ("ann", "subscribe", "$share/g/#"),
        ("ann", "subscribe", "$share/g/a/b/#"),
        ("bob", "subscribe", "#"),
        ("bob", "subscribe", "other/#"),
        ("b+b", "subscribe", "own/+/#"),
    ];
    for (user, action, topic) in questions {
        let mut client = open(&gateway, Version::V5, user);
        let told = gateway.run(&["acl", "explain", user, &format!("of-{user}"), action, topic]);
        if topic.contains('+') && action == "write" {
            assert!(told.output.contains("contains a wildcard"), "{}", told.output);
            continue;
        }
        let done = match action {
            "write" => client.publish(&Message::new(topic, "x", 1)).unwrap() < 0x80,
            _ => client.subscribe_all(None, &[Filter::new(topic, 0)]).unwrap()[0] < 0x80,
        };
        assert_eq!(told.status.code(), Some(i32::from(!done)), "{user} {action} {topic}: {}", told.output);
        assert!(told.output.starts_with(if done { "allowed: " } else { "denied: " }), "{}", told.output);
    }
    let told = gateway.run(&["acl", "explain", "ann", "c", "read", "secret/a"]);
    let place = format!("{}:2: deny read secret/#", gateway.folder().join("acl").display());
    assert!(told.output.contains(&place), "{}", told.output);
    let told = gateway.run(&["acl", "explain", "a/b", "c", "write", "own/a"]);
    assert!(told.output.contains(":1: does not apply: %u"), "{}", told.output);
}

#[test]
fn a_withdrawn_right_stops_deliveries_at_once_in_the_middle_of_traffic() {
    for_both_versions(|version| {
        let open_rules = "allow all # user pub\nallow read # user sub\n";
        let gateway = Place::new().users(&["pub", "sub"]).rules(open_rules).start();
        let mut subscriber = open(&gateway, version, "sub");
        subscriber.subscribe("#", 1).unwrap();
        let mut publisher = open(&gateway, version, "pub");
        let traffic = |publisher: &mut Client, from: u32| {
            for n in from..from + 20 {
                for qos in [0, 1] {
                    publisher.publish(&Message::new("secret", n.to_string(), qos)).unwrap();
                    publisher.publish(&Message::new("open", n.to_string(), qos)).unwrap();
                }
            }
            publisher.publish(&Message::new("open", format!("end {from}"), 1)).unwrap();
        };
        traffic(&mut publisher, 0);
        let before = subscriber.messages_until("end 0").unwrap();
        assert!(before.iter().any(|message| message.topic == "secret"));
        write(&gateway, "acl", &format!("deny read secret\n{open_rules}"));
        reload(&gateway);
        traffic(&mut publisher, 100);
        let after = subscriber.messages_until("end 100").unwrap();
        assert!(after.iter().all(|message| message.topic == "open"), "{after:?}");
        assert_eq!(after.len(), 40);
        write(&gateway, "acl", open_rules);
        gateway.signal_reload();
        eventually("the right is back", PATIENCE, || {
            publisher.publish(&Message::new("secret", "again", 1)).unwrap();
            match subscriber.message_within(Duration::from_millis(100)).unwrap() {
                Some(message) if message.topic == "secret" => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
    });
}

#[test]
fn a_file_that_is_wrong_leaves_everything_as_it_was_and_says_where() {
    let (options, folder) = Place::new().users(&["ann"]).rules("allow all # user ann\n").options();
    let gateway = options.expect_error("was not read again").start_in(folder);
    let mut client = open(&gateway, Version::V5, "ann");
    let passwords = std::fs::read_to_string(gateway.folder().join("passwords")).unwrap();
    for (name, content, said) in [
        ("acl", "deny all #\n\nallow everything #\n", "acl:3: \"everything\" is no action"),
        ("passwords", "bob:plain\n", "passwords:1: user \"bob\": the password is not hashed"),
        ("tidegate.toml", "[access]\npasword_file = \"x\"\n", "did you mean \"password_file\""),
        ("tidegate.toml", "[access]\npassword_file = \"missing\"\n", "missing: cannot be opened"),
    ] {
        let good = std::fs::read_to_string(gateway.folder().join(name)).unwrap();
        write(&gateway, name, content);
        let done = gateway.run(&["reload"]);
        assert_eq!(done.status.code(), Some(2), "{}", done.output);
        assert!(done.output.contains(said), "{}", done.output);
        assert_eq!(
            client.publish(&Message::new("a", "x", 1)).unwrap(),
            ReasonCode::NoMatchingSubscribers.byte()
        );
        assert_eq!(refusal(&gateway, &Login::fresh(Version::V5, "n").user("ann", "ann")), 0);
        write(&gateway, name, &good);
    }
    assert_eq!(std::fs::read_to_string(gateway.folder().join("passwords")).unwrap(), passwords);
    reload(&gateway);
    client.ping().unwrap();
}

#[test]
fn a_changed_password_ends_its_connections_and_no_others() {
    let gateway = Place::new().users(&["ann", "bob", "carl"]).start();
    let clients = ["ann", "bob", "carl"].map(|user| open(&gateway, Version::V5, user));
    passwd(gateway.folder(), &["passwords", "ann"], "another\n");
    passwd(gateway.folder(), &["passwords", "carl", "--delete"], "");
    reload(&gateway);
    let [mut ann, mut bob, mut carl] = clients;
    assert_eq!(ann.closed_because().unwrap(), Some(NOT_AUTHORIZED));
    assert_eq!(carl.closed_because().unwrap(), Some(NOT_AUTHORIZED));
    bob.ping().unwrap();
    assert_eq!(refusal(&gateway, &login(Version::V5, "ann")), BAD_PASSWORD);
    assert_eq!(refusal(&gateway, &Login::fresh(Version::V5, "a").user("ann", "another")), 0);
}

#[test]
fn a_new_password_keeps_scram_and_what_users_lose_with_a_file_is_said() {
    let gateway = Place::new().users(&["ann", "bob", "carl"]).start();
    let set = |arguments: &[&str], input: &str| {
        passwd(gateway.folder(), &[&["passwords"], arguments].concat(), input)
    };
    set(&["--batch", "--scram"], "ann:1\nbob:2\n");
    let said = set(&["--batch"], "ann:one\ncarl:three\n");
    assert_eq!(said, "passwords of 2 users set; SCRAM works as before for 1 of them\n");
    let said = set(&["bob"], "two\n");
    assert_eq!(said, "password of user \"bob\" changed; SCRAM works as before\n");
    let reloaded = gateway.run(&["reload"]).output;
    assert!(!reloaded.contains("warning"), "nobody has lost anything: {reloaded}");
    let said = set(&["bob", "--no-scram"], "two\n");
    assert_eq!(said, "password of user \"bob\" changed; SCRAM no longer works, --scram brings it back\n");
    set(&["carl", "--delete"], "");
    let reloaded = gateway.run(&["reload"]).output;
    for warning in [
        "warning: the password file no longer has 1 of the users there were: carl",
        "warning: SCRAM no longer works for 1 of the users there were: bob",
    ] {
        assert!(reloaded.contains(warning), "{reloaded}");
    }
    assert_eq!(refusal(&gateway, &Login::fresh(Version::V5, "a").user("ann", "one")), 0);
}

#[test]
fn passwords_that_are_set_at_the_same_time_are_all_there() {
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for n in 0..12 {
            let folder = folder.path();
            scope.spawn(move || drop(passwd(folder, &["passwords", &format!("device-{n}")], "secret\n")));
        }
    });
    let users = std::fs::read_to_string(folder.path().join("passwords")).unwrap();
    assert_eq!(users.lines().count(), 12, "{users}");
}

#[test]
fn the_log_level_is_read_again_too_and_what_is_not_is_said() {
    let gateway = Place::new().config("[log]\nlevel = \"info\"\n").start();
    let config = "[log]\nlevel = \"debug\"\n[limits]\nreceive_max = 7\n";
    write(&gateway, "tidegate.toml", config);
    let done = gateway.run(&["reload"]);
    assert!(done.output.contains("log level debug"), "{}", done.output);
    assert!(done.output.contains("read at start only: limits"), "{}", done.output);
    let mut client = Client::dial(gateway.address(), Version::V5, None).unwrap();
    client.raw(&[0xf0, 0x00]).unwrap();
    eventually("a line at the new level", PATIENCE, || {
        if gateway.log().contains("broke the protocol") { Ok(()) } else { Err(gateway.log()) }
    });
}

#[test]
fn devices_that_all_come_back_at_a_time_get_in_while_others_are_served() {
    let users: Vec<String> = (0..30).map(|n| format!("device-{n}")).collect();
    let names: Vec<&str> = users.iter().map(String::as_str).chain(["witness"]).collect();
    let gateway = Place::new().users(&names).start();
    let mut witness = open(&gateway, Version::V5, "witness");
    witness.subscribe("t", 1).unwrap();
    for round in 0..2 {
        let mut waiting: Vec<Client> = Vec::new();
        for user in &users {
            let mut client = Client::dial(gateway.address(), Version::V5, None).unwrap();
            client.raw(&login(Version::V5, user).encode()).unwrap();
            waiting.push(client);
        }
        witness.publish(&Message::new("t", "served", 1)).unwrap();
        assert_eq!(witness.message().unwrap().text(), "served");
        if round == 0 {
            let admitted = gateway.status()["sessions"]["connected"].as_u64().unwrap();
            assert!(admitted < users.len() as u64, "no hash of a login was waited for: {admitted} are in");
        }
        for client in &mut waiting {
            client.await_connack().unwrap();
            assert_eq!(client.connack.reason, 0);
        }
    }
}

#[test]
fn an_address_that_guesses_has_to_wait_and_those_who_are_known_have_not() {
    let (_, folder) = Place::new().users(&["ann"]).options();
    let config = "[access]\nfailures_per_minute = 3\npassword_file = \"passwords\"\n";
    let gateway = GatewayOptions::new().config(config).start_in(folder);
    assert_eq!(refusal(&gateway, &login(Version::V5, "ann")), 0);
    let guess = |n: u32| refusal(&gateway, &Login::fresh(Version::V5, "g").user("ann", format!("guess {n}")));
    assert_eq!((0..3).map(guess).collect::<Vec<_>>(), [BAD_PASSWORD; 3]);
    assert_eq!(guess(4), ReasonCode::ServerBusy.byte());
    let old = Login::fresh(Version::V311, "g").user("ann", "guess");
    assert_eq!(refusal(&gateway, &old), ReasonCode::ServerUnavailable.byte());
    assert_eq!(refusal(&gateway, &login(Version::V5, "ann")), 0);
}

#[test]
fn a_session_is_not_taken_over_by_another_user() {
    for_both_versions(|version| {
        let gateway = Place::new().users(&["ann", "bob"]).start();
        let session = |user: &str| Login::persistent(version, "shared").user(user, user);
        let mut ann = session("ann").open(gateway.address()).unwrap();
        ann.subscribe("t", 1).unwrap();
        assert_eq!(refusal(&gateway, &session("bob")), NOT_AUTHORIZED);
        assert_eq!(refusal(&gateway, &session("bob").clean(true)), NOT_AUTHORIZED);
        ann.ping().unwrap();
        ann.disconnect().unwrap();
        assert_eq!(refusal(&gateway, &session("bob")), NOT_AUTHORIZED);
        assert!(session("ann").open(gateway.address()).unwrap().connack.session_present);
    });
}

/// A token for `user` that expires in `seconds`, signed with [`SECRET`].
fn token(user: &str, seconds: i64, more: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let claims = format!("{{\"sub\":\"{user}\",\"exp\":{}{more}}}", now + seconds);
    let message = format!("{}.{}", part("{\"alg\":\"HS256\",\"typ\":\"JWT\"}"), part(&claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), message.as_bytes());
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag.as_ref()))
}

#[test]
fn a_token_lets_its_holder_in_with_its_rules_until_it_expires() {
    let jwt = "[jwt]\nalgorithm = \"HS256\"\nkey_file = \"secret\"\nacl_claim = \"acl\"\n";
    let gateway = Place::new()
        .file("secret", &format!("{SECRET}\n"))
        .rules("allow read news user ann\n")
        .config(jwt)
        .start();
    for_both_versions(|version| {
        let with = |token: &str| Login::fresh(version, "t").user("ignored", token);
        assert_eq!(refusal(&gateway, &with(&token("ann", -5, ""))), BAD_PASSWORD);
        let forged = token("ann", 60, "") + "A";
        assert_eq!(refusal(&gateway, &with(&forged)), BAD_PASSWORD);
        assert_eq!(refusal(&gateway, &Login::fresh(version, "t")), NOT_AUTHORIZED);
        let mut client =
            with(&token("ann", 4, ",\"acl\":{\"pub\":[\"up/%c\"]}")).open(gateway.address()).unwrap();
        let filters = [Filter::new("news", 1), Filter::new("up/t", 1)];
        let refused = if version.is_v5() { NOT_AUTHORIZED } else { 0x80 };
        assert_eq!(client.subscribe_all(None, &filters).unwrap(), [1, refused]);
        if version.is_v5() {
            assert_eq!(client.publish(&Message::new("up/other", "x", 1)).unwrap(), NOT_AUTHORIZED);
            assert_ne!(client.publish(&Message::new("up/t", "x", 1)).unwrap(), NOT_AUTHORIZED);
        }
        let reason = client.closed_because().unwrap();
        assert_eq!(reason, version.is_v5().then_some(NOT_AUTHORIZED), "at its expiry");
    });
}

#[test]
fn a_configuration_with_bad_files_does_not_start_and_check_says_so_before() {
    for (config, acl, said) in [
        ("[access]\nacl_file = \"acl\"\n", "allow\n", "acl:1: expected allow or deny"),
        ("[access]\npassword_file = \"nowhere\"\n", "", "nowhere: cannot be opened"),
        ("[access]\ndefault = \"allow\"\n", "", "tidegate.toml:2: access.default"),
        ("[jwt]\nalgorithm = \"HS256\"\n", "", "jwt.algorithm: has no effect without `key_file`"),
        ("[jwt]\nkey_file = \"acl\"\nalgorithm = \"HS256\"\n", "short", "needs at least 32"),
        ("[[listener]]\nurl = \"mqtt://127.0.0.1:1\"\nallow_anonymous = false\n", "", "lets nobody in"),
        ("[[listener]]\nurl = \"mqtt://0.0.0.0:1\"\nallow_anonymous = true\n", "", "allow_anonymous_remote"),
        ("[[listener]]\nurl = \"mqtt://0.0.0.0:1\"\n", "", "clients are not authenticated"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tidegate.toml");
        std::fs::write(&file, config).unwrap();
        std::fs::write(folder.path().join("acl"), acl).unwrap();
        let data = folder.path().join("data").display().to_string();
        for command in ["check", "run"] {
            let arguments = [command, "--data-dir", &data, "--config", file.to_str().unwrap()];
            let done = crate::harness::run_program(&arguments, folder.path());
            assert_eq!(done.status.code(), Some(2), "{command}: {}", done.output);
            assert!(done.output.contains(said), "{command}: {}", done.output);
        }
    }
}

/// A program of Mosquitto, if this machine has it.
fn mosquitto(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    let required = std::env::var_os("CI").is_some() && std::env::var_os("TIDEGATE_ALLOW_SKIP").is_none();
    assert!(found.is_some() || !required, "{name} is missing; see tests/README.md");
    if found.is_none() {
        eprintln!("SKIPPED, NOTHING WAS TESTED: {name} is missing; see tests/README.md");
    }
    found
}

#[test]
fn mosquittos_own_programs_log_in_with_the_passwords_that_they_have_made() {
    let (Some(set), Some(publish)) = (mosquitto("mosquitto_passwd"), mosquitto("mosquitto_pub")) else {
        return;
    };
    let place = Place::new().config("password_file = \"passwords\"\n");
    let made = |arguments: &[&str]| {
        let done = Command::new(&set).current_dir(place.folder.path()).args(arguments).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    made(&["-c", "-b", "passwords", "ann", "ann"]);
    made(&["-b", "-H", "sha512", "passwords", "bob", "bob"]);
    passwd(place.folder.path(), &["passwords", "carl"], "carl\n");
    let gateway = place.start();
    for user in ["ann", "bob", "carl"] {
        for (password, good) in [(user, true), ("wrong", false)] {
            let port = gateway.address().port().to_string();
            let publish = Command::new(&publish)
                .args([
                    "-h",
                    "127.0.0.1",
                    "-p",
                    &port,
                    "-q",
                    "1",
                    "-t",
                    "t",
                    "-m",
                    "x",
                    "-u",
                    user,
                    "-P",
                    password,
                ])
                .output()
                .unwrap();
            assert_eq!(publish.status.success(), good, "{user}: {publish:?}");
        }
    }
}
