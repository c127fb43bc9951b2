//! The place of bytes: a server, a space and an offset.

use std::fmt;

/// One of the two memories a memory server exposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// The server's main memory: superblock, nodes, redo slots. F1's unit of atomicity holds here.
    Host,
    /// The NIC's on-chip memory: lock lanes and nothing else. Accessed by aligned words of at most 8 bytes.
    OnChip,
}

impl Space {
    /// Whether F1 allows a READ (or else a WRITE) of `len` bytes at `offset`, which lie in this space. Host
    /// memory takes any bytes. On-chip memory takes 1, 2, 4 or 8 bytes, aligned to their number, so that they
    /// lie inside one word. A READ may also cover several whole words.
    #[inline]
    pub const fn allows(self, offset: u64, len: u64, is_read: bool) -> bool {
        match self {
            Self::Host => true,
            Self::OnChip if is_read && len > 8 => offset.is_multiple_of(8) && len.is_multiple_of(8),
            Self::OnChip => matches!(len, 1 | 2 | 4 | 8) && offset.is_multiple_of(len),
        }
    }
}

/// A place in [`Space::Host`] of a memory server: 16-bit server, 48-bit offset (paper §4.2.1).
///
/// The all-zero address is [`GlobalAddress::NULL`]. Offset 0 of server 0 is its superblock, so no node is
/// ever there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct GlobalAddress(u64);

impl GlobalAddress {
    /// No node.
    pub const NULL: Self = Self(0);
    /// The first offset that does not fit.
    pub const OFFSET_LIMIT: u64 = 1 << 48;

    /// The address of `offset` on `server`.
    ///
    /// # Panics
    /// If `offset` does not fit 48 bits. That is a bug of the caller, because regions are bounded when they
    /// are made.
    #[inline]
    pub const fn new(server: u16, offset: u64) -> Self {
        assert!(offset < Self::OFFSET_LIMIT, "offset exceeds 48 bits");
        Self(((server as u64) << 48) | offset)
    }

    /// The address of `offset` on `server`, or the last address there if `offset` does not fit 48 bits. For
    /// errors about offsets that came from outside.
    pub const fn saturating(server: u16, offset: u64) -> Self {
        let offset = if offset < Self::OFFSET_LIMIT { offset } else { Self::OFFSET_LIMIT - 1 };
        Self::new(server, offset)
    }

    /// The server's index.
    #[inline]
    pub const fn server(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// The byte offset on that server.
    #[inline]
    pub const fn offset(self) -> u64 {
        self.0 & (Self::OFFSET_LIMIT - 1)
    }

    /// The 64-bit form stored in nodes.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The address stored as `bits`. Every bit pattern is an address. The reader must check whether a node is
    /// there.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether this is [`GlobalAddress::NULL`].
    #[inline]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Debug for GlobalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:#x}", self.server(), self.offset())
    }
}

impl fmt::Display for GlobalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_its_parts() {
        let a = GlobalAddress::new(0xfffe, (1 << 48) - 64);
        assert_eq!((a.server(), a.offset()), (0xfffe, (1 << 48) - 64));
        assert_eq!(GlobalAddress::from_bits(a.to_bits()), a);
        assert!(GlobalAddress::NULL.is_null() && !a.is_null());
        assert_eq!(a.to_string(), "65534:0xffffffffffc0");
        assert_eq!(GlobalAddress::saturating(3, u64::MAX), GlobalAddress::new(3, (1 << 48) - 1));
        assert_eq!(GlobalAddress::saturating(3, 64), GlobalAddress::new(3, 64));
    }

    #[test]
    fn on_chip_accesses_stay_inside_a_word_except_reads_of_whole_words() {
        let allows = |offset, len, is_read| Space::OnChip.allows(offset, len, is_read);
        for is_read in [true, false] {
            assert!([(3, 1), (6, 2), (4, 4), (16, 8)].into_iter().all(|(at, len)| allows(at, len, is_read)));
            let refused = [(0, 0), (0, 3), (1, 2), (6, 4), (4, 8), (0, 12), (4, 16)];
            assert!(!refused.into_iter().any(|(at, len)| allows(at, len, is_read)));
        }
        assert!(allows(8, 24, true) && !allows(8, 24, false));
        assert!(Space::Host.allows(3, 17, false));
    }
}
