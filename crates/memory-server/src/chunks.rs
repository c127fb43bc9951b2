//! The chunk table: an 8-byte entry per chunk says who has it and what it is cut into.
//!
//! Allocation is two-staged (paper §4.2.4): a client asks for a chunk and cuts it into nodes by itself. A
//! chunk keeps its class for ever once it has one, because a stale pointer may still lead a reader into it; so a chunk
//! given back is issued again only for the same class, and a chunk never used is touched only when no free one of the
//! class is left. Chunks never used are always the last ones: they are taken in order and none returns.
//!
//! An entry is one word, so every change is one store.

use crate::bytes::{get_u64, load_host};
use crate::geometry::{CHUNK_ENTRY_BYTES, Geometry};
use crate::server::OpenError;
use sherman_fabric::control::ChunkClass;
use sherman_fabric::{ClientId, Memory, Refusal, Space};
use std::collections::{BTreeMap, BTreeSet};

const KIND_UNUSED: u8 = 0;
const KIND_FREE: u8 = 1;
const KIND_ISSUED: u8 = 2;
const KIND_REDO: u8 = 3;

/// What the table says about one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkEntry {
    /// It was never given out.
    Unused,
    /// It was given back and waits for the next request of its class.
    Free {
        /// What it was cut into.
        class: ChunkClass,
    },
    /// It holds nodes.
    Issued {
        /// What it is cut into.
        class: ChunkClass,
        /// Who cuts it; [`ClientId::NOBODY`] once that client has left. Who recovers a client owns its chunks then.
        owner: ClientId,
    },
    /// It is cut into redo areas, by this server.
    Redo,
}

impl ChunkEntry {
    /// The entry's word: byte 0 kind, byte 1 format, bytes 2–3 owner, bytes 4–7 node bytes.
    pub const fn to_bits(self) -> u64 {
        const fn pack(kind: u8, owner: u16, class: ChunkClass) -> u64 {
            kind as u64 | (class.format as u64) << 8 | (owner as u64) << 16 | (class.node_bytes as u64) << 32
        }
        match self {
            Self::Unused => KIND_UNUSED as u64,
            Self::Free { class } => pack(KIND_FREE, 0, class),
            Self::Issued { class, owner } => pack(KIND_ISSUED, owner.0, class),
            Self::Redo => KIND_REDO as u64,
        }
    }

    /// The entry stored as `bits`, if there is one.
    pub const fn from_bits(bits: u64) -> Option<Self> {
        let class = ChunkClass { node_bytes: (bits >> 32) as u32, format: (bits >> 8) as u8 };
        let owner = ClientId((bits >> 16) as u16);
        match (bits as u8, owner.0) {
            (KIND_UNUSED, _) if bits == Self::Unused.to_bits() => Some(Self::Unused),
            (KIND_FREE, 0) => Some(Self::Free { class }),
            (KIND_ISSUED, _) => Some(Self::Issued { class, owner }),
            (KIND_REDO, _) if bits == Self::Redo.to_bits() => Some(Self::Redo),
            _ => None,
        }
    }
}

/// The table and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChunkTable {
    entries: Vec<ChunkEntry>,
    free: BTreeMap<ChunkClass, BTreeSet<u32>>,
    first_unused: u32,
}

impl ChunkTable {
    /// The table in memory.
    pub(crate) fn load<M: Memory + ?Sized>(memory: &M, geometry: &Geometry) -> Result<Self, OpenError> {
        let bytes = load_host(memory, geometry.chunk_table_offset, geometry.chunk_table_bytes());
        let mut table = Self { entries: Vec::new(), free: BTreeMap::new(), first_unused: 0 };
        for index in 0..geometry.chunks {
            let corrupt = |what| OpenError::Corrupt { table: "chunk table", entry: u64::from(index), what };
            let bits = get_u64(&bytes, index as usize * CHUNK_ENTRY_BYTES as usize);
            let entry = ChunkEntry::from_bits(bits).ok_or(corrupt("is no chunk entry"))?;
            if let ChunkEntry::Free { class } | ChunkEntry::Issued { class, .. } = entry
                && !geometry.allows_node_bytes(class.node_bytes)
            {
                return Err(corrupt("has an impossible node size"));
            }
            match entry {
                ChunkEntry::Unused => {}
                _ if table.first_unused != index => return Err(corrupt("is used behind a chunk never used")),
                ChunkEntry::Issued { owner, .. } if owner != ClientId::NOBODY && !geometry.is_client(owner) => {
                    return Err(corrupt("has an impossible owner"));
                }
                _ => table.first_unused = index + 1,
            }
            if let ChunkEntry::Free { class } = entry {
                table.free.entry(class).or_default().insert(index);
            }
            table.entries.push(entry);
        }
        Ok(table)
    }

    /// What the table says about chunk `index`.
    pub(crate) fn get(&self, index: u32) -> Option<ChunkEntry> {
        self.entries.get(index as usize).copied()
    }

    /// How many chunks are given out, redo chunks included.
    pub(crate) fn used(&self) -> u64 {
        let free: usize = self.free.values().map(BTreeSet::len).sum();
        u64::from(self.first_unused) - free as u64
    }

    /// The redo chunks, in order.
    pub(crate) fn redo_chunks(&self) -> impl Iterator<Item = u32> {
        (0..self.first_unused).filter(|&index| self.entries[index as usize] == ChunkEntry::Redo)
    }

    fn set<M: Memory + ?Sized>(&mut self, memory: &M, geometry: &Geometry, index: u32, entry: ChunkEntry) {
        memory.store_u64(Space::Host, geometry.chunk_entry(index), entry.to_bits());
        self.entries[index as usize] = entry;
    }

    fn take_unused(&mut self) -> Option<u32> {
        let index = self.first_unused;
        if index as usize == self.entries.len() {
            return None;
        }
        self.first_unused += 1;
        Some(index)
    }

    /// A chunk of `class` for `owner`.
    pub(crate) fn alloc<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        geometry: &Geometry,
        owner: ClientId,
        class: ChunkClass,
    ) -> Result<u64, Refusal> {
        if !geometry.allows_node_bytes(class.node_bytes) {
            return Err(Refusal::BadRequest { what: "node_bytes is not a multiple of 64 from 256 to 65536 that fits" });
        }
        let index = match self.free.get_mut(&class).and_then(BTreeSet::pop_first) {
            Some(index) => index,
            None => self.take_unused().ok_or(Refusal::OutOfMemory)?,
        };
        self.set(memory, geometry, index, ChunkEntry::Issued { class, owner });
        if self.free.get(&class).is_some_and(BTreeSet::is_empty) {
            self.free.remove(&class);
        }
        Ok(geometry.chunk_offset(index))
    }

    /// Takes back the chunk that begins at `offset` from its owner.
    pub(crate) fn free<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        geometry: &Geometry,
        from: ClientId,
        offset: u64,
    ) -> Result<(), Refusal> {
        let index = geometry
            .chunk_at(offset)
            .filter(|&index| geometry.chunk_offset(index) == offset)
            .ok_or(Refusal::BadRequest { what: "no chunk begins at this offset" })?;
        match self.entries[index as usize] {
            ChunkEntry::Issued { class, owner } if owner == from => {
                self.set(memory, geometry, index, ChunkEntry::Free { class });
                self.free.entry(class).or_default().insert(index);
                Ok(())
            }
            _ => Err(Refusal::BadRequest { what: "the client does not own this chunk" }),
        }
    }

    /// A chunk for redo areas: always one never used, since classes last for ever.
    pub(crate) fn alloc_redo<M: Memory + ?Sized>(&mut self, memory: &M, geometry: &Geometry) -> Result<u32, Refusal> {
        let index = self.take_unused().ok_or(Refusal::OutOfMemory)?;
        self.set(memory, geometry, index, ChunkEntry::Redo);
        Ok(index)
    }

    /// Makes `owner`'s chunks nobody's: they hold linked nodes and stay in use, but the id may soon be someone else's.
    pub(crate) fn disown<M: Memory + ?Sized>(&mut self, memory: &M, geometry: &Geometry, owner: ClientId) {
        self.pass_on(memory, geometry, owner, ClientId::NOBODY);
    }

    /// Makes `owner`'s chunks `heir`'s. Each chunk by itself: cut short, it is done again.
    pub(crate) fn pass_on<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        geometry: &Geometry,
        owner: ClientId,
        heir: ClientId,
    ) {
        for index in 0..self.first_unused {
            if let ChunkEntry::Issued { class, owner: found } = self.entries[index as usize]
                && found == owner
            {
                self.set(memory, geometry, index, ChunkEntry::Issued { class, owner: heir });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{VecMemory, small_options};

    const A: ChunkClass = ChunkClass { node_bytes: 1024, format: 1 };
    const B: ChunkClass = ChunkClass { node_bytes: 1024, format: 2 };
    const ME: ClientId = ClientId(3);

    fn table() -> (VecMemory, Geometry, ChunkTable) {
        let memory = VecMemory::new(64 << 10, 0);
        let geometry = small_options().plan(64 << 10, 0).unwrap();
        let table = ChunkTable::load(&memory, &geometry).unwrap();
        (memory, geometry, table)
    }

    #[test]
    fn an_entry_is_the_word_that_the_layout_draws() {
        let class = ChunkClass { node_bytes: 0x0001_0000, format: 0xab };
        assert_eq!(
            ChunkEntry::Issued { class, owner: ClientId(0x1234) }.to_bits().to_le_bytes(),
            [2, 0xab, 0x34, 0x12, 0, 0, 1, 0]
        );
        assert_eq!(ChunkEntry::Free { class }.to_bits().to_le_bytes(), [1, 0xab, 0, 0, 0, 0, 1, 0]);
        assert_eq!(ChunkEntry::Redo.to_bits(), 3);
        assert_eq!(ChunkEntry::Unused.to_bits(), 0);
    }

    #[test]
    fn a_word_is_an_entry_iff_it_is_what_the_entry_encodes_to() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..200_000 {
            let bits = rng.u64(..) >> rng.u32(0..64) & !0xff | rng.u64(0..6);
            assert!(ChunkEntry::from_bits(bits).is_none_or(|entry| entry.to_bits() == bits), "{bits:#x}");
        }
        for entry in [ChunkEntry::Unused, ChunkEntry::Free { class: A }, ChunkEntry::Redo] {
            assert_eq!(ChunkEntry::from_bits(entry.to_bits()), Some(entry));
        }
    }

    #[test]
    fn a_chunk_given_back_is_issued_again_for_its_class_only() {
        let (memory, geometry, mut table) = table();
        let first = table.alloc(&memory, &geometry, ME, A).unwrap();
        table.free(&memory, &geometry, ME, first).unwrap();
        let other = table.alloc(&memory, &geometry, ME, B).unwrap();
        assert_ne!(other, first);
        assert_eq!(table.alloc(&memory, &geometry, ME, A), Ok(first));
    }

    #[test]
    fn a_free_chunk_of_another_class_does_not_help_when_memory_is_full() {
        let (memory, geometry, mut table) = table();
        let mut offsets = Vec::new();
        while let Ok(offset) = table.alloc(&memory, &geometry, ME, A) {
            offsets.push(offset);
        }
        assert_eq!(offsets.len(), geometry.chunks as usize);
        table.free(&memory, &geometry, ME, offsets[2]).unwrap();
        assert_eq!(table.alloc(&memory, &geometry, ME, B), Err(Refusal::OutOfMemory));
        assert_eq!(table.alloc_redo(&memory, &geometry), Err(Refusal::OutOfMemory));
        assert_eq!(table.alloc(&memory, &geometry, ME, A), Ok(offsets[2]));
    }

    #[test]
    fn only_the_owner_frees_and_only_once_and_only_whole_chunks() {
        let (memory, geometry, mut table) = table();
        let offset = table.alloc(&memory, &geometry, ME, A).unwrap();
        let redo = table.alloc_redo(&memory, &geometry).unwrap();
        let before = table.clone();
        for (client, offset) in [
            (ClientId(4), offset),
            (ME, offset + 64),
            (ME, offset - 4096),
            (ME, 0),
            (ME, u64::MAX),
            (ME, geometry.chunk_offset(redo)),
        ] {
            let refused = table.free(&memory, &geometry, client, offset);
            assert!(matches!(refused, Err(Refusal::BadRequest { .. })), "{client} {offset}");
        }
        assert_eq!(table, before);
        table.free(&memory, &geometry, ME, offset).unwrap();
        assert!(table.free(&memory, &geometry, ME, offset).is_err());
    }

    #[test]
    fn a_disowned_chunk_stays_in_use_and_is_nobody_s_to_free() {
        let (memory, geometry, mut table) = table();
        let offset = table.alloc(&memory, &geometry, ME, A).unwrap();
        table.disown(&memory, &geometry, ME);
        assert_eq!(table.get(0), Some(ChunkEntry::Issued { class: A, owner: ClientId::NOBODY }));
        assert!(table.free(&memory, &geometry, ME, offset).is_err());
        assert_ne!(table.alloc(&memory, &geometry, ME, A), Ok(offset));
        assert_eq!(ChunkTable::load(&memory, &geometry), Ok(table));
    }

    #[test]
    fn a_chunk_passed_on_is_its_heir_s_and_others_keep_theirs() {
        let (memory, geometry, mut table) = table();
        let (mine, other) = (ClientId(4), ClientId(5));
        let offset = table.alloc(&memory, &geometry, ME, A).unwrap();
        table.alloc(&memory, &geometry, other, A).unwrap();
        table.pass_on(&memory, &geometry, ME, mine);
        assert_eq!(table.get(0), Some(ChunkEntry::Issued { class: A, owner: mine }));
        assert_eq!(table.get(1), Some(ChunkEntry::Issued { class: A, owner: other }));
        assert_eq!(ChunkTable::load(&memory, &geometry), Ok(table.clone()));
        assert!(table.free(&memory, &geometry, ME, offset).is_err());
        assert_eq!(table.free(&memory, &geometry, mine, offset), Ok(()));
    }

    #[test]
    fn impossible_node_sizes_are_refused() {
        let (memory, geometry, mut table) = table();
        for node_bytes in [0, 64, 192, 255, 257, 1000, 4096 + 64, 65536, 65536 + 64, u32::MAX] {
            let class = ChunkClass { node_bytes, format: 1 };
            let refused = table.alloc(&memory, &geometry, ME, class);
            assert!(matches!(refused, Err(Refusal::BadRequest { .. })), "{node_bytes}");
        }
        for node_bytes in [256, 320, 4096] {
            assert!(table.alloc(&memory, &geometry, ME, ChunkClass { node_bytes, format: 1 }).is_ok());
        }
    }

    #[test]
    fn a_damaged_table_is_refused() {
        let (memory, geometry, mut table) = table();
        table.alloc(&memory, &geometry, ME, A).unwrap();
        let good = ChunkEntry::Issued { class: A, owner: ME }.to_bits();
        let class = ChunkClass { node_bytes: 100, format: 1 };
        for (index, bits) in [
            (0, 9),
            (0, 3 | 1 << 40),
            (0, 1 << 8),
            (0, ChunkEntry::Issued { class, owner: ME }.to_bits()),
            (0, ChunkEntry::Issued { class: A, owner: ClientId(17) }.to_bits()),
            (2, good),
        ] {
            let copy = memory.clone();
            copy.store_u64(Space::Host, geometry.chunk_entry(index), bits);
            let refused = ChunkTable::load(&copy, &geometry);
            assert!(matches!(refused, Err(OpenError::Corrupt { table: "chunk table", .. })), "{bits:#x}");
        }
    }
}
