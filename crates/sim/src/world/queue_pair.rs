//! The verbs in flight on one queue pair, and which of them may happen next: rule F3 as code.
//!
//! Let the verbs of a queue pair be in posting order, over all lists in flight.
//!
//! - A READ's units may be fetched, in any order, once every earlier WRITE and atomic is done.
//! - An atomic executes once everything earlier is done.
//! - A WRITE's units may land once every earlier WRITE has landed. If it is fenced, or the knob `overtake` is
//!   off, they may land once everything earlier is done.

use crate::choice::{Actor, Choice, ChoiceKind};
use crate::knobs::{Breach, Knobs};
use sherman_fabric::{Space, Verb};

/// A set of units: one word for up to 64 units, and more words for longer verbs.
#[derive(Debug, Default)]
pub(crate) struct Units {
    first: u64,
    more: Vec<u64>,
}

impl Units {
    fn new(count: u32) -> Self {
        Self { first: 0, more: if count > 64 { vec![0; (count as usize - 1) / 64] } else { Vec::new() } }
    }

    #[inline]
    pub(crate) fn has(&self, unit: u32) -> bool {
        let word = if unit < 64 { self.first } else { self.more[unit as usize / 64 - 1] };
        word >> (unit % 64) & 1 == 1
    }

    #[inline]
    pub(crate) fn insert(&mut self, unit: u32) {
        let word = if unit < 64 { &mut self.first } else { &mut self.more[unit as usize / 64 - 1] };
        *word |= 1 << (unit % 64);
    }

    /// Returns the set as words, for hashing.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        std::iter::once(self.first).chain(self.more.iter().copied())
    }
}

/// A verb that is not done.
#[derive(Debug)]
pub(crate) struct Pending {
    /// Slot of its list.
    pub(crate) flight: u32,
    /// Its index in the list.
    pub(crate) index: u32,
    /// Its sequence number on the queue pair, for F7's prefixes.
    pub(crate) sequence: u64,
    pub(crate) verb: Verb,
    pub(crate) units: u32,
    pub(crate) left: u32,
    pub(crate) done: Units,
    /// The word that a split atomic has read.
    pub(crate) loaded: Option<u64>,
}

impl Pending {
    pub(crate) fn new(flight: u32, index: u32, sequence: u64, verb: Verb, shift: u32) -> Self {
        let units = match verb {
            Verb::Read { offset, len, .. } | Verb::Write { offset, len, .. } => {
                unit_count(offset, len, shift)
            }
            Verb::Cas { .. } | Verb::Faa { .. } => 1,
        };
        Self { flight, index, sequence, verb, units, left: units, done: Units::new(units), loaded: None }
    }

    /// Whether a part of its effect is already visible.
    pub(crate) fn has_effect(&self) -> bool {
        matches!(self.verb, Verb::Write { .. }) && self.left < self.units
    }
}

fn unit_count(offset: u64, len: u32, shift: u32) -> u32 {
    if len == 0 { 0 } else { (((offset + u64::from(len) - 1) >> shift) - (offset >> shift) + 1) as u32 }
}

/// Returns where unit `unit` of an access begins and ends on the server.
#[inline]
pub(crate) fn unit_range(offset: u64, len: u32, shift: u32, unit: u32) -> (u64, u64) {
    let aligned = ((offset >> shift) + u64::from(unit)) << shift;
    (aligned.max(offset), (aligned.saturating_add(1 << shift)).min(offset + u64::from(len)))
}

/// One endpoint's connection to one server.
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub(crate) endpoint: u32,
    pub(crate) server: u16,
    /// Its compute server, by number.
    pub(crate) owner: u32,
    /// Verbs not done, in posting order.
    pub(crate) pending: Vec<Pending>,
    /// Lists that are done and not delivered.
    pub(crate) finished: Vec<u32>,
    /// The next verb's sequence number.
    pub(crate) next_sequence: u64,
    /// One more than the highest sequence number of a verb whose effect is visible.
    pub(crate) effect_below: u64,
    /// Lists in flight that will end in error.
    pub(crate) failing: Vec<u32>,
    /// Lists posted so far.
    pub(crate) lists: u64,
    /// One more than the order of the last list whose completion was delivered.
    pub(crate) told_below: u64,
    /// The connection is broken: nothing executes here any more.
    pub(crate) broken: bool,
}

impl QueuePair {
    pub(crate) fn new(endpoint: u32, server: u16, owner: u32) -> Self {
        Self {
            endpoint,
            server,
            owner,
            pending: Vec::new(),
            finished: Vec::new(),
            next_sequence: 0,
            effect_below: 0,
            failing: Vec::new(),
            lists: 0,
            told_below: 0,
            broken: false,
        }
    }

    pub(crate) fn actor(&self) -> Actor {
        Actor::QueuePair { endpoint: self.endpoint, server: self.server }
    }

    /// Returns the index of a verb in `pending`.
    #[inline]
    pub(crate) fn position(&self, flight: u32, index: u32) -> usize {
        self.pending.iter().position(|p| p.flight == flight && p.index == index).unwrap_or(usize::MAX)
    }

    /// Appends every event that is enabled here. `atomics` says whether the server's atomic engine is free
    /// for a new atomic, and `dead` whether the client has died.
    pub(crate) fn choices(&self, knobs: &Knobs, atomics: bool, dead: bool, out: &mut Vec<Choice>) {
        let actor = self.actor();
        let (mut read_before, mut write_before, mut atomic_before) = (false, false, false);
        for pending in &self.pending {
            let event = |kind, unit| Choice { actor, kind, list: pending.flight, verb: pending.index, unit };
            match pending.verb {
                Verb::Read { space, .. } => {
                    if !(write_before || atomic_before) || knobs.breach == Some(Breach::ReadPasses) {
                        read_choices(pending, event, out);
                        if knobs.breach == Some(Breach::StaleRead) && space == Space::Host {
                            let left = (0..pending.units).filter(|&unit| !pending.done.has(unit));
                            out.extend(left.map(|unit| event(ChoiceKind::FetchStale, unit)));
                        }
                    }
                    read_before = true;
                }
                Verb::Write { fenced, .. } => {
                    let after_all = fenced || !knobs.overtake;
                    let blocked = write_before && knobs.breach != Some(Breach::WritesReordered);
                    if !blocked && !(after_all && (read_before || atomic_before)) {
                        write_choices(pending, knobs.write_units_any_order, event, out);
                    }
                    write_before = true;
                }
                Verb::Cas { .. } | Verb::Faa { .. } => {
                    if pending.loaded.is_some() {
                        out.push(event(ChoiceKind::AtomicStore, 0));
                    } else if !(read_before || write_before || atomic_before) && atomics {
                        out.push(event(
                            if knobs.splits_atomics() { ChoiceKind::AtomicLoad } else { ChoiceKind::Atomic },
                            0,
                        ));
                    }
                    atomic_before = true;
                }
            }
        }
        let whole = |kind, list| Choice { actor, kind, list, verb: 0, unit: 0 };
        out.extend(self.finished.iter().map(|&list| whole(ChoiceKind::Complete, list)));
        out.extend(
            self.failing
                .iter()
                .filter(|&&list| self.may_fail(list))
                .map(|&list| whole(ChoiceKind::Fail, list)),
        );
        if dead && !self.pending.is_empty() {
            out.push(Choice::of(actor, ChoiceKind::Cut));
        }
    }

    /// Whether the executed part of `list` is a prefix of it, counted in whole verbs (F7).
    fn may_fail(&self, list: u32) -> bool {
        let mut effects =
            self.pending.iter().filter(|p| p.flight == list && !matches!(p.verb, Verb::Read { .. }));
        effects.all(|p| !p.has_effect() && p.loaded.is_none() && p.sequence >= self.effect_below)
    }
}

#[inline]
fn read_choices(pending: &Pending, event: impl Fn(ChoiceKind, u32) -> Choice, out: &mut Vec<Choice>) {
    if pending.units <= 64 {
        let mut left = !pending.done.first & (u64::MAX >> (64 - pending.units));
        while left != 0 {
            out.push(event(ChoiceKind::Fetch, left.trailing_zeros()));
            left &= left - 1;
        }
        return;
    }
    out.extend(
        (0..pending.units).filter(|&unit| !pending.done.has(unit)).map(|unit| event(ChoiceKind::Fetch, unit)),
    );
}

fn write_choices(
    pending: &Pending,
    any_order: bool,
    event: impl Fn(ChoiceKind, u32) -> Choice,
    out: &mut Vec<Choice>,
) {
    let left = (0..pending.units).filter(|&unit| !pending.done.has(unit));
    let take = if any_order { usize::MAX } else { 1 };
    out.extend(left.take(take).map(|unit| event(ChoiceKind::Land, unit)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enabled(knobs: &Knobs, fill: impl Fn(&mut sherman_fabric::WorkList)) -> Vec<(ChoiceKind, u32, u32)> {
        let mut list = sherman_fabric::WorkList::new(0);
        fill(&mut list);
        let mut qp = QueuePair::new(0, 0, 0);
        for (i, verb) in list.verbs().iter().enumerate() {
            qp.pending.push(Pending::new(0, i as u32, i as u64, *verb, knobs.unit_shift()));
        }
        let mut out = Vec::new();
        qp.choices(knobs, true, false, &mut out);
        out.iter().map(|c| (c.kind, c.verb, c.unit)).collect()
    }

    #[test]
    fn units_are_aligned_pieces_and_the_ends_may_be_short() {
        assert_eq!(unit_count(100, 200, 6), 4);
        let pieces: Vec<_> = (0..4).map(|unit| unit_range(100, 200, 6, unit)).collect();
        assert_eq!(pieces, [(100, 128), (128, 192), (192, 256), (256, 300)]);
        assert_eq!((unit_count(100, 200, 63), unit_range(100, 200, 63, 0)), (1, (100, 300)));
        assert_eq!(unit_count(100, 0, 6), 0);
    }

    #[test]
    fn a_write_overtakes_a_read_and_an_atomic_but_never_a_write() {
        let knobs = Knobs::default();
        let fill = |list: &mut sherman_fabric::WorkList| {
            list.read(Space::Host, 0, 64);
            list.cas(Space::Host, 64, 0, 1);
            list.write(Space::Host, 0, &[1; 64]);
            list.write(Space::Host, 64, &[1; 64]);
        };
        assert_eq!(enabled(&knobs, fill), [(ChoiceKind::Fetch, 0, 0), (ChoiceKind::Land, 2, 0)]);
        let strict = Knobs { overtake: false, ..Knobs::default() };
        assert_eq!(enabled(&strict, fill), [(ChoiceKind::Fetch, 0, 0)]);
    }

    #[test]
    fn a_fenced_write_waits_for_everything_before_it() {
        let fill = |list: &mut sherman_fabric::WorkList| {
            list.read(Space::Host, 0, 128);
            list.write_fenced(Space::Host, 0, &[1; 64]);
        };
        assert_eq!(enabled(&Knobs::default(), fill), [(ChoiceKind::Fetch, 0, 0), (ChoiceKind::Fetch, 0, 1)]);
    }

    #[test]
    fn reads_and_atomics_wait_for_earlier_writes() {
        let fill = |list: &mut sherman_fabric::WorkList| {
            list.write(Space::Host, 0, &[1; 128]);
            list.read(Space::Host, 0, 64);
            list.faa(Space::Host, 0, 1);
        };
        assert_eq!(enabled(&Knobs::default(), fill), [(ChoiceKind::Land, 0, 0), (ChoiceKind::Land, 0, 1)]);
        let ascending = Knobs { write_units_any_order: false, ..Knobs::default() };
        assert_eq!(enabled(&ascending, fill), [(ChoiceKind::Land, 0, 0)]);
    }

    #[test]
    fn a_verb_of_many_units_keeps_track_of_all() {
        let mut units = Units::new(130);
        units.insert(0);
        units.insert(64);
        units.insert(129);
        let set: Vec<u32> = (0..130).filter(|&u| units.has(u)).collect();
        assert_eq!(set, [0, 64, 129]);
    }
}
