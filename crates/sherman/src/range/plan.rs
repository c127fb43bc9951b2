//! What a range shall read.

use crate::cluster::AnyEndpoint;
use crate::codec::{Packed, PrefixKey, Value};
use sherman_core::tree::range::MAX_PREFETCH;
use sherman_core::{Direction, Error, Scan, TreeState, Worker};
use std::ops::{Bound, RangeBounds};

/// The most leaves that a range reads at once, unless the caller sets the number.
pub(super) const PREFETCH: usize = 8;

/// A requested range.
#[derive(Clone, Debug)]
pub struct RangePlan {
    pub(super) from: Bound<Packed>,
    pub(super) to: Bound<Packed>,
    pub(super) direction: Direction,
    /// The caller's choice, if any.
    pub(super) prefetch: Option<usize>,
    pub(super) limit: Option<usize>,
}

impl RangePlan {
    fn new(from: Bound<Packed>, to: Bound<Packed>) -> Self {
        Self { from, to, direction: Direction::Forward, prefetch: None, limit: None }
    }

    /// All entries.
    pub(crate) fn all() -> Self {
        Self::new(Bound::Unbounded, Bound::Unbounded)
    }

    /// All keys of `key_bytes` bytes that begin with `prefix`.
    pub(crate) fn of_prefix<K: PrefixKey>(prefix: &[u8], key_bytes: usize) -> Self {
        let Some(lowest) = K::lowest_with(prefix, key_bytes) else { return Self::all().limit(0) };
        let highest = Packed::filled(key_bytes, |key| {
            key.fill(0xff);
            key[..prefix.len()].copy_from_slice(prefix);
        });
        Self::new(Bound::Included(Packed::copy(&lowest)), Bound::Included(highest))
    }

    /// The first entry above `key`.
    pub(crate) fn after(key: Packed) -> Self {
        Self::new(Bound::Excluded(key), Bound::Unbounded).limit(1)
    }

    /// The last entry below `key`.
    pub(crate) fn before(key: Packed) -> Self {
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

    /// How many leaves to read first. With a limit the scan itself knows how many it needs; without one it
    /// begins with few.
    pub(super) fn first_leaves(&self) -> usize {
        self.prefetch.unwrap_or(if self.limit.is_some() { PREFETCH } else { 1 })
    }
}

/// A range of keys: any `RangeBounds<K>`, or `RangeBounds<&[u8]>` in trees of byte strings.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a range of keys of type `{K}`",
    label = "write a range of `{K}` here, as in `from..to`"
)]
pub trait KeyRange<K> {
    #[doc(hidden)]
    fn plan(&self) -> RangePlan;
}

impl<K: Value, R: RangeBounds<K>> KeyRange<K> for R {
    fn plan(&self) -> RangePlan {
        RangePlan::new(self.start_bound().map(Packed::of), self.end_bound().map(Packed::of))
    }
}

impl<'k, R: RangeBounds<&'k [u8]>> KeyRange<Vec<u8>> for R {
    fn plan(&self) -> RangePlan {
        RangePlan::new(
            self.start_bound().map(|key| Packed::copy(key)),
            self.end_bound().map(|key| Packed::copy(key)),
        )
    }
}

/// A range that has not begun, or has.
#[derive(Debug)]
pub enum Reading {
    #[doc(hidden)]
    Planned(RangePlan),
    #[doc(hidden)]
    Begun(Box<Scan>),
}

impl Reading {
    /// Every entry, as fast as possible.
    pub(crate) fn of_everything() -> Self {
        Self::Planned(RangePlan::all().prefetch(MAX_PREFETCH))
    }

    pub(crate) fn into_scan(
        self,
        worker: &Worker<AnyEndpoint>,
        tree: &TreeState,
    ) -> Result<Box<Scan>, Error> {
        match self {
            Self::Begun(scan) => Ok(scan),
            Self::Planned(plan) => {
                let (from, to) = (plan.from.as_ref().map(|key| &**key), plan.to.as_ref().map(|key| &**key));
                let mut scan = worker.scan(tree, from, to, plan.direction, plan.first_leaves())?;
                if let Some(entries) = plan.limit {
                    scan.set_limit(entries);
                }
                Ok(scan)
            }
        }
    }
}
