//! The command line, and the options of `sherman bench`.

use crate::check_args::CheckArgs;
use crate::client::ClientCommand;
use crate::cluster::args::ClusterArgs;
use crate::completions::CompletionsArgs;
use crate::figures_args::FiguresArgs;
use crate::litmus_args::LitmusArgs;
use crate::members_args::{FenceArgs, MembersArgs};
use crate::output::ReportArgs;
use crate::parse::{fill, format, percent, positive, runs, seconds, size, theta, threads};
use crate::serve_args::ServeArgs;
use crate::servers_args::{DeclareLostArgs, ServersArgs};
use crate::sim_args::SimArgs;
use crate::target::ClusterOption;
use clap::{Args, Parser, Subcommand};
use sherman_eval::options::cores;
use sherman_eval::simulated;
use sherman_eval::{BenchOptions, HotKeys, Length, Load, Variant, Workload};

/// Sherman: an ordered key-value index on disaggregated memory.
#[derive(Debug, Parser)]
#[command(name = "sherman", version, arg_required_else_help = true)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve memory: one memory server of a cluster
    Serve(Box<ServeArgs>),
    /// Run a whole cluster of processes on this host
    Cluster(ClusterArgs),
    /// The commands of a client.
    #[command(flatten)]
    Client(ClientCommand),
    /// Load an index, run a workload on it, and report throughput, latency and cost
    Bench(Box<BenchArgs>),
    /// Draw every figure of the paper again, on a model of its machines, beside the paper's numbers
    Figures(FiguresArgs),
    /// Walk a whole tree, verify its invariants, and report its size and shape
    Check(CheckArgs),
    /// List the members of a cluster, and how long their leases last
    Members(MembersArgs),
    /// End the lease of a member that is broken
    Fence(FenceArgs),
    /// List the memory servers of a cluster: their memory, and whether they answer
    Servers(ServersArgs),
    /// Give a memory server up for good, with everything that lay there
    DeclareLost(DeclareLostArgs),
    /// Count how often a fabric, such as an RDMA device, breaks the rules that the index relies on
    Litmus(LitmusArgs),
    /// Run the tree in a simulated world whose adversary tries to break it
    Sim(SimArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}

const AFTER_HELP: &str = "\
Variants, each of the paper's steps containing the ones before it:
  fg             lanes in host memory, released by FAA; sorted leaves with a checksum; no index cache
  fg+cache       fg with an index cache
  fg+            lanes released by WRITE; a stamp in every line, so that torn reads are noticed
  +combine       write-back and release in one list
  +on-chip       lanes in on-chip memory
  +hierarchical  a local lock table, with queue and handover
  sherman        the paper complete: two-level versions. Needs servers whose verbs are atomic as a whole, which
                 embedded ones are with atomicity=verb, at a price in speed
  ours           line stamps, lock and read in one list, crash-safe: the default

Workloads (two thirds of the paper's inserts update a loaded key, one third insert a new one):
  write-only     all inserts                     ycsb-a  half lookups, half updates
  write-intensive  half inserts, half lookups    ycsb-b  95 % lookups, 5 % updates
  read-intensive   5 % inserts, 95 % lookups     ycsb-c  all lookups
  read-only      all lookups                     ycsb-d  95 % lookups of the latest, 5 % new keys
  range-only     all ranges                      ycsb-e  95 % ranges, 5 % new keys
  range-write    half inserts, half ranges       ycsb-f  half lookups, half read-modify-writes
A range begins at a key drawn as a lookup's and reads --range-size entries, in ycsb-e one to that many. With --removes
PCT so many percent of the operations remove a key drawn likewise, and the rest are the workload's: keys that are gone
come back by its inserts, if it has any.

The cluster: --cluster, else SHERMAN_CLUSTER, else two memory servers inside this process with memory for the keys. On a cluster
that others use, too, the run makes a tree of its own, sherman-bench-..., and drops it at the end; it touches no other tree. A run
that is killed leaves that tree behind: \"sherman drop\" removes it. On embedded: the variant's parameters are added to the URL,
except those that the URL names.

What is counted: a round trip is one list of verbs posted to one memory server. Bytes written are those of WRITE verbs,
the release of a lock lane included where it is a WRITE (2 bytes; 8 with lane-bits=64); atomic verbs count as none. One
operation in eight is timed. Every answer is checked: a wrong one ends the run. The latency of a range is that of the
whole; its costs are told for each read of one or more leaves, and its round trips for the whole, too.

A simulated cluster, sim: or sim:?compute=N&memory=N (each 8 by default), runs the same code on a model of the paper's NICs and
CPUs: times are virtual, the same seed gives the same numbers on any machine, and keys are made when they are touched, so that
there may be a billion. --threads are those of each compute server, --ops how many operations to measure (default 200k; --seconds
has no meaning there), and runs have seeds one apart. docs/EVALUATION.md says what the model is and how far to believe it.

Examples:
  sherman bench
  sherman bench --variant sherman --workload write-only --uniform --keys 10M --seconds 20
  sherman bench --workload range-write --range-size 1000
  sherman bench --removes 20 --load insert --check
  sherman bench --cluster sim: --variant fg+ --keys 1000M --cache 500MiB
  sherman bench --cluster 'embedded:?servers=4&memory=2GiB' --threads 8 --json-out result.json
  sherman cluster up --servers 2 -- sherman bench --keys 100k";

/// The options of `sherman bench`.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP, after_help = "Variants, workloads and examples: see --help")]
pub struct BenchArgs {
    /// The cluster.
    #[command(flatten)]
    pub target: ClusterOption,

    /// Measure this system or step: fg, fg+cache, fg+, +combine, +on-chip, +hierarchical, sherman, ours
    #[arg(long, value_name = "NAME", default_value = "ours", help_heading = "System")]
    pub variant: Variant,

    /// Use this node format: line-stamped, two-level, sorted, sorted-stamped [default: the variant's]
    #[arg(long, value_name = "NAME", value_parser = format, help_heading = "System")]
    pub format: Option<sherman::Format>,

    /// Set the size of leaves and internal nodes in bytes, a multiple of 64 from 256 to 64KiB
    #[arg(long, value_name = "BYTES", default_value = "1KiB", value_parser = size, help_heading = "System")]
    pub node_size: usize,

    /// Set the size of the index cache in bytes
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = size, help_heading = "System")]
    pub cache: usize,

    /// Run this mix of operations; see below
    #[arg(long, value_name = "NAME", default_value = "write-intensive", help_heading = "Workload")]
    pub workload: Workload,

    /// Set the skew of the keys, from 0 (uniform) to below 1
    #[arg(
        long,
        value_name = "THETA",
        default_value = "0.99",
        conflicts_with = "uniform",
        value_parser = theta,
        allow_negative_numbers = true,
        help_heading = "Workload"
    )]
    pub zipf: f64,

    /// Choose every key with equal probability
    #[arg(long, help_heading = "Workload")]
    pub uniform: bool,

    /// Place hot keys among the others: scattered, clustered
    #[arg(long, value_name = "WHERE", default_value = "scattered", help_heading = "Workload")]
    pub hot_keys: HotKeys,

    /// Load so many keys, as in 500k or 10M
    #[arg(long, value_name = "N", default_value = "1M", value_parser = positive, help_heading = "Workload")]
    pub keys: u64,

    /// Load keys in this way: bulk (sorted, in one go, by all threads) or insert (one by one, in no order)
    #[arg(long, value_name = "HOW", default_value = "bulk", help_heading = "Workload")]
    pub load: Load,

    /// Fill nodes to so many percent in a bulk load, 50 to 100
    #[arg(long, value_name = "PCT", default_value = "80", value_parser = fill, help_heading = "Workload")]
    pub fill: u32,

    /// Set the size of keys in bytes, 1 to 1024
    #[arg(long, value_name = "BYTES", default_value = "8", value_parser = size, help_heading = "Workload")]
    pub key_size: usize,

    /// Set the size of values in bytes; four entries must fit into a leaf
    #[arg(long, value_name = "BYTES", default_value = "8", value_parser = size, help_heading = "Workload")]
    pub value_size: usize,

    /// Remove a key in so many percent of the operations, 0 to 100; the rest are the workload's
    #[arg(long, value_name = "PCT", default_value = "0", value_parser = percent, help_heading = "Workload")]
    pub removes: u32,

    /// Read so many entries in a range; ycsb-e reads 1 to this many
    #[arg(long, value_name = "N", default_value = "100", value_parser = positive, help_heading = "Workload")]
    pub range_size: u64,

    /// Seed the random choices of the clients
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Workload")]
    pub seed: u64,

    /// Run so many threads, 1 to 1024 [default: the number of cores; on sim: 22 on each compute server]
    #[arg(long, value_name = "N", value_parser = threads, help_heading = "Run")]
    pub threads: Option<usize>,

    /// Keep so many operations in flight on each thread, 1 to 1024
    #[arg(long, value_name = "N", default_value = "1", value_parser = threads, help_heading = "Run")]
    pub coroutines: usize,

    /// Measure for so many seconds, after loading and warming up
    #[arg(
        long,
        value_name = "S",
        default_value = "5",
        conflicts_with = "ops",
        value_parser = seconds,
        allow_negative_numbers = true,
        help_heading = "Run"
    )]
    pub seconds: f64,

    /// Measure so many operations instead, of all threads together [default: measure for --seconds]
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Run")]
    pub ops: Option<u64>,

    /// Run so many times, each from the start, and report the run of median throughput [default: 1; on sim: 3]
    #[arg(long, value_name = "N", value_parser = runs, help_heading = "Run")]
    pub runs: Option<usize>,

    /// Verify the tree's invariants and number of entries at the end
    #[arg(long, help_heading = "Run")]
    pub check: bool,

    /// Where the result goes.
    #[command(flatten)]
    pub output: ReportArgs,
}

impl BenchArgs {
    /// The run they ask for, on `cluster` or else on memory servers inside this process.
    pub fn options(&self, cluster: Option<String>) -> BenchOptions {
        let is_simulated = cluster.as_deref().is_some_and(simulated::is_simulated);
        BenchOptions {
            cluster,
            variant: self.variant,
            workload: self.workload,
            removes: self.removes,
            zipf: if self.uniform { 0.0 } else { self.zipf },
            hot: self.hot_keys,
            keys: self.keys,
            load: self.load,
            fill: self.fill,
            key_size: self.key_size,
            value_size: self.value_size,
            node_size: self.node_size,
            format: self.format,
            threads: self.threads.unwrap_or_else(|| if is_simulated { simulated::THREADS } else { cores() }),
            coroutines: self.coroutines,
            length: self.ops.map_or(Length::Seconds(self.seconds), Length::Operations),
            cache_bytes: self.cache,
            range_size: self.range_size,
            seed: self.seed,
            check: self.check,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_options_fit_together() {
        Arguments::command().debug_assert();
    }

    /// How the help of a command or an option may begin. Add verbs, not nouns.
    const VERBS: &str = "Admit Begin Change Check Choose Clear Complete Connect Copy Count Create Declare Do Draw Drop Dump End Fill \
        Get Give Hand Keep Let List Listen Load Log Look Measure Name Omit Place Plant Print Put Read Remove Replace Report Run Scan \
        Seed Serve Set Share Show Skip Start Stop Treat Use Verify Walk Write";

    fn begins_with_a_verb(what: &str, help: Option<&clap::builder::StyledStr>) {
        let help = help.map(ToString::to_string).unwrap_or_default();
        let first = help.split(|letter: char| !letter.is_alphabetic()).next().unwrap_or_default();
        assert!(VERBS.split_whitespace().any(|verb| verb == first), "{what}: {help:?}");
    }

    fn all_help_begins_with_a_verb(command: &clap::Command) {
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            begins_with_a_verb(inner.get_name(), inner.get_about());
            all_help_begins_with_a_verb(inner);
        }
        for arg in command.get_arguments().filter(|arg| !matches!(arg.get_id().as_str(), "help" | "version")) {
            begins_with_a_verb(&format!("{} {}", command.get_name(), arg.get_id()), arg.get_help());
        }
    }

    #[test]
    fn help_texts_begin_with_a_verb() {
        all_help_begins_with_a_verb(&Arguments::command());
    }

    #[test]
    fn the_defaults_are_those_of_the_library() {
        let Arguments { command: Command::Bench(args) } = Arguments::parse_from(["sherman", "bench"]) else {
            panic!("bench is bench");
        };
        assert_eq!(format!("{:?}", args.options(None)), format!("{:?}", BenchOptions::default()));
    }
}
