//! `masstree`: `MassTree`, values inline, through `insert`, `get_with_guard` and `scan_intra_leaf_batch`, its
//! fastest scan that returns keys. Keys are big-endian bytes.

use crate::error::Failure;
use crate::index::{Handle, Index, Sum};
use masstree::{MassTree, RangeBound};

/// A trie of B+trees.
pub struct Mass(MassTree<u64>);

impl Index for Mass {
    type Handle<'a> = &'a Mass;

    fn open(_keys: u64) -> Result<Self, Failure> {
        Ok(Self(MassTree::new()))
    }

    fn handle(&self) -> Result<&Self, Failure> {
        Ok(self)
    }
}

impl Handle for &Mass {
    #[inline]
    fn insert(&mut self, key: u64, value: u64) -> Result<(), Failure> {
        self.0.insert(&key.to_be_bytes(), value);
        Ok(())
    }

    #[inline]
    fn get(&mut self, key: u64) -> Result<Option<u64>, Failure> {
        let guard = self.0.guard();
        Ok(self.0.get_with_guard(&key.to_be_bytes(), &guard))
    }

    #[inline]
    fn range(&mut self, from: u64, limit: usize) -> Result<Sum, Failure> {
        let guard = self.0.guard();
        let mut sum = Sum::default();
        let add = |key: &[u8], value: u64| {
            let key = key.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
            sum.add(key, value);
            sum.entries < limit as u64
        };
        self.0.scan_intra_leaf_batch(
            RangeBound::Included(&from.to_be_bytes()),
            RangeBound::Unbounded,
            add,
            &guard,
        );
        Ok(sum)
    }
}
