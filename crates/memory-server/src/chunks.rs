//! The chunk table: an 8-byte entry per chunk records the chunk's use and class.
//!
//! Allocation has two stages (paper §4.2.4): a client asks for some memory and cuts it into nodes by itself.
//! A chunk keeps its class permanently, because a stale pointer may still lead a reader into it. Clients own
//! parts of chunks: [`spans`](crate::spans). The unused chunks are always the last ones: the server takes
//! chunks in order and none returns.
//!
//! An entry is one word, so every change is one store.

use crate::bytes::load_host;
use crate::server::OpenError;
use sherman_fabric::control::ChunkClass;
use sherman_fabric::{Memory, Refusal, Space};
use sherman_layout::ChunkEntry;
use sherman_layout::bytes::get_u64;
use sherman_layout::geometry::{CHUNK_ENTRY_BYTES, Geometry};

/// The table and the data derived from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChunkTable {
    entries: Vec<ChunkEntry>,
    first_unused: u32,
}

impl ChunkTable {
    /// Loads the table from memory.
    pub(crate) fn load(memory: &dyn Memory, geometry: &Geometry) -> Result<Self, OpenError> {
        let bytes = load_host(memory, geometry.chunk_table_offset, geometry.chunk_table_bytes());
        let mut table = Self { entries: Vec::new(), first_unused: 0 };
        for index in 0..geometry.chunks {
            let corrupt = |what| OpenError::Corrupt { table: "chunk table", entry: u64::from(index), what };
            let bits = get_u64(&bytes, index as usize * CHUNK_ENTRY_BYTES as usize);
            let entry = ChunkEntry::from_bits(bits).ok_or(corrupt("is not a valid chunk entry"))?;
            if let ChunkEntry::Nodes { class } = entry
                && !geometry.allows_class(class)
            {
                return Err(corrupt("has an impossible node size"));
            }
            match entry {
                ChunkEntry::Unused => {}
                _ if table.first_unused != index => {
                    return Err(corrupt("is in use, but an earlier chunk was never used"));
                }
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

    /// The chunks of nodes, in order, and the class of each.
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

    /// Takes an unused chunk into use.
    pub(crate) fn take(
        &mut self,
        memory: &dyn Memory,
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
    use sherman_layout::testing::{VecMemory, small_options};

    const A: ChunkClass = ChunkClass { node_bytes: 1024, format: 1 };

    fn table() -> (VecMemory, Geometry, ChunkTable) {
        let memory = VecMemory::new(64 << 10, 0);
        let geometry = small_options().plan(64 << 10, 0).unwrap();
        let table = ChunkTable::load(&memory, &geometry).unwrap();
        (memory, geometry, table)
    }

    #[test]
    fn chunks_are_taken_in_order_until_none_is_left() {
        let (memory, geometry, mut table) = table();
        for index in 0..geometry.chunks {
            let entry = if index % 2 == 0 { ChunkEntry::Nodes { class: A } } else { ChunkEntry::Redo };
            assert_eq!(table.take(&memory, &geometry, entry), Ok(index));
            assert_eq!(
                (table.used(), table.unused()),
                (u64::from(index) + 1, u64::from(geometry.chunks - index) - 1)
            );
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
