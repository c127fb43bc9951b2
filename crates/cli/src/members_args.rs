//! The options of `sherman members` and `sherman fence`, and their help.

use crate::parse::member;
use crate::target::ClusterOption;
use clap::Args;
use sherman::ClientId;

const MEMBERS_HELP: &str = "\
A member is a compute server: a process that opened the cluster, or one of several in a process. It has an id, which it
writes into the locks it holds, and a lease, which it renews three times in its length (sherman serve --lease; 3 s). A member
whose lease has run out is dead as soon as somebody asks. Another member then fences it, finishes or undoes its changes, frees
its locks and takes over its memory. Then its id is free again.

  live      it takes part
  leaving   it has gone, and left memory that another member is about to take over
  dead      its lease has run out: it waits for recovery, or its recoverer is at work

This command is no member. It works when no id is free and when memory servers other than 0 are down.
A cluster inside one process (embedded:) is private to that process: the command refuses it.

Exit code: 0 on success, 2 for invalid usage, 3 if the operation failed.

Examples:
  sherman members --cluster tcp://memory-1:7000,memory-2:7000
  SHERMAN_CLUSTER=unix:/run/sherman/0.sock sherman members --json";

const FENCE_HELP: &str = "\
Ends the lease of a member now, though it may still renew it: for a member that is known to be broken. If it lives, its calls
fail with \"has been fenced\", and it can join again under another id. Nothing that was acknowledged is lost.

This command recovers nothing itself. A live member does that within its lease; if there is none, the next client to join does.

Exit code: 0 if the lease has ended; 1 if no member has this id; 2 for invalid usage; 3 if the operation failed.

Examples:
  sherman fence 2 --cluster tcp://memory-1:7000,memory-2:7000
  sherman fence 3 --json";

/// The options of `sherman members`.
#[derive(Debug, Args)]
#[command(after_long_help = MEMBERS_HELP, after_help = "What a member is, and examples: see --help")]
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
#[command(after_long_help = FENCE_HELP, after_help = "What fencing does, and examples: see --help")]
pub struct FenceArgs {
    /// End this member, by its id in `sherman members`
    #[arg(value_name = "ID", value_parser = member, allow_negative_numbers = true)]
    pub id: ClientId,

    /// The cluster.
    #[command(flatten)]
    pub target: ClusterOption,

    /// Print the result as JSON, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
}
