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
//! The catalog keeps the sizes and the names of a tree's types, and a tree opens only with the types it was
//! created with. A name says nothing about a struct's fields. A tree of byte strings has no types, so it
//! opens with any types of its sizes, and its bytes are then read as those types. If they encode no value of
//! the type, `decode` returns some value; it never panics.

mod composite;
mod encoded;
mod record;
mod scalars;
mod short_bytes;
mod short_layout;
mod stored;
#[cfg(test)]
mod tests;
mod type_name;

pub(crate) use encoded::{OnStack, Packed, Rows, encode_change, owned};
pub use scalars::Total;
pub use short_bytes::{ShortBytes, TooLong};
pub use short_layout::ShortLayout;
pub use stored::{Arg, PrefixKey, Stored, TreeValue};
pub(crate) use type_name::tree_types;

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
///     fn type_name() -> String {
///         "Celsius".to_owned()
///     }
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

    /// The name of the type. The catalog keeps it with a tree, and the tree then opens only with types of the
    /// same names. So it must stay the same for as long as there are trees of the type.
    ///
    /// Types with the same name should have the same encoding. Include what changes it, as `[u8; 16]` does.
    /// The catalog shortens a name of more than 31 bytes to its first 22 bytes, a `#` and a hash. If a type
    /// has an empty name, trees of it are created without types, and any tree of its sizes opens with it.
    fn type_name() -> String;

    /// Writes the value to `bytes`, which has [`Value::LEN`] bytes. It must write all of them.
    fn encode(&self, bytes: &mut [u8]);

    /// Reads the value from `bytes`, which has [`Value::LEN`] bytes written by [`Value::encode`].
    ///
    /// If the tree was written as byte strings or with another type of the same name, the bytes may be
    /// anything. In that case return some value, do not panic.
    fn decode(bytes: &[u8]) -> Self;
}

/// A key: a value whose order is the order of its bytes.
///
/// Implementations must keep `a < b` exactly when `a`'s bytes compare below `b`'s, and must encode distinct
/// keys differently. Otherwise ranges follow the order of the bytes, and bounds apply to the bytes.
pub trait Key: Value + Ord {}

impl<const N: usize> Value for [u8; N] {
    const LEN: usize = N;

    fn type_name() -> String {
        format!("[u8; {N}]")
    }

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

    fn type_name() -> String {
        "()".to_owned()
    }

    fn encode(&self, _bytes: &mut [u8]) {}

    fn decode(_bytes: &[u8]) -> Self {}
}
