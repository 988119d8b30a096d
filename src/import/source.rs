//! The files as Mosquitto reads them: lines, included folders, and which listener or bridge a line belongs to.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::options::{self, Fate, Scope};
use super::report::{LineId, Place, Report};
use super::{Files, ImportError, value};
use crate::settings::nearest;

/// Lines of all files together.
const LINES_MAX: usize = 200_000;

/// An option that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its finding.
    pub id: LineId,
    /// Its canonical name.
    pub name: &'static str,
    /// The rest of the line, without white space at its ends.
    pub value: String,
}

/// The options of the broker, of a listener or of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// The line that begins it; a default listener has none.
    pub head: Option<Line>,
    lines: Vec<Line>,
}

impl Section {
    fn of(head: Line) -> Self {
        Self { head: Some(head), lines: Vec::new() }
    }

    /// The option as it was given last.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Line> {
        self.lines.iter().rfind(|line| line.name == name)
    }

    /// All lines of an option that may be repeated.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Line> {
        self.lines.iter().filter(move |line| line.name == name)
    }

    /// Whether Mosquitto opens this listener: one without a `listener` line only if it was given something to serve.
    #[must_use]
    pub fn opens(&self) -> bool {
        self.head.is_some() || self.lines.iter().any(opens)
    }

    /// All lines.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }
}

/// All files, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// About the broker.
    pub general: Section,
    /// About access, for all listeners.
    pub security: Section,
    /// In their order. Their options about access are among the others.
    pub listeners: Vec<Section>,
    /// In their order.
    pub bridges: Vec<Section>,
    /// Options about access were given for each listener.
    pub per_listener: bool,
    default_listener: Option<usize>,
}

/// Options that open the default listener, on every address, whatever their value is.
const OPENING: [&str; 19] = [
    "bind_address",
    "bind_interface",
    "cafile",
    "capath",
    "certfile",
    "ciphers",
    "ciphers_tls1.3",
    "crlfile",
    "dhparamfile",
    "keyfile",
    "mount_point",
    "password_file",
    "plugin",
    "port",
    "psk_file",
    "psk_hint",
    "socket_domain",
    "tls_engine",
    "tls_engine_kpass_sha1",
];
/// Options that open it unless they say what would hold without them.
const OPENING_UNLESS: [(&str, &str); 8] = [
    ("allow_zero_length_clientid", "true"),
    ("max_connections", "-1"),
    ("max_qos", "2"),
    ("protocol", "mqtt"),
    ("require_certificate", "false"),
    ("use_identity_as_username", "false"),
    ("use_subject_as_username", "false"),
    ("use_username_as_clientid", "false"),
];

fn opens(line: &Line) -> bool {
    let value = line.value.split_whitespace().next().unwrap_or_default();
    OPENING.contains(&line.name)
        || OPENING_UNLESS.iter().any(|(name, default)| line.name == *name && value != *default)
}

/// Options that may be repeated.
const REPEATED: [&str; 7] =
    ["log_dest", "log_type", "topic", "plugin", "plugin_use", "websockets_origin", "include_dir"];

/// Reads the file and what it includes.
///
/// # Errors
/// When a file or folder cannot be read.
pub fn read(main: &Path, files: &dyn Files, report: &mut Report) -> Result<Source, ImportError> {
    let mut source = Source::default();
    let mut reader = Reader { main, files, report, lines: 0, read: BTreeSet::new() };
    reader.file(main, &mut source, true)?;
    source.close_default(report);
    Ok(source)
}

struct Reader<'a> {
    main: &'a Path,
    files: &'a dyn Files,
    report: &'a mut Report,
    lines: usize,
    /// Files that were read; none is read twice, whatever includes it.
    read: BTreeSet<PathBuf>,
}

/// What the lines of one file belong to; the next file starts anew.
#[derive(Default)]
struct Current {
    listener: Option<usize>,
    bridge: Option<usize>,
}

impl Reader<'_> {
    fn file(&mut self, path: &Path, source: &mut Source, is_main: bool) -> Result<(), ImportError> {
        let name = path.display().to_string();
        self.read.insert(path.to_owned());
        let text = self.files.read(path).map_err(|what| ImportError { place: name.clone(), what })?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let mut current = Current::default();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            self.lines += 1;
            if self.lines > LINES_MAX {
                let what = format!("there are more than {LINES_MAX} lines; this cannot be a configuration");
                return Err(ImportError { place: name, what });
            }
            let place = Place { file: name.clone(), line: number };
            self.line(place, line, source, &mut current, is_main)?;
        }
        Ok(())
    }

    fn line(
        &mut self,
        place: Place,
        text: &str,
        source: &mut Source,
        current: &mut Current,
        is_main: bool,
    ) -> Result<(), ImportError> {
        let (option, value) = text.split_once([' ', '\t']).unwrap_or((text, ""));
        let id = self.report.line(place, &value::shown(option));
        let Some(known) = options::find(options::canonical(option)) else {
            self.unknown(id, option);
            return Ok(());
        };
        let line = Line { id, name: known.name, value: value.trim().to_owned() };
        match known.fate {
            Fate::Decided if line.name == "include_dir" => return self.include(&line, source, is_main),
            Fate::Decided => {}
            Fate::Same(text) => self.report.same(id, text),
            Fate::Dropped(text) => self.report.dropped(id, text),
            Fate::Bool(equal, verdict, text) => match value::boolean(&line.value) {
                Ok(given) if given == equal => self.report.same(id, "this is what holds"),
                Ok(_) => self.report.say(id, verdict, text),
                Err(what) => self.report.dropped(id, what),
            },
        }
        self.put(line, known.scope, source, current);
        Ok(())
    }

    fn unknown(&mut self, id: LineId, option: &str) {
        let near = nearest(option, options::names());
        let text = match near {
            Some(near) => format!("Mosquitto has no such option; is \"{near}\" meant?"),
            None => "Mosquitto has no such option".into(),
        };
        self.report.dropped(id, text);
    }

    fn include(&mut self, line: &Line, source: &mut Source, is_main: bool) -> Result<(), ImportError> {
        if !is_main {
            self.report.dropped(line.id, "Mosquitto takes it in the main file only");
            return Ok(());
        }
        let folder = match value::string(&line.value) {
            Ok(folder) => self.main.parent().unwrap_or(Path::new("")).join(folder),
            Err(what) => {
                self.report.dropped(line.id, what);
                return Ok(());
            }
        };
        let place = self.report.place(line.id).to_string();
        let names = self.files.list(&folder).map_err(|what| ImportError {
            place: format!("{place}: include_dir"),
            what: format!("{}: {what}", folder.display()),
        })?;
        let (again, included): (Vec<_>, Vec<_>) =
            in_order(names).into_iter().partition(|path| self.read.contains(path));
        let mut text = match included.len() {
            0 if again.is_empty() => format!("{} holds no file that ends in .conf", folder.display()),
            0 => "no file was read".into(),
            1 => "one file was read".into(),
            count => format!("{count} files were read"),
        };
        for path in again {
            text += &format!("; {} was read before, and is not read a second time", path.display());
        }
        self.report.carried(line.id, text);
        for path in included {
            self.file(&path, source, false)?;
        }
        Ok(())
    }

    fn put(&mut self, line: Line, scope: Scope, source: &mut Source, current: &mut Current) {
        match (scope, line.name) {
            (_, "per_listener_settings") => {
                if let Ok(value) = value::boolean(&line.value) {
                    source.per_listener = value;
                }
                self.add(&mut source.general, line);
            }
            (_, "listener") => {
                source.listeners.push(Section::of(line));
                current.listener = Some(source.listeners.len() - 1);
            }
            (_, "connection") => {
                source.bridges.push(Section::of(line));
                current.bridge = Some(source.bridges.len() - 1);
            }
            (_, "port" | "bind_address") => {
                let at = source.default_listener();
                current.listener = Some(at);
                self.add(&mut source.listeners[at], line);
            }
            (Scope::General, _) => self.add(&mut source.general, line),
            (Scope::Security, _) if !source.per_listener => self.add(&mut source.security, line),
            (Scope::Security | Scope::Listener, _) => {
                let at = *current.listener.get_or_insert_with(|| source.default_listener());
                self.add(&mut source.listeners[at], line);
            }
            (Scope::Bridge, _) => match current.bridge {
                Some(at) => self.add(&mut source.bridges[at], line),
                None => self.report.dropped(line.id, "stands before the first `connection` line of its file"),
            },
        }
    }

    fn add(&mut self, section: &mut Section, line: Line) {
        if !REPEATED.contains(&line.name) && !line.name.ends_with('*') {
            let place = self.report.place(line.id).to_string();
            for at in (0..section.lines.len()).rev() {
                if section.lines[at].name == line.name {
                    let old = section.lines.remove(at);
                    self.report.same(old.id, format!("{place} takes its place"));
                }
            }
        }
        section.lines.push(line);
    }
}

impl Source {
    fn default_listener(&mut self) -> usize {
        *self.default_listener.get_or_insert_with(|| {
            self.listeners.push(Section::default());
            self.listeners.len() - 1
        })
    }

    /// Takes the default listener away if Mosquitto does not open it beside the others.
    fn close_default(&mut self, report: &mut Report) {
        let Some(at) = self.default_listener else { return };
        if self.listeners[at].opens() || !self.listeners.iter().any(Section::opens) {
            return;
        }
        for line in self.listeners.remove(at).lines {
            report.same(line.id, "it stands before the first listener, where it has no effect in Mosquitto");
        }
        self.default_listener = None;
    }
}

/// The files to include, in the order in which Mosquitto reads them.
fn in_order(names: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut names: Vec<_> = names
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "conf"))
        .collect();
    // Letter by letter, each first without its case and then with it; what lies between the cases in ASCII comes behind both.
    let key = |path: &PathBuf| -> Vec<(u8, u8)> {
        let name = path.file_name().unwrap_or_default().as_bytes();
        name.iter().map(|byte| (byte.to_ascii_uppercase(), *byte)).collect()
    };
    names.sort_by_cached_key(key);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn included_files_come_in_alphabetical_order_upper_case_first() {
        let names = ["_b", "b", "aa", "01", "a", "B", "00", "Ab", "a-b", "AA", "[", "~", "aB", "ab"];
        let paths = names.iter().map(|name| format!("{name}.conf").into());
        let sorted = in_order(paths.chain(["x.conf.bak", "conf", "x.CONF"].map(PathBuf::from)).collect());
        let sorted: Vec<_> = sorted.iter().map(|path| path.file_stem().unwrap().to_str().unwrap()).collect();
        let expected = ["00", "01", "AA", "Ab", "a-b", "a", "aa", "aB", "ab", "B", "b", "[", "_b", "~"];
        assert_eq!(sorted, expected, "as Mosquitto 2.0.11 says that it reads them");
    }
}
