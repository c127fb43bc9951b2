//! The options of `sherman load` and `sherman dump`, and their help.

use super::args::{CreateArgs, TreeArgs};
use super::rows::{FileFormat, Header};
use crate::failure::Failure;
use crate::parse::{fill, seconds};
use clap::Args;
use sherman::{Cluster, ClusterOptions};
use std::path::PathBuf;
use std::time::Duration;

const LOAD_HELP: &str = "\
CSV has two columns, the key and the value. Fields may be quoted. NDJSON has one object per line,
with the fields \"key\" and \"value\" and no others, as in {\"key\": 7, \"value\": 700}. Every other
shape, such as [7, 700], is refused.

The command inserts many entries at once. If a key occurs twice, the later line wins.
  - A line that is not an entry ends the load, with the number of the line. The command reads a file
    completely before it changes anything, so a bad line changes nothing. Of stdin, it has inserted
    the entries before the bad line.
  - If an insert fails, the command starts no more inserts and reports how many entries were
    acknowledged. An insert waits up to --timeout for a memory server that restarts.

With --bulk the tree must be empty and the keys strictly ascending, as \"sherman dump\" writes them.
A bulk load is much faster. It is all or nothing: no client sees a part of it, and a failure changes
nothing.

If the command fails and the tree that it created is still empty, it drops that tree.

Exit code: 0 if all entries were loaded; 1 if there is no such tree; 2 for invalid usage; 3 if the
operation failed or a line is not an entry.

Examples:
  sherman load orders.csv --cluster tcp://memory-1:7000 --tree orders --create
  sherman load users.ndjson --tree users --create --key-type text --value-type text --value-size 100
  sherman dump --tree a | sherman load - --cluster unix:/run/other.sock --tree b --create --bulk";

const DUMP_HELP: &str = "\
Writes every entry in the order of the keys. A dump is not a snapshot: it may or may not show
changes that others make meanwhile. It never misses a key that exists throughout, and never shows a
key twice.

Exit code: 0 if all entries were written; 1 if there is no such tree; 2 for invalid usage; 3 if the
operation failed.

Examples:
  sherman dump orders.csv --cluster tcp://memory-1:7000 --tree orders
  sherman dump --tree users --key-type text --format ndjson | gzip > users.ndjson.gz";

/// How long the operations of a command wait.
#[derive(Debug, Args)]
pub struct TimeoutArgs {
    /// Let an operation wait this many seconds for a server that is away, or for a lock, before it fails
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    timeout: f64,
}

impl TimeoutArgs {
    /// Joins the cluster at `url`.
    pub fn open(&self, url: &str) -> Result<Cluster, Failure> {
        let timeout = Duration::try_from_secs_f64(self.timeout).unwrap_or(Duration::MAX);
        Ok(Cluster::open_with(url, ClusterOptions::new().timeout(timeout))?)
    }
}

/// The options of `sherman load`.
#[derive(Debug, Args)]
#[command(after_help = LOAD_HELP)]
pub struct LoadArgs {
    /// Read entries from this file; - is stdin
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The tree to load.
    #[command(flatten)]
    pub at: TreeArgs,

    /// Read this format [default: by the file's name, else csv]
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub format: Option<FileFormat>,

    /// Treat the first line of CSV as the names of the columns [default: auto]
    #[arg(long, value_name = "WHETHER", value_enum)]
    pub header: Option<Header>,

    /// Load an empty tree from sorted entries, all or nothing
    #[arg(long)]
    pub bulk: bool,

    /// Fill nodes to this percentage in a bulk load, 50 to 100
    #[arg(long, value_name = "PCT", default_value = "80", value_parser = fill, requires = "bulk")]
    pub fill: u32,

    /// How long an insert waits.
    #[command(flatten)]
    pub timeout: TimeoutArgs,

    /// Print the result as JSON, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,

    /// The shape of the tree, if the command creates it.
    #[command(flatten)]
    pub create: CreateArgs,
}

/// The options of `sherman dump`.
#[derive(Debug, Args)]
#[command(after_help = DUMP_HELP)]
pub struct DumpArgs {
    /// Write entries to this file, replacing it; - is stdout
    #[arg(value_name = "FILE", default_value = "-")]
    pub file: PathBuf,

    /// The tree to dump.
    #[command(flatten)]
    pub at: TreeArgs,

    /// Write this format [default: by the file's name, else csv]
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub format: Option<FileFormat>,

    /// Omit the line that names the columns of CSV
    #[arg(long)]
    pub no_header: bool,

    /// How long a read waits.
    #[command(flatten)]
    pub timeout: TimeoutArgs,

    /// Print the result as JSON, and nothing else, to stdout; the entries must go to a file then
    #[arg(long)]
    pub json: bool,
}
