//! Tasks and their wakers.
//!
//! The module has a slab of boxed futures and a queue of woken task numbers. Wakers must be `Send`, so the
//! queue has a mutex. The world has one thread, so the mutex is never contended, and it is locked only when a
//! flag says so. The product's own executor decides the order of running itself. Here the adversary decides
//! it, so that executor is not used.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Tasks woken since it was last drained.
#[derive(Debug, Default)]
pub(crate) struct WakeQueue {
    any: AtomicBool,
    woken: Mutex<Vec<u32>>,
}

impl WakeQueue {
    /// Whether `task` is the only woken task. If so, removes it from the queue.
    pub(crate) fn take_only(&self, task: u32) -> bool {
        if !self.any.load(Relaxed) {
            return false;
        }
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        let only = *woken == [task];
        if only {
            woken.clear();
            self.any.store(false, Relaxed);
        }
        only
    }

    /// Calls `each` for every woken task, in the order of waking.
    #[inline]
    pub(crate) fn drain(&self, each: impl FnMut(u32)) {
        if self.any.load(Relaxed) {
            self.any.store(false, Relaxed);
            self.woken.lock().unwrap_or_else(PoisonError::into_inner).drain(..).for_each(each);
        }
    }
}

struct TaskWaker {
    task: u32,
    queued: AtomicBool,
    queue: Arc<WakeQueue>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Relaxed) {
            self.queue.woken.lock().unwrap_or_else(PoisonError::into_inner).push(self.task);
            self.queue.any.store(true, Relaxed);
        }
    }
}

/// A task's name: its compute server (by number, if it has one), its thread there, and what it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskName {
    /// The compute server, numbered in order of joining.
    pub compute_server: Option<u32>,
    /// The thread of that compute server.
    pub thread: u32,
    /// What the task does.
    pub name: Cow<'static, str>,
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.compute_server {
            Some(server) => write!(f, "cs{server}.t{}.{}", self.thread, self.name),
            None => write!(f, "{}", self.name),
        }
    }
}

pub(crate) type Body = Pin<Box<dyn Future<Output = ()>>>;

struct Task {
    name: TaskName,
    /// Absent while the task is polled and after it has finished.
    body: Option<Body>,
    wake: Arc<TaskWaker>,
    waker: Waker,
}

/// The slab.
pub(crate) struct Tasks {
    slots: Vec<Task>,
    queue: Arc<WakeQueue>,
}

impl Tasks {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), queue: Arc::default() }
    }

    pub(crate) fn queue(&self) -> Arc<WakeQueue> {
        Arc::clone(&self.queue)
    }

    /// Adds a task, ready to run.
    pub(crate) fn spawn(&mut self, name: TaskName, body: Body) -> u32 {
        let task = self.slots.len() as u32;
        let wake =
            Arc::new(TaskWaker { task, queued: AtomicBool::new(false), queue: Arc::clone(&self.queue) });
        let waker = Waker::from(Arc::clone(&wake));
        waker.wake_by_ref();
        self.slots.push(Task { name, body: Some(body), wake, waker });
        task
    }

    /// The address that all wakers of a task have in common, and no other task's. 0 if there is no such task.
    pub(crate) fn waker_address(&self, task: u32) -> usize {
        self.slots.get(task as usize).map_or(0, |task| task.waker.data().addr())
    }

    pub(crate) fn name(&self, task: u32) -> Option<&TaskName> {
        self.slots.get(task as usize).map(|task| &task.name)
    }

    /// Removes every task and disconnects the wakers that still exist. The caller drops the returned futures
    /// outside any borrow, because their destructors may call back here.
    pub(crate) fn clear(&mut self) -> Vec<Body> {
        self.queue = Arc::default();
        self.slots.drain(..).filter_map(|task| task.body).collect()
    }

    fn begin(&mut self, task: u32) -> Option<(Body, Waker)> {
        let slot = &mut self.slots[task as usize];
        slot.wake.queued.store(false, Relaxed);
        // Moved, not cloned: a clone would update the reference count twice for every poll.
        slot.body.take().map(|body| (body, std::mem::replace(&mut slot.waker, Waker::noop().clone())))
    }
}

/// Polls `task` once. Returns true if it has finished with this poll.
pub(crate) fn poll_task(tasks: &RefCell<Tasks>, task: u32) -> bool {
    let Some((mut body, waker)) = tasks.borrow_mut().begin(task) else { return false };
    let done = body.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
    if !done && let Some(slot) = tasks.borrow_mut().slots.get_mut(task as usize) {
        slot.body = Some(body);
        slot.waker = waker;
    }
    done
}

/// A waker that only records that it was called.
#[derive(Debug, Default)]
pub(crate) struct Flag(AtomicBool);

impl Flag {
    /// Whether it was woken since the last call.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Relaxed)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

struct OutputSlot<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

/// The result of a spawned task. Await it inside the world, or [`take`](TaskHandle::take) it afterwards.
#[derive(Clone)]
pub struct TaskHandle<T>(Rc<RefCell<OutputSlot<T>>>);

impl<T: 'static> TaskHandle<T> {
    /// Returns a handle, and `future` wrapped so that it stores its result in the handle.
    pub(crate) fn wrap(future: impl Future<Output = T> + 'static) -> (Self, Body) {
        let slot = Rc::new(RefCell::new(OutputSlot { value: None, waker: None }));
        let filled = Rc::clone(&slot);
        let body = Box::pin(async move {
            let value = future.await;
            let mut slot = filled.borrow_mut();
            slot.value = Some(value);
            if let Some(waker) = slot.waker.take() {
                waker.wake();
            }
        });
        (Self(slot), body)
    }

    /// Returns the task's result, once, if it has finished.
    pub fn take(&self) -> Option<T> {
        self.0.borrow_mut().value.take()
    }
}

impl<T> Future for TaskHandle<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut slot = self.0.borrow_mut();
        match slot.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                slot.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T> fmt::Debug for TaskHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskHandle(done: {})", self.0.borrow().value.is_some())
    }
}
