//! A server's two memories, and the checks for bad verbs.

use super::{CHIP_BYTES, HOST_BYTES};
use sherman_fabric::{Caps, FabricError, GlobalAddress, Space, Verb, WorkList};

#[derive(Debug)]
pub struct Memory {
    host: Vec<u8>,
    chip: Vec<u8>,
}

impl Memory {
    pub fn new() -> Self {
        Self { host: vec![0; HOST_BYTES as usize], chip: vec![0; CHIP_BYTES as usize] }
    }

    pub fn bytes(&mut self, space: Space, offset: u64, len: usize) -> &mut [u8] {
        let memory = match space {
            Space::Host => &mut self.host,
            Space::OnChip => &mut self.chip,
        };
        &mut memory[offset as usize..offset as usize + len]
    }

    pub fn word(&mut self, space: Space, offset: u64) -> u64 {
        u64::from_le_bytes(self.bytes(space, offset, 8).try_into().unwrap())
    }
}

/// The new value of `word` after a CAS or FAA. `None` for other verbs.
pub fn atomic(verb: Verb, word: u64) -> Option<u64> {
    match verb {
        Verb::Cas { compare, swap, mask, .. } if word & mask == compare & mask => {
            Some(word & !mask | swap & mask)
        }
        Verb::Cas { .. } => Some(word),
        Verb::Faa { add, .. } => Some(word.wrapping_add(add)),
        Verb::Read { .. } | Verb::Write { .. } => None,
    }
}

/// The bytes that a verb accesses.
pub fn extent(verb: Verb) -> (Space, u64, usize) {
    match verb {
        Verb::Read { space, offset, len, .. } | Verb::Write { space, offset, len, .. } => {
            (space, offset, len as usize)
        }
        Verb::Cas { space, offset, .. } | Verb::Faa { space, offset, .. } => (space, offset, 8),
    }
}

/// The error of a verb that cannot execute.
pub fn bad(verb: Verb, server: u16, caps: &Caps) -> Option<FabricError> {
    let (space, offset, len) = extent(verb);
    let size = if space == Space::Host { HOST_BYTES } else { caps.on_chip_bytes };
    let address = GlobalAddress::saturating(server, offset);
    if offset.checked_add(len as u64).is_none_or(|end| end > size) {
        return Some(FabricError::OutOfBounds { space, address, len: len as u64 });
    }
    let aligned = match verb {
        Verb::Cas { .. } | Verb::Faa { .. } => offset.is_multiple_of(8),
        Verb::Read { .. } => space.allows(offset, len as u64, true),
        Verb::Write { .. } => space.allows(offset, len as u64, false),
    };
    if !aligned {
        return Some(FabricError::Misaligned { space, address });
    }
    let masked = matches!(verb, Verb::Cas { mask, .. } if mask != u64::MAX);
    (masked && !caps.masked_cas).then_some(FabricError::Unsupported { what: "mask a CAS" })
}

/// The error of a list that is refused as a whole.
pub fn too_large(list: &WorkList, caps: &Caps) -> Option<FabricError> {
    if list.len() > caps.max_verbs as usize {
        return Some(FabricError::TooLarge { asked: list.len() as u64, limit: u64::from(caps.max_verbs) });
    }
    let longest = list.verbs().iter().map(|&verb| extent(verb).2 as u64).max().unwrap_or(0);
    let limit = u64::from(caps.max_transfer);
    (longest > limit).then_some(FabricError::TooLarge { asked: longest, limit })
}
