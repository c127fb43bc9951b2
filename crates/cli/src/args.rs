//! Options, their help, and how numbers and sizes are written.

use clap::{Args, Parser, Subcommand};
use sherman_eval::options::{MAX_THREADS, cores};
use sherman_eval::{BenchOptions, HotKeys, Length, Variant, Workload};
use std::path::PathBuf;

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
    /// Load an index, run a workload on it, and report throughput, latency and cost
    Bench(Box<BenchArgs>),
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
  write-only, write-intensive (50 % inserts), read-intensive (5 % inserts), read-only,
  ycsb-a, ycsb-b, ycsb-c, ycsb-d, ycsb-f.  Not available yet, since the index has no range queries:
  range-only, range-write, ycsb-e

What is counted: a round trip is one list of verbs posted to one memory server. Bytes written are those of WRITE verbs,
the release of a lock lane included where it is a WRITE (2 bytes; 8 with lane-bits=64); atomic verbs count as none. One
operation in eight is timed. Every answer is checked: a wrong one ends the run.

Examples:
  sherman bench
  sherman bench --variant sherman --workload write-only --uniform --keys 10M --seconds 20
  sherman bench --cluster 'embedded:?servers=4&memory=2GiB' --threads 8 --json result.json";

/// The options of `sherman bench`.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP, after_help = "Variants, workloads and examples: see --help")]
pub struct BenchArgs {
    /// The cluster, as in embedded:?servers=4&memory=2GiB (default: 2 embedded servers, memory for the keys)
    ///
    /// Parameters of the variant are added, except those named here.
    #[arg(long, value_name = "URL", help_heading = "System")]
    pub cluster: Option<String>,

    /// The system or step to measure: fg, fg+cache, fg+, +combine, +on-chip, +hierarchical, sherman, ours
    #[arg(long, value_name = "NAME", default_value = "ours", help_heading = "System")]
    pub variant: Variant,

    /// The node format, instead of the variant's: line-stamped, two-level, sorted, sorted-stamped
    #[arg(long, value_name = "NAME", value_parser = format, help_heading = "System")]
    pub format: Option<sherman::Format>,

    /// Size of leaves and internal nodes: a multiple of 64 B from 256 B to 64KiB
    #[arg(long, value_name = "BYTES", default_value = "1KiB", value_parser = size, help_heading = "System")]
    pub node_size: usize,

    /// Size of the index cache
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = size, help_heading = "System")]
    pub cache: usize,

    /// The mix of operations; see below
    #[arg(long, value_name = "NAME", default_value = "write-intensive", help_heading = "Workload")]
    pub workload: Workload,

    /// Skew of the keys: at least 0 (uniform), below 1
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

    /// No skew: every key alike
    #[arg(long, help_heading = "Workload")]
    pub uniform: bool,

    /// Where hot keys lie among the others: scattered, clustered
    #[arg(long, value_name = "WHERE", default_value = "scattered", help_heading = "Workload")]
    pub hot_keys: HotKeys,

    /// Keys to load, as in 500k, 10M
    #[arg(long, value_name = "N", default_value = "1M", value_parser = positive, help_heading = "Workload")]
    pub keys: u64,

    /// Size of keys, 1 to 1024 B
    #[arg(long, value_name = "BYTES", default_value = "8", value_parser = size, help_heading = "Workload")]
    pub key_size: usize,

    /// Size of values, from 0 to what leaves four entries a leaf
    #[arg(long, value_name = "BYTES", default_value = "8", value_parser = size, help_heading = "Workload")]
    pub value_size: usize,

    /// Entries of a range query, for workloads that have them
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Workload")]
    pub range: Option<u64>,

    /// Decides what clients do
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Workload")]
    pub seed: u64,

    /// Threads, 1 to 1024 (default: as many as cores)
    #[arg(long, value_name = "N", value_parser = threads, help_heading = "Run")]
    pub threads: Option<usize>,

    /// Operations in flight on each thread, 1 to 1024
    #[arg(long, value_name = "N", default_value = "1", value_parser = threads, help_heading = "Run")]
    pub coroutines: usize,

    /// How long to measure, in seconds, after loading and warming up
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

    /// Measure so many operations instead, all threads together
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Run")]
    pub ops: Option<u64>,

    /// Run so often, each time from the start, and report the run of median throughput
    #[arg(long, value_name = "N", default_value = "1", value_parser = runs, help_heading = "Run")]
    pub runs: usize,

    /// Afterwards walk the whole tree and verify its invariants and number of entries
    #[arg(long, help_heading = "Run")]
    pub check: bool,

    /// Write the result to FILE as JSON; - writes it, and nothing else, to stdout
    #[arg(long, value_name = "FILE", help_heading = "Run")]
    pub json: Option<PathBuf>,
}

impl BenchArgs {
    /// The run they ask for.
    pub fn options(&self) -> BenchOptions {
        BenchOptions {
            cluster: self.cluster.clone(),
            variant: self.variant,
            workload: self.workload,
            zipf: if self.uniform { 0.0 } else { self.zipf },
            hot: self.hot_keys,
            keys: self.keys,
            key_size: self.key_size,
            value_size: self.value_size,
            node_size: self.node_size,
            format: self.format,
            threads: self.threads.unwrap_or_else(cores),
            coroutines: self.coroutines,
            length: self.ops.map_or(Length::Seconds(self.seconds), Length::Operations),
            cache_bytes: self.cache,
            range: self.range,
            seed: self.seed,
            check: self.check,
        }
    }
}

/// Parses a number: digits, `_` between them, and `k`, `M` or `G` behind.
fn count(text: &str) -> Result<u64, String> {
    let bad = || "write a whole number, as in 20000, 500k or 10M".to_owned();
    let (digits, unit) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'M')) => (&text[..at], 1_000_000),
        Some((at, 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    if !digits.starts_with(|digit: char| digit.is_ascii_digit()) {
        return Err(bad());
    }
    let number: u64 = digits.replace('_', "").parse().map_err(|_| bad())?;
    number.checked_mul(unit).ok_or_else(bad)
}

fn positive(text: &str) -> Result<u64, String> {
    match count(text)? {
        0 => Err("there must be at least one".to_owned()),
        number => Ok(number),
    }
}

fn threads(text: &str) -> Result<usize, String> {
    let number = count(text).ok().and_then(|number| usize::try_from(number).ok());
    number.filter(|number| (1..=MAX_THREADS).contains(number)).ok_or_else(|| format!("allowed are 1 to {MAX_THREADS}"))
}

fn runs(text: &str) -> Result<usize, String> {
    let number = count(text).ok().and_then(|number| usize::try_from(number).ok());
    number.filter(|number| (1..=1000).contains(number)).ok_or_else(|| "allowed are 1 to 1000".to_owned())
}

fn size(text: &str) -> Result<usize, String> {
    let bytes = sherman::parse_bytes(text).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| "write a size, as in 512, 1KiB or 64MiB".to_owned())
}

fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|&seconds: &f64| seconds > 0.0 && seconds.is_finite());
    number.ok_or_else(|| "write a number of seconds above 0, as in 0.5 or 30".to_owned())
}

fn theta(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|theta| (0.0..1.0).contains(theta));
    number.ok_or_else(|| "write a number from 0 (uniform) to below 1, as in 0.99".to_owned())
}

fn format(name: &str) -> Result<sherman::Format, String> {
    let names = sherman::Format::ALL.map(sherman::Format::name).join(", ");
    sherman::Format::from_name(name).ok_or_else(|| format!("no format has this name; available are {names}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_options_fit_together() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_defaults_are_those_of_the_library() {
        let Arguments { command: Command::Bench(args) } = Arguments::parse_from(["sherman", "bench"]);
        assert_eq!(format!("{:?}", args.options()), format!("{:?}", BenchOptions::default()));
    }

    #[test]
    fn numbers_have_units() {
        for (text, number) in [("0", 0), ("20000", 20_000), ("10k", 10_000), ("1M", 1_000_000), ("1_000", 1000)] {
            assert_eq!(count(text), Ok(number), "{text}");
        }
        for bad in ["", "k", "-1", "1.5M", "1 M", "_1", "1Q", "é", "20000000000G", "+1"] {
            assert!(count(bad).is_err(), "{bad}");
        }
        assert_eq!(size("64MiB"), Ok(64 << 20));
        assert!(size("64Mi").is_err());
    }
}
