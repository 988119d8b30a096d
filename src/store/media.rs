//! The store's only way to the disk: positioned reads and writes, syncs and lengths behind one small trait, so that tests can
//! put a simulated medium with power cuts, full disks and errors in its place.

use std::fmt::Debug;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::FallocateFlags;

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

    /// As [`write_at`](Self::write_at), for whole blocks that are written once and read back only after a crash: keeping them
    /// out of the page cache saves the cache's work and, where pages come in large folios, writing the neighbours again.
    ///
    /// # Errors
    /// Some part of the range may then have been written.
    fn append_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_at(offset, data)
    }

    /// The first `len` bytes are read from the disk the next time, not from a cache: after a write error a cache may hold what
    /// the disk does not. Only a hint; costs time in proportion to what is cached.
    fn forget_cached(&self, len: u64) {
        let _ = len;
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// It is then unknown what is durable.
    fn sync_data(&self) -> io::Result<()>;

    /// How long the longest [`sync_data`](Self::sync_data) took since this was last asked; `None`: nobody measures it.
    fn longest_sync(&self) -> Option<Duration> {
        None
    }

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

    /// Takes blocks for the range without writing it or changing the length. A medium that cannot do that does nothing.
    ///
    /// # Errors
    /// Storage full, or as the system says.
    fn reserve(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Gives the range's blocks back; it reads as zeroes. A medium that cannot do that does nothing.
    ///
    /// # Errors
    /// As the system says.
    fn release(&self, offset: u64, len: u64) -> io::Result<()>;

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
pub struct RealFile {
    file: File,
    /// The same file past the page cache; `None` where the file system does not offer that.
    direct: Mutex<Option<Direct>>,
    longest_sync_micros: AtomicU64,
}

/// Alignment of memory, offset and length that direct writes need.
const DIRECT_ALIGN: usize = 4096;
/// Bytes of one direct write: longer runs take several.
const DIRECT_BYTES_MAX: usize = 256 << 10;

/// A second handle for direct writes, with its aligned buffer.
#[derive(Debug)]
struct Direct {
    file: File,
    buffer: Vec<u8>,
}

impl Direct {
    fn open(path: &Path) -> Option<Self> {
        let flags = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).ok()?;
        let file = OpenOptions::new().write(true).custom_flags(flags).open(path).ok()?;
        Some(Self { file, buffer: Vec::new() })
    }

    /// Writes whole blocks; `false`: the file system refuses, nothing was written.
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<bool> {
        let part_max = DIRECT_BYTES_MAX.min(data.len());
        if self.buffer.len() < part_max + DIRECT_ALIGN {
            self.buffer = vec![0; part_max + DIRECT_ALIGN];
        }
        let skip = self.buffer.as_ptr().align_offset(DIRECT_ALIGN);
        let mut at = offset;
        for part in data.chunks(DIRECT_BYTES_MAX) {
            let place = &mut self.buffer[skip..skip + part.len()];
            place.copy_from_slice(part);
            match self.file.write_all_at(place, at) {
                Err(e) if e.kind() == io::ErrorKind::InvalidInput && at == offset => return Ok(false),
                other => other?,
            }
            at += part.len() as u64;
        }
        Ok(true)
    }
}

/// How long a file that is locked is waited for. A process that was killed has it until its last write has ended.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(1);
/// How often it is tried meanwhile.
const LOCK_POLL: Duration = Duration::from_millis(10);

impl RealFile {
    /// Opens and locks an existing file, if need be after a short wait: the process that had it may have been killed a moment ago.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another process, or another store in this one, has it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let until = Instant::now() + LOCK_WAIT_MAX;
        loop {
            let file = OpenOptions::new().read(true).write(true).open(path);
            match Self::lock(file.map_err(StoreError::io("open its file"))?, path) {
                Err(StoreError::InUse { .. }) if Instant::now() < until => std::thread::sleep(LOCK_POLL),
                other => return other,
            }
        }
    }

    /// Creates (or takes over from an interrupted creation), locks and empties a file.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn create(path: &Path) -> Result<Self, StoreError> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = Self::lock(file.map_err(StoreError::io("create its file"))?, path)?;
        file.file.set_len(0).map_err(StoreError::io("create its file"))?;
        Ok(file)
    }

    /// Whoever had the file until now may have renamed it: it counts only if it still has its name.
    pub(super) fn lock(file: File, path: &Path) -> Result<Self, StoreError> {
        match file.try_lock() {
            Ok(()) if !is_named(&file, path).map_err(StoreError::io("look for its file"))? => {
                Err(StoreError::InUse { path: path.to_owned() })
            }
            Ok(()) => {
                let direct = Mutex::new(Direct::open(path));
                Ok(Self { file, direct, longest_sync_micros: AtomicU64::new(0) })
            }
            Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(StoreError::Io { what: "lock its file", source }),
        }
    }
}

fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let (open, named) = (file.metadata()?, std::fs::metadata(path)?);
    Ok((open.dev(), open.ino()) == (named.dev(), named.ino()))
}

impl Media for RealFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }

    fn append_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let aligned = offset.is_multiple_of(DIRECT_ALIGN as u64) && data.len().is_multiple_of(DIRECT_ALIGN);
        let mut direct = self.direct.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = direct.as_mut().filter(|_| aligned) {
            if writer.write(offset, data)? {
                return Ok(());
            }
            *direct = None;
        }
        drop(direct);
        self.write_at(offset, data)
    }

    fn forget_cached(&self, len: u64) {
        let _ =
            rustix::fs::fadvise(&self.file, 0, std::num::NonZeroU64::new(len), rustix::fs::Advice::DontNeed);
    }

    fn sync_data(&self) -> io::Result<()> {
        let begun = Instant::now();
        let result = self.file.sync_data();
        let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.longest_sync_micros.fetch_max(micros, Ordering::Relaxed);
        result
    }

    fn longest_sync(&self) -> Option<Duration> {
        Some(Duration::from_micros(self.longest_sync_micros.swap(0, Ordering::Relaxed)))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset, len)
    }

    fn release(&self, offset: u64, len: u64) -> io::Result<()> {
        fallocate(&self.file, FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE, offset, len)
    }

    fn occupied(&self) -> io::Result<u64> {
        use std::os::unix::fs::MetadataExt;
        Ok(self.file.metadata()?.blocks() * 512)
    }

    fn free_space(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstatvfs(&self.file)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

/// Some file systems know nothing of reservations; the check of the free space must do there.
fn fallocate(file: &File, flags: FallocateFlags, offset: u64, len: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, flags, offset, len).map_err(io::Error::from) {
        Err(e) if matches!(e.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput) => Ok(()),
        other => other,
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
