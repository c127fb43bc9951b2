//! Linking what a bulk load left pending.
//!
//! The root word has been swapped, so all that it leads to is part of the tree; others wait for it. Every level is walked from
//! left to right: a pending node is changed by nobody, so it is still where its loader put it, whatever others have made of those
//! around it that were linked already. Where a memory server is lost such a walk may lead nowhere; then every place is looked at.

use super::{Known, Recoverer};
use crate::cache::child_address;
use crate::cause::Cause;
use crate::error::Error;
use crate::node::mark::mark_linked;
use crate::node::{Header, LINE, Node, Reject};
use crate::root::RootWord;
use sherman_fabric::{Endpoint, GlobalAddress, Space};
use sherman_memory_server::ChunkEntry;
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
                // What led on may be gone for good.
                if !self.lost.is_empty() {
                    self.link_scattered(&tree).await?;
                    break;
                }
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

    /// Links whatever of a tree the dead one left pending, wherever it is. One that was made in vain, if there is any, is then
    /// linked to nothing: no more is lost by that than its place.
    async fn link_scattered(&mut self, tree: &Known) -> Result<(), Error> {
        for server in 0..self.op.endpoint().servers() {
            let geometry = *self.op.worker.compute.geometry_of(server);
            for index in 0..self.chunks[usize::from(server)].len() {
                let ChunkEntry::Issued { class, .. } = self.chunks[usize::from(server)][index] else { continue };
                self.expect_alive()?;
                let offset = geometry.chunk_offset(index as u32);
                let chunk = self.read_table(server, Space::Host, offset, geometry.chunk_bytes).await?;
                let places = (offset..).step_by(class.node_bytes as usize);
                for (image, at) in chunk.chunks_exact(class.node_bytes as usize).zip(places) {
                    let made = Header::decode(image).is_some_and(|header| {
                        header.flags.pending && header.owner == self.dead && header.tree == tree.info.id
                    });
                    if made {
                        let mut image = image.to_vec();
                        mark_linked(&mut image);
                        self.write_node(GlobalAddress::new(server, at), 0, &image[..LINE]).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Links the node at `address` if it is pending. `None` if it is no such node any more.
    async fn link_node(&mut self, tree: &Known, address: GlobalAddress, level: u8) -> Result<Option<Seen>, Error> {
        loop {
            self.expect_alive()?;
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
