//! The standard `BTreeMap` under one reader-writer lock: the alternative without any of these crates. A range
//! holds the lock from its first entry to its last.

use crate::error::Failure;
use crate::index::{Handle, Index, Sum};
use parking_lot::RwLock;
use std::collections::BTreeMap;

/// A B-tree under a lock.
pub struct Locked(RwLock<BTreeMap<u64, u64>>);

impl Index for Locked {
    type Handle<'a> = &'a Locked;

    fn open(_keys: u64) -> Result<Self, Failure> {
        Ok(Self(RwLock::default()))
    }

    fn handle(&self) -> Result<&Self, Failure> {
        Ok(self)
    }
}

impl Handle for &Locked {
    #[inline]
    fn insert(&mut self, key: u64, value: u64) -> Result<(), Failure> {
        self.0.write().insert(key, value);
        Ok(())
    }

    #[inline]
    fn get(&mut self, key: u64) -> Result<Option<u64>, Failure> {
        Ok(self.0.read().get(&key).copied())
    }

    #[inline]
    fn range(&mut self, from: u64, limit: usize) -> Result<Sum, Failure> {
        Ok(Sum::of(self.0.read().range(from..).take(limit).map(|(key, value)| (*key, *value))))
    }
}
