//! The options of `sherman sim`, and their help.

use crate::output::ReportArgs;
use crate::parse::{format, positive, threads};
use crate::sim::mutant::{self, PlantArgs};
use clap::{Args, Subcommand};
use sherman_sim::tree::Hunt;

/// The options of `sherman sim`.
#[derive(Debug, Args)]
pub struct SimArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: SimCommand,
}

/// What to do in the simulated world.
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Run schedules of the real tree in the simulator, and check every one of them
    #[command(after_long_help = explore_help(), after_help = "Checks, exit codes and examples: see --help")]
    Explore(ExploreArgs),
    /// Run one schedule again, and show its events
    #[command(after_long_help = replay_help(), after_help = "Exit codes and examples: see --help")]
    Replay(ReplayArgs),
}

const WORLD: &str = "\
A schedule is a small tree in simulated memory, a few compute servers that work on it, and an
adversary. The adversary decides everything that the fabric leaves open: the order in which the
units of a READ are fetched, when a WRITE takes effect, and which compute server runs next. With
--crashes it also decides which compute server dies, and between which two units. With --replicas 2
every volume has two copies, and hosts of memory are lost too. With --group 3 the hosts also form a
control group, whose messages are lost and whose clocks differ. A seed decides the whole schedule,
as long as the program and the options stay the same.

After each schedule the command checks that
  - every operation ended;
  - one map that serves one client at a time could give all answers and the final entries
    (linearizability);
  - ranges and values are correct and whole;
  - the invariants of docs/INVARIANTS.md hold;
  - no lane, no redo record and no memory is left behind.
";

fn explore_help() -> String {
    format!(
        "{WORLD}
Exit code: 0 if no property was violated; 1 if one was; 2 for invalid usage; 3 if the command
failed.
{}
Examples:
  sherman sim explore
  sherman sim explore --schedules 1M --seed 7 --crashes --json-out result.json{}",
        mutant::explore_help(),
        mutant::examples("explore")
    )
}

fn replay_help() -> String {
    format!(
        "{WORLD}
Exit code: 0 if no property was violated; 1 if one was; 2 for invalid usage; 3 if the command
failed.
{}
Examples:
  sherman sim replay --seed 4711
  sherman sim replay --seed 4711 --trace{}",
        mutant::replay_help(),
        mutant::examples("replay --seed 39")
    )
}

/// Options that choose the schedules.
#[derive(Debug, Args)]
pub struct World {
    /// Let clients die and connections break at any point
    #[arg(long)]
    pub crashes: bool,

    /// Give every volume this many copies, 1 or 2; with 2, hosts die or are cut off, and clients die as with
    /// --crashes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=2))]
    pub replicas: u16,

    /// Run as with --replicas 2, on 3 or 5 hosts that form a real control group: it elects leaders, and finds
    /// out which hosts are lost [default: a control state that never fails]
    #[arg(long, value_name = "HOSTS", value_parser = group)]
    pub group: Option<u16>,

    /// Give trees values of any length: long ones lie in blocks beside the leaves
    #[arg(long)]
    pub values: bool,

    #[command(flatten)]
    pub planted: PlantArgs,

    /// Use trees of this node format only: line-hashed, line-stamped, two-level, sorted, sorted-stamped
    /// [default: all in turn]
    #[arg(long, value_name = "NAME", value_parser = format)]
    pub format: Option<sherman::Format>,
}

impl World {
    /// Returns the scenarios for these options.
    pub fn hunt(&self) -> Hunt {
        let hunt = self.planted.hunt();
        let hunt = if self.crashes { hunt.with_crashes() } else { hunt };
        let hunt = match self.group {
            Some(hosts) => hunt.with_group(hosts),
            None if self.replicas > 1 => hunt.with_replicas(),
            None => hunt,
        };
        let hunt = if self.values { hunt.with_values() } else { hunt };
        self.format.map_or(hunt, |format| hunt.only(format))
    }

    /// Formats the options for a later command line.
    pub fn again(&self) -> String {
        let crashes = if self.crashes { " --crashes" } else { "" };
        let format = self.format.map_or_else(String::new, |format| format!(" --format {}", format.name()));
        let replicas = if self.replicas > 1 { " --replicas 2" } else { "" };
        let group = self.group.map_or_else(String::new, |hosts| format!(" --group {hosts}"));
        let values = if self.values { " --values" } else { "" };
        format!("{crashes}{replicas}{group}{values}{}{format}", self.planted.again())
    }
}

/// A number of hosts of a control group.
fn group(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(hosts @ (3 | 5)) => Ok(hosts),
        _ => Err("a simulated control group has 3 or 5 hosts".into()),
    }
}

/// The options of `sherman sim explore`.
#[derive(Debug, Args)]
pub struct ExploreArgs {
    /// Run this many schedules, as in 500k or 10M
    #[arg(long, value_name = "N", default_value = "100k", value_parser = positive)]
    pub schedules: u64,

    /// Begin with this seed; each further schedule takes the next
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,

    #[command(flatten)]
    pub world: World,

    /// Run this many threads, 1 to 1024; the result does not depend on it [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,

    /// Where the result goes.
    #[command(flatten)]
    pub output: ReportArgs,
}

/// The options of `sherman sim replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Run the schedule of this seed
    #[arg(long, value_name = "N")]
    pub seed: u64,

    #[command(flatten)]
    pub world: World,

    /// Show every event, even if no property is violated
    #[arg(long, conflicts_with = "json")]
    pub trace: bool,

    /// Print the result as JSON, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
}
