//! STOMP headers and what a message carries: the only place where one becomes the other.
//!
//! | STOMP | message |
//! |---|---|
//! | `content-type` | content type |
//! | `correlation-id` | correlation data; base64, with `correlation-id-encoding:base64`, when it is no text |
//! | `reply-to` | response topic, as a destination |
//! | `expires` (milliseconds of the epoch), `ttl` (milliseconds) | expiry; `ttl` wins, 0 is never |
//! | `persistent`, `qos` | quality of service: at least 1 unless `persistent:false` or `qos:0` |
//! | `retain` | the RETAIN flag |
//! | `payload-format` | payload format indicator: `utf-8` |
//! | any other header | user property, in order, repeated ones included |
//!
//! Headers that speak of one frame or one delivery ([`RESERVED`], and the control headers of the protocol) are never user
//! properties. A user property that is named like one crosses as `user-property-<name>`, and comes back as it was.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use tidegate_stomp::Headers;
use tidegate_stomp::frame::is_control_header;

use super::destination::{Destination, DestinationError, shown};
use crate::broker::api::Delivery;
use crate::message::{MessageHead, Properties, Qos};
use crate::time::{Now, Wall};

/// Headers with a meaning of their own, beside the protocol's.
const RESERVED: [&str; 18] = [
    "content-type",
    "correlation-id",
    ENCODING,
    "reply-to",
    "expires",
    "ttl",
    "persistent",
    "qos",
    "retain",
    "retained",
    "payload-format",
    "redelivered",
    "redelivery-count",
    "timestamp",
    "browser",
    "login",
    "passcode",
    "selector",
];
/// Says that `correlation-id` is not a text.
const ENCODING: &str = "correlation-id-encoding";
/// Before the name of a user property that cannot be a header as it is.
const ESCAPE: &str = "user-property-";

/// What is wrong with a header of SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HeaderError {
    #[error("persistent is neither true nor false")]
    Persistent,
    #[error("retain is neither true nor false")]
    Retain,
    #[error("qos is none of 0, 1 and 2")]
    Qos,
    #[error("expires is not a number of milliseconds since 1970")]
    Expires,
    #[error("ttl is not a number of milliseconds")]
    Ttl,
    #[error("correlation-id is not base64, as correlation-id-encoding says")]
    Correlation,
    #[error("correlation-id-encoding is not base64")]
    Encoding,
    #[error("reply-to is not a destination that can be sent to")]
    ReplyTo,
    #[error("payload-format is not utf-8")]
    PayloadFormat,
}

impl From<DestinationError> for HeaderError {
    fn from(_: DestinationError) -> Self {
        HeaderError::ReplyTo
    }
}

/// What the headers of a SEND say of its message.
pub(super) fn head(headers: &Headers<'_>, client: &str, now: Now) -> Result<MessageHead, HeaderError> {
    let mut head = MessageHead { qos: qos(headers)?, published: now.wall, ..MessageHead::default() };
    head.retain = flag(headers, "retain", HeaderError::Retain)?.unwrap_or(false);
    head.expires = expires(headers, now.wall)?;
    let properties = properties(headers, client)?;
    head.properties = (!properties.is_empty()).then(|| Box::new(properties));
    Ok(head)
}

fn flag(headers: &Headers<'_>, name: &str, error: HeaderError) -> Result<Option<bool>, HeaderError> {
    match headers.get(name) {
        None => Ok(None),
        Some(value) if value.eq_ignore_ascii_case("true") => Ok(Some(true)),
        Some(value) if value.eq_ignore_ascii_case("false") => Ok(Some(false)),
        Some(_) => Err(error),
    }
}

fn qos(headers: &Headers<'_>) -> Result<Qos, HeaderError> {
    let persistent = flag(headers, "persistent", HeaderError::Persistent)?;
    let asked = match headers.get("qos").as_deref() {
        None => None,
        Some("0") => Some(Qos::AtMostOnce),
        Some("1") => Some(Qos::AtLeastOnce),
        Some("2") => Some(Qos::ExactlyOnce),
        Some(_) => return Err(HeaderError::Qos),
    };
    Ok(match (persistent, asked) {
        (Some(false), _) => Qos::AtMostOnce,
        (Some(true), Some(Qos::AtMostOnce)) | (_, None) => Qos::AtLeastOnce,
        (_, Some(qos)) => qos,
    })
}

fn expires(headers: &Headers<'_>, now: Wall) -> Result<Option<Wall>, HeaderError> {
    if let Some(text) = headers.get("ttl") {
        let millis = millis(&text).ok_or(HeaderError::Ttl)?;
        return Ok((millis > 0).then(|| Wall(now.0.saturating_add(millis))));
    }
    let Some(text) = headers.get("expires") else { return Ok(None) };
    let at = millis(&text).ok_or(HeaderError::Expires)?;
    Ok((at > 0).then_some(Wall(at)))
}

fn millis(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn properties(headers: &Headers<'_>, client: &str) -> Result<Properties, HeaderError> {
    let text = |name: &str| headers.get(name).map(|value| value.into_owned().into_boxed_str());
    let response_topic = match headers.get("reply-to") {
        Some(destination) => Some(Destination::parse(&destination)?.topic(client)?.into_owned().into()),
        None => None,
    };
    let payload_is_text = match headers.get("payload-format").as_deref() {
        None => false,
        Some("utf-8") => true,
        Some(_) => return Err(HeaderError::PayloadFormat),
    };
    let mut user = Vec::new();
    for header in headers.user().filter(|header| !is_reserved(&header.name)) {
        let name = match header.name.strip_prefix(ESCAPE) {
            Some(name) if needs_escape(name) => name.into(),
            _ => header.name.into_owned().into_boxed_str(),
        };
        user.push((name, header.value.into_owned().into_boxed_str()));
    }
    Ok(Properties {
        payload_is_text,
        content_type: text("content-type"),
        response_topic,
        correlation_data: correlation(headers)?,
        user,
    })
}

fn correlation(headers: &Headers<'_>) -> Result<Option<Box<[u8]>>, HeaderError> {
    let value = headers.get("correlation-id");
    match (value, headers.get(ENCODING).as_deref()) {
        (value, None) => Ok(value.map(|text| text.as_bytes().into())),
        (Some(text), Some("base64")) => {
            BASE64.decode(&*text).map(|data| Some(data.into())).map_err(|_| HeaderError::Correlation)
        }
        (None, Some("base64")) => Ok(None),
        (_, Some(_)) => Err(HeaderError::Encoding),
    }
}

fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name) || is_control_header(name)
}

/// A user property of this name cannot be a header of the same name.
fn needs_escape(name: &str) -> bool {
    let mut bare = name;
    while let Some(rest) = bare.strip_prefix(ESCAPE) {
        bare = rest;
    }
    bare.is_empty() || is_reserved(bare)
}

/// A header of a MESSAGE.
pub(super) type Pair<'m> = (Cow<'m, str>, Cow<'m, str>);

/// What a delivery's headers are, beside those that the connection writes. They go to the end of `out`.
pub(super) fn delivered<'m>(delivery: &'m Delivery, client: &str, now: Now, out: &mut Vec<Pair<'m>>) {
    let message = &delivery.message;
    let persistent = delivery.qos != Qos::AtMostOnce;
    let known = |name: &'static str, value: &'static str| (Cow::Borrowed(name), Cow::Borrowed(value));
    if let Some(properties) = message.properties() {
        delivered_properties(properties, client, out);
    }
    if let Some(at) = message.expires() {
        out.push(("expires".into(), at.0.to_string().into()));
        out.push(("ttl".into(), at.millis_since(now.wall).max(1).to_string().into()));
    }
    out.push(("timestamp".into(), message.published().0.to_string().into()));
    out.push(known("persistent", if persistent { "true" } else { "false" }));
    out.push(known("qos", ["0", "1", "2"][delivery.qos as usize]));
    if delivery.retain {
        out.push(known("retained", "true"));
    }
    if delivery.duplicate || delivery.redeliveries > 0 {
        out.push(known("redelivered", "true"));
    }
    if delivery.redeliveries > 0 {
        out.push(("redelivery-count".into(), delivery.redeliveries.to_string().into()));
    }
    if let Some(properties) = message.properties() {
        out.extend(properties.user.iter().map(|(name, value)| {
            let name =
                if needs_escape(name) { Cow::Owned([ESCAPE, name].concat()) } else { Cow::Borrowed(&**name) };
            (name, Cow::Borrowed(&**value))
        }));
    }
}

fn delivered_properties<'m>(properties: &'m Properties, client: &str, out: &mut Vec<Pair<'m>>) {
    if let Some(content_type) = &properties.content_type {
        out.push(("content-type".into(), Cow::Borrowed(content_type)));
    }
    if let Some(data) = &properties.correlation_data {
        match std::str::from_utf8(data) {
            Ok(text) if !text.contains('\0') => out.push(("correlation-id".into(), Cow::Borrowed(text))),
            _ => {
                out.push(("correlation-id".into(), BASE64.encode(data).into()));
                out.push((ENCODING.into(), "base64".into()));
            }
        }
    }
    if let Some(topic) = &properties.response_topic {
        out.push(("reply-to".into(), shown(topic, client).into()));
    }
    if properties.payload_is_text {
        out.push(("payload-format".into(), "utf-8".into()));
    }
}
