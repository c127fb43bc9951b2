//! A cluster with a loaded tree. The tree is never actually loaded: each node is generated when it is first
//! accessed.

use super::client::{Client, Ledger, Warmth, failed};
use super::job::{Measured, TreeJob};
use crate::error::BenchError;
use crate::keys::Keys;
use crate::variant::Variant;
use crate::workload::{Demand, Generator};
use crate::zipf::Zipf;
use fastrand::Rng;
use sherman_core::cache::IndexCache;
use sherman_core::node::TreeShape;
use sherman_core::tree::image::{Entries, LeafStarts, LoadImage, children_of};
use sherman_core::{ComputeOptions, ComputeServer, Error, Format, Techniques, TreeState, Worker};
use sherman_fabric::control::TreeSpec;
use sherman_fabric::{FabricError, Space};
use sherman_layout::{FormatOptions, LaneWidth, LockOptions, ReleaseMode};
use sherman_sim::nic::{Image, NicConfig, NicSim, NicVolumeEndpoint, Params};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The most machines.
pub const MAX_MACHINES: u16 = 1024;
/// The most clients. Each client is a task.
pub(crate) const MAX_CLIENTS: u64 = 100_000;
/// The chunk size of the paper, which is the largest chunk here.
const MOST_CHUNK: u64 = 8 << 20;
/// The least number of chunks of leaves per server, if there are enough leaves. With fewer chunks, some
/// servers would have none.
const CHUNKS_PER_SERVER: u64 = 16;
/// Redo slots of a compute server on a memory server.
const REDO_SLOTS: u64 = 64;
/// How long an operation may wait. No client dies in an experiment.
const PATIENCE: Duration = Duration::from_secs(100);

/// The loaded entries.
struct Loaded {
    keys: Keys,
}

impl Entries for Loaded {
    fn count(&self) -> u64 {
        self.keys.count()
    }

    fn write_key(&self, nth: u64, key: &mut [u8]) {
        self.keys.write_nth(nth, key);
    }

    fn write_value(&self, nth: u64, value: &mut [u8]) {
        self.keys.write_value(self.keys.nth(nth), 0, value);
    }
}

/// The loaded nodes.
struct Nodes {
    image: LoadImage,
    entries: Loaded,
}

impl Image for Nodes {
    fn fill(&self, server: u16, offset: u64, node: &mut [u8]) {
        if let Some(image) = self.image.node(&self.entries, server, offset) {
            node.copy_from_slice(&image);
        }
    }
}

/// Returns the CPU time that a client spends on one line of a node, in picoseconds.
pub(crate) fn line_picos(params: &Params, format: Format) -> u64 {
    match format {
        Format::Sorted => params.checksum_line_picos,
        Format::SortedStamped => params.sorted_line_picos,
        Format::TwoLevel | Format::LineStamped | Format::LineHashed => params.unsorted_line_picos,
    }
}

/// Returns where locks are, and how clients release them.
fn locks(variant: Variant) -> LockOptions {
    let host = matches!(variant, Variant::Fg | Variant::FgCache | Variant::FgPlus | Variant::Combine);
    let faa = matches!(variant, Variant::Fg | Variant::FgCache);
    LockOptions {
        space: if host { Space::Host } else { Space::OnChip },
        width: LaneWidth::Bits16,
        lanes: None,
        release: if faa { ReleaseMode::Faa } else { ReleaseMode::Write },
    }
}

fn check(job: &TreeJob) -> Result<(), BenchError> {
    for (option, number) in [("compute", job.compute), ("memory", job.memory)] {
        if !(1..=MAX_MACHINES).contains(&number) {
            return Err(BenchError::option(
                option,
                format!("write a number from 1 to {MAX_MACHINES}, not {number}"),
            ));
        }
    }
    if !(1..=2).contains(&job.replicas) || job.replicas > job.memory {
        return Err(BenchError::option(
            "replicas",
            format!(
                "there can be 1 copy of each volume, or 2 on 2 memory servers or more, not {} on {}",
                job.replicas, job.memory
            ),
        ));
    }
    for (option, number) in [("threads", job.threads), ("coroutines", job.coroutines)] {
        if number == 0 {
            return Err(BenchError::option(option, "there must be at least one"));
        }
    }
    let clients = u64::from(job.compute) * u64::from(job.threads) * u64::from(job.coroutines);
    if clients > MAX_CLIENTS {
        return Err(BenchError::option(
            "threads",
            format!("there can be at most {MAX_CLIENTS} clients, not {clients}"),
        ));
    }
    if job.operations == 0 {
        return Err(BenchError::option("ops", "there must be at least one operation"));
    }
    Ok(())
}

/// A cluster with a tree.
struct Stage {
    sim: NicSim,
    spec: TreeSpec,
    trees: Vec<Arc<TreeState>>,
    /// Threads, by compute server.
    workers: Vec<Vec<Rc<Worker<NicVolumeEndpoint>>>>,
    nodes: Vec<u64>,
    /// Keys below a node of level 1.
    span: u64,
    /// Children of a node.
    children: usize,
}

fn fabric(error: FabricError) -> BenchError {
    failed(error.into())
}

/// Runs a future that must complete without advancing virtual time.
fn quietly<T>(sim: &NicSim, future: impl Future<Output = Result<T, Error>>) -> Result<T, BenchError> {
    let stuck = || BenchError::Thread("the simulated cluster did not answer".to_owned());
    sim.quiet().run(future).ok_or_else(stuck)?.map_err(BenchError::Create)
}

/// Returns the configuration of the memory servers.
fn config(job: &TreeJob, spec: &TreeSpec) -> Result<NicConfig, BenchError> {
    let shape = TreeShape::new(spec, 1).map_err(|error| BenchError::Create(error.into()))?;
    let full = shape.leaf.capacity() as u64 / 2;
    let bytes = job.keys.div_ceil(full.max(1)).saturating_mul(u64::from(spec.leaf_bytes));
    let largest = u64::from(spec.leaf_bytes.max(spec.internal_bytes));
    let slot = largest + (4 << 10);
    let area = slot * REDO_SLOTS;
    let share = bytes / u64::from(job.memory) / CHUNKS_PER_SERVER;
    let chunk = share
        .next_power_of_two()
        .min(MOST_CHUNK)
        .max(area.next_power_of_two())
        .max(largest.next_power_of_two());
    let machines = job.compute.max(job.memory);
    // Room for internal nodes, new nodes, and a chunk for every compute server and class.
    let per_server =
        bytes / u64::from(job.memory) * 2 + chunk * (64 + 8 * u64::from(job.compute)) + (64 << 20);
    Ok(NicConfig {
        machines,
        servers: (0..job.memory).collect(),
        replicas: job.replicas,
        host_bytes: per_server.next_multiple_of(4096),
        on_chip_bytes: 256 << 10,
        format: FormatOptions {
            chunk_bytes: chunk,
            redo_slot_bytes: slot as u32,
            redo_area_bytes: area,
            member_capacity: u32::from(job.compute) + 1,
            catalog_capacity: 4,
            lease_nanos: PATIENCE.as_nanos() as u64 * 100,
            locks: locks(job.variant),
            ..FormatOptions::default()
        },
        params: job.params,
    })
}

/// Bytes in which the addresses of `children` loaded siblings differ, because they lie side by side.
fn child_bytes(children: usize) -> usize {
    (children.max(2) - 1).ilog2() as usize / 8 + 1
}

/// How many copies of loaded nodes fit into a cache of `bytes` bytes.
fn copies_in(cache: &IndexCache, bytes: usize, children: usize) -> usize {
    let fits = |copies| cache.bytes_for_copies(copies, children, child_bytes(children)) <= bytes;
    let (mut low, mut high) = (0, bytes / 64 + 1);
    while low + 1 < high {
        let middle = low.midpoint(high);
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}

/// Returns the bytes of a compute server's index cache. The paper's systems cache whole nodes. So their cache
/// gets the bytes in which this one holds as many copies.
fn cache_bytes(job: &TreeJob, spec: &TreeSpec) -> Result<usize, BenchError> {
    let bytes = usize::try_from(job.cache_bytes).unwrap_or(usize::MAX);
    if job.variant.is_new() {
        return Ok(bytes);
    }
    let shape = TreeShape::new(spec, 1).map_err(|error| BenchError::Create(error.into()))?;
    let cache = IndexCache::new(0, &shape.internal);
    let children = children_of(&shape.internal, f64::from(job.fill) / 100.0);
    Ok(cache.bytes_for_copies(bytes / job.internal_size, children, child_bytes(children)))
}

fn prepare(job: &TreeJob, keys: Keys) -> Result<Stage, BenchError> {
    let spec = TreeSpec {
        format: job.variant.format().number(),
        key_len: job.key_size as u16,
        value_len: job.value_size as u32,
        leaf_bytes: job.leaf_size as u32,
        internal_bytes: job.internal_size as u32,
    };
    let sim = NicSim::new(&config(job, &spec)?).map_err(|error| BenchError::option("memory", error))?;
    let mut stage =
        Stage { sim, spec, trees: Vec::new(), workers: Vec::new(), nodes: Vec::new(), span: 1, children: 1 };
    for compute in 0..job.compute {
        stage.add_compute(job, compute)?;
        if compute == 0 {
            stage.load(job, keys)?;
        }
    }
    Ok(stage)
}

/// What decides where the leaves of a loaded tree begin.
type LeavesOf = (Keys, usize, usize, u32);

/// Returns where leaves begin, as far as earlier experiments of this process know. They know it if they
/// loaded the same tree, and then this experiment takes half the time or less. The process remembers one
/// tree.
fn starts(job: &TreeJob, keys: Keys) -> Arc<LeafStarts> {
    static KNOWN: Mutex<Option<(LeavesOf, Arc<LeafStarts>)>> = Mutex::new(None);
    if job.variant.format() != Format::LineHashed {
        return Arc::default();
    }
    let tree = (keys, job.value_size, job.leaf_size, job.fill);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match &*known {
        Some((known, starts)) if *known == tree => Arc::clone(starts),
        _ => Arc::clone(&known.insert((tree, Arc::default())).1),
    }
}

impl Stage {
    fn add_compute(&mut self, job: &TreeJob, number: u16) -> Result<(), BenchError> {
        let here = self.sim.join(number).map_err(fabric)?;
        here.set_line_picos(line_picos(&job.params, job.variant.format()));
        let options = ComputeOptions {
            // The paper's systems retry without backoff.
            techniques: Techniques { backoff: job.variant.is_new(), ..job.variant.techniques() },
            timeout: PATIENCE,
            cache_bytes: cache_bytes(job, &self.spec)?,
            allow_torn_reads: true,
        };
        let mut workers = Vec::new();
        let mut compute = None;
        for _ in 0..job.threads {
            let endpoint = here.volumes().map_err(fabric)?;
            let shared = match &compute {
                Some(shared) => Arc::clone(shared),
                None => {
                    let opened = ComputeServer::open_replicated(&endpoint, options.clone(), self.sim.table());
                    quietly(&self.sim, opened)?
                }
            };
            compute = Some(Arc::clone(&shared));
            workers.push(Rc::new(Worker::new(endpoint, shared)));
        }
        if job.replicas > 1 {
            // Reads need a valid lease. It is long, so one renewal is enough.
            quietly(&self.sim, workers[0].renew())?;
        }
        self.trees.push(quietly(&self.sim, workers[0].tree("measured", &self.spec))?);
        self.workers.push(workers);
        Ok(())
    }

    fn load(&mut self, job: &TreeJob, keys: Keys) -> Result<(), BenchError> {
        let op = self.workers[0][0].op();
        let entries = Loaded { keys };
        let plan = LoadImage::plan(&op, &self.trees[0], &entries, f64::from(job.fill) / 100.0);
        let image = quietly(&self.sim, plan)?.with_starts(starts(job, keys));
        let (per_leaf, per_internal) = image.per_node();
        self.span = per_leaf * per_internal;
        self.children = per_internal as usize;
        self.nodes = image.nodes();
        let chunks = image.chunks();
        let nodes = Rc::new(Nodes { image, entries });
        self.sim.load(&(Rc::clone(&nodes) as Rc<dyn Image>), &chunks);
        quietly(&self.sim, nodes.image.install(&op, &self.trees[0]))
    }

    /// Fills a compute server's cache here, or returns how it fills on demand.
    fn warmth(&self, job: &TreeJob, keys: &Keys, compute: usize) -> Result<Option<Rc<Warmth>>, BenchError> {
        if !job.variant.techniques().cache {
            return Ok(None);
        }
        let cache = self.trees[compute].cache();
        let above: u64 = self.nodes.iter().skip(1).sum();
        let room = copies_in(cache, cache.limit(), self.children);
        let share = room as f64 / above.max(1) as f64;
        if !job.fill_cache || share >= 1.0 {
            let salt = compute as u64 + 1;
            return Ok(Some(Rc::new(Warmth::new(self.sim.quiet(), keys.count(), self.span, share, salt))));
        }
        // Performs twice as many lookups as the cache has room. Its content then depends on its eviction
        // policy, as in a long run.
        let worker = &self.workers[compute][0];
        let mut rng = Rng::with_seed(job.seed ^ (compute as u64 + 1) << 32);
        let mut key = vec![0; keys.key_size()];
        for _ in 0..2 * room {
            keys.write_nth(rng.u64(0..keys.count()), &mut key);
            let op = worker.op();
            quietly(&self.sim, op.warm(&self.trees[compute], &key))?;
        }
        Ok(None)
    }
}

/// Runs a workload on a tree.
pub(super) fn run(job: &TreeJob) -> Result<Measured, BenchError> {
    check(job)?;
    let keys =
        Keys::even(job.keys, job.key_size, job.hot).map_err(|error| BenchError::option("keys", error))?;
    let zipf = Zipf::new(job.keys, job.zipf).map_err(|error| BenchError::option("zipf", error))?;
    let stage = prepare(job, keys)?;
    let locks = locks(job.variant);
    let release = if locks.release == ReleaseMode::Write { locks.width.bytes() } else { 0 };
    let ledger = Rc::new(RefCell::new(Ledger::new(
        job.operations,
        release,
        job.leaf_size as u64,
        u64::from(job.replicas),
    )?));
    // All accesses follow the skew, including those of new keys. Two thirds of inserts are updates (paper
    // §5.1.3).
    let updated = job.workload.is_paper_s().then(|| zipf.ranks_of_share(2.0 / 3.0));
    let demand = Demand { workload: job.workload, removes: job.removes, range_size: job.range_size, updated };
    let clients = u64::from(job.compute) * u64::from(job.threads) * u64::from(job.coroutines);
    let mut number = 0;
    for (compute, workers) in stage.workers.iter().enumerate() {
        let warmth = stage.warmth(job, &keys, compute)?;
        for worker in workers {
            for _ in 0..job.coroutines {
                let client = Client {
                    worker: Rc::clone(worker),
                    tree: Arc::clone(&stage.trees[compute]),
                    generator: Generator::new(demand, keys, zipf, job.seed, number, clients),
                    ledger: Rc::clone(&ledger),
                    warmth: warmth.clone(),
                    value_size: job.value_size,
                    operation_nanos: job.params.operation_nanos,
                    delay_nanos: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53,
                };
                drop(stage.sim.spawn_on(worker.endpoint().inner().thread(), client.run()));
                number += 1;
            }
        }
    }
    stage.sim.run().map_err(|stuck| BenchError::Thread(stuck.to_string()))?;
    let mut ledger = ledger.borrow_mut();
    match ledger.failure.take() {
        Some(error) => Err(error),
        None => Ok(ledger.measured()),
    }
}
