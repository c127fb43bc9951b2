//! The encoding of a [`ShortBytes`](super::ShortBytes) whose size is known only at run time.
//!
//! The type has a size at compile time. A tool that opens any tree has not. This is the same layout with a
//! limit at run time. It is the string, zeros up to the limit, then its length in one byte (limits up to 255)
//! or two.

use super::TooLong;

/// The layout of a [`ShortBytes`](super::ShortBytes), for tools that learn the size of a tree's keys or
/// values at run time.
///
/// ```
/// use sherman::{ShortBytes, ShortLayout, Value};
///
/// let layout = ShortLayout::of_size(17).expect("ShortBytes<16>");
/// let mut typed = [0; 17];
/// "ada".parse::<ShortBytes<16>>()?.encode(&mut typed);
/// assert_eq!(layout.encode(b"ada")?, typed);
/// assert_eq!(layout.decode(&typed), Some(&b"ada"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortLayout {
    limit: usize,
}

impl ShortLayout {
    /// The layout of strings of at most `limit` bytes; `None` above 65535.
    pub fn with_limit(limit: usize) -> Option<Self> {
        (limit <= usize::from(u16::MAX)).then_some(Self { limit })
    }

    /// The layout that takes this number of bytes, length included; `None` if no limit gives that size.
    pub fn of_size(bytes: usize) -> Option<Self> {
        [1, 2]
            .into_iter()
            .filter_map(|tail| Self::with_limit(bytes.checked_sub(tail)?))
            .find(|own| own.size() == bytes)
    }

    /// Bytes of the longest string.
    pub fn limit(self) -> usize {
        self.limit
    }

    /// Bytes of an encoded string, for any length.
    pub fn size(self) -> usize {
        self.limit + if self.limit <= usize::from(u8::MAX) { 1 } else { 2 }
    }

    /// Encodes `string` as a key or value.
    ///
    /// # Errors
    /// [`TooLong`] if it is longer than the limit.
    pub fn encode(self, string: &[u8]) -> Result<Vec<u8>, TooLong> {
        if string.len() > self.limit {
            return Err(TooLong { limit: self.limit, found: string.len() });
        }
        let mut bytes = string.to_vec();
        bytes.resize(self.limit, 0);
        let length = (string.len() as u16).to_be_bytes();
        bytes.extend(&length[self.limit + length.len() - self.size()..]);
        Ok(bytes)
    }

    /// The string in `bytes`. `None` if `bytes` encodes no string: it has another size, a length above the
    /// limit, or bytes other than zero after the string.
    pub fn decode(self, bytes: &[u8]) -> Option<&[u8]> {
        let (padded, length) = bytes.split_at_checked(self.limit).filter(|_| bytes.len() == self.size())?;
        let length = length.iter().fold(0, |length, &byte| length << 8 | usize::from(byte));
        let (string, padding) = padded.split_at_checked(length)?;
        padding.iter().all(|&byte| byte == 0).then_some(string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{ShortBytes, Value};

    fn typed<const N: usize>(string: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; ShortBytes::<N>::LEN];
        ShortBytes::<N>::new(string).expect("it fits").encode(&mut bytes);
        bytes
    }

    #[test]
    fn the_layout_is_that_of_the_type() {
        let long = [7; 300];
        for string in [&b""[..], b"a", b"a\0", &long[..255], &long[..256], &long] {
            let of = |limit: usize| ShortLayout::with_limit(limit).expect("a limit").encode(string).ok();
            assert_eq!(of(300), Some(typed::<300>(string)));
            assert_eq!(of(255), (string.len() <= 255).then(|| typed::<255>(string)));
            let layout = ShortLayout::of_size(302).expect("a size");
            assert_eq!(layout.decode(&typed::<300>(string)), Some(string));
        }
    }

    #[test]
    fn every_size_but_those_that_no_type_has_has_one_layout() {
        assert_eq!(ShortLayout::of_size(0), None);
        assert_eq!(ShortLayout::of_size(257), None, "between a length of one byte and a length of two");
        assert_eq!((ShortLayout::with_limit(65_536), ShortLayout::of_size(70_000)), (None, None));
        for (size, limit) in [(1, 0), (256, 255), (258, 256), (65_537, 65_535)] {
            assert_eq!(
                ShortLayout::of_size(size).map(|layout| (layout.limit(), layout.size())),
                Some((limit, size))
            );
        }
    }

    #[test]
    fn bytes_that_are_no_string_are_recognised() {
        let layout = ShortLayout::of_size(5).expect("a size");
        assert_eq!(layout.decode(b"ab\0\0\x02"), Some(&b"ab"[..]));
        for bad in [&b"ab\0\0\x01"[..], b"ab\0\0\x05", b"abcd", b"ab\0\0\0\x02", b""] {
            assert_eq!(layout.decode(bad), None, "{bad:?}");
        }
    }
}
