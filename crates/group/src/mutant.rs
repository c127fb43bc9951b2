//! Mutants: bugs planted on purpose, to show that the simulator finds them (`docs/TESTING.md`, "Mutants").
//!
//! Each mutant breaks one rule of a node. A thread plants at most one bug at a time, for itself alone.

use std::cell::Cell;

/// A rule that can be broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutant {
    /// A leader answers a renewal from its own memory, before the group has committed it. So a deposed
    /// leader grants leases.
    GrantsAlone,
    /// A new leader does not say that it leads: leases do not restart, and its clock counts as that of the
    /// former leader (L3).
    LeadUnsaid,
    /// A leader counts the time in which it heard nobody itself as silence of the others: its own process
    /// stood still, or it was cut off.
    PauseCounts,
    /// A leader declares nobody lost.
    NobodyLost,
    /// Any node answers a request for the table from its own memory, which may be old.
    TablesFromMemory,
    /// A request to create a tree that comes again is another request: it says that the tree exists.
    CreationsUnnamed,
    /// A leader that does not hear a majority of the voters declares hosts lost all the same.
    DeclaresUnheard,
}

impl Mutant {
    /// All mutants.
    pub const ALL: &[Self] = &[
        Self::GrantsAlone,
        Self::LeadUnsaid,
        Self::PauseCounts,
        Self::NobodyLost,
        Self::TablesFromMemory,
        Self::CreationsUnnamed,
        Self::DeclaresUnheard,
    ];
}

thread_local! {
    static PLANTED: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Plants a bug, or none, for this thread. Returns what was planted before.
pub fn plant(mutant: Option<Mutant>) -> Option<Mutant> {
    PLANTED.replace(mutant)
}

/// Whether this thread has this bug planted.
pub(crate) fn planted(mutant: Mutant) -> bool {
    PLANTED.get() == Some(mutant)
}
