//! Replays the redo records of dead members: finishes or undoes every change that was under way (I24–I27,
//! I34, `docs/INVARIANTS.md`).
//!
//! The dead member is fenced and still holds its lanes. So the nodes that a record names are as it left them,
//! unless it had already given the lane back. Image records come first, since the other records are judged by
//! whole nodes.
//!
//! A record contains the shape of its tree. So records of trees that the catalog no longer lists are replayed
//! like others. Another client may be freeing the nodes of such a tree, and it waits for nodes that the dead
//! member left unfinished.

use super::{Found, Recoverer};
use crate::cache::child_address;
use crate::error::Error;
use crate::node::mark::{mark_free, mark_linked};
use crate::node::{Draft, Header, Node};
use crate::redo::{CLEARED, Record, RecordKind};
use crate::root::{RootState, RootWord};
use crate::tree::TreeState;
use crate::tree::write::{LOGGED, LoggedPart, push_patch};
use sherman_fabric::{ComputeId, Endpoint, FabricError, GlobalAddress, Peer, Refusal, Space, calls};

/// The work that remains for a record.
pub(super) enum Rest {
    /// All is done.
    Nothing,
    /// The loaded nodes must be linked.
    Link,
    /// The node that the record is about must be freed, with all that it leads to: its tree is gone.
    Free,
    /// The block that the record is about must be freed, unless the entry of its key refers to it.
    Block,
}

/// The state of a tree's root word.
pub(super) enum RootOf {
    /// The tree is there, and its root word holds this.
    Word(u64),
    /// The tree has ended.
    Gone,
    /// The root word is lost with its volume, so no client reaches the tree any more.
    Lost,
}

/// The parts of the change of a parent, in order.
fn unlink_parts() -> &'static [LoggedPart] {
    seam!(recovery::unlink_parts());
    &LOGGED
}

/// Whether a growth happened. `word` is the tree's root word.
fn growth_happened(word: u64, record: &Record) -> bool {
    seam!(recovery::growth_happened());
    word == record.root.1
}

/// Whether the dead member had marked a node free. Then its place may belong to another client by now.
fn is_free_already(header: &Header) -> bool {
    seam!(recovery::is_free_already());
    header.flags.free
}

impl<E: Endpoint> Recoverer<'_, E> {
    /// Replays the records of `dead` and clears them. Records of loads that happened and of dropped trees
    /// stay until the work that they ask for is done.
    pub(super) async fn replay(&mut self, dead: ComputeId, mut records: Vec<Found>) -> Result<(), Error> {
        // A merge leaves its nodes whole, a load its tree. Splits, growths and replacements are judged by
        // whole nodes.
        records.sort_by_key(|found| match found.record.kind {
            RecordKind::Image => 0,
            RecordKind::Merge => 1,
            _ => 2,
        });
        for found in records {
            self.expect_alive()?;
            let (tree, listed) = self.tree_of(&found.record)?;
            let rest = self.replay_one(&found.record, &tree, listed).await?;
            let Some(patient) = self.dead.get_mut(&dead) else { continue };
            match rest {
                Rest::Nothing => self.clear(&found).await?,
                Rest::Link => patient.loads.push((tree, found)),
                Rest::Free => patient.drops.push((tree, found)),
                Rest::Block => patient.blocks.push((tree, found)),
            }
        }
        Ok(())
    }

    /// Replays one record. Returns the work that remains before the record may be cleared.
    async fn replay_one(&mut self, record: &Record, tree: &TreeState, listed: bool) -> Result<Rest, Error> {
        seam!(recovery::replay_one(record, listed));
        if record.kind == RecordKind::Image {
            self.write_pieces(record).await?;
            return Ok(Rest::Nothing);
        }
        match record.kind {
            RecordKind::Split => self.replay_split(record, tree).await?,
            RecordKind::Merge => self.replay_merge(record, tree).await?,
            RecordKind::Grow => self.replay_grow(record, tree, listed).await?,
            RecordKind::Replace => return self.replay_replace(record, tree, listed).await,
            RecordKind::Load => return self.replay_load(record, tree, listed).await,
            RecordKind::Drop => return self.replay_drop(tree, listed).await,
            RecordKind::Block => return Ok(Rest::Block),
            RecordKind::Image => {}
        }
        Ok(Rest::Nothing)
    }

    /// Clears a record.
    pub(super) async fn clear(&mut self, found: &Found) -> Result<(), Error> {
        let mut list = self.op.endpoint().list(found.server);
        list.write(Space::Host, found.offset, &CLEARED);
        self.execute(list).await?;
        self.note_empty(found.record.owner, (found.server, found.offset));
        Ok(())
    }

    /// Writes all pieces of a record to its node.
    pub(super) async fn write_pieces(&mut self, record: &Record) -> Result<(), Error> {
        if self.lost.contains(&record.node.server()) {
            return Ok(());
        }
        let Some(class) = self.class_at(record.node).await? else { return Ok(()) };
        let bytes = u64::from(class.node_bytes);
        for (offset, piece) in &record.pieces {
            if u64::from(*offset) + piece.len() as u64 > bytes {
                let invariant = "I25: a record's pieces lie inside its node";
                return Err(Error::Corrupt { address: record.node, invariant });
            }
        }
        for (offset, piece) in &record.pieces {
            self.write_node(record.node, *offset as usize, piece).await?;
        }
        Ok(())
    }

    /// Whether the node that `record` made is still as it was made: pending, and owned by the dead member.
    fn is_as_made(header: &Header, record: &Record) -> bool {
        header.flags.pending
            && !header.flags.free
            && header.owner == record.owner
            && header.tree == record.tree
            && header.version == record.made_version
    }

    /// Links the node that a record made, if it is still pending.
    async fn link_made(&mut self, record: &Record) -> Result<(), Error> {
        let Some(mut image) = self.read_node(record.made).await? else { return Ok(()) };
        if Header::decode(&image).is_some_and(|header| Self::is_as_made(&header, record)) {
            let marked = mark_linked(&mut image);
            // When the sibling is linked, other clients reach its entries.
            self.link_blocks_of(record, &image).await?;
            self.write_marked(record.made, &marked, &image).await?;
        }
        Ok(())
    }

    /// Marks the node that a record made as free, if it was written at all.
    async fn unmake(&mut self, record: &Record) -> Result<(), Error> {
        seam!(recovery::free_made());
        let Some(mut image) = self.read_node(record.made).await? else { return Ok(()) };
        if Header::decode(&image).is_some_and(|header| Self::is_as_made(&header, record)) {
            let marked = mark_free(&mut image, record.owner);
            self.write_free(record.made, Some((&marked, &image))).await?;
        }
        Ok(())
    }

    async fn replay_split(&mut self, record: &Record, tree: &TreeState) -> Result<(), Error> {
        let happens = if record.pieces.is_empty() {
            self.split_happened(record).await?
        } else {
            // The maker writes the whole sibling before any part of the node. If the sibling is lost with its
            // server, the node decides.
            match self.made_is_whole(record, tree).await? {
                Some(whole) => whole,
                None => !self.is_whole_before(record, tree).await?,
            }
        };
        if !happens {
            return self.unmake(record).await;
        }
        self.write_pieces(record).await?;
        self.link_made(record).await
    }

    /// Whether a split whose commit is one unit has happened (I26). It has not iff the node is still as
    /// before and its maker still holds the lane. If the node is lost with its server, the outcome is
    /// unknown. Then the sibling is kept, since a parent may name it.
    async fn split_happened(&mut self, record: &Record) -> Result<bool, Error> {
        seam!(recovery::split_happened(self, record).await);
        let Some(image) = self.read_node(record.node).await? else { return Ok(true) };
        let before = Header::decode(&image).is_some_and(|header| {
            header.tree == record.tree
                && header.level == record.level
                && !header.flags.free
                && !record.split_happened(header.version)
        });
        // The lanes of a promoted copy were lost with the former primary. Nobody has changed the node since.
        if before && self.op.worker.compute.lost_lanes(record.node.server()) {
            return Ok(false);
        }
        Ok(!(before && self.holds_lane(record.node, record.owner).await?))
    }

    /// Whether `dead` holds the lane of the node at `address`.
    pub(super) async fn holds_lane(
        &mut self,
        address: GlobalAddress,
        dead: ComputeId,
    ) -> Result<bool, Error> {
        let geometry = *self.op.worker.compute.geometry_of(address.server());
        let (space, word, mask, shift) = geometry.lane_word(geometry.lane_of(address));
        let bytes = self.read_table(address.server(), space, word, 8).await?;
        let held = bytes.first_chunk::<8>().map_or(0, |word| (u64::from_le_bytes(*word) & mask) >> shift);
        Ok(held == u64::from(dead.0))
    }

    /// Whether the node that a record made is there and whole; `None` if it is lost with its server.
    pub(super) async fn made_is_whole(
        &mut self,
        record: &Record,
        tree: &TreeState,
    ) -> Result<Option<bool>, Error> {
        let Some(image) = self.read_node(record.made).await? else { return Ok(None) };
        let made = Node::open_marked(tree.shape().at(record.level), &image, record.level);
        Ok(Some(made.is_ok_and(|made| made.header.version == record.made_version && !made.header.flags.free)))
    }

    /// Whether the node that a record is about is whole and as it was before the change.
    async fn is_whole_before(&mut self, record: &Record, tree: &TreeState) -> Result<bool, Error> {
        let Some(image) = self.read_node(record.node).await? else { return Ok(true) };
        let node = Node::open_marked(tree.shape().at(record.level), &image, record.level);
        Ok(node.is_ok_and(|node| !record.split_happened(node.header.version)))
    }

    /// Finishes a merge. The dead member still holds all three lanes.
    async fn replay_merge(&mut self, record: &Record, tree: &TreeState) -> Result<(), Error> {
        seam!(recovery::replay_merge());
        self.write_pieces(record).await?;
        self.unlink(record, tree).await?;
        self.make_free((record.made, record.made_version), record).await
    }

    /// Removes the freed node's separator from the parent of a merge. The dead member holds the parent's
    /// lane, so this change is logged in a redo slot of the dead member, as its own change would be. If this
    /// compute server dies, the next recoverer makes the parent whole before it reads the record of the merge
    /// again.
    async fn unlink(&mut self, record: &Record, tree: &TreeState) -> Result<(), Error> {
        let (parent, after) = (GlobalAddress::from_bits(record.root.0), record.root.1 as u16);
        let Some(image) = self.read_node(parent).await? else { return Ok(()) };
        let corrupt = |invariant| Error::Corrupt { address: parent, invariant };
        let level = record
            .level
            .checked_add(1)
            .ok_or(corrupt("I10: a pointer leads to a node of its tree and level"))?;
        let shape = tree.shape().internal.clone();
        let node =
            Node::open(&shape, &image, level).map_err(|_| corrupt("I3: a node is valid under its lane"))?;
        if node.header.version == after {
            return Ok(());
        }
        let mut body = node.sorted().ok_or(corrupt("I3: a node is valid under its lane"))?;
        let named = (0..body.len()).find(|&index| child_address(&body, index) == record.made);
        let index = named.ok_or(corrupt("I28: the parent of a merge names the node that is freed"))?;
        let mut draft = Draft::of(&shape, &node, Vec::new());
        body.remove(index);
        let patch = draft.set_body(&body);
        // The dead member had a second slot for this merge, on the parent's server. That slot is empty: the
        // records of images are replayed and cleared first.
        let on_server = |slot: &&(u16, u64)| slot.0 == parent.server();
        let empty = self.dead.get(&record.owner).map(|dead| &dead.empty_slots);
        let slot = empty.and_then(|slots| slots.iter().find(on_server));
        let &(server, offset) = slot.ok_or(corrupt("I25: a merge has a redo slot on its parent's server"))?;
        let about = Record::about(
            RecordKind::Image,
            record.owner,
            tree.info(),
            parent,
            level,
            draft.header().version,
        );
        let mut list = self.op.endpoint().list(server);
        let logged = about.with_pieces(draft.image(), &patch).encode();
        for part in unlink_parts() {
            match part {
                LoggedPart::Record => {
                    list.write(Space::Host, offset, &logged);
                }
                LoggedPart::Data => push_patch(&mut list, parent, draft.image(), &patch),
                LoggedPart::Cleared => {
                    list.write(Space::Host, offset, &CLEARED);
                }
            }
        }
        self.execute(list).await
    }

    /// If the tree is gone and the new root is still pending, the growth did not happen. The reason: a drop
    /// waits until the root is linked.
    async fn replay_grow(&mut self, record: &Record, tree: &TreeState, listed: bool) -> Result<(), Error> {
        match self.root_of(tree, listed).await? {
            RootOf::Word(word) if growth_happened(word, record) => self.link_made(record).await,
            _ => self.unmake(record).await,
        }
    }

    /// If the tree is gone, nothing shows whether the root was replaced. Then it is freed with all that it
    /// leads to. That is right: all nodes of a dropped tree must be freed, and nodes that are free already
    /// are skipped.
    async fn replay_replace(
        &mut self,
        record: &Record,
        tree: &TreeState,
        listed: bool,
    ) -> Result<Rest, Error> {
        match self.root_of(tree, listed).await? {
            RootOf::Word(word) if word == record.root.1 => {
                self.free_node(record).await?;
                Ok(Rest::Nothing)
            }
            RootOf::Word(_) | RootOf::Lost => Ok(Rest::Nothing),
            RootOf::Gone => Ok(Rest::Free),
        }
    }

    /// Decides whether the load happened, so that its nodes must be linked. If the tree is gone, either the
    /// load did not happen or all its nodes are linked. The reason: a drop waits for the root, which is
    /// linked last. Nodes that are still pending then were made in vain; the old root is freed.
    async fn replay_load(&mut self, record: &Record, tree: &TreeState, listed: bool) -> Result<Rest, Error> {
        match self.root_of(tree, listed).await? {
            RootOf::Word(word) if word != record.root.0 => self.free_node(record).await.map(|()| Rest::Link),
            RootOf::Word(_) | RootOf::Lost => Ok(Rest::Nothing),
            RootOf::Gone => Ok(Rest::Free),
        }
    }

    /// Finishes a drop that happened: clears the catalog entry, unless the dead member or another client has.
    async fn replay_drop(&mut self, tree: &TreeState, listed: bool) -> Result<Rest, Error> {
        match self.root_of(tree, listed).await? {
            RootOf::Word(_) | RootOf::Lost => Ok(Rest::Nothing),
            RootOf::Gone => {
                if listed {
                    self.op.worker.clear_entry(tree.info()).await?;
                }
                Ok(Rest::Free)
            }
        }
    }

    /// Reads the root word of a tree. `listed` says whether the catalog listed the tree.
    pub(super) async fn root_of(&mut self, tree: &TreeState, listed: bool) -> Result<RootOf, Error> {
        if !listed {
            return Ok(RootOf::Gone);
        }
        let info = tree.info();
        self.op.worker.compute.check_root_word(info.root_word)?;
        let word = self.root_word(info.root_word).await?;
        // The catalog decides first: the word's place may belong to another tree by now. A tree that is still
        // listed had the place when the word was read.
        let listed = self.is_listed(tree).await?;
        if let Some((_, known)) = self.trees.get_mut(&info.id) {
            *known = listed;
        }
        Ok(match word {
            _ if !listed => RootOf::Gone,
            None => RootOf::Lost,
            Some(word) if RootWord::of(word, info.id) == RootState::Ended => RootOf::Gone,
            Some(word) => RootOf::Word(word),
        })
    }

    async fn is_listed(&self, tree: &TreeState) -> Result<bool, Error> {
        match self.op.call(Peer::Control, calls::OpenTree { name: tree.info().name.clone() }).await {
            Ok(found) => Ok(found.info.id == tree.info().id),
            Err(FabricError::Refused(Refusal::NoSuchTree { .. })) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Marks the node that a record is about as free, unless it is free already.
    async fn free_node(&mut self, record: &Record) -> Result<(), Error> {
        self.make_free((record.node, record.version), record).await
    }

    /// Marks a node of the given version as free and sets the hint of its span. Sets the hint also if the
    /// node is free already: the dead member may have died between the two writes.
    async fn make_free(
        &mut self,
        (address, version): (GlobalAddress, u16),
        record: &Record,
    ) -> Result<(), Error> {
        let Some(mut image) = self.read_node(address).await? else { return Ok(()) };
        let same = |header: &Header| header.tree == record.tree && header.version == version;
        if let Some(header) = Header::decode(&image).filter(same) {
            let free = is_free_already(&header);
            let marked = (!free).then(|| mark_free(&mut image, record.owner));
            // If the node is free, its place may belong to another client by now: only the hint is set.
            self.write_free(address, marked.as_ref().map(|marked| (marked, &image[..]))).await?;
        }
        Ok(())
    }
}
