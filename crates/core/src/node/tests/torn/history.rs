//! The moments of a node, and the contents of the tree at each.

use super::super::*;
use crate::node::header::AT_FLOOR;
use crate::node::stream::{set_stamp, stamp_of};
use crate::node::{LINE, Position, Removed};
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
}

/// A node's moments.
pub(super) struct History<'s> {
    pub(super) shape: &'s Shape,
    pub(super) moments: Vec<Moment>,
    rule: Rule,
    tree: Contents,
    fresh: u8,
    first_floor: u16,
}

impl<'s> History<'s> {
    /// Begins with a linked node over all keys, which holds `keys`.
    pub(super) fn new(shape: &'s Shape, version: u16, rule: Rule, keys: &[u8]) -> Self {
        let mut history =
            Self { shape, moments: Vec::new(), rule, tree: Contents::new(), fresh: 0, first_floor: version };
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

    pub(super) fn key(&self, key: u8) -> Vec<u8> {
        let mut bytes = vec![0; self.shape.key_len];
        bytes[self.shape.key_len - 1] = key;
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
            _ => {}
        }
    }

    fn put(&mut self, op: Op, mut draft: Draft<'_>, key: u8, backwards: bool) {
        let value = self.fresh_value();
        let (key_bytes, value_bytes) = (self.key(key), self.value(value));
        let patch = match draft.upsert(&key_bytes, &value_bytes, &mut Vec::new()) {
            Upsert::Updated(patch) | Upsert::Inserted(patch) => patch,
            Upsert::Full => return,
            Upsert::Torn => panic!("writers never tear"),
        };
        let mut tree = self.tree.clone();
        tree.insert(key, value);
        self.write_entry(op, draft, &patch, tree, backwards);
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
        if keys.len() > self.shape.capacity {
            return;
        }
        let right = self.made_of(&high, &keys, 1);
        let Some(patch) = draft.absorb(&right.node()) else {
            assert!(self.tree.len() > self.shape.capacity, "both fit, or they would not be merged");
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

    /// A linked node with `keys`, from `low` on, with an open high fence.
    fn made_of(&self, low: &[u8], keys: &[u8], version: u16) -> Draft<'s> {
        let entry = |key: &u8| [self.key(*key), self.value(self.tree[key])].concat();
        let entries: Vec<u8> = keys.iter().flat_map(entry).collect();
        Draft::filled(self.shape, 0, low, None, GlobalAddress::NULL, place(version), &entries, false)
    }

    fn reuse(&mut self, op: Op, mut draft: Draft<'_>, low: u8, keys: &[u8], backwards: bool) {
        let patch = draft.free(ComputeId(5));
        let tree = self.tree.clone();
        self.write(op, draft.image(), patch.steps(), tree, false);
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
        let step = u16::from(self.rule != Rule::ReuseRestartsVersions);
        let made = self.made_of(&self.key(low), keys, draft.header().version.wrapping_add(step));
        let tree = self.tree.clone();
        self.write(op, made.image(), &[0..self.shape.node_bytes], tree, backwards);
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
            crate::node::put_u16(&mut new, AT_FLOOR, self.first_floor);
        }
        let mut image = self.image().to_vec();
        let before = std::mem::replace(&mut self.tree, tree.clone());
        let mut units: Vec<std::ops::Range<usize>> = Vec::new();
        for step in steps {
            let cut = (step.start / LINE..step.end.div_ceil(LINE))
                .map(|line| step.start.max(line * LINE)..step.end.min((line + 1) * LINE));
            match self.rule {
                Rule::VerbsAreAtomic => units.push(step.clone()),
                _ if backwards => units.extend(cut.rev()),
                _ => units.extend(cut),
            }
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
