//! The client table: on every server, one word per client id says whether the client is fenced there and where its redo
//! area is.
//!
//! Both are needed when a client has died (`docs/INVARIANTS.md`): whoever recovers it fences it on every server, then
//! READs this word to find its records. Redo areas are cut from chunks that the server keeps for the purpose; which
//! areas are free follows from the words, so there is no second table to keep in step. An area is zeroed before the
//! word that hands it out is stored: a client never finds another's records in it.
//!
//! A fence is lifted by the last step of recovery, which retires the id: redo area and fence go by one word. From then on
//! this table cannot tell the id's old holder from its next one; the backend goes on refusing the old one by itself (F6).

use crate::bytes::{get_u64, load_host, zero};
use crate::chunks::{ChunkEntry, ChunkTable};
use crate::geometry::{CLIENT_ENTRY_BYTES, Geometry};
use crate::server::OpenError;
use sherman_fabric::{ClientId, GlobalAddress, Memory, Refusal, Space};
use std::collections::BTreeSet;

const AREA_MASK: u64 = GlobalAddress::OFFSET_LIMIT - 1;
const FENCED: u64 = 1 << 63;

/// A client's word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientWord {
    /// Where its redo area begins, if it has one.
    pub redo_area: Option<u64>,
    /// Whether nothing of it is executed here any more (F6).
    pub fenced: bool,
}

impl ClientWord {
    /// The word: bits 0–47 the area's offset or 0, bit 63 fenced.
    pub const fn to_bits(self) -> u64 {
        let area = match self.redo_area {
            Some(offset) => offset & AREA_MASK,
            None => 0,
        };
        area | if self.fenced { FENCED } else { 0 }
    }

    /// What is stored as `bits`, if they make sense.
    pub const fn from_bits(bits: u64) -> Option<Self> {
        if bits & !(AREA_MASK | FENCED) != 0 {
            return None;
        }
        let area = bits & AREA_MASK;
        Some(Self { redo_area: if area == 0 { None } else { Some(area) }, fenced: bits & FENCED != 0 })
    }
}

/// The table and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientTable {
    /// By id; the first is nobody's.
    words: Vec<ClientWord>,
    free_areas: BTreeSet<u64>,
}

/// How many redo areas nodes leave for newcomers that change entries, besides those for newcomers that recover others.
const NEWCOMERS: u64 = 2;

/// How many redo areas are kept for clients that recover others: half a chunk of them.
const fn reserve(geometry: &Geometry) -> u64 {
    geometry.redo_areas_per_chunk().div_ceil(2)
}

/// The areas that chunk `index` is cut into.
fn areas_of(geometry: &Geometry, index: u32) -> impl Iterator<Item = u64> {
    let (first, bytes) = (geometry.chunk_offset(index), geometry.redo_area_bytes);
    (0..geometry.redo_areas_per_chunk()).map(move |area| first + area * bytes)
}

impl ClientTable {
    /// The table in memory.
    pub(crate) fn load<M: Memory + ?Sized>(
        memory: &M,
        geometry: &Geometry,
        chunks: &ChunkTable,
    ) -> Result<Self, OpenError> {
        let bytes = load_host(memory, geometry.client_offset, geometry.client_table_bytes());
        let mut free_areas: BTreeSet<u64> = chunks.redo_chunks().flat_map(|index| areas_of(geometry, index)).collect();
        let mut words = Vec::new();
        for id in 0..=geometry.member_capacity {
            let corrupt = |what| OpenError::Corrupt { table: "client table", entry: u64::from(id), what };
            let bits = get_u64(&bytes, id as usize * CLIENT_ENTRY_BYTES as usize);
            let word = ClientWord::from_bits(bits).ok_or(corrupt("is no client word"))?;
            if id == 0 && word != ClientWord::default() {
                return Err(corrupt("says something about nobody"));
            }
            if let Some(area) = word.redo_area
                && !free_areas.remove(&area)
            {
                return Err(corrupt("names a redo area that does not exist or is another client's"));
            }
            words.push(word);
        }
        Ok(Self { words, free_areas })
    }

    /// The word of `client`; empty for an id that has none.
    pub(crate) fn get(&self, client: ClientId) -> ClientWord {
        self.words.get(usize::from(client.0)).copied().unwrap_or_default()
    }

    /// The clients that have a redo area here and are not fenced.
    pub(crate) fn active(&self) -> impl Iterator<Item = ClientId> {
        let clients = self.words.iter().zip(0u16..=u16::MAX);
        clients.filter(|(word, _)| word.redo_area.is_some() && !word.fenced).map(|(_, id)| ClientId(id))
    }

    fn set<M: Memory + ?Sized>(&mut self, memory: &M, geometry: &Geometry, client: ClientId, word: ClientWord) {
        memory.store_u64(Space::Host, geometry.client_entry(client), word.to_bits());
        self.words[usize::from(client.0)] = word;
    }

    /// Marks `client` fenced.
    pub(crate) fn fence<M: Memory + ?Sized>(&mut self, memory: &M, geometry: &Geometry, client: ClientId) {
        let word = ClientWord { fenced: true, ..self.get(client) };
        self.set(memory, geometry, client, word);
    }

    /// Where `client`'s redo area begins; made if it has none. The last few are for those that recover others.
    pub(crate) fn redo_area<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        geometry: &Geometry,
        chunks: &mut ChunkTable,
        client: ClientId,
        recovers: bool,
    ) -> Result<u64, Refusal> {
        let word = self.get(client);
        if let Some(area) = word.redo_area {
            return Ok(area);
        }
        let left = self.free_areas() + chunks.unused() * geometry.redo_areas_per_chunk();
        if !recovers && left <= reserve(geometry) {
            return Err(Refusal::OutOfMemory);
        }
        if self.free_areas.is_empty() {
            // Always a chunk never used, since classes last for ever.
            let index = chunks.take(memory, geometry, ChunkEntry::Redo)?;
            self.free_areas.extend(areas_of(geometry, index));
        }
        let area = self.free_areas.pop_first().ok_or(Refusal::OutOfMemory)?;
        zero(memory, Space::Host, area, geometry.redo_area_bytes);
        self.set(memory, geometry, client, ClientWord { redo_area: Some(area), ..word });
        Ok(area)
    }

    /// Forgets `client`: its redo area, if it has one, is free, and its fence lifted.
    pub(crate) fn retire<M: Memory + ?Sized>(&mut self, memory: &M, geometry: &Geometry, client: ClientId) {
        let area = self.get(client).redo_area;
        self.set(memory, geometry, client, ClientWord::default());
        self.free_areas.extend(area);
    }

    /// How many redo areas need no chunk.
    fn free_areas(&self) -> u64 {
        self.free_areas.len() as u64
    }

    /// How many of the chunks never used nodes are to leave for redo areas: in a full cluster newcomers can still recover others, and remove entries.
    pub(crate) fn spare_chunks(&self, geometry: &Geometry) -> u64 {
        let wanted = reserve(geometry) + NEWCOMERS;
        wanted.saturating_sub(self.free_areas()).div_ceil(geometry.redo_areas_per_chunk())
    }

    /// Takes back `client`'s redo area, if it has one.
    pub(crate) fn release<M: Memory + ?Sized>(&mut self, memory: &M, geometry: &Geometry, client: ClientId) {
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
    use crate::testing::{VecMemory, small_options};

    fn tables() -> (VecMemory, Geometry, ChunkTable, ClientTable) {
        let memory = VecMemory::new(64 << 10, 0);
        let geometry = small_options().plan(64 << 10, 0).unwrap();
        let chunks = ChunkTable::load(&memory, &geometry).unwrap();
        let clients = ClientTable::load(&memory, &geometry, &chunks).unwrap();
        (memory, geometry, chunks, clients)
    }

    #[test]
    fn a_word_is_the_one_that_the_layout_draws() {
        let word = ClientWord { redo_area: Some(0x1234_5678_9a00), fenced: true };
        assert_eq!(word.to_bits(), 0x8000_1234_5678_9a00);
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..100_000 {
            let bits = rng.u64(..) >> rng.u32(0..64);
            assert_eq!(
                ClientWord::from_bits(bits).map(ClientWord::to_bits),
                (bits >> 48 & 0x7fff == 0).then_some(bits)
            );
        }
    }

    #[test]
    fn areas_are_distinct_zeroed_and_several_to_a_chunk() {
        let (memory, geometry, mut chunks, mut clients) = tables();
        for index in 0..geometry.chunks {
            memory.store(Space::Host, geometry.chunk_offset(index), &[0xee; 4096]);
        }
        let mut areas = BTreeSet::new();
        for id in 1..=16 {
            let area = clients.redo_area(&memory, &geometry, &mut chunks, ClientId(id), false).unwrap();
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
        let area = clients.redo_area(&memory, &geometry, &mut chunks, ClientId(5), false).unwrap();
        memory.store_u64(Space::Host, area, 77);
        assert_eq!(clients.redo_area(&memory, &geometry, &mut chunks, ClientId(5), false), Ok(area));
        assert_eq!(memory.load_u64(Space::Host, area), 77);
    }

    #[test]
    fn a_released_area_is_reused_without_its_records() {
        let (memory, geometry, mut chunks, mut clients) = tables();
        let area = clients.redo_area(&memory, &geometry, &mut chunks, ClientId(5), false).unwrap();
        memory.store_u64(Space::Host, area + 1016, 77);
        clients.release(&memory, &geometry, ClientId(5));
        assert_eq!(clients.get(ClientId(5)), ClientWord::default());
        assert_eq!(clients.redo_area(&memory, &geometry, &mut chunks, ClientId(6), false), Ok(area));
        assert_eq!(memory.load_u64(Space::Host, area + 1016), 0);
    }

    #[test]
    fn a_fence_keeps_the_redo_area_where_recovery_finds_it() {
        let (memory, geometry, mut chunks, mut clients) = tables();
        let area = clients.redo_area(&memory, &geometry, &mut chunks, ClientId(5), false).unwrap();
        clients.fence(&memory, &geometry, ClientId(5));
        let bits = memory.load_u64(Space::Host, geometry.client_entry(ClientId(5)));
        assert_eq!(ClientWord::from_bits(bits), Some(ClientWord { redo_area: Some(area), fenced: true }));
        assert_eq!(clients.active().count(), 0);
    }

    #[test]
    fn a_retired_client_s_word_is_as_if_it_had_never_been() {
        let (memory, geometry, mut chunks, mut clients) = tables();
        let (with, without) = (ClientId(5), ClientId(6));
        let area = clients.redo_area(&memory, &geometry, &mut chunks, with, false).unwrap();
        for client in [with, without] {
            clients.fence(&memory, &geometry, client);
            clients.retire(&memory, &geometry, client);
            assert_eq!(clients.get(client), ClientWord::default());
        }
        assert_eq!(ClientTable::load(&memory, &geometry, &chunks), Ok(clients.clone()));
        assert_eq!(clients.redo_area(&memory, &geometry, &mut chunks, without, false), Ok(area));
    }

    #[test]
    fn a_damaged_table_is_refused() {
        let (memory, geometry, mut chunks, mut clients) = tables();
        let area = clients.redo_area(&memory, &geometry, &mut chunks, ClientId(1), false).unwrap();
        for (entry, bits) in [(2, area), (2, area + 64), (2, 64), (2, 1 << 50), (0, FENCED)] {
            let copy = memory.clone();
            copy.store_u64(Space::Host, geometry.client_offset + entry * 8, bits);
            let refused = ClientTable::load(&copy, &geometry, &chunks);
            assert!(matches!(refused, Err(OpenError::Corrupt { table: "client table", .. })), "{bits:#x}");
        }
    }
}
