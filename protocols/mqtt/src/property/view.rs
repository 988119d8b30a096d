//! A property block that was checked once and is read where it lies.

use super::{Property, PropertyContext, PropertyId};
use crate::error::{DecodeError, LimitExceeded, Malformed, ProtocolViolation};
use crate::limits::DecodeLimits;
use crate::reader::Reader;
use crate::types::SubscriptionId;
use core::fmt;

/// A valid property block: known properties that its packet may carry, in range, none of them twice that may
/// occur once. Copies are cheap; getters of absent properties cost one test.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Properties<'a> {
    raw: &'a [u8],
    /// Bit `n` is set if the property with identifier `n` occurs; identifiers are below 64.
    present: u64,
}

impl<'a> Properties<'a> {
    /// The empty block.
    pub const EMPTY: Properties<'static> = Properties { raw: &[], present: 0 };

    /// Checks `raw`, a block without its length, as a block of `context`.
    ///
    /// # Errors
    /// The first fault found, in the order of the bytes; at last `AuthenticationMethodMissing`.
    pub fn parse(
        raw: &'a [u8],
        context: PropertyContext,
        limits: &DecodeLimits,
    ) -> Result<Properties<'a>, DecodeError> {
        let mut present = 0u64;
        let mut user_properties = 0u16;
        let mut reader = Reader::new(raw);
        while !reader.is_empty() {
            let id = Property::read(&mut reader)?.id();
            if !id.is_allowed_in(context) {
                return Err(Malformed::Property { id: id as u8 }.into());
            }
            let bit = 1 << id as u8;
            if present & bit != 0 && !id.repeats_in(context) {
                return Err(ProtocolViolation::DuplicateProperty { id: id as u8 }.into());
            }
            present |= bit;
            if id == PropertyId::UserProperty {
                if user_properties == limits.user_properties_max {
                    return Err(LimitExceeded::UserProperties { max: limits.user_properties_max }.into());
                }
                user_properties += 1;
            }
        }
        let properties = Properties { raw, present };
        if properties.contains(PropertyId::AuthenticationData)
            && !properties.contains(PropertyId::AuthenticationMethod)
        {
            return Err(ProtocolViolation::AuthenticationMethodMissing.into());
        }
        Ok(properties)
    }

    /// Reads a block with its length in front.
    #[inline]
    pub(crate) fn read(
        reader: &mut Reader<'a>,
        context: PropertyContext,
        limits: &DecodeLimits,
    ) -> Result<Properties<'a>, DecodeError> {
        let len = reader.variable()? as usize;
        if len == 0 {
            return Ok(Properties::EMPTY);
        }
        Properties::parse(reader.bytes(len)?, context, limits)
    }

    /// The block's bytes, without its length.
    #[inline]
    pub const fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// Whether the block holds no property.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Whether the property occurs.
    #[inline]
    pub const fn contains(&self, id: PropertyId) -> bool {
        self.present & 1 << id as u8 != 0
    }

    /// All properties in the order of the wire.
    #[inline]
    pub const fn iter(&self) -> PropertiesIter<'a> {
        PropertiesIter { reader: Reader::new(self.raw) }
    }

    /// Names and values of the user properties, in order, duplicates kept `[MQTT-3.3.2-18]`.
    pub fn user_properties(&self) -> impl Iterator<Item = (&'a str, &'a str)> + Clone + use<'a> {
        let iter =
            if self.contains(PropertyId::UserProperty) { self.iter() } else { Properties::EMPTY.iter() };
        iter.filter_map(|property| match property {
            Property::UserProperty(pair) => Some(pair),
            _ => None,
        })
    }

    /// The subscription identifiers, in order (MQTT 5.0, 3.3.2.3.8).
    pub fn subscription_identifiers(&self) -> impl Iterator<Item = SubscriptionId> + Clone + use<'a> {
        let held = self.contains(PropertyId::SubscriptionIdentifier);
        let iter = if held { self.iter() } else { Properties::EMPTY.iter() };
        iter.filter_map(|property| match property {
            Property::SubscriptionIdentifier(id) => Some(id),
            _ => None,
        })
    }

    #[inline]
    pub(super) fn find(&self, id: PropertyId) -> Option<Property<'a>> {
        if !self.contains(id) {
            return None;
        }
        self.iter().find(|property| property.id() == id)
    }
}

impl<'a> IntoIterator for Properties<'a> {
    type Item = Property<'a>;
    type IntoIter = PropertiesIter<'a>;

    fn into_iter(self) -> PropertiesIter<'a> {
        self.iter()
    }
}

impl fmt::Debug for Properties<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Iterator over a valid block.
#[derive(Clone, Debug)]
pub struct PropertiesIter<'a> {
    reader: Reader<'a>,
}

impl<'a> Iterator for PropertiesIter<'a> {
    type Item = Property<'a>;

    #[inline]
    fn next(&mut self) -> Option<Property<'a>> {
        // The block was checked as a whole, so an error is its end and nothing else.
        Property::read(&mut self.reader).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ProtocolViolation;
    use crate::types::Qos;

    fn parse(raw: &[u8], context: PropertyContext) -> Result<Properties<'_>, DecodeError> {
        Properties::parse(raw, context, &DecodeLimits::PROTOCOL)
    }

    #[test]
    fn getters_find_what_the_block_holds() {
        let raw = [0x24, 1, 0x21, 0, 9, 0x26, 0, 1, b'k', 0, 1, b'v', 0x26, 0, 0, 0, 0];
        let properties = parse(&raw, PropertyContext::Connack).unwrap();
        assert_eq!(properties.maximum_qos(), Some(Qos::AtLeastOnce));
        assert_eq!(properties.receive_maximum().unwrap().get(), 9);
        assert_eq!(properties.topic_alias_maximum(), None);
        assert!(properties.user_properties().eq([("k", "v"), ("", "")]));
        assert_eq!(properties.iter().count(), 4);
    }

    #[test]
    fn a_property_of_another_packet_is_malformed() {
        assert_eq!(parse(&[0x24, 1], PropertyContext::Publish), Err(Malformed::Property { id: 0x24 }.into()));
        assert_eq!(parse(&[0x04, 1], PropertyContext::Publish), Err(Malformed::Property { id: 4 }.into()));
        assert_eq!(parse(&[0xa6, 0], PropertyContext::Publish), Err(Malformed::Property { id: 0xa6 }.into()));
    }

    #[test]
    fn a_property_occurs_twice_only_where_it_may() {
        let twice = [0x0b, 1, 0x0b, 2];
        assert!(parse(&twice, PropertyContext::Publish).is_ok());
        assert_eq!(
            parse(&twice, PropertyContext::Subscribe),
            Err(ProtocolViolation::DuplicateProperty { id: 0x0b }.into())
        );
    }

    #[test]
    fn values_outside_their_range_are_protocol_errors() {
        let fault = |id| Err(ProtocolViolation::PropertyValue { id }.into());
        assert_eq!(parse(&[0x01, 2], PropertyContext::Publish), fault(0x01));
        assert_eq!(parse(&[0x0b, 0], PropertyContext::Publish), fault(0x0b));
        assert_eq!(parse(&[0x21, 0, 0], PropertyContext::Connect), fault(0x21));
        assert_eq!(parse(&[0x27, 0, 0, 0, 0], PropertyContext::Connect), fault(0x27));
        assert_eq!(parse(&[0x24, 2], PropertyContext::Connack), fault(0x24));
        let alias_zero = Err(ProtocolViolation::TopicAliasZero.into());
        assert_eq!(parse(&[0x23, 0, 0], PropertyContext::Publish), alias_zero);
        assert!(parse(&[0x08, 0, 1, b'#'], PropertyContext::Publish).is_err());
    }

    #[test]
    fn authentication_data_needs_a_method() {
        assert_eq!(
            parse(&[0x16, 0, 0], PropertyContext::Auth),
            Err(ProtocolViolation::AuthenticationMethodMissing.into())
        );
        assert!(parse(&[0x16, 0, 0, 0x15, 0, 1, b'm'], PropertyContext::Auth).is_ok());
    }

    #[test]
    fn user_properties_are_counted_against_their_limit() {
        let limits = DecodeLimits { user_properties_max: 1, ..DecodeLimits::PROTOCOL };
        let raw = [0x26, 0, 0, 0, 0, 0x26, 0, 0, 0, 0];
        assert!(Properties::parse(&raw[..5], PropertyContext::Publish, &limits).is_ok());
        assert_eq!(
            Properties::parse(&raw, PropertyContext::Publish, &limits),
            Err(LimitExceeded::UserProperties { max: 1 }.into())
        );
    }
}
