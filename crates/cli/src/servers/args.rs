//! The options of `sherman servers` and `sherman declare-lost`, and their help.

use crate::target::ClusterOption;
use clap::Args;

const SERVERS_HELP: &str = "\
Server 0 keeps a table of the cluster's memory servers: the identity of each server's memory, and
whether the server was declared lost. This command prints the table. It also asks every server
whether it answers, and with which memory. A server that was restarted without its file answers with
another memory.

This command does not join the cluster. It works when no id is free and when memory servers other
than 0 are down. The table shows a server that does not answer; the command still succeeds.

Exit code: 0 on success, 2 for invalid usage, 3 if the operation failed.

Examples:
  sherman servers --cluster tcp://memory-1:7000,memory-2:7000
  sherman servers --json";

const DECLARE_LOST_HELP: &str = "\
Declares that the memory of a server is lost permanently, so that the cluster can continue without
it. Use it only if the server cannot be started again with its file. A server that is only down
needs nothing: clients join again when it is back.

What it does:
  - Every entry on that server is lost. Trees with nodes on it answer \"memory server N was declared
    lost\" for the keys concerned. Drop such trees and load them again.
  - The lease of every member ends. Every client joins again by itself.
  - The server is never used again, even if it comes back. A cluster cannot get a replacement.

Server 0 cannot be declared lost: it keeps the members and the catalog. Every host of a replicated
cluster can: other hosts take over, and what it had alone is lost.

Without --yes the command asks for the server's number on a terminal. Without a terminal it needs
--yes.

Exit code: 0 if the server is declared lost, now or before; 1 if there is no such server or you
declined; 2 for invalid usage, for server 0, and if the server still answers with its memory; 3 if
the operation failed.

Examples:
  sherman declare-lost 1 --cluster tcp://memory-1:7000,memory-2:7000
  sherman declare-lost 1 --yes --json";

/// The options of `sherman servers`.
#[derive(Debug, Args)]
#[command(after_long_help = SERVERS_HELP, after_help = "Details and examples: see --help")]
pub struct ServersArgs {
    /// The cluster.
    #[command(flatten)]
    pub target: ClusterOption,

    /// Print the result as JSON, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
}

/// The options of `sherman declare-lost`.
#[derive(Debug, Args)]
#[command(after_long_help = DECLARE_LOST_HELP, after_help = "Consequences and examples: see --help")]
pub struct DeclareLostArgs {
    /// Choose the memory server by its number in `sherman servers`
    #[arg(value_name = "ID")]
    pub id: u16,

    /// The cluster.
    #[command(flatten)]
    pub target: ClusterOption,

    /// Skip the confirmation
    #[arg(long)]
    pub yes: bool,

    /// Declare it lost although it answers with its memory
    #[arg(long)]
    pub force: bool,

    /// Print the result as JSON, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
}
