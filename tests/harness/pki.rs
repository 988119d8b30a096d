//! An authority of our own, and certificates that it signs, in files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod,
    KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

/// An authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    /// A fresh one.
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Writes the authority's own certificate.
    pub fn write(&self, file: &Path) {
        std::fs::write(file, &self.pem).expect("the folder can be written");
    }

    /// Writes a certificate for `name` and its key; each file is whole at every moment.
    pub fn sign(&self, name: &str, folder: &Path) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("names");
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let (cert_file, key_file) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
        replace(&cert_file, &certificate.pem());
        replace(&key_file, &key.serialize_pem());
        (cert_file, key_file)
    }

    /// Writes a list that says which of its certificates are revoked and holds until the end of the year; the file is whole at every
    /// moment.
    pub fn revoke(&self, cert_files: &[&Path], until: i32, file: &Path) {
        let revoked = |cert_file: &&Path| {
            let certificate = CertificateDer::from_pem_file(cert_file).expect("a certificate");
            let (_, certificate) = X509Certificate::from_der(&certificate).expect("a certificate");
            RevokedCertParams {
                serial_number: SerialNumber::from_slice(certificate.raw_serial()),
                revocation_time: date_time_ymd(2020, 1, 1),
                reason_code: None,
                invalidity_date: None,
            }
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(until, 12, 31),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: cert_files.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).and_then(|list| list.pem()).expect("a list");
        replace(file, &list);
    }

    /// A client that trusts this authority alone, and shows a certificate if it is given one.
    pub fn client(&self, own: Option<&(PathBuf, PathBuf)>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let own_root = CertificateDer::from_pem_slice(self.pem.as_bytes()).expect("a certificate");
        roots.add(own_root).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        Arc::new(match own {
            None => builder.with_no_client_auth(),
            Some((cert_file, key_file)) => {
                let chain = CertificateDer::pem_file_iter(cert_file).expect("a file");
                let chain = chain.collect::<Result<Vec<_>, _>>().expect("certificates");
                let key = PrivateKeyDer::from_pem_file(key_file).expect("a key");
                builder.with_client_auth_cert(chain, key).expect("a pair")
            }
        })
    }
}

/// Writes a file that is whole at every moment.
fn replace(file: &Path, text: &str) {
    let fresh = file.with_extension("new");
    std::fs::write(&fresh, text).expect("the folder can be written");
    std::fs::rename(fresh, file).expect("the folder can be written");
}
