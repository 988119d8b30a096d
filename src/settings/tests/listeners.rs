//! Listeners: TLS, and what goes with what.

use super::Case;
use crate::settings::{CertificateUser, ClientCertificate, Transport};

const FILES: &str = "cert_file = 's.pem'\nkey_file = '/etc/s.key'\n";

fn tls(more: &str) -> String {
    format!("[[listener]]\nurl = 'mqtts://127.0.0.1'\n{FILES}{more}")
}

#[test]
fn a_tls_listener_has_its_files_beside_the_configuration() {
    let case = Case::new(&tls(""));
    let settings = case.settings();
    let listener = &settings.listeners[0];
    let tls = listener.tls.as_ref().unwrap();
    assert_eq!((listener.transport, listener.addr().unwrap().port()), (Transport::Tls, 8883));
    assert!(tls.cert_file.is_absolute() && tls.cert_file.ends_with("s.pem"), "{tls:?}");
    assert_eq!(tls.key_file.to_str(), Some("/etc/s.key"));
    assert_eq!((tls.client_certificate, tls.user), (ClientCertificate::None, None));
}

#[test]
fn an_authority_for_clients_makes_their_certificates_necessary_unless_the_file_says_otherwise() {
    let of = |more: &str| Case::new(&tls(more)).settings().listeners[0].tls.clone().unwrap();
    let strict = of("client_ca_file = 'c.pem'\nuser_from_cert = 'san'");
    assert_eq!(strict.client_certificate, ClientCertificate::Required);
    assert_eq!(strict.user, Some(CertificateUser::AlternativeName));
    let lenient = of("client_ca_file = 'c.pem'\nclient_cert = 'optional'");
    assert_eq!(lenient.client_certificate, ClientCertificate::Optional);
}

#[test]
fn a_client_certificate_that_is_required_opens_an_address_to_the_network() {
    let remote = |more: &str| tls(more).replace("127.0.0.1", "0.0.0.0");
    assert_eq!(Case::new(&remote("client_ca_file = 'c.pem'")).settings().listeners.len(), 1);
    let optional = complaint(&remote("client_ca_file = 'c.pem'\nclient_cert = 'optional'"));
    assert!(optional.contains("can be reached from other machines"), "{optional}");
}

#[test]
fn a_unix_socket_has_the_permissions_that_are_written() {
    let mode = |more: &str| {
        let text = format!("[[listener]]\nurl = 'mqtt+unix:///run/a'\n{more}");
        Case::new(&text).settings().listeners[0].mode
    };
    assert_eq!((mode(""), mode("mode = '0660'"), mode("mode = \"600\"")), (None, Some(0o660), Some(0o600)));
}

#[test]
fn keys_that_do_not_go_together_are_refused_at_their_lines() {
    let plain = |more: &str| format!("[[listener]]\nurl = 'mqtt://127.0.0.1'\n{more}");
    let unix = |more: &str| plain(more).replace("mqtt://127.0.0.1", "mqtt+unix:///a");
    for (text, said) in [
        (
            plain("cert_file = 'a'"),
            "t.toml:3: listener[0].cert_file: is for TLS, and mqtt:// is not encrypted",
        ),
        (plain("user_from_cert = 'cn'"), "t.toml:3: listener[0].user_from_cert: is for TLS"),
        (plain("user_from_cert = 'name'"), "t.toml:3: listener[0].user_from_cert: "),
        (plain("trailing_lf = true"), "t.toml:3: listener[0].trailing_lf: is for STOMP"),
        (plain("mode = '0660'"), "t.toml:3: listener[0].mode: is for Unix sockets"),
        (unix("mode = '66'"), "t.toml:3: listener[0].mode: expected permissions in octal digits"),
        (unix("mode = '0680'"), "t.toml:3: listener[0].mode: expected permissions in octal digits"),
        (unix("mode = '1777'"), "t.toml:3: listener[0].mode: expected permissions in octal digits"),
        (unix("mode = '0060'"), "t.toml:3: listener[0].mode: \"0060\" keeps the broker's own user out"),
        (unix("mode = 0660"), "t.toml:3:"),
        (plain("connections_max = 0"), "t.toml:3: listener[0].connections_max: expected 1 to 1000000"),
        (tls("client_cert = 'required'"), "t.toml:5: listener[0].client_cert: needs `client_ca_file`"),
        (tls("client_crl_file = 'r'"), "t.toml:5: listener[0].client_crl_file: needs clients' certificates"),
        (plain("client_crl_file = 'r'"), "t.toml:3: listener[0].client_crl_file: is for TLS"),
        (tls("user_from_cert = 'cn'"), "t.toml:5: listener[0].user_from_cert: needs clients' certificates"),
        (
            tls("client_cert = 'none'\nclient_ca_file = 'c.pem'"),
            "t.toml:6: listener[0].client_ca_file: has no use",
        ),
        (
            "[[listener]]\nurl = 'wss://127.0.0.1'".to_owned(),
            "t.toml:1: listener[0].cert_file: is missing: a TLS listener needs",
        ),
        (
            "[[listener]]\nurl = 'mqtt+unix:///a'\n[[listener]]\nurl = 'mqtt+unix:///a'".to_owned(),
            "t.toml:4: listener[1].url: another listener has the address /a already",
        ),
    ] {
        let found = complaint(&text);
        assert!(found.starts_with(said), "{found}");
    }
}

fn complaint(text: &str) -> String {
    Case::new(text).complaint()
}
