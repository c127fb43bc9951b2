//! `crossbeam-skiplist`: `SkipMap`, through `insert`, `get` and `range`.

use crate::error::Failure;
use crate::index::{Handle, Index, Sum};
use crossbeam_skiplist::SkipMap;

/// A skip list.
pub struct Skiplist(SkipMap<u64, u64>);

impl Index for Skiplist {
    type Handle<'a> = &'a Skiplist;

    /// Up to 0.1.3, an insert removes the old entry before it adds the new one.
    const MAY_MISS: bool = true;

    fn open(_keys: u64) -> Result<Self, Failure> {
        Ok(Self(SkipMap::new()))
    }

    fn handle(&self) -> Result<&Self, Failure> {
        Ok(self)
    }
}

impl Handle for &Skiplist {
    #[inline]
    fn insert(&mut self, key: u64, value: u64) -> Result<(), Failure> {
        self.0.insert(key, value);
        Ok(())
    }

    #[inline]
    fn get(&mut self, key: u64) -> Result<Option<u64>, Failure> {
        Ok(self.0.get(&key).map(|entry| *entry.value()))
    }

    #[inline]
    fn range(&mut self, from: u64, limit: usize) -> Result<Sum, Failure> {
        Ok(Sum::of(self.0.range(from..).take(limit).map(|entry| (*entry.key(), *entry.value()))))
    }
}
