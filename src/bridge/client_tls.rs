//! TLS of upstream connections: rustls with ring. Files are read anew for each connection, so that they can be renewed while
//! the link runs.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::TlsConfig;

/// Opens a TLS session with `host` on `stream`.
///
/// # Errors
/// A sentence that says which file or which side is at fault.
pub async fn handshake(
    stream: TcpStream,
    host: &str,
    tls: Option<&TlsConfig>,
) -> Result<TlsStream<TcpStream>, String> {
    let name = tls.and_then(|t| t.server_name.as_deref()).unwrap_or(host).to_owned();
    let server =
        ServerName::try_from(name.clone()).map_err(|_| format!("`{name}` is no server name for TLS"))?;
    let connector = TlsConnector::from(Arc::new(client_config(tls)?));
    connector.connect(server, stream).await.map_err(|e| explain(&e, &name))
}

fn client_config(tls: Option<&TlsConfig>) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| format!("TLS: {e}"))?
        .with_root_certificates(roots(tls.and_then(|t| t.ca_file.as_deref()))?);
    match tls.and_then(|t| t.cert_file.as_deref().zip(t.key_file.as_deref())) {
        None => Ok(builder.with_no_client_auth()),
        Some((cert_file, key_file)) => {
            let chain = certificates("cert_file", cert_file)?;
            let key = PrivateKeyDer::from_pem_file(key_file)
                .map_err(|e| format!("key_file {}: {e}", key_file.display()))?;
            builder.with_client_auth_cert(chain, key).map_err(|e| {
                format!("cert_file {} and key_file {}: {e}", cert_file.display(), key_file.display())
            })
        }
    }
}

fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    let Some(path) = ca_file else {
        let found = rustls_native_certs::load_native_certs();
        store.add_parsable_certificates(found.certs);
        if store.is_empty() {
            return Err("the system has no certificates of authorities to trust: set `ca_file`".to_owned());
        }
        return Ok(store);
    };
    for certificate in certificates("ca_file", path)? {
        store.add(certificate).map_err(|e| format!("ca_file {}: {e}", path.display()))?;
    }
    Ok(store)
}

fn certificates(key: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let at = |e: &dyn std::fmt::Display| format!("{key} {}: {e}", path.display());
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(|e| at(&e))?.collect();
    let found = found.map_err(|e| at(&e))?;
    if found.is_empty() {
        return Err(at(&"holds no certificate in PEM form"));
    }
    Ok(found)
}

/// Says in a sentence who is at fault for a handshake that failed.
fn explain(error: &std::io::Error, name: &str) -> String {
    use rustls::{AlertDescription, CertificateError, Error};
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let hint = match tls {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)) => {
            ": the upstream's certificate is signed by none of the trusted authorities; check `ca_file`"
        }
        Some(Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => ": the upstream's certificate is for another name; check `url` and `server_name`",
        Some(Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        )) => ": the upstream's certificate is not valid now; check the clocks of both sides",
        Some(Error::InvalidMessage(_)) => ": the upstream does not speak TLS on this port; check `url`",
        Some(Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::HandshakeFailure,
        )) => ": the upstream does not accept our certificate; check `cert_file` and `key_file`",
        _ => "",
    };
    format!("TLS handshake with {name} failed: {error}{hint}")
}
