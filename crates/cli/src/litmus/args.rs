//! The options of `sherman litmus`, and their help.

use crate::output::ReportArgs;
use crate::parse::seconds;
use crate::target::ClusterOption;
use clap::Args;

const HELP: &str = "\
The index relies on how its memory handles verbs that race: rules F1 to F4 of docs/FABRIC.md. NICs
promise little about this, so the command counts what a fabric really does. In each program two
compute servers access a few lines of one memory server, as fast as they can:

  violation   an outcome that the rule forbids. A single one breaks the contract
  weak        an outcome that the rule allows but a naive reader does not expect. It shows that the
              program can observe races

To test an RDMA device from another host, start `sherman serve --listen verbs://HOST:PORT` there and
name it with --cluster. With one host, --device starts a memory server in this process and reaches
it through the device (\"\" is the first device). Two hosts are the better test.

The cluster must be fresh: no tree in it, and no other member. Please report your findings, with the
device and its firmware.

Without --device, --cluster and SHERMAN_CLUSTER the programs run on a memory server inside this
process.

Exit code: 0 if no rule was violated; 1 if a rule was violated; 2 for invalid usage or a cluster
that is not fresh; 3 if the programs failed.

Examples:
  sherman litmus
  sherman litmus --seconds 60 --json-out findings.json
  sherman litmus --device mlx5_0 --only fenced-write --only whole-lines
  sherman litmus --cluster verbs://10.0.0.1:7000";

/// The options of `sherman litmus`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP, after_help = "Outcomes and examples: see --help")]
pub struct LitmusArgs {
    /// The cluster, which must be fresh.
    #[command(flatten)]
    pub target: ClusterOption,

    /// Start a memory server in this process and reach it through this RDMA device
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "cluster",
        num_args = 0..=1,
        default_missing_value = ""
    )]
    pub device: Option<String>,

    /// Run each program for this many seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub seconds: f64,

    /// Run this program only; may be given several times [default: all]
    #[arg(long, value_name = "PROGRAM")]
    pub only: Vec<String>,

    /// List the programs and run none
    #[arg(long)]
    pub list: bool,

    /// Where the result goes.
    #[command(flatten)]
    pub output: ReportArgs,
}
