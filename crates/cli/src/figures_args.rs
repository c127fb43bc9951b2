//! The options of `sherman figures`, and their help.

use crate::parse::{positive, threads};
use clap::Args;
use std::path::PathBuf;

const HELP: &str = "\
Every figure and table of the paper is made again, without the paper's machines: the real index runs against a model of their NICs
in virtual time, and what it gives is set beside the paper's numbers. The same program, options and seed give the same bytes on any
machine.

DIR gets index.html, a page of everything which needs nothing else; an SVG of each figure; results.json with every number; claims.md,
the paper's numbers beside ours. What is measured is kept in DIR/.cache: a run that was stopped goes on where it was, and one that
was finished is drawn again at once. Another build of this program begins anew.

Exit code: 0 if all was written, whatever it shows; 2 for invalid usage; 3 if an experiment failed or a file could not be written.

Examples:
  sherman figures --quick --out figures
  sherman figures --out figures --threads 8
  sherman figures --quick --only hocl --only scalability --out figures --json
  sherman figures --list";

/// The options of `sherman figures`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP, after_help = "What is written, and examples: see --help")]
pub struct FiguresArgs {
    /// Use a million keys and one run instead of a thousand million and three: shapes rather than sizes
    #[arg(long)]
    pub quick: bool,

    /// Draw this figure only; may be given several times [default: all]
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,

    /// Write to this folder, which is created if it does not exist
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    pub out: Option<PathBuf>,

    /// Measure so many operations in each experiment; fewer are faster and less exact [default: 40k with --quick, else 200k]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub ops: Option<u64>,

    /// Run so many experiments at the same time, 1 to 1024 [default: the number of cores]
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
