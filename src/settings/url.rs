//! `scheme://host:port` and nothing more: what a listener or an upstream is named by.

use std::net::{IpAddr, SocketAddr};

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

/// Schemes that a listener may have one day; naming them gives a better answer than "unknown".
const SCHEMES_OF_OTHER_BUILDS: [&str; 10] =
    ["mqtts", "ws", "wss", "stomp", "stomps", "stomp+ws", "stomp+wss", "unix", "mqtt+unix", "quic"];

const MQTT_PORT: u16 = 1883;

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

/// Where a listener's URL says to bind.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn listener_addr(text: &str) -> Result<SocketAddr, String> {
    let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme).to_ascii_lowercase();
    if SCHEMES_OF_OTHER_BUILDS.contains(&scheme.as_str()) {
        return Err(format!("{scheme}:// listeners are not in this build; it serves mqtt://"));
    }
    let url = Url::parse(text)?;
    if url.scheme != "mqtt" {
        return Err(format!("unknown scheme {scheme}://; this build serves mqtt://"));
    }
    let host = if url.host == "localhost" { "127.0.0.1" } else { &url.host };
    let ip: IpAddr = host.parse().map_err(|_| {
        format!(
            "\"{}\" is no IP address; a listener binds to an address of this machine, 0.0.0.0 for all",
            url.host
        )
    })?;
    Ok(SocketAddr::new(ip, url.port.unwrap_or(MQTT_PORT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_addresses_with_the_port_of_mqtt_by_default() {
        assert_eq!(listener_addr("mqtt://127.0.0.1"), Ok("127.0.0.1:1883".parse().unwrap()));
        assert_eq!(listener_addr("MQTT://localhost:1/"), Ok("127.0.0.1:1".parse().unwrap()));
        assert_eq!(listener_addr("mqtt://[::1]:2883"), Ok("[::1]:2883".parse().unwrap()));
    }

    #[test]
    fn what_is_no_listener_of_this_build_is_refused_in_words() {
        for (url, word) in [
            ("mqtts://127.0.0.1", "not in this build"),
            ("unix:/run/x.sock", "not in this build"),
            ("http://127.0.0.1", "unknown scheme http"),
            ("127.0.0.1:1883", "no URL"),
            ("mqtt://gateway.local", "no IP address"),
            ("mqtt://127.0.0.1:70000", "port"),
            ("mqtt://127.0.0.1/x", "more than"),
            ("mqtt://a:b@127.0.0.1", "credentials"),
            ("mqtt://:1883", "no host"),
            ("mqtt://[::1", "port"),
        ] {
            let said = listener_addr(url).unwrap_err();
            assert!(said.contains(word), "{url}: {said}");
        }
    }
}
