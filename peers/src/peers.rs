//! The indexes: ours, and its peers. Each file names the calls of its crate that it uses: the fastest that do
//! the job.

pub mod concurrent;
pub mod congee;
pub mod fern;
pub mod locked;
pub mod mass;
pub mod ours;
pub mod scc;
pub mod skiplist;

use crate::drive::{Subject, Tenant};

/// The description of an index.
#[derive(Clone, Copy)]
pub struct Peer {
    /// Its name on the command line and in tables.
    pub name: &'static str,
    /// The crate it comes from.
    pub package: &'static str,
    /// A short description.
    pub about: &'static str,
    /// Makes an empty slot for the index.
    pub subject: fn() -> Box<dyn Subject>,
}

/// The name of our index.
pub const OURS: &str = "sherman";

/// Every index that takes part, ours first.
pub const ALL: [Peer; 8] = [
    Peer {
        name: OURS,
        package: "sherman-tree",
        about: "ours: an embedded cluster of one memory server, default options, a client per thread",
        subject: || Tenant::<ours::Ours>::vacant(),
    },
    Peer {
        name: "crossbeam-skiplist",
        package: "crossbeam-skiplist",
        about: "SkipMap, a lock-free skip list",
        subject: || Tenant::<skiplist::Skiplist>::vacant(),
    },
    Peer {
        name: "scc",
        package: "scc",
        about: "TreeIndex, a B+tree for reading",
        subject: || Tenant::<scc::Scc>::vacant(),
    },
    Peer {
        name: "concurrent-map",
        package: "concurrent-map",
        about: "ConcurrentMap, a lock-free B+tree of copied nodes",
        subject: || Tenant::<concurrent::Concurrent>::vacant(),
    },
    Peer {
        name: "ferntree",
        package: "ferntree",
        about: "Tree, a B+tree with optimistic lock coupling",
        subject: || Tenant::<fern::Fern>::vacant(),
    },
    Peer {
        name: "masstree",
        package: "masstree",
        about: "MassTree, a trie of B+trees, values inline",
        subject: || Tenant::<mass::Mass>::vacant(),
    },
    Peer {
        name: "congee",
        package: "congee",
        about: "Congee, an adaptive radix tree with optimistic lock coupling",
        subject: || Tenant::<congee::Radix>::vacant(),
    },
    Peer {
        name: "rwlock-btreemap",
        package: "parking_lot",
        about: "the standard BTreeMap under one RwLock of parking_lot",
        subject: || Tenant::<locked::Locked>::vacant(),
    },
];

/// Returns the index with this name.
pub fn named(name: &str) -> Option<Peer> {
    ALL.into_iter().find(|peer| peer.name == name)
}

/// Returns the version of `package` that this program was built with.
pub fn version_of(package: &str) -> &'static str {
    let lock = include_str!("../Cargo.lock");
    // If another package needs an older version, the last entry is the one that this package uses.
    let entry =
        lock.split("[[package]]").filter(|entry| entry.contains(&format!("name = \"{package}\"\n"))).last();
    entry.and_then(|entry| entry.split("version = \"").nth(1)?.split('"').next()).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_has_a_version_and_a_name_of_its_own() {
        for (at, peer) in ALL.iter().enumerate() {
            assert!(
                version_of(peer.package).starts_with(|first: char| first.is_ascii_digit()),
                "{}",
                peer.name
            );
            assert!(ALL[..at].iter().all(|other| other.name != peer.name));
        }
        assert_eq!(version_of("no-such-crate"), "unknown");
    }
}
