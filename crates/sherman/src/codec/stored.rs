//! Typed keys and values, and byte strings, behind one interface.

use super::{Key, ShortBytes, Value, owned};

/// The keys or values of a tree: a [`Value`] type, or `Vec<u8>` in trees of byte strings
/// ([`RawTree`](crate::RawTree)), whose sizes are known only at run time.
pub trait Stored: Sized + Arg<Self> {
    #[doc(hidden)]
    fn read(bytes: &[u8]) -> Self;
}

impl<T: Value> Stored for T {
    #[inline]
    fn read(bytes: &[u8]) -> Self {
        T::decode(bytes)
    }
}

impl Stored for Vec<u8> {
    fn read(bytes: &[u8]) -> Self {
        bytes.to_vec()
    }
}

/// An argument that stands for a key or value of type `T`: a `T` or a `&T`. In trees of byte strings it is
/// anything that is `AsRef<[u8]>`.
///
/// It takes the place of `Borrow<T>`, because a `&Vec<u8>` and a `b"literal"` are not `Borrow<[u8]>`: byte
/// strings would need methods of their own. Literals need no annotation. An argument whose type only its
/// result decides needs one, as in `"ada".parse::<ShortBytes<16>>()`.
///
/// ```
/// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
/// let client = cluster.tree::<u64, u64>("orders")?.client()?;
/// let (key, value) = (8, 800);
/// client.insert(7, 700)?;
/// client.insert(&key, &value)?;
/// assert_eq!((client.get(7)?, client.get(&8)?), (Some(700), Some(800)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not stand for a key or value of type `{T}`",
    label = "write a `{T}` or a `&{T}` here"
)]
pub trait Arg<T> {
    #[doc(hidden)]
    fn bytes_needed(&self) -> usize;

    #[doc(hidden)]
    fn write_to(&self, bytes: &mut [u8]);
}

impl<T: Value> Arg<T> for T {
    #[inline]
    fn bytes_needed(&self) -> usize {
        T::LEN
    }

    #[inline]
    fn write_to(&self, bytes: &mut [u8]) {
        self.encode(bytes);
    }
}

impl<T: Value> Arg<T> for &T {
    #[inline]
    fn bytes_needed(&self) -> usize {
        T::LEN
    }

    #[inline]
    fn write_to(&self, bytes: &mut [u8]) {
        self.encode(bytes);
    }
}

impl Stored for String {
    /// Bytes that are no UTF-8 become U+FFFD. Only a client of byte strings writes such.
    fn read(bytes: &[u8]) -> Self {
        Self::from_utf8_lossy(bytes).into_owned()
    }
}

/// The values of a typed tree: a [`Value`] type, whose encoding has one length, or `Vec<u8>` or `String`, of
/// any length.
///
/// Short ones lie in the leaf, beside their key. Longer ones lie in blocks of their own: a get of such a
/// value takes two round trips.
///
/// ```
/// # let cluster = sherman::Cluster::open("embedded:?memory=256MiB")?;
/// let pages = cluster.tree::<u64, String>("pages")?.client()?;
/// pages.insert(7, "short")?;
/// pages.insert(8, "a longer text, ".repeat(1000))?;
/// assert_eq!(pages.get(8)?.map(|page| page.len()), Some(15_000));
/// assert_eq!(pages.insert(7, "")?, Some("short".to_owned()));
///
/// let blobs = cluster.tree::<u64, Vec<u8>>("blobs")?.client()?;
/// blobs.insert(1, vec![7; 1 << 20])?;
/// assert_eq!(blobs.remove(1)?.map(|blob| blob.len()), Some(1 << 20));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait TreeValue: Stored {
    /// Number of bytes of the encoding. `None` if values have any length.
    const FIXED: Option<usize>;

    /// The name of the type, as in [`Value::type_name`].
    fn value_type_name() -> String;
}

impl<T: Value> TreeValue for T {
    const FIXED: Option<usize> = Some(T::LEN);

    fn value_type_name() -> String {
        T::type_name()
    }
}

impl TreeValue for Vec<u8> {
    const FIXED: Option<usize> = None;

    fn value_type_name() -> String {
        "Vec<u8>".to_owned()
    }
}

impl TreeValue for String {
    const FIXED: Option<usize> = None;

    fn value_type_name() -> String {
        "String".to_owned()
    }
}

/// Implements the argument of a text.
macro_rules! text_args {
    ($($text:ty),+) => {$(
        impl Arg<String> for $text {
            fn bytes_needed(&self) -> usize {
                self.len()
            }

            fn write_to(&self, bytes: &mut [u8]) {
                bytes.copy_from_slice(self.as_bytes());
            }
        }
    )+};
}

text_args!(String, &String, &str);

impl<B: AsRef<[u8]>> Arg<Vec<u8>> for B {
    #[inline]
    fn bytes_needed(&self) -> usize {
        self.as_ref().len()
    }

    #[inline]
    fn write_to(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(self.as_ref());
    }
}

/// A key that begins with the bytes of a text or byte string. So all keys with one prefix are neighbours.
/// These are [`ShortBytes`], byte arrays, and the keys of trees of byte strings.
pub trait PrefixKey: Stored {
    /// The encoding of the lowest key that begins with `prefix`, in `key_bytes` bytes. `None` if no key can
    /// begin with it, because it is too long.
    fn lowest_with(prefix: &[u8], key_bytes: usize) -> Option<Vec<u8>> {
        let mut lowest = prefix.to_vec();
        lowest.resize(key_bytes, 0);
        (prefix.len() <= key_bytes).then_some(lowest)
    }
}

impl PrefixKey for Vec<u8> {}

impl<const N: usize> PrefixKey for [u8; N] {}

impl<const N: usize> PrefixKey for ShortBytes<N>
where
    Self: Key,
{
    /// The prefix itself, with its length. So a shorter string followed by zero bytes is not taken for it.
    fn lowest_with(prefix: &[u8], _: usize) -> Option<Vec<u8>> {
        Self::new(prefix).ok().map(|lowest| owned::<Self, _>(&lowest))
    }
}
