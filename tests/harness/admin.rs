//! Questions to the admin interface over its Unix socket.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::wait::PATIENCE;

/// The status code and the body of `GET path`.
pub fn get(socket: &Path, path: &str) -> io::Result<(u16, String)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| io::Error::other(answer.clone()))?;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((code.ok_or_else(|| io::Error::other(head.to_owned()))?, body.to_owned()))
}
