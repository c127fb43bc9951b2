//! The options of `sherman members` and `sherman fence`, and their help.

use crate::parse::member;
use crate::target::ClusterOption;
use clap::Args;
use sherman::ComputeId;

const MEMBERS_HELP: &str = "\
A member is a compute server: a process that opened the cluster, or one of several in a process. It
has an id, which it writes into the locks that it holds. It also has a lease, which it renews three
times per lease time (sherman serve --lease, 3 s by default).

Server 0 declares a member dead at the first request that notices its expired lease. Another member
then fences the dead member, finishes or undoes its changes, frees its locks and takes over its
memory. Then the id is free again.

  live      the member takes part
  leaving   the member has gone and left memory, which another member will take over
  dead      the lease of the member has expired: it waits for recovery, or its recovery is running

This command does not join the cluster. It works when no id is free and when memory servers other
than 0 are down. A cluster inside one process (embedded:) is private to that process: the command
refuses it.

Exit code: 0 on success, 2 for invalid usage, 3 if the operation failed.

Examples:
  sherman members --cluster tcp://memory-1:7000,memory-2:7000
  SHERMAN_CLUSTER=unix:/run/sherman/0.sock sherman members --json";

const FENCE_HELP: &str = "\
Ends the lease of a member now, even if the member still renews it. Use it for a member that is
known to be broken. If the member is alive, its calls fail with \"has been fenced\", and it can join
again under another id. No acknowledged change is lost.

This command does not recover the member. A live member does so within its lease time. If there is
none, the next client to join does.

Exit code: 0 if the lease has ended; 1 if no member has this id; 2 for invalid usage; 3 if the
operation failed.

Examples:
  sherman fence 2 --cluster tcp://memory-1:7000,memory-2:7000
  sherman fence 3 --json";

/// The options of `sherman members`.
#[derive(Debug, Args)]
#[command(after_long_help = MEMBERS_HELP, after_help = "Details and examples: see --help")]
pub struct MembersArgs {
    /// The cluster.
    #[command(flatten)]
    pub target: ClusterOption,

    /// Print the result as JSON, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
}

/// The options of `sherman fence`.
#[derive(Debug, Args)]
#[command(after_long_help = FENCE_HELP, after_help = "Details and examples: see --help")]
pub struct FenceArgs {
    /// End the lease of this member, by its id in `sherman members`
    #[arg(value_name = "ID", value_parser = member, allow_negative_numbers = true)]
    pub id: ComputeId,

    /// The cluster.
    #[command(flatten)]
    pub target: ClusterOption,

    /// Print the result as JSON, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
}
