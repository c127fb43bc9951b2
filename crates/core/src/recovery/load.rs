//! Linking what a bulk load left pending.
//!
//! The root word has been swapped, so all that it leads to is part of the tree; others wait for it. Every level is walked from
//! left to right: a pending node is changed by nobody, so it is still where its loader put it, whatever others have made of those
//! around it that were linked already.

use super::{Known, Recoverer};
use crate::cache::child_address;
use crate::cause::Cause;
use crate::error::Error;
use crate::node::mark::mark_linked;
use crate::node::{LINE, Node, Reject};
use crate::root::RootWord;
use sherman_fabric::{Endpoint, GlobalAddress};
use std::rc::Rc;

/// What a node on the way says.
struct Seen {
    low: Vec<u8>,
    sibling: GlobalAddress,
    first_child: Option<GlobalAddress>,
}

impl<E: Endpoint> Recoverer<'_, E> {
    /// Links all that the loads that happened left pending.
    pub(super) async fn link_loads(&mut self) -> Result<(), Error> {
        for number in 0..self.loads.len() {
            let tree = Rc::clone(&self.loads[number].0);
            // Trees change while they are walked.
            while !self.link_tree(&tree).await? {
                self.op.retry(Cause::StalePointer).await?;
            }
        }
        Ok(())
    }

    /// Clears the records of loads, when nothing is pending any more.
    pub(super) async fn forget_loads(&mut self) -> Result<(), Error> {
        for (_, found) in std::mem::take(&mut self.loads) {
            self.clear(&found).await?;
        }
        Ok(())
    }

    /// Walks every level of a tree. False if it changed so that the walk must begin anew.
    async fn link_tree(&mut self, tree: &Known) -> Result<bool, Error> {
        let Some(word) = self.root_of(tree).await? else { return Ok(true) };
        let root = RootWord::from_bits(word);
        let mut first = Some(root.address);
        for level in (0..=root.level).rev() {
            let Some(mut at) = first.take() else { return Ok(false) };
            let mut before: Option<Vec<u8>> = None;
            while !at.is_null() {
                let Some(seen) = self.link_node(tree, at, level).await? else { return Ok(false) };
                // Siblings ascend (I4). Else the place has been used again meanwhile, or the memory lies, perhaps in a circle.
                if before.is_some_and(|before| before >= seen.low) {
                    return Ok(false);
                }
                before = Some(seen.low);
                if first.is_none() {
                    first = seen.first_child;
                }
                at = seen.sibling;
            }
        }
        Ok(true)
    }

    /// Links the node at `address` if it is pending. `None` if it is no such node any more.
    async fn link_node(&mut self, tree: &Known, address: GlobalAddress, level: u8) -> Result<Option<Seen>, Error> {
        loop {
            self.breathe().await?;
            let bytes = tree.shape.at(level).node_bytes();
            self.op.worker.compute.check_pointer(address, bytes)?;
            let Some(mut image) = self.read_bytes(address, bytes as u32).await? else { return Ok(None) };
            let seen = match Node::open_marked(tree.shape.at(level), &image, level) {
                Ok(node) if node.header.flags.free => return Ok(None),
                Ok(node) => {
                    let body = if level > 0 { node.sorted() } else { None };
                    let first_child = body.filter(|body| !body.is_empty()).map(|body| child_address(&body, 0));
                    let pending = node.header.flags.pending && node.header.owner == self.dead;
                    Some((Seen { low: node.low(), sibling: node.header.sibling, first_child }, pending))
                }
                Err(Reject::Torn) => None,
                Err(_) => return Ok(None),
            };
            match seen {
                Some((seen, pending)) => {
                    if pending {
                        mark_linked(&mut image);
                        self.write_node(address, 0, &image[..LINE]).await?;
                    }
                    return Ok(Some(seen));
                }
                None => self.op.retry(Cause::TornNode).await?,
            }
        }
    }
}
