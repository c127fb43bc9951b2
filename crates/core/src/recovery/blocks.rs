//! Settles the blocks of dead members: long values that they were putting, replacing or removing (I57, I58 of
//! `docs/INVARIANTS.md`).
//!
//! A member links a block before it releases the lane of the entry that refers to it. So while its lanes are
//! not given back, the entry of a pending block's key changes no more: either it refers to the block, which
//! is linked then, or it never did, and the block is free.
//!
//! A record names each block whose reference the member was replacing or removing. If the entry of the
//! block's key refers to this version of the block no more, the change happened, and the block is free.
//! Nobody else frees it.
//!
//! The key is in the block. The recoverer looks it up, and that may have to wait: for a node that another
//! client has not linked yet, or has left torn. If that client is dead too, the recovery ends with a time-out
//! and is repeated later. Meanwhile the members that this one was recovering may be recovered, because the
//! records of this member are replayed already.

use super::Recoverer;
use crate::error::Error;
use crate::node::block::{self, BlockRef, Slot};
use crate::node::mark::{mark_free, mark_linked};
use crate::node::{Header, LINE, Node};
use crate::op::Op;
use crate::redo::Record;
use crate::tree::TreeState;
use sherman_fabric::{ComputeId, Endpoint, GlobalAddress, Peer, Space, calls};
use std::sync::Arc;
use std::time::Duration;

/// Whether the entry of a block's key refers to the block: `slot` is what the entry has, if there is one.
fn refers_to(slot: Option<&[u8]>, address: GlobalAddress, version: u16) -> bool {
    seam!(recovery::refers_to());
    let block = slot.and_then(block::read_slot);
    matches!(block, Some(Slot::Long(block)) if (block.address, block.version) == (address, version))
}

/// Whether a place still holds the block of a record.
fn is_same_block(header: &Header, tree: &TreeState, version: u16) -> bool {
    seam!(recovery::is_same_block(header));
    (header.tree, header.version) == (tree.info().id, version)
}

impl<E: Endpoint> Recoverer<'_, E> {
    /// See the module.
    pub(super) async fn settle_all_blocks(&mut self) -> Result<(), Error> {
        for client in self.going() {
            let Err(error) = self.settle_blocks(client).await else { continue };
            if matches!(error, Error::Timeout { .. } | Error::OwnerStalled { .. }) {
                // It may wait for a member that this one was recovering. That member comes next, and then
                // this one again. Its records are replayed, so nobody waits for them.
                self.op.call(Peer::Control, calls::Relieve { client }).await?;
            }
            self.fail(client, error)?;
        }
        Ok(())
    }

    async fn settle_blocks(&mut self, dead: ComputeId) -> Result<(), Error> {
        let records = self.dead.get_mut(&dead).map(|patient| std::mem::take(&mut patient.blocks));
        for (tree, found) in records.unwrap_or_default() {
            let Record { node, version, .. } = found.record;
            self.free_replaced(&tree, node, version, dead).await?;
            self.clear(&found).await?;
        }
        if !self.trees.values().any(|(tree, _)| tree.has_blocks()) {
            return Ok(());
        }
        for server in 0..self.op.endpoint().servers() {
            let mut from = 0;
            loop {
                let spans = self.spans_of(dead, server, from).await?;
                let Some(last) = spans.last() else { break };
                from = last.offset + last.bytes;
                for span in spans.iter().filter(|span| span.class.is_block()) {
                    let bytes = u64::from(span.class.node_bytes);
                    let places = (span.offset..span.offset + span.bytes).step_by(bytes as usize);
                    let places: Vec<(u64, u32)> = places.map(|offset| (offset, LINE as u32)).collect();
                    let lines = self.read_all(server, Space::Host, &places).await?;
                    for ((offset, _), line) in places.into_iter().zip(lines) {
                        self.settle_block(dead, GlobalAddress::new(server, offset), line).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Links or frees a block that `dead` made, if it is still pending. `line` is its header line.
    async fn settle_block(
        &mut self,
        dead: ComputeId,
        address: GlobalAddress,
        mut line: Vec<u8>,
    ) -> Result<(), Error> {
        let Some(header) = Header::decode(&line) else { return Ok(()) };
        if !header.flags.pending || header.flags.free || header.owner != dead {
            return Ok(());
        }
        let marked = match self.is_referred_to(header.tree, address, header.version).await? {
            true => mark_linked(&mut line),
            false => mark_free(&mut line, dead),
        };
        self.write_marked(address, &marked, &line).await
    }

    /// Whether the entry of the key of the block at `address` refers to this version of the block.
    async fn is_referred_to(
        &mut self,
        tree: u32,
        address: GlobalAddress,
        version: u16,
    ) -> Result<bool, Error> {
        // The nodes of a tree that is gone lead to nobody, and a drop compares versions.
        let Some((tree, true)) = self.trees.get(&tree).map(|(tree, listed)| (Arc::clone(tree), *listed))
        else {
            return Ok(false);
        };
        let bytes = (LINE + tree.shape().leaf.key_len()) as u32;
        let Some(image) = self.read_bytes(address, bytes).await? else { return Ok(false) };
        let key = match block::name(&image) {
            Some((header, key)) if (header.tree, header.version) == (tree.info().id, version) => key,
            _ => return Ok(false),
        };
        if key.len() != tree.shape().leaf.key_len() {
            return Ok(false);
        }
        let worker = self.op.worker;
        // Long enough to suspect the client that it waits for, but no longer.
        let patience = Duration::from_nanos(worker.compute.geometry().lease_nanos / 2);
        let mut slot = Vec::new();
        match Op::to_recover(worker, patience).get_slot(&tree, key, &mut slot).await {
            Ok(there) => Ok(refers_to(there.then_some(&slot), address, version)),
            // The tree has been dropped meanwhile, or its leaf is lost with its server.
            Err(Error::NoSuchTree { .. } | Error::ServerLost { .. } | Error::VolumeLost { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Frees a block whose reference `dead` was replacing or removing, if that happened.
    async fn free_replaced(
        &mut self,
        tree: &TreeState,
        address: GlobalAddress,
        version: u16,
        dead: ComputeId,
    ) -> Result<(), Error> {
        if self.lost.contains(&address.server()) {
            return Ok(());
        }
        let Some(mut line) = self.read_bytes(address, LINE as u32).await? else { return Ok(()) };
        let header = Header::decode(&line);
        let same = header.filter(|header| is_same_block(header, tree, version));
        // Otherwise the place holds another block by now.
        let Some(header) = same else { return Ok(()) };
        if header.flags.free {
            return self.write_free(address, None).await;
        }
        if self.is_referred_to(header.tree, address, header.version).await? && header.version == version {
            return Ok(());
        }
        let marked = mark_free(&mut line, dead);
        self.write_free(address, Some((&marked, &line))).await
    }

    /// Links the pending blocks of a dead member that the entries of its pending leaf refer to. `image` is
    /// the leaf, linked.
    pub(super) async fn link_blocks_of(&mut self, record: &Record, image: &[u8]) -> Result<(), Error> {
        let Some((tree, _)) = self.trees.get(&record.tree).cloned() else { return Ok(()) };
        if record.level != 0 || !tree.has_blocks() {
            return Ok(());
        }
        let Ok(leaf) = Node::open(&tree.shape().leaf, image, 0) else { return Ok(()) };
        let blocks = leaf.entries().into_iter().filter_map(|(_, slot)| match block::read_slot(&slot) {
            Some(Slot::Long(block)) => Some(block),
            _ => None,
        });
        for BlockRef { address, version, .. } in blocks.collect::<Vec<_>>() {
            if self.op.worker.compute.check_pointer(address, LINE).is_err() {
                continue;
            }
            let Some(mut line) = self.read_bytes(address, LINE as u32).await? else { continue };
            let header = Header::decode(&line);
            if header.is_some_and(|it| it.flags.pending && it.owner == record.owner && it.version == version)
            {
                let marked = mark_linked(&mut line);
                self.write_marked(address, &marked, &line).await?;
            }
        }
        Ok(())
    }
}
