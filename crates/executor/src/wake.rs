//! Wakers, and the ready queue they feed.
//!
//! A waker names a **slot** of the executor, not one task in it. There is one waker per slot for the
//! executor's whole life, cloned by reference count. This has three consequences:
//!
//! - Spawning a task makes no waker.
//! - A holder of wakers (a timer heap, a lock's wait queue) keeps at most one identity per slot.
//! - A wake that arrives after its task has finished is ignored if the slot is vacant. Otherwise it wakes the
//!   slot's next task for nothing, which every future must tolerate anyway.
//!
//! Where it matters *which* task is meant, a [`TaskId`](crate::TaskId) carries the slot's generation.
//!
//! On the executor's own thread, a wake costs a comparison, a check that the slot is not queued yet, and a
//! push. From any other thread it passes through the [`WakeQueue`]. A slot is at most once in either queue.

use crate::owner::OwnerCell;
use crate::wake_queue::WakeQueue;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Wake, Waker};

/// What an executor shares with its wakers.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) ready: OwnerCell<RefCell<Ready>>,
    pub(crate) remote: WakeQueue,
}

impl Shared {
    /// The shared part of an executor on the calling thread.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { ready: OwnerCell::new(RefCell::new(Ready::default())), remote: WakeQueue::new() })
    }

    /// The waker of slot `index`.
    pub(crate) fn waker(self: &Arc<Self>, index: u32) -> Waker {
        Waker::from(Arc::new(SlotWaker { index, shared: Arc::clone(self) }))
    }
}

/// The counted header behind a slot's waker.
struct SlotWaker {
    index: u32,
    shared: Arc<Shared>,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match self.shared.ready.get() {
            Some(ready) => ready.borrow_mut().wake(self.index),
            None => self.shared.remote.push(self.index),
        }
    }
}

/// The tasks that are ready to run, first woken first.
///
/// Holds indices of live tasks only: a slot leaves the queue when its task finishes.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    queue: VecDeque<u32>,
    marks: Vec<Mark>,
}

/// The state of a slot. It decides what a wake does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// The slot has no task: a wake does nothing.
    Vacant,
    /// The task waits: a wake queues it.
    Waiting,
    /// The task is in the queue: a wake does nothing more.
    Queued,
    /// The future of a `run_until`. It lies on that call's stack, and only that call polls it.
    Main { woken: bool },
}

impl Ready {
    /// Wakes the task or `run_until` in slot `index`.
    #[inline]
    pub(crate) fn wake(&mut self, index: u32) {
        match self.marks.get_mut(index as usize) {
            Some(mark @ Mark::Waiting) => {
                *mark = Mark::Queued;
                self.queue.push_back(index);
            }
            Some(Mark::Main { woken }) => *woken = true,
            Some(Mark::Vacant | Mark::Queued) | None => {}
        }
    }

    /// Assigns slot `index` to a task, ready for its first poll.
    pub(crate) fn admit_task(&mut self, index: u32) {
        *self.mark(index) = Mark::Queued;
        self.queue.push_back(index);
    }

    /// Assigns slot `index` to a `run_until`, ready for its first poll.
    pub(crate) fn admit_main(&mut self, index: u32) {
        *self.mark(index) = Mark::Main { woken: true };
    }

    /// Makes slot `index` vacant and removes it from the queue.
    pub(crate) fn vacate(&mut self, index: u32) {
        if std::mem::replace(self.mark(index), Mark::Vacant) == Mark::Queued {
            self.queue.retain(|&queued| queued != index);
        }
    }

    /// Takes the `nth` task out of the queue; from now on it can be woken again.
    #[inline]
    pub(crate) fn take(&mut self, nth: usize) -> Option<u32> {
        let index = if nth == 0 { self.queue.pop_front() } else { self.queue.remove(nth) }?;
        *self.mark(index) = Mark::Waiting;
        Some(index)
    }

    /// Whether the `run_until` in slot `index` was woken since the last call.
    #[inline]
    pub(crate) fn take_main(&mut self, index: u32) -> bool {
        match self.mark(index) {
            Mark::Main { woken } => std::mem::replace(woken, false),
            Mark::Vacant | Mark::Waiting | Mark::Queued => false,
        }
    }

    /// Whether the `run_until` in slot `index` must be polled.
    pub(crate) fn main_is_woken(&self, index: u32) -> bool {
        matches!(self.marks.get(index as usize), Some(Mark::Main { woken: true }))
    }

    /// How many tasks are ready.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// The slot of the `nth` ready task.
    pub(crate) fn peek(&self, nth: usize) -> Option<u32> {
        self.queue.get(nth).copied()
    }

    /// Forgets all slots.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    fn mark(&mut self, index: u32) -> &mut Mark {
        let slot = index as usize;
        if self.marks.len() <= slot {
            self.marks.resize(slot + 1, Mark::Vacant);
        }
        &mut self.marks[slot]
    }
}
