//! Running schedules of a tree and checking each.

use super::check::{self, Found, Property, Violation};
use super::explored::{Explored, Seen};
use super::lab::{Compute, Lab};
use super::scenario::{Caches, Scenario};
use super::script::{Record, Script};
use crate::knobs::Knobs;
use crate::linear::Checker;
use crate::rng::Rng;
use crate::scheduler::{Pct, Random, Scheduler};
use crate::sim::Run;
use crate::trace::Event;
use sherman_core::tree::Merges;
use sherman_core::{ComputeServer, Walk};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// How many events a schedule has, roughly: where PCT puts its change points.
const TYPICAL_STEPS: u64 = 1_500;
/// Seeds that share a scenario, and with it the loaded world.
pub(super) const SEEDS_PER_SCENARIO: u64 = 64;

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
    loader: Compute,
    initial: BTreeMap<u64, u64>,
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
        self.record.clear();
        let cast = world.cast(seed);
        let before = Counts::of(&cast);
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
        let during = Counts::of(&cast).since(&before);
        let seen = Seen {
            run,
            clients: world.lab.scenario.computes * world.lab.scenario.threads,
            splits: during.made(),
            merges: during.merges,
            reused: during.reused,
            scans: self.record.sweeps.borrow().len(),
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
        let mut initial: BTreeMap<u64, u64> = (0..scenario.loaded).map(|key| (2 * key, 1_000 + key)).collect();
        let mut rng = Rng::new(draw ^ 0x5448_494e);
        let thinned: Vec<u64> = initial.keys().copied().filter(|_| rng.one_in(scenario.thinned)).collect();
        let mut lab = Lab::new(scenario, knobs);
        let compute = lab.join();
        let pairs = initial.iter().map(|(&key, &value)| (key, value));
        if lab.scenario.sparse {
            lab.load(&compute, pairs.rev());
        } else {
            lab.load(&compute, pairs);
        }
        lab.unload(&compute, thinned.iter().copied());
        initial.retain(|key, _| !thinned.contains(key));
        if lab.scenario.unposted {
            let first = lab.scenario.first_hot();
            let odd = (first..first + lab.scenario.hot).filter(|key| key % 2 == 1 && !rng.one_in(3));
            let odd: Vec<(u64, u64)> = odd.map(|key| (key, 3_000 + key)).collect();
            lab.load_unposted(&compute, &odd);
            initial.extend(odd);
        }
        lab.walk(&compute).expect("a loaded tree is sound");
        lab.sim.checkpoint();
        Self { draw, lab, loader: compute, initial }
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
            self.change_unseen(&mut cast, seed);
        }
        cast
    }

    /// Somebody changes the tree behind the others' backs: a stranger, or one of them, whose free places are then the next
    /// to be used. Their caches know nothing of its merges and splits.
    fn change_unseen(&mut self, cast: &mut Cast, seed: u64) {
        let mut rng = Rng::new(seed ^ 0x5354_414c);
        let insider = rng.one_in(2);
        let stranger = if insider { cast.computes.swap_remove(0) } else { self.lab.join() };
        let (lowest, keys) = (self.lab.scenario.first_hot().saturating_sub(4), self.lab.scenario.hot as usize + 8);
        let gone: BTreeSet<u64> = (0..rng.below(10)).map(|_| (lowest + rng.below(keys) as u64) & !1).collect();
        let news: BTreeMap<u64, u64> =
            (0..rng.below(12) as u64).map(|i| (lowest + rng.below(keys) as u64, 5_000 + i)).collect();
        self.lab.unload(&stranger, gone.iter().copied());
        self.lab.load(&stranger, news.iter().map(|(&key, &value)| (key, value)));
        cast.initial.retain(|key, _| !gone.contains(key));
        cast.initial.extend(news);
        if insider {
            cast.computes.push(stranger);
        } else {
            cast.stranger = Some(stranger);
        }
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
                    known: cast.initial.clone(),
                    last: seed.wrapping_add(5 * u64::from(client)) % self.lab.scenario.hot,
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
        let everyone = cast.computes.iter().chain(&cast.stranger).chain([&self.loader]);
        let shared: Vec<&ComputeServer> = everyone.map(|compute| &*compute.shared).collect();
        let seen = check::lanes(&self.lab.sim, &self.lab.scenario, &shared)
            .and_then(|()| check::redo(&self.lab.sim, &shared))
            .and_then(|()| self.lab.walk(&cast.computes[0]).map_err(|error| (Property::Walk, error.to_string())))
            .map_err(|found| (Walk::default(), found))?;
        let history = &mut record.history.borrow_mut();
        let checked = check::space(&shared, &seen)
            .and_then(|()| check::ranges(history, &record.sweeps.borrow(), &cast.initial))
            .and_then(|()| check::history(checker, history, &self.lab.scenario, &cast.initial, &seen));
        match checked {
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

/// What the compute servers of a schedule have counted.
struct Counts {
    /// Places that are not free.
    in_use: u64,
    merges: Merges,
    reused: u64,
}

impl Counts {
    fn of(cast: &Cast) -> Self {
        let mut counts = Self { in_use: 0, merges: Merges::default(), reused: 0 };
        for compute in cast.computes.iter().chain(&cast.stranger) {
            let census = compute.shared.census();
            counts.in_use = counts.in_use.wrapping_add(census.allocated).wrapping_sub(census.free);
            counts.reused += census.reused;
            let merges = compute.tree.merges();
            counts.merges.leaves += merges.leaves;
            counts.merges.internal += merges.internal;
            counts.merges.shrinks += merges.shrinks;
        }
        counts
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            in_use: self.in_use.wrapping_sub(before.in_use),
            merges: Merges {
                leaves: self.merges.leaves - before.merges.leaves,
                internal: self.merges.internal - before.merges.internal,
                shrinks: self.merges.shrinks - before.merges.shrinks,
            },
            reused: self.reused - before.reused,
        }
    }

    /// Nodes made: those that are there now, and those that went again.
    fn made(&self) -> u64 {
        self.in_use.wrapping_add(self.merges.leaves + self.merges.internal + self.merges.shrinks)
    }
}
