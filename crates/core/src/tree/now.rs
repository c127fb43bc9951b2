//! Operations on one key that end without waiting, where lists execute inside `post`: memory in the process,
//! and memory that it maps.
//!
//! There a get or a put of a `LineHashed` leaf usually meets no obstacle: the cache names the leaf, the lane
//! is free, the lines are good. The functions here make the same steps as `lines.rs` and `combine.rs`, with
//! the same verbs, but are no futures. An operation that crosses several futures spends more instructions on
//! their states than on the tree.
//!
//! At the first obstacle they stop. Either nothing has happened yet, and the operation begins as a future. Or
//! the operation holds the lane, and a future goes on from there ([`Op::resume_insert`]).

use super::TreeState;
use crate::error::Error;
use crate::lock::Held;
use crate::lock::batch::{Gathered, Lines};
use crate::lock::local::{Grant, ReleasePlan};
use crate::node::entry::EntryWrite;
use crate::node::hashed::{WINDOW, window_bytes};
use crate::node::window::{ChangeRule, EntryChange};
use crate::node::{LINE, Window};
use crate::op::Op;
use sherman_fabric::{Endpoint, GlobalAddress, Space, Ticket, read_now};

/// How far an insert came without waiting.
pub enum Now<'w> {
    /// It is done. The flag says whether the key was there.
    Done(bool),
    /// Nothing has happened.
    No,
    /// It holds the lane of its leaf, and has to wait.
    Begun(Box<Begun<'w>>),
}

/// An insert that holds the lane of its leaf.
pub struct Begun<'w>(Stage<'w>);

enum Stage<'w> {
    /// The lines are read. They are not good or are full, or other operations wait for the lane.
    Read(GlobalAddress, Gathered<'w>),
    /// The list that takes the lane failed.
    LockFailed(Held, Ticket),
    /// The list that writes the entry and releases the lane failed.
    WriteFailed(GlobalAddress, Held, Ticket, EntryWrite),
}

impl<'w, E: Endpoint> Op<'w, E> {
    /// Looks `key` up as [`Op::get`] does, if that needs no waiting. Returns `None` if it does.
    #[inline]
    pub fn get_now(&self, tree: &TreeState, key: &[u8], value: &mut Vec<u8>) -> Option<bool> {
        let shape = &tree.shape.leaf;
        if !(self.endpoint().executes_inline() && shape.is_hashed() && tree.check_key(key).is_ok()) {
            return None;
        }
        let at = self.locate_known(tree, key, 0)?;
        self.worker.compute.check_pointer(at, shape.node_bytes()).ok()?;
        let range = window_bytes(shape, key);
        let first = GlobalAddress::new(at.server(), at.offset() + range.start as u64);
        let mut lines = [0; WINDOW * LINE];
        let lines = &mut lines[..range.len()];
        if !read_now(self.endpoint(), first, lines, self.counters()) {
            return None;
        }
        Window::open_at(shape, range.start / LINE, lines, key).ok().map(|window| window.get(key, value))
    }

    /// Puts `value` under `key` as [`Op::insert`] does, as far as that needs no waiting.
    #[inline]
    pub fn insert_at_once(&self, tree: &TreeState, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Now<'w> {
        let shape = &tree.shape.leaf;
        let compute = &*self.worker.compute;
        let may = self.endpoint().executes_inline()
            && shape.is_hashed()
            && self.combines()
            && compute.caps().crash_unit as usize >= LINE
            && self.may_take_lanes()
            && tree.check_key(key).is_ok()
            && tree.check_value(value).is_ok();
        let Some(at) = may.then(|| self.locate_known(tree, key, 0)).flatten() else { return Now::No };
        if compute.check_pointer(at, shape.node_bytes()).is_err() || self.endpoint().refuses(at.server()) {
            return Now::No;
        }
        let own = Lines { leaf: at, range: window_bytes(shape, key) };
        let first = GlobalAddress::new(at.server(), at.offset() + own.range.start as u64);
        self.endpoint().hint(first, own.range.len());
        let lane = self.lane_at(at);
        let Some(grant) = compute.local.try_acquire(lane) else { return Now::No };
        if compute.is_terminated() {
            let _ = self.too_late(lane);
            return Now::No;
        }
        if grant == Grant::HandedOver {
            self.count_handover();
        }
        let mut list = self.endpoint().list(lane.server);
        let cas = (grant == Grant::Fresh).then(|| self.push_cas(lane, &mut list));
        let read = own.read(&mut list);
        let held = self.hold(lane);
        let mut list = match self.execute_now(list) {
            Ok(list) => list,
            Err(ticket) => return Now::begun(Stage::LockFailed(held, ticket)),
        };
        if !cas.is_none_or(|cas| list.swapped(cas)) {
            // The future begins with another try, and pauses after that.
            self.suspect_holder(lane, cas.map_or(0, |cas| list.old(cas)));
            self.endpoint().recycle(list);
            self.unhold(held);
            let _ = self.finish(lane, ReleasePlan::Global);
            return Now::No;
        }
        let put = EntryChange::Put(value);
        let window = Window::open_at(shape, own.range.start / LINE, list.bytes(read), key).ok();
        let entry = window.and_then(|window| {
            let found = window.get_slot(key, old);
            window.change_found(found, key, put)
        });
        let plan = self.plan_release(&held);
        let Some(entry) = entry.filter(|_| plan == ReleasePlan::Global && !compute.local.has_waiters(lane))
        else {
            return Now::begun(Stage::Read(at, Gathered::alone(held, lane, at, list, read)));
        };
        list.reset(lane.server);
        list.write(Space::Host, at.offset() + entry.range().start as u64, entry.bytes());
        self.push_release(&held, &mut list);
        match self.execute_now(list) {
            Ok(list) => self.endpoint().recycle(list),
            Err(ticket) => return Now::begun(Stage::WriteFailed(at, held, ticket, entry)),
        }
        let _ = self.finish(lane, ReleasePlan::Global);
        self.unhold(held);
        Now::Done(entry.updated)
    }

    /// Goes on with an insert that has begun.
    pub async fn resume_insert(
        &self,
        tree: &TreeState,
        begun: Box<Begun<'w>>,
        key: &[u8],
        value: &[u8],
        old: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        match begun.0 {
            Stage::Read(at, gathered) => {
                let rule = ChangeRule::Put(value);
                let changed = self.change_gathered(tree, at, gathered, key, old, rule).await;
                self.insert_otherwise(tree, key, value, old, changed).await
            }
            Stage::LockFailed(held, ticket) => match self.outcome_of(ticket).await {
                Err(error) => Err(self.lock_failed(held, error).await),
                Ok(list) => {
                    // It has not failed after all, which no backend does. The lane is given back.
                    self.endpoint().recycle(list);
                    self.release(held).await?;
                    self.insert(tree, key, value, old).await
                }
            },
            Stage::WriteFailed(at, held, ticket, entry) => {
                let outcome = self.outcome_of(ticket).await.map(|list| self.endpoint().recycle(list));
                let written = self.end_write_back(held, ReleasePlan::Global, outcome).await;
                written.map_err(|error| self.entry_in_doubt(error, at, &entry, EntryChange::Put(value)))?;
                Ok(entry.updated)
            }
        }
    }
}

impl<'w> Now<'w> {
    #[cold]
    fn begun(stage: Stage<'w>) -> Self {
        Self::Begun(Box::new(Begun(stage)))
    }
}
