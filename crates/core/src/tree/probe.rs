//! Reads a tree that may be damaged.
//!
//! An operation that meets an unexpected node waits: another client is changing the tree, or died during a
//! change and is being recovered. A probe must find out which of these it is, or that it is neither. It
//! follows one pointer. If the node there is not what the pointer promises, the following rules apply:
//!
//! - The probe reads the pointer again. If the pointer has changed, this was concurrency, and the probe
//!   begins again from the root.
//! - A **pending** node belongs to its maker, a **torn** node to the holder of its lane. While that client is
//!   a member (alive, or waiting for its recovery), the probe waits. Recovery repairs what a client left
//!   *before* the id is retired (I36). So a node that still waits for an id that no member has is damaged.
//! - Any other mismatch between a pointer and its node breaks an invariant at once. Writers change the
//!   pointer before they free the node (I28, I30, I31), and a node never changes its low fence.
//!
//! The probe reports damage only after it saw the same thing [`LOOKS`] times.

use super::TreeState;
use super::descend::VERSION_CYCLE;
use crate::cache::child_address;
use crate::cause::Cause;
use crate::error::Error;
use crate::node::{Header, LINE, Node, Position, Reject, Scratch, SortedBody, get_u64};
use crate::op::Op;
use crate::root::RootWord;
use crate::tree::check::Broken;
use crate::worker::Worker;
use sherman_fabric::{ComputeId, Endpoint, FabricError, GlobalAddress, Space};

/// How many times a probe must see the same damage before it reports it.
const LOOKS: u32 = 4;
/// The first and the longest pause between two looks.
const PAUSES_NANOS: (u64, u64) = (100_000, 8_000_000);

const I1: &str = "I1: a pointer names memory of the cluster";
const I2: &str = "I2: the root word names a linked node with the lowest low fence";
const I3: &str = "I3: a linked node is valid when no client holds its lane";
const I4: &str = "I4: a node's low fence is its left neighbour's high fence";
const I7: &str = "I7: a separator leads to the node whose low fence it is";
const I8: &str = "I8: an internal node's first separator is its low fence";
const I9: &str = "I9: a node with a high fence has a sibling";
const I10: &str = "I10: a sibling is a node of the same tree and level";
const I13: &str = "I13: a pending node has a maker that is a member";

/// A separator and the child it names.
pub(super) type Name = (Vec<u8>, GlobalAddress);

/// Why a probe returns no node.
#[derive(Debug)]
pub(crate) enum Obstacle {
    /// The pointer changed meanwhile: begin again.
    Moved,
    /// The tree is not that high any more.
    TooLow,
    /// The node is damaged.
    Broken(Box<Broken>),
    /// The probe failed, so the state of the node is unknown.
    Failed(Error),
}

impl From<Error> for Obstacle {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<FabricError> for Obstacle {
    fn from(error: FabricError) -> Self {
        Self::Failed(error.into())
    }
}

/// The pointer that led to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pointer {
    /// The root word.
    Root,
    /// The sibling pointer of a node of the same level, at this version.
    Sibling { of: GlobalAddress, version: u16 },
    /// A separator of a node one level above, at this version.
    Separator { of: GlobalAddress, version: u16 },
}

/// The decoded parts of a node.
pub(crate) struct Seen {
    pub low: Vec<u8>,
    pub high: Option<Vec<u8>>,
    pub sibling: GlobalAddress,
    pub version: u16,
    /// Entries from the cursor on.
    pub entries: u64,
    /// The most entries the node can hold.
    pub capacity: u64,
    pub names: Vec<Name>,
    /// Whether a sorted body ascends and lies inside the fences.
    pub ordered: bool,
    /// Whether each key appears once.
    pub single: bool,
    /// Key and slot of each entry of a leaf whose entries may refer to blocks.
    pub slots: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Seen {
    fn of(node: &Node<'_>, cursor: &[u8], scratch: &mut Scratch, has_blocks: bool) -> Option<Self> {
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
            slots: if has_blocks && node.header.level == 0 { node.entries() } else { Vec::new() },
            entries: entries as u64,
            capacity: node.capacity() as u64,
            ordered: body.as_ref().is_none_or(|body| is_ordered(node, body)),
            single: node.position(cursor) != Position::Inside
                || node.low() != cursor
                || entries == node.len(),
            names: match body {
                Some(body) if node.header.level > 0 => {
                    (0..body.len()).map(|at| (body.key(at).to_vec(), child_address(&body, at))).collect()
                }
                _ => Vec::new(),
            },
        })
    }

    /// Returns the last separator that is not above `key`.
    fn responsible(&self, key: &[u8]) -> Option<&Name> {
        self.names.iter().rev().find(|(separator, _)| separator.as_slice() <= key)
    }
}

/// Whether a sorted body ascends and lies inside the fences.
fn is_ordered(node: &Node<'_>, body: &SortedBody) -> bool {
    (1..body.len()).all(|at| body.key(at - 1) < body.key(at))
        && (0..body.len()).all(|at| node.position(body.key(at)) == Position::Inside)
}

/// What a READ found at an address.
enum Look {
    Whole(Box<Seen>),
    Not(Trouble),
}

/// The fault of a node that a pointer names. Two equal values are the same fault, seen twice.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Trouble {
    /// The pointer names no memory.
    Nowhere,
    /// No node of this tree and level is there.
    Other,
    Free(Header),
    Pending(Header),
    Torn(Vec<u8>),
    /// The node has another low fence.
    Begins(Vec<u8>),
}

impl Trouble {
    fn cause(&self) -> Cause {
        match self {
            Self::Nowhere | Self::Other | Self::Free(_) | Self::Begins(_) => Cause::StalePointer,
            Self::Pending(_) => Cause::NodePending,
            Self::Torn(_) => Cause::TornNode,
        }
    }

    /// Returns the broken invariant, and a description of the fault.
    fn verdict(&self, pointer: Pointer) -> (&'static str, String) {
        let link = match pointer {
            Pointer::Root => I2,
            Pointer::Sibling { .. } => I10,
            Pointer::Separator { .. } => I7,
        };
        let by = match pointer {
            Pointer::Root => "the root word names it".to_owned(),
            Pointer::Sibling { of, .. } => format!("it is the sibling of the node at {of}"),
            Pointer::Separator { of, .. } => format!("a separator of the node at {of} names it"),
        };
        match self {
            Self::Nowhere => (I1, format!("the cluster has no such memory, but {by}")),
            Self::Other => (link, format!("no node of this tree and level is there, but {by}")),
            Self::Free(header) => (link, format!("client {} freed the node, but {by}", header.owner)),
            Self::Pending(header) => {
                (I13, format!("the node's maker, client {}, is not a member, but {by}", header.owner))
            }
            Self::Torn(_) => (I3, format!("the node stays torn and no member holds its lane, but {by}")),
            Self::Begins(_) if matches!(pointer, Pointer::Sibling { .. }) => {
                (I4, format!("the node begins elsewhere, but {by}"))
            }
            Self::Begins(_) => (link, format!("the node begins at another key, but {by}")),
        }
    }
}

/// A step of a probe: a pointer, the node that it names, and what the pointer promises about that node.
#[derive(Clone, Copy)]
pub(super) struct Step<'k> {
    pub pointer: Pointer,
    pub address: GlobalAddress,
    pub level: u8,
    /// The node's low fence.
    pub low: &'k [u8],
}

impl<E: Endpoint> Worker<E> {
    /// Reads the node that a pointer names. Counts its entries from `cursor` on.
    pub(super) async fn follow(
        &self,
        tree: &TreeState,
        step: Step<'_>,
        cursor: &[u8],
    ) -> Result<Seen, Obstacle> {
        let op = self.op();
        let (mut same, mut last, mut pause) = (0, None, PAUSES_NANOS.0);
        loop {
            let trouble = match self.look(&op, tree, step.address, step.level, cursor).await? {
                Look::Whole(seen) if seen.low == step.low => return Ok(*seen),
                Look::Whole(seen) => Trouble::Begins(seen.low),
                Look::Not(trouble) => trouble,
            };
            if !self.still_points(&op, tree, &step).await? {
                return Err(Obstacle::Moved);
            }
            let excused = self.is_excused(&op, step.address, &trouble).await?;
            same = if !excused && last.as_ref() == Some(&trouble) { same + 1 } else { u32::from(!excused) };
            if same >= LOOKS {
                let (invariant, detail) = trouble.verdict(step.pointer);
                let from = Some(step.low.to_vec());
                let Step { address, level, .. } = step;
                return Err(Obstacle::Broken(Box::new(Broken {
                    address,
                    level,
                    invariant,
                    from,
                    to: None,
                    detail,
                })));
            }
            op.note(trouble.cause())?;
            last = Some(trouble);
            sherman_fabric::sleep_until(&self.endpoint, self.endpoint.now().saturating_add(pause)).await;
            pause = (2 * pause).min(PAUSES_NANOS.1);
        }
    }

    /// Reads the node at an address once.
    async fn look(
        &self,
        op: &Op<'_, E>,
        tree: &TreeState,
        address: GlobalAddress,
        level: u8,
        cursor: &[u8],
    ) -> Result<Look, Error> {
        let shape = tree.shape.at(level);
        if self.compute.check_pointer(address, shape.node_bytes()).is_err() {
            return Ok(Look::Not(Trouble::Nowhere));
        }
        let patience = self.compute.caps().shortest_write_nanos * VERSION_CYCLE;
        let posted = if op.times_reads(shape) { self.endpoint.now() } else { u64::MAX };
        let mut list = self.endpoint.list(address.server());
        let read = list.read(Space::Host, address.offset(), shape.node_bytes() as u32);
        let list = op.execute(list).await?;
        let image = list.bytes(read);
        let header = || Header::decode(image);
        let look = match Node::open(shape, image, level) {
            Ok(_) if self.endpoint.now().saturating_sub(posted) > patience => {
                Look::Not(Trouble::Torn(Vec::new()))
            }
            Ok(node) => match Seen::of(&node, cursor, &mut Scratch::default(), tree.has_blocks()) {
                Some(seen) => Look::Whole(Box::new(seen)),
                None => Look::Not(Trouble::Torn(image.to_vec())),
            },
            Err(Reject::Torn) => Look::Not(Trouble::Torn(image.to_vec())),
            Err(Reject::Pending) => Look::Not(header().map_or(Trouble::Other, Trouble::Pending)),
            Err(Reject::Free) => Look::Not(header().map_or(Trouble::Other, Trouble::Free)),
            Err(Reject::NotThis) => Look::Not(Trouble::Other),
        };
        self.endpoint.recycle(list);
        Ok(look)
    }

    /// Reads the low fence of the node at an address. Returns `None` if no whole node of the tree and level
    /// is there.
    pub(crate) async fn low_fence(
        &self,
        op: &Op<'_, E>,
        tree: &TreeState,
        address: GlobalAddress,
        level: u8,
    ) -> Result<Option<Vec<u8>>, Error> {
        let cursor = vec![0; tree.shape.leaf.key_len()];
        Ok(match self.look(op, tree, address, level, &cursor).await? {
            Look::Whole(seen) => Some(seen.low),
            Look::Not(_) => None,
        })
    }

    /// Whether the pointer still names the address.
    async fn still_points(&self, op: &Op<'_, E>, tree: &TreeState, step: &Step<'_>) -> Result<bool, Error> {
        let (of, version) = match step.pointer {
            Pointer::Root => {
                // The word's place may belong to another tree by now.
                op.ask_for_tree(tree).await?;
                tree.forget_root();
                let root = op.root(tree).await?;
                return Ok((root.address, root.level) == (step.address, step.level));
            }
            Pointer::Sibling { of, version } | Pointer::Separator { of, version } => (of, version),
        };
        let bytes = op.read_bytes(of, LINE as u32).await?;
        let (level, is_sibling) = match step.pointer {
            Pointer::Sibling { .. } => (step.level, true),
            _ => (step.level.saturating_add(1), false),
        };
        Ok(Header::decode(&bytes).is_some_and(|header| {
            (header.tree, header.level, header.version) == (tree.info.id, level, version)
                && !header.flags.free
                && (!is_sibling || header.sibling == step.address)
        }))
    }

    /// Whether a member may still repair the node, or still waits for its recovery.
    async fn is_excused(
        &self,
        op: &Op<'_, E>,
        address: GlobalAddress,
        trouble: &Trouble,
    ) -> Result<bool, Error> {
        let client = match trouble {
            Trouble::Pending(header) => header.owner,
            Trouble::Torn(image) if image.is_empty() => return Ok(true),
            Trouble::Torn(_) => self.lane_holder(op, address).await?,
            _ => return Ok(false),
        };
        if client == ComputeId::NOBODY {
            return Ok(false);
        }
        op.suspect(client);
        Ok(self.members().await?.iter().any(|member| member.client == client))
    }

    /// Returns the holder of the lane of the node at `address`.
    pub(crate) async fn lane_holder(
        &self,
        op: &Op<'_, E>,
        address: GlobalAddress,
    ) -> Result<ComputeId, Error> {
        let geometry = self.compute.geometry_of(address.server());
        let (space, word, mask, shift) = geometry.lane_word(geometry.lane_of(address));
        let mut list = self.endpoint.list(address.server());
        let read = list.read(space, word, 8);
        let list = op.execute(list).await?;
        let bits = get_u64(list.bytes(read), 0);
        self.endpoint.recycle(list);
        Ok(ComputeId(((bits & mask) >> shift) as u16))
    }

    /// Finds the node at `level` that covers `cursor`, with a descent that uses no cache.
    pub(crate) async fn seek(
        &self,
        tree: &TreeState,
        level: u8,
        cursor: &[u8],
    ) -> Result<(GlobalAddress, Seen), Obstacle> {
        let op = self.op();
        loop {
            match self.seek_once(&op, tree, level, cursor).await {
                Err(Obstacle::Moved) => op.retry(Cause::StalePointer).await?,
                found => return found,
            }
        }
    }

    async fn seek_once(
        &self,
        op: &Op<'_, E>,
        tree: &TreeState,
        level: u8,
        cursor: &[u8],
    ) -> Result<(GlobalAddress, Seen), Obstacle> {
        tree.forget_root();
        let root: RootWord = op.root(tree).await?;
        if root.level < level {
            return Err(Obstacle::TooLow);
        }
        let mut low = vec![0; cursor.len()];
        let (mut pointer, mut address, mut at) = (Pointer::Root, root.address, root.level);
        loop {
            let seen = self.follow(tree, Step { pointer, address, level: at, low: &low }, cursor).await?;
            let version = seen.version;
            if let Some(broken) = ends_wrong(address, at, &seen) {
                return Err(Obstacle::Broken(Box::new(broken)));
            }
            if seen.high.as_deref().is_some_and(|high| high <= cursor) {
                low = seen.high.unwrap_or_default();
                (pointer, address) = (Pointer::Sibling { of: address, version }, seen.sibling);
            } else if at == level {
                return Ok((address, seen));
            } else if let Some((key, child)) = seen.responsible(cursor) {
                low.clone_from(key);
                (pointer, address, at) = (Pointer::Separator { of: address, version }, *child, at - 1);
            } else {
                return Err(Obstacle::Broken(Box::new(Broken::of_node(address, at, &seen, I8))));
            }
        }
    }
}

/// Returns the fault at a node's high end, if there is one.
pub(super) fn ends_wrong(address: GlobalAddress, level: u8, seen: &Seen) -> Option<Broken> {
    let high = seen.high.as_ref()?;
    match () {
        () if seen.sibling.is_null() => Some(Broken::of_node(address, level, seen, I9)),
        () if *high <= seen.low => Some(Broken::of_node(address, level, seen, I4)),
        () => None,
    }
}

impl<E: Endpoint> Op<'_, E> {
    /// Reads bytes of memory.
    pub(crate) async fn read_bytes(&self, address: GlobalAddress, bytes: u32) -> Result<Vec<u8>, Error> {
        self.worker.compute.check_pointer(address, bytes as usize)?;
        let mut list = self.endpoint().list(address.server());
        let read = list.read(Space::Host, address.offset(), bytes);
        let list = self.execute(list).await?;
        let image = list.bytes(read).to_vec();
        self.endpoint().recycle(list);
        Ok(image)
    }
}
