//! The hash of the whole state, for exhaustive search.
//!
//! Two worlds with equal hashes behave alike from here on. The future depends on memory, the servers' CPUs
//! (by the sequence of their calls), and the progress of everything in flight. It also depends on the ready
//! tasks and the knowledge of every task. A task is a deterministic function of the results delivered to it,
//! so a running hash of these results represents it. Tasks of one compute server may share process memory, so
//! they share one hash, in the order in which they ran. Time is part of the hash once any task has read it.
//! Tasks must report all other shared state with [`Sim::note`](crate::Sim::note).

use super::World;
use super::flight::{Flight, Phase};
use crate::hash::mix;

/// Hashes of all results delivered so far.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Whether hashes are kept.
    pub(crate) on: bool,
    groups: Vec<u64>,
    /// Group of each compute server that has tasks.
    by_owner: Vec<Option<u32>>,
    time_matters: bool,
    notes: u64,
}

impl History {
    pub(crate) fn reset(&mut self) {
        self.on = false;
        self.groups.clear();
        self.by_owner.clear();
        self.time_matters = false;
        self.notes = 0;
    }

    /// Returns the group of a new task.
    pub(crate) fn group(&mut self, owner: Option<u32>) -> u32 {
        let fresh = self.groups.len() as u32;
        let Some(owner) = owner.map(|owner| owner as usize) else {
            self.groups.push(u64::from(fresh));
            return fresh;
        };
        if self.by_owner.len() <= owner {
            self.by_owner.resize(owner + 1, None);
        }
        *self.by_owner[owner].get_or_insert_with(|| {
            self.groups.push(u64::from(fresh));
            fresh
        })
    }

    pub(crate) fn ran(&mut self, group: u32, task: u32) {
        self.learn(group, u64::from(task) << 32 | 1);
    }

    /// Adds `what` to the knowledge of the tasks of `group`.
    pub(crate) fn learn(&mut self, group: u32, what: u64) {
        if let Some(hash) = self.groups.get_mut(group as usize) {
            *hash = mix(*hash, what);
        }
    }

    /// Records an observation whose order among all tasks matters.
    pub(crate) fn note(&mut self, what: u64) {
        self.notes = mix(self.notes, what);
    }

    pub(crate) fn time_was_read(&mut self) {
        self.time_matters = true;
    }
}

impl World {
    /// Starts or stops keeping hashes.
    pub(crate) fn set_tracking(&mut self, on: bool) {
        self.history.on = on;
        for server in &mut self.servers {
            server.memory.set_tracking(on);
            server.control_memory.set_tracking(on);
        }
    }

    /// Adds `what` to the knowledge of the current task.
    pub(crate) fn learn(&mut self, what: u64) {
        if self.history.on
            && let Some(task) = self.tasks.get(self.current as usize)
        {
            self.history.learn(task.group, what);
        }
    }

    /// Returns the hash of the current state.
    pub(crate) fn state(&self) -> u64 {
        let mut hash = mix(self.history.notes, self.volumes.state());
        for server in &self.servers {
            hash = mix(mix(hash, server.memory.content()), server.control_memory.content());
            hash = mix(hash, server.calls_hash);
            hash = mix(hash, u64::from(server.engine.map_or(0, |qp| qp + 1)) << 1 | u64::from(server.lost));
        }
        for group in &self.history.groups {
            hash = mix(hash, *group);
        }
        for (task, state) in (0u32..).zip(&self.tasks) {
            hash = mix(hash, u64::from(state.alive) << 1 | u64::from(self.actors.has_task(task)));
        }
        for qp in &self.queue_pairs {
            for pending in &qp.pending {
                let flight = self.flights.get(pending.flight);
                hash = mix(mix(hash, known(flight)), u64::from(pending.index));
                hash = pending.done.words().fold(hash, mix);
                hash = mix(hash, pending.loaded.unwrap_or(1));
            }
            hash = mix(hash, u64::from(qp.endpoint) << 17 | u64::from(qp.server) << 1 | u64::from(qp.broken));
        }
        // Finished and delivered lists, and calls, in no order.
        let rest =
            self.flights.open_slots().filter(|(_, f)| f.request.is_some() || f.phase != Phase::InFlight);
        hash = mix(hash, rest.fold(0, |sum: u64, (_, flight)| sum.wrapping_add(known(flight))));
        for owner in &self.compute_servers {
            let fenced = owner.fenced.iter().fold(1, |bits: u64, &fenced| bits << 1 | u64::from(fenced));
            hash = mix(hash, fenced << 1 | u64::from(owner.dead));
            if owner.dies_after != u64::MAX {
                hash = mix(hash, owner.dies_after - owner.effects);
            }
            if owner.asleep_until > self.now {
                hash = mix(hash, owner.asleep_until - self.now);
                hash = mix(hash, u64::from(owner.stalled_until > self.now));
            }
        }
        hash = self.slumber.iter().fold(hash, |hash, &task| mix(hash, u64::from(task)));
        hash = self.ambushes.iter().fold(hash, |hash, &effects| mix(hash, effects));
        if !self.faults.is_empty() {
            hash = mix(hash, self.steps);
        }
        if self.history.time_matters {
            hash = self.timers.times().fold(mix(hash, self.now), mix);
        }
        hash
    }
}

/// Returns a hash of a list or call and its results so far.
fn known(flight: &Flight) -> u64 {
    let ends =
        (flight.phase as u64) << 2 | u64::from(flight.error.is_some()) << 1 | u64::from(flight.forgotten);
    let who = u64::from(flight.task) << 32 | u64::from(flight.route) << 8 | ends;
    mix(mix(flight.posted, flight.fetched), who)
}
