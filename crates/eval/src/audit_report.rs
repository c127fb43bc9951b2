//! The result of an audit of a whole cluster: fields for programs, a table for people.

use crate::check_report::CheckReport;
use crate::report::grouped;
use serde::Serialize;
use sherman::{Audit, Error, Finding, TreeDescription};
use std::fmt;

/// Damage outside the trees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FindingReport {
    /// The number of the broken invariant in `docs/INVARIANTS.md`.
    pub invariant: &'static str,
    /// The text of the invariant.
    pub says: &'static str,
    /// The memory server with the damage.
    pub server: u16,
    /// The damaged part: a lane, a redo slot, a client word, a place or a chunk.
    pub part: &'static str,
    /// The position on that server: an offset, or a lane's number.
    pub at: u64,
    /// The client id in the damaged part.
    pub client: u16,
    /// The finding.
    pub detail: String,
}

impl FindingReport {
    fn of(finding: &Finding) -> Self {
        let (invariant, says) = finding.invariant.split_once(": ").unwrap_or((finding.invariant, ""));
        let Finding { server, part, at, client, .. } = *finding;
        Self {
            invariant,
            says,
            server,
            part: part.name(),
            at,
            client: client.0,
            detail: finding.detail.clone(),
        }
    }
}

/// The result of an audit. The field names are those of the JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditReport {
    /// The cluster.
    pub cluster: String,
    /// Whether nothing is damaged.
    pub clean: bool,
    /// Every tree.
    pub trees: Vec<CheckReport>,
    /// The ids of live clients, including this command's client.
    pub members: Vec<u16>,
    /// The ids of clients that died or left and are not recovered yet. Their locks, records and places are
    /// not damage.
    pub unrecovered: Vec<u16>,
    /// Lock lanes that members hold.
    pub lanes_held: u64,
    /// Redo records of members: changes in flight.
    pub records: u64,
    /// Places that hold nodes of trees.
    pub places_linked: u64,
    /// Places on the free lists of members.
    pub places_free: u64,
    /// Places of nodes that a member is creating.
    pub places_pending: u64,
    /// Places in members' chunks that were never used.
    pub places_unused: u64,
    /// The number of findings outside the trees.
    pub finding_count: u64,
    /// The first hundred findings.
    pub findings: Vec<FindingReport>,
}

impl AuditReport {
    pub(crate) fn new(cluster: &str, audit: &Audit) -> Result<Self, Error> {
        let trees = audit.trees.iter().map(|(info, check)| {
            let description = TreeDescription::try_from(info.clone())?;
            Ok(CheckReport::new(cluster, &description, check, None))
        });
        Ok(Self {
            cluster: cluster.to_owned(),
            clean: audit.is_clean(),
            trees: trees.collect::<Result<_, Error>>()?,
            members: audit.live.iter().map(|client| client.0).collect(),
            unrecovered: audit.unrecovered.iter().map(|client| client.0).collect(),
            lanes_held: audit.lanes_held,
            records: audit.records,
            places_linked: audit.places.linked,
            places_free: audit.places.free,
            places_pending: audit.places.pending,
            places_unused: audit.places.unused,
            finding_count: audit.finding_count,
            findings: audit.findings.iter().map(FindingReport::of).collect(),
        })
    }
}

impl fmt::Display for AuditReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for tree in &self.trees {
            writeln!(f, "{tree}\n")?;
        }
        writeln!(f, "whole cluster {}", self.cluster)?;
        writeln!(f, "trees               {}", self.trees.len())?;
        let ids = |ids: &[u16]| match ids {
            [] => "none".to_owned(),
            ids => ids.iter().map(u16::to_string).collect::<Vec<_>>().join(", "),
        };
        writeln!(f, "members             {}", ids(&self.members))?;
        writeln!(f, "not recovered yet   {}", ids(&self.unrecovered))?;
        writeln!(f, "lanes held          {}", grouped(self.lanes_held))?;
        writeln!(f, "changes in flight   {}", grouped(self.records))?;
        writeln!(
            f,
            "places for nodes    {} in trees, {} free, {} being made, {} never used",
            grouped(self.places_linked),
            grouped(self.places_free),
            grouped(self.places_pending),
            grouped(self.places_unused)
        )?;
        if self.finding_count == 0 {
            return write!(f, "damage elsewhere    none");
        }
        write!(f, "damage elsewhere    {}", grouped(self.finding_count))?;
        for FindingReport { invariant, says, server, part, at, detail, .. } in &self.findings {
            write!(f, "\n  {invariant}, server {server}, {part} {at:#x}: {says}\n      {detail}")?;
        }
        let untold = self.finding_count - self.findings.len() as u64;
        if untold > 0 {
            write!(f, "\n  and {} more", grouped(untold))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sherman::{Cluster, ComputeId, Part};

    #[test]
    fn an_audit_names_every_tree_and_what_is_damaged_beside_them() {
        let cluster = Cluster::open("embedded:?memory=64MiB").expect("a cluster");
        for name in ["orders", "users"] {
            cluster
                .tree::<u64, u64>(name)
                .expect("a tree")
                .client()
                .expect("a client")
                .insert(1, 2)
                .expect("room");
        }
        let mut audit = cluster.audit().expect("an audit");
        let report = AuditReport::new("somewhere", &audit).expect("a report");
        assert!(report.clean && report.trees.len() == 2 && report.places_linked == 2, "{report}");
        assert!(report.to_string().contains("damage elsewhere    none"), "{report}");
        audit.findings.push(Finding {
            server: 1,
            part: Part::Lane,
            at: 0x2a,
            client: ComputeId(7),
            invariant: "I38: a lane is given back",
            detail: "client 7 holds the lane, but is not a member".to_owned(),
        });
        audit.finding_count = 3;
        let report = AuditReport::new("somewhere", &audit).expect("a report");
        let text = report.to_string();
        assert!(
            !report.clean && text.contains("I38, server 1, lane 0x2a") && text.contains("and 2 more"),
            "{text}"
        );
        let json = serde_json::to_value(&report).expect("JSON");
        assert_eq!(
            (json["findings"][0]["client"].as_u64(), json["trees"][1]["tree"].as_str()),
            (Some(7), Some("users"))
        );
    }
}
