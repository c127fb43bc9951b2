//! From patches and splits to work lists (paper §4.5, command combination; I24–I26 of `docs/INVARIANTS.md`).
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
//! split happened is read off the node's version (I26).

use super::TreeState;
use crate::error::Error;
use crate::lock::{Held, Locked};
use crate::membership::Membership;
use crate::mutant::{Mutant, planted};
use crate::node::draft::{Place, SplitOff};
use crate::node::{Draft, LINE, Node, Patch, Reject};
use crate::op::Op;
use crate::redo::{Kind, Record, Slot};
use sherman_fabric::control::ChunkClass;
use sherman_fabric::{Endpoint, FabricError, GlobalAddress, Space, WorkList};
use sherman_memory_server::HINT_FREE;

/// Adds a patch's WRITEs.
pub(crate) fn push_patch(list: &mut WorkList, address: GlobalAddress, image: &[u8], patch: &Patch) {
    for range in patch.steps() {
        list.write(Space::Host, address.offset() + range.start as u64, &image[range.clone()]);
    }
}

impl<E: Endpoint> Op<'_, E> {
    /// Adds what says that the span of a node of `class` may have a free place. It comes behind the node's free mark: the server clears the
    /// hint, and then the span's next owner looks for the mark.
    pub(crate) fn push_hint(&self, list: &mut WorkList, address: GlobalAddress, class: ChunkClass) {
        let geometry = self.worker.compute.geometry_of(address.server());
        let span = geometry.span_at(address.offset(), class.node_bytes);
        if let Some((index, number)) = span.filter(|_| !planted(Mutant::HintForgotten)) {
            list.write(Space::Host, geometry.span_hint(index, number), &HINT_FREE.to_le_bytes());
        }
    }

    pub(crate) fn about(&self, kind: Kind, tree: &TreeState, node: GlobalAddress, draft: &Draft<'_>) -> Record {
        let header = draft.header();
        Record::about(kind, self.endpoint().client(), tree.info(), node, header.level, header.version)
    }

    /// A place for a sibling of the node under `locked`. Without one the lane is given back.
    pub(crate) async fn place_beside(&self, locked: Locked, class: ChunkClass) -> Result<(Locked, Place), Error> {
        match self.worker.compute.alloc.allocate(self, class).await {
            Ok(place) => Ok((locked, place)),
            Err(error) => {
                self.release(locked.done(self)).await?;
                Err(error)
            }
        }
    }

    /// Gives the lane of a node back that cannot be used even under it.
    pub(crate) async fn corrupt<T>(&self, locked: Locked) -> Result<T, Error> {
        let address = locked.address;
        self.release(locked.done(self)).await?;
        Err(Error::Corrupt { address, invariant: "I3: a node is valid under its lane" })
    }

    /// Redo slots on the servers that need one, if techniques ask for any. On failure the lane is given back.
    async fn slots(&self, servers: [Option<u16>; 2], held: Held) -> Result<(Held, [Option<Slot>; 2]), Error> {
        let servers = if self.worker.compute.techniques().redo { servers } else { [None; 2] };
        match self.worker.compute.redo.take(self, servers).await {
            Ok(slots) => Ok((held, slots)),
            Err(error) => {
                self.release(held).await?;
                Err(error)
            }
        }
    }

    /// Gives slots back whose records were cleared, or never written. Others stay taken: what they hold is recovery's.
    pub(crate) fn settle(&self, slots: impl IntoIterator<Item = Option<Slot>>) {
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
        // What is freed is not to be opened any more.
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

    /// The same for a change that must be logged.
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
        let early = planted(Mutant::RecordAfterData);
        if early {
            push_patch(&mut list, address, draft.image(), patch);
        }
        if let Some(slot) = &slot {
            slot.log(&mut list, &self.about(Kind::Image, tree, address, draft).with_pieces(draft.image(), patch));
            if planted(Mutant::RecordClearedEarly) {
                slot.clear(&mut list);
            }
        }
        if !early {
            push_patch(&mut list, address, draft.image(), patch);
        }
        if let Some(slot) = &slot {
            slot.clear(&mut list);
        }
        self.write_back(held, list).await.map_err(|error| self.after_post(error))?;
        self.settle([slot]);
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
        let class = tree.shape.at(draft.header().level).class();
        let held = locked.done(self);
        let intent =
            Record { made: sibling, made_version: place.version, ..self.about(Kind::Split, tree, node, draft) };
        let logged = split.left.needs_redo(self.worker.compute.caps().crash_unit);
        let combined = node.server() == sibling.server() && self.worker.compute.techniques().combine;
        let image_server = (logged && !combined).then_some(node.server());
        let (held, [slot, image_slot]) = match self.slots([Some(sibling.server()), image_server], held).await {
            Ok(taken) => taken,
            Err(error) => {
                self.worker.compute.alloc.give_back(class, sibling, place.version);
                return Err(error);
            }
        };
        if combined {
            let mut list = self.endpoint().list(node.server());
            if let Some(slot) = &slot {
                let record = if logged { intent.with_pieces(draft.image(), &split.left) } else { intent };
                slot.log(&mut list, &record);
            }
            let early = planted(Mutant::HeaderBeforeSibling);
            if early {
                push_patch(&mut list, node, draft.image(), &split.left);
            }
            list.write(Space::Host, sibling.offset(), split.right.image());
            if !early {
                push_patch(&mut list, node, draft.image(), &split.left);
            }
            let linked = split.right.link();
            push_patch(&mut list, sibling, split.right.image(), &linked);
            if let Some(slot) = &slot {
                slot.clear(&mut list);
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
                // Nothing links to the sibling, so nothing was changed. The place and the record stay: recovery's.
                self.settle([image_slot]);
                self.worker.compute.alloc.note_failure(&error);
                if Membership::is_fatal(&error) {
                    // The record stands, and by the lane recovery knows that the split has not happened (I26).
                    self.abandon(held);
                } else {
                    self.release(held).await?;
                }
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
        self.write_back(held, list).await.map_err(|error| self.after_post(error))?;
        self.settle([image_slot]);
        self.link(&mut split.right, sibling, &slot).await.map_err(Error::after_post)?;
        self.settle([slot]);
        self.worker.compute.alloc.linked(class, sibling);
        Ok(split.separator)
    }

    /// Writes a node that nothing leads to yet, pending, behind the record that tells of it: `[record, node]`. The record's
    /// slot, which [`Op::link`] or [`Op::unmake`] clear.
    pub(crate) async fn write_made(
        &self,
        class: ChunkClass,
        place: Place,
        image: &[u8],
        record: &Record,
    ) -> Result<Option<Slot>, Error> {
        let Place { address, version, .. } = place;
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

    /// Clears a node's pending mark, and the record that told of it.
    pub(crate) async fn link(
        &self,
        draft: &mut Draft<'_>,
        address: GlobalAddress,
        slot: &Option<Slot>,
    ) -> Result<(), FabricError> {
        let linked = draft.link();
        self.mark_made(draft, address, &linked, slot).await
    }

    /// Marks a node free that is not going to be linked, and clears the record that told of it: who still knows the way to what
    /// was there before must not wait for it.
    pub(crate) async fn unmake(
        &self,
        draft: &mut Draft<'_>,
        address: GlobalAddress,
        slot: &Option<Slot>,
    ) -> Result<(), FabricError> {
        let free = draft.free(self.endpoint().client());
        self.mark_made(draft, address, &free, slot).await
    }

    async fn mark_made(
        &self,
        draft: &Draft<'_>,
        address: GlobalAddress,
        mark: &Patch,
        slot: &Option<Slot>,
    ) -> Result<(), FabricError> {
        let mut list = self.endpoint().list(address.server());
        push_patch(&mut list, address, draft.image(), mark);
        if let Some(slot) = slot {
            slot.clear(&mut list);
        }
        self.execute(list).await.map(|list| self.endpoint().recycle(list))
    }
}
