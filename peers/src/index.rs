//! The operations that an index must provide to take part.
//!
//! Runs are compiled for every index ([`crate::drive`] is generic), so no virtual call lies between the clock
//! and the index. One operation is one call of [`Handle`], which takes any guard that the index needs.

use crate::error::Failure;

/// An ordered map of `u64` to `u64`, shared by threads.
pub trait Index: Sized + Sync {
    /// The handle with which one thread uses the index.
    type Handle<'a>: Handle
    where
        Self: 'a;

    /// Whether a get may miss a key that another thread is replacing. Such misses are counted and shown. For
    /// any other index a miss is a failure.
    const MAY_MISS: bool = false;

    /// Opens an empty index, meant for about `keys` keys.
    fn open(keys: u64) -> Result<Self, Failure>;

    /// Returns a handle for the calling thread.
    fn handle(&self) -> Result<Self::Handle<'_>, Failure>;
}

/// An index, as one thread uses it.
pub trait Handle {
    /// Puts `value` under `key`, whether the key exists or not.
    fn insert(&mut self, key: u64, value: u64) -> Result<(), Failure>;

    /// Returns the value under `key`.
    fn get(&mut self, key: u64) -> Result<Option<u64>, Failure>;

    /// Adds up the first `limit` entries whose keys are at least `from`, in ascending order.
    fn range(&mut self, from: u64, limit: usize) -> Result<Sum, Failure>;
}

/// The sum of entries: proof that each was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// The number of entries.
    pub entries: u64,
    /// The sum of their keys and values, modulo 2^64.
    pub total: u64,
}

impl Sum {
    /// Adds an entry.
    #[inline]
    pub fn add(&mut self, key: u64, value: u64) {
        self.entries += 1;
        self.total = self.total.wrapping_add(key).wrapping_add(value);
    }

    /// Adds up all entries of an iterator.
    #[inline]
    pub fn of(entries: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut sum = Self::default();
        entries.for_each(|(key, value)| sum.add(key, value));
        sum
    }
}
