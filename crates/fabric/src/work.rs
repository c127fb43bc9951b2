//! Work lists: the verbs of one round trip, their bytes and their results.
//!
//! A list owns one byte arena. A WRITE copies its data into the arena when it is added. A READ reserves its
//! place there. After completion the caller looks up the results by [`VerbId`]. Lists come from an endpoint's
//! pool and return to it, so the warm path allocates nothing. The arena never shrinks, so it is not cleared
//! either.
//!
//! Each round trip passes a list by value several times (pool, caller, endpoint, ticket, caller, pool). So a
//! list is one pointer.

use crate::{Reach, Space, Tally};

/// One verb of a list. Offsets refer to the list's server, and buffers are ranges of the list's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Fetch `len` bytes.
    Read {
        /// Memory to read.
        space: Space,
        /// First byte on the server.
        offset: u64,
        /// The arena position for the bytes.
        at: u32,
        /// Number of bytes.
        len: u32,
    },
    /// Store `len` bytes.
    Write {
        /// Memory to write.
        space: Space,
        /// First byte on the server.
        offset: u64,
        /// The arena position of the bytes.
        at: u32,
        /// Number of bytes.
        len: u32,
        /// Wait for every earlier READ and atomic of this endpoint on this server (F3).
        fenced: bool,
    },
    /// Compare the bits of an aligned 64-bit word selected by `mask` with `compare`. If equal, replace them
    /// by `swap`.
    Cas {
        /// Memory of the word.
        space: Space,
        /// Offset of the word, a multiple of 8.
        offset: u64,
        /// Expected bits (under `mask`).
        compare: u64,
        /// New bits (under `mask`).
        swap: u64,
        /// The selected bits, all ones for a plain CAS.
        mask: u64,
        /// The whole old word, filled in on completion.
        old: u64,
    },
    /// Add to an aligned 64-bit word, wrapping.
    Faa {
        /// Memory of the word.
        space: Space,
        /// Offset of the word, a multiple of 8.
        offset: u64,
        /// The addend.
        add: u64,
        /// The old word, filled in on completion.
        old: u64,
    },
}

/// Names a verb within its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerbId(u32);

/// An ordered list of verbs for one memory server.
#[derive(Debug, Default)]
pub struct WorkList(Box<Inner>);

#[derive(Debug, Default)]
struct Inner {
    server: u16,
    reach: Reach,
    verbs: Vec<Verb>,
    arena: Vec<u8>,
    used: usize,
    /// Verbs and bytes so far.
    cost: Tally,
}

impl WorkList {
    /// An empty list for `server`. Prefer [`Endpoint::list`](crate::Endpoint::list), which reuses buffers.
    #[inline]
    pub fn new(server: u16) -> Self {
        Self(Box::new(Inner { server, ..Inner::default() }))
    }

    /// Empties the list for use with `server`, and keeps its buffers.
    #[inline]
    pub fn reset(&mut self, server: u16) {
        self.0.server = server;
        self.0.reach = Reach::All;
        self.0.verbs.clear();
        self.0.used = 0;
        self.0.cost = Tally::default();
    }

    /// The list's server.
    #[inline]
    pub fn server(&self) -> u16 {
        self.0.server
    }

    /// Changes the list's server, and keeps its verbs. For an endpoint that passes lists on to another.
    #[inline]
    pub fn route(&mut self, server: u16) {
        self.0.server = server;
    }

    /// The copies that the list is for.
    #[inline]
    pub fn reach(&self) -> Reach {
        self.0.reach
    }

    /// Sets the copies that the list is for. A backend without copies ignores it.
    #[inline]
    pub fn set_reach(&mut self, reach: Reach) {
        self.0.reach = reach;
    }

    /// The verbs, in posting order.
    #[inline]
    pub fn verbs(&self) -> &[Verb] {
        &self.0.verbs
    }

    /// Number of verbs.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.verbs.len()
    }

    /// Whether the list has no verb.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.verbs.is_empty()
    }

    /// Capacity of the arena in bytes: the memory that a pool keeps with this list.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.0.arena.len()
    }

    #[inline]
    fn reserve(&mut self, len: usize) -> u32 {
        let Inner { arena, used, .. } = &mut *self.0;
        let at = *used;
        *used += len;
        if arena.len() < *used {
            arena.resize(*used, 0);
        }
        u32::try_from(at).expect("a work list's arena stays below 4 GiB: lists are bounded by caps")
    }

    #[inline]
    fn push(&mut self, verb: Verb) -> VerbId {
        self.0.verbs.push(verb);
        VerbId(self.0.verbs.len() as u32 - 1)
    }

    /// Adds a READ.
    #[inline]
    pub fn read(&mut self, space: Space, offset: u64, len: u32) -> VerbId {
        let at = self.reserve(len as usize);
        self.0.cost.reads += 1;
        self.0.cost.bytes_read += u64::from(len);
        self.push(Verb::Read { space, offset, at, len })
    }

    /// Adds a WRITE of `data`.
    #[inline]
    pub fn write(&mut self, space: Space, offset: u64, data: &[u8]) -> VerbId {
        self.write_with(space, offset, data, false)
    }

    /// Adds a WRITE that waits for every earlier READ and atomic (F3).
    #[inline]
    pub fn write_fenced(&mut self, space: Space, offset: u64, data: &[u8]) -> VerbId {
        self.write_with(space, offset, data, true)
    }

    #[inline]
    fn write_with(&mut self, space: Space, offset: u64, data: &[u8], fenced: bool) -> VerbId {
        let at = self.reserve(data.len());
        self.0.arena[at as usize..at as usize + data.len()].copy_from_slice(data);
        let len = u32::try_from(data.len()).expect("a WRITE stays below 4 GiB: verbs are bounded by caps");
        self.0.cost.writes += 1;
        self.0.cost.bytes_written += u64::from(len);
        self.push(Verb::Write { space, offset, at, len, fenced })
    }

    /// Adds a CAS of a whole word.
    #[inline]
    pub fn cas(&mut self, space: Space, offset: u64, compare: u64, swap: u64) -> VerbId {
        self.masked_cas(space, offset, compare, swap, u64::MAX)
    }

    /// Adds a CAS of the bits under `mask`. Needs `caps.masked_cas` unless the mask is all ones.
    #[inline]
    pub fn masked_cas(&mut self, space: Space, offset: u64, compare: u64, swap: u64, mask: u64) -> VerbId {
        self.0.cost.atomics += 1;
        self.push(Verb::Cas { space, offset, compare, swap, mask, old: 0 })
    }

    /// Adds a fetch-and-add.
    #[inline]
    pub fn faa(&mut self, space: Space, offset: u64, add: u64) -> VerbId {
        self.0.cost.atomics += 1;
        self.push(Verb::Faa { space, offset, add, old: 0 })
    }

    /// The bytes of a READ (after completion) or WRITE.
    ///
    /// # Panics
    /// If `id` names an atomic, which is a bug of the caller.
    #[inline]
    pub fn bytes(&self, id: VerbId) -> &[u8] {
        match self.0.verbs[id.0 as usize] {
            Verb::Read { at, len, .. } | Verb::Write { at, len, .. } => {
                &self.0.arena[at as usize..(at + len) as usize]
            }
            Verb::Cas { .. } | Verb::Faa { .. } => panic!("an atomic verb has no bytes"),
        }
    }

    /// The word that an atomic found, after completion.
    ///
    /// # Panics
    /// If `id` names a READ or WRITE, which is a bug of the caller.
    #[inline]
    pub fn old(&self, id: VerbId) -> u64 {
        match self.0.verbs[id.0 as usize] {
            Verb::Cas { old, .. } | Verb::Faa { old, .. } => old,
            Verb::Read { .. } | Verb::Write { .. } => panic!("a READ or WRITE has no old word"),
        }
    }

    /// Whether a CAS swapped, after completion.
    ///
    /// # Panics
    /// If `id` does not name a CAS, which is a bug of the caller.
    #[inline]
    pub fn swapped(&self, id: VerbId) -> bool {
        match self.0.verbs[id.0 as usize] {
            Verb::Cas { compare, mask, old, .. } => old & mask == compare & mask,
            _ => panic!("only a CAS swaps"),
        }
    }

    /// The bytes of the verb at `index`, if it is a WRITE.
    #[inline]
    pub fn data(&self, index: usize) -> &[u8] {
        match self.0.verbs[index] {
            Verb::Write { at, len, .. } => &self.0.arena[at as usize..(at + len) as usize],
            _ => &[],
        }
    }

    /// For backends: the verb at `index`, and the arena that holds its bytes.
    #[inline]
    pub fn parts_mut(&mut self, index: usize) -> (Verb, &mut [u8]) {
        let Inner { verbs, arena, .. } = &mut *self.0;
        (verbs[index], arena)
    }

    /// For backends: records the word that the atomic at `index` found.
    #[inline]
    pub fn set_old(&mut self, index: usize, word: u64) {
        match &mut self.0.verbs[index] {
            Verb::Cas { old, .. } | Verb::Faa { old, .. } => *old = word,
            Verb::Read { .. } | Verb::Write { .. } => {}
        }
    }

    /// Number of READs.
    #[inline]
    pub fn reads(&self) -> usize {
        self.0.cost.reads as usize
    }

    /// The cost of posting the list: one round trip of these verbs and bytes.
    #[inline]
    pub fn tally(&self) -> Tally {
        Tally { round_trips: 1, ..self.0.cost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_list_keeps_its_arena_and_forgets_its_verbs() {
        let mut list = WorkList::new(3);
        let w = list.write(Space::Host, 64, b"abc");
        let r = list.read(Space::Host, 128, 5);
        assert_eq!(list.bytes(w), b"abc");
        assert_eq!(list.bytes(r).len(), 5);
        let capacity = list.capacity();
        list.set_reach(Reach::Only(crate::Role::Backup));
        list.route(7);
        assert_eq!((list.server(), list.len(), list.data(0), list.data(1)), (7, 2, &b"abc"[..], &[][..]));
        list.reset(1);
        assert!(list.is_empty());
        assert_eq!(list.reach(), Reach::All);
        assert_eq!((list.server(), list.capacity()), (1, capacity));
    }

    #[test]
    fn a_list_knows_what_it_costs() {
        let mut list = WorkList::new(0);
        for _ in 0..2 {
            list.read(Space::Host, 0, 1024);
            list.read(Space::Host, 64, 6);
            list.write_fenced(Space::Host, 64, &[0; 20]);
            list.cas(Space::OnChip, 8, 0, 1);
            list.faa(Space::OnChip, 8, 1);
            let verbs = Tally { round_trips: 1, reads: 2, writes: 1, atomics: 2, ..Tally::default() };
            assert_eq!(list.tally(), Tally { bytes_read: 1030, bytes_written: 20, ..verbs });
            list.reset(0);
        }
    }

    #[test]
    fn a_masked_cas_swaps_iff_the_masked_bits_agree() {
        let mut list = WorkList::new(0);
        let c = list.masked_cas(Space::OnChip, 8, 0, 7 << 16, 0xffff << 16);
        list.set_old(0, 0x1_0000_0000_0042);
        assert!(list.swapped(c));
        list.set_old(0, 5 << 16);
        assert!(!list.swapped(c));
        assert_eq!(list.old(c), 5 << 16);
    }
}
