//! The opening handshake: an HTTP request that asks for a WebSocket with a sub-protocol of ours.

use tungstenite::error::{Error, ProtocolError};
use tungstenite::handshake::machine::TryParse;
use tungstenite::handshake::server::{Request, create_response, write_response};
use tungstenite::http::HeaderValue;

use crate::net::origin::Protocol;

/// Longest request, in bytes.
pub const HEAD_BYTES_MAX: usize = 8 << 10;

/// The sub-protocols, by the names that are registered for them, and what MQTT 3.1 clients of old call it.
const SUB_PROTOCOLS: [(&str, Protocol); 5] = [
    ("mqtt", Protocol::Mqtt),
    ("mqttv3.1", Protocol::Mqtt),
    ("v12.stomp", Protocol::Stomp),
    ("v11.stomp", Protocol::Stomp),
    ("v10.stomp", Protocol::Stomp),
];

/// The header that names sub-protocols.
const ASKED_PROTOCOLS: &str = "Sec-WebSocket-Protocol";

/// A request that was understood.
#[derive(Debug, PartialEq, Eq)]
pub struct Upgrade {
    /// Its length; what follows are frames.
    pub used: usize,
    /// What is spoken inside.
    pub protocol: Protocol,
    /// What to answer.
    pub response: Vec<u8>,
}

/// Looks for a whole request at the start of `input`; `None`: its end has not arrived. `path`: what it must ask for.
///
/// # Errors
/// What to answer before closing.
pub fn upgrade(input: &[u8], path: Option<&str>) -> Result<Option<Upgrade>, Vec<u8>> {
    let (used, request) = match Request::try_parse(input) {
        Ok(Some(found)) => found,
        Ok(None) if input.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(None) => {
            return Err(refusal("431 Request Header Fields Too Large", "", "the request is too long"));
        }
        Err(_) => return Err(refusal("400 Bad Request", "", "this is a WebSocket listener")),
    };
    if path.is_some_and(|path| request.uri().path() != path) {
        return Err(refusal("404 Not Found", "", "there is nothing at this path"));
    }
    let mut response = match create_response(&request) {
        Ok(response) => response,
        Err(Error::Protocol(ProtocolError::MissingSecWebSocketVersionHeader)) => {
            let version = "Sec-WebSocket-Version: 13\r\n";
            return Err(refusal(
                "426 Upgrade Required",
                version,
                "only version 13 of WebSocket is spoken here",
            ));
        }
        Err(error) => return Err(refusal("400 Bad Request", "", &error.to_string())),
    };
    let protocol = match chosen(&request) {
        Some((name, protocol)) => {
            response.headers_mut().insert(ASKED_PROTOCOLS, HeaderValue::from_static(name));
            protocol
        }
        // Clients of MQTT must name theirs [MQTT-6.0.0-3]; some of STOMP name none.
        None if !request.headers().contains_key(ASKED_PROTOCOLS) => Protocol::Stomp,
        None => {
            let names: Vec<_> = SUB_PROTOCOLS.iter().map(|(name, _)| *name).collect();
            let what = format!("ask for one of the WebSocket sub-protocols {}", names.join(", "));
            return Err(refusal("400 Bad Request", "", &what));
        }
    };
    let mut bytes = Vec::new();
    write_response(&mut bytes, &response)
        .map_err(|error| refusal("500 Internal Server Error", "", &error.to_string()))?;
    Ok(Some(Upgrade { used, protocol, response: bytes }))
}

/// The first sub-protocol of the client's that is spoken here.
fn chosen(request: &Request) -> Option<(&'static str, Protocol)> {
    let asked = request.headers().get_all(ASKED_PROTOCOLS).iter();
    let mut names =
        asked.filter_map(|value| value.to_str().ok()).flat_map(|list| list.split(',')).map(str::trim);
    names.find_map(|name| SUB_PROTOCOLS.into_iter().find(|known| known.0.eq_ignore_ascii_case(name)))
}

fn refusal(status: &str, headers: &str, what: &str) -> Vec<u8> {
    let length = what.len() + 1;
    format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\n{headers}Content-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{what}\n"
    )
    .into_bytes()
}
