//! The stores of a primary's CPU, which the other copies of its volume must make too (T5 in
//! `docs/REPLICATION.md`).
//!
//! A copy that is no primary gets only these stores and the verbs of clients. Its own tables in front of the
//! memory are out of date. So a promoted copy opens its memory anew, and until then questions about it are
//! answered from memory.
//!
//! A copy that is being made also gets bytes of the primary's memory. Digests say which blocks differ.

use crate::memory::Region;
use sherman_fabric::control::{DIGEST_BYTES, MOST_DIGESTS};
use sherman_fabric::group::Store;
use sherman_fabric::{ComputeId, FabricError, GlobalAddress, Memory, Space};
use sherman_layout::{ChunkEntry, ClientWord, Geometry};
use sherman_memory_server::MemoryServer;
use std::cell::RefCell;
use std::ops::Range;
use twox_hash::XxHash3_64;

/// The longest store that one entry carries, so that a request that cuts a long one stays short.
const LONGEST: usize = 64 << 10;

/// Memory that also keeps what is stored.
#[derive(Debug)]
pub(crate) struct Recorder<'m> {
    memory: &'m Region,
    stores: RefCell<Vec<Store>>,
}

impl<'m> Recorder<'m> {
    pub(crate) fn new(memory: &'m Region) -> Self {
        Self { memory, stores: RefCell::default() }
    }

    /// The stores to host memory, in order.
    pub(crate) fn into_stores(self) -> Vec<Store> {
        self.stores.into_inner()
    }
}

impl Memory for Recorder<'_> {
    fn size(&self, space: Space) -> u64 {
        self.memory.size(space)
    }

    fn load(&self, space: Space, offset: u64, into: &mut [u8]) {
        self.memory.load(space, offset, into);
    }

    fn store(&self, space: Space, offset: u64, from: &[u8]) {
        self.memory.store(space, offset, from);
        debug_assert_eq!(space, Space::Host, "on-chip memory holds lanes alone, and each copy has its own");
        let mut stores = self.stores.borrow_mut();
        for (part, at) in from.chunks(LONGEST).zip((offset..).step_by(LONGEST)) {
            stores.push(if part.iter().all(|byte| *byte == 0) {
                Store::Zeros { offset: at, len: part.len() as u32 }
            } else {
                Store::Bytes { offset: at, bytes: part.to_vec() }
            });
        }
    }
}

/// Makes the stores of another copy. A store outside the memory refuses all of them.
pub(crate) fn apply(memory: &Region, stores: &[Store]) -> Result<(), FabricError> {
    for store in stores {
        match store {
            Store::Bytes { offset, bytes } => check(memory, *offset, bytes.len() as u64)?,
            Store::Zeros { offset, len } => check(memory, *offset, u64::from(*len))?,
            Store::RedoArea { offset, area, len, .. } => {
                check(memory, *offset, 8)?;
                check(memory, *area, u64::from(*len))?;
            }
        }
    }
    for store in stores {
        match store {
            Store::Bytes { offset, bytes } => memory.store(Space::Host, *offset, bytes),
            Store::Zeros { offset, len } => zero(memory, *offset, *len),
            Store::RedoArea { offset, word, area, len } => {
                if memory.load_u64(Space::Host, *offset) != *word {
                    zero(memory, *area, *len);
                    memory.store_u64(Space::Host, *offset, *word);
                }
            }
        }
    }
    Ok(())
}

fn zero(memory: &Region, offset: u64, len: u32) {
    let zeros = vec![0; (len as usize).min(LONGEST)];
    let end = offset + u64::from(len);
    for at in (offset..end).step_by(LONGEST) {
        memory.store(Space::Host, at, &zeros[..((end - at) as usize).min(LONGEST)]);
    }
}

/// The stores that give another copy the tables of a primary whose process ended: stores that it had made may
/// not have reached the others. Root words are not among them, since clients write them.
///
/// An area that was given out in such a store is zero here. There it may have records of an earlier owner,
/// which a recoverer would take for the new one's.
pub(crate) fn table_stores(memory: &Region, geometry: &Geometry) -> Vec<Store> {
    let mut stores = Vec::new();
    let mut copy = |offset: u64, len: u64| {
        let mut bytes = vec![0; len as usize];
        memory.load(Space::Host, offset, &mut bytes);
        for (part, at) in bytes.chunks(LONGEST / 2).zip((offset..).step_by(LONGEST / 2)) {
            stores.push(Store::Bytes { offset: at, bytes: part.to_vec() });
        }
    };
    copy(geometry.chunk_table_offset, geometry.chunk_table_bytes());
    copy(geometry.span_table_offset, geometry.span_table_bytes());
    for client in (1..=geometry.member_capacity as u16).map(ComputeId) {
        let offset = geometry.client_entry(client);
        let word = memory.load_u64(Space::Host, offset);
        stores.push(match ClientWord::from_bits(word).and_then(|word| word.redo_area) {
            Some(area) => Store::RedoArea { offset, word, area, len: geometry.redo_area_bytes as u32 },
            None => Store::Bytes { offset, bytes: word.to_le_bytes().to_vec() },
        });
    }
    stores
}

/// Refuses bytes outside the host memory.
fn check(memory: &Region, offset: u64, len: u64) -> Result<(), FabricError> {
    if offset.checked_add(len).is_some_and(|end| end <= memory.size(Space::Host)) {
        return Ok(());
    }
    let address = GlobalAddress::new(0, offset & (GlobalAddress::OFFSET_LIMIT - 1));
    Err(FabricError::OutOfBounds { space: Space::Host, address, len })
}

/// Stores bytes of another copy. A reader of a line sees it as it was before or after (F1).
pub(crate) fn fill(memory: &Region, offset: u64, bytes: &[u8]) -> Result<(), FabricError> {
    check(memory, offset, bytes.len() as u64)?;
    memory.store(Space::Host, offset, bytes);
    Ok(())
}

/// The digest of each block of [`DIGEST_BYTES`], of which the last one may be shorter.
pub(crate) fn digests(memory: &Region, offset: u64, len: u32) -> Result<Vec<u64>, FabricError> {
    let limit = u64::from(DIGEST_BYTES) * MOST_DIGESTS as u64;
    if u64::from(len) > limit {
        return Err(FabricError::TooLarge { asked: len.into(), limit });
    }
    check(memory, offset, len.into())?;
    let end = offset + u64::from(len);
    let mut block = vec![0; DIGEST_BYTES.min(len) as usize];
    let digest = |at: u64| {
        let bytes = &mut block[..(end - at).min(u64::from(DIGEST_BYTES)) as usize];
        memory.load(Space::Host, at, bytes);
        XxHash3_64::oneshot(bytes)
    };
    Ok((offset..end).step_by(DIGEST_BYTES as usize).map(digest).collect())
}

/// The tables, which the CPU changes: everything in front of the chunks but the lanes.
pub fn tables(geometry: &Geometry) -> Vec<Range<u64>> {
    let (lock, end) = (&geometry.lock, geometry.chunks_offset);
    let lanes = match lock.space {
        Space::OnChip => end..end,
        Space::Host => lock.offset..lock.offset + lock.table_bytes(),
    };
    let all = [0..lanes.start, lanes.end..end];
    all.into_iter().filter(|range| !range.is_empty()).collect()
}

/// Everything that a copy of a volume must have: the tables, and the chunks of nodes.
pub fn ranges(server: &MemoryServer) -> Vec<Range<u64>> {
    let geometry = server.geometry();
    let mut ranges = tables(geometry);
    for index in 0..geometry.chunks {
        if !matches!(server.volume.chunk(index), Some(ChunkEntry::Nodes { .. })) {
            continue;
        }
        let from = geometry.chunk_offset(index);
        let chunk = from..from + geometry.chunk_bytes;
        match ranges.last_mut() {
            Some(last) if last.end == chunk.start => last.end = chunk.end,
            _ => ranges.push(chunk),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::CopyPath;
    use crate::line::Atomicity;

    fn region() -> Region {
        Region::new(256 << 10, 0, Atomicity::Line, CopyPath::fastest()).expect("memory")
    }

    fn bytes(memory: &Region) -> Vec<u8> {
        let mut all = vec![0; 256 << 10];
        memory.load(Space::Host, 0, &mut all);
        all
    }

    #[test]
    fn a_copy_that_makes_the_same_stores_has_the_same_bytes() {
        let (primary, backup) = (region(), region());
        backup.store(Space::Host, 1 << 12, &[9; 200_000]);
        primary.store(Space::Host, 1 << 12, &[9; 200_000]);
        let recorder = Recorder::new(&primary);
        recorder.store(Space::Host, 64, &[1; 100]);
        recorder.store(Space::Host, 1 << 12, &vec![0; 150_000]);
        recorder.store(Space::Host, 200_000, &vec![7; 3 * LONGEST / 4]);
        recorder.store_u64(Space::Host, 72, 0);
        let stores = recorder.into_stores();
        assert!(stores.iter().any(|store| matches!(store, Store::Zeros { .. })));
        apply(&backup, &stores).expect("they are in bounds");
        assert_eq!(bytes(&backup), bytes(&primary));
    }

    #[test]
    fn the_tables_of_a_primary_reach_a_copy_that_missed_stores_and_new_areas_are_zeroed_there() {
        let format = sherman_layout::FormatOptions {
            chunk_bytes: 4096,
            redo_slot_bytes: 512,
            redo_area_bytes: 1024,
            member_capacity: 3,
            catalog_capacity: 1,
            memory_id: 7,
            locks: sherman_layout::LockOptions {
                space: Space::Host,
                lanes: Some(64),
                ..sherman_layout::LockOptions::default()
            },
            ..sherman_layout::FormatOptions::default()
        };
        let memories = [region(), region()];
        let mut volumes = memories
            .each_ref()
            .map(|memory| sherman_memory_server::Volume::format(memory, &format).expect("a volume"));
        let geometry = *volumes[0].geometry();
        let ask = |volume: &mut sherman_memory_server::Volume, memory: &Region, client: u16, request| {
            volume.handle(memory, ComputeId(client), &request).expect("an answer")
        };
        // Both copies know the area of client 1, and have its records. The copy is ahead.
        let area = |response| match response {
            sherman_fabric::Response::RedoArea(area) => area.offset,
            other => panic!("{other:?}"),
        };
        let areas =
            [0, 1].map(|at| area(ask(&mut volumes[at], &memories[at], 1, sherman_fabric::Request::RedoArea)));
        assert_eq!(areas[0], areas[1]);
        memories[1].store(Space::Host, areas[1], &[5; 64]);
        // What the copy missed: an area of client 2, where it has old records, and spans of client 3.
        memories[1].store(Space::Host, areas[1] + 1024, &[9; 1024]);
        let second = area(ask(&mut volumes[0], &memories[0], 2, sherman_fabric::Request::RedoArea));
        assert_eq!(second, areas[0] + 1024);
        let class = sherman_fabric::control::ChunkClass { node_bytes: 256, format: 1 };
        ask(&mut volumes[0], &memories[0], 3, sherman_fabric::Request::AllocSpans { class, count: 2 });
        // Clients change root words at the copy first.
        memories[1].store_u64(Space::Host, geometry.root_word(0), 77);
        for _ in 0..2 {
            apply(&memories[1], &table_stores(&memories[0], &geometry)).expect("in bounds");
        }
        let copied = sherman_memory_server::Volume::open(&memories[1]).expect("sound tables");
        assert_eq!(copied.spans_owned(ComputeId(3)), volumes[0].spans_owned(ComputeId(3)));
        assert_eq!(copied.client(ComputeId(2)).redo_area, Some(second));
        let load = |offset, len: usize| {
            let mut bytes = vec![0; len];
            memories[1].load(Space::Host, offset, &mut bytes);
            bytes
        };
        assert_eq!(load(areas[1], 64), [5; 64]);
        assert_eq!(load(second, 1024), [0; 1024]);
        assert_eq!(memories[1].load_u64(Space::Host, geometry.root_word(0)), 77);
    }

    #[test]
    fn blocks_with_other_bytes_have_other_digests_and_filled_ones_the_same() {
        const BLOCK: u64 = DIGEST_BYTES as u64;
        let (primary, copy) = (region(), region());
        primary.store(Space::Host, BLOCK + 100, &[1; 8]);
        primary.store(Space::Host, 2 * BLOCK + 63, &[0]);
        let (from, len) = (64, 2 * DIGEST_BYTES + 128);
        let both = || [&primary, &copy].map(|memory| digests(memory, from, len).expect("in bounds"));
        let [ours, theirs] = both();
        assert_eq!(ours.len(), 3);
        let differing: Vec<bool> = ours.iter().zip(&theirs).map(|(one, other)| one != other).collect();
        assert_eq!(differing, [false, true, false]);
        let mut block = vec![0; BLOCK as usize];
        primary.load(Space::Host, from + BLOCK, &mut block);
        fill(&copy, from + BLOCK, &block).expect("in bounds");
        let [ours, theirs] = both();
        assert_eq!(ours, theirs);
        assert_eq!(digests(&copy, 256 << 10, 0), Ok(Vec::new()));
    }

    #[test]
    fn bytes_outside_the_memory_have_no_digest_and_are_not_filled() {
        let memory = region();
        for (offset, len) in [(256 << 10, 1), (64, 256 << 10), (u64::MAX, 64)] {
            assert!(matches!(digests(&memory, offset, len), Err(FabricError::OutOfBounds { .. })));
            let refused = fill(&memory, offset, &vec![1; len as usize]);
            assert!(matches!(refused, Err(FabricError::OutOfBounds { .. })));
        }
        let long = digests(&memory, 0, DIGEST_BYTES * (MOST_DIGESTS as u32 + 1));
        assert!(matches!(long, Err(FabricError::TooLarge { .. })));
        assert_eq!(bytes(&memory), vec![0; 256 << 10]);
    }

    #[test]
    fn stores_outside_the_memory_change_nothing() {
        let memory = region();
        let inside = Store::Bytes { offset: 0, bytes: vec![1; 8] };
        for outside in [
            Store::Bytes { offset: (256 << 10) - 7, bytes: vec![1; 8] },
            Store::Zeros { offset: u64::MAX, len: 64 },
            Store::Zeros { offset: 0, len: u32::MAX },
        ] {
            let refused = apply(&memory, &[inside.clone(), outside]);
            assert!(matches!(refused, Err(FabricError::OutOfBounds { .. })), "{refused:?}");
        }
        assert_eq!(bytes(&memory), vec![0; 256 << 10]);
    }
}
