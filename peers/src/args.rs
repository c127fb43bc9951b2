//! The options, and the parsing of numbers.

use crate::bench::Options;
use crate::peers::{self, Peer};
use crate::workload::{Distribution, Mix};
use clap::Parser;
use std::path::PathBuf;

const AFTER_HELP: &str = "\
Mixes. Two thirds of the inserts update a loaded key, one third put a new key:
  insert          inserts only
  half            50 % inserts, 50 % gets
  read-intensive  5 % inserts, 95 % gets
  read-only       gets only
  range           ranges of 100 entries that begin at a loaded key
  range-insert    50 % such ranges, 50 % inserts

Indexes: sherman (ours), crossbeam-skiplist, scc, concurrent-map, ferntree, masstree, congee,
rwlock-btreemap

All indexes are in memory at the same time: 10 million keys need about 5 GiB, before inserts.

--check exits with 1 unless, in every measured cell, ours is
  - at least as fast as crossbeam-skiplist and scc,
  - at least as fast as rwlock-btreemap, if the mix writes,
  - at least 0.7 times as fast as ferntree.";

/// Compare Sherman with the in-memory ordered indexes of crates.io
#[derive(Debug, Parser)]
#[command(name = "peers", version, after_help = AFTER_HELP)]
pub struct Arguments {
    /// Load this many keys, as in 500k or 10M
    #[arg(long, value_name = "COUNT", default_value = "10M", value_parser = positive)]
    pub keys: u64,

    /// Run this many threads
    #[arg(long, value_name = "COUNT", default_value = "2", value_parser = threads)]
    pub threads: usize,

    /// Run each cell this many times; the median counts
    #[arg(long, value_name = "COUNT", default_value = "5", value_parser = runs)]
    pub runs: usize,

    /// Run for about this many seconds, measured on the median index
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub seconds: f64,

    /// Run this many operations, instead of --seconds
    #[arg(long, value_name = "COUNT", value_parser = positive, conflicts_with = "seconds")]
    pub ops: Option<u64>,

    /// Measure only these indexes
    #[arg(long, value_name = "INDEX,...", value_delimiter = ',', value_parser = peer)]
    pub only: Vec<String>,

    /// Measure only these mixes
    #[arg(long, value_name = "MIX,...", value_delimiter = ',', hide_possible_values = true)]
    pub mixes: Vec<Mix>,

    /// Measure only these distributions: uniform, zipf (of skew 0.99, hot keys scattered)
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', hide_possible_values = true)]
    pub dist: Vec<Distribution>,

    /// Write all results as JSON to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write the tables as Markdown to this file
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,

    /// Exit with 1 unless ours reaches its minimum ratios; see below
    #[arg(long)]
    pub check: bool,

    /// Print no progress on stderr
    #[arg(long)]
    pub quiet: bool,
}

impl Arguments {
    /// Returns the options of the benchmark.
    pub fn options(&self) -> Options {
        let wanted = |peer: &Peer| self.only.is_empty() || self.only.iter().any(|name| name == peer.name);
        Options {
            keys: self.keys,
            threads: self.threads,
            runs: self.runs,
            seconds: self.seconds,
            operations: self.ops.and_then(|ops| usize::try_from(ops).ok()),
            peers: peers::ALL.into_iter().filter(wanted).collect(),
            mixes: if self.mixes.is_empty() { Mix::ALL.to_vec() } else { self.mixes.clone() },
            distributions: if self.dist.is_empty() { Distribution::ALL.to_vec() } else { self.dist.clone() },
        }
    }
}

/// Parses a number: digits, with `_` between them, and a suffix `k` or `M`.
fn positive(text: &str) -> Result<u64, String> {
    let bad = || "write a whole number above 0, as in 20000, 500k or 10M".to_owned();
    let (digits, unit) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'M')) => (&text[..at], 1_000_000),
        _ => (text, 1),
    };
    if !digits.starts_with(|digit: char| digit.is_ascii_digit()) {
        return Err(bad());
    }
    let number: u64 = digits.replace('_', "").parse().map_err(|_| bad())?;
    number.checked_mul(unit).filter(|&number| number > 0).ok_or_else(bad)
}

fn up_to(text: &str, limit: usize) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=limit).contains(number));
    number.ok_or_else(|| format!("write a number from 1 to {limit}"))
}

fn threads(text: &str) -> Result<usize, String> {
    up_to(text, 256)
}

fn runs(text: &str) -> Result<usize, String> {
    up_to(text, 1000)
}

fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|seconds: &f64| (0.001..=3600.0).contains(seconds));
    number.ok_or_else(|| "write a number of seconds from 0.001 to 3600".to_owned())
}

fn peer(text: &str) -> Result<String, String> {
    let names = || peers::ALL.map(|peer| peer.name).join(", ");
    peers::named(text).map(|peer| peer.name.to_owned()).ok_or_else(|| format!("available are {}", names()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_help_is_well_formed_and_names_every_index_and_mix() {
        Arguments::command().debug_assert();
        assert!(peers::ALL.iter().all(|peer| AFTER_HELP.contains(peer.name)));
        assert!(Mix::ALL.iter().all(|mix| AFTER_HELP.contains(&format!("  {} ", mix.name()))));
    }

    #[test]
    fn lists_choose_and_the_default_is_everything() {
        let options =
            |line: &str| Arguments::try_parse_from(line.split(' ')).expect("legal options").options();
        let all = options("peers");
        assert_eq!(
            (all.peers.len(), all.mixes.len(), all.distributions.len(), all.keys),
            (8, 6, 2, 10_000_000)
        );
        let some = options("peers --only scc,sherman --mixes range-insert,half --dist zipf --keys 20k");
        assert_eq!(some.peers.iter().map(|peer| peer.name).collect::<Vec<_>>(), ["sherman", "scc"]);
        assert_eq!((some.mixes, some.keys), (vec![Mix::RangeInsert, Mix::Half], 20_000));
        assert!(Arguments::try_parse_from(["peers", "--only", "sled"]).is_err());
    }

    #[test]
    fn numbers_have_units() {
        assert_eq!(positive("10M"), Ok(10_000_000));
        assert_eq!(positive("1_500k"), Ok(1_500_000));
        for bad in ["", "0", "k", "-1", "1.5M", "_1", "é", "99999999999999999M"] {
            assert!(positive(bad).is_err(), "{bad}");
        }
    }
}
