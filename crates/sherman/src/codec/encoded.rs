//! A key or value as bytes, without an allocation if it is short.

use super::Value;
use std::ops::{Deref, DerefMut};

/// The longest that stays on the stack.
const SHORT: usize = 64;

/// The bytes of a key or value.
pub(crate) struct Encoded {
    len: usize,
    short: [u8; SHORT],
    /// Used if they are longer.
    long: Vec<u8>,
}

impl Encoded {
    /// `len` bytes; `buffer` serves if they are many.
    #[inline]
    fn zeroed_in(len: usize, mut buffer: Vec<u8>) -> Self {
        if len > SHORT {
            buffer.resize(len, 0);
        }
        Self { len, short: [0; SHORT], long: buffer }
    }

    /// `len` zeros.
    pub(crate) fn zeroed(len: usize) -> Self {
        Self::zeroed_in(len, Vec::new())
    }

    /// `value` as bytes.
    #[inline]
    pub(crate) fn of<T: Value>(value: &T) -> Self {
        Self::of_in(value, Vec::new())
    }

    /// `value` as bytes; `buffer` serves if they are many.
    #[inline]
    pub(crate) fn of_in<T: Value>(value: &T, buffer: Vec<u8>) -> Self {
        let mut encoded = Self::zeroed_in(T::LEN, buffer);
        value.encode(&mut encoded);
        encoded
    }

    /// The buffer, for the next.
    #[inline]
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.long
    }
}

impl Deref for Encoded {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        if self.len <= SHORT { &self.short[..self.len] } else { &self.long[..self.len] }
    }
}

impl AsRef<[u8]> for Encoded {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl DerefMut for Encoded {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        if self.len <= SHORT { &mut self.short[..self.len] } else { &mut self.long[..self.len] }
    }
}

/// The longest that a [`Packed`] keeps in itself.
const PACKED: usize = 30;

/// A key or value as bytes, for an operation in flight: small, since it is moved several times, and without an allocation if it is
/// short.
pub(crate) enum Packed {
    Short { len: u8, bytes: [u8; PACKED] },
    Long(Box<[u8]>),
}

const _: () = assert!(size_of::<Packed>() == 32);

impl Packed {
    /// `len` bytes, as `fill` makes them of zeros.
    #[inline]
    fn filled(len: usize, fill: impl FnOnce(&mut [u8])) -> Self {
        if len <= PACKED {
            let mut bytes = [0; PACKED];
            fill(&mut bytes[..len]);
            return Self::Short { len: len as u8, bytes };
        }
        let mut bytes = vec![0; len];
        fill(&mut bytes);
        Self::Long(bytes.into())
    }

    /// `value` as bytes.
    #[inline]
    pub(crate) fn of<T: Value>(value: &T) -> Self {
        Self::filled(T::LEN, |bytes| value.encode(bytes))
    }

    /// A copy of `bytes`.
    #[inline]
    pub(crate) fn copy(bytes: &[u8]) -> Self {
        Self::filled(bytes.len(), |own| own.copy_from_slice(bytes))
    }
}

impl AsRef<[u8]> for Packed {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl Deref for Packed {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_ref()
    }
}

/// `value` as bytes of its own.
pub(crate) fn owned<T: Value>(value: &T) -> Vec<u8> {
    let mut bytes = vec![0; T::LEN];
    value.encode(&mut bytes);
    bytes
}

/// Has `change` say what is to become of a value, in bytes: false if it is to be absent.
pub(crate) fn encode_change<V: Value>(
    change: &mut impl FnMut(Option<V>) -> Option<V>,
    old: Option<&[u8]>,
    new: &mut Vec<u8>,
) -> bool {
    let changed = change(old.map(V::decode));
    if let Some(changed) = &changed {
        new.resize(V::LEN, 0);
        changed.encode(new);
    }
    changed.is_some()
}

/// Many keys or values of one type, as bytes.
pub(crate) struct Rows {
    bytes: Vec<u8>,
    len: usize,
}

impl Rows {
    pub(crate) fn of<'t, T: Value + 't>(values: impl ExactSizeIterator<Item = &'t T>) -> Self {
        let mut bytes = vec![0; values.len() * T::LEN];
        for (at, value) in values.enumerate() {
            value.encode(&mut bytes[at * T::LEN..][..T::LEN]);
        }
        Self { bytes, len: T::LEN }
    }

    /// So many, all zero, of `len` bytes each.
    pub(crate) fn zeroed(count: usize, len: usize) -> Self {
        Self { bytes: vec![0; count * len], len }
    }

    /// The bytes of one, to be written.
    pub(crate) fn row_mut(&mut self, at: usize) -> &mut [u8] {
        &mut self.bytes[at * self.len..][..self.len]
    }

    /// The bytes of one.
    pub(crate) fn row(&self, at: usize) -> &[u8] {
        &self.bytes[at * self.len..][..self.len]
    }
}
