//! What the compute servers of a schedule have counted.

use super::lab::Compute;
use sherman_core::tree::Merges;

/// Totals over some compute servers.
pub(super) struct Counts {
    /// Places that are not free.
    in_use: u64,
    pub merges: Merges,
    pub reused: u64,
}

impl Counts {
    pub fn of<'c>(computes: impl IntoIterator<Item = &'c Compute>) -> Self {
        let mut counts = Self { in_use: 0, merges: Merges::default(), reused: 0 };
        for compute in computes {
            let census = compute.shared.census();
            counts.in_use = counts.in_use.wrapping_add(census.allocated).wrapping_sub(census.free);
            counts.reused += census.reused;
            let merges = compute.tree.merges();
            counts.merges.leaves += merges.leaves;
            counts.merges.internal += merges.internal;
            counts.merges.shrinks += merges.shrinks;
        }
        counts
    }

    pub fn since(&self, before: &Self) -> Self {
        Self {
            in_use: self.in_use.wrapping_sub(before.in_use),
            merges: Merges {
                leaves: self.merges.leaves - before.merges.leaves,
                internal: self.merges.internal - before.merges.internal,
                shrinks: self.merges.shrinks - before.merges.shrinks,
            },
            reused: self.reused - before.reused,
        }
    }

    /// Nodes made: those that are there now, and those that went again. Who dies in the middle may leave the sum short.
    pub fn made(&self) -> u64 {
        let made = self.in_use.wrapping_add(self.merges.leaves + self.merges.internal + self.merges.shrinks);
        u64::try_from(made as i64).unwrap_or(0)
    }
}
