//! Loading: layers, places of complaints, checks that involve several keys, and the files that are shipped.

mod bridges;
mod listeners;
mod memory;
mod shipped;

use std::path::{Path, PathBuf};

use super::units::Size;
use super::*;
use crate::limits::{Overflow, QueueLimits};

/// A folder with files, and the settings loaded from its `t.toml`.
pub(super) struct Case {
    folder: tempfile::TempDir,
    environment: Environment,
    flags: Overrides,
}

impl Case {
    pub(super) fn new(text: &str) -> Self {
        let case = Self {
            folder: tempfile::tempdir().unwrap(),
            environment: Environment::default(),
            flags: Overrides::default(),
        };
        case.file("t.toml", text)
    }

    pub(super) fn file(self, name: &str, text: &str) -> Self {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    pub(super) fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.variables.insert(name.into(), value.into());
        self
    }

    pub(super) fn set(mut self, flag: &str) -> Self {
        self.flags.set.push(flag.into());
        self
    }

    pub(super) fn listen(mut self, url: &str) -> Self {
        self.flags.listen.push(url.into());
        self
    }

    pub(super) fn memory(mut self, bytes: u64) -> Self {
        self.environment.memory_bytes = Some(bytes);
        self
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn load(&self) -> Result<Loaded, SettingsError> {
        load(Some(&self.path("t.toml")), &self.environment, &self.flags)
    }

    pub(super) fn settings(&self) -> Settings {
        self.load().unwrap().settings
    }

    /// The complaint, without the folder's name.
    pub(super) fn complaint(&self) -> String {
        let folder = format!("{}/", self.folder.path().display());
        self.load().unwrap_err().to_string().replace(&folder, "")
    }
}

#[test]
fn without_any_word_the_built_in_limits_and_two_loopback_listeners_hold() {
    let settings = Case::new("").settings();
    assert_eq!(settings, Settings::default());
    assert_eq!(settings.limits, Limits::default());
    let addresses: Vec<String> =
        settings.listeners.iter().map(|listener| listener.addr().unwrap().to_string()).collect();
    assert_eq!(addresses, ["127.0.0.1:1883", "127.0.0.1:61613"]);
    assert_eq!(settings.store_path, Path::new("/var/lib/tidegate/tidegate.db"));
    assert_eq!(settings.admin.socket, Path::new("/var/lib/tidegate/admin.sock"));
}

#[test]
fn each_layer_wins_over_the_one_before_it() {
    let case =
        Case::new("[limits]\nreceive_max = 1\npacket_max = '100KiB'\nsessions_max = 7\nconnections_max = 3");
    assert_eq!(case.settings().limits.receive_max, 1);
    let case = case
        .file("conf.d/20.toml", "limits.receive_max = 20")
        .file("conf.d/10.toml", "limits.receive_max = 10");
    assert_eq!(case.settings().limits.receive_max, 20);
    let case =
        case.file("conf.d/30.txt", "limits.receive_max = 30").variable("TIDEGATE__LIMITS__RECEIVE_MAX", "40");
    assert_eq!(case.settings().limits.receive_max, 40);
    let case = case.set("limits.receive_max=50").set("limits.packet_max=200KiB");
    let limits = case.settings().limits;
    assert_eq!(limits.receive_max, 50);
    assert_eq!(limits.packet_bytes_max, 200 << 10);
    assert_eq!(limits.sessions_max, 7);
    assert_eq!(case.load().unwrap().files.len(), 3);
}

#[test]
fn lists_of_several_files_are_joined_in_order() {
    let listener = |port| format!("[[listener]]\nurl = 'mqtt://127.0.0.1:{port}'\n");
    let case = Case::new(&(listener(1) + &listener(2))).file("conf.d/a.toml", &listener(3));
    let ports =
        |case: &Case| case.settings().listeners.iter().map(|l| l.addr().unwrap().port()).collect::<Vec<_>>();
    assert_eq!(ports(&case), [1, 2, 3]);
    let case = case.listen("mqtt://127.0.0.1:9");
    assert_eq!(ports(&case), [9]);
}

#[test]
fn a_complaint_about_a_joined_list_points_into_the_right_file() {
    let case = Case::new("[[listener]]\nurl = 'mqtt://127.0.0.1:1'")
        .file("conf.d/a.toml", "\n[[listener]]\nurl = 'mqtt://127.0.0.1:1'");
    assert_eq!(
        case.complaint(),
        "conf.d/a.toml:3: listener[1].url: another listener has the address 127.0.0.1:1 already"
    );
}

#[test]
fn every_complaint_names_place_key_and_what_is_expected() {
    let complaint = |text: &str| Case::new(text).complaint();
    for (text, said) in [
        (
            "[limits]\npacket_max = '1MB'",
            "t.toml:2: limits.packet_max: expected a size such as \"8MiB\", \"64KiB\" or a number of bytes, found \"1MB\"",
        ),
        (
            "limits.packet_max = true",
            "t.toml:1: limits.packet_max: expected a size such as \"8MiB\", \"64KiB\" or a number of bytes, found true",
        ),
        ("[limits]\n\nreceive_max = 70000", "t.toml:3: limits.receive_max: expected 1 to 65535, found 70000"),
        ("limits.receive_max = -1", "t.toml:1: limits.receive_max: expected a whole number, found -1"),
        ("limits.receive_max = 1.5", "t.toml:1: limits.receive_max: expected a whole number, found 1.5"),
        (
            "limits.receive_max = 'yes'",
            "t.toml:1: limits.receive_max: expected a whole number, found \"yes\"",
        ),
        (
            "limits.will_grace = 10",
            "t.toml:1: limits.will_grace: expected a duration with its unit, such as \"250ms\", \"10s\", \"5m\", \"12h\" or \"90d\", found 10",
        ),
        ("limits.will_grace = '1500ms'", "t.toml:1: limits.will_grace: expected whole seconds, found 1500ms"),
        ("limits.login_timeout = '2d'", "t.toml:1: limits.login_timeout: expected 100ms to 10m, found 2d"),
        (
            "limits.session_expiry_max = 'ever'",
            "t.toml:1: limits.session_expiry_max: expected a duration with its unit, such as \"250ms\", \"10s\", \"5m\", \"12h\" or \"90d\", or \"never\", found \"ever\"",
        ),
        (
            "store.file = '../x'",
            "t.toml:1: store.file: expected a plain file name; the folder is `store.data_dir`",
        ),
        (
            "[[queue_rule]]\noverflow = 'drop-head'",
            "t.toml:1: queue_rule[0].client: expected a client identifier, in which * stands for any characters",
        ),
    ] {
        assert_eq!(complaint(text), said);
    }
    for (text, start) in [
        ("queue.overflow = 'drop'", "t.toml:1: queue.overflow: "),
        ("log.format = 'xml'", "t.toml:1: log.format: "),
        ("log.level = 'tidegate=loud'", "t.toml:1: log.level: expected a level"),
        ("admin.http = ':9883'", "t.toml:1: admin.http: expected \"off\" or an address"),
        (
            "admin.http = '0.0.0.0:9883'",
            "t.toml:1: admin.http: 0.0.0.0:9883 can be reached from other machines",
        ),
        (
            "[[listener]]\nurl = 'mqtt://10.0.0.1'",
            "t.toml:2: listener[0].url: 10.0.0.1:1883 can be reached from other machines",
        ),
        (
            "[[listener]]\nurl='mqtt://10.0.0.1'\nallow_anonymous_remote='yes'",
            "t.toml:3: listener[0].allow_anonymous_remote: expected exactly the words",
        ),
        (
            "[[listener]]\nurl='mqtt://[::1]:5'\n[[listener]]\nurl='mqtt://[::1]:5'",
            "t.toml:4: listener[1].url: another listener has the address [::1]:5",
        ),
    ] {
        let said = complaint(text);
        assert!(said.starts_with(start), "{said}");
    }
}

#[test]
fn variables_and_flags_are_complained_about_by_their_names() {
    let case = || Case::new("");
    for (case, said) in [
        (
            case().variable("TIDEGATE__LIMITS__RECEIVE_MAX", "x"),
            "environment variable TIDEGATE__LIMITS__RECEIVE_MAX: limits.receive_max: expected a whole number, found \"x\"",
        ),
        (
            case().variable("TIDEGATE__LIMITS__RECIEVE_MAX", "1"),
            "environment variable TIDEGATE__LIMITS__RECIEVE_MAX: there is no key \"limits.recieve_max\"; did you mean \"limits.receive_max\"?",
        ),
        (
            case().set("limits.receive_max=0"),
            "flag --set limits.receive_max=0: limits.receive_max: expected 1 to 65535, found 0",
        ),
        (
            case().set("limits.receive_max"),
            "flag --set limits.receive_max: write it as --set section.key=value",
        ),
        (
            case().set("bridge.name=x"),
            "flag --set bridge.name=x: \"bridge.name\" is part of a list, which only a file can hold",
        ),
        (
            case().set("zzz=1"),
            "flag --set zzz=1: there is no key \"zzz\"; keys are written as section.key, such as limits.packet_max",
        ),
        (
            case().listen("stomps://127.0.0.1"),
            "flag --listen stomps://127.0.0.1: listener[0].cert_file: is missing: a TLS listener needs `cert_file` and `key_file` (PEM)",
        ),
    ] {
        assert_eq!(case.complaint(), said);
    }
}

#[test]
fn a_file_that_is_missing_or_no_toml_is_told_by_its_name() {
    let missing =
        load(Some(Path::new("/nowhere/t.toml")), &Environment::default(), &Overrides::default()).unwrap_err();
    assert!(missing.to_string().starts_with("/nowhere/t.toml: cannot be opened: "), "{missing}");
    assert!(Case::new("[store\n").complaint().starts_with("t.toml:1: "));
    let folder = Case::new("").file("conf.d/x.toml", "[limits]\nx = ");
    assert!(folder.complaint().starts_with("conf.d/x.toml:2: "), "{}", folder.complaint());
}

#[test]
fn limits_that_contradict_each_other_are_refused() {
    let said = Case::new("limits.packet_max = '3MiB'").complaint();
    assert_eq!(
        said,
        "t.toml:1: limits.packet_max: 3MiB is more than a quarter of store.ring (8MiB); lower it or set store.ring = \"12MiB\""
    );
    let said = Case::new("limits.outbox_high = '2MiB'").complaint();
    assert_eq!(said, "t.toml:1: limits.outbox_high: 2MiB is more than limits.outbox_max (1MiB)");
    let said = Case::new("store.disk_max = '16MiB'\nstore.ring = '16MiB'").complaint();
    assert!(said.starts_with("t.toml:1: store.disk_max: 16MiB leaves no room"), "{said}");
}

#[test]
fn a_default_follows_the_bound_that_it_must_not_exceed() {
    let limits =
        Case::new("[limits]\npacket_max = '16KiB'\noutboxes_max = '100KiB'\nqueue_memory_max = '64KiB'")
            .settings()
            .limits;
    assert_eq!(limits.packet_bytes_before_login_max, 16 << 10);
    assert_eq!((limits.outbox_bytes_max, limits.outbox_high_bytes), (100 << 10, 100 << 10));
    assert_eq!(limits.queue_window_bytes_max, 64 << 10);
    let said = Case::new("[limits]\npacket_max = '16KiB'\npacket_before_login_max = '32KiB'").complaint();
    assert_eq!(
        said,
        "t.toml:3: limits.packet_before_login_max: 32KiB is more than limits.packet_max (16KiB)"
    );
}

#[test]
fn a_memory_sum_above_the_budget_is_refused_part_by_part() {
    let case = Case::new("limits.memory_budget = '100MiB'");
    let said = case.complaint();
    assert!(said.starts_with("t.toml:1: limits.memory_budget: the other limits allow "), "{said}");
    assert!(
        said.contains("retained messages") && said.contains("64.0 MiB") && said.contains("\n  sum"),
        "{said}"
    );
    let sum = Limits::default().memory_worst_case();
    Case::new(&format!("limits.memory_budget = {sum}")).settings();
    Case::new(&format!("limits.memory_budget = {}", sum - 1)).complaint();
}

#[test]
fn the_data_folder_is_the_one_that_the_system_provides() {
    let folder = |root, variables: &[(&str, &str)]| {
        let variables = variables.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        let environment = Environment { variables, root, memory_bytes: None };
        load(None, &environment, &Overrides::default()).unwrap().settings.data_dir
    };
    let state = ("STATE_DIRECTORY", "/var/lib/a:/var/lib/b");
    let xdg = ("XDG_STATE_HOME", "/home/u/state");
    let home = ("HOME", "/home/u");
    assert_eq!(folder(true, &[state, xdg, home]), Path::new("/var/lib/a"));
    assert_eq!(folder(true, &[xdg, home]), Path::new("/var/lib/tidegate"));
    assert_eq!(folder(false, &[xdg, home]), Path::new("/home/u/state/tidegate"));
    assert_eq!(
        folder(false, &[("XDG_STATE_HOME", "relative"), home]),
        Path::new("/home/u/.local/state/tidegate")
    );
    assert_eq!(folder(false, &[]), Path::new("/var/lib/tidegate"));
}

#[test]
fn a_relative_path_starts_at_the_file_that_holds_it() {
    let case = Case::new("").file("conf.d/a.toml", "store.data_dir = 'data'");
    assert_eq!(case.settings().data_dir, case.path("conf.d/data"));
    assert_eq!(case.set("store.data_dir=data").settings().data_dir, Path::new("data"));
}

#[test]
fn a_queue_rule_inherits_what_it_does_not_say() {
    let case = Case::new(
        "queue.messages_max = 5\nqueue.overflow = 'drop-tail'\n[[queue_rule]]\nclient = 'a-*'\nbytes_max = '1MiB'\n\
         [[queue_rule]]\nclient = 'b'\nmessages_max = 'unlimited'\noverflow = 'reject'",
    );
    let limits = case.settings().limits;
    let rules: Vec<_> = limits.queue_rules.iter().map(|rule| (&*rule.client_pattern, rule.limits)).collect();
    let a = QueueLimits { messages_max: Some(5), bytes_max: Some(1 << 20), overflow: Overflow::DropTail };
    let b = QueueLimits { messages_max: None, bytes_max: None, overflow: Overflow::Reject };
    assert_eq!(rules, [("a-*", a), ("b", b)]);
}

#[test]
fn a_flag_keeps_the_permission_of_the_same_configured_listener_and_gives_none_to_another() {
    let words = super::resolve::ANYONE_MAY_CONNECT;
    let case =
        Case::new(&format!("[[listener]]\nurl = 'mqtt://0.0.0.0:1884'\nallow_anonymous_remote = '{words}'"));
    let case = case.listen("mqtt://0.0.0.0:1884");
    assert_eq!(case.settings().listeners[0].addr().unwrap(), "0.0.0.0:1884".parse().unwrap());
    let said = case.listen("mqtt://0.0.0.0:1885").complaint();
    assert!(said.starts_with("flag --listen mqtt://0.0.0.0:1885: "), "{said}");
}

#[test]
fn what_check_prints_loads_again_as_the_same_settings() {
    let loaded = Case::new(shipped::GATEWAY).load().unwrap();
    let again = Case::new(&effective_toml(&loaded).unwrap()).load().unwrap();
    assert_eq!(again.settings, loaded.settings);
    let defaults = Case::new("").load().unwrap();
    let again = Case::new(&effective_toml(&defaults).unwrap()).settings();
    assert_eq!(again, defaults.settings);
}

#[test]
fn the_memory_table_adds_up() {
    let settings = Case::new(shipped::GATEWAY).settings();
    let parts = memory_parts(&settings.limits, &settings.bridges, &settings.listeners);
    assert!(parts.iter().any(|(name, _)| name == "bridge datacenter"));
    assert_eq!(memory_sum(&parts), parts.iter().map(|(_, bytes)| bytes).sum::<u64>());
    assert!(memory_table(&parts).lines().last().unwrap().contains("sum"));
    assert_eq!(Size(settings.limits.ring_bytes).to_string(), "8MiB");
}
