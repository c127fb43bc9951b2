//! The end of a compute server's identity, for whoever keeps the compute server and joins the cluster again.

use crate::compute::ComputeServer;
use crate::doubt::{Doubt, Doubts};
use crate::error::Error;
use sherman_fabric::FabricError;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

/// What is known about the end of an identity.
#[derive(Debug, Default)]
pub(crate) struct End {
    /// The failure that ended it, if it was one.
    reason: OnceLock<FabricError>,
    /// Changes whose outcome it does not know.
    pub(crate) doubts: Doubts,
}

impl End {
    /// The first failure counts.
    pub(crate) fn note(&self, error: &FabricError) {
        let _ = self.reason.set(error.clone());
    }
}

impl ComputeServer {
    /// Ends this identity: for a caller that has learnt that it cannot go on.
    pub fn end(&self) {
        self.doom();
    }

    /// Completes when this identity has ended. For the keeper's task, which alone may wait for it.
    pub async fn ended(&self) {
        std::future::poll_fn(|cx| {
            self.membership.set_keeper(cx.waker());
            if self.is_doomed() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Why this identity ended. [`Error::Fenced`] unless it was a connection that broke.
    pub fn end_reason(&self) -> Error {
        self.end.reason.get().cloned().map_or(Error::Fenced { client: self.client() }, Error::from)
    }

    /// Whether no thread of this compute server holds a lane or has a list in flight that takes one or gives one back. For
    /// an identity that has ended: no operation begins any more, though some that read may still go on to lock.
    pub fn is_quiet(&self) -> bool {
        !self.membership.holds_lanes()
    }

    /// The changes of this compute server whose outcome is unknown. A change that turns out unknown later stays so.
    pub fn take_doubts(&self) -> Vec<Arc<Doubt>> {
        self.end.doubts.close()
    }
}
