//! Lanes: taking them, alone or together with a READ of the node, and giving them back together with the write-back.

use super::local::{Acquire, Fairness, Finished, Grant, LaneIndex, Plan};
use crate::cause::Cause;
use crate::error::Error;
use crate::membership::Membership;
use crate::mutant::{Mutant, planted};
use crate::op::Op;
use crate::techniques::Techniques;
use sherman_fabric::{ClientId, Endpoint, FabricError, GlobalAddress, Space, VerbId, WorkList};
use sherman_memory_server::ReleaseMode;
use std::future::Future;
use std::pin::pin;
use std::task::Poll;

/// A lane this operation holds. It must be given back.
#[derive(Debug)]
#[must_use = "a lane must be given back"]
pub struct Held {
    lane: LaneIndex,
}

impl Held {
    /// The memory server the lane is on.
    pub(crate) fn server(&self) -> u16 {
        self.lane.server
    }
}

/// A lane, and the node as it was read under it.
#[derive(Debug)]
#[must_use = "a lane must be given back"]
pub(crate) struct Locked {
    pub held: Held,
    pub address: GlobalAddress,
    list: WorkList,
    read: VerbId,
    also: Option<VerbId>,
}

/// What to read under a lane: the node it protects, and perhaps another on the same server. Address and size of each.
#[derive(Clone, Copy)]
struct Nodes {
    node: (GlobalAddress, usize),
    also: Option<(GlobalAddress, usize)>,
}

impl Nodes {
    fn read(self, list: &mut WorkList) -> (VerbId, Option<VerbId>) {
        let mut read =
            |(address, bytes): (GlobalAddress, usize)| list.read(Space::Host, address.offset(), bytes as u32);
        (read(self.node), self.also.map(read))
    }
}

impl Locked {
    /// The node's bytes.
    pub fn image(&self) -> &[u8] {
        self.list.bytes(self.read)
    }

    /// The bytes of the other node that was to be read along, if it was.
    pub fn also(&self) -> Option<&[u8]> {
        self.also.map(|read| self.list.bytes(read))
    }

    /// Gives the buffers back, keeping the lane.
    pub fn done<E: Endpoint>(self, op: &Op<'_, E>) -> Held {
        op.endpoint().recycle(self.list);
        self.held
    }
}

impl<E: Endpoint> Op<'_, E> {
    fn techniques(&self) -> &Techniques {
        self.worker.compute.techniques()
    }

    /// Takes the lane of the node at `address` and reads `bytes` of it: CAS and READ in one list where techniques and caps
    /// allow, else one after the other; the READ alone after a handover. Where it costs no round trip of its own, `also` is
    /// read along, after the lane is taken.
    pub(crate) async fn lock(
        &self,
        address: GlobalAddress,
        bytes: usize,
        also: Option<(GlobalAddress, usize)>,
    ) -> Result<Locked, Error> {
        let also = also.filter(|(other, _)| other.server() == address.server());
        let nodes = Nodes { node: (address, bytes), also };
        self.worker.compute.check_pointer(address, bytes)?;
        if !self.worker.compute.is_active() && !planted(Mutant::ActiveUnknown) {
            Box::pin(self.worker.activate()).await?;
        }
        let lane = LaneIndex { server: address.server(), lane: self.worker.compute.lane(address) };
        self.endpoint().hint(address, bytes);
        if self.techniques().hierarchical {
            let grant = match self.worker.compute.local.try_acquire(lane) {
                Some(grant) => grant,
                None => Box::pin(self.queue_locally(lane)).await?,
            };
            if grant == Grant::HandedOver {
                self.count_handover();
                return Box::pin(self.read_under(self.hold(lane), nodes)).await;
            }
        }
        if self.worker.compute.is_doomed() {
            return Err(self.too_late(lane));
        }
        // Boxed, as all that not every operation does: what is in flight stays small, and its memory is quickly had.
        if !(self.techniques().lock_read && self.worker.compute.caps().lock_read) {
            return Box::pin(async {
                let held = self.lock_globally(lane).await?;
                self.read_under(held, nodes).await
            })
            .await;
        }
        // A failed CAS discards the image, so only the first try pays for the READ.
        let mut list = self.endpoint().list(lane.server);
        let cas = self.push_cas(lane, &mut list);
        let (read, also) = nodes.read(&mut list);
        let held = self.hold(lane);
        match self.execute(list).await {
            Ok(list) if list.swapped(cas) => Ok(Locked { held, address, list, read, also }),
            Ok(list) => {
                self.unhold(held);
                self.suspect_holder(lane, list.old(cas));
                if planted(Mutant::StaleImage) {
                    Box::pin(self.retry_lane(lane)).await?;
                    return Ok(Locked { held: Box::pin(self.lock_globally(lane)).await?, address, list, read, also });
                }
                self.endpoint().recycle(list);
                Box::pin(async {
                    self.retry_lane(lane).await?;
                    let held = self.lock_globally(lane).await?;
                    self.read_under(held, nodes).await
                })
                .await
            }
            Err(error) => Err(Box::pin(self.lock_failed(held, error)).await),
        }
    }

    /// This identity has ended: the thread that held the lane before may not know what became of its change, and finds out by the lane.
    #[cold]
    fn too_late(&self, lane: LaneIndex) -> Error {
        let _ = self.finish(lane, Plan::Global);
        Error::Fenced { client: self.endpoint().client() }
    }

    /// A lane is taken, or about to be: from the post of the CAS on nobody knows whether it is, until somebody looks.
    #[inline]
    fn hold(&self, lane: LaneIndex) -> Held {
        self.worker.pulse.took();
        Held { lane }
    }

    /// It was not.
    fn unhold(&self, held: Held) {
        let Held { lane: _ } = held;
        self.worker.pulse.gave();
    }

    /// After some waiting, has it found out whether the holder of a lane, whose word is `word`, is dead.
    fn suspect_holder(&self, lane: LaneIndex, word: u64) {
        let (_, _, mask, shift) = self.worker.compute.geometry().lane_word(lane.lane);
        self.suspect(ClientId(((word & mask) >> shift) as u16));
    }

    /// Adds the CAS that takes a lane.
    fn push_cas(&self, lane: LaneIndex, list: &mut WorkList) -> VerbId {
        let id = u64::from(self.endpoint().client().0);
        let (space, word, mask, shift) = self.worker.compute.geometry().lane_word(lane.lane);
        list.masked_cas(space, word, 0, id << shift, mask)
    }

    /// Pauses before another try; at the deadline the local lock is given back.
    async fn retry_lane(&self, lane: LaneIndex) -> Result<(), Error> {
        if planted(Mutant::AnothersLane) {
            self.release_alone(&Held { lane }).await?;
        }
        self.retry(Cause::LaneHeld).await.inspect_err(|_| {
            let _ = self.finish(lane, Plan::Global);
        })
    }

    /// Gives back whatever was taken when the list with the lane's CAS failed.
    async fn lock_failed(&self, held: Held, error: FabricError) -> Error {
        let lane = held.lane;
        self.unhold(held);
        Box::pin(self.release_if_ours(lane, &error)).await;
        let _ = self.finish(lane, Plan::Global);
        error.into()
    }

    /// Takes a lane alone: what it protects is read later. [`Op::give_lane`] gives it back.
    pub async fn take_lane(&self, lane: LaneIndex) -> Result<Held, Error> {
        self.worker.activate().await?;
        if self.techniques().hierarchical && self.lock_locally(lane).await? == Grant::HandedOver {
            self.count_handover();
            return Ok(self.hold(lane));
        }
        self.lock_globally(lane).await
    }

    /// Joins the local queue. Waiting is by deadline.
    async fn lock_locally(&self, lane: LaneIndex) -> Result<Grant, Error> {
        let local = &self.worker.compute.local;
        match local.try_acquire(lane) {
            Some(grant) => Ok(grant),
            None => Box::pin(self.queue_locally(lane)).await,
        }
    }

    async fn queue_locally(&self, lane: LaneIndex) -> Result<Grant, Error> {
        let local = &self.worker.compute.local;
        self.note(Cause::LocalQueue)?;
        let fairness = if self.techniques().queue { Fairness::Fifo } else { Fairness::Barging };
        let deadline = self.deadline();
        let mut acquire: Acquire<'_> = local.acquire(lane, fairness);
        let granted = std::future::poll_fn(|cx| {
            if let Poll::Ready(grant) = pin!(&mut acquire).poll(cx) {
                return Poll::Ready(Some(grant));
            }
            if self.worker.compute.is_doomed() || self.endpoint().now() >= deadline {
                return Poll::Ready(None);
            }
            self.endpoint().wake_at(deadline, cx.waker());
            Poll::Pending
        })
        .await;
        // A grant may arrive between the last poll and the cancellation: then the lock is ours after all.
        granted.or_else(|| acquire.cancel()).ok_or_else(|| match self.worker.compute.is_doomed() {
            true => Error::Fenced { client: self.endpoint().client() },
            false => self.timed_out(Cause::LocalQueue),
        })
    }

    /// Takes the lane by CAS, trying until the deadline. The local lock is held, and given back if that fails.
    async fn lock_globally(&self, lane: LaneIndex) -> Result<Held, Error> {
        loop {
            if self.worker.compute.is_doomed() {
                return Err(self.too_late(lane));
            }
            let mut list = self.endpoint().list(lane.server);
            let cas = self.push_cas(lane, &mut list);
            let held = self.hold(lane);
            let list = match self.execute(list).await {
                Ok(list) => list,
                Err(error) => return Err(self.lock_failed(held, error).await),
            };
            let (swapped, word) = (list.swapped(cas), list.old(cas));
            self.endpoint().recycle(list);
            if swapped {
                return Ok(held);
            }
            self.unhold(held);
            self.suspect_holder(lane, word);
            self.retry_lane(lane).await?;
        }
    }

    async fn read_under(&self, held: Held, nodes: Nodes) -> Result<Locked, Error> {
        let address = nodes.node.0;
        let mut list = self.endpoint().list(address.server());
        let (read, also) = nodes.read(&mut list);
        match self.execute(list).await {
            Ok(list) => Ok(Locked { held, address, list, read, also }),
            Err(error) => {
                // The lane's server does not answer; what can be given back is the local lock.
                let _ = Box::pin(self.release(held)).await;
                Err(error.into())
            }
        }
    }

    /// Adds the release of a lane to a list for its server.
    pub(crate) fn push_release(&self, held: &Held, list: &mut WorkList) {
        let lane = held.lane;
        let id = u64::from(self.endpoint().client().0);
        let geometry = self.worker.compute.geometry();
        let (space, word, mask, shift) = geometry.lane_word(lane.lane);
        match geometry.lock.release {
            ReleaseMode::Write => {
                let (offset, len) = geometry.lane_byte_range(lane.lane);
                list.write(space, offset, &[0; 8][..len as usize]);
            }
            ReleaseMode::Faa => {
                list.faa(space, word, 0_u64.wrapping_sub(id << shift));
            }
            ReleaseMode::Cas => {
                list.masked_cas(space, word, id << shift, 0, mask);
            }
        }
    }

    /// Passes the local lock on, if there is one.
    fn finish(&self, lane: LaneIndex, plan: Plan) -> Finished {
        if self.techniques().hierarchical {
            self.worker.compute.local.finish_release(lane, plan)
        } else {
            Finished::Done
        }
    }

    /// Executes `list` (to the lane's server) and gives the lane back: to the next thread in the queue, or to the memory
    /// server, in the same list where commands are combined.
    pub(crate) async fn write_back(&self, held: Held, mut list: WorkList) -> Result<(), FabricError> {
        let lane = held.lane;
        debug_assert_eq!(list.server(), lane.server);
        let plan = self.plan_release(&held);
        let combined = plan == Plan::Global && (self.techniques().combine || list.is_empty());
        if combined && planted(Mutant::ReleaseBeforeData) && !list.is_empty() {
            Box::pin(self.release_alone(&held)).await?;
        } else if combined {
            self.push_release(&held, &mut list);
        }
        if planted(Mutant::HandoverBeforeCompletion) && plan == Plan::HandOver && !list.is_empty() {
            let posted = Box::pin(self.execute(list));
            let handed_over = Box::pin(self.finish_release(held, plan)).await;
            return posted.await.map(drop).and(handed_over);
        }
        let mut outcome = Ok(());
        // A change that cannot be sent did not happen, which its caller may know.
        if !list.is_empty() && self.endpoint().refuses(lane.server) {
            self.endpoint().recycle(list);
            outcome = Err(self.note_unposted());
        } else if !list.is_empty() {
            outcome = self.execute(list).await.map(|list| self.endpoint().recycle(list));
        }
        if plan == Plan::Global && !combined && outcome.is_ok() {
            outcome = Box::pin(self.release_alone(&held)).await;
        }
        if let Err(error) = &outcome {
            Box::pin(self.release_if_ours(lane, error)).await;
        }
        let plan = if outcome.is_ok() { plan } else { Plan::Global };
        self.finish_release(held, plan).await.and(outcome)
    }

    /// For the holder, before it posts its last list: whether that must carry the release.
    pub(crate) fn plan_release(&self, held: &Held) -> Plan {
        let techniques = self.techniques();
        if !techniques.hierarchical {
            return Plan::Global;
        }
        self.worker.compute.local.plan_release(held.lane, Techniques::MAX_HANDOVERS, techniques.handover)
    }

    /// For the holder, after the completion of its last list: passes the lane on as planned.
    pub(crate) async fn finish_release(&self, held: Held, plan: Plan) -> Result<(), FabricError> {
        self.worker.pulse.gave();
        if self.finish(held.lane, plan) == Finished::Done {
            return Ok(());
        }
        let outcome = Box::pin(self.release_alone(&held)).await;
        let _ = self.finish(held.lane, Plan::Global);
        outcome
    }

    /// Leaves a lane taken for recovery, which alone can free it: this identity is at its end.
    pub(crate) fn abandon(&self, held: Held) {
        self.worker.pulse.gave();
        self.worker.compute.doom();
        let _ = self.finish(held.lane, Plan::Global);
    }

    /// After a list with the lane's CAS or release failed (F7: a prefix of it executed), gives the lane back if this
    /// compute server still has it: no other thread of it can, while the local lock is held. A server that is lost, or has
    /// fenced us, is past caring.
    async fn release_if_ours(&self, lane: LaneIndex, error: &FabricError) {
        let past = matches!(error, FabricError::ServerLost { .. }) || Membership::is_fatal(error);
        if past {
            return;
        }
        if !self.techniques().hierarchical {
            // Other threads of ours may hold it under the same id by now: who has it, recovery finds out.
            self.worker.compute.doom();
            return;
        }
        let id = u64::from(self.endpoint().client().0);
        let (space, word, mask, shift) = self.worker.compute.geometry().lane_word(lane.lane);
        let mut list = self.endpoint().list(lane.server);
        list.masked_cas(space, word, id << shift, 0, mask);
        if let Ok(list) = self.execute(list).await {
            self.endpoint().recycle(list);
        }
    }

    async fn release_alone(&self, held: &Held) -> Result<(), FabricError> {
        let mut list = self.endpoint().list(held.lane.server);
        self.push_release(held, &mut list);
        self.execute(list).await.map(|list| self.endpoint().recycle(list))
    }

    /// Gives a lane back that was taken alone.
    pub async fn give_lane(&self, held: Held) -> Result<(), FabricError> {
        self.release(held).await
    }

    /// Gives the lane back without a change.
    pub(crate) async fn release(&self, held: Held) -> Result<(), FabricError> {
        let list = self.endpoint().list(held.lane.server);
        self.write_back(held, list).await
    }
}
