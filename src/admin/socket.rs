//! The Unix socket: who may open it, and what happens to one that an earlier process left behind.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};

/// Milliseconds that somebody behind an existing socket has to accept a connection.
const ANSWER_MILLIS_MAX: u64 = 1000;

/// Owner only.
const MODE: u32 = 0o600;

/// Listens on `path`, open to the owner of the process only. Replaces a socket on which nobody answers.
///
/// # Errors
/// When another process answers there, when the path is no socket, and when the file system refuses.
pub(super) async fn bind(path: &Path) -> io::Result<UnixListener> {
    bind_at(path)
        .await
        .map_err(|error| io::Error::new(error.kind(), format!("admin socket {}: {error}", path.display())))
}

async fn bind_at(path: &Path) -> io::Result<UnixListener> {
    refuse_if_taken(path).await?;
    // Bound under another name, narrowed, then moved: at no moment can a stranger open it, and a stale one is replaced whole.
    let fresh = beside(path);
    remove_socket(&fresh)?;
    let listener = UnixListener::bind(&fresh)?;
    fs::set_permissions(&fresh, Permissions::from_mode(MODE))?;
    fs::rename(&fresh, path)?;
    Ok(listener)
}

async fn refuse_if_taken(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the path exists and is not a socket"));
        }
        Ok(_) => {}
    }
    let connect = UnixStream::connect(path);
    match tokio::time::timeout(Duration::from_millis(ANSWER_MILLIS_MAX), connect).await {
        Ok(Err(error))
            if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) =>
        {
            Ok(())
        }
        Ok(Err(error)) => Err(error),
        Ok(Ok(_)) | Err(_) => {
            Err(io::Error::new(io::ErrorKind::AddrInUse, "another process answers on this socket"))
        }
    }
}

/// A name that is not longer than the socket's own, whose length the system bounds.
fn beside(path: &Path) -> PathBuf {
    path.with_file_name("~")
}

fn remove_socket(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => fs::remove_file(path),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
    }

    #[test]
    fn only_the_owner_may_open_the_socket() {
        run(async {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("admin.sock");
            let _listener = bind(&path).await.unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            UnixStream::connect(&path).await.unwrap();
        });
    }

    #[test]
    fn a_socket_that_a_dead_process_left_is_replaced() {
        run(async {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("admin.sock");
            drop(bind(&path).await.unwrap());
            assert!(path.exists(), "dropping a listener leaves its file");
            let _listener = bind(&path).await.unwrap();
            UnixStream::connect(&path).await.unwrap();
        });
    }

    #[test]
    fn a_socket_that_somebody_serves_is_left_alone() {
        run(async {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("admin.sock");
            let _listener = bind(&path).await.unwrap();
            let error = bind(&path).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            assert!(error.to_string().contains("admin.sock"), "{error}");
        });
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        run(async {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("admin.sock");
            fs::write(&path, "precious").unwrap();
            assert_eq!(bind(&path).await.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        });
    }
}
