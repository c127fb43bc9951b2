//! The control state as bytes: a copy of its memory, with runs of zero words shortened.
//!
//! ```text
//!  | magic "SHRMSNP\0" | bytes of the memory  u64 |
//!  then, until all words are there:
//!  | zero words  u32 | other words  u32 | those words |
//! ```

use super::Control;
use sherman_fabric::{Memory, Space};
use sherman_layout::bytes::{WORD, get_u32, get_u64};

const MAGIC: [u8; 8] = *b"SHRMSNP\0";
const HEAD: usize = 16;
const RUN: usize = 8;

impl Control {
    /// The whole state, in fewer bytes than its memory has.
    pub fn snapshot(&self, memory: &dyn Memory) -> Vec<u8> {
        let bytes = self.geometry().bytes();
        let mut image = vec![0; bytes as usize];
        memory.load(Space::Host, 0, &mut image);
        let mut out = [&MAGIC[..], &bytes.to_le_bytes()].concat();
        let mut words = image.as_chunks::<{ WORD as usize }>().0;
        while !words.is_empty() {
            let zeros = words.iter().take_while(|word| **word == [0; WORD as usize]).count();
            let (_, rest) = words.split_at(zeros);
            let others = rest.iter().take_while(|word| **word != [0; WORD as usize]).count();
            let (run, rest) = rest.split_at(others);
            out.extend((zeros as u32).to_le_bytes());
            out.extend((others as u32).to_le_bytes());
            out.extend(run.as_flattened());
            words = rest;
        }
        out
    }

    /// Writes a snapshot to `memory` and resumes it; `None` if the bytes are no snapshot of a control state
    /// that fits into `memory`. Then `memory` may hold anything.
    pub fn restore(memory: &dyn Memory, snapshot: &[u8]) -> Option<Self> {
        let image = unpack(snapshot, memory.size(Space::Host))?;
        memory.store(Space::Host, 0, &image);
        Self::resume(memory).ok().filter(|control| control.geometry().bytes() == image.len() as u64)
    }
}

/// The bytes of a memory in a snapshot, if it is one of at most `most` bytes.
fn unpack(snapshot: &[u8], most: u64) -> Option<Vec<u8>> {
    let (head, mut runs) = snapshot.split_at_checked(HEAD)?;
    let bytes = get_u64(head, MAGIC.len());
    if !head.starts_with(&MAGIC) || bytes > most || !bytes.is_multiple_of(WORD) {
        return None;
    }
    let mut image = Vec::with_capacity(bytes as usize);
    while !runs.is_empty() {
        let (head, rest) = runs.split_at_checked(RUN)?;
        let zeros = u64::from(get_u32(head, 0)) * WORD;
        let (words, rest) = rest.split_at_checked(get_u32(head, 4) as usize * WORD as usize)?;
        if image.len() as u64 + zeros + words.len() as u64 > bytes {
            return None;
        }
        image.resize(image.len() + zeros as usize, 0);
        image.extend(words);
        runs = rest;
    }
    (image.len() as u64 == bytes).then_some(image)
}
