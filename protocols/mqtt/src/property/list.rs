//! What can be written as a property block.

use super::{Properties, Property};
use crate::error::EncodeError;
use alloc::vec::Vec;

/// A list of properties to encode. Whoever builds one is responsible that the packet may carry its
/// properties; the values' types already keep them in range. In versions before 5.0 the encoder does not look
/// at it.
pub trait PropertyList {
    /// Bytes of all properties, without the length of the block.
    ///
    /// # Errors
    /// [`EncodeError::FieldTooLong`] if a string or binary value has more than 65,535 bytes.
    fn encoded_len(&self) -> Result<usize, EncodeError>;

    /// Appends exactly [`PropertyList::encoded_len`] bytes.
    fn write(&self, out: &mut Vec<u8>);
}

/// The empty list.
impl PropertyList for () {
    #[inline]
    fn encoded_len(&self) -> Result<usize, EncodeError> {
        Ok(0)
    }

    #[inline]
    fn write(&self, _: &mut Vec<u8>) {}
}

impl<L: PropertyList + ?Sized> PropertyList for &L {
    #[inline]
    fn encoded_len(&self) -> Result<usize, EncodeError> {
        (**self).encoded_len()
    }

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        (**self).write(out);
    }
}

/// A received block is copied as it is.
impl PropertyList for Properties<'_> {
    #[inline]
    fn encoded_len(&self) -> Result<usize, EncodeError> {
        Ok(self.raw().len())
    }

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.raw());
    }
}

impl PropertyList for Property<'_> {
    #[inline]
    fn encoded_len(&self) -> Result<usize, EncodeError> {
        Property::encoded_len(self)
    }

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        Property::write(self, out);
    }
}

/// No property or one list.
impl<L: PropertyList> PropertyList for Option<L> {
    #[inline]
    fn encoded_len(&self) -> Result<usize, EncodeError> {
        self.as_ref().map_or(Ok(0), PropertyList::encoded_len)
    }

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        if let Some(list) = self {
            list.write(out);
        }
    }
}

/// One list after the other.
impl<L: PropertyList> PropertyList for [L] {
    #[inline]
    fn encoded_len(&self) -> Result<usize, EncodeError> {
        self.iter().try_fold(0, |len, list| Ok(len + list.encoded_len()?))
    }

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|list| list.write(out));
    }
}

impl<L: PropertyList, const N: usize> PropertyList for [L; N] {
    #[inline]
    fn encoded_len(&self) -> Result<usize, EncodeError> {
        self.as_slice().encoded_len()
    }

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        self.as_slice().write(out);
    }
}

/// The first list, then the second.
impl<A: PropertyList, B: PropertyList> PropertyList for (A, B) {
    #[inline]
    fn encoded_len(&self) -> Result<usize, EncodeError> {
        Ok(self.0.encoded_len()? + self.1.encoded_len()?)
    }

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
    }
}

/// The properties that an iterator yields; it is run once for the length and once for the bytes, so it must
/// yield the same both times.
#[derive(Clone, Copy, Debug)]
pub struct PropertyIter<I>(pub I);

impl<'a, I: Iterator<Item = Property<'a>> + Clone> PropertyList for PropertyIter<I> {
    #[inline]
    fn encoded_len(&self) -> Result<usize, EncodeError> {
        self.0.clone().try_fold(0, |len, property| Ok(len + property.encoded_len()?))
    }

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        self.0.clone().for_each(|property| property.write(out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::property::PropertyContext;

    fn bytes(list: &impl PropertyList) -> Vec<u8> {
        let mut out = Vec::new();
        list.write(&mut out);
        assert_eq!(list.encoded_len(), Ok(out.len()));
        out
    }

    #[test]
    fn lists_compose_and_say_their_length() {
        let expiry = Property::MessageExpiryInterval(7);
        let pairs = [("a", "b"), ("c", "d")];
        let users = PropertyIter(pairs.iter().map(|&pair| Property::UserProperty(pair)));
        let raw = bytes(&((Some(expiry), None::<()>), users));
        let view = Properties::parse(&raw, PropertyContext::Publish, &Default::default()).unwrap();
        assert_eq!(view.message_expiry_interval(), Some(7));
        assert!(view.user_properties().eq(pairs));
        assert_eq!(bytes(&view), raw);
        assert_eq!(bytes(&[expiry]), bytes(&expiry));
    }

    #[test]
    fn a_value_that_no_length_prefix_can_name_is_an_error() {
        let long = alloc::vec![b'x'; 65_536];
        assert_eq!(Property::CorrelationData(&long).encoded_len(), Err(EncodeError::FieldTooLong));
        assert_eq!(Property::CorrelationData(&long[1..]).encoded_len(), Ok(65_538));
    }
}
