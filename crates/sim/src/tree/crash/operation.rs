//! The operation of the victim, and the tree before it.
//!
//! A [`VictimOp`] is one operation. Some operations must change the structure of the tree in a certain way.
//! For these, the code tries operations one after the other on a quiet tree until one of them makes that
//! change. Then it creates the tree again as it was right before.

use super::super::fixture::{Compute, Fixture};
use super::setup::Setup;
use crate::history::Op;
use crate::knobs::Knobs;
use sherman_core::Walk;
use std::collections::BTreeMap;

/// The lowest loaded key if keys ascend. The highest loaded key is twice this if they descend.
const MIDDLE: u64 = 400;
/// Most keys that are loaded.
const MOST_KEYS: u64 = 150;
/// Number of keys that split leaves whose separators cannot be posted.
const MOST_UNPOSTED: u64 = 8;
/// The name of a second tree.
pub(super) const OTHER: &str = "other";

/// The operation during which the victim dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VictimOp {
    /// A lookup.
    Get,
    /// An insert into a leaf with room.
    Insert,
    /// An insert of a key that exists.
    Update,
    /// A remove.
    Remove,
    /// An insert of a key that is absent.
    InsertIfAbsent,
    /// A compare-and-exchange.
    CompareExchange,
    /// A scan.
    Range,
    /// An insert that splits a leaf.
    LeafSplit,
    /// An insert that splits an internal node.
    InternalSplit,
    /// An insert that makes the tree higher.
    Growth,
    /// A remove that merges leaves.
    LeafMerge,
    /// A remove that merges internal nodes.
    InternalMerge,
    /// A remove that makes the tree lower.
    Shrink,
    /// Two threads that change the same leaf, one after the other.
    Handover,
    /// A bulk load.
    BulkLoad,
    /// The creation of a tree.
    Create,
    /// The drop of a tree.
    Drop,
    /// The drop of a tree with leaves whose separators could not be posted.
    DropUnposted,
    /// The removal of all entries.
    Clear,
}

/// One step of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VictimStep {
    One(u64, Op),
    Sweep,
    Load(Vec<u64>),
    Create,
    Drop,
    Clear,
}

/// A world at its checkpoint, and the steps to run in it.
pub(super) struct Checkpoint {
    pub fixture: Fixture,
    pub loader: Compute,
    pub initial: BTreeMap<u64, u64>,
    /// The steps of the victim, by thread.
    pub steps: Vec<Vec<VictimStep>>,
}

impl VictimOp {
    /// Returns all operations, each with the height of the tree at the start. For loads and drops it is the
    /// height of the tree that is loaded or dropped. One operation takes as long as all others together.
    pub fn all() -> Vec<(Self, usize)> {
        Self::usual().into_iter().chain([(Self::Clear, 3)]).collect()
    }

    /// Returns all operations except that one.
    pub fn usual() -> Vec<(Self, usize)> {
        let at = |operations: &[Self], heights: &[usize]| {
            let pairs = operations
                .iter()
                .flat_map(|&operation| heights.iter().map(move |&height| (operation, height)));
            pairs.collect::<Vec<_>>()
        };
        let simple = [
            Self::Get,
            Self::Insert,
            Self::Update,
            Self::Remove,
            Self::InsertIfAbsent,
            Self::CompareExchange,
        ];
        [
            at(&simple, &[1, 2, 3]),
            at(&[Self::Range, Self::BulkLoad, Self::Drop], &[1, 2, 3]),
            at(&[Self::Clear], &[1, 2]),
            at(&[Self::LeafSplit, Self::LeafMerge, Self::Shrink], &[2, 3]),
            at(&[Self::Growth], &[1, 2]),
            at(&[Self::InternalSplit, Self::InternalMerge], &[3]),
            at(&[Self::Handover], &[2]),
            at(&[Self::Create], &[1]),
        ]
        .concat()
    }

    /// Returns the operations that begin without futures, and those that such operations lead to.
    pub fn begun_at_once() -> Vec<(Self, usize)> {
        let wanted = [Self::Get, Self::Insert, Self::Update, Self::Remove, Self::LeafSplit, Self::Growth];
        let wanted = |operation| wanted.contains(&operation) || operation == Self::Handover;
        Self::usual().into_iter().filter(|&(operation, height)| wanted(operation) && height > 1).collect()
    }

    /// Whether nodes must be half full rather than full.
    fn is_sparse(self) -> bool {
        !matches!(self, Self::LeafSplit | Self::InternalSplit | Self::Growth)
    }

    /// Whether the structure changed as the operation requires.
    fn is_reached(self, before: &Walk, after: &Walk) -> bool {
        let level = |walk: &Walk, level: usize| walk.nodes.get(level).copied().unwrap_or(0);
        let (lower, higher) = (after.height() < before.height(), after.height() > before.height());
        let same = !lower && !higher;
        match self {
            Self::LeafSplit => {
                same && level(after, 0) > level(before, 0) && level(after, 1) == level(before, 1)
            }
            Self::InternalSplit => same && level(after, 1) > level(before, 1),
            Self::Growth => higher,
            Self::LeafMerge => {
                same && level(after, 0) < level(before, 0) && level(after, 1) == level(before, 1)
            }
            Self::InternalMerge => same && level(after, 1) < level(before, 1),
            Self::Shrink => lower,
            _ => true,
        }
    }

    /// Returns the operations to try, in order, on a tree with these keys.
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

    /// Prepares the world.
    ///
    /// # Panics
    /// If no attempt makes the change that the operation requires: this is for tests.
    pub(super) fn checkpoint(
        self,
        height: usize,
        setup: &Setup,
        lease_nanos: u64,
        knobs: &Knobs,
    ) -> Checkpoint {
        let mut checkpoint = Checkpoint::loaded(self, height, setup, lease_nanos, knobs);
        let structural =
            [Self::LeafSplit, Self::InternalSplit, Self::Growth, Self::LeafMerge, Self::InternalMerge];
        if structural.contains(&self) || self == Self::Shrink {
            let attempts = self.attempts(&checkpoint.initial);
            let mut before = checkpoint.walk();
            let reached = attempts.iter().position(|&(key, op)| {
                checkpoint.attempt(key, op);
                let after = checkpoint.walk();
                let found = before.height() == height && self.is_reached(&before, &after);
                before = after;
                found
            });
            let at = reached
                .unwrap_or_else(|| panic!("{self:?} at height {height} with {setup} is never reached"));
            // Load the tree again, up to the operation before.
            checkpoint = Checkpoint::loaded(self, height, setup, lease_nanos, knobs);
            attempts[..at].iter().for_each(|&(key, op)| checkpoint.attempt(key, op));
            let (key, op) = attempts[at];
            checkpoint.steps = vec![vec![VictimStep::One(key, op)]];
            checkpoint.focus(key);
        } else {
            self.set_steps(&mut checkpoint, height);
        }
        let loader = checkpoint.loader.clone();
        checkpoint.fixture.leave(&loader);
        checkpoint.fixture.sim.checkpoint();
        checkpoint
    }

    /// Sets the steps of an operation that needs no search.
    fn set_steps(self, checkpoint: &mut Checkpoint, height: usize) {
        let key = checkpoint.initial.keys().nth(checkpoint.initial.len() / 2).copied().unwrap_or(MIDDLE);
        let value = checkpoint.initial.get(&key).copied();
        let loaded: Vec<u64> = (0..[3, 12, 40][height - 1]).map(|at| MIDDLE + 2 * at).collect();
        let exchange = Op::CompareExchange { expected: value, new: Some(9_001) };
        checkpoint.steps = match self {
            Self::Get => vec![vec![VictimStep::One(key, Op::Get)]],
            Self::Insert => vec![vec![VictimStep::One(key + 1, Op::Insert(9_001))]],
            Self::Update => vec![vec![VictimStep::One(key, Op::Insert(9_001))]],
            Self::InsertIfAbsent => vec![vec![VictimStep::One(key + 1, Op::InsertIfAbsent(9_001))]],
            Self::CompareExchange => vec![vec![VictimStep::One(key, exchange)]],
            Self::Range => vec![vec![VictimStep::Sweep]],
            Self::Handover => (0..2)
                .map(|thread| {
                    vec![
                        VictimStep::One(key, Op::Insert(9_001 + thread)),
                        VictimStep::One(key, Op::Insert(9_003 + thread)),
                    ]
                })
                .collect(),
            Self::BulkLoad => vec![vec![VictimStep::Load(loaded)]],
            Self::Create => vec![vec![VictimStep::Create]],
            Self::Drop | Self::DropUnposted => vec![vec![VictimStep::Drop]],
            Self::Clear => vec![vec![VictimStep::Clear]],
            _ => vec![vec![VictimStep::One(key, Op::Remove)]],
        };
        checkpoint.focus(key);
    }
}

impl Checkpoint {
    /// Loads a tree of a given height. For bulk loads the tree stays empty.
    fn loaded(operation: VictimOp, height: usize, setup: &Setup, lease_nanos: u64, knobs: &Knobs) -> Self {
        let mut fixture = Fixture::new(setup.scenario(lease_nanos), knobs.clone());
        let loader = fixture.join();
        let mut checkpoint = Self { fixture, loader, initial: BTreeMap::new(), steps: Vec::new() };
        let keys = (0..MOST_KEYS)
            .map(|at| if operation.is_sparse() { 2 * MIDDLE - 2 * at } else { MIDDLE + 2 * at });
        let mut spare = if height == 1 { 2 } else { 6 };
        for key in keys.take(if operation == VictimOp::BulkLoad { 0 } else { usize::MAX }) {
            checkpoint.insert(key, 1_000 + key);
            // Load a few more keys than the height needs, but not so many that the tree grows again.
            let walk = checkpoint.walk();
            // With only two children, the root would be removed together with one of them.
            let wide = match operation {
                VictimOp::LeafMerge => walk.nodes[0] >= 3,
                VictimOp::InternalMerge => walk.nodes.get(1).is_some_and(|&nodes| nodes >= 3),
                _ => true,
            };
            spare -= usize::from(walk.height() == height && wide);
            if spare == 0 {
                break;
            }
        }
        if matches!(operation, VictimOp::Drop | VictimOp::DropUnposted) {
            checkpoint.load_other(height, operation == VictimOp::DropUnposted);
        }
        checkpoint
    }

    fn insert(&mut self, key: u64, value: u64) {
        let loader = self.loader.clone();
        self.fixture.load(&loader, [(key, value)]);
        self.initial.insert(key, value);
    }

    /// Loads a second tree of that height. If `unposted`, leaves are split whose separators cannot be posted.
    fn load_other(&mut self, height: usize, unposted: bool) {
        let worker = self.loader.worker();
        let spec = self.fixture.scenario.spec();
        let scenario = self.fixture.scenario.clone();
        let filled = async {
            let tree = worker.tree(OTHER, &spec).await?;
            for at in 0..MOST_KEYS {
                let (key, value) = (scenario.key(2 * at), scenario.value(at));
                worker.op().insert(&tree, &key, &value, &mut Vec::new()).await?;
                if worker.op().walk(&tree).await?.height() == height && at >= 2 {
                    break;
                }
            }
            Ok::<_, sherman_core::Error>(tree)
        };
        let tree = self.fixture.quiet(filled).expect("a quiet tree takes what fits");
        if unposted {
            let other = Compute { tree, ..self.loader.clone() };
            let odd: Vec<(u64, u64)> = (0..MOST_UNPOSTED).map(|at| (2 * at + 1, at)).collect();
            self.fixture.load_unposted(&other, &odd);
        }
    }

    fn walk(&mut self) -> Walk {
        let loader = self.loader.clone();
        self.fixture.walk(&loader).expect("a quiet tree is sound")
    }

    fn attempt(&mut self, key: u64, op: Op) {
        let loader = self.loader.clone();
        match op {
            Op::Insert(value) => self.insert(key, value),
            _ => {
                self.fixture.unload(&loader, [key]);
                self.initial.remove(&key);
            }
        }
    }

    /// Makes the other clients use `key` and its neighbours.
    fn focus(&mut self, key: u64) {
        (self.fixture.scenario.hot, self.fixture.scenario.loaded) = (5, key);
    }
}
