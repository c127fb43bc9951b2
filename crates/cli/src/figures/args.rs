//! The options of `sherman figures`, and their help.

use crate::parse::{positive, runs, threads};
use clap::Args;
use std::path::PathBuf;

const HELP: &str = "\
The real index runs on a model of the NICs of the paper's machines, in virtual time. The command
makes every figure and table of the paper again, and shows the paper's numbers next to them. The
same program, options and seed give the same bytes on any machine.

The command writes to DIR:
  index.html    a page with everything, which needs no other file
  *.svg         each figure
  results.json  every number
  claims.md     the paper's numbers next to ours
  .cache        the measurements. A run that was stopped continues from them. A run that was
                finished is drawn again at once. Another build of this program measures again

Exit code: 0 if all was written, whatever the results; 2 for invalid usage; 3 if an experiment
failed or a file could not be written.

Examples:
  sherman figures --quick --out figures
  sherman figures --out figures --threads 8
  sherman figures --quick --only hocl --only scalability --out figures --json
  sherman figures --list";

/// The options of `sherman figures`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP, after_help = "Written files and examples: see --help")]
pub struct FiguresArgs {
    /// Use a million keys and one run instead of a thousand million and three: the results show shapes, not
    /// sizes
    #[arg(long)]
    pub quick: bool,

    /// Draw this figure only; may be given several times [default: all]
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,

    /// Write to this folder, which is created if it does not exist
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    pub out: Option<PathBuf>,

    /// Measure this many operations in each experiment; fewer are faster and less exact [default: 40k with
    /// --quick, else 200k]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub ops: Option<u64>,

    /// Run each experiment this many times and draw the mean [default: 1 with --quick, else 3]
    #[arg(long, value_name = "N", value_parser = runs)]
    pub runs: Option<usize>,

    /// Run this many experiments at the same time, 1 to 1024 [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,

    /// Seed the random choices of the clients; each further run of an experiment takes the next seed
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    pub seed: u64,

    /// List the figures and draw none
    #[arg(long)]
    pub list: bool,

    /// Print a summary as JSON, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
}
