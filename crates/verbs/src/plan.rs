//! Turns a work list into work requests: checks it and gives each request space in registered memory. It
//! needs no device.
//!
//! A NIC answers a bad request with an error that costs the whole queue pair. So this module refuses such a
//! request before anything is posted: then nothing of the list has happened (F7).
//!
//! Requests that need a buffer get it in the list's extent of the slab, one after the other. These are each
//! READ, each WRITE that is too long to travel inside its request, and each atomic (for the old value).

use crate::facts::{MAX_TRANSFER, MAX_VERBS};
use sherman_fabric::{FabricError, GlobalAddress, Space, Verb, WorkList};

/// Buffers begin at multiples of this: the old value of an atomic must lie in one word.
const ALIGN: u32 = 8;

/// The limits that a list is checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The server's index, for errors.
    pub server: u16,
    /// Bytes of its host memory.
    pub host_bytes: u64,
    /// Bytes of its on-chip memory.
    pub chip_bytes: u64,
    /// Whether both sides support masked CAS.
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
    /// WRITE from the list's own bytes.
    Inline {
        /// Wait for earlier READs and atomics.
        fenced: bool,
        /// Where the bytes begin in the list's arena.
        at: u32,
    },
    /// CAS of a word.
    Cas {
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// CAS of some bits of a word.
    MaskedCas {
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
        /// The bits that are compared and swapped.
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
    /// The memory that it accesses.
    pub space: Space,
    /// The offset in that memory.
    pub offset: u64,
    /// How many bytes.
    pub len: u32,
    /// Where its bytes are, or will be, in the list's extent.
    pub local: u32,
    /// What it does.
    pub task: Task,
}

/// Turns `list` into work requests. Returns how many bytes of the slab it needs. A READ or WRITE of zero
/// bytes needs no request.
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
            // Cannot overflow: at most 64 times 1 MiB.
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
        Verb::Read { space, offset, len, .. } | Verb::Write { space, offset, len, .. } => {
            (space, offset, len, false)
        }
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
    let address = GlobalAddress::saturating(reach.server, offset);
    if offset.checked_add(len.into()).is_none_or(|end| end > size) {
        return Err(FabricError::OutOfBounds { space, address, len: len.into() });
    }
    let is_read = matches!(verb, Verb::Read { .. });
    let aligned = if atomic { offset.is_multiple_of(8) } else { space.allows(offset, len.into(), is_read) };
    if aligned { Ok(()) } else { Err(FabricError::Misaligned { space, address }) }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
