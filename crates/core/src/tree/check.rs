//! Verifies a tree while other clients write to it.
//!
//! The check walks every level from left to right along its siblings, and compares every separator with the
//! node that it names. It reads through `probe`, which tells damage from concurrency and ends in bounded
//! time. It reports only confirmed damage, by its number in `docs/INVARIANTS.md`. Where a level is cut, the
//! check goes on at the next separator that leads there. So it reports all damage, not only the first.

use super::TreeState;
use super::probe::{Name, Obstacle, Pointer, Seen, Step, ends_wrong};
use super::values::{I56, I59};
use crate::error::Error;
use crate::node::block::{self, BlockRef, Slot};
use crate::node::{Node, Scratch};
use crate::worker::Worker;
use sherman_fabric::{Endpoint, GlobalAddress};
use std::time::Duration;

/// Broken invariants that are reported one by one; more are only counted.
pub(crate) const MOST_REPORTED: usize = 100;
/// How many times the check follows a separator that keeps changing.
const LOOKS: usize = 8;
/// The check gives up when more parts of a tree than this stay undecided, because it waits for each.
const MOST_UNDECIDED: u64 = 3;
/// How long the check waits for the lane of a node in which a key seems to appear twice.
const LANE_PATIENCE: Duration = Duration::from_secs(1);

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Entries of all leaves.
    pub entries: u64,
    /// Every level, leaves first.
    pub levels: Vec<Level>,
    /// Blocks: values that do not fit into the leaf.
    pub blocks: u64,
    /// Bytes of memory that the blocks take.
    pub block_bytes: u64,
    /// Bytes of the values in blocks.
    pub value_bytes: u64,
    /// Nodes that only their left neighbour leads to: legal, but slow.
    pub missing_separators: u64,
    /// The first hundred broken invariants.
    pub broken: Vec<Broken>,
    /// The number of all broken invariants.
    pub broken_count: u64,
    /// Nodes that could not be read in time although a member may still finish them. The check left out
    /// everything behind them.
    pub undecided: u64,
}

/// One level of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Number of nodes.
    pub nodes: u64,
    /// Entries or separators in them.
    pub entries: u64,
    /// Entries that would fit.
    pub capacity: u64,
    /// Bytes of memory that the nodes take.
    pub bytes: u64,
}

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The address of the node.
    pub address: GlobalAddress,
    /// The level of the node.
    pub level: u8,
    /// The number and text of the invariant.
    pub invariant: &'static str,
    /// The first key of the affected range, if it is known.
    pub from: Option<Vec<u8>>,
    /// Where that range ends (exclusive), if it is known.
    pub to: Option<Vec<u8>>,
    /// What the check found.
    pub detail: String,
}

impl Broken {
    /// Damage that one node shows by itself.
    pub(super) fn of_node(address: GlobalAddress, level: u8, seen: &Seen, invariant: &'static str) -> Self {
        let detail =
            format!("the node has version {} and names {} as its sibling", seen.version, seen.sibling);
        Self { address, level, invariant, from: Some(seen.low.clone()), to: seen.high.clone(), detail }
    }
}

impl Check {
    /// Whether every invariant holds.
    pub fn is_clean(&self) -> bool {
        self.broken_count == 0
    }

    /// The number of levels; a single leaf is one level.
    pub fn height(&self) -> usize {
        self.levels.len()
    }

    /// Nodes of all levels.
    pub fn nodes(&self) -> u64 {
        self.levels.iter().map(|level| level.nodes).sum()
    }

    /// Bytes of memory that all nodes and blocks take.
    pub fn bytes(&self) -> u64 {
        self.levels.iter().map(|level| level.bytes).sum::<u64>() + self.block_bytes
    }

    /// How full the leaves are, from 0 to 1.
    pub fn fill(&self) -> f64 {
        self.levels.first().map_or(0.0, |leaves| leaves.entries as f64 / (leaves.capacity as f64).max(1.0))
    }

    fn tell(&mut self, broken: Broken) {
        // The check can meet one place twice: along its level, and from above.
        let same = |known: &Broken| (known.address, known.invariant) == (broken.address, broken.invariant);
        if self.broken.iter().any(same) {
            return;
        }
        self.broken_count += 1;
        if self.broken.len() < MOST_REPORTED {
            self.broken.push(broken);
        }
    }
}

/// Blocks that the check reads at once.
const BLOCKS_AT_ONCE: usize = 32;

const I4: &str = "I4: the nodes of a level do not exceed the memory";
const I5: &str = "I5: a node's entries lie inside its fences";
const I6: &str = "I6: a key appears once";
const I8: &str = "I8: an internal node's first separator is its low fence";

/// A check under way.
struct Checker<'w, E: Endpoint> {
    worker: &'w Worker<E>,
    tree: &'w TreeState,
    check: Check,
    /// The last failure that left something undecided.
    last: Option<Error>,
    /// Called for every node.
    note: &'w mut dyn FnMut(GlobalAddress),
}

impl<E: Endpoint> Worker<E> {
    /// Visits every node of the tree, level by level. Checks the invariants of `docs/INVARIANTS.md` that a
    /// tree can show while others write to it. Costs one round trip per node, and a few more for every
    /// suspicion.
    ///
    /// # Errors
    /// Those of reading; damage to the tree is in the answer. [`Error::Timeout`] if nothing is broken, but a
    /// member kept some node locked, pending or torn for longer than the compute server's timeout.
    pub async fn check(&self, tree: &TreeState) -> Result<Check, Error> {
        self.check_noting(tree, &mut |_| ()).await
    }

    /// Does the work of [`Worker::check`] and calls `note` for every node that it visits.
    pub(crate) async fn check_noting(
        &self,
        tree: &TreeState,
        note: &mut dyn FnMut(GlobalAddress),
    ) -> Result<Check, Error> {
        tree.forget_root();
        let root = self.op().root(tree).await?;
        let mut checker = Checker { worker: self, tree, check: Check::default(), last: None, note };
        let mut names = Vec::new();
        for level in (0..=root.level).rev() {
            let above = std::mem::take(&mut names);
            let found = checker.level(level, &above, level == root.level, &mut names).await?;
            checker.check.levels.insert(0, found);
        }
        let Checker { mut check, last, .. } = checker;
        check.entries = check.levels.first().map_or(0, |leaves| leaves.entries);
        match last {
            Some(error) if check.is_clean() => Err(error),
            _ => Ok(check),
        }
    }
}

impl<E: Endpoint> Checker<'_, E> {
    /// Notes an obstacle that ends the walk at this point. An error other than a time-out ends the check.
    fn stopped(&mut self, obstacle: Obstacle) -> Result<(), Error> {
        match obstacle {
            Obstacle::Broken(broken) => self.check.tell(*broken),
            Obstacle::Moved | Obstacle::TooLow => {}
            Obstacle::Failed(error @ (Error::Timeout { .. } | Error::OwnerStalled { .. })) => {
                self.check.undecided += 1;
                if self.check.undecided > MOST_UNDECIDED && self.check.is_clean() {
                    return Err(error);
                }
                self.last = Some(error);
            }
            Obstacle::Failed(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether the check has waited so often that it stops walking and keeps what it has counted.
    fn is_tired(&self) -> bool {
        self.check.undecided > MOST_UNDECIDED
    }

    /// Walks one level. `above` holds the separators of the level above; `names` receives the separators of
    /// this level.
    async fn level(
        &mut self,
        level: u8,
        above: &[Name],
        top: bool,
        names: &mut Vec<Name>,
    ) -> Result<Level, Error> {
        let (worker, tree) = (self.worker, self.tree);
        let shape = tree.shape.at(level);
        let most = worker.compute.places(shape.node_bytes());
        let mut found = Level::default();
        let mut expected = above.iter().peekable();
        let mut cursor = vec![0; shape.key_len()];
        let mut next: Option<(Pointer, GlobalAddress)> = None;
        while !self.is_tired() {
            let along = next.is_some();
            let met = match next.take() {
                Some((pointer, address)) => {
                    let step = Step { pointer, address, level, low: &cursor };
                    worker.follow(tree, step, &cursor).await.map(|seen| (address, seen))
                }
                None => worker.seek(tree, level, &cursor).await,
            };
            let (address, seen) = match met {
                Ok(met) => met,
                Err(Obstacle::Moved) => continue,
                Err(Obstacle::TooLow) => break,
                Err(obstacle) => {
                    self.stopped(obstacle)?;
                    // A separator may lead where the sibling does not.
                    let beyond = |key: &Vec<u8>| *key > cursor || along && *key == cursor;
                    let Some((key, _)) = above.iter().find(|(key, _)| beyond(key)) else { break };
                    cursor.clone_from(key);
                    continue;
                }
            };
            while let Some((key, child)) = expected.next_if(|(key, _)| *key < seen.low) {
                self.name(level, key, *child).await?;
            }
            match expected.next_if(|(key, _)| *key == seen.low) {
                Some((_, child)) if *child == address => {}
                Some((key, child)) => self.name(level, key, *child).await?,
                None => self.check.missing_separators += u64::from(!top || found.nodes > 0),
            }
            self.node(level, address, &seen).await?;
            (self.note)(address);
            self.blocks(address, &seen).await?;
            found.nodes += 1;
            found.entries += seen.entries;
            found.capacity += seen.capacity;
            let broken = match ends_wrong(address, level, &seen) {
                None if found.nodes > most => Some(Broken::of_node(address, level, &seen, I4)),
                broken => broken,
            };
            let version = seen.version;
            names.extend(seen.names);
            if let Some(broken) = broken {
                self.check.tell(broken);
                let Some((key, _)) = above.iter().find(|(key, _)| *key > cursor) else { break };
                if found.nodes > most {
                    break;
                }
                cursor.clone_from(key);
                continue;
            }
            let Some(high) = seen.high else { break };
            cursor = high;
            next = Some((Pointer::Sibling { of: address, version }, seen.sibling));
        }
        while let Some((key, child)) = expected.next().filter(|_| !self.is_tired()) {
            self.name(level, key, *child).await?;
        }
        found.bytes = found.nodes * shape.node_bytes() as u64;
        Ok(found)
    }

    /// Checks that the parent's separator `key` leads to a node of `level` that begins at `key`, if the
    /// parent still has this separator.
    async fn name(&mut self, level: u8, key: &[u8], child: GlobalAddress) -> Result<(), Error> {
        if self.check.broken.iter().any(|broken| broken.address == child) {
            return Ok(());
        }
        for _ in 0..LOOKS {
            let (of, parent) = match self.worker.seek(self.tree, level + 1, key).await {
                Ok(found) => found,
                Err(obstacle) => return self.stopped(obstacle),
            };
            let Some((_, address)) = parent.names.iter().find(|(name, _)| name == key) else { return Ok(()) };
            let pointer = Pointer::Separator { of, version: parent.version };
            let step = Step { pointer, address: *address, level, low: key };
            match self.worker.follow(self.tree, step, key).await {
                Err(Obstacle::Moved) => {}
                Err(obstacle) => return self.stopped(obstacle),
                Ok(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Checks the blocks that the entries of a leaf refer to.
    async fn blocks(&mut self, address: GlobalAddress, seen: &Seen) -> Result<(), Error> {
        let (op, key_len) = (self.worker.op(), self.tree.shape.leaf.key_len());
        let mut blocks: Vec<(&[u8], BlockRef)> = Vec::new();
        for (key, slot) in &seen.slots {
            match block::read_slot(slot) {
                Some(Slot::Short(_)) => continue,
                Some(Slot::Long(block))
                    if self.worker.compute.check_pointer(block.address, block.bytes(key_len)).is_ok() =>
                {
                    blocks.push((key, block));
                }
                _ => self.check.tell(Broken::of_node(address, 0, seen, I56)),
            }
        }
        for some in blocks.chunks(BLOCKS_AT_ONCE) {
            let read = op.read_blocks(self.tree, some).await?;
            for (&(key, block), value) in some.iter().zip(read) {
                self.check.blocks += 1;
                self.check.block_bytes += block.class(key_len).map_or(0, |class| u64::from(class.node_bytes));
                self.check.value_bytes += u64::from(block.len);
                (self.note)(block.address);
                if value.is_none() {
                    self.suspect_block(key, block).await?;
                }
            }
        }
        Ok(())
    }

    /// Reports a block that stays damaged while the entry of `key` refers to it.
    async fn suspect_block(&mut self, key: &[u8], block: BlockRef) -> Result<(), Error> {
        let op = self.worker.op();
        for _ in 0..LOOKS {
            let mut slot = Vec::new();
            let there = op.get_slot(self.tree, key, &mut slot).await?;
            if !there || block::read_slot(&slot) != Some(Slot::Long(block)) {
                return Ok(());
            }
            if op.read_blocks(self.tree, &[(key, block)]).await?.iter().all(Option::is_some) {
                return Ok(());
            }
        }
        let detail = "the block is free, torn, or another one".to_owned();
        let (from, to) = (Some(key.to_vec()), None);
        let BlockRef { address, .. } = block;
        self.check.tell(Broken { address, level: 0, invariant: I59, from, to, detail });
        Ok(())
    }

    /// Checks what one node shows by itself.
    async fn node(&mut self, level: u8, address: GlobalAddress, seen: &Seen) -> Result<(), Error> {
        if !seen.ordered {
            self.check.tell(Broken::of_node(address, level, seen, I5));
        }
        if level > 0 && seen.names.first().is_none_or(|(key, _)| *key != seen.low) {
            self.check.tell(Broken::of_node(address, level, seen, I8));
        }
        if seen.single {
            return Ok(());
        }
        // Without the lane a key may show twice, if it was removed from one slot and inserted into another.
        let op = self.worker.op_within(LANE_PATIENCE.min(self.worker.compute.timeout()));
        let shape = self.tree.shape.at(level);
        let locked = match op.lock(address, shape.node_bytes(), None).await {
            Ok(locked) => locked,
            Err(error) => return self.stopped(Obstacle::Failed(error)),
        };
        let twice = Node::open(shape, locked.image(), level).is_ok_and(|node| {
            let mut entries = Vec::new();
            node.collect(&node.low(), None, &mut Scratch::default(), &mut entries);
            entries.len() / node.entry_len() != node.len()
        });
        op.release(locked.done(&op)).await?;
        if twice {
            self.check.tell(Broken::of_node(address, level, seen, I6));
        }
        Ok(())
    }
}
