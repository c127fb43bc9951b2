//! What schedules came to: one, and many together.

use super::check::Violation;
use crate::sim::Run;
use sherman_core::tree::Merges;
use std::fmt;

/// One schedule, after its checks.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its events, verbs and trace hash.
    pub run: Run,
    /// Tasks that ran.
    pub clients: u32,
    /// Nodes that were made during it.
    pub splits: u64,
    /// Merges during it.
    pub merges: Merges,
    /// Places that were used again during it.
    pub reused: u64,
    /// Scans during it.
    pub scans: usize,
    /// Levels of the tree at the end.
    pub height: usize,
    /// What did not hold.
    pub violation: Option<Violation>,
}

/// Of how many schedules something is true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// A node was made.
    pub split: u64,
    /// Leaves or internal nodes were merged.
    pub merge: u64,
    /// Internal nodes were merged.
    pub internal_merge: u64,
    /// The root was replaced by its only child.
    pub shrink: u64,
    /// A place was used again that had held a node.
    pub reuse: u64,
    /// A range was scanned.
    pub scan: u64,
}

/// Totals over many schedules.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    /// Schedules run, all of them checked.
    pub schedules: u64,
    /// What happened in how many of them.
    pub with: Shares,
    /// Verbs of each.
    pub verbs: Vec<u32>,
    /// Trace hashes, to be counted for distinctness.
    pub hashes: Vec<u64>,
    /// The fewest tasks any of them had.
    pub fewest_clients: u32,
    /// The first few violations.
    pub violations: Vec<Violation>,
    /// All of them, counted.
    pub violated: u64,
}

impl Explored {
    /// Adds one schedule.
    pub fn add(&mut self, seen: Seen) {
        self.fewest_clients = if self.schedules == 0 { seen.clients } else { self.fewest_clients.min(seen.clients) };
        self.schedules += 1;
        let Merges { leaves, internal, shrinks } = seen.merges;
        self.with.add(&Shares {
            split: u64::from(seen.splits > 0),
            merge: u64::from(leaves + internal > 0),
            internal_merge: u64::from(internal > 0),
            shrink: u64::from(shrinks > 0),
            reuse: u64::from(seen.reused > 0),
            scan: u64::from(seen.scans > 0),
        });
        self.verbs.push(u32::try_from(seen.run.verbs).unwrap_or(u32::MAX));
        self.hashes.push(seen.run.trace_hash);
        self.violated += u64::from(seen.violation.is_some());
        if self.violations.len() < 8 {
            self.violations.extend(seen.violation);
        }
    }

    /// Adds another's totals.
    pub fn merge(&mut self, other: Self) {
        if other.schedules > 0 {
            let fewest = if self.schedules == 0 { u32::MAX } else { self.fewest_clients };
            self.fewest_clients = fewest.min(other.fewest_clients);
        }
        self.schedules += other.schedules;
        self.with.add(&other.with);
        self.verbs.extend(other.verbs);
        self.hashes.extend(other.hashes);
        self.violated += other.violated;
        self.violations.extend(other.violations);
    }

    /// The median number of verbs.
    pub fn median_verbs(&self) -> u32 {
        let mut verbs = self.verbs.clone();
        verbs.sort_unstable();
        verbs.get(verbs.len() / 2).copied().unwrap_or(0)
    }

    /// The share of schedules whose trace no other has.
    pub fn distinct(&self) -> f64 {
        let mut hashes = self.hashes.clone();
        hashes.sort_unstable();
        hashes.dedup();
        hashes.len() as f64 / self.hashes.len().max(1) as f64
    }

    /// All trace hashes in one, whatever the order in which schedules ran.
    pub fn trace_hash(&self) -> u64 {
        self.hashes.iter().fold(0, |sum, hash| sum.wrapping_add(*hash))
    }

    /// A number of schedules as a share of all.
    pub fn share(&self, of: u64) -> f64 {
        of as f64 / self.schedules.max(1) as f64
    }
}

impl Shares {
    fn add(&mut self, other: &Self) {
        self.split += other.split;
        self.merge += other.merge;
        self.internal_merge += other.internal_merge;
        self.shrink += other.shrink;
        self.reuse += other.reuse;
        self.scan += other.scan;
    }
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |of| 100.0 * self.share(of);
        write!(f, "{} schedules, median {} verbs, ", self.schedules, self.median_verbs())?;
        write!(f, "at least {} clients, {:.2} % distinct; ", self.fewest_clients, 100.0 * self.distinct())?;
        let Shares { split, merge, internal_merge, shrink, reuse, scan } = self.with;
        write!(f, "{:.1} % with a split, {:.1} % a merge, ", percent(split), percent(merge))?;
        write!(f, "{:.1} % of internal nodes, {:.1} % a shrink, ", percent(internal_merge), percent(shrink))?;
        write!(f, "{:.1} % a reuse, {:.1} % a scan; ", percent(reuse), percent(scan))?;
        write!(f, "{} violations", self.violated)
    }
}
