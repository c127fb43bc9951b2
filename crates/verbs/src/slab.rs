//! Registered memory, allocated in extents: one for each list in flight.
//!
//! Allocation is first fit, and adjacent free extents are merged. A list that finds no room waits until
//! others have completed. When all have completed, the slab is one extent again. So every list that is no
//! larger than the slab finds room in the end.

/// Extents begin at multiples of this.
const GRAIN: u32 = 64;

/// Part of the slab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Its first byte.
    pub start: u32,
    /// Its length in bytes, rounded up.
    pub len: u32,
}

/// Which parts of the slab are free.
#[derive(Clone, Debug)]
pub struct Slab {
    /// Sorted by start; no two are adjacent.
    free: Vec<Extent>,
    bytes: u32,
}

impl Slab {
    /// A slab of `bytes`, all free.
    pub fn new(bytes: u32) -> Self {
        let bytes = bytes / GRAIN * GRAIN;
        Self { free: vec![Extent { start: 0, len: bytes }], bytes }
    }

    /// Its size.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Allocates `bytes`; `None` if there is no free extent of that size now.
    #[inline]
    pub fn take(&mut self, bytes: u32) -> Option<Extent> {
        if bytes == 0 {
            return Some(Extent::default());
        }
        let len = bytes.checked_next_multiple_of(GRAIN)?;
        let at = self.free.iter().position(|extent| extent.len >= len)?;
        let found = &mut self.free[at];
        let taken = Extent { start: found.start, len };
        if found.len == len {
            self.free.remove(at);
        } else {
            (found.start, found.len) = (found.start + len, found.len - len);
        }
        Some(taken)
    }

    /// Frees an extent.
    #[inline]
    pub fn give(&mut self, extent: Extent) {
        if extent.len == 0 {
            return;
        }
        let at = self.free.partition_point(|free| free.start < extent.start);
        let end = extent.start + extent.len;
        let touches_next = self.free.get(at).is_some_and(|next| next.start == end);
        let before = at
            .checked_sub(1)
            .filter(|&before| self.free[before].start + self.free[before].len == extent.start);
        match (before, touches_next) {
            (Some(before), true) => {
                self.free[before].len += extent.len + self.free[at].len;
                self.free.remove(at);
            }
            (Some(before), false) => self.free[before].len += extent.len,
            (None, true) => {
                self.free[at].start = extent.start;
                self.free[at].len += extent.len;
            }
            (None, false) => self.free.insert(at, extent),
        }
    }

    /// Whether nothing is allocated.
    pub fn is_whole(&self) -> bool {
        matches!(self.free[..], [Extent { start: 0, len }] if len == self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_never_overlap_and_all_come_back() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut slab = Slab::new(1 << 16);
        let mut taken: Vec<Extent> = Vec::new();
        let mut refused = 0;
        for _ in 0..20_000 {
            if random(2) == 0 && !taken.is_empty() {
                slab.give(taken.swap_remove(random(taken.len() as u64) as usize));
                continue;
            }
            let bytes = random(5_000) as u32;
            match slab.take(bytes) {
                Some(extent) => {
                    assert!(extent.len >= bytes && extent.start + extent.len <= 1 << 16);
                    let apart = |other: &Extent| {
                        other.len == 0
                            || extent.start + extent.len <= other.start
                            || other.start + other.len <= extent.start
                    };
                    assert!(extent.len == 0 || taken.iter().all(apart));
                    taken.push(extent);
                }
                None => refused += 1,
            }
        }
        assert!(refused > 0);
        taken.into_iter().for_each(|extent| slab.give(extent));
        assert!(slab.is_whole());
        assert_eq!(slab.take(1 << 16), Some(Extent { start: 0, len: 1 << 16 }));
        assert_eq!((slab.take(1), slab.take(u32::MAX)), (None, None));
    }
}
