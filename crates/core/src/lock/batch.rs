//! Takes a lane for several changes at once: the holder's own, and those that wait for the lane in the local
//! queue.
//!
//! The first list takes the lane and reads the lines of every change that waits by then. It does so in every
//! try, so that the try that succeeds has all of them:
//!
//! ```text
//! [CAS lane, READ lines, READ lines, …]
//! ```
//! A change may also join after that list, until the holder makes the list of WRITEs, if its lines were read
//! under the lane (`Op::join_late`). A change that joins later would be acknowledged without being written.

use super::global::{Held, Locked};
use super::job::{Job, JobResult};
use super::local::{AcquireWith, Cancelled, Fairness, Grant, LaneIndex, Taken, Turn};
use crate::cause::Cause;
use crate::error::Error;
use crate::op::Op;
use crate::techniques::Techniques;
use sherman_fabric::{Endpoint, GlobalAddress, Space, VerbId, WorkList};
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::task::Poll;

/// A job that the holder of a lane has taken.
pub(crate) type TakenJob<'c> = Taken<'c, Job, JobResult>;

/// An operation that waits with a job.
pub(super) type JobWaiter<'c> = AcquireWith<'c, Job, JobResult>;

/// The lines that a change needs: the leaf, and a range of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lines {
    pub leaf: GlobalAddress,
    pub range: Range<usize>,
}

impl<'c> Gathered<'c> {
    /// A held lane with the holder's own lines, and no jobs.
    pub(crate) fn alone(
        held: Held,
        lane: LaneIndex,
        leaf: GlobalAddress,
        list: WorkList,
        read: VerbId,
    ) -> Self {
        let locked = Locked::new(held, leaf, list, read);
        Self { locked, jobs: Vec::new(), lane, reads: Vec::new(), own: read }
    }
}

impl Lines {
    pub(crate) fn read(&self, list: &mut WorkList) -> VerbId {
        list.read(Space::Host, self.leaf.offset() + self.range.start as u64, self.range.len() as u32)
    }
}

/// A held lane, the lines read under it, and the jobs that belong to them.
#[must_use = "a lane must be given back"]
pub(crate) struct Gathered<'c> {
    /// The lane, and the lines of the holder's own change.
    pub locked: Locked,
    /// Jobs to execute, each with the READ of its lines.
    pub jobs: Vec<(TakenJob<'c>, VerbId)>,
    lane: LaneIndex,
    /// All lines that were read, with their READs. Empty if there are only the holder's own.
    reads: Vec<(Lines, VerbId)>,
    own: VerbId,
}

impl<'w, E: Endpoint> Op<'w, E> {
    /// Waits in the local queue with a job, until the deadline. While a holder executes the job, it waits on.
    pub(crate) async fn queue_with_job(
        &self,
        lane: LaneIndex,
        job: Job,
    ) -> Result<Turn<Job, JobResult>, Error> {
        self.note(Cause::LocalQueue)?;
        let compute = &self.worker.compute;
        let fairness = if self.techniques().queue { Fairness::Fifo } else { Fairness::Barging };
        let deadline = self.deadline();
        let mut waiting = compute.local.acquire_with(lane, fairness, job);
        loop {
            let turn = std::future::poll_fn(|cx| {
                if let Poll::Ready(turn) = Pin::new(&mut waiting).poll(cx) {
                    return Poll::Ready(Some(turn));
                }
                if compute.is_terminated() || self.endpoint().now() >= deadline {
                    return Poll::Ready(None);
                }
                self.endpoint().wake_at(deadline, cx.waker());
                Poll::Pending
            });
            if let Some(turn) = turn.await {
                return Ok(turn);
            }
            waiting = match waiting.cancel() {
                Cancelled::Left(_) if compute.is_terminated() => {
                    return Err(Error::Fenced { client: self.endpoint().client() });
                }
                Cancelled::Left(_) => return Err(self.timed_out(Cause::LocalQueue)),
                Cancelled::Granted(grant, job) => return Ok(Turn::Granted(grant, job)),
                Cancelled::Done(result) => return Ok(Turn::Done(result)),
                Cancelled::Abandoned => return Ok(Turn::Abandoned),
                Cancelled::Taken(waiting) => self.wait_on(waiting)?,
            };
            // The holder ends soon: its own deadline and its connection bound it. Then it wakes this
            // operation.
            let mut woken = false;
            let turn = std::future::poll_fn(|cx| match Pin::new(&mut waiting).poll(cx) {
                Poll::Ready(turn) => Poll::Ready(Some(turn)),
                Poll::Pending if std::mem::replace(&mut woken, true) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            });
            if let Some(turn) = turn.await {
                return Ok(turn);
            }
        }
    }

    /// A job that a holder executes cannot be withdrawn: its operation waits for the outcome.
    fn wait_on(&self, waiting: JobWaiter<'w>) -> Result<JobWaiter<'w>, Error> {
        seam!(let waiting = lock::wait_on(self, waiting));
        Ok(waiting)
    }

    /// Takes the lane, whose local lock the caller holds, and reads the lines of the caller's change and of
    /// the changes that wait. `lines_of` returns the lines of a job. Until the deadline; on failure the lane
    /// and the jobs are given back.
    pub(crate) async fn lock_batch(
        &self,
        lane: LaneIndex,
        grant: Grant,
        tree: u32,
        own: Lines,
        lines_of: impl Fn(&Job) -> Lines,
    ) -> Result<Gathered<'w>, Error> {
        let local = &self.worker.compute.local;
        if grant == Grant::HandedOver {
            self.count_handover();
        }
        let mut taken: Vec<TakenJob<'w>> = Vec::new();
        loop {
            if self.worker.compute.is_terminated() {
                give_back(taken);
                return Err(self.too_late(lane));
            }
            local.take_jobs(lane, self.room(taken.len()), |job| job.tree == tree, &mut taken);
            let mut list = self.endpoint().list(lane.server);
            let cas = (grant == Grant::Fresh).then(|| self.push_cas(lane, &mut list));
            let read = own.read(&mut list);
            let mut reads = Vec::new();
            let mut of_jobs = Vec::new();
            if !taken.is_empty() {
                reads.push((own.clone(), read));
                for job in &taken {
                    of_jobs.push(read_once(lines_of(&job.job), &mut reads, &mut list));
                }
            }
            let held = self.hold(lane);
            let list = match self.execute(list).await {
                Ok(list) => list,
                Err(error) => {
                    give_back(taken);
                    return Err(Box::pin(self.lock_failed(held, error)).await);
                }
            };
            if cas.is_none_or(|cas| list.swapped(cas)) {
                let locked = Locked::new(held, own.leaf, list, read);
                // Most lists have no jobs. Then there is nothing to collect.
                let jobs =
                    if taken.is_empty() { Vec::new() } else { taken.into_iter().zip(of_jobs).collect() };
                return Ok(Gathered { locked, jobs, lane, reads, own: read });
            }
            self.suspect_holder(lane, cas.map_or(0, |cas| list.old(cas)));
            self.endpoint().recycle(list);
            self.unhold(held);
            if let Err(error) = self.retry_lane(lane).await {
                give_back(taken);
                return Err(error);
            }
        }
    }

    /// How many more jobs fit into a batch that has `taken` already: the holder's own change counts, and a
    /// list has room for the CAS, for a READ or a WRITE of each change, and for the release.
    fn room(&self, taken: usize) -> usize {
        let verbs = self.endpoint().caps().max_verbs as usize;
        Techniques::MAX_BATCH.min(verbs.saturating_sub(2)).saturating_sub(1 + taken)
    }

    /// Whether operations wait that could join the holder's batch.
    #[inline]
    pub(crate) fn has_waiters(&self, gathered: &Gathered<'w>) -> bool {
        self.worker.compute.local.has_waiters(gathered.lane)
    }

    /// Takes further jobs whose lines were read under the lane. The caller has not made its list of WRITEs
    /// yet.
    pub(crate) fn join_late(
        &self,
        gathered: &mut Gathered<'w>,
        tree: u32,
        own: &Lines,
        lines_of: impl Fn(&Job) -> Lines,
    ) {
        let room = self.room(gathered.jobs.len());
        let known = |lines: &Lines| match gathered.reads.iter().find(|(read, _)| read == lines) {
            Some((_, read)) => Some(*read),
            None => (lines == own).then_some(gathered.own),
        };
        let mut taken = Vec::new();
        let accept = |job: &Job| job.tree == tree && known(&lines_of(job)).is_some();
        self.worker.compute.local.take_jobs(gathered.lane, room, accept, &mut taken);
        let jobs: Vec<_> =
            taken.into_iter().filter_map(|job| known(&lines_of(&job.job)).map(|read| (job, read))).collect();
        gathered.jobs.extend(jobs);
    }
}

/// Reads lines, unless the list reads them already.
fn read_once(lines: Lines, reads: &mut Vec<(Lines, VerbId)>, list: &mut WorkList) -> VerbId {
    if let Some((_, read)) = reads.iter().find(|(known, _)| *known == lines) {
        return *read;
    }
    let read = lines.read(list);
    reads.push((lines, read));
    read
}

/// Puts jobs that were not executed back into the queue, in their order.
pub(crate) fn give_back<'c>(jobs: impl IntoIterator<Item = TakenJob<'c>>) {
    for Taken { job, ticket } in jobs {
        ticket.return_job(job);
    }
}
