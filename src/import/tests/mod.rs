//! Whole configurations, as people have them, and arbitrary text.

mod access;
mod groups;
mod samples;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::*;
use crate::settings::{Environment, Loaded, Overrides, SettingsError, load};

/// The folder of the configuration.
const FOLDER: &str = "/etc/mosquitto";

/// Files in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory(BTreeMap<PathBuf, String>);

impl Memory {
    pub(super) fn new(text: &str) -> Self {
        Self::default().file("mosquitto.conf", text)
    }

    pub(super) fn file(mut self, name: &str, text: &str) -> Self {
        self.0.insert(Path::new(FOLDER).join(name), text.to_owned());
        self
    }

    pub(super) fn import(&self, target: Target) -> Result<Import, ImportError> {
        import(&Path::new(FOLDER).join("mosquitto.conf"), self, target)
    }
}

impl Files for Memory {
    fn read(&self, path: &Path) -> Result<String, String> {
        self.0.get(path).cloned().ok_or_else(|| "there is no such file".to_owned())
    }

    fn list(&self, folder: &Path) -> Result<Vec<PathBuf>, String> {
        Ok(self.0.keys().filter(|path| path.parent() == Some(folder)).cloned().collect())
    }

    fn absolute(&self, path: &Path) -> PathBuf {
        Path::new("/").join(path)
    }

    fn hostname(&self) -> Option<String> {
        Some("gate".to_owned())
    }
}

/// Writes what came out into a folder and loads it as `tidegate check` does.
pub(super) fn checked(import: &Import) -> Result<Loaded, SettingsError> {
    let folder = tempfile::tempdir().unwrap();
    let written = |name: &str, content: &str| {
        let mut file =
            tempfile::Builder::new().prefix(name).rand_bytes(0).tempfile_in(folder.path()).unwrap();
        file.write_all(content.as_bytes()).unwrap();
        file
    };
    let _files: Vec<_> = import.files.iter().map(|file| written(&file.name, &file.content)).collect();
    let _config = written(CONFIG_NAME, &import.config);
    let config = folder.path().join(CONFIG_NAME);
    let loaded = load(Some(&config), &Environment::default(), &Overrides::default())?;
    loaded.settings.read_access()?;
    Ok(loaded)
}

/// What was imported from `text`, and how it loads.
pub(super) fn imported(text: &str) -> (Import, Loaded) {
    let import = Memory::new(text).import(Target::Folder).unwrap();
    let loaded =
        checked(&import).unwrap_or_else(|error| panic!("{error}\n{}{}", import.config, import.report));
    (import, loaded)
}

/// Verdict and text of the first line of an option.
pub(super) fn said<'a>(import: &'a Import, option: &str) -> (Verdict, &'a str) {
    let finding = import.report.findings().iter().find(|finding| finding.option == option);
    let finding = finding.unwrap_or_else(|| panic!("nothing is said about {option}:\n{}", import.report));
    (finding.verdict.unwrap(), &finding.text)
}

/// Every line that is no comment is reported once, and something is said about it.
pub(super) fn assert_each_line_is_reported(files: &Memory, import: &Import) {
    let mut found: BTreeMap<(String, u32), usize> = BTreeMap::new();
    for finding in import.report.findings() {
        assert!(finding.verdict.is_some(), "{finding}");
        *found.entry((finding.place.file.clone(), finding.place.line)).or_default() += 1;
    }
    for (path, text) in files.0.iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "conf")) {
        let file = path.display().to_string();
        if !path.ends_with("mosquitto.conf") && !found.keys().any(|(known, _)| *known == file) {
            continue;
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (number, line) in (1..).zip(text.lines()) {
            let is_option = !line.trim().is_empty() && !line.trim().starts_with('#');
            let count = found.get(&(file.clone(), number)).copied().unwrap_or(0);
            assert_eq!(count, usize::from(is_option), "{file}:{number}: {line}\n{}", import.report);
        }
    }
}

#[test]
fn a_file_that_is_included_twice_or_by_itself_is_read_once() {
    let files = Memory::new("include_dir .\ninclude_dir conf.d\ninclude_dir ./conf.d\n")
        .file("conf.d/a.conf", "max_keepalive 60\n");
    let import = files.import(Target::Folder).unwrap();
    assert_each_line_is_reported(&files, &import);
    let said: Vec<_> = import.report.findings().iter().map(|finding| finding.text.as_str()).collect();
    assert!(said[0].contains("mosquitto.conf was read before"), "{}", import.report);
    assert_eq!(said[1], "one file was read", "{}", import.report);
    assert!(said[3].contains("a.conf was read before"), "{}", import.report);
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_with_its_place() {
    let error = Memory::default().import(Target::Text).unwrap_err();
    assert_eq!(error.to_string(), "/etc/mosquitto/mosquitto.conf: there is no such file");
}

#[test]
fn no_secret_is_in_the_report_or_in_the_configuration_of_a_folder() {
    let text = "connection c\naddress h\nremote_username u\nremote_password hunter2 hunter3\ntopic a out 1\n\
                bridge_pks 0123456789abcdef\n";
    let files = Memory::new(text);
    for target in [Target::Text, Target::Folder] {
        let import = files.import(target).unwrap();
        let report = import.report.to_string();
        assert!(!report.contains("hunter2") && !report.contains("0123456789abcdef"), "{report}");
        assert_eq!(import.config.contains("hunter2 hunter3"), target == Target::Text, "{}", import.config);
    }
    let import = files.import(Target::Folder).unwrap();
    assert_eq!(import.files, [OutFile { name: "c.password".into(), content: "hunter2 hunter3".into() }]);
}

mod arbitrary {
    use proptest::prelude::*;

    use super::super::options;
    use super::*;
    use crate::access::{RuleSet, Users};

    fn word() -> impl Strategy<Value = String> {
        let names: Vec<&'static str> = options::names().collect();
        prop_oneof![
            4 => proptest::sample::select(names).prop_map(str::to_owned),
            1 => "[a-z_]{1,12}",
            1 => "\\PC{0,8}",
            1 => Just("plugin_opt_x".to_owned()),
        ]
    }

    fn value() -> impl Strategy<Value = String> {
        let known = [
            "true",
            "false",
            "1883",
            "0",
            "-1",
            "0 /run/x.sock",
            "1883 127.0.0.1",
            "8883 ::",
            "a/# both 1",
            "\"\" in 1 a b",
            "# out 2 l/ r/",
            "host:1883 host2",
            "14d",
            "passwd",
            "acl",
            "x",
            "\"",
            "20 10",
            "10 20 30",
            "mqtt",
            "websockets",
            "$SYS/# in",
            "mqttv50",
            "file /x",
            "all",
            "conf.d",
        ];
        prop_oneof![
            6 => proptest::sample::select(known.to_vec()).prop_map(str::to_owned),
            1 => "-?[0-9]{1,22}",
            2 => "\\PC{0,20}",
            1 => "[ \t\"#/+%cu]{0,12}",
        ]
    }

    fn line() -> impl Strategy<Value = String> {
        prop_oneof![
            8 => (word(), value()).prop_map(|(word, value)| format!("{word} {value}")),
            1 => Just("listener 1883 127.0.0.1".to_owned()),
            1 => Just("connection c".to_owned()),
            1 => Just("address h".to_owned()),
            1 => Just("topic a/# both 1".to_owned()),
            1 => "\\PC{0,40}",
        ]
    }

    fn access_line() -> impl Strategy<Value = String> {
        let keyword = proptest::sample::select(vec![
            "user",
            "topic",
            "pattern",
            "topic read",
            "topic deny",
            "pattern deny",
            "#",
        ]);
        prop_oneof![4 => (keyword, value()).prop_map(|(word, value)| format!("{word} {value}")), 1 => "\\PC{0,30}"]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

        #[test]
        fn every_line_is_reported_once_and_what_is_written_loads(
            lines in proptest::collection::vec(line(), 0..30),
            more in proptest::collection::vec(line(), 0..8),
            rules in proptest::collection::vec(access_line(), 0..8),
            passwords in "(\\PC{0,12}:?\\PC{0,12}\n){0,4}",
            end in proptest::sample::select(vec!["\n", "\r\n", " \n", "\t\n"]),
        ) {
            let files = Memory::new(&lines.join(end))
                .file("conf.d/a.conf", &more.join(end))
                .file("acl", &rules.join(end))
                .file("passwd", &passwords);
            for target in [Target::Folder, Target::Text] {
                let import = files.import(target).unwrap();
                assert_each_main_line_is_reported(&files, &import);
                if target == Target::Folder {
                    prop_assert!(access_files_are_good(&import), "{:?}", import.files);
                    let loaded = checked(&import);
                    prop_assert!(loaded.is_ok(), "{}\n{}{}", loaded.unwrap_err(), import.config, import.report);
                }
            }
        }
    }

    fn access_files_are_good(import: &Import) -> bool {
        import.files.iter().all(|file| match &*file.name {
            "acl" => RuleSet::parse("acl", &file.content, false).is_ok(),
            "passwords" => Users::parse(&file.content).is_ok(),
            _ => true,
        })
    }

    /// The included file may be included twice, or not at all.
    fn assert_each_main_line_is_reported(files: &Memory, import: &Import) {
        let main = Memory(
            files
                .0
                .iter()
                .filter(|(path, _)| path.ends_with("mosquitto.conf"))
                .map(|(a, b)| (a.clone(), b.clone()))
                .collect(),
        );
        assert_each_line_is_reported(&main, import);
    }
}
