//! The options of `sherman drain` and `sherman rebalance`, and their help.

use crate::target::ClusterOption;
use clap::Args;

const DRAIN_HELP: &str = "\
Moves every copy of a volume from a host to the other hosts, and lets the host leave the cluster.
Then its process ends by itself with exit code 0. Clients go on meanwhile. They join again twice
for each wave of copies, which takes a moment.

A drain is refused, and nothing changes, if the host has the last copy of a volume, if fewer hosts
than copies of a volume would be left, or if the others have no room for its copies. A drain that
has begun goes on when this command ends. --cancel lets the host stay: what has moved stays where
it is.

Exit code: 0 on success, also if the host has left before; 1 if there is no such host; 2 for invalid
usage; 3 if the drain is refused or the operation failed.

Examples:
  sherman drain 2 --cluster tcp://memory-1:7000,memory-2:7000
  sherman drain 2 --no-wait
  sherman drain 2 --cancel --json";

const REBALANCE_HELP: &str = "\
Spreads the copies of volumes evenly over the hosts: a host's share of the copies, and of the
primaries, is its share of the memory. Use it when a host has joined, or has come back empty. Copies
that were lost are made again without it.

Clients go on meanwhile. They join again twice for each wave of copies, which takes a moment. So a
cluster does this only when you say so. With --always it also does it whenever a host has joined.
Copies are whole volumes: with few volumes the best distribution may still be uneven.

Exit code: 0 on success, also if there is nothing to move; 2 for invalid usage; 3 if the operation
failed.

Examples:
  sherman rebalance --cluster tcp://memory-1:7000,memory-2:7000
  sherman rebalance --always --no-wait
  sherman rebalance --stop";

/// How a command waits and reports.
#[derive(Debug, Args)]
pub struct WaitArgs {
    /// The cluster.
    #[command(flatten)]
    pub target: ClusterOption,

    /// Wait until it is done, and show progress on stderr [default]
    #[arg(long, overrides_with = "no_wait")]
    pub wait: bool,

    /// Return at once: the cluster goes on by itself
    #[arg(long)]
    pub no_wait: bool,

    /// Print the result as JSON, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
}

/// The options of `sherman drain`.
#[derive(Debug, Args)]
#[command(after_long_help = DRAIN_HELP, after_help = "Details and examples: see --help")]
pub struct DrainArgs {
    /// Choose the host by its number in `sherman stats`
    #[arg(value_name = "ID")]
    pub id: u16,

    /// Let the host stay after all
    #[arg(long)]
    pub cancel: bool,

    /// How to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// The options of `sherman rebalance`.
#[derive(Debug, Args)]
#[command(after_long_help = REBALANCE_HELP, after_help = "Details and examples: see --help")]
pub struct RebalanceArgs {
    /// Do it now, and whenever a host has joined
    #[arg(long, conflicts_with = "stop")]
    pub always: bool,

    /// Move no further copies, and forget --always
    #[arg(long)]
    pub stop: bool,

    /// How to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
}
