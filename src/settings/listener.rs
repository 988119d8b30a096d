//! Addresses that clients connect to, and what is between the socket and the protocol there.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::url::Url;
use crate::net::origin::Protocol;

/// What carries the protocol's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Plain TCP.
    Tcp,
    /// TLS.
    Tls,
    /// WebSocket.
    Ws,
    /// WebSocket in TLS.
    Wss,
    /// A Unix socket.
    Unix,
}

impl Transport {
    /// Its bytes are encrypted by TLS.
    #[must_use]
    pub fn is_tls(self) -> bool {
        matches!(self, Self::Tls | Self::Wss)
    }

    /// Its bytes come in WebSocket frames.
    #[must_use]
    pub fn is_websocket(self) -> bool {
        matches!(self, Self::Ws | Self::Wss)
    }
}

/// Where a listener is bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Port 0 lets the system choose.
    Ip(SocketAddr),
    /// A Unix socket.
    Path(PathBuf),
}

/// Whether a client shows a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificate {
    /// It is not asked for one.
    #[default]
    None,
    /// It is asked; one that it shows must be valid.
    Optional,
    /// Without a valid one there is no connection.
    Required,
}

/// What of a client's certificate becomes its user name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateUser {
    /// The common name of the subject.
    CommonName,
    /// The whole subject, in the form of RFC 4514.
    Subject,
    /// The first alternative name: an e-mail address, a DNS name, a URI or an IP address.
    AlternativeName,
}

/// The files and rules of a TLS listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerTls {
    /// The server's certificate and those that lead from it to an authority (PEM).
    pub cert_file: PathBuf,
    /// The certificate's private key (PEM).
    pub key_file: PathBuf,
    /// The authorities of clients' certificates (PEM); there is one exactly where clients are asked for theirs.
    pub client_ca_file: Option<PathBuf>,
    /// Lists of the clients' certificates that are revoked (PEM): one from each authority that signs such certificates.
    pub client_crl_file: Option<PathBuf>,
    /// Whether a client shows a certificate.
    pub client_certificate: ClientCertificate,
    /// What of it becomes the client's user name; `None`: nothing.
    pub user: Option<CertificateUser>,
}

/// A socket that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// As it was written, for messages to people.
    pub url: String,
    /// What carries the protocol's bytes.
    pub transport: Transport,
    /// Where to bind.
    pub endpoint: Endpoint,
    /// What is spoken; `None`: a WebSocket's sub-protocol says it.
    pub protocol: Option<Protocol>,
    /// The path that a WebSocket client must ask for; `None`: any.
    pub path: Option<String>,
    /// There exactly where the transport is TLS.
    pub tls: Option<ListenerTls>,
    /// Every connection starts with a header of the PROXY protocol.
    pub proxy_protocol: bool,
    /// A line feed follows each STOMP frame.
    pub trailing_lf: bool,
    /// Connections of this listener; `None`: bounded by those of all listeners alone.
    pub connections_max: Option<u32>,
    /// Who may open a Unix socket, as permission bits of its file; `None`: as the process makes files.
    pub mode: Option<u32>,
    /// Clients may come in that present nothing.
    pub anonymous: bool,
}

impl Listener {
    /// The address of a listener that has one.
    #[must_use]
    pub fn addr(&self) -> Option<SocketAddr> {
        match &self.endpoint {
            Endpoint::Ip(addr) => Some(*addr),
            Endpoint::Path(_) => None,
        }
    }
}

/// What a listener's URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListenerUrl {
    pub transport: Transport,
    pub endpoint: Endpoint,
    pub protocol: Option<Protocol>,
    pub path: Option<String>,
}

/// A scheme, what it stands for, and its port.
type Scheme = (&'static str, Transport, Option<Protocol>, u16);

const SCHEMES: [Scheme; 8] = [
    ("mqtt", Transport::Tcp, Some(Protocol::Mqtt), 1883),
    ("mqtts", Transport::Tls, Some(Protocol::Mqtt), 8883),
    ("ws", Transport::Ws, None, 80),
    ("wss", Transport::Wss, None, 443),
    ("mqtt+unix", Transport::Unix, Some(Protocol::Mqtt), 0),
    ("stomp", Transport::Tcp, Some(Protocol::Stomp), 61613),
    ("stomps", Transport::Tls, Some(Protocol::Stomp), 61614),
    ("stomp+unix", Transport::Unix, Some(Protocol::Stomp), 0),
];
/// Longest path of a Unix socket in bytes (`sun_path` less the final zero).
pub(super) const SOCKET_PATH_BYTES_MAX: usize = 107;

impl ListenerUrl {
    /// Takes `text` apart.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| format!("\"{text}\" is no URL; write for example \"mqtt://127.0.0.1:1883\""))?;
        let scheme = scheme.to_ascii_lowercase();
        let Some((_, transport, protocol, port)) = SCHEMES.into_iter().find(|known| known.0 == scheme) else {
            let known: Vec<_> = SCHEMES.iter().map(|known| format!("{}://", known.0)).collect();
            return Err(format!("unknown scheme {scheme}://; listeners are {}", known.join(", ")));
        };
        if transport == Transport::Unix {
            let endpoint = Endpoint::Path(socket_path(text, rest)?);
            return Ok(Self { transport, endpoint, protocol, path: None });
        }
        let (authority, path) = match rest.split_once('/') {
            Some((authority, path)) if transport.is_websocket() && !path.is_empty() => {
                (authority, Some(path))
            }
            _ => (rest, None),
        };
        if path.is_some_and(|path| path.contains(['?', '#']) || path.contains(char::is_whitespace)) {
            return Err(format!("\"{text}\" has more than scheme, host, port and path"));
        }
        let url = Url::parse(&format!("{scheme}://{authority}"))?;
        let endpoint = Endpoint::Ip(SocketAddr::new(url.local_ip()?, url.port.unwrap_or(port)));
        Ok(Self { transport, endpoint, protocol, path: path.map(|path| format!("/{path}")) })
    }
}

fn socket_path(url: &str, path: &str) -> Result<PathBuf, String> {
    if !path.starts_with('/') || path.ends_with('/') {
        return Err(format!(
            "\"{url}\" names no socket; write for example \"mqtt+unix:///run/tidegate/mqtt.sock\""
        ));
    }
    if path.len() > SOCKET_PATH_BYTES_MAX {
        return Err(format!(
            "{path} is longer than the {SOCKET_PATH_BYTES_MAX} bytes of a Unix socket's path"
        ));
    }
    Ok(path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(url: &str) -> String {
        ListenerUrl::parse(url).unwrap_err()
    }

    #[test]
    fn a_scheme_says_transport_protocol_and_port() {
        let mqtt = Some(Protocol::Mqtt);
        let stomp = Some(Protocol::Stomp);
        for (url, transport, protocol, addr) in [
            ("mqtt://127.0.0.1", Transport::Tcp, mqtt, "127.0.0.1:1883"),
            ("MQTT://localhost:1/", Transport::Tcp, mqtt, "127.0.0.1:1"),
            ("mqtts://[::1]", Transport::Tls, mqtt, "[::1]:8883"),
            ("ws://127.0.0.1:8083", Transport::Ws, None, "127.0.0.1:8083"),
            ("wss://0.0.0.0", Transport::Wss, None, "0.0.0.0:443"),
            ("stomp://127.0.0.1", Transport::Tcp, stomp, "127.0.0.1:61613"),
            ("stomps://127.0.0.1", Transport::Tls, stomp, "127.0.0.1:61614"),
        ] {
            let parsed = ListenerUrl::parse(url).unwrap();
            let want = ListenerUrl {
                transport,
                endpoint: Endpoint::Ip(addr.parse().unwrap()),
                protocol,
                path: None,
            };
            assert_eq!(parsed, want, "{url}");
        }
        let unix = ListenerUrl::parse("mqtt+unix:///run/a.sock").unwrap();
        assert_eq!((unix.transport, unix.endpoint), (Transport::Unix, Endpoint::Path("/run/a.sock".into())));
    }

    #[test]
    fn a_websocket_listener_may_want_a_path() {
        let path = |url| ListenerUrl::parse(url).unwrap().path;
        assert_eq!(path("ws://127.0.0.1:8083/"), None);
        assert_eq!(path("wss://127.0.0.1:8083/mqtt"), Some("/mqtt".to_owned()));
        assert!(said("mqtt://127.0.0.1/mqtt").contains("more than scheme, host and port"));
        assert!(said("ws://127.0.0.1/a?b").contains("more than"));
    }

    #[test]
    fn what_is_no_listener_is_refused_in_words() {
        for (url, word) in [
            ("http://127.0.0.1", "unknown scheme http"),
            ("127.0.0.1:1883", "no URL"),
            ("mqtt://gateway.local", "no IP address"),
            ("mqtt://127.0.0.1:70000", "port"),
            ("mqtt://a:b@127.0.0.1", "credentials"),
            ("mqtt://:1883", "no host"),
            ("mqtt://[::1", "port"),
            ("mqtt+unix://run/x.sock", "names no socket"),
            ("mqtt+unix:///run/", "names no socket"),
        ] {
            assert!(said(url).contains(word), "{url}: {}", said(url));
        }
        assert!(said(&format!("mqtt+unix:///{}", "x".repeat(200))).contains("longer than"));
    }
}
