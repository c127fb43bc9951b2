//! A work list as work requests: checked, with a place in registered memory for each. No device takes part.
//!
//! A NIC answers a bad request with an error that costs the whole queue pair, so what it would refuse is refused here, before
//! anything is posted: then nothing of the list has happened (F7).
//!
//! Each READ, each WRITE that is too long to travel inside its request, and each atomic (for what it finds) has its place
//! in the list's extent of the slab, one after the other.

use crate::facts::{MAX_TRANSFER, MAX_VERBS};
use sherman_fabric::{FabricError, GlobalAddress, Space, Verb, WorkList};

/// Buffers begin at multiples of this: what an atomic finds must lie in one word.
const ALIGN: u32 = 8;

/// What a list is checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The server's index, for errors.
    pub server: u16,
    /// Bytes of its host memory.
    pub host_bytes: u64,
    /// Bytes of its on-chip memory.
    pub chip_bytes: u64,
    /// Whether both sides can do a masked CAS.
    pub masked_cas: bool,
    /// The longest WRITE that travels inside its request.
    pub inline: u32,
    /// Bytes of the slab.
    pub slab: u32,
}

/// What one work request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// READ into the slab.
    Read,
    /// WRITE from the slab.
    Write {
        /// Wait for earlier READs and atomics.
        fenced: bool,
    },
    /// WRITE from the list's own bytes, which begin there.
    Inline {
        /// Wait for earlier READs and atomics.
        fenced: bool,
        /// Where in the list's arena.
        at: u32,
    },
    /// CAS of a word.
    Cas {
        /// What is expected.
        compare: u64,
        /// What replaces it.
        swap: u64,
    },
    /// CAS of some bits of a word.
    MaskedCas {
        /// What is expected.
        compare: u64,
        /// What replaces it.
        swap: u64,
        /// The bits that take part.
        mask: u64,
    },
    /// Addition.
    Faa {
        /// The addend.
        add: u64,
    },
}

/// One work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The verb's index in its list.
    pub verb: u32,
    /// The memory it names.
    pub space: Space,
    /// Where there.
    pub offset: u64,
    /// How many bytes.
    pub len: u32,
    /// Where in the list's extent its bytes are, or come to be.
    pub local: u32,
    /// What it does.
    pub task: Task,
}

/// Turns `list` into work requests. Says how many bytes of the slab it needs. A READ or WRITE of nothing needs no request.
pub fn plan(list: &WorkList, reach: &Reach, works: &mut Vec<Work>) -> Result<u32, FabricError> {
    works.clear();
    if list.len() > MAX_VERBS as usize {
        return Err(FabricError::TooLarge { asked: list.len() as u64, limit: MAX_VERBS.into() });
    }
    let mut local = 0u32;
    for (verb, found) in list.verbs().iter().enumerate() {
        check(found, reach)?;
        let (space, offset, len, task) = match *found {
            Verb::Read { space, offset, len, .. } => (space, offset, len, Task::Read),
            Verb::Write { space, offset, at, len, fenced } if len <= reach.inline => {
                (space, offset, len, Task::Inline { fenced, at })
            }
            Verb::Write { space, offset, len, fenced, .. } => (space, offset, len, Task::Write { fenced }),
            Verb::Cas { space, offset, compare, swap, mask: u64::MAX, .. } => {
                (space, offset, 8, Task::Cas { compare, swap })
            }
            Verb::Cas { space, offset, compare, swap, mask, .. } => {
                (space, offset, 8, Task::MaskedCas { compare, swap, mask })
            }
            Verb::Faa { space, offset, add, .. } => (space, offset, 8, Task::Faa { add }),
        };
        if len == 0 {
            continue;
        }
        works.push(Work { verb: verb as u32, space, offset, len, local, task });
        if !matches!(task, Task::Inline { .. }) {
            // At most 64 times 1 MiB.
            local += len.next_multiple_of(ALIGN);
        }
    }
    if local > reach.slab {
        return Err(FabricError::TooLarge { asked: local.into(), limit: reach.slab.into() });
    }
    Ok(local)
}

/// Whether a memory server's NIC would execute `verb`.
fn check(verb: &Verb, reach: &Reach) -> Result<(), FabricError> {
    let (space, offset, len, atomic) = match *verb {
        Verb::Read { space, offset, len, .. } | Verb::Write { space, offset, len, .. } => (space, offset, len, false),
        Verb::Cas { space, offset, .. } | Verb::Faa { space, offset, .. } => (space, offset, 8, true),
    };
    if len > MAX_TRANSFER {
        return Err(FabricError::TooLarge { asked: len.into(), limit: MAX_TRANSFER.into() });
    }
    if let Verb::Cas { mask, .. } = *verb
        && mask != u64::MAX
        && !reach.masked_cas
    {
        return Err(FabricError::Unsupported { what: "compare and swap part of a word" });
    }
    let size = match space {
        Space::Host => reach.host_bytes,
        Space::OnChip => reach.chip_bytes,
    };
    let address = GlobalAddress::new(reach.server, offset.min(GlobalAddress::OFFSET_LIMIT - 1));
    if offset.checked_add(len.into()).is_none_or(|end| end > size) {
        return Err(FabricError::OutOfBounds { space, address, len: len.into() });
    }
    let aligned = match space {
        _ if atomic => offset.is_multiple_of(8),
        Space::Host => true,
        Space::OnChip if matches!(verb, Verb::Read { .. }) && len > 8 => {
            offset.is_multiple_of(8) && len.is_multiple_of(8)
        }
        Space::OnChip => matches!(len, 1 | 2 | 4 | 8) && offset.is_multiple_of(len.into()),
    };
    if aligned { Ok(()) } else { Err(FabricError::Misaligned { space, address }) }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
