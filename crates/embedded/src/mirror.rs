//! The stores of a primary's CPU, which the other copies of its volume must make too (T5 in
//! `docs/REPLICATION.md`).
//!
//! A copy that is no primary gets only these stores and the verbs of clients. Its own tables in front of the
//! memory are out of date. So a promoted copy opens its memory anew, and until then questions about it are
//! answered from memory.

use crate::memory::Region;
use sherman_fabric::group::Store;
use sherman_fabric::{FabricError, GlobalAddress, Memory, Space};
use std::cell::RefCell;

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
    let size = memory.size(Space::Host);
    for store in stores {
        let (offset, len) = match store {
            Store::Bytes { offset, bytes } => (*offset, bytes.len() as u64),
            Store::Zeros { offset, len } => (*offset, u64::from(*len)),
        };
        if offset.checked_add(len).is_none_or(|end| end > size) {
            let address = GlobalAddress::new(0, offset & (GlobalAddress::OFFSET_LIMIT - 1));
            return Err(FabricError::OutOfBounds { space: Space::Host, address, len });
        }
    }
    for store in stores {
        match store {
            Store::Bytes { offset, bytes } => memory.store(Space::Host, *offset, bytes),
            Store::Zeros { offset, len } => {
                let zeros = vec![0; (*len as usize).min(LONGEST)];
                let end = offset + u64::from(*len);
                for at in (*offset..end).step_by(LONGEST) {
                    memory.store(Space::Host, at, &zeros[..((end - at) as usize).min(LONGEST)]);
                }
            }
        }
    }
    Ok(())
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
