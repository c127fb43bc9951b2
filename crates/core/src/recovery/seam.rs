//! Broken rules of recovery, and of joining and leaving (`crate::seam`).

use super::replay::Rest;
use super::{Asked, Recoverer, Step};
use crate::error::Error;
use crate::mutant::{Mutant, planted};
use crate::node::Header;
use crate::redo::{Record, RecordKind};
use crate::tree::write::LoggedPart;
use crate::worker::Worker;
use sherman_fabric::{ComputeId, Endpoint, FabricError, Verdict};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// The steps of a recovery in a wrong order, or without one of them.
pub(super) fn steps() -> Option<&'static [Step]> {
    use Step::{Blocks, Fence, Finish, FreeId, Learn, Level, Relieve, Replay, Retire, Sweep, TellFates};
    const WRONG: [(Mutant, &[Step]); 6] = [
        (
            Mutant::BlocksAfterSweep,
            &[Fence, Level, TellFates, Learn, Replay, Sweep, Blocks, Relieve, Finish, Retire, FreeId],
        ),
        (
            Mutant::ReplayWithoutFencing,
            &[TellFates, Learn, Replay, Fence, Sweep, Relieve, Finish, Retire, FreeId],
        ),
        (
            Mutant::TakeoverWithoutFencing,
            &[TellFates, Learn, Replay, Sweep, Relieve, Finish, Fence, Retire, FreeId],
        ),
        (
            Mutant::SweepBeforeReplay,
            &[Fence, TellFates, Learn, Sweep, Replay, Sweep, Relieve, Finish, Retire, FreeId],
        ),
        (Mutant::IdReissuedEarly, &[Fence, TellFates, Learn, Replay, Relieve, Finish, Retire, FreeId, Sweep]),
        (Mutant::FenceLeft, &[Fence, TellFates, Learn, Replay, Sweep, Relieve, Finish, FreeId]),
    ];
    WRONG.iter().find(|(mutant, _)| planted(*mutant)).map(|(_, steps)| *steps)
}

/// Does not compare the copies of what a dead member left.
pub(super) fn level() -> Option<Result<(), Error>> {
    planted(Mutant::CopiesNotCompared).then_some(Ok(()))
}

/// Leaves the primary without the records that it lacks.
pub(super) fn copies_records() -> Option<bool> {
    planted(Mutant::RecordsNotCopied).then_some(false)
}

/// Leaves the root words of the copies as they are.
pub(super) fn level_root() -> Option<Result<(), Error>> {
    planted(Mutant::RootsNotCompared).then_some(Ok(()))
}

/// Frees the nodes of a dropped tree while identities of older epochs can change them.
pub(super) fn await_older() -> Option<Result<(), Error>> {
    planted(Mutant::OlderNotAwaited).then_some(Ok(()))
}

/// Asks control before other threads are kept from recovering the same members.
pub(super) async fn ask_alone<'w, E: Endpoint>(
    worker: &'w Worker<E>,
    clients: &[ComputeId],
) -> Option<Result<Vec<Asked<'w>>, Error>> {
    if !planted(Mutant::StaleVerdict) {
        return None;
    }
    let asked = async {
        let verdicts = worker.ask(clients).await?;
        let mut guards = worker.take_alone(clients);
        let busy = Verdict::Recovering { by: worker.compute.client() };
        let asked = clients.iter().zip(verdicts).map(|(&client, verdict)| {
            let guard = guards.remove(&client);
            let verdict = if guard.is_some() { verdict } else { busy };
            (client, guard, verdict)
        });
        Ok(asked.collect())
    };
    Some(asked.await)
}

pub(super) fn may_recover(verdict: Verdict) -> Option<bool> {
    let displaced = matches!(verdict, Verdict::Displaced { .. });
    (displaced && planted(Mutant::RecoversBeside)).then_some(true)
}

/// Continues without a server that only this client cannot reach, or without a fence that did not happen.
pub(super) fn unless_lost<T, E: Endpoint>(
    recoverer: &mut Recoverer<'_, E>,
    server: u16,
    outcome: Result<T, FabricError>,
) -> ControlFlow<Result<Option<T>, Error>, Result<T, FabricError>> {
    match outcome {
        Err(FabricError::Disconnected { .. }) if planted(Mutant::PrivateLoss) => {
            recoverer.lost.insert(server);
            ControlFlow::Break(Ok(None))
        }
        Err(FabricError::OwnerStalled { .. }) if planted(Mutant::StallIgnored) => {
            ControlFlow::Break(Ok(None))
        }
        outcome => ControlFlow::Continue(outcome),
    }
}

pub(super) fn replay_one(record: &Record, listed: bool) -> Option<Result<Rest, Error>> {
    let always = matches!(record.kind, RecordKind::Image | RecordKind::Drop);
    (!listed && !always && planted(Mutant::EndedNotReplayed)).then_some(Ok(Rest::Nothing))
}

pub(super) fn free_made() -> Option<Result<(), Error>> {
    planted(Mutant::PendingKept).then_some(Ok(()))
}

pub(super) async fn split_happened<E: Endpoint>(
    recoverer: &mut Recoverer<'_, E>,
    record: &Record,
) -> Option<Result<bool, Error>> {
    if !planted(Mutant::SplitBySibling) {
        return None;
    }
    let names_made =
        |image: Vec<u8>| Header::decode(&image).is_some_and(|header| header.sibling == record.made);
    Some(recoverer.read_node(record.node).await.map(|image| image.is_none_or(names_made)))
}

pub(super) fn replay_merge() -> Option<Result<(), Error>> {
    planted(Mutant::MergeNotFinished).then_some(Ok(()))
}

pub(super) fn unlink_parts() -> Option<&'static [LoggedPart]> {
    planted(Mutant::UnlinkUnlogged).then_some(&[LoggedPart::Data, LoggedPart::Cleared])
}

pub(super) fn growth_happened() -> Option<bool> {
    planted(Mutant::GrowthBelieved).then_some(true)
}

pub(super) fn is_free_already() -> Option<bool> {
    planted(Mutant::FreeMarkedAgain).then_some(false)
}

pub(super) fn is_dead(holder: u64) -> Option<bool> {
    planted(Mutant::SweepsOthers).then_some(holder != 0)
}

pub(super) fn is_over() -> Option<bool> {
    planted(Mutant::TerminatedRenews).then_some(false)
}

/// Recovers members in the keeper.
pub(super) async fn report_expired<E: Endpoint>(worker: &Worker<E>, expired: &[ComputeId]) -> Option<()> {
    if !planted(Mutant::RecoversInline) {
        return None;
    }
    worker.compute.membership.suspect_all(expired);
    let _ = worker.recover_many(expired).await;
    Some(())
}

/// Forgets all suspects.
pub(super) fn take_suspects<E: Endpoint>(worker: &Worker<E>) -> Option<BTreeSet<ComputeId>> {
    (planted(Mutant::ExpiredUnnoticed) || planted(Mutant::RecoversInline)).then(|| {
        worker.compute.membership.take_suspects();
        BTreeSet::new()
    })
}

pub(super) fn expect_departure() -> Option<Result<(), Error>> {
    planted(Mutant::LeavesTerminated).then_some(Ok(()))
}

pub(super) fn check_released(answer: &Result<(), FabricError>) -> Option<Result<(), Error>> {
    let unreachable = matches!(answer, Err(FabricError::Disconnected { .. }));
    (unreachable && planted(Mutant::LeavesTerminated)).then_some(Ok(()))
}

/// Takes every block of a dead member for one that nothing refers to.
pub(super) fn refers_to() -> Option<bool> {
    planted(Mutant::ReferenceForgotten).then_some(false)
}

/// Frees what the place of a replaced block holds by now.
pub(super) fn is_same_block(header: &Header) -> Option<bool> {
    (planted(Mutant::BlockFreedAgain) && !header.flags.pending).then_some(true)
}
