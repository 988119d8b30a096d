//! Small types that cannot hold an illegal value.

use core::fmt;
use core::num::{NonZeroU16, NonZeroU32};

/// Largest value of a variable byte integer (MQTT 5.0, 1.5.5), and so of a packet's remaining length.
pub const VARIABLE_BYTE_INTEGER_MAX: u32 = 268_435_455;

/// A version of the protocol, as negotiated by CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Version {
    /// MQTT 3.1: protocol name `MQIsdp`, level 3.
    V31 = 3,
    /// MQTT 3.1.1: protocol name `MQTT`, level 4.
    V311 = 4,
    /// MQTT 5.0: protocol name `MQTT`, level 5.
    V5 = 5,
}

impl Version {
    /// All versions, oldest first.
    pub const ALL: [Version; 3] = [Version::V31, Version::V311, Version::V5];

    /// The protocol level byte of CONNECT (MQTT 5.0, 3.1.2.2).
    pub const fn level(self) -> u8 {
        self as u8
    }

    /// The protocol name of CONNECT `[MQTT-3.1.2-1]`.
    pub const fn protocol_name(self) -> &'static str {
        match self {
            Version::V31 => "MQIsdp",
            Version::V311 | Version::V5 => "MQTT",
        }
    }

    /// Whether packets carry reason codes and properties.
    #[inline]
    pub const fn is_v5(self) -> bool {
        matches!(self, Version::V5)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::V31 => "3.1",
            Version::V311 => "3.1.1",
            Version::V5 => "5.0",
        })
    }
}

/// Quality of service of a message or a subscription (MQTT 5.0, 4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Qos {
    /// Delivered once or never; nothing acknowledges it.
    #[default]
    AtMostOnce = 0,
    /// Delivered until a PUBACK arrives.
    AtLeastOnce = 1,
    /// Delivered by the two-step PUBREC, PUBREL, PUBCOMP exchange.
    ExactlyOnce = 2,
}

impl Qos {
    /// The level for the two bits of a packet, or `None` for 3 `[MQTT-3.3.1-4]`.
    #[inline]
    pub const fn from_bits(bits: u8) -> Option<Qos> {
        match bits {
            0 => Some(Qos::AtMostOnce),
            1 => Some(Qos::AtLeastOnce),
            2 => Some(Qos::ExactlyOnce),
            _ => None,
        }
    }

    /// The two bits on the wire.
    #[inline]
    pub const fn bits(self) -> u8 {
        self as u8
    }
}

/// A packet identifier, never 0 `[MQTT-2.2.1-3]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketId(NonZeroU16);

impl PacketId {
    /// The smallest identifier.
    pub const MIN: PacketId = PacketId(NonZeroU16::MIN);

    /// `None` for 0.
    #[inline]
    pub const fn new(id: u16) -> Option<PacketId> {
        match NonZeroU16::new(id) {
            Some(id) => Some(PacketId(id)),
            None => None,
        }
    }

    /// The number on the wire.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0.get()
    }

    /// The identifier after this one; 65535 is followed by 1.
    #[inline]
    pub const fn next(self) -> PacketId {
        match self.0.checked_add(1) {
            Some(next) => PacketId(next),
            None => PacketId::MIN,
        }
    }
}

impl fmt::Display for PacketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A topic alias, never 0 `[MQTT-3.3.2-8]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicAlias(NonZeroU16);

impl TopicAlias {
    /// `None` for 0.
    #[inline]
    pub const fn new(alias: u16) -> Option<TopicAlias> {
        match NonZeroU16::new(alias) {
            Some(alias) => Some(TopicAlias(alias)),
            None => None,
        }
    }

    /// The number on the wire.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0.get()
    }
}

/// A subscription identifier: 1 to 268,435,455 (MQTT 5.0, 3.8.2.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId(NonZeroU32);

impl SubscriptionId {
    /// `None` for 0 and for values that a variable byte integer cannot hold.
    #[inline]
    pub const fn new(id: u32) -> Option<SubscriptionId> {
        if id > VARIABLE_BYTE_INTEGER_MAX {
            return None;
        }
        match NonZeroU32::new(id) {
            Some(id) => Some(SubscriptionId(id)),
            None => None,
        }
    }

    /// The number on the wire.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

/// The kind of a control packet (MQTT 5.0, 2.1.2); the value is the upper half of the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the specification's own")]
pub enum PacketType {
    Connect = 1,
    Connack = 2,
    Publish = 3,
    Puback = 4,
    Pubrec = 5,
    Pubrel = 6,
    Pubcomp = 7,
    Subscribe = 8,
    Suback = 9,
    Unsubscribe = 10,
    Unsuback = 11,
    Pingreq = 12,
    Pingresp = 13,
    Disconnect = 14,
    Auth = 15,
}

impl PacketType {
    /// The kind that the upper half of `first_byte` names, or `None` for the forbidden value 0.
    #[inline]
    pub const fn from_first_byte(first_byte: u8) -> Option<PacketType> {
        Some(match first_byte >> 4 {
            1 => PacketType::Connect,
            2 => PacketType::Connack,
            3 => PacketType::Publish,
            4 => PacketType::Puback,
            5 => PacketType::Pubrec,
            6 => PacketType::Pubrel,
            7 => PacketType::Pubcomp,
            8 => PacketType::Subscribe,
            9 => PacketType::Suback,
            10 => PacketType::Unsubscribe,
            11 => PacketType::Unsuback,
            12 => PacketType::Pingreq,
            13 => PacketType::Pingresp,
            14 => PacketType::Disconnect,
            15 => PacketType::Auth,
            _ => return None,
        })
    }

    /// The first byte of a packet of this kind with the flags that `[MQTT-2.1.3-1]` fixes; PUBLISH has all
    /// flags clear.
    #[inline]
    pub const fn first_byte(self) -> u8 {
        let flags = match self {
            PacketType::Pubrel | PacketType::Subscribe | PacketType::Unsubscribe => 0b0010,
            _ => 0,
        };
        (self as u8) << 4 | flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_ids_wrap_from_the_largest_to_one() {
        assert_eq!(PacketId::new(0), None);
        assert_eq!(PacketId::new(u16::MAX).unwrap().next(), PacketId::MIN);
    }

    #[test]
    fn subscription_ids_end_where_a_variable_byte_integer_ends() {
        assert_eq!(SubscriptionId::new(0), None);
        assert!(SubscriptionId::new(VARIABLE_BYTE_INTEGER_MAX).is_some());
        assert_eq!(SubscriptionId::new(VARIABLE_BYTE_INTEGER_MAX + 1), None);
    }

    #[test]
    fn every_packet_type_is_read_from_the_first_byte_it_writes() {
        for bits in 1..=15u8 {
            let kind = PacketType::from_first_byte(bits << 4).unwrap();
            assert_eq!(kind.first_byte() >> 4, bits);
        }
        assert_eq!(PacketType::from_first_byte(0x0f), None);
    }
}
