//! The smallest HTTP client that reads the admin interface: one request, one answer, then the connection is closed.
//!
//! Bounds: [`ANSWER_BYTES_MAX`] and [`ANSWER_MILLIS_MAX`] for a whole answer.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Largest answer in bytes.
pub const ANSWER_BYTES_MAX: usize = 8 << 20;

/// Milliseconds for a whole exchange; more than the server needs to find that its broker is stalled.
pub const ANSWER_MILLIS_MAX: u64 = 5000;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody serves there: the gateway does not run, or runs with another store.
    #[error("nobody answers on {0}: is the gateway running?")]
    NotRunning(String),
    /// The system's complaint.
    #[error("the admin interface could not be read: {0}")]
    Io(#[from] io::Error),
    /// An answer other than 200.
    #[error("the admin interface answered {code}: {body}")]
    Refused {
        /// HTTP status code.
        code: u16,
        /// The answer's body.
        body: String,
    },
    /// Not what an admin interface says.
    #[error("the answer is not one of an admin interface: {0}")]
    BadAnswer(&'static str),
}

/// The body at `path` of the admin interface on `socket`.
///
/// # Errors
/// See [`ClientError`].
pub fn get(socket: &Path, path: &str) -> Result<String, ClientError> {
    let stream =
        UnixStream::connect(socket).map_err(|error| refused(error, || socket.display().to_string()))?;
    exchange(stream, "GET", path, UnixStream::set_read_timeout, UnixStream::set_write_timeout)
}

/// The body of the answer to a POST without a body of its own.
///
/// # Errors
/// See [`ClientError`].
pub fn post(socket: &Path, path: &str) -> Result<String, ClientError> {
    let stream =
        UnixStream::connect(socket).map_err(|error| refused(error, || socket.display().to_string()))?;
    exchange(stream, "POST", path, UnixStream::set_read_timeout, UnixStream::set_write_timeout)
}

/// The body at `path` of the admin interface on a TCP address.
///
/// # Errors
/// See [`ClientError`].
pub fn get_tcp(address: SocketAddr, path: &str) -> Result<String, ClientError> {
    let stream = TcpStream::connect_timeout(&address, Duration::from_millis(ANSWER_MILLIS_MAX))
        .map_err(|error| refused(error, || address.to_string()))?;
    exchange(stream, "GET", path, TcpStream::set_read_timeout, TcpStream::set_write_timeout)
}

fn refused(error: io::Error, place: impl FnOnce() -> String) -> ClientError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::NotRunning(place()),
        _ => ClientError::Io(error),
    }
}

type SetTimeout<S> = fn(&S, Option<Duration>) -> io::Result<()>;

fn exchange<S: Read + Write>(
    mut stream: S,
    method: &str,
    path: &str,
    set_read_timeout: SetTimeout<S>,
    set_write_timeout: SetTimeout<S>,
) -> Result<String, ClientError> {
    if !path.starts_with('/') || path.bytes().any(|byte| !byte.is_ascii_graphic()) {
        return Err(ClientError::BadAnswer("the path asked for is not one"));
    }
    let end = Instant::now() + Duration::from_millis(ANSWER_MILLIS_MAX);
    set_write_timeout(&stream, Some(Duration::from_millis(ANSWER_MILLIS_MAX)))?;
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: tidegate\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    let mut chunk = [0; 16 << 10];
    loop {
        let left = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        set_read_timeout(&stream, Some(left.ok_or_else(|| io::Error::from(io::ErrorKind::TimedOut))?))?;
        match stream.read(&mut chunk) {
            Ok(0) => return parse(&answer),
            Ok(count) => answer.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
        if answer.len() > ANSWER_BYTES_MAX {
            return Err(ClientError::BadAnswer("it is too long"));
        }
    }
}

fn parse(answer: &[u8]) -> Result<String, ClientError> {
    let answer = std::str::from_utf8(answer).map_err(|_| ClientError::BadAnswer("it is not UTF-8"))?;
    let (head, body) =
        answer.split_once("\r\n\r\n").ok_or(ClientError::BadAnswer("its head does not end"))?;
    let mut lines = head.split("\r\n");
    let code = lines
        .next()
        .and_then(|line| line.strip_prefix("HTTP/1."))
        .and_then(|line| line.split(' ').nth(1))
        .and_then(|code| code.parse().ok())
        .ok_or(ClientError::BadAnswer("its first line has no status code"))?;
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok());
    if length != Some(body.len()) {
        return Err(ClientError::BadAnswer("its length is not the one announced"));
    }
    match code {
        200 => Ok(body.to_owned()),
        _ => Err(ClientError::Refused { code, body: body.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_answer_is_not_taken_for_a_whole_one() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody";
        assert_eq!(parse(whole).unwrap(), "body");
        for end in 0..whole.len() {
            assert!(matches!(parse(&whole[..end]), Err(ClientError::BadAnswer(_))), "cut at {end}");
        }
    }

    #[test]
    fn an_answer_other_than_200_is_an_error_with_its_body() {
        let error = parse(b"HTTP/1.1 503 Nope\r\ncontent-length: 2\r\n\r\n{}").unwrap_err();
        assert!(matches!(error, ClientError::Refused { code: 503, ref body } if body == "{}"), "{error}");
    }

    #[test]
    fn a_missing_socket_means_that_the_gateway_does_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let error = get(&dir.path().join("none.sock"), "/status").unwrap_err();
        assert!(matches!(error, ClientError::NotRunning(_)), "{error}");
    }
}
