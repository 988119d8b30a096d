//! TLS of one connection, without a socket: bytes in, bytes out.
//!
//! A connection that rustls buffers itself keeps 4 KiB for what may come. An idle one keeps nothing here: what was read is
//! decrypted where it lies, only the start of a message waits for its end, and what is encrypted goes to the caller's buffer.
//! Bound: [`INCOMING_BYTES_MAX`] for such a start.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, InsufficientSizeError, UnbufferedStatus,
    WriteTraffic,
};
use rustls::{Error, ServerConfig};

/// Most that is kept of a message whose end has not come: certificates of clients are the longest.
const INCOMING_BYTES_MAX: usize = 64 << 10;
/// Room for what a record adds to its payload; more is made where it does not do.
const RECORD_EXTRA_BYTES: usize = 128;

/// The server's side of a connection.
pub struct TlsMachine {
    connection: UnbufferedServerConnection,
    /// The start of a message whose end has not come.
    incoming: Vec<u8>,
    /// Goodbye was said, or the peer broke the rules: nothing more is heard or said.
    over: bool,
}

/// What a peer that broke no rule has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// There may be more to come.
    Open,
    /// Goodbye.
    Closed,
}

impl TlsMachine {
    /// Waits for a client's first message.
    ///
    /// # Errors
    /// When the configuration serves nobody.
    pub fn new(config: Arc<ServerConfig>) -> Result<Self, Error> {
        Ok(Self { connection: UnbufferedServerConnection::new(config)?, incoming: Vec::new(), over: false })
    }

    /// The keys are not agreed on yet.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// What the peer has shown.
    #[must_use]
    pub fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.connection.peer_certificates()
    }

    /// Takes what was read. What it says goes to the end of `plain`, what must be answered to the end of `out`.
    ///
    /// # Errors
    /// The peer broke the rules; what it said before counts, and the alert for it is in `out`.
    pub fn receive(
        &mut self,
        wire: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<Heard, Error> {
        if self.over {
            return Err(Error::HandshakeNotComplete);
        }
        let waiting = std::mem::take(&mut self.incoming);
        if waiting.is_empty() {
            let (used, heard) = self.run(wire, plain, out, |_, _| {});
            return self.keep(&wire[used..], heard);
        }
        let mut all = waiting;
        all.extend_from_slice(wire);
        let (used, heard) = self.run(&mut all, plain, out, |_, _| {});
        self.keep(&all[used..], heard)
    }

    /// Encrypts to the end of `out`; nothing more is said once it is over.
    pub fn send(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.write(out, |traffic, out| {
            append(out, bytes.len() + RECORD_EXTRA_BYTES, |room| traffic.encrypt(bytes, room));
        });
    }

    /// Says goodbye, once.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        self.write(out, |traffic, out| {
            append(out, RECORD_EXTRA_BYTES, |room| traffic.queue_close_notify(room));
        });
        self.over = true;
    }

    fn write(
        &mut self,
        out: &mut Vec<u8>,
        say: impl FnOnce(&mut WriteTraffic<'_, ServerConnectionData>, &mut Vec<u8>),
    ) {
        if self.over {
            return;
        }
        // Whatever was whole in there has been taken, so this reads nothing.
        let mut incoming = std::mem::take(&mut self.incoming);
        let (used, heard) = self.run(&mut incoming, &mut Vec::new(), out, say);
        incoming.drain(..used);
        self.incoming = incoming;
        self.over = heard.is_err();
    }

    fn keep(&mut self, rest: &[u8], heard: Result<Heard, Error>) -> Result<Heard, Error> {
        let heard = match rest.len() {
            0..=INCOMING_BYTES_MAX => heard,
            _ => Err(Error::General(format!("a message of more than {INCOMING_BYTES_MAX} bytes"))),
        };
        self.over = heard.is_err();
        if !self.over {
            self.incoming = rest.to_vec();
        }
        heard
    }

    /// Takes whole messages from the front of `wire`, says how many bytes they have, and lets `say` speak where that is allowed.
    fn run(
        &mut self,
        wire: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
        say: impl FnOnce(&mut WriteTraffic<'_, ServerConnectionData>, &mut Vec<u8>),
    ) -> (usize, Result<Heard, Error>) {
        let mut used = 0;
        let mut heard = Heard::Open;
        let error = loop {
            let UnbufferedStatus { mut discard, state } =
                self.connection.process_tls_records(&mut wire[used..]);
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(Ok(record)) = traffic.next_record() {
                        discard += record.discard;
                        plain.extend_from_slice(record.payload);
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, out),
                // It lies in `out`, which is written in order.
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    say(&mut traffic, out);
                    return (used + discard, Ok(heard));
                }
                Ok(ConnectionState::PeerClosed) => heard = Heard::Closed,
                Ok(ConnectionState::BlockedHandshake) => return (used + discard, Ok(heard)),
                Ok(ConnectionState::Closed) => return (used + discard, Ok(Heard::Closed)),
                // Data before the handshake is not offered.
                Ok(_) => break Error::General("early data".to_owned()),
                Err(error) => break error,
            }
            used += discard;
        };
        self.alert(out);
        (used, Err(error))
    }

    /// What tells the peer of its fault. What it sent is not looked at again.
    fn alert(&mut self, out: &mut Vec<u8>) {
        while self.connection.wants_write() {
            match self.connection.process_tls_records(&mut []).state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, out),
                _ => return,
            }
        }
    }
}

impl fmt::Debug for TlsMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsMachine").field("waiting", &self.incoming.len()).finish_non_exhaustive()
    }
}

fn encode(data: &mut EncodeTlsData<'_, ServerConnectionData>, out: &mut Vec<u8>) {
    append(out, 0, |room| match data.encode(room) {
        Ok(n) => Ok(n),
        Err(EncodeError::InsufficientSize(size)) => Err(size.into()),
        // Nobody else encodes it, and here it is done once.
        Err(EncodeError::AlreadyEncoded) => Ok(0),
    });
}

/// Adds to `out` what `write` makes in the room that it gets, or asks for.
fn append(out: &mut Vec<u8>, room: usize, mut write: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>) {
    let start = out.len();
    out.resize(start + room, 0);
    let mut result = write(&mut out[start..]);
    if let Err(EncryptError::InsufficientSize(InsufficientSizeError { required_size })) = result {
        out.resize(start + required_size, 0);
        result = write(&mut out[start..]);
    }
    // Keys that may not be used any longer end the connection: rustls says goodbye, and the peer misses what was not sent.
    out.truncate(start + result.unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};

    use super::*;

    /// A client and a machine that have not spoken yet.
    fn pair(version: &'static SupportedProtocolVersion) -> (ClientConnection, TlsMachine) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut client = ClientConnection::new(Arc::new(client), "localhost".try_into().unwrap()).unwrap();
        client.set_buffer_limit(None);
        (client, TlsMachine::new(Arc::new(server)).unwrap())
    }

    fn said(client: &mut ClientConnection) -> Vec<u8> {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        wire
    }

    fn tell(client: &mut ClientConnection, mut wire: &[u8]) {
        while !wire.is_empty() {
            client.read_tls(&mut wire).unwrap();
            client.process_new_packets().unwrap();
        }
    }

    /// Carries everything both ways, to the machine in pieces of `piece` bytes, until nobody has anything to say.
    fn carry(client: &mut ClientConnection, machine: &mut TlsMachine, piece: usize) -> Vec<u8> {
        let mut plain = Vec::new();
        loop {
            let mut wire = said(client);
            if wire.is_empty() {
                return plain;
            }
            let mut out = Vec::new();
            for piece in wire.chunks_mut(piece) {
                assert_eq!(machine.receive(piece, &mut plain, &mut out), Ok(Heard::Open));
            }
            tell(client, &out);
        }
    }

    fn heard(client: &mut ClientConnection) -> Vec<u8> {
        let mut all = Vec::new();
        // An error says that there is no more now.
        let _ = client.reader().read_to_end(&mut all);
        all
    }

    #[test]
    fn what_is_said_arrives_whatever_the_pieces_and_an_idle_machine_keeps_nothing() {
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            for piece in [1, 7, 1000, 1 << 20] {
                let (mut client, mut machine) = pair(version);
                assert!(machine.is_handshaking());
                carry(&mut client, &mut machine, piece);
                assert!(!machine.is_handshaking());
                for length in [1, 5000, 100_000] {
                    let text = vec![b'x'; length];
                    client.writer().write_all(&text).unwrap();
                    assert_eq!(carry(&mut client, &mut machine, piece), text);
                    assert_eq!(machine.incoming.capacity(), 0);
                    let mut out = Vec::new();
                    machine.send(&text, &mut out);
                    let mut got = 0;
                    for part in out.chunks(4096) {
                        tell(&mut client, part);
                        got += heard(&mut client).len();
                    }
                    assert_eq!(got, length);
                }
            }
        }
    }

    #[test]
    fn what_is_said_in_the_middle_of_a_record_of_the_peers_disturbs_neither() {
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let (mut client, mut machine) = pair(version);
            carry(&mut client, &mut machine, 1 << 20);
            let text = vec![b'x'; 40_000];
            client.writer().write_all(&text).unwrap();
            let (mut plain, mut said_back, mut got) = (Vec::new(), 0, 0);
            for piece in said(&mut client).chunks_mut(999) {
                let mut out = Vec::new();
                assert_eq!(machine.receive(piece, &mut plain, &mut out), Ok(Heard::Open));
                machine.send(b"meanwhile", &mut out);
                said_back += b"meanwhile".len();
                tell(&mut client, &out);
                got += heard(&mut client).len();
            }
            assert_eq!((plain, got), (text, said_back));
        }
    }

    #[test]
    fn new_keys_are_taken_and_answered() {
        let (mut client, mut machine) = pair(&rustls::version::TLS13);
        carry(&mut client, &mut machine, 1 << 20);
        for _ in 0..3 {
            client.refresh_traffic_keys().unwrap();
            client.writer().write_all(b"question").unwrap();
            assert_eq!(carry(&mut client, &mut machine, 9), b"question");
            let mut out = Vec::new();
            machine.send(b"answer", &mut out);
            tell(&mut client, &out);
            assert_eq!(heard(&mut client), b"answer");
        }
    }

    #[test]
    fn a_goodbye_is_heard_after_what_was_said_and_is_said() {
        let (mut client, mut machine) = pair(&rustls::version::TLS13);
        carry(&mut client, &mut machine, 1 << 20);
        client.writer().write_all(b"last words").unwrap();
        client.send_close_notify();
        let (mut plain, mut out) = (Vec::new(), Vec::new());
        let result = machine.receive(&mut said(&mut client), &mut plain, &mut out);
        assert_eq!((result, &plain[..]), (Ok(Heard::Closed), &b"last words"[..]));
        machine.send(b"mine", &mut out);
        machine.close(&mut out);
        client.read_tls(&mut &out[..]).unwrap();
        assert!(client.process_new_packets().unwrap().peer_has_closed());
        assert_eq!(heard(&mut client), b"mine");
    }

    #[test]
    fn a_damaged_record_is_answered_with_an_alert_and_what_came_before_counts() {
        let (mut client, mut machine) = pair(&rustls::version::TLS13);
        carry(&mut client, &mut machine, 1 << 20);
        client.writer().write_all(b"good").unwrap();
        let mut wire = said(&mut client);
        client.writer().write_all(b"bad").unwrap();
        wire.extend(said(&mut client));
        *wire.last_mut().unwrap() ^= 1;
        let (mut plain, mut out) = (Vec::new(), Vec::new());
        assert_eq!(machine.receive(&mut wire, &mut plain, &mut out), Err(Error::DecryptError));
        assert_eq!(plain, b"good");
        machine.send(b"more", &mut out);
        client.read_tls(&mut &out[..]).unwrap();
        assert!(matches!(client.process_new_packets(), Err(Error::AlertReceived(_))));
        assert!(machine.receive(&mut wire, &mut plain, &mut out).is_err());
        assert_eq!(plain, b"good");
    }

    #[test]
    fn a_message_without_an_end_is_refused_at_the_bound() {
        let (_, mut machine) = pair(&rustls::version::TLS13);
        // Records of a ClientHello of 16 MiB.
        let mut record = vec![22, 3, 1, 0x40, 0];
        record.extend([1, 0xff, 0xff, 0xff]);
        record.resize(5 + 0x4000, 0);
        let mut kept = 0;
        for _ in 0..64 {
            if machine.receive(&mut record, &mut Vec::new(), &mut Vec::new()).is_err() {
                return;
            }
            kept = machine.incoming.capacity();
            assert!(kept <= INCOMING_BYTES_MAX);
            record[5..9].fill(0);
        }
        panic!("{kept} bytes were kept");
    }

    #[test]
    fn damage_anywhere_is_an_error_or_nothing_and_never_a_panic() {
        let seed: u64 = 0x7e57;
        let mut state = seed;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        eprintln!("seed {seed}");
        for round in 0..300 {
            let version = [&rustls::version::TLS12, &rustls::version::TLS13][round % 2];
            let (mut client, mut machine) = pair(version);
            if round % 3 > 0 {
                carry(&mut client, &mut machine, 1 << 20);
                client.writer().write_all(&[7; 300]).unwrap();
            }
            let mut wire = said(&mut client);
            for _ in 0..=random(3) {
                let at = random(wire.len());
                wire[at] ^= 1 << random(8);
            }
            let (mut plain, mut out) = (Vec::new(), Vec::new());
            let piece = 1 + random(wire.len());
            for piece in wire.chunks_mut(piece) {
                let heard = machine.receive(piece, &mut plain, &mut out);
                machine.send(b"whatever", &mut out);
                machine.close(&mut out);
                if heard.is_err() {
                    break;
                }
            }
            assert!(plain.len() <= 300);
        }
    }
}
