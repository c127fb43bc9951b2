//! Turns patches and splits into work lists (paper §4.5, command combination; I24–I26 of
//! `docs/INVARIANTS.md`).
//!
//! | change | lists, where commands are combined |
//! |---|---|
//! | one unit | `[data, release]` |
//! | several units | `[record, data, record cleared, release]` |
//! | split on one server | `[record, sibling (pending), node, sibling linked, record cleared, release]` |
//! | split over two servers | `[record, sibling (pending)]`, `[node, release]`, `[sibling linked, record cleared]` |
//!
//! A handover omits the release. Without `redo` there are no records. Without `combine` every release is a
//! list of its own. The record of a split over two servers lies on the sibling's server, and is complete
//! before the sibling is. The node's version shows whether the split happened (I26).

use super::TreeState;
use crate::error::Error;
use crate::lock::{Held, Locked};
use crate::membership::Membership;
use crate::node::draft::{NodePlace, SplitOff};
use crate::node::{Draft, LINE, Node, Patch, Reject};
use crate::op::Op;
use crate::redo::{Record, RecordKind, RedoSlot};
use sherman_fabric::control::ChunkClass;
use sherman_fabric::{Endpoint, FabricError, GlobalAddress, Space, WorkList};
use sherman_layout::HINT_FREE;

/// A part of the list of a change that must be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoggedPart {
    /// The record.
    Record,
    /// The change itself.
    Data,
    /// The end of the record.
    Cleared,
}

/// The parts of a change that must be logged, in order.
pub(crate) const LOGGED: [LoggedPart; 3] = [LoggedPart::Record, LoggedPart::Data, LoggedPart::Cleared];

#[inline]
fn logged_parts() -> &'static [LoggedPart] {
    seam!(tree::logged_parts());
    &LOGGED
}

/// A part of the list of a split on one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SplitPart {
    /// The record.
    Record,
    /// The whole sibling, pending.
    Sibling,
    /// The changed lines of the node.
    Node,
    /// The sibling without its pending mark.
    Linked,
    /// The end of the record.
    Cleared,
}

/// The parts of a split on one server, in order.
const SPLIT: [SplitPart; 5] =
    [SplitPart::Record, SplitPart::Sibling, SplitPart::Node, SplitPart::Linked, SplitPart::Cleared];

#[inline]
fn split_parts() -> &'static [SplitPart] {
    seam!(tree::split_parts());
    &SPLIT
}

/// Adds the WRITEs of a patch to a list.
pub(crate) fn push_patch(list: &mut WorkList, address: GlobalAddress, image: &[u8], patch: &Patch) {
    for range in patch.steps() {
        list.write(Space::Host, address.offset() + range.start as u64, &image[range.clone()]);
    }
}

impl<E: Endpoint> Op<'_, E> {
    /// Adds the hint that the span of a node of `class` may have a free place. It must follow the node's free
    /// mark: the server clears the hint, and then the span's next owner looks for the mark.
    pub(crate) fn push_hint(&self, list: &mut WorkList, address: GlobalAddress, class: ChunkClass) {
        let geometry = self.worker.compute.geometry_of(address.server());
        seam!(tree::push_hint());
        if let Some((index, number)) = geometry.span_at(address.offset(), class.node_bytes) {
            list.write(Space::Host, geometry.span_hint(index, number), &HINT_FREE.to_le_bytes());
        }
    }

    pub(crate) fn about(
        &self,
        kind: RecordKind,
        tree: &TreeState,
        node: GlobalAddress,
        draft: &Draft<'_>,
    ) -> Record {
        let header = draft.header();
        Record::about(kind, self.endpoint().client(), tree.info(), node, header.level, header.version)
    }

    /// Allocates a place for a sibling of the node under `locked`. If there is none, gives the lane back.
    pub(crate) async fn place_beside(
        &self,
        locked: Locked,
        class: ChunkClass,
    ) -> Result<(Locked, NodePlace), Error> {
        match self.worker.compute.alloc.allocate(self, class).await {
            Ok(place) => Ok((locked, place)),
            Err(error) => {
                self.release(locked.done(self)).await?;
                Err(error)
            }
        }
    }

    /// Gives back the lane of a node that is invalid even under its lane, and returns [`Error::Corrupt`].
    pub(crate) async fn corrupt<T>(&self, locked: Locked) -> Result<T, Error> {
        let address = locked.address;
        self.release(locked.done(self)).await?;
        Err(Error::Corrupt { address, invariant: "I3: a node is valid under its lane" })
    }

    /// Takes redo slots on the servers that need one, if `techniques` use redo records. On failure gives the
    /// lane back.
    pub(super) async fn slots(
        &self,
        servers: [Option<u16>; 2],
        held: Held,
    ) -> Result<(Held, [Option<RedoSlot>; 2]), Error> {
        let servers = if self.worker.compute.techniques().redo { servers } else { [None; 2] };
        match self.worker.compute.redo.take(self, servers).await {
            Ok(slots) => Ok((held, slots)),
            Err(error) => {
                self.release(held).await?;
                Err(error)
            }
        }
    }

    /// Gives back slots whose records were cleared or never written. Other slots stay taken: their records
    /// are for recovery.
    pub(crate) fn settle(&self, slots: impl IntoIterator<Item = Option<RedoSlot>>) {
        for slot in slots.into_iter().flatten() {
            self.worker.compute.redo.put_back(slot);
        }
    }

    /// Writes back a change of one node and gives its lane back.
    pub(crate) async fn write(
        &self,
        tree: &TreeState,
        locked: Locked,
        draft: &Draft<'_>,
        patch: &Patch,
    ) -> Result<(), Error> {
        // A freed node cannot be opened any more.
        debug_assert!(matches!(
            Node::open(tree.shape.at(draft.header().level), draft.image(), draft.header().level),
            Ok(_) | Err(Reject::Free)
        ));
        let address = locked.address;
        let held = locked.done(self);
        if self.worker.compute.techniques().redo && patch.needs_redo(self.worker.compute.caps().crash_unit) {
            return Box::pin(self.write_logged(tree, held, address, draft, patch)).await;
        }
        let mut list = self.endpoint().list(address.server());
        push_patch(&mut list, address, draft.image(), patch);
        self.write_back(held, list).await.map_err(|error| match patch.steps() {
            [only] if only.start / LINE == (only.end.max(1) - 1) / LINE => {
                self.in_doubt(error, address, only.start, &draft.image()[only.clone()])
            }
            _ => self.after_post(error),
        })
    }

    /// Does the work of `write` for a change that must be logged.
    async fn write_logged(
        &self,
        tree: &TreeState,
        held: Held,
        address: GlobalAddress,
        draft: &Draft<'_>,
        patch: &Patch,
    ) -> Result<(), Error> {
        let (held, [slot, _]) = self.slots([Some(address.server()), None], held).await?;
        let mut list = self.endpoint().list(address.server());
        for part in logged_parts() {
            match (part, &slot) {
                (LoggedPart::Record, Some(slot)) => {
                    let about = self.about(RecordKind::Image, tree, address, draft);
                    slot.log(&mut list, &about.with_pieces(draft.image(), patch));
                }
                (LoggedPart::Data, _) => push_patch(&mut list, address, draft.image(), patch),
                (LoggedPart::Cleared, Some(slot)) => slot.clear(&mut list),
                (LoggedPart::Record | LoggedPart::Cleared, None) => {}
            }
        }
        self.write_back(held, list).await.map_err(|error| self.after_post(error))?;
        self.settle([slot]);
        Ok(())
    }

    /// Writes back a split, sibling first, and gives the node's lane back. Returns the separator.
    pub(crate) async fn write_split(
        &self,
        tree: &TreeState,
        locked: Locked,
        draft: &Draft<'_>,
        mut split: SplitOff<'_>,
        place: NodePlace,
    ) -> Result<Vec<u8>, Error> {
        let (node, sibling) = (locked.address, place.address);
        let class = tree.shape.at(draft.header().level).class();
        let held = locked.done(self);
        let intent = Record {
            made: sibling,
            made_version: place.version,
            ..self.about(RecordKind::Split, tree, node, draft)
        };
        let logged = split.left.needs_redo(self.worker.compute.caps().crash_unit);
        let combined = node.server() == sibling.server() && self.worker.compute.techniques().combine;
        let image_server = (logged && !combined).then_some(node.server());
        let (held, [slot, image_slot]) = match self.slots([Some(sibling.server()), image_server], held).await
        {
            Ok(taken) => taken,
            Err(error) => {
                self.worker.compute.alloc.give_back(class, sibling, place.version);
                return Err(error);
            }
        };
        if combined {
            let mut list = self.endpoint().list(node.server());
            let record = if logged && slot.is_some() {
                intent.with_pieces(draft.image(), &split.left)
            } else {
                intent
            };
            for part in split_parts() {
                match (part, &slot) {
                    (SplitPart::Record, Some(slot)) => slot.log(&mut list, &record),
                    (SplitPart::Sibling, _) => {
                        list.write(Space::Host, sibling.offset(), split.right.image());
                    }
                    (SplitPart::Node, _) => {
                        push_patch(&mut list, node, draft.image(), &split.left);
                        // When the sibling is linked, other clients reach its entries.
                        self.push_links(&mut list);
                    }
                    (SplitPart::Linked, _) => {
                        let linked = split.right.link();
                        push_patch(&mut list, sibling, split.right.image(), &linked);
                    }
                    (SplitPart::Cleared, Some(slot)) => slot.clear(&mut list),
                    (SplitPart::Record | SplitPart::Cleared, None) => {}
                }
            }
            self.write_back(held, list).await.map_err(|error| self.after_post(error))?;
            self.settle([slot]);
            self.worker.compute.alloc.linked(class, sibling);
            return Ok(split.separator);
        }
        let mut list = self.endpoint().list(sibling.server());
        if let Some(slot) = &slot {
            slot.log(&mut list, &intent);
        }
        list.write(Space::Host, sibling.offset(), split.right.image());
        match self.execute(list).await {
            Ok(list) => self.endpoint().recycle(list),
            Err(error) => {
                // Nothing links to the sibling, so nothing was changed. The place and the record stay for
                // recovery.
                self.settle([image_slot]);
                self.worker.compute.alloc.note_failure(&error);
                if Membership::is_fatal(&error) {
                    // The record stays, and the lane shows recovery that the split has not happened (I26).
                    self.abandon(held);
                } else {
                    self.release(held).await?;
                }
                return Err(error.into());
            }
        }
        let mut list = self.endpoint().list(node.server());
        if let Some(slot) = &image_slot {
            slot.log(
                &mut list,
                &self.about(RecordKind::Image, tree, node, draft).with_pieces(draft.image(), &split.left),
            );
        }
        push_patch(&mut list, node, draft.image(), &split.left);
        if let Some(slot) = &image_slot {
            slot.clear(&mut list);
        }
        self.write_back(held, list).await.map_err(|error| self.after_post(error))?;
        self.settle([image_slot]);
        match self.link(&mut split.right, sibling, &slot).await {
            // All copies of the node have the split, so the change happened. The record is left: recovery
            // links the sibling.
            Err(FabricError::CopyFailed { .. }) => return Ok(split.separator),
            linked => linked.map_err(Error::after_post)?,
        }
        self.settle([slot]);
        self.worker.compute.alloc.linked(class, sibling);
        Ok(split.separator)
    }

    /// Writes a pending node that nothing leads to yet, behind its record: `[record, node]`. Returns the
    /// record's slot, which [`Op::link`] or [`Op::unmake`] clears.
    pub(crate) async fn write_made(
        &self,
        class: ChunkClass,
        place: NodePlace,
        image: &[u8],
        record: &Record,
    ) -> Result<Option<RedoSlot>, Error> {
        let NodePlace { address, version, .. } = place;
        let compute = &self.worker.compute;
        let server = compute.techniques().redo.then_some(address.server());
        let taken = compute.redo.take(self, [server, None]).await;
        let [slot, _] = taken.inspect_err(|_| compute.alloc.give_back(class, address, version))?;
        let mut list = self.endpoint().list(address.server());
        if let Some(slot) = &slot {
            slot.log(&mut list, record);
        }
        list.write(Space::Host, address.offset(), image);
        let written = self.execute(list).await.inspect_err(|error| compute.alloc.note_failure(error));
        self.endpoint().recycle(written?);
        Ok(slot)
    }

    /// Clears a node's pending mark, then its record.
    pub(crate) async fn link(
        &self,
        draft: &mut Draft<'_>,
        address: GlobalAddress,
        slot: &Option<RedoSlot>,
    ) -> Result<(), FabricError> {
        let linked = draft.link();
        self.mark_made(draft, address, &linked, slot).await
    }

    /// Marks a node that will not be linked as free, then clears its record. A client with a stale pointer to
    /// this place must not wait for the node.
    pub(crate) async fn unmake(
        &self,
        draft: &mut Draft<'_>,
        address: GlobalAddress,
        slot: &Option<RedoSlot>,
    ) -> Result<(), FabricError> {
        let free = draft.free(self.endpoint().client());
        self.mark_made(draft, address, &free, slot).await
    }

    async fn mark_made(
        &self,
        draft: &Draft<'_>,
        address: GlobalAddress,
        mark: &Patch,
        slot: &Option<RedoSlot>,
    ) -> Result<(), FabricError> {
        let mut list = self.endpoint().list(address.server());
        push_patch(&mut list, address, draft.image(), mark);
        if let Some(slot) = slot {
            slot.clear(&mut list);
        }
        self.execute(list).await.map(|list| self.endpoint().recycle(list))
    }
}
