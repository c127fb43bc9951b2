//! Visits every node of a tree at rest, to verify it.

use super::TreeState;
use crate::error::Error;
use crate::node::block::{self, Slot};
use crate::node::{Header, LINE, Position, get_u64};
use crate::op::Op;
use sherman_fabric::{Endpoint, GlobalAddress};

/// The result of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// Key and value of every entry, ascending.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
    /// Nodes on each level, leaves first.
    pub nodes: Vec<usize>,
    /// The addresses of the nodes, level by level from the root.
    pub places: Vec<GlobalAddress>,
    /// Nodes that only their left neighbour leads to: legal, but slow.
    pub missing_separators: usize,
    /// Nodes of whose present version this client's cache has a copy that leads elsewhere. Breaks I10.
    pub miscached: Vec<GlobalAddress>,
}

impl Walk {
    /// The number of levels; a single leaf is one level.
    pub fn height(&self) -> usize {
        self.nodes.len()
    }
}

/// The decoded parts of one node.
struct Seen {
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    sibling: GlobalAddress,
    entries: Vec<(Vec<u8>, Vec<u8>)>,
    inside: bool,
    /// Whether this client's cached copy of the node leads to its children.
    cached: bool,
}

/// The address in the payload of an internal node's entry.
fn child_of(payload: &[u8]) -> GlobalAddress {
    GlobalAddress::from_bits(get_u64(payload, 0))
}

impl<E: Endpoint> Op<'_, E> {
    /// Walks every level from left to right. Checks the invariants of `docs/INVARIANTS.md` that a single tree
    /// at rest can show. Costs one round trip per node. Meant for a tree that no client writes to; it may
    /// report concurrent splits as errors.
    pub async fn walk(&self, tree: &TreeState) -> Result<Walk, Error> {
        tree.forget_root();
        let root = self.root(tree).await?;
        let mut walk = Walk::default();
        let mut leftmost = root.address;
        // The children that the level above names, in order. The root word names the root.
        let mut named = vec![(vec![0; tree.shape.leaf.key_len()], root.address)];
        for level in (0..=root.level).rev() {
            let mut below = Vec::new();
            let mut nodes = 0;
            let mut at = leftmost;
            let mut expected_low = vec![0; tree.shape.leaf.key_len()];
            let mut names = named.iter().peekable();
            loop {
                let seen = self.see(tree, at, level).await?;
                let corrupt = |invariant| Error::Corrupt { address: at, invariant };
                if seen.low != expected_low {
                    return Err(corrupt("I4: a node's low fence is its left neighbour's high fence"));
                }
                if !seen.inside {
                    return Err(corrupt("I5: a node's entries lie inside its fences"));
                }
                if seen.entries.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
                    return Err(corrupt("I6: a key appears once"));
                }
                match names.next_if(|(key, _)| *key == seen.low) {
                    Some((_, child)) if *child == at => {}
                    Some(_) => {
                        return Err(corrupt("I7: a separator leads to the node whose low fence it is"));
                    }
                    None => walk.missing_separators += 1,
                }
                if level > 0 && seen.entries.first().is_none_or(|(key, _)| *key != seen.low) {
                    return Err(corrupt("I8: an internal node's first separator is its low fence"));
                }
                nodes += 1;
                walk.places.push(at);
                if !seen.cached {
                    walk.miscached.push(at);
                }
                if level == 0 {
                    walk.entries.extend(seen.entries);
                } else {
                    below.extend(seen.entries);
                }
                let Some(high) = seen.high else { break };
                if high <= seen.low {
                    return Err(corrupt("I4: a node's low fence is its left neighbour's high fence"));
                }
                if seen.sibling.is_null() {
                    return Err(corrupt("I9: a node with a high fence has a sibling"));
                }
                expected_low = high;
                at = seen.sibling;
            }
            if names.next().is_some() {
                return Err(Error::Corrupt {
                    address: leftmost,
                    invariant: "I7: a separator leads to the node whose low fence it is",
                });
            }
            walk.nodes.insert(0, nodes);
            named = below.into_iter().map(|(key, child)| (key, child_of(&child))).collect();
            if let Some((_, child)) = named.first() {
                leftmost = *child;
            }
        }
        if tree.has_blocks() {
            self.walk_blocks(tree, &mut walk).await?;
        }
        Ok(walk)
    }

    /// Puts the values in place of the slots of the entries, and adds the places of the blocks.
    async fn walk_blocks(&self, tree: &TreeState, walk: &mut Walk) -> Result<(), Error> {
        for (key, slot) in &mut walk.entries {
            let invariant = super::values::I56;
            let slot_of = Error::Corrupt { address: GlobalAddress::NULL, invariant };
            let block = match block::read_slot(slot).ok_or(slot_of)? {
                Slot::Short(value) => {
                    *slot = value.to_vec();
                    continue;
                }
                Slot::Long(block) => block,
            };
            let corrupt = || Error::Corrupt { address: block.address, invariant: super::values::I59 };
            let line = self.read_bytes(block.address, LINE as u32).await?;
            if Header::decode(&line).is_none_or(|header| header.flags.pending) {
                return Err(corrupt());
            }
            let value = self.read_blocks(tree, &[(key, block)]).await?.pop().flatten();
            *slot = value.ok_or_else(corrupt)?;
            walk.places.push(block.address);
        }
        Ok(())
    }

    async fn see(&self, tree: &TreeState, address: GlobalAddress, level: u8) -> Result<Seen, Error> {
        let seen = self.visit(tree, address, level, |node| {
            let entries = node.entries();
            let inside = entries.iter().all(|(key, _)| node.position(key) == Position::Inside);
            let children = entries.iter().map(|(key, child)| (key.as_slice(), child_of(child)));
            let cached = level == 0 || tree.cache.agrees(address, node.header.version, children);
            let (low, high, sibling) = (node.low(), node.high(), node.header.sibling);
            Ok(Seen { low, high, sibling, entries, inside, cached })
        });
        seen.await?.ok_or(Error::Corrupt {
            address,
            invariant: "I10: a pointer leads to a node of its tree and level",
        })
    }
}
