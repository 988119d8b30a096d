//! An authority of our own, and certificates that it signs, in files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

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
        for (file, text) in [(&cert_file, certificate.pem()), (&key_file, key.serialize_pem())] {
            let fresh = file.with_extension("new");
            std::fs::write(&fresh, text).expect("the folder can be written");
            std::fs::rename(fresh, file).expect("the folder can be written");
        }
        (cert_file, key_file)
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
