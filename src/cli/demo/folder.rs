//! The demo's temporary folder: private to its owner, removed at the end unless it is to be kept.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Names that are tried.
const NAMES_MAX: u32 = 100;

/// Times that the removal is tried.
const REMOVALS_MAX: u32 = 10;

/// A folder that goes away with its owner.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    /// Makes a new folder in the system's place for temporary files.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create() -> io::Result<Self> {
        Self::create_in(&std::env::temp_dir())
    }

    fn create_in(parent: &Path) -> io::Result<Self> {
        for attempt in 0..NAMES_MAX {
            let path = parent.join(format!("tidegate-demo-{}-{attempt}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path, keep: false }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(io::Error::new(error.kind(), format!("{}: {error}", path.display())));
                }
            }
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "every name for the demo's folder is taken"))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// It stays when its owner goes.
    pub fn keep(&mut self) {
        self.keep = true;
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        // A process that was just killed may still finish a write.
        let removed = (0..REMOVALS_MAX).find_map(|_| std::fs::remove_dir_all(&self.path).ok());
        if removed.is_none() {
            eprintln!("the demo's folder {} could not be removed", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_is_private_and_goes_away_with_its_owner_unless_it_is_kept() {
        let parent = tempfile::tempdir().unwrap();
        let first = Folder::create_in(parent.path()).unwrap();
        let mut second = Folder::create_in(parent.path()).unwrap();
        assert_ne!(first.path(), second.path());
        assert_eq!(std::fs::metadata(first.path()).unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(first.path().join("file"), "x").unwrap();
        second.keep();
        let paths = [first.path().to_owned(), second.path().to_owned()];
        drop((first, second));
        assert_eq!(paths.map(|path| path.exists()), [false, true]);
    }
}
