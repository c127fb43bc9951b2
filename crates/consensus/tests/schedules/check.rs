//! What must hold in every schedule.

use crate::world::Violation;
use sherman_consensus::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// What the clients and nodes have seen.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    /// The hash of all commands up to each index, as the first node applied them.
    log: BTreeMap<u64, u64>,
    /// Acknowledged commands and their index.
    pub(crate) acknowledged: BTreeMap<u64, u64>,
    superseded: BTreeSet<u64>,
    /// The leader of each term.
    leaders: BTreeMap<u64, NodeId>,
    /// The newest index that any client knows.
    pub(crate) floor: u64,
    pub(crate) reads: u64,
}

impl Checks {
    /// All nodes apply the same commands in the same order.
    pub(crate) fn applied(&mut self, node: NodeId, applied: &[(u64, u64)]) -> Result<(), Violation> {
        for (index, hash) in applied {
            let first = *self.log.entry(*index).or_insert(*hash);
            if first != *hash {
                return Err(format!("node {node} has other commands up to index {index} than another node"));
            }
        }
        Ok(())
    }

    /// A proposal gets its own answer, and one that was superseded gets none.
    pub(crate) fn acknowledged(&mut self, command: u64, answered: u64, index: u64) -> Result<(), Violation> {
        if command != answered {
            return Err(format!("command {command} got the answer of command {answered}"));
        }
        self.acknowledged.insert(command, index);
        self.floor = self.floor.max(index);
        Ok(())
    }

    pub(crate) fn superseded(&mut self, command: u64) -> Result<(), Violation> {
        self.superseded.insert(command);
        Ok(())
    }

    /// A read sees everything that any client knew when it was asked.
    pub(crate) fn read(&mut self, node: NodeId, floor: u64, applied: u64) -> Result<(), Violation> {
        self.reads += 1;
        if applied < floor {
            return Err(format!(
                "a read at node {node} saw index {applied}; a client knew index {floor} before"
            ));
        }
        self.floor = self.floor.max(applied);
        Ok(())
    }

    /// A term has one leader.
    pub(crate) fn leader(&mut self, term: u64, leader: NodeId) -> Result<(), Violation> {
        let first = *self.leaders.entry(term).or_insert(leader);
        if first != leader {
            return Err(format!("term {term} has two leaders: {first} and {leader}"));
        }
        Ok(())
    }

    /// The final state of a node has every acknowledged command once, and none that was superseded.
    pub(crate) fn finished(&self, node: NodeId, commands: &[u64]) -> Result<(), Violation> {
        let unique: BTreeSet<u64> = commands.iter().copied().collect();
        if unique.len() != commands.len() {
            return Err(format!("node {node} has applied a command twice"));
        }
        if let Some(lost) = self.acknowledged.keys().find(|command| !unique.contains(command)) {
            return Err(format!("node {node} lost the acknowledged command {lost}"));
        }
        if let Some(odd) = self.superseded.intersection(&unique).next() {
            return Err(format!("node {node} has applied command {odd}, which was reported as superseded"));
        }
        Ok(())
    }
}
