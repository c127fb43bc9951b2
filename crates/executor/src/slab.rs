//! Where tasks live: a slab of slots that are reused, told apart by generations.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::Waker;

/// Names one task of one executor, for ever: the slot it lives in and the slot's generation.
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

/// What a task runs.
pub(crate) type Body = Pin<Box<dyn Future<Output = ()>>>;

/// A task at rest, with the waker of its slot, so that polling it makes no waker.
pub(crate) struct Task {
    pub(crate) future: Body,
    pub(crate) waker: Waker,
}

/// All slots of an executor. Grows to the largest number of tasks alive at once, and stays there.
#[derive(Default)]
pub(crate) struct Slab {
    slots: Vec<Slot>,
    vacant: Vec<u32>,
}

struct Slot {
    generation: u32,
    state: State,
}

enum State {
    /// Nobody lives here; the slot keeps its waker.
    Vacant(Waker),
    /// A task that is not being polled.
    Resting(Task),
    /// Being polled, or the seat of a `run_until`: the tenant is on somebody's stack. `again` remembers a turn that came
    /// up meanwhile, which takes a nested `run_until` to happen.
    Away { again: bool },
}

impl Slab {
    /// Moves a tenant in: its id and the waker of its slot. The tenant is away until it is put to rest.
    pub(crate) fn claim(&mut self, make_waker: impl FnOnce(u32) -> Waker) -> (TaskId, Waker) {
        let index = match self.vacant.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 tasks fit into memory");
                self.slots.push(Slot { generation: 0, state: State::Vacant(make_waker(index)) });
                index
            }
        };
        let slot = &mut self.slots[index as usize];
        match std::mem::replace(&mut slot.state, State::Away { again: false }) {
            State::Vacant(waker) => (TaskId { index, generation: slot.generation }, waker),
            State::Resting(_) | State::Away { .. } => unreachable!("only vacant slots are in the list of vacant slots"),
        }
    }

    /// Puts a task to rest. Says whether its turn came up while it was away.
    pub(crate) fn rest(&mut self, index: u32, task: Task) -> bool {
        let slot = &mut self.slots[index as usize];
        matches!(std::mem::replace(&mut slot.state, State::Resting(task)), State::Away { again: true })
    }

    /// Takes a resting task out to poll it. `None` if it is away already; it gets another turn when it returns.
    pub(crate) fn take(&mut self, index: u32) -> Option<Task> {
        let slot = &mut self.slots[index as usize];
        match std::mem::replace(&mut slot.state, State::Away { again: true }) {
            State::Resting(task) => {
                slot.state = State::Away { again: false };
                Some(task)
            }
            State::Away { .. } => None,
            vacant @ State::Vacant(_) => {
                slot.state = vacant;
                None
            }
        }
    }

    /// Moves a tenant out that is away.
    pub(crate) fn vacate(&mut self, index: u32, waker: Waker) {
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.state = State::Vacant(waker);
        self.vacant.push(index);
    }

    /// The id of whoever lives in slot `index`.
    pub(crate) fn id(&self, index: u32) -> TaskId {
        TaskId { index, generation: self.slots[index as usize].generation }
    }

    /// Any task that rests, taken out.
    pub(crate) fn pop_resting(&mut self) -> Option<Task> {
        while let Some(slot) = self.slots.pop() {
            if let State::Resting(task) = slot.state {
                return Some(task);
            }
        }
        None
    }
}
