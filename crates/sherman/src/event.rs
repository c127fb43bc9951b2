//! What happens to a compute server's identity, told to callers that want to know.

use crate::error::OpenError;
use sherman_core::Error;
use sherman_fabric::ClientId;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// What happened to the identity of a [`Cluster`](crate::Cluster). See [`ClusterOptions::on_event`](crate::ClusterOptions::on_event).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The identity has ended. Operations in flight wait for the next one, or fail with [`Error::OutcomeUnknown`].
    IdentityEnded {
        /// The id that has ended.
        client: ClientId,
        /// Why: a connection that broke, or [`Error::Fenced`].
        reason: Error,
    },
    /// The cluster was joined again. Operations go on.
    Rejoined {
        /// The new id.
        client: ClientId,
        /// How long there was no identity.
        after: Duration,
        /// Attempts it took, this one included.
        attempts: u32,
    },
    /// The cluster refuses to be joined for a reason that time alone does not mend: another cluster, lost memory, a wrong secret, another
    /// version. Operations fail with [`Error::NotRejoined`] from now on. There is one more attempt every few seconds, in case an operator
    /// repairs the cluster.
    GaveUp {
        /// The id that has ended.
        client: ClientId,
        /// What the cluster said.
        reason: OpenError,
        /// How long there has been no identity.
        after: Duration,
        /// Attempts so far.
        attempts: u32,
    },
}

/// What a caller wants to be called.
type Callback = dyn Fn(&Event) + Send + Sync;

/// Whom to tell.
#[derive(Clone, Default)]
pub(crate) struct Listener(pub(crate) Option<Arc<Callback>>);

impl Listener {
    /// Calls the listener. The caller holds no lock: a listener may do anything. One that panics has said so on stderr; the keeper goes on.
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
