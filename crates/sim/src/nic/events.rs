//! What is going to happen, by time. Events of one moment happen in the order in which they were planned.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that happens at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A list leaves the sender's CPU and memory: its NIC may send it.
    Send(u32),
    /// The first verb of a list reaches the receiver's NIC.
    Arrive(u32),
    /// The next verb of a list, or one that waited for the receiving link, goes to the processing units.
    Admit(u32),
    /// A unit goes on with the next verb of a list.
    Process(u32),
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

/// Bits of a packed event: what it is, whose it is, and which verb of that.
const KIND_BITS: u32 = 4;
const VERB_BITS: u32 = 6;

/// The most flights, and endpoints, there can be at a time: what a packed event can name.
pub(super) const MOST: u32 = 1 << (32 - KIND_BITS - VERB_BITS);
/// The most verbs of a list.
pub(super) const MOST_VERBS: u32 = 1 << VERB_BITS;
/// The most bits that choose a bucket.
pub(super) const MOST_BUCKET_BITS: u64 = 16;

impl Event {
    fn pack(self) -> u32 {
        let of = |kind: u32, whose: u32, verb: u32| {
            debug_assert!(whose < MOST && verb < MOST_VERBS);
            kind | verb << KIND_BITS | whose << (KIND_BITS + VERB_BITS)
        };
        match self {
            Self::Send(slot) => of(0, slot, 0),
            Self::Arrive(slot) => of(1, slot, 0),
            Self::Admit(slot) => of(2, slot, 0),
            Self::Process(slot) => of(3, slot, 0),
            Self::Execute(slot, verb) => of(4, slot, u32::from(verb)),
            Self::Stored(machine, bucket) => {
                let all = bucket | u32::from(machine) << MOST_BUCKET_BITS;
                of(5, all >> VERB_BITS, all % MOST_VERBS)
            }
            Self::UnitFree(machine) => of(6, u32::from(machine), 0),
            Self::Return(slot) => of(7, slot, 0),
            Self::Complete(slot) => of(8, slot, 0),
            Self::Resume(thread) => of(9, thread, 0),
        }
    }

    fn unpack(bits: u32) -> Self {
        let (kind, verb, whose) =
            (bits % (1 << KIND_BITS), bits >> KIND_BITS & (MOST_VERBS - 1), bits >> (KIND_BITS + VERB_BITS));
        match kind {
            0 => Self::Send(whose),
            1 => Self::Arrive(whose),
            2 => Self::Admit(whose),
            3 => Self::Process(whose),
            4 => Self::Execute(whose, verb as u16),
            5 => {
                let all = whose << VERB_BITS | verb;
                Self::Stored((all >> MOST_BUCKET_BITS) as u16, all & ((1 << MOST_BUCKET_BITS) - 1))
            }
            6 => Self::UnitFree(whose as u16),
            7 => Self::Return(whose),
            8 => Self::Complete(whose),
            _ => Self::Resume(whose),
        }
    }
}

/// The events to come. One is a number: its time, its turn, itself.
#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<u128>>,
    planned: u32,
}

impl Events {
    /// Turns wrap after four billion events; two of one moment are never that far apart.
    pub(super) fn plan(&mut self, at: u64, event: Event) {
        self.planned = self.planned.wrapping_add(1);
        self.heap.push(Reverse(u128::from(at) << 64 | u128::from(self.planned) << 32 | u128::from(event.pack())));
    }

    /// When the next one happens.
    pub(super) fn next_at(&self) -> u64 {
        self.heap.peek().map_or(u64::MAX, |Reverse(bits)| (bits >> 64) as u64)
    }

    pub(super) fn next(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|Reverse(bits)| ((bits >> 64) as u64, Event::unpack(bits as u32)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_the_order_of_their_times_and_then_of_their_planning() {
        let mut events = Events::default();
        let all = [
            (5, Event::Stored(1023, 65_535)),
            (3, Event::Execute(MOST - 1, 63)),
            (5, Event::Send(7)),
            (5, Event::Arrive(0)),
            (1, Event::Resume(MOST - 1)),
            (u64::MAX - 1, Event::Complete(9)),
            (4, Event::UnitFree(1023)),
            (4, Event::Process(3)),
            (4, Event::Return(2)),
            (4, Event::Admit(1)),
            (4, Event::Stored(0, 1)),
        ];
        all.iter().for_each(|&(at, event)| events.plan(at, event));
        let mut sorted = all;
        sorted.sort_by_key(|&(at, _)| at);
        assert_eq!(events.next_at(), 1);
        assert_eq!(std::iter::from_fn(|| events.next()).collect::<Vec<_>>(), sorted);
    }
}
