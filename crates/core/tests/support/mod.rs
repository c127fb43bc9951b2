//! A cluster in this process, its compute servers, and the invariants that must hold when nothing is in
//! flight.

#![allow(dead_code, reason = "each test binary uses its part")]

pub mod model;

use sherman_core::survey::{account, survey};
use sherman_core::{ComputeOptions, ComputeServer, Format, TreeState, Walk, Worker};
use sherman_embedded::{Atomicity, EmbeddedCluster, EmbeddedEndpoint, EmbeddedFabric, EmbeddedOptions};
use sherman_executor::block_on;
use sherman_fabric::control::TreeSpec;
use sherman_fabric::{Memory, Space};
use sherman_layout::{FormatOptions, LockOptions};
use std::sync::Arc;

/// Whether the longest tests run in full, as in `.ci/run`. A plain `cargo test` runs a part of them.
pub fn runs_in_full() -> bool {
    let schedules = std::env::var("SHERMAN_SCHEDULES").ok().and_then(|text| text.parse::<u64>().ok());
    schedules.is_some_and(|schedules| schedules >= 60_000)
}

pub type EmbeddedWorker = Worker<EmbeddedEndpoint>;

/// The configuration of a world.
#[derive(Clone, Debug)]
pub struct WorldOptions {
    pub memory_servers: u16,
    pub compute_servers: usize,
    pub memory_bytes: u64,
    pub chunk_bytes: u64,
    pub lanes: Option<u32>,
    pub atomicity: Atomicity,
    pub compute: ComputeOptions,
}

impl Default for WorldOptions {
    fn default() -> Self {
        Self {
            memory_servers: 2,
            compute_servers: 2,
            memory_bytes: 256 << 20,
            chunk_bytes: 1 << 20,
            // Few enough that unrelated nodes share lanes.
            lanes: Some(256),
            atomicity: Atomicity::Line,
            compute: ComputeOptions::default(),
        }
    }
}

/// Memory servers and compute servers.
pub struct World {
    pub cluster: Arc<EmbeddedCluster>,
    pub fabrics: Vec<EmbeddedFabric>,
    pub computes: Vec<Arc<ComputeServer>>,
    lock_bytes: u64,
}

impl World {
    pub fn new(options: &WorldOptions) -> Self {
        let locks = LockOptions { lanes: options.lanes, ..LockOptions::default() };
        let format = FormatOptions { locks, chunk_bytes: options.chunk_bytes, ..FormatOptions::default() };
        let cluster = EmbeddedCluster::new(EmbeddedOptions {
            servers: options.memory_servers,
            memory_bytes: options.memory_bytes,
            format,
            atomicity: options.atomicity,
            ..EmbeddedOptions::default()
        })
        .expect("a cluster");
        let fabrics: Vec<_> = (0..options.compute_servers).map(|_| cluster.join().expect("an id")).collect();
        let computes: Vec<_> = fabrics
            .iter()
            .map(|fabric| {
                let endpoint = fabric.endpoint();
                block_on(&endpoint, ComputeServer::open(&endpoint, options.compute.clone()))
                    .expect("a compute server")
            })
            .collect();
        let lock_bytes = u64::from(computes[0].geometry().lock.count) * 2;
        Self { cluster, fabrics, computes, lock_bytes }
    }

    /// Returns a worker of a compute server, for the calling thread.
    pub fn worker(&self, compute: usize) -> EmbeddedWorker {
        Worker::new(self.fabrics[compute].endpoint(), Arc::clone(&self.computes[compute]))
    }

    /// Asserts what must hold when nothing is in flight, for everything but the trees.
    pub fn assert_at_rest(&self) {
        for server in 0..self.cluster.servers() {
            let memory = self.cluster.memory(server).expect("a server");
            for word in 0..self.lock_bytes / 8 {
                assert_eq!(
                    memory.load_u64(Space::OnChip, 8 * word),
                    0,
                    "a lane of server {server}, word {word}, is held"
                );
            }
        }
        for compute in &self.computes {
            assert!(compute.local_locks().all_free(), "a local lock is held");
            assert!(compute.redo_slots().all_free(), "a redo slot is in use");
            for (server, offset) in compute.redo_slots().places() {
                let memory = self.cluster.memory(server).expect("a server");
                assert_eq!(memory.load_u64(Space::Host, offset), 0, "a redo record is left");
            }
        }
    }

    /// Sums up what all compute servers made and freed, and which free places they have.
    pub fn census(&self) -> sherman_core::alloc::Census {
        let mut all = sherman_core::alloc::Census::default();
        for census in self.computes.iter().map(|compute| compute.census()) {
            all.spans += census.spans;
            all.span_bytes += census.span_bytes;
            all.free += census.free;
            all.made += census.made;
            all.freed += census.freed;
            all.reused += census.reused;
        }
        all
    }

    /// Counts the chunks in use on all servers, including redo chunks.
    pub fn chunks(&self) -> u64 {
        let geometry = |server| *self.computes[0].geometry_of(server);
        let used = (0..self.cluster.servers()).flat_map(|server| {
            let memory = self.cluster.memory(server).expect("a server");
            (0..geometry(server).chunks)
                .map(move |index| memory.load_u64(Space::Host, geometry(server).chunk_entry(index)))
                .filter(|word| *word != 0)
        });
        used.count() as u64
    }

    /// Asserts that every place for a node is in one of the trees, or is free and some client can find it.
    pub fn assert_balanced(&self, walks: &[&Walk]) {
        let places: Vec<_> = (0..self.cluster.servers())
            .flat_map(|server| {
                let memory = self.cluster.memory(server).expect("a server");
                survey(memory, self.computes[0].geometry_of(server), server)
            })
            .collect();
        let trees = walks.iter().flat_map(|walk| walk.places.iter().copied());
        let believed_free =
            self.computes.iter().map(|compute| (compute.client(), compute.free_places())).collect();
        account(&places, trees, &believed_free).unwrap_or_else(|what| panic!("{what}: {:?}", self.census()));
    }
}

/// Returns the shape of a tree.
pub fn spec(format: Format, key_len: usize, value_len: usize, leaf: usize, internal: usize) -> TreeSpec {
    TreeSpec {
        format: format.number(),
        key_len: key_len as u16,
        value_len: value_len as u32,
        leaf_bytes: leaf as u32,
        internal_bytes: internal as u32,
    }
}

/// Returns the atomicity that the format needs from the fabric.
pub fn atomicity(format: Format) -> Atomicity {
    if format.safe_when_reads_tear() { Atomicity::Line } else { Atomicity::Verb }
}

/// Walks a tree at rest.
pub fn walk(worker: &EmbeddedWorker, tree: &TreeState) -> Walk {
    let op = worker.op();
    block_on(worker.endpoint(), op.walk(tree)).expect("a sound tree")
}

/// Pseudo-random numbers: splitmix64.
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number in `0..n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Returns true once in `n` times on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
