//! Why the store cannot be opened or has stopped.

use std::path::PathBuf;

/// A failure of the store, in words for a person.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process holds the file's lock.
    #[error("{path} is in use by another process; stop it first, or give this one another `store` path")]
    InUse {
        /// The store's file.
        path: PathBuf,
    },
    /// The file was written by a newer version of this program.
    #[error(
        "the store has format version {found}, this program knows up to {known}: \
         use the newer program, or move the file away to start empty"
    )]
    NewerFormat {
        /// Version in the file.
        found: u32,
        /// The newest version that this program reads.
        known: u32,
    },
    /// The system refused an operation on the file.
    #[error("the store cannot {what}: {source}")]
    Io {
        /// The operation, as an infinitive.
        what: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The cold tier refused an operation.
    #[error("the store's database cannot {what}: {detail}")]
    Database {
        /// The operation, as an infinitive.
        what: &'static str,
        /// Its answer.
        detail: String,
    },
    /// The file's content contradicts itself. At opening, such a file is set aside.
    #[error("the store's file is damaged: {0}")]
    Damaged(String),
    /// A batch or a message is larger than the ring can ever take.
    #[error("a batch of {bytes} bytes is larger than the write-ahead ring takes at once ({max} bytes)")]
    BatchTooLarge {
        /// Its encoded size.
        bytes: u64,
        /// The bound.
        max: u64,
    },
    /// An option has a value that the store cannot work with.
    #[error("{0}")]
    Options(String),
}

impl StoreError {
    /// Wraps a system error; `what` completes "cannot ...".
    pub(super) fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { what, source }
    }

    /// The medium has no space left: everything stored is intact, and the operation may work later.
    pub(super) fn is_no_space(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_no_space(source))
    }

    /// The file's content is at fault, not the system: the file can be set aside.
    pub(super) fn is_damage(&self) -> bool {
        use std::io::ErrorKind::{InvalidData, UnexpectedEof};
        match self {
            Self::Io { source, .. } => matches!(source.kind(), InvalidData | UnexpectedEof),
            Self::Damaged(_) | Self::Database { .. } => true,
            _ => false,
        }
    }
}

/// The system said that the disk or the quota is full.
pub(super) fn is_no_space(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}
