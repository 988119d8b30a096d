//! What a worker hears, taken out of STOMP frames.

use tidegate_stomp::client::Client;
use tidegate_stomp::{Command, Decoded, Frame, FrameWriter, Version};

/// How a delivery is named when it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    subscription: String,
    message: String,
    ack: String,
}

impl Names {
    pub fn write(&self, frame: &mut FrameWriter<'_>, version: Version) {
        let headers: &[(&str, &str)] = match version {
            Version::V12 => &[("id", &self.ack)],
            _ => &[("subscription", &self.subscription), ("message-id", &self.message)],
        };
        frame.headers(headers.iter().copied()).expect("it can be encoded");
    }
}

/// A MESSAGE.
#[derive(Clone, Debug)]
pub struct Message {
    pub sub: u32,
    pub names: Names,
    pub destination: String,
    pub qos: u8,
    pub body: Vec<u8>,
    pub redelivered: bool,
    pub is_end_of_browsing: bool,
}

/// What a worker hears.
#[derive(Clone, Debug)]
pub enum Told {
    Connected,
    Receipt(u32),
    Error { receipt: Option<u32>, text: String },
    Message(Message),
}

/// The frame at the front of `input`, or a gap, and its length.
///
/// # Errors
/// The gateway sent what is no STOMP.
pub fn decode(client: &mut Client, input: &[u8]) -> Result<Option<(Option<Told>, usize)>, String> {
    match client.receive(input) {
        Err(error) => Err(format!("the gateway sent what is no STOMP: {error}")),
        Ok(Decoded::Incomplete { .. }) => Ok(None),
        Ok(Decoded::Gap { consumed }) => Ok(Some((None, consumed))),
        Ok(Decoded::Frame { frame, consumed }) => Ok(Some((Some(told(&frame)?), consumed))),
    }
}

fn told(frame: &Frame<'_>) -> Result<Told, String> {
    let text = |name: &str| frame.headers.get(name).map(|value| value.into_owned());
    let number = |name: &str| text(name).and_then(|value| value.parse::<u32>().ok());
    Ok(match frame.command {
        Command::Connected => Told::Connected,
        Command::Receipt => Told::Receipt(number("receipt-id").ok_or("a receipt for nothing")?),
        Command::Error => {
            let message = text("message").unwrap_or_default();
            Told::Error { receipt: number("receipt-id"), text: message }
        }
        Command::Message => {
            let names = Names {
                subscription: text("subscription").unwrap_or_default(),
                message: text("message-id").unwrap_or_default(),
                ack: text("ack").unwrap_or_default(),
            };
            Told::Message(Message {
                sub: number("subscription").ok_or("a message for no subscription")?,
                names,
                destination: text("destination").unwrap_or_default(),
                qos: number("qos").and_then(|qos| u8::try_from(qos).ok()).unwrap_or(0),
                body: frame.body.to_vec(),
                redelivered: text("redelivered").as_deref() == Some("true"),
                is_end_of_browsing: text("browser").as_deref() == Some("end"),
            })
        }
        other => return Err(format!("the gateway sent {other:?}")),
    })
}
