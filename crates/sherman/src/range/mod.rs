//! Ranges of keys, from either end or from both.
//!
//! A range is planned, then read leaf by leaf: a few leaves per round trip, with their entries buffered. Each
//! end of a range is a scan of its own, which begins when the first entry of that end is taken. The range
//! remembers the last key of each end. It is over as soon as the next key of one end reaches the last key of
//! the other.

mod plan;

pub use plan::KeyRange;
pub(crate) use plan::{RangePlan, Reading};

use crate::client::Client;
use crate::codec::{Packed, Stored};
use crate::handle::Handle;
use crate::session::Session;
use plan::PREFETCH;
use sherman_core::{Direction, Error, Scan};
use std::fmt;
use std::future::poll_fn;
use std::iter::FusedIterator;
use std::ops::Bound;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// A key and its value, as bytes.
pub type RawEntry = (Vec<u8>, Vec<u8>);

/// A key and its value, as borrowed bytes.
pub type RawEntryRef<'a> = (&'a [u8], &'a [u8]);

/// The entries of a range of a [`Client`]: an iterator.
pub type Range<'c, K, V> = Entries<&'c Client<K, V>>;
/// The entries of a range of a [`Session`], which are awaited one by one.
pub type SessionRange<'s, K, V> = Entries<&'s Session<K, V>>;
/// The entries of a range of a [`Handle`], which are awaited one by one on any executor. Until it is dropped
/// it counts as a clone of the handle.
pub type HandleRange<K, V> = Entries<Handle<K, V>>;
/// A [`Range`] of byte strings.
pub type RawRange<'c> = Range<'c, Vec<u8>, Vec<u8>>;
/// A [`SessionRange`] of byte strings.
pub type RawSessionRange<'s> = SessionRange<'s, Vec<u8>, Vec<u8>>;
/// A [`HandleRange`] of byte strings.
pub type RawHandleRange = HandleRange<Vec<u8>, Vec<u8>>;

/// The reader of a range: a client, session or handle.
pub trait Source {
    /// The keys of the tree.
    type Key: Stored;
    /// The values of the tree.
    type Value: Stored;
    /// A read in progress. It ends with `None` if there are no more entries.
    type Read: Future<Output = Result<Option<Box<Scan>>, Error>> + Unpin;

    /// Continues reading.
    fn read(&self, reading: Reading) -> Self::Read;

    /// Keeps a scan's buffers for the next range.
    fn end(&self, scan: Box<Scan>);
}

/// The [`Source`]s whose entries are awaited.
pub trait AsyncSource: Source {}

/// One end of a range.
struct End<F> {
    scan: Option<Box<Scan>>,
    /// Kept here, so that dropping a `next` half-way loses nothing.
    read: Option<F>,
    begun: bool,
    /// How many leaves to read at once next.
    leaves: usize,
    /// The last key that was taken from this end before its last read.
    last: Option<Packed>,
}

impl<F> End<F> {
    /// The last key that was taken from this end.
    fn last_key(&self) -> Option<&[u8]> {
        self.scan.as_ref().and_then(|scan| scan.last_key()).or(self.last.as_deref())
    }
}

/// The end that `next` takes entries from.
const FRONT: usize = 0;
/// The end that `next_back` takes entries from.
const BACK: usize = 1;

/// The entries of a range, made by `range` or `prefix` of a [`Client`], [`Session`] or [`Handle`].
///
/// A client's range is an iterator. The ranges of sessions and handles have asynchronous methods of the same
/// names: `next` and `next_back`. Entries may be taken from both ends in any order, as with `BTreeMap`'s
/// ranges.
///
/// Reads when an entry is taken and none is buffered: one round trip per few leaves, with dozens of entries
/// each. **Not a snapshot**: each entry was present at some moment between the range's first read and the
/// entry's delivery, but two entries may come from different moments. A key that is present throughout is
/// never missed, and no key is returned twice.
///
/// An error is the last item. [`Error::BadRange`]: the range ends before it begins.
///
/// ```
/// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
/// let client = cluster.tree::<u64, u64>("scores")?.client()?;
/// client.insert_many(&[(1, 10), (2, 20), (3, 30), (4, 40)])?;
/// let highest = client.range(..).rev().next().transpose()?;
/// assert_eq!(highest, Some((4, 40)));
/// let mut inner = client.range(2..);
/// assert_eq!(inner.next_back(), Some(Ok((4, 40))));
/// assert_eq!(inner.next(), Some(Ok((2, 20))));
/// assert_eq!(inner.next_back(), Some(Ok((3, 30))));
/// assert_eq!((inner.next(), inner.next_back()), (None, None));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a range reads nothing until it is asked for entries"]
pub struct Entries<S: Source> {
    source: S,
    plan: RangePlan,
    ends: [End<S::Read>; 2],
    over: bool,
}

impl<S: Source> fmt::Debug for Entries<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries").field("plan", &self.plan).field("over", &self.over).finish_non_exhaustive()
    }
}

impl<S: Source> Entries<S> {
    pub(crate) fn new(source: S, plan: RangePlan) -> Self {
        let end = || End { scan: None, read: None, begun: false, leaves: 0, last: None };
        Self { source, plan, ends: [end(), end()], over: false }
    }

    /// Changes the plan, unless the range has begun.
    fn replan(mut self, change: impl FnOnce(&mut RangePlan)) -> Self {
        if self.ends.iter().all(|end| !end.begun) {
            change(&mut self.plan);
        }
        self
    }

    /// Exchanges the two ends: `next` takes the last entry, `next_back` the first. For an iterator this is
    /// [`rev`](Iterator::rev). Call it before taking the first entry; afterwards it has no effect.
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
        self.replan(|plan| plan.direction = Direction::Backward)
    }

    /// Reads `leaves` leaves at once, 1 to 32, from the beginning. Without it a range begins with one leaf
    /// and doubles up to eight, so that short ranges read little and long ranges are fast. Call it before
    /// taking the first entry.
    pub fn prefetch(self, leaves: usize) -> Self {
        self.replan(|plan| plan.prefetch = Some(leaves))
    }

    /// Returns at most `entries` entries, from whichever end, and reads only the leaves that they need. It is
    /// better than [`take`](Iterator::take) if the number is known. Call it before taking the first entry.
    pub fn limit(self, entries: usize) -> Self {
        self.replan(|plan| plan.limit = Some(entries))
    }

    /// The next entry of an end, if one is buffered.
    #[inline]
    fn buffered(&mut self, at: usize) -> Option<RawEntryRef<'_>> {
        // Most ranges are taken from one end. Its scan counts the entries. When the range is over, the scan
        // is gone.
        if self.ends[1 - at].begun && !self.may_deliver(at) {
            return None;
        }
        self.ends[at].scan.as_mut()?.next()
    }

    /// Whether an end may deliver an entry that it has buffered, if both ends have begun. Counts the entry.
    #[cold]
    fn may_deliver(&mut self, at: usize) -> bool {
        let next = self.ends[at].scan.as_ref().and_then(|scan| scan.next_key());
        let Some(key) = next.filter(|_| !self.over && self.plan.limit != Some(0)) else { return false };
        let ascending = (self.plan.direction == Direction::Forward) == (at == FRONT);
        let reached = |last: &[u8]| if ascending { key >= last } else { key <= last };
        self.over = self.ends[1 - at].last_key().is_some_and(reached);
        if let Some(left) = &mut self.plan.limit {
            *left -= usize::from(!self.over);
        }
        !self.over
    }

    /// Takes over the limit from the scan of the only end that has begun.
    fn update_limit(&mut self) {
        let [front, back] = &self.ends;
        if front.begun != back.begun
            && let Some(scan) = front.scan.as_ref().or(back.scan.as_ref())
        {
            self.plan.limit = scan.limit();
        }
    }

    /// Whether an end has to read before it can deliver.
    fn is_drained(&self, at: usize) -> bool {
        self.ends[at].scan.as_ref().is_none_or(|scan| scan.is_drained())
    }

    /// What an end reads next.
    fn next_reading(&mut self, at: usize) -> Option<Reading> {
        self.update_limit();
        let begun = self.ends.iter().any(|end| end.begun);
        // Even a range of no entries begins, so that its bounds are checked.
        if self.over || (begun && self.plan.limit == Some(0)) {
            return None;
        }
        if !self.ends[at].begun {
            let plan = self.plan_of(at);
            self.ends[at].begun = true;
            self.ends[at].leaves = plan.first_leaves();
            return Some(Reading::Planned(plan));
        }
        let end = &mut self.ends[at];
        let mut scan = end.scan.take()?;
        end.last = scan.last_key().map(Packed::copy).or(end.last.take());
        if self.plan.prefetch.is_none() {
            end.leaves = (end.leaves * 2).min(PREFETCH);
            scan.set_prefetch(end.leaves);
        }
        if let Some(entries) = self.plan.limit {
            scan.set_limit(entries);
        }
        Some(Reading::Begun(scan))
    }

    /// The plan of an end that begins now. It ends before the last key that the other end has delivered.
    fn plan_of(&self, at: usize) -> RangePlan {
        let mut plan = self.plan.clone();
        if at == BACK {
            plan.direction = match plan.direction {
                Direction::Forward => Direction::Backward,
                Direction::Backward => Direction::Forward,
            };
        }
        if let Some(met) = self.ends[1 - at].last_key() {
            let bound = Bound::Excluded(Packed::copy(met));
            match plan.direction {
                Direction::Forward => plan.to = bound,
                Direction::Backward => plan.from = bound,
            }
        }
        plan
    }

    /// Reads until an end has an entry to deliver, or the range is over. After an error it is over.
    fn poll_fill(&mut self, at: usize, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.ends[at].read.is_none() {
            let Some(reading) = self.next_reading(at) else { return Poll::Ready(Ok(())) };
            self.ends[at].read = Some(self.source.read(reading));
        }
        let end = &mut self.ends[at];
        let Some(read) = &mut end.read else { return Poll::Ready(Ok(())) };
        let Poll::Ready(answer) = Pin::new(read).poll(cx) else { return Poll::Pending };
        end.read = None;
        match answer {
            Ok(Some(scan)) => end.scan = Some(scan),
            Ok(None) => self.over = true,
            Err(error) => {
                self.over = true;
                return Poll::Ready(Err(error));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Source> Drop for Entries<S> {
    fn drop(&mut self) {
        for end in &mut self.ends {
            if let Some(scan) = end.scan.take() {
                self.source.end(scan);
            }
        }
    }
}

/// Blocking ranges.
impl<K: Stored, V: Stored> Entries<&Client<K, V>> {
    /// Fills an end's buffer. A client's read is ready at once.
    fn fill(&mut self, at: usize) -> Result<(), Error> {
        match self.poll_fill(at, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(filled) => filled,
            Poll::Pending => Ok(()),
        }
    }

    #[inline]
    fn decoded(&mut self, at: usize) -> Option<(K, V)> {
        self.buffered(at).map(|(key, value)| (K::read(key), V::read(value)))
    }

    #[inline]
    fn take_from(&mut self, at: usize) -> Option<Result<(K, V), Error>> {
        // Most entries are already buffered.
        match self.decoded(at) {
            Some(entry) => Some(Ok(entry)),
            None => self.fill_and_take(at),
        }
    }

    #[inline(never)]
    fn fill_and_take(&mut self, at: usize) -> Option<Result<(K, V), Error>> {
        self.fill(at).map(|()| self.decoded(at)).transpose()
    }

    /// The next key and value as bytes, in the range's own buffer. Allocates nothing.
    ///
    /// # Errors
    /// As the iterator's.
    pub fn advance(&mut self) -> Result<Option<RawEntryRef<'_>>, Error> {
        // Two steps, because the borrow checker does not allow returning a borrowed entry conditionally.
        if self.is_drained(FRONT) {
            self.fill(FRONT)?;
        }
        Ok(self.buffered(FRONT))
    }
}

impl<K: Stored, V: Stored> Iterator for Entries<&Client<K, V>> {
    type Item = Result<(K, V), Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.take_from(FRONT)
    }
}

impl<K: Stored, V: Stored> DoubleEndedIterator for Entries<&Client<K, V>> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take_from(BACK)
    }
}

impl<K: Stored, V: Stored> FusedIterator for Entries<&Client<K, V>> {}

/// Asynchronous ranges.
impl<S: AsyncSource> Entries<S> {
    async fn take_from(&mut self, at: usize) -> Result<Option<RawEntryRef<'_>>, Error> {
        if self.is_drained(at) {
            poll_fn(|cx| self.poll_fill(at, cx)).await?;
        }
        Ok(self.buffered(at))
    }

    /// The next key and value as bytes, in the range's own buffer. The future may be dropped and `advance`
    /// called again: nothing is lost.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub async fn advance(&mut self) -> Result<Option<RawEntryRef<'_>>, Error> {
        self.take_from(FRONT).await
    }

    /// The next entry; `None` at the end. The future may be dropped and `next` called again: nothing is lost.
    ///
    /// # Errors
    /// [`Error::BadRange`]: the range ends before it begins. After any error the range is over.
    pub async fn next(&mut self) -> Option<Result<(S::Key, S::Value), Error>> {
        decoded(self.take_from(FRONT).await)
    }

    /// The next entry from the other end. As [`next`](Self::next).
    pub async fn next_back(&mut self) -> Option<Result<(S::Key, S::Value), Error>> {
        decoded(self.take_from(BACK).await)
    }
}

fn decoded<K: Stored, V: Stored>(
    entry: Result<Option<RawEntryRef<'_>>, Error>,
) -> Option<Result<(K, V), Error>> {
    entry.map(|entry| entry.map(|(key, value)| (K::read(key), V::read(value)))).transpose()
}
