//! Takes a Mosquitto configuration over: files as text in, a configuration of our own and a report out. Pure: what it reads comes
//! through [`Files`].
//!
//! Invariants: every line that is no comment is reported once, with what became of it; a line that cannot be carried over never
//! makes the result more permissive than it was (a listener whose protection has no counterpart is left out); no secret is in the
//! report. Bounds: the number of lines and the size of files, see `source` and the implementation of [`Files`].
//!
//! | file | owns |
//! |---|---|
//! | `options` | the table of all options and what becomes of them |
//! | `source`, `value` | files, lines, sections, values, as Mosquitto reads them |
//! | `general`, `listener`, `access`, `acl`, `passwords`, `bridge`, `topic` | what is written for each group of options |
//! | `toml` | the text of the configuration |
//! | `report` | what is said about each line |

mod access;
mod acl;
mod bridge;
mod general;
mod listener;
mod options;
mod passwords;
mod report;
mod source;
#[cfg(test)]
mod tests;
mod toml;
mod topic;
mod value;

use std::fmt::Write;
use std::path::{Path, PathBuf};

pub use report::{Finding, Place, Report, Verdict};

use source::Line;
use toml::{Table, document};

/// The configuration's name in its folder.
pub const CONFIG_NAME: &str = "tidegate.toml";

/// Where the files come from.
pub trait Files {
    /// The text of a file.
    ///
    /// # Errors
    /// Why it cannot be read, and what to do.
    fn read(&self, path: &Path) -> Result<String, String>;

    /// The files in a folder.
    ///
    /// # Errors
    /// Why it cannot be read, and what to do.
    fn list(&self, folder: &Path) -> Result<Vec<PathBuf>, String>;

    /// The path from the root of the file system.
    fn absolute(&self, path: &Path) -> PathBuf;

    /// The name of this machine, of which Mosquitto makes client identifiers.
    fn hostname(&self) -> Option<String>;
}

/// Where the result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// One text; other files cannot be written.
    Text,
    /// A folder with the configuration and the files that it names.
    Folder,
}

/// A file to write beside the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutFile {
    /// Its name in the folder.
    pub name: String,
    /// Its content.
    pub content: String,
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The configuration.
    pub config: String,
    /// Files that it names, for [`Target::Folder`]. All of them are secrets.
    pub files: Vec<OutFile>,
    /// What became of each line.
    pub report: Report,
}

/// The configuration cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct ImportError {
    /// The file, or a line of it.
    pub place: String,
    /// What is wrong, and what to do.
    pub what: String,
}

/// Takes the configuration `main` over.
///
/// # Errors
/// When it, or something that it includes, cannot be read.
pub fn import(main: &Path, files: &dyn Files, target: Target) -> Result<Import, ImportError> {
    let mut report = Report::default();
    let source = source::read(main, files, &mut report)?;
    let folder = files.absolute(main).parent().map(Path::to_owned).unwrap_or_default();
    let paths = Paths { main, folder };
    let mut draft = Draft::new(target);
    general::general(&source, &paths, &mut draft, &mut report);
    let policy = access::access(&source, files, &paths, &mut draft, &mut report);
    listener::listeners(&source, &policy, &paths, &mut draft, &mut report);
    bridge::bridges(&source, files, &paths, &mut draft, &mut report);
    Ok(draft.finish(main, report))
}

/// How paths in the configuration are meant.
struct Paths<'a> {
    main: &'a Path,
    /// Absolute.
    folder: PathBuf,
}

impl Paths<'_> {
    fn main_name(&self) -> String {
        self.main.display().to_string()
    }

    /// The absolute path; one that was relative is told, because Mosquitto starts from wherever it was started.
    fn resolve(&self, text: &str, line: &Line, report: &mut Report) -> PathBuf {
        let path = Path::new(text);
        if path.is_relative() {
            report.say(
                line.id,
                Verdict::Differs,
                "the path is taken from the folder of mosquitto.conf; Mosquitto takes it from the folder in which it is started",
            );
        }
        self.folder.join(path)
    }
}

/// The configuration as it grows.
struct Draft {
    target: Target,
    listeners: Vec<Table>,
    store: Table,
    limits: Table,
    queue: Table,
    access: Table,
    bridges: Vec<Table>,
    admin: Table,
    log: Table,
    files: Vec<OutFile>,
}

impl Draft {
    fn new(target: Target) -> Self {
        Self {
            target,
            listeners: Vec::new(),
            store: Table::section("store"),
            limits: Table::section("limits"),
            queue: Table::section("queue"),
            access: Table::section("access"),
            bridges: Vec::new(),
            admin: Table::section("admin"),
            log: Table::section("log"),
            files: Vec::new(),
        }
    }

    /// Puts a secret into a file of its own and gives its name, if files can be written.
    fn secret(&mut self, name: &str, content: &str) -> Option<String> {
        if self.target == Target::Text {
            return None;
        }
        self.files.push(OutFile { name: name.to_owned(), content: content.to_owned() });
        Some(name.to_owned())
    }

    fn finish(self, main: &Path, report: Report) -> Import {
        let mut head = vec![
            format!("Written by `tidegate import-mosquitto` from {}.", main.display()),
            "Behind each value stands the line that it comes from. What is not here has its default."
                .to_owned(),
        ];
        let left: Vec<_> = report.findings().iter().filter(|f| f.verdict == Some(Verdict::Dropped)).collect();
        if !left.is_empty() {
            head.extend(["".into(), "NOT carried over:".to_owned()]);
            head.extend(left.iter().map(|finding| {
                let mut line = format!("{}: {}", finding.place, finding.option);
                if !finding.text.is_empty() {
                    let _ = write!(line, ": {}", finding.text);
                }
                line
            }));
        }
        let mut tables = self.listeners;
        tables.extend([self.store, self.limits, self.queue, self.access]);
        tables.extend(self.bridges);
        tables.extend([self.admin, self.log]);
        Import { config: document(&head, &tables), files: self.files, report }
    }
}
