//! Ranges of keys, in either direction.
//!
//! A range is planned, then read leaf by leaf: a few leaves a round trip, their entries buffered. It is **not a snapshot**:
//! every entry it gives was there at some moment between the range's first read and its delivery, a key that is there
//! throughout is never missed, and none comes twice; but two entries may be of different moments.
//!
//! Unless it is told how many leaves to [prefetch](Range::prefetch), a range begins with one leaf a round trip and doubles up to
//! [`PREFETCH`]: a short one reads no more than it needs, a long one has many READs in flight.

mod client;
mod handle;
mod pull;
mod session;

pub use client::{Range, RawRange};
pub use handle::{HandleRange, RawHandleRange};
pub use session::{RawSessionRange, SessionRange};

use crate::cluster::AnyEndpoint;
use crate::codec::{Key, owned};
use sherman_core::tree::range::MAX_PREFETCH;
use sherman_core::{Direction, Error, Scan, TreeState, Worker};
use std::ops::{Bound, RangeBounds};

/// A key and its value, as bytes.
pub type RawEntry = (Vec<u8>, Vec<u8>);

/// A key and its value, as bytes in somebody's buffer.
pub type RawEntryRef<'a> = (&'a [u8], &'a [u8]);

/// Leaves that a range reads at once, unless it is told.
const PREFETCH: usize = 8;

/// A range that was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    direction: Direction,
    /// As the caller said.
    prefetch: Option<usize>,
    limit: Option<usize>,
}

impl Plan {
    pub(crate) fn new(from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Self {
        Self { from, to, direction: Direction::Forward, prefetch: None, limit: None }
    }

    /// Everything.
    pub(crate) fn all() -> Self {
        Self::new(Bound::Unbounded, Bound::Unbounded)
    }

    /// A range of byte strings.
    pub(crate) fn of_bytes<'k>(range: &impl RangeBounds<&'k [u8]>) -> Self {
        Self::new(range.start_bound().map(|key| key.to_vec()), range.end_bound().map(|key| key.to_vec()))
    }

    /// A range of keys.
    pub(crate) fn of_keys<K: Key>(range: &impl RangeBounds<K>) -> Self {
        Self::new(range.start_bound().map(owned), range.end_bound().map(owned))
    }

    /// The first entry above `key`.
    pub(crate) fn after(key: Vec<u8>) -> Self {
        Self::new(Bound::Excluded(key), Bound::Unbounded).limit(1)
    }

    /// The last entry below `key`.
    pub(crate) fn before(key: Vec<u8>) -> Self {
        Self::new(Bound::Unbounded, Bound::Excluded(key)).limit(1).descending()
    }

    pub(crate) fn descending(self) -> Self {
        Self { direction: Direction::Backward, ..self }
    }

    pub(crate) fn prefetch(self, leaves: usize) -> Self {
        Self { prefetch: Some(leaves), ..self }
    }

    pub(crate) fn limit(self, entries: usize) -> Self {
        Self { limit: Some(entries), ..self }
    }

    /// Leaves to begin with. A limit says by itself how many are needed; without one, few.
    fn first_leaves(&self) -> usize {
        self.prefetch.unwrap_or(if self.limit.is_some() { PREFETCH } else { 1 })
    }
}

/// A range on its way.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there are few, on the stack: a box would be an allocation for every range"
)]
pub(crate) enum Reading {
    Planned(Plan),
    Begun(Scan),
}

impl Reading {
    /// Every entry, as fast as can be.
    pub(crate) fn of_everything() -> Self {
        Self::Planned(Plan::all().prefetch(MAX_PREFETCH))
    }

    pub(crate) fn into_scan(self, worker: &Worker<AnyEndpoint>, tree: &TreeState) -> Result<Scan, Error> {
        match self {
            Self::Begun(scan) => Ok(scan),
            Self::Planned(plan) => {
                let (from, to) = (plan.from.as_ref().map(Vec::as_slice), plan.to.as_ref().map(Vec::as_slice));
                let mut scan = worker.scan(tree, from, to, plan.direction, plan.first_leaves())?;
                if let Some(entries) = plan.limit {
                    scan.set_limit(entries);
                }
                Ok(scan)
            }
        }
    }
}

/// Where a range stands for its owner.
#[derive(Debug)]
pub(crate) struct Cursor {
    state: State,
    /// Leaves to read at once next, unless the caller said how many.
    ramp: Option<usize>,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there are few, on the stack: a box would be an allocation for every range"
)]
enum State {
    Planned(Plan),
    /// With entries in its buffer, or none left there.
    Reading(Scan),
    Over,
}

impl Cursor {
    pub(crate) fn new(plan: Plan) -> Self {
        Self { state: State::Planned(plan), ramp: None }
    }

    /// Changes the plan, unless the range has begun.
    pub(crate) fn replan(&mut self, change: impl FnOnce(Plan) -> Plan) {
        if let State::Planned(plan) = &mut self.state {
            *plan = change(std::mem::replace(plan, Plan::all()));
        }
    }

    /// The scan, if there is one: the range is over.
    pub(crate) fn end(&mut self) -> Option<Scan> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Reading(scan) => Some(scan),
            State::Planned(_) | State::Over => None,
        }
    }

    /// Whether the buffer is empty.
    pub(crate) fn has_none_buffered(&self) -> bool {
        match &self.state {
            State::Reading(scan) => scan.is_drained(),
            State::Planned(_) | State::Over => true,
        }
    }

    /// The next entry that has been read.
    #[inline]
    pub(crate) fn buffered(&mut self) -> Option<RawEntryRef<'_>> {
        match &mut self.state {
            State::Reading(scan) => scan.next(),
            State::Planned(_) | State::Over => None,
        }
    }

    /// What is to be read next; `None` if the range is over. It is, until what was read comes [back](Self::resume).
    pub(crate) fn take(&mut self) -> Option<Reading> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Planned(plan) => {
                self.ramp = if plan.prefetch.is_some() { None } else { Some(plan.first_leaves()) };
                Some(Reading::Planned(plan))
            }
            State::Reading(mut scan) => {
                if let Some(leaves) = &mut self.ramp {
                    *leaves = (*leaves * 2).min(PREFETCH);
                    scan.set_prefetch(*leaves);
                }
                Some(Reading::Begun(scan))
            }
            State::Over => None,
        }
    }

    /// The scan, begun if it is only planned: what is to be read on in, in place. `None` if the range is over.
    pub(crate) fn reading(
        &mut self,
        worker: &Worker<AnyEndpoint>,
        tree: &TreeState,
    ) -> Result<Option<&mut Scan>, Error> {
        if matches!(self.state, State::Planned(_)) {
            let Some(planned) = self.take() else { return Ok(None) };
            self.state = State::Reading(planned.into_scan(worker, tree)?);
        } else if let (State::Reading(scan), Some(leaves)) = (&mut self.state, &mut self.ramp) {
            *leaves = (*leaves * 2).min(PREFETCH);
            scan.set_prefetch(*leaves);
        }
        Ok(match &mut self.state {
            State::Reading(scan) => Some(scan),
            State::Planned(_) | State::Over => None,
        })
    }

    /// Goes on with what was read. After an error the range is over.
    pub(crate) fn resume(&mut self, read: Result<Option<Scan>, Error>) -> Result<(), Error> {
        if let Some(scan) = read? {
            self.state = State::Reading(scan);
        }
        Ok(())
    }
}
