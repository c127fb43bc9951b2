//! The bytes of one simulated memory server.
//!
//! Schedules are short and many, so a rewind must cost only as much as the schedule touched. Every store
//! marks its page, and [`ServerMemory::rewind`] copies only marked pages from the image of the last
//! checkpoint. Under exhaustive search each store also updates a hash of the whole contents, line by line.

use crate::hash::mix_bytes;
use sherman_fabric::{Memory, Space};
use std::cell::RefCell;

const PAGE_SHIFT: u32 = 10;
const LINE: usize = 64;

/// One space of one server.
#[derive(Debug)]
struct Bank {
    bytes: Vec<u8>,
    image: Vec<u8>,
    /// The value of each byte before its last overwrite. Empty unless
    /// [`Breach::StaleRead`](crate::Breach::StaleRead) needs it.
    previous: Vec<u8>,
    dirty: Vec<bool>,
    dirty_pages: Vec<u32>,
    salt: u64,
}

impl Bank {
    fn new(len: usize, salt: u64) -> Self {
        let pages = len.div_ceil(1 << PAGE_SHIFT);
        Self {
            bytes: vec![0; len],
            image: vec![0; len],
            previous: Vec::new(),
            dirty: vec![false; pages],
            dirty_pages: Vec::new(),
            salt,
        }
    }

    fn lines_hash(&self, start: usize, len: usize) -> u64 {
        let (first, last) = (start / LINE, (start + len - 1) / LINE);
        (first..=last).fold(0, |sum: u64, line| {
            let end = self.bytes.len().min((line + 1) * LINE);
            sum.wrapping_add(mix_bytes(self.salt ^ (line as u64) << 8, &self.bytes[line * LINE..end]))
        })
    }

    #[inline]
    fn store(&mut self, start: usize, from: &[u8], content: Option<&mut u64>) {
        if from.is_empty() {
            return;
        }
        let end = start + from.len();
        for page in start >> PAGE_SHIFT..=(end - 1) >> PAGE_SHIFT {
            if !std::mem::replace(&mut self.dirty[page], true) {
                self.dirty_pages.push(page as u32);
            }
        }
        if !self.previous.is_empty() {
            self.previous[start..end].copy_from_slice(&self.bytes[start..end]);
        }
        if let Some(content) = content {
            *content = content.wrapping_sub(self.lines_hash(start, from.len()));
            self.bytes[start..end].copy_from_slice(from);
            *content = content.wrapping_add(self.lines_hash(start, from.len()));
        } else {
            self.bytes[start..end].copy_from_slice(from);
        }
    }

    fn page(&self, page: u32) -> std::ops::Range<usize> {
        let start = (page as usize) << PAGE_SHIFT;
        start..self.bytes.len().min(start + (1 << PAGE_SHIFT))
    }

    fn checkpoint(&mut self) {
        while let Some(page) = self.dirty_pages.pop() {
            let range = self.page(page);
            self.dirty[page as usize] = false;
            self.image[range.clone()].copy_from_slice(&self.bytes[range]);
        }
    }

    fn rewind(&mut self) {
        while let Some(page) = self.dirty_pages.pop() {
            let range = self.page(page);
            self.dirty[page as usize] = false;
            self.bytes[range.clone()].copy_from_slice(&self.image[range.clone()]);
            if !self.previous.is_empty() {
                self.previous[range.clone()].copy_from_slice(&self.image[range]);
            }
        }
    }
}

/// Host and on-chip memory of one server.
#[derive(Debug)]
pub(crate) struct ServerMemory {
    host: Bank,
    on_chip: Bank,
    /// Whether stores update `content`.
    track: bool,
    /// A hash of everything that differs from the checkpoint, independent of the order of stores.
    content: u64,
}

impl ServerMemory {
    pub(crate) fn new(host_bytes: usize, on_chip_bytes: usize) -> Self {
        Self {
            host: Bank::new(host_bytes, 1),
            on_chip: Bank::new(on_chip_bytes, 2),
            track: false,
            content: 0,
        }
    }

    #[inline]
    fn bank(&self, space: Space) -> &Bank {
        match space {
            Space::Host => &self.host,
            Space::OnChip => &self.on_chip,
        }
    }

    pub(crate) fn size(&self, space: Space) -> u64 {
        self.bank(space).bytes.len() as u64
    }

    /// Returns the bytes at `offset`. They are in bounds: [`crate::world`] checked that when the verb was
    /// posted.
    #[inline]
    pub(crate) fn bytes(&self, space: Space, offset: u64, len: usize) -> &[u8] {
        &self.bank(space).bytes[offset as usize..offset as usize + len]
    }

    /// Returns the bytes before their last overwrite.
    pub(crate) fn previous(&self, offset: u64, len: usize) -> &[u8] {
        &self.host.previous[offset as usize..offset as usize + len]
    }

    #[inline]
    pub(crate) fn store(&mut self, space: Space, offset: u64, from: &[u8]) {
        let content = self.track.then_some(&mut self.content);
        match space {
            Space::Host => self.host.store(offset as usize, from, content),
            Space::OnChip => self.on_chip.store(offset as usize, from, content),
        }
    }

    #[inline]
    pub(crate) fn word(&self, space: Space, offset: u64) -> u64 {
        u64::from_le_bytes(self.bytes(space, offset, 8).try_into().unwrap_or_default())
    }

    /// Makes the current contents the state to which [`ServerMemory::rewind`] returns.
    pub(crate) fn checkpoint(&mut self) {
        self.host.checkpoint();
        self.on_chip.checkpoint();
        self.content = 0;
    }

    /// Returns to the last checkpoint. `previous` says whether to keep overwritten bytes from now on.
    pub(crate) fn rewind(&mut self, previous: bool) {
        self.host.rewind();
        self.on_chip.rewind();
        self.content = 0;
        if previous && self.host.previous.is_empty() {
            self.host.previous = self.host.image.clone();
        } else if !previous {
            self.host.previous = Vec::new();
        }
    }

    /// Starts or stops updating [`ServerMemory::content`].
    pub(crate) fn set_tracking(&mut self, track: bool) {
        self.track = track;
    }

    /// Returns the hash of all changes since the checkpoint. It is exact only if tracking was on all the
    /// time.
    pub(crate) fn content(&self) -> u64 {
        self.content
    }
}

/// The memory as the server's own CPU sees it while it answers a control call.
pub(crate) struct CpuView<'a>(RefCell<&'a mut ServerMemory>);

impl<'a> CpuView<'a> {
    pub(crate) fn new(memory: &'a mut ServerMemory) -> Self {
        Self(RefCell::new(memory))
    }
}

impl Memory for CpuView<'_> {
    fn size(&self, space: Space) -> u64 {
        self.0.borrow().size(space)
    }

    fn load(&self, space: Space, offset: u64, into: &mut [u8]) {
        into.copy_from_slice(self.0.borrow().bytes(space, offset, into.len()));
    }

    fn store(&self, space: Space, offset: u64, from: &[u8]) {
        self.0.borrow_mut().store(space, offset, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rewind_restores_every_byte_and_a_checkpoint_moves_the_start() {
        let mut memory = ServerMemory::new(5000, 64);
        memory.store(Space::Host, 1020, &[7; 10]);
        memory.checkpoint();
        memory.store(Space::Host, 1000, &[8; 4000]);
        memory.store(Space::OnChip, 8, &[9; 8]);
        memory.rewind(false);
        assert_eq!(memory.bytes(Space::Host, 1018, 14), [0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0]);
        assert_eq!(memory.word(Space::OnChip, 8), 0);
        assert!(memory.bytes(Space::Host, 1030, 3970).iter().all(|&b| b == 0));
    }

    #[test]
    fn the_content_hash_depends_on_contents_alone() {
        let mut memory = ServerMemory::new(4096, 64);
        memory.set_tracking(true);
        memory.store(Space::Host, 60, &[1; 8]);
        memory.store(Space::OnChip, 0, &[2; 8]);
        let one = memory.content();
        memory.rewind(false);
        memory.store(Space::OnChip, 0, &[3; 8]);
        memory.store(Space::OnChip, 0, &[2; 8]);
        memory.store(Space::Host, 64, &[1; 4]);
        assert_ne!(memory.content(), one);
        memory.store(Space::Host, 60, &[1; 4]);
        assert_eq!(memory.content(), one);
    }
}
