//! Counters of the compute servers of a schedule.

use super::fixture::Compute;
use sherman_core::tree::Merges;

/// Totals over some compute servers.
pub(super) struct Counts {
    /// Nodes created.
    made: u64,
    pub merges: Merges,
    pub reused: u64,
}

impl Counts {
    pub(super) fn of<'c>(computes: impl IntoIterator<Item = &'c Compute>) -> Self {
        let mut counts = Self { made: 0, merges: Merges::default(), reused: 0 };
        for compute in computes {
            let census = compute.shared.census();
            counts.made += census.made;
            counts.reused += census.reused;
            let merges = compute.tree.merges();
            counts.merges.leaves += merges.leaves;
            counts.merges.internal += merges.internal;
            counts.merges.shrinks += merges.shrinks;
        }
        counts
    }

    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            made: self.made - before.made,
            merges: Merges {
                leaves: self.merges.leaves - before.merges.leaves,
                internal: self.merges.internal - before.merges.internal,
                shrinks: self.merges.shrinks - before.merges.shrinks,
            },
            reused: self.reused - before.reused,
        }
    }

    /// Returns the number of nodes that became part of a tree.
    pub(super) fn made(&self) -> u64 {
        self.made
    }
}
