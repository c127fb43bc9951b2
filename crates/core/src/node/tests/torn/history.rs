//! The moments of a node, and the contents of the tree at each.

use super::super::*;
use crate::node::hashed::{window_bytes, window_of};
use crate::node::header::AT_FLOOR;
use crate::node::stream::{set_stamp, stamp_of};
use crate::node::window::EntryChange;
use crate::node::{LINE, Lookup, Position, Removed, Window, get_u16, put_u16, slots};
use std::collections::BTreeMap;

/// Small keys and values. Each value is used only once.
pub(super) type Contents = BTreeMap<u8, u8>;

/// One moment: the state after one more unit was written.
pub(super) struct Moment {
    pub(super) image: Vec<u8>,
    /// The contents of the tree. There are two during an operation, because its effect may or may not count
    /// yet.
    pub(super) tree: Vec<Contents>,
    pub(super) after: String,
}

/// What happens to the node, or to other nodes of the tree. Every put uses a fresh value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    /// Writes an entry.
    Put(u8),
    /// Erases an entry in place.
    Remove(u8),
    /// Splits the node and inserts a key.
    Split(u8),
    /// Changes a key that moved to the sibling.
    PutInSibling(u8),
    /// Removes a key that moved to the sibling.
    RemoveFromSibling(u8),
    /// Merges all siblings back: the node is written whole.
    Merge,
    /// Removes all the node's entries: it is written whole.
    Clear,
    /// Moves the node's keys elsewhere and marks the node free. Its place takes a new node from `low` on that
    /// holds `keys`.
    FreeAndReuse { low: u8, keys: &'static [u8] },
    /// Like `FreeAndReuse`. The new node is the right half of a split elsewhere, from `low` on, that inserts
    /// `new`.
    FreeAndSplitInto { low: u8, new: u8 },
    /// Like `FreeAndReuse`, with the keys that the tree has from `low` on. But first the place takes such a
    /// node whose maker dies before it links the node, and a recoverer frees it.
    FreeAndAbandon { low: u8 },
}

/// What the writers do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Nothing is wrong.
    Sound,
    /// Nothing is wrong, and a whole WRITE is one moment.
    VerbsAreAtomic,
    /// A whole rewrite does not raise the floor.
    FloorNeverRises,
    /// An entry write does not change its line's stamp.
    EntriesKeepTheirStamp,
    /// The next node in a place starts with the version of the last one.
    ReuseRestartsVersions,
    /// An update moves its entry to another line of the key. Only for hashed leaves, like all that follow.
    EntriesMove,
    /// A split writes the header line alone.
    SplitsWriteTheHeaderAlone,
    /// A free mark leaves the lines attached.
    FreeLinesStayAttached,
    /// The lines of a pending leaf are attached.
    PendingLinesAreAttached,
    /// The maker of a leaf clears the pending mark first and attaches the lines then.
    HeaderIsLinkedFirst,
}

/// Whether some keys of a history are far away from the others.
pub(super) fn is_stretched(shape: &Shape) -> bool {
    shape.dense.is_some() && shape.payload_len == 7
}

/// A node's moments.
pub(super) struct History<'s> {
    pub(super) shape: &'s Shape,
    pub(super) moments: Vec<Moment>,
    rule: Rule,
    tree: Contents,
    fresh: u8,
    first_floor: u16,
    /// If set, the units of a step land in random order, and other clients use a leaf while it is linked.
    random: Option<Numbers>,
}

impl<'s> History<'s> {
    /// Begins with a linked node over all keys, which holds `keys`.
    pub(super) fn new(shape: &'s Shape, version: u16, rule: Rule, keys: &[u8]) -> Self {
        let mut history = Self {
            shape,
            moments: Vec::new(),
            rule,
            tree: Contents::new(),
            fresh: 0,
            first_floor: version,
            random: None,
        };
        let mut draft = whole_range(shape, 0, version);
        for &key in keys {
            let value = history.fresh_value();
            put(&mut draft, &history.key(key), &history.value(value));
            history.tree.insert(key, value);
        }
        let tree = vec![history.tree.clone()];
        history.moments.push(Moment { image: draft.into_image(), tree, after: "the beginning".into() });
        history
    }

    /// A random history of at most `limit` moments.
    pub(super) fn random(shape: &'s Shape, seed: u64, limit: usize) -> Self {
        Self::random_with(shape, seed, limit, Rule::Sound)
    }

    pub(super) fn random_with(shape: &'s Shape, seed: u64, limit: usize, rule: Rule) -> Self {
        let mut numbers = Numbers(seed);
        let mut history = Self::new(shape, (seed as u16).wrapping_sub(20), rule, &[10, 20, 30, 60]);
        for _ in 0..200 {
            let key = [5, 10, 15, 20, 25, 30, 50, 60, 61][numbers.below(9)];
            let backwards = numbers.below(2) == 0;
            let op = match numbers.below(40) {
                0 => Op::Clear,
                number => match number % 10 {
                    0..4 => Op::Put(key),
                    4 | 5 => Op::Remove(key),
                    6 => Op::Split(key),
                    7 => Op::PutInSibling(key),
                    8 => Op::RemoveFromSibling(key),
                    _ => Op::Merge,
                },
            };
            if history.moments.len() + shape.lines() + 2 > limit {
                break;
            }
            history.run(op, backwards);
        }
        history
    }

    /// From now on the units of a step land in random order, and other clients use a leaf while it is linked.
    pub(super) fn shuffled(mut self, seed: u64) -> Self {
        self.random = Some(Numbers(seed));
        self
    }

    /// A random history of a hashed leaf of at most `limit` moments, in a place that is used again and again.
    pub(super) fn random_place(shape: &'s Shape, seed: u64, limit: usize) -> Self {
        let mut numbers = Numbers(seed);
        let version = (seed as u16).wrapping_sub(20);
        let mut history = Self::new(shape, version, Rule::Sound, &[10, 20, 30, 60]).shuffled(!seed);
        for _ in 0..300 {
            let key = [5, 10, 15, 20, 25, 30, 50, 60, 61][numbers.below(9)];
            let low = [0, 5, 12, 21][numbers.below(4)];
            let op = match numbers.below(24) {
                0 => Op::Clear,
                1 | 2 => Op::FreeAndReuse { low, keys: [&[20, 30, 60][..], &[10, 25]][numbers.below(2)] },
                3 | 4 => Op::FreeAndSplitInto { low, new: key },
                5 => Op::FreeAndAbandon { low },
                6..8 => Op::Split(key),
                8..10 => Op::Merge,
                10..12 => Op::PutInSibling(key),
                12 | 13 => Op::RemoveFromSibling(key),
                14..17 => Op::Remove(key),
                _ => Op::Put(key),
            };
            if history.moments.len() + history.most_moments(op) <= limit {
                history.run(op, false);
            }
        }
        history
    }

    /// How many moments an operation can take.
    fn most_moments(&self, op: Op) -> usize {
        let (lines, keys) = (self.shape.lines(), self.tree.len() + 3);
        match op {
            Op::FreeAndAbandon { .. } => 6 * lines + 2 * keys,
            Op::FreeAndReuse { .. } | Op::FreeAndSplitInto { .. } => 4 * lines + 2 * keys,
            Op::Split(_) | Op::Merge | Op::Clear => lines,
            // The leaf may become wide.
            Op::Put(_) if is_stretched(self.shape) => lines,
            _ => 1,
        }
    }

    /// The bytes of a key. If leaves can be dense and values have 7 bytes, keys from 50 on are far away from
    /// the others, so that leaves change from dense to wide and back. Such a key has the last bytes of
    /// another one: 50 those of 10, 60 those of 20.
    pub(super) fn key(&self, key: u8) -> Vec<u8> {
        let mut bytes = vec![0; self.shape.key_len];
        let far = is_stretched(self.shape) && key >= 50;
        bytes[0] = u8::from(far);
        bytes[self.shape.key_len - 1] = if far { key - 40 } else { key };
        bytes
    }

    pub(super) fn value(&self, value: u8) -> Vec<u8> {
        vec![value; self.shape.payload_len]
    }

    fn fresh_value(&mut self) -> u8 {
        self.fresh += 1;
        self.fresh
    }

    fn image(&self) -> &[u8] {
        &self.moments[self.moments.len() - 1].image
    }

    /// Runs `op` if it is possible now. A WRITE's units land in ascending order, or in descending order if
    /// `backwards`.
    pub(super) fn run(&mut self, op: Op, backwards: bool) {
        let image = self.image().to_vec();
        let node = Node::open(self.shape, &image, 0).expect("between operations the node is valid");
        let draft = Draft::of(self.shape, &node, Vec::new());
        let position = |key: u8| node.position(&self.key(key));
        match op {
            Op::Put(key) if position(key) == Position::Inside => self.put(op, draft, key, backwards),
            Op::Remove(key) if position(key) == Position::Inside && self.tree.contains_key(&key) => {
                self.remove(op, draft, key, backwards);
            }
            Op::Split(key) => self.split(op, &node, draft, key, backwards),
            Op::PutInSibling(key) if position(key) != Position::Inside => {
                let value = self.fresh_value();
                self.elsewhere(op, |tree| {
                    tree.insert(key, value);
                });
            }
            Op::RemoveFromSibling(key) if position(key) != Position::Inside => {
                self.elsewhere(op, |tree| {
                    tree.remove(&key);
                });
            }
            Op::Merge => self.merge(op, &node, draft, backwards),
            Op::Clear => self.clear(op, &node, draft, backwards),
            Op::FreeAndReuse { low, keys } => self.reuse(op, draft, low, keys, backwards),
            Op::FreeAndSplitInto { low, new } => self.split_into(op, draft, low, new),
            Op::FreeAndAbandon { low } => self.abandon(op, draft, low),
            _ => {}
        }
    }

    fn put(&mut self, op: Op, mut draft: Draft<'_>, key: u8, backwards: bool) {
        let value = self.fresh_value();
        let (key_bytes, value_bytes) = (self.key(key), self.value(value));
        if self.rule == Rule::EntriesMove && self.tree.contains_key(&key) {
            return self.move_entry(op, draft, key, value);
        }
        let patch = match draft.upsert(&key_bytes, &value_bytes, &mut Vec::new()) {
            Upsert::Updated(patch) | Upsert::Inserted(patch) => patch,
            Upsert::Full => return,
            Upsert::Torn => panic!("writers never tear"),
        };
        let mut tree = self.tree.clone();
        tree.insert(key, value);
        self.write_entry(op, draft, &patch, tree, backwards);
    }

    /// Updates an entry, but stores it into another line of the key.
    fn move_entry(&mut self, op: Op, draft: Draft<'_>, key: u8, value: u8) {
        let (shape, bytes) = (draft.shape, self.key(key));
        let Lookup::Found(old) = draft.node().find(&bytes) else { panic!("{key} is lost") };
        let per_line = shape.capacity / (shape.lines() - shape.header_lines);
        let line_of = |slot: usize| shape.header_lines + slot / per_line;
        let new = (0..shape.capacity).find(|&slot| {
            line_of(slot) != line_of(old)
                && window_of(shape, &bytes).contains(&line_of(slot))
                && !slots::is_live(shape, draft.image(), slot)
        });
        let new = new.expect("another line has room");
        let mut image = draft.into_image();
        slots::store(shape, &mut image, new, &bytes, &self.value(value));
        slots::clear(shape, &mut image, old);
        let mut tree = self.tree.clone();
        tree.insert(key, value);
        let steps = [slots::write_range(shape, new), slots::clear_range(shape, old)];
        self.write(op, &image, &steps, tree, false);
    }

    fn remove(&mut self, op: Op, mut draft: Draft<'_>, key: u8, backwards: bool) {
        let mut old = Vec::new();
        let Removed::Gone(patch) = draft.remove(&self.key(key), &mut old) else { panic!("{key} is lost") };
        let mut tree = self.tree.clone();
        assert_eq!(tree.remove(&key).map(|value| self.value(value)), Some(old));
        self.write_entry(op, draft, &patch, tree, backwards);
    }

    /// Writes a change of one entry, with the stamps that the rule requires.
    fn write_entry(&mut self, op: Op, draft: Draft<'_>, patch: &Patch, tree: Contents, backwards: bool) {
        let mut image = draft.into_image();
        if self.rule == Rule::EntriesKeepTheirStamp {
            for line in 1..self.shape.lines() {
                let kept = stamp_of(&self.image().as_chunks().0[line]);
                set_stamp(&mut image, line, kept);
            }
        }
        self.write(op, &image, patch.steps(), tree, backwards);
    }

    fn split(&mut self, op: Op, node: &Node<'_>, mut draft: Draft<'_>, key: u8, backwards: bool) {
        let inside = node.position(&self.key(key)) == Position::Inside;
        if !inside || self.tree.contains_key(&key) || node.entries().len() < 3 {
            return;
        }
        let value = self.fresh_value();
        let split = draft.split_leaf(&self.key(key), &self.value(value), place(1));
        let mut tree = self.tree.clone();
        tree.insert(key, value);
        if self.rule == Rule::SplitsWriteTheHeaderAlone {
            let mut image = self.image().to_vec();
            let floor = get_u16(&image, AT_FLOOR);
            image[..LINE].copy_from_slice(&draft.image()[..LINE]);
            put_u16(&mut image, AT_FLOOR, floor);
            return self.write(op, &image, &[0..LINE], tree, backwards);
        }
        self.write(op, draft.image(), split.left.steps(), tree, backwards);
    }

    /// Changes the tree, but not the node.
    fn elsewhere(&mut self, op: Op, change: impl FnOnce(&mut Contents)) {
        let image = self.image().to_vec();
        let mut tree = self.tree.clone();
        change(&mut tree);
        self.write(op, &image, &[], tree, false);
    }

    /// Merges everything that the siblings hold back into the node, if it fits.
    fn merge(&mut self, op: Op, node: &Node<'_>, mut draft: Draft<'_>, backwards: bool) {
        let Some(high) = node.high() else { return };
        let keys: Vec<u8> = self.tree.keys().copied().filter(|key| self.key(*key) >= high).collect();
        if !fits(self.shape, &high, &self.packed(&self.tree, &keys)) {
            return;
        }
        let right = self.made_of(&high, &self.tree, &keys, 1, false);
        let Some(patch) = draft.absorb(&right.node()) else {
            let all: Vec<u8> = self.tree.keys().copied().collect();
            let all = self.packed(&self.tree, &all);
            assert!(!fits(self.shape, &node.low(), &all), "both fit, so they are merged");
            return;
        };
        let tree = self.tree.clone();
        self.write(op, draft.image(), patch.steps(), tree, backwards);
    }

    fn clear(&mut self, op: Op, node: &Node<'_>, mut draft: Draft<'_>, backwards: bool) {
        let patch = draft.clear();
        let mut tree = self.tree.clone();
        tree.retain(|key, _| node.position(&self.key(*key)) != Position::Inside);
        self.write(op, draft.image(), patch.steps(), tree, backwards);
    }

    /// The entries of `keys`, one after the other.
    fn packed(&self, tree: &Contents, keys: &[u8]) -> Vec<u8> {
        keys.iter().flat_map(|key| [self.key(*key), self.value(tree[key])].concat()).collect()
    }

    /// A node with `keys` of `tree`, from `low` on, with an open high fence.
    fn made_of(&self, low: &[u8], tree: &Contents, keys: &[u8], version: u16, pending: bool) -> Draft<'s> {
        let entries = self.packed(tree, keys);
        Draft::filled(self.shape, 0, low, None, GlobalAddress::NULL, place(version), &entries, pending)
    }

    /// Marks the node free, whose entries are elsewhere now. Returns the version of the next node in its
    /// place.
    fn free(&mut self, op: Op, mut draft: Draft<'_>) -> u16 {
        let patch = draft.free(ComputeId(5));
        let tree = self.tree.clone();
        if self.rule == Rule::FreeLinesStayAttached {
            let mut image = self.image().to_vec();
            image[..LINE].copy_from_slice(&draft.image()[..LINE]);
            self.write(op, &image, &[0..LINE], tree, false);
        } else {
            self.write(op, draft.image(), patch.steps(), tree, false);
        }
        draft.header().version.wrapping_add(u16::from(self.rule != Rule::ReuseRestartsVersions))
    }

    /// Writes a pending node with `keys` of `tree` into the free place. The keys of the tree stay as they
    /// are.
    fn make(
        &mut self,
        op: Op,
        low: u8,
        tree: &Contents,
        keys: &[u8],
        version: u16,
        backwards: bool,
    ) -> Draft<'s> {
        let mut made = self.made_of(&self.key(low), tree, keys, version, true);
        if self.rule == Rule::PendingLinesAreAttached {
            made.attach_lines();
        }
        self.write(op, made.image(), &[0..self.shape.node_bytes], self.tree.clone(), backwards);
        made
    }

    /// Links the pending node.
    fn link(&mut self, op: Op, mut made: Draft<'_>) {
        let patch = made.link();
        if !self.shape.is_hashed() {
            return self.write(op, made.image(), patch.steps(), self.tree.clone(), false);
        }
        let header_first = self.rule == Rule::HeaderIsLinkedFirst;
        if header_first {
            self.write_line(op, made.image(), 0);
            let image = self.image().to_vec();
            let node = Node::open(self.shape, &image, 0).expect("the header shows a linked leaf");
            let key = *self.tree.keys().next_back().expect("some key");
            self.put(Op::Put(key), Draft::of(self.shape, &node, Vec::new()), key, false);
        }
        let mut lines: Vec<usize> = (1..self.shape.lines()).collect();
        self.shuffle(&mut lines);
        for line in lines {
            self.write_line(op, made.image(), line);
            self.use_lines();
        }
        if !header_first {
            self.write_line(op, made.image(), 0);
        }
    }

    /// Writes one line of `new`.
    fn write_line(&mut self, op: Op, new: &[u8], line: usize) {
        let range = line * LINE..(line + 1) * LINE;
        let mut image = self.image().to_vec();
        image[range.clone()].copy_from_slice(&new[range.clone()]);
        self.write(op, &image, &[range], self.tree.clone(), false);
    }

    /// Another client that holds the lane changes a random key by its lines, if these are attached already.
    fn use_lines(&mut self) {
        let Some(numbers) = &mut self.random else { return };
        let (key, remove) = ([15, 20, 25, 30, 60][numbers.below(5)], numbers.below(4) == 0);
        if numbers.below(3) == 0 || self.moments.len().is_multiple_of(3) {
            return;
        }
        let (bytes, value) = (self.key(key), self.fresh_value());
        let (payload, mut image) = (self.value(value), self.image().to_vec());
        let (change, op) = match remove {
            true => (EntryChange::Remove, Op::Remove(key)),
            false => (EntryChange::Put(&payload), Op::Put(key)),
        };
        let lines = &self.image()[window_bytes(self.shape, &bytes)];
        let Ok(window) = Window::open(self.shape, lines, &bytes) else { return };
        let Some(entry) = window.change(&bytes, change) else { return };
        image[entry.range()].copy_from_slice(entry.bytes());
        let mut tree = self.tree.clone();
        match remove {
            true => tree.remove(&key),
            false => tree.insert(key, value),
        };
        self.write(op, &image, &[entry.range()], tree, false);
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        if let Some(numbers) = &mut self.random {
            for last in (1..items.len()).rev() {
                items.swap(last, numbers.below(last + 1));
            }
        }
    }

    /// The keys of the tree from `low` on.
    fn keys_from(&self, low: u8) -> Vec<u8> {
        self.tree.range(low..).map(|(key, _)| *key).collect()
    }

    /// The place becomes the right half of a split. The keys of the half change only when the left half is
    /// written, somewhere else, and only then is the right half linked.
    fn split_into(&mut self, op: Op, draft: Draft<'_>, low: u8, new: u8) {
        let room = self.keys_from(low).len() < self.shape.capacity();
        if new < low || self.tree.contains_key(&new) || !room {
            return;
        }
        let version = self.free(op, draft);
        if let Some(key) = self.tree.range(low..).next().map(|(key, _)| *key) {
            let value = self.fresh_value();
            self.elsewhere(op, |tree| {
                tree.insert(key, value);
            });
        }
        let (value, mut tree) = (self.fresh_value(), self.tree.clone());
        tree.insert(new, value);
        let mut keys = self.keys_from(low);
        keys.insert(keys.partition_point(|key| *key < new), new);
        let made = self.make(op, low, &tree, &keys, version, true);
        self.elsewhere(op, |now| {
            now.insert(new, value);
        });
        self.link(op, made);
    }

    /// The maker of the next node dies before it commits. The keys change where they are, until a recoverer
    /// frees the node.
    fn abandon(&mut self, op: Op, draft: Draft<'_>, low: u8) {
        let keys = self.keys_from(low);
        if keys.len() > self.shape.capacity() {
            return;
        }
        let version = self.free(op, draft);
        let made = self.make(op, low, &self.tree.clone(), &keys, version, true);
        for (number, key) in keys.into_iter().enumerate() {
            let value = self.fresh_value();
            self.elsewhere(op, |tree| {
                if number == 0 {
                    tree.remove(&key)
                } else {
                    tree.insert(key, value)
                };
            });
        }
        let version = self.free(op, made);
        let made = self.make(op, low, &self.tree.clone(), &self.keys_from(low), version, false);
        self.link(op, made);
    }

    fn reuse(&mut self, op: Op, draft: Draft<'_>, low: u8, keys: &[u8], backwards: bool) {
        let version = self.free(op, draft);
        for &key in keys {
            if !self.tree.contains_key(&key) {
                let value = self.fresh_value();
                self.elsewhere(op, |tree| {
                    tree.insert(key, value);
                });
            }
        }
        // Other clients removed the keys of the range that the new node does not hold, before the new node is
        // made.
        let gone: Vec<u8> =
            self.tree.keys().copied().filter(|key| *key >= low && !keys.contains(key)).collect();
        for key in gone {
            self.elsewhere(op, |tree| {
                tree.remove(&key);
            });
        }
        let keys: Vec<u8> = keys.iter().copied().filter(|key| *key >= low).collect();
        let made = self.make(op, low, &self.tree.clone(), &keys, version, backwards);
        self.link(op, made);
    }

    /// Writes the units of `steps` one by one.
    fn write(
        &mut self,
        op: Op,
        new: &[u8],
        steps: &[std::ops::Range<usize>],
        tree: Contents,
        backwards: bool,
    ) {
        let mut new = new.to_vec();
        if self.rule == Rule::FloorNeverRises {
            put_u16(&mut new, AT_FLOOR, self.first_floor);
        }
        let mut image = self.image().to_vec();
        let before = std::mem::replace(&mut self.tree, tree.clone());
        let mut units: Vec<std::ops::Range<usize>> = Vec::new();
        for step in steps {
            let cut = (step.start / LINE..step.end.div_ceil(LINE))
                .map(|line| step.start.max(line * LINE)..step.end.min((line + 1) * LINE));
            let first = units.len();
            match self.rule {
                Rule::VerbsAreAtomic => units.push(step.clone()),
                _ if backwards => units.extend(cut.rev()),
                _ => units.extend(cut),
            }
            self.shuffle(&mut units[first..]);
        }
        for (number, unit) in units.iter().enumerate() {
            image[unit.clone()].copy_from_slice(&new[unit.clone()]);
            let last = number + 1 == units.len();
            let tree = if last { vec![tree.clone()] } else { vec![before.clone(), tree.clone()] };
            let after = format!("{op:?}, bytes {unit:?}");
            self.moments.push(Moment { image: image.clone(), tree, after });
        }
        if units.is_empty() {
            self.moments.push(Moment { image: image.clone(), tree: vec![tree], after: format!("{op:?}") });
        }
        assert!(image == new, "the steps of {op:?} leave bytes out");
    }
}
