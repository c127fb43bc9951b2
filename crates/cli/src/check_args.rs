//! The options of `sherman check`, and their help.

use crate::parse::{format, positive, seconds_or_none, size, threads};
use clap::Args;
use sherman_eval::CheckOptions;
use std::path::PathBuf;

const CHECK_HELP: &str = "\
The check walks every level of a tree from left to right, while others may write. It reads whatever looks wrong again, and asks which clients are
members, before it reports damage. It reports each broken invariant with its number in docs/INVARIANTS.md, the node's place and its keys.
Nodes that only their left neighbour leads to (missing separators) are slow to reach, but no damage.

With --cluster and without --tree, the command checks the whole cluster: every tree, and whether every lock lane, redo record and place for a
node belongs to a tree or to a member. With --tree it checks that tree only. It writes nothing.

A cluster in this process (embedded:) is private to it and begins empty, so the command makes a tree to check: it loads --keys
in bulk; then, for --seconds, it checks the tree again and again while --threads fill and empty parts of it,
look keys up, read ranges, and check every answer; then it checks the tree once more at rest, and counts the entries.

Exit code: 0 if all is well, 1 if something is damaged or an answer was wrong, 2 if it could not be checked.

Examples:
  sherman check
  sherman check --keys 10M --seconds 0
  sherman check --cluster 'embedded:?servers=4&memory=1GiB&atomicity=verb' --format two-level --threads 8 --json -";

/// The options of `sherman check`.
#[derive(Debug, Args)]
#[command(after_long_help = CHECK_HELP, after_help = "What is checked, exit codes and examples: see --help")]
pub struct CheckArgs {
    /// The cluster, as in embedded:?servers=4&memory=2GiB (default: 2 embedded servers, memory for the keys)
    #[arg(long, value_name = "URL", env = "SHERMAN_CLUSTER", hide_env_values = true)]
    pub cluster: Option<String>,

    /// The tree (default: all of them and the rest of the cluster; of embedded clusters, one that is made)
    #[arg(long, value_name = "NAME")]
    pub tree: Option<String>,

    /// Write the result to FILE as JSON; - writes it, and nothing else, to stdout
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Keys to load, as in 500k, 10M [default: 100k]
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "For embedded clusters, which begin empty")]
    pub keys: Option<u64>,

    /// How long to check while others write; 0 for not at all [default: 2]
    #[arg(
        long,
        value_name = "S",
        value_parser = seconds_or_none,
        allow_negative_numbers = true,
        help_heading = "For embedded clusters, which begin empty"
    )]
    pub seconds: Option<f64>,

    /// Threads that write, 1 to 1024 [default: as many as cores]
    #[arg(long, value_name = "N", value_parser = threads, help_heading = "For embedded clusters, which begin empty")]
    pub threads: Option<usize>,

    /// The node format: line-stamped, two-level, sorted, sorted-stamped [default: line-stamped]
    #[arg(long, value_name = "NAME", value_parser = format, help_heading = "For embedded clusters, which begin empty")]
    pub format: Option<sherman::Format>,

    /// Size of leaves and internal nodes: a multiple of 64 B from 256 B to 64KiB [default: 1KiB]
    #[arg(long, value_name = "BYTES", value_parser = size, help_heading = "For embedded clusters, which begin empty")]
    pub node_size: Option<usize>,

    /// Decides what the threads do [default: 1]
    #[arg(long, value_name = "N", help_heading = "For embedded clusters, which begin empty")]
    pub seed: Option<u64>,
}

impl CheckArgs {
    /// The check they ask for.
    pub fn options(&self) -> CheckOptions {
        CheckOptions {
            cluster: self.cluster.clone(),
            tree: self.tree.clone(),
            keys: self.keys,
            seconds: self.seconds,
            threads: self.threads,
            format: self.format,
            node_size: self.node_size,
            seed: self.seed,
        }
    }
}
