//! Keys and values as bytes of fixed length.
//!
//! A tree stores byte strings of two fixed lengths and compares keys byte by byte. [`Value`] converts a type
//! to bytes and back. [`Key`] also promises that the order of the bytes is the order of the type, so that the
//! tree need not know the type.
//!
//! | types | key | bytes |
//! |---|---|---|
//! | `u8`…`u128`, `i8`…`i128` | yes | big-endian; signed ones with the sign bit flipped |
//! | `bool`, `char` | yes | 1, 4 |
//! | `f32`, `f64` | no: they are not `Ord` | 4, 8 |
//! | [`Total<f32>`](Total), [`Total<f64>`](Total) | yes, in IEEE 754's total order | 4, 8 |
//! | `[u8; N]` | yes | N |
//! | [`ShortBytes<N>`](ShortBytes) | yes, in the order of byte strings | N, then the length in 1 or 2 |
//! | `Option<T>` | if `T` is | 1 + `T` |
//! | [`Reverse<T>`](std::cmp::Reverse) | if `T` is | `T`, inverted |
//! | tuples of up to four | if all are | one after the other |
//! | structs, by [`record!`](crate::record) | if asked for | field after field |
//! | `()` | no: a key has at least one byte | 0 |
//!
//! The catalog stores sizes, not types. A tree can be opened with other types of the same sizes, and its
//! bytes are then read as those types. In that case `decode` returns some value of the type; it never panics.

mod composite;
mod encoded;
mod record;
mod scalars;
mod short_bytes;
mod short_layout;
mod stored;
#[cfg(test)]
mod tests;

pub(crate) use encoded::{OnStack, Packed, Rows, encode_change, owned};
pub use scalars::Total;
pub use short_bytes::{ShortBytes, TooLong};
pub use short_layout::ShortLayout;
pub use stored::{Arg, PrefixKey, Stored};

/// A value of fixed size.
///
/// [`record!`](crate::record) usually implements it. By hand it looks like this:
///
/// ```
/// struct Celsius(f32);
///
/// impl sherman::Value for Celsius {
///     const LEN: usize = 4;
///
///     fn encode(&self, bytes: &mut [u8]) {
///         self.0.encode(bytes);
///     }
///
///     fn decode(bytes: &[u8]) -> Self {
///         Self(f32::decode(bytes))
///     }
/// }
/// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
/// let client = cluster.tree::<u32, Celsius>("weather")?.client()?;
/// client.insert(10_115, Celsius(21.5))?;
/// assert_eq!(client.get(10_115)?.map(|celsius| celsius.0), Some(21.5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Value: Sized {
    /// Number of bytes of the encoding.
    const LEN: usize;

    /// Writes the value to `bytes`, which has [`Value::LEN`] bytes. It must write all of them.
    fn encode(&self, bytes: &mut [u8]);

    /// Reads the value from `bytes`, which has [`Value::LEN`] bytes written by [`Value::encode`].
    ///
    /// If the tree was written with another type of the same size, the bytes may be anything. In that case
    /// return some value, do not panic.
    fn decode(bytes: &[u8]) -> Self;
}

/// A key: a value whose order is the order of its bytes.
///
/// Implementations must keep `a < b` exactly when `a`'s bytes compare below `b`'s, and must encode distinct
/// keys differently. Otherwise ranges follow the order of the bytes, and bounds apply to the bytes.
pub trait Key: Value + Ord {}

impl<const N: usize> Value for [u8; N] {
    const LEN: usize = N;

    fn encode(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(self);
    }

    fn decode(bytes: &[u8]) -> Self {
        let mut own = [0; N];
        own.copy_from_slice(bytes);
        own
    }
}

impl<const N: usize> Key for [u8; N] {}

impl Value for () {
    const LEN: usize = 0;

    fn encode(&self, _bytes: &mut [u8]) {}

    fn decode(_bytes: &[u8]) -> Self {}
}
