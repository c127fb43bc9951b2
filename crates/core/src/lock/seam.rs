//! Broken rules of lanes and local locks (`crate::seam`).

use super::batch::JobWaiter;
use super::global::{Held, Locked};
use super::local::{Fairness, Grant, LaneIndex, LocalLockTable, ReleasePlan};
use crate::cause::Cause;
use crate::error::Error;
use crate::mutant::{Mutant, planted};
use crate::op::Op;
use sherman_fabric::{Endpoint, FabricError, GlobalAddress, WorkList};
use std::ops::ControlFlow;

/// Mutants that skip the lane of one of the three nodes of a merge.
const MERGED: [Mutant; 3] =
    [Mutant::MergeWithoutParentLane, Mutant::MergeWithoutLeftLane, Mutant::MergeWithoutRightLane];

pub(super) fn lanes_of<E: Endpoint>(
    op: &Op<'_, E>,
    nodes: &[(GlobalAddress, usize)],
) -> Option<Vec<LaneIndex>> {
    let &[parent, left, right] = nodes else { return None };
    let kept = match MERGED.map(planted) {
        [true, ..] => [left, right],
        [_, true, _] => [parent, right],
        [.., true] => [parent, left],
        _ => return None,
    };
    Some(op.lanes_of(&kept))
}

/// Uses the image that was read along with the CAS that failed.
pub(super) async fn lock_again<E: Endpoint>(
    op: &Op<'_, E>,
    refused: Locked,
) -> ControlFlow<Result<Locked, Error>, Locked> {
    if !planted(Mutant::StaleImage) {
        return ControlFlow::Continue(refused);
    }
    let Locked { held, address, list, read, also } = refused;
    let lane = held.lane;
    op.unhold(held);
    let held = async {
        op.retry_lane(lane).await?;
        op.lock_globally(lane).await
    };
    ControlFlow::Break(held.await.map(|held| Locked { held, address, list, read, also }))
}

/// Releases a lane that another client holds, before the next try.
pub(super) async fn retry_lane<E: Endpoint>(op: &Op<'_, E>, lane: LaneIndex) -> Option<Result<(), Error>> {
    if !planted(Mutant::AnothersLane) {
        return None;
    }
    op.release_alone(&Held { lane }).await.err().map(|error| Err(error.into()))
}

/// Gives a lane to other clients or threads before the data is written.
pub(super) async fn write_back<E: Endpoint>(
    op: &Op<'_, E>,
    held: Held,
    list: WorkList,
    plan: ReleasePlan,
) -> ControlFlow<Result<(), FabricError>, (Held, WorkList)> {
    if list.is_empty() {
        return ControlFlow::Continue((held, list));
    }
    let combines = op.worker.compute.techniques().combine;
    if planted(Mutant::ReleaseBeforeData) && plan == ReleasePlan::Global && combines {
        let released = Box::pin(op.release_alone(&held)).await;
        let outcome = match released {
            Ok(()) => op.execute(list).await.map(drop),
            Err(error) => Err(error),
        };
        return ControlFlow::Break(Box::pin(op.finish_release(held, plan)).await.and(outcome));
    }
    if planted(Mutant::HandoverBeforeCompletion) && plan == ReleasePlan::HandOver {
        let posted = Box::pin(op.execute(list));
        let handed_over = Box::pin(op.finish_release(held, plan)).await;
        return ControlFlow::Break(posted.await.map(drop).and(handed_over));
    }
    ControlFlow::Continue((held, list))
}

/// Gives up an operation whose change the holder executes.
pub(super) fn wait_on<'c, E: Endpoint>(
    op: &Op<'_, E>,
    waiting: JobWaiter<'c>,
) -> ControlFlow<Result<JobWaiter<'c>, Error>, JobWaiter<'c>> {
    if planted(Mutant::LeavesTaken) {
        return ControlFlow::Break(Err(op.timed_out(Cause::LocalQueue)));
    }
    ControlFlow::Continue(waiting)
}

/// Takes the local lock if it is free. The holder does not learn of a waiter.
pub(super) fn take_or_mark<J, R>(
    table: &LocalLockTable<J, R>,
    slot: usize,
    fairness: Fairness,
) -> Option<Option<Grant>> {
    planted(Mutant::LostWakeUp).then(|| table.try_take(slot, fairness))
}
