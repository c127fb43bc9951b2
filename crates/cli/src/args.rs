//! The command line of `sherman`, and the options of `sherman bench`.

use crate::check::args::CheckArgs;
use crate::client::ClientCommand;
use crate::cluster::args::ClusterArgs;
use crate::completions::CompletionsArgs;
use crate::figures::args::FiguresArgs;
use crate::hosts::args::{DrainArgs, RebalanceArgs};
use crate::litmus::args::LitmusArgs;
use crate::members::args::{FenceArgs, MembersArgs};
use crate::output::ReportArgs;
use crate::parse::{fill, format, parameter, percent, positive, runs, seconds, size, theta, threads};
use crate::sensitivity::args::SensitivityArgs;
use crate::serve::args::ServeArgs;
use crate::servers::args::{DeclareLostArgs, ServersArgs};
use crate::sim::args::SimArgs;
use crate::target::ClusterOption;
use clap::{Args, Parser, Subcommand};
use sherman_eval::options::cores;
use sherman_eval::simulated;
use sherman_eval::{BenchOptions, HotKeys, Length, Load, Variant, Workload};
use sherman_sim::nic::Params;

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
    /// Serve memory as one memory server of a cluster
    Serve(Box<ServeArgs>),
    /// Run a whole cluster of processes on this host
    Cluster(ClusterArgs),
    /// The commands of a client.
    #[command(flatten)]
    Client(ClientCommand),
    /// Load an index, run a workload on it, and report throughput, latency and cost
    Bench(Box<BenchArgs>),
    /// Draw every figure of the paper again, on a model of its machines, next to the paper's numbers
    Figures(FiguresArgs),
    /// Compare two variants on the model, with each of its parameters halved and doubled
    Sensitivity(Box<SensitivityArgs>),
    /// Walk a whole tree, verify its invariants, and report its size and shape
    Check(CheckArgs),
    /// List the members of a cluster, and the time left on their leases
    Members(MembersArgs),
    /// End the lease of a member that is broken
    Fence(FenceArgs),
    /// List the memory servers of a cluster: their memory, and whether they answer
    Servers(ServersArgs),
    /// Give up a memory server permanently, with all data on it
    DeclareLost(DeclareLostArgs),
    /// Move all copies of volumes away from a host, and let it leave its cluster
    Drain(DrainArgs),
    /// Spread the copies of volumes evenly over the hosts of a cluster
    Rebalance(RebalanceArgs),
    /// Count how often a fabric, such as an RDMA device, breaks the rules that the index relies on
    Litmus(LitmusArgs),
    /// Run the tree in a simulator that injects faults and tries to break it
    Sim(SimArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}

const AFTER_HELP: &str = "\
Variants. Each step of the paper contains the steps before it:
  fg             lanes in host memory, released by FAA; sorted leaves with checksum; no index cache
  fg+cache       fg with an index cache
  fg+            lanes released by WRITE; a stamp in every line, which reveals torn reads
  +combine       write-back and release in one list
  +on-chip       lanes in on-chip memory
  +hierarchical  a local lock table, with queue and handover
  sherman        the complete paper: two-level versions. It needs servers with verbs that are atomic
                 as a whole. Embedded servers have them with atomicity=verb, which is slower
Each step from the paper to the default contains the steps before it:
  +stamped       a stamp in every line, lock and read in one list, redo records: safe on every fabric
  +lines         leaves that are read by the line
  +combining     the holder of a lane executes the changes that wait for it
  +shared-reads  gets of one process share reads of hot lines
  +fair          short, constant pauses before a lane is tried again
  ours           all of these (the default)
The default without one technique: ours-lines, ours-combining, ours-shared-reads, ours-fair

Workloads. Two thirds of the inserts of the paper's workloads update a loaded key, one third insert
a new key:
  write-only       all inserts                  ycsb-a  half lookups, half updates
  write-intensive  half inserts, half lookups   ycsb-b  95 % lookups, 5 % updates
  read-intensive   5 % inserts, 95 % lookups    ycsb-c  all lookups
  read-only        all lookups                  ycsb-d  95 % lookups of the latest, 5 % new keys
  range-only       all ranges                   ycsb-e  95 % ranges, 5 % new keys
  range-write      half inserts, half ranges    ycsb-f  half lookups, half read-modify-writes

A range begins at a key that is drawn like the key of a lookup. It reads --range-size entries; in
ycsb-e it reads 1 to that many. With --removes PCT, that percentage of the operations removes a key
that is drawn in the same way. The workload decides the rest. Its inserts, if it has any, bring
removed keys back.

Cluster:
  - The command uses --cluster, else SHERMAN_CLUSTER, else two memory servers inside this process
    with enough memory for the keys.
  - On a cluster that others also use, the run creates its own tree, sherman-bench-..., and drops it
    at the end. It touches no other tree. A run that is killed leaves its tree behind: remove it
    with \"sherman drop\".
  - On embedded: the command adds the variant's parameters to the URL, except those that the URL
    names.

Measurements:
  - A round trip is one list of verbs posted to one memory server.
  - Bytes written are those of WRITE verbs. They include the release of a lock lane where it is a
    WRITE (2 bytes; 8 with lane-bits=64). Atomic verbs count as none.
  - One operation in eight is timed.
  - Every answer is checked. A wrong answer ends the run.
  - The latency of a range is that of the whole range. Its costs are those of each read of one or
    more leaves. Its round trips are also reported for the whole range.

Simulated cluster: sim: or sim:?compute=N&memory=N (default 8 each) runs the same code on a model of
the paper's NICs and CPUs.
  - sim:?replicas=2 keeps each volume on two memory servers.
  - Times are virtual. The same seed gives the same numbers on any machine.
  - Keys are made when they are touched, so there may be a billion.
  - --threads is the number of threads of each compute server.
  - --ops is the number of operations to measure (default 200k). --seconds has no effect.
  - Each run uses the seed after that of the run before.
  - --cache counts the bytes that the cached copies of nodes take. The paper's variants cache whole nodes.
  - --param changes a parameter of the model. crates/sim/src/nic/params.rs lists them.
  - docs/EVALUATION.md describes the model and how far to trust it.

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

    /// Measure this system or step: fg, fg+cache, fg+, +combine, +on-chip, +hierarchical, sherman, ours; or
    /// another one, see below
    #[arg(long, value_name = "NAME", default_value = "ours", help_heading = "System")]
    pub variant: Variant,

    /// Use this node format: line-hashed, line-stamped, two-level, sorted, sorted-stamped [default: the
    /// variant's]
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

    /// Load this many keys, as in 500k or 10M
    #[arg(long, value_name = "N", default_value = "1M", value_parser = positive, help_heading = "Workload")]
    pub keys: u64,

    /// Load keys in this way: bulk (sorted, in one pass, by all threads) or insert (one by one, in random
    /// order)
    #[arg(long, value_name = "HOW", default_value = "bulk", help_heading = "Workload")]
    pub load: Load,

    /// Fill nodes to this percentage in a bulk load, 50 to 100
    #[arg(long, value_name = "PCT", default_value = "80", value_parser = fill, help_heading = "Workload")]
    pub fill: u32,

    /// Set the size of keys in bytes, 1 to 1024
    #[arg(long, value_name = "BYTES", default_value = "8", value_parser = size, help_heading = "Workload")]
    pub key_size: usize,

    /// Set the size of values in bytes; four entries must fit into a leaf
    #[arg(long, value_name = "BYTES", default_value = "8", value_parser = size, help_heading = "Workload")]
    pub value_size: usize,

    /// Remove a key in this percentage of the operations, 0 to 100; the workload decides the rest
    #[arg(long, value_name = "PCT", default_value = "0", value_parser = percent, help_heading = "Workload")]
    pub removes: u32,

    /// Read this many entries in a range; ycsb-e reads 1 to this many
    #[arg(long, value_name = "N", default_value = "100", value_parser = positive, help_heading = "Workload")]
    pub range_size: u64,

    /// Seed the random choices of the clients
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Workload")]
    pub seed: u64,

    /// Run this many threads, 1 to 1024 [default: the number of cores; on sim: 22 on each compute server]
    #[arg(long, value_name = "N", value_parser = threads, help_heading = "Run")]
    pub threads: Option<usize>,

    /// Keep this many operations in flight on each thread, 1 to 1024
    #[arg(long, value_name = "N", default_value = "1", value_parser = threads, help_heading = "Run")]
    pub coroutines: usize,

    /// Pass this many operations to each call of get_many or insert_many; the workload must have gets alone
    /// or inserts alone, and no latency is measured
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Run")]
    pub batch: usize,

    /// Measure for this many seconds, after loading and warming up
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

    /// Measure this many operations instead, of all threads together [default: measure for --seconds]
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Run")]
    pub ops: Option<u64>,

    /// Run this many times and report the run of median throughput [default: 1; on sim: 3]. Each run has a
    /// new tree, unless the workload adds and removes no keys
    #[arg(long, value_name = "N", value_parser = runs, help_heading = "Run")]
    pub runs: Option<usize>,

    /// Change a parameter of the model of sim:, as in units=8; may be given several times
    #[arg(long, value_name = "NAME=N", value_parser = parameter, help_heading = "Run")]
    pub param: Vec<(String, u64)>,

    /// Verify the tree's invariants and number of entries at the end
    #[arg(long, help_heading = "Run")]
    pub check: bool,

    /// Where the result goes.
    #[command(flatten)]
    pub output: ReportArgs,
}

impl BenchArgs {
    /// Returns the benchmark options for `cluster`, or for memory servers inside this process if it is
    /// `None`.
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
            batch: self.batch,
            length: self.ops.map_or(Length::Seconds(self.seconds), Length::Operations),
            cache_bytes: self.cache,
            range_size: self.range_size,
            seed: self.seed,
            check: self.check,
            params: changed(&self.param),
        }
    }
}

/// Returns the parameters of the model with these changes.
pub fn changed(changes: &[(String, u64)]) -> Params {
    let mut params = Params::PAPER;
    for (name, value) in changes {
        params.set(name, *value);
    }
    params
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_options_fit_together() {
        Arguments::command().debug_assert();
    }

    /// The first words that the help of a command or an option may have. Add verbs, not nouns.
    const VERBS: &str = "Admit Begin Change Check Choose Clear Compare Complete Connect Copy Count Create \
        Declare Divide Do Draw Drop Dump End Fill Get Give Hand Join Keep Let List Listen Load Log Look \
        Measure Move Name Omit Pass Place Plant Print Put Read Remove Replace Report Return Run Scan Seed \
        Serve Set Share Show Skip Spread Start Stop Treat Use Verify Wait Walk Write";

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
        for arg in command.get_arguments().filter(|arg| !matches!(arg.get_id().as_str(), "help" | "version"))
        {
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
