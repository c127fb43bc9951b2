//! Makes a copy of a volume: sends the bytes of the primary to another host (J1-J6 in
//! `docs/REPLICATION.md`). The volume lost a copy, or one of its copies moves.
//!
//! The host of the primary has a thread for each copy that is being made. It compares digests of blocks, and
//! sends the blocks that differ. It does so twice:
//!
//! - **While the volume is open** (J2). Clients change it meanwhile, so the copy is nearly right at the end.
//! - **While the state is quiet** (J4). The volume is closed, and nobody writes but the primary's CPU. From
//!   the beginning of this phase the copy gets the stores of the CPU over the [`MirrorLink`]. At the end the
//!   tables are compared once more under the lock of the memory, and what differs goes over the same link. So
//!   it is in order with the stores of the CPU: neither overwrites the other with older bytes.
//!
//! **What is copied.** The superblock, all tables and root words, and every chunk of nodes. Lanes are not: no
//! client holds one on a copy that is no primary. Redo areas are not: the CPU zeroes an area when it gives it
//! out, and that store is mirrored (T5). Chunks that were never used are all zero on both sides.
//!
//! **What may go wrong.** Every error is repeated after a pause, for as long as the state wants the copy. A
//! block that a former connection delivers late is refused: the copy takes bytes from the newest connection
//! only. A report that a former state of the volume was right does no harm: the state counts it for its epoch
//! only, and only while it is quiet.
//!
//! | module | what |
//! |---|---|
//! | `worker` | the thread: both steps, and the reports to the leader |
//! | `ranges` | which bytes, and which of them differ |
//! | `workshop` | how many copies are made at the same time, and how far each is |

mod ranges;
mod worker;
mod workshop;

use crate::alive::Directory;
use crate::mirror::MirrorLink;
use crate::plane::Identity;
use sherman_control::{Address, Secret};
use sherman_embedded::host::Host;
use sherman_memory_server::cluster::Phase;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;
use worker::Worker;
pub(crate) use workshop::Workshop;

/// What there is to do for a copy.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    /// The epoch of the newest table.
    pub(crate) epoch: u64,
    pub(crate) phase: Phase,
    /// Whether the state is quiet. The primary's link then has the copy among its targets.
    pub(crate) quiet: bool,
    pub(crate) link: Option<Arc<MirrorLink>>,
}

/// The thread that makes one copy.
#[derive(Debug)]
pub(crate) struct Copier {
    shared: Arc<Shared>,
}

/// Which copy, where it is, and where its bytes come from.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) own: Identity,
    pub(crate) secret: Option<Secret>,
    pub(crate) patience: Duration,
    pub(crate) directory: Arc<Directory>,
    pub(crate) workshop: Arc<Workshop>,
    pub(crate) volume: u16,
    pub(crate) copy: u16,
    pub(crate) address: Address,
    pub(crate) primary: Arc<Host>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    task: Task,
    /// How often something has changed for which bytes that were compared before do not count.
    stamp: u64,
    /// How often the task has changed.
    turn: u64,
    end: Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The table names the copy.
    Made,
    /// The state does not want it any more, or this host ends.
    Dropped,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the task is another one than that of `turn`, or the end, or `time` has passed.
    fn wait(&self, turn: u64, time: Duration) {
        let same = |state: &mut State| state.end.is_none() && state.turn == turn;
        let _ = self.changed.wait_timeout_while(self.lock(), time, same);
    }

    fn end(&self, end: End) {
        self.lock().end.get_or_insert(end);
        self.changed.notify_all();
    }
}

impl Copier {
    pub(crate) fn start(plan: Plan, task: Task) -> io::Result<Self> {
        let state = State { task, stamp: 0, turn: 0, end: None };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let name = format!("sherman-copier-{}", plan.copy);
        let worker = Worker::new(plan, Arc::clone(&shared));
        Builder::new().name(name).spawn(move || worker.run())?;
        Ok(Self { shared })
    }

    /// Takes what there is to do now.
    pub(crate) fn set(&self, task: Task) {
        let mut state = self.shared.lock();
        if (task.epoch, task.quiet) != (state.task.epoch, state.task.quiet) {
            state.stamp += 1;
        }
        state.turn += 1;
        state.task = task;
        drop(state);
        self.shared.changed.notify_all();
    }

    /// The copy is made.
    pub(crate) fn finish(self) {
        self.shared.end(End::Made);
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        self.shared.end(End::Dropped);
    }
}

#[cfg(test)]
mod tests;
