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
//!
//! Each operation consists of steps between which it executes its lists. [`Op::get_now`] and
//! [`Op::insert_at_once`] execute them inside `post`. [`Op::get_in_steps`] and [`Op::insert_in_steps`] take
//! the same steps, and let the caller execute the lists. In the simulator other clients run meanwhile, as
//! other threads do on real memory.

use super::TreeState;
use crate::error::Error;
use crate::lock::Held;
use crate::lock::batch::{Gathered, Lines};
use crate::lock::local::{Grant, LaneIndex, ReleasePlan};
use crate::node::entry::EntryWrite;
use crate::node::hashed::{WINDOW, window_bytes};
use crate::node::window::{ChangeRule, EntryChange};
use crate::node::{LINE, Shape, Window};
use crate::op::Op;
use sherman_fabric::{
    Endpoint, GlobalAddress, Space, Ticket, VerbId, WorkList, count_now, count_read, read_now,
};
use std::ops::Range;

/// How far an insert came without waiting.
pub enum Now<'w> {
    /// It is done. The flag says whether the key was there.
    Done(bool),
    /// Nothing has happened.
    No,
    /// It has posted a list that takes the lane of its leaf, and has to wait.
    Begun(Box<Begun<'w>>),
}

/// An insert that has begun, and may hold the lane of its leaf.
pub struct Begun<'w>(Stage<'w>);

enum Stage<'w> {
    /// The lines are read. They are not good or are full, or other operations wait for the lane.
    Read(GlobalAddress, Gathered<'w>),
    /// The list that takes the lane did not complete inside `post`.
    Taking(Taking, Ticket),
    /// The list that writes the entry and releases the lane did not complete inside `post`.
    Writing(Writing, Ticket),
}

/// The list that takes the lane and reads the lines is posted.
struct Taking {
    leaf: GlobalAddress,
    lane: LaneIndex,
    held: Held,
    /// The CAS of the lane. `None` after a handover.
    cas: Option<VerbId>,
    read: VerbId,
    /// The number of the first line that it reads.
    first: usize,
}

/// The list that writes the entry and releases the lane is posted.
struct Writing {
    leaf: GlobalAddress,
    lane: LaneIndex,
    held: Held,
    entry: EntryWrite,
}

/// What the lines of `key` say of it, if they are good. `first` is the number of the first line.
#[inline]
fn answer(shape: &Shape, first: usize, lines: &[u8], key: &[u8], value: &mut Vec<u8>) -> Option<bool> {
    let window = Window::open_at(shape, first, lines, key);
    seam!(tree::answer(&window));
    window.ok().map(|window| window.get(key, value))
}

/// Whether the first list took the lane.
#[inline]
fn took_lane(cas: Option<VerbId>, list: &WorkList) -> bool {
    seam!(tree::took_lane());
    cas.is_none_or(|cas| list.swapped(cas))
}

/// Whether an insert waits for its WRITE.
#[inline]
fn waits_for_write() -> bool {
    seam!(tree::waits_for_write());
    true
}

/// Whether an insert is over when its WRITE has executed.
fn is_over() -> bool {
    seam!(tree::is_over());
    true
}

impl<'w, E: Endpoint> Op<'w, E> {
    /// Looks `key` up as [`Op::get`] does, if that needs no waiting. Returns `None` if it does.
    #[inline]
    pub fn get_now(&self, tree: &TreeState, key: &[u8], value: &mut Vec<u8>) -> Option<bool> {
        let (first, range) = self.lines_of(tree, key)?;
        let mut lines = [0; WINDOW * LINE];
        let lines = &mut lines[..range.len()];
        if !read_now(self.endpoint(), first, lines, self.counters()) {
            return None;
        }
        answer(&tree.shape.leaf, range.start / LINE, lines, key, value)
    }

    /// Does the same as [`Op::get_now`], and lets `read` READ host memory. It returns false if it did not.
    pub async fn get_in_steps(
        &self,
        tree: &TreeState,
        key: &[u8],
        value: &mut Vec<u8>,
        read: impl AsyncFnOnce(GlobalAddress, &mut [u8]) -> bool,
    ) -> Option<bool> {
        let (first, range) = self.lines_of(tree, key)?;
        let mut lines = vec![0; range.len()];
        if !read(first, &mut lines).await {
            return None;
        }
        count_read(self.endpoint(), lines.len(), self.counters());
        answer(&tree.shape.leaf, range.start / LINE, &lines, key, value)
    }

    /// Where the lines of `key` are, in memory and in their leaf, if the cache knows.
    #[inline]
    fn lines_of(&self, tree: &TreeState, key: &[u8]) -> Option<(GlobalAddress, Range<usize>)> {
        let shape = &tree.shape.leaf;
        if !(self.endpoint().executes_inline() && shape.is_hashed() && tree.check_key(key).is_ok())
            || tree.has_blocks()
        {
            return None;
        }
        let at = self.locate_known(tree, key, 0)?;
        self.worker.compute.check_pointer(at, shape.node_bytes()).ok()?;
        let range = window_bytes(shape, key);
        Some((GlobalAddress::new(at.server(), at.offset() + range.start as u64), range))
    }

    /// Puts `value` under `key` as [`Op::insert`] does, as far as that needs no waiting.
    #[inline]
    pub fn insert_at_once(&self, tree: &TreeState, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Now<'w> {
        let Some((taking, list)) = self.begin_insert(tree, key, value) else { return Now::No };
        let list = match self.execute_now(list) {
            Ok(list) => list,
            Err(ticket) => return Now::begun(Stage::Taking(taking, ticket)),
        };
        match self.put_under_lane(tree, taking, list, key, value, old) {
            Ok((writing, list)) => self.end_insert(writing, self.execute_now(list)),
            Err(now) => now,
        }
    }

    /// Does the same as [`Op::insert_at_once`], and lets `post` execute the lists. It returns the ticket of a
    /// list that failed, or that it has posted and does not wait for.
    pub async fn insert_in_steps(
        &self,
        tree: &TreeState,
        key: &[u8],
        value: &[u8],
        old: &mut Vec<u8>,
        post: impl AsyncFn(WorkList) -> Result<WorkList, Ticket>,
    ) -> Now<'w> {
        let Some((taking, list)) = self.begin_insert(tree, key, value) else { return Now::No };
        count_now(self.endpoint(), &list, self.counters());
        let list = match post(list).await {
            Ok(list) => list,
            Err(ticket) => return Now::begun(Stage::Taking(taking, ticket)),
        };
        match self.put_under_lane(tree, taking, list, key, value, old) {
            Ok((writing, list)) => {
                count_now(self.endpoint(), &list, self.counters());
                self.end_insert(writing, post(list).await)
            }
            Err(now) => now,
        }
    }

    /// Makes the list that takes the lane and reads the lines of `key`, if nothing is in the way.
    #[inline]
    fn begin_insert(&self, tree: &TreeState, key: &[u8], value: &[u8]) -> Option<(Taking, WorkList)> {
        let shape = &tree.shape.leaf;
        let compute = &*self.worker.compute;
        let may = self.endpoint().executes_inline()
            && shape.is_hashed()
            && !tree.has_blocks()
            && self.combines()
            && compute.caps().crash_unit as usize >= LINE
            && self.may_take_lanes()
            && tree.check_key(key).is_ok()
            && tree.check_value(value).is_ok();
        let at = may.then(|| self.locate_known(tree, key, 0)).flatten()?;
        if compute.check_pointer(at, shape.node_bytes()).is_err() || self.endpoint().refuses(at.server()) {
            return None;
        }
        let own = Lines { leaf: at, range: window_bytes(shape, key) };
        let first = GlobalAddress::new(at.server(), at.offset() + own.range.start as u64);
        self.endpoint().hint(first, own.range.len());
        let lane = self.lane_at(at);
        let grant = compute.local.try_acquire(lane)?;
        if compute.is_terminated() {
            let _ = self.too_late(lane);
            return None;
        }
        if grant == Grant::HandedOver {
            self.count_handover();
        }
        let mut list = self.endpoint().list(lane.server);
        let cas = (grant == Grant::Fresh).then(|| self.push_cas(lane, &mut list));
        let read = own.read(&mut list);
        let first = own.range.start / LINE;
        Some((Taking { leaf: at, lane, held: self.hold(lane), cas, read, first }, list))
    }

    /// Makes the list that writes the entry and releases the lane, after `list` has completed. If that cannot
    /// be done at once, tells how far the insert came.
    #[inline]
    fn put_under_lane(
        &self,
        tree: &TreeState,
        taking: Taking,
        mut list: WorkList,
        key: &[u8],
        value: &[u8],
        old: &mut Vec<u8>,
    ) -> Result<(Writing, WorkList), Now<'w>> {
        let shape = &tree.shape.leaf;
        let Taking { leaf, lane, held, cas, read, first } = taking;
        if !took_lane(cas, &list) {
            // The future begins with another try, and pauses after that.
            self.lane_refused(lane, held, cas, list);
            return Err(Now::No);
        }
        let window = Window::open_at(shape, first, list.bytes(read), key).ok();
        let entry = window.and_then(|window| {
            let found = window.get_slot(key, old);
            window.change_found(found, key, EntryChange::Put(value))
        });
        let plan = self.plan_release(&held);
        let alone = plan == ReleasePlan::Global && !self.worker.compute.local.has_waiters(lane);
        let Some(entry) = entry.filter(|_| alone) else {
            return Err(Now::begun(Stage::Read(leaf, Gathered::alone(held, lane, leaf, list, read))));
        };
        list.reset(lane.server);
        list.write(Space::Host, leaf.offset() + entry.range().start as u64, entry.bytes());
        self.push_release(&held, &mut list);
        Ok((Writing { leaf, lane, held, entry }, list))
    }

    /// Ends an insert after its last list.
    #[inline]
    fn end_insert(&self, writing: Writing, written: Result<WorkList, Ticket>) -> Now<'w> {
        match written {
            Ok(list) => self.endpoint().recycle(list),
            Err(ticket) if waits_for_write() => return Now::begun(Stage::Writing(writing, ticket)),
            Err(ticket) => self.endpoint().forget(ticket),
        }
        let _ = self.finish(writing.lane, ReleasePlan::Global);
        self.unhold(writing.held);
        Now::Done(writing.entry.updated)
    }

    /// Gives the local lock back after the CAS of the lane failed.
    fn lane_refused(&self, lane: LaneIndex, held: Held, cas: Option<VerbId>, list: WorkList) {
        self.suspect_holder(lane, cas.map_or(0, |cas| list.old(cas)));
        self.endpoint().recycle(list);
        self.unhold(held);
        seam!(tree::lane_refused());
        let _ = self.finish(lane, ReleasePlan::Global);
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
        let (leaf, gathered) = match begun.0 {
            Stage::Read(leaf, gathered) => (leaf, gathered),
            Stage::Taking(Taking { leaf, lane, held, cas, read, .. }, ticket) => {
                match self.outcome_of(ticket).await {
                    Err(error) => return Err(self.lock_failed(held, error).await),
                    Ok(list) if took_lane(cas, &list) => {
                        (leaf, Gathered::alone(held, lane, leaf, list, read))
                    }
                    Ok(list) => {
                        self.lane_refused(lane, held, cas, list);
                        return self.insert(tree, key, value, old).await;
                    }
                }
            }
            Stage::Writing(Writing { leaf, held, entry, .. }, ticket) => {
                let outcome = self.outcome_of(ticket).await.map(|list| self.endpoint().recycle(list));
                let written = self.end_write_back(held, ReleasePlan::Global, outcome).await;
                written.map_err(|error| self.entry_in_doubt(error, leaf, &entry, EntryChange::Put(value)))?;
                if !is_over() {
                    return self.insert(tree, key, value, old).await;
                }
                return Ok(entry.updated);
            }
        };
        let rule = ChangeRule::Put(value);
        let changed = self.change_gathered(tree, leaf, gathered, key, old, rule).await;
        self.insert_otherwise(tree, key, value, old, changed).await
    }
}

impl<'w> Now<'w> {
    #[cold]
    fn begun(stage: Stage<'w>) -> Self {
        Self::Begun(Box::new(Begun(stage)))
    }
}
