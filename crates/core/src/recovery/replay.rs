//! Records of the dead: every change that was under way is finished or undone (I24–I27, I34, `docs/INVARIANTS.md`).
//!
//! The dead one is fenced, and its lanes are still taken: what a record speaks of is as it was left, except where its maker had
//! given the lane back already. Images come first, since the others are judged by nodes that are whole.
//!
//! A record has the shape of its tree, so that records about a tree that the catalog does not list any more are replayed like others: another
//! client may be freeing the nodes of that tree, and waits for those that the dead one left unfinished.

use super::{Found, Recoverer, SERVER_0};
use crate::cache::child_address;
use crate::error::Error;
use crate::mutant::{Mutant, planted};
use crate::node::mark::{mark_free, mark_linked};
use crate::node::{Draft, Header, LINE, Node};
use crate::redo::{Kind, Record};
use crate::tree::TreeState;
use crate::tree::write::push_patch;
use sherman_fabric::{ClientId, Endpoint, FabricError, GlobalAddress, Refusal, Request, Response, Space};

/// What is left to do for a record.
enum Rest {
    /// All is done.
    Nothing,
    /// What was loaded is to be linked.
    Link,
    /// The node that the record is about, and all that it leads to, is to be freed: its tree is gone.
    Free,
}

impl<E: Endpoint> Recoverer<'_, E> {
    /// Replays the records of `dead` and clears them; those of loads that happened and of trees that are dropped are kept until all
    /// that they ask for is done.
    pub(super) async fn replay(&mut self, dead: ClientId, mut records: Vec<Found>) -> Result<(), Error> {
        // A merge leaves its nodes whole, a load its tree; splits, growths and replacements are judged by what is whole.
        records.sort_by_key(|found| match found.record.kind {
            Kind::Image => 0,
            Kind::Merge => 1,
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
            }
        }
        Ok(())
    }

    /// Replays one record. What is left to do before the record may be cleared.
    async fn replay_one(&mut self, record: &Record, tree: &TreeState, listed: bool) -> Result<Rest, Error> {
        if record.kind == Kind::Image {
            self.write_pieces(record).await?;
            return Ok(Rest::Nothing);
        }
        if !listed && planted(Mutant::EndedNotReplayed) && record.kind != Kind::Drop {
            return Ok(Rest::Nothing);
        }
        match record.kind {
            Kind::Split => self.replay_split(record, tree).await?,
            Kind::Merge => self.replay_merge(record, tree).await?,
            Kind::Grow => self.replay_grow(record, tree, listed).await?,
            Kind::Replace => return self.replay_replace(record, tree, listed).await,
            Kind::Load => return self.replay_load(record, tree, listed).await,
            // The tree is listed: it did not come to that.
            Kind::Drop if listed => {}
            Kind::Drop => return Ok(Rest::Free),
            Kind::Image => {}
        }
        Ok(Rest::Nothing)
    }

    /// Clears a record.
    pub(super) async fn clear(&mut self, found: &Found) -> Result<(), Error> {
        let mut list = self.op.endpoint().list(found.server);
        list.write(Space::Host, found.offset, &crate::redo::CLEARED);
        self.execute(list).await
    }

    /// Writes all that a record has of its node.
    async fn write_pieces(&mut self, record: &Record) -> Result<(), Error> {
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

    /// Whether the node that `record` made is there as it was made: pending, and the dead one's.
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
            mark_linked(&mut image);
            self.write_node(record.made, 0, &image[..LINE]).await?;
        }
        Ok(())
    }

    /// Marks the node that a record made free, if it was written at all.
    async fn unmake(&mut self, record: &Record) -> Result<(), Error> {
        if planted(Mutant::PendingKept) {
            return Ok(());
        }
        let Some(mut image) = self.read_node(record.made).await? else { return Ok(()) };
        if Header::decode(&image).is_some_and(|header| Self::is_as_made(&header, record)) {
            mark_free(&mut image, record.owner);
            self.write_free(record.made, Some(&image[..LINE])).await?;
        }
        Ok(())
    }

    async fn replay_split(&mut self, record: &Record, tree: &TreeState) -> Result<(), Error> {
        let happens = if record.pieces.is_empty() {
            self.split_happened(record).await?
        } else {
            // Nothing of the node was written before all of its sibling was. If the sibling is lost with its server, the node decides.
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

    /// Whether a split whose commit is one unit has happened (I26): not iff the node is still as it was before, under its
    /// maker's lane. If the node is lost with its server, nobody can tell; then the sibling is kept, since a parent may name it.
    async fn split_happened(&mut self, record: &Record) -> Result<bool, Error> {
        let Some(image) = self.read_node(record.node).await? else { return Ok(true) };
        let before = Header::decode(&image).is_some_and(|header| {
            header.tree == record.tree
                && header.level == record.level
                && !header.flags.free
                && !record.split_happened(header.version)
        });
        if planted(Mutant::SplitBySibling) {
            return Ok(Header::decode(&image).is_some_and(|header| header.sibling == record.made));
        }
        Ok(!(before && self.holds_lane(record.node, record.owner).await?))
    }

    /// Whether the dead one holds the lane of the node at `address`.
    pub(super) async fn holds_lane(&mut self, address: GlobalAddress, dead: ClientId) -> Result<bool, Error> {
        let geometry = *self.op.worker.compute.geometry_of(address.server());
        let (space, word, mask, shift) = geometry.lane_word(geometry.lane_of(address));
        let bytes = self.read_table(address.server(), space, word, 8).await?;
        let held = bytes.first_chunk::<8>().map_or(0, |word| (u64::from_le_bytes(*word) & mask) >> shift);
        Ok(held == u64::from(dead.0))
    }

    /// Whether the node that a record made is there, whole; `None` if it is lost with its server.
    async fn made_is_whole(&mut self, record: &Record, tree: &TreeState) -> Result<Option<bool>, Error> {
        let Some(image) = self.read_node(record.made).await? else { return Ok(None) };
        let made = Node::open_marked(tree.shape().at(record.level), &image, record.level);
        Ok(Some(made.is_ok_and(|made| made.header.version == record.made_version && !made.header.flags.free)))
    }

    /// Whether the node that a record is about is whole, and as it was before the change.
    async fn is_whole_before(&mut self, record: &Record, tree: &TreeState) -> Result<bool, Error> {
        let Some(image) = self.read_node(record.node).await? else { return Ok(true) };
        let node = Node::open_marked(tree.shape().at(record.level), &image, record.level);
        Ok(node.is_ok_and(|node| !record.split_happened(node.header.version)))
    }

    /// Finishes a merge: all three lanes are still held.
    async fn replay_merge(&mut self, record: &Record, tree: &TreeState) -> Result<(), Error> {
        if planted(Mutant::MergeNotFinished) {
            return Ok(());
        }
        self.write_pieces(record).await?;
        self.unlink(record, tree).await?;
        self.make_free((record.made, record.made_version), record).await
    }

    /// Has the parent of a merge forget the node that is freed. Logged in a slot of our own: whoever recovers us makes the parent
    /// whole before the dead one's record is looked at again.
    async fn unlink(&mut self, record: &Record, tree: &TreeState) -> Result<(), Error> {
        let (parent, after) = (GlobalAddress::from_bits(record.root.0), record.root.1 as u16);
        let Some(image) = self.read_node(parent).await? else { return Ok(()) };
        let corrupt = |invariant| Error::Corrupt { address: parent, invariant };
        let level =
            record.level.checked_add(1).ok_or(corrupt("I10: a pointer leads to a node of its tree and level"))?;
        let shape = tree.shape().internal.clone();
        let node = Node::open(&shape, &image, level).map_err(|_| corrupt("I3: a node is valid under its lane"))?;
        if node.header.version == after {
            return Ok(());
        }
        let mut body = node.sorted().ok_or(corrupt("I3: a node is valid under its lane"))?;
        let named = (0..body.len()).find(|&index| child_address(&body, index) == record.made);
        let index = named.ok_or(corrupt("I28: the parent of a merge names the node that is freed"))?;
        let mut draft = Draft::of(&shape, &node, Vec::new());
        body.remove(index);
        let patch = draft.set_body(&body);
        let compute = &self.op.worker.compute;
        let wanted = compute.techniques().redo.then_some(parent.server());
        let [slot, _] = compute.redo.take(&self.op, [wanted, None]).await?;
        let mut list = self.op.endpoint().list(parent.server());
        let client = self.op.endpoint().client();
        let about = Record::about(Kind::Image, client, tree.info(), parent, level, draft.header().version);
        if let Some(slot) = &slot {
            slot.log(&mut list, &about.with_pieces(draft.image(), &patch));
        }
        push_patch(&mut list, parent, draft.image(), &patch);
        if let Some(slot) = &slot {
            slot.clear(&mut list);
        }
        self.execute(list).await?;
        self.op.settle([slot]);
        Ok(())
    }

    /// A growth of a tree that is gone did not happen if the new root is still pending: a drop waits until it is linked.
    async fn replay_grow(&mut self, record: &Record, tree: &TreeState, listed: bool) -> Result<(), Error> {
        let word = if listed { self.root_of(tree).await? } else { None };
        match word {
            Some(word) if word == record.root.1 || planted(Mutant::GrowthBelieved) => self.link_made(record).await,
            _ => self.unmake(record).await,
        }
    }

    /// If the tree is gone, nobody can tell whether the root was replaced. It is freed with all that it leads to: as what is left of a tree
    /// that was dropped, it is to be, and what somebody else has freed already is passed over.
    async fn replay_replace(&mut self, record: &Record, tree: &TreeState, listed: bool) -> Result<Rest, Error> {
        let word = if listed { self.root_of(tree).await? } else { None };
        match word {
            Some(word) if word == record.root.1 => {
                self.free_node(record).await?;
                Ok(Rest::Nothing)
            }
            Some(_) => Ok(Rest::Nothing),
            None => Ok(Rest::Free),
        }
    }

    /// Whether the load happened, and what it leads to is to be linked. If the tree is gone, the load did not happen or all that it loaded is linked: a
    /// drop waits for the root, which is linked last. What is pending then was made in vain; the old root is freed.
    async fn replay_load(&mut self, record: &Record, tree: &TreeState, listed: bool) -> Result<Rest, Error> {
        let word = if listed { self.root_of(tree).await? } else { None };
        match word {
            Some(word) if word != record.root.0 => self.free_node(record).await.map(|()| Rest::Link),
            Some(_) => Ok(Rest::Nothing),
            None => Ok(Rest::Free),
        }
    }

    /// The root word of a tree that was listed; `None` if it is gone since.
    pub(super) async fn root_of(&mut self, tree: &TreeState) -> Result<Option<u64>, Error> {
        let word = self.root_word(tree.info().root_word).await?;
        // Not by the word: where it was, there may be another tree's by now. One that is listed still had it when it was read.
        let listed = self.is_listed(tree).await?;
        if let Some((_, known)) = self.trees.get_mut(&tree.info().id) {
            *known = listed;
        }
        Ok(listed.then_some(word))
    }

    async fn is_listed(&self, tree: &TreeState) -> Result<bool, Error> {
        match self.op.call(SERVER_0, Request::OpenTree { name: tree.info().name.clone() }).await {
            Ok(Response::Tree { info, .. }) => Ok(info.id == tree.info().id),
            Ok(_) => Err(Error::Unsupported { what: "the memory server's answer to a catalog request" }),
            Err(FabricError::Refused(Refusal::NoSuchTree { .. })) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Marks the node that a record is about free, unless it is.
    async fn free_node(&mut self, record: &Record) -> Result<(), Error> {
        self.make_free((record.node, record.version), record).await
    }

    /// Marks a node of a version free and sets the hint of its span. If the node is free already, sets the hint alone: the dead client may
    /// have died before it did. The mark is not written again, because the place may belong to another client by now.
    async fn make_free(&mut self, (address, version): (GlobalAddress, u16), record: &Record) -> Result<(), Error> {
        let Some(mut image) = self.read_node(address).await? else { return Ok(()) };
        let same = |header: &Header| header.tree == record.tree && header.version == version;
        if let Some(header) = Header::decode(&image).filter(same) {
            let free = header.flags.free;
            if !free {
                mark_free(&mut image, record.owner);
            }
            self.write_free(address, (!free).then_some(&image[..LINE])).await?;
        }
        Ok(())
    }
}
