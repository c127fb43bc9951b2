//! Ranges of handles: asynchronous, entry by entry, on any executor.

use super::pull::Pull;
use super::{Plan, RawEntry, RawEntryRef, Reading};
use crate::codec::{Key, Value};
use crate::handle::{HandleOperation, RawHandle};
use sherman_core::{Error, Scan};
use std::fmt;
use std::marker::PhantomData;

/// The entries of a range of byte strings, made by [`RawHandle::range`]. As [`HandleRange`], on byte strings.
#[must_use = "a range reads nothing until it is asked for entries"]
pub struct RawHandleRange {
    handle: RawHandle,
    pull: Pull<HandleOperation<Option<Scan>>>,
}

impl fmt::Debug for RawHandleRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawHandleRange").field("at", &self.pull).finish_non_exhaustive()
    }
}

impl RawHandleRange {
    pub(crate) fn new(handle: RawHandle, plan: Plan) -> Self {
        Self { handle, pull: Pull::new(plan) }
    }

    /// From the last key to the first. Before the first entry is taken; afterwards it changes nothing.
    pub fn descending(mut self) -> Self {
        self.pull.replan(Plan::descending);
        self
    }

    /// Reads so many leaves at once, 1 to 32, from the beginning. Before the first entry is taken.
    pub fn prefetch(mut self, leaves: usize) -> Self {
        self.pull.replan(|plan| plan.prefetch(leaves));
        self
    }

    /// Gives at most so many entries, and reads no more leaves than they take. Before the first entry is taken.
    pub fn limit(mut self, entries: usize) -> Self {
        self.pull.replan(|plan| plan.limit(entries));
        self
    }

    /// The next key and value, in the range's own buffer. May be dropped and called again: nothing is lost.
    ///
    /// # Errors
    /// As [`HandleRange::next`].
    pub async fn advance(&mut self) -> Result<Option<RawEntryRef<'_>>, Error> {
        let start = |reading: Reading| self.handle.call(async move |ops| ops.read_on(reading).await);
        self.pull.advance(start).await
    }

    /// The next key and value; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<RawEntry, Error>> {
        self.advance().await.map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec()))).transpose()
    }
}

/// The entries of a range, ascending or [descending](HandleRange::descending), made by
/// [`Handle::range`](crate::Handle::range). What it gives and costs is said at [`Range`](crate::Range).
#[must_use = "a range reads nothing until it is asked for entries"]
pub struct HandleRange<K, V> {
    raw: RawHandleRange,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> fmt::Debug for HandleRange<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.fmt(f)
    }
}

impl<K: Key, V: Value> HandleRange<K, V> {
    pub(crate) fn new(raw: RawHandleRange) -> Self {
        Self { raw, types: PhantomData }
    }

    /// From the last key to the first. Before the first entry is taken; afterwards it changes nothing.
    pub fn descending(self) -> Self {
        Self { raw: self.raw.descending(), ..self }
    }

    /// Reads so many leaves at once, 1 to 32, from the beginning. Before the first entry is taken.
    pub fn prefetch(self, leaves: usize) -> Self {
        Self { raw: self.raw.prefetch(leaves), ..self }
    }

    /// Gives at most so many entries, and reads no more leaves than they take. Before the first entry is taken.
    pub fn limit(self, entries: usize) -> Self {
        Self { raw: self.raw.limit(entries), ..self }
    }

    /// The next entry; `None` at the end. May be dropped and called again: nothing is lost.
    ///
    /// # Errors
    /// [`Error::BadRange`]: the range ends before it begins. After any error the range is over.
    pub async fn next(&mut self) -> Option<Result<(K, V), Error>> {
        let entry = self.raw.advance().await;
        entry.map(|entry| entry.map(|(key, value)| (K::decode(key), V::decode(value)))).transpose()
    }
}
