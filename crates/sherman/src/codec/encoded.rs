//! A key or value as bytes, without an allocation if it is short.

use super::Value;
use std::ops::{Deref, DerefMut};

/// The longest that stays on the stack.
const SHORT: usize = 64;

/// The bytes of a key or value.
pub(crate) enum Encoded {
    Short { bytes: [u8; SHORT], len: usize },
    Long(Vec<u8>),
}

impl Encoded {
    /// `len` zeros.
    #[inline]
    pub(crate) fn zeroed(len: usize) -> Self {
        if len <= SHORT { Self::Short { bytes: [0; SHORT], len } } else { Self::Long(vec![0; len]) }
    }

    /// `value` as bytes.
    #[inline]
    pub(crate) fn of<T: Value>(value: &T) -> Self {
        let mut encoded = Self::zeroed(T::LEN);
        value.encode(&mut encoded);
        encoded
    }
}

impl Deref for Encoded {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Short { bytes, len } => &bytes[..*len],
            Self::Long(bytes) => bytes,
        }
    }
}

impl DerefMut for Encoded {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Short { bytes, len } => &mut bytes[..*len],
            Self::Long(bytes) => bytes,
        }
    }
}
