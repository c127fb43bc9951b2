//! Running schedules of a tree and checking each.

use super::case::Case;
use super::catalog;
use super::check::{self, Found, Property, Violation};
use super::company::Company;
use super::counts::Counts;
use super::explored::{Crashes, Explored, Seen};
use super::inspect::Scene;
use super::lab::{Compute, Lab};
use super::mishap::Mishap;
use super::scenario::{Caches, STEP_NANOS_OF_CRASHES, Scenario};
use super::script::{OTHERS, Record, SPAN, Script};
use crate::atlas::Atlas;
use crate::knobs::Knobs;
use crate::linear::Checker;
use crate::rng::Rng;
use crate::scheduler::{Fair, Pct, Random, Recording, Replay, Scheduler};
use crate::sim::Run;
use crate::trace::Event;
use sherman_core::{ComputeServer, Error, Walk};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// How many events a schedule has, roughly: where PCT puts its change points.
const TYPICAL_STEPS: u64 = 1_500;
/// The most lines told of what concerns a key.
const LAST_LINES: usize = 200;
/// Of how many schedules with crashes one has those that are well depart at the end.
const DISMISSED_ONE_IN: u64 = 8;
/// Of how many schedules one has a fair scheduler.
const FAIR_ONE_IN: u64 = 8;
/// A lease of so many events is long against a round trip, if each thread gets so many of them.
const HEALTHY_LEASE_STEPS: u64 = 350;
const HEALTHY_LEASE_TURNS: u64 = 29;
/// Threads of a compute server besides those of its operations: keeper and recoverer.
const KEEPING_THREADS: u32 = 2;
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
        let case = self.case(seed);
        self.run_case(&case, trace)
    }

    /// What `seed` stands for.
    pub fn case(&mut self, seed: u64) -> Case {
        let world = self.load(seed);
        let scenario = &world.lab.scenario;
        Case::of(seed, if scenario.crashes { Mishap::drawn(seed, scenario) } else { Vec::new() })
    }

    /// What the last case was about, for telling its trace.
    pub fn lab(&self) -> Option<&Lab> {
        self.world.as_ref().map(|world| &world.lab)
    }

    /// The world of `seed`, loaded unless it is at hand.
    fn load(&mut self, seed: u64) -> &mut Loaded {
        let draw = seed / SEEDS_PER_SCENARIO;
        let known = self.world.take().filter(|world| world.draw == draw);
        // Loaded under the knobs of the first seed that shares it, whichever of them comes first here.
        let load = || Loaded::new(draw, (self.choose)(draw), (self.knobs)(draw * SEEDS_PER_SCENARIO));
        self.world.insert(known.unwrap_or_else(load))
    }

    /// Runs a case and checks it.
    pub fn run_case(&mut self, case: &Case, trace: bool) -> (Seen, Vec<Event>) {
        match &case.picks {
            Some(picks) => self.run_by(case, &mut Replay::new(picks.clone()), trace),
            None => self.run_by(case, &mut *scheduler(case.schedule), trace),
        }
    }

    /// The picks by which a case runs.
    pub(super) fn picks_of(&mut self, case: &Case) -> Vec<u32> {
        if let Some(picks) = &case.picks {
            return picks.clone();
        }
        let mut inner = scheduler(case.schedule);
        let mut recording = Recording::new(&mut *inner);
        self.run_by(case, &mut recording, false);
        recording.into_picks()
    }

    /// What a trace of the last case says: all of it, or the end of what concerns the key that was violated.
    pub fn tell(&self, events: &[Event], violation: Option<&Violation>, full: bool) -> Vec<String> {
        let Some(lab) = self.lab() else { return Vec::new() };
        let Some(atlas) = Atlas::of(&lab.sim, lab.scenario.servers) else { return Vec::new() };
        match violation.and_then(|violation| violation.key) {
            Some(key) if !full => atlas.tell_key(events, &lab.scenario.key(key), LAST_LINES),
            _ => atlas.tell(events),
        }
    }

    fn run_by(&mut self, case: &Case, scheduler: &mut dyn Scheduler, trace: bool) -> (Seen, Vec<Event>) {
        let (seed, knobs) = (case.seed, (self.knobs)(case.seed));
        self.load(seed);
        let Some(world) = self.world.as_mut() else { unreachable!("just loaded") };
        world.lab.sim.rewind_with(knobs.clone());
        self.record.clear();
        let cast = world.cast(seed);
        let before = Counts::of(cast.computes.iter().chain(&cast.strangers));
        world.lab.sim.record_trace(trace);
        let company = world.spawn(case, &cast, &self.record, knobs.time_jumps);
        let run = world.lab.sim.run(scheduler);
        let events = if trace { world.lab.sim.trace() } else { Vec::new() };
        world.lab.sim.record_trace(false);
        let everyone =
            company.as_ref().map_or_else(|| cast.computes.clone(), |company| company.members.borrow().clone());
        let during = Counts::of(everyone.iter().chain(&cast.strangers)).since(&before);
        let crashes = Crashes::of(&world.lab.sim, &everyone, company.as_deref(), &case.mishaps, &self.record);
        let mut walk = Walk::default();
        let checked = match company {
            Some(company) => {
                let remaining = company.remaining();
                let scene = Scene { initial: &cast.initial, everyone: &remaining, record: &self.record };
                let dismissed = seed.is_multiple_of(DISMISSED_ONE_IN);
                let healthy = health(case, &world.lab.scenario, &cast.computes);
                healthy.and_then(|()| scene.inspect(&mut world.lab, &run, &mut self.checker, dismissed, &mut walk))
            }
            None => world.check(&run, &cast, &self.record, &mut self.checker, &mut walk),
        };
        let violation = checked.err().map(|Found { property, what, key }| {
            let scenario = format!("{:?} under {knobs:?}; {case}", world.lab.scenario);
            Violation { seed, property, what, key, scenario }
        });
        let seen = Seen {
            run,
            clients: world.lab.scenario.computes * world.lab.scenario.threads,
            splits: during.made(),
            merges: during.merges,
            reused: during.reused,
            scans: self.record.sweeps.borrow().len(),
            height: walk.height(),
            most_verbs: self.record.most_verbs.get(),
            causes: self.record.causes.get(),
            crashes,
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
        if lab.scenario.catalog && rng.one_in(2) {
            let other = lab.create_unmerged(&compute, OTHERS[0], 3 + rng.below(10) as u64);
            initial.extend(catalog::key_of(OTHERS[0]).map(|key| (key, u64::from(other.info().id))));
        }
        if lab.scenario.crashes {
            lab.leave(&compute);
        }
        lab.sim.checkpoint();
        Self { draw, lab, loader: compute, initial }
    }

    /// The compute servers of a schedule, with caches as old as the scenario has them, and what the tree then holds.
    fn cast(&mut self, seed: u64) -> Cast {
        let computes: Vec<Compute> = (0..self.lab.scenario.computes).map(|_| self.lab.join()).collect();
        let mut cast = Cast { computes, initial: self.initial.clone(), strangers: Vec::new(), neglected: false };
        if self.lab.scenario.caches != Caches::Cold {
            for compute in &cast.computes {
                self.lab.warm(compute, self.initial.keys().copied().filter(|&key| key < SPAN));
            }
        }
        if self.lab.scenario.caches == Caches::Stale {
            self.change_unseen(&mut cast, seed);
        }
        if self.lab.scenario.crashes {
            self.renew_all(&mut cast);
        }
        cast
    }

    /// Setting up took its time. Those that owned nothing and whose lease ran out are no members any more: others take their parts.
    fn renew_all(&mut self, cast: &mut Cast) {
        for compute in &mut cast.computes {
            let worker = compute.worker();
            match self.lab.quiet(worker.renew()) {
                Ok(_) => {}
                Err(Error::Fenced { .. }) => *compute = self.lab.join(),
                Err(error) => unreachable!("nobody else is about: {error}"),
            }
        }
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
            // One that nobody keeps alive is recovered sooner or later; so only now and then.
            let neglected = self.lab.scenario.crashes && rng.one_in(4);
            if self.lab.scenario.crashes && !neglected {
                self.lab.leave(&stranger);
            }
            cast.strangers.push(stranger);
            cast.neglected = neglected;
        }
    }

    /// The tasks of a schedule; where things go wrong, with their keepers.
    fn spawn(&mut self, case: &Case, cast: &Cast, record: &Rc<Record>, time_jumps: bool) -> Option<Rc<Company>> {
        let scenario = self.lab.scenario.clone();
        let spawner = self.lab.sim.spawner();
        let company = scenario.crashes.then(|| {
            let restarts = case.mishaps.iter().any(Mishap::is_restart);
            Company::new(spawner.clone(), scenario.clone(), Rc::clone(record), Some(case.seed), restarts)
        });
        let numbers: Vec<u32> = cast.computes.iter().map(|compute| compute.fabric.number()).collect();
        let endpoints: Vec<u32> = numbers.iter().map(|&number| self.lab.sim.endpoints(number)).collect();
        for (number, compute) in cast.computes.iter().enumerate() {
            let workers: Vec<_> = (0..scenario.threads).map(|_| compute.worker()).collect();
            if let Some(company) = &company {
                company.members.borrow_mut().push(compute.clone());
            }
            for (thread, worker) in (0..).zip(workers) {
                let client = number as u32 * scenario.threads + thread;
                if let Some(company) = &company {
                    company.enrol(client, compute.fabric.number());
                }
                let script = Script {
                    client,
                    rng: Rng::new(case.seed.wrapping_mul(1_000_003).wrapping_add(u64::from(client))),
                    scenario: scenario.clone(),
                    tree: Arc::clone(&compute.tree),
                    record: Rc::clone(record),
                    time_jumps,
                    known: cast.initial.clone(),
                    company: company.clone(),
                    gate: None,
                    spawner: spawner.clone(),
                    operations: case.operations_of(client),
                    last: case.seed.wrapping_add(5 * u64::from(client)) % scenario.hot,
                    base: 0,
                    others: Default::default(),
                };
                drop(self.lab.sim.spawn_on(&compute.fabric, thread, "client", script.run(worker)));
            }
            if let Some(company) = &company {
                company.employ_keeper(compute);
            }
        }
        for mishap in &case.mishaps {
            mishap.arrange(&mut self.lab.sim, &numbers, &endpoints);
        }
        company
    }

    /// Everything that must hold; `seen` becomes what is found of the tree.
    fn check(
        &mut self,
        run: &Run,
        cast: &Cast,
        record: &Record,
        checker: &mut Checker,
        seen: &mut Walk,
    ) -> Result<(), Found> {
        let everyone: Vec<&Compute> = cast.computes.iter().chain(&cast.strangers).chain([&self.loader]).collect();
        let shared: Vec<&ComputeServer> = everyone.iter().map(|compute| &*compute.shared).collect();
        check::ended_well(run, record)?;
        check::lanes(&self.lab.sim, &self.lab.scenario, &shared)?;
        check::redo(&self.lab.sim, &shared)?;
        *seen = check::walk(&mut self.lab, &cast.computes[0])?;
        check::space(&self.lab.sim, self.lab.scenario.servers, &everyone, &[seen])?;
        check::told(&self.lab.scenario, record, checker, &cast.initial, seen, &[])
    }
}

/// Whether the scheduler of a seed is fair.
fn is_fair(seed: u64) -> bool {
    seed % FAIR_ONE_IN == 5
}

/// Whether every member that nothing happened to is well, where everybody gets a turn and a lease is long against a round trip.
fn health(case: &Case, scenario: &Scenario, computes: &[Compute]) -> Result<(), Found> {
    let threads = u64::from(scenario.computes * (scenario.threads + KEEPING_THREADS));
    let healthy = HEALTHY_LEASE_STEPS.max(HEALTHY_LEASE_TURNS * threads);
    let judged =
        is_fair(case.schedule) && !scenario.condemned && scenario.lease_nanos >= healthy * STEP_NANOS_OF_CRASHES;
    let struck = |number: u32| case.mishaps.iter().any(|mishap| mishap.concerns(number));
    match (0..).zip(computes).find(|(number, compute)| judged && !struck(*number) && compute.shared.is_doomed()) {
        Some((number, _)) => {
            Err(Found::new(Property::Health, format!("compute server {number} was taken for dead without a reason")))
        }
        None => Ok(()),
    }
}

/// The scheduler of a seed.
pub(super) fn scheduler(seed: u64) -> Box<dyn Scheduler> {
    match seed % 4 {
        _ if is_fair(seed) => Box::new(Fair::new(seed)),
        0 => Box::new(Pct::new(seed, 3, TYPICAL_STEPS)),
        _ => Box::new(Random::swarm(seed)),
    }
}

/// The compute servers of a schedule.
struct Cast {
    computes: Vec<Compute>,
    initial: BTreeMap<u64, u64>,
    /// Those that had their part before it began.
    strangers: Vec<Compute>,
    /// Whether the stranger is still a member.
    neglected: bool,
}
