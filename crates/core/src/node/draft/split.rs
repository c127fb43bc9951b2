//! Splits: the upper half of a node moves to a new right neighbour.

use super::{Draft, MAX_WINDOW, NodePlace, Overfull, SplitOff};
use crate::node::hashed::{Layout, window_of};
use crate::node::order::Scratch;
use crate::node::shape::Body;
use crate::node::{Format, LINE, Lookup, Patch, SortedBody, dense, slots};
use sherman_fabric::GlobalAddress;

impl Overfull {
    /// Whether the new entry is this one.
    fn has(&self, key: &[u8], value: &[u8]) -> bool {
        let each = key.len() + value.len();
        let new = self.entries.get(self.index * each..(self.index + 1) * each);
        new.is_some_and(|new| new.split_at(key.len()) == (key, value))
    }
}

impl<'s> Draft<'s> {
    /// Splits a full leaf to make room for a new entry, and stores the entry.
    pub fn split_leaf(&mut self, key: &[u8], value: &[u8], place: NodePlace) -> SplitOff<'s> {
        if let Some(mut body) = self.node().sorted() {
            let index = body.find(key).unwrap_or_else(|index| index);
            body.insert(index, key, value);
            return self.split_sorted(body, index, place);
        }
        if self.shape.is_hashed() {
            return self.split_hashed(key, value, place);
        }
        let mut scratch = Scratch::default();
        let old = self.node();
        let ordered = scratch.gather(&old, &[], None);
        let (index, total) = (ordered.below(key), ordered.len() + 1);
        let keep = self.split_point(total, index + 1 == total);
        let stays = index < keep;
        let gone: Vec<usize> = ordered.slots().skip(if stays { keep - 1 } else { keep }).collect();
        let mut entry = vec![0; self.shape.entry_len()];
        // The new entry's index among the entries that move right, if it moves right.
        let arrives = index.checked_sub(keep);
        let separator = if arrives == Some(0) {
            key.to_vec()
        } else {
            let mut separator = vec![0; key.len()];
            slots::load(self.shape, &self.image, gone[0], 0, &mut separator);
            separator
        };
        let mut right = self.right_half(&separator, place);
        let count = gone.len() + usize::from(arrives.is_some());
        for (number, &from) in gone.iter().enumerate() {
            slots::load(self.shape, &self.image, from, 0, &mut entry);
            let (moved, payload) = entry.split_at(key.len());
            let number = number + usize::from(arrives.is_some_and(|arrives| arrives <= number));
            slots::store(
                self.shape,
                &mut right.image,
                slots::spread(self.shape, number, count),
                moved,
                payload,
            );
        }
        if let Some(number) = arrives {
            slots::store(self.shape, &mut right.image, slots::spread(self.shape, number, count), key, value);
        }
        right.seal_all();
        let left = self.cut_slots(&separator, place.address, &gone, stays.then_some((key, value)));
        SplitOff { separator, right, left }
    }

    /// Splits a leaf whose entries lie where their hashes say. Both halves are laid out anew. So the split
    /// point is the one nearest to the usual one at which both halves fit. There always is one: if the new
    /// entry fits with neither the entries below it nor those above it, the old entries did not fit either.
    /// If the leaf was dense, then both halves are, unless the new key is too far away. Such a key is the
    /// highest, and the old entries fit without it.
    fn split_hashed(&mut self, key: &[u8], value: &[u8], place: NodePlace) -> SplitOff<'s> {
        let (shape, each) = (self.wide, self.shape.entry_len());
        let low = self.node().low();
        let overfull = self.overfull.take().filter(|overfull| overfull.has(key, value));
        let Overfull { entries, index } = overfull.unwrap_or_else(|| self.entries_with(key, value));
        let total = entries.len() / each;
        let wanted = self.split_point(total, index + 1 == total);
        let (mut of_left, mut of_right) = (Layout::default(), Layout::default());
        let nearest = (0..total)
            .flat_map(|off| [wanted.checked_sub(off), Some(wanted + off)])
            .flatten()
            .filter(|&keep| (1..total).contains(&keep))
            .find(|&keep| {
                let (left, right) = entries.split_at(keep * each);
                of_left.fits(shape, &low, left) && of_right.fits(shape, &right[..key.len()], right)
            });
        let keep = nearest.unwrap_or(wanted);
        let (left, right) = entries.split_at(keep * each);
        let separator = right[..key.len()].to_vec();
        let mut sibling = self.right_half(&separator, place);
        sibling.fill_placed(right, &of_right);
        self.set_high(&separator, place.address);
        let left = self.fill_placed(left, &of_left);
        SplitOff { separator, right: sibling, left }
    }

    /// Collects the entries of a hashed leaf and a new one.
    fn entries_with(&self, key: &[u8], value: &[u8]) -> Overfull {
        let (each, mut scratch) = (self.shape.entry_len(), Scratch::default());
        let mut entries = Vec::with_capacity(self.shape.node_bytes);
        self.node().collect(&[], None, &mut scratch, &mut entries);
        self.retain_findable(&mut entries);
        let (mut index, mut above) = (0, entries.len() / each);
        while index < above {
            let middle = index.midpoint(above);
            if entries[middle * each..][..key.len()] < *key {
                index = middle + 1;
            } else {
                above = middle;
            }
        }
        entries.extend_from_slice(key);
        entries.extend_from_slice(value);
        entries[index * each..].rotate_right(each);
        Overfull { entries, index }
    }

    /// Makes room for a new entry whose lines are full by a new layout of a hashed leaf, and stores the
    /// entry. Returns `None` and changes nothing if that is not worth it: a leaf that is almost full would
    /// need a new layout for every further entry.
    pub(super) fn rearrange(&mut self, key: &[u8], value: &[u8]) -> Option<Patch> {
        if !self.shape.is_hashed() {
            return None;
        }
        let overfull = self.entries_with(key, value);
        let (low, each, entries) = (self.node().low(), self.shape.entry_len(), &overfull.entries);
        let last = &entries[entries.len() - each..][..key.len()];
        let most = self.wide.capacity_for(&low, Some(last)) * 9 / 10 * each;
        let mut layout = Layout::default();
        if entries.len() > most || !layout.fits(self.wide, &low, entries) {
            self.overfull = Some(overfull);
            return None;
        }
        self.relayout_version();
        Some(self.fill_placed(&overfull.entries, &layout))
    }

    /// Drops entries outside the lines of their keys: they do not exist (I48). Only damage leaves them there,
    /// but then there might be no split point at which both halves fit.
    fn retain_findable(&self, entries: &mut Vec<u8>) {
        if self.all_findable() {
            return;
        }
        let (node, each) = (self.node(), self.shape.entry_len());
        let mut kept = 0;
        for at in (0..entries.len()).step_by(each) {
            if matches!(node.find(&entries[at..at + self.shape.key_len]), Lookup::Found(_)) {
                entries.copy_within(at..at + each, kept);
                kept += each;
            }
        }
        entries.truncate(kept);
    }

    /// Whether every entry of a hashed leaf lies in the lines of its key.
    fn all_findable(&self) -> bool {
        let shape = self.shape;
        let Body::Slots { first_line, per_line } = shape.body else { return true };
        let low = dense::base(shape, &self.image);
        let lines = self.image.as_chunks::<LINE>().0.iter().enumerate().skip(first_line);
        lines.into_iter().all(|(number, line)| {
            let live = shape.live(line);
            (0..per_line).filter(|slot| live >> slot & 1 != 0).all(|slot| {
                if shape.is_dense {
                    let key = dense::key_at(line, slot, shape.payload_len, low).to_be_bytes();
                    return window_of(shape, &key).contains(&number);
                }
                let at = slot * shape.slot_len();
                window_of(shape, &line[at..at + shape.key_len]).contains(&number)
            })
        })
    }

    /// Creates the right half of a split, still empty and not sealed.
    fn right_half(&self, separator: &[u8], place: NodePlace) -> Draft<'s> {
        let high = self.node().high();
        Draft::unsealed(self.wide, self.header.level, separator, high.as_deref(), self.header.sibling, place)
    }

    /// How many of `total` entries stay left. If keys are appended at the right edge of the tree, the left
    /// node stays full.
    fn split_point(&self, total: usize, appended: bool) -> usize {
        if appended && self.header.flags.high_open { total - 1 } else { total / 2 }
    }

    fn set_high(&mut self, separator: &[u8], sibling: GlobalAddress) {
        self.header.flags.high_open = false;
        self.header.sibling = sibling;
        self.shape.fences.store(&mut self.image, self.shape.key_len, separator);
        self.raise_version();
    }

    /// A node whose fences change has a new version.
    fn raise_version(&mut self) {
        seam!(node::raise_version(self));
        self.next_version();
    }

    /// A leaf whose entries move to other lines has a new version.
    fn relayout_version(&mut self) {
        seam!(node::relayout_version());
        self.next_version();
    }

    /// Whether a change of fences may leave the other lines unchanged.
    fn header_suffices(&self) -> bool {
        self.shape.format == Format::LineStamped
            && self.header.version.wrapping_sub(self.header.floor) < MAX_WINDOW
    }

    fn header_patch(&mut self) -> Patch {
        self.seal();
        if self.shape.header_lines == 1 {
            Patch::one(0..LINE)
        } else {
            Patch::one(LINE..self.shape.header_lines * LINE).then(0..LINE).together()
        }
    }

    /// Cuts an unsorted leaf down to its left half. The new fence alone removes the entries at or above the
    /// separator.
    fn cut_slots(
        &mut self,
        separator: &[u8],
        sibling: GlobalAddress,
        gone: &[usize],
        new: Option<(&[u8], &[u8])>,
    ) -> Patch {
        self.set_high(separator, sibling);
        if self.header_suffices() {
            let header = self.header_patch();
            return match new {
                Some((key, value)) => {
                    let entry = self.put(gone[0], key, value);
                    let range = entry.steps()[0].clone();
                    header.then(range)
                }
                None => header,
            };
        }
        for &slot in gone {
            slots::clear(self.shape, &mut self.image, slot);
        }
        if let Some((key, value)) = new {
            slots::store(self.shape, &mut self.image, gone[0], key, value);
        }
        self.seal_all()
    }

    /// Splits a sorted node whose body is too large with the new entry at `index`.
    pub fn split_sorted(&mut self, mut body: SortedBody, index: usize, place: NodePlace) -> SplitOff<'s> {
        let keep = self.split_point(body.len(), index + 1 == body.len());
        let upper = body.split_off(keep);
        let separator = upper.key(0).to_vec();
        let mut right = self.right_half(&separator, place);
        right.fill(&upper);
        self.set_high(&separator, place.address);
        let left = if index >= keep && self.header_suffices() {
            self.header.count = keep as u16;
            self.header_patch()
        } else {
            self.fill(&body)
        };
        SplitOff { separator, right, left }
    }
}
