//! What must hold after a schedule, one checker per property.

use super::scenario::Scenario;
use crate::history::History;
use crate::linear::{Checker, Sweep, Verdict};
use crate::sim::Sim;
use sherman_core::redo::Record;
use sherman_core::{ComputeServer, Walk};
use sherman_fabric::{Memory, Space};
use std::collections::BTreeMap;
use std::fmt;

/// What was violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Property {
    /// Every operation ends, without an error nobody caused.
    Progress,
    /// The history is linearizable, what scans say of each key included.
    Linear,
    /// Scans keep their order and bounds.
    Ranges,
    /// Every value is one that was written.
    Values,
    /// The tree at rest keeps its invariants.
    Walk,
    /// Every lane is free.
    Lanes,
    /// No redo record and no redo slot is left over.
    Redo,
    /// Every place for a node is part of the tree or free.
    Space,
}

/// A property that did not hold, and the schedule that shows it.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Replays the schedule.
    pub seed: u64,
    /// Which.
    pub property: Property,
    /// What was found.
    pub what: String,
    /// The scenario the seed stands for.
    pub scenario: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {:?} violated: {}", self.seed, self.property, self.what)?;
        write!(f, "in {}", self.scenario)
    }
}

pub(super) type Found = (Property, String);

/// Lanes in memory and in the local lock tables.
pub(super) fn lanes(sim: &Sim, scenario: &Scenario, computes: &[&ComputeServer]) -> Result<(), Found> {
    for server in 0..scenario.servers {
        let memory = sim.memory(server);
        let mut table = vec![0; memory.size(Space::OnChip) as usize];
        memory.load(Space::OnChip, 0, &mut table);
        if let Some(at) = table.iter().position(|&byte| byte != 0) {
            return Err((Property::Lanes, format!("server {server}: byte {at} of the lock table is {}", table[at])));
        }
    }
    match computes.iter().position(|compute| !compute.local_locks().all_free()) {
        Some(at) => Err((Property::Lanes, format!("compute server {at} still holds a local lock"))),
        None => Ok(()),
    }
}

/// Redo slots in the compute servers and the records in them.
pub(super) fn redo(sim: &Sim, computes: &[&ComputeServer]) -> Result<(), Found> {
    for (at, compute) in computes.iter().enumerate() {
        if !compute.redo_slots().all_free() {
            return Err((Property::Redo, format!("compute server {at} still has a redo slot in use")));
        }
        for (server, offset) in compute.redo_slots().places() {
            let mut slot = vec![0; compute.geometry().redo_slot_bytes as usize];
            sim.memory(server).load(Space::Host, offset, &mut slot);
            if let Some(record) = Record::decode(&slot) {
                return Err((Property::Redo, format!("server {server}: a record is left at {offset:#x}: {record:?}")));
            }
        }
    }
    Ok(())
}

/// Node memory: what was obtained is in the tree or free.
pub(super) fn space(computes: &[&ComputeServer], walk: &Walk) -> Result<(), Found> {
    let (mut allocated, mut free) = (0, 0);
    for census in computes.iter().map(|compute| compute.census()) {
        allocated += census.allocated;
        free += census.free;
    }
    let live = walk.nodes.iter().sum::<usize>() as u64;
    if allocated == live + free {
        return Ok(());
    }
    Err((Property::Space, format!("of {allocated} places {live} are in the tree and {free} are free")))
}

/// What scans may not do whatever else happens; and what they say of single keys, added to the history.
pub(super) fn ranges(history: &mut History, sweeps: &[Sweep], initial: &BTreeMap<u64, u64>) -> Result<(), Found> {
    if sweeps.is_empty() {
        return Ok(());
    }
    let mut keys = history.keys();
    keys.extend(initial.keys());
    for sweep in sweeps {
        let client = sweep.client;
        sweep.check_order().map_err(|flaw| (Property::Ranges, format!("client {client} scans: {flaw}")))?;
        sweep.observe(history, &keys).map_err(|misuse| (Property::Ranges, misuse.to_string()))?;
    }
    Ok(())
}

/// The history together with the contents found at the end.
pub(super) fn history(
    checker: &mut Checker,
    history: &mut History,
    scenario: &Scenario,
    initial: &BTreeMap<u64, u64>,
    walk: &Walk,
) -> Result<(), Found> {
    let mut contents = BTreeMap::new();
    for (key, value) in &walk.entries {
        let Some(id) = scenario.value_id(value) else {
            return Err((Property::Values, format!("key {} holds {value:02x?}", scenario.key_id(key))));
        };
        contents.insert(scenario.key_id(key), id);
    }
    match checker.check_final(history, initial, &contents) {
        Verdict::Linearizable => Ok(()),
        verdict => Err((Property::Linear, verdict.to_string())),
    }
}
