//! Broken rules of the index cache (`crate::seam`).

use crate::mutant::{Mutant, planted};

/// Stores the children of a copy without their servers.
pub(super) fn server_bits() -> Option<u32> {
    planted(Mutant::ChildServerLost).then_some(0)
}

/// Drops none of the copies that led to a wrong node.
pub(super) fn forget_path() -> Option<()> {
    planted(Mutant::StaleCopiesKept).then_some(())
}

/// Puts a separator that a copy learns before the one that it belongs behind.
pub(super) fn place_behind(index: usize) -> Option<usize> {
    planted(Mutant::LearntMisplaced).then_some(index)
}
