//! Crash enumeration: a compute server dies after each of its effects, and nothing is lost and nobody stuck.
//!
//! A [`Play`] is about one operation of one compute server, beside two others that work on the same keys, keep leases and recover
//! it. Pass one runs a schedule in which nobody dies and counts the effects: units, atomics and control calls. Pass two runs the
//! same schedule once for each of them; up to there it is the same, event by event. Afterwards everything is checked as it is
//! after every schedule in which things go wrong.
//!
//! | module | what |
//! |---|---|
//! | `plot` | what is done when it dies, and to what tree |
//! | `setup` | techniques, formats and geometry: every pair of settings, or all of them |
//! | `victim` | doing it |

mod plot;
mod setup;
mod victim;

pub use plot::Plot;
pub use setup::Setup;

use super::check::{Found, Violation};
use super::company::Company;
use super::inspect::Scene;
use super::lab::{Compute, Lab};
use super::schedule::scheduler;
use super::script::{Gate, Record, Script};
use crate::knobs::Knobs;
use crate::linear::Checker;
use crate::rng::Rng;
use crate::sim::Run;
use crate::trace::Event;
use plot::{Deed, Stage};
use sherman_core::Format;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// Longer than anything takes that does not die, so that the one that is to die needs no keeper: it would only add effects.
const LEASE_NANOS: u64 = 200_000;

/// One operation and everything about it.
pub struct Play {
    plot: Plot,
    height: usize,
    setup: Setup,
    stage: Stage,
    checker: Checker,
    record: Rc<Record>,
}

/// What one schedule of a play came to.
#[derive(Clone, Debug)]
pub struct Performance {
    /// Events, verbs, hash.
    pub run: Run,
    /// Effects of the one that is to die.
    pub effects: u64,
    /// Whether it died.
    pub died: bool,
    /// What did not hold.
    pub violation: Option<Violation>,
}

/// What many came to.
#[derive(Clone, Debug, Default)]
pub struct Enumerated {
    /// Deaths that there are: effects of every schedule in which nobody dies.
    pub points: u64,
    /// Those that were tried.
    pub visited: u64,
    /// Schedules, those in which nobody dies included.
    pub schedules: u64,
    /// The first few violations.
    pub violations: Vec<Violation>,
    /// All of them, counted.
    pub violated: u64,
}

impl std::fmt::Debug for Play {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} at height {} with {}", self.plot, self.height, self.setup)
    }
}

impl Play {
    /// Sets the stage.
    ///
    /// # Panics
    /// If the plot cannot be brought about: this is for tests.
    pub fn new(plot: Plot, height: usize, setup: Setup) -> Self {
        let stage = plot.stage(height, &setup, LEASE_NANOS, &Self::knobs(&setup, 0));
        Self { plot, height, setup, stage, checker: Checker::new(), record: Rc::default() }
    }

    /// The world it takes place in, for telling a trace.
    pub fn lab(&self) -> &Lab {
        &self.stage.lab
    }

    /// The paper's format is for verbs that are atomic as a whole.
    fn knobs(setup: &Setup, seed: u64) -> Knobs {
        let verb_atomic = setup.format == Format::TwoLevel;
        Knobs { verb_atomic, time_jumps: false, ..Knobs::swarm_with_crashes(seed) }
    }

    /// Lets it die after each of its effects in the schedules of `seeds`.
    pub fn enumerate(&mut self, seeds: Range<u64>) -> Enumerated {
        let mut all = Enumerated::default();
        for seed in seeds {
            let undisturbed = self.run(seed, None, false).0;
            all.add(&undisturbed, None);
            all.points += undisturbed.effects;
            for point in 1..=undisturbed.effects {
                let died = self.run(seed, Some(point), false).0;
                all.add(&died, Some(point));
            }
        }
        all
    }

    /// Runs the schedule of `seed`, in which it dies after effect number `point`, if given.
    pub fn run(&mut self, seed: u64, point: Option<u64>, trace: bool) -> (Performance, Vec<Event>) {
        let knobs = Self::knobs(&self.setup, seed);
        self.stage.lab.sim.rewind_with(knobs.clone());
        self.record.clear();
        let cast: Vec<Compute> = (0..3).map(|_| self.stage.lab.join()).collect();
        if self.setup.techniques.cache && seed.is_multiple_of(2) {
            cast.iter().for_each(|compute| self.stage.lab.warm(compute, self.stage.initial.keys().copied()));
        }
        self.stage.lab.sim.record_trace(trace);
        let company = self.spawn(seed, &cast);
        let victim = cast[0].fabric.number();
        let before = self.stage.lab.sim.effects(victim);
        if let Some(point) = point {
            self.stage.lab.sim.kill_after(victim, point);
        }
        let run = self.stage.lab.sim.run(&mut *scheduler(seed));
        let events = if trace { self.stage.lab.sim.trace() } else { Vec::new() };
        self.stage.lab.sim.record_trace(false);
        let (effects, died) = (self.stage.lab.sim.effects(victim) - before, self.stage.lab.sim.is_dead(victim));
        let everyone = company.remaining();
        let scene = Scene { initial: &self.stage.initial, everyone: &everyone, record: &self.record };
        let (dismissed, mut seen) = (seed.is_multiple_of(4), Default::default());
        let checked = scene.inspect(&mut self.stage.lab, &run, &mut self.checker, dismissed, &mut seen);
        let violation = checked.err().map(|Found { property, what, key }| {
            let dies = point.map_or("does not die".to_owned(), |point| format!("dies after effect {point}"));
            let scenario = format!("{:?} at height {} with {}; {dies}; {knobs:?}", self.plot, self.height, self.setup);
            Violation { seed, property, what, key, scenario }
        });
        (Performance { run, effects, died, violation }, events)
    }

    fn spawn(&mut self, seed: u64, cast: &[Compute]) -> Rc<Company> {
        let spawner = self.stage.lab.sim.spawner();
        let scenario = self.stage.lab.scenario.clone();
        let company = Company::new(spawner.clone(), scenario.clone(), Rc::clone(&self.record), None, false);
        let victim = cast[0].fabric.number();
        let threads = self.stage.deeds.len() as u32;
        let gate = Rc::new(Gate::new(spawner.clone(), victim, threads));
        let mut client = 0;
        let mut script = |compute: &Compute, gate: Option<&Rc<Gate>>| {
            company.enrol(client, compute.fabric.number());
            client += 1;
            Script {
                client: client - 1,
                rng: Rng::new(seed.wrapping_mul(1_000_003).wrapping_add(u64::from(client))),
                scenario: scenario.clone(),
                tree: Arc::clone(&compute.tree),
                record: Rc::clone(&self.record),
                time_jumps: false,
                known: self.stage.initial.clone(),
                company: Some(Rc::clone(&company)),
                operations: u32::MAX,
                gate: gate.map(Rc::clone),
                spawner: spawner.clone(),
                last: 0,
                base: 0,
                others: Default::default(),
            }
        };
        let first = scenario.first_hot();
        let keys: Vec<u64> = self.stage.initial.keys().copied().chain(first..first + scenario.hot).collect();
        let keys: Vec<u64> = keys.into_iter().collect::<std::collections::BTreeSet<u64>>().into_iter().collect();
        for compute in cast {
            let worker = compute.worker();
            self.stage.lab.quiet(worker.renew()).expect("nobody has asked about it yet");
            company.members.borrow_mut().push(compute.clone());
        }
        let sim = &mut self.stage.lab.sim;
        for (thread, deeds) in (0..).zip(&self.stage.deeds) {
            let acting = script(&cast[0], None);
            let gate = Rc::clone(&gate);
            let act = victim::act(acting, deeds.clone(), keys.clone(), cast[0].worker());
            drop(sim.spawn_on(&cast[0].fabric, thread, "victim", async move {
                act.await;
                gate.end();
            }));
        }
        let other = self.stage.deeds.iter().flatten().find_map(|deed| match deed {
            Deed::Create => Some(true),
            Deed::Drop => Some(false),
            _ => None,
        });
        for compute in &cast[1..] {
            let living = script(compute, Some(&gate));
            drop(sim.spawn_on(&compute.fabric, 0, "client", living.run(compute.worker())));
            if let Some(create) = other {
                let visit = victim::visit_other(script(compute, None), create, compute.worker());
                drop(sim.spawn_on(&compute.fabric, 1, "visitor", visit));
            }
            company.employ_keeper(compute);
        }
        company
    }
}

impl Enumerated {
    fn add(&mut self, performance: &Performance, point: Option<u64>) {
        self.schedules += 1;
        let struck = point.is_some_and(|point| performance.died && performance.effects >= point);
        self.visited += u64::from(struck);
        self.violated += u64::from(performance.violation.is_some());
        if self.violations.len() < 8 {
            self.violations.extend(performance.violation.clone());
        }
    }

    /// Adds another's totals.
    pub fn merge(&mut self, other: Self) {
        self.points += other.points;
        self.visited += other.visited;
        self.schedules += other.schedules;
        self.violated += other.violated;
        self.violations.extend(other.violations);
    }
}
