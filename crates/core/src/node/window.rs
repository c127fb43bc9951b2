//! The lines of a `LineHashed` leaf in which one key can be, read without the rest of the leaf.
//!
//! A window is good iff its lines have equal stamps, are all wide or all dense, belong to the tree, are
//! attached, and the key lies inside the fences that they carry. Then the lines show the leaf that covers the
//! key, all of one version. Entries do not move between lines while the version stays. So what the window
//! says of the key was true at some moment of the READ (`docs/INVARIANTS.md`, I47–I51). A window that is not
//! good gives no answer: the caller reads the whole leaf, whose header tells more.

use super::dense::{self, Shown};
use super::entry::{EntryWrite, put_in_line, restamp};
use super::hashed::{
    AT_LINE_TREE, DENSE, DETACHED, HIGH_OPEN, WRITTEN, carries_low, free_slot, live_in, window_of,
};
use super::shape::{AT_BITMAP, Body};
use super::stream::stamp_of;
use super::{LINE, Shape, get_u16, get_u32, put_u16, slots};
use std::cmp::Ordering;

/// Why a window gives no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Lines of different versions.
    Torn,
    /// Lines of another node, or of a leaf that is not part of the tree, or one that does not cover the key.
    Elsewhere,
}

/// A change of one key that a window can tell the WRITE of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryChange<'a> {
    /// Nothing is to be written.
    Nothing,
    /// The key gets this value.
    Put(&'a [u8]),
    /// The key is removed, if it is there.
    Remove,
}

/// A change that may depend on the present value of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeRule<'a> {
    /// The key gets this value.
    Put(&'a [u8]),
    /// The key gets this value unless it is there.
    PutIfAbsent(&'a [u8]),
    /// The key is removed.
    Remove,
    /// The key is set from one state to another (`None`: absent), if it is in the first.
    Exchange(Option<&'a [u8]>, Option<&'a [u8]>),
}

impl<'a> ChangeRule<'a> {
    /// What to do to an entry whose key has the value `present`.
    pub fn decide(&self, present: Option<&[u8]>) -> EntryChange<'a> {
        match *self {
            Self::Put(value) => EntryChange::Put(value),
            Self::PutIfAbsent(value) if present.is_none() => EntryChange::Put(value),
            Self::Remove if present.is_some() => EntryChange::Remove,
            Self::PutIfAbsent(_) | Self::Remove => EntryChange::Nothing,
            Self::Exchange(expected, new) if present != expected || expected == new => EntryChange::Nothing,
            Self::Exchange(_, Some(new)) => EntryChange::Put(new),
            Self::Exchange(_, None) => EntryChange::Remove,
        }
    }
}

/// The validated lines of a key.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// The layout of this very leaf, wide or dense.
    pub(super) shape: &'a Shape,
    lines: &'a [[u8; LINE]],
    /// The number of the first line in the leaf.
    first: usize,
    per_line: usize,
    version: u16,
    /// The low fence, if the lines are dense.
    low: u64,
}

impl<'a> Window<'a> {
    /// Validates the lines of `key`, which were read together.
    #[inline]
    pub fn open(shape: &'a Shape, bytes: &'a [u8], key: &[u8]) -> Result<Self, Unfit> {
        Self::open_at(shape, window_of(shape, key).start, bytes, key)
    }

    /// Does the work of [`Window::open`] for a caller that knows `first`, the number of the first line.
    #[inline]
    pub fn open_at(shape: &'a Shape, first: usize, bytes: &'a [u8], key: &[u8]) -> Result<Self, Unfit> {
        let lines = bytes.as_chunks().0;
        let version = lines.first().map_or(0, stamp_of);
        if !stamps_agree(lines, version) {
            return Err(Unfit::Torn);
        }
        // Marks of all lines have the same meaning, whatever leaf they belong to.
        if !lines.iter().all(|line| is_attached(get_u16(line, AT_BITMAP))) {
            return Err(Unfit::Elsewhere);
        }
        let dense = get_u16(&lines[0], AT_BITMAP) & DENSE != 0;
        let Some(shape) = shape.packed(dense) else { return Err(Unfit::Elsewhere) };
        let Body::Slots { per_line, .. } = shape.body else { return Err(Unfit::Elsewhere) };
        let mut window = Self { shape, lines, first, per_line, version, low: 0 };
        let good = if dense { window.is_dense_of(key) } else { window.is_wide_of(key) };
        if good { Ok(window) } else { Err(Unfit::Elsewhere) }
    }

    /// Whether the lines are those of a dense leaf of the tree that covers `key`. Learns the low fence.
    #[inline]
    fn is_dense_of(&mut self, key: &[u8]) -> bool {
        let Some(shown) = Shown::by(self.lines, self.first - self.shape.header_lines) else { return false };
        self.low = shown.low;
        shown.tree == self.shape.tree && covers_dense(&shown, key)
    }

    /// Whether the lines are those of a wide leaf of the tree that covers `key`.
    #[inline]
    fn is_wide_of(&self, key: &[u8]) -> bool {
        let is_of_tree = |line: &[u8; LINE]| {
            get_u16(line, AT_BITMAP) & DENSE == 0 && get_u32(line, AT_LINE_TREE) == self.shape.tree
        };
        self.lines.iter().all(is_of_tree) && self.covers(key)
    }

    /// Whether `key` lies inside the fences that the first two lines of a wide leaf carry.
    #[inline]
    fn covers(&self, key: &[u8]) -> bool {
        seam!(node::covers());
        let [one, other, ..] = self.lines else { return false };
        let (low, high) = if carries_low(self.shape, self.first) { (one, other) } else { (other, one) };
        let fence = |line: &[u8; LINE]| compare(&line[AT_LINE_TREE - key.len()..AT_LINE_TREE], key);
        let open = get_u16(high, AT_BITMAP) & HIGH_OPEN != 0;
        fence(low) != Ordering::Greater && (open || fence(high) == Ordering::Greater)
    }

    /// Finds the slot of `key`, counted from the window's first line.
    #[inline]
    fn find(&self, key: &[u8]) -> Option<usize> {
        slots::find_among(self.shape, self.lines, self.per_line, self.low, key)
    }

    /// Looks `key` up. If it is there, `value` receives its value.
    #[inline]
    pub fn get(&self, key: &[u8], value: &mut Vec<u8>) -> bool {
        self.get_slot(key, value).is_some()
    }

    /// Does the work of [`Window::get`], and returns the slot for [`Window::change_found`].
    #[inline]
    pub fn get_slot(&self, key: &[u8], value: &mut Vec<u8>) -> Option<usize> {
        let found = self.find(key);
        if let Some(slot) = found {
            self.value_into(slot, value);
        }
        found
    }

    #[inline]
    fn value_into(&self, slot: usize, value: &mut Vec<u8>) {
        let payload_len = self.shape.payload_len;
        let end = (slot % self.per_line + 1) * self.shape.slot_len();
        value.clear();
        value.extend_from_slice(&self.lines[slot / self.per_line][end - payload_len..end]);
    }

    /// The number of entries in the window.
    pub fn len(&self) -> usize {
        self.lines.iter().map(|line| live_in(self.shape, &line[..], self.per_line)).sum()
    }

    /// Whether the window has no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the leaf has no other lines of entries.
    pub fn is_whole_leaf(&self) -> bool {
        self.lines.len() + self.shape.header_lines == self.shape.lines()
    }

    /// Returns the WRITE of a change of `key`: inside one line. The caller holds the lane under which the
    /// window was read. Returns `None` if there is nothing to write, or if a new key finds no free slot. The
    /// latter is so for a key that is too far from the low fence of a dense leaf.
    pub fn change(&self, key: &[u8], change: EntryChange<'_>) -> Option<EntryWrite> {
        self.change_found(self.find(key), key, change)
    }

    /// Does the work of [`Window::change`] after [`Window::get_slot`] has looked the key up.
    #[inline]
    pub fn change_found(
        &self,
        found: Option<usize>,
        key: &[u8],
        change: EntryChange<'_>,
    ) -> Option<EntryWrite> {
        let (slot, value) = match (change, found) {
            (EntryChange::Nothing, _) | (EntryChange::Remove, None) => return None,
            (EntryChange::Remove, Some(slot)) => (slot, None),
            (EntryChange::Put(value), Some(slot)) => (slot, Some(value)),
            (EntryChange::Put(value), None) => {
                if self.shape.is_dense {
                    dense::distance(self.low, key)?;
                }
                let (line, index) = free_slot(self.shape, self.lines, self.per_line)?;
                (line * self.per_line + index, Some(value))
            }
        };
        let (number, index) = (slot / self.per_line, slot % self.per_line);
        let mut line = self.lines[number];
        let from = match value {
            Some(value) => put_in_line(self.shape, &mut line, index, self.low, key, value),
            None => {
                let bits = get_u16(&line, AT_BITMAP) & !self.shape.live_bit(index);
                put_u16(&mut line, AT_BITMAP, bits);
                AT_BITMAP
            }
        };
        restamp(&mut line, self.version);
        Some(EntryWrite::new(line, (self.first + number) * LINE, from, found.is_some()))
    }
}

/// Whether all lines have the same stamp.
#[inline]
fn stamps_agree(lines: &[[u8; LINE]], version: u16) -> bool {
    seam!(node::window_stamps_agree());
    !lines.is_empty() && lines.iter().all(|line| stamp_of(line) == version)
}

/// Whether a line with these marks is part of a tree.
#[inline]
fn is_attached(marks: u16) -> bool {
    seam!(node::is_attached(marks));
    marks & (WRITTEN | DETACHED) == WRITTEN
}

/// Whether the lines of a dense leaf show that it covers `key`.
#[inline]
fn covers_dense(shown: &Shown, key: &[u8]) -> bool {
    seam!(node::covers());
    shown.covers(key)
}

/// Compares a fence with a key.
#[inline]
fn compare(fence: &[u8], key: &[u8]) -> Ordering {
    match (<[u8; 8]>::try_from(fence), <[u8; 8]>::try_from(key)) {
        (Ok(fence), Ok(key)) => u64::from_be_bytes(fence).cmp(&u64::from_be_bytes(key)),
        _ => fence.cmp(key),
    }
}
