//! Measures the cost of a lookup in a small and a large tree, and the far-memory bytes per entry by format.
//!
//! `cargo run --release -p sherman-eval -F measure --example scaling`
#![allow(unreachable_pub, reason = "an example exports nothing")]

mod support;

use sherman_eval::scaling::{ScalingOptions, run};
use std::process::ExitCode;

const USAGE: &str = "usage: scaling [--small 10M] [--large 100M] [--rounds 9] [--gets 1M] \
    [--seed 1] [--json FILE]; 100M keys take 3 GB";

fn main() -> ExitCode {
    let mut given = support::Options::of_command_line(USAGE);
    let usual = ScalingOptions::default();
    let options = ScalingOptions {
        small: given.number("small", usual.small),
        large: given.number("large", usual.large),
        rounds: usize::try_from(given.number("rounds", usual.rounds as u64)).unwrap_or(usize::MAX),
        gets: given.number("gets", usual.gets),
        seed: given.number("seed", usual.seed),
    };
    let json = given.json();
    support::finish(run(&options, &|what| eprintln!("{what}")), json, |_| true)
}
