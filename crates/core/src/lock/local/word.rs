//! What a slot's 8 bits say: as few as can be, since a table of all lanes should stay in a core's cache.
//!
//! ```text
//!  7                      3      2         1       0
//! | consecutive handovers | KEPT | WAITERS | HELD |
//! ```
//!
//! `KEPT` belongs to a slot that is free: nobody holds it here, but this compute server still holds the global lane, so
//! whoever takes the slot next has been handed it over. The depth outlives that state. A slot that is free and not kept has
//! depth 0.

use super::{Fairness, Grant};

const HELD: u8 = 1;
const WAITERS: u8 = 1 << 1;
const KEPT: u8 = 1 << 2;
const DEPTH_SHIFT: u32 = 3;

/// A slot's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(u8);

impl Word {
    /// Nobody holds it, nobody waits, and the global lane is not ours.
    pub(super) const FREE: Self = Self(0);

    /// The most handovers in a row that can be counted.
    pub(super) const MAX_DEPTH: u32 = (u8::MAX >> DEPTH_SHIFT) as u32;

    /// Held, after `depth` handovers in a row.
    pub(super) fn held(depth: u32) -> Self {
        debug_assert!(depth <= Self::MAX_DEPTH);
        Self(HELD | (depth as u8) << DEPTH_SHIFT)
    }

    /// Free such that who takes it gets `grant`.
    pub(super) fn free(grant: Grant, depth: u32) -> Self {
        debug_assert!(depth <= Self::MAX_DEPTH);
        match grant {
            Grant::Fresh => Self::FREE,
            Grant::HandedOver => Self(KEPT | (depth as u8) << DEPTH_SHIFT),
        }
    }

    pub(super) fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    pub(super) fn bits(self) -> u8 {
        self.0
    }

    pub(super) fn is_held(self) -> bool {
        self.0 & HELD != 0
    }

    pub(super) fn is_kept(self) -> bool {
        self.0 & KEPT != 0
    }

    pub(super) fn has_waiters(self) -> bool {
        self.0 & WAITERS != 0
    }

    /// Handovers in a row so far.
    pub(super) fn depth(self) -> u32 {
        u32::from(self.0 >> DEPTH_SHIFT)
    }

    /// Whether someone who is not queued may take it.
    pub(super) fn is_free_for(self, fairness: Fairness) -> bool {
        match fairness {
            Fairness::Fifo => self.0 & (HELD | WAITERS) == 0,
            Fairness::Barging => !self.is_held(),
        }
    }

    /// What taking it, if it is free, grants.
    pub(super) fn grant(self) -> Grant {
        if self.is_kept() { Grant::HandedOver } else { Grant::Fresh }
    }

    /// The same slot, taken.
    pub(super) fn taken(self) -> Self {
        Self((self.0 | HELD) & !KEPT)
    }

    /// The same slot, waited for or not.
    pub(super) fn with_waiters(self, waiters: bool) -> Self {
        Self(if waiters { self.0 | WAITERS } else { self.0 & !WAITERS })
    }
}
