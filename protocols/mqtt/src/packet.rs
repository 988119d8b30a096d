//! One structure per control packet.
//!
//! A structure serves both directions. Decoded, its strings borrow from the input and its properties and
//! lists are checked views of the input ([`Properties`], [`SubscribeFilters`], [`TopicFilters`],
//! [`ReasonCodes`]). To encode one, any [`crate::PropertyList`] and any iterator may stand in their place.

use crate::error::{DecodeError, LimitExceeded, Malformed, ProtocolViolation};
use crate::property::Properties;
use crate::reader::Reader;
use crate::reason::ReasonCode;
use crate::topic::{check_topic_filter, split_shared};
use crate::types::{PacketId, PacketType, Qos, Version};
use core::fmt;

/// A control packet that was received.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant's structure is documented")]
pub enum Packet<'a> {
    Connect(Connect<'a>),
    Connack(Connack<Properties<'a>>),
    Publish(Publish<'a>),
    Puback(Ack<Properties<'a>>),
    Pubrec(Ack<Properties<'a>>),
    Pubrel(Ack<Properties<'a>>),
    Pubcomp(Ack<Properties<'a>>),
    Subscribe(Subscribe<Properties<'a>, SubscribeFilters<'a>>),
    Suback(Suback<Properties<'a>, ReasonCodes<'a>>),
    Unsubscribe(Unsubscribe<Properties<'a>, TopicFilters<'a>>),
    Unsuback(Unsuback<Properties<'a>, ReasonCodes<'a>>),
    Pingreq,
    Pingresp,
    Disconnect(Disconnect<Properties<'a>>),
    Auth(Auth<Properties<'a>>),
}

impl Packet<'_> {
    /// The packet's kind.
    pub const fn packet_type(&self) -> PacketType {
        match self {
            Packet::Connect(_) => PacketType::Connect,
            Packet::Connack(_) => PacketType::Connack,
            Packet::Publish(_) => PacketType::Publish,
            Packet::Puback(_) => PacketType::Puback,
            Packet::Pubrec(_) => PacketType::Pubrec,
            Packet::Pubrel(_) => PacketType::Pubrel,
            Packet::Pubcomp(_) => PacketType::Pubcomp,
            Packet::Subscribe(_) => PacketType::Subscribe,
            Packet::Suback(_) => PacketType::Suback,
            Packet::Unsubscribe(_) => PacketType::Unsubscribe,
            Packet::Unsuback(_) => PacketType::Unsuback,
            Packet::Pingreq => PacketType::Pingreq,
            Packet::Pingresp => PacketType::Pingresp,
            Packet::Disconnect(_) => PacketType::Disconnect,
            Packet::Auth(_) => PacketType::Auth,
        }
    }
}

/// CONNECT (MQTT 5.0, 3.1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Connect<'a, P = Properties<'a>> {
    /// The version that the client wants to speak.
    pub version: Version,
    /// Bit 7 of the protocol level, which marks a broker's bridge by a convention of MQTT 3.1 and 3.1.1.
    pub bridge: bool,
    /// Clean Start, or Clean Session before MQTT 5.0.
    pub clean_start: bool,
    /// Keep Alive in seconds; 0 switches it off.
    pub keep_alive: u16,
    /// The client identifier; empty to have the server choose one, where the version allows it.
    pub client_id: &'a str,
    /// The will message.
    pub will: Option<Will<'a, P>>,
    /// The user name.
    pub user_name: Option<&'a str>,
    /// The password. Before MQTT 5.0 only with a user name `[MQTT-3.1.2-22 of MQTT 3.1.1]`.
    pub password: Option<&'a [u8]>,
    /// The properties.
    pub properties: P,
}

/// The will message of CONNECT (MQTT 5.0, 3.1.3.2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Will<'a, P = Properties<'a>> {
    /// Quality of service to publish it with.
    pub qos: Qos,
    /// Whether it is to be retained.
    pub retain: bool,
    /// Topic name to publish it to.
    pub topic: &'a str,
    /// Its payload.
    pub payload: &'a [u8],
    /// Its properties.
    pub properties: P,
}

/// CONNACK (MQTT 5.0, 3.2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Connack<P> {
    /// Whether the server resumes a session; not sent with an error `[MQTT-3.2.2-6]`, nor in MQTT 3.1.
    pub session_present: bool,
    /// The reason code, or the one with the meaning of a return code ([`crate::ConnectReturnCode`]).
    pub reason: ReasonCode,
    /// The properties.
    pub properties: P,
}

/// PUBLISH (MQTT 5.0, 3.3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Publish<'a, P = Properties<'a>> {
    /// Whether this may be a repetition. Never with QoS 0.
    pub dup: bool,
    /// Quality of service of this transfer.
    pub qos: Qos,
    /// Retain flag.
    pub retain: bool,
    /// The topic name; empty only if the properties hold a topic alias.
    pub topic: &'a str,
    /// The packet identifier: `Some` exactly if the quality of service is not 0.
    pub packet_id: Option<PacketId>,
    /// The properties.
    pub properties: P,
    /// The payload.
    pub payload: &'a [u8],
}

/// PUBACK, PUBREC, PUBREL and PUBCOMP (MQTT 5.0, 3.4 to 3.7).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ack<P> {
    /// The message that it is about.
    pub packet_id: PacketId,
    /// The reason code; success before MQTT 5.0.
    pub reason: ReasonCode,
    /// The properties.
    pub properties: P,
}

/// SUBSCRIBE (MQTT 5.0, 3.8). `F` yields [`SubscribeFilter`]s, at least one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Subscribe<P, F> {
    /// The packet identifier.
    pub packet_id: PacketId,
    /// The properties.
    pub properties: P,
    /// The filters with their options.
    pub filters: F,
}

/// SUBACK (MQTT 5.0, 3.9). `C` yields [`ReasonCode`]s, one per filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suback<P, C> {
    /// The packet identifier of the SUBSCRIBE.
    pub packet_id: PacketId,
    /// The properties.
    pub properties: P,
    /// A code per filter, in order `[MQTT-3.9.3-1]`. Errors read as 0x80 before MQTT 5.0.
    pub reasons: C,
}

/// UNSUBSCRIBE (MQTT 5.0, 3.10). `F` yields topic filters, at least one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unsubscribe<P, F> {
    /// The packet identifier.
    pub packet_id: PacketId,
    /// The properties.
    pub properties: P,
    /// The filters.
    pub filters: F,
}

/// UNSUBACK (MQTT 5.0, 3.11). `C` yields [`ReasonCode`]s, one per filter; none is sent before MQTT 5.0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unsuback<P, C> {
    /// The packet identifier of the UNSUBSCRIBE.
    pub packet_id: PacketId,
    /// The properties.
    pub properties: P,
    /// A code per filter, in order `[MQTT-3.11.3-1]`.
    pub reasons: C,
}

/// DISCONNECT (MQTT 5.0, 3.14).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disconnect<P> {
    /// The reason code; normal disconnection before MQTT 5.0.
    pub reason: ReasonCode,
    /// The properties.
    pub properties: P,
}

/// AUTH (MQTT 5.0, 3.15).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Auth<P> {
    /// The reason code.
    pub reason: ReasonCode,
    /// The properties.
    pub properties: P,
}

/// When a subscription is sent the retained messages (MQTT 5.0, 3.8.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RetainHandling {
    /// At every SUBSCRIBE.
    #[default]
    Send = 0,
    /// Only if the subscription is new.
    SendIfNew = 1,
    /// Never.
    DoNotSend = 2,
}

/// Subscription options (MQTT 5.0, 3.8.3.1). Before MQTT 5.0 only the quality of service exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SubscribeOptions {
    /// Highest quality of service the client wants.
    pub qos: Qos,
    /// The client does not want what it publishes itself.
    pub no_local: bool,
    /// Forwarded messages keep their retain flag.
    pub retain_as_published: bool,
    /// When retained messages are sent.
    pub retain_handling: RetainHandling,
}

impl SubscribeOptions {
    /// Options of MQTT 3.1 and 3.1.1: a quality of service.
    pub const fn with_qos(qos: Qos) -> SubscribeOptions {
        SubscribeOptions {
            qos,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::Send,
        }
    }

    pub(crate) const fn to_byte(self, version: Version) -> u8 {
        if !version.is_v5() {
            return self.qos.bits();
        }
        let no_local = if self.no_local { 0x04 } else { 0 };
        let retain_as_published = if self.retain_as_published { 0x08 } else { 0 };
        self.qos.bits() | no_local | retain_as_published | (self.retain_handling as u8) << 4
    }

    fn from_byte(byte: u8) -> Result<SubscribeOptions, DecodeError> {
        if byte & 0xc0 != 0 {
            return Err(Malformed::SubscriptionOptions.into());
        }
        let retain_handling = match byte >> 4 {
            0 => RetainHandling::Send,
            1 => RetainHandling::SendIfNew,
            2 => RetainHandling::DoNotSend,
            _ => return Err(ProtocolViolation::RetainHandling.into()),
        };
        Ok(SubscribeOptions {
            qos: Qos::from_bits(byte & 0x03).ok_or(Malformed::Qos)?,
            no_local: byte & 0x04 != 0,
            retain_as_published: byte & 0x08 != 0,
            retain_handling,
        })
    }
}

/// A topic filter with its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscribeFilter<'a> {
    /// The filter; [`split_shared`] takes a shared one apart.
    pub filter: &'a str,
    /// Its options.
    pub options: SubscribeOptions,
}

/// The checked filters of a received SUBSCRIBE. Yields at least one.
#[derive(Clone, Copy)]
pub struct SubscribeFilters<'a> {
    reader: Reader<'a>,
    /// Option bits that the version defines.
    mask: u8,
}

impl<'a> SubscribeFilters<'a> {
    pub(crate) fn parse(rest: &'a [u8], version: Version, filters_max: u16) -> Result<Self, DecodeError> {
        // MQTT 3.1 calls the upper bits "not used"; 3.1.1 requires them to be 0 [MQTT-3.8.3-4 of MQTT 3.1.1].
        let mask = if version == Version::V31 { 0x03 } else { 0xff };
        let filters = SubscribeFilters { reader: Reader::new(rest), mask };
        let mut unread = filters;
        let mut count = 0;
        while !unread.reader.is_empty() {
            count_filter(&mut count, filters_max)?;
            let SubscribeFilter { filter, options } = unread.read()?;
            check_topic_filter(filter).map_err(Malformed::TopicFilter)?;
            if version == Version::V311 && options.to_byte(Version::V5) & !0x03 != 0 {
                return Err(Malformed::SubscriptionOptions.into());
            }
            if options.no_local && split_shared(filter).is_some() {
                return Err(ProtocolViolation::NoLocalOnSharedSubscription.into());
            }
        }
        if count == 0 { Err(ProtocolViolation::EmptyList.into()) } else { Ok(filters) }
    }

    fn read(&mut self) -> Result<SubscribeFilter<'a>, DecodeError> {
        let filter = self.reader.utf8()?;
        let options = SubscribeOptions::from_byte(self.reader.u8()? & self.mask)?;
        Ok(SubscribeFilter { filter, options })
    }

    /// The filters in order.
    pub fn iter(&self) -> SubscribeFilters<'a> {
        *self
    }
}

impl<'a> Iterator for SubscribeFilters<'a> {
    type Item = SubscribeFilter<'a>;

    fn next(&mut self) -> Option<SubscribeFilter<'a>> {
        self.read().ok()
    }
}

/// The checked filters of a received UNSUBSCRIBE. Yields at least one.
#[derive(Clone, Copy)]
pub struct TopicFilters<'a> {
    reader: Reader<'a>,
}

impl<'a> TopicFilters<'a> {
    pub(crate) fn parse(rest: &'a [u8], filters_max: u16) -> Result<Self, DecodeError> {
        let filters = TopicFilters { reader: Reader::new(rest) };
        let mut unread = filters;
        let mut count = 0;
        while !unread.reader.is_empty() {
            count_filter(&mut count, filters_max)?;
            check_topic_filter(unread.reader.utf8()?).map_err(Malformed::TopicFilter)?;
        }
        if count == 0 { Err(ProtocolViolation::EmptyList.into()) } else { Ok(filters) }
    }

    /// The filters in order.
    pub fn iter(&self) -> TopicFilters<'a> {
        *self
    }
}

impl<'a> Iterator for TopicFilters<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.reader.utf8().ok()
    }
}

fn count_filter(count: &mut u16, filters_max: u16) -> Result<(), DecodeError> {
    if *count == filters_max {
        return Err(LimitExceeded::Filters { max: filters_max }.into());
    }
    *count += 1;
    Ok(())
}

/// The checked codes of a received SUBACK or UNSUBACK.
#[derive(Clone, Copy)]
pub struct ReasonCodes<'a> {
    raw: &'a [u8],
}

impl<'a> ReasonCodes<'a> {
    pub(crate) const NONE: ReasonCodes<'static> = ReasonCodes { raw: &[] };

    pub(crate) fn parse(raw: &'a [u8], version: Version, packet: PacketType) -> Result<Self, DecodeError> {
        if raw.is_empty() {
            return Err(ProtocolViolation::EmptyList.into());
        }
        let known = |&code: &u8| match version {
            Version::V5 => ReasonCode::from_byte(code).is_some_and(|reason| reason.is_valid_in(packet)),
            Version::V31 | Version::V311 => matches!(code, 0 | 1 | 2 | 0x80),
        };
        match raw.iter().find(|&code| !known(code)) {
            Some(&code) => Err(Malformed::ReasonCode { code }.into()),
            None => Ok(ReasonCodes { raw }),
        }
    }

    /// The codes in order.
    pub fn iter(&self) -> ReasonCodes<'a> {
        *self
    }
}

impl Iterator for ReasonCodes<'_> {
    type Item = ReasonCode;

    fn next(&mut self) -> Option<ReasonCode> {
        let (&first, rest) = self.raw.split_first()?;
        self.raw = rest;
        ReasonCode::from_byte(first)
    }
}

macro_rules! compare_and_print_as_list {
    ($($name:ident),+) => { $(
        impl PartialEq for $name<'_> {
            fn eq(&self, other: &Self) -> bool {
                self.iter().eq(other.iter())
            }
        }

        impl fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_list().entries(self.iter()).finish()
            }
        }
    )+ };
}

compare_and_print_as_list!(SubscribeFilters, TopicFilters, ReasonCodes);
