//! Mutants: bugs planted on purpose, to show that the simulator finds them (`docs/TESTING.md`, "Mutants").
//!
//! Each mutant breaks one rule of the control state of a cluster of hosts. A thread plants at most one bug at
//! a time, for itself alone.

use std::cell::Cell;

/// A rule that can be broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutant {
    /// J8: primaries and backups change places at once, and their volumes stay open.
    SwapsOpen,
    /// J4, J8: primaries and backups change places as soon as their volumes are closed, while identities of
    /// older epochs are left.
    SwapsUnquiet,
    /// P6: a silent host does not count as one that may come back with the last copy of a volume.
    AwaitsNobody,
}

impl Mutant {
    /// All mutants.
    pub const ALL: &[Self] = &[Self::SwapsOpen, Self::SwapsUnquiet, Self::AwaitsNobody];
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
