//! Another deadline for some operations.

use std::cell::Cell;
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

/// A client or session whose operations have another deadline while this value lives.
///
/// Made by [`Client::within`](crate::Client::within) and the same methods of other callers. It is used like
/// the client itself:
///
/// ```
/// # use std::time::Duration;
/// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
/// let client = cluster.tree::<u64, u64>("orders")?.client()?;
/// client.within(Duration::from_millis(5)).insert(7, 700)?; // this one has five milliseconds
/// client.insert(8, 800)?; // this one the cluster's timeout
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the deadline is that of operations called on this"]
pub struct Within<'a, T> {
    of: &'a T,
    timeout: &'a Cell<Duration>,
    before: Duration,
}

impl<'a, T> Within<'a, T> {
    pub(crate) fn new(of: &'a T, timeout: &'a Cell<Duration>, now: Duration) -> Self {
        Self { of, timeout, before: timeout.replace(now) }
    }
}

impl<T> Deref for Within<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.of
    }
}

impl<T> Drop for Within<'_, T> {
    fn drop(&mut self) {
        self.timeout.set(self.before);
    }
}

impl<T: fmt::Debug> fmt::Debug for Within<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Within").field("of", self.of).field("timeout", &self.timeout.get()).finish()
    }
}
