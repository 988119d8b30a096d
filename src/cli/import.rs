//! `tidegate import-mosquitto`: reads the files, writes what came out, tells what became of each line.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;

use super::{EXIT_INCOMPLETE, say};
use crate::import::{self, CONFIG_NAME, Files, Import, OutFile, Target};

/// Size of one file in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Files in one folder.
const FOLDER_FILES_MAX: usize = 1000;
/// What is written may hold passwords.
const MODE: u32 = 0o600;
/// Former files of one name that are kept.
const KEPT_MAX: usize = 99;

/// What to read and where to write.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Without --output the configuration goes to standard output, and files beside it (rules, passwords) are not written. What became \
of each line is told on standard error as FILE:LINE: OPTION: and what was done.

Exit codes: 0 everything was carried over, 1 failure, 2 the files cannot be read, 3 something was NOT carried over.")]
pub struct ImportArgs {
    /// Mosquitto's configuration, such as /etc/mosquitto/mosquitto.conf; what it includes is read too.
    file: PathBuf,
    /// Folder for tidegate.toml, the access rules and the password files.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Takes the place of files in the folder, which are kept as NAME.old1 and so on.
    #[arg(long, requires = "output")]
    force: bool,
}

/// Does it.
pub fn import(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let target = if args.output.is_some() { Target::Folder } else { Target::Text };
    let import = import::import(&args.file, &Disk, target)?;
    match &args.output {
        None => say(&import.config)?,
        Some(folder) => write(folder, &import, args.force)?,
    }
    eprint!("{}", import.report);
    if let Some(folder) = &args.output {
        let config = folder.join(CONFIG_NAME);
        eprintln!("written to {}; next: tidegate check --config {}", folder.display(), config.display());
        if rustix::process::geteuid().is_root() {
            eprintln!("before a service of another user reads it: chown -R tidegate: {}", folder.display());
        }
    }
    Ok(if import.report.is_complete() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_INCOMPLETE) })
}

/// All or nothing as far as existing files are concerned: they are looked for before anything is written. They are kept, because
/// users may have been added to them since they were written.
fn write(folder: &Path, import: &Import, force: bool) -> anyhow::Result<()> {
    fs::create_dir_all(folder)
        .with_context(|| format!("the folder {} cannot be created", folder.display()))?;
    let config = OutFile { name: CONFIG_NAME.into(), content: import.config.clone() };
    let files: Vec<_> = import.files.iter().chain([&config]).collect();
    if !force && let Some(there) = files.iter().map(|file| folder.join(&file.name)).find(|path| path.exists())
    {
        bail!("{} exists already; choose another folder, or replace it with --force", there.display());
    }
    for file in files {
        let path = folder.join(&file.name);
        if force && let Some(kept) = set_aside(&path, &file.content)? {
            eprintln!("{} is kept as {}", path.display(), kept.display());
        }
        write_one(&path, &file.content).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

/// Moves a file out of the way of another one with `content`, and says where to. One that is the same needs no copy.
fn set_aside(path: &Path, content: &str) -> anyhow::Result<Option<PathBuf>> {
    if !path.exists() {
        return Ok(None);
    }
    if fs::read(path).is_ok_and(|old| old == content.as_bytes()) {
        // The mode of a file that is there would stay as it is.
        fs::remove_file(path).with_context(|| format!("{} cannot be replaced", path.display()))?;
        return Ok(None);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let kept = (1..=KEPT_MAX)
        .map(|number| path.with_file_name(format!("{name}.old{number}")))
        .find(|kept| !kept.exists())
        .with_context(|| format!("{}: there are {KEPT_MAX} old ones; remove some", path.display()))?;
    fs::rename(path, &kept).with_context(|| format!("{} cannot be set aside", path.display()))?;
    Ok(Some(kept))
}

fn write_one(path: &Path, content: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
    file.write_all(content.as_bytes())?;
    file.sync_all()
}

/// The files of this machine.
struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> Result<String, String> {
        let explain = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
            std::io::ErrorKind::PermissionDenied => "it may not be read; run this command as root".to_owned(),
            std::io::ErrorKind::IsADirectory => "is a folder; name the file in it".to_owned(),
            std::io::ErrorKind::InvalidData => "is not UTF-8; convert it, for example with iconv".to_owned(),
            _ => format!("cannot be read: {error}"),
        };
        let file = fs::File::open(path).map_err(explain)?;
        let mut text = String::new();
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(explain)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(format!("is larger than {FILE_BYTES_MAX} bytes; this cannot be a configuration"));
        }
        Ok(text)
    }

    fn list(&self, folder: &Path) -> Result<Vec<PathBuf>, String> {
        let explain = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                "there is no such folder; create it or remove the line".to_owned()
            }
            _ => format!("cannot be read: {error}"),
        };
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).map_err(explain)? {
            found.push(entry.map_err(explain)?.path());
            if found.len() > FOLDER_FILES_MAX {
                return Err(format!("holds more than {FOLDER_FILES_MAX} files"));
            }
        }
        Ok(found)
    }

    fn absolute(&self, path: &Path) -> PathBuf {
        std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
    }

    fn hostname(&self) -> Option<String> {
        let name = rustix::system::uname().nodename().to_str().ok()?.to_owned();
        Some(name).filter(|name| !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_replaced_is_kept_unless_it_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passwords");
        assert_eq!(set_aside(&path, "new").unwrap(), None);
        for (content, kept) in
            [("first", Some("passwords.old1")), ("second", Some("passwords.old2")), ("new", None)]
        {
            fs::write(&path, content).unwrap();
            let moved = set_aside(&path, "new").unwrap();
            assert_eq!(moved, kept.map(|name| folder.path().join(name)));
            assert!(!path.exists());
            assert!(moved.is_none_or(|moved| fs::read_to_string(moved).unwrap() == content));
        }
    }
}
