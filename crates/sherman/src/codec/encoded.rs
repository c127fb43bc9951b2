//! A key or value as bytes, without an allocation if it is short.

use super::{Arg, Stored};
use std::ops::Deref;

/// The bytes of a key or value. At most `N` of them need no allocation.
#[derive(Clone, Debug)]
pub enum Inline<const N: usize> {
    #[doc(hidden)]
    Short { len: u8, bytes: [u8; N] },
    #[doc(hidden)]
    Long(Box<[u8]>),
}

/// A key or value of an operation in flight. It is small, because it is moved several times.
pub(crate) type Packed = Inline<30>;

/// A key or value of a blocking call, which stays where it is.
pub(crate) type OnStack = Inline<64>;

const _: () = assert!(size_of::<Packed>() == 32);

impl<const N: usize> Inline<N> {
    /// `len` bytes. `fill` writes them into zeros.
    #[inline]
    pub(crate) fn filled(len: usize, fill: impl FnOnce(&mut [u8])) -> Self {
        const { assert!(N <= u8::MAX as usize) };
        if len <= N {
            let mut bytes = [0; N];
            fill(&mut bytes[..len]);
            return Self::Short { len: len as u8, bytes };
        }
        let mut bytes = vec![0; len].into_boxed_slice();
        fill(&mut bytes);
        Self::Long(bytes)
    }

    /// The bytes of an argument that stands for a `T`.
    #[inline]
    pub(crate) fn of<T, A: Arg<T>>(argument: &A) -> Self {
        Self::filled(argument.bytes_needed(), |bytes| argument.write_to(bytes))
    }

    /// A copy of `bytes`.
    #[inline]
    pub(crate) fn copy(bytes: &[u8]) -> Self {
        Self::filled(bytes.len(), |own| own.copy_from_slice(bytes))
    }
}

impl<const N: usize> Deref for Inline<N> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl<const N: usize> AsRef<[u8]> for Inline<N> {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// The bytes of an argument that stands for a `T`, newly allocated.
pub(crate) fn owned<T, A: Arg<T>>(argument: &A) -> Vec<u8> {
    let mut bytes = vec![0; argument.bytes_needed()];
    argument.write_to(&mut bytes);
    bytes
}

/// Calls `change` with the decoded old value and encodes its result into `new`. Returns false if the result
/// is absent.
pub(crate) fn encode_change<V: Stored>(
    change: &mut impl FnMut(Option<V>) -> Option<V>,
    old: Option<&[u8]>,
    new: &mut Vec<u8>,
) -> bool {
    let changed = change(old.map(V::read));
    if let Some(changed) = &changed {
        new.resize(changed.bytes_needed(), 0);
        changed.write_to(new);
    }
    changed.is_some()
}

/// Many keys or values, as bytes.
pub(crate) struct Rows {
    bytes: Vec<u8>,
    /// Where each row ends.
    ends: Vec<usize>,
}

impl Rows {
    /// The bytes of arguments that stand for `T`s.
    pub(crate) fn of<'a, T, A: Arg<T> + 'a>(arguments: impl ExactSizeIterator<Item = &'a A>) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(arguments.len()));
        for argument in arguments {
            let at = bytes.len();
            bytes.resize(at + argument.bytes_needed(), 0);
            argument.write_to(&mut bytes[at..]);
            ends.push(bytes.len());
        }
        Self { bytes, ends }
    }

    /// `count` rows of `len` zero bytes each.
    pub(crate) fn zeroed(count: usize, len: usize) -> Self {
        Self { bytes: vec![0; count * len], ends: (1..=count).map(|nth| nth * len).collect() }
    }

    /// One row for each of `rows`.
    pub(crate) fn joined(rows: &[Vec<u8>]) -> Self {
        let ends = rows.iter().scan(0, |end, row| {
            *end += row.len();
            Some(*end)
        });
        Self { ends: ends.collect(), bytes: rows.concat() }
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    #[inline]
    fn place(&self, at: usize) -> std::ops::Range<usize> {
        let begin = if at == 0 { 0 } else { self.ends[at - 1] };
        begin..self.ends[at]
    }

    /// One row, for writing.
    pub(crate) fn row_mut(&mut self, at: usize) -> &mut [u8] {
        let place = self.place(at);
        &mut self.bytes[place]
    }

    /// One row.
    #[inline]
    pub(crate) fn row(&self, at: usize) -> &[u8] {
        &self.bytes[self.place(at)]
    }
}
