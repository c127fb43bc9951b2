//! The result of a check: fields for programs, a table for people.

use crate::churn::Churn;
use crate::report::{grouped, ratio};
use serde::Serialize;
use sherman::{Broken, Check, TreeDescription};
use std::collections::BTreeMap;
use std::fmt;

/// One level of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LevelReport {
    /// The level; 0 is the leaves.
    pub level: usize,
    /// Nodes.
    pub nodes: u64,
    /// Entries or separators in them.
    pub entries: u64,
    /// How full they are, from 0 to 1.
    pub fill: f64,
    /// Bytes of memory they take.
    pub bytes: u64,
}

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BrokenReport {
    /// Its number in `docs/INVARIANTS.md`.
    pub invariant: &'static str,
    /// The text of the invariant.
    pub says: &'static str,
    /// The memory server of the node.
    pub server: u16,
    /// The offset of the node on that server.
    pub offset: u64,
    /// The level of the node.
    pub level: u8,
    /// The first key of the affected range, in hexadecimal, if it is known.
    pub from: Option<String>,
    /// The end of that range (exclusive), in hexadecimal, if it is known.
    pub to: Option<String>,
    /// The finding.
    pub detail: String,
}

/// Formats a key in hexadecimal.
fn hex(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl BrokenReport {
    fn of(broken: &Broken) -> Self {
        let (invariant, says) = broken.invariant.split_once(": ").unwrap_or((broken.invariant, ""));
        let (server, offset) = (broken.address.server(), broken.address.offset());
        let (from, to) = (broken.from.as_deref().map(hex), broken.to.as_deref().map(hex));
        Self { invariant, says, server, offset, level: broken.level, from, to, detail: broken.detail.clone() }
    }
}

/// The tree that the check created, and the work on it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Made {
    /// Keys loaded in bulk.
    pub keys: u64,
    /// The fill of nodes after the load, in percent.
    pub fill: u32,
    /// The number of writers.
    pub threads: usize,
    /// Seconds for which the writers worked.
    pub seconds: f64,
    /// The seed for the actions of writers.
    pub seed: u64,
    /// Checks while the writers worked.
    pub checks_while_writing: u64,
    /// What the writers did.
    pub writers: Churn,
    /// Whether the numbers are of a check after the writers stopped. If not, an earlier check was not clean.
    pub at_rest: bool,
    /// The correct number of entries after the writers stop.
    pub expected_entries: u64,
}

/// The result of a check. The field names are those of the JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckReport {
    /// The cluster.
    pub cluster: String,
    /// The tree.
    pub tree: String,
    /// The format of its nodes.
    pub format: &'static str,
    /// Bytes of a key.
    pub key_size: usize,
    /// Bytes of a value.
    pub value_size: usize,
    /// Bytes of a leaf.
    pub leaf_size: usize,
    /// Bytes of an internal node.
    pub internal_size: usize,
    /// Whether every invariant holds, and the number of entries is right where it is known.
    pub clean: bool,
    /// Entries.
    pub entries: u64,
    /// Levels; a single leaf is one level.
    pub height: usize,
    /// Nodes of all levels.
    pub nodes: u64,
    /// How full the leaves are, from 0 to 1.
    pub fill: f64,
    /// Bytes of memory of all nodes.
    pub bytes: u64,
    /// The same per entry.
    pub bytes_per_entry: f64,
    /// Nodes that can be reached only through their left neighbour: legal, but slow.
    pub missing_separators: u64,
    /// Every level, leaves first.
    pub levels: Vec<LevelReport>,
    /// The number of violations of invariants.
    pub broken_count: u64,
    /// The number of violations in `broken`, by invariant.
    pub broken_by_invariant: BTreeMap<&'static str, u64>,
    /// The first hundred violations.
    pub broken: Vec<BrokenReport>,
    /// Nodes that the check skipped, with the nodes behind them, because a member held them too long.
    pub undecided: u64,
    /// The tree that the check created, if the cluster began empty.
    pub made: Option<Made>,
}

impl CheckReport {
    pub(crate) fn new(cluster: &str, tree: &TreeDescription, check: &Check, made: Option<Made>) -> Self {
        let as_many = made.is_none_or(|made| !made.at_rest || made.expected_entries == check.entries);
        let broken: Vec<BrokenReport> = check.broken.iter().map(BrokenReport::of).collect();
        let mut broken_by_invariant = BTreeMap::new();
        broken.iter().for_each(|broken| *broken_by_invariant.entry(broken.invariant).or_insert(0) += 1);
        let level = |(level, of): (usize, &sherman::Level)| LevelReport {
            level,
            nodes: of.nodes,
            entries: of.entries,
            fill: ratio(of.entries as f64, of.capacity as f64),
            bytes: of.bytes,
        };
        Self {
            cluster: cluster.to_owned(),
            tree: tree.name.clone(),
            format: tree.format.name(),
            key_size: tree.key_bytes,
            value_size: tree.value_bytes,
            leaf_size: tree.leaf_bytes,
            internal_size: tree.internal_bytes,
            clean: check.is_clean() && as_many,
            entries: check.entries,
            height: check.height(),
            nodes: check.nodes(),
            fill: ratio(check.fill(), 1.0),
            bytes: check.bytes(),
            bytes_per_entry: ratio(check.bytes() as f64, check.entries as f64),
            missing_separators: check.missing_separators,
            levels: check.levels.iter().enumerate().map(level).collect(),
            broken_count: check.broken_count,
            broken_by_invariant,
            broken,
            undecided: check.undecided,
            made,
        }
    }

    /// Writes what the check did, in sentences.
    fn story(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(made) = &self.made else {
            return writeln!(f, "checked as it is; other clients may have written meanwhile");
        };
        writeln!(
            f,
            "the cluster begins empty: loaded {} keys in bulk to {} %",
            grouped(made.keys),
            made.fill
        )?;
        if made.checks_while_writing > 0 {
            let Made { threads, seconds, checks_while_writing, writers, .. } = made;
            let Churn { inserts, updates, removes, removes_of_nothing, gets, ranges } = writers;
            writeln!(f, "checked {checks_while_writing} times in {seconds} s while {threads} threads did")?;
            writeln!(
                f,
                "  {} inserts, {} updates, {} removes, {} lookups and {} ranges",
                grouped(*inserts),
                grouped(*updates),
                grouped(removes + removes_of_nothing),
                grouped(*gets),
                grouped(*ranges)
            )?;
        }
        if made.at_rest {
            writeln!(f, "checked {}at rest", if made.checks_while_writing > 0 { "once more " } else { "" })
        } else {
            writeln!(
                f,
                "stopped at the first check that was not clean; the numbers below are those of this check"
            )
        }
    }

    fn level_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<20}{:>12}{:>14}{:>10}{:>16}", "level", "nodes", "entries", "fill", "bytes")?;
        for level in self.levels.iter().rev() {
            let name = if level.level == 0 { "0 (leaves)".to_owned() } else { level.level.to_string() };
            let (nodes, entries, bytes) =
                (grouped(level.nodes), grouped(level.entries), grouped(level.bytes));
            let fill = format!("{:.1} %", level.fill * 100.0);
            writeln!(f, "  {name:<18}{nodes:>12}{entries:>14}{fill:>10}{bytes:>16}")?;
        }
        Ok(())
    }

    fn verdict(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.undecided > 0 {
            writeln!(
                f,
                "undecided           {}: members held these nodes for too long",
                grouped(self.undecided)
            )?;
        }
        if let Some(made) = self.made.filter(|made| made.at_rest && made.expected_entries != self.entries) {
            writeln!(
                f,
                "WRONG: there must be {} entries, according to the answers to the writers",
                grouped(made.expected_entries)
            )?;
        }
        if self.broken_count == 0 {
            return write!(f, "broken invariants   none");
        }
        let numbers: Vec<String> =
            self.broken_by_invariant.iter().map(|(number, count)| format!("{number}: {count}")).collect();
        write!(f, "broken invariants   {} ({})", grouped(self.broken_count), numbers.join(", "))?;
        for BrokenReport { invariant, says, server, offset, level, from, to, detail } in &self.broken {
            write!(f, "\n  {invariant} on level {level}, server {server}, offset {offset:#x}: {says}")?;
            write!(f, "\n      {detail}")?;
            if let Some(from) = from {
                let to = to.as_ref().map_or(String::new(), |to| format!(" to 0x{to}"));
                write!(f, "; keys from 0x{from}{to}")?;
            }
        }
        let untold = self.broken_count - self.broken.len() as u64;
        if untold > 0 {
            write!(f, "\n  and {} more", grouped(untold))?;
        }
        Ok(())
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, tree, format, key_size, value_size, leaf_size, internal_size, .. } = self;
        writeln!(f, "{cluster}")?;
        writeln!(f, "tree {tree:?} | {format} | keys of {key_size} B, values of {value_size} B")?;
        writeln!(f, "leaves of {leaf_size} B, internal nodes of {internal_size} B")?;
        self.story(f)?;
        writeln!(f)?;
        writeln!(f, "entries             {}", grouped(self.entries))?;
        writeln!(f, "height              {}", self.height)?;
        writeln!(f, "nodes               {}", grouped(self.nodes))?;
        writeln!(f, "fill of leaves      {:.1} %", self.fill * 100.0)?;
        writeln!(f, "memory of nodes     {} B, {:.2} B an entry", grouped(self.bytes), self.bytes_per_entry)?;
        writeln!(f)?;
        self.level_table(f)?;
        writeln!(f)?;
        writeln!(f, "missing separators  {}", grouped(self.missing_separators))?;
        self.verdict(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sherman::{Cluster, GlobalAddress};

    /// Returns a sound tree of one entry, to which tests then add faults.
    fn description() -> (TreeDescription, Check) {
        let cluster = Cluster::open("embedded:?memory=64MiB").expect("a cluster");
        let tree = cluster.tree::<u64, u64>("orders").expect("a tree");
        tree.client().expect("a client").insert(1, 2).expect("an insert");
        (cluster.describe("orders").expect("a description"), tree.check().expect("a check"))
    }

    fn made(expected_entries: u64) -> Made {
        let writers = Churn::default();
        let (keys, fill, threads, seconds, seed) = (1, 80, 1, 0.0, 1);
        Made {
            keys,
            fill,
            threads,
            seconds,
            seed,
            checks_while_writing: 0,
            writers,
            at_rest: true,
            expected_entries,
        }
    }

    #[test]
    fn broken_invariants_are_reported_by_number_and_place() {
        let (tree, mut check) = description();
        let address = GlobalAddress::new(3, 64);
        let (from, to, detail) = (Some(vec![0, 0xab]), Some(vec![1, 2]), "nothing is there".to_owned());
        let broken = Broken { address, level: 2, invariant: "I7: a separator leads there", from, to, detail };
        check.broken = vec![broken.clone(), broken];
        check.broken_count = 102;
        let report = CheckReport::new("somewhere", &tree, &check, None);
        assert!(!report.clean && report.broken_by_invariant["I7"] == 2);
        let text = report.to_string();
        for words in [
            "102 (I7: 2)",
            "I7 on level 2, server 3, offset 0x40: a separator leads there",
            "and 100 more",
            "nothing is there; keys from 0x00ab to 0x0102",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let json = serde_json::to_value(&report).expect("JSON");
        assert_eq!(json["broken"][1]["invariant"], "I7");
        assert_eq!(
            (json["broken"][0]["server"].as_u64(), json["broken_count"].as_u64()),
            (Some(3), Some(102))
        );
    }

    #[test]
    fn a_wrong_number_of_entries_is_not_clean() {
        let (tree, check) = description();
        assert!(CheckReport::new("somewhere", &tree, &check, Some(made(1))).clean);
        let report = CheckReport::new("somewhere", &tree, &check, Some(made(2)));
        assert!(!report.clean && report.to_string().contains("WRONG: there must be 2 entries"), "{report}");
    }
}
