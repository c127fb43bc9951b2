//! Changes whose outcome is unknown, and how a client learns it later.
//!
//! A change is *in doubt* if the list that carried it failed after it was posted. By F7 the server executed a
//! prefix of the list. Most changes are one WRITE inside one line of a node, followed by the release of the
//! node's lane. For such a change, the state of lane and line shows what happened. This holds once none of
//! the client's verbs execute any more, and before a recoverer frees its lanes:
//!
//! | lane | line | so |
//! |---|---|---|
//! | not held by the client | any | the server executed the whole list: the change happened |
//! | held by the client | holds the bytes of the WRITE | the change happened |
//! | held by the client | does not | the change did not happen |
//!
//! With replication a list for several copies says how far it got ([`FabricError::CopyFailed`]). If the table
//! has changed since, that decides (rule E3, [`judge()`]): the change happened if the new primary completed
//! the list, and did not if no surviving copy was posted any of it. So the loss of one host leaves no doubt
//! to a client that keeps its lease. On a promoted copy lanes say nothing: they were lost with the former
//! primary.
//!
//! The operation keeps what is needed for this as a [`Doubt`], and registers it with its compute server too.
//! When the process has joined the cluster again, it claims its former identity ([`Worker::claim_former`]).
//! It waits until the lists of that identity have ended, and passes the doubts to [`Worker::settle_doubts`],
//! which gives each its [`Fate`]. The operation waits for that.

use crate::compute::ComputeServer;
use crate::error::Error;
use crate::op::Op;
use crate::recovery::Claim;
use crate::worker::Worker;
use sherman_fabric::{Endpoint, FabricError, GlobalAddress, Progress};
use sherman_replica::{Judgement, VolumeEntry, VolumeTable, judge};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The outcome of a change in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It happened.
    Done,
    /// It did not happen, and never will.
    NotDone,
    /// The outcome cannot be determined.
    Unknown,
}

/// A change whose outcome is unknown.
#[derive(Debug)]
pub struct Doubt {
    node: GlobalAddress,
    lane: u32,
    /// Offset of the bytes in the memory of the node's server.
    offset: u64,
    /// Empty if the change is not one line, or if lane and line do not show what happened.
    bytes: Vec<u8>,
    /// The copies of the node's volume, and how far the list got that decides the change.
    progress: Option<(VolumeEntry, Progress)>,
    fate: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    fate: Option<Fate>,
    waker: Option<Waker>,
}

impl Doubt {
    /// The doubt of a change that only the progress of its list can decide.
    fn by_progress(node: GlobalAddress, progress: Option<(VolumeEntry, Progress)>) -> Self {
        Self { node, lane: 0, offset: 0, bytes: Vec::new(), progress, fate: Mutex::default() }
    }

    /// The node that the change was for.
    pub fn node(&self) -> GlobalAddress {
        self.node
    }

    /// Its lane, on its server.
    pub fn lane(&self) -> u32 {
        self.lane
    }

    /// Where the change begins: an offset in the host memory of the node's server.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes of the WRITE, inside one line. Empty if they do not show what happened.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What the table `now` says about the change (E3); `None` if it says nothing.
    pub(crate) fn judged(&self, now: &VolumeTable) -> Option<Fate> {
        let (former, progress) = self.progress.as_ref()?;
        match judge(former, now, self.node.server(), *progress) {
            Judgement::Happened => Some(Fate::Done),
            Judgement::NotHappened => Some(Fate::NotDone),
            Judgement::Unknown => None,
        }
    }

    fn locked(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while the mutex is locked, so the state behind a poisoned mutex is valid.
        self.fate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the outcome of the change, and wakes its operation. The first answer counts.
    pub fn settle(&self, fate: Fate) {
        let mut waiting = self.locked();
        waiting.fate.get_or_insert(fate);
        let waker = waiting.waker.take();
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns the outcome of the change once it is settled.
    pub fn poll_fate(&self, cx: &mut Context<'_>) -> Poll<Fate> {
        let mut waiting = self.locked();
        match waiting.fate {
            Some(fate) => Poll::Ready(fate),
            None => {
                waiting.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// The doubts of one identity.
#[derive(Debug, Default)]
pub(crate) struct Doubts(Mutex<Register>);

#[derive(Debug, Default)]
struct Register {
    closed: bool,
    doubts: Vec<Arc<Doubt>>,
}

impl Doubts {
    fn locked(&self) -> MutexGuard<'_, Register> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a doubt. After the register was closed, the doubt settles as unknown at once, because nothing can
    /// determine its outcome.
    fn add(&self, doubt: &Arc<Doubt>) {
        let mut register = self.locked();
        if register.closed {
            drop(register);
            doubt.settle(Fate::Unknown);
        } else {
            register.doubts.push(Arc::clone(doubt));
        }
    }

    /// Returns all doubts and closes the register.
    pub(crate) fn close(&self) -> Vec<Arc<Doubt>> {
        let mut register = self.locked();
        register.closed = true;
        std::mem::take(&mut register.doubts)
    }
}

impl<E: Endpoint> Op<'_, E> {
    /// Returns the error of a change of one line whose list failed after it was posted. Records what is
    /// needed to determine the outcome later.
    #[cold]
    pub(crate) fn in_doubt(
        &self,
        source: FabricError,
        node: GlobalAddress,
        from: usize,
        bytes: &[u8],
    ) -> Error {
        let compute: &ComputeServer = &self.worker.compute;
        let progress = compute.progress_of(&source);
        if self.is_unposted() {
            return source.into();
        }
        let error = Error::after_post(source);
        // Without the local lock another thread may have taken the lane since, and changed the line again.
        let alone = compute.techniques().hierarchical;
        if matches!(error, Error::OutcomeUnknown { .. }) && compute.is_terminated() && alone {
            self.doubt(Doubt {
                node,
                lane: compute.lane(node),
                offset: node.offset() + from as u64,
                bytes: bytes.to_vec(),
                progress,
                fate: Mutex::default(),
            });
        } else if progress.is_some() {
            self.doubt(Doubt::by_progress(node, progress));
        }
        error
    }

    /// Records how far the list of a change got, if the list was for several copies.
    #[cold]
    pub(crate) fn note_progress(&self, source: &FabricError) {
        if let FabricError::CopyFailed { server, .. } = *source {
            let progress = self.worker.compute.progress_of(source);
            self.doubt(Doubt::by_progress(GlobalAddress::new(server, 0), progress));
        }
    }

    fn doubt(&self, doubt: Doubt) {
        let doubt = Arc::new(doubt);
        self.worker.compute.end.doubts.add(&doubt);
        self.set_doubt(doubt);
    }
}

impl ComputeServer {
    /// The copies that a failed list was for, and how far it got.
    fn progress_of(&self, error: &FabricError) -> Option<(VolumeEntry, Progress)> {
        let FabricError::CopyFailed { server, progress } = *error else { return None };
        Some((*self.volumes()?.volume(server)?, progress))
    }
}

impl<E: Endpoint> Worker<E> {
    /// Makes this compute server the one that recovers `former`, an earlier identity of its process. It does
    /// so before the lists of `former` have ended, because that may take as long as the lease that `former`
    /// has left. `None` if another client was first: then the outcomes stay unknown.
    pub async fn claim_former(&self, former: &ComputeServer) -> Option<Claim<'_>> {
        former.hand_over();
        self.claim(former).await.unwrap_or_default()
    }

    /// Determines the outcome of changes of `former`, an earlier identity of this process, and recovers that
    /// identity. The caller makes sure that none of its lists is in flight. Settles each of `doubts`. If this
    /// identity ends before the volumes are open, the changes that happened are left to the next identity.
    ///
    /// Only the first recoverer can determine outcomes, because an earlier one may have freed the lanes. If
    /// another client was first, the fates stay unknown.
    pub async fn settle_doubts(
        &self,
        former: &ComputeServer,
        claim: Option<Claim<'_>>,
        doubts: &[Arc<Doubt>],
    ) {
        let mut happened = former.end.take_owed();
        // If this fails in the middle, the remaining doubts stay unknown, and other clients recover the
        // former identity.
        if let Some(claim) = claim {
            happened.extend(self.succeed(claim, doubts).await.unwrap_or_default());
        }
        let is_known = |doubt: &&Arc<Doubt>| happened.iter().any(|known| Arc::ptr_eq(known, doubt));
        doubts.iter().filter(|doubt| !is_known(doubt)).for_each(|doubt| doubt.settle(Fate::Unknown));
        if happened.is_empty() {
            return;
        }
        // W5: until the volumes are open, a reader may still return what was there before.
        self.compute.end.owe(&happened);
        if self.may_acknowledge().await {
            self.compute.end.take_owed().iter().for_each(|doubt| doubt.settle(Fate::Done));
        }
    }
}

impl<E: Endpoint> Worker<E> {
    /// Waits until the volumes are open. Returns whether they are.
    async fn may_acknowledge(&self) -> bool {
        self.op().await_open().await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubt() -> Arc<Doubt> {
        let node = GlobalAddress::new(1, 4096);
        let (bytes, fate) = (vec![1, 2, 3], Mutex::default());
        Arc::new(Doubt { node, lane: 7, offset: 4160, bytes, progress: None, fate })
    }

    #[test]
    fn a_doubt_is_settled_once() {
        let doubt = doubt();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(doubt.poll_fate(&mut cx).is_pending());
        doubt.settle(Fate::Done);
        doubt.settle(Fate::Unknown);
        assert_eq!(doubt.poll_fate(&mut cx), Poll::Ready(Fate::Done));
    }

    #[test]
    fn a_doubt_that_comes_too_late_stays_unknown() {
        let (doubts, early, late) = (Doubts::default(), doubt(), doubt());
        doubts.add(&early);
        assert_eq!(doubts.close().len(), 1);
        doubts.add(&late);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(early.poll_fate(&mut cx).is_pending());
        assert_eq!(late.poll_fate(&mut cx), Poll::Ready(Fate::Unknown));
        assert!(doubts.close().is_empty());
    }
}
