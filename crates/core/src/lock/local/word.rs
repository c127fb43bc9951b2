//! The 8 bits of a slot. A slot is as small as possible, so that a table of all lanes stays in a core's
//! cache.
//!
//! ```text
//!  7                      3      2         1       0
//! | consecutive handovers | KEPT | WAITERS | HELD |
//! ```
//!
//! `KEPT` belongs to a free slot: no thread holds the slot, but this compute server still holds the global
//! lane. So the next thread that takes the slot gets a handover. The depth (consecutive handovers) survives
//! that state. A slot that is free and not kept has depth 0.

use super::{Fairness, Grant};

const HELD: u8 = 1;
const WAITERS: u8 = 1 << 1;
const KEPT: u8 = 1 << 2;
const DEPTH_SHIFT: u32 = 3;

/// A slot's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(u8);

impl Word {
    /// No thread holds it, no thread waits, and this compute server does not hold the global lane.
    pub(super) const FREE: Self = Self(0);

    /// The most consecutive handovers that the word can count.
    pub(super) const MAX_DEPTH: u32 = (u8::MAX >> DEPTH_SHIFT) as u32;

    /// Held, after `depth` consecutive handovers.
    pub(super) fn held(depth: u32) -> Self {
        debug_assert!(depth <= Self::MAX_DEPTH);
        Self(HELD | (depth as u8) << DEPTH_SHIFT)
    }

    /// Free, such that the next thread that takes it gets `grant`.
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

    /// Consecutive handovers so far.
    pub(super) fn depth(self) -> u32 {
        u32::from(self.0 >> DEPTH_SHIFT)
    }

    /// Whether a thread that is not queued may take it.
    pub(super) fn is_free_for(self, fairness: Fairness) -> bool {
        match fairness {
            Fairness::Fifo => self.0 & (HELD | WAITERS) == 0,
            Fairness::Barging => !self.is_held(),
        }
    }

    /// The grant that a thread gets when it takes this free slot.
    pub(super) fn grant(self) -> Grant {
        if self.is_kept() { Grant::HandedOver } else { Grant::Fresh }
    }

    /// The same slot, taken.
    pub(super) fn taken(self) -> Self {
        Self((self.0 | HELD) & !KEPT)
    }

    /// The same slot, with or without waiters.
    pub(super) fn with_waiters(self, waiters: bool) -> Self {
        Self(if waiters { self.0 | WAITERS } else { self.0 & !WAITERS })
    }
}
