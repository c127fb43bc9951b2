//! `scc`: `TreeIndex`, through `upsert_sync`, `peek_with` and `range`. Its upsert does not return the
//! replaced value.

use crate::error::Failure;
use crate::index::{Handle, Index, Sum};
use ::scc::{Guard, TreeIndex};

/// A B+tree optimized for reads.
pub struct Scc(TreeIndex<u64, u64>);

impl Index for Scc {
    type Handle<'a> = &'a Scc;

    fn open(_keys: u64) -> Result<Self, Failure> {
        Ok(Self(TreeIndex::new()))
    }

    fn handle(&self) -> Result<&Self, Failure> {
        Ok(self)
    }
}

impl Handle for &Scc {
    #[inline]
    fn insert(&mut self, key: u64, value: u64) -> Result<(), Failure> {
        self.0.upsert_sync(key, value);
        Ok(())
    }

    #[inline]
    fn get(&mut self, key: u64) -> Result<Option<u64>, Failure> {
        Ok(self.0.peek_with(&key, |_, value| *value))
    }

    #[inline]
    fn range(&mut self, from: u64, limit: usize) -> Result<Sum, Failure> {
        let guard = Guard::new();
        Ok(Sum::of(self.0.range(from.., &guard).take(limit).map(|(key, value)| (*key, *value))))
    }
}
