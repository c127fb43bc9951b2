//! The options of `sherman check`, and their help.

use crate::failure::Failure;
use crate::output::ReportArgs;
use crate::parse::{format, positive, seconds_or_none, size, threads};
use crate::target::ClusterOption;
use clap::Args;
use sherman_eval::CheckOptions;

const CHECK_HELP: &str = "\
The check walks every level of a tree from left to right, while others may write. If something looks
wrong, the check reads it again and asks which clients are members before it reports damage. It
reports each broken invariant with its number in docs/INVARIANTS.md, the address of the node and its
keys. Missing separators are not damage: the check reaches such a node only through its left
neighbour, which is slow.

Without --tree the command checks the whole cluster: every tree, and whether every lock lane, redo
record and place for a node belongs to a tree or to a member. With --tree it checks that tree only.
It writes nothing.

Self-test: --cluster embedded: names memory servers inside this process. They begin empty, so the
command creates a tree:
  1. It loads --keys in bulk.
  2. For --seconds, it checks the tree repeatedly. Meanwhile, --threads threads fill and empty parts
     of the tree by inserts and removes, look keys up, read ranges, and verify every answer.
  3. It checks the tree once more at rest. The number of entries must agree with the answers.
embedded: alone gets as much memory as the keys need.

Exit code: 0 if all is sound; 1 if something is damaged, an answer was wrong or there is no such
tree; 2 for invalid usage; 3 if the check failed.

Examples:
  sherman check --cluster tcp://memory-1:7000,memory-2:7000
  sherman check --cluster tcp://memory-1:7000,memory-2:7000 --tree orders
  sherman check --cluster embedded:
  sherman check --cluster embedded: --keys 10M --seconds 0
  sherman check --cluster 'embedded:?servers=4&memory=1GiB&atomicity=verb' --format two-level";

/// The options of `sherman check`.
#[derive(Debug, Args)]
#[command(after_long_help = CHECK_HELP, after_help = "Checks, exit codes and examples: see --help")]
pub struct CheckArgs {
    /// The cluster.
    #[command(flatten)]
    pub target: ClusterOption,

    /// Check this tree only [default: all trees and the rest of the cluster; of embedded:, one that the
    /// command makes]
    #[arg(long, value_name = "NAME")]
    pub tree: Option<String>,

    /// Where the result goes.
    #[command(flatten)]
    pub output: ReportArgs,

    /// Load this many keys, as in 500k or 10M [default: 100k]
    #[arg(
        long,
        value_name = "N",
        value_parser = positive,
        help_heading = "Self-test, with --cluster embedded"
    )]
    pub keys: Option<u64>,

    /// Check for this many seconds while threads write; 0 skips that [default: 2]
    #[arg(
        long,
        value_name = "S",
        value_parser = seconds_or_none,
        allow_negative_numbers = true,
        help_heading = "Self-test, with --cluster embedded"
    )]
    pub seconds: Option<f64>,

    /// Write with this many threads, 1 to 1024 [default: the number of cores]
    #[arg(
        long,
        value_name = "N",
        value_parser = threads,
        help_heading = "Self-test, with --cluster embedded"
    )]
    pub threads: Option<usize>,

    /// Use this node format: line-hashed, line-stamped, two-level, sorted, sorted-stamped [default:
    /// line-hashed]
    #[arg(
        long,
        value_name = "NAME",
        value_parser = format,
        help_heading = "Self-test, with --cluster embedded"
    )]
    pub format: Option<sherman::Format>,

    /// Set the size of leaves and internal nodes in bytes, a multiple of 64 from 256 to 64KiB [default: 1KiB]
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = size,
        help_heading = "Self-test, with --cluster embedded"
    )]
    pub node_size: Option<usize>,

    /// Seed the random choices of the threads [default: 1]
    #[arg(long, value_name = "N", help_heading = "Self-test, with --cluster embedded")]
    pub seed: Option<u64>,
}

impl CheckArgs {
    /// Returns the check options. A plain `embedded:` cluster gets as much memory as the keys need.
    pub fn options(&self) -> Result<CheckOptions, Failure> {
        Ok(CheckOptions {
            cluster: Some(self.target.required()?).filter(|url| url != "embedded:"),
            tree: self.tree.clone(),
            keys: self.keys,
            seconds: self.seconds,
            threads: self.threads,
            format: self.format,
            node_size: self.node_size,
            seed: self.seed,
        })
    }
}
