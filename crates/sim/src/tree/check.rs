//! The properties that must hold after a schedule, with one checker for each.

use super::catalog::{self, CATALOG};
use super::fixture::{Compute, Fixture};
use super::scenario::Scenario;
use super::script::{Record as Report, SPAN};
use crate::history::History;
use crate::linear::{Checker, Sweep, Verdict};
use crate::sim::{Run, Sim, Wrong};
use sherman_core::redo::Record;
use sherman_core::survey::{account, survey};
use sherman_core::{ComputeServer, Walk};
use sherman_fabric::control::TreeInfo;
use sherman_fabric::{Memory, Space};
use sherman_layout::{ChunkEntry, Geometry};
use std::collections::BTreeMap;
use std::fmt;

/// The violated property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Property {
    /// Every operation ends, within a bounded number of verbs and without an unexplained error.
    Progress,
    /// The history is linearizable, including the results of scans for each key.
    Linear,
    /// Scans keep their order and bounds.
    Ranges,
    /// Every value found was written by a client.
    Values,
    /// The tree at rest keeps its invariants.
    Walk,
    /// Every lane is free.
    Lanes,
    /// No redo record and no redo slot is left over.
    Redo,
    /// Every place for a node is part of a tree, or is free and a compute server can find it.
    Space,
    /// Every dead compute server can be recovered.
    Recovery,
    /// No member stays dead or partly removed, and every unused id can be issued.
    Members,
    /// Creations and drops of trees match the answers that clients got: the history of each name is
    /// linearizable.
    Catalog,
    /// If every task gets its turn, no healthy member is declared dead.
    Health,
    /// The copies of a volume are equal at rest.
    Copies,
    /// The loss of one host leaves no change in doubt.
    Settled,
    /// No lease counts that the control state does not know, and one host leads in a term.
    Leases,
    /// No process goes back to an older epoch.
    Epochs,
    /// No host is declared lost without a reason.
    Hosts,
}

impl From<Wrong> for Property {
    fn from(wrong: Wrong) -> Self {
        match wrong {
            Wrong::Leases => Self::Leases,
            Wrong::Epochs => Self::Epochs,
            Wrong::Hosts => Self::Hosts,
            Wrong::Progress => Self::Progress,
        }
    }
}

/// A property that did not hold, and the schedule that shows it.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The seed that replays the schedule.
    pub seed: u64,
    /// The property.
    pub property: Property,
    /// The finding.
    pub what: String,
    /// The key that it concerns, if any.
    pub key: Option<u64>,
    /// The scenario of the seed.
    pub scenario: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {:?} violated: {}", self.seed, self.property, self.what)?;
        write!(f, "in {}", self.scenario)
    }
}

/// The finding of a checker.
#[derive(Debug)]
pub(super) struct Found {
    pub property: Property,
    pub what: String,
    /// The key that it concerns, if any.
    pub key: Option<u64>,
}

impl Found {
    pub(super) fn new(property: Property, what: String) -> Self {
        Self { property, what, key: None }
    }
}

/// Checks the conditions that all other checks need: the run ended, and no client reported trouble.
pub(super) fn ended_well(run: &Run, record: &Report) -> Result<(), Found> {
    if !run.is_done() {
        return Err(Found::new(Property::Progress, format!("{:?}", run.outcome)));
    }
    record.trouble.borrow_mut().take().map_or(Ok(()), Err)
}

/// Checks the answers that clients got against the contents of the tree at the end.
pub(super) fn told(
    scenario: &Scenario,
    record: &Report,
    checker: &mut Checker,
    initial: &BTreeMap<u64, u64>,
    walk: &Walk,
    others: &[(TreeInfo, Walk)],
) -> Result<(), Found> {
    let told = &mut record.history.borrow_mut();
    let others = if scenario.catalog { others } else { &[] };
    catalog::settle(told, &record.catalog.borrow(), initial, others)?;
    ranges(told, &record.sweeps.borrow(), initial)?;
    history(checker, told, scenario, initial, walk, others)
}

/// Checks that all lanes in memory and in the local lock tables are free.
pub(super) fn lanes(sim: &Sim, scenario: &Scenario, computes: &[&ComputeServer]) -> Result<(), Found> {
    for server in 0..scenario.servers {
        let memory = sim.memory(server);
        let mut table = vec![0; memory.size(Space::OnChip) as usize];
        memory.load(Space::OnChip, 0, &mut table);
        if let Some(at) = table.iter().position(|&byte| byte != 0) {
            return Err(Found::new(
                Property::Lanes,
                format!("server {server}: byte {at} of the lock table is {}", table[at]),
            ));
        }
    }
    match computes.iter().position(|compute| !compute.local_locks().all_free()) {
        Some(at) => Err(Found::new(Property::Lanes, format!("compute server {at} still holds a local lock"))),
        None => Ok(()),
    }
}

/// Checks that the redo slots of the compute servers are free and hold no records.
pub(super) fn redo(sim: &Sim, computes: &[&ComputeServer]) -> Result<(), Found> {
    for (at, compute) in computes.iter().enumerate() {
        if !compute.redo_slots().all_free() {
            return Err(Found::new(
                Property::Redo,
                format!("compute server {at} still has a redo slot in use"),
            ));
        }
        for (server, offset) in compute.redo_slots().places() {
            let mut slot = vec![0; compute.geometry().redo_slot_bytes as usize];
            sim.memory(server).load(Space::Host, offset, &mut slot);
            if let Some(record) = Record::decode(&slot) {
                return Err(Found::new(
                    Property::Redo,
                    format!("server {server}: a record is left at {offset:#x}: {record:?}"),
                ));
            }
        }
    }
    Ok(())
}

/// Checks that the copies of every volume are equal, apart from the hints of spans: those may be set or not.
pub(super) fn copies(sim: &Sim, compute: &ComputeServer) -> Result<(), Found> {
    for (volume, entry) in (0u16..).zip(sim.volumes().volumes()) {
        let (Some(primary), Some(backup)) = (entry.primary, entry.backup) else { continue };
        let geometry = compute.geometry_of(volume);
        let (here, made) = (primary, [primary, backup].into_iter().any(|copy| sim.was_made(copy)));
        let [primary, backup] = [primary, backup].map(|copy| {
            let memory = sim.copy(copy);
            let mut bytes = vec![0; memory.size(Space::Host) as usize];
            memory.load(Space::Host, 0, &mut bytes);
            // A redo area is zeroed when it is given out, so redo chunks are not copied.
            if made {
                for chunk in redo_chunks(sim, here, geometry) {
                    bytes[chunk].fill(0);
                }
            }
            let table = geometry.span_table_offset as usize..;
            let (spans, entry) = (geometry.span_table_bytes() as usize, geometry.span_hint(0, 1) as usize);
            let entry = entry - geometry.span_hint(0, 0) as usize;
            let hints = table.start + geometry.span_hint(0, 0) as usize - geometry.span_entry(0, 0) as usize;
            for at in (hints..table.start + spans).step_by(entry) {
                bytes[at..at + 8].fill(0);
            }
            bytes
        });
        // Compared as a whole first: they are long, and nearly always equal.
        let differs = || (0..primary.len()).find(|&at| primary[at] != backup[at]);
        if let Some(at) = if primary == backup { None } else { differs() } {
            let line = at / 64 * 64;
            let [there, ahead] = [&primary, &backup].map(|bytes| format!("{:02x?}", &bytes[line..line + 64]));
            let what = format!("volume {volume} differs at {at:#x}: primary {there}, backup {ahead}");
            return Err(Found::new(Property::Copies, what));
        }
    }
    Ok(())
}

/// The bytes of the chunks of a copy that hold redo areas.
fn redo_chunks(sim: &Sim, copy: u16, geometry: &Geometry) -> Vec<std::ops::Range<usize>> {
    let memory = sim.copy(copy);
    let is_redo = |chunk: &u32| {
        let word = memory.load_u64(Space::Host, geometry.chunk_entry(*chunk));
        ChunkEntry::from_bits(word) == Some(ChunkEntry::Redo)
    };
    let bytes = |chunk: u32| {
        let at = geometry.chunks_offset + u64::from(chunk) * geometry.chunk_bytes;
        at as usize..(at + geometry.chunk_bytes) as usize
    };
    (0..geometry.chunks).filter(is_redo).map(bytes).collect()
}

/// Walks the tree at rest, node by node.
pub(super) fn walk(fixture: &mut Fixture, compute: &Compute) -> Result<Walk, Found> {
    let found = |what: String| Found::new(Property::Walk, what);
    let walk = fixture.walk(compute).map_err(|error| found(error.to_string()))?;
    match walk.miscached.first() {
        Some(node) => Err(found(format!("I10: the cached copy of node {node} leads to other children"))),
        None => Ok(walk),
    }
}

/// Checks node memory: every place is a node of a tree, or is free and a compute server can find it.
/// `everyone` contains all compute servers that are members.
pub(super) fn space(sim: &Sim, servers: u16, everyone: &[&Compute], walks: &[&Walk]) -> Result<(), Found> {
    let Some(first) = everyone.first() else { return Ok(()) };
    let believed_free =
        everyone.iter().map(|compute| (compute.fabric.client(), compute.shared.free_places())).collect();
    let trees = walks.iter().flat_map(|walk| walk.places.iter().copied());
    let geometry = |server| first.shared.geometry_of(server);
    let places: Vec<_> =
        (0..servers).flat_map(|server| survey(&sim.memory(server), geometry(server), server)).collect();
    account(&places, trees, &believed_free).map_err(|what| Found::new(Property::Space, what))
}

/// Checks the rules for scans that hold whatever else happens, and adds their claims about single keys to the
/// history.
fn ranges(history: &mut History, sweeps: &[Sweep], initial: &BTreeMap<u64, u64>) -> Result<(), Found> {
    if sweeps.is_empty() {
        return Ok(());
    }
    let mut keys = history.keys();
    keys.extend(initial.keys());
    for sweep in sweeps {
        let client = sweep.client;
        sweep
            .check_order()
            .map_err(|flaw| Found::new(Property::Ranges, format!("client {client} scans: {flaw}")))?;
        sweep.observe(history, &keys).map_err(|misuse| Found::new(Property::Ranges, misuse.to_string()))?;
    }
    Ok(())
}

/// Checks the history together with the contents at the end.
fn history(
    checker: &mut Checker,
    history: &mut History,
    scenario: &Scenario,
    initial: &BTreeMap<u64, u64>,
    walk: &Walk,
    others: &[(TreeInfo, Walk)],
) -> Result<(), Found> {
    let mut contents = BTreeMap::new();
    let bases = others.iter().map(|(info, walk)| (u64::from(info.id) * SPAN, walk));
    for (base, walk) in [(0, walk)].into_iter().chain(bases) {
        for (key, value) in &walk.entries {
            let Some(id) = scenario.value_id(value) else {
                return Err(Found::new(
                    Property::Values,
                    format!("key {} holds {value:02x?}", scenario.key_id(key)),
                ));
            };
            contents.insert(base + scenario.key_id(key), id);
        }
    }
    contents.extend(
        others.iter().filter_map(|(info, _)| Some((catalog::key_of(&info.name)?, u64::from(info.id)))),
    );
    // The contents of dropped trees cannot be read.
    let listed = |key: u64| {
        !(SPAN..CATALOG).contains(&key) || others.iter().any(|(info, _)| u64::from(info.id) == key / SPAN)
    };
    history.observe_contents_of(initial, &contents, listed);
    match checker.check(history, initial) {
        Verdict::Linearizable => Ok(()),
        verdict => {
            let key = verdict.violation().map(|violation| violation.key);
            let property =
                if key.is_some_and(|key| key >= CATALOG) { Property::Catalog } else { Property::Linear };
            Err(Found { property, what: verdict.to_string(), key })
        }
    }
}
