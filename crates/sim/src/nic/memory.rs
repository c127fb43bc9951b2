//! The memory of one simulated server. Only touched parts of it are allocated.
//!
//! A tree of a billion keys has 22 GB of leaves, and an experiment reads a few hundred thousand of them. The
//! first touch creates a block. In general a block is a zeroed page. In chunks that a bulk load filled, it is
//! a whole node, with the contents that the [`Image`] gives.

use crate::hash::mix;
use sherman_fabric::{Memory, Space};
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

/// Size in bytes of a block outside of loaded chunks.
const PAGE: u64 = 4096;
/// Limit in bytes on kept nodes that were only read. Further nodes are created again for each read, so that
/// the memory used depends only on what is written.
const KEPT_BYTES: u64 = 96 << 20;

/// The nodes that a bulk load has written.
pub trait Image {
    /// Fills `node`, which is zeroed, with the node at `offset` of `server`.
    fn fill(&self, server: u16, offset: u64, node: &mut [u8]);
}

/// One multiplication is enough to make offsets look random.
#[derive(Default)]
pub(super) struct OffsetHasher(u64);

impl Hasher for OffsetHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mix(self.0, word);
    }
}

type ByOffset<T> = HashMap<u64, T, BuildHasherDefault<OffsetHasher>>;

/// The places of loaded nodes.
struct Loaded {
    image: Rc<dyn Image>,
    /// Node size of each chunk, or 0 if the chunk holds no loaded nodes.
    node_bytes: Vec<u32>,
    chunks_offset: u64,
    chunk_bytes: u64,
}

/// Host and on-chip memory of one server.
pub(super) struct Sparse {
    server: u16,
    host_bytes: u64,
    blocks: ByOffset<Box<[u8]>>,
    /// Bytes of kept nodes that were only read.
    kept: u64,
    loaded: Option<Loaded>,
    on_chip: Vec<u8>,
}

impl Sparse {
    pub(super) fn new(server: u16, host_bytes: u64, on_chip_bytes: usize) -> Self {
        Self {
            server,
            host_bytes,
            blocks: HashMap::default(),
            kept: 0,
            loaded: None,
            on_chip: vec![0; on_chip_bytes],
        }
    }

    /// Makes the chunks at these offsets hold nodes of `image`, each of the given size.
    pub(super) fn load(
        &mut self,
        image: Rc<dyn Image>,
        chunks_offset: u64,
        chunk_bytes: u64,
        chunks: impl Iterator<Item = (u64, u32)>,
    ) {
        let mut node_bytes = Vec::new();
        for (offset, bytes) in chunks {
            let index = ((offset - chunks_offset) / chunk_bytes) as usize;
            if node_bytes.len() <= index {
                node_bytes.resize(index + 1, 0);
            }
            node_bytes[index] = bytes;
        }
        self.loaded = Some(Loaded { image, node_bytes, chunks_offset, chunk_bytes });
    }

    pub(super) fn size(&self, space: Space) -> u64 {
        match space {
            Space::Host => self.host_bytes,
            Space::OnChip => self.on_chip.len() as u64,
        }
    }

    /// Returns the block that contains `offset`: its start, its size, and whether it is a loaded node.
    fn block_of(&self, offset: u64) -> (u64, u64, bool) {
        if let Some(loaded) = &self.loaded
            && let Some(within) = offset.checked_sub(loaded.chunks_offset)
        {
            let (chunk, at) = (within / loaded.chunk_bytes, within % loaded.chunk_bytes);
            let bytes = u64::from(loaded.node_bytes.get(chunk as usize).copied().unwrap_or(0));
            if bytes > 0 {
                return (offset - at % bytes, bytes, true);
            }
        }
        (offset - offset % PAGE, PAGE, false)
    }

    fn make(&self, start: u64, bytes: u64, is_node: bool) -> Box<[u8]> {
        let mut block = vec![0; bytes as usize].into_boxed_slice();
        if let Some(loaded) = self.loaded.as_ref().filter(|_| is_node) {
            loaded.image.fill(self.server, start, &mut block);
        }
        block
    }

    /// Copies bytes out. They are in bounds: that was checked when the verb was posted.
    pub(super) fn load_bytes(&mut self, space: Space, offset: u64, into: &mut [u8]) {
        if space == Space::OnChip {
            let at = offset as usize;
            into.copy_from_slice(&self.on_chip[at..at + into.len()]);
            return;
        }
        let mut done = 0;
        while done < into.len() {
            let at = offset + done as u64;
            let (start, bytes, is_node) = self.block_of(at);
            let within = (at - start) as usize;
            let part = (bytes as usize - within).min(into.len() - done);
            let target = &mut into[done..done + part];
            done += part;
            if let Some(block) = self.blocks.get(&start) {
                target.copy_from_slice(&block[within..within + part]);
            } else if is_node {
                let block = self.make(start, bytes, true);
                target.copy_from_slice(&block[within..within + part]);
                if self.kept + bytes <= KEPT_BYTES {
                    self.kept += bytes;
                    self.blocks.insert(start, block);
                }
            } else {
                target.fill(0);
            }
        }
    }

    /// Copies bytes in.
    pub(super) fn store_bytes(&mut self, space: Space, offset: u64, from: &[u8]) {
        if space == Space::OnChip {
            let at = offset as usize;
            self.on_chip[at..at + from.len()].copy_from_slice(from);
            return;
        }
        let mut done = 0;
        while done < from.len() {
            let at = offset + done as u64;
            let (start, bytes, is_node) = self.block_of(at);
            let within = (at - start) as usize;
            let part = (bytes as usize - within).min(from.len() - done);
            let source = &from[done..done + part];
            done += part;
            if let Some(block) = self.blocks.get_mut(&start) {
                block[within..within + part].copy_from_slice(source);
            } else if is_node || source.iter().any(|&byte| byte != 0) {
                let mut block = self.make(start, bytes, is_node);
                block[within..within + part].copy_from_slice(source);
                self.blocks.insert(start, block);
            }
        }
    }

    pub(super) fn word(&mut self, space: Space, offset: u64) -> u64 {
        let mut word = [0; 8];
        self.load_bytes(space, offset, &mut word);
        u64::from_le_bytes(word)
    }
}

/// The memory as the server's own CPU sees it.
pub(super) struct CpuView<'a>(RefCell<&'a mut Sparse>);

impl<'a> CpuView<'a> {
    pub(super) fn new(memory: &'a mut Sparse) -> Self {
        Self(RefCell::new(memory))
    }
}

impl Memory for CpuView<'_> {
    fn size(&self, space: Space) -> u64 {
        self.0.borrow().size(space)
    }

    fn load(&self, space: Space, offset: u64, into: &mut [u8]) {
        self.0.borrow_mut().load_bytes(space, offset, into);
    }

    fn store(&self, space: Space, offset: u64, from: &[u8]) {
        self.0.borrow_mut().store_bytes(space, offset, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Offsets;

    impl Image for Offsets {
        fn fill(&self, server: u16, offset: u64, node: &mut [u8]) {
            node[..8].copy_from_slice(&(offset | u64::from(server) << 48).to_le_bytes());
        }
    }

    #[test]
    fn nodes_come_into_being_as_they_were_loaded_and_stay_as_they_were_written() {
        let mut memory = Sparse::new(3, 1 << 40, 64);
        memory.load(
            Rc::new(Offsets),
            1 << 20,
            1 << 16,
            [(1 << 20, 1024), ((1 << 20) + (2 << 16), 1536)].into_iter(),
        );
        for at in [1 << 20, (1 << 20) + 5 * 1024, (1 << 20) + (2 << 16) + 1536] {
            assert_eq!(memory.word(Space::Host, at), at | 3 << 48);
            assert_eq!(memory.word(Space::Host, at + 8), 0);
        }
        memory.store_bytes(Space::Host, (1 << 20) + 1024 + 16, &[7; 8]);
        assert_eq!(memory.word(Space::Host, (1 << 20) + 1024), ((1 << 20) + 1024) | 3 << 48);
        assert_eq!(memory.word(Space::Host, (1 << 20) + 1024 + 16), u64::from_le_bytes([7; 8]));
        assert_eq!(memory.word(Space::Host, (1 << 20) + (1 << 16)), 0);
    }

    #[test]
    fn what_was_never_touched_is_zero_and_blocks_join_seamlessly() {
        let mut memory = Sparse::new(0, 1 << 40, 64);
        let mut read = [1; 20];
        memory.load_bytes(Space::Host, PAGE - 10, &mut read);
        assert_eq!(read, [0; 20]);
        let data: Vec<u8> = (1..=20).collect();
        memory.store_bytes(Space::Host, PAGE - 10, &data);
        memory.load_bytes(Space::Host, PAGE - 10, &mut read);
        assert_eq!(&read[..], &data[..]);
        memory.store_bytes(Space::OnChip, 8, &[9; 8]);
        assert_eq!(memory.word(Space::OnChip, 8), u64::from_le_bytes([9; 8]));
    }
}
