//! Verifying a tree while others write to it.
//!
//! Every level is walked from left to right along its siblings, and every separator compared with the node it names. What
//! looks wrong in two READs may only be two moments; so a suspicion about two nodes is confirmed by reading them again with
//! the first one's version the same before and after the second, and about the entries of one under its lane. Only what is
//! confirmed is reported, by its number in `docs/INVARIANTS.md`.

use super::TreeState;
use crate::cache::child_address;
use crate::error::Error;
use crate::node::{Node, Position, Scratch, SortedBody};
use crate::worker::Worker;
use sherman_fabric::{Endpoint, GlobalAddress};

/// Broken invariants that are told one by one; more are only counted.
const MOST_TOLD: usize = 100;
/// How often a suspicion is looked into before it is left open: the tree keeps changing there.
const LOOKS: usize = 8;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Entries of all leaves.
    pub entries: u64,
    /// Every level, leaves first.
    pub levels: Vec<Level>,
    /// Nodes that are reached through their left neighbour alone: legal, but slow.
    pub missing_separators: u64,
    /// Broken invariants, the first hundred.
    pub broken: Vec<Broken>,
    /// All of them, counted.
    pub broken_count: u64,
}

/// One level of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Nodes.
    pub nodes: u64,
    /// Entries or separators in them.
    pub entries: u64,
    /// Entries that would fit.
    pub capacity: u64,
    /// Bytes of memory the nodes take.
    pub bytes: u64,
}

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Where.
    pub address: GlobalAddress,
    /// On which level.
    pub level: u8,
    /// Which: its number and what it says.
    pub invariant: &'static str,
}

impl Check {
    /// Whether every invariant holds.
    pub fn is_clean(&self) -> bool {
        self.broken_count == 0
    }

    /// Levels, a lone leaf being one.
    pub fn height(&self) -> usize {
        self.levels.len()
    }

    /// Nodes of all levels.
    pub fn nodes(&self) -> u64 {
        self.levels.iter().map(|level| level.nodes).sum()
    }

    /// Bytes of memory that all nodes take.
    pub fn bytes(&self) -> u64 {
        self.levels.iter().map(|level| level.bytes).sum()
    }

    /// How full the leaves are, from 0 to 1.
    pub fn fill(&self) -> f64 {
        self.levels.first().map_or(0.0, |leaves| leaves.entries as f64 / (leaves.capacity as f64).max(1.0))
    }

    fn tell(&mut self, address: GlobalAddress, level: u8, invariant: &'static str) {
        self.broken_count += 1;
        if self.broken.len() < MOST_TOLD {
            self.broken.push(Broken { address, level, invariant });
        }
    }
}

const I4: &str = "I4: a node's low fence is its left neighbour's high fence";
const I5: &str = "I5: a node's entries lie inside its fences";
const I6: &str = "I6: a key appears once";
const I7: &str = "I7: a separator leads to the node whose low fence it is";
const I8: &str = "I8: an internal node's first separator is its low fence";
const I9: &str = "I9: a node with a high fence has a sibling";

/// A separator and the child it names.
type Name = (Vec<u8>, GlobalAddress);

/// A node, taken apart.
struct Seen {
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    sibling: GlobalAddress,
    version: u16,
    /// Entries from the cursor on.
    entries: u64,
    names: Vec<Name>,
    ordered: bool,
    single: bool,
}

impl Seen {
    fn of(node: &Node<'_>, cursor: &[u8], scratch: &mut Scratch) -> Option<Self> {
        let mut entries = Vec::new();
        if !node.collect(cursor, None, scratch, &mut entries) {
            return None;
        }
        let entries = entries.len() / node.entry_len();
        let body = node.sorted();
        Some(Self {
            low: node.low(),
            high: node.high(),
            sibling: node.header.sibling,
            version: node.header.version,
            entries: entries as u64,
            ordered: body.as_ref().is_none_or(|body| is_ordered(node, body)),
            single: node.position(cursor) != Position::Inside || node.low() != cursor || entries == node.len(),
            names: match body {
                Some(body) if node.header.level > 0 => {
                    (0..body.len()).map(|at| (body.key(at).to_vec(), child_address(&body, at))).collect()
                }
                _ => Vec::new(),
            },
        })
    }
}

/// Whether a sorted body ascends and lies inside the fences.
fn is_ordered(node: &Node<'_>, body: &SortedBody) -> bool {
    (1..body.len()).all(|at| body.key(at - 1) < body.key(at))
        && (0..body.len()).all(|at| node.position(body.key(at)) == Position::Inside)
}

impl<E: Endpoint> Worker<E> {
    /// Visits every node of the tree, level by level, and checks the invariants of `docs/INVARIANTS.md` that a tree can show
    /// while others write to it. One round trip per node, and a few for every suspicion.
    ///
    /// # Errors
    /// Those of reading: what is wrong with the tree is in the answer. `timeout` is per node.
    pub async fn check(&self, tree: &TreeState) -> Result<Check, Error> {
        let mut check = Check::default();
        tree.forget_root();
        let root = self.op().root(tree).await?;
        let mut names = Vec::new();
        for level in (0..=root.level).rev() {
            let above = std::mem::take(&mut names);
            let top = level == root.level;
            let found = self.check_level(tree, level, &above, top, &mut names, &mut check).await?;
            check.levels.insert(0, found);
        }
        check.entries = check.levels.first().map_or(0, |leaves| leaves.entries);
        Ok(check)
    }

    /// Walks one level. `above` is what the level above names, `names` receives what this one does.
    async fn check_level(
        &self,
        tree: &TreeState,
        level: u8,
        above: &[Name],
        top: bool,
        names: &mut Vec<Name>,
        check: &mut Check,
    ) -> Result<Level, Error> {
        let shape = tree.shape.at(level);
        let mut found = Level::default();
        let mut expected = above.iter().peekable();
        let mut scratch = Scratch::default();
        let mut cursor = vec![0; shape.key_len()];
        let mut at = None;
        loop {
            let (address, seen) = self.seek(tree, level, &cursor, at, &mut scratch).await?;
            if seen.low != cursor && found.nodes > 0 && self.overlaps(tree, level, &cursor, address).await? {
                check.tell(address, level, I4);
            }
            for (key, child) in std::iter::from_fn(|| expected.next_if(|(key, _)| *key < seen.low)) {
                self.check_name(tree, level, key, *child, check).await?;
            }
            match expected.next_if(|(key, _)| *key == seen.low) {
                Some((_, child)) if *child == address => {}
                Some((key, child)) => self.check_name(tree, level, key, *child, check).await?,
                None => check.missing_separators += u64::from(!top || found.nodes > 0),
            }
            self.check_node(tree, level, address, &seen, check).await?;
            found.nodes += 1;
            found.entries += seen.entries;
            names.extend(seen.names);
            let Some(high) = seen.high else { break };
            if high <= cursor || seen.sibling.is_null() {
                check.tell(address, level, if seen.sibling.is_null() { I9 } else { I4 });
                break;
            }
            cursor = high;
            at = Some(seen.sibling);
        }
        for (key, child) in expected {
            self.check_name(tree, level, key, *child, check).await?;
        }
        found.capacity = found.nodes * shape.capacity() as u64;
        found.bytes = found.nodes * shape.node_bytes() as u64;
        Ok(found)
    }

    /// The node at `level` that covers `cursor`: the one at `at` if it does, else by a new descent.
    async fn seek(
        &self,
        tree: &TreeState,
        level: u8,
        cursor: &[u8],
        at: Option<GlobalAddress>,
        scratch: &mut Scratch,
    ) -> Result<(GlobalAddress, Seen), Error> {
        let op = self.op();
        let mut at = at;
        loop {
            let address = match at.take() {
                Some(address) => address,
                None => op
                    .locate(tree, cursor, level)
                    .await?
                    .ok_or(Error::Corrupt { address: GlobalAddress::NULL, invariant: "I2: a tree has leaves" })?,
            };
            let seen = op.visit(tree, address, level, |node| {
                Ok(match node.position(cursor) {
                    Position::Inside => Ok(Seen::of(node, cursor, scratch).ok_or(crate::cause::Cause::TornEntry)?),
                    Position::Right => Err(Some(node.header.sibling)),
                    Position::Left => Err(None),
                })
            });
            match seen.await? {
                Some(Ok(seen)) => return Ok((address, seen)),
                Some(Err(Some(sibling))) => {
                    op.note(crate::cause::Cause::MovedRight)?;
                    at = Some(sibling);
                }
                Some(Err(None)) | None => op.lost(tree, cursor, level).await?,
            }
        }
    }

    /// Whether the left neighbour of the node at `address` really ends at `cursor` although that node begins elsewhere.
    async fn overlaps(
        &self,
        tree: &TreeState,
        level: u8,
        cursor: &[u8],
        address: GlobalAddress,
    ) -> Result<bool, Error> {
        let mut left = cursor.to_vec();
        if !super::range::step_down(&mut left) {
            return Ok(false);
        }
        let mut scratch = Scratch::default();
        for _ in 0..LOOKS {
            let (at, first) = self.seek(tree, level, &left, None, &mut scratch).await?;
            if first.high.as_deref() != Some(cursor) || first.sibling != address {
                return Ok(false);
            }
            let op = self.op();
            let begins = op.visit(tree, address, level, |node| Ok(node.low() == cursor)).await?;
            let (again, second) = self.seek(tree, level, &left, None, &mut scratch).await?;
            if (again, second.version) == (at, first.version) {
                return Ok(begins != Some(true));
            }
        }
        Ok(false)
    }

    /// Whether the parent's separator `key` leads where it says.
    async fn check_name(
        &self,
        tree: &TreeState,
        level: u8,
        key: &[u8],
        child: GlobalAddress,
        check: &mut Check,
    ) -> Result<(), Error> {
        for _ in 0..LOOKS {
            let op = self.op();
            let name = |_: GlobalAddress, node: &Node<'_>, body: &SortedBody| {
                let found = body.find(key).ok().map(|at| child_address(body, at));
                Some((node.header.version, found))
            };
            let Some(first) = op.visit_covering(tree, key, level + 1, name).await? else { return Ok(()) };
            let Some(named) = first.1 else { return Ok(()) };
            let leads = op.visit(tree, named, level, |node| Ok(node.low() == key)).await?;
            if leads == Some(true) {
                return Ok(());
            }
            if op.visit_covering(tree, key, level + 1, name).await? == Some(first) {
                check.tell(child, level, I7);
                return Ok(());
            }
        }
        Ok(())
    }

    /// What one node shows by itself.
    async fn check_node(
        &self,
        tree: &TreeState,
        level: u8,
        address: GlobalAddress,
        seen: &Seen,
        check: &mut Check,
    ) -> Result<(), Error> {
        if !seen.ordered {
            check.tell(address, level, I5);
        }
        if level > 0 && seen.names.first().is_none_or(|(key, _)| *key != seen.low) {
            check.tell(address, level, I8);
        }
        if seen.single {
            return Ok(());
        }
        // A key that is removed here and inserted there may show twice without the lane.
        let op = self.op();
        let shape = tree.shape.at(level);
        let locked = op.lock(address, shape.node_bytes(), None).await?;
        let twice = Node::open(shape, locked.image(), level).is_ok_and(|node| {
            let mut entries = Vec::new();
            node.collect(&node.low(), None, &mut Scratch::default(), &mut entries);
            entries.len() / node.entry_len() != node.len()
        });
        op.release(locked.done(&op)).await?;
        if twice {
            check.tell(address, level, I6);
        }
        Ok(())
    }
}
