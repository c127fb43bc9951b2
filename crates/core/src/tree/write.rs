//! From patches and splits to work lists (paper §4.5, command combination; design §5, crash-atomic).
//!
//! | change | lists, where commands are combined |
//! |---|---|
//! | one unit | `[data, release]` |
//! | several units | `[record, data, record cleared, release]` |
//! | split on one server | `[record, sibling (pending), node, sibling linked, record cleared, release]` |
//! | split over two servers | `[record, sibling (pending)]`, `[node, release]`, `[sibling linked, record cleared]` |
//!
//! A handover drops the release; without `redo` there are no records; without `combine` every release is a list of its own.
//! The record of a split over two servers lies with the sibling: it is complete before the sibling is, and whether the
//! split happened is read off the node.

use super::TreeState;
use crate::error::Error;
use crate::lock::{Held, Locked};
use crate::node::draft::{Place, SplitOff};
use crate::node::{Draft, Node, Patch};
use crate::op::Op;
use crate::redo::{Kind, Record, Slot};
use sherman_fabric::{Endpoint, GlobalAddress, Space, WorkList};

/// Adds a patch's WRITEs.
fn push_patch(list: &mut WorkList, address: GlobalAddress, image: &[u8], patch: &Patch) {
    for range in patch.steps() {
        list.write(Space::Host, address.offset() + range.start as u64, &image[range.clone()]);
    }
}

impl<E: Endpoint> Op<'_, E> {
    fn about(&self, kind: Kind, tree: &TreeState, node: GlobalAddress, draft: &Draft<'_>) -> Record {
        let header = draft.header();
        Record::about(kind, self.endpoint().client(), tree.info.id, node, header.level, header.version)
    }

    /// A redo slot on `server`, if techniques ask for one and it is `needed`. On failure the lane is given back.
    async fn slot(&self, needed: bool, server: u16, held: Held) -> Result<(Held, Option<Slot>), Error> {
        if !needed || !self.worker.compute.techniques().redo {
            return Ok((held, None));
        }
        match self.worker.compute.redo.take(self, server).await {
            Ok(slot) => Ok((held, Some(slot))),
            Err(error) => {
                self.release(held).await?;
                Err(error)
            }
        }
    }

    /// Gives slots back after their records were cleared. After an error they stay taken: what they hold is recovery's.
    fn settle(&self, slots: [Option<Slot>; 2]) {
        for slot in slots.into_iter().flatten() {
            self.worker.compute.redo.put_back(slot);
        }
    }

    /// Writes a change of one node back and gives its lane back.
    pub(crate) async fn write(
        &self,
        tree: &TreeState,
        locked: Locked,
        draft: &Draft<'_>,
        patch: &Patch,
    ) -> Result<(), Error> {
        debug_assert!(Node::open(tree.shape.at(draft.header().level), draft.image(), draft.header().level).is_ok());
        let address = locked.address;
        let held = locked.done(self);
        let crash_unit = self.worker.compute.caps().crash_unit;
        let (held, slot) = self.slot(patch.needs_redo(crash_unit), address.server(), held).await?;
        let mut list = self.endpoint().list(address.server());
        if let Some(slot) = &slot {
            slot.log(&mut list, &self.about(Kind::Image, tree, address, draft).with_pieces(draft.image(), patch));
        }
        push_patch(&mut list, address, draft.image(), patch);
        if let Some(slot) = &slot {
            slot.clear(&mut list);
        }
        self.write_back(held, list).await.map_err(Error::after_post)?;
        self.settle([slot, None]);
        Ok(())
    }

    /// Writes a split back, sibling first, and gives the node's lane back. Returns the separator.
    pub(crate) async fn write_split(
        &self,
        tree: &TreeState,
        locked: Locked,
        draft: &Draft<'_>,
        mut split: SplitOff<'_>,
        place: Place,
    ) -> Result<Vec<u8>, Error> {
        let (node, sibling) = (locked.address, place.address);
        let held = locked.done(self);
        let intent =
            Record { made: sibling, made_version: place.version, ..self.about(Kind::Split, tree, node, draft) };
        let logged = split.left.needs_redo(self.worker.compute.caps().crash_unit);
        let (held, slot) = self.slot(true, sibling.server(), held).await?;
        if node.server() == sibling.server() && self.worker.compute.techniques().combine {
            let mut list = self.endpoint().list(node.server());
            if let Some(slot) = &slot {
                let pieces = if logged { intent.with_pieces(draft.image(), &split.left) } else { intent };
                slot.log(&mut list, &pieces);
            }
            list.write(Space::Host, sibling.offset(), split.right.image());
            push_patch(&mut list, node, draft.image(), &split.left);
            let linked = split.right.link();
            push_patch(&mut list, sibling, split.right.image(), &linked);
            if let Some(slot) = &slot {
                slot.clear(&mut list);
            }
            self.write_back(held, list).await.map_err(Error::after_post)?;
            self.settle([slot, None]);
            return Ok(split.separator);
        }
        let (held, image_slot) = match self.slot(logged, node.server(), held).await {
            Ok(both) => both,
            Err(error) => {
                self.settle([slot, None]);
                return Err(error);
            }
        };
        let mut list = self.endpoint().list(sibling.server());
        if let Some(slot) = &slot {
            slot.log(&mut list, &intent);
        }
        list.write(Space::Host, sibling.offset(), split.right.image());
        match self.execute(list).await {
            Ok(list) => self.endpoint().recycle(list),
            Err(error) => {
                self.release(held).await?;
                return Err(error.into());
            }
        }
        let mut list = self.endpoint().list(node.server());
        if let Some(slot) = &image_slot {
            slot.log(&mut list, &self.about(Kind::Image, tree, node, draft).with_pieces(draft.image(), &split.left));
        }
        push_patch(&mut list, node, draft.image(), &split.left);
        if let Some(slot) = &image_slot {
            slot.clear(&mut list);
        }
        self.write_back(held, list).await.map_err(Error::after_post)?;
        self.link(&mut split.right, sibling, &slot).await.map_err(Error::after_post)?;
        self.settle([slot, image_slot]);
        Ok(split.separator)
    }

    /// Clears a node's pending mark, and the record that told of it.
    pub(crate) async fn link(
        &self,
        draft: &mut Draft<'_>,
        address: GlobalAddress,
        slot: &Option<Slot>,
    ) -> Result<(), sherman_fabric::FabricError> {
        let mut list = self.endpoint().list(address.server());
        let linked = draft.link();
        push_patch(&mut list, address, draft.image(), &linked);
        if let Some(slot) = slot {
            slot.clear(&mut list);
        }
        self.execute(list).await.map(|list| self.endpoint().recycle(list))
    }
}
