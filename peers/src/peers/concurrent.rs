//! `concurrent-map`: `ConcurrentMap`, through `insert`, `get` and `range`. Threads use clones, not
//! references.

use crate::error::Failure;
use crate::index::{Handle, Index, Sum};
use concurrent_map::ConcurrentMap;
use parking_lot::Mutex;

/// A lock-free B+tree. The lock protects only cloning.
pub struct Concurrent(Mutex<ConcurrentMap<u64, u64>>);

impl Index for Concurrent {
    type Handle<'a> = ConcurrentMap<u64, u64>;

    fn open(_keys: u64) -> Result<Self, Failure> {
        Ok(Self(Mutex::new(ConcurrentMap::new())))
    }

    fn handle(&self) -> Result<ConcurrentMap<u64, u64>, Failure> {
        Ok(self.0.lock().clone())
    }
}

impl Handle for ConcurrentMap<u64, u64> {
    #[inline]
    fn insert(&mut self, key: u64, value: u64) -> Result<(), Failure> {
        ConcurrentMap::insert(self, key, value);
        Ok(())
    }

    #[inline]
    fn get(&mut self, key: u64) -> Result<Option<u64>, Failure> {
        Ok(ConcurrentMap::get(self, &key))
    }

    #[inline]
    fn range(&mut self, from: u64, limit: usize) -> Result<Sum, Failure> {
        Ok(Sum::of(ConcurrentMap::range(self, from..).take(limit)))
    }
}
