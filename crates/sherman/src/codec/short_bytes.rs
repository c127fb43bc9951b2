//! Byte strings of variable length in a fixed number of bytes.

use super::{Key, Value};
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

/// A byte string of at most `N` bytes, as a key or value of fixed size.
///
/// The encoding is the string, zeros up to `N`, then its length (one byte if `N` ≤ 255, else two). It
/// compares like byte strings. If one string is the other followed by zero bytes, the padded parts are equal
/// and the length after them decides.
///
/// ```
/// use sherman::{ShortBytes, TooLong};
///
/// let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
/// let client = cluster.tree::<ShortBytes<16>, u64>("users")?.client()?;
/// let ada: ShortBytes<16> = "ada".parse()?;
/// client.insert(ada, 1815)?;
/// assert_eq!(client.get(&ada)?, Some(1815));
/// assert_eq!(&ada[..], b"ada");
/// assert_eq!(ada.to_string(), "ada");
/// assert_eq!(ShortBytes::<2>::new(b"ada"), Err(TooLong { limit: 2, found: 3 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// The derived order compares the padded bytes, then the length. This is the order of the encoding. The bytes
// beyond the length are always zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShortBytes<const N: usize> {
    bytes: [u8; N],
    len: u16,
}

/// The string is longer than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// The most bytes that fit.
    pub limit: usize,
    /// Bytes of the string.
    pub found: usize,
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes do not fit into {}", self.found, self.limit)
    }
}

impl std::error::Error for TooLong {}

impl<const N: usize> ShortBytes<N> {
    /// Number of bytes of the encoded length.
    const TAIL: usize = {
        assert!(N <= u16::MAX as usize, "a ShortBytes has at most 65535 bytes");
        if N <= u8::MAX as usize { 1 } else { 2 }
    };

    /// The empty string.
    pub const EMPTY: Self = Self { bytes: [0; N], len: 0 };

    /// Copies `bytes`, if they fit.
    ///
    /// # Errors
    /// [`TooLong`] if there are more than `N`.
    pub fn new(bytes: &[u8]) -> Result<Self, TooLong> {
        // Evaluated here, so that a too large `N` does not compile.
        let _: usize = Self::TAIL;
        let mut own = Self::EMPTY;
        let place = own.bytes.get_mut(..bytes.len()).ok_or(TooLong { limit: N, found: bytes.len() })?;
        place.copy_from_slice(bytes);
        own.len = bytes.len() as u16;
        Ok(own)
    }

    /// The string.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The string as text, if it is UTF-8.
    pub fn as_str(&self) -> Result<&str, std::str::Utf8Error> {
        std::str::from_utf8(self.as_bytes())
    }
}

impl<const N: usize> Value for ShortBytes<N> {
    const LEN: usize = N + Self::TAIL;

    fn type_name() -> String {
        format!("ShortBytes<{N}>")
    }

    fn encode(&self, bytes: &mut [u8]) {
        let (padded, len) = bytes.split_at_mut(N);
        padded.copy_from_slice(&self.bytes);
        match len {
            [len] => *len = self.len as u8,
            _ => self.len.encode(len),
        }
    }

    fn decode(bytes: &[u8]) -> Self {
        let (padded, len) = bytes.split_at(N);
        let len = match len {
            [len] => usize::from(*len),
            _ => usize::from(u16::decode(len)),
        };
        let mut own = Self::EMPTY;
        let len = len.min(N);
        own.bytes[..len].copy_from_slice(&padded[..len]);
        own.len = len as u16;
        own
    }
}

impl<const N: usize> Key for ShortBytes<N> {}

impl<const N: usize> Default for ShortBytes<N> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<const N: usize> Deref for ShortBytes<N> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl<const N: usize> AsRef<[u8]> for ShortBytes<N> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<const N: usize> TryFrom<&[u8]> for ShortBytes<N> {
    type Error = TooLong;

    fn try_from(bytes: &[u8]) -> Result<Self, TooLong> {
        Self::new(bytes)
    }
}

impl<const N: usize> TryFrom<&str> for ShortBytes<N> {
    type Error = TooLong;

    fn try_from(text: &str) -> Result<Self, TooLong> {
        Self::new(text.as_bytes())
    }
}

impl<const N: usize> FromStr for ShortBytes<N> {
    type Err = TooLong;

    fn from_str(text: &str) -> Result<Self, TooLong> {
        Self::new(text.as_bytes())
    }
}

/// As text. Bytes that are not UTF-8 become U+FFFD.
impl<const N: usize> fmt::Display for ShortBytes<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&String::from_utf8_lossy(self))
    }
}

impl<const N: usize> fmt::Debug for ShortBytes<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}
