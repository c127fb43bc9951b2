//! A creation of a tree that may outlive the identity that began it.
//!
//! The leader of the control group may carry out a request whose answer is lost, because the leader changes
//! or the identity ends. The next identity of the process asks again under the same name, and so learns that
//! it has created the tree.

use sherman_fabric::RequestId;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One call that creates a tree, or finds it. The caller keeps it from one identity to the next.
#[derive(Debug, Default)]
pub struct Creation(Mutex<Option<RequestId>>);

impl Creation {
    fn asked(&self) -> MutexGuard<'_, Option<RequestId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of the request that was sent and not answered, or that created the tree.
    pub(super) fn unanswered(&self) -> Option<RequestId> {
        *self.asked()
    }

    pub(super) fn begin(&self, asked: RequestId) {
        *self.asked() = Some(asked);
    }

    pub(super) fn end(&self) {
        *self.asked() = None;
    }
}
