//! Lanes: how an operation takes them, alone or together with a READ of the node, and releases them together
//! with the write-back.

use super::local::{Fairness, Finished, Grant, LaneIndex, ReleasePlan};
use crate::cause::Cause;
use crate::error::Error;
use crate::membership::Membership;
use crate::op::Op;
use crate::techniques::Techniques;
use sherman_fabric::{ComputeId, Endpoint, FabricError, GlobalAddress, Space, VerbId, WorkList};
use sherman_layout::ReleaseMode;
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::task::Poll;

/// A lane that this operation holds. The operation must release it.
#[derive(Debug)]
#[must_use = "a lane must be given back"]
pub struct Held {
    pub(super) lane: LaneIndex,
}

impl Held {
    /// The memory server the lane is on.
    pub(crate) fn server(&self) -> u16 {
        self.lane.server
    }
}

/// A held lane, and the node as read under it.
#[derive(Debug)]
#[must_use = "a lane must be given back"]
pub(crate) struct Locked {
    pub held: Held,
    pub address: GlobalAddress,
    pub(super) list: WorkList,
    pub(super) read: VerbId,
    pub(super) also: Option<VerbId>,
}

/// What to read under a lane: a part of the node it protects, and optionally another node on the same server.
#[derive(Clone, Copy)]
struct Nodes {
    node: GlobalAddress,
    /// First byte of the part, and its length.
    part: (usize, usize),
    /// Address and size.
    also: Option<(GlobalAddress, usize)>,
}

impl Nodes {
    fn read(self, list: &mut WorkList) -> (VerbId, Option<VerbId>) {
        let mut read = |offset: u64, bytes: usize| list.read(Space::Host, offset, bytes as u32);
        let (from, bytes) = self.part;
        let node = read(self.node.offset() + from as u64, bytes);
        (node, self.also.map(|(address, bytes)| read(address.offset(), bytes)))
    }
}

impl Locked {
    /// A held lane, and the part of the node at `address` that `read` of `list` has.
    pub(super) fn new(held: Held, address: GlobalAddress, list: WorkList, read: VerbId) -> Self {
        Self { held, address, list, read, also: None }
    }

    /// The bytes that another READ of the same list has.
    pub(crate) fn bytes(&self, read: VerbId) -> &[u8] {
        self.list.bytes(read)
    }

    /// The node's bytes.
    pub(crate) fn image(&self) -> &[u8] {
        self.list.bytes(self.read)
    }

    /// The bytes of the other node, if it was read too.
    pub(crate) fn also(&self) -> Option<&[u8]> {
        self.also.map(|read| self.list.bytes(read))
    }

    /// Recycles the buffers and keeps the lane.
    pub(crate) fn done<E: Endpoint>(self, op: &Op<'_, E>) -> Held {
        op.endpoint().recycle(self.list);
        self.held
    }
}

impl<E: Endpoint> Op<'_, E> {
    pub(super) fn techniques(&self) -> &Techniques {
        self.worker.compute.techniques()
    }

    /// Takes the lane of the node at `address` and reads `bytes` of it. CAS and READ share one list where
    /// techniques and caps allow; otherwise they follow each other. After a handover only the READ is needed.
    /// Also reads `also` after the lane is taken, if that costs no extra round trip.
    pub(crate) async fn lock(
        &self,
        address: GlobalAddress,
        bytes: usize,
        also: Option<(GlobalAddress, usize)>,
    ) -> Result<Locked, Error> {
        let also = also.filter(|(other, _)| other.server() == address.server());
        self.worker.compute.check_pointer(address, bytes)?;
        self.lock_part(Nodes { node: address, part: (0, bytes), also }).await
    }

    /// Like [`Op::lock`], but reads only `part` of the node of `bytes` bytes at `address`.
    #[inline]
    pub(crate) async fn lock_lines(
        &self,
        address: GlobalAddress,
        bytes: usize,
        part: Range<usize>,
    ) -> Result<Locked, Error> {
        self.worker.compute.check_pointer(address, bytes)?;
        self.lock_part(Nodes { node: address, part: (part.start, part.len()), also: None }).await
    }

    /// Reads the whole node of `bytes` bytes under a lane that is held for a part of it.
    pub(crate) async fn read_rest(&self, locked: Locked, bytes: usize) -> Result<Locked, Error> {
        let node = locked.address;
        let held = locked.done(self);
        self.read_under(held, Nodes { node, part: (0, bytes), also: None }).await
    }

    #[inline]
    async fn lock_part(&self, nodes: Nodes) -> Result<Locked, Error> {
        let address = nodes.node;
        if !self.may_take_lanes() {
            Box::pin(self.worker.activate()).await?;
        }
        let lane = self.lane_at(address);
        let first = GlobalAddress::new(address.server(), address.offset() + nodes.part.0 as u64);
        self.endpoint().hint(first, nodes.part.1);
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
        if self.worker.compute.is_terminated() {
            return Err(self.too_late(lane));
        }
        // Boxed, like everything that only some operations do. So the future of an operation stays small and
        // cheap to allocate.
        if !(self.techniques().lock_read && self.worker.compute.caps().lock_read) {
            return Box::pin(async {
                let held = self.lock_globally(lane).await?;
                self.read_under(held, nodes).await
            })
            .await;
        }
        match self.try_lock(lane, nodes).await? {
            (true, locked) => Ok(locked),
            (false, refused) => Box::pin(self.lock_again(refused, nodes)).await,
        }
    }

    /// Tries to take the lane by CAS, with the READs in the same list. The flag says whether that succeeded.
    /// If not, the lane is not held and the image is out of date.
    #[inline]
    async fn try_lock(&self, lane: LaneIndex, nodes: Nodes) -> Result<(bool, Locked), Error> {
        let mut list = self.endpoint().list(lane.server);
        self.push_ahead(&mut list);
        let cas = self.push_cas(lane, &mut list);
        let (read, also) = nodes.read(&mut list);
        let held = self.hold(lane);
        match self.execute(list).await {
            Ok(list) => {
                let swapped = list.swapped(cas);
                if !swapped {
                    self.suspect_holder(lane, list.old(cas));
                }
                Ok((swapped, Locked { held, address: nodes.node, list, read, also }))
            }
            Err(error) => Err(Box::pin(self.lock_failed(held, error)).await),
        }
    }

    /// Takes the lane after the first CAS failed. `refused` is not held, and its image is out of date: the
    /// holder may have changed the node since.
    async fn lock_again(&self, refused: Locked, nodes: Nodes) -> Result<Locked, Error> {
        let lane = refused.held.lane;
        seam!(let refused = lock::lock_again(self, refused).await);
        self.unhold(refused.done(self));
        self.retry_lane(lane).await?;
        // With short pauses most retries succeed, so each includes the READs. Otherwise only the last does.
        while self.techniques().fair {
            if self.worker.compute.is_terminated() {
                return Err(self.too_late(lane));
            }
            match self.try_lock(lane, nodes).await? {
                (true, locked) => return Ok(locked),
                (false, refused) => self.unhold(refused.done(self)),
            }
            self.retry_lane(lane).await?;
        }
        let held = self.lock_globally(lane).await?;
        self.read_under(held, nodes).await
    }

    /// The lane of the node at `address`.
    #[inline]
    pub(crate) fn lane_at(&self, address: GlobalAddress) -> LaneIndex {
        LaneIndex { server: address.server(), lane: self.worker.compute.lane(address) }
    }

    /// Returns `Fenced` without taking the lane, because this identity has ended. The thread that held the
    /// lane before may have a change in doubt, and the state of the lane decides its outcome.
    #[cold]
    pub(crate) fn too_late(&self, lane: LaneIndex) -> Error {
        let _ = self.finish(lane, ReleasePlan::Global);
        Error::Fenced { client: self.endpoint().client() }
    }

    /// Counts a lane as held. Called before the CAS is posted, because from then on the lane may be taken,
    /// until the client sees the result.
    #[inline]
    pub(crate) fn hold(&self, lane: LaneIndex) -> Held {
        self.worker.pulse.took();
        Held { lane }
    }

    /// Undoes `hold`: the CAS did not take the lane.
    pub(crate) fn unhold(&self, held: Held) {
        let Held { lane: _ } = held;
        self.worker.pulse.gave();
    }

    /// After some waiting, has the recoverer find out whether the lane's holder is dead. `word` is the lane's
    /// word.
    pub(crate) fn suspect_holder(&self, lane: LaneIndex, word: u64) {
        let (_, _, mask, shift) = self.worker.compute.geometry().lane_word(lane.lane);
        self.suspect_lane_holder(lane, ComputeId(((word & mask) >> shift) as u16));
    }

    /// Adds the CAS that takes a lane.
    #[inline]
    pub(crate) fn push_cas(&self, lane: LaneIndex, list: &mut WorkList) -> VerbId {
        let id = u64::from(self.endpoint().client().0);
        let (space, word, mask, shift) = self.worker.compute.geometry().lane_word(lane.lane);
        list.masked_cas(space, word, 0, id << shift, mask)
    }

    /// Pauses before another try. At the deadline it gives up and releases the local lock.
    pub(super) async fn retry_lane(&self, lane: LaneIndex) -> Result<(), Error> {
        seam!(lock::retry_lane(self, lane).await);
        self.retry_soon(Cause::LaneHeld).await.inspect_err(|_| {
            let _ = self.finish(lane, ReleasePlan::Global);
        })
    }

    /// Releases everything that was taken, after the list with the lane's CAS failed.
    pub(crate) async fn lock_failed(&self, held: Held, error: FabricError) -> Error {
        let lane = held.lane;
        Box::pin(self.release_if_ours(lane, &error)).await;
        let _ = self.finish(lane, ReleasePlan::Global);
        self.unhold(held);
        error.into()
    }

    /// Takes a lane without reading a node. [`Op::give_lane`] releases it.
    pub async fn take_lane(&self, lane: LaneIndex) -> Result<Held, Error> {
        self.worker.activate().await?;
        if self.techniques().hierarchical && self.lock_locally(lane).await? == Grant::HandedOver {
            self.count_handover();
            return Ok(self.hold(lane));
        }
        self.lock_globally(lane).await
    }

    /// Takes the local lock, or waits for it in the local queue until the deadline.
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
        let mut acquire = local.acquire(lane, fairness);
        let granted = std::future::poll_fn(|cx| {
            if let Poll::Ready(grant) = pin!(&mut acquire).poll(cx) {
                return Poll::Ready(Some(grant));
            }
            if self.worker.compute.is_terminated() || self.endpoint().now() >= deadline {
                return Poll::Ready(None);
            }
            self.endpoint().wake_at(deadline, cx.waker());
            Poll::Pending
        })
        .await;
        // A grant may arrive between the last poll and the cancellation. Then this thread holds the lock
        // after all.
        granted.or_else(|| acquire.cancel()).ok_or_else(|| match self.worker.compute.is_terminated() {
            true => Error::Fenced { client: self.endpoint().client() },
            false => self.timed_out(Cause::LocalQueue),
        })
    }

    /// Takes the lane by CAS, and retries until the deadline. The caller holds the local lock; on failure
    /// this function releases it.
    pub(super) async fn lock_globally(&self, lane: LaneIndex) -> Result<Held, Error> {
        loop {
            if self.worker.compute.is_terminated() {
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
        let address = nodes.node;
        let mut list = self.endpoint().list(address.server());
        let (read, also) = nodes.read(&mut list);
        match self.execute(list).await {
            Ok(list) => Ok(Locked { held, address, list, read, also }),
            Err(error) => {
                // The lane's server does not answer, so only the local lock can be released.
                let _ = Box::pin(self.release(held)).await;
                Err(error.into())
            }
        }
    }

    /// Adds the release of a lane to a list for its server.
    #[inline]
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

    /// Passes the local lock on, if there is a local table.
    #[inline]
    pub(crate) fn finish(&self, lane: LaneIndex, plan: ReleasePlan) -> Finished {
        if self.techniques().hierarchical {
            self.worker.compute.local.finish_release(lane, plan)
        } else {
            Finished::Done
        }
    }

    /// Executes `list` (to the lane's server) and gives the lane to the next thread in the queue, or releases
    /// it on the memory server. The release shares the list where commands are combined.
    pub(crate) async fn write_back(&self, held: Held, list: WorkList) -> Result<(), FabricError> {
        self.write_back_reading(held, list, |_| ()).await
    }

    /// Like `write_back`, and lets `take` look at the completed list.
    pub(crate) async fn write_back_reading(
        &self,
        held: Held,
        list: WorkList,
        take: impl FnOnce(&WorkList),
    ) -> Result<(), FabricError> {
        let lane = held.lane;
        debug_assert_eq!(list.server(), lane.server);
        let plan = self.plan_release(&held);
        seam!(let (held, list) = lock::write_back(self, held, list, plan).await);
        let mut list = list;
        let changes = !list.is_empty();
        if changes {
            self.push_links(&mut list);
        }
        let combined = plan == ReleasePlan::Global && (self.techniques().combine || list.is_empty());
        if combined {
            self.push_release(&held, &mut list);
        }
        let mut outcome = Ok(());
        // A change that cannot be posted did not happen, and the caller may learn that.
        if !list.is_empty() && self.endpoint().refuses(lane.server) {
            self.endpoint().recycle(list);
            outcome = Err(self.note_unposted());
        } else if !list.is_empty() {
            outcome = self.execute(list).await.map(|list| {
                take(&list);
                self.endpoint().recycle(list);
            });
        }
        if plan == ReleasePlan::Global && !combined && outcome.is_ok() {
            outcome = Box::pin(self.release_alone(&held)).await;
            if changes {
                outcome = self.excuse_release(outcome);
            }
        }
        if outcome.is_err() {
            return Box::pin(self.end_write_back(held, plan, outcome)).await;
        }
        let released = self.finish_release(held, plan).await;
        if changes { self.excuse_release(released) } else { released }
    }

    /// Gives the lane up after the outcome of the last list is known.
    pub(crate) async fn end_write_back(
        &self,
        held: Held,
        plan: ReleasePlan,
        outcome: Result<(), FabricError>,
    ) -> Result<(), FabricError> {
        if let Err(error) = &outcome {
            Box::pin(self.release_if_ours(held.lane, error)).await;
        }
        let plan = if outcome.is_ok() { plan } else { ReleasePlan::Global };
        self.finish_release(held, plan).await.and(outcome)
    }

    /// With replication a change has happened when its list has completed on all copies (W4). A release that
    /// fails afterwards ends the identity, and recovery frees the lane.
    fn excuse_release(&self, released: Result<(), FabricError>) -> Result<(), FabricError> {
        match released {
            Err(error) if self.worker.compute.volumes().is_some() && Membership::is_fatal(&error) => Ok(()),
            released => released,
        }
    }

    /// The holder calls this before it posts its last list. Tells whether that list must carry the release.
    #[inline]
    pub(crate) fn plan_release(&self, held: &Held) -> ReleasePlan {
        let techniques = self.techniques();
        if !techniques.hierarchical {
            return ReleasePlan::Global;
        }
        self.worker.compute.local.plan_release(held.lane, Techniques::MAX_HANDOVERS, techniques.handover)
    }

    /// The holder calls this after the completion of its last list. Passes the lane on as planned.
    pub(crate) async fn finish_release(&self, held: Held, plan: ReleasePlan) -> Result<(), FabricError> {
        let mut outcome = Ok(());
        if self.finish(held.lane, plan) != Finished::Done {
            outcome = Box::pin(self.release_alone(&held)).await;
            let _ = self.finish(held.lane, ReleasePlan::Global);
        }
        // Only now: until its release has completed, the lane counts as held.
        self.worker.pulse.gave();
        outcome
    }

    /// Leaves a lane taken and ends this identity. Only recovery can free the lane.
    pub(crate) fn abandon(&self, held: Held) {
        self.worker.pulse.gave();
        self.worker.compute.terminate();
        let _ = self.finish(held.lane, ReleasePlan::Global);
    }

    /// Releases the lane if this compute server still has it, after a list with the lane's CAS or release
    /// failed (F7: a prefix of it executed). No other thread of this compute server can have the lane while
    /// the local lock is held. Does nothing if the server is lost or has fenced this client.
    async fn release_if_ours(&self, lane: LaneIndex, error: &FabricError) {
        let past = error.lost().is_some() || Membership::is_fatal(error);
        if past {
            return;
        }
        if !self.techniques().hierarchical {
            // Other threads of this compute server may hold the lane under the same id by now. Recovery finds
            // out whether it is held.
            self.worker.compute.terminate();
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

    pub(super) async fn release_alone(&self, held: &Held) -> Result<(), FabricError> {
        let mut list = self.endpoint().list(held.lane.server);
        self.push_release(held, &mut list);
        self.execute(list).await.map(|list| self.endpoint().recycle(list))
    }

    /// Releases a lane that [`Op::take_lane`] took.
    pub async fn give_lane(&self, held: Held) -> Result<(), FabricError> {
        self.release(held).await
    }

    /// Releases the lane without a change.
    pub(crate) async fn release(&self, held: Held) -> Result<(), FabricError> {
        let list = self.endpoint().list(held.lane.server);
        self.write_back(held, list).await
    }
}
