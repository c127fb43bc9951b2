//! The options of `sherman sensitivity`, and their help.

use crate::output::ReportArgs;
use crate::parse::{parameter, positive, size, threads};
use clap::Args;
use sherman_eval::Variant;
use sherman_eval::sensitivity::Case;

const HELP: &str = "\
Both variants run every case on the NIC model of \"sherman bench --cluster sim:\", first with the model
as it is, then with each of its parameters halved and doubled (bucket_bits: by one). The command
prints the ratio of both throughputs. A conclusion that some row turns around rests on that
parameter of the model, not on the systems.

A case is WORKLOAD:SKEW:COROUTINES, for ranges WORKLOAD:SKEW:COROUTINES:ENTRIES. The skew is uniform
or a number below 1. Default cases:
  write-intensive:0.99:1    write-only:0.99:1          read-only:uniform:1
  write-intensive:0.99:8    write-only:0.99:8          read-only:uniform:8
  write-intensive:0.9:1     write-intensive:uniform:1  read-intensive:uniform:8
  range-only:uniform:1:100  write-intensive:uniform:8  range-only:uniform:1:1000

The same options give the same table on any machine.

Examples:
  sherman sensitivity --base-only
  sherman sensitivity --case write-intensive:0.99:1 --case read-only:uniform:8 --ops 50k
  sherman sensitivity --variant +hierarchical --against fg+ --json-out table.json
  sherman sensitivity --against ours --against-cluster sim: --cluster 'sim:?replicas=2'";

/// The options of `sherman sensitivity`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP, after_help = "Cases and examples: see --help")]
pub struct SensitivityArgs {
    /// Measure this variant
    #[arg(long, value_name = "NAME", default_value = "ours", help_heading = "Systems")]
    pub variant: Variant,

    /// Divide by the throughput of this variant
    #[arg(long, value_name = "NAME", default_value = "sherman", help_heading = "Systems")]
    pub against: Variant,

    /// Measure the other variant on this model of a cluster [default: the one of --cluster]
    #[arg(long, value_name = "URL", help_heading = "Systems")]
    pub against_cluster: Option<String>,

    /// Set the size of the index cache in bytes
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = size, help_heading = "Systems")]
    pub cache: usize,

    /// Run this case; may be given several times [default: twelve cases, see below]
    #[arg(long, value_name = "CASE", help_heading = "Workloads")]
    pub case: Vec<Case>,

    /// Load this many keys, as in 500k or 10M
    #[arg(long, value_name = "N", default_value = "10M", value_parser = positive, help_heading = "Workloads")]
    pub keys: u64,

    /// Measure this many operations in each experiment
    #[arg(
        long,
        value_name = "N",
        default_value = "200k",
        value_parser = positive,
        help_heading = "Workloads"
    )]
    pub ops: u64,

    /// Seed the random choices of the clients
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Workloads")]
    pub seed: u64,

    /// Use this model of a cluster
    #[arg(long, value_name = "URL", default_value = "sim:?compute=8&memory=8", help_heading = "Model")]
    pub cluster: String,

    /// Change a parameter of the model, as in units=8; may be given several times
    #[arg(long, value_name = "NAME=N", value_parser = parameter, help_heading = "Model")]
    pub param: Vec<(String, u64)>,

    /// Measure the model as it is and change no parameter
    #[arg(long, help_heading = "Model")]
    pub base_only: bool,

    /// Run this many experiments at the same time, 1 to 1024 [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = threads, help_heading = "Run")]
    pub threads: Option<usize>,

    /// Where the result goes.
    #[command(flatten)]
    pub output: ReportArgs,
}
