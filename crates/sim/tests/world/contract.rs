//! The contract suite on the simulated fabric. It is clean under every legal knob, and it finds each planted
//! breach under the rule that the breach violates.

use sherman_conformance::contract::{self, Harness, Participant, Patience, Report, Rule, Scratch, suite};
use sherman_fabric::{Fabric, Space};
use sherman_sim::{
    Breach, Knobs, Limits, Outcome, Pct, Random, Sim, SimConfig, SimEndpoint, SimFabric, TaskHandle,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The kind of scheduler.
#[derive(Clone, Copy)]
enum With {
    Random,
    Pct,
}

/// Returns the knobs of a seed.
type KnobsOf = Box<dyn Fn(u64) -> Knobs>;

struct SimHarness {
    sim: RefCell<Sim>,
    knobs: KnobsOf,
    with: With,
    runs: u32,
    scratch: Scratch,
}

const HOST: usize = 64 << 10;
const ON_CHIP: usize = 1 << 10;

impl SimHarness {
    fn new(with: With, runs: u32, knobs: impl Fn(u64) -> Knobs + 'static) -> Self {
        let config = SimConfig {
            servers: 2,
            host_bytes: HOST,
            on_chip_bytes: ON_CHIP,
            limits: Limits { steps: 2_000_000, ..Limits::default() },
            ..SimConfig::default()
        };
        let host = (HOST - 4096) as u64..HOST as u64;
        let scratch = Scratch { servers: 2, host_bytes: HOST as u64, host, on_chip: 0..ON_CHIP as u64 };
        Self { sim: RefCell::new(Sim::new(&config).unwrap()), knobs: Box::new(knobs), with, runs, scratch }
    }

    fn schedule(&self, sim: &mut Sim, seed: u64) -> Outcome {
        match self.with {
            With::Random => sim.run(&mut Random::swarm(seed)).outcome,
            With::Pct => sim.run(&mut Pct::new(seed, 3, 2_000)).outcome,
        }
    }
}

impl Harness for SimHarness {
    type Endpoint = SimEndpoint;

    fn scratch(&self) -> Scratch {
        self.scratch.clone()
    }

    fn rounds(&self) -> u32 {
        8
    }

    fn runs(&self) -> u32 {
        self.runs
    }

    fn patience(&self) -> Patience {
        Patience { nanos: 1_000_000_000, polls: 1_000_000 }
    }

    fn run(&self, seed: u64, participants: Vec<Participant<SimEndpoint>>) -> Result<(), contract::Breach> {
        let mut sim = self.sim.borrow_mut();
        sim.rewind_with((self.knobs)(seed));
        let mut groups: BTreeMap<usize, SimFabric> = BTreeMap::new();
        let mut handles: Vec<TaskHandle<Result<(), contract::Breach>>> = Vec::new();
        for (number, participant) in participants.into_iter().enumerate() {
            let group = participant.group();
            let cs = groups.entry(group).or_insert_with(|| sim.join().unwrap()).clone();
            let endpoint = Rc::new(cs.endpoint().unwrap());
            handles.push(sim.spawn_on(&cs, number as u32, "participant", participant.start(endpoint)));
        }
        let outcome = self.schedule(&mut sim, seed);
        let results: Vec<_> = handles.iter().map(TaskHandle::take).collect();
        results.into_iter().flatten().find(Result::is_err).unwrap_or(Ok(()))?;
        assert_eq!(outcome, Outcome::Done, "seed {seed:#x}");
        Ok(())
    }
}

fn assert_clean(report: &Report, skips: usize) {
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.skipped().count(), skips, "{report}");
}

#[test]
fn every_legal_adversary_keeps_the_contract_under_random_schedules() {
    assert_clean(&suite(&SimHarness::new(With::Random, 200, Knobs::swarm)), 0);
}

#[test]
fn every_legal_adversary_keeps_the_contract_under_priority_schedules() {
    assert_clean(&suite(&SimHarness::new(With::Pct, 100, Knobs::swarm)), 0);
}

#[test]
fn other_capabilities_keep_the_contract_too() {
    let variants: [fn(u64) -> Knobs; 4] = [
        |_| Knobs { verb_atomic: true, ..Knobs::default() },
        |_| Knobs { unit: 128, ..Knobs::default() },
        |seed| Knobs { masked_cas: false, ..Knobs::swarm(seed) },
        |seed| Knobs { write_releases: false, ..Knobs::swarm(seed) },
    ];
    for knobs in variants {
        let report = suite(&SimHarness::new(With::Random, 60, knobs));
        assert!(report.is_clean(), "{report}");
    }
}

fn rules_broken(breach: Breach) -> (Vec<Rule>, Report) {
    let report =
        suite(&SimHarness::new(With::Random, 120, move |seed| Knobs::swarm(seed).with_breach(breach)));
    (report.breaches().map(|breach| breach.rule).collect(), report)
}

/// Asserts that the breach shows under the rule that it violates. Tests of later rules rely on the earlier
/// ones, so some of their scenarios fail too. Earlier rules must not fail.
fn assert_caught(breach: Breach, rule: Rule) {
    let (rules, report) = rules_broken(breach);
    assert_eq!(rules.iter().min(), Some(&rule), "{breach:?} does not show as a breach of {rule}:\n{report}");
}

#[test]
fn units_that_tear_break_f1() {
    assert_caught(Breach::TornUnit, Rule::F1);
}

#[test]
fn a_read_of_the_past_breaks_f2() {
    // A client that reads back its own WRITE detects it too, and scenarios of every rule do that.
    let (rules, report) = rules_broken(Breach::StaleRead);
    assert!(rules.contains(&Rule::F2), "{report}");
}

#[test]
fn writes_out_of_order_break_f3() {
    assert_caught(Breach::WritesReordered, Rule::F3);
}

#[test]
fn a_read_that_passes_a_write_breaks_f3() {
    assert_caught(Breach::ReadPasses, Rule::F3);
}

#[test]
fn a_split_atomic_breaks_f4() {
    assert_caught(Breach::SplitAtomic, Rule::F4);
}

#[test]
fn the_scratch_memory_is_beyond_what_the_servers_use() {
    let harness = SimHarness::new(With::Random, 1, Knobs::swarm);
    let sim = harness.sim.borrow();
    let memory = sim.memory(0);
    let mut bytes = vec![1; 4096];
    sherman_fabric::Memory::load(&memory, Space::Host, harness.scratch.host.start, &mut bytes);
    assert!(bytes.iter().all(|&byte| byte == 0));
}
