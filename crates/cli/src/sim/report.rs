//! The result of an exploration: fields for programs, a table for people.

use crate::sim::args::ExploreArgs;
use serde::Serialize;
use sherman_eval::report::grouped;
use sherman_sim::tree::{Explored, Shares, Violation};
use std::fmt;

/// A violation, and the schedule that shows it.
#[derive(Debug, Serialize)]
pub struct ViolationReport {
    /// The seed that replays the schedule.
    pub seed: u64,
    /// The checker that found the violation.
    pub property: String,
    /// The finding.
    pub what: String,
    /// The scenario of the schedule.
    pub scenario: String,
}

/// A planted bug, and whether the exploration found it.
#[derive(Debug, Serialize)]
pub struct PlantedReport {
    /// Its name.
    pub name: &'static str,
    /// What the bug does wrong.
    pub what: &'static str,
    /// Whether the exploration found it.
    pub found: bool,
}

/// The result. The field names are those of the JSON.
#[derive(Debug, Serialize)]
pub struct ExploreReport {
    /// Schedules run and checked.
    pub schedules: u64,
    /// The seed of the first.
    pub seed: u64,
    /// Whether clients died and connections broke.
    pub crashes: bool,
    /// Copies of each volume.
    pub replicas: u16,
    /// Hosts of the control group, if there was a real one.
    pub group: Option<u16>,
    /// The planted bug, if there was one.
    pub mutant: Option<PlantedReport>,
    /// The format of the trees, or `mixed`.
    pub format: &'static str,
    /// Schedules that violated a property.
    pub violations: u64,
    /// The first few of them.
    pub first_violations: Vec<ViolationReport>,
    /// Compute servers that died, over all schedules.
    pub crash_points: u64,
    /// The sum of the trace hashes of all schedules: equal for equal schedules, whatever the number of
    /// threads.
    pub trace_hash: String,
    /// The median number of verbs of a schedule.
    pub median_verbs: u32,
    /// The lowest number of clients of any schedule.
    pub fewest_clients: u32,
    /// The share of schedules with a unique trace.
    pub distinct: f64,
    /// The share of schedules in which each event happened, from 0 to 1.
    pub shares: Shares<f64>,
    /// Threads that ran schedules.
    pub threads: usize,
    /// The time the exploration took, in seconds.
    pub seconds: f64,
    /// Schedules per second, including the checks.
    pub schedules_per_second: f64,
    /// The options that replay these schedules.
    #[serde(skip)]
    again: String,
}

impl ExploreReport {
    /// Makes the report of an exploration.
    pub fn new(args: &ExploreArgs, threads: usize, seconds: f64, explored: &Explored) -> Self {
        let found = explored.violated > 0;
        Self {
            schedules: explored.schedules,
            seed: args.seed,
            crashes: args.world.hunt().crashes(),
            replicas: if args.world.hunt().replicas() { 2 } else { 1 },
            group: args.world.hunt().group(),
            mutant: args.world.planted.report(found),
            format: args.world.hunt().format().map_or("mixed", sherman::Format::name),
            violations: explored.violated,
            first_violations: explored.violations.iter().map(ViolationReport::of).collect(),
            crash_points: explored.crash_points,
            trace_hash: format!("{:#018x}", explored.trace_hash()),
            median_verbs: explored.median_verbs(),
            fewest_clients: explored.fewest_clients,
            distinct: explored.distinct(),
            shares: explored.with.map(|schedules| explored.share(schedules)),
            threads,
            seconds,
            schedules_per_second: if seconds > 0.0 { explored.schedules as f64 / seconds } else { 0.0 },
            again: args.world.again(),
        }
    }
}

impl ViolationReport {
    /// Converts a violation for the report.
    pub fn of(violation: &Violation) -> Self {
        let Violation { seed, property, what, scenario, .. } = violation;
        Self {
            seed: *seed,
            property: format!("{property:?}").to_lowercase(),
            what: what.clone(),
            scenario: scenario.clone(),
        }
    }
}

impl ExploreReport {
    /// The lines about hosts, if there are several copies.
    fn of_hosts(&self) -> Vec<(&'static str, String)> {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let Shares { loss, losses, making, failover_to_made, .. } = self.shares;
        let Shares { led_again, host_cut, host_stood_still, bad_network, .. } = self.shares;
        let hosts = [
            ("with a host lost", loss),
            ("with several hosts lost", losses),
            ("with a copy made again", making),
            ("with a failover to one", failover_to_made),
        ];
        let group = [
            ("with several leaders", led_again),
            ("with a host cut off", host_cut),
            ("with a host stopped", host_stood_still),
            ("with a bad network", bad_network),
        ];
        let hosts = hosts.into_iter().filter(|_| self.replicas > 1);
        let group = group.into_iter().filter(|_| self.group.is_some());
        hosts.chain(group).map(|(what, share)| (what, percent(share))).collect()
    }
}

impl fmt::Display for ExploreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let crashes = match (self.replicas, self.crashes) {
            (2.., _) => ", with crashes and lost hosts",
            (_, true) => ", with crashes",
            (_, false) => "",
        };
        writeln!(
            f,
            "{} schedules from seed {}, {} trees{crashes}",
            grouped(self.schedules),
            self.seed,
            self.format
        )?;
        let rate = grouped(self.schedules_per_second as u64);
        writeln!(f, "{:.1} s on {} threads, {rate} schedules a second", self.seconds, self.threads)?;
        writeln!(f)?;
        let Shares { split, merge, internal_merge, shrink, reuse, scan, .. } = self.shares;
        let Shares { death, deaths, terminated, recovery, rejoin, reissue, .. } = self.shares;
        let Shares { restart, cut_off, departure, catalog, .. } = self.shares;
        for (what, value) in [
            ("with a death", percent(death)),
            ("with several deaths", percent(deaths)),
            ("with a client terminated", percent(terminated)),
            ("with a recovery", percent(recovery)),
            ("with a client rejoined", percent(rejoin)),
            ("with an id reissued", percent(reissue)),
            ("with a server restarted", percent(restart)),
            ("with a client cut off", percent(cut_off)),
            ("with a client that left", percent(departure)),
            ("with other trees", percent(catalog)),
            ("crash points", grouped(self.crash_points)),
        ]
        .into_iter()
        .filter(|_| self.crashes)
        .chain(self.of_hosts())
        .chain([
            ("verbs, median", grouped(self.median_verbs.into())),
            ("clients, at least", self.fewest_clients.to_string()),
            ("distinct", format!("{:.2} %", 100.0 * self.distinct)),
            ("with a split", percent(split)),
            ("with a merge", percent(merge)),
            ("with an internal merge", percent(internal_merge)),
            ("with a root shrink", percent(shrink)),
            ("with a reused node", percent(reuse)),
            ("with a range", percent(scan)),
            ("trace hash", self.trace_hash.clone()),
        ]) {
            writeln!(f, "{what:<26}{value}")?;
        }
        match &self.mutant {
            None if self.violations == 0 => write!(f, "violations                none"),
            None => {
                write!(f, "violations                {}", grouped(self.violations))?;
                self.first_violations.iter().try_for_each(|violation| self.show(f, violation))
            }
            Some(planted) => {
                writeln!(f, "planted                   {}: {}", planted.name, planted.what)?;
                match self.first_violations.first() {
                    None => {
                        write!(f, "found                     no, in {} schedules", grouped(self.schedules))
                    }
                    Some(violation) => {
                        write!(f, "found                     after {} schedules", grouped(self.schedules))?;
                        self.show(f, violation)
                    }
                }
            }
        }
    }
}

impl ExploreReport {
    fn show(&self, f: &mut fmt::Formatter<'_>, violation: &ViolationReport) -> fmt::Result {
        let ViolationReport { seed, property, what, .. } = violation;
        write!(f, "\n\nseed {seed}: {property}: {what}\nsherman sim replay --seed {seed}{}", self.again)
    }
}
