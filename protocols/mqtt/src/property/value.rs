//! How each type of value is read and written.

use super::PropertyId;
use crate::codec::write::{self, BINARY_PREFIX_BYTES};
use crate::error::{DecodeError, EncodeError, Malformed, ProtocolViolation};
use crate::reader::Reader;
use crate::topic::check_topic_name;
use crate::types::{Qos, SubscriptionId, TopicAlias};
use alloc::vec::Vec;
use core::num::{NonZeroU16, NonZeroU32};

/// A property's value on the wire; `id` names the property in errors.
pub(super) trait Value<'a>: Sized {
    fn read(reader: &mut Reader<'a>, id: PropertyId) -> Result<Self, DecodeError>;
    fn encoded_len(&self) -> Result<usize, EncodeError>;
    fn write(&self, out: &mut Vec<u8>);
}

const fn out_of_range(id: PropertyId) -> DecodeError {
    DecodeError::ProtocolViolation(ProtocolViolation::PropertyValue { id: id as u8 })
}

impl<'a> Value<'a> for bool {
    fn read(reader: &mut Reader<'a>, id: PropertyId) -> Result<Self, DecodeError> {
        match reader.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(out_of_range(id)),
        }
    }

    fn encoded_len(&self) -> Result<usize, EncodeError> {
        Ok(1)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

/// Only Maximum QoS has this type, and 2 is not one of its values (MQTT 5.0, 3.2.2.3.4).
impl<'a> Value<'a> for Qos {
    fn read(reader: &mut Reader<'a>, id: PropertyId) -> Result<Self, DecodeError> {
        match bool::read(reader, id)? {
            false => Ok(Qos::AtMostOnce),
            true => Ok(Qos::AtLeastOnce),
        }
    }

    fn encoded_len(&self) -> Result<usize, EncodeError> {
        Ok(1)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.bits().min(1));
    }
}

impl<'a> Value<'a> for u16 {
    fn read(reader: &mut Reader<'a>, _: PropertyId) -> Result<Self, DecodeError> {
        Ok(reader.u16()?)
    }

    fn encoded_len(&self) -> Result<usize, EncodeError> {
        Ok(2)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }
}

impl<'a> Value<'a> for NonZeroU16 {
    fn read(reader: &mut Reader<'a>, id: PropertyId) -> Result<Self, DecodeError> {
        NonZeroU16::new(reader.u16()?).ok_or(out_of_range(id))
    }

    fn encoded_len(&self) -> Result<usize, EncodeError> {
        Ok(2)
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.get().write(out);
    }
}

impl<'a> Value<'a> for TopicAlias {
    fn read(reader: &mut Reader<'a>, _: PropertyId) -> Result<Self, DecodeError> {
        TopicAlias::new(reader.u16()?).ok_or(ProtocolViolation::TopicAliasZero.into())
    }

    fn encoded_len(&self) -> Result<usize, EncodeError> {
        Ok(2)
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.get().write(out);
    }
}

impl<'a> Value<'a> for u32 {
    fn read(reader: &mut Reader<'a>, _: PropertyId) -> Result<Self, DecodeError> {
        Ok(reader.u32()?)
    }

    fn encoded_len(&self) -> Result<usize, EncodeError> {
        Ok(4)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }
}

impl<'a> Value<'a> for NonZeroU32 {
    fn read(reader: &mut Reader<'a>, id: PropertyId) -> Result<Self, DecodeError> {
        NonZeroU32::new(reader.u32()?).ok_or(out_of_range(id))
    }

    fn encoded_len(&self) -> Result<usize, EncodeError> {
        Ok(4)
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.get().write(out);
    }
}

impl<'a> Value<'a> for SubscriptionId {
    fn read(reader: &mut Reader<'a>, id: PropertyId) -> Result<Self, DecodeError> {
        SubscriptionId::new(reader.variable()?).ok_or(out_of_range(id))
    }

    fn encoded_len(&self) -> Result<usize, EncodeError> {
        Ok(write::variable_len(self.get()))
    }

    fn write(&self, out: &mut Vec<u8>) {
        write::variable(out, self.get());
    }
}

impl<'a> Value<'a> for &'a str {
    fn read(reader: &mut Reader<'a>, id: PropertyId) -> Result<Self, DecodeError> {
        let text = reader.text()?;
        if id == PropertyId::ResponseTopic {
            check_topic_name(text).map_err(Malformed::TopicName)?;
        }
        Ok(text)
    }

    fn encoded_len(&self) -> Result<usize, EncodeError> {
        write::binary_len(self.len())
    }

    fn write(&self, out: &mut Vec<u8>) {
        write::binary(out, self.as_bytes());
    }
}

impl<'a> Value<'a> for &'a [u8] {
    fn read(reader: &mut Reader<'a>, _: PropertyId) -> Result<Self, DecodeError> {
        Ok(reader.binary()?)
    }

    fn encoded_len(&self) -> Result<usize, EncodeError> {
        write::binary_len(self.len())
    }

    fn write(&self, out: &mut Vec<u8>) {
        write::binary(out, self);
    }
}

impl<'a> Value<'a> for (&'a str, &'a str) {
    fn read(reader: &mut Reader<'a>, _: PropertyId) -> Result<Self, DecodeError> {
        Ok((reader.text()?, reader.text()?))
    }

    fn encoded_len(&self) -> Result<usize, EncodeError> {
        let (name, value) = self;
        Ok(write::binary_len(name.len())? + write::binary_len(value.len())?)
    }

    fn write(&self, out: &mut Vec<u8>) {
        let (name, value) = self;
        out.reserve(name.len() + value.len() + 2 * BINARY_PREFIX_BYTES);
        write::binary(out, name.as_bytes());
        write::binary(out, value.as_bytes());
    }
}
