//! Crash enumeration: a compute server (the victim) dies after each of its effects. No data may be lost, and
//! no client may get stuck.
//!
//! A [`CrashCase`] tests one operation of the victim. Two other compute servers work on the same keys, renew
//! their leases and recover the victim. The first pass runs a schedule without a death and counts the
//! effects: units, atomics and control calls. The second pass runs the same schedule once for each effect. Up
//! to the death it is the same, event by event. Then the same checks run as after every schedule with faults.
//!
//! | module | contents |
//! |---|---|
//! | `operation` | the operation during which the victim dies, and the tree before it |
//! | `setup` | techniques, formats and geometry: every pair of settings, or all of them |
//! | `victim` | the tasks of the victim |

mod operation;
mod setup;
mod victim;

pub use operation::VictimOp;
pub use setup::Setup;

use super::check::{Found, Violation};
use super::fixture::{Compute, Fixture};
use super::inspect::Scene;
use super::members::Members;
use super::mix::Mix;
use super::schedule::scheduler;
use super::script::{Gate, Record, Script};
use crate::knobs::Knobs;
use crate::linear::Checker;
use crate::rng::Rng;
use crate::sim::Run;
use crate::trace::Event;
use operation::{Checkpoint, VictimStep};
use sherman_core::Format;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// Longer than any operation without a death takes. So the victim needs no task that renews its lease, which
/// would only add effects.
const LEASE_NANOS: u64 = 200_000;

/// How many events after its death a host is declared lost, in enumerations of lost hosts.
const DEAD_FOR: u64 = 60;

/// What happens at a point of an enumeration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blow {
    /// The victim dies.
    pub death: bool,
    /// This host is lost.
    pub host: Option<u16>,
    /// The host lives on, and serves clients that have the old table.
    pub lives: bool,
    /// The victim alone cannot reach the host any more.
    pub parts: bool,
}

impl Blow {
    /// The death of the victim alone.
    pub const DEATH: Self = Self { death: true, host: None, lives: false, parts: false };

    /// Every loss of one of `hosts` hosts, with and without the death of the victim.
    pub fn of_hosts(hosts: u16) -> Vec<Self> {
        let mut blows = Vec::new();
        for host in (0..hosts).map(Some) {
            for (death, lives) in [(false, false), (false, true), (true, false), (true, true)] {
                blows.push(Self { death, host, lives, ..Self::default() });
            }
        }
        blows
    }
}

/// One operation of the victim, with its tree and settings.
pub struct CrashCase {
    operation: VictimOp,
    height: usize,
    setup: Setup,
    checkpoint: Checkpoint,
    /// The other compute servers do not wait for the victim.
    at_once: bool,
    checker: Checker,
    record: Rc<Record>,
}

/// The result of one schedule of a [`CrashCase`].
#[derive(Clone, Debug)]
pub struct CrashRun {
    /// Events, verbs, hash.
    pub run: Run,
    /// Number of effects of the victim.
    pub effects: u64,
    /// Whether the victim died.
    pub died: bool,
    /// The property that did not hold, if any.
    pub violation: Option<Violation>,
}

/// The results of many schedules.
#[derive(Clone, Debug, Default)]
pub struct Enumerated {
    /// Number of possible deaths: the effects of all schedules without a death.
    pub points: u64,
    /// Number of deaths that were tried.
    pub visited: u64,
    /// Number of schedules, including those without a death.
    pub schedules: u64,
    /// The first few violations.
    pub violations: Vec<Violation>,
    /// Number of all violations.
    pub violated: u64,
}

impl std::fmt::Debug for CrashCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} at height {} with {}", self.operation, self.height, self.setup)
    }
}

impl CrashCase {
    /// Prepares the world and its tree.
    ///
    /// # Panics
    /// If the structure that `operation` needs cannot be reached: this is for tests.
    pub fn new(operation: VictimOp, height: usize, setup: Setup) -> Self {
        let checkpoint = operation.checkpoint(height, &setup, LEASE_NANOS, &Self::knobs(&setup, 0));
        let (checker, record) = (Checker::new(), Rc::default());
        Self { operation, height, setup, checkpoint, at_once: false, checker, record }
    }

    /// Returns the world of the schedules, for printing a trace.
    pub fn fixture(&self) -> &Fixture {
        &self.checkpoint.fixture
    }

    /// The paper's format needs verbs that are atomic as a whole.
    fn knobs(setup: &Setup, seed: u64) -> Knobs {
        let verb_atomic = setup.format == Format::TwoLevel;
        Knobs { verb_atomic, time_jumps: false, ..Knobs::swarm_with_crashes(seed) }
    }

    /// Kills the victim after each of its effects in the schedules of `seeds`.
    pub fn enumerate(&mut self, seeds: Range<u64>) -> Enumerated {
        self.enumerate_blows(seeds, &[Blow::DEATH])
    }

    /// Strikes each of `blows` after each effect of the victim in the schedules of `seeds`.
    pub fn enumerate_blows(&mut self, seeds: Range<u64>, blows: &[Blow]) -> Enumerated {
        let mut all = Enumerated::default();
        for seed in seeds {
            let undisturbed = self.run(seed, None, false).0;
            all.add(&undisturbed, None, Blow::default());
            for &blow in blows {
                all.points += undisturbed.effects;
                for point in 1..=undisturbed.effects {
                    let struck = self.strike(seed, Some((point, blow)), false).0;
                    all.add(&struck, Some(point), blow);
                }
            }
        }
        all
    }

    /// Runs the schedule of `seed`. If `point` is given, the victim dies after that effect.
    pub fn run(&mut self, seed: u64, point: Option<u64>, trace: bool) -> (CrashRun, Vec<Event>) {
        self.strike(seed, point.map(|point| (point, Blow::DEATH)), trace)
    }

    /// Runs the schedule of `seed`. If `point` is given, the blow falls after that effect of the victim.
    pub fn strike(&mut self, seed: u64, point: Option<(u64, Blow)>, trace: bool) -> (CrashRun, Vec<Event>) {
        let knobs = Self::knobs(&self.setup, seed);
        self.checkpoint.fixture.sim.rewind_with(knobs.clone());
        self.record.clear();
        let computes: Vec<Compute> = (0..3).map(|_| self.checkpoint.fixture.join()).collect();
        if self.setup.techniques.cache && seed.is_multiple_of(2) {
            computes.iter().for_each(|compute| {
                self.checkpoint.fixture.warm(compute, self.checkpoint.initial.keys().copied())
            });
        }
        self.checkpoint.fixture.sim.record_trace(trace);
        let members = self.spawn(seed, &computes);
        let victim = computes[0].fabric.number();
        let before = self.checkpoint.fixture.sim.effects(victim);
        if let Some((point, blow)) = point {
            self.plan(victim, point, blow);
        }
        let run = self.checkpoint.fixture.sim.run(&mut *scheduler(seed));
        let events = if trace { self.checkpoint.fixture.sim.trace() } else { Vec::new() };
        self.checkpoint.fixture.sim.record_trace(false);
        let (effects, died) = (
            self.checkpoint.fixture.sim.effects(victim) - before,
            self.checkpoint.fixture.sim.is_dead(victim),
        );
        let everyone = members.remaining();
        let lost: Vec<u16> = point.and_then(|(_, blow)| blow.host).into_iter().collect();
        let scene = Scene {
            initial: &self.checkpoint.initial,
            everyone: &everyone,
            record: &self.record,
            lost: &lost,
            returning: &[],
            finishes: false,
        };
        let (dismissed, mut seen) = (seed.is_multiple_of(4), Default::default());
        let checked =
            scene.inspect(&mut self.checkpoint.fixture, &run, &mut self.checker, dismissed, &mut seen);
        let violation = checked.err().map(|Found { property, what, key }| {
            let dies = point.map_or("does not die".to_owned(), |(point, blow)| match blow {
                Blow::DEATH => format!("dies after effect {point}"),
                blow => format!("{blow:?} after effect {point}"),
            });
            let scenario = format!(
                "{:?} at height {} with {}; {dies}; {knobs:?}",
                self.operation, self.height, self.setup
            );
            Violation { seed, property, what, key, scenario }
        });
        (CrashRun { run, effects, died, violation }, events)
    }

    /// Makes the blow fall after an effect of the victim.
    fn plan(&mut self, victim: u32, point: u64, blow: Blow) {
        let sim = &mut self.checkpoint.fixture.sim;
        if blow.death {
            sim.kill_after(victim, point);
        }
        match blow.host {
            Some(host) if blow.parts => sim.part_after(victim, point, host),
            Some(host) => sim.lose_after(victim, point, host, (!blow.lives).then_some(DEAD_FOR)),
            None => {}
        }
    }

    /// Lets the other compute servers do this, on `hot` keys around that of the victim. With `at_once` they
    /// do not wait for the victim.
    pub fn with_others(mut self, mix: Mix, operations: u32, hot: u64, at_once: bool) -> Self {
        let scenario = &mut self.checkpoint.fixture.scenario;
        (scenario.first, scenario.then, scenario.operations, scenario.hot) = (mix, mix, operations, hot);
        self.at_once = at_once;
        self
    }

    fn spawn(&mut self, seed: u64, computes: &[Compute]) -> Rc<Members> {
        let spawner = self.checkpoint.fixture.sim.spawner();
        let scenario = self.checkpoint.fixture.scenario.clone();
        let members = Members::new(spawner.clone(), scenario.clone(), Rc::clone(&self.record), None, false);
        let victim = computes[0].fabric.number();
        let threads = self.checkpoint.steps.len() as u32;
        let gate = Rc::new(Gate::new(spawner.clone(), victim, threads));
        let mut client = 0;
        let mut script = |compute: &Compute, gate: Option<&Rc<Gate>>| {
            members.enrol(client, compute.fabric.number());
            client += 1;
            Script {
                client: client - 1,
                rng: Rng::new(seed.wrapping_mul(1_000_003).wrapping_add(u64::from(client))),
                scenario: scenario.clone(),
                tree: Arc::clone(&compute.tree),
                record: Rc::clone(&self.record),
                time_jumps: false,
                known: self.checkpoint.initial.clone(),
                members: Some(Rc::clone(&members)),
                operations: u32::MAX,
                gate: gate.map(Rc::clone),
                spawner: spawner.clone(),
                last: 0,
                base: 0,
                compute: Cell::new(compute.fabric.number()),
                pending: RefCell::default(),
                others: Default::default(),
            }
        };
        let first = scenario.first_hot();
        let keys: Vec<u64> =
            self.checkpoint.initial.keys().copied().chain(first..first + scenario.hot).collect();
        let keys: Vec<u64> =
            keys.into_iter().collect::<std::collections::BTreeSet<u64>>().into_iter().collect();
        for compute in computes {
            let worker = compute.worker();
            self.checkpoint.fixture.quiet(worker.renew()).expect("nobody has asked about it yet");
            members.computes.borrow_mut().push(compute.clone());
        }
        let sim = &mut self.checkpoint.fixture.sim;
        for (thread, steps) in (0..).zip(&self.checkpoint.steps) {
            let acting = script(&computes[0], None);
            let gate = Rc::clone(&gate);
            let act = victim::act(acting, steps.clone(), keys.clone(), computes[0].worker());
            drop(sim.spawn_on(&computes[0].fabric, thread, "victim", async move {
                act.await;
                gate.end();
            }));
        }
        if scenario.replicas > 1 {
            // Without a keeper the victim would not learn that its epoch has ended.
            members.employ_keeper(&computes[0].fabric, &computes[0].shared);
        }
        let other = self.checkpoint.steps.iter().flatten().find_map(|step| match step {
            VictimStep::Create => Some(true),
            VictimStep::Drop => Some(false),
            _ => None,
        });
        for compute in &computes[1..] {
            let living = script(compute, Some(&gate).filter(|_| !self.at_once));
            drop(sim.spawn_on(&compute.fabric, 0, "client", living.run(compute.worker())));
            if let Some(create) = other {
                let visit = victim::visit_other(script(compute, None), create, compute.worker());
                drop(sim.spawn_on(&compute.fabric, 1, "visitor", visit));
            }
            members.employ_keeper(&compute.fabric, &compute.shared);
        }
        members
    }
}

impl Enumerated {
    fn add(&mut self, run: &CrashRun, point: Option<u64>, blow: Blow) {
        self.schedules += 1;
        let struck = point.is_some_and(|point| run.died == blow.death && run.effects >= point);
        self.visited += u64::from(struck);
        self.violated += u64::from(run.violation.is_some());
        if self.violations.len() < 8 {
            self.violations.extend(run.violation.clone());
        }
    }

    /// Adds the totals of `other`.
    pub fn merge(&mut self, other: Self) {
        self.points += other.points;
        self.visited += other.visited;
        self.schedules += other.schedules;
        self.violated += other.violated;
        self.violations.extend(other.violations);
    }
}
