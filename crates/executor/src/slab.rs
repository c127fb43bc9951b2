//! Storage of tasks: a slab of reusable slots. A generation tells the successive tasks of one slot apart.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Waker;

/// Names one task of one executor permanently: its slot and the slot's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    index: u32,
    generation: u32,
}

impl TaskId {
    pub(crate) fn index(self) -> u32 {
        self.index
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// The future that a task runs.
pub(crate) type Body = Pin<Box<dyn Future<Output = ()>>>;

/// All slots of an executor. Grows to the largest number of tasks alive at once, and never shrinks.
#[derive(Default)]
pub(crate) struct Slab {
    slots: Vec<TaskSlot>,
    vacant: Vec<u32>,
}

struct TaskSlot {
    generation: u32,
    /// The task's turn came while it was away. Only a nested `run_until` can cause that.
    again: bool,
    /// Made once, lent to the future that is polled.
    waker: Rc<Waker>,
    /// A task at rest. `None` if the slot is vacant, belongs to a `run_until`, or its task is **away**: being
    /// polled.
    body: Option<Body>,
}

impl Slab {
    /// Takes a vacant slot, or adds one. Its task counts as away until `rest` stores it.
    pub(crate) fn claim(&mut self, make_waker: impl FnOnce(u32) -> Waker) -> TaskId {
        let index = match self.vacant.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 tasks fit into memory");
                let waker = Rc::new(make_waker(index));
                self.slots.push(TaskSlot { generation: 0, again: false, waker, body: None });
                index
            }
        };
        self.id(index)
    }

    /// Puts a task to rest in its slot. Returns whether its turn came while it was away.
    #[inline]
    pub(crate) fn rest(&mut self, index: u32, body: Body) -> bool {
        let slot = &mut self.slots[index as usize];
        slot.body = Some(body);
        std::mem::replace(&mut slot.again, false)
    }

    /// Takes a resting task out to poll it. `None` if it is away already; it gets another turn when it
    /// returns.
    #[inline]
    pub(crate) fn take(&mut self, index: u32) -> Option<(Body, Rc<Waker>)> {
        let slot = &mut self.slots[index as usize];
        let body = slot.body.take();
        slot.again = body.is_none();
        Some((body?, Rc::clone(&slot.waker)))
    }

    /// Makes the slot of a task that is away vacant.
    pub(crate) fn vacate(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.again = false;
        self.vacant.push(index);
    }

    /// The id of the current task of slot `index`.
    pub(crate) fn id(&self, index: u32) -> TaskId {
        TaskId { index, generation: self.slots[index as usize].generation }
    }

    /// The waker of slot `index`.
    pub(crate) fn waker(&self, index: u32) -> Rc<Waker> {
        Rc::clone(&self.slots[index as usize].waker)
    }

    /// Takes out any task at rest.
    pub(crate) fn pop_resting(&mut self) -> Option<Body> {
        while let Some(slot) = self.slots.pop() {
            if slot.body.is_some() {
                return slot.body;
            }
        }
        None
    }
}
