//! Values of any length: changes of entries that refer to blocks (I56–I59 of `docs/INVARIANTS.md`).
//!
//! ```text
//!  put     [WRITE block (pending), CAS lane, READ leaf]
//!          [record, WRITE line, block linked, READ old block, old block free, hint, cleared, release]
//!  remove  [CAS lane, READ leaf] · [record, WRITE line, READ old block, free, hint, cleared, release]
//!  get     [READ lines] · [READ block]
//! ```
//! The free mark is a fenced WRITE, because another would overtake the READ (F3).
//!
//! A new block lies on the volume of its leaf. So the lists that change the entry and the marks are one. The
//! block is whole before the entry refers to it, and linked before the lane is released. Until then nobody
//! else changes the entry. So if the client dies, its recoverer finds the pending block in the client's own
//! spans, and the entry of the block's key tells whether the change happened.
//!
//! The client that replaces or removes a reference frees the block, and nobody else does. A record names the
//! block from before the entry changes until the block is free. The old block may lie on another volume,
//! because splits and merges move entries between volumes. Then, and if it is large and its value is wanted,
//! the lane is released first, and the block is freed by a list of its own.

use super::TreeState;
use super::descend::Covering;
use super::remove::Exchange;
use super::write::push_patch;
use crate::cause::Cause;
use crate::error::Error;
use crate::lock::Locked;
use crate::node::block::{self, BlockRef, Slot};
use crate::node::draft::{NodePlace, Removed, Upsert};
use crate::node::{Draft, Header, LINE, Lookup, Patch};
use crate::op::Op;
use crate::redo::{Record, RecordKind, RedoSlot};
use sherman_fabric::control::ChunkClass;
use sherman_fabric::{Endpoint, FabricError, GlobalAddress, Space, VerbId, WorkList};

/// A block of at most so many bytes is read by the list that changes the entry. A larger one would keep the
/// lane held.
const MOST_UNDER_LANE: usize = 4 << 10;
/// Bytes of blocks that one list reads.
const READ_PER_LIST: usize = 1 << 20;
/// Blocks of a dropped tree that are freed at once.
const BLOCKS_FREED: usize = 16;
/// Looks at one reference before the block counts as damaged. The block of a reference that is still there
/// after it was read must be whole.
const LOOKS: u32 = 3;

pub(crate) const I56: &str = "I56: an entry holds a short value, or refers to a block";
pub(crate) const I59: &str = "I59: the block that an entry refers to is linked, and holds the entry's key";

/// A block that an operation has made, and that no entry refers to yet.
#[derive(Debug)]
pub(crate) struct MadeBlock {
    pub(super) class: ChunkClass,
    pub(super) place: NodePlace,
    reference: BlockRef,
    /// The linked header line.
    pub(super) line: [u8; LINE],
    /// The image, until a list that has it is posted.
    ahead: Option<Vec<u8>>,
    /// Whether the next list that changes a node links it.
    pub(super) armed: bool,
    /// Whether a list that links it was posted.
    posted: bool,
}

/// When a change may happen.
#[derive(Clone, Copy)]
enum When<'k> {
    Always,
    IfAbsent,
    /// If the entry has this slot.
    IfSlot(&'k [u8]),
}

impl When<'_> {
    /// Whether an entry with this slot may change.
    fn allows(self, slot: Option<&[u8]>) -> bool {
        match self {
            Self::Always => true,
            Self::IfAbsent => slot.is_none(),
            Self::IfSlot(expected) => slot == Some(expected),
        }
    }
}

/// The result of an attempt.
enum Attempt {
    /// It is done. The flag says whether the key was there.
    Done(bool),
    /// The condition does not hold. The flag says whether the key is there.
    Refused(bool),
    /// The block lies on another volume than the leaf, which is on this one. Nothing was changed.
    Elsewhere(u16),
}

/// A part of the list that replaces or removes a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockPart {
    /// The record that names the old block.
    Record,
    /// The lines of the entry.
    Entry,
    /// The new block without its pending mark.
    Linked,
    /// The old block is free.
    Freed,
    /// The end of the record.
    Cleared,
}

/// The parts of such a list, in order.
pub(super) const PARTS: [BlockPart; 5] =
    [BlockPart::Record, BlockPart::Entry, BlockPart::Linked, BlockPart::Freed, BlockPart::Cleared];

fn block_parts() -> &'static [BlockPart] {
    seam!(tree::block_parts());
    &PARTS
}

/// Whether the new block lies where the leaf is.
fn is_beside(block: GlobalAddress, leaf: GlobalAddress) -> bool {
    seam!(tree::is_beside());
    block.server() == leaf.server()
}

impl TreeState {
    /// Whether values have any length.
    #[inline]
    pub fn has_blocks(&self) -> bool {
        self.info.spec.has_blocks()
    }

    fn slot_len(&self) -> usize {
        self.shape.leaf.payload_len()
    }
}

impl<E: Endpoint> Op<'_, E> {
    /// Adds the WRITEs of a new block for the server of `list`.
    #[inline]
    pub(crate) fn push_ahead(&self, list: &mut WorkList) {
        if let Some(made) = self.made().borrow_mut().as_deref_mut()
            && made.place.address.server() == list.server()
            && let Some(image) = made.ahead.take()
        {
            self.push_image(list, made.place.address, &image);
            self.worker.keep_buffer(image);
        }
    }

    /// Adds the WRITE that links the new block, if a change refers to it.
    #[inline]
    pub(crate) fn push_links(&self, list: &mut WorkList) {
        seam!(tree::push_links());
        if let Some(made) = self.made().borrow_mut().as_deref_mut()
            && made.armed
            && made.place.address.server() == list.server()
        {
            (made.armed, made.posted) = (false, true);
            list.write(Space::Host, made.place.address.offset(), &made.line);
        }
    }

    fn push_image(&self, list: &mut WorkList, address: GlobalAddress, image: &[u8]) {
        let most = self.endpoint().caps().max_transfer as usize;
        for (piece, at) in image.chunks(most).zip((0..).step_by(most)) {
            list.write(Space::Host, address.offset() + at, piece);
        }
    }

    /// Looks `key` up and reads its value. See [`Op::get`].
    pub(super) async fn get_value(
        &self,
        tree: &TreeState,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        let mut slot = self.worker.buffer();
        let found = self.get_with_slot(tree, key, &mut slot, value).await;
        self.worker.keep_buffer(slot);
        found
    }

    /// Looks `key` up; `slot` receives what its entry has, `value` its value.
    async fn get_with_slot(
        &self,
        tree: &TreeState,
        key: &[u8],
        slot: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        let (mut last, mut same) = (None, 0);
        loop {
            if !self.get_slot(tree, key, slot).await? {
                return Ok(false);
            }
            let block = match block::read_slot(slot).ok_or_else(|| corrupt_slot(GlobalAddress::NULL))? {
                Slot::Short(short) => {
                    value.clear();
                    value.extend_from_slice(short);
                    return Ok(true);
                }
                Slot::Long(block) => block,
            };
            if self.read_value(tree, key, block, value).await? {
                return Ok(true);
            }
            same = if last == Some(block) { same + 1 } else { 1 };
            if same >= LOOKS {
                return Err(Error::Corrupt { address: block.address, invariant: I59 });
            }
            last = Some(block);
            self.retry(Cause::StalePointer).await?;
        }
    }

    /// Reads a block. Returns false if it is not the block that the reference names.
    async fn read_value(
        &self,
        tree: &TreeState,
        key: &[u8],
        block: BlockRef,
        value: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        let mut values = self.read_blocks(tree, &[(key, block)]).await?;
        let Some(Some(found)) = values.pop() else { return Ok(false) };
        *value = found;
        Ok(true)
    }

    /// Reads blocks, all in flight at once. Returns `None` for a block that is not the one of its reference.
    pub(crate) async fn read_blocks(
        &self,
        tree: &TreeState,
        blocks: &[(&[u8], BlockRef)],
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        for (key, block) in blocks {
            self.worker.compute.check_pointer(block.address, block.bytes(key.len()))?;
        }
        Ok(self.read_checked(tree, blocks).await?)
    }

    /// Does the work of `read_blocks` for references that name memory of the cluster.
    async fn read_checked(
        &self,
        tree: &TreeState,
        blocks: &[(&[u8], BlockRef)],
    ) -> Result<Vec<Option<Vec<u8>>>, FabricError> {
        let key_len = tree.shape.leaf.key_len();
        let (most_verbs, most) =
            (self.endpoint().caps().max_verbs.max(1) as usize, self.endpoint().caps().max_transfer as usize);
        let mut lists: Vec<(WorkList, usize)> = Vec::new();
        let mut reads: Vec<Vec<(usize, VerbId)>> = Vec::with_capacity(blocks.len());
        for (_, block) in blocks {
            let bytes = block.bytes(key_len);
            let mut pieces = Vec::with_capacity(1);
            for at in (0..bytes).step_by(most) {
                let len = most.min(bytes - at);
                let server = block.address.server();
                let fits = |(list, sum): &(WorkList, usize)| {
                    list.server() == server && list.len() < most_verbs && sum + len <= READ_PER_LIST
                };
                let list = lists.iter().rposition(fits).unwrap_or_else(|| {
                    lists.push((self.endpoint().list(server), 0));
                    lists.len() - 1
                });
                let (in_list, sum) = &mut lists[list];
                *sum += len;
                let offset = block.address.offset() + at as u64;
                pieces.push((list, in_list.read(Space::Host, offset, len as u32)));
            }
            reads.push(pieces);
        }
        let lists = self.execute_all(lists.into_iter().map(|(list, _)| list).collect()).await?;
        let mut values = Vec::with_capacity(blocks.len());
        for ((key, block), pieces) in blocks.iter().zip(reads) {
            let value = match pieces[..] {
                [(list, read)] => block.value(tree.info.id, key, lists[list].bytes(read)).map(<[u8]>::to_vec),
                _ => {
                    let pieces = pieces.iter().map(|&(list, read)| lists[list].bytes(read));
                    block.value(tree.info.id, key, &pieces.collect::<Vec<_>>().concat()).map(<[u8]>::to_vec)
                }
            };
            values.push(value);
        }
        lists.into_iter().for_each(|list| self.endpoint().recycle(list));
        Ok(values)
    }

    /// Does the work of [`Op::insert`].
    pub(super) async fn put_value(
        &self,
        tree: &TreeState,
        key: &[u8],
        value: &[u8],
        old: Option<&mut Vec<u8>>,
    ) -> Result<bool, Error> {
        match self.change_value(tree, key, Some(value), When::Always, old).await? {
            Attempt::Done(there) | Attempt::Refused(there) => Ok(there),
            Attempt::Elsewhere(_) => Ok(false),
        }
    }

    /// Does the work of [`Op::remove`].
    pub(super) async fn remove_value(
        &self,
        tree: &TreeState,
        key: &[u8],
        old: Option<&mut Vec<u8>>,
    ) -> Result<bool, Error> {
        let there = matches!(
            self.change_value(tree, key, None, When::Always, old).await?,
            Attempt::Done(true) | Attempt::Refused(true)
        );
        if !there {
            self.confirm_read().await?;
        }
        Ok(there)
    }

    /// Does the work of [`Op::insert_if_absent`].
    pub(super) async fn put_value_if_absent(
        &self,
        tree: &TreeState,
        key: &[u8],
        value: &[u8],
        found: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        loop {
            // An operation that changes nothing makes no block.
            if self.get(tree, key, found).await? {
                return Ok(true);
            }
            if let Attempt::Done(_) = self.change_value(tree, key, Some(value), When::IfAbsent, None).await? {
                return Ok(false);
            }
            self.retry(Cause::ValueChanged).await?;
        }
    }

    /// Does the work of [`Op::compare_exchange`].
    pub(super) async fn exchange_value(
        &self,
        tree: &TreeState,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        found: &mut Vec<u8>,
    ) -> Result<Exchange, Error> {
        loop {
            let mut slot = self.worker.buffer();
            self.await_open().await?;
            let there = self.get_with_slot(tree, key, &mut slot, found).await?;
            if there.then_some(found.as_slice()) != expected {
                self.confirm_read().await?;
                return Ok(if there { Exchange::Found } else { Exchange::Absent });
            }
            if !there && new.is_none() {
                self.confirm_read().await?;
                return Ok(Exchange::Done);
            }
            let when = if there { When::IfSlot(&slot) } else { When::IfAbsent };
            let changed = self.change_value(tree, key, new, when, None).await?;
            self.worker.keep_buffer(slot);
            if matches!(changed, Attempt::Done(_)) {
                return Ok(Exchange::Done);
            }
            self.retry(Cause::ValueChanged).await?;
        }
    }

    /// Puts `new` under `key`, or removes `key`, if `when` allows it. `old` receives the value that was
    /// there.
    async fn change_value(
        &self,
        tree: &TreeState,
        key: &[u8],
        new: Option<&[u8]>,
        when: When<'_>,
        mut old: Option<&mut Vec<u8>>,
    ) -> Result<Attempt, Error> {
        tree.check_key(key)?;
        let slot_len = tree.slot_len();
        let long = new.is_some_and(|value| value.len() > block::longest_short(slot_len));
        let mut slot = self.worker.buffer();
        if let Some(value) = new.filter(|_| !long) {
            block::short_slot(slot_len, value, &mut slot);
        }
        let mut server = self.locate_known(tree, key, 0).map_or(0, GlobalAddress::server);
        let attempt = loop {
            if let (Some(value), true) = (new, long) {
                match self.make_block(tree, key, value, server).await {
                    Err(Error::OutOfMemory) => {
                        self.await_memory().await?;
                        continue;
                    }
                    made => made?.slot(slot_len, &mut slot),
                }
            }
            let old = old.as_deref_mut();
            let attempt = self.try_change(tree, key, new.map(|_| slot.as_slice()), when, old).await;
            self.end_made(tree, matches!(attempt, Ok(Attempt::Done(_)))).await?;
            match attempt {
                Ok(Attempt::Elsewhere(leaf)) => {
                    server = leaf;
                    self.note(Cause::StalePointer)?;
                }
                Err(Error::OutOfMemory) => self.await_memory().await?,
                done => break done,
            }
        };
        self.worker.keep_buffer(slot);
        attempt
    }

    /// Makes a pending block on a server. The next list that takes a lane there writes it.
    async fn make_block(
        &self,
        tree: &TreeState,
        key: &[u8],
        value: &[u8],
        server: u16,
    ) -> Result<BlockRef, Error> {
        let compute = &self.worker.compute;
        let most = block::longest_value(key.len(), compute.geometry_of(server).chunk_bytes);
        let too_long = Error::ValueTooLong { most, found: value.len() };
        let class = block::class_for(key.len(), value.len()).filter(|_| value.len() <= most);
        let class = class.ok_or(too_long)?;
        let place = compute.alloc.allocate_on(self, class, server).await?;
        let mut image = self.worker.buffer();
        let at = (place.address, place.version);
        let reference = block::pending_block((tree.info.id, place.owner), at, key, value, &mut image);
        let mut line = [0; LINE];
        line.copy_from_slice(&image[..LINE]);
        let _ = crate::node::mark::mark_linked(&mut line);
        let ahead = Some(image);
        let made = MadeBlock { class, place, reference, line, ahead, armed: false, posted: false };
        self.made().replace(Some(Box::new(made)));
        Ok(reference)
    }

    /// Gives the place of the block that the operation has made back, unless an entry refers to it, or may.
    async fn end_made(&self, tree: &TreeState, done: bool) -> Result<(), Error> {
        let Some(made) = self.made().take() else { return Ok(()) };
        seam!(tree::end_made(self, &made, done).await);
        let MadeBlock { class, place, reference, ahead, posted, .. } = *made;
        if posted {
            if done {
                self.worker.compute.alloc.linked(class, place.address);
            }
            return Ok(());
        }
        // A block whose WRITE was never posted leaves its place as it was.
        if ahead.is_none() && !self.worker.compute.is_terminated() {
            let mut list = self.endpoint().list(place.address.server());
            let line = reference.free_line(tree.info.id, self.endpoint().client());
            list.write(Space::Host, place.address.offset(), &line);
            self.endpoint().recycle(self.execute(list).await?);
        }
        match ahead {
            Some(image) if !place.used => {
                self.worker.keep_buffer(image);
                self.worker.compute.alloc.return_unused(class, place.address);
            }
            _ => self.worker.compute.alloc.give_back(class, place.address, place.version),
        }
        Ok(())
    }

    /// Writes the new block, if no list has done so. The lane is held.
    async fn write_ahead(&self) -> Result<(), Error> {
        let address = self.made().borrow().as_ref().map(|made| made.place.address);
        let Some(address) = address else { return Ok(()) };
        let mut list = self.endpoint().list(address.server());
        self.push_ahead(&mut list);
        if !list.is_empty() {
            self.endpoint().recycle(self.execute(list).await?);
        }
        Ok(())
    }

    /// Takes the lane of the leaf and makes the change.
    async fn try_change(
        &self,
        tree: &TreeState,
        key: &[u8],
        new: Option<&[u8]>,
        when: When<'_>,
        mut old: Option<&mut Vec<u8>>,
    ) -> Result<Attempt, Error> {
        let Covering { locked, header, missed } = self.lock_leaf(tree, key).await?;
        let leaf_server = locked.address.server();
        let made = self.made().borrow().as_ref().map(|made| made.place.address);
        if made.is_some_and(|block| !is_beside(block, locked.address)) {
            self.release(locked.done(self)).await?;
            return Ok(Attempt::Elsewhere(leaf_server));
        }
        if let Err(error) = self.write_ahead().await {
            self.release(locked.done(self)).await?;
            return Err(error);
        }
        let leaf = self.draft(tree, &locked, header);
        let mut found = self.worker.buffer();
        let there = match leaf.node().find(key) {
            Lookup::Found(slot) => {
                leaf.node().value_into(slot, &mut found);
                true
            }
            Lookup::Absent => false,
            Lookup::Torn => return Box::pin(self.corrupt(locked)).await,
        };
        let was = match there.then(|| block::read_slot(&found)) {
            None => None,
            Some(Some(Slot::Long(block))) if block.class(key.len()).is_some() => Some(block),
            Some(Some(Slot::Short(short))) => {
                if let Some(old) = &mut old {
                    old.clear();
                    old.extend_from_slice(short);
                }
                None
            }
            Some(_) => {
                let address = locked.address;
                self.release(locked.done(self)).await?;
                return Err(corrupt_slot(address));
            }
        };
        if !when.allows(there.then_some(found.as_slice())) || (!there && new.is_none()) {
            self.worker.keep_buffer(leaf.into_image());
            self.release(locked.done(self)).await?;
            return Ok(Attempt::Refused(there));
        }
        self.worker.keep_buffer(found);
        let small = self.change_entry(tree, locked, leaf, (key, new), was, old).await?;
        self.repair_missed(tree, missed).await;
        if small {
            Box::pin(self.tidy(tree, 0, key)).await;
        }
        Ok(Attempt::Done(there))
    }

    /// Puts the slot `new` under `key` in a locked leaf, or removes `key`, which is there. Frees the block
    /// `was` that the entry refers to. Returns whether the leaf may be too empty now.
    async fn change_entry(
        &self,
        tree: &TreeState,
        locked: Locked,
        mut leaf: Draft<'_>,
        (key, new): (&[u8], Option<&[u8]>),
        was: Option<BlockRef>,
        old: Option<&mut Vec<u8>>,
    ) -> Result<bool, Error> {
        let mut same = self.worker.buffer();
        let (patch, small) = match new {
            Some(slot) => {
                if let Some(made) = self.made().borrow_mut().as_deref_mut() {
                    made.armed = true;
                }
                match (leaf.upsert(key, slot, &mut same), was) {
                    (Upsert::Updated(patch), Some(_)) => (patch, false),
                    (put, _) => {
                        let done = self.finish_put(tree, locked, leaf, put, key, slot).await;
                        self.worker.keep_buffer(same);
                        return done.map(|_| false);
                    }
                }
            }
            None => match leaf.remove(key, &mut same) {
                Removed::Gone(patch) => {
                    let (len, capacity) = (leaf.node().len(), leaf.node().capacity());
                    (patch, super::merge::worth_a_try(len, capacity))
                }
                Removed::Absent | Removed::Torn => return Box::pin(self.corrupt(locked)).await,
            },
        };
        self.worker.keep_buffer(same);
        match was {
            Some(block) => self.replace_block(tree, locked, &leaf, &patch, (key, block), old).await?,
            None => self.write(tree, locked, &leaf, &patch).await?,
        }
        self.worker.keep_buffer(leaf.into_image());
        Ok(small)
    }

    /// Writes back a change of an entry that refers to `block` and frees the block. `old`, if it is given,
    /// receives its value.
    async fn replace_block(
        &self,
        tree: &TreeState,
        locked: Locked,
        draft: &Draft<'_>,
        patch: &Patch,
        (key, block): (&[u8], BlockRef),
        mut old: Option<&mut Vec<u8>>,
    ) -> Result<(), Error> {
        let address = locked.address;
        let bytes = block.bytes(key.len());
        if let Err(error) = self.worker.compute.check_pointer(block.address, bytes) {
            self.release(locked.done(self)).await?;
            return Err(error);
        }
        let class = block.class(key.len()).ok_or_else(|| corrupt_slot(address))?;
        let held = locked.done(self);
        if self.worker.compute.volumes().is_some()
            && let Some(old) = old.take()
        {
            // A client that learns later that the change happened must know what it replaced (E3).
            match self.read_blocks(tree, &[(key, block)]).await.map(|mut read| read.pop().flatten()) {
                Ok(Some(value)) => *old = value,
                failed => {
                    self.release(held).await?;
                    let corrupt = Error::Corrupt { address: block.address, invariant: I59 };
                    return Err(failed.err().unwrap_or(corrupt));
                }
            }
        }
        let logged = patch.needs_redo(self.worker.compute.caps().crash_unit);
        let servers = [Some(address.server()), logged.then_some(address.server())];
        let (held, [slot, image_slot]) = self.slots(servers, held).await?;
        let about = self.about(RecordKind::Block, tree, block.address, draft);
        let record = Record { version: block.version, ..about };
        let beside = block.address.server() == address.server();
        let at_once = beside && (old.is_none() || bytes <= MOST_UNDER_LANE);
        let (mut claim, mut read) = (None, None);
        let mut list = self.endpoint().list(address.server());
        for part in block_parts() {
            match (part, &slot) {
                (BlockPart::Record, Some(slot)) => slot.log(&mut list, &record),
                (BlockPart::Entry, _) => {
                    if let Some(slot) = &image_slot {
                        let image = self.about(RecordKind::Image, tree, address, draft);
                        slot.log(&mut list, &image.with_pieces(draft.image(), patch));
                    }
                    push_patch(&mut list, address, draft.image(), patch);
                    if let Some(slot) = &image_slot {
                        slot.clear(&mut list);
                    }
                }
                (BlockPart::Linked, _) => self.push_links(&mut list),
                (BlockPart::Freed, _) if at_once => {
                    claim = Some(self.worker.compute.alloc.claim(class, block.address));
                    let at = block.address.offset();
                    read = old.is_some().then(|| list.read(Space::Host, at, bytes as u32));
                    self.push_free(&mut list, tree, block, class);
                }
                (BlockPart::Cleared, Some(slot)) if at_once => slot.clear(&mut list),
                _ => {}
            }
        }
        let mut kept = None;
        let take = |list: &WorkList| {
            kept = read.and_then(|read| block.value(tree.info.id, key, list.bytes(read)).map(<[u8]>::to_vec));
        };
        let wanted = old.is_some();
        let written = self.write_back_reading(held, list, take).await;
        written.map_err(|error| {
            self.note_replaces();
            if wanted { self.unknown(error) } else { self.after_post(error) }
        })?;
        self.settle([image_slot]);
        if let Some(old) = old {
            if read.is_none() {
                let found = self.read_checked(tree, &[(key, block)]).await;
                kept = found.map_err(|error| self.unknown(error))?.pop().flatten();
            }
            *old = kept.ok_or(Error::Corrupt { address: block.address, invariant: I59 })?;
        }
        if !at_once {
            claim = Some(self.worker.compute.alloc.claim(class, block.address));
            if self.free_replaced(tree, block, class, &slot).await.is_err() {
                // The change has happened. The record is left: recovery frees the block.
                return Ok(());
            }
        }
        self.settle([slot]);
        if let Some(claim) = claim {
            self.worker.compute.alloc.freed(class, block.address, block.version, claim);
        }
        Ok(())
    }

    /// The error of a change that may have happened, of an operation that has not read the value that it
    /// replaced: so it cannot answer when the outcome is known.
    fn unknown(&self, error: FabricError) -> Error {
        if self.is_unposted() { error.into() } else { Error::after_post(error) }
    }

    /// Frees a block that no entry refers to any more, then clears its record.
    async fn free_replaced(
        &self,
        tree: &TreeState,
        block: BlockRef,
        class: ChunkClass,
        slot: &Option<RedoSlot>,
    ) -> Result<(), FabricError> {
        let mut list = self.endpoint().list(block.address.server());
        self.push_free(&mut list, tree, block, class);
        if let Some(slot) = slot {
            if slot.server() != list.server() && !list.is_empty() {
                let next = self.endpoint().list(slot.server());
                self.endpoint().recycle(self.execute(std::mem::replace(&mut list, next)).await?);
            }
            slot.clear(&mut list);
        }
        if !list.is_empty() {
            self.endpoint().recycle(self.execute(list).await?);
        }
        Ok(())
    }

    /// Adds the free mark of a block, after the READs of the list, and the hint of its span.
    fn push_free(&self, list: &mut WorkList, tree: &TreeState, block: BlockRef, class: ChunkClass) {
        seam!(tree::push_free());
        let line = block.free_line(tree.info.id, self.endpoint().client());
        list.write_fenced(Space::Host, block.address.offset(), &line);
        self.push_hint(list, block.address, class);
    }

    /// Frees the blocks that the entries of a locked leaf of a dropped tree refer to, unless an earlier drop
    /// has done so: then their places may hold other blocks by now.
    pub(super) async fn free_blocks(
        &self,
        tree: &TreeState,
        slots: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<(), Error> {
        for some in slots.chunks(BLOCKS_FREED) {
            self.free_some_blocks(tree, some).await?;
        }
        Ok(())
    }

    async fn free_some_blocks(&self, tree: &TreeState, slots: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Error> {
        let mut blocks = Vec::new();
        for (key, slot) in slots {
            if let Some(Slot::Long(block)) = block::read_slot(slot)
                && let Some(class) = block.class(key.len())
                && self.worker.compute.check_pointer(block.address, LINE).is_ok()
            {
                blocks.push((block, class));
            }
        }
        let read = self.read_all(blocks.iter().map(|(block, _)| (block.address, LINE))).await?;
        let mut lists: Vec<WorkList> = Vec::new();
        let mut freed = Vec::new();
        for (at, &(block, class)) in blocks.iter().enumerate() {
            let header = Header::decode(read.image(at));
            let Some(header) = header.filter(|header| is_that_block(header, tree, block)) else { continue };
            let most = self.endpoint().caps().max_verbs.max(2) as usize;
            let fits = |list: &WorkList| list.server() == block.address.server() && list.len() + 2 <= most;
            let list = lists.iter().rposition(fits).unwrap_or_else(|| {
                lists.push(self.endpoint().list(block.address.server()));
                lists.len() - 1
            });
            if header.flags.free {
                // The client that marked the block may have died before it set the hint.
                self.push_hint(&mut lists[list], block.address, class);
                continue;
            }
            freed.push((block, class, self.worker.compute.alloc.claim(class, block.address)));
            self.push_free(&mut lists[list], tree, block, class);
        }
        read.recycle(self);
        lists.retain(|list| !list.is_empty());
        if !lists.is_empty() {
            let lists = self.execute_all(lists).await?;
            lists.into_iter().for_each(|list| self.endpoint().recycle(list));
        }
        for (block, class, claim) in freed {
            self.worker.compute.alloc.freed(class, block.address, block.version, claim);
        }
        Ok(())
    }
}

/// Whether a block's place still holds the block that a dropped tree's entry refers to, free or not.
fn is_that_block(header: &Header, tree: &TreeState, block: BlockRef) -> bool {
    seam!(tree::is_that_block(header));
    header.format == ChunkClass::BLOCK && (header.tree, header.version) == (tree.info.id, block.version)
}

fn corrupt_slot(address: GlobalAddress) -> Error {
    Error::Corrupt { address, invariant: I56 }
}
