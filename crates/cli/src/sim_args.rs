//! The options of `sherman sim`, and their help.

use crate::output::ReportArgs;
use crate::parse::{format, mutant, positive, threads};
use clap::{Args, Subcommand};
use sherman_core::mutant::Mutant;
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
    /// Run schedules of the real tree in a simulated world, and check every one of them
    #[command(after_long_help = explore_help(), after_help = "What is checked, exit codes and examples: see --help")]
    Explore(ExploreArgs),
    /// Run one schedule again, and show what happens in it
    #[command(after_long_help = replay_help(), after_help = "Exit codes and examples: see --help")]
    Replay(ReplayArgs),
}

const WORLD: &str = "\
A schedule is a small tree in simulated memory, a few compute servers that work on it, and an adversary that decides all
that the fabric leaves open: the order in which the units of a READ are fetched, when a WRITE lands, who runs next; with
--crashes also who dies, and between which two units. Its seed decides everything, so a seed names a schedule, as long as
the program and the options stay the same.

Checked after each: every operation ended; all answers, and what is in the tree at the end, could be those of one map
asked by one client at a time (linearizability); ranges; whole values; the invariants of docs/INVARIANTS.md; that no
lane, no redo record and no memory is left behind.
";

fn explore_help() -> String {
    format!(
        "{WORLD}
With --mutant a bug is planted in the tree, and the exploration ends when it is found:
{}

Exit code: 0 if no property was violated, 1 if one was, 2 for invalid usage, 3 if the command failed. With --mutant: 0 if the bug
was found, 1 if it was not.

Examples:
  sherman sim explore
  sherman sim explore --schedules 1M --seed 7 --crashes --json-out result.json
  sherman sim explore --mutant no-free-mark",
        mutants()
    )
}

fn replay_help() -> String {
    format!(
        "{WORLD}
Exit code: 0 if no property was violated, 1 if one was, 2 for invalid usage, 3 if the command failed. With --mutant: 0 if the bug
shows in this schedule, 1 if it does not.

Examples:
  sherman sim replay --seed 4711
  sherman sim replay --seed 4711 --trace
  sherman sim replay --seed 39 --mutant no-free-mark"
    )
}

/// Every bug, a line each.
fn mutants() -> String {
    let lines: Vec<String> =
        Mutant::ALL.iter().map(|mutant| format!("  {:<28} {}", mutant.name(), mutant.what())).collect();
    lines.join("\n")
}

/// Which schedules.
#[derive(Debug, Args)]
pub struct World {
    /// Let clients die and connections break at any point
    #[arg(long)]
    pub crashes: bool,

    /// Plant this bug; sherman sim explore --help lists the names
    #[arg(long, value_name = "NAME", value_parser = mutant)]
    pub mutant: Option<Mutant>,

    /// Use trees of this node format only: line-stamped, two-level, sorted, sorted-stamped [default: all in turn, or those in
    /// which the planted bug can show]
    #[arg(long, value_name = "NAME", value_parser = format)]
    pub format: Option<sherman::Format>,
}

impl World {
    /// The scenarios they stand for.
    pub fn hunt(&self) -> Hunt {
        let hunt = self.mutant.map_or_else(Hunt::everywhere, Hunt::of);
        let hunt = if self.crashes { hunt.with_crashes() } else { hunt };
        self.format.map_or(hunt, |format| hunt.only(format))
    }

    /// The options as they are to be written again.
    pub fn again(&self) -> String {
        let crashes = if self.crashes { " --crashes" } else { "" };
        let mutant = self.mutant.map_or_else(String::new, |mutant| format!(" --mutant {mutant}"));
        let format = self.format.map_or_else(String::new, |format| format!(" --format {}", format.name()));
        format!("{crashes}{mutant}{format}")
    }
}

/// The options of `sherman sim explore`.
#[derive(Debug, Args)]
pub struct ExploreArgs {
    /// Run so many schedules, as in 500k or 10M; with --mutant at most so many
    #[arg(long, value_name = "N", default_value = "100k", value_parser = positive)]
    pub schedules: u64,

    /// Begin with this seed; each further schedule takes the next
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,

    #[command(flatten)]
    pub world: World,

    /// Run so many threads, 1 to 1024; the result does not depend on it [default: the number of cores]
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

    /// Show every event, also if no property is violated
    #[arg(long, conflicts_with = "json")]
    pub trace: bool,

    /// Print the result as JSON, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
}
