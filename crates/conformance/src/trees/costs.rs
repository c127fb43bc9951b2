//! The cost of a fixed sequence of operations. It is the same on every backend, because the tree alone
//! decides the round trips.

use super::Failure;
use sherman::{Cluster, Stats};

/// Returns the costs of inserts that create the tree `name`, which must be new, and then of lookups, updates
/// and removals in it.
pub fn costs(cluster: &Cluster, name: &str) -> Result<Stats, Failure> {
    let client = cluster.tree::<u64, u64>(name)?.client()?;
    for key in 0..3_000 {
        client.insert(key * 7 % 3_000, key)?;
    }
    for key in 0..500 {
        client.get(key)?;
        client.insert(key, 1)?;
        client.remove(key)?;
    }
    Ok(client.stats())
}
