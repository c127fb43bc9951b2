//! `congee`: `Congee`, through `insert`, `get` and `range`, which fills a buffer.
//!
//! Its ranges exclude their upper end, so no range contains the key `u64::MAX`. No workload here uses that
//! key.

use crate::error::Failure;
use crate::index::{Handle, Index, Sum};
use ::congee::Congee;

/// An adaptive radix tree. Its keys are as wide as a pointer.
pub struct Radix(Congee<usize, usize>);

/// The handle of a thread: the tree, and a buffer for ranges.
pub struct RadixHandle<'a> {
    tree: &'a Congee<usize, usize>,
    found: Vec<(usize, usize)>,
}

impl Index for Radix {
    type Handle<'a> = RadixHandle<'a>;

    fn open(_keys: u64) -> Result<Self, Failure> {
        if usize::BITS < u64::BITS {
            return Err(Failure::Unsupported("its keys have fewer than 64 bits on this machine"));
        }
        Ok(Self(Congee::default()))
    }

    fn handle(&self) -> Result<RadixHandle<'_>, Failure> {
        Ok(RadixHandle { tree: &self.0, found: Vec::new() })
    }
}

impl Handle for RadixHandle<'_> {
    #[inline]
    fn insert(&mut self, key: u64, value: u64) -> Result<(), Failure> {
        let inserted = self.tree.insert(key as usize, value as usize, &self.tree.pin());
        inserted.map(|_| ()).map_err(|_| Failure::OutOfMemory)
    }

    #[inline]
    fn get(&mut self, key: u64) -> Result<Option<u64>, Failure> {
        Ok(self.tree.get(&(key as usize), &self.tree.pin()).map(|value| value as u64))
    }

    #[inline]
    fn range(&mut self, from: u64, limit: usize) -> Result<Sum, Failure> {
        self.found.resize(limit, (0, 0));
        let found = self.tree.range(&(from as usize), &usize::MAX, &mut self.found, &self.tree.pin());
        Ok(Sum::of(self.found[..found].iter().map(|&(key, value)| (key as u64, value as u64))))
    }
}
