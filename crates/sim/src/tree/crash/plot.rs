//! What the one that is going to die does, and the tree it does it to.
//!
//! A plot is about one operation. For those that are to change the tree's structure in a certain way, operations are tried one
//! after the other on a quiet tree until one does; then the tree is made again as it was right before.

use super::super::lab::{Compute, Lab};
use super::setup::Setup;
use crate::history::Op;
use crate::knobs::Knobs;
use sherman_core::Walk;
use std::collections::BTreeMap;

/// The lowest key that is loaded when keys ascend, the highest when they descend.
const MIDDLE: u64 = 400;
/// Most keys that are loaded.
const MOST_KEYS: u64 = 150;
/// The name of a second tree.
pub(super) const OTHER: &str = "other";

/// What dies in the middle of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plot {
    /// A lookup.
    Get,
    /// An insert into a leaf with room.
    Insert,
    /// An insert of what is there.
    Update,
    /// A remove.
    Remove,
    /// An insert of what is absent.
    InsertIfAbsent,
    /// A compare-and-exchange.
    CompareExchange,
    /// A scan.
    Range,
    /// An insert that splits a leaf.
    LeafSplit,
    /// One that splits an internal node.
    InternalSplit,
    /// One that makes the tree higher.
    Growth,
    /// A remove that merges leaves.
    LeafMerge,
    /// One that merges internal nodes.
    InternalMerge,
    /// One that makes the tree lower.
    Shrink,
    /// Two threads that change one leaf, one after the other.
    Handover,
    /// A bulk load.
    BulkLoad,
    /// The creation of a tree.
    Create,
    /// The drop of a tree.
    Drop,
    /// The removal of all entries.
    Clear,
}

/// What one thread does, step by step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    One(u64, Op),
    Sweep,
    Load(Vec<u64>),
    Create,
    Drop,
    Clear,
}

/// A world at its checkpoint, and what is to be done in it.
pub(super) struct Stage {
    pub lab: Lab,
    pub loader: Compute,
    pub initial: BTreeMap<u64, u64>,
    /// By thread of the one that is going to die.
    pub deeds: Vec<Vec<Deed>>,
}

impl Plot {
    /// All plots, each with a height that the tree has when it begins (of loads and drops: the height of what is loaded or
    /// dropped).
    pub fn all() -> Vec<(Self, usize)> {
        let at = |plots: &[Self], heights: &[usize]| {
            let pairs = plots.iter().flat_map(|&plot| heights.iter().map(move |&height| (plot, height)));
            pairs.collect::<Vec<_>>()
        };
        let simple = [Self::Get, Self::Insert, Self::Update, Self::Remove, Self::InsertIfAbsent, Self::CompareExchange];
        [
            at(&simple, &[1, 2, 3]),
            at(&[Self::Range, Self::BulkLoad, Self::Drop, Self::Clear], &[1, 2, 3]),
            at(&[Self::LeafSplit, Self::LeafMerge, Self::Shrink], &[2, 3]),
            at(&[Self::Growth], &[1, 2]),
            at(&[Self::InternalSplit, Self::InternalMerge], &[3]),
            at(&[Self::Handover], &[2]),
            at(&[Self::Create], &[1]),
        ]
        .concat()
    }

    /// Whether nodes are to be half full, or full.
    fn is_sparse(self) -> bool {
        !matches!(self, Self::LeafSplit | Self::InternalSplit | Self::Growth)
    }

    /// Whether the structure changed as it was to.
    fn is_reached(self, before: &Walk, after: &Walk) -> bool {
        let level = |walk: &Walk, level: usize| walk.nodes.get(level).copied().unwrap_or(0);
        let (lower, higher) = (after.height() < before.height(), after.height() > before.height());
        let same = !lower && !higher;
        match self {
            Self::LeafSplit => same && level(after, 0) > level(before, 0) && level(after, 1) == level(before, 1),
            Self::InternalSplit => same && level(after, 1) > level(before, 1),
            Self::Growth => higher,
            Self::LeafMerge => same && level(after, 0) < level(before, 0) && level(after, 1) == level(before, 1),
            Self::InternalMerge => same && level(after, 1) < level(before, 1),
            Self::Shrink => lower,
            _ => true,
        }
    }

    /// The operations to be tried, in order, on a tree with these keys.
    fn attempts(self, keys: &BTreeMap<u64, u64>) -> Vec<(u64, Op)> {
        let new = |key: &u64| (key + 1, Op::Insert(9_000 + key));
        match self {
            Self::LeafSplit | Self::InternalSplit | Self::Growth => {
                let last = keys.keys().next_back().copied().unwrap_or(MIDDLE);
                let beyond: Vec<u64> = (1..MOST_KEYS).map(|at| last + 2 * at).collect();
                keys.keys().chain(&beyond).map(new).collect()
            }
            _ => keys.keys().map(|&key| (key, Op::Remove)).collect(),
        }
    }

    /// Sets the stage.
    ///
    /// # Panics
    /// If no operation does what the plot is about: this is for tests.
    pub(super) fn stage(self, height: usize, setup: &Setup, lease_nanos: u64, knobs: &Knobs) -> Stage {
        let mut stage = Stage::loaded(self, height, setup, lease_nanos, knobs);
        let structural = [Self::LeafSplit, Self::InternalSplit, Self::Growth, Self::LeafMerge, Self::InternalMerge];
        if structural.contains(&self) || self == Self::Shrink {
            let attempts = self.attempts(&stage.initial);
            let mut before = stage.walk();
            let reached = attempts.iter().position(|&(key, op)| {
                stage.attempt(key, op);
                let after = stage.walk();
                let found = before.height() == height && self.is_reached(&before, &after);
                before = after;
                found
            });
            let at = reached.unwrap_or_else(|| panic!("{self:?} at height {height} with {setup} is never reached"));
            // Once more, up to there.
            stage = Stage::loaded(self, height, setup, lease_nanos, knobs);
            attempts[..at].iter().for_each(|&(key, op)| stage.attempt(key, op));
            let (key, op) = attempts[at];
            stage.deeds = vec![vec![Deed::One(key, op)]];
            stage.focus(key);
        } else {
            self.cast(&mut stage, height);
        }
        let loader = stage.loader.clone();
        stage.lab.leave(&loader);
        stage.lab.sim.checkpoint();
        stage
    }

    /// What is done where nothing has to be sought.
    fn cast(self, stage: &mut Stage, height: usize) {
        let key = stage.initial.keys().nth(stage.initial.len() / 2).copied().unwrap_or(MIDDLE);
        let value = stage.initial.get(&key).copied();
        let loaded: Vec<u64> = (0..[3, 12, 40][height - 1]).map(|at| MIDDLE + 2 * at).collect();
        let exchange = Op::CompareExchange { expected: value, new: Some(9_001) };
        stage.deeds = match self {
            Self::Get => vec![vec![Deed::One(key, Op::Get)]],
            Self::Insert => vec![vec![Deed::One(key + 1, Op::Insert(9_001))]],
            Self::Update => vec![vec![Deed::One(key, Op::Insert(9_001))]],
            Self::InsertIfAbsent => vec![vec![Deed::One(key + 1, Op::InsertIfAbsent(9_001))]],
            Self::CompareExchange => vec![vec![Deed::One(key, exchange)]],
            Self::Range => vec![vec![Deed::Sweep]],
            Self::Handover => (0..2)
                .map(|thread| {
                    vec![Deed::One(key, Op::Insert(9_001 + thread)), Deed::One(key, Op::Insert(9_003 + thread))]
                })
                .collect(),
            Self::BulkLoad => vec![vec![Deed::Load(loaded)]],
            Self::Create => vec![vec![Deed::Create]],
            Self::Drop => vec![vec![Deed::Drop]],
            Self::Clear => vec![vec![Deed::Clear]],
            _ => vec![vec![Deed::One(key, Op::Remove)]],
        };
        stage.focus(key);
    }
}

impl Stage {
    /// A tree of a given height, just loaded. Of loads it is empty.
    fn loaded(plot: Plot, height: usize, setup: &Setup, lease_nanos: u64, knobs: &Knobs) -> Self {
        let mut lab = Lab::new(setup.scenario(lease_nanos), knobs.clone());
        let loader = lab.join();
        let mut stage = Self { lab, loader, initial: BTreeMap::new(), deeds: Vec::new() };
        let keys = (0..MOST_KEYS).map(|at| if plot.is_sparse() { 2 * MIDDLE - 2 * at } else { MIDDLE + 2 * at });
        let mut spare = if height == 1 { 2 } else { 6 };
        for key in keys.take(if plot == Plot::BulkLoad { 0 } else { usize::MAX }) {
            stage.insert(key, 1_000 + key);
            // A little more than it takes, but not so much that it becomes higher still.
            let walk = stage.walk();
            // A root of two children would go with one of them.
            let wide = plot != Plot::InternalMerge || walk.nodes.get(1).is_some_and(|&nodes| nodes >= 3);
            spare -= usize::from(walk.height() == height && wide);
            if spare == 0 {
                break;
            }
        }
        if plot == Plot::Drop {
            stage.load_other(height);
        }
        stage
    }

    fn insert(&mut self, key: u64, value: u64) {
        let loader = self.loader.clone();
        self.lab.load(&loader, [(key, value)]);
        self.initial.insert(key, value);
    }

    /// A second tree, of that height.
    fn load_other(&mut self, height: usize) {
        let worker = self.loader.worker();
        let spec = self.lab.scenario.shape.spec(self.lab.scenario.format);
        let scenario = self.lab.scenario.clone();
        let filled = async {
            let tree = worker.tree(OTHER, &spec).await?;
            for at in 0..MOST_KEYS {
                let (key, value) = (scenario.key(2 * at), scenario.value(at));
                worker.op().insert(&tree, &key, &value, &mut Vec::new()).await?;
                if worker.op().walk(&tree).await?.height() == height && at >= 2 {
                    break;
                }
            }
            Ok::<_, sherman_core::Error>(())
        };
        self.lab.quiet(filled).expect("a quiet tree takes what fits");
    }

    fn walk(&mut self) -> Walk {
        let loader = self.loader.clone();
        self.lab.walk(&loader).expect("a quiet tree is sound")
    }

    fn attempt(&mut self, key: u64, op: Op) {
        let loader = self.loader.clone();
        match op {
            Op::Insert(value) => self.insert(key, value),
            _ => {
                self.lab.unload(&loader, [key]);
                self.initial.remove(&key);
            }
        }
    }

    /// Has the others ask for `key` and those around it.
    fn focus(&mut self, key: u64) {
        (self.lab.scenario.hot, self.lab.scenario.loaded) = (5, key);
    }
}
