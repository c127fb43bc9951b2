//! Executes a work list on a server's memory.
//!
//! In posting order, each verb to its end before the next begins: F2 and F3 hold with room to spare, and a fenced WRITE
//! is like any other. A list with a bad verb stops there: what came before has happened, what comes after has not (F7).

use crate::gate::{RMW_IS_BARRIER, full_barrier};
use crate::memory::{BadAccess, Region};
use sherman_fabric::{FabricError, GlobalAddress, Space, Verb, WorkList};

/// The most verbs in one list.
pub(crate) const MAX_VERBS: u32 = 64;
/// The most bytes that one READ or WRITE may move.
pub(crate) const MAX_TRANSFER: u32 = 1 << 20;

/// Whether nothing in the list changes memory.
#[inline]
pub(crate) fn only_reads(list: &WorkList) -> bool {
    list.verbs().iter().all(|verb| matches!(verb, Verb::Read { .. }))
}

/// Executes `list`. `settled` tells whether later loads can no longer overtake its last store ([`gate`](crate::gate)), even
/// if the list fails.
#[inline]
pub(crate) fn execute(memory: &Region, list: &mut WorkList, settled: &mut bool) -> Result<(), FabricError> {
    if list.len() > MAX_VERBS as usize {
        return Err(FabricError::TooLarge { asked: list.len() as u64, limit: u64::from(MAX_VERBS) });
    }
    for index in 0..list.len() {
        step(memory, list, index, settled)?;
    }
    Ok(())
}

#[inline]
fn step(memory: &Region, list: &mut WorkList, index: usize, settled: &mut bool) -> Result<(), FabricError> {
    let server = list.server();
    let (verb, arena) = list.parts_mut(index);
    match verb {
        Verb::Read { space, offset, at, len } => {
            if !*settled {
                full_barrier();
                *settled = true;
            }
            check_transfer(len)?;
            let into = &mut arena[at as usize..][..len as usize];
            memory.read(space, offset, into).map_err(|bad| explain(bad, server, space, offset, len.into()))
        }
        Verb::Write { space, offset, at, len, fenced: _ } => {
            check_transfer(len)?;
            let from = &arena[at as usize..][..len as usize];
            memory.write(space, offset, from).map_err(|bad| explain(bad, server, space, offset, len.into()))?;
            *settled = RMW_IS_BARRIER;
            Ok(())
        }
        Verb::Cas { space, offset, compare, swap, mask, old: _ } => {
            let old = memory.cas(space, offset, compare, swap, mask);
            list.set_old(index, old.map_err(|bad| explain(bad, server, space, offset, 8))?);
            *settled = RMW_IS_BARRIER;
            Ok(())
        }
        Verb::Faa { space, offset, add, old: _ } => {
            let old = memory.faa(space, offset, add);
            list.set_old(index, old.map_err(|bad| explain(bad, server, space, offset, 8))?);
            *settled = RMW_IS_BARRIER;
            Ok(())
        }
    }
}

fn check_transfer(len: u32) -> Result<(), FabricError> {
    if len <= MAX_TRANSFER {
        return Ok(());
    }
    Err(FabricError::TooLarge { asked: len.into(), limit: MAX_TRANSFER.into() })
}

#[cold]
fn explain(bad: BadAccess, server: u16, space: Space, offset: u64, len: u64) -> FabricError {
    // An address has 48 bits of offset; what lies beyond is told as the last of them.
    let address = GlobalAddress::new(server, offset.min(GlobalAddress::OFFSET_LIMIT - 1));
    match bad {
        BadAccess::OutOfBounds => FabricError::OutOfBounds { space, address, len },
        BadAccess::Misaligned => FabricError::Misaligned { space, address },
    }
}
