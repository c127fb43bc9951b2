//! Broken rules of the group (`seam!` in `lib.rs`).

use super::Group;
use super::pending::Request;
use crate::machine::StateMachine;
use crate::mutant::{Mutant, broken, planted};
use crate::output::{Event, Ticket};

/// Answers a command at once. The state stays as it was.
pub(in crate::group) fn remember<S: StateMachine>(
    group: &mut Group<S>,
    index: u64,
    request: Request,
) -> Option<()> {
    if !planted(Mutant::AnswerBeforeCommit) || request.is_change {
        return None;
    }
    let command = group.raw.raft.raft_log.unstable_entries().last()?.get_data().to_vec();
    let before = group.state.snapshot();
    let result = Ok(group.state.apply(index, &command));
    group.state.restore(&before);
    group.output.events.push(Event::Proposed { ticket: request.ticket, result });
    Some(())
}

pub(in crate::group) fn may_lead() -> Option<bool> {
    broken(Mutant::TermNotDurable, true)
}

pub(in crate::group) fn may_send() -> Option<bool> {
    broken(Mutant::SendBeforeSync, true)
}

pub(in crate::group) fn collect_read<S: StateMachine>(
    group: &mut Group<S>,
    ticket: Ticket,
    until: u64,
) -> Option<()> {
    if planted(Mutant::ReadWithoutQuorum) {
        group.output.events.push(Event::Read { ticket, result: Ok(()) });
        return Some(());
    }
    let (_, round) = group.reads.round.as_mut().filter(|_| planted(Mutant::ReadJoinsRound))?;
    round.push((ticket, until));
    Some(())
}

pub(in crate::group) fn tail_to_keep() -> Option<usize> {
    broken(Mutant::SnapshotLosesTail, 0)
}

pub(in crate::group) fn snapshot_index(applied: u64) -> Option<u64> {
    broken(Mutant::SnapshotIndexLow, applied.saturating_sub(1))
}

pub(in crate::group) fn same_entry() -> Option<bool> {
    broken(Mutant::AnswerOfAnother, true)
}
