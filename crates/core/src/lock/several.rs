//! Several lanes at once: merges and root shrinks change nodes that belong together.
//!
//! An operation takes the lanes one after the other in ascending (server, lane) order, and waits for each. An
//! operation that holds one lane alone never waits for another. An operation that holds several waits only
//! for higher ones. So there is no circular wait (I16). Two nodes may share a lane, which is then taken once.
//!
//! If a list fails half-way through such a change, the nodes contradict each other. Then the lanes stay taken
//! and the record stays written. Recovery finishes the change, and until then no operation may read those
//! nodes under a lane.

use super::global::Held;
use super::local::{LaneIndex, ReleasePlan};
use crate::error::Error;
use crate::op::Op;
use sherman_fabric::{Endpoint, FabricError, GlobalAddress, Space, VerbId, WorkList};

/// Several held lanes, and the nodes read under them, in the requested order.
#[derive(Debug)]
#[must_use = "lanes must be given back"]
pub(crate) struct LockedSeveral {
    pub lanes: Lanes,
    read: ReadAll,
}

/// Nodes that were read in parallel.
#[derive(Debug)]
pub(crate) struct ReadAll {
    lists: Vec<WorkList>,
    /// The list and verb of each node.
    places: Vec<(usize, VerbId)>,
}

impl ReadAll {
    /// The bytes of the requested node number `index`.
    pub(crate) fn image(&self, index: usize) -> &[u8] {
        let (list, read) = self.places[index];
        self.lists[list].bytes(read)
    }

    /// Recycles the buffers.
    pub(crate) fn recycle<E: Endpoint>(self, op: &Op<'_, E>) {
        self.lists.into_iter().for_each(|list| op.endpoint().recycle(list));
    }
}

/// Several held lanes.
#[derive(Debug)]
#[must_use = "lanes must be given back"]
pub(crate) struct Lanes(Vec<Held>);

impl LockedSeveral {
    /// The bytes of the requested node number `index`.
    pub(crate) fn image(&self, index: usize) -> &[u8] {
        self.read.image(index)
    }

    /// Recycles the buffers and keeps the lanes.
    pub(crate) fn done<E: Endpoint>(self, op: &Op<'_, E>) -> Lanes {
        self.read.recycle(op);
        self.lanes
    }
}

impl<E: Endpoint> Op<'_, E> {
    /// Takes the lanes of all `nodes` (address and size of each), then reads the nodes. Costs one round trip
    /// per lane and one for the READs.
    pub(crate) async fn lock_several(
        &self,
        nodes: &[(GlobalAddress, usize)],
    ) -> Result<LockedSeveral, Error> {
        self.worker.activate().await?;
        for &(address, bytes) in nodes {
            self.worker.compute.check_pointer(address, bytes)?;
        }
        let lanes = self.lanes_of(nodes);
        let mut held = Lanes(Vec::with_capacity(lanes.len()));
        for lane in lanes {
            match self.take_lane(lane).await {
                Ok(lane) => held.0.push(lane),
                Err(error) => {
                    let _ = self.release_several(held).await;
                    return Err(error);
                }
            }
        }
        match self.read_all(nodes.iter().copied()).await {
            Ok(read) => Ok(LockedSeveral { lanes: held, read }),
            Err(error) => {
                let _ = self.release_several(held).await;
                Err(error.into())
            }
        }
    }

    /// Returns the lanes of all `nodes`, each once and in order.
    pub(super) fn lanes_of(&self, nodes: &[(GlobalAddress, usize)]) -> Vec<LaneIndex> {
        seam!(lock::lanes_of(self, nodes));
        let lane = |&(address, _): &(GlobalAddress, usize)| self.lane_at(address);
        let mut lanes: Vec<LaneIndex> = nodes.iter().map(lane).collect();
        lanes.sort_unstable();
        lanes.dedup();
        lanes
    }

    /// Reads nodes with one list per server, all in flight at once.
    pub(crate) async fn read_all(
        &self,
        nodes: impl ExactSizeIterator<Item = (GlobalAddress, usize)>,
    ) -> Result<ReadAll, FabricError> {
        let mut lists: Vec<WorkList> = Vec::with_capacity(1);
        let mut places = Vec::with_capacity(nodes.len());
        for (address, bytes) in nodes {
            let known = lists.iter().position(|list| list.server() == address.server());
            let at = known.unwrap_or_else(|| {
                lists.push(self.endpoint().list(address.server()));
                lists.len() - 1
            });
            places.push((at, lists[at].read(Space::Host, address.offset(), bytes as u32)));
        }
        Ok(ReadAll { lists: self.execute_all(lists).await?, places })
    }

    /// Executes lists that do not depend on each other, all in flight at once.
    pub(crate) async fn execute_all(&self, mut lists: Vec<WorkList>) -> Result<Vec<WorkList>, FabricError> {
        if lists.len() == 1
            && let Some(list) = lists.pop()
        {
            lists.push(self.execute(list).await?);
            return Ok(lists);
        }
        let posted: Vec<_> = lists.drain(..).map(|list| self.execute(list)).collect();
        let mut outcome = Ok(());
        for list in posted {
            match list.await {
                Ok(list) => lists.push(list),
                Err(error) => outcome = Err(error),
            }
        }
        outcome.map(|()| lists)
    }

    /// Releases lanes without a change.
    pub(crate) async fn release_several(&self, lanes: Lanes) -> Result<(), FabricError> {
        let mut outcome = Ok(());
        for held in lanes.0.into_iter().rev() {
            outcome = self.release(held).await.and(outcome);
        }
        outcome
    }

    /// Executes `lists`, each after the completion of the one before, and releases the lanes. Where commands
    /// are combined, the last list carries the release of the lanes on its server. The other lanes are
    /// released when that list has completed. If a list fails, the lanes stay taken; see the module.
    pub(crate) async fn write_back_several(
        &self,
        lanes: Lanes,
        lists: Vec<WorkList>,
    ) -> Result<(), FabricError> {
        let mut lists = lists.into_iter().peekable();
        let mut rest = Vec::new();
        let mut outcome = Ok(());
        let mut lanes = lanes.0;
        while let Some(mut list) = lists.next() {
            let mut planned = Vec::new();
            if lists.peek().is_none() && self.worker.compute.techniques().combine {
                let (here, elsewhere) =
                    lanes.drain(..).partition(|held: &Held| held.server() == list.server());
                lanes = elsewhere;
                planned = here.into_iter().map(|held| self.plan(held, &mut list)).collect();
            }
            match self.execute(list).await {
                Ok(list) => self.endpoint().recycle(list),
                Err(error) => outcome = Err(error),
            }
            rest = planned;
            if outcome.is_err() {
                break;
            }
        }
        if let Err(error) = outcome {
            // The change under these lanes is half done. They stay taken until a recoverer of this client
            // frees them.
            rest.into_iter().for_each(|(held, _)| self.abandon(held));
            self.abandon_several(Lanes(lanes));
            return Err(error);
        }
        for (held, plan) in rest {
            outcome = self.finish_release(held, plan).await.and(outcome);
        }
        self.release_several(Lanes(lanes)).await.and(outcome)
    }

    /// Leaves lanes taken, for recovery.
    pub(crate) fn abandon_several(&self, lanes: Lanes) {
        lanes.0.into_iter().for_each(|held| self.abandon(held));
    }

    /// Decides whether to hand the lane over. If not, adds its release to `list`.
    fn plan(&self, held: Held, list: &mut WorkList) -> (Held, ReleasePlan) {
        let plan = self.plan_release(&held);
        if plan == ReleasePlan::Global {
            self.push_release(&held, list);
        }
        (held, plan)
    }
}
