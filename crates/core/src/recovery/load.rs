//! Linking what a bulk load left pending.
//!
//! The root word has been swapped, so all that it leads to is part of the tree; others wait for it. Every level is walked from
//! left to right: a pending node is changed by nobody, so it is still where its loader put it, whatever others have made of those
//! around it that were linked already. Where a memory server is lost such a walk may lead nowhere; then the spans of the loader are looked at.

use super::Recoverer;
use crate::cache::child_address;
use crate::cause::Cause;
use crate::error::Error;
use crate::node::mark::mark_linked;
use crate::node::{Header, LINE, Node, Reject};
use crate::root::RootWord;
use crate::tree::TreeState;
use sherman_fabric::{ClientId, Endpoint, GlobalAddress, Space};
use std::sync::Arc;

/// What a node on the way says.
struct Seen {
    low: Vec<u8>,
    sibling: GlobalAddress,
    first_child: Option<GlobalAddress>,
}

impl<E: Endpoint> Recoverer<'_, E> {
    /// Links all that the loads of `dead` that happened left pending.
    pub(super) async fn link_loads(&mut self, dead: ClientId) -> Result<(), Error> {
        let loads = self.dead.get(&dead).map_or(0, |patient| patient.loads.len());
        for number in 0..loads {
            let tree = match self.dead.get(&dead).and_then(|patient| patient.loads.get(number)) {
                Some((tree, _)) => Arc::clone(tree),
                None => break,
            };
            // Trees change while they are walked.
            while !self.link_tree(dead, &tree).await? {
                // What led on may be gone for good.
                if !self.lost.is_empty() {
                    self.link_scattered(dead, &tree).await?;
                    break;
                }
                self.op.retry(Cause::StalePointer).await?;
            }
        }
        Ok(())
    }

    /// Clears the records of loads, when nothing is pending any more.
    pub(super) async fn forget_loads(&mut self, dead: ClientId) -> Result<(), Error> {
        let loads = self.dead.get_mut(&dead).map(|patient| std::mem::take(&mut patient.loads)).unwrap_or_default();
        for (_, found) in loads {
            self.clear(&found).await?;
        }
        Ok(())
    }

    /// Walks every level of a tree, leaves first: a drop waits for the root, so a tree that is gone has no pending nodes of a load. False if
    /// the tree changed so that the walk must begin anew.
    async fn link_tree(&mut self, dead: ClientId, tree: &TreeState) -> Result<bool, Error> {
        let Some(word) = self.root_of(tree).await? else { return Ok(true) };
        let root = RootWord::from_bits(word);
        let mut firsts = vec![root.address];
        for level in (1..=root.level).rev() {
            let at = firsts[firsts.len() - 1];
            let first = self.see(dead, tree, at, level, false).await?.and_then(|seen| seen.first_child);
            let Some(first) = first else { return Ok(false) };
            firsts.push(first);
        }
        for (level, mut at) in (0..=root.level).zip(firsts.into_iter().rev()) {
            let mut before: Option<Vec<u8>> = None;
            while !at.is_null() {
                let Some(seen) = self.see(dead, tree, at, level, true).await? else { return Ok(false) };
                // Siblings ascend (I4). Else the place has been used again meanwhile, or the memory lies, perhaps in a circle.
                if before.is_some_and(|before| before >= seen.low) {
                    return Ok(false);
                }
                before = Some(seen.low);
                at = seen.sibling;
            }
        }
        Ok(true)
    }

    /// Links whatever of a tree the dead one left pending in its spans. One that was made in vain, if there is any, is then
    /// linked to nothing: no more is lost by that than its place.
    async fn link_scattered(&mut self, dead: ClientId, tree: &TreeState) -> Result<(), Error> {
        for server in 0..self.op.endpoint().servers() {
            let (mut from, mut spans) = (0, Vec::new());
            loop {
                let page = self.spans_of(dead, server, from).await?;
                let Some(last) = page.last() else { break };
                from = last.offset + last.bytes;
                spans.extend(page);
            }
            for span in spans {
                self.expect_alive()?;
                let bytes = self.read_table(server, Space::Host, span.offset, span.bytes).await?;
                let places = (span.offset..).step_by(span.class.node_bytes as usize);
                for (image, at) in bytes.chunks_exact(span.class.node_bytes as usize).zip(places) {
                    let made = Header::decode(image).is_some_and(|header| {
                        header.flags.pending && header.owner == dead && header.tree == tree.info().id
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

    /// What the node at `address` says; links it, if it is to be and is pending. `None` if it is no such node any more.
    async fn see(
        &mut self,
        dead: ClientId,
        tree: &TreeState,
        address: GlobalAddress,
        level: u8,
        link: bool,
    ) -> Result<Option<Seen>, Error> {
        loop {
            self.expect_alive()?;
            let shape = tree.shape().at(level);
            self.op.worker.compute.check_pointer(address, shape.node_bytes())?;
            let Some(mut image) = self.read_bytes(address, shape.node_bytes() as u32).await? else { return Ok(None) };
            let seen = match Node::open_marked(shape, &image, level) {
                Ok(node) if node.header.flags.free => return Ok(None),
                Ok(node) => {
                    let body = if level > 0 { node.sorted() } else { None };
                    let first_child = body.filter(|body| !body.is_empty()).map(|body| child_address(&body, 0));
                    let pending = node.header.flags.pending && node.header.owner == dead;
                    Some((Seen { low: node.low(), sibling: node.header.sibling, first_child }, pending))
                }
                Err(Reject::Torn) => None,
                Err(_) => return Ok(None),
            };
            match seen {
                Some((seen, pending)) => {
                    if pending && link {
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
