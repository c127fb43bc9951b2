//! `sherman sensitivity`: two variants on the NIC model, with each of its parameters halved and doubled.

pub mod args;

use crate::args::changed;
use crate::failure::Failure;
use crate::progress::ExperimentsBar;
use crate::sensitivity::args::SensitivityArgs;
use crate::target::announce;
use sherman_eval::options::cores;
use sherman_eval::sensitivity::{self, Against, CASES, Case};
use sherman_eval::{BenchError, BenchOptions, Length, simulated};

/// Runs the experiments and prints the table.
pub fn run(args: &SensitivityArgs) -> Result<(), Failure> {
    args.output.check_path()?;
    let clusters = [("cluster", Some(&args.cluster)), ("against-cluster", args.against_cluster.as_ref())];
    for (option, url) in clusters {
        if url.is_some_and(|url| !simulated::is_simulated(url)) {
            return Err(Failure::option(
                option,
                "the command needs a model: sim: or sim:?compute=N&memory=N",
            ));
        }
    }
    let against = Against { variant: args.against, cluster: args.against_cluster.clone() };
    let options = BenchOptions {
        cluster: Some(args.cluster.clone()),
        variant: args.variant,
        keys: args.keys,
        threads: simulated::THREADS,
        length: Length::Operations(args.ops),
        cache_bytes: args.cache,
        seed: args.seed,
        params: changed(&args.param),
        ..BenchOptions::default()
    };
    let default = || CASES.iter().map(|case| case.parse()).collect::<Result<Vec<Case>, String>>();
    let cases = if args.case.is_empty() {
        default().map_err(|reason| Failure::option("case", reason))?
    } else {
        args.case.clone()
    };
    announce("a model of the paper's machines in virtual time, not on a cluster");
    let bar = ExperimentsBar::default();
    let threads = args.threads.unwrap_or_else(cores);
    let table: Result<_, BenchError> =
        sensitivity::run(&options, &against, &cases, !args.base_only, threads, &|done, all| {
            bar.show(done, all);
        });
    bar.clear();
    let table = table?;
    args.output.write(&table, serde_json::to_string_pretty(&table))
}
