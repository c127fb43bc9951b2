//! Ranges of blocking clients: iterators.

use super::{Cursor, Plan, RawEntry, RawEntryRef};
use crate::client::RawClient;
use crate::codec::{Key, Value};
use crate::seat::Seat;
use sherman_core::Error;
use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;

/// The entries of a range of byte strings, made by [`RawClient::range`]. As [`Range`], on byte strings.
pub struct RawRange<'c> {
    client: &'c RawClient,
    cursor: Cursor,
}

impl fmt::Debug for RawRange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawRange").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

impl<'c> RawRange<'c> {
    pub(crate) fn new(client: &'c RawClient, plan: Plan) -> Self {
        Self { client, cursor: Cursor::new(plan) }
    }

    /// From the last key to the first. Before the first entry is taken; afterwards it changes nothing.
    pub fn descending(mut self) -> Self {
        self.cursor.replan(Plan::descending);
        self
    }

    /// Reads so many leaves at once, 1 to 32, from the beginning. Before the first entry is taken.
    pub fn prefetch(mut self, leaves: usize) -> Self {
        self.cursor.replan(|plan| plan.prefetch(leaves));
        self
    }

    /// Gives at most so many entries, and reads no more leaves than they take: better than
    /// [`take`](Iterator::take) where the number is known. Before the first entry is taken.
    pub fn limit(mut self, entries: usize) -> Self {
        self.cursor.replan(|plan| plan.limit(entries));
        self
    }

    /// The next key and value, in the range's own buffer: nothing is allocated.
    ///
    /// # Errors
    /// As the iterator's.
    pub fn advance(&mut self) -> Result<Option<RawEntryRef<'_>>, Error> {
        // Two steps, since what is lent cannot be looked at first.
        if self.cursor.has_none_buffered() {
            self.read_on()?;
        }
        Ok(self.cursor.buffered())
    }

    /// Reads on. At the end, or after an error, the range is over.
    #[inline(never)]
    fn read_on(&mut self) -> Result<(), Error> {
        let ops = self.client.ops();
        let seated = ops.seat.seated()?;
        let reading = self.cursor.reading(&seated, ops.tree);
        drop(seated);
        let Some(scan) = reading? else { return Ok(()) };
        let more = self.client.run(async |ops| ops.refill(scan).await);
        if more != Ok(true)
            && let Some(scan) = self.cursor.end()
        {
            ops.end_scan(scan);
        }
        more.map(drop)
    }
}

impl Drop for RawRange<'_> {
    /// Leaves its buffers to the next range.
    fn drop(&mut self) {
        if let Some(scan) = self.cursor.end() {
            self.client.ops().end_scan(scan);
        }
    }
}

impl Iterator for RawRange<'_> {
    type Item = Result<RawEntry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec()))).transpose()
    }
}

impl FusedIterator for RawRange<'_> {}

/// The entries of a range, ascending or [descending](Range::descending), made by [`Client::range`](crate::Client::range).
///
/// Reads as it goes: one round trip for a few leaves, dozens of entries each. **Not a snapshot**: each entry was there at some
/// moment between the first `next` and its own, a key that is there throughout is never missed and none comes twice.
///
/// An error is the last item. [`Error::BadRange`]: the range ends before it begins.
#[must_use = "a range reads nothing until it is iterated"]
pub struct Range<'c, K, V> {
    raw: RawRange<'c>,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> fmt::Debug for Range<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.fmt(f)
    }
}

impl<'c, K: Key, V: Value> Range<'c, K, V> {
    pub(crate) fn new(client: &'c RawClient, plan: Plan) -> Self {
        Self { raw: RawRange::new(client, plan), types: PhantomData }
    }

    /// From the last key to the first. Before the first entry is taken; afterwards it changes nothing.
    ///
    /// ```
    /// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
    /// # let client = cluster.tree::<u64, u64>("scores")?.client()?;
    /// # for key in 0..100 { client.insert(key, key)?; }
    /// let highest: Result<Vec<_>, _> = client.range(..).descending().limit(3).collect();
    /// assert_eq!(highest?, [(99, 99), (98, 98), (97, 97)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn descending(self) -> Self {
        Self { raw: self.raw.descending(), ..self }
    }

    /// Reads so many leaves at once, 1 to 32, from the beginning. Without it a range begins with one and doubles up to
    /// eight: short ones read little, long ones are fast. Before the first entry is taken.
    pub fn prefetch(self, leaves: usize) -> Self {
        Self { raw: self.raw.prefetch(leaves), ..self }
    }

    /// Gives at most so many entries, and reads no more leaves than they take: better than
    /// [`take`](Iterator::take) where the number is known. Before the first entry is taken.
    pub fn limit(self, entries: usize) -> Self {
        Self { raw: self.raw.limit(entries), ..self }
    }
}

impl<K: Key, V: Value> Iterator for Range<'_, K, V> {
    type Item = Result<(K, V), Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        // Most entries are there already; what is looked at first is not lent, so one step does.
        if let Some((key, value)) = self.raw.cursor.buffered() {
            return Some(Ok((K::decode(key), V::decode(value))));
        }
        if let Err(error) = self.raw.read_on() {
            return Some(Err(error));
        }
        self.raw.cursor.buffered().map(|(key, value)| Ok((K::decode(key), V::decode(value))))
    }
}

impl<K: Key, V: Value> FusedIterator for Range<'_, K, V> {}
