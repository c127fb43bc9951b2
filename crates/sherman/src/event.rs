//! Events of a compute server's identity, reported to a caller's listener.

use crate::error::OpenError;
use sherman_core::Error;
use sherman_fabric::ComputeId;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// An event of the identity of a [`Cluster`](crate::Cluster). See
/// [`ClusterOptions::on_event`](crate::ClusterOptions::on_event).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The identity has ended. Operations in flight wait for the next one, or fail with
    /// [`Error::OutcomeUnknown`].
    IdentityEnded {
        /// The id that has ended.
        client: ComputeId,
        /// Why it ended: a broken connection, or [`Error::Fenced`].
        reason: Error,
    },
    /// The compute server has joined the cluster again. Operations go on.
    Rejoined {
        /// The new id.
        client: ComputeId,
        /// How long there was no identity.
        after: Duration,
        /// Number of attempts, including this one.
        attempts: u32,
    },
    /// The cluster refuses the compute server for a reason that time alone does not repair: another cluster,
    /// lost memory, a wrong secret, another version. Operations fail with [`Error::NotRejoined`] from now on.
    /// The compute server tries again every few seconds, in case an operator repairs the cluster.
    GaveUp {
        /// The id that has ended.
        client: ComputeId,
        /// The reason that the cluster gave.
        reason: OpenError,
        /// How long there has been no identity.
        after: Duration,
        /// Number of attempts so far.
        attempts: u32,
    },
}

/// The type of a caller's listener.
type Callback = dyn Fn(&Event) + Send + Sync;

/// The listener, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Listener(pub(crate) Option<Arc<Callback>>);

impl Listener {
    /// Calls the listener. The caller holds no lock, because a listener may do anything. A panic of the
    /// listener has already been printed to stderr, and the keeper goes on.
    pub(crate) fn tell(&self, event: &Event) {
        if let Some(listener) = &self.0 {
            let _ = catch_unwind(AssertUnwindSafe(|| listener(event)));
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Some(..)" } else { "None" })
    }
}
