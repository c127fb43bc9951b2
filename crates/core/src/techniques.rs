//! The paper's techniques, each switchable: the same tree code runs as FG+, as the paper's Sherman and as ours.

/// Which techniques a compute server uses. What is fixed in the cluster (lanes on chip, their width, how they are
/// released) is in the superblock; what is fixed in a tree (its format) is in the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Techniques {
    /// Write-back and release leave as one list, and so does a split on one server (paper §4.5).
    pub combine: bool,
    /// Threads of a compute server queue locally before one of them goes for the lane (paper §4.3).
    pub hierarchical: bool,
    /// They queue first come, first served; otherwise whoever is quickest.
    pub queue: bool,
    /// A released lane goes to the next thread in the queue without leaving the compute server, at most
    /// [`Techniques::MAX_HANDOVERS`] times in a row. Means nothing without `hierarchical`.
    pub handover: bool,
    /// CAS and READ share a list: a write takes two round trips. Not in the paper.
    pub lock_read: bool,
    /// Internal nodes are cached (paper §4.2.3).
    pub cache: bool,
    /// Whatever is not one unit is logged first, so that a client's death at any verb can be mended. Not in the paper.
    pub redo: bool,
    /// After a few tries in vain an operation pauses between them, ever longer; otherwise it tries again at once, as the paper's
    /// systems do. On everywhere but in experiments on the NIC model: who never pauses takes the core from those it waits for, and
    /// where time is virtual keeps it from passing.
    pub backoff: bool,
}

impl Techniques {
    /// The paper's bound on consecutive handovers.
    pub const MAX_HANDOVERS: u32 = 4;

    /// None of the paper's: FG, as a baseline.
    pub const NONE: Self = Self {
        combine: false,
        hierarchical: false,
        queue: false,
        handover: false,
        lock_read: false,
        cache: false,
        redo: false,
        backoff: true,
    };

    /// The paper, complete.
    pub const SHERMAN: Self =
        Self { combine: true, hierarchical: true, queue: true, handover: true, cache: true, ..Self::NONE };

    /// Ours: the paper's, with lock and READ in one list, and crash-safe.
    pub const OURS: Self = Self { lock_read: true, redo: true, ..Self::SHERMAN };
}

impl Default for Techniques {
    fn default() -> Self {
        Self::OURS
    }
}
