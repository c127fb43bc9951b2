//! Memory that several processes map: the base of a backend for such memory.
//!
//! The lines are those of [`line`](mod@crate::line), with their sequence words in the same mapping. The READ
//! of a line is the same code. Only taking a line differs. Its odd word must name the holder, so that other
//! processes know it. The data to repair the line must outlive the holder, because here one process may die
//! between two stores while the others run on. A [`Holder`] does both. Every process has one for each of its
//! threads.
//!
//! | what | for |
//! |---|---|
//! | [`Parts`] | the arrays in the mapping |
//! | [`Parts::serve`] | the process of the memory server itself: a [`Region`] as any other, which takes lines as a [`Keeper`] |
//! | [`Parts::map`], [`Shared::by`] | every other process |
//! | [`execute`], [`enter`], [`leave`] | the parts of an endpoint whose verbs finish inside `post` |

pub use crate::gate::{Passed, enter, leave};
pub use crate::line::{Backoff, Holder, Keeper, Stalled};
pub use crate::verbs::{MAX_TRANSFER, MAX_VERBS, Target, execute, only_reads};

use crate::copy::CopyPath;
use crate::line::Lines;
use crate::memory::{BadAccess, Region};
use crate::on_chip::OnChip;
use sherman_fabric::Space;
use sherman_pages::zeroed::Zeroed;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The arrays of one memory server's memory, in a mapping.
#[derive(Debug)]
pub struct Parts {
    /// Host memory, in whole lines.
    pub host: Zeroed<AtomicU64>,
    /// Its sequence words. [`Parts::sequence_words`] gives their number.
    pub sequence: Zeroed<AtomicU32>,
    /// On-chip memory.
    pub on_chip: Zeroed<AtomicU64>,
}

impl Parts {
    /// The number of sequence words for `bytes` bytes of host memory.
    pub fn sequence_words(bytes: usize) -> usize {
        Lines::sequence_words(bytes)
    }

    /// The memory, for the process that serves it. `None` if the sizes of the arrays do not fit together.
    pub fn serve(self, keeper: Box<dyn Keeper>) -> Option<Region> {
        let host = Lines::mapped(self.host, self.sequence, CopyPath::fastest())?;
        Some(Region::mapped(host, OnChip::in_file(self.on_chip), Some(keeper)))
    }

    /// The memory, for every other process. `None` if the sizes of the arrays do not fit together. No READ or
    /// WRITE may move more than `longest` bytes.
    pub fn map(self, longest: u32) -> Option<Shared> {
        let host = Lines::mapped(self.host, self.sequence, CopyPath::fastest())?;
        Some(Shared { region: Region::mapped(host, OnChip::in_file(self.on_chip), None), longest })
    }
}

/// Memory that another process serves.
#[derive(Debug)]
pub struct Shared {
    region: Region,
    longest: u32,
}

impl Shared {
    /// The memory, for a thread that takes lines as `holder`.
    #[inline]
    pub fn by<'m, H: Holder<Stalled = Stalled>>(&'m self, holder: &'m H) -> By<'m, H> {
        By { memory: self, holder }
    }

    /// Prefetches the first lines of a future READ.
    #[inline]
    pub fn prefetch(&self, space: Space, offset: u64, len: usize) {
        self.region.prefetch(space, offset, len);
    }
}

/// The memory as one holder of lines accesses it.
#[derive(Debug)]
pub struct By<'m, H> {
    memory: &'m Shared,
    holder: &'m H,
}

impl<H: Holder<Stalled = Stalled>> Target for By<'_, H> {
    #[inline]
    fn read(&self, space: Space, offset: u64, into: &mut [u8]) -> Result<(), BadAccess> {
        self.memory.region.read_by(self.holder, space, offset, into)
    }

    #[inline]
    fn write(&self, space: Space, offset: u64, from: &[u8]) -> Result<(), BadAccess> {
        self.memory.region.write_by(self.holder, space, offset, from)
    }

    #[inline]
    fn cas(&self, space: Space, offset: u64, compare: u64, swap: u64, mask: u64) -> Result<u64, BadAccess> {
        self.memory.region.cas_by(self.holder, space, offset, compare, swap, mask)
    }

    #[inline]
    fn faa(&self, space: Space, offset: u64, add: u64) -> Result<u64, BadAccess> {
        self.memory.region.faa_by(self.holder, space, offset, add)
    }

    #[inline]
    fn prefetch(&self, space: Space, offset: u64, len: usize) {
        self.memory.region.prefetch(space, offset, len);
    }

    #[inline]
    fn longest(&self) -> u32 {
        self.memory.longest
    }
}
