//! `tidegate passwd`: sets and deletes passwords in a password file.
//!
//! With `--scram` the line serves MQTT's extended authentication too. It takes the place of the other one: whoever steals the file
//! tries passwords against the weaker of two, so that the stronger one beside it would be of no use. A user who has SCRAM keeps it
//! with each new password, until `--no-scram` says otherwise.
//!
//! The file is replaced as a whole, after the new one is on the disk; its other lines stay as they are. Whoever changes it at the
//! same time waits: the folder is locked meanwhile.

use std::collections::HashMap;
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
use rustix::fs::{FlockOperation, Gid, Uid, flock};
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
    /// Takes SCRAM away from users who have it. Without this they keep it.
    #[arg(long, conflicts_with_all = ["delete", "scram"])]
    no_scram: bool,
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

/// How a password is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Argon2,
    Scram(NonZeroU32),
}

/// How new passwords are to be stored.
#[derive(Clone, Copy, Debug)]
enum Wish {
    /// As the user's old one is; argon2 for new users.
    AsBefore,
    Always(Kind),
}

/// What was done about passwords.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    set: usize,
    /// Of these, serving SCRAM as before, though nothing was said about it.
    kept_scram: usize,
    lost_scram: usize,
}

impl Tally {
    /// The end of the line that says what was done.
    fn about_scram(self, of_one: bool) -> String {
        let of = |count: usize| if of_one { String::new() } else { format!(" for {count} of them") };
        match self {
            Self { lost_scram: 1.., .. } => {
                format!("; SCRAM no longer works{}, --scram brings it back", of(self.lost_scram))
            }
            Self { kept_scram: 1.., .. } => format!("; SCRAM works as before{}", of(self.kept_scram)),
            _ => String::new(),
        }
    }
}

/// Changes a password file.
pub fn passwd(args: &PasswdArgs) -> anyhow::Result<ExitCode> {
    let new = new_passwords(args)?;
    let target = followed(&args.file);
    let _until_written = lock(&target)?;
    let mut lines = Lines::read(&args.file)?;
    let wish = wish(args);
    let told = match (&args.user, new) {
        (Some(user), None) => {
            if !lines.remove(user) {
                bail!("{}: there is no user \"{user}\"", args.file.display());
            }
            format!("user \"{user}\" deleted\n")
        }
        (Some(user), Some(new)) => {
            let verb = if lines.place(user).is_some() { "changed" } else { "set" };
            let tally = lines.set_all(&new, wish)?;
            format!("password of user \"{user}\" {verb}{}\n", tally.about_scram(true))
        }
        (None, new) => {
            let tally = lines.set_all(&new.unwrap_or_default(), wish)?;
            format!("passwords of {} users set{}\n", tally.set, tally.about_scram(false))
        }
    };
    lines.write(&target)?;
    say(&told)?;
    Ok(ExitCode::SUCCESS)
}

fn wish(args: &PasswdArgs) -> Wish {
    match NonZeroU32::new(args.iterations) {
        Some(iterations) if args.scram => Wish::Always(Kind::Scram(iterations)),
        _ if args.no_scram => Wish::Always(Kind::Argon2),
        _ => Wish::AsBefore,
    }
}

/// Users and their new passwords, asked for before the file is touched; `None`: a user is to go.
fn new_passwords(args: &PasswdArgs) -> anyhow::Result<Option<Vec<(String, String)>>> {
    match &args.user {
        Some(_) if args.delete => Ok(None),
        Some(user) => {
            check_name(user).map_err(anyhow::Error::msg)?;
            let password = ask()?;
            check_password(&password)?;
            Ok(Some(vec![(user.clone(), password)]))
        }
        None => batch(io::stdin().lock()).map(Some),
    }
}

/// Reads lines `USER:PASSWORD`. What is wrong with one of them is said before anything is changed.
fn batch(input: impl Read) -> anyhow::Result<Vec<(String, String)>> {
    let mut text = String::new();
    input
        .take(ACCESS_FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .context("standard input cannot be read")?;
    if text.len() as u64 > ACCESS_FILE_BYTES_MAX {
        bail!("standard input is longer than {ACCESS_FILE_BYTES_MAX} bytes; nothing was changed");
    }
    let mut found = Vec::new();
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.is_empty()) {
        let wrong =
            |what: String| anyhow::anyhow!("standard input, line {number}: {what}; nothing was changed");
        let Some((user, password)) = line.split_once(':') else {
            return Err(wrong("expected USER:PASSWORD".into()));
        };
        check_name(user).map_err(wrong)?;
        check_password(password).map_err(|error| wrong(error.to_string()))?;
        if let Some(earlier) = seen.insert(user, number) {
            return Err(wrong(format!("user \"{user}\" stands in line {earlier} already; remove one")));
        }
        found.push((user.to_owned(), password.to_owned()));
    }
    Ok(found)
}

fn check_password(password: &str) -> anyhow::Result<()> {
    match password.len() {
        0 => bail!("the password is empty"),
        len if len > PASSWORD_BYTES_MAX => bail!("the password is longer than {PASSWORD_BYTES_MAX} bytes"),
        _ => Ok(()),
    }
}

fn hashed(password: &str, kind: Kind) -> anyhow::Result<String> {
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

/// The file that a path leads to: a link is followed, so that it stays one.
fn followed(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

fn folder_of(target: &Path) -> &Path {
    target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Waits until nobody else changes a password file there: of two that read the same file the second would undo what the first has
/// written. The file itself is no place for a lock, since it is replaced.
fn lock(target: &Path) -> anyhow::Result<File> {
    let name = || folder_of(target).display().to_string();
    let folder = File::open(folder_of(target)).with_context(name)?;
    flock(&folder, FlockOperation::LockExclusive).with_context(name)?;
    Ok(folder)
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

    /// The iterations of the user's line, if it serves SCRAM.
    fn scram(&self, user: &str) -> Option<NonZeroU32> {
        let (_, hash) = self.lines[self.place(user)?].split_once(':')?;
        Stored::parse(hash.trim_end()).ok()?.scram().map(Verifier::iterations)
    }

    /// Sets passwords, each as its user's was stored before unless the wish is another.
    fn set_all(&mut self, new: &[(String, String)], wish: Wish) -> anyhow::Result<Tally> {
        let mut tally = Tally { set: new.len(), ..Tally::default() };
        for (user, password) in new {
            let before = self.scram(user);
            let kind = match (wish, before) {
                (Wish::Always(kind), _) => kind,
                (Wish::AsBefore, Some(iterations)) => Kind::Scram(iterations),
                (Wish::AsBefore, None) => Kind::Argon2,
            };
            match (kind, before) {
                (Kind::Argon2, Some(_)) => tally.lost_scram += 1,
                (Kind::Scram(_), Some(_)) if matches!(wish, Wish::AsBefore) => tally.kept_scram += 1,
                _ => {}
            }
            if kind != Kind::Argon2 {
                self.add_decoys()?;
            }
            self.set(user, &hashed(password, kind)?);
        }
        Ok(tally)
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

    /// Replaces the file, whose path holds no link. A new one is its owner's alone; one that was there keeps its owner and group,
    /// and what these may do.
    fn write(&self, target: &Path) -> anyhow::Result<()> {
        let folder = folder_of(target);
        let name = target.file_name().context("the path names no file")?.to_string_lossy();
        let fresh = folder.join(format!(".{name}.{}", std::process::id()));
        let written = self.write_fresh(&fresh).and_then(|()| Ok(fs::rename(&fresh, target)?));
        if let Err(error) = written {
            let _nothing_to_lose = fs::remove_file(&fresh);
            return Err(error)
                .with_context(|| format!("{} cannot be written; nothing was changed", target.display()));
        }
        File::open(folder).and_then(|folder| folder.sync_all()).with_context(|| folder.display().to_string())
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

    fn set(lines: &mut Lines, text: &str, wish: Wish) -> Tally {
        lines.set_all(&batch(text.as_bytes()).unwrap(), wish).unwrap()
    }

    fn scram() -> Wish {
        Wish::Always(Kind::Scram(NonZeroU32::new(scram::ITERATIONS_MIN).unwrap()))
    }

    fn users(lines: &Lines) -> Users {
        Users::parse(&lines.lines.join("\n")).unwrap()
    }

    fn is_password(users: &Users, user: &str, password: &str) -> bool {
        users.find(user).unwrap().verify(password.as_bytes(), &mut HashMemory::default())
    }

    #[test]
    fn a_file_is_made_changed_and_keeps_its_other_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("passwords");
        let mut lines = Lines::read(&path).unwrap();
        assert_eq!(set(&mut lines, "ann:one", Wish::AsBefore), Tally { set: 1, ..Tally::default() });
        lines.lines.insert(0, "# people".into());
        lines.write(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let mut lines = Lines::read(&path).unwrap();
        assert_eq!(set(&mut lines, "ann:two\nbob:three\n\ncarl:a:b\n", Wish::AsBefore).set, 3);
        lines.write(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# people\nann:$argon2id$"), "{text}");
        let users = Users::parse(&text).unwrap();
        for (user, password) in [("ann", "two"), ("bob", "three"), ("carl", "a:b")] {
            assert!(is_password(&users, user, password), "{user}");
        }
        let mut lines = Lines::read(&path).unwrap();
        assert!(lines.remove("bob") && !lines.remove("bob"));
        lines.write(&path).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn lines_for_scram_take_the_place_of_others_and_the_file_gets_one_secret() {
        let mut lines = Lines { lines: Vec::new(), found: None };
        for _ in 0..2 {
            let tally = set(&mut lines, "ann:one\nbob:two\n", scram());
            assert_eq!(tally, Tally { set: 2, ..Tally::default() }, "it was asked for");
        }
        set(&mut lines, "carl:three", Wish::AsBefore);
        assert_eq!(lines.lines.len(), 4);
        assert_eq!((lines.scram("carl"), lines.scram("dora")), (None, None));
        let users = users(&lines);
        assert_eq!(users.len(), 3);
        assert!(users.decoy_secret().is_some() && users.verifier("bob").is_some());
        assert!(is_password(&users, "ann", "one"));
    }

    #[test]
    fn a_new_password_leaves_scram_with_who_had_it_until_it_is_taken_away() {
        let mut lines = Lines { lines: Vec::new(), found: None };
        let many = NonZeroU32::new(scram::ITERATIONS_MIN + 7).unwrap();
        set(&mut lines, "ann:one", Wish::Always(Kind::Scram(many)));
        set(&mut lines, "bob:two", scram());
        let tally = set(&mut lines, "ann:new\ncarl:three", Wish::AsBefore);
        assert_eq!(tally, Tally { set: 2, kept_scram: 1, lost_scram: 0 });
        assert_eq!(tally.about_scram(false), "; SCRAM works as before for 1 of them");
        assert_eq!((lines.scram("ann"), lines.scram("carl")), (Some(many), None));
        assert!(is_password(&users(&lines), "ann", "new") && !is_password(&users(&lines), "ann", "one"));
        let tally = set(&mut lines, "ann:last\ncarl:four", Wish::Always(Kind::Argon2));
        assert_eq!(tally, Tally { set: 2, kept_scram: 0, lost_scram: 1 });
        assert_eq!(tally.about_scram(true), "; SCRAM no longer works, --scram brings it back");
        assert!(lines.scram("ann").is_none() && lines.scram("bob").is_some());
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
    }

    #[test]
    fn what_is_wrong_in_a_batch_is_said_with_its_line_and_nothing_is_taken() {
        let long = format!("ann:{}", "x".repeat(PASSWORD_BYTES_MAX + 1));
        for (text, said) in [
            ("ann:x\nbob\n", "line 2: expected USER:PASSWORD"),
            ("ann:x\n\nbob:\n", "line 3: the password is empty"),
            (&long, "line 1: the password is longer than 4096 bytes"),
            ("ann:x\nbob:y\nann:z\n", "line 3: user \"ann\" stands in line 1 already"),
            (":x", "line 1: the user name is empty"),
        ] {
            let error = batch(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(said) && error.ends_with("nothing was changed"), "{error}");
        }
        let endless = io::repeat(b'x');
        assert!(batch(endless).unwrap_err().to_string().contains("standard input is longer than"));
    }
}
