//! Mutants: bugs planted on purpose, to show that tests find them (`docs/TESTING.md`, "Mutants").
//!
//! Each mutant breaks one rule of the endpoint. A thread plants at most one bug at a time, for itself alone.

use sherman_fabric::{Progress, Role};
use std::cell::Cell;

/// A rule that can be broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutant {
    /// The primary's list, with the release of the lane, is posted before the backup's (W1).
    PrimaryFirst,
    /// The primary's list, with the release of the lane, is posted together with the backup's (W1).
    ReleaseBeforeBackup,
    /// A client goes on without a backup that it cannot reach (T2).
    AloneOnError,
    /// A list that failed at a surviving copy counts as completed (W8).
    ErrorSettles,
    /// A CAS of a root word goes to the primary alone.
    RootOnPrimaryOnly,
    /// A redo record goes to the primary alone (W2).
    RecordOnPrimaryOnly,
    /// The record of a change whose CAS the backup refused stays at the backup alone (W2).
    RefusedOnBackupOnly,
}

impl Mutant {
    /// All mutants.
    pub const ALL: &[Self] = &[
        Self::PrimaryFirst,
        Self::ReleaseBeforeBackup,
        Self::AloneOnError,
        Self::ErrorSettles,
        Self::RootOnPrimaryOnly,
        Self::RecordOnPrimaryOnly,
        Self::RefusedOnBackupOnly,
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

/// Takes a part that failed as completed.
pub(crate) fn settle(progress: Progress) -> Progress {
    if !planted(Mutant::ErrorSettles) {
        return progress;
    }
    let both = Role::ALL.into_iter().filter(|&role| progress.touched(role));
    Progress { done: both.fold(progress.done, |done, role| done.with(role)), ..progress }
}

/// Whether a WRITE of these bytes is a redo record, which a planted bug does not send to the backup.
pub(crate) fn skips_record(bytes: &[u8]) -> bool {
    planted(Mutant::RecordOnPrimaryOnly) && bytes.starts_with(b"RDO")
}
