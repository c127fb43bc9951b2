//! A world with a tree in it, for scenarios and tests.

use super::scenario::Scenario;
use crate::endpoint::{SimFabric, VolumeEndpoint};
use crate::knobs::Knobs;
use crate::sim::{Sim, Stuck};
use sherman_core::{ComputeOptions, ComputeServer, Error, TreeState, Walk, Worker};
use sherman_fabric::{Clock, ComputeId, Endpoint, Memory, Peer, Space, calls, sleep_until};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The name of the tree.
pub(super) const TREE: &str = "tree";
/// Longer than any schedule, unless time jumps.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A simulated world that holds one tree.
///
/// Its methods run outside any schedule. They are for tests, and panic if the world was set up wrongly.
#[derive(Debug)]
pub struct Fixture {
    /// The world.
    pub sim: Sim,
    /// The scenario of the tree.
    pub scenario: Scenario,
}

/// A compute server of the world.
#[derive(Clone, Debug)]
pub struct Compute {
    /// Its identity.
    pub fabric: SimFabric,
    /// The state that its threads share.
    pub shared: Arc<ComputeServer>,
    /// The state of the tree in this compute server.
    pub tree: Arc<TreeState>,
}

impl Compute {
    /// Adds a thread to the compute server.
    pub fn worker(&self) -> Worker<VolumeEndpoint> {
        let endpoint = self.fabric.volumes().expect("a compute server of this schedule");
        Worker::new(endpoint, Arc::clone(&self.shared))
    }
}

impl Fixture {
    /// Formats the world.
    pub fn new(scenario: Scenario, knobs: Knobs) -> Self {
        let sim = Sim::new(&scenario.config(knobs)).expect("a scenario's world can be formatted");
        Self { sim, scenario }
    }

    /// Adds a compute server, which opens or creates the tree.
    pub fn join(&mut self) -> Compute {
        join(&mut self.sim, &self.scenario)
    }

    /// Runs a future while no other task runs.
    pub fn quiet<F: Future>(&mut self, future: F) -> F::Output {
        self.sim.block_on(future).expect("alone, nothing has to be waited for")
    }

    /// Inserts keys and values by number.
    pub fn load(&mut self, compute: &Compute, pairs: impl IntoIterator<Item = (u64, u64)>) {
        let worker = compute.worker();
        for (key, value) in pairs {
            let op = worker.op();
            let (key, value) = (self.scenario.key(key), self.scenario.value(value));
            let mut old = Vec::new();
            self.quiet(op.insert(&compute.tree, &key, &value, &mut old))
                .expect("a quiet tree takes what fits");
        }
    }

    /// Inserts keys and values by number, while another client holds every lane except that of the leaf. So
    /// leaves are split, but their separators cannot be posted.
    pub fn load_unposted(&mut self, compute: &Compute, pairs: &[(u64, u64)]) {
        let worker = compute.worker();
        let mut left = pairs.to_vec();
        self.with_one_free_lane(compute, |fixture| {
            left.retain(|&(key, value)| {
                let op = worker.op_within(Duration::ZERO);
                let (key, value) = (fixture.scenario.key(key), fixture.scenario.value(value));
                let mut old = Vec::new();
                let insert = op.insert(&compute.tree, &key, &value, &mut old);
                fixture.sim.block_on(insert).is_ok_and(|outcome| outcome.is_err())
            });
        });
        self.load(compute, left);
    }

    /// Creates another tree with the keys below `keys`, and removes them while another client holds all other
    /// lanes. The result is an empty tree of several leaves, none of which could be merged.
    pub fn create_unmerged(&mut self, compute: &Compute, name: &str, keys: u64) -> Arc<TreeState> {
        let worker = compute.worker();
        let spec = self.scenario.spec();
        let tree = self.quiet(worker.tree(name, &spec)).expect("a tree can be created");
        let other = Compute { tree: Arc::clone(&tree), ..compute.clone() };
        self.load(&other, (0..keys).map(|key| (key, 1)));
        let mut left: Vec<u64> = (0..keys).collect();
        self.with_one_free_lane(compute, |fixture| {
            left.retain(|&key| {
                let op = worker.op_within(Duration::ZERO);
                let (key, mut old) = (fixture.scenario.key(key), Vec::new());
                let remove = op.remove(&tree, &key, &mut old);
                fixture.sim.block_on(remove).is_ok_and(|outcome| outcome.is_err())
            });
        });
        assert!(left.is_empty(), "every lane was free once");
        tree
    }

    /// Calls `act` once for each lane, while another client holds all other lanes.
    fn with_one_free_lane(&mut self, compute: &Compute, mut act: impl FnMut(&mut Self)) {
        for (server, lane) in self.lanes(compute) {
            self.hold_lanes(compute, 0xff);
            self.set_lane(compute, server, lane, 0);
            act(self);
        }
        self.hold_lanes(compute, 0);
    }

    fn lanes(&self, compute: &Compute) -> impl Iterator<Item = (u16, u32)> + use<> {
        let lanes = compute.shared.geometry().lock.count;
        (0..self.scenario.servers).flat_map(move |server| (0..lanes).map(move |lane| (server, lane)))
    }

    fn hold_lanes(&mut self, compute: &Compute, byte: u8) {
        for (server, lane) in self.lanes(compute) {
            self.set_lane(compute, server, lane, byte);
        }
    }

    fn set_lane(&mut self, compute: &Compute, server: u16, lane: u32, byte: u8) {
        let (at, bytes) = compute.shared.geometry().lane_byte_range(lane);
        self.sim.memory(server).store(Space::OnChip, at, &[byte; 8][..bytes as usize]);
    }

    /// Removes keys by number.
    pub fn unload(&mut self, compute: &Compute, keys: impl IntoIterator<Item = u64>) {
        let worker = compute.worker();
        for key in keys {
            let op = worker.op();
            let key = self.scenario.key(key);
            let mut old = Vec::new();
            self.quiet(op.remove(&compute.tree, &key, &mut old)).expect("a quiet tree gives what it has");
        }
    }

    /// Looks keys up by number, so that the cache holds the path to them.
    pub fn warm(&mut self, compute: &Compute, keys: impl IntoIterator<Item = u64>) {
        let worker = compute.worker();
        let keys: Vec<Vec<u8>> = keys.into_iter().map(|key| self.scenario.key(key)).collect();
        self.quiet(async {
            let mut value = Vec::new();
            for key in keys {
                worker.op().get(&compute.tree, &key, &mut value).await.expect("a quiet tree answers");
            }
        });
    }

    /// Makes a compute server leave the cluster permanently. Its free places are lost.
    pub fn leave(&mut self, compute: &Compute) {
        let worker = compute.worker();
        let (endpoint, counters) = (worker.endpoint(), worker.endpoint().counters());
        for volume in (0..self.scenario.servers).rev() {
            let release = sherman_fabric::call(endpoint, Peer::Volume(volume), calls::Release, counters);
            self.quiet(release).expect("a member may give its memory back");
        }
        let leave = sherman_fabric::call(endpoint, Peer::Control, calls::Leave, counters);
        self.quiet(leave).expect("a member may leave");
    }

    /// Walks all nodes of the tree.
    pub fn walk(&mut self, compute: &Compute) -> Result<Walk, Error> {
        let worker = compute.worker();
        let op = worker.op();
        self.sim
            .block_on(op.walk(&compute.tree))
            .unwrap_or(Err(Error::Unsupported { what: "a walk that must wait" }))
    }
}

/// Returns the options of the compute servers of a scenario.
pub(super) fn options(scenario: &Scenario) -> ComputeOptions {
    ComputeOptions {
        techniques: scenario.techniques,
        timeout: TIMEOUT,
        cache_bytes: scenario.cache_bytes,
        allow_torn_reads: scenario.allow_torn_reads,
    }
}

/// Adds a compute server to `sim`. It opens or creates the tree.
///
/// # Panics
/// If the world was set up wrongly: this is for tests.
pub fn join(sim: &mut Sim, scenario: &Scenario) -> Compute {
    try_join(sim, scenario, &BTreeSet::new()).unwrap_or_else(|what| panic!("{what}"))
}

/// Adds a compute server to `sim`. It opens or creates the tree. If volumes are closed, it first recovers all
/// members except those that are `well`. Returns the problem if it cannot.
pub(super) fn try_join(
    sim: &mut Sim,
    scenario: &Scenario,
    well: &BTreeSet<ComputeId>,
) -> Result<Compute, String> {
    let stuck = |stuck: Stuck| stuck.to_string();
    let fabric = sim.join().map_err(|refusal| format!("a client cannot join: {refusal}"))?;
    let options = options(scenario);
    let endpoint = fabric.volumes().map_err(|error| error.to_string())?;
    let table = Arc::clone(fabric.table());
    let shared = sim.block_on(ComputeServer::open_replicated(&endpoint, options, table)).map_err(stuck)?;
    let shared = shared.map_err(|error| format!("a client cannot open the cluster: {error}"))?;
    let worker = Worker::new(endpoint, Arc::clone(&shared));
    if !fabric.table().all_open() {
        let recovered = sim.block_on(worker.recover_all(|client| well.contains(&client), TIMEOUT));
        recovered.map_err(stuck)?.map_err(|error| format!("a recovery failed: {error}"))?;
    }
    let spec = scenario.spec();
    let tree = sim.block_on(worker.tree(TREE, &spec)).map_err(stuck)?;
    let tree = tree.map_err(|error| format!("a client cannot open the tree: {error}"))?;
    Ok(Compute { fabric, shared, tree })
}

/// Adds a compute server to `sim`, although volumes may be closed. It recovers all members, and waits until
/// no lease of an older epoch can be counted on. Then it falls silent. Returns the problem if there is one.
pub(super) fn recover_in_pause(sim: &mut Sim, scenario: &Scenario) -> Result<(), String> {
    let stuck = |stuck: Stuck| stuck.to_string();
    let fabric = sim.join().map_err(|refusal| format!("a client cannot join: {refusal}"))?;
    let endpoint = fabric.volumes().map_err(|error| error.to_string())?;
    let table = Arc::clone(fabric.table());
    let opened = sim.block_on(ComputeServer::open_replicated(&endpoint, options(scenario), table));
    let shared =
        opened.map_err(stuck)?.map_err(|error| format!("a client cannot open the cluster: {error}"))?;
    let worker = Worker::new(endpoint, shared);
    let recovered = sim.block_on(worker.recover_all(|_| false, TIMEOUT));
    recovered.map_err(stuck)?.map_err(|error| format!("a recovery failed: {error}"))?;
    let until = worker.endpoint().now() + 2 * scenario.lease_nanos;
    sim.block_on(sleep_until(worker.endpoint(), until)).map_err(stuck)
}
