//! Links the nodes that a bulk load left pending.
//!
//! The root word has been swapped, so every node below it is part of the tree, and other clients wait for it.
//! The recoverer walks every level from left to right. No client changes a pending node. So it is still where
//! its loader put it, whatever other clients did to linked nodes around it. If a memory server is lost, such
//! a walk may lead nowhere. Then the recoverer scans the spans of the loader.

use super::Recoverer;
use super::replay::RootOf;
use crate::cache::child_address;
use crate::cause::Cause;
use crate::error::Error;
use crate::node::mark::mark_linked;
use crate::node::{Header, Node, Reject};
use crate::root::{RootState, RootWord};
use crate::tree::TreeState;
use sherman_fabric::{ComputeId, Endpoint, GlobalAddress, Space};
use std::sync::Arc;

/// The parts of a node that the walk needs.
struct Seen {
    low: Vec<u8>,
    sibling: GlobalAddress,
    first_child: Option<GlobalAddress>,
}

impl<E: Endpoint> Recoverer<'_, E> {
    /// Links all nodes that the loads of `dead` left pending, for those loads whose swap happened.
    pub(super) async fn link_loads(&mut self, dead: ComputeId) -> Result<(), Error> {
        let loads = self.dead.get(&dead).map_or(0, |patient| patient.loads.len());
        for number in 0..loads {
            let tree = match self.dead.get(&dead).and_then(|patient| patient.loads.get(number)) {
                Some((tree, _)) => Arc::clone(tree),
                None => break,
            };
            // The tree may change during a walk.
            while !self.link_tree(dead, &tree).await? {
                // The node that led on may be lost with its server.
                if !self.lost.is_empty() {
                    self.link_scattered(dead, &tree).await?;
                    break;
                }
                self.op.retry(Cause::StalePointer).await?;
            }
        }
        Ok(())
    }

    /// Clears the records of loads, once no node is pending any more.
    pub(super) async fn forget_loads(&mut self, dead: ComputeId) -> Result<(), Error> {
        let loads =
            self.dead.get_mut(&dead).map(|patient| std::mem::take(&mut patient.loads)).unwrap_or_default();
        for (_, found) in loads {
            self.clear(&found).await?;
        }
        Ok(())
    }

    /// Walks every level of a tree and links its pending nodes, leaves first. A drop waits for the root, so a
    /// dropped tree has no pending nodes of a load. Returns false if the tree changed so that the walk must
    /// begin again.
    async fn link_tree(&mut self, dead: ComputeId, tree: &TreeState) -> Result<bool, Error> {
        let RootOf::Word(word) = self.root_of(tree, true).await? else { return Ok(true) };
        let RootState::Root(root) = RootWord::of(word, tree.info().id) else { return Ok(true) };
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
                // Siblings ascend (I4). Otherwise the place was used again meanwhile, or the memory is
                // damaged and the siblings may form a cycle.
                if before.is_some_and(|before| before >= seen.low) {
                    return Ok(false);
                }
                before = Some(seen.low);
                at = seen.sibling;
            }
        }
        Ok(true)
    }

    /// Links every node of a tree that `dead` left pending in its spans. A node that never became part of the
    /// tree is then linked but unreachable; only its place is lost.
    async fn link_scattered(&mut self, dead: ComputeId, tree: &TreeState) -> Result<(), Error> {
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
                        let marked = mark_linked(&mut image);
                        self.write_marked(GlobalAddress::new(server, at), &marked, &image).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the node at `address`. Links it if `link` is set and `dead` left it pending. Returns `None` if
    /// there is no such node any more.
    async fn see(
        &mut self,
        dead: ComputeId,
        tree: &TreeState,
        address: GlobalAddress,
        level: u8,
        link: bool,
    ) -> Result<Option<Seen>, Error> {
        loop {
            self.expect_alive()?;
            let shape = tree.shape().at(level);
            self.op.worker.compute.check_pointer(address, shape.node_bytes())?;
            let Some(mut image) = self.read_bytes(address, shape.node_bytes() as u32).await? else {
                return Ok(None);
            };
            // Checked before the rest of the node: a drop writes the free mark into the header line alone.
            if Header::decode(&image).is_some_and(|header| header.flags.free) {
                return Ok(None);
            }
            let seen = match Node::open_marked(shape, &image, level) {
                Ok(node) => {
                    let body = if level > 0 { node.sorted() } else { None };
                    let first_child =
                        body.filter(|body| !body.is_empty()).map(|body| child_address(&body, 0));
                    let pending = node.header.flags.pending && node.header.owner == dead;
                    Some((Seen { low: node.low(), sibling: node.header.sibling, first_child }, pending))
                }
                Err(Reject::Torn) => None,
                Err(_) => return Ok(None),
            };
            match seen {
                Some((seen, pending)) => {
                    if pending && link {
                        let marked = mark_linked(&mut image);
                        self.write_marked(address, &marked, &image).await?;
                    }
                    return Ok(Some(seen));
                }
                None => self.op.retry(Cause::TornNode).await?,
            }
        }
    }
}
