//! Ranges of sessions: asynchronous, entry by entry.

use super::pull::Pull;
use super::{Plan, RawEntry, RawEntryRef, Reading};
use crate::codec::{Key, Value};
use crate::session::RawSession;
use sherman_core::session::Operation;
use sherman_core::{Error, Scan};
use std::fmt;
use std::marker::PhantomData;

/// The entries of a range of byte strings, made by [`RawSession::range`]. As [`SessionRange`], on byte strings.
#[must_use = "a range reads nothing until it is asked for entries"]
pub struct RawSessionRange<'s> {
    session: &'s RawSession,
    pull: Pull<Operation<Option<Scan>>>,
}

impl fmt::Debug for RawSessionRange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawSessionRange").field("at", &self.pull).finish_non_exhaustive()
    }
}

impl<'s> RawSessionRange<'s> {
    pub(crate) fn new(session: &'s RawSession, plan: Plan) -> Self {
        Self { session, pull: Pull::new(plan) }
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
    /// As [`SessionRange::next`].
    pub async fn advance(&mut self) -> Result<Option<RawEntryRef<'_>>, Error> {
        let start = |reading: Reading| self.session.start(async move |ops| ops.read_on(reading).await);
        self.pull.advance(start).await
    }

    /// The next key and value; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<RawEntry, Error>> {
        self.advance().await.map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec()))).transpose()
    }
}

/// The entries of a range, ascending or [descending](SessionRange::descending), made by
/// [`Session::range`](crate::Session::range). What it gives and costs is said at [`Range`](crate::Range).
#[must_use = "a range reads nothing until it is asked for entries"]
pub struct SessionRange<'s, K, V> {
    raw: RawSessionRange<'s>,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> fmt::Debug for SessionRange<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.fmt(f)
    }
}

impl<'s, K: Key, V: Value> SessionRange<'s, K, V> {
    pub(crate) fn new(raw: RawSessionRange<'s>) -> Self {
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
