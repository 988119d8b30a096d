//! The properties of MQTT 5.0 (2.2.2): the 27 properties, a borrowed view of a property block, lists to
//! encode.
//!
//! A received block is checked once, by the decoder, and stays raw bytes ([`Properties`]); getters and
//! iterators parse it again on demand. Nothing here allocates. A block to be written is anything that is a
//! [`PropertyList`]: a received block, a slice, an iterator, or a pair of lists.

mod list;
mod value;
mod view;

pub use list::{PropertyIter, PropertyList};
pub use view::{Properties, PropertiesIter};

use crate::error::{DecodeError, EncodeError, Malformed};
use crate::reader::Reader;
use crate::types::{Qos, SubscriptionId, TopicAlias};
use alloc::vec::Vec;
use core::num::{NonZeroU16, NonZeroU32};
use value::Value;

/// The packet, or the part of one, that a property block belongs to (MQTT 5.0, table 2-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
#[expect(missing_docs, reason = "the names are those of the packets")]
pub enum PropertyContext {
    Connect = 1 << 0,
    /// The will properties in the payload of CONNECT.
    Will = 1 << 1,
    Connack = 1 << 2,
    Publish = 1 << 3,
    Puback = 1 << 4,
    Pubrec = 1 << 5,
    Pubrel = 1 << 6,
    Pubcomp = 1 << 7,
    Subscribe = 1 << 8,
    Suback = 1 << 9,
    Unsubscribe = 1 << 10,
    Unsuback = 1 << 11,
    Disconnect = 1 << 12,
    Auth = 1 << 13,
}

impl PropertyContext {
    /// All contexts.
    pub const ALL: [PropertyContext; 14] = [
        PropertyContext::Connect,
        PropertyContext::Will,
        PropertyContext::Connack,
        PropertyContext::Publish,
        PropertyContext::Puback,
        PropertyContext::Pubrec,
        PropertyContext::Pubrel,
        PropertyContext::Pubcomp,
        PropertyContext::Subscribe,
        PropertyContext::Suback,
        PropertyContext::Unsubscribe,
        PropertyContext::Unsuback,
        PropertyContext::Disconnect,
        PropertyContext::Auth,
    ];
}

macro_rules! properties {
    ($($name:ident($value:ty) = $id:literal, $getter:ident, $doc:literal, [$($context:ident),+];)+) => {
        /// A property with its value. Types of values admit exactly what the specification allows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Property<'a> {
            $(#[doc = concat!($doc, " (`", stringify!($id), "`).")] $name($value),)+
        }

        /// The identifier of a property (MQTT 5.0, 2.2.2.2).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum PropertyId {
            $(#[doc = concat!($doc, " (`", stringify!($id), "`).")] $name = $id,)+
        }

        impl PropertyId {
            /// All identifiers in ascending order.
            pub const ALL: &'static [PropertyId] = &[$(PropertyId::$name,)+];

            /// The identifier with this value.
            #[inline]
            pub const fn from_byte(byte: u8) -> Option<PropertyId> {
                match byte {
                    $($id => Some(PropertyId::$name),)+
                    _ => None,
                }
            }

            /// Whether a block of this context may hold the property (MQTT 5.0, table 2-4).
            #[inline]
            pub const fn is_allowed_in(self, context: PropertyContext) -> bool {
                let allowed = match self {
                    $(PropertyId::$name => 0 $(| PropertyContext::$context as u16)+,)+
                };
                allowed & context as u16 != 0
            }
        }

        impl<'a> Property<'a> {
            /// The property's identifier.
            #[inline]
            pub const fn id(&self) -> PropertyId {
                match self {
                    $(Property::$name(_) => PropertyId::$name,)+
                }
            }

            fn read_value(id: PropertyId, reader: &mut Reader<'a>) -> Result<Property<'a>, DecodeError> {
                Ok(match id {
                    $(PropertyId::$name => Property::$name(<$value as Value>::read(reader, id)?),)+
                })
            }

            /// Bytes of the property with its identifier.
            #[inline]
            pub(crate) fn encoded_len(&self) -> Result<usize, EncodeError> {
                match self {
                    $(Property::$name(value) => value.encoded_len().map(|len| 1 + len),)+
                }
            }

            #[inline]
            pub(crate) fn write(&self, out: &mut Vec<u8>) {
                out.push(self.id() as u8);
                match self {
                    $(Property::$name(value) => value.write(out),)+
                }
            }
        }

        impl<'a> Properties<'a> {
            $(
                #[doc = concat!($doc, " (`", stringify!($id), "`); the first one if it may repeat.")]
                #[inline]
                pub fn $getter(&self) -> Option<$value> {
                    match self.find(PropertyId::$name)? {
                        Property::$name(value) => Some(value),
                        _ => None,
                    }
                }
            )+
        }
    };
}

properties! {
    PayloadFormatIndicator(bool) = 0x01, payload_format_indicator,
        "Payload Format Indicator: true if the payload is UTF-8", [Publish, Will];
    MessageExpiryInterval(u32) = 0x02, message_expiry_interval,
        "Message Expiry Interval in seconds", [Publish, Will];
    ContentType(&'a str) = 0x03, content_type, "Content Type", [Publish, Will];
    ResponseTopic(&'a str) = 0x08, response_topic,
        "Response Topic, a topic name `[MQTT-3.3.2-14]`", [Publish, Will];
    CorrelationData(&'a [u8]) = 0x09, correlation_data, "Correlation Data", [Publish, Will];
    SubscriptionIdentifier(SubscriptionId) = 0x0B, subscription_identifier,
        "Subscription Identifier", [Publish, Subscribe];
    SessionExpiryInterval(u32) = 0x11, session_expiry_interval,
        "Session Expiry Interval in seconds; `u32::MAX` is never", [Connect, Connack, Disconnect];
    AssignedClientIdentifier(&'a str) = 0x12, assigned_client_identifier,
        "Assigned Client Identifier", [Connack];
    ServerKeepAlive(u16) = 0x13, server_keep_alive, "Server Keep Alive in seconds", [Connack];
    AuthenticationMethod(&'a str) = 0x15, authentication_method,
        "Authentication Method", [Connect, Connack, Auth];
    AuthenticationData(&'a [u8]) = 0x16, authentication_data, "Authentication Data", [Connect, Connack, Auth];
    RequestProblemInformation(bool) = 0x17, request_problem_information,
        "Request Problem Information", [Connect];
    WillDelayInterval(u32) = 0x18, will_delay_interval, "Will Delay Interval in seconds", [Will];
    RequestResponseInformation(bool) = 0x19, request_response_information,
        "Request Response Information", [Connect];
    ResponseInformation(&'a str) = 0x1A, response_information, "Response Information", [Connack];
    ServerReference(&'a str) = 0x1C, server_reference, "Server Reference", [Connack, Disconnect];
    ReasonString(&'a str) = 0x1F, reason_string, "Reason String",
        [Connack, Puback, Pubrec, Pubrel, Pubcomp, Suback, Unsuback, Disconnect, Auth];
    ReceiveMaximum(NonZeroU16) = 0x21, receive_maximum, "Receive Maximum", [Connect, Connack];
    TopicAliasMaximum(u16) = 0x22, topic_alias_maximum, "Topic Alias Maximum", [Connect, Connack];
    TopicAlias(TopicAlias) = 0x23, topic_alias, "Topic Alias", [Publish];
    MaximumQos(Qos) = 0x24, maximum_qos, "Maximum QoS: 0 or 1; 2 is said by its absence", [Connack];
    RetainAvailable(bool) = 0x25, retain_available, "Retain Available", [Connack];
    UserProperty((&'a str, &'a str)) = 0x26, user_property, "User Property: name and value",
        [Connect, Will, Connack, Publish, Puback, Pubrec, Pubrel, Pubcomp, Subscribe, Suback, Unsubscribe,
            Unsuback, Disconnect, Auth];
    MaximumPacketSize(NonZeroU32) = 0x27, maximum_packet_size,
        "Maximum Packet Size in bytes", [Connect, Connack];
    WildcardSubscriptionAvailable(bool) = 0x28, wildcard_subscription_available,
        "Wildcard Subscription Available", [Connack];
    SubscriptionIdentifierAvailable(bool) = 0x29, subscription_identifier_available,
        "Subscription Identifier Available", [Connack];
    SharedSubscriptionAvailable(bool) = 0x2A, shared_subscription_available,
        "Shared Subscription Available", [Connack];
}

impl PropertyId {
    /// Whether a block of this context may hold the property more than once.
    #[inline]
    pub const fn repeats_in(self, context: PropertyContext) -> bool {
        match self {
            PropertyId::UserProperty => true,
            PropertyId::SubscriptionIdentifier => matches!(context, PropertyContext::Publish),
            _ => false,
        }
    }
}

impl<'a> Property<'a> {
    /// Reads an identifier and its value. Identifiers are variable byte integers of one byte so far.
    #[inline]
    fn read(reader: &mut Reader<'a>) -> Result<Property<'a>, DecodeError> {
        let id = reader.u8()?;
        let id = PropertyId::from_byte(id).ok_or(Malformed::Property { id })?;
        Property::read_value(id, reader)
    }
}
