//! Hundreds of short lives: clients join, run one operation, and then leave, die or fall silent, again and
//! again on the same memory.
//!
//! A single life may leak an id, a span, a redo area or a place for a node. That is too little to notice, but
//! hundreds of such leaks use up a small world. Each chain of lives has its own keys, so the possible values
//! of each key are known: those that were acknowledged, or may have been written. One member stays for the
//! whole schedule. In half of the schedules this member recovers others, else the short-lived clients do.
//!
//! At the end only that member and an inspector remain, and the inspector recovers the dead clients. Then
//! every key holds a possible value, every lane is free, and every place for a node is part of the tree or
//! free.

use super::check::{self, Found, Property};
use super::fixture::{Compute, Fixture, TREE, options};
use super::scenario::{STEP_NANOS_OF_CRASHES, Scenario, Shape};
use crate::atlas::Atlas;
use crate::endpoint::{SimFabric, VolumeEndpoint};
use crate::knobs::Knobs;
use crate::rng::Rng;
use crate::scheduler::Random;
use crate::sim::{Limits, Run, Sim, SimConfig, Spawner};
use sherman_core::{Cause, ComputeServer, Error, Worker};
use sherman_fabric::{Clock, FabricError, Refusal, sleep_until};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Number of keys of one chain.
const KEYS: u64 = 24;
/// Interval at which the member that stays checks whether a life has ended.
const LOOK_NANOS: u64 = 20 * STEP_NANOS_OF_CRASHES;
/// Longer, in virtual time, than any recovery takes.
const PATIENCE: Duration = Duration::from_secs(1);

/// The results of a schedule of many lives.
#[derive(Clone, Debug, Default)]
pub struct Lives {
    /// Number of lives that began.
    pub lives: u64,
    /// Number of lives that left in order.
    pub left: u64,
    /// Number of lives that were killed.
    pub killed: u64,
    /// Number of lives that fell silent without leaving.
    pub silent: u64,
    /// Operations that were acknowledged.
    pub operations: u64,
    /// Number of joins that were refused because no id was free.
    pub refused: u64,
    /// How many times an operation waited for memory that other clients held and did not use.
    pub waited: u64,
    /// Number of operations that found no memory and changed nothing.
    pub full: u64,
    /// The violation found, if any.
    pub violation: Option<String>,
}

/// State that the lives of a schedule share.
struct Shared {
    spawner: Spawner,
    scenario: Scenario,
    chains: Vec<Chain>,
    /// Whether the short-lived clients recover others.
    all_recover: bool,
    /// The possible values of each key. Nothing is known about other keys.
    known: RefCell<BTreeMap<u64, BTreeSet<Option<u64>>>>,
    seen: RefCell<Lives>,
    over: Cell<bool>,
}

/// A chain of lives, one after the other.
#[derive(Default)]
struct Chain {
    left: Cell<u64>,
    /// The compute server of the current life, until it has ended.
    present: Cell<Option<u32>>,
}

impl Shared {
    fn trouble(&self, what: String) {
        self.seen.borrow_mut().violation.get_or_insert(what);
    }

    /// Begins a new life in each chain whose life has ended. Returns whether any chain has lives left.
    fn go_on(self: &Rc<Self>, rng: &mut Rng) -> bool {
        let mut busy = false;
        for (number, chain) in (0..).zip(&self.chains) {
            if chain.present.get().is_some_and(|present| self.spawner.is_dead(present)) {
                chain.present.set(None);
            }
            busy |= chain.present.get().is_some() || chain.left.get() > 0;
            if chain.present.get().is_some() || chain.left.get() == 0 {
                continue;
            }
            match self.spawner.join() {
                Ok(fabric) => {
                    chain.left.set(chain.left.get() - 1);
                    chain.present.set(Some(fabric.number()));
                    self.begin(number, fabric, rng);
                }
                Err(Refusal::TooManyMembers) => self.seen.borrow_mut().refused += 1,
                Err(refusal) => self.trouble(format!("a client cannot join: {refusal}")),
            }
        }
        busy
    }

    fn begin(self: &Rc<Self>, chain: u64, fabric: SimFabric, rng: &mut Rng) {
        let mut rng = Rng::new(rng.next_u64());
        let number = fabric.number();
        self.seen.borrow_mut().lives += 1;
        if rng.one_in(4) {
            self.seen.borrow_mut().killed += 1;
            self.spawner.kill_after(number, 1 + rng.below(60) as u64);
        }
        let (shared, home) = (Rc::clone(self), fabric.clone());
        let life = async move {
            let outcome = shared.live(chain, fabric, &mut rng).await;
            if let Err(error) = outcome
                && !matches!(error, Error::Fenced { .. } | Error::Fabric(FabricError::Disconnected { .. }))
            {
                shared.trouble(format!("a life of chain {chain} failed: {error}"));
            }
            shared.chains[chain as usize].present.set(None);
        };
        drop(self.spawner.spawn(Some(&home), 0, "life", life));
    }

    /// Joins, runs one operation, and leaves.
    async fn live(self: &Rc<Self>, chain: u64, fabric: SimFabric, rng: &mut Rng) -> Result<(), Error> {
        let endpoint = fabric.volumes()?;
        let compute =
            ComputeServer::open_replicated(&endpoint, options(&self.scenario), Arc::clone(fabric.table()))
                .await?;
        let worker = Worker::new(endpoint, Arc::clone(&compute));
        let (over, recovers) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(self.all_recover)));
        if self.all_recover {
            self.keep(&fabric, &compute, &over, &recovers);
        }
        let outcome = self.do_one_thing(chain, &worker, rng).await;
        // The recoverer finishes a recovery that it has begun, and the keeper renews the lease until then.
        over.set(true);
        while recovers.get() {
            sleep_until(worker.endpoint(), worker.endpoint().now() + LOOK_NANOS).await;
        }
        outcome?;
        if rng.one_in(6) {
            self.seen.borrow_mut().silent += 1;
            return Ok(());
        }
        worker.depart().await?;
        self.seen.borrow_mut().left += 1;
        Ok(())
    }

    /// Runs a keeper, which renews the lease, and a recoverer until the life is over.
    fn keep(
        self: &Rc<Self>,
        fabric: &SimFabric,
        compute: &Arc<ComputeServer>,
        over: &Rc<Cell<bool>>,
        recovers: &Rc<Cell<bool>>,
    ) {
        for (thread, name) in [(1, "keeper"), (2, "recoverer")] {
            let Ok(endpoint) = fabric.volumes() else { return recovers.set(false) };
            let worker = Worker::new(endpoint, Arc::clone(compute));
            let (over, recovers) = (Rc::clone(over), Rc::clone(recovers));
            let task = async move {
                if thread == 1 {
                    let _ended: Result<(), Error> = worker.keep(|| over.get() && !recovers.get()).await;
                } else {
                    let _ended: Result<(), Error> = worker.recover_others(|| over.get()).await;
                    recovers.set(false);
                }
            };
            drop(self.spawner.spawn(Some(fabric), thread, name, task));
        }
    }

    async fn do_one_thing(
        &self,
        chain: u64,
        worker: &Worker<VolumeEndpoint>,
        rng: &mut Rng,
    ) -> Result<(), Error> {
        let tree = worker.open_tree(TREE).await?;
        let number = chain * KEYS + rng.below(KEYS as usize) as u64;
        let (key, mut found) = (self.scenario.key(number), Vec::new());
        let op = worker.op();
        let before = self.known.borrow().get(&number).cloned();
        let (there, after) = match rng.below(8) {
            0 => (op.get(&tree, &key, &mut found).await, None),
            1..5 => {
                let value = rng.next_u64() % 50_000;
                self.may_become(number, Some(value));
                (op.insert(&tree, &key, &self.scenario.value(value), &mut found).await, Some(Some(value)))
            }
            _ => {
                self.may_become(number, None);
                (op.remove(&tree, &key, &mut found).await, Some(None))
            }
        };
        let waits = op.retries().iter().find(|(cause, _)| *cause == Cause::Memory);
        self.seen.borrow_mut().waited += waits.map_or(0, |(_, times)| times);
        let there = match there {
            Err(Error::OutcomeUnknown { .. }) => {
                return Err(Error::Fenced { client: worker.compute().client() });
            }
            Err(Error::OutOfMemory) if self.scenario.short => {
                self.seen.borrow_mut().full += 1;
                self.known.borrow_mut().insert(number, before.unwrap_or_else(|| BTreeSet::from([None])));
                return Ok(());
            }
            there => there?,
        };
        self.seen.borrow_mut().operations += 1;
        let before = if there { self.scenario.value_id(&found) } else { None };
        let mut known = self.known.borrow_mut();
        let may = known.entry(number).or_insert_with(|| BTreeSet::from([None]));
        if there && before.is_none() || !may.contains(&before) {
            self.trouble(format!("key {number} held {before:?} ({found:02x?}), which is not one of {may:?}"));
        }
        *may = BTreeSet::from([after.unwrap_or(before)]);
        Ok(())
    }

    /// Adds a possible value of `key`, until its operation is acknowledged.
    fn may_become(&self, key: u64, value: Option<u64>) {
        let mut known = self.known.borrow_mut();
        known.entry(key).or_insert_with(|| BTreeSet::from([None])).insert(value);
    }
}

impl Lives {
    /// Adds the results of another schedule.
    pub fn merge(&mut self, other: Self) {
        self.lives += other.lives;
        self.left += other.left;
        self.killed += other.killed;
        self.silent += other.silent;
        self.operations += other.operations;
        self.refused += other.refused;
        self.waited += other.waited;
        self.full += other.full;
        self.violation = self.violation.take().or(other.violation);
    }

    /// Runs the schedule of `seed`.
    pub fn run(seed: u64) -> Self {
        Self::run_traced(seed, false).0
    }

    /// Runs the schedule of `seed`, and returns every event if `trace` is set.
    pub fn run_traced(seed: u64, trace: bool) -> (Self, Vec<String>) {
        let mut rng = Rng::new(seed ^ 0x4c49_5645_5300);
        let scenario = Scenario {
            shape: if rng.one_in(2) { Shape::Four } else { Shape::Pairs },
            servers: 1 + rng.below(2) as u16,
            loaded: rng.below(6) as u64,
            crashes: true,
            span_places: [1, 2, 4][rng.below(3)],
            short: rng.one_in(4),
            lease_nanos: STEP_NANOS_OF_CRASHES * (600 + rng.below(1_200) as u64),
            ..Scenario::default()
        };
        let mut config: SimConfig =
            scenario.config(Knobs { time_jumps: false, ..Knobs::swarm_with_crashes(seed) });
        // Enough ids that some are in reserve, and few enough that ids are reused.
        config.format.member_capacity = 48 + rng.below(16) as u32;
        // Memory for one redo area per id and little more, or too little for all clients that are alive at a
        // time.
        let short = scenario.short;
        config.host_bytes = if short { (44 + rng.below(24)) << 10 } else { 448 << 10 };
        config.limits = Limits { steps: 3_000_000, ..config.limits };
        let sim = Sim::new(&config).expect("the world of a scenario can be formatted");
        let mut fixture = Fixture { sim, scenario };
        let stays = fixture.join();
        let (chains, lives) = (2 + rng.below(3), 40 + rng.below(60) as u64);
        let chain = |_| Chain { left: Cell::new(lives), ..Chain::default() };
        let shared = Rc::new(Shared {
            spawner: fixture.sim.spawner(),
            scenario: fixture.scenario.clone(),
            chains: (0..chains).map(chain).collect(),
            all_recover: rng.one_in(2),
            known: RefCell::default(),
            seen: RefCell::default(),
            over: Cell::new(false),
        });
        Self::stay(&mut fixture, &stays, &shared, rng);
        fixture.sim.record_trace(trace);
        let run = fixture.sim.run(&mut Random::swarm(seed));
        let events = if trace { fixture.sim.trace() } else { Vec::new() };
        fixture.sim.record_trace(false);
        let told = Atlas::of(&fixture.sim, fixture.scenario.servers)
            .map(|atlas| atlas.tell(&events))
            .unwrap_or_default();
        let found = shared.verdict(&mut fixture, &run, &stays).err();
        let mut seen = shared.seen.take();
        seen.violation =
            seen.violation.or(found.map(|found| format!("{:?}: {}", found.property, found.what)));
        (seen, told)
    }

    /// Spawns the tasks of the member that stays. It keeps its lease, begins lives and recovers others if the
    /// short-lived clients do not.
    fn stay(fixture: &mut Fixture, stays: &Compute, shared: &Rc<Shared>, mut rng: Rng) {
        let (worker, all) = (stays.worker(), Rc::clone(shared));
        let begins = async move {
            while all.go_on(&mut rng) {
                sleep_until(worker.endpoint(), worker.endpoint().now() + LOOK_NANOS).await;
            }
            all.over.set(true);
        };
        drop(fixture.sim.spawn_on(&stays.fabric, 0, "begins lives", begins));
        let (worker, all) = (stays.worker(), Rc::clone(shared));
        let keeper = async move {
            if let Err(error) = worker.keep(|| all.over.get()).await {
                all.trouble(format!("the keeper of the member that stays failed: {error}"));
            }
        };
        drop(fixture.sim.spawn_on(&stays.fabric, 1, "keeper", keeper));
        if !shared.all_recover {
            let (worker, all) = (stays.worker(), Rc::clone(shared));
            let recoverer = async move {
                if let Err(error) = worker.recover_others(|| all.over.get()).await {
                    all.trouble(format!("the recoverer of the member that stays failed: {error}"));
                }
            };
            drop(fixture.sim.spawn_on(&stays.fabric, 2, "recoverer", recoverer));
        }
    }
}

impl Shared {
    /// Checks what must hold at the end.
    fn verdict(&self, fixture: &mut Fixture, run: &Run, stays: &Compute) -> Result<(), Found> {
        if !run.is_done() {
            return Err(Found::new(Property::Progress, format!("{:?}", run.outcome)));
        }
        // Silent clients count as alive until their lease expires. After that there is room.
        let waits = stays.worker();
        let until = waits.endpoint().now() + self.scenario.lease_nanos;
        let awake = async {
            sleep_until(waits.endpoint(), until).await;
            waits.renew().await
        };
        match fixture.sim.block_on(awake) {
            Ok(Ok(_)) => {}
            other => {
                return Err(Found::new(
                    Property::Health,
                    format!("the member that stays cannot renew its lease: {other:?}"),
                ));
            }
        }
        let visit = self.spawner.visit();
        visit.map_err(|refusal| {
            Found::new(Property::Members, format!("a client cannot join one lease later: {refusal}"))
        })?;
        let inspector = fixture.join();
        let worker = inspector.worker();
        let alive = [stays.fabric.client(), inspector.fabric.client()];
        match fixture.sim.block_on(worker.recover_all(|client| alive.contains(&client), PATIENCE)) {
            Ok(Ok(_)) => {}
            other => return Err(Found::new(Property::Recovery, format!("{other:?}"))),
        }
        let everyone = [stays, &inspector];
        let shared: Vec<&ComputeServer> = everyone.iter().map(|compute| &*compute.shared).collect();
        check::lanes(&fixture.sim, &fixture.scenario, &shared)?;
        check::redo(&fixture.sim, &shared)?;
        let walk = check::walk(fixture, &inspector)?;
        check::space(&fixture.sim, fixture.scenario.servers, &everyone, &[&walk])?;
        let entries: BTreeMap<u64, Option<u64>> = walk
            .entries
            .iter()
            .map(|(key, value)| (self.scenario.key_id(key), self.scenario.value_id(value)))
            .collect();
        for (key, may) in self.known.borrow().iter() {
            let holds = entries.get(key).copied().flatten();
            if !may.contains(&holds) {
                let what = format!("key {key} holds {holds:?} at the end, which is not one of {may:?}");
                return Err(Found::new(Property::Values, what));
            }
        }
        Ok(())
    }
}
