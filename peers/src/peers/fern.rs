//! `ferntree`: `Tree`, through `insert`, `get_optimistic` and the raw iterator, which seeks once where
//! `range` seeks twice.

use crate::error::Failure;
use crate::index::{Handle, Index, Sum};
use ferntree::Tree;

/// A B+tree with optimistic lock coupling.
pub struct Fern(Tree<u64, u64>);

impl Index for Fern {
    type Handle<'a> = &'a Fern;

    fn open(_keys: u64) -> Result<Self, Failure> {
        Ok(Self(Tree::new()))
    }

    fn handle(&self) -> Result<&Self, Failure> {
        Ok(self)
    }
}

impl Handle for &Fern {
    #[inline]
    fn insert(&mut self, key: u64, value: u64) -> Result<(), Failure> {
        self.0.insert(key, value);
        Ok(())
    }

    #[inline]
    fn get(&mut self, key: u64) -> Result<Option<u64>, Failure> {
        Ok(self.0.get_optimistic(&key))
    }

    #[inline]
    fn range(&mut self, from: u64, limit: usize) -> Result<Sum, Failure> {
        let mut entries = self.0.raw_iter();
        entries.seek(&from);
        let mut sum = Sum::default();
        for _ in 0..limit {
            let Some((key, value)) = entries.next() else { break };
            sum.add(*key, *value);
        }
        Ok(sum)
    }
}
