//! Executes one endpoint's lists to one server.
//!
//! Verbs start in order. A WRITE lands unit by unit and ends before the next verb starts. A READ only queues
//! its units. They are fetched in any order until its list completes, so later WRITEs overtake it unless they
//! are fenced.

use super::bug::Bug;
use super::memory::{self, Memory};
use fastrand::Rng;
use sherman_fabric::{Caps, FabricError, Space, Ticket, Verb, WorkList};
use std::collections::{BTreeMap, VecDeque};

/// An atomic part of a READ or WRITE.
#[derive(Clone, Copy, Debug)]
struct Piece {
    space: Space,
    offset: u64,
    at: usize,
    len: usize,
}

/// A posted list.
#[derive(Debug)]
pub struct Flight {
    /// `None` if no task waits for it.
    pub ticket: Option<Ticket>,
    pub list: WorkList,
    pub error: Option<FabricError>,
    /// The verbs still to start, the next one last.
    order: Vec<usize>,
    reads: Vec<Piece>,
    writes: Vec<Piece>,
    /// With a bug: bytes that this step computed and the next step stores.
    held: Option<(Space, u64, Vec<u8>)>,
    started: bool,
}

impl Flight {
    pub fn new(ticket: Option<Ticket>, list: WorkList, bug: Bug, rng: &mut Rng) -> Self {
        let mut order: Vec<usize> = (0..list.len()).collect();
        reorder(&mut order, list.verbs(), bug, rng);
        order.reverse();
        Self { ticket, list, error: None, order, reads: vec![], writes: vec![], held: None, started: false }
    }

    fn is_issued(&self) -> bool {
        self.order.is_empty() && self.writes.is_empty() && self.held.is_none()
    }

    fn is_done(&self) -> bool {
        self.is_issued() && self.reads.is_empty()
    }

    /// Ends the list at this point.
    pub fn cut(&mut self, error: FabricError) {
        self.error = Some(error);
        self.order.clear();
        self.reads.clear();
        self.writes.clear();
        self.held = None;
    }
}

/// Plants the breaches of F3 that change the order of verbs.
fn reorder(order: &mut [usize], verbs: &[Verb], bug: Bug, rng: &mut Rng) {
    let is_write = |verb: &Verb, of: Space| matches!(verb, Verb::Write { space, .. } if *space == of);
    let ahead = |verb: &Verb| match bug {
        Bug::ChipRunsAhead => is_write(verb, Space::OnChip),
        Bug::HostRunsAhead => is_write(verb, Space::Host),
        Bug::AtomicsRunAhead => matches!(verb, Verb::Cas { .. } | Verb::Faa { .. }),
        Bug::ReadsRunAhead => matches!(verb, Verb::Read { .. }),
        _ => false,
    };
    order.sort_by_key(|&index| !ahead(&verbs[index]));
    if bug == Bug::WritesSwap {
        for first in 1..order.len() {
            let both = verbs[first - 1..=first].iter().all(|verb| matches!(verb, Verb::Write { .. }));
            if both && rng.bool() {
                order.swap(first - 1, first);
            }
        }
    }
}

#[derive(Debug, Default)]
pub struct Stream {
    pub flights: VecDeque<Flight>,
    /// With a bug: the bytes that this endpoint has read before, by offset.
    cache: BTreeMap<u64, Vec<u8>>,
    /// With a bug: the server's memory at the completion of this endpoint's last list.
    ahead: Vec<u8>,
}

impl Stream {
    pub fn push(&mut self, flight: Flight, bug: Bug, rng: &mut Rng) {
        let swap =
            bug == Bug::ListsSwap && rng.bool() && self.flights.back().is_some_and(|last| !last.started);
        let at = self.flights.len() - usize::from(swap);
        self.flights.insert(at, flight);
    }

    /// Makes one step of anything that can move. Returns a flight that has completed.
    pub fn step(
        &mut self,
        memory: &mut Memory,
        caps: &Caps,
        server: u16,
        bug: Bug,
        rng: &mut Rng,
    ) -> Option<Flight> {
        let reading: Vec<usize> =
            (0..self.flights.len()).filter(|&f| !self.flights[f].reads.is_empty()).collect();
        if !reading.is_empty() && rng.bool() {
            self.fetch(reading[rng.usize(..reading.len())], memory, bug, rng);
        } else if self.flights.front().is_some_and(Flight::is_done) {
            self.ahead = memory.bytes(Space::Host, 0, super::HOST_BYTES as usize).to_vec();
            return self.flights.pop_front();
        } else if let Some(index) = self.flights.iter().position(|flight| !flight.is_issued()) {
            let reads_pending = !reading.is_empty() && bug != Bug::FenceIgnored;
            let grain = Grain { caps, bug };
            grain.advance(&mut self.flights[index], memory, server, reads_pending, rng);
        }
        None
    }

    fn fetch(&mut self, flight: usize, memory: &mut Memory, bug: Bug, rng: &mut Rng) {
        let flight = &mut self.flights[flight];
        let Piece { space, offset, at, len } = flight.reads.swap_remove(rng.usize(..flight.reads.len()));
        let mut bytes = memory.bytes(space, offset, len).to_vec();
        if bug == Bug::CachedReads && space == Space::Host {
            let cached = self.cache.entry(offset).or_insert_with(|| bytes.clone());
            match cached.len() == len && rng.u8(..8) == 0 {
                true => bytes.clone_from(cached),
                false => cached.clone_from(&bytes),
            }
        }
        if bug == Bug::PrefetchedReads && space == Space::Host && !self.ahead.is_empty() && rng.u8(..8) == 0 {
            bytes = self.ahead[offset as usize..offset as usize + len].to_vec();
        }
        flight.list.parts_mut(0).1[at..at + len].copy_from_slice(&bytes);
    }
}

/// The sizes into which verbs are cut.
struct Grain<'c> {
    caps: &'c Caps,
    bug: Bug,
}

impl Grain<'_> {
    fn advance(
        &self,
        flight: &mut Flight,
        memory: &mut Memory,
        server: u16,
        reads_pending: bool,
        rng: &mut Rng,
    ) {
        flight.started = true;
        if let Some((space, offset, bytes)) = flight.held.take() {
            memory.bytes(space, offset, bytes.len()).copy_from_slice(&bytes);
        } else if !flight.writes.is_empty() {
            let piece = flight.writes.swap_remove(rng.usize(..flight.writes.len()));
            self.land(flight, piece, memory);
        } else if let Some(&index) = flight.order.last() {
            let verb = flight.list.verbs()[index];
            if matches!(verb, Verb::Write { fenced: true, .. }) && reads_pending {
                return;
            }
            flight.order.pop();
            match memory::bad(verb, server, self.caps) {
                Some(_) if self.bug == Bug::ErrorSwallowed => {}
                Some(error) if self.bug == Bug::ErrorRunsOn => flight.error = Some(error),
                Some(error) => flight.cut(error),
                None => self.start(flight, index, verb, memory),
            }
        }
    }

    fn start(&self, flight: &mut Flight, index: usize, verb: Verb, memory: &mut Memory) {
        match verb {
            Verb::Read { space, offset, at, len } => {
                let grain = if self.bug == Bug::TornReads { 8 } else { self.of(space) };
                flight.reads.extend(pieces(space, offset, at, len, grain));
            }
            Verb::Write { space, offset, at, len, .. } => {
                let skipped = self.bug == Bug::ErrorLeavesGap && index == 1 && self.will_fail(flight);
                let grain = match (self.bug, space) {
                    (Bug::TornWrites, Space::Host) => 8,
                    (Bug::TornChipWords, Space::OnChip) => 4,
                    _ => self.of(space),
                };
                flight.writes.extend(pieces(space, offset, at, len, grain).filter(|_| !skipped));
            }
            Verb::Cas { space, offset, .. } | Verb::Faa { space, offset, .. } => {
                self.swap(flight, index, verb, memory, space, offset)
            }
        }
    }

    fn of(&self, space: Space) -> u64 {
        if space == Space::Host { u64::from(self.caps.atomic_unit) } else { 8 }
    }

    fn will_fail(&self, flight: &Flight) -> bool {
        flight.list.verbs().iter().any(|&verb| memory::bad(verb, 0, self.caps).is_some())
    }

    fn land(&self, flight: &mut Flight, piece: Piece, memory: &mut Memory) {
        let Piece { space, offset, at, len } = piece;
        let data = flight.list.parts_mut(0).1[at..at + len].to_vec();
        let around = match self.bug {
            Bug::PartialWriteRewritesUnit if space == Space::Host => self.of(space),
            Bug::ShortWriteRewritesWord if len < 8 => 8,
            _ => return memory.bytes(space, offset, len).copy_from_slice(&data),
        };
        let start = offset / around * around;
        let mut all = memory.bytes(space, start, around as usize).to_vec();
        all[(offset - start) as usize..][..len].copy_from_slice(&data);
        flight.held = Some((space, start, all));
    }

    fn swap(
        &self,
        flight: &mut Flight,
        index: usize,
        verb: Verb,
        memory: &mut Memory,
        space: Space,
        offset: u64,
    ) {
        let word = memory.word(space, offset);
        let verb = match (verb, self.bug) {
            (Verb::Cas { space, offset, compare, swap, old, .. }, Bug::MaskIgnored) => {
                Verb::Cas { space, offset, compare, swap, mask: u64::MAX, old }
            }
            (verb, _) => verb,
        };
        let mut new = memory::atomic(verb, word).unwrap_or(word);
        if let (Verb::Cas { swap, .. }, Bug::MaskLeaks) = (verb, self.bug)
            && new != word
        {
            new = swap;
        }
        let wrong = matches!(verb, Verb::Cas { .. }) && self.bug == Bug::WrongOld && new == word;
        flight.list.set_old(index, if wrong { !word } else { word });
        let unit = u64::from(self.caps.atomic_unit);
        let split =
            self.bug == Bug::SplitAtomics || (self.bug == Bug::SplitChipAtomics && space == Space::OnChip);
        if self.bug == Bug::AtomicRewritesUnit && space == Space::Host {
            let start = offset / unit * unit;
            let mut all = memory.bytes(space, start, unit as usize).to_vec();
            all[(offset - start) as usize..][..8].copy_from_slice(&new.to_le_bytes());
            flight.held = Some((space, start, all));
        } else if split {
            flight.held = Some((space, offset, new.to_le_bytes().to_vec()));
        } else {
            memory.bytes(space, offset, 8).copy_from_slice(&new.to_le_bytes());
        }
    }
}

/// Cuts a range at multiples of `grain`.
fn pieces(space: Space, offset: u64, at: u32, len: u32, grain: u64) -> impl Iterator<Item = Piece> {
    let end = offset + u64::from(len);
    let mut start = offset;
    std::iter::from_fn(move || {
        let stop = ((start / grain + 1) * grain).min(end);
        let piece = Piece {
            space,
            offset: start,
            at: at as usize + (start - offset) as usize,
            len: (stop - start) as usize,
        };
        start = stop;
        (piece.len > 0).then_some(piece)
    })
}
