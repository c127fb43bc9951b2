//! Runs schedules of a tree and checks each.

use super::case::Case;
use super::catalog;
use super::check::{self, Found, Property, Violation};
use super::counts::Counts;
use super::explored::{Crashes, Explored, Seen};
use super::fixture::{Compute, Fixture};
use super::inspect::Scene;
use super::members::Members;
use super::mishap::Mishap;
use super::scenario::{Caches, STEP_NANOS_OF_CRASHES, Scenario};
use super::script::{OTHERS, Record, SPAN, Script};
use crate::atlas::Atlas;
use crate::knobs::Knobs;
use crate::linear::Checker;
use crate::rng::Rng;
use crate::scheduler::{Fair, Pct, Random, Recording, Replay, Scheduler};
use crate::sim::{GroupPlan, Run, Weather};
use crate::trace::Event;
use sherman_core::{ComputeServer, Error, Walk};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// Approximate number of events of a schedule. PCT places its change points in this range.
const TYPICAL_STEPS: u64 = 1_500;
/// Most lines that are printed about a key.
const LAST_LINES: usize = 200;
/// In one of this many schedules with crashes, the healthy compute servers depart at the end.
const DISMISSED_ONE_IN: u64 = 8;
/// One of this many schedules has a fair scheduler.
const FAIR_ONE_IN: u64 = 8;
/// A lease of this many events is long compared to a round trip, if each thread gets `HEALTHY_LEASE_TURNS` of
/// them.
const HEALTHY_LEASE_STEPS: u64 = 350;
const HEALTHY_LEASE_TURNS: u64 = 29;
/// Extra threads of a compute server: keeper and recoverer.
const KEEPING_THREADS: u32 = 2;
/// Number of seeds that share a scenario, and with it the loaded world.
pub(super) const SEEDS_PER_SCENARIO: u64 = 64;

/// Runs schedules. It keeps the loaded world from one seed to the next.
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
    fixture: Fixture,
    loader: Compute,
    initial: BTreeMap<u64, u64>,
}

impl Explorer {
    /// Creates an explorer. `choose` returns the scenario of a number, and `knobs` returns the knobs of a
    /// seed. Sixty-four consecutive seeds share a scenario.
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

    /// Runs the schedule of `seed` and checks it. Also returns every event if `trace` is set.
    pub fn run_traced(&mut self, seed: u64, trace: bool) -> (Seen, Vec<Event>) {
        let case = self.case(seed);
        self.run_case(&case, trace)
    }

    /// Returns the case of `seed`.
    pub fn case(&mut self, seed: u64) -> Case {
        let world = self.load(seed);
        let scenario = &world.fixture.scenario;
        Case::of(seed, if scenario.crashes { Mishap::drawn(seed, scenario) } else { Vec::new() })
    }

    /// Returns the world of the last case, for printing its trace.
    pub fn fixture(&self) -> Option<&Fixture> {
        self.world.as_ref().map(|world| &world.fixture)
    }

    /// Returns the world of `seed`. Loads it unless it is already loaded.
    fn load(&mut self, seed: u64) -> &mut Loaded {
        let draw = seed / SEEDS_PER_SCENARIO;
        let known = self.world.take().filter(|world| world.draw == draw);
        // Always loaded under the knobs of the first seed that shares it, whichever seed runs first here.
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

    /// Returns the picks of a case.
    pub(super) fn picks_of(&mut self, case: &Case) -> Vec<u32> {
        if let Some(picks) = &case.picks {
            return picks.clone();
        }
        let mut inner = scheduler(case.schedule);
        let mut recording = Recording::new(&mut *inner);
        self.run_by(case, &mut recording, false);
        recording.into_picks()
    }

    /// Returns the trace of the last case as text: all of it, or the end of the part that concerns the
    /// violated key.
    pub fn tell(&self, events: &[Event], violation: Option<&Violation>, full: bool) -> Vec<String> {
        let Some(fixture) = self.fixture() else { return Vec::new() };
        let Some(atlas) = Atlas::of(&fixture.sim, fixture.scenario.servers) else { return Vec::new() };
        match violation.and_then(|violation| violation.key) {
            Some(key) if !full => atlas.tell_key(events, &fixture.scenario.key(key), LAST_LINES),
            _ => atlas.tell(events),
        }
    }

    fn run_by(&mut self, case: &Case, scheduler: &mut dyn Scheduler, trace: bool) -> (Seen, Vec<Event>) {
        let (seed, knobs) = (case.seed, (self.knobs)(case.seed));
        self.load(seed);
        let Some(world) = self.world.as_mut() else { unreachable!("just loaded") };
        world.fixture.sim.rewind_with(knobs.clone());
        self.record.clear();
        let participants = world.participants(seed);
        let before = Counts::of(participants.computes.iter().chain(&participants.strangers));
        world.fixture.sim.record_trace(trace);
        let members = world.spawn(case, &participants, &self.record, knobs.time_jumps);
        let run = world.fixture.sim.run(scheduler);
        let group = world.fixture.sim.rest_group().map(|(wrong, what)| Found::new(wrong.into(), what));
        let events = if trace { world.fixture.sim.trace() } else { Vec::new() };
        world.fixture.sim.record_trace(false);
        let everyone = members
            .as_ref()
            .map_or_else(|| participants.computes.clone(), |members| members.computes.borrow().clone());
        let during = Counts::of(everyone.iter().chain(&participants.strangers)).since(&before);
        let crashes =
            Crashes::of(&world.fixture.sim, &everyone, members.as_deref(), &case.mishaps, &self.record);
        let mut walk = Walk::default();
        let checked = match members {
            Some(members) => {
                let remaining = members.remaining();
                let lost: Vec<u16> = case.mishaps.iter().filter_map(Mishap::host).collect();
                let returning: Vec<u16> = case.mishaps.iter().filter_map(Mishap::returning).collect();
                let scene = Scene {
                    initial: &participants.initial,
                    everyone: &remaining,
                    record: &self.record,
                    lost: &lost,
                    returning: &returning,
                    finishes: (seed / 2).is_multiple_of(2),
                };
                let dismissed = seed.is_multiple_of(DISMISSED_ONE_IN);
                let healthy = group
                    .map_or(Ok(()), Err)
                    .and_then(|()| health(case, &world.fixture.scenario, &participants.computes))
                    .and_then(|()| settled(case, &world.fixture.scenario, &self.record));
                healthy.and_then(|()| {
                    scene.inspect(&mut world.fixture, &run, &mut self.checker, dismissed, &mut walk)
                })
            }
            None => world.check(&run, &participants, &self.record, &mut self.checker, &mut walk),
        };
        let violation = checked.err().map(|Found { property, what, key }| {
            let scenario = format!("{:?} under {knobs:?}; {case}", world.fixture.scenario);
            Violation { seed, property, what, key, scenario }
        });
        let seen = Seen {
            run,
            clients: world.fixture.scenario.computes * world.fixture.scenario.threads,
            splits: during.made(),
            merges: during.merges,
            reused: during.reused,
            scans: self.record.sweeps.borrow().len(),
            height: walk.height(),
            most_verbs: self.record.most_verbs.get(),
            causes: self.record.causes.get(),
            shared: self.record.shared.get(),
            at_once: self.record.at_once.get(),
            resumed: self.record.resumed.get(),
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
        let mut initial: BTreeMap<u64, u64> =
            (0..scenario.loaded).map(|key| (2 * key, 1_000 + key)).collect();
        let mut rng = Rng::new(draw ^ 0x5448_494e);
        let thinned: Vec<u64> = initial.keys().copied().filter(|_| rng.one_in(scenario.thinned)).collect();
        let mut fixture = Fixture::new(scenario, knobs);
        let compute = fixture.join();
        let pairs = initial.iter().map(|(&key, &value)| (key, value));
        if fixture.scenario.sparse {
            fixture.load(&compute, pairs.rev());
        } else {
            fixture.load(&compute, pairs);
        }
        fixture.unload(&compute, thinned.iter().copied());
        initial.retain(|key, _| !thinned.contains(key));
        if fixture.scenario.unposted {
            let first = fixture.scenario.first_hot();
            let odd = (first..first + fixture.scenario.hot).filter(|key| key % 2 == 1 && !rng.one_in(3));
            let odd: Vec<(u64, u64)> = odd.map(|key| (key, 3_000 + key)).collect();
            fixture.load_unposted(&compute, &odd);
            initial.extend(odd);
        }
        fixture.walk(&compute).expect("a loaded tree is sound");
        if fixture.scenario.catalog && rng.one_in(2) {
            let other = fixture.create_unmerged(&compute, OTHERS[0], 3 + rng.below(10) as u64);
            initial.extend(catalog::key_of(OTHERS[0]).map(|key| (key, u64::from(other.info().id))));
        }
        if fixture.scenario.crashes {
            fixture.leave(&compute);
        }
        fixture.sim.checkpoint();
        Self { draw, fixture, loader: compute, initial }
    }

    /// Creates the compute servers of a schedule, with caches as old as the scenario says, and the contents
    /// of the tree.
    fn participants(&mut self, seed: u64) -> Participants {
        let computes: Vec<Compute> =
            (0..self.fixture.scenario.computes).map(|_| self.fixture.join()).collect();
        let mut participants =
            Participants { computes, initial: self.initial.clone(), strangers: Vec::new(), neglected: false };
        if self.fixture.scenario.caches != Caches::Cold {
            for compute in &participants.computes {
                self.fixture.warm(compute, self.initial.keys().copied().filter(|&key| key < SPAN));
            }
        }
        if self.fixture.scenario.caches == Caches::Stale {
            self.change_unseen(&mut participants, seed);
        }
        if self.fixture.scenario.crashes {
            self.renew_all(&mut participants);
        }
        participants
    }

    /// Renews all leases, because the setup took time. A compute server that owned nothing and whose lease
    /// expired is no longer a member: a new compute server replaces it.
    fn renew_all(&mut self, participants: &mut Participants) {
        for compute in &mut participants.computes {
            let worker = compute.worker();
            match self.fixture.quiet(worker.renew()) {
                Ok(_) => {}
                Err(Error::Fenced { .. }) => *compute = self.fixture.join(),
                Err(error) => unreachable!("no other client is active: {error}"),
            }
        }
    }

    /// Changes the tree without the knowledge of the other compute servers, so that their caches do not know
    /// the merges and splits. Either a stranger makes the changes, or one of them, whose free places are then
    /// reused next.
    fn change_unseen(&mut self, participants: &mut Participants, seed: u64) {
        let mut rng = Rng::new(seed ^ 0x5354_414c);
        let insider = rng.one_in(2);
        let stranger = if insider { participants.computes.swap_remove(0) } else { self.fixture.join() };
        let (lowest, keys) =
            (self.fixture.scenario.first_hot().saturating_sub(4), self.fixture.scenario.hot as usize + 8);
        let gone: BTreeSet<u64> =
            (0..rng.below(10)).map(|_| (lowest + rng.below(keys) as u64) & !1).collect();
        let news: BTreeMap<u64, u64> =
            (0..rng.below(12) as u64).map(|i| (lowest + rng.below(keys) as u64, 5_000 + i)).collect();
        self.fixture.unload(&stranger, gone.iter().copied());
        self.fixture.load(&stranger, news.iter().map(|(&key, &value)| (key, value)));
        participants.initial.retain(|key, _| !gone.contains(key));
        participants.initial.extend(news);
        if insider {
            participants.computes.push(stranger);
        } else {
            // Members recover a compute server that does not renew its lease, so this is rare.
            let neglected = self.fixture.scenario.crashes && rng.one_in(4);
            if self.fixture.scenario.crashes && !neglected {
                self.fixture.leave(&stranger);
            }
            participants.strangers.push(stranger);
            participants.neglected = neglected;
        }
    }

    /// Spawns the tasks of a schedule. In schedules with faults it also spawns their keepers.
    fn spawn(
        &mut self,
        case: &Case,
        participants: &Participants,
        record: &Rc<Record>,
        time_jumps: bool,
    ) -> Option<Rc<Members>> {
        let scenario = self.fixture.scenario.clone();
        let spawner = self.fixture.sim.spawner();
        let members = scenario.crashes.then(|| {
            let restarts = case.mishaps.iter().any(Mishap::is_restart);
            Members::new(spawner.clone(), scenario.clone(), Rc::clone(record), Some(case.seed), restarts)
        });
        let numbers: Vec<u32> = participants.computes.iter().map(|compute| compute.fabric.number()).collect();
        let endpoints: Vec<u32> = numbers.iter().map(|&number| self.fixture.sim.endpoints(number)).collect();
        for (number, compute) in participants.computes.iter().enumerate() {
            let workers: Vec<_> = (0..scenario.threads).map(|_| compute.worker()).collect();
            if let Some(members) = &members {
                members.computes.borrow_mut().push(compute.clone());
            }
            for (thread, worker) in (0..).zip(workers) {
                let client = number as u32 * scenario.threads + thread;
                if let Some(members) = &members {
                    members.enrol(client, compute.fabric.number());
                }
                let script = Script {
                    client,
                    rng: Rng::new(case.seed.wrapping_mul(1_000_003).wrapping_add(u64::from(client))),
                    scenario: scenario.clone(),
                    tree: Arc::clone(&compute.tree),
                    record: Rc::clone(record),
                    time_jumps,
                    known: participants.initial.clone(),
                    members: members.clone(),
                    gate: None,
                    spawner: spawner.clone(),
                    operations: case.operations_of(client),
                    last: case.seed.wrapping_add(5 * u64::from(client)) % scenario.hot,
                    base: 0,
                    compute: Cell::new(compute.fabric.number()),
                    pending: RefCell::default(),
                    others: Default::default(),
                };
                drop(self.fixture.sim.spawn_on(&compute.fabric, thread, "client", script.run(worker)));
            }
            if let Some(members) = &members {
                members.employ_keeper(&compute.fabric, &compute.shared);
            }
        }
        if scenario.group {
            self.fixture.sim.start_group(&group_plan(case, &scenario));
        }
        let later = case.mishaps.iter().filter_map(Mishap::later_loss).collect();
        let patience = case.mishaps.iter().find_map(Mishap::patience);
        self.fixture.sim.plan_copies(2 + case.seed.wrapping_mul(31) % 25, patience, later);
        for mishap in &case.mishaps {
            mishap.arrange(&mut self.fixture.sim, &numbers, &endpoints);
        }
        members
    }

    /// Checks everything that must hold, and stores the walk of the tree in `seen`.
    fn check(
        &mut self,
        run: &Run,
        participants: &Participants,
        record: &Record,
        checker: &mut Checker,
        seen: &mut Walk,
    ) -> Result<(), Found> {
        let everyone: Vec<&Compute> =
            participants.computes.iter().chain(&participants.strangers).chain([&self.loader]).collect();
        let shared: Vec<&ComputeServer> = everyone.iter().map(|compute| &*compute.shared).collect();
        check::ended_well(run, record)?;
        check::lanes(&self.fixture.sim, &self.fixture.scenario, &shared)?;
        check::redo(&self.fixture.sim, &shared)?;
        *seen = check::walk(&mut self.fixture, &participants.computes[0])?;
        check::space(&self.fixture.sim, self.fixture.scenario.servers, &everyone, &[seen])?;
        check::told(&self.fixture.scenario, record, checker, &participants.initial, seen, &[])
    }
}

/// The control group of a case.
fn group_plan(case: &Case, scenario: &Scenario) -> GroupPlan {
    let mut rng = Rng::new(case.seed ^ 0x0050_4c41_4e00);
    let one_in = |rng: &mut Rng| [0, 0, 40, 12][rng.below(4)];
    let (loss, twice, late) = (one_in(&mut rng), one_in(&mut rng), one_in(&mut rng));
    let weather = Weather { loss, twice, late, delay: [200, 500, 1_500][rng.below(3)] };
    let patience = case.mishaps.iter().find_map(Mishap::patience);
    GroupPlan {
        seed: case.seed,
        weather,
        drift: !rng.one_in(4),
        pace: STEP_NANOS_OF_CRASHES * (8 + rng.below(40) as u64),
        patience: patience.map(|events| events * STEP_NANOS_OF_CRASHES),
        slowness: [0, 0, 0, 3][rng.below(4)],
        at_once: scenario.trouble.at_once(),
    }
}

/// Whether the scheduler of a seed is fair.
fn is_fair(seed: u64) -> bool {
    seed % FAIR_ONE_IN == 5
}

/// Checks that every member without a fault is healthy, if every task gets its turn and a lease is long
/// compared to a round trip.
fn health(case: &Case, scenario: &Scenario, computes: &[Compute]) -> Result<(), Found> {
    let threads = u64::from(scenario.computes * (scenario.threads + KEEPING_THREADS));
    let healthy = HEALTHY_LEASE_STEPS.max(HEALTHY_LEASE_TURNS * threads);
    let judged = is_fair(case.schedule)
        && !scenario.condemned
        && scenario.lease_nanos >= healthy * STEP_NANOS_OF_CRASHES;
    let struck = |number: u32| case.mishaps.iter().any(|mishap| mishap.concerns(number));
    match (0..)
        .zip(computes)
        .find(|(number, compute)| judged && !struck(*number) && compute.shared.is_terminated())
    {
        Some((number, _)) => Err(Found::new(
            Property::Health,
            format!("compute server {number} was declared dead without a reason"),
        )),
        None => Ok(()),
    }
}

/// Checks that the loss of a host left no change in doubt, if nothing else went wrong and every task got its
/// turn (E3).
fn settled(case: &Case, scenario: &Scenario, record: &Record) -> Result<(), Found> {
    let mut mishaps = case.mishaps.iter().filter(|mishap| !mishap.is_harmless());
    let alone = matches!((mishaps.next(), mishaps.next()), (Some(Mishap::Host { .. }), None));
    let threads = u64::from(scenario.computes * (scenario.threads + KEEPING_THREADS));
    let long = HEALTHY_LEASE_STEPS.max(HEALTHY_LEASE_TURNS * threads) * 2;
    let judged = alone && is_fair(case.schedule) && scenario.lease_nanos >= long * STEP_NANOS_OF_CRASHES;
    match record.unknown.get() {
        unknown if judged && unknown > 0 => {
            Err(Found::new(Property::Settled, format!("{unknown} changes stayed in doubt")))
        }
        _ => Ok(()),
    }
}

/// Returns the scheduler of a seed.
pub(super) fn scheduler(seed: u64) -> Box<dyn Scheduler> {
    match seed % 4 {
        _ if is_fair(seed) => Box::new(Fair::new(seed)),
        0 => Box::new(Pct::new(seed, 3, TYPICAL_STEPS)),
        _ => Box::new(Random::swarm(seed)),
    }
}

/// The compute servers of a schedule.
struct Participants {
    computes: Vec<Compute>,
    initial: BTreeMap<u64, u64>,
    /// Compute servers that changed the tree before the schedule began.
    strangers: Vec<Compute>,
    /// Whether the stranger is still a member.
    neglected: bool,
}
