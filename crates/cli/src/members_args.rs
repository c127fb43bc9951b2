//! The options of `sherman members` and `sherman fence`, and their help.

use crate::parse::member;
use crate::target::ClusterOption;
use clap::Args;
use sherman::ClientId;

const MEMBERS_HELP: &str = "\
A member is a compute server: a process that opened the cluster, or one of several in a process. It has an id, which it
writes into the locks it holds, and a lease, which it renews three times in its length (lease= in the URL of embedded
clusters; 3 s). One whose lease has run out is dead as soon as somebody asks: another member then fences it, finishes or undoes
what it was at, frees its locks, takes over its memory, and its id is free again.

  live      it takes part
  leaving   it has gone, and left memory that another is about to take over
  dead      its lease has run out: it is being recovered, or waits for it

A cluster in this process (embedded:) is private to it and goes with it: what is listed is this command itself and two
compute servers that it makes to have something to list.

Examples:
  sherman members --cluster tcp://memory-1:7000,memory-2:7000
  sherman members --cluster 'embedded:?servers=2&lease=200ms' --json";

const FENCE_HELP: &str = "\
Ends the lease of a member now, though it may still renew it, and recovers it: for one that is known to be broken. Nothing it
does reaches the memory any more; if it lives, its calls fail with \"has been fenced\", and it can join again under another id.
Nothing that was acknowledged is lost.

A cluster in this process (embedded:) is private to it and goes with it: what can be fenced there are two compute servers
that this command makes, with ids 2 and 3, after they have written a little.

Exit code: 0 if it was fenced and recovered, by this command or another member; 1 if no member has this id; 2 for invalid usage;
3 if the operation failed.

Examples:
  sherman fence 2 --cluster tcp://memory-1:7000,memory-2:7000
  sherman fence 3 --cluster 'embedded:?servers=2&memory=1GiB' --json";

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
