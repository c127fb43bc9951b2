//! Reading and writing little-endian bytes, within the bounds of the input.

use sherman_fabric::Space;

sherman_fabric::errors! {
    /// Why bytes are not a message.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum WireError {
        /// They end in the middle of a value.
        Truncated => "the message ends too early",
        /// They continue after the end of the message.
        Leftover => "bytes that do not belong to the message follow it",
        /// A number that has no meaning.
        Unknown {
            /// The kind of thing that it should have named.
            what: &'static str,
            /// The number.
            found: u64,
        } => "{found} is not a valid {what}",
        /// A count or length above its limit.
        TooLarge {
            /// The thing that is counted or measured.
            what: &'static str,
            /// The count or length.
            asked: u64,
            /// The limit.
            limit: u64,
        } => "too many {what}: {asked}, the limit is {limit}",
        /// Text that is not UTF-8.
        NotText => "a text is not UTF-8",
        /// A connection does not begin with the bytes of this protocol.
        NotSherman => "the other side does not speak this protocol",
        /// A value that this version of the protocol has no bytes for.
        NoEncoding => "this version of the protocol cannot express this value",
    }
}

/// The rest of a message that is still to be read.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads all of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(WireError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(WireError::Truncated)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// A byte.
    pub fn u8(&mut self) -> Result<u8, WireError> {
        self.array().map(u8::from_le_bytes)
    }

    /// Two bytes.
    pub fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_le_bytes)
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    /// A byte that is 0 or 1.
    pub fn flag(&mut self, what: &'static str) -> Result<bool, WireError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(WireError::Unknown { what, found: other.into() }),
        }
    }

    /// One of the two memories.
    pub fn space(&mut self) -> Result<Space, WireError> {
        space_of(self.u8()?)
    }

    /// A text, after its length.
    pub fn text(&mut self) -> Result<&'a str, WireError> {
        let len = self.u32()?;
        let bytes = self.take(usize::try_from(len).map_err(|_| WireError::Truncated)?)?;
        std::str::from_utf8(bytes).map_err(|_| WireError::NotText)
    }

    /// Several values, after their number. Reserves room only for as many as the input can hold: each takes
    /// at least `at_least` bytes.
    pub fn several<T>(
        &mut self,
        at_least: usize,
        mut one: impl FnMut(&mut Self) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        let count = usize::try_from(self.u32()?).map_err(|_| WireError::Truncated)?;
        if count > self.0.len() / at_least.max(1) {
            return Err(WireError::Truncated);
        }
        let mut all = Vec::with_capacity(count);
        for _ in 0..count {
            all.push(one(self)?);
        }
        Ok(all)
    }

    /// As [`several`](Self::several), but at most `limit` values.
    pub fn at_most<T>(
        &mut self,
        what: &'static str,
        limit: usize,
        at_least: usize,
        one: impl FnMut(&mut Self) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        let count = Self(self.0).u32()?;
        if count as usize > limit {
            return Err(WireError::TooLarge { what, asked: count.into(), limit: limit as u64 });
        }
        self.several(at_least, one)
    }

    /// Everything that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// Checks that nothing is left.
    pub fn finish(self) -> Result<(), WireError> {
        if self.0.is_empty() { Ok(()) } else { Err(WireError::Leftover) }
    }
}

/// The memory that `number` means.
#[inline]
pub fn space_of(number: u8) -> Result<Space, WireError> {
    match number {
        0 => Ok(Space::Host),
        1 => Ok(Space::OnChip),
        other => Err(WireError::Unknown { what: "memory", found: other.into() }),
    }
}

/// The number that means a memory.
#[inline]
pub fn space_number(space: Space) -> u8 {
    match space {
        Space::Host => 0,
        Space::OnChip => 1,
    }
}

/// Writes the same values.
pub trait Put {
    /// Bytes as they are.
    fn put(&mut self, bytes: &[u8]);

    /// A byte.
    fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    /// Two bytes.
    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }

    /// Four bytes.
    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    /// Eight bytes.
    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }

    /// A text, after its length. A text beyond 4 GiB is cut to the largest length that fits.
    fn put_text(&mut self, text: &str) {
        let len = u32::try_from(text.len()).unwrap_or(u32::MAX);
        self.put_u32(len);
        self.put(&text.as_bytes()[..len as usize]);
    }

    /// Several values, after their number.
    fn put_several<T>(&mut self, all: &[T], mut one: impl FnMut(&mut Self, &T))
    where
        Self: Sized,
    {
        let count = u32::try_from(all.len()).unwrap_or(u32::MAX);
        self.put_u32(count);
        all.iter().take(count as usize).for_each(|each| one(self, each));
    }
}

impl Put for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_beyond() {
        let mut bytes = Vec::new();
        bytes.put_u8(1);
        bytes.put_u16(0x0203);
        bytes.put_u32(0x0405_0607);
        bytes.put_u64(u64::MAX - 1);
        bytes.put_text("grün");
        bytes.put_several(&[5u16, 6], |out, each| out.put_u16(*each));
        let read = |bytes: &[u8]| -> Result<(), WireError> {
            let mut reader = Reader::new(bytes);
            assert_eq!((reader.u8()?, reader.u16()?, reader.u32()?), (1, 0x0203, 0x0405_0607));
            assert_eq!((reader.u64()?, reader.text()?), (u64::MAX - 1, "grün"));
            assert_eq!(reader.several(2, Reader::u16)?, [5, 6]);
            reader.finish()
        };
        assert_eq!(read(&bytes), Ok(()));
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end]), Err(WireError::Truncated), "{end}");
        }
        bytes.push(0);
        assert_eq!(read(&bytes), Err(WireError::Leftover));
    }

    #[test]
    fn a_number_of_things_that_cannot_be_there_makes_no_room_for_them() {
        let bytes = u32::MAX.to_le_bytes();
        assert_eq!(Reader::new(&bytes).several(1, Reader::u8), Err(WireError::Truncated));
        assert_eq!(Reader::new(&bytes).text(), Err(WireError::Truncated));
    }
}
