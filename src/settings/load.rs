//! Reads the layers and merges them; every value keeps the place that set it.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use config::builder::DefaultState;
use config::{Config, ConfigBuilder, ConfigError, File, FileFormat, Source, Value};

use super::Settings;
use super::keys;
use super::place::{Origins, Place, SettingsError};
use super::positions::note_positions;
use super::raw::{Raw, RawListener};
use super::resolve::resolve;

/// Size of one configuration file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Files in `conf.d`.
const CONF_FILES_MAX: usize = 256;
/// Environment variables that start with this name a key.
const VARIABLE_PREFIX: &str = "TIDEGATE__";

/// What the process's surroundings say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Environment variables.
    pub variables: BTreeMap<String, String>,
    /// The process runs as root.
    pub root: bool,
    /// Memory that it may use, in bytes, if that is known: defaults shrink on a small machine.
    pub memory_bytes: Option<u64>,
}

impl Environment {
    /// Reads the process's own; variables that are not UTF-8 are left out.
    #[must_use]
    pub fn of_this_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self {
            variables: std::env::vars_os().filter_map(text).collect(),
            root: rustix::process::geteuid().is_root(),
            memory_bytes: super::machine::memory_bytes(),
        }
    }
}

/// What the command line says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--data-dir`
    pub data_dir: Option<PathBuf>,
    /// `--listen`, which replace the configured listeners.
    pub listen: Vec<String>,
    /// `--set`, each as `section.key=value`.
    pub set: Vec<String>,
}

/// A configuration and where it comes from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The checked values.
    pub settings: Settings,
    /// What is allowed but doubtful.
    pub warnings: Vec<String>,
    /// The files that were read, in order.
    pub files: Vec<PathBuf>,
    /// Memory that the process may use, in bytes, if that is known.
    pub memory_bytes: Option<u64>,
    /// The merged file with the derived values filled in.
    pub(super) effective: Raw,
}

/// Loads the configuration `file` (if any), the files in `conf.d` beside it, the environment's variables and the flags.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub fn load(
    file: Option<&Path>,
    environment: &Environment,
    flags: &Overrides,
) -> Result<Loaded, SettingsError> {
    let mut layers = Layers::default();
    if let Some(file) = file {
        layers.file(file)?;
        for extra in conf_files(file)? {
            layers.file(&extra)?;
        }
    }
    layers.environment(environment)?;
    layers.set_flags(&flags.set)?;
    let files = std::mem::take(&mut layers.files);
    let (mut raw, mut origins) = layers.merge()?;
    apply_flags(&mut raw, &mut origins, flags);
    let mut resolved = resolve(raw, &origins, environment)?;
    resolved.warnings.sort();
    Ok(Loaded {
        settings: resolved.settings,
        warnings: resolved.warnings,
        files,
        memory_bytes: environment.memory_bytes,
        effective: resolved.effective,
    })
}

/// `conf.d/*.toml` beside `file`, in the order of their names.
fn conf_files(file: &Path) -> Result<Vec<PathBuf>, SettingsError> {
    let folder = file.parent().unwrap_or(Path::new("")).join("conf.d");
    let unreadable = |error: std::io::Error| {
        SettingsError::new(Place::File(folder.clone()), "", format!("cannot be read: {error}"))
    };
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
        if files.len() > CONF_FILES_MAX {
            let what = format!("holds more than {CONF_FILES_MAX} files");
            return Err(SettingsError::new(Place::File(folder), "", what));
        }
    }
    files.sort();
    Ok(files)
}

fn read(file: &Path) -> Result<String, SettingsError> {
    let error = |what: String| SettingsError::new(Place::File(file.into()), "", what);
    let opened = std::fs::File::open(file).map_err(|e| error(format!("cannot be opened: {e}")))?;
    let mut text = String::new();
    opened
        .take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|e| error(format!("cannot be read: {e}")))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(error(format!("is larger than {FILE_BYTES_MAX} bytes; this cannot be a configuration")));
    }
    Ok(text)
}

#[derive(Default)]
struct Layers {
    builder: ConfigBuilder<DefaultState>,
    origins: Origins,
    lists: BTreeMap<&'static str, Vec<Value>>,
    counts: BTreeMap<&'static str, usize>,
    files: Vec<PathBuf>,
}

impl Layers {
    fn file(&mut self, file: &Path) -> Result<(), SettingsError> {
        let text = read(file)?;
        note_positions(file, &text, &mut self.counts, &mut self.origins)?;
        let source = File::from_str(&text, FileFormat::Toml);
        let values = source
            .collect()
            .map_err(|error| SettingsError::new(Place::File(file.into()), "", error.to_string()))?;
        for name in self.counts.keys() {
            if let Some(list) = values.get(*name).and_then(|value| value.clone().into_array().ok()) {
                self.lists.entry(name).or_default().extend(list);
            }
        }
        self.builder = std::mem::take(&mut self.builder).add_source(source);
        self.files.push(file.to_owned());
        Ok(())
    }

    fn environment(&mut self, environment: &Environment) -> Result<(), SettingsError> {
        let ours = environment.variables.iter().filter(|(name, _)| name.starts_with(VARIABLE_PREFIX));
        let mut variables = config::Map::new();
        for (name, value) in ours {
            let place = Place::Variable(name.clone());
            let key = name[VARIABLE_PREFIX.len()..].to_ascii_lowercase().replace("__", ".");
            if let Err(what) = plain_key(&key) {
                return Err(SettingsError::new(place, "", what));
            }
            self.origins.set(key, place);
            variables.insert(name.clone(), value.clone());
        }
        let source = config::Environment::with_prefix("TIDEGATE").prefix_separator("__").separator("__");
        self.builder = std::mem::take(&mut self.builder).add_source(source.source(Some(variables)));
        Ok(())
    }

    fn set_flags(&mut self, flags: &[String]) -> Result<(), SettingsError> {
        for flag in flags {
            let place = Place::Flag(format!("--set {flag}"));
            let Some((key, value)) = flag.split_once('=') else {
                return Err(SettingsError::new(place, "", "write it as --set section.key=value"));
            };
            plain_key(key).map_err(|what| SettingsError::new(place.clone(), "", what))?;
            self.origins.set(key, place.clone());
            self.builder = std::mem::take(&mut self.builder)
                .set_override(key, value)
                .map_err(|error| SettingsError::new(place, key, error.to_string()))?;
        }
        Ok(())
    }

    /// Merges the layers; the lists of all files are joined instead of replacing each other.
    fn merge(mut self) -> Result<(Raw, Origins), SettingsError> {
        let origins = self.origins;
        let merged = (|| {
            for (name, list) in self.lists {
                self.builder = self.builder.set_override(name, list)?;
            }
            self.builder.build()
        })();
        let raw =
            merged.and_then(Config::try_deserialize::<Raw>).map_err(|error| explain(error, &origins))?;
        Ok((raw, origins))
    }
}

/// Whether `key` can be set outside a file.
fn plain_key(key: &str) -> Result<(), String> {
    if keys::plain_keys().any(|known| known == key) {
        return Ok(());
    }
    if let Some(keys::Section::List(_)) = key.split('.').next().and_then(keys::section) {
        return Err(format!("\"{key}\" is part of a list, which only a file can hold"));
    }
    Err(match keys::nearest(key, keys::plain_keys()) {
        Some(near) => format!("there is no key \"{key}\"; did you mean \"{near}\"?"),
        None => {
            format!("there is no key \"{key}\"; keys are written as section.key, such as limits.packet_max")
        }
    })
}

/// Turns what `config` found into a place and a sentence.
fn explain(error: ConfigError, origins: &Origins) -> SettingsError {
    match error {
        ConfigError::At { error, key: Some(key), .. } => origins.error(&dotted(&key), error.to_string()),
        ConfigError::Type { unexpected, expected, key: Some(key), .. } => {
            origins.error(&dotted(&key), format!("expected {expected}, found {unexpected}"))
        }
        ConfigError::NotFound(key) => origins.error(&dotted(&key), "is missing"),
        other => SettingsError::new(Place::BuiltIn, "", other.to_string()),
    }
}

/// `config` writes `list[0]key` where everyone else writes `list[0].key`.
fn dotted(key: &str) -> String {
    key.replace(']', "].").replace("].[", "][").replace("]..", "].").trim_end_matches('.').to_owned()
}

fn apply_flags(raw: &mut Raw, origins: &mut Origins, flags: &Overrides) {
    if let Some(folder) = &flags.data_dir {
        raw.store.data_dir = Some(folder.clone());
        origins.set("store.data_dir", Place::Flag(format!("--data-dir {}", folder.display())));
    }
    if flags.listen.is_empty() {
        return;
    }
    // A configured listener of the same address keeps its permission.
    let configured = std::mem::take(&mut raw.listener);
    origins.forget("listener");
    for (index, url) in flags.listen.iter().enumerate() {
        let same = configured.iter().find(|listener| listener.url == *url).cloned();
        raw.listener.push(same.unwrap_or_else(|| RawListener { url: url.clone(), ..RawListener::default() }));
        origins.set(format!("listener[{index}]"), Place::Flag(format!("--listen {url}")));
    }
}
