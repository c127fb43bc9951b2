//! A halted compute server: the last actions of its endpoints. Nothing follows them.
//!
//! For tests and tools. They measure how long survivors wait for a dead client, and check that recovery
//! repairs everything that it left. For this a client must be able to die at any point, even in the middle of
//! a WRITE (F7), with threads on real cores. Those threads cannot be killed, so they are blocked.
//! [`EmbeddedFabric::halt`](crate::EmbeddedFabric::halt) raises a flag that every list checks anyway. The
//! next list of each endpoint is cut, after any of its verbs or between any two lines of a WRITE, and never
//! completes. No later list executes at all. The endpoint's last action may also be its next request: the
//! server may or may not answer it, and the client never gets the answer. No task that waits for any of this
//! is ever woken, so its thread sleeps.
//!
//! What must hold: a cut list passes the gate like any other list. So it never executes after a fence was
//! answered (F6). A fence of a halted client waits for nothing else.

use crate::copy::LINE;
use crate::verbs;
use sherman_fabric::{Request, Space, Verb, WorkList};

/// Where a list is cut: after `verbs` whole verbs, and `lines` lines of the next verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) verbs: usize,
    pub(crate) lines: usize,
}

impl Cut {
    /// A random place in `list`. Each verb, and no verb, is equally likely to be the one that is cut. Each
    /// line of that verb is equally likely to be its last. If verbs are atomic as a whole, the cut lies
    /// between two verbs.
    pub(crate) fn somewhere(list: &WorkList, verb_atomic: bool, random: &mut Random) -> Self {
        let verbs = random.below(list.len() + 1);
        let lines = match list.verbs().get(verbs) {
            Some(&verb) if !verb_atomic => random.below(lines_of(verb).max(1)),
            _ => 0,
        };
        Self { verbs, lines }
    }
}

/// The number of lines that a verb changes one after the other.
fn lines_of(verb: Verb) -> usize {
    match verb {
        Verb::Write { space: Space::Host, offset, len, .. } => {
            (offset as usize % LINE + len as usize).div_ceil(LINE)
        }
        _ => 1,
    }
}

/// The number of bytes that the first `lines` lines hold, of a WRITE of `len` bytes to `offset`.
pub(crate) fn bytes_in_lines(offset: u64, len: u32, lines: usize) -> u32 {
    if lines == 0 {
        return 0;
    }
    let end = (lines * LINE).saturating_sub(offset as usize % LINE);
    len.min(u32::try_from(end).unwrap_or(u32::MAX))
}

/// Whether a request may be a client's last action. `Leave` and `Depart` may not, because they take more than
/// one step.
pub(crate) fn may_be_last(request: &Request) -> bool {
    !matches!(request, Request::Leave | Request::Depart)
}

/// Random numbers that depend only on a seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The numbers of one endpoint of a client that was halted with `seed`.
    pub(crate) fn new(seed: u64, endpoint: u64) -> Self {
        let mut random = Self(seed ^ endpoint.wrapping_mul(0xd134_2543_de82_ef95));
        random.next();
        random
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `limit`, or 0 if `limit` is 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

const _: () = assert!(verbs::MAX_TRANSFER as u64 <= u32::MAX as u64 - LINE as u64);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_place_between_two_lines_is_a_cut_and_nothing_else_is() {
        let mut list = WorkList::new(0);
        list.write(Space::Host, 60, &[1; 200]);
        list.faa(Space::OnChip, 0, 1);
        list.write(Space::Host, 256, &[1; 128]);
        list.write(Space::OnChip, 0, &[1; 8]);
        let cuts = |verb_atomic| {
            let cut = |seed| Cut::somewhere(&list, verb_atomic, &mut Random::new(seed, 3));
            (0..2_000).map(cut).map(|cut| (cut.verbs, cut.lines)).collect::<BTreeSet<_>>()
        };
        let all = [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 0), (2, 0), (2, 1), (3, 0), (4, 0)];
        assert_eq!(cuts(false), all.into_iter().collect());
        assert_eq!(cuts(true), (0..=4).map(|verbs| (verbs, 0)).collect());
    }

    #[test]
    fn the_bytes_of_some_lines_end_with_a_line_or_with_the_write() {
        let bytes = |lines| bytes_in_lines(60, 200, lines);
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(bytes), [0, 4, 68, 132, 196, 200, 200]);
        assert_eq!(bytes_in_lines(128, 64, 1), 64);
    }
}
