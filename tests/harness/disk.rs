//! Small file systems on loop devices: disks that fill up for real, and disks that fail.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A mounted ext4; unmounted when it goes away. Keep it longer than what works on it.
#[derive(Debug)]
pub struct Disk {
    /// What lies under the file system, if that is a small one too.
    below: Option<Mount>,
    disk: Mount,
    _folder: TempDir,
}

#[derive(Debug)]
struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        // Whoever still holds a file there keeps it until then.
        run("umount", &["--lazy".as_ref(), self.0.as_ref()]);
    }
}

fn run(program: &str, arguments: &[&OsStr]) -> bool {
    let status = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Makes an ext4 with `mebibytes` in `image` and mounts it.
fn mount_image(image: &Path, at: PathBuf, mebibytes: u64) -> Option<Mount> {
    std::fs::create_dir(&at).ok()?;
    File::create(image).ok()?.set_len(mebibytes << 20).ok()?;
    // Everything that the file system has to write about itself is written now.
    let eager = "lazy_itable_init=0,lazy_journal_init=0".as_ref();
    let made = run("mkfs.ext4", &["-q".as_ref(), "-m0".as_ref(), "-E".as_ref(), eager, image.as_ref()]);
    let mounted = made && run("mount", &["-o".as_ref(), "loop".as_ref(), image.as_ref(), at.as_ref()]);
    mounted.then_some(Mount(at))
}

impl Disk {
    /// A disk of that size; `None`, and it says so, where this process may not mount.
    pub fn mount(mebibytes: u64) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = folder.path().join("disk");
        let disk = mount_image(&folder.path().join("disk.img"), at, mebibytes);
        Self::or_say(disk.map(|disk| Self { below: None, disk, _folder: folder }))
    }

    /// A disk that claims to have `mebibytes` and fails with an input/output error once `real_mebibytes` of them are used.
    pub fn failing(mebibytes: u64, real_mebibytes: u64) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let below = folder.path().join("below");
        std::fs::create_dir(&below).expect("a folder in a temporary folder");
        let size = format!("size={real_mebibytes}m");
        let tmpfs = ["-t", "tmpfs", "-o", &size, "tmpfs"].map(OsStr::new);
        if !run("mount", &[&tmpfs[..], &[below.as_ref()]].concat()) {
            return Self::or_say(None);
        }
        let below = Mount(below);
        let image = below.0.join("disk.img");
        let disk = mount_image(&image, folder.path().join("disk"), mebibytes);
        Self::or_say(disk.map(|disk| Self { below: Some(below), disk, _folder: folder }))
    }

    fn or_say(disk: Option<Self>) -> Option<Self> {
        if disk.is_none() {
            eprintln!(
                "SKIPPED: no loop device can be mounted here (it takes root, mkfs.ext4 and loop devices)"
            );
        }
        disk
    }

    /// The failing disk is in order again: the file system is mounted afresh, as after a new start of the machine.
    pub fn repair(&mut self, mebibytes: u64) {
        let below = self.below.as_ref().expect("a failing disk");
        let size = format!("remount,size={mebibytes}m");
        assert!(run("mount", &["-o".as_ref(), size.as_ref(), below.0.as_ref()]));
        let (image, at) = (below.0.join("disk.img"), &self.disk.0);
        assert!(run("umount", &[at.as_ref()]), "nobody uses the disk");
        assert!(run("mount", &["-o".as_ref(), "loop".as_ref(), image.as_ref(), at.as_ref()]));
    }

    /// A new folder whose `data` is on the disk.
    pub fn folder(&self) -> TempDir {
        let folder = tempfile::Builder::new().prefix("tidegate-test-").tempdir().expect("a temporary folder");
        std::os::unix::fs::symlink(&self.disk.0, folder.path().join("data"))
            .expect("a link in an own folder");
        folder
    }

    /// Somebody else takes the last byte.
    pub fn fill(&self) {
        let mut hog = File::create(self.hog()).expect("a file can still be created");
        for size in [1 << 20, 4096, 1] {
            let piece = vec![1; size];
            while hog.write_all(&piece).is_ok() {}
        }
    }

    /// ... and gives it all back.
    pub fn give_back(&self) {
        std::fs::remove_file(self.hog()).expect("the file is there");
    }

    fn hog(&self) -> PathBuf {
        self.disk.0.join("hog")
    }
}
