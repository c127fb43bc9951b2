//! The executor of one thread.
//!
//! An operation on the tree is a task (`docs/FABRIC.md`). It is spawned and runs beside the others. It
//! finishes even if its caller no longer waits, so that no lock stays held. The executor polls tasks in the
//! order of their wakes. Nothing here is random and nothing reads a clock: the same tasks and the same wakes
//! give the same order of polls. A simulator can choose that order itself ([`LocalExecutor::ready_task`],
//! [`LocalExecutor::run_ready`]).
//!
//! What must hold:
//!
//! - The executor polls a woken task again, whichever thread woke it, and even if the wake came during the
//!   poll.
//! - It never polls a task that is being polled.
//! - The ready queue holds each live task at most once.
//!
//! **Panics.** A task that panics unwinds through the call that polled it (`run_until`, `tick`, …). The
//! executor drops that task, and its handle yields [`Gone`](crate::Gone). Every other task stays as it was:
//! the caller may catch the panic and continue.
//!
//! Figures of `examples/overhead` (a shared two-core virtual machine, best of seven windows):
//!
//! - Suspend, wake and resume take 17–21 ns with 1 to 1024 tasks.
//! - They take 28–34 ns if the waker is cloned, kept and consumed in between (two atomic counts).
//! - Spawn, run and join take 55–88 ns, two allocations included.

use crate::Driver;
use crate::idle::Idle;
use crate::join::{self, JoinHandle};
use crate::slab::{Body, Slab, TaskId};
use crate::wake::{Ready, Shared};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// While tasks are always ready, the executor polls the driver once in this many rounds. Otherwise tasks that
/// merely yield would starve it.
const ROUNDS_PER_PROGRESS: u32 = 16;

/// The longest park of [`LocalExecutor::drain`], which must check the caller's condition.
const DRAIN_PARK: Duration = Duration::from_millis(1);

/// A single-threaded executor. Neither `Send` nor `Sync`; its wakers are both.
///
/// ```compile_fail
/// fn send<T: Send>(_: T) {}
/// send(sherman_executor::LocalExecutor::new());
/// ```
///
/// Dropping it drops its tasks at their current await: call [`drain`](Self::drain) first. A task must not own
/// its executor (by `Rc`), or neither is ever dropped.
pub struct LocalExecutor {
    slab: RefCell<Slab>,
    shared: Arc<Shared>,
    tasks: Cell<usize>,
    /// Spare buffer for wakes that came from other threads.
    remote: Cell<Vec<u32>>,
}

impl LocalExecutor {
    /// An executor for the calling thread.
    pub fn new() -> Self {
        Self { slab: RefCell::default(), shared: Shared::new(), tasks: Cell::new(0), remote: Cell::default() }
    }

    /// Adds a task. The executor polls it for the first time when its turn comes, not now. Dropping the
    /// handle detaches it.
    ///
    /// There is no limit here: the caller must bound the number of tasks in flight.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        self.spawn_with(|| future)
    }

    /// As [`spawn`](Self::spawn), for the future that `make` makes when the task is polled for the first
    /// time. The future is made in its final place, so a large one takes half the space and is not copied.
    pub fn spawn_with<F>(&self, make: impl FnOnce() -> F + 'static) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let (body, handle) = join::task(make);
        let mut slab = self.slab.borrow_mut();
        let id = slab.claim(|index| self.shared.waker(index));
        slab.rest(id.index(), body);
        drop(slab);
        self.tasks.set(self.tasks.get() + 1);
        self.queue().borrow_mut().admit_task(id.index());
        handle
    }

    /// Runs `future`, together with the spawned tasks, until `future` finishes. Unfinished tasks stay in the
    /// executor.
    ///
    /// It calls [`Driver::progress`] whenever nothing is ready, and otherwise every 16 rounds of polls. With
    /// nothing to do, the thread spins while [`Driver::spins`] says so. Then it parks in the driver, or for
    /// at most [`Driver::idle_for`] at a time (or yields, if that is zero). If no other thread wakes it and
    /// the driver has nothing more to deliver, it never returns.
    pub fn run_until<D: Driver + ?Sized, F: Future>(&self, driver: &D, future: F) -> F::Output {
        let mut future = pin!(future);
        let (main, waker) = Main::enter(self);
        let mut cx = Context::from_waker(&waker);
        let mut pace = Pace::default();
        loop {
            if self.queue().borrow_mut().take_main(main.index)
                && let Poll::Ready(output) = future.as_mut().poll(&mut cx)
            {
                return output;
            }
            let polled = self.tick();
            pace.next(self, driver, polled, None, || self.queue().borrow().main_is_woken(main.index));
        }
    }

    /// Runs the spawned tasks until all have finished or `stop` returns true. Returns the number of
    /// unfinished tasks.
    ///
    /// It calls `stop` between rounds, at least once a millisecond even while nothing happens.
    pub fn drain<D: Driver + ?Sized>(&self, driver: &D, stop: impl Fn() -> bool) -> usize {
        let mut pace = Pace::default();
        while self.tasks() > 0 && !stop() {
            let polled = self.tick();
            if self.tasks() > 0 {
                pace.next(self, driver, polled, Some(DRAIN_PARK), || false);
            }
        }
        self.tasks()
    }

    /// Polls every task that is ready now, once. Tasks that become ready meanwhile wait for the next call.
    /// Returns how many it polled.
    pub fn tick(&self) -> usize {
        let round = self.ready();
        let queue = self.queue();
        let mut polled = 0;
        while polled < round {
            // A separate statement: the queue must not stay borrowed while the task runs.
            let next = queue.borrow_mut().take(0);
            let Some(index) = next else { break };
            self.poll_task(index);
            polled += 1;
        }
        polled
    }

    /// How many tasks are ready to be polled.
    #[inline]
    pub fn ready(&self) -> usize {
        self.take_remote();
        self.queue().borrow().len()
    }

    /// The `nth` ready task, in the order in which they became ready.
    pub fn ready_task(&self, nth: usize) -> Option<TaskId> {
        let index = self.queue().borrow().peek(nth)?;
        Some(self.slab.borrow().id(index))
    }

    /// Polls the `nth` ready task, and no other. False if there are not that many.
    #[inline]
    pub fn run_ready(&self, nth: usize) -> bool {
        let index = self.queue().borrow_mut().take(nth);
        if let Some(index) = index {
            self.poll_task(index);
        }
        index.is_some()
    }

    /// How many tasks are alive.
    pub fn tasks(&self) -> usize {
        self.tasks.get()
    }

    #[inline]
    fn poll_task(&self, index: u32) {
        let taken = self.slab.borrow_mut().take(index);
        if let Some((body, waker)) = taken {
            Turn { executor: self, index, body: Some(body) }.run(&waker);
        }
    }

    fn vacate(&self, index: u32) {
        self.queue().borrow_mut().vacate(index);
        self.slab.borrow_mut().vacate(index);
    }

    /// Queues the tasks that other threads have woken.
    #[inline]
    fn take_remote(&self) {
        if self.shared.remote.is_pending() {
            self.take_remote_slow();
        }
    }

    #[cold]
    fn take_remote_slow(&self) {
        let mut woken = self.remote.take();
        self.shared.remote.drain(&mut woken);
        let mut queue = self.queue().borrow_mut();
        woken.drain(..).for_each(|index| queue.wake(index));
        drop(queue);
        self.remote.set(woken);
    }

    #[inline]
    fn queue(&self) -> &RefCell<Ready> {
        self.shared.ready.get().expect("an executor is not Send: it is always on its own thread")
    }
}

impl Default for LocalExecutor {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for LocalExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalExecutor")
            .field("tasks", &self.tasks())
            .field("ready", &self.queue().borrow().len())
            .finish()
    }
}

impl Drop for LocalExecutor {
    fn drop(&mut self) {
        self.shared.remote.close();
        self.queue().borrow_mut().clear();
        // One at a time, with nothing borrowed: a future's destructor may call wakers.
        loop {
            let task = self.slab.borrow_mut().pop_resting();
            match task {
                Some(task) => drop(task),
                None => break,
            }
        }
    }
}

/// One poll of one task. In every case it leaves the slot at rest or vacant.
struct Turn<'e> {
    executor: &'e LocalExecutor,
    index: u32,
    body: Option<Body>,
}

impl Turn<'_> {
    #[inline]
    fn run(mut self, waker: &Waker) {
        let mut cx = Context::from_waker(waker);
        let Some(body) = &mut self.body else { return };
        if body.as_mut().poll(&mut cx).is_pending()
            && let Some(body) = self.body.take()
            && self.executor.slab.borrow_mut().rest(self.index, body)
        {
            self.executor.queue().borrow_mut().wake(self.index);
        }
    }
}

impl Drop for Turn<'_> {
    /// A body that is still here belongs to a task that has finished or panicked.
    #[inline]
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            self.executor.vacate(self.index);
            self.executor.tasks.set(self.executor.tasks.get() - 1);
            // Last: its destructor may wake, spawn, or panic.
            drop(body);
        }
    }
}

/// The slot of a `run_until` call. The call polls its future with the waker of this slot.
struct Main<'e> {
    executor: &'e LocalExecutor,
    index: u32,
}

impl<'e> Main<'e> {
    fn enter(executor: &'e LocalExecutor) -> (Self, Rc<Waker>) {
        let mut slab = executor.slab.borrow_mut();
        let index = slab.claim(|index| executor.shared.waker(index)).index();
        executor.queue().borrow_mut().admit_main(index);
        (Self { executor, index }, slab.waker(index))
    }
}

impl Drop for Main<'_> {
    fn drop(&mut self) {
        self.executor.vacate(self.index);
    }
}

/// Decides when to poll the driver, and how to wait.
#[derive(Default)]
struct Pace {
    idle: Idle,
    busy_rounds: u32,
}

impl Pace {
    /// Called after a round that polled `polled` tasks. Polls the driver if it is time to, and waits if that
    /// brought nothing.
    #[inline]
    fn next<D: Driver + ?Sized>(
        &mut self,
        executor: &LocalExecutor,
        driver: &D,
        polled: usize,
        longest: Option<Duration>,
        main_is_woken: impl Fn() -> bool,
    ) {
        if polled > 0 || main_is_woken() {
            self.idle.reset();
            self.busy_rounds += 1;
            if self.busy_rounds < ROUNDS_PER_PROGRESS && (executor.ready() > 0 || main_is_woken()) {
                return;
            }
        }
        self.busy_rounds = 0;
        if driver.progress() || executor.ready() > 0 || main_is_woken() {
            self.idle.reset();
        } else {
            self.idle.pause(driver, longest, &executor.shared.remote);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
