//! The client table: on every server, one word per client id. It says whether the client is fenced there and
//! where its redo area is.
//!
//! Recovery needs both (`docs/INVARIANTS.md`): the recoverer fences a dead client on every server, then READs
//! this word to find its records. The server cuts redo areas from chunks that it keeps for this purpose. The
//! words determine which areas are free, so there is no second table to keep consistent. The server zeroes an
//! area before it stores the word that assigns it: a client never finds another client's records in it.
//!
//! The last step of recovery lifts the fence and retires the id: one store removes redo area and fence. From
//! then on this table cannot tell the id's old holder from its next one. The backend itself continues to
//! refuse the old holder (F6).

use crate::bytes::{load_host, zero};
use crate::chunks::ChunkTable;
use crate::server::OpenError;
use sherman_fabric::{ComputeId, Memory, Refusal, Space};
use sherman_layout::bytes::get_u64;
use sherman_layout::geometry::{CLIENT_ENTRY_BYTES, Geometry};
use sherman_layout::{ChunkEntry, ClientWord};
use std::collections::BTreeSet;

/// The table and the data derived from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientTable {
    /// By id; the first is unused.
    words: Vec<ClientWord>,
    free_areas: BTreeSet<u64>,
}

/// How many redo areas node allocation leaves for new clients: half a chunk of them. In a full cluster, new
/// clients can then still remove entries.
const fn reserve(geometry: &Geometry) -> u64 {
    geometry.redo_areas_per_chunk().div_ceil(2)
}

/// The areas that chunk `index` is cut into.
fn areas_of(geometry: &Geometry, index: u32) -> impl Iterator<Item = u64> {
    let (first, bytes) = (geometry.chunk_offset(index), geometry.redo_area_bytes);
    (0..geometry.redo_areas_per_chunk()).map(move |area| first + area * bytes)
}

impl ClientTable {
    /// Loads the table from memory.
    pub(crate) fn load(
        memory: &dyn Memory,
        geometry: &Geometry,
        chunks: &ChunkTable,
    ) -> Result<Self, OpenError> {
        let bytes = load_host(memory, geometry.client_offset, geometry.client_table_bytes());
        let mut free_areas: BTreeSet<u64> =
            chunks.redo_chunks().flat_map(|index| areas_of(geometry, index)).collect();
        let mut words = Vec::new();
        for id in 0..=geometry.member_capacity {
            let corrupt = |what| OpenError::Corrupt { table: "client table", entry: u64::from(id), what };
            let bits = get_u64(&bytes, id as usize * CLIENT_ENTRY_BYTES as usize);
            let word = ClientWord::from_bits(bits).ok_or(corrupt("is not a valid client word"))?;
            if id == 0 && word != ClientWord::default() {
                return Err(corrupt("is in use, but no client has this id"));
            }
            if let Some(area) = word.redo_area
                && !free_areas.remove(&area)
            {
                return Err(corrupt("names a redo area that does not exist or belongs to another client"));
            }
            words.push(word);
        }
        Ok(Self { words, free_areas })
    }

    /// The word of `client`; empty for an id that has none.
    pub(crate) fn get(&self, client: ComputeId) -> ClientWord {
        self.words.get(usize::from(client.0)).copied().unwrap_or_default()
    }

    /// The clients that have a redo area here and are not fenced.
    pub(crate) fn active(&self) -> impl Iterator<Item = ComputeId> {
        let clients = self.words.iter().zip(0u16..=u16::MAX);
        clients.filter(|(word, _)| word.redo_area.is_some() && !word.fenced).map(|(_, id)| ComputeId(id))
    }

    fn set(&mut self, memory: &dyn Memory, geometry: &Geometry, client: ComputeId, word: ClientWord) {
        memory.store_u64(Space::Host, geometry.client_entry(client), word.to_bits());
        self.words[usize::from(client.0)] = word;
    }

    /// Marks `client` fenced.
    pub(crate) fn fence(&mut self, memory: &dyn Memory, geometry: &Geometry, client: ComputeId) {
        let word = ClientWord { fenced: true, ..self.get(client) };
        self.set(memory, geometry, client, word);
    }

    /// Where `client`'s redo area begins. Assigns one if it has none.
    pub(crate) fn redo_area(
        &mut self,
        memory: &dyn Memory,
        geometry: &Geometry,
        chunks: &mut ChunkTable,
        client: ComputeId,
    ) -> Result<u64, Refusal> {
        let word = self.get(client);
        if let Some(area) = word.redo_area {
            return Ok(area);
        }
        if self.free_areas.is_empty() {
            // Always an unused chunk, since classes are permanent.
            let index = chunks.take(memory, geometry, ChunkEntry::Redo)?;
            self.free_areas.extend(areas_of(geometry, index));
        }
        let area = self.free_areas.pop_first().ok_or(Refusal::OutOfMemory)?;
        zero(memory, Space::Host, area, geometry.redo_area_bytes);
        self.set(memory, geometry, client, ClientWord { redo_area: Some(area), ..word });
        Ok(area)
    }

    /// Forgets `client`: frees its redo area, if it has one, and lifts its fence.
    pub(crate) fn retire(&mut self, memory: &dyn Memory, geometry: &Geometry, client: ComputeId) {
        let area = self.get(client).redo_area;
        self.set(memory, geometry, client, ClientWord::default());
        self.free_areas.extend(area);
    }

    /// How many redo areas are free without taking another chunk.
    fn free_areas(&self) -> u64 {
        self.free_areas.len() as u64
    }

    /// How many unused chunks node allocation must leave for redo areas.
    pub(crate) fn spare_chunks(&self, geometry: &Geometry) -> u64 {
        reserve(geometry).saturating_sub(self.free_areas()).div_ceil(geometry.redo_areas_per_chunk())
    }

    /// Takes back `client`'s redo area, if it has one.
    pub(crate) fn release(&mut self, memory: &dyn Memory, geometry: &Geometry, client: ComputeId) {
        let word = self.get(client);
        if let Some(area) = word.redo_area {
            self.set(memory, geometry, client, ClientWord { redo_area: None, ..word });
            self.free_areas.insert(area);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sherman_layout::testing::{VecMemory, small_options};

    fn tables() -> (VecMemory, Geometry, ChunkTable, ClientTable) {
        let memory = VecMemory::new(64 << 10, 0);
        let geometry = small_options().plan(64 << 10, 0).unwrap();
        let chunks = ChunkTable::load(&memory, &geometry).unwrap();
        let clients = ClientTable::load(&memory, &geometry, &chunks).unwrap();
        (memory, geometry, chunks, clients)
    }

    #[test]
    fn areas_are_distinct_zeroed_and_several_to_a_chunk() {
        let (memory, geometry, mut chunks, mut clients) = tables();
        for index in 0..geometry.chunks {
            memory.store(Space::Host, geometry.chunk_offset(index), &[0xee; 4096]);
        }
        let mut areas = BTreeSet::new();
        for id in 1..=16 {
            let area = clients.redo_area(&memory, &geometry, &mut chunks, ComputeId(id)).unwrap();
            assert_eq!(load_host(&memory, area, geometry.redo_area_bytes), vec![0; 1024]);
            assert!(areas.insert(area));
        }
        let sorted: Vec<_> = areas.iter().copied().collect();
        assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= geometry.redo_area_bytes));
        assert_eq!(chunks.redo_chunks().count(), 4);
        assert_eq!(ClientTable::load(&memory, &geometry, &chunks), Ok(clients));
    }

    #[test]
    fn the_same_client_gets_the_same_area_with_its_records() {
        let (memory, geometry, mut chunks, mut clients) = tables();
        let area = clients.redo_area(&memory, &geometry, &mut chunks, ComputeId(5)).unwrap();
        memory.store_u64(Space::Host, area, 77);
        assert_eq!(clients.redo_area(&memory, &geometry, &mut chunks, ComputeId(5)), Ok(area));
        assert_eq!(memory.load_u64(Space::Host, area), 77);
    }

    #[test]
    fn a_released_area_is_reused_without_its_records() {
        let (memory, geometry, mut chunks, mut clients) = tables();
        let area = clients.redo_area(&memory, &geometry, &mut chunks, ComputeId(5)).unwrap();
        memory.store_u64(Space::Host, area + 1016, 77);
        clients.release(&memory, &geometry, ComputeId(5));
        assert_eq!(clients.get(ComputeId(5)), ClientWord::default());
        assert_eq!(clients.redo_area(&memory, &geometry, &mut chunks, ComputeId(6)), Ok(area));
        assert_eq!(memory.load_u64(Space::Host, area + 1016), 0);
    }

    #[test]
    fn a_fence_keeps_the_redo_area_where_recovery_finds_it() {
        let (memory, geometry, mut chunks, mut clients) = tables();
        let area = clients.redo_area(&memory, &geometry, &mut chunks, ComputeId(5)).unwrap();
        clients.fence(&memory, &geometry, ComputeId(5));
        let bits = memory.load_u64(Space::Host, geometry.client_entry(ComputeId(5)));
        assert_eq!(ClientWord::from_bits(bits), Some(ClientWord { redo_area: Some(area), fenced: true }));
        assert_eq!(clients.active().count(), 0);
    }

    #[test]
    fn a_retired_client_s_word_is_as_if_it_had_never_been() {
        let (memory, geometry, mut chunks, mut clients) = tables();
        let (with, without) = (ComputeId(5), ComputeId(6));
        let area = clients.redo_area(&memory, &geometry, &mut chunks, with).unwrap();
        for client in [with, without] {
            clients.fence(&memory, &geometry, client);
            clients.retire(&memory, &geometry, client);
            assert_eq!(clients.get(client), ClientWord::default());
        }
        assert_eq!(ClientTable::load(&memory, &geometry, &chunks), Ok(clients.clone()));
        assert_eq!(clients.redo_area(&memory, &geometry, &mut chunks, without), Ok(area));
    }

    #[test]
    fn a_damaged_table_is_refused() {
        let (memory, geometry, mut chunks, mut clients) = tables();
        let area = clients.redo_area(&memory, &geometry, &mut chunks, ComputeId(1)).unwrap();
        for (entry, bits) in [(2, area), (2, area + 64), (2, 64), (2, 1 << 50), (0, 1 << 63)] {
            let copy = memory.clone();
            copy.store_u64(Space::Host, geometry.client_offset + entry * 8, bits);
            let refused = ClientTable::load(&copy, &geometry, &chunks);
            assert!(matches!(refused, Err(OpenError::Corrupt { table: "client table", .. })), "{bits:#x}");
        }
    }
}
