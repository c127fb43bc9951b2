//! Broken rules of the log on disk (`seam!` in `lib.rs`).

use crate::mutant::{Mutant, broken};

pub(in crate::journal) fn vote_to_keep() -> Option<u64> {
    broken(Mutant::VoteForgotten, 0)
}

pub(in crate::journal) fn replaces(entries: usize, at: usize) -> Option<bool> {
    broken(Mutant::OldEntryWins, at == entries)
}
