//! Mutants: bugs planted on purpose, to show that tests find them.
//!
//! Each mutant breaks one rule; `seam.rs` has the broken rule. Both exist only with the cargo feature
//! `mutants`. A thread plants at most one bug at a time, for itself alone.

use std::cell::Cell;

/// A rule that can be broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutant {
    /// A leader answers a proposal when it has appended it.
    AnswerBeforeCommit,
    /// A node sends messages before the disk has what they promise.
    SendBeforeSync,
    /// The only voter sends entries in a term that its disk does not have.
    TermNotDurable,
    /// A leader answers a read without asking a majority.
    ReadWithoutQuorum,
    /// A read joins a round of questions that began before it.
    ReadJoinsRound,
    /// The entries after a snapshot are missing in the new segment.
    SnapshotLosesTail,
    /// A snapshot has the last command in its state and not in its index, so the command is applied twice.
    SnapshotIndexLow,
    /// The log does not keep the vote.
    VoteForgotten,
    /// A restarted node keeps an entry that a later one replaced.
    OldEntryWins,
    /// A proposal gets the answer of another leader's command at the same index.
    AnswerOfAnother,
}

impl Mutant {
    /// All mutants.
    pub const ALL: &[Self] = &[
        Self::AnswerBeforeCommit,
        Self::SendBeforeSync,
        Self::TermNotDurable,
        Self::ReadWithoutQuorum,
        Self::ReadJoinsRound,
        Self::SnapshotLosesTail,
        Self::SnapshotIndexLow,
        Self::VoteForgotten,
        Self::OldEntryWins,
        Self::AnswerOfAnother,
    ];
}

thread_local! {
    static PLANTED: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Plants a bug, or none, for this thread.
pub fn plant(mutant: Option<Mutant>) {
    PLANTED.set(mutant);
}

/// Whether this thread has this bug planted.
pub(crate) fn planted(mutant: Mutant) -> bool {
    PLANTED.get() == Some(mutant)
}

/// `Some(answer)`, the answer of a broken rule, if this thread has this bug planted.
pub(crate) fn broken<T>(mutant: Mutant, answer: T) -> Option<T> {
    planted(mutant).then_some(answer)
}
