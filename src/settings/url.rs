//! `scheme://host:port` and nothing more: what a listener or an upstream is named by.

use std::net::IpAddr;

/// A taken-apart address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// In lower case.
    pub scheme: String,
    /// A name or an address, without brackets.
    pub host: String,
    /// If one was written.
    pub port: Option<u16>,
}

impl Url {
    /// Takes `text` apart.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| format!("\"{text}\" is no URL; write for example \"mqtt://127.0.0.1:1883\""))?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains('@') {
            return Err(
                "credentials do not belong into a URL; use the keys `username` and `password_file`".into()
            );
        }
        if rest.contains(['/', '?', '#']) || rest.contains(char::is_whitespace) {
            return Err(format!("\"{text}\" has more than scheme, host and port"));
        }
        let (host, port) =
            split_port(rest).ok_or_else(|| format!("the port of \"{text}\" is no number up to 65535"))?;
        if host.is_empty() {
            return Err(format!("\"{text}\" names no host"));
        }
        Ok(Self { scheme: scheme.to_ascii_lowercase(), host: host.to_owned(), port })
    }

    /// The host as an address of this machine.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn local_ip(&self) -> Result<IpAddr, String> {
        let host = if self.host == "localhost" { "127.0.0.1" } else { &self.host };
        host.parse().map_err(|_| {
            format!(
                "\"{}\" is no IP address; a listener binds to an address of this machine, 0.0.0.0 for all",
                self.host
            )
        })
    }
}

/// `host`, `host:port`, `[v6]`, `[v6]:port`.
fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        return match rest.strip_prefix(':') {
            Some(port) => Some((host, Some(port.parse().ok()?))),
            None => rest.is_empty().then_some((host, None)),
        };
    }
    match text.split_once(':') {
        Some((host, port)) => Some((host, Some(port.parse().ok()?))),
        None => Some((text, None)),
    }
}
