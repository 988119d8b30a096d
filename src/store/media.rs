//! The store's only way to the disk: positioned reads and writes, syncs and lengths behind one small trait, so that tests can
//! put a simulated medium with power cuts, full disks and errors in its place.

use std::fmt::Debug;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::error::StoreError;

/// One file on some medium. All methods may be called from several threads.
///
/// The store assumes: after [`sync_data`](Self::sync_data) returned without an error, everything written before it and the
/// length survive a power cut; before that, any part of it may be missing, and a page that was being written may hold anything.
pub trait Media: Debug + Send + Sync + 'static {
    /// Fills `buf` from `offset` on.
    ///
    /// # Errors
    /// Also when the range does not lie within the length.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// Some part of the range may then have been written.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// It is then unknown what is durable.
    fn sync_data(&self) -> io::Result<()>;

    /// Cuts or extends (with zeroes, without using space) the file.
    ///
    /// # Errors
    /// As the system says.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// The file's length in bytes.
    ///
    /// # Errors
    /// As the system says.
    fn size(&self) -> io::Result<u64>;

    /// Reserves space for the range, so that later writes to it cannot run out of space. Does not change the length. A medium
    /// that cannot reserve does nothing.
    ///
    /// # Errors
    /// Storage full, or as the system says.
    fn reserve(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Bytes that the file occupies on the medium.
    ///
    /// # Errors
    /// As the system says.
    fn occupied(&self) -> io::Result<u64>;

    /// Bytes that the medium has left.
    ///
    /// # Errors
    /// As the system says.
    fn free_space(&self) -> io::Result<u64>;
}

/// A file of the operating system, locked for this process as long as it is open.
#[derive(Debug)]
pub struct RealFile(File);

impl RealFile {
    /// Opens and locks an existing file.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another process, or another store in this one, has it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        Self::lock(file.map_err(StoreError::io("open its file"))?, path)
    }

    /// Creates (or takes over from an interrupted creation), locks and empties a file.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn create(path: &Path) -> Result<Self, StoreError> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = Self::lock(file.map_err(StoreError::io("create its file"))?, path)?;
        file.0.set_len(0).map_err(StoreError::io("create its file"))?;
        Ok(file)
    }

    fn lock(file: File, path: &Path) -> Result<Self, StoreError> {
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(StoreError::Io { what: "lock its file", source }),
        }
    }
}

impl Media for RealFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        match fallocate(&self.0, FallocateFlags::KEEP_SIZE, offset, len).map_err(io::Error::from) {
            // Some file systems cannot reserve; the check of the free space must do there.
            Err(e) if matches!(e.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput) => Ok(()),
            other => other,
        }
    }

    fn occupied(&self) -> io::Result<u64> {
        use std::os::unix::fs::MetadataExt;
        Ok(self.0.metadata()?.blocks() * 512)
    }

    fn free_space(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstatvfs(&self.0)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

/// Makes a name change in `path`'s folder durable.
///
/// # Errors
/// As the system says.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(folder)?.sync_all()
}
