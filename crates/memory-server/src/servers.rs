//! The server table of the control state: two words per memory server. They say which memory belongs to the
//! cluster and whether the cluster has declared the server lost.
//!
//! A memory has a random identity, drawn when it is formatted. The control state learns the identity of every
//! other server's memory from the first client that joins. From then on it admits only clients that see the
//! same memories. So a server that was restarted empty, or a server of another cluster, is noticed before
//! anything changes.
//!
//! Each change is one word: an identity is stored once, and a server that is declared lost stays lost.

use crate::bytes::load_host;
use crate::server::OpenError;
use sherman_fabric::{Memory, ServerInfo, Space};
use sherman_layout::ControlGeometry as Geometry;
use sherman_layout::bytes::{WORD, get_u64};
use sherman_layout::geometry::SERVER_ENTRY_BYTES;

const PRESENT: u64 = 0;
const LOST: u64 = 1;

/// What the table says about one server.
pub type ServerEntry = ServerInfo;

/// The table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerTable {
    /// By number.
    entries: Vec<ServerEntry>,
}

impl ServerTable {
    /// Writes the table of a new cluster, with volume 0's memory as the first entry. The rest of the table is
    /// zero.
    pub(crate) fn format(memory: &dyn Memory, geometry: &Geometry, own: u64) {
        memory.store_u64(Space::Host, geometry.server_entry(0), own);
    }

    /// Loads the table from memory.
    pub(crate) fn load(memory: &dyn Memory, geometry: &Geometry, own: u64) -> Result<Self, OpenError> {
        let bytes = load_host(memory, geometry.server_offset(), geometry.server_table_bytes());
        let mut entries: Vec<ServerEntry> = Vec::new();
        for (words, server) in bytes.chunks_exact(SERVER_ENTRY_BYTES as usize).zip(0u64..) {
            let corrupt = |what| OpenError::Corrupt { table: "server table", entry: server, what };
            let lost = match get_u64(words, WORD as usize) {
                PRESENT => false,
                LOST => true,
                _ => return Err(corrupt("has an unknown state")),
            };
            let entry = ServerEntry { memory: get_u64(words, 0), lost };
            if server == 0 && entry != (ServerEntry { memory: own, lost: false }) {
                return Err(corrupt("does not name the cluster"));
            }
            if entry.memory != 0 && entries.iter().any(|other| other.memory == entry.memory) {
                return Err(corrupt("names the memory of another server"));
            }
            entries.push(entry);
        }
        Ok(Self { entries })
    }

    /// The entries, by number.
    pub(crate) fn entries(&self) -> &[ServerEntry] {
        &self.entries
    }

    /// Whether `server` is declared lost.
    pub(crate) fn is_lost(&self, server: u16) -> bool {
        self.entries.get(usize::from(server)).is_some_and(|entry| entry.lost)
    }

    /// Whether some server has this memory.
    pub(crate) fn has(&self, identity: u64) -> bool {
        self.entries.iter().any(|entry| entry.memory == identity)
    }

    /// Records the memory of `server`, which the table does not have yet.
    pub(crate) fn enlist(&mut self, memory: &dyn Memory, geometry: &Geometry, server: u16, identity: u64) {
        if let Some(entry) = self.entries.get_mut(usize::from(server)) {
            memory.store_u64(Space::Host, geometry.server_entry(server), identity);
            entry.memory = identity;
        }
    }

    /// Marks `server` lost.
    pub(crate) fn declare_lost(&mut self, memory: &dyn Memory, geometry: &Geometry, server: u16) {
        if let Some(entry) = self.entries.get_mut(usize::from(server)) {
            memory.store_u64(Space::Host, geometry.server_entry(server) + WORD, LOST);
            entry.lost = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sherman_layout::FormatOptions;
    use sherman_layout::testing::{MEMORY_ID, VecMemory, small_options};

    fn table() -> (VecMemory, Geometry, ServerTable) {
        let memory = VecMemory::new(64 << 10, 0);
        let geometry =
            Geometry::plan(&FormatOptions { servers: 3, ..small_options() }.plan(64 << 10, 0).unwrap());
        ServerTable::format(&memory, &geometry, MEMORY_ID);
        let table = ServerTable::load(&memory, &geometry, MEMORY_ID).unwrap();
        (memory, geometry, table)
    }

    #[test]
    fn an_entry_is_the_words_that_the_layout_draws() {
        let (memory, geometry, mut table) = table();
        table.enlist(&memory, &geometry, 2, 0x1122);
        table.declare_lost(&memory, &geometry, 2);
        let words = |at: u64| memory.load_u64(Space::Host, geometry.server_offset() + at);
        assert_eq!([0, 8, 16, 24, 32, 40].map(words), [MEMORY_ID, 0, 0, 0, 0x1122, 1]);
        assert_eq!(table.entries()[2], ServerEntry { memory: 0x1122, lost: true });
        assert_eq!(ServerTable::load(&memory, &geometry, MEMORY_ID), Ok(table));
    }

    #[test]
    fn a_damaged_table_is_refused() {
        let (memory, geometry, _) = table();
        for (at, word) in [(0, 0), (0, 7), (8, 1), (16, MEMORY_ID), (24, 2), (40, u64::MAX)] {
            let copy = memory.clone();
            copy.store_u64(Space::Host, geometry.server_offset() + at, word);
            let refused = ServerTable::load(&copy, &geometry, MEMORY_ID);
            assert!(matches!(refused, Err(OpenError::Corrupt { table: "server table", .. })), "{at} {word}");
        }
    }
}
