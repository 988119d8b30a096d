//! Listeners.

use std::path::PathBuf;

use super::Check;
use crate::net::origin::Protocol;
use crate::settings::listener::{
    CertificateUser, ClientCertificate, Endpoint, Listener, ListenerTls, ListenerUrl, Transport,
};
use crate::settings::place::SettingsError;
use crate::settings::raw::{RawCertificateUser, RawClientCertificate, RawListener};

/// The words that open an unauthenticated listener to the network.
pub(in crate::settings) const ANYONE_MAY_CONNECT: &str = "yes, anyone who reaches this address may connect";
/// Listeners of one broker.
const LISTENERS_MAX: usize = 16;
/// Permissions that a socket's file may have: read, write and execute, of which writing is what connecting takes.
const MODE_MAX: u32 = 0o777;
const OWNER_MAY_CONNECT: u32 = 0o600;
const DEFAULT_LISTENERS: [&str; 2] = ["mqtt://127.0.0.1:1883", "stomp://127.0.0.1:61613"];

/// All listeners; the default ones if there are none.
pub fn listeners(
    raw: &mut Vec<RawListener>,
    authenticates: bool,
    check: &Check<'_>,
) -> Result<Vec<Listener>, SettingsError> {
    if raw.is_empty() {
        let default = |url: &str| RawListener { url: url.into(), ..RawListener::default() };
        raw.extend(DEFAULT_LISTENERS.map(default));
    }
    if raw.len() > LISTENERS_MAX {
        return check
            .fail("listener", format!("expected at most {LISTENERS_MAX} listeners, found {}", raw.len()));
    }
    let mut listeners: Vec<Listener> = Vec::with_capacity(raw.len());
    for (index, raw) in raw.iter_mut().enumerate() {
        let at = At { at: format!("listener[{index}]"), check };
        let mut listener = listener(raw, &at)?;
        at.may_be_reached(raw, &listener, authenticates)?;
        listener.anonymous = at.takes_anonymous(raw, &listener, authenticates)?;
        at.beside_others(&listener, &listeners)?;
        listeners.push(listener);
    }
    Ok(listeners)
}

fn listener(raw: &mut RawListener, at: &At<'_>) -> Result<Listener, SettingsError> {
    let url = ListenerUrl::parse(&raw.url).or_else(|what| at.fail("url", what))?;
    let tls = tls(raw, url.transport, at)?;
    if raw.trailing_lf && url.protocol == Some(Protocol::Mqtt) {
        return at.fail("trailing_lf", "is for STOMP, and this listener speaks MQTT");
    }
    let connections_max = match raw.connections_max.0 {
        Some(count) => Some(at.check.count(&at.key("connections_max"), count, 1..=1_000_000)?),
        None => None,
    };
    Ok(Listener {
        url: raw.url.clone(),
        transport: url.transport,
        endpoint: url.endpoint,
        protocol: url.protocol,
        path: url.path,
        tls,
        proxy_protocol: raw.proxy_protocol,
        trailing_lf: raw.trailing_lf,
        connections_max,
        mode: mode(raw, url.transport, at)?,
        anonymous: false,
    })
}

/// Permission bits, written as for chmod.
fn mode(raw: &RawListener, transport: Transport, at: &At<'_>) -> Result<Option<u32>, SettingsError> {
    let Some(text) = &raw.mode else { return Ok(None) };
    if transport != Transport::Unix {
        return at.fail("mode", "is for Unix sockets: mqtt+unix:// and stomp+unix://");
    }
    let digits = (3..=4).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| digits && *mode <= MODE_MAX);
    match mode {
        Some(mode) if mode & OWNER_MAY_CONNECT == OWNER_MAY_CONNECT => Ok(Some(mode)),
        Some(_) => {
            at.fail("mode", format!("\"{text}\" keeps the broker's own user out; write for example \"0660\""))
        }
        None => at.fail(
            "mode",
            format!("expected permissions in octal digits, in quotes, such as \"0660\", found \"{text}\""),
        ),
    }
}

fn tls(
    raw: &mut RawListener,
    transport: Transport,
    at: &At<'_>,
) -> Result<Option<ListenerTls>, SettingsError> {
    let files = [
        ("cert_file", &mut raw.cert_file),
        ("key_file", &mut raw.key_file),
        ("client_ca_file", &mut raw.client_ca_file),
        ("client_crl_file", &mut raw.client_crl_file),
    ];
    for (name, file) in files {
        if let Some(path) = file {
            *path = at.check.path(&at.key(name), path);
        }
    }
    if !transport.is_tls() {
        return at.without_tls(raw).map(|()| None);
    }
    let file = |name: &str, file: &Option<PathBuf>| match file {
        Some(path) => Ok(path.clone()),
        None => at.fail(name, "is missing: a TLS listener needs `cert_file` and `key_file` (PEM)"),
    };
    let asked = raw.client_cert.unwrap_or(match raw.client_ca_file {
        Some(_) => RawClientCertificate::Required,
        None => RawClientCertificate::None,
    });
    raw.client_cert = Some(asked);
    let client_certificate = match asked {
        RawClientCertificate::None => ClientCertificate::None,
        RawClientCertificate::Optional => ClientCertificate::Optional,
        RawClientCertificate::Required => ClientCertificate::Required,
    };
    match (client_certificate, &raw.client_ca_file) {
        (ClientCertificate::None, Some(_)) => {
            return at.fail("client_ca_file", "has no use while client_cert is \"none\"");
        }
        (ClientCertificate::None, None) if raw.user_from_cert.is_some() => {
            return at.fail("user_from_cert", "needs clients' certificates: set `client_ca_file`");
        }
        (ClientCertificate::Optional | ClientCertificate::Required, None) => {
            return at.fail("client_cert", "needs `client_ca_file`: whose certificates are valid?");
        }
        (ClientCertificate::None, None) if raw.client_crl_file.is_some() => {
            return at.fail("client_crl_file", "needs clients' certificates: set `client_ca_file`");
        }
        _ => {}
    }
    Ok(Some(ListenerTls {
        cert_file: file("cert_file", &raw.cert_file)?,
        key_file: file("key_file", &raw.key_file)?,
        client_ca_file: raw.client_ca_file.clone(),
        client_crl_file: raw.client_crl_file.clone(),
        client_certificate,
        user: raw.user_from_cert.map(|user| match user {
            RawCertificateUser::Cn => CertificateUser::CommonName,
            RawCertificateUser::Subject => CertificateUser::Subject,
            RawCertificateUser::San => CertificateUser::AlternativeName,
        }),
    }))
}

/// Complaints about one listener.
struct At<'a> {
    at: String,
    check: &'a Check<'a>,
}

impl At<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.at)
    }

    fn fail<T>(&self, name: &str, what: impl Into<String>) -> Result<T, SettingsError> {
        self.check.fail(&self.key(name), what)
    }

    fn without_tls(&self, raw: &RawListener) -> Result<(), SettingsError> {
        let set = [
            ("cert_file", raw.cert_file.is_some()),
            ("key_file", raw.key_file.is_some()),
            ("client_ca_file", raw.client_ca_file.is_some()),
            ("client_crl_file", raw.client_crl_file.is_some()),
            ("client_cert", raw.client_cert.is_some_and(|c| c != RawClientCertificate::None)),
            ("user_from_cert", raw.user_from_cert.is_some()),
        ];
        match set.into_iter().find(|(_, is_set)| *is_set) {
            Some((name, _)) => {
                let scheme = raw.url.split("://").next().unwrap_or_default();
                self.fail(
                    name,
                    format!(
                        "is for TLS, and {scheme}:// is not encrypted; write mqtts://, stomps:// or wss://"
                    ),
                )
            }
            None => Ok(()),
        }
    }

    /// This build has no authentication but by certificates, so an address beyond this machine needs the operator's explicit word.
    fn may_be_reached(
        &self,
        raw: &RawListener,
        listener: &Listener,
        authenticates: bool,
    ) -> Result<(), SettingsError> {
        let by_certificate =
            listener.tls.as_ref().is_some_and(|tls| tls.client_certificate == ClientCertificate::Required);
        match (raw.allow_anonymous_remote.as_deref(), &listener.endpoint) {
            (Some(ANYONE_MAY_CONNECT), _) => Ok(()),
            (Some(_), _) => self.fail(
                "allow_anonymous_remote",
                format!("expected exactly the words \"{ANYONE_MAY_CONNECT}\""),
            ),
            (None, Endpoint::Ip(addr))
                if !addr.ip().is_loopback() && !by_certificate && !authenticates =>
            {
                self.fail(
                    "url",
                    format!(
                        "{addr} can be reached from other machines and clients are not authenticated; set \
                         `access.password_file`, listen on 127.0.0.1, or put this line into the listener's section of the \
                         configuration file: allow_anonymous_remote = \"{ANYONE_MAY_CONNECT}\""
                    ),
                )
            }
            (None, _) => Ok(()),
        }
    }

    /// Whether clients may come in that present nothing: where nobody else could, or where it is said.
    fn takes_anonymous(
        &self,
        raw: &mut RawListener,
        listener: &Listener,
        authenticates: bool,
    ) -> Result<bool, SettingsError> {
        let asks_certificate = listener.tls.as_ref().map(|tls| tls.client_certificate);
        let remote = listener.addr().is_some_and(|addr| !addr.ip().is_loopback());
        let takes = match raw.allow_anonymous {
            _ if raw.allow_anonymous_remote.is_some() => true,
            Some(true) if remote && asks_certificate != Some(ClientCertificate::Required) => {
                return self.fail(
                    "allow_anonymous",
                    format!(
                        "the listener can be reached from other machines; if anybody may use it, write instead: \
                         allow_anonymous_remote = \"{ANYONE_MAY_CONNECT}\""
                    ),
                );
            }
            Some(false)
                if !authenticates
                    && !asks_certificate.is_some_and(|asks| asks != ClientCertificate::None) =>
            {
                return self.fail(
                    "allow_anonymous",
                    "lets nobody in, since clients cannot prove who they are; set `access.password_file` too",
                );
            }
            Some(said) => said,
            None => !authenticates,
        };
        raw.allow_anonymous = Some(takes);
        Ok(takes)
    }

    fn beside_others(&self, listener: &Listener, others: &[Listener]) -> Result<(), SettingsError> {
        let chosen_by_system = listener.addr().is_some_and(|addr| addr.port() == 0);
        if chosen_by_system || others.iter().all(|other| other.endpoint != listener.endpoint) {
            return Ok(());
        }
        let endpoint = match &listener.endpoint {
            Endpoint::Ip(addr) => addr.to_string(),
            Endpoint::Path(path) => path.display().to_string(),
        };
        self.fail("url", format!("another listener has the address {endpoint} already"))
    }
}
