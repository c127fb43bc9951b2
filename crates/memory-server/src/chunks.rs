//! The chunk table: an 8-byte entry per chunk says what it is cut into.
//!
//! Allocation is two-staged (paper §4.2.4): a client asks for some memory and cuts it into nodes by itself. A
//! chunk keeps its class for ever once it has one, because a stale pointer may still lead a reader into it. What clients own
//! are parts of chunks: [`spans`](crate::spans). Chunks never used are always the last ones: they are taken in order and none returns.
//!
//! An entry is one word, so every change is one store.

use crate::bytes::{get_u64, load_host};
use crate::geometry::{CHUNK_ENTRY_BYTES, Geometry};
use crate::server::OpenError;
use sherman_fabric::control::ChunkClass;
use sherman_fabric::{Memory, Refusal, Space};

const KIND_UNUSED: u8 = 0;
const KIND_NODES: u8 = 2;
const KIND_REDO: u8 = 3;

/// What the table says about one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkEntry {
    /// It was never given out.
    Unused,
    /// It has places for nodes.
    Nodes {
        /// What it is cut into.
        class: ChunkClass,
    },
    /// It is cut into redo areas, by this server.
    Redo,
}

impl ChunkEntry {
    /// The entry's word: byte 0 kind, byte 1 format, bytes 4–7 node bytes.
    pub const fn to_bits(self) -> u64 {
        match self {
            Self::Unused => KIND_UNUSED as u64,
            Self::Nodes { class } => KIND_NODES as u64 | (class.format as u64) << 8 | (class.node_bytes as u64) << 32,
            Self::Redo => KIND_REDO as u64,
        }
    }

    /// The entry stored as `bits`, if there is one.
    pub const fn from_bits(bits: u64) -> Option<Self> {
        let class = ChunkClass { node_bytes: (bits >> 32) as u32, format: (bits >> 8) as u8 };
        match bits as u8 {
            KIND_UNUSED if bits == Self::Unused.to_bits() => Some(Self::Unused),
            KIND_NODES if bits & 0xffff_0000 == 0 => Some(Self::Nodes { class }),
            KIND_REDO if bits == Self::Redo.to_bits() => Some(Self::Redo),
            _ => None,
        }
    }
}

/// The table and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChunkTable {
    entries: Vec<ChunkEntry>,
    first_unused: u32,
}

impl ChunkTable {
    /// The table in memory.
    pub(crate) fn load<M: Memory + ?Sized>(memory: &M, geometry: &Geometry) -> Result<Self, OpenError> {
        let bytes = load_host(memory, geometry.chunk_table_offset, geometry.chunk_table_bytes());
        let mut table = Self { entries: Vec::new(), first_unused: 0 };
        for index in 0..geometry.chunks {
            let corrupt = |what| OpenError::Corrupt { table: "chunk table", entry: u64::from(index), what };
            let bits = get_u64(&bytes, index as usize * CHUNK_ENTRY_BYTES as usize);
            let entry = ChunkEntry::from_bits(bits).ok_or(corrupt("is no chunk entry"))?;
            if let ChunkEntry::Nodes { class } = entry
                && !geometry.allows_node_bytes(class.node_bytes)
            {
                return Err(corrupt("has an impossible node size"));
            }
            match entry {
                ChunkEntry::Unused => {}
                _ if table.first_unused != index => return Err(corrupt("is used behind a chunk never used")),
                _ => table.first_unused = index + 1,
            }
            table.entries.push(entry);
        }
        Ok(table)
    }

    /// What the table says about chunk `index`.
    pub(crate) fn get(&self, index: u32) -> Option<ChunkEntry> {
        self.entries.get(index as usize).copied()
    }

    /// How many chunks are in use, redo chunks included.
    pub(crate) fn used(&self) -> u64 {
        u64::from(self.first_unused)
    }

    /// How many chunks were never used.
    pub(crate) fn unused(&self) -> u64 {
        self.entries.len() as u64 - self.used()
    }

    /// The chunks of nodes, in order, and what each is cut into.
    pub(crate) fn node_chunks(&self) -> impl Iterator<Item = (u32, ChunkClass)> {
        (0..self.first_unused).filter_map(|index| match self.entries[index as usize] {
            ChunkEntry::Nodes { class } => Some((index, class)),
            ChunkEntry::Unused | ChunkEntry::Redo => None,
        })
    }

    /// The redo chunks, in order.
    pub(crate) fn redo_chunks(&self) -> impl Iterator<Item = u32> {
        (0..self.first_unused).filter(|&index| self.entries[index as usize] == ChunkEntry::Redo)
    }

    /// Begins to use a chunk never used.
    pub(crate) fn take<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        geometry: &Geometry,
        entry: ChunkEntry,
    ) -> Result<u32, Refusal> {
        let index = self.first_unused;
        if index as usize == self.entries.len() {
            return Err(Refusal::OutOfMemory);
        }
        memory.store_u64(Space::Host, geometry.chunk_entry(index), entry.to_bits());
        self.entries[index as usize] = entry;
        self.first_unused += 1;
        Ok(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{VecMemory, small_options};

    const A: ChunkClass = ChunkClass { node_bytes: 1024, format: 1 };

    fn table() -> (VecMemory, Geometry, ChunkTable) {
        let memory = VecMemory::new(64 << 10, 0);
        let geometry = small_options().plan(64 << 10, 0).unwrap();
        let table = ChunkTable::load(&memory, &geometry).unwrap();
        (memory, geometry, table)
    }

    #[test]
    fn an_entry_is_the_word_that_the_layout_draws() {
        let class = ChunkClass { node_bytes: 0x0001_0000, format: 0xab };
        assert_eq!(ChunkEntry::Nodes { class }.to_bits().to_le_bytes(), [2, 0xab, 0, 0, 0, 0, 1, 0]);
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
        for entry in [ChunkEntry::Unused, ChunkEntry::Nodes { class: A }, ChunkEntry::Redo] {
            assert_eq!(ChunkEntry::from_bits(entry.to_bits()), Some(entry));
        }
    }

    #[test]
    fn chunks_are_taken_in_order_until_none_is_left() {
        let (memory, geometry, mut table) = table();
        for index in 0..geometry.chunks {
            let entry = if index % 2 == 0 { ChunkEntry::Nodes { class: A } } else { ChunkEntry::Redo };
            assert_eq!(table.take(&memory, &geometry, entry), Ok(index));
            assert_eq!((table.used(), table.unused()), (u64::from(index) + 1, u64::from(geometry.chunks - index) - 1));
            assert_eq!(ChunkTable::load(&memory, &geometry).as_ref(), Ok(&table));
        }
        assert_eq!(table.take(&memory, &geometry, ChunkEntry::Redo), Err(Refusal::OutOfMemory));
        assert!(table.node_chunks().all(|(index, class)| index % 2 == 0 && class == A));
        assert!(table.redo_chunks().all(|index| index % 2 == 1));
    }

    #[test]
    fn a_damaged_table_is_refused() {
        let (memory, geometry, mut table) = table();
        table.take(&memory, &geometry, ChunkEntry::Nodes { class: A }).unwrap();
        let class = ChunkClass { node_bytes: 100, format: 1 };
        for (index, bits) in [
            (0, 9),
            (0, 1),
            (0, 3 | 1 << 40),
            (0, 1 << 8),
            (0, ChunkEntry::Nodes { class }.to_bits()),
            (0, ChunkEntry::Nodes { class: A }.to_bits() | 1 << 16),
            (2, ChunkEntry::Nodes { class: A }.to_bits()),
        ] {
            let copy = memory.clone();
            copy.store_u64(Space::Host, geometry.chunk_entry(index), bits);
            let refused = ChunkTable::load(&copy, &geometry);
            assert!(matches!(refused, Err(OpenError::Corrupt { table: "chunk table", .. })), "{bits:#x}");
        }
    }
}
