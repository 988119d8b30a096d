//! CONNECT to bytes.

use super::decode_connect::{BRIDGE_BIT, flags};
use super::encode::{Encode, put_properties};
use super::write;
use crate::error::EncodeError;
use crate::packet::{Connect, Will};
use crate::property::PropertyList;
use crate::types::{PacketType, Version};
use alloc::vec::Vec;

/// Written in `self.version`; the bridge bit is written before MQTT 5.0 only.
impl<P: PropertyList> Encode for Connect<'_, P> {
    fn first_byte(&self) -> u8 {
        PacketType::Connect.first_byte()
    }

    fn body_len(&self, _: Version) -> Result<usize, EncodeError> {
        let mut len = write::binary_len(self.version.protocol_name().len())? + 4;
        len += write::properties_len(self.version, &self.properties)?;
        len += write::binary_len(self.client_id.len())?;
        if let Some(will) = &self.will {
            len += will_len(self.version, will)?;
        }
        len += self.user_name.map_or(Ok(0), |name| write::binary_len(name.len()))?;
        len += self.password.map_or(Ok(0), |password| write::binary_len(password.len()))?;
        if self.password.is_some() && self.user_name.is_none() && !self.version.is_v5() {
            return Err(EncodeError::NotInVersion { version: self.version, packet: PacketType::Connect });
        }
        Ok(len)
    }

    fn write_body(&self, _: Version, _: usize, out: &mut Vec<u8>) {
        write::binary(out, self.version.protocol_name().as_bytes());
        let bridge = self.bridge && !self.version.is_v5();
        out.push(self.version.level() | if bridge { BRIDGE_BIT } else { 0 });
        out.push(flags(self));
        out.extend_from_slice(&self.keep_alive.to_be_bytes());
        put_properties(out, self.version, &self.properties);
        write::binary(out, self.client_id.as_bytes());
        if let Some(will) = &self.will {
            put_properties(out, self.version, &will.properties);
            write::binary(out, will.topic.as_bytes());
            write::binary(out, will.payload);
        }
        if let Some(user_name) = self.user_name {
            write::binary(out, user_name.as_bytes());
        }
        if let Some(password) = self.password {
            write::binary(out, password);
        }
    }
}

fn will_len<P: PropertyList>(version: Version, will: &Will<'_, P>) -> Result<usize, EncodeError> {
    let properties = write::properties_len(version, &will.properties)?;
    Ok(properties + write::binary_len(will.topic.len())? + write::binary_len(will.payload.len())?)
}
