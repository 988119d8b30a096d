//! The files of the repository.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Names that are not part of the repository wherever they occur: build output, version control, inputs found by fuzzers.
const SKIPPED: [&str; 6] = ["target", ".git", "corpus", "artifacts", "node_modules", "__pycache__"];
/// Larger files are data.
const TEXT_BYTES_MAX: u64 = 4 << 20;

/// A text file.
#[derive(Debug)]
pub struct File {
    /// Relative to the root, with `/`.
    pub path: String,
    /// Its content.
    pub text: String,
}

impl File {
    /// The name ends in `.<extension>`.
    pub fn is(&self, extension: &str) -> bool {
        self.path.rsplit_once('.').is_some_and(|(_, end)| end == extension)
    }

    /// Lines with their numbers, which count from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }
}

/// Where the repository lies.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All text files, in the order of their paths.
pub fn repository() -> &'static [File] {
    static FILES: OnceLock<Vec<File>> = OnceLock::new();
    FILES.get_or_init(|| read(root()))
}

fn read(root: &Path) -> Vec<File> {
    let ignored = ignored(&fs::read_to_string(root.join(".gitignore")).unwrap_or_default());
    let mut files = vec![];
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            let path = relative(root, &entry.path());
            let name = entry.file_name();
            if SKIPPED.iter().any(|skipped| name == *skipped) || ignored.contains(&path) {
                continue;
            }
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file()
                && entry.metadata().unwrap().len() <= TEXT_BYTES_MAX
                && let Ok(text) = String::from_utf8(fs::read(entry.path()).unwrap())
            {
                files.push(File { path, text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// The entries of `.gitignore` that name one place from the root.
fn ignored(text: &str) -> BTreeSet<String> {
    let plain = text.lines().filter(|line| line.starts_with('/') && !line.contains('*'));
    plain.map(|line| line.trim_matches('/').to_owned()).collect()
}

fn relative(root: &Path, path: &Path) -> String {
    let parts: PathBuf = path.strip_prefix(root).unwrap().into();
    parts.iter().map(|part| part.to_string_lossy().into_owned()).collect::<Vec<_>>().join("/")
}

#[test]
fn the_walk_finds_the_sources_and_leaves_build_output_out() {
    let paths: Vec<&str> = repository().iter().map(|file| file.path.as_str()).collect();
    for known in [
        "Cargo.toml",
        "src/lib.rs",
        "src/store/contract.rs",
        "protocols/mqtt/src/lib.rs",
        "tests/tidy/main.rs",
    ] {
        assert!(paths.contains(&known), "{known}");
    }
    let skipped = |path: &&str| path.split('/').any(|part| SKIPPED.contains(&part));
    assert_eq!(paths.iter().find(|path| skipped(path)), None);
}

#[test]
fn anchored_lines_of_gitignore_are_understood() {
    assert_eq!(ignored("/target\n*.db\n/fuzz/corpus\n"), ["target", "fuzz/corpus"].map(String::from).into());
}
