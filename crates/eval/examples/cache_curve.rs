//! Measures the hit ratio of the index cache against its size bound, uniform and zipf 0.99. Exits with 1 if a
//! cache with room for all internal nodes answers less than 99.9 % of lookups.
//!
//! `cargo run --release -p sherman-eval -F measure --example cache_curve -- --keys 10M`
#![allow(unreachable_pub, reason = "an example exports nothing")]

mod support;

use sherman_eval::cache_curve::{Curve, CurveOptions, run};
use std::process::ExitCode;

const USAGE: &str = "usage: cache_curve [--keys 10M] [--gets 1M] [--seed 1] [--json FILE]";

fn main() -> ExitCode {
    let mut given = support::Options::of_command_line(USAGE);
    let usual = CurveOptions::default();
    let options = CurveOptions {
        keys: given.number("keys", usual.keys),
        gets: given.number("gets", usual.gets),
        seed: given.number("seed", usual.seed),
    };
    let json = given.json();
    support::finish(run(&options, &|what| eprintln!("{what}")), json, Curve::claim_holds)
}
