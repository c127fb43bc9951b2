//! A whole tree whose memory lies: every operation ends, in an answer or in a typed error.
//!
//! A tree is grown on embedded memory; then nodes are overwritten, copied over each other and made to point anywhere, lanes
//! are taken by nobody and the root word leads elsewhere, between operations of all kinds. Nothing is asked of the answers:
//! who is lied to may lie. What must not happen is a panic, an operation that ends neither by its deadline nor otherwise,
//! or a verb outside the memory: the fabric would refuse it, and that refusal is not among the errors that are let pass.

use crate::Reached;
use crate::hasty::Hasty;
use crate::node::seal;
use crate::source::Source;
use sherman_core::root::RootWord;
use sherman_core::{ComputeOptions, ComputeServer, Direction, Error, Format, Loading, Techniques, TreeState, Worker};
use sherman_embedded::{Atomicity, EmbeddedCluster, EmbeddedEndpoint, EmbeddedOptions};
use sherman_executor::block_on;
use sherman_fabric::control::TreeSpec;
use sherman_fabric::{GlobalAddress, Memory, Space};
use sherman_memory_server::{FormatOptions, Geometry, LockOptions};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

const SERVERS: u16 = 2;
const LANES: u32 = 16;
const NODE: usize = 256;
const AT_SIBLING: usize = 16;
/// How long an operation may wait, in virtual time.
const TIMEOUT: Duration = Duration::from_millis(2);
/// More lists than any operation can post before its deadline: a thousand looks at the clock make a millisecond. A check of
/// the whole tree has a deadline for each node.
const MOST_LISTS: u64 = 1_000_000;
/// Rounds of damage and operations.
const ROUNDS: usize = 6;

type Endpoint = Hasty<EmbeddedEndpoint>;

struct Lab {
    cluster: Arc<EmbeddedCluster>,
    worker: Worker<Endpoint>,
    tree: Arc<TreeState>,
    geometry: Geometry,
    /// Where nodes are, or were when last looked for.
    nodes: Vec<GlobalAddress>,
}

/// Runs one input.
pub fn run(input: &[u8]) -> Reached {
    let mut source = Source::new(input);
    let mut lab = Lab::new(&mut source);
    let mut reached = Reached::Refused;
    for _ in 0..ROUNDS {
        lab.find_nodes();
        for _ in 0..source.below(4) {
            lab.damage(&mut source);
        }
        for _ in 0..=source.below(8) {
            lab.worker.endpoint().allow(MOST_LISTS);
            match lab.operate(&mut source) {
                Ok(()) => {}
                Err(
                    Error::Corrupt { .. }
                    | Error::Timeout { .. }
                    | Error::OutOfMemory
                    | Error::NoSuchTree { .. }
                    | Error::NotEmpty
                    | Error::BadRange,
                ) => reached = Reached::Taken,
                Err(other) => panic!("a lie must not lead to {other:?}"),
            }
        }
        if source.is_empty() {
            break;
        }
    }
    reached
}

impl Lab {
    fn new(source: &mut Source<'_>) -> Self {
        let format = source.pick(&[
            Format::LineStamped,
            Format::LineStamped,
            Format::Sorted,
            Format::SortedStamped,
            Format::TwoLevel,
        ]);
        let techniques = source.pick(&[Techniques::OURS, Techniques::OURS, Techniques::SHERMAN, Techniques::NONE]);
        let options = EmbeddedOptions {
            servers: SERVERS,
            memory_bytes: 256 << 10,
            on_chip_bytes: 256,
            format: FormatOptions {
                chunk_bytes: 8 << 10,
                redo_slot_bytes: 512,
                redo_area_bytes: 4096,
                member_capacity: 16,
                catalog_capacity: 4,
                locks: LockOptions { lanes: Some(LANES), ..LockOptions::default() },
                ..FormatOptions::default()
            },
            atomicity: if format == Format::TwoLevel { Atomicity::Verb } else { Atomicity::Line },
        };
        let cluster = EmbeddedCluster::new(options).expect("a cluster this small");
        let endpoint = Hasty::new(cluster.join().expect("room for a member").endpoint());
        let options =
            ComputeOptions { techniques, timeout: TIMEOUT, cache_bytes: 64 << 10, ..ComputeOptions::default() };
        let compute = block_on(&endpoint, ComputeServer::open(&endpoint, options)).expect("a sound cluster");
        let geometry = *compute.geometry();
        let worker = Worker::new(endpoint, compute);
        let bytes = NODE as u32;
        let spec =
            TreeSpec { format: format.number(), key_len: 8, value_len: 8, leaf_bytes: bytes, internal_bytes: bytes };
        let tree = block_on(worker.endpoint(), worker.tree("t", &spec)).expect("a sound cluster");
        let lab = Self { cluster, worker, tree, geometry, nodes: Vec::new() };
        for number in 0..source.below(160) as u64 {
            // Scattered, so that leaves are not all full.
            let key = (number * 97 % 256).to_be_bytes();
            let inserted = block_on(lab.worker.endpoint(), async {
                lab.worker.op().insert(&lab.tree, &key, &[1; 8], &mut Vec::new()).await
            });
            inserted.expect("a sound tree");
        }
        lab
    }

    /// Looks for whatever has the mark of a node.
    fn find_nodes(&mut self) {
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

    fn some_node(&self, source: &mut Source<'_>) -> GlobalAddress {
        if self.nodes.is_empty() { GlobalAddress::NULL } else { self.nodes[source.below(self.nodes.len())] }
    }

    fn load(&self, node: GlobalAddress) -> Vec<u8> {
        let mut image = vec![0; NODE];
        self.cluster.memory(node.server()).expect("found there").load(Space::Host, node.offset(), &mut image);
        image
    }

    /// One lie.
    fn damage(&self, source: &mut Source<'_>) {
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
            // Children lie at odd multiples of 8 from some offset on; fences and keys are hit as well.
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
        self.cluster.memory(victim.server()).expect("found there").store(Space::Host, victim.offset(), &image);
    }

    /// A lane is held by somebody.
    fn take_lane(&self, node: GlobalAddress, by: u16) {
        let (space, word, mask, shift) = self.geometry.lane_word(self.geometry.lane_of(node));
        let memory = self.cluster.memory(node.server()).expect("found there");
        let old = memory.load_u64(space, word);
        memory.store_u64(space, word, old & !mask | u64::from(by) << shift);
    }

    /// The root word leads to some node, or anywhere.
    fn move_root(&self, node: GlobalAddress, source: &mut Source<'_>) {
        let level = source.byte() & 0x3f;
        let bits = if level & 1 == 0 {
            RootWord { address: node, level: level >> 1 & 3 }.to_bits()
        } else {
            source.u64() >> (level & 0x30)
        };
        self.cluster.memory(0).expect("server 0").store_u64(Space::Host, self.tree.info().root_word, bits);
    }

    /// One operation.
    fn operate(&self, source: &mut Source<'_>) -> Result<(), Error> {
        let what = source.byte();
        let (key, value) = (u64::from(source.byte()).to_be_bytes(), [source.byte(); 8]);
        let (worker, tree, mut out) = (&self.worker, &self.tree, Vec::new());
        block_on(worker.endpoint(), async {
            let op = worker.op();
            match what % 24 {
                0..=3 => op.get(tree, &key, &mut out).await.map(drop),
                4..=9 => op.insert(tree, &key, &value, &mut out).await.map(drop),
                10..=14 => op.remove(tree, &key, &mut out).await.map(drop),
                15 => op.insert_if_absent(tree, &key, &value, &mut out).await.map(drop),
                16 => op.compare_exchange(tree, &key, Some(&value), Some(&[2; 8]), &mut out).await.map(drop),
                17 | 18 => self.scan(source.byte(), &key, &value).await,
                19 => worker.check(tree).await.map(drop),
                20 => op.walk(tree).await.map(drop),
                21 => {
                    tree.forget_everything();
                    Ok(())
                }
                22 if what >= 192 => worker.drop_tree("t").await.map(drop),
                22 => worker.clear(tree).await.map(drop),
                _ => self.bulk_load().await,
            }
        })
    }

    async fn scan(&self, how: u8, first: &[u8; 8], last: &[u8; 8]) -> Result<(), Error> {
        let direction = if how & 1 == 0 { Direction::Forward } else { Direction::Backward };
        let (mut first, mut last) = (Bound::Included(&first[..]), Bound::Excluded(&last[..]));
        if how & 2 != 0 {
            first = Bound::Unbounded;
        }
        if how & 4 != 0 {
            last = Bound::Unbounded;
        }
        let mut scan = self.worker.scan(&self.tree, first, last, direction, usize::from(how >> 4))?;
        let mut entries = 0;
        while self.worker.op().refill(&self.tree, &mut scan).await? {
            while scan.next().is_some() {
                entries += 1;
                assert!(entries < 100_000, "a scan ends: there is memory for no more than some thousand entries");
            }
        }
        self.worker.end_scan(scan);
        Ok(())
    }

    async fn bulk_load(&self) -> Result<(), Error> {
        let (op, tree) = (self.worker.op(), &self.tree);
        if !op.is_empty(tree).await? {
            return Err(Error::NotEmpty);
        }
        let mut loading = Loading::new(tree, 0.8);
        let mut written = Vec::new();
        for number in 0..100_u64 {
            let pushed = loading.push(&op, tree, &number.to_be_bytes(), &[3; 8]).await;
            match pushed {
                Ok(Some(batch)) => written.push(op.write_leaves(tree, &batch).await?),
                Ok(None) => {}
                Err(error) => {
                    loading.abandon(&op, tree).await;
                    return Err(error);
                }
            }
        }
        for batch in loading.finish(&op).await?.into_iter().flatten() {
            written.push(op.write_leaves(tree, &batch).await?);
        }
        op.complete_load(tree, &mut loading, written).await.map(drop)
    }
}
