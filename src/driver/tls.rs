//! TLS of listeners: rustls with ring. Certificates can be replaced while the broker runs; connections keep what they began with.

use std::fmt::Display;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tracing::{info, warn};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;
use x509_parser::time::ASN1Time;

use crate::settings::{CertificateUser, ClientCertificate, Listener, ListenerTls};

/// Longest user name that a certificate may give, in bytes.
const USER_BYTES_MAX: usize = 1024;

/// The certificates of one listener, as they are now.
#[derive(Debug)]
pub struct ListenerCertificates {
    url: String,
    files: ListenerTls,
    current: RwLock<Arc<ServerConfig>>,
}

/// The certificates of all listeners that have some.
#[derive(Clone, Debug, Default)]
pub struct Certificates(Vec<Arc<ListenerCertificates>>);

impl ListenerCertificates {
    /// Reads the listener's files; `None`: it has no TLS.
    ///
    /// # Errors
    /// A sentence that names the file and the remedy.
    pub fn load(listener: &Listener) -> Result<Option<Arc<Self>>, String> {
        let Some(files) = &listener.tls else { return Ok(None) };
        let config = server_config(files).map_err(|what| format!("listener {}: {what}", listener.url))?;
        let current = RwLock::new(Arc::new(config));
        Ok(Some(Arc::new(Self { url: listener.url.clone(), files: files.clone(), current })))
    }

    /// What the next connection is served with.
    #[must_use]
    pub fn current(&self) -> Arc<ServerConfig> {
        // The lock guards one pointer, which is whole whoever panicked.
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The user name that the certificate shown by a client gives it.
    ///
    /// # Errors
    /// A certificate that was shown and has no such name.
    pub fn user(&self, chain: Option<&[CertificateDer<'_>]>) -> Result<Option<Box<str>>, String> {
        match (self.files.user, chain.and_then(<[_]>::first)) {
            (Some(which), Some(certificate)) => user_name(certificate, which).map(Some),
            _ => Ok(None),
        }
    }
}

impl Certificates {
    /// Adds a listener's.
    pub fn add(&mut self, certificates: &Arc<ListenerCertificates>) {
        self.0.push(Arc::clone(certificates));
    }

    /// Reads all files again and changes nothing yet.
    ///
    /// # Errors
    /// A sentence that names the listener, the file and the remedy.
    pub fn read(&self) -> Result<Renewal, String> {
        let read = |listener: &Arc<ListenerCertificates>| match server_config(&listener.files) {
            Ok(config) => Ok((Arc::clone(listener), config)),
            Err(what) => Err(format!("listener {}: {what}", listener.url)),
        };
        self.0.iter().map(read).collect::<Result<_, _>>().map(Renewal)
    }
}

/// Certificates that were read and found in order.
#[derive(Debug)]
pub struct Renewal(Vec<(Arc<ListenerCertificates>, ServerConfig)>);

impl Renewal {
    /// New connections get these from now on.
    pub fn put_into_force(self) {
        for (listener, config) in self.0 {
            *listener.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
            info!(listener = listener.url, "certificates read again");
        }
    }
}

fn server_config(files: &ListenerTls) -> Result<ServerConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?;
    let builder = match client_verifier(files)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let chain = certificates("cert_file", &files.cert_file)?;
    let key = PrivateKeyDer::from_pem_file(&files.key_file).map_err(|error| {
        format!("key_file {}: {}", files.key_file.display(), pem_fault(&error, "no private key in PEM form"))
    })?;
    builder.with_single_cert(chain, key).map_err(|error| {
        format!(
            "cert_file {} and key_file {} do not work together: {error}",
            files.cert_file.display(),
            files.key_file.display()
        )
    })
}

fn client_verifier(files: &ListenerTls) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    let Some(file) = &files.client_ca_file else { return Ok(None) };
    let at = |what: &dyn Display| format!("client_ca_file {}: {what}", file.display());
    let mut roots = RootCertStore::empty();
    for certificate in certificates("client_ca_file", file)? {
        roots.add(certificate).map_err(|error| at(&error))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = match files.client_certificate {
        ClientCertificate::Required => builder,
        ClientCertificate::Optional | ClientCertificate::None => builder.allow_unauthenticated(),
    };
    let builder = match &files.client_crl_file {
        Some(file) => builder.with_crls(revoked(file)?).only_check_end_entity_revocation(),
        None => builder,
    };
    let verifier = builder.build().map_err(|error| match (&error, &files.client_crl_file) {
        (VerifierBuilderError::InvalidCrl(why), Some(file)) => {
            format!("client_crl_file {}: a list is of no use: {why:?}", file.display())
        }
        _ => at(&error),
    })?;
    Ok(Some(verifier))
}

/// The lists of a file. One that is past its time still counts: the gateway may be offline, and clients that are not revoked are not to
/// suffer from it. The log says so.
fn revoked(file: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let none = "no list of revoked certificates in PEM form";
    let found: Vec<CertificateRevocationListDer<'static>> = pem_items("client_crl_file", file, none)?;
    for list in &found {
        let (_, list) = CertificateRevocationList::from_der(list)
            .map_err(|error| format!("client_crl_file {}: a list cannot be read: {error}", file.display()))?;
        if let Some(due) = list.next_update()
            && due < ASN1Time::now()
        {
            warn!(file = %file.display(), issuer = %list.issuer(), %due, "a list of revoked certificates is out of date; fetch a newer one and reload");
        }
    }
    Ok(found)
}

fn certificates(key: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    pem_items(key, path, "no certificate in PEM form")
}

/// What a file holds, at least one; `none` says what is missing.
fn pem_items<T: PemObject>(key: &str, path: &Path, none: &str) -> Result<Vec<T>, String> {
    let at = |what: String| format!("{key} {}: {what}", path.display());
    let found: Result<Vec<T>, _> = T::pem_file_iter(path).and_then(Iterator::collect);
    let found = found.map_err(|error| at(pem_fault(&error, none)))?;
    if found.is_empty() {
        return Err(at(format!("holds {none}")));
    }
    Ok(found)
}

fn pem_fault(error: &rustls::pki_types::pem::Error, none: &str) -> String {
    match error {
        rustls::pki_types::pem::Error::NoItemsFound => format!("holds {none}"),
        rustls::pki_types::pem::Error::Io(error) => format!("cannot be read: {error}"),
        error => format!("is damaged: {error:?}"),
    }
}

fn user_name(certificate: &CertificateDer<'_>, which: CertificateUser) -> Result<Box<str>, String> {
    let (_, certificate) = X509Certificate::from_der(certificate)
        .map_err(|error| format!("the client's certificate cannot be read: {error}"))?;
    let name = match which {
        CertificateUser::CommonName => {
            certificate.subject().iter_common_name().find_map(|name| name.as_str().ok()).map(str::to_owned)
        }
        CertificateUser::Subject => subject(&certificate),
        CertificateUser::AlternativeName => {
            let names = certificate.subject_alternative_name().ok().flatten();
            names.and_then(|names| names.value.general_names.iter().find_map(alternative_name))
        }
    };
    let usable = |name: &String| {
        !name.is_empty() && name.len() <= USER_BYTES_MAX && !name.chars().any(char::is_control)
    };
    name.filter(usable)
        .map(Into::into)
        .ok_or_else(|| "the client's certificate has no name that can be a user name".to_owned())
}

/// The subject in the form of RFC 4514: the most special part first, what could be misread escaped.
fn subject(certificate: &X509Certificate<'_>) -> Option<String> {
    let mut parts = Vec::new();
    for rdn in certificate.subject().iter_rdn() {
        let mut values = Vec::new();
        for attribute in rdn.iter() {
            let oid = attribute.attr_type();
            let key = SHORT_NAMES.iter().find(|(known, _)| oid.to_id_string() == *known);
            let key = key.map_or_else(|| oid.to_id_string(), |(_, name)| (*name).to_owned());
            values.push(format!("{key}={}", escaped(attribute.as_str().ok()?)));
        }
        parts.push(values.join("+"));
    }
    parts.reverse();
    Some(parts.join(","))
}

/// The names that RFC 4514 has for attributes.
const SHORT_NAMES: [(&str, &str); 9] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.6", "C"),
    ("2.5.4.9", "STREET"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
];

fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (at, c) in value.chars().enumerate() {
        let at_edge = (at == 0 && matches!(c, ' ' | '#')) || (at == last && c == ' ');
        if at_edge || matches!(c, '"' | '+' | ',' | ';' | '<' | '>' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn alternative_name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::RFC822Name(text) | GeneralName::DNSName(text) | GeneralName::URI(text) => {
            Some((*text).to_owned())
        }
        GeneralName::IPAddress(bytes) => match <[u8; 4]>::try_from(*bytes) {
            Ok(four) => Some(std::net::Ipv4Addr::from(four).to_string()),
            Err(_) => Some(std::net::Ipv6Addr::from(<[u8; 16]>::try_from(*bytes).ok()?).to_string()),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn certificate(change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name.remove(DnType::CommonName);
        change(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn the_name_comes_from_the_part_that_was_asked_for() {
        let der = certificate(|params| {
            params.distinguished_name.push(DnType::OrganizationName, "Water, Works");
            params.distinguished_name.push(DnType::CommonName, "pump-3");
            params.subject_alt_names.push(SanType::DnsName("pump.example".try_into().unwrap()));
        });
        let name = |which| user_name(&der, which).unwrap();
        assert_eq!(&*name(CertificateUser::CommonName), "pump-3");
        assert_eq!(&*name(CertificateUser::Subject), "CN=pump-3,O=Water\\, Works");
        assert_eq!(&*name(CertificateUser::AlternativeName), "pump.example");
        let by_ip = certificate(|p| p.subject_alt_names.push(SanType::IpAddress([10, 0, 0, 7].into())));
        assert_eq!(&*user_name(&by_ip, CertificateUser::AlternativeName).unwrap(), "10.0.0.7");
    }

    #[test]
    fn a_certificate_without_a_usable_name_gives_none() {
        let nameless = certificate(|_| {});
        assert!(user_name(&nameless, CertificateUser::CommonName).is_err());
        assert!(user_name(&nameless, CertificateUser::AlternativeName).is_err());
        assert!(user_name(&nameless, CertificateUser::Subject).is_err());
        let odd = certificate(|p| p.distinguished_name.push(DnType::CommonName, "a\nb"));
        assert!(user_name(&odd, CertificateUser::CommonName).is_err());
        assert!(user_name(&CertificateDer::from(vec![1, 2, 3]), CertificateUser::CommonName).is_err());
    }

    fn write_pair(folder: &Path) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::default().self_signed(&key).unwrap();
        std::fs::write(folder.join("s.pem"), certificate.pem()).unwrap();
        std::fs::write(folder.join("s.key"), key.serialize_pem()).unwrap();
    }

    fn listener(folder: &Path) -> Listener {
        let mut listener = crate::settings::Settings::default().listeners.remove(0);
        listener.tls = Some(ListenerTls {
            cert_file: folder.join("s.pem"),
            key_file: folder.join("s.key"),
            client_ca_file: None,
            client_crl_file: None,
            client_certificate: ClientCertificate::None,
            user: None,
        });
        listener
    }

    #[test]
    fn a_bad_new_file_keeps_the_old_certificates_in_force_and_is_named() {
        let folder = tempfile::tempdir().unwrap();
        write_pair(folder.path());
        let first = ListenerCertificates::load(&listener(folder.path())).unwrap().unwrap();
        let mut all = Certificates::default();
        all.add(&first);
        let before = first.current();
        for (bad, said) in [("nothing", "holds no certificate"), ("-----BEGIN CERTIFICATE-----", "s.pem: ")] {
            std::fs::write(folder.path().join("s.pem"), bad).unwrap();
            let error = all.read().unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        std::fs::remove_file(folder.path().join("s.pem")).unwrap();
        assert!(all.read().unwrap_err().contains("cannot be read"));
        assert!(Arc::ptr_eq(&before, &first.current()));
        write_pair(folder.path());
        all.read().unwrap().put_into_force();
        assert!(!Arc::ptr_eq(&before, &first.current()));
    }

    #[test]
    fn a_key_that_is_not_the_certificates_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        write_pair(folder.path());
        std::fs::write(folder.path().join("s.key"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
        let error = ListenerCertificates::load(&listener(folder.path())).unwrap_err();
        assert!(error.contains("do not work together"), "{error}");
    }
}
