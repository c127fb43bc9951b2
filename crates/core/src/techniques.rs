//! The paper's techniques, each switchable. The same tree code runs as FG+, as the paper's Sherman, and as
//! this project's variant.

/// The techniques that a compute server uses. Settings fixed per cluster (lanes on chip, their width, how
/// they are released) are in the superblock. Settings fixed per tree (its format) are in the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Techniques {
    /// Write-back and release share one list, and so does a split on one server (paper §4.5).
    pub combine: bool,
    /// Threads of a compute server queue locally before one of them takes the lane (paper §4.3).
    pub hierarchical: bool,
    /// Threads queue first come, first served. Otherwise the fastest thread wins.
    pub queue: bool,
    /// A released lane goes to the next thread in the queue without leaving the compute server, at most
    /// [`Techniques::MAX_HANDOVERS`] times in a row. Has no effect without `hierarchical`.
    pub handover: bool,
    /// CAS and READ share a list, so a write takes two round trips. Not in the paper.
    pub lock_read: bool,
    /// Internal nodes are cached (paper §4.2.3).
    pub cache: bool,
    /// A change that is not one unit is logged first, so that recovery can repair a client's death at any
    /// verb. Not in the paper.
    pub redo: bool,
    /// After a few failed tries an operation pauses between tries, longer each time. Otherwise it retries at
    /// once, as the paper's systems do. It is on everywhere except in experiments on the NIC model. An
    /// operation that never pauses takes the core from the threads it waits for. Where time is virtual, it
    /// also keeps time from advancing.
    pub backoff: bool,
    /// An operation that waits for a lane leaves its change with the local queue. The holder of the lane
    /// executes up to [`Techniques::MAX_BATCH`] such changes in its own round trips. Needs `hierarchical` and
    /// `lock_read`, and a format that is read by the line. Not in the paper.
    pub combining: bool,
    /// A get that finds two READs of its lines in flight waits for the next one, and shares it with all gets
    /// of its compute server that wait by then. Needs a format that is read by the line. Has no effect where
    /// READs complete inside `post`. Not in the paper.
    pub shared_reads: bool,
    /// A lane that another compute server holds is tried again after a short, constant pause, with its READs
    /// each time. Otherwise pauses grow. Not in the paper.
    pub fair: bool,
}

impl Techniques {
    /// The most changes that the holder of a lane executes together, its own included.
    pub const MAX_BATCH: usize = 32;
    /// The paper's bound on consecutive handovers.
    pub const MAX_HANDOVERS: u32 = 4;

    /// No technique of the paper: FG, as a baseline.
    pub const NONE: Self = Self {
        combine: false,
        hierarchical: false,
        queue: false,
        handover: false,
        lock_read: false,
        cache: false,
        redo: false,
        backoff: true,
        combining: false,
        shared_reads: false,
        fair: false,
    };

    /// All techniques of the paper.
    pub const SHERMAN: Self =
        Self { combine: true, hierarchical: true, queue: true, handover: true, cache: true, ..Self::NONE };

    /// The default: all techniques of the paper but handovers, with lock and READ in one list, crash-safe,
    /// with changes combined under the lane, shared READs, and short pauses before a lane is tried again. A
    /// lane that is handed over would keep other compute servers waiting, and a batch leaves few waiters to
    /// hand it to.
    pub const OURS: Self = Self {
        lock_read: true,
        redo: true,
        handover: false,
        combining: true,
        shared_reads: true,
        fair: true,
        ..Self::SHERMAN
    };
}

impl Default for Techniques {
    fn default() -> Self {
        Self::OURS
    }
}
