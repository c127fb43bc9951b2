//! What is going to happen, by time. Events of one moment happen in the order in which they were planned.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that happens at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A list leaves the sender's CPU and memory: its NIC may send it.
    Send(u32),
    /// The first verb of a list reaches the receiver's NIC.
    Arrive(u32),
    /// The next verb of a list, or one that waited for the receiving link, goes to the processing units.
    Admit(u32),
    /// A verb of a list takes effect.
    Execute(u32, u16),
    /// On a machine, an atomic in host memory has stored its word: its bucket and unit are free.
    Stored(u16, u32),
    /// A processing unit of a machine becomes free while somebody waits for one.
    UnitFree(u16),
    /// The last answer to a list reaches the sender's NIC.
    Return(u32),
    /// A list or a call is complete.
    Complete(u32),
    /// A thread has time for what is ready.
    Resume(u32),
}

/// The events to come.
#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    planned: u64,
}

impl Events {
    pub(super) fn plan(&mut self, at: u64, event: Event) {
        self.planned += 1;
        self.heap.push(Reverse((at, self.planned, event)));
    }

    /// When the next one happens.
    pub(super) fn next_at(&self) -> u64 {
        self.heap.peek().map_or(u64::MAX, |Reverse((at, ..))| *at)
    }

    pub(super) fn next(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }
}
