//! Running schedules of a tree and checking each.

use super::check::{self, Found, Property, Violation};
use super::lab::{Compute, Lab};
use super::scenario::{Caches, Scenario};
use crate::endpoint::SimEndpoint;
use crate::history::{History, Op};
use crate::knobs::Knobs;
use crate::linear::Checker;
use crate::rng::Rng;
use crate::scheduler::{Pct, Random, Scheduler};
use crate::sim::Run;
use crate::trace::Event;
use sherman_core::{ComputeServer, Error, TreeState, Walk, Worker};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// How many events a schedule has, roughly: where PCT puts its change points.
const TYPICAL_STEPS: u64 = 1_500;
/// Seeds that share a scenario, and with it the loaded world.
const SEEDS_PER_SCENARIO: u64 = 64;

/// One schedule, after its checks.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its events, verbs and trace hash.
    pub run: Run,
    /// Tasks that ran.
    pub clients: u32,
    /// Nodes that were made during it.
    pub splits: usize,
    /// Levels of the tree at the end.
    pub height: usize,
    /// What did not hold.
    pub violation: Option<Violation>,
}

/// Totals over many schedules.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    /// Schedules run, all of them checked.
    pub schedules: u64,
    /// With at least one split.
    pub with_split: u64,
    /// Verbs of each.
    pub verbs: Vec<u32>,
    /// Trace hashes, to be counted for distinctness.
    pub hashes: Vec<u64>,
    /// The fewest tasks any of them had.
    pub fewest_clients: u32,
    /// The first few violations.
    pub violations: Vec<Violation>,
    /// All of them, counted.
    pub violated: u64,
}

impl Explored {
    /// Adds one schedule.
    pub fn add(&mut self, seen: Seen) {
        self.fewest_clients = if self.schedules == 0 { seen.clients } else { self.fewest_clients.min(seen.clients) };
        self.schedules += 1;
        self.with_split += u64::from(seen.splits > 0);
        self.verbs.push(u32::try_from(seen.run.verbs).unwrap_or(u32::MAX));
        self.hashes.push(seen.run.trace_hash);
        self.violated += u64::from(seen.violation.is_some());
        if self.violations.len() < 8 {
            self.violations.extend(seen.violation);
        }
    }

    /// Adds another's totals.
    pub fn merge(&mut self, other: Self) {
        if other.schedules > 0 {
            let fewest = if self.schedules == 0 { u32::MAX } else { self.fewest_clients };
            self.fewest_clients = fewest.min(other.fewest_clients);
        }
        self.schedules += other.schedules;
        self.with_split += other.with_split;
        self.verbs.extend(other.verbs);
        self.hashes.extend(other.hashes);
        self.violated += other.violated;
        self.violations.extend(other.violations);
    }

    /// The median number of verbs.
    pub fn median_verbs(&self) -> u32 {
        let mut verbs = self.verbs.clone();
        verbs.sort_unstable();
        verbs.get(verbs.len() / 2).copied().unwrap_or(0)
    }

    /// The share of schedules whose trace no other has.
    pub fn distinct(&self) -> f64 {
        let mut hashes = self.hashes.clone();
        hashes.sort_unstable();
        hashes.dedup();
        hashes.len() as f64 / self.hashes.len().max(1) as f64
    }

    /// The share of schedules with a split.
    pub fn split_share(&self) -> f64 {
        self.with_split as f64 / self.schedules.max(1) as f64
    }
}

/// Runs schedules: keeps the loaded world from one seed to the next.
pub struct Explorer {
    choose: Box<dyn Fn(u64) -> Scenario>,
    knobs: Box<dyn Fn(u64) -> Knobs>,
    world: Option<Loaded>,
    checker: Checker,
    record: Rc<Record>,
}

impl std::fmt::Debug for Explorer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Explorer")
    }
}

/// A world with its tree loaded, at its checkpoint.
struct Loaded {
    draw: u64,
    lab: Lab,
    initial: BTreeMap<u64, u64>,
    nodes: usize,
}

impl Explorer {
    /// An explorer of the scenarios that `choose` gives to numbers, under the knobs that `knobs` gives to seeds. Sixty-four
    /// consecutive seeds share a scenario.
    pub fn new(choose: impl Fn(u64) -> Scenario + 'static, knobs: impl Fn(u64) -> Knobs + 'static) -> Self {
        Self {
            choose: Box::new(choose),
            knobs: Box::new(knobs),
            world: None,
            checker: Checker::new(),
            record: Rc::default(),
        }
    }

    /// Runs the schedule of `seed` and checks it.
    pub fn run(&mut self, seed: u64) -> Seen {
        self.run_traced(seed, false).0
    }

    /// The same, with every event told.
    pub fn run_traced(&mut self, seed: u64, trace: bool) -> (Seen, Vec<Event>) {
        let draw = seed / SEEDS_PER_SCENARIO;
        if self.world.as_ref().is_none_or(|world| world.draw != draw) {
            let scenario = (self.choose)(draw);
            // Loaded under the knobs of the first seed that shares it, whichever of them comes first here.
            self.world = Some(Loaded::new(draw, scenario, (self.knobs)(draw * SEEDS_PER_SCENARIO)));
        }
        let world = self.world.as_mut().expect("just made");
        world.lab.sim.rewind_with((self.knobs)(seed));
        self.record.history.borrow_mut().clear();
        self.record.trouble.borrow_mut().take();
        let cast = world.cast(seed);
        world.lab.sim.record_trace(trace);
        world.spawn(seed, &cast, &self.record, (self.knobs)(seed).time_jumps);
        let run = match seed % 4 {
            0 => world.lab.sim.run(&mut Pct::new(seed, 3, TYPICAL_STEPS) as &mut dyn Scheduler),
            _ => world.lab.sim.run(&mut Random::swarm(seed) as &mut dyn Scheduler),
        };
        let events = if trace { world.lab.sim.trace() } else { Vec::new() };
        let checked = world.check(&run, &cast, &self.record, &mut self.checker);
        let (walk, violation) = match checked {
            Ok(walk) => (walk, None),
            Err((walk, (property, what))) => {
                let scenario = format!("{:?} under {:?}", world.lab.scenario, (self.knobs)(seed));
                (walk, Some(Violation { seed, property, what, scenario }))
            }
        };
        let seen = Seen {
            run,
            clients: world.lab.scenario.computes * world.lab.scenario.threads,
            splits: walk.nodes.iter().sum::<usize>().saturating_sub(world.nodes),
            height: walk.height(),
            violation,
        };
        (seen, events)
    }

    /// Runs the schedules of `seeds`.
    pub fn explore(&mut self, seeds: impl IntoIterator<Item = u64>) -> Explored {
        let mut explored = Explored::default();
        for seed in seeds {
            explored.add(self.run(seed));
        }
        explored
    }
}

impl Loaded {
    fn new(draw: u64, scenario: Scenario, knobs: Knobs) -> Self {
        let initial: BTreeMap<u64, u64> = (0..scenario.loaded).map(|key| (2 * key, 1_000 + key)).collect();
        let mut lab = Lab::new(scenario, knobs);
        let compute = lab.join();
        lab.load(&compute, initial.iter().map(|(&key, &value)| (key, value)));
        let nodes = lab.walk(&compute).expect("a loaded tree is sound").nodes.iter().sum();
        lab.sim.checkpoint();
        Self { draw, lab, initial, nodes }
    }

    /// The compute servers of a schedule, with caches as old as the scenario has them, and what the tree then holds.
    fn cast(&mut self, seed: u64) -> Cast {
        let computes: Vec<Compute> = (0..self.lab.scenario.computes).map(|_| self.lab.join()).collect();
        let mut cast = Cast { computes, initial: self.initial.clone(), stranger: None };
        if self.lab.scenario.caches == Caches::Cold {
            return cast;
        }
        for compute in &cast.computes {
            self.lab.warm(compute, self.initial.keys().copied());
        }
        if self.lab.scenario.caches == Caches::Stale {
            // A stranger changes the tree behind their backs: their caches know nothing of its splits.
            let stranger = self.lab.join();
            let mut rng = Rng::new(seed ^ 0x5354_414c);
            let keys = 2 * self.lab.scenario.loaded as usize;
            let news: BTreeMap<u64, u64> = (0..8).map(|i| (rng.below(keys) as u64, 5_000 + i)).collect();
            self.lab.load(&stranger, news.iter().map(|(&key, &value)| (key, value)));
            cast.initial.extend(news);
            cast.stranger = Some(stranger);
        }
        cast
    }

    fn spawn(&mut self, seed: u64, cast: &Cast, record: &Rc<Record>, time_jumps: bool) {
        for (number, compute) in cast.computes.iter().enumerate() {
            for thread in 0..self.lab.scenario.threads {
                let client = number as u32 * self.lab.scenario.threads + thread;
                let script = Script {
                    client,
                    rng: Rng::new(seed.wrapping_mul(1_000_003).wrapping_add(u64::from(client))),
                    scenario: self.lab.scenario.clone(),
                    tree: Arc::clone(&compute.tree),
                    record: Rc::clone(record),
                    time_jumps,
                };
                drop(self.lab.sim.spawn_on(&compute.fabric, thread, "client", script.run(compute.worker())));
            }
        }
    }

    /// Everything that must hold; with the violation, what could be seen of the tree.
    fn check(&mut self, run: &Run, cast: &Cast, record: &Record, checker: &mut Checker) -> Result<Walk, (Walk, Found)> {
        if !run.is_done() {
            return Err((Walk::default(), (Property::Progress, format!("{:?}", run.outcome))));
        }
        if let Some(trouble) = record.trouble.borrow_mut().take() {
            return Err((Walk::default(), trouble));
        }
        let shared: Vec<&ComputeServer> =
            cast.computes.iter().chain(&cast.stranger).map(|compute| &*compute.shared).collect();
        let seen = check::lanes(&self.lab.sim, &self.lab.scenario, &shared)
            .and_then(|()| check::redo(&self.lab.sim, &shared))
            .and_then(|()| self.lab.walk(&cast.computes[0]).map_err(|error| (Property::Walk, error.to_string())))
            .map_err(|found| (Walk::default(), found))?;
        let history = &mut record.history.borrow_mut();
        match check::history(checker, history, &self.lab.scenario, &cast.initial, &seen) {
            Ok(()) => Ok(seen),
            Err(found) => Err((seen, found)),
        }
    }
}

/// The compute servers of a schedule.
struct Cast {
    computes: Vec<Compute>,
    initial: BTreeMap<u64, u64>,
    stranger: Option<Compute>,
}

/// What the clients of a schedule report.
#[derive(Default)]
struct Record {
    history: RefCell<History>,
    trouble: RefCell<Option<Found>>,
}

/// What one client does.
struct Script {
    client: u32,
    rng: Rng,
    scenario: Scenario,
    tree: Arc<TreeState>,
    record: Rc<Record>,
    /// Whether deadlines may come at any time.
    time_jumps: bool,
}

impl Script {
    async fn run(mut self, worker: Worker<SimEndpoint>) {
        for number in 0..self.scenario.operations {
            let key = self.rng.below(self.scenario.hot as usize) as u64 + self.scenario.first_hot();
            let insert = self.rng.below(8) < self.scenario.inserts_of_eight as usize;
            let value = u64::from(self.client) << 16 | u64::from(number) << 1 | 1;
            self.one(&worker, key, insert.then_some(value)).await;
        }
    }

    /// One operation: an insert of `value`, or a get.
    async fn one(&self, worker: &Worker<SimEndpoint>, key: u64, value: Option<u64>) {
        let op = worker.op();
        let bytes = self.scenario.key(key);
        let mut found = Vec::new();
        let asked = value.map_or(Op::Get, Op::Insert);
        let call = self.record.history.borrow_mut().invoke(self.client, key, asked);
        let outcome = match value {
            Some(value) => op.insert(&self.tree, &bytes, &self.scenario.value(value), &mut found).await,
            None => op.get(&self.tree, &bytes, &mut found).await,
        };
        let history = &mut self.record.history.borrow_mut();
        let ended = match outcome {
            Ok(false) => history.ret(call, None),
            Ok(true) => match self.scenario.value_id(&found) {
                Some(id) => history.ret(call, Some(id)),
                None => {
                    self.trouble(Property::Values, format!("client {} read {found:02x?} under {key}", self.client));
                    history.unknown(call)
                }
            },
            // A deadline, met because time jumped: nothing was changed.
            Err(Error::Timeout { .. }) if self.time_jumps => history.failed(call),
            Err(error) => {
                self.trouble(Property::Progress, format!("client {} on key {key}: {error}", self.client));
                history.unknown(call)
            }
        };
        if let Err(misuse) = ended {
            self.trouble(Property::Progress, misuse.to_string());
        }
    }

    fn trouble(&self, property: Property, what: String) {
        self.record.trouble.borrow_mut().get_or_insert((property, what));
    }
}
