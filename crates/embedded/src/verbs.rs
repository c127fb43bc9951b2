//! Executes a work list on a server's memory.
//!
//! Verbs execute in posting order, and each ends before the next begins. This is more than F2 and F3 ask for,
//! and a fenced WRITE needs no special case. A list stops at its first bad verb. The verbs before it have
//! taken effect, and the verbs after it have not (F7).
//!
//! **Cache misses.** Each verb ends with a load of a sequence word, or with an atomic that no later load
//! overtakes. So the processor overlaps the misses of one READ, but hardly those of two. A list with several
//! READs, as in a range scan, therefore prefetches the lines of its READs before it copies the first. A
//! single READ gains nothing from that. A READ behind the CAS that locks its node gains 5 ns of 320 when
//! cold, and loses 9 when hot. Measured by `examples/round_trips`, nanoseconds per list, nodes of 1 KiB out
//! of 1 GiB:
//!
//! | | hot | cold |
//! |---|---|---|
//! | 4 READs, no prefetch | 119 | 1178 |
//! | 4 READs, first lines prefetched | 132 | 885 |
//! | 4 READs, all lines prefetched | 150 | **740** |
//! | 8 READs: no prefetch, all lines prefetched | 208, 279 | 2361, **1304** |

use crate::gate::{RMW_IS_BARRIER, full_barrier};
use crate::halt::{Cut, bytes_in_lines};
use crate::memory::{BadAccess, Region};
use sherman_fabric::{FabricError, GlobalAddress, Space, Verb, WorkList};

/// The maximum number of verbs in one list.
pub const MAX_VERBS: u32 = 64;
/// The maximum number of bytes that one READ or WRITE moves.
pub const MAX_TRANSFER: u32 = 1 << 20;

/// How many verbs ahead a list with several READs prefetches their lines.
const AHEAD: usize = 8;

/// The memory that verbs are executed on.
pub trait Target {
    /// READ.
    fn read(&self, space: Space, offset: u64, into: &mut [u8]) -> Result<(), BadAccess>;
    /// WRITE.
    fn write(&self, space: Space, offset: u64, from: &[u8]) -> Result<(), BadAccess>;
    /// CAS of the bits under `mask`. Returns the old word.
    fn cas(&self, space: Space, offset: u64, compare: u64, swap: u64, mask: u64) -> Result<u64, BadAccess>;
    /// Fetch-and-add. Returns the old word.
    fn faa(&self, space: Space, offset: u64, add: u64) -> Result<u64, BadAccess>;
    /// Prefetches the first lines of a future READ.
    fn prefetch(&self, space: Space, offset: u64, len: usize);

    /// The maximum number of bytes that one READ or WRITE moves.
    #[inline]
    fn longest(&self) -> u32 {
        MAX_TRANSFER
    }
}

impl Target for Region {
    #[inline]
    fn read(&self, space: Space, offset: u64, into: &mut [u8]) -> Result<(), BadAccess> {
        Region::read(self, space, offset, into)
    }

    #[inline]
    fn write(&self, space: Space, offset: u64, from: &[u8]) -> Result<(), BadAccess> {
        Region::write(self, space, offset, from)
    }

    #[inline]
    fn cas(&self, space: Space, offset: u64, compare: u64, swap: u64, mask: u64) -> Result<u64, BadAccess> {
        Region::cas(self, space, offset, compare, swap, mask)
    }

    #[inline]
    fn faa(&self, space: Space, offset: u64, add: u64) -> Result<u64, BadAccess> {
        Region::faa(self, space, offset, add)
    }

    #[inline]
    fn prefetch(&self, space: Space, offset: u64, len: usize) {
        Region::prefetch(self, space, offset, len);
    }
}

/// Whether the list only READs.
#[inline]
pub fn only_reads(list: &WorkList) -> bool {
    list.reads() == list.len()
}

/// Executes `list`. Sets `settled` to whether later loads can no longer overtake its last store (module
/// `gate`), even if the list fails.
#[inline]
pub fn execute<T: Target>(memory: &T, list: &mut WorkList, settled: &mut bool) -> Result<(), FabricError> {
    if list.len() > MAX_VERBS as usize {
        return Err(FabricError::TooLarge { asked: list.len() as u64, limit: u64::from(MAX_VERBS) });
    }
    let several_reads = list.reads() > 1;
    if several_reads {
        list.verbs().iter().take(AHEAD).for_each(|verb| prefetch(memory, verb));
    }
    for index in 0..list.len() {
        if several_reads && let Some(verb) = list.verbs().get(index + AHEAD) {
            prefetch(memory, verb);
        }
        step(memory, list, index, settled)?;
    }
    Ok(())
}

/// Executes `list` up to `cut`, or to the first bad verb.
pub(crate) fn execute_until(memory: &Region, list: &mut WorkList, cut: Cut) -> Result<(), FabricError> {
    let mut settled = true;
    for index in 0..cut.verbs.min(list.len()) {
        step(memory, list, index, &mut settled)?;
    }
    if let Some(&Verb::Write { space, offset, at, len, fenced: _ }) = list.verbs().get(cut.verbs) {
        check_transfer(len, memory.longest())?;
        let (_, arena) = list.parts_mut(cut.verbs);
        let from = &arena[at as usize..][..bytes_in_lines(offset, len, cut.lines) as usize];
        if !from.is_empty() {
            memory.write(space, offset, from).map_err(|bad| explain(bad, 0, space, offset, len.into()))?;
        }
    }
    Ok(())
}

#[inline]
fn prefetch<T: Target>(memory: &T, verb: &Verb) {
    if let Verb::Read { space, offset, len, .. } = *verb {
        memory.prefetch(space, offset, len as usize);
    }
}

#[inline]
fn step<T: Target>(
    memory: &T,
    list: &mut WorkList,
    index: usize,
    settled: &mut bool,
) -> Result<(), FabricError> {
    let server = list.server();
    let (verb, arena) = list.parts_mut(index);
    match verb {
        Verb::Read { space, offset, at, len } => {
            if !*settled {
                full_barrier();
                *settled = true;
            }
            check_transfer(len, memory.longest())?;
            let into = &mut arena[at as usize..][..len as usize];
            memory.read(space, offset, into).map_err(|bad| explain(bad, server, space, offset, len.into()))
        }
        Verb::Write { space, offset, at, len, fenced: _ } => {
            check_transfer(len, memory.longest())?;
            let from = &arena[at as usize..][..len as usize];
            memory
                .write(space, offset, from)
                .map_err(|bad| explain(bad, server, space, offset, len.into()))?;
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

#[inline]
fn check_transfer(len: u32, longest: u32) -> Result<(), FabricError> {
    if len <= longest {
        return Ok(());
    }
    Err(FabricError::TooLarge { asked: len.into(), limit: longest.into() })
}

/// The error that a client gets for a bad access.
#[cold]
pub(crate) fn explain(bad: BadAccess, server: u16, space: Space, offset: u64, len: u64) -> FabricError {
    let address = GlobalAddress::saturating(server, offset);
    match bad {
        BadAccess::OutOfBounds => FabricError::OutOfBounds { space, address, len },
        BadAccess::Misaligned => FabricError::Misaligned { space, address },
        BadAccess::OwnerStalled { client } => FabricError::OwnerStalled { client },
        BadAccess::Slow => FabricError::SlowRead { server },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::CopyPath;
    use crate::line::Atomicity;

    /// A region in which each byte's value depends on its offset.
    fn region() -> Region {
        let region = Region::new(16 << 10, 64, Atomicity::Line, CopyPath::fastest()).unwrap();
        let bytes: Vec<u8> = (0..16 << 10).map(|at: usize| (at * 31 / 8) as u8).collect();
        region.write(Space::Host, 0, &bytes).unwrap();
        region
    }

    #[test]
    fn each_of_many_reads_gets_its_own_bytes() {
        let region = region();
        let mut list = WorkList::new(0);
        let places = |i: u64| (i * 977 % (12 << 10), [0, 1, 64, 100, 1024, 3000][i as usize % 6]);
        let reads: Vec<_> = (0..30).map(|i| list.read(Space::Host, places(i).0, places(i).1)).collect();
        let lane = list.read(Space::OnChip, 8, 8);
        execute(&region, &mut list, &mut true).unwrap();
        for (i, read) in (0..30).zip(reads) {
            let mut alone = vec![0; places(i).1 as usize];
            region.read(Space::Host, places(i).0, &mut alone).unwrap();
            assert_eq!(list.bytes(read), alone);
        }
        assert_eq!(list.bytes(lane), [0; 8]);
    }

    #[test]
    fn reads_that_are_asked_for_early_are_refused_in_their_turn() {
        let region = region();
        for offset in [(16 << 10) - 63, 16 << 10, u64::MAX - 10, u64::MAX] {
            let mut list = WorkList::new(0);
            list.write(Space::Host, 0, &[7]);
            let good = list.read(Space::Host, 0, 1);
            list.read(Space::Host, offset, 64);
            list.write(Space::Host, 1, &[7]);
            let refused = execute(&region, &mut list, &mut true);
            assert!(matches!(refused, Err(FabricError::OutOfBounds { .. })), "{refused:?}");
            assert_eq!(list.bytes(good), [7]);
            let mut after = [0; 2];
            region.read(Space::Host, 0, &mut after).unwrap();
            assert_eq!(after, [7, (31 / 8) as u8]);
        }
    }
}
