//! Our tree: one memory server embedded in this process (more from 25 million keys on), default options, one
//! [`Client`] per thread.
//!
//! The index cache has room for every level-1 node, because the peers' inner nodes are in memory too.

use crate::error::Failure;
use crate::index::{Handle, Index, Sum};
use sherman::{Client, Cluster, ClusterOptions, Tree};

/// Memory of a server. Pages that are never written cost nothing.
const MEMORY: &str = "4GiB";
/// Keys to load per server: about a quarter of its capacity, so that inserts have room.
const KEYS_PER_SERVER: u64 = 25_000_000;
/// The least bytes of index cache.
const CACHE: usize = 64 << 20;

/// Our tree. The cluster lives as long as the tree.
pub struct Ours {
    tree: Tree<u64, u64>,
}

impl Index for Ours {
    type Handle<'a> = Client<u64, u64>;

    fn open(keys: u64) -> Result<Self, Failure> {
        let servers = keys.div_ceil(KEYS_PER_SERVER).max(1);
        let cache = CACHE.max(usize::try_from(keys).unwrap_or(usize::MAX).saturating_mul(8));
        let options = ClusterOptions::new().cache_bytes(cache);
        let cluster = Cluster::open_with(&format!("embedded:?servers={servers}&memory={MEMORY}"), options)?;
        Ok(Self { tree: cluster.tree("peers")? })
    }

    fn handle(&self) -> Result<Client<u64, u64>, Failure> {
        Ok(self.tree.client()?)
    }
}

impl Handle for Client<u64, u64> {
    #[inline]
    fn insert(&mut self, key: u64, value: u64) -> Result<(), Failure> {
        Client::insert(self, key, value)?;
        Ok(())
    }

    #[inline]
    fn get(&mut self, key: u64) -> Result<Option<u64>, Failure> {
        Ok(Client::get(self, key)?)
    }

    #[inline]
    fn range(&mut self, from: u64, limit: usize) -> Result<Sum, Failure> {
        let mut sum = Sum::default();
        for entry in Client::range(self, from..).limit(limit) {
            let (key, value) = entry?;
            sum.add(key, value);
        }
        Ok(sum)
    }
}
