//! A small cluster with a tree, and functions that corrupt its memory.

use crate::node::seal;
use crate::source::Source;
use crate::virtual_time::VirtualTime;
use sherman_core::root::RootWord;
use sherman_core::{ComputeOptions, ComputeServer, Format, Techniques, TreeState, Worker};
use sherman_embedded::{Atomicity, EmbeddedCluster, EmbeddedEndpoint, EmbeddedOptions};
use sherman_executor::block_on;
use sherman_fabric::control::TreeSpec;
use sherman_fabric::{GlobalAddress, Memory, Space};
use sherman_layout::{FormatOptions, Geometry, LockOptions};
use std::sync::Arc;
use std::time::Duration;

/// Number of memory servers.
pub(crate) const SERVERS: u16 = 2;
/// Number of lock lanes of each memory server.
pub(crate) const LANES: u32 = 16;
/// Size of a node in bytes.
pub(crate) const NODE: usize = 256;
const AT_SIBLING: usize = 16;
/// How long an operation may wait, in virtual time.
const TIMEOUT: Duration = Duration::from_micros(500);
/// More lists than any operation can post before its deadline: a thousand clock reads take two milliseconds.
/// A check of the whole tree has one deadline per node.
pub(crate) const MOST_LISTS: u64 = 1_000_000;

/// A compute server on the fixture's cluster.
pub(crate) type FixtureWorker = Worker<VirtualTime<EmbeddedEndpoint>>;

/// A cluster, a compute server that created a tree, and the addresses of the tree's nodes.
pub(crate) struct Fixture {
    pub cluster: Arc<EmbeddedCluster>,
    pub worker: FixtureWorker,
    pub tree: Arc<TreeState>,
    pub geometry: Geometry,
    /// Node addresses, as of the last `find_nodes`.
    pub nodes: Vec<GlobalAddress>,
}

/// Adds a compute server to `cluster`.
pub(crate) fn join(cluster: &Arc<EmbeddedCluster>, techniques: Techniques) -> FixtureWorker {
    let endpoint = VirtualTime::new(cluster.join().expect("room for a member").endpoint());
    let options =
        ComputeOptions { techniques, timeout: TIMEOUT, cache_bytes: 64 << 10, ..ComputeOptions::default() };
    let compute = block_on(&endpoint, ComputeServer::open(&endpoint, options)).expect("a sound cluster");
    Worker::new(endpoint, compute)
}

impl Fixture {
    /// Creates a cluster whose members have a lease of `lease_nanos`, and a tree with some entries.
    pub(crate) fn new(source: &mut Source<'_>, lease_nanos: u64) -> Self {
        let format = source.pick(&[
            Format::LineStamped,
            Format::LineHashed,
            Format::Sorted,
            Format::SortedStamped,
            Format::TwoLevel,
        ]);
        let techniques =
            source.pick(&[Techniques::OURS, Techniques::OURS, Techniques::SHERMAN, Techniques::NONE]);
        let options = EmbeddedOptions {
            servers: SERVERS,
            memory_bytes: 128 << 10,
            on_chip_bytes: 256,
            format: FormatOptions {
                chunk_bytes: 8 << 10,
                redo_slot_bytes: 512,
                redo_area_bytes: 4096,
                member_capacity: 16,
                catalog_capacity: 4,
                locks: LockOptions { lanes: Some(LANES), ..LockOptions::default() },
                lease_nanos,
                ..FormatOptions::default()
            },
            atomicity: if format == Format::TwoLevel { Atomicity::Verb } else { Atomicity::Line },
        };
        let cluster = EmbeddedCluster::new(options).expect("a cluster this small");
        let worker = join(&cluster, techniques);
        let geometry = *worker.compute().geometry();
        let bytes = NODE as u32;
        let spec = TreeSpec {
            format: format.number(),
            key_len: 8,
            value_len: 8,
            leaf_bytes: bytes,
            internal_bytes: bytes,
        };
        let tree = block_on(worker.endpoint(), worker.tree("t", &spec)).expect("a sound cluster");
        let fixture = Self { cluster, worker, tree, geometry, nodes: Vec::new() };
        for number in 0..source.below(160) as u64 {
            // Scattered keys, so that some leaves are not full.
            let key = (number * 97 % 256).to_be_bytes();
            let inserted = block_on(fixture.worker.endpoint(), async {
                fixture.worker.op().insert(&fixture.tree, &key, &[1; 8], &mut Vec::new()).await
            });
            inserted.expect("a sound tree");
        }
        fixture
    }

    /// Finds every place in memory that has the mark of a node.
    pub(crate) fn find_nodes(&mut self) {
        self.nodes.clear();
        for server in 0..SERVERS {
            let memory = self.cluster.memory(server).expect("it has so many servers");
            for place in 0..(u64::from(self.geometry.chunks) * self.geometry.chunk_bytes) / NODE as u64 {
                let offset = self.geometry.chunks_offset + place * NODE as u64;
                let mut first = [0; 1];
                memory.load(Space::Host, offset, &mut first);
                if first[0] & 0xf0 == 0xa0 {
                    self.nodes.push(GlobalAddress::new(server, offset));
                }
            }
        }
    }

    pub(crate) fn some_node(&self, source: &mut Source<'_>) -> GlobalAddress {
        if self.nodes.is_empty() { GlobalAddress::NULL } else { self.nodes[source.below(self.nodes.len())] }
    }

    fn load(&self, node: GlobalAddress) -> Vec<u8> {
        let mut image = vec![0; NODE];
        self.cluster.memory(node.server()).expect("found there").load(Space::Host, node.offset(), &mut image);
        image
    }

    /// Corrupts one thing.
    pub(crate) fn damage(&self, source: &mut Source<'_>) {
        let (what, victim) = (source.byte(), self.some_node(source));
        if victim.is_null() {
            return;
        }
        let mut image = self.load(victim);
        match what & 7 {
            0 | 1 => source.damage(&mut image),
            2 => {
                let sibling = self.some_node(source).to_bits();
                image[AT_SIBLING..AT_SIBLING + 8].copy_from_slice(&sibling.to_le_bytes());
            }
            3 => image = self.load(self.some_node(source)),
            // Child addresses lie at odd multiples of 8 from some offset on. This also hits fences and keys.
            4 => {
                let (at, child) = (8 * source.below(NODE / 8), self.some_node(source).to_bits());
                image[at..at + 8].copy_from_slice(&child.to_le_bytes());
            }
            // Level, flags, count.
            5 => image[2 + source.below(6)] = source.byte() & 7,
            6 => return self.take_lane(victim, source.u16()),
            _ => return self.move_root(victim, source),
        }
        if what & 0x10 != 0 {
            let level = image[2];
            seal(self.tree.shape().at(level), &mut image, level, false);
        }
        self.cluster.memory(victim.server()).expect("found there").store(
            Space::Host,
            victim.offset(),
            &image,
        );
    }

    /// Makes client `by` the holder of the node's lane.
    pub(crate) fn take_lane(&self, node: GlobalAddress, by: u16) {
        let (space, word, mask, shift) = self.geometry.lane_word(self.geometry.lane_of(node));
        let memory = self.cluster.memory(node.server()).expect("found there");
        let old = memory.load_u64(space, word);
        memory.store_u64(space, word, old & !mask | u64::from(by) << shift);
    }

    /// Points the root word at `node`, or at an arbitrary address.
    pub(crate) fn move_root(&self, node: GlobalAddress, source: &mut Source<'_>) {
        let level = source.byte() & 0x3f;
        let bits = if level & 1 == 0 {
            RootWord { address: node, level: level >> 1 & 3 }.to_bits()
        } else {
            source.u64() >> (level & 0x30)
        };
        let at = self.tree.info().root_word;
        self.cluster.memory(at.server()).expect("its volume").store_u64(Space::Host, at.offset(), bits);
    }
}
