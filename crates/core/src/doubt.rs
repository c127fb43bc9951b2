//! Changes whose outcome is unknown, and how a client learns it after all.
//!
//! A change is *in doubt* if the list that carried it failed after it was posted. By F7 a prefix of the list was executed. Most changes are
//! one WRITE inside one line of a node, and then the release of the node's lane. Of such a change the state of lane and line tells what
//! happened, once nothing of the client executes any more and before anybody frees its lanes:
//!
//! | lane | line | so |
//! |---|---|---|
//! | not held by the client | any | the list was executed to its end: the change happened |
//! | held by the client | holds the bytes that were to be written | the change happened |
//! | held by the client | does not | the change did not happen |
//!
//! The operation keeps what is needed for that as a [`Doubt`], and leaves it with its compute server too. When the process has joined the
//! cluster again, it hands the doubts of its former identity to [`Worker::settle_doubts`], which gives each its [`Fate`]; the
//! operation waits for that.

use crate::compute::ComputeServer;
use crate::error::Error;
use crate::op::Op;
use crate::worker::Worker;
use sherman_fabric::{Endpoint, FabricError, GlobalAddress};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// What became of a change in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It happened.
    Done,
    /// It did not happen, and never will.
    NotDone,
    /// Nobody can tell.
    Unknown,
}

/// A change of one line whose outcome is unknown.
#[derive(Debug)]
pub struct Doubt {
    node: GlobalAddress,
    lane: u32,
    /// Where in the node's memory the bytes begin.
    offset: u64,
    bytes: Vec<u8>,
    fate: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    fate: Option<Fate>,
    waker: Option<Waker>,
}

impl Doubt {
    /// The node that was to be changed.
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

    /// The bytes that were to be written there, inside one line.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn locked(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while it is locked, so what a poisoned mutex guards is whole.
        self.fate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what became of the change, and wakes its operation. The first answer counts.
    pub fn settle(&self, fate: Fate) {
        let mut waiting = self.locked();
        waiting.fate.get_or_insert(fate);
        let waker = waiting.waker.take();
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// What became of the change, once that is settled.
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

    /// Adds one. After the register was closed it is too late: nobody can tell any more.
    fn add(&self, doubt: &Arc<Doubt>) {
        let mut register = self.locked();
        if register.closed {
            drop(register);
            doubt.settle(Fate::Unknown);
        } else {
            register.doubts.push(Arc::clone(doubt));
        }
    }

    /// All of them; none is added from now on.
    pub(crate) fn close(&self) -> Vec<Arc<Doubt>> {
        let mut register = self.locked();
        register.closed = true;
        std::mem::take(&mut register.doubts)
    }
}

impl<E: Endpoint> Op<'_, E> {
    /// The error of a change of one line whose list failed after it was posted; remembers what is needed to find out later.
    #[cold]
    pub(crate) fn in_doubt(&self, source: FabricError, node: GlobalAddress, from: usize, bytes: &[u8]) -> Error {
        let compute: &ComputeServer = &self.worker.compute;
        let error = self.after_post(source);
        // Without the local lock another thread may have taken the lane since, and changed the line again.
        let alone = compute.techniques().hierarchical;
        if matches!(error, Error::OutcomeUnknown { .. }) && compute.is_doomed() && alone {
            let doubt = Arc::new(Doubt {
                node,
                lane: compute.lane(node),
                offset: node.offset() + from as u64,
                bytes: bytes.to_vec(),
                fate: Mutex::default(),
            });
            compute.end.doubts.add(&doubt);
            self.set_doubt(doubt);
        }
        error
    }
}

impl<E: Endpoint> Worker<E> {
    /// Finds out what became of changes of `former`, an earlier identity of this process, settles each of `doubts`, and recovers `former`. None of
    /// its lists is in flight any more.
    ///
    /// Only the first to recover `former` can tell: whoever came before it may have freed the lanes. If another did, the fates stay unknown.
    pub async fn settle_doubts(&self, former: &ComputeServer, doubts: &[Arc<Doubt>]) {
        // If this fails in the middle, the rest stays unknown, and others recover the former identity.
        let _ = self.succeed(former, doubts).await;
        for doubt in doubts {
            doubt.settle(Fate::Unknown);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubt() -> Arc<Doubt> {
        let node = GlobalAddress::new(1, 4096);
        Arc::new(Doubt { node, lane: 7, offset: 4160, bytes: vec![1, 2, 3], fate: Mutex::default() })
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
