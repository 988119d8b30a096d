//! `tidegate passwd`: sets and deletes passwords in a password file.
//!
//! With `--scram` the line serves MQTT's extended authentication too. It takes the place of the other one: whoever steals the file
//! tries passwords against the weaker of two, so that the stronger one beside it would be of no use.
//!
//! The file is replaced as a whole, after the new one is on the disk; its other lines stay as they are.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::num::NonZeroU32;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use ring::rand::{SecureRandom, SystemRandom};
use rustix::fs::{Gid, Uid};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use super::say;
use crate::access::Users;
use crate::access::password::{PASSWORD_BYTES_MAX, SALT_BYTES, Stored};
use crate::access::scram::{self, Verifier};
use crate::access::users::{DECOY_BYTES, DECOY_PREFIX, check_name};
use crate::settings::ACCESS_FILE_BYTES_MAX;

/// Of a new file: its owner alone.
const MODE: u32 = 0o600;

/// Whose password, in which file.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "The password is asked for twice, or read from the first line of standard input. A running broker takes up \
the file with: tidegate reload"
)]
pub struct PasswdArgs {
    /// The password file; made if it does not exist.
    file: PathBuf,
    /// The user.
    #[arg(required_unless_present = "batch")]
    user: Option<String>,
    /// Takes the user out of the file.
    #[arg(long, short = 'D', conflicts_with = "batch")]
    delete: bool,
    /// Reads lines USER:PASSWORD from standard input and sets all of them.
    #[arg(long, conflicts_with = "user")]
    batch: bool,
    /// Stores passwords so that SCRAM-SHA-256 works too, for MQTT 5.0 clients that prove a password without sending it.
    #[arg(long, conflicts_with = "delete")]
    scram: bool,
    /// How many times a client has to hash its password for that.
    #[arg(
        long,
        requires = "scram",
        value_name = "COUNT",
        default_value_t = scram::ITERATIONS,
        value_parser = clap::value_parser!(u32).range(i64::from(scram::ITERATIONS_MIN)..=i64::from(scram::ITERATIONS_MAX))
    )]
    iterations: u32,
}

/// How new passwords are stored.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Argon2,
    Scram(NonZeroU32),
}

/// Changes a password file.
pub fn passwd(args: &PasswdArgs) -> anyhow::Result<ExitCode> {
    let mut lines = Lines::read(&args.file)?;
    let kind = match NonZeroU32::new(args.iterations) {
        Some(iterations) if args.scram => Kind::Scram(iterations),
        _ => Kind::Argon2,
    };
    if args.scram {
        lines.add_decoys()?;
    }
    let told = match &args.user {
        Some(user) if args.delete => {
            if !lines.remove(user) {
                bail!("{}: there is no user \"{user}\"", args.file.display());
            }
            format!("user \"{user}\" deleted\n")
        }
        Some(user) => {
            check_name(user).map_err(anyhow::Error::msg)?;
            let had_scram = lines.has_scram(user);
            let existed = lines.set(user, &hashed(&ask()?, kind)?);
            let lost = had_scram && !args.scram;
            format!(
                "password of user \"{user}\" {}{}\n",
                if existed { "changed" } else { "set" },
                if lost { "; SCRAM no longer works for it, --scram brings it back" } else { "" }
            )
        }
        None => {
            let stdin = io::stdin().lock().take(ACCESS_FILE_BYTES_MAX);
            let count = batch(&mut lines, stdin, kind)?;
            format!("passwords of {count} users set\n")
        }
    };
    lines.write(&args.file)?;
    say(&told)?;
    Ok(ExitCode::SUCCESS)
}

fn batch(lines: &mut Lines, input: impl BufRead, kind: Kind) -> anyhow::Result<usize> {
    let mut count = 0;
    for (number, line) in (1..).zip(input.lines()) {
        let line = line.with_context(|| format!("standard input, line {number}"))?;
        if line.is_empty() {
            continue;
        }
        let Some((user, password)) = line.split_once(':') else {
            bail!("standard input, line {number}: expected USER:PASSWORD; nothing was changed");
        };
        check_name(user)
            .map_err(|what| anyhow::anyhow!("standard input, line {number}: {what}; nothing was changed"))?;
        let hash = hashed(password, kind).with_context(|| format!("standard input, line {number}"))?;
        lines.set(user, &hash);
        count += 1;
    }
    Ok(count)
}

fn hashed(password: &str, kind: Kind) -> anyhow::Result<String> {
    match password.len() {
        0 => bail!("the password is empty"),
        len if len > PASSWORD_BYTES_MAX => bail!("the password is longer than {PASSWORD_BYTES_MAX} bytes"),
        _ => {}
    }
    Ok(match kind {
        Kind::Argon2 => Stored::create(password.as_bytes(), &random::<SALT_BYTES>()?),
        Kind::Scram(iterations) => Verifier::create(password.as_bytes(), &random()?, iterations).to_string(),
    })
}

fn random<const BYTES: usize>() -> anyhow::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| anyhow::anyhow!("the system has no random bytes to give"))?;
    Ok(bytes)
}

/// Asks on the terminal, without showing what is typed, or reads a line.
fn ask() -> anyhow::Result<String> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return line();
    }
    let first = hidden("Password: ")?;
    if hidden("The same again: ")? != first {
        bail!("the two passwords differ; nothing was changed");
    }
    Ok(first)
}

fn hidden(prompt: &str) -> anyhow::Result<String> {
    let shown = tcgetattr(io::stdin()).context("the terminal cannot be asked")?;
    let mut silent = shown.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    silent.local_modes.insert(LocalModes::ECHONL);
    eprint!("{prompt}");
    tcsetattr(io::stdin(), OptionalActions::Flush, &silent).context("the terminal cannot be silenced")?;
    let read = line();
    tcsetattr(io::stdin(), OptionalActions::Now, &shown).context("the terminal cannot be restored")?;
    read
}

fn line() -> anyhow::Result<String> {
    let mut text = String::new();
    let most = PASSWORD_BYTES_MAX as u64 + 2;
    io::stdin().lock().take(most).read_line(&mut text).context("the password cannot be read")?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// The lines of a password file.
struct Lines {
    lines: Vec<String>,
    found: Option<fs::Metadata>,
}

impl Lines {
    /// Reads a file, which must be a good one: a slip of the pen in its name must not cost another file.
    fn read(path: &Path) -> anyhow::Result<Self> {
        let name = || path.display().to_string();
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { lines: Vec::new(), found: None });
            }
            Err(error) => return Err(error).with_context(name),
        };
        let found = file.metadata().with_context(name)?;
        if !found.is_file() || found.len() > ACCESS_FILE_BYTES_MAX {
            bail!("{}: is no password file", path.display());
        }
        let mut text = String::new();
        file.take(ACCESS_FILE_BYTES_MAX).read_to_string(&mut text).with_context(name)?;
        if let Err(error) = Users::parse(&text) {
            bail!("{}; correct the line first, nothing was changed", error.in_file(&name()));
        }
        Ok(Self { lines: text.lines().map(str::to_owned).collect(), found: Some(found) })
    }

    fn place(&self, user: &str) -> Option<usize> {
        self.lines.iter().position(|line| line.split_once(':').is_some_and(|(name, _)| name == user))
    }

    /// The user's line serves SCRAM.
    fn has_scram(&self, user: &str) -> bool {
        let hash = self.place(user).and_then(|at| self.lines[at].split_once(':'));
        hash.is_some_and(|(_, hash)| {
            Stored::parse(hash.trim_end()).is_ok_and(|stored| stored.scram().is_some())
        })
    }

    /// Gives the file a secret from which users are made up that are not there, if it has none.
    fn add_decoys(&mut self) -> anyhow::Result<()> {
        let has = self.lines.iter().any(|line| line.starts_with(DECOY_PREFIX) && !line.contains(':'));
        if !has {
            let secret = STANDARD.encode(random::<DECOY_BYTES>()?);
            self.lines.push(format!("{DECOY_PREFIX}{secret}"));
        }
        Ok(())
    }

    /// Sets a line; `true`: the user had one.
    fn set(&mut self, user: &str, hash: &str) -> bool {
        let line = format!("{user}:{hash}");
        match self.place(user) {
            Some(at) => {
                self.lines[at] = line;
                true
            }
            None => {
                self.lines.push(line);
                false
            }
        }
    }

    fn remove(&mut self, user: &str) -> bool {
        self.place(user).map(|at| self.lines.remove(at)).is_some()
    }

    /// Replaces the file. A new one is its owner's alone; one that was there keeps its owner and group, and what these may do.
    fn write(&self, path: &Path) -> anyhow::Result<()> {
        // A link is followed, so that it stays one.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let folder = match target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        let name = target.file_name().context("the path names no file")?.to_string_lossy();
        let fresh = folder.join(format!(".{name}.{}", std::process::id()));
        let written = self.write_fresh(&fresh).and_then(|()| Ok(fs::rename(&fresh, &target)?));
        if let Err(error) = written {
            let _nothing_to_lose = fs::remove_file(&fresh);
            return Err(error)
                .with_context(|| format!("{} cannot be written; nothing was changed", path.display()));
        }
        File::open(&folder).and_then(|folder| folder.sync_all()).with_context(|| folder.display().to_string())
    }

    fn write_fresh(&self, fresh: &Path) -> anyhow::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(fresh)?;
        if let Some(found) = &self.found {
            let mine = file.metadata()?;
            if (mine.uid(), mine.gid()) != (found.uid(), found.gid()) {
                let (uid, gid) = (Uid::from_raw(found.uid()), Gid::from_raw(found.gid()));
                rustix::fs::fchown(&file, Some(uid), Some(gid))
                    .context("the file belongs to somebody else, to whom the new one cannot be given")?;
            }
            file.set_permissions(fs::Permissions::from_mode(found.mode() & 0o640 | MODE))?;
        }
        for line in &self.lines {
            writeln!(file, "{line}")?;
        }
        file.sync_all()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::password::HashMemory;

    #[test]
    fn a_file_is_made_changed_and_keeps_its_other_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("passwords");
        let mut lines = Lines::read(&path).unwrap();
        assert!(!lines.set("ann", &hashed("one", Kind::Argon2).unwrap()));
        lines.lines.insert(0, "# people".into());
        lines.write(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let mut lines = Lines::read(&path).unwrap();
        assert!(lines.set("ann", &hashed("two", Kind::Argon2).unwrap()));
        assert_eq!(batch(&mut lines, &b"bob:three\n\ncarl:a:b\n"[..], Kind::Argon2).unwrap(), 2);
        lines.write(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# people\nann:$argon2id$"), "{text}");
        let users = Users::parse(&text).unwrap();
        for (user, password) in [("ann", "two"), ("bob", "three"), ("carl", "a:b")] {
            assert!(
                users.find(user).unwrap().verify(password.as_bytes(), &mut HashMemory::default()),
                "{user}"
            );
        }
        let mut lines = Lines::read(&path).unwrap();
        assert!(lines.remove("bob") && !lines.remove("bob"));
        lines.write(&path).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn lines_for_scram_take_the_place_of_others_and_the_file_gets_one_secret() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("passwords");
        let mut lines = Lines::read(&path).unwrap();
        let kind = Kind::Scram(NonZeroU32::new(scram::ITERATIONS_MIN).unwrap());
        for _ in 0..2 {
            lines.add_decoys().unwrap();
            assert_eq!(batch(&mut lines, &b"ann:one\nbob:two\n"[..], kind).unwrap(), 2);
        }
        lines.set("carl", &hashed("three", Kind::Argon2).unwrap());
        lines.write(&path).unwrap();
        let mut lines = Lines::read(&path).unwrap();
        assert_eq!(lines.lines.len(), 4);
        assert!(lines.has_scram("ann") && !lines.has_scram("carl") && !lines.has_scram("dora"));
        let users = Users::parse(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(users.len(), 3);
        assert!(users.decoy_secret().is_some() && users.verifier("bob").is_some());
        assert!(users.find("ann").unwrap().verify(b"one", &mut HashMemory::default()));
        assert!(lines.set("ann", &hashed("one", Kind::Argon2).unwrap()) && !lines.has_scram("ann"));
    }

    #[test]
    fn the_group_keeps_its_right_to_read_and_everybody_else_loses_theirs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("passwords");
        fs::write(&path, "").unwrap();
        for (before, after) in [(0o644, 0o640), (0o600, 0o600), (0o640, 0o640), (0o400, 0o600)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(before)).unwrap();
            Lines::read(&path).unwrap().write(&path).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, after, "{before:o}");
        }
    }

    #[test]
    fn what_is_no_password_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        fs::write(&path, "[limits]\n").unwrap();
        let error = Lines::read(&path).err().unwrap().to_string();
        assert!(error.contains("config.toml:1: expected USER:HASH"), "{error}");
        let mut lines = Lines { lines: Vec::new(), found: None };
        let error = batch(&mut lines, &b"ann:x\nbob\n"[..], Kind::Argon2).unwrap_err().to_string();
        assert!(error.contains("line 2: expected USER:PASSWORD"), "{error}");
        for bad in ["", &"x".repeat(PASSWORD_BYTES_MAX + 1)] {
            assert!(hashed(bad, Kind::Argon2).is_err());
        }
    }
}
