//! Trees of two node sizes that are made, filled and dropped in turn, in a memory that holds one of them.
//!
//! Catalog entries, root words and places for nodes are used again and again, by trees of either size.
//! Clients keep the trees that they have opened, with all cached nodes, and look keys up in them long after
//! other clients have dropped them. Clients die, and programs lose their identity and join again with the
//! trees that they have.
//!
//! Every key that is found has the value of its tree, and no acknowledged key is missing from a tree that
//! nobody has begun to drop. Operations fail only because their tree is gone or memory is full. At the end an
//! inspector recovers the dead clients, and every place for a node is part of a tree or free.

use super::check::{self, Found, Property};
use super::fixture::{Fixture, options};
use super::scenario::{STEP_NANOS_OF_CRASHES, Scenario};
use crate::endpoint::{SimFabric, VolumeEndpoint};
use crate::knobs::Knobs;
use crate::rng::Rng;
use crate::scheduler::Random;
use crate::sim::{Limits, Run, Sim, SimConfig, Spawner};
use sherman_core::{ComputeServer, Error, Format, TreeState, Worker};
use sherman_fabric::control::TreeSpec;
use sherman_fabric::{Clock, FabricError, sleep_until};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The names of the trees, and the sizes of their nodes.
const TREES: [(&str, u32); 2] = [("small", 256), ("large", 320)];
/// Number of keys of a tree.
const KEYS: u64 = 240;
/// Threads of a client.
const THREADS: u32 = 2;
/// Interval at which a client checks whether its threads have ended.
const LOOK_NANOS: u64 = 20 * STEP_NANOS_OF_CRASHES;
/// Longer, in virtual time, than any recovery takes.
const PATIENCE: Duration = Duration::from_secs(1);

/// The results of a schedule.
#[derive(Clone, Debug, Default)]
pub struct Drops {
    /// Trees that were dropped.
    pub dropped: u64,
    /// Keys that were inserted.
    pub inserted: u64,
    /// Keys that were looked up and found.
    pub found: u64,
    /// Operations that found no memory.
    pub full: u64,
    /// Clients that were killed.
    pub killed: u64,
    /// Programs that joined again.
    pub rejoined: u64,
    /// The violation found, if any.
    pub violation: Option<(Property, String)>,
}

/// A program: what it keeps from one identity to the next.
#[derive(Clone, Default)]
struct Program {
    trees: Rc<RefCell<Vec<Arc<TreeState>>>>,
    rounds: Rc<Cell<u32>>,
}

/// State that the programs of a schedule share.
struct Shared {
    spawner: Spawner,
    scenario: Scenario,
    computes: RefCell<Vec<Arc<ComputeServer>>>,
    /// Keys, with their tree's id, whose insert was acknowledged, and how many drops of trees of that name
    /// had begun until then.
    acknowledged: RefCell<BTreeMap<(u32, u64), u64>>,
    /// How many drops of trees of each name have begun.
    drops: [Cell<u64>; 2],
    seen: RefCell<Drops>,
}

impl Shared {
    fn trouble(&self, property: Property, what: String) {
        self.seen.borrow_mut().violation.get_or_insert((property, what));
    }

    fn spec(&self, tree: usize) -> TreeSpec {
        let bytes = TREES[tree].1;
        let format = self.scenario.format.number();
        TreeSpec { format, key_len: 8, value_len: 8, leaf_bytes: bytes, internal_bytes: bytes }
    }

    /// Begins an identity of a program: its threads, its keeper and its recoverer.
    fn begin(self: &Rc<Self>, program: Program, rng: &mut Rng) {
        let fabric = match self.spawner.join() {
            Ok(fabric) => fabric,
            // Other programs go on.
            Err(_) => return,
        };
        if rng.one_in(4) {
            self.seen.borrow_mut().killed += 1;
            self.spawner.kill_after(fabric.number(), 50 + rng.below(3_000) as u64);
        }
        let (shared, home, mut rng) = (Rc::clone(self), fabric.clone(), Rng::new(rng.next_u64()));
        let life = async move {
            match shared.live(&program, &fabric, &mut rng).await {
                Ok(()) => {}
                Err(error) if ends(&error) => {
                    shared.seen.borrow_mut().rejoined += 1;
                    shared.begin(program, &mut rng);
                }
                Err(error) => shared.trouble(Property::Progress, format!("a client failed: {error}")),
            }
        };
        drop(self.spawner.spawn(Some(&home), 0, "life", life));
    }

    async fn live(
        self: &Rc<Self>,
        program: &Program,
        fabric: &SimFabric,
        rng: &mut Rng,
    ) -> Result<(), Error> {
        let endpoint = fabric.volumes()?;
        let compute =
            ComputeServer::open_replicated(&endpoint, options(&self.scenario), Arc::clone(fabric.table()))
                .await?;
        self.computes.borrow_mut().push(Arc::clone(&compute));
        let worker = Worker::new(endpoint, Arc::clone(&compute));
        let (over, busy) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(2 + THREADS)));
        for (thread, name) in [(1, "keeper"), (2, "recoverer")] {
            let worker = Worker::new(fabric.volumes()?, Arc::clone(&compute));
            let (over, busy) = (Rc::clone(&over), Rc::clone(&busy));
            let task = async move {
                if thread == 1 {
                    let _ended: Result<(), Error> = worker.keep(|| over.get() && busy.get() == 1).await;
                } else {
                    let _ended: Result<(), Error> = worker.recover_others(|| over.get()).await;
                }
                busy.set(busy.get() - 1);
            };
            drop(self.spawner.spawn(Some(fabric), thread, name, task));
        }
        for thread in 0..THREADS {
            let worker = Worker::new(fabric.volumes()?, Arc::clone(&compute));
            let (shared, program, busy) = (Rc::clone(self), program.clone(), Rc::clone(&busy));
            let mut rng = Rng::new(rng.next_u64());
            let task = async move {
                if let Err(error) = shared.work(&program, &worker, &mut rng).await
                    && !ends(&error)
                {
                    shared.trouble(Property::Progress, format!("an operation failed: {error}"));
                }
                busy.set(busy.get() - 1);
            };
            drop(self.spawner.spawn(Some(fabric), 3 + thread, "thread", task));
        }
        while busy.get() > 2 {
            sleep_until(worker.endpoint(), worker.endpoint().now() + LOOK_NANOS).await;
        }
        over.set(true);
        while busy.get() > 0 {
            sleep_until(worker.endpoint(), worker.endpoint().now() + LOOK_NANOS).await;
        }
        if compute.is_terminated() {
            return Err(Error::Fenced { client: compute.client() });
        }
        worker.depart().await
    }

    /// Fills trees, looks keys up and drops trees, until the program has no rounds left.
    async fn work(
        &self,
        program: &Program,
        worker: &Worker<VolumeEndpoint>,
        rng: &mut Rng,
    ) -> Result<(), Error> {
        while program.rounds.get() > 0 {
            program.rounds.set(program.rounds.get() - 1);
            let which = rng.below(2);
            match worker.tree(TREES[which].0, &self.spec(which)).await {
                Ok(tree) => {
                    program.trees.borrow_mut().push(Arc::clone(&tree));
                    unless_gone(self.fill(worker, &tree, which, rng).await)?;
                }
                other => unless_gone(other.map(drop))?,
            }
            self.read_some(program, worker, rng).await?;
            if rng.one_in(2) {
                self.drops[which].set(self.drops[which].get() + 1);
                match worker.drop_tree(TREES[which].0).await {
                    Ok(_) => self.seen.borrow_mut().dropped += 1,
                    Err(error) => unless_gone(Err(error))?,
                }
            }
            if rng.one_in(16) {
                let computes: Vec<_> = self.computes.borrow().iter().map(|one| one.client()).collect();
                let victim = computes[rng.below(computes.len())];
                if victim != worker.compute().client() {
                    // It may be gone, or another client may recover it.
                    match worker.condemn(victim).await {
                        Err(error) if ends(&error) => return Err(error),
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }

    /// Looks a few keys up in trees that the program has opened at some time.
    async fn read_some(
        &self,
        program: &Program,
        worker: &Worker<VolumeEndpoint>,
        rng: &mut Rng,
    ) -> Result<(), Error> {
        for _ in 0..rng.below(12) {
            let tree = {
                let trees = program.trees.borrow();
                trees.get(rng.below(trees.len().max(1))).cloned()
            };
            let Some(tree) = tree else { break };
            unless_gone(self.look_up(worker, &tree, rng).await)?;
        }
        Ok(())
    }

    async fn fill(
        &self,
        worker: &Worker<VolumeEndpoint>,
        tree: &Arc<TreeState>,
        which: usize,
        rng: &mut Rng,
    ) -> Result<(), Error> {
        let id = tree.info().id;
        let first = rng.below(KEYS as usize) as u64;
        for key in (0..10 + rng.below(90) as u64).map(|at| (first + at) % KEYS) {
            let (drops, mut old) = (self.drops[which].get(), Vec::new());
            let value = value_of(id, key).to_le_bytes();
            let inserted = worker.op().insert(tree, &key.to_be_bytes(), &value, &mut old).await;
            self.check(id, key, inserted.as_ref().is_ok_and(|there| *there).then_some(&old));
            if inserted == Err(Error::OutOfMemory) {
                self.seen.borrow_mut().full += 1;
            }
            inserted?;
            self.seen.borrow_mut().inserted += 1;
            if self.drops[which].get() == drops {
                self.acknowledged.borrow_mut().insert((id, key), drops);
            }
        }
        Ok(())
    }

    async fn look_up(
        &self,
        worker: &Worker<VolumeEndpoint>,
        tree: &Arc<TreeState>,
        rng: &mut Rng,
    ) -> Result<(), Error> {
        let (id, key) = (tree.info().id, rng.below(KEYS as usize) as u64);
        let which = usize::from(tree.info().name != TREES[0].0);
        let mut value = Vec::new();
        let acknowledged = self.acknowledged.borrow().get(&(id, key)).copied();
        let there = worker.op().get(tree, &key.to_be_bytes(), &mut value).await?;
        self.check(id, key, there.then_some(&value));
        self.seen.borrow_mut().found += u64::from(there);
        if !there && acknowledged == Some(self.drops[which].get()) {
            self.trouble(Property::Linear, format!("key {key} of tree {id} was acknowledged and is gone"));
        }
        Ok(())
    }

    fn check(&self, id: u32, key: u64, found: Option<&Vec<u8>>) {
        if let Some(found) = found
            && **found != value_of(id, key).to_le_bytes()
        {
            self.trouble(Property::Values, format!("key {key} of tree {id} holds {found:02x?}"));
        }
    }
}

/// The value of a key in a tree. It looks like the first bytes of a node.
fn value_of(id: u32, key: u64) -> u64 {
    u64::from(id) << 32 | key << 8 | 0xa0
}

/// Whether an error ends the identity.
fn ends(error: &Error) -> bool {
    matches!(
        error,
        Error::Fenced { .. } | Error::Fabric(FabricError::Disconnected { .. }) | Error::OutcomeUnknown { .. }
    )
}

/// Accepts that the tree is gone, or that there is no memory.
fn unless_gone(outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(Error::NoSuchTree { .. } | Error::OutOfMemory) => Ok(()),
        outcome => outcome,
    }
}

impl Drops {
    /// Adds the results of another schedule.
    pub fn merge(&mut self, other: Self) {
        self.dropped += other.dropped;
        self.inserted += other.inserted;
        self.found += other.found;
        self.full += other.full;
        self.killed += other.killed;
        self.rejoined += other.rejoined;
        self.violation = self.violation.take().or(other.violation);
    }

    /// Runs the schedule of `seed`.
    pub fn run(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5245_434c_4149_4d00);
        let scenario = Scenario {
            format: if rng.one_in(2) { Format::LineStamped } else { Format::LineHashed },
            servers: 1 + u16::from(rng.one_in(4)),
            crashes: true,
            span_places: [1, 2, 4][rng.below(3)],
            lease_nanos: STEP_NANOS_OF_CRASHES * (1_200 + rng.below(2_400) as u64),
            ..Scenario::default()
        };
        let mut config: SimConfig =
            scenario.config(Knobs { time_jumps: false, ..Knobs::swarm_with_crashes(seed) });
        config.format.member_capacity = 24;
        config.format.catalog_capacity = 4;
        // Memory for the redo areas and a few chunks of nodes.
        config.format.redo_area_bytes = 2 << 10;
        config.host_bytes = (28 + 4 * rng.below(4)) << 10;
        config.limits = Limits { steps: 3_000_000, ..config.limits };
        let sim = Sim::new(&config).expect("the world of a scenario can be formatted");
        let mut fixture = Fixture { sim, scenario };
        let first = fixture.join();
        fixture.leave(&first);
        let shared = Rc::new(Shared {
            spawner: fixture.sim.spawner(),
            scenario: fixture.scenario.clone(),
            computes: RefCell::default(),
            acknowledged: RefCell::default(),
            drops: Default::default(),
            seen: RefCell::default(),
        });
        for _ in 0..2 + rng.below(2) {
            let program = Program { rounds: Rc::new(Cell::new(8)), ..Program::default() };
            shared.begin(program, &mut rng);
        }
        let run = fixture.sim.run(&mut Random::swarm(seed));
        let found = shared.verdict(&mut fixture, &run).err();
        let mut seen = shared.seen.take();
        let later = found.map(|found| (found.property, found.what));
        seen.violation = seen.violation.or(later);
        seen
    }
}

impl Shared {
    /// Checks what must hold at the end.
    fn verdict(&self, fixture: &mut Fixture, run: &Run) -> Result<(), Found> {
        if !run.is_done() {
            return Err(Found::new(Property::Progress, format!("{:?}", run.outcome)));
        }
        let inspector = fixture.join();
        let worker = inspector.worker();
        let own = inspector.fabric.client();
        match fixture.sim.block_on(worker.recover_all(|client| client == own, PATIENCE)) {
            Ok(Ok(_)) => {}
            other => return Err(Found::new(Property::Recovery, format!("{other:?}"))),
        }
        check::lanes(&fixture.sim, &fixture.scenario, &[&inspector.shared])?;
        check::redo(&fixture.sim, &[&inspector.shared])?;
        let walk_all = async {
            let mut walks = Vec::new();
            for info in worker.trees().await? {
                let tree = worker.open_tree(&info.name).await?;
                walks.push(worker.op().walk(&tree).await?);
            }
            Ok::<_, Error>(walks)
        };
        let walks = match fixture.sim.block_on(walk_all) {
            Ok(Ok(walks)) => walks,
            other => return Err(Found::new(Property::Walk, format!("{other:?}"))),
        };
        let walks: Vec<_> = walks.iter().collect();
        check::space(&fixture.sim, fixture.scenario.servers, &[&inspector], &walks)
    }
}
