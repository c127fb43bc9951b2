//! `LineHashed` leaves: a key can only be in a few neighbouring lines, which follow from its hash.
//!
//! A get reads these lines and nothing else, so the lines show by themselves to which leaf they belong. A
//! leaf is wide or dense (`dense`). This is a line of a wide leaf:
//!
//! ```text
//!  0        entries, several per line
//! 56 - k    a fence, k = bytes of a key: the low fence in even lines, the high one in odd lines
//! 56  u32   tree id
//! 60  u16   bits 0..=11 live entries; 12 clear: not dense; 13 high fence open; 14 detached; 15 always set
//! 62  u16   stamp: the version of the leaf
//! ```
//! Bits 12 to 15 and the stamp have the same place in every line of every `LineHashed` leaf, whatever its
//! keys and values. Bit 12 tells how to read the rest. Chunks of such leaves hold nothing else. So whatever a
//! stale pointer leads to, these fields mean what they say.
//!
//! Rules (`docs/INVARIANTS.md`, I47–I51):
//! - All lines of a leaf have the leaf's version as their stamp. A change of the fences, or one that moves an
//!   entry to another line, or one from wide to dense or back, raises the version and rewrites every line.
//! - A leaf that is not part of the tree (pending or free) has detached lines, unless no pointer ever led to
//!   its place. The maker attaches the lines before it clears the header's pending mark. A client that frees
//!   a leaf detaches the lines before it sets the free mark.
//! - A line changes only under the lane, with one exception: the maker, or its recoverer, attaches lines. No
//!   other client changes a line whose neighbours in a window are detached.

use super::header::AT_STAMP;
use super::shape::{AT_BITMAP, Body};
use super::{LINE, Shape, dense, get_u16, put_u16, put_u32};
use std::ops::Range;
use twox_hash::XxHash3_64;

/// Lines in which a key can be.
pub const WINDOW: usize = 4;
/// Offset of the tree id in a line. Entries and the fence end here.
pub(super) const AT_LINE_TREE: usize = 56;
/// The most entries per line: the bits below the flags.
const MAX_PER_LINE: usize = 12;

/// The line is dense.
pub(super) const DENSE: u16 = 1 << 12;
/// No upper bound: the high fence of the line does not count.
pub(super) const HIGH_OPEN: u16 = 1 << 13;
/// The leaf is not part of its tree: its header tells more.
pub(super) const DETACHED: u16 = 1 << 14;
/// Set in every line of a leaf, never in memory that was not written.
pub(super) const WRITTEN: u16 = 1 << 15;

const _: () = assert!(AT_LINE_TREE + 4 == AT_BITMAP && AT_BITMAP + 2 == AT_STAMP);

/// Entries per line.
pub(super) fn per_line(key_len: usize, value_len: usize) -> usize {
    (AT_LINE_TREE.saturating_sub(key_len) / (key_len + value_len).max(1)).min(MAX_PER_LINE)
}

/// Whether lines have room for several entries beside a fence.
pub(super) fn fits(key_len: usize, value_len: usize) -> bool {
    per_line(key_len, value_len) >= 2
}

/// A hash that decides in which lines a key can be. Part of the format: it never changes.
#[inline]
fn hash(key: &[u8]) -> u64 {
    match <[u8; 8]>::try_from(key) {
        Ok(word) => {
            let word = u64::from_be_bytes(word);
            let mixed = (word ^ word >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
        }
        Err(_) => XxHash3_64::oneshot(key),
    }
}

/// The number of entry lines, and of lines in a window, of a leaf with `lines` lines.
#[inline]
fn counts(shape: &Shape) -> (usize, usize) {
    let lines = shape.lines() - shape.header_lines;
    (lines, lines.min(WINDOW))
}

/// The most slots in a window.
pub(super) fn window_slots(shape: &Shape) -> usize {
    let (lines, window) = counts(shape);
    shape.capacity() / lines * window
}

/// The lines of the leaf in which `key` can be, as line numbers.
///
/// The hash draws one of all lines. The window begins one line before it and is moved inside the leaf. So the
/// outermost windows are drawn more often, which balances that fewer windows cover the outermost lines.
#[inline]
pub fn window_of(shape: &Shape, key: &[u8]) -> Range<usize> {
    let (lines, window) = counts(shape);
    let drawn = ((u128::from(hash(key)) * lines as u128) >> 64) as usize;
    let first = shape.header_lines + drawn.saturating_sub(1).min(lines - window);
    first..first + window
}

/// The bytes of the leaf in which `key` can be.
#[inline]
pub fn window_bytes(shape: &Shape, key: &[u8]) -> Range<usize> {
    let lines = window_of(shape, key);
    lines.start * LINE..lines.end * LINE
}

/// Whether line number `line` carries the low fence. The others carry the high one.
#[inline]
pub(super) fn carries_low(shape: &Shape, line: usize) -> bool {
    (line - shape.header_lines).is_multiple_of(2)
}

/// What every line of a leaf shows of the leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity<'a> {
    pub(super) tree: u32,
    pub(super) version: u16,
    pub(super) detached: bool,
    pub(super) low: &'a [u8],
    /// `None` if open.
    pub(super) high: Option<&'a [u8]>,
}

/// Writes the identity into every line of entries. Live bits stay.
pub(super) fn identify(shape: &Shape, image: &mut [u8], identity: Identity<'_>) {
    let marks = WRITTEN
        | if identity.detached { DETACHED } else { 0 }
        | if identity.high.is_none() { HIGH_OPEN } else { 0 };
    let live_bits = (0..per_line_of(shape)).fold(0, |bits, index| bits | shape.live_bit(index));
    let pieces = shape.is_dense.then(|| dense::pieces(&identity));
    for number in shape.header_lines..shape.lines() {
        let line = &mut image[number * LINE..(number + 1) * LINE];
        let marks = marks | get_u16(line, AT_BITMAP) & live_bits;
        put_u16(line, AT_STAMP, identity.version);
        if let Some(pieces) = &pieces {
            dense::identify(line, number - shape.header_lines, pieces, marks);
            continue;
        }
        let fence = &mut line[AT_LINE_TREE - shape.key_len..AT_LINE_TREE];
        match (carries_low(shape, number), identity.high) {
            (true, _) => fence.copy_from_slice(identity.low),
            (false, Some(high)) => fence.copy_from_slice(high),
            (false, None) => fence.fill(0),
        }
        put_u32(line, AT_LINE_TREE, identity.tree);
        put_u16(line, AT_BITMAP, marks);
    }
}

fn per_line_of(shape: &Shape) -> usize {
    match shape.body {
        Body::Slots { per_line, .. } => per_line,
        _ => 0,
    }
}

/// Attaches a line. Returns whether it was detached, so that it must be written.
pub(super) fn attach(line: &mut [u8]) -> bool {
    seam!(node::attach(line));
    let detached = get_u16(line, AT_BITMAP) & DETACHED != 0;
    attach_bit(line);
    detached
}

pub(super) fn attach_bit(line: &mut [u8]) {
    let word = get_u16(line, AT_BITMAP);
    put_u16(line, AT_BITMAP, word & !DETACHED);
}

/// Whether some line of a leaf with this image is detached.
pub(super) fn is_detached(image: &[u8]) -> bool {
    image.chunks_exact(LINE).skip(1).any(|line| get_u16(line, AT_BITMAP) & DETACHED != 0)
}

/// Whether a line that was written is attached.
pub(super) fn is_line_attached(line: &[u8]) -> bool {
    get_u16(line, AT_BITMAP) & (DETACHED | WRITTEN) == WRITTEN
}

/// Detaches a line.
pub(super) fn detach(line: &mut [u8]) {
    let word = get_u16(line, AT_BITMAP);
    put_u16(line, AT_BITMAP, word | DETACHED);
}

/// The number of entries in a line. In a damaged line, bits of slots that the line does not have may be set.
#[inline]
pub(super) fn live_in(shape: &Shape, line: &[u8], per_line: usize) -> usize {
    (shape.live(line) & ((1 << per_line) - 1)).count_ones() as usize
}

/// Finds a slot for a new key among `lines`: in the line with the fewest entries. Returns the number of the
/// line and the index in it.
pub(super) fn free_slot(shape: &Shape, lines: &[[u8; LINE]], per_line: usize) -> Option<(usize, usize)> {
    let (number, line) = lines.iter().enumerate().min_by_key(|(_, line)| live_in(shape, *line, per_line))?;
    let index = shape.live(line).trailing_ones() as usize;
    (index < per_line).then_some((number, index))
}

/// Decides where entries go when a leaf is filled at once.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// The slot of each entry.
    slots: Vec<usize>,
    /// The first line of each entry's window, with the entry's number in the low half.
    first: Vec<u32>,
    /// The same, sorted.
    sorted: Vec<u32>,
    /// For each line, where the entries whose windows begin there go in `sorted`.
    begins: Vec<usize>,
}

impl Layout {
    /// Places the entries with these keys into a leaf that is wide or dense as `shape` says. Returns the slot
    /// of each, or `None` if they do not fit. The answer depends on the set of keys and their order alone; a
    /// part of keys that fit fits too.
    pub(super) fn place<'k>(
        &mut self,
        shape: &Shape,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Option<&[usize]> {
        let Body::Slots { first_line, per_line } = shape.body else { return None };
        let (lines, window) = counts(shape);
        self.first.clear();
        self.first.extend(
            keys.map(|key| (window_of(shape, key).start - first_line) as u32)
                .zip(0..)
                .map(|(a, b)| a << 16 | b),
        );
        self.slots.clear();
        self.slots.resize(self.first.len(), 0);
        self.sort(lines);
        let count = self.first.len();
        let fits = self.fill(lines, window, per_line, |line| (line + 1) * count / lines)
            || self.fill(lines, window, per_line, |_| count);
        fits.then_some(&self.slots)
    }

    /// Sorts `first`: a counting sort, because there are only as many windows as lines.
    fn sort(&mut self, lines: usize) {
        let line_of = |pair: u32| (pair >> 16) as usize;
        self.begins.clear();
        self.begins.resize(lines + 1, 0);
        for &pair in &self.first {
            self.begins[line_of(pair) + 1] += 1;
        }
        let mut before = 0;
        for begin in &mut self.begins {
            before += *begin;
            *begin = before;
        }
        self.sorted.clear();
        self.sorted.resize(self.first.len(), 0);
        for &pair in &self.first {
            let begin = &mut self.begins[line_of(pair)];
            self.sorted[*begin] = pair;
            *begin += 1;
        }
    }

    /// The slots that the last call of [`Layout::place`] found.
    pub(super) fn slots(&self) -> &[usize] {
        &self.slots
    }

    /// Fills line after line with the entries whose windows end first. Line `n` and those before it get
    /// `goal(n)` entries, but an entry whose window ends with a line goes there in any case.
    ///
    /// With goals that spread the entries evenly, later entries find room everywhere. Without goals this
    /// succeeds whenever it is possible at all: windows have equal lengths, so it is scheduling by the
    /// earliest deadline.
    fn fill(&mut self, lines: usize, window: usize, per_line: usize, goal: impl Fn(usize) -> usize) -> bool {
        let mut next = 0;
        for line in 0..lines {
            let goal = goal(line);
            for index in 0..per_line {
                let Some(&pair) = self.sorted.get(next) else { break };
                let (first, entry) = ((pair >> 16) as usize, usize::from(pair as u16));
                if first > line {
                    break;
                }
                if first + window <= line {
                    return false;
                }
                if next >= goal && first + window > line + 1 {
                    break;
                }
                self.slots[entry] = line * per_line + index;
                next += 1;
            }
        }
        next == self.sorted.len()
    }

    /// Whether ascending `entries`, key and value of each one after the other, fit into one leaf with the low
    /// fence `low`.
    pub fn fits(&mut self, shape: &Shape, low: &[u8], entries: &[u8]) -> bool {
        self.fit_at(shape, low, entries, shape.entry_len())
    }

    /// Does the work of [`Layout::fits`] for keys without their values.
    pub fn keys_fit(&mut self, shape: &Shape, low: &[u8], keys: &[u8]) -> bool {
        self.fit_at(shape, low, keys, shape.key_len)
    }

    /// Whether the entries fit whose keys lie in `bytes`, one every `step` bytes.
    fn fit_at(&mut self, shape: &Shape, low: &[u8], bytes: &[u8], step: usize) -> bool {
        let key = |at: usize| &bytes[at..at + shape.key_len];
        let last = bytes.len().checked_sub(step).map(key);
        let keys = (0..bytes.len()).step_by(step).map(key);
        self.place(shape.for_keys(low, last), keys).is_some()
    }

    /// How many of the first entries in `entries`, in ascending order, key and value of each one after the
    /// other, fit into one leaf with the low fence `low`.
    pub fn most(&mut self, shape: &Shape, low: &[u8], entries: &[u8]) -> usize {
        let mut count = entries.len() / shape.entry_len();
        while count > 1 && !self.fits(shape, low, &entries[..count * shape.entry_len()]) {
            count -= 1;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::*;
    use super::*;
    use crate::Format;

    #[test]
    fn windows_lie_inside_the_leaf_and_have_both_fences() {
        for (key_len, value_len, bytes) in
            [(8, 8, 1024), (8, 8, 256), (4, 4, 512), (16, 2, 1024), (1, 1, 320)]
        {
            let shape = leaf_shape(Format::LineHashed, key_len, value_len, bytes);
            assert!(shape.is_hashed());
            let mut numbers = Numbers(7);
            let mut drawn = vec![0; shape.lines()];
            for _ in 0..4000 {
                let window = window_of(&shape, &numbers.bytes(key_len));
                assert!(window.start >= 1 && window.end <= shape.lines());
                assert_eq!(window.len(), WINDOW.min(shape.lines() - 1));
                assert!(window.clone().any(|line| carries_low(&shape, line)));
                assert!(window.clone().any(|line| !carries_low(&shape, line)));
                drawn[window.start] += 1;
            }
            let last = shape.lines() - WINDOW.min(shape.lines() - 1);
            assert!(drawn[1..=last].iter().all(|&count| count > 0), "{drawn:?}");
        }
    }

    #[test]
    fn random_inserts_fill_four_fifths_of_a_leaf_before_it_splits() {
        let shape = leaf_shape(Format::LineHashed, 8, 8, 1024);
        let (mut numbers, mut entries, leaves) = (Numbers(3), 0, 1000);
        for _ in 0..leaves {
            let mut draft = whole_range(&shape, 0, 1);
            while let crate::node::draft::Upsert::Inserted(_) =
                draft.upsert(&numbers.bytes(8), &[0; 8], &mut Vec::new())
            {
                entries += 1;
            }
        }
        let full = f64::from(entries) / f64::from(leaves * 45);
        assert!(full > 0.8, "{full}");
    }

    #[test]
    fn a_packed_layout_is_found_whenever_there_is_one() {
        // Compare with an exhaustive search in leaves of 3 lines of entries, and with augmenting paths in
        // larger ones.
        let shape = leaf_shape(Format::LineHashed, 8, 8, 1024);
        let (mut numbers, mut layout) = (Numbers(11), Layout::default());
        let (mut placed, mut refused) = (0, 0);
        for round in 0..2000 {
            let keys: Vec<Vec<u8>> = (0..34 + round % 12).map(|_| numbers.bytes(8)).collect();
            let windows: Vec<_> = keys.iter().map(|key| window_of(&shape, key)).collect();
            let slots = layout.place(&shape, keys.iter().map(Vec::as_slice)).map(<[usize]>::to_vec);
            assert_eq!(slots.is_some(), is_matchable(&windows, shape.lines(), 3), "{windows:?}");
            let Some(slots) = slots else {
                refused += 1;
                continue;
            };
            placed += 1;
            for (slot, window) in slots.iter().zip(&windows) {
                assert!(window.contains(&(1 + slot / 3)));
            }
            let mut each = slots.clone();
            each.sort_unstable();
            each.dedup();
            assert_eq!(each.len(), keys.len(), "two entries in one slot");
        }
        assert!(placed > 100 && refused > 100, "{placed} {refused}");
    }

    /// Whether every entry can have a slot of its own in its window: by augmenting paths.
    fn is_matchable(windows: &[Range<usize>], lines: usize, per_line: usize) -> bool {
        fn augment(
            entry: usize,
            windows: &[Range<usize>],
            per_line: usize,
            slots: &mut [Vec<usize>],
            seen: &mut [bool],
        ) -> bool {
            for line in windows[entry].clone() {
                if std::mem::replace(&mut seen[line], true) {
                    continue;
                }
                if slots[line].len() < per_line {
                    slots[line].push(entry);
                    return true;
                }
                for at in 0..per_line {
                    let other = slots[line][at];
                    if augment(other, windows, per_line, slots, seen) {
                        slots[line][at] = entry;
                        return true;
                    }
                }
            }
            false
        }
        let mut slots = vec![Vec::new(); lines];
        (0..windows.len()).all(|entry| augment(entry, windows, per_line, &mut slots, &mut vec![false; lines]))
    }
}
