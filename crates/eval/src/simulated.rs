//! A benchmark on `sim:`: the same workloads and variants on the NIC model, in virtual time.
//!
//! `sim:?compute=8&memory=8` gives the number of servers of each kind, and `replicas=2` gives each volume a
//! backup. Threads are those of each compute
//! server. Keys are never loaded but generated on access, so there may be a billion. Times are virtual: the
//! same options give the same numbers on every machine.

use crate::error::BenchError;
use crate::experiment::{self, Job, Measured, Quantiles, TreeJob};
use crate::options::{BenchOptions, Length, Load};
use crate::report::grouped;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// Returns whether a cluster is simulated.
pub fn is_simulated(cluster: &str) -> bool {
    cluster == "sim" || cluster.starts_with("sim:")
}

/// The default threads of each compute server, as in the paper.
pub const THREADS: usize = 22;
/// The default number of servers of each kind, as in the paper.
const SERVERS: u16 = 8;
/// The default number of operations to measure.
const OPERATIONS: u64 = 200_000;

/// The result of a benchmark on the model. All times except those of `simulation` are virtual.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SimReport {
    /// The options of the run.
    pub options: TreeJob,
    /// Millions of operations per second, as the mean of all runs.
    pub throughput_mops: f64,
    /// The throughput of every run. Seeds of runs are one apart.
    pub runs_mops: Vec<f64>,
    /// The difference between the highest and the lowest throughput of a run, as a share of the mean.
    pub spread: f64,
    /// Latencies in microseconds by operation, in the run of median throughput: `all`, `get`, `write`,
    /// `range`.
    pub latency_us: BTreeMap<&'static str, Quantiles>,
    /// All other measurements of that run.
    pub measured: Measured,
    /// The speed of the simulation itself.
    pub simulation: Speed,
}

/// The speed of a simulation, in real time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speed {
    /// Seconds of all runs together, including the creation of the cluster.
    pub seconds: f64,
    /// Verbs simulated per second.
    pub verbs_per_second: f64,
    /// Operations simulated per second.
    pub operations_per_second: f64,
}

/// The cluster that a URL describes.
struct Servers {
    compute: u16,
    memory: u16,
    replicas: u16,
}

/// Returns the numbers of servers and of copies in `url`.
fn servers(url: &str) -> Result<Servers, BenchError> {
    let bad = |reason: String| BenchError::option("cluster", reason);
    let query = match url.strip_prefix("sim").map(|rest| rest.strip_prefix(':').unwrap_or(rest)) {
        Some("") => "",
        Some(rest) if rest.starts_with('?') => &rest[1..],
        _ => return Err(bad(format!("{url:?}: a simulated cluster is sim: or sim:?compute=N&memory=N"))),
    };
    let mut servers = Servers { compute: SERVERS, memory: SERVERS, replicas: 1 };
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let (target, most, what) = match name {
            "compute" => (&mut servers.compute, experiment::MAX_MACHINES, "servers"),
            "memory" => (&mut servers.memory, experiment::MAX_MACHINES, "servers"),
            "replicas" => (&mut servers.replicas, 2, "copies of each volume"),
            _ => {
                let known = "compute, memory and replicas";
                return Err(bad(format!("sim: has no parameter {name:?}; it has {known}")));
            }
        };
        let number = value.parse().ok().filter(|number| (1..=most).contains(number));
        *target = number.ok_or_else(|| bad(format!("{name}={value}: there can be 1 to {most} {what}")))?;
    }
    if servers.replicas > servers.memory {
        return Err(bad("replicas=2: two copies of a volume need two memory servers".to_owned()));
    }
    Ok(servers)
}

/// Returns the experiment for `options`.
pub(crate) fn job(options: &BenchOptions) -> Result<TreeJob, BenchError> {
    // Check what every benchmark must satisfy, then refuse options that only a real cluster supports.
    options.plan()?;
    let Servers { compute, memory, replicas } = servers(options.cluster.as_deref().unwrap_or("sim:"))?;
    if options.format.is_some_and(|format| format != options.variant.format()) {
        return Err(BenchError::option("format", "on sim: nodes always have the variant's format"));
    }
    if options.load != Load::Bulk {
        return Err(BenchError::option("load", "on sim: keys are always loaded in bulk"));
    }
    if options.check {
        return Err(BenchError::option(
            "check",
            "on sim: there is no complete tree to check. Every answer is checked",
        ));
    }
    let operations = match options.length {
        Length::Operations(operations) => operations,
        Length::Seconds(_) => OPERATIONS,
    };
    let number = |option, number: usize| {
        u16::try_from(number).map_err(|_| BenchError::option(option, format!("{number} is too many")))
    };
    Ok(TreeJob {
        variant: options.variant,
        workload: options.workload,
        removes: options.removes,
        zipf: options.zipf,
        hot: options.hot,
        keys: options.keys,
        key_size: options.key_size,
        value_size: options.value_size,
        leaf_size: options.node_size,
        internal_size: options.node_size,
        fill: options.fill,
        compute,
        memory,
        replicas,
        threads: number("threads", options.threads)?,
        coroutines: number("coroutines", options.coroutines)?,
        cache_bytes: options.cache_bytes as u64,
        fill_cache: false,
        range_size: options.range_size,
        operations,
        seed: options.seed,
        params: options.params,
    })
}

/// Runs `runs` times, with seeds one apart. Calls `progress` with the number of each run when it begins.
///
/// # Errors
/// [`BenchError::bad_option`] distinguishes options that cannot be met from runs that failed.
pub fn run(options: &BenchOptions, runs: usize, progress: &dyn Fn(usize)) -> Result<SimReport, BenchError> {
    let job = job(options)?;
    let began = Instant::now();
    let mut all = Vec::new();
    for number in 0..runs.max(1) {
        progress(number);
        all.push(experiment::run(&Job::Tree(job.clone()).with_seed(job.seed.wrapping_add(number as u64)))?);
    }
    Ok(report(job, all, began.elapsed()))
}

fn report(options: TreeJob, mut all: Vec<Measured>, took: Duration) -> SimReport {
    let runs_mops: Vec<f64> = all.iter().map(|run| run.mops).collect();
    let mean = runs_mops.iter().sum::<f64>() / runs_mops.len() as f64;
    let (least, most) =
        runs_mops.iter().fold((f64::MAX, 0.0), |(a, b): (f64, f64), &mops| (a.min(mops), b.max(mops)));
    let count = |of: fn(&Measured) -> u64| all.iter().map(of).sum::<u64>() as f64;
    // The warm-up simulated a quarter more.
    let (verbs, operations) = (count(|run| run.verbs) * 1.25, count(|run| run.operations) * 1.25);
    let seconds = took.as_secs_f64().max(1e-9);
    all.sort_by(|a, b| a.mops.total_cmp(&b.mops));
    let measured = all.swap_remove((all.len() - 1) / 2);
    let kinds = [
        ("all", measured.all),
        ("get", measured.lookups),
        ("write", measured.writes),
        ("range", measured.ranges),
    ];
    SimReport {
        options,
        throughput_mops: mean,
        runs_mops,
        spread: (most - least) / mean,
        latency_us: kinds.into_iter().filter(|(_, latency)| latency.p50 > 0.0).collect(),
        measured,
        simulation: Speed {
            seconds,
            verbs_per_second: verbs / seconds,
            operations_per_second: operations / seconds,
        },
    }
}

/// Formats the shares of operations by number. Omits shares below a thousandth.
fn shares(pairs: &[(u64, u64)]) -> String {
    let total: u64 = pairs.iter().map(|(_, count)| count).sum();
    let common = pairs.iter().filter(|(_, count)| count * 1000 >= total);
    let told: Vec<String> = common
        .map(|(number, count)| format!("{number}: {:.1} %", *count as f64 * 100.0 / total as f64))
        .collect();
    told.join(", ")
}

impl fmt::Display for SimReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { options: job, measured, simulation, .. } = self;
        let skew = if job.zipf == 0.0 { "uniform".to_owned() } else { format!("zipf {}", job.zipf) };
        let (variant, workload, hot) = (job.variant.name(), job.workload.name(), job.hot.name());
        writeln!(f, "{variant} | {workload} | {skew}, hot keys {hot} | seed {}", job.seed)?;
        let keys = grouped(job.keys);
        writeln!(
            f,
            "{keys} keys of {} B, values of {} B, nodes of {} B",
            job.key_size, job.value_size, job.leaf_size
        )?;
        writeln!(
            f,
            "simulated: {} compute servers x {} threads x {} in flight, {} memory servers{}, in virtual time",
            job.compute,
            job.threads,
            job.coroutines,
            job.memory,
            if job.replicas > 1 { ", two copies of each volume" } else { "" }
        )?;
        writeln!(f)?;
        write!(f, "throughput  {:.3} Mop/s", self.throughput_mops)?;
        writeln!(
            f,
            "  ({} operations in {:.3} ms)",
            grouped(measured.operations),
            measured.nanos as f64 / 1e6
        )?;
        if self.runs_mops.len() > 1 {
            let runs: Vec<String> = self.runs_mops.iter().map(|mops| format!("{mops:.3}")).collect();
            let (count, spread) = (runs.len(), self.spread * 100.0);
            writeln!(f, "            the mean of {count} runs: {}; spread {spread:.1} %", runs.join(", "))?;
        }
        writeln!(f)?;
        writeln!(f, "{:<20}{:>10}{:>10}{:>10}{:>10}", "latency, us", "p50", "p90", "p99", "p99.9")?;
        for (operation, Quantiles { p50, p90, p99, p999 }) in &self.latency_us {
            writeln!(f, "  {operation:<18}{p50:>10.2}{p90:>10.2}{p99:>10.2}{p999:>10.2}")?;
        }
        writeln!(f)?;
        if !measured.write_round_trips.is_empty() {
            writeln!(f, "round trips of writes   {}", shares(&measured.write_round_trips))?;
            writeln!(f, "bytes of writes         {}", shares(&measured.write_bytes))?;
            writeln!(f, "writes by handover      {:.1} %", measured.handovers * 100.0)?;
        }
        if !measured.read_retries.is_empty() {
            writeln!(f, "torn reads of lookups   {}", shares(&measured.read_retries))?;
        }
        writeln!(f, "cache hits              {:.2} %", measured.hit_ratio * 100.0)?;
        write!(
            f,
            "simulated in {:.2} s: {:.2} million verbs and {:.0} thousand operations a second",
            simulation.seconds,
            simulation.verbs_per_second / 1e6,
            simulation.operations_per_second / 1e3
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(cluster: &str) -> BenchOptions {
        BenchOptions {
            cluster: Some(cluster.to_owned()),
            keys: 50_000,
            threads: 3,
            length: Length::Operations(3_000),
            ..BenchOptions::default()
        }
    }

    #[test]
    fn the_same_options_give_the_same_numbers() {
        let of = || run(&small("sim:?compute=2&memory=3"), 3, &|_| ()).expect("a result");
        let (first, second) = (of(), of());
        assert_eq!((first.runs_mops.len(), &first.runs_mops), (3, &second.runs_mops));
        assert_eq!((&first.measured, &first.latency_us), (&second.measured, &second.latency_us));
        assert!(first.spread > 0.0 && first.throughput_mops > 0.1);
        let text = first.to_string();
        assert!(
            text.contains("2 compute servers x 3 threads") && text.contains("the mean of 3 runs"),
            "{text}"
        );
    }

    #[test]
    fn what_cannot_be_simulated_is_refused() {
        for (options, option, word) in [
            (small("sim:?memory=70000"), "cluster", "1 to 1024"),
            (small("sim:?memory=0"), "cluster", "1 to 1024"),
            (small("sim:?memory"), "cluster", "1 to 1024"),
            (small("sim:?servers=3"), "cluster", "compute, memory and replicas"),
            (small("sim:?replicas=0"), "cluster", "1 to 2 copies"),
            (small("sim:?replicas=3"), "cluster", "1 to 2 copies"),
            (small("sim:?memory=1&replicas=2"), "cluster", "two memory servers"),
            (small("sim://host"), "cluster", "sim:?compute"),
            (BenchOptions { threads: 0, ..small("sim:") }, "threads", "1 to 1024"),
            (BenchOptions { zipf: 1.5, ..small("sim:") }, "zipf", "below 1"),
            (BenchOptions { load: Load::Insert, ..small("sim:") }, "load", "bulk"),
            (BenchOptions { check: true, ..small("sim:") }, "check", "checked"),
            (BenchOptions { coroutines: 1000, threads: 1000, ..small("sim:") }, "threads", "clients"),
        ] {
            let error = run(&options, 1, &|_| ()).expect_err("refused");
            assert_eq!(error.bad_option(), Some(option), "{error}");
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
