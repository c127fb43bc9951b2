//! Future events, ordered by time. Events with the same time happen in the order in which they were planned.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An event at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The sender's CPU writes a list to its NIC.
    Ring(u32),
    /// The sender's NIC has a list and asks for the payload that is not inline.
    Pull(u32),
    /// The payload of a list begins to arrive from the sender's host memory.
    Pulled(u32),
    /// The sender's NIC has all of a list. It may send it now.
    Send(u32),
    /// The first verb of a list reaches the receiver's NIC.
    Arrive(u32),
    /// The next verb of a list, or one that waited for the receiving link, goes to the processing units.
    Admit(u32),
    /// A unit continues with the next verb of a list.
    Process(u32),
    /// A READ has left its unit and asks for its bytes.
    Fetch(u32, u16),
    /// What a READ or an atomic asked for begins to arrive from host memory.
    Fetched(u32, u16),
    /// A WRITE has left its unit and goes to host memory.
    Land(u32, u16),
    /// A verb of a list takes effect.
    Execute(u32, u16),
    /// An atomic in the host memory of a machine has stored its word. Its bucket and unit are free now.
    Stored(u16, u32),
    /// A processing unit of a machine becomes free while a verb waits for one.
    UnitFree(u16),
    /// The last answer to a list reaches the sender's NIC.
    Return(u32),
    /// The answers to a list, or its acknowledgement, go from the sender's NIC to its host memory.
    Deliver(u32),
    /// A list or a call is complete.
    Complete(u32),
    /// A thread has time to run its ready tasks.
    Resume(u32),
}

/// Bits of a packed event: the kind, the slot or thread, and the index of the verb.
const KIND_BITS: u32 = 5;
const VERB_BITS: u32 = 6;

/// The largest number of flights, and of endpoints, at a time: a packed event cannot name more.
pub(super) const MOST: u32 = 1 << (32 - KIND_BITS - VERB_BITS);
/// The largest number of verbs in a list.
pub(super) const MOST_VERBS: u32 = 1 << VERB_BITS;
/// The largest number of bits that select a bucket.
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
            Self::Ring(slot) => of(10, slot, 0),
            Self::Pull(slot) => of(11, slot, 0),
            Self::Pulled(slot) => of(12, slot, 0),
            Self::Fetch(slot, verb) => of(13, slot, u32::from(verb)),
            Self::Fetched(slot, verb) => of(14, slot, u32::from(verb)),
            Self::Land(slot, verb) => of(15, slot, u32::from(verb)),
            Self::Deliver(slot) => of(16, slot, 0),
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
            9 => Self::Resume(whose),
            10 => Self::Ring(whose),
            11 => Self::Pull(whose),
            12 => Self::Pulled(whose),
            13 => Self::Fetch(whose, verb as u16),
            14 => Self::Fetched(whose, verb as u16),
            15 => Self::Land(whose, verb as u16),
            _ => Self::Deliver(whose),
        }
    }
}

/// Bits of a time within one slot of the wheel: a slot is sixteen nanoseconds.
const SLOT_BITS: u32 = 14;
/// Number of slots in the wheel, which covers sixteen microseconds. Nearly all events happen sooner.
const SLOTS: u64 = 1024;
const WORDS: usize = SLOTS as usize / 64;

/// The future events. Each event is a number made of its time, its sequence number and itself. Near events
/// lie in a wheel of slots, unsorted until the wheel reaches their slot. Far events lie in a heap.
#[derive(Debug)]
pub(super) struct Events {
    /// Events of the current slot or earlier, in reverse order: the next event is last.
    now: Vec<u128>,
    /// Number of the current slot: a time without its lower bits.
    slot: u64,
    wheel: Vec<Vec<u128>>,
    /// One bit for every slot of the wheel that is not empty.
    filled: [u64; WORDS],
    far: BinaryHeap<Reverse<u128>>,
    planned: u32,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            now: Vec::new(),
            slot: 0,
            wheel: (0..SLOTS).map(|_| Vec::new()).collect(),
            filled: [0; WORDS],
            far: BinaryHeap::new(),
            planned: 0,
        }
    }
}

fn slot_of(event: u128) -> u64 {
    (event >> (64 + SLOT_BITS)) as u64
}

impl Events {
    /// Sequence numbers wrap after four billion events. Two events of the same time are never that far apart.
    #[inline]
    pub(super) fn plan(&mut self, at: u64, event: Event) {
        self.planned = self.planned.wrapping_add(1);
        self.add(u128::from(at) << 64 | u128::from(self.planned) << 32 | u128::from(event.pack()));
    }

    #[inline]
    fn add(&mut self, event: u128) {
        let slot = slot_of(event);
        if slot <= self.slot {
            let at = self.now.partition_point(|&later| later > event);
            self.now.insert(at, event);
        } else if slot - self.slot < SLOTS {
            let at = (slot % SLOTS) as usize;
            self.wheel[at].push(event);
            self.filled[at / 64] |= 1 << (at % 64);
        } else {
            self.far.push(Reverse(event));
        }
    }

    /// Returns the next slot of the wheel that is not empty, if there is one.
    fn next_filled(&self) -> Option<u64> {
        let first = ((self.slot + 1) % SLOTS) as usize;
        // First the word of the first slot, from that slot on, then all words after it, then the first word
        // again.
        for turn in 0..=WORDS {
            let word = (first / 64 + turn) % WORDS;
            let mask = if turn == 0 { u64::MAX << (first % 64) } else { u64::MAX };
            let bits = self.filled[word] & mask;
            if bits != 0 {
                let at = (word * 64) as u64 + u64::from(bits.trailing_zeros());
                return Some(self.slot + 1 + (at + SLOTS - first as u64) % SLOTS);
            }
        }
        None
    }

    /// Turns the wheel until the current slot is not empty. Returns false if no events are left.
    fn turn(&mut self) -> bool {
        while self.now.is_empty() {
            let far = self.far.peek().map(|Reverse(event)| slot_of(*event));
            let Some(slot) = self.next_filled().into_iter().chain(far).min() else { return false };
            self.slot = slot;
            let at = (slot % SLOTS) as usize;
            std::mem::swap(&mut self.now, &mut self.wheel[at]);
            self.filled[at / 64] &= !(1 << (at % 64));
            self.now.sort_unstable_by(|a, b| b.cmp(a));
            while let Some(&Reverse(event)) = self.far.peek()
                && slot_of(event) - self.slot < SLOTS
            {
                self.far.pop();
                self.add(event);
            }
        }
        true
    }

    /// Returns the time of the next event.
    #[inline]
    pub(super) fn next_at(&mut self) -> u64 {
        if self.turn() { self.now.last().map_or(u64::MAX, |event| (event >> 64) as u64) } else { u64::MAX }
    }

    #[inline]
    pub(super) fn next(&mut self) -> Option<(u64, Event)> {
        self.turn();
        self.now.pop().map(|event| ((event >> 64) as u64, Event::unpack(event as u32)))
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

    #[test]
    fn the_wheel_keeps_what_is_near_far_and_planned_meanwhile_in_order() {
        let (mut events, mut dice) = (Events::default(), 7_u64);
        let mut roll = |below: u64| {
            dice = dice.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (dice >> 33) % below
        };
        let (mut expected, mut now, mut seen) = (std::collections::BTreeSet::new(), 0, 0);
        for number in 0..20_000 {
            let reach = [1, 5_000, 1_000_000, 40_000_000][roll(4) as usize];
            let at = now + roll(reach);
            events.plan(at, Event::Resume(number));
            expected.insert((at, number));
            if roll(3) > 0
                && let Some(first) = expected.pop_first()
            {
                assert_eq!(events.next_at(), first.0);
                assert_eq!(events.next(), Some((first.0, Event::Resume(first.1))));
                now = first.0;
                seen += 1;
            }
        }
        for (at, number) in expected {
            assert_eq!(events.next(), Some((at, Event::Resume(number))));
        }
        assert!(seen > 10_000 && events.next().is_none() && events.next_at() == u64::MAX);
    }
}
