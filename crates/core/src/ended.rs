//! The end of a compute server's identity, for the code that keeps the compute server and joins the cluster
//! again.

use crate::compute::ComputeServer;
use crate::doubt::{Doubt, Doubts};
use crate::error::Error;
use sherman_fabric::FabricError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;

/// What is known about the end of an identity.
#[derive(Debug, Default)]
pub(crate) struct End {
    /// The failure that ended it, if a failure did.
    reason: OnceLock<FabricError>,
    /// Changes whose outcome it does not know.
    pub(crate) doubts: Doubts,
    /// Changes of earlier identities that happened, and whose operations wait until all volumes are open
    /// (W5).
    owed: Mutex<Vec<Arc<Doubt>>>,
    /// Whether the process has another identity, which recovers this one.
    succeeded: AtomicBool,
}

impl End {
    fn owed(&self) -> MutexGuard<'_, Vec<Arc<Doubt>>> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes changes that happened. If this identity ends before it may acknowledge them, the next one does.
    pub(crate) fn owe(&self, happened: &[Arc<Doubt>]) {
        self.owed().extend_from_slice(happened);
    }

    /// Takes the changes that happened and are not acknowledged.
    pub(crate) fn take_owed(&self) -> Vec<Arc<Doubt>> {
        std::mem::take(&mut self.owed())
    }

    /// Records a failure. The first one counts.
    pub(crate) fn note(&self, error: &FabricError) {
        let _ = self.reason.set(error.clone());
    }
}

impl ComputeServer {
    /// Whether this identity has ended, and its keeper renews its lease all the same (E2, E3). It waits for
    /// the table that will say what became of its changes. Until then no other client may recover it.
    pub fn awaits_table(&self) -> bool {
        let lost = matches!(
            self.end.reason.get(),
            Some(FabricError::Disconnected { .. } | FabricError::CopyFailed { .. })
        );
        self.replicas.is_some() && lost && !self.end.succeeded.load(Ordering::Acquire)
    }

    /// Whether this identity has ended because its cluster has a newer table of volumes (E1). The cluster
    /// answers, but this identity cannot leave any more.
    pub fn epoch_has_ended(&self) -> bool {
        matches!(self.end.reason.get(), Some(FabricError::EpochEnded { .. }))
    }

    /// Notes that the process has another identity, which recovers this one.
    pub(crate) fn hand_over(&self) {
        self.end.succeeded.store(true, Ordering::Release);
        self.membership.wake_keeper();
    }

    /// Ends this identity. For a caller that has learnt that the identity cannot continue.
    pub fn end(&self) {
        self.terminate();
    }

    /// Completes when this identity has ended. Only the keeper's task may wait for it.
    pub async fn ended(&self) {
        std::future::poll_fn(|cx| {
            self.membership.set_keeper(cx.waker());
            if self.is_terminated() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Why this identity ended. [`Error::Fenced`], unless a connection broke.
    pub fn end_reason(&self) -> Error {
        self.end.reason.get().cloned().map_or(Error::Fenced { client: self.client() }, Error::from)
    }

    /// Whether no thread of this compute server holds a lane or has a list in flight that takes or releases
    /// one. Call it for an identity that has ended: no new operation begins then, but some operations that
    /// read may still go on to lock.
    pub fn is_quiet(&self) -> bool {
        !self.membership.holds_lanes()
    }

    /// Returns the changes of this compute server whose outcome is unknown. The outcome of a change that
    /// becomes unknown later cannot be determined.
    pub fn take_doubts(&self) -> Vec<Arc<Doubt>> {
        self.end.doubts.close()
    }
}
