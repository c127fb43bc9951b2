//! The list of scenarios, and the code that runs them.

use super::actor::Actor;
use super::harness::{Body, Harness, Participant, Role, Scratch};
use super::report::{Breach, Entry, Outcome, Report, Rule};
use super::stage::{Facts, Stage};
use super::{f1, f2, f3, f4, f4_lanes, f5, f6, f7, f7_input};
use sherman_fabric::{Caps, Endpoint};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

/// The participants of a scenario: the group and the work of each.
pub(super) type Cast<E> = Vec<(usize, Role<E>)>;

/// A test of one rule.
pub(super) struct Scenario<E> {
    pub rule: Rule,
    pub name: &'static str,
    /// Whether the backend has what the scenario needs, or the reason why not.
    pub needs: fn(&Facts) -> Result<(), &'static str>,
    pub cast: fn(&Facts) -> Cast<E>,
}

/// A test of `rule`.
pub(super) fn scenario<E>(
    rule: Rule,
    name: &'static str,
    needs: fn(&Facts) -> Result<(), &'static str>,
    cast: fn(&Facts) -> Cast<E>,
) -> Scenario<E> {
    Scenario { rule, name, needs, cast }
}

/// One participant: a group, and an async function of its [`Actor`].
pub(super) fn role<E, F>(group: usize, body: impl FnOnce(Actor<E>) -> F + Send + 'static) -> (usize, Role<E>)
where
    E: Endpoint + 'static,
    F: Future<Output = Result<(), Breach>> + 'static,
{
    (group, Box::new(move |actor| -> Body { Box::pin(body(actor)) }))
}

/// Needs nothing.
pub(super) fn always(_: &Facts) -> Result<(), &'static str> {
    Ok(())
}

/// Needs on-chip memory.
pub(super) fn on_chip(facts: &Facts) -> Result<(), &'static str> {
    if facts.has_chip() { Ok(()) } else { Err("no on-chip memory") }
}

/// Needs more than one server.
pub(super) fn two_servers(facts: &Facts) -> Result<(), &'static str> {
    if facts.scratch.servers >= 2 { Ok(()) } else { Err("only one server") }
}

/// Every scenario, in the order of the rules.
fn scenarios<E: Endpoint + 'static>() -> Vec<Scenario<E>> {
    let of_rules = [
        f1::scenarios(),
        f2::scenarios(),
        f3::scenarios(),
        f4::scenarios(),
        f4_lanes::scenarios(),
        f5::scenarios(),
        f6::scenarios(),
        f7::scenarios(),
        f7_input::scenarios(),
    ];
    of_rules.into_iter().flatten().collect()
}

/// Runs every scenario on `harness`, as often as `harness` asks for, up to its first breach.
pub fn suite<H: Harness>(harness: &H) -> Report {
    let facts = match facts(harness) {
        Ok(facts) => facts,
        Err(outcome) => {
            return Report { entries: vec![Entry { scenario: PROBE, rule: Rule::F1, outcome }] };
        }
    };
    Report { entries: scenarios().into_iter().map(|scenario| entry(harness, &facts, &scenario)).collect() }
}

/// Runs one scenario, as often as `harness` asks for. `None` if there is no such scenario, or if the backend
/// cannot be tested at all.
pub fn only<H: Harness>(harness: &H, scenario: &str) -> Option<Entry> {
    let scenario = scenarios().into_iter().find(|candidate| candidate.name == scenario)?;
    Some(entry(harness, &facts(harness).ok()?, &scenario))
}

/// Repeats one run of one scenario that a [`Report`] names. `None` if there is no such scenario, or if the
/// backend cannot run it.
pub fn replay<H: Harness>(harness: &H, scenario: &str, seed: u64) -> Option<Result<(), Breach>> {
    let scenario = scenarios::<H::Endpoint>().into_iter().find(|candidate| candidate.name == scenario)?;
    let facts = facts(harness).ok().filter(|facts| (scenario.needs)(facts).is_ok())?;
    Some(run(harness, &facts, &scenario, seed))
}

fn entry<H: Harness>(harness: &H, facts: &Facts, scenario: &Scenario<H::Endpoint>) -> Entry {
    Entry { scenario: scenario.name, rule: scenario.rule, outcome: outcome(harness, facts, scenario) }
}

fn outcome<H: Harness>(harness: &H, facts: &Facts, scenario: &Scenario<H::Endpoint>) -> Outcome {
    if let Err(reason) = (scenario.needs)(facts) {
        return Outcome::Skipped { reason: reason.to_owned() };
    }
    for run_index in 0..harness.runs() {
        let seed = seed_of(scenario.name, run_index);
        if let Err(breach) = run(harness, facts, scenario, seed) {
            return Outcome::Breached { breach, seed };
        }
    }
    Outcome::Passed { runs: harness.runs() }
}

fn run<H: Harness>(
    harness: &H,
    facts: &Facts,
    scenario: &Scenario<H::Endpoint>,
    seed: u64,
) -> Result<(), Breach> {
    let facts = Facts { seed, ..facts.clone() };
    let cast = (scenario.cast)(&facts);
    let stage = Arc::new(Stage::new(facts, scenario.rule, scenario.name, cast.len()));
    harness.run(seed, participants(&stage, cast))
}

fn participants<E>(stage: &Arc<Stage>, cast: Cast<E>) -> Vec<Participant<E>> {
    let numbered = cast.into_iter().enumerate();
    numbered
        .map(|(index, (group, role))| Participant { group, index, stage: Arc::clone(stage), role })
        .collect()
}

/// The scenario's name in the upper half (FNV-1a), and the run in the lower half.
fn seed_of(name: &str, run: u32) -> u64 {
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    u64::from(hash) << 32 | u64::from(run)
}

/// The name of the run that asks an endpoint for its caps.
const PROBE: &str = "the_backend_is_ready";

/// The facts before the first scenario: the caps, from an endpoint itself, and whether the scratch memory
/// suffices.
fn facts<H: Harness>(harness: &H) -> Result<Facts, Outcome> {
    let told = Arc::new(Mutex::new(None));
    let tell = Arc::clone(&told);
    let (group, role) = role(0, move |actor: Actor<H::Endpoint>| async move {
        let endpoint = actor.endpoint();
        *tell.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((endpoint.caps().clone(), endpoint.servers()));
        Ok(())
    });
    let seed = seed_of(PROBE, 0);
    // The probe posts nothing, so its caps may be arbitrary.
    let mut facts = Facts {
        caps: unknown_caps(),
        scratch: harness.scratch(),
        rounds: u64::from(harness.rounds()),
        patience: harness.patience(),
        seed,
    };
    let stage = Arc::new(Stage::new(facts.clone(), Rule::F1, PROBE, 1));
    harness
        .run(seed, participants(&stage, vec![(group, role)]))
        .map_err(|breach| Outcome::Breached { breach, seed })?;
    let told = told.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some((caps, servers)) = told else {
        return Err(Outcome::Skipped { reason: "the harness ran no participant".to_owned() });
    };
    facts.caps = caps;
    match unfit(&facts, servers) {
        Some(reason) => Err(Outcome::Skipped { reason }),
        None => Ok(facts),
    }
}

fn unknown_caps() -> Caps {
    Caps {
        atomic_unit: 8,
        crash_unit: 8,
        verb_atomic: false,
        masked_cas: false,
        write_releases: false,
        lock_read: false,
        on_chip_bytes: 0,
        fence: sherman_fabric::FenceMode::DeathOnly,
        shortest_write_nanos: 0,
        max_verbs: 0,
        max_transfer: 0,
    }
}

/// The reason why the suite cannot run at all.
fn unfit(facts: &Facts, servers: u16) -> Option<String> {
    let Facts { caps, scratch, .. } = facts;
    let unit = u64::from(caps.atomic_unit);
    let host = &scratch.host;
    if !unit.is_power_of_two() || !(8..=4096).contains(&unit) {
        return Some(format!("an atomic unit of {unit} bytes is not a power of two from 8 to 4096"));
    }
    if !host.start.is_multiple_of(unit) || host.end.saturating_sub(host.start) < Scratch::HOST_UNITS * unit {
        return Some(format!(
            "scratch {host:?} is not {} aligned units of {unit} bytes",
            Scratch::HOST_UNITS
        ));
    }
    if !scratch.on_chip.start.is_multiple_of(8) || scratch.on_chip.end > caps.on_chip_bytes {
        return Some(format!(
            "scratch {:?} is not made of words inside {} on-chip bytes",
            scratch.on_chip, caps.on_chip_bytes
        ));
    }
    if scratch.servers == 0 || scratch.servers > servers || host.end > scratch.host_bytes {
        return Some(format!("the scratch memory does not exist: {scratch:?} on {servers} servers"));
    }
    if caps.max_verbs < 8 || u64::from(caps.max_transfer) < 16 * unit {
        return Some(
            "the suite needs lists of at least 8 verbs and transfers of at least 16 units".to_owned(),
        );
    }
    None
}
