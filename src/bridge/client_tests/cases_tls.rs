//! TLS: who may speak with whom, and what is said when they may not.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::upstream::{Peer, Upstream};
use super::*;
use crate::bridge::{LinkState, TlsConfig};

struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn sign(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// A server for `name`, which asks for client certificates if `mutual`.
    fn acceptor(&self, name: &str, mutual: bool) -> TlsAcceptor {
        let (certificate, key) = self.sign(name);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if mutual {
            let mut roots = RootCertStore::empty();
            roots.add(self.issuer.der().clone()).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        TlsAcceptor::from(Arc::new(builder.with_single_cert(vec![certificate.der().clone()], key).unwrap()))
    }

    fn trust(&self) -> TlsConfig {
        TlsConfig { ca_file: Some(self.file("ca.pem")), ..TlsConfig::default() }
    }
}

fn tls_config(protocol: Protocol, port: u16, tls: TlsConfig) -> LinkConfig {
    let mut config = config(protocol, port);
    config.addresses[0].tls = true;
    config.connect_timeout_millis = 3_000;
    config.tls = Some(tls);
    config
}

async fn login(upstream: &Upstream, acceptor: &TlsAcceptor) -> Peer {
    let (stream, _) = upstream.listener.accept().await.unwrap();
    let mut peer = Peer::new(acceptor.accept(stream).await.unwrap(), upstream.protocol);
    peer.expect(1).await;
    peer.connack(0, &[], false).await;
    peer
}

#[tokio::test]
async fn messages_flow_over_tls_to_an_address_and_to_a_name() {
    for (protocol, name, server_name) in
        [(Protocol::V4, "127.0.0.1", None), (Protocol::V5, "cloud.example", Some("cloud.example".to_owned()))]
    {
        let authority = Authority::new();
        let upstream = Upstream::start(protocol).await;
        let acceptor = authority.acceptor(name, false);
        let tls = TlsConfig { server_name, ..authority.trust() };
        let link = Running::start(tls_config(protocol, upstream.port(), tls));
        link.broker.enqueue_numbers(0..500);
        let mut peer = login(&upstream, &acceptor).await;
        assert_eq!(peer.serve(500).await.len(), 500);
        link.broker.until_settled(500).await;
        link.stop().await;
    }
}

#[tokio::test]
async fn a_client_certificate_is_shown_and_a_missing_one_is_explained() {
    let authority = Authority::new();
    let (certificate, key) = authority.sign("edge");
    std::fs::write(authority.file("cert.pem"), certificate.pem()).unwrap();
    std::fs::write(authority.file("key.pem"), key.serialize_pem()).unwrap();
    let acceptor = authority.acceptor("127.0.0.1", true);
    let upstream = Upstream::start(Protocol::V5).await;
    let with = TlsConfig {
        cert_file: Some(authority.file("cert.pem")),
        key_file: Some(authority.file("key.pem")),
        ..authority.trust()
    };
    let link = Running::start(tls_config(Protocol::V5, upstream.port(), with));
    let _peer = login(&upstream, &acceptor).await;
    link.until("up", |s| s.state == LinkState::Up).await;
    link.stop().await;

    let link = Running::start(tls_config(Protocol::V5, upstream.port(), authority.trust()));
    let (stream, _) = upstream.listener.accept().await.unwrap();
    assert!(acceptor.accept(stream).await.is_err());
    let error = link.until("an error", |s| s.last_error.is_some()).await.last_error.unwrap();
    assert!(error.to_lowercase().contains("certificate"), "{error}");
    link.stop().await;
}

/// The error of a link whose handshake `acceptor` serves.
async fn error_of(
    authority: &Authority,
    acceptor: TlsAcceptor,
    change: impl FnOnce(&mut TlsConfig),
) -> String {
    let upstream = Upstream::start(Protocol::V5).await;
    let mut tls = authority.trust();
    change(&mut tls);
    let link = Running::start(tls_config(Protocol::V5, upstream.port(), tls));
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = upstream.listener.accept().await {
            drop(acceptor.accept(stream).await);
        }
    });
    let error = link.until("two failures", |s| s.counters.failures >= 2).await.last_error.unwrap();
    link.stop().await;
    server.abort();
    error
}

#[tokio::test]
async fn a_wrong_authority_a_wrong_name_and_a_missing_file_are_told_apart() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let error = error_of(&ours, theirs.acceptor("127.0.0.1", false), |_| ()).await;
    assert!(error.contains("signed by none of the trusted authorities"), "{error}");
    let error = error_of(&ours, ours.acceptor("other.example", false), |_| ()).await;
    assert!(error.contains("for another name"), "{error}");
    let acceptor = ours.acceptor("127.0.0.1", false);
    let error = error_of(&ours, acceptor.clone(), |tls| tls.ca_file = Some("/nowhere/ca.pem".into())).await;
    assert!(error.contains("ca_file /nowhere/ca.pem"), "{error}");
    let empty = ours.file("empty.pem");
    std::fs::write(&empty, "nothing").unwrap();
    let error = error_of(&ours, acceptor, |tls| tls.ca_file = Some(empty)).await;
    assert!(error.contains("holds no certificate"), "{error}");
}

#[tokio::test]
async fn plain_text_and_tls_that_meet_say_so() {
    let authority = Authority::new();
    let upstream = Upstream::start(Protocol::V5).await;
    let link = Running::start(tls_config(Protocol::V5, upstream.port(), authority.trust()));
    let (mut stream, _) = upstream.listener.accept().await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, b"\x20\x03\0\0\0").await.unwrap();
    let error = link.until("an error", |s| s.last_error.is_some()).await.last_error.unwrap();
    assert!(error.contains("does not speak TLS"), "{error}");
    link.stop().await;

    let upstream = Upstream::start(Protocol::V5).await;
    let link = Running::start(config(Protocol::V5, upstream.port()));
    let acceptor = authority.acceptor("127.0.0.1", false);
    let (stream, _) = upstream.listener.accept().await.unwrap();
    assert!(acceptor.accept(stream).await.is_err());
    let error = link.until("an error", |s| s.last_error.is_some()).await.last_error.unwrap();
    assert!(
        error.contains("speaks TLS on this port") || error.contains("closed") || error.contains("reset"),
        "{error}"
    );
    link.stop().await;
}
