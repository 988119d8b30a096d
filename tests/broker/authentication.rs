//! Extended authentication of MQTT 5.0: SCRAM-SHA-256, spoken here by hand.

use std::num::NonZeroU32;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac, pbkdf2};
use tidegate_mqtt::packet::Auth;
use tidegate_mqtt::{Encode, Property, ReasonCode};

use crate::access::{Place, passwd, reload};
use crate::harness::{Client, Gateway, Login, Message, Packet, Version, Will};

const SCRAM: &str = "SCRAM-SHA-256";
const NOT_AUTHORIZED: u8 = 0x87;
const PROTOCOL_ERROR: u8 = 0x82;
const BAD_METHOD: u8 = 0x8c;
const CONTINUE: ReasonCode = ReasonCode::ContinueAuthentication;
const RENEW: ReasonCode = ReasonCode::ReAuthenticate;

/// Users whose passwords are their names, with as few iterations as are possible.
fn place(users: &[&str]) -> Place {
    Place::new().users_stored_with(users, &["--scram", "--iterations", "4096"])
}

fn gateway() -> Gateway {
    place(&["ann", "bob"]).start()
}

/// A client's side of an exchange.
struct Scram {
    header: String,
    bare: String,
    password: String,
    server_key: Vec<u8>,
    said: String,
}

impl Scram {
    fn new(user: &str, password: &str) -> Self {
        Self::with_header(user, password, "n,,")
    }

    fn with_header(user: &str, password: &str, header: &str) -> Self {
        let bare = format!("n={user},r=nonce-of-{user}");
        let (header, password) = (header.into(), password.into());
        Self { header, bare, password, server_key: Vec::new(), said: String::new() }
    }

    fn first(&self) -> String {
        format!("{}{}", self.header, self.bare)
    }

    fn login(&self) -> Login {
        Login::fresh(Version::V5, "client").extended(SCRAM, self.first())
    }

    /// The second message, to this challenge.
    fn answer(&mut self, challenge: &[u8]) -> String {
        let challenge = String::from_utf8(challenge.to_vec()).unwrap();
        let mut fields = challenge.split(',').map(|field| field[2..].to_owned());
        let (nonce, salt, rounds) = (fields.next().unwrap(), fields.next().unwrap(), fields.next().unwrap());
        assert!(nonce.starts_with(&self.bare[self.bare.find("r=").unwrap() + 2..]), "{nonce}");
        let rounds: NonZeroU32 = rounds.parse().unwrap();
        let mut salted = [0; 32];
        let salt = STANDARD.decode(salt).unwrap();
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, &salt, self.password.as_bytes(), &mut salted);
        let client_key = mac(&salted, b"Client Key");
        self.server_key = mac(&salted, b"Server Key");
        let unproven = format!("c={},r={nonce}", STANDARD.encode(&self.header));
        self.said = format!("{},{challenge},{unproven}", self.bare);
        let stored = digest::digest(&digest::SHA256, &client_key);
        let signature = mac(stored.as_ref(), self.said.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(signature).map(|(key, sign)| key ^ sign).collect();
        format!("{unproven},p={}", STANDARD.encode(proof))
    }

    /// What the server must say at the end: it knows the password too.
    fn last(&self) -> Vec<u8> {
        format!("v={}", STANDARD.encode(mac(&self.server_key, self.said.as_bytes()))).into_bytes()
    }
}

fn mac(key: &[u8], data: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data).as_ref().to_vec()
}

fn auth(reason: ReasonCode, method: &str, message: impl AsRef<[u8]>) -> Vec<u8> {
    let properties = [Property::AuthenticationMethod(method), Property::AuthenticationData(message.as_ref())];
    let mut bytes = Vec::new();
    Auth { reason, properties: &properties[..] }.encode(Version::V5, &mut bytes).unwrap();
    bytes
}

fn send_auth(client: &mut Client, reason: ReasonCode, method: &str, message: impl AsRef<[u8]>) {
    client.raw(&auth(reason, method, message)).unwrap();
}

/// Sends a packet and leaves the answer in line.
fn begin(gateway: &Gateway, login: &Login) -> Client {
    let mut client = Client::dial(gateway.address(), Version::V5, None).unwrap();
    client.raw(&login.encode()).unwrap();
    client
}

/// The next packet is AUTH with this reason and the method; its data.
fn auth_data(client: &mut Client, expected: u8) -> Vec<u8> {
    match client.packet().unwrap() {
        Packet::Auth { reason, method, data } if reason == expected => {
            assert_eq!(method.as_deref(), Some(SCRAM));
            data
        }
        other => panic!("{other:?} instead of AUTH 0x{expected:02x}"),
    }
}

/// Logs in; the reason of CONNACK, which proves that the server knows the password if it is 0.
fn log_in(gateway: &Gateway, scram: &mut Scram, login: &Login) -> (Client, u8) {
    let mut client = begin(gateway, login);
    let challenge = auth_data(&mut client, 0x18);
    send_auth(&mut client, CONTINUE, SCRAM, scram.answer(&challenge));
    client.await_connack().unwrap();
    let reason = client.connack.reason;
    if reason == 0 {
        assert_eq!(client.connack.auth_method.as_deref(), Some(SCRAM));
        assert_eq!(client.connack.auth_data.as_deref(), Some(&scram.last()[..]));
    }
    (client, reason)
}

fn open(gateway: &Gateway, user: &str) -> Client {
    let mut scram = Scram::new(user, user);
    let login = scram.login();
    let (client, reason) = log_in(gateway, &mut scram, &login);
    assert_eq!(reason, 0);
    client
}

/// The connection ends with this reason, whether or not it was open.
fn end(mut client: Client) -> u8 {
    match client.closed().unwrap().pop() {
        Some(Packet::Connack(connack)) => connack.reason,
        Some(Packet::Disconnect { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_that_proves_its_password_is_let_in_and_its_rules_apply() {
    let gateway = place(&["ann", "bob"]).rules("allow all own/%u/#\n").start();
    let mut ann = open(&gateway, "ann");
    ann.subscribe("own/ann/#", 1).unwrap();
    assert_eq!(ann.publish(&Message::new("own/bob/x", "no", 1)).unwrap(), NOT_AUTHORIZED);
    ann.publish(&Message::new("own/ann/x", "yes", 1)).unwrap();
    assert_eq!(ann.message().unwrap().text(), "yes");
    // The same line serves clients of older versions, which send the password as it is.
    let plain = Login::fresh(Version::V311, "old").user("bob", "bob");
    assert_eq!(plain.ask(gateway.address()).unwrap().connack.reason, 0);
    let wrong = Login::fresh(Version::V311, "old").user("bob", "ann");
    assert_eq!(wrong.ask(gateway.address()).unwrap().connack.reason, 0x86);
}

#[test]
fn a_wrong_proof_is_refused_the_same_way_whether_or_not_the_user_exists() {
    let mut gateway = gateway();
    let mut salts = Vec::new();
    for _ in 0..2 {
        for user in ["ann", "nobody"] {
            let mut scram = Scram::new(user, "wrong");
            let mut client = begin(&gateway, &scram.login());
            let challenge = auth_data(&mut client, 0x18);
            send_auth(&mut client, CONTINUE, SCRAM, scram.answer(&challenge));
            assert_eq!(end(client), NOT_AUTHORIZED);
            let challenge = String::from_utf8(challenge).unwrap();
            assert!(challenge.ends_with(",i=4096"), "{challenge}");
            salts.push(challenge.split(',').nth(1).unwrap().to_owned());
        }
        gateway.stop();
        gateway.restart();
    }
    assert_eq!(salts[..2], salts[2..], "salts tell nothing by changing");
    assert_eq!(salts[0].len(), salts[1].len());
    assert!(!gateway.log().contains("nobody"));
}

#[test]
fn the_answer_to_an_earlier_challenge_is_worth_nothing() {
    let gateway = gateway();
    let mut scram = Scram::new("ann", "ann");
    let mut client = begin(&gateway, &scram.login());
    let answer = scram.answer(&auth_data(&mut client, 0x18));
    send_auth(&mut client, CONTINUE, SCRAM, &answer);
    client.await_connack().unwrap();
    assert_eq!(client.connack.reason, 0);
    let mut other = begin(&gateway, &Scram::new("ann", "ann").login());
    auth_data(&mut other, 0x18);
    send_auth(&mut other, CONTINUE, SCRAM, &answer);
    assert_eq!(end(other), NOT_AUTHORIZED);
}

#[test]
fn channel_binding_may_be_known_to_the_client_but_not_be_asked_for() {
    let gateway = gateway();
    for header in ["n,,", "y,,", "n,a=ann,"] {
        let mut scram = Scram::with_header("ann", "ann", header);
        let login = scram.login();
        assert_eq!(log_in(&gateway, &mut scram, &login).1, 0, "{header}");
    }
    for header in ["p=tls-unique,,", "p=tls-exporter,,", "n,a=bob,", "x,,", "", "n,,m=new,"] {
        let client = begin(&gateway, &Scram::with_header("ann", "ann", header).login());
        assert_eq!(end(client), NOT_AUTHORIZED, "{header}");
    }
    // What the client says of it at first is part of what it proves.
    let mut scram = Scram::new("ann", "ann");
    let mut client = begin(&gateway, &scram.login());
    let challenge = auth_data(&mut client, 0x18);
    scram.header = "y,,".into();
    send_auth(&mut client, CONTINUE, SCRAM, scram.answer(&challenge));
    assert_eq!(end(client), NOT_AUTHORIZED);
}

#[test]
fn methods_that_are_not_offered_are_refused_as_such() {
    let gateway = gateway();
    for method in ["SCRAM-SHA-1", "SCRAM-SHA-256-PLUS", "scram-sha-256", "GS2-KRB5", ""] {
        let login = Login::fresh(Version::V5, "c").extended(method, Scram::new("ann", "ann").first());
        assert_eq!(end(begin(&gateway, &login)), BAD_METHOD, "{method}");
    }
    // Where no password is stored for it, SCRAM is not offered either.
    let gateway = Place::new().users_stored_with(&["ann"], &[]).start();
    assert_eq!(end(begin(&gateway, &Scram::new("ann", "ann").login())), BAD_METHOD);
}

#[test]
fn who_speaks_out_of_turn_in_a_login_is_cut_off() {
    let gateway = gateway();
    let challenged = || {
        let mut client = begin(&gateway, &Scram::new("ann", "ann").login());
        auth_data(&mut client, 0x18);
        client
    };
    let mut client = challenged();
    send_auth(&mut client, RENEW, SCRAM, "x");
    assert_eq!(end(client), PROTOCOL_ERROR, "a second beginning");
    let mut client = challenged();
    send_auth(&mut client, CONTINUE, "SCRAM-SHA-512", "x");
    assert_eq!(end(client), PROTOCOL_ERROR, "another method");
    for packet in [&[0xc0, 0][..], &[0x30, 3, 0, 1, b'a'], &[0x82, 7, 0, 1, 0, 0, 1, b'a', 0]] {
        let mut client = challenged();
        client.raw(packet).unwrap();
        assert_eq!(end(client), PROTOCOL_ERROR, "{packet:02x?}");
    }
    let mut client = challenged();
    send_auth(&mut client, CONTINUE, SCRAM, "");
    assert_eq!(end(client), NOT_AUTHORIZED, "an empty answer");
    // Both messages at once: the second one cannot know the nonce.
    let login = Scram::new("ann", "ann").login();
    let mut client = Client::dial(gateway.address(), Version::V5, None).unwrap();
    client.raw(&login.encode()).unwrap();
    send_auth(&mut client, CONTINUE, SCRAM, "c=biws,r=nonce-of-ann,p=AAAA");
    assert_eq!(end(client), NOT_AUTHORIZED);
    // A client may think better of it.
    let mut client = challenged();
    client.raw(&[0xe0, 0]).unwrap();
    assert_eq!(client.closed().unwrap(), []);
    open(&gateway, "ann").ping().unwrap();
}

#[test]
fn an_answer_that_does_not_come_ends_the_login_after_its_time() {
    let gateway = place(&["ann"]).config("[limits]\nlogin_timeout = \"500ms\"\n").start();
    let mut client = begin(&gateway, &Scram::new("ann", "ann").login());
    auth_data(&mut client, 0x18);
    assert_eq!(end(client), ReasonCode::UnspecifiedError.byte(), "CONNACK has no code for it");
}

#[test]
fn an_open_connection_proves_anew_who_it_is_and_goes_on_meanwhile() {
    let gateway = gateway();
    let mut client = open(&gateway, "ann");
    client.subscribe("a", 1).unwrap();
    for _ in 0..3 {
        let mut scram = Scram::new("ann", "ann");
        send_auth(&mut client, RENEW, SCRAM, scram.first());
        let challenge = auth_data(&mut client, 0x18);
        client.publish(&Message::new("a", "meanwhile", 1)).unwrap();
        assert_eq!(client.message().unwrap().text(), "meanwhile");
        send_auth(&mut client, CONTINUE, SCRAM, scram.answer(&challenge));
        assert_eq!(auth_data(&mut client, 0x00), scram.last());
    }
    client.ping().unwrap();
}

/// What a client does that must end it.
type Failing = fn(&mut Client);

#[test]
fn a_reauthentication_that_fails_ends_the_connection_and_publishes_its_will() {
    let gateway = gateway();
    let mut watcher =
        Login::fresh(Version::V5, "watcher").user("bob", "bob").open(gateway.address()).unwrap();
    watcher.subscribe("will", 0).unwrap();
    let failing: [(&str, Failing); 7] = [
        ("a wrong password", |client| {
            let mut scram = Scram::new("ann", "wrong");
            send_auth(client, RENEW, SCRAM, scram.first());
            let mut bytes = auth(CONTINUE, SCRAM, scram.answer(&auth_data(client, 0x18)));
            bytes.extend(Message::new("will", "what follows is not heard", 0).encode(Version::V5));
            client.raw(&bytes).unwrap();
        }),
        ("another user", |client| send_auth(client, RENEW, SCRAM, Scram::new("bob", "bob").first())),
        ("nonsense", |client| send_auth(client, RENEW, SCRAM, "nonsense")),
        ("channel binding", |client| {
            send_auth(client, RENEW, SCRAM, Scram::with_header("ann", "ann", "p=tls-unique,,").first());
        }),
        ("an answer without a question", |client| send_auth(client, CONTINUE, SCRAM, "x")),
        ("two beginnings", |client| {
            send_auth(client, RENEW, SCRAM, Scram::new("ann", "ann").first());
            auth_data(client, 0x18);
            send_auth(client, RENEW, SCRAM, Scram::new("ann", "ann").first());
        }),
        ("another method", |client| send_auth(client, RENEW, "PLAIN", "x")),
    ];
    for (at, (what, fail)) in failing.into_iter().enumerate() {
        let mut scram = Scram::new("ann", "ann");
        let login = scram.login().will(Will::new("will", what, 0));
        let (mut client, reason) = log_in(&gateway, &mut scram, &login);
        assert_eq!(reason, 0);
        fail(&mut client);
        let expected = if at < 4 { NOT_AUTHORIZED } else { PROTOCOL_ERROR };
        assert_eq!(end(client), expected, "{what}");
        assert_eq!(watcher.message().unwrap().text(), what);
    }
}

#[test]
fn a_reauthentication_that_is_not_finished_in_time_ends_the_connection() {
    let gateway = place(&["ann"]).config("[limits]\nlogin_timeout = \"2s\"\n").start();
    let (mut client, mut other) = (open(&gateway, "ann"), {
        let mut scram = Scram::new("ann", "ann");
        let login = Login { id: "other".into(), ..scram.login() };
        log_in(&gateway, &mut scram, &login).0
    });
    let mut scram = Scram::new("ann", "ann");
    send_auth(&mut other, RENEW, SCRAM, scram.first());
    let challenge = auth_data(&mut other, 0x18);
    send_auth(&mut client, RENEW, SCRAM, Scram::new("ann", "ann").first());
    auth_data(&mut client, 0x18);
    send_auth(&mut other, CONTINUE, SCRAM, scram.answer(&challenge));
    auth_data(&mut other, 0x00);
    assert_eq!(end(client), NOT_AUTHORIZED);
    // The time of the other's challenge is over too.
    assert_eq!(other.message_within(Duration::from_millis(2200)).unwrap(), None);
    other.ping().unwrap();
}

#[test]
fn only_a_client_that_named_a_method_may_send_auth() {
    let gateway = gateway();
    let mut client = Login::fresh(Version::V5, "c").user("ann", "ann").open(gateway.address()).unwrap();
    send_auth(&mut client, RENEW, SCRAM, Scram::new("ann", "ann").first());
    assert_eq!(end(client), PROTOCOL_ERROR);
}

#[test]
fn a_changed_password_ends_connections_that_proved_the_old_one() {
    let gateway = gateway();
    let (ann, mut bob) = (open(&gateway, "ann"), {
        let mut scram = Scram::new("bob", "bob");
        let login = Login { id: "bob".into(), ..scram.login() };
        log_in(&gateway, &mut scram, &login).0
    });
    passwd(gateway.folder(), &["passwords", "ann", "--scram"], "another\n");
    reload(&gateway);
    assert_eq!(end(ann), NOT_AUTHORIZED);
    bob.ping().unwrap();
    let mut scram = Scram::new("ann", "another");
    let login = scram.login();
    assert_eq!(log_in(&gateway, &mut scram, &login).1, 0);
    passwd(gateway.folder(), &["passwords", "bob", "--delete"], "");
    reload(&gateway);
    assert_eq!(end(bob), NOT_AUTHORIZED);
}

#[test]
fn wrong_proofs_of_an_address_are_bounded_like_wrong_passwords() {
    let gateway = place(&["ann"]).failures_per_minute(2).start();
    for _ in 0..2 {
        let mut scram = Scram::new("ann", "wrong");
        let login = scram.login();
        assert_eq!(log_in(&gateway, &mut scram, &login).1, NOT_AUTHORIZED);
    }
    assert_eq!(end(begin(&gateway, &Scram::new("ann", "ann").login())), ReasonCode::ServerBusy.byte());
}
