//! Two variants side by side on the NIC model, with each parameter of the model halved and doubled. They may
//! also be one variant on two clusters, for example with one and with two copies of every volume.
//!
//! A claim that one variant is faster than another rests on the model. This table shows how far: for every
//! parameter and every workload it has the ratio of both throughputs, and the range of these ratios.
//!
//! All experiments are independent, so they run on all cores. The same options give the same table.

use crate::error::BenchError;
use crate::experiment::{self, Job, Measured, TreeJob};
use crate::options::BenchOptions;
use crate::report::grouped;
use crate::simulated;
use crate::variant::Variant;
use crate::workload::Workload;
use serde::Serialize;
use sherman_sim::nic::Params;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// A workload of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    workload: Workload,
    zipf: f64,
    coroutines: usize,
    range_size: u64,
}

/// The entries of a range, unless a case names another number.
const RANGE_SIZE: u64 = 100;

/// The cases of the table, unless the caller names others.
pub const CASES: [&str; 12] = [
    "write-intensive:0.99:1",
    "write-intensive:0.99:8",
    "write-intensive:0.9:1",
    "write-only:0.99:1",
    "write-only:0.99:8",
    "write-intensive:uniform:1",
    "write-intensive:uniform:8",
    "read-only:uniform:1",
    "read-only:uniform:8",
    "read-intensive:uniform:8",
    "range-only:uniform:1:100",
    "range-only:uniform:1:1000",
];

impl FromStr for Case {
    type Err = String;

    /// Parses `WORKLOAD:SKEW:COROUTINES` or `WORKLOAD:SKEW:COROUTINES:RANGE`. The skew is a number or
    /// `uniform`.
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "{text:?}: write WORKLOAD:SKEW:COROUTINES, as in write-intensive:0.99:8, and for ranges \
                 their entries, as in range-only:uniform:1:1000"
            )
        };
        let parts: Vec<&str> = text.split(':').collect();
        let (&[workload, zipf, coroutines] | &[workload, zipf, coroutines, _]) = parts.as_slice() else {
            return Err(bad());
        };
        let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
        Ok(Self {
            workload: workload.parse()?,
            zipf: if zipf == "uniform" { 0.0 } else { zipf.parse().map_err(|_| bad())? },
            coroutines: number(coroutines).and_then(|number| usize::try_from(number).ok()).ok_or_else(bad)?,
            range_size: parts.get(3).map_or(Some(RANGE_SIZE), |&text| number(text)).ok_or_else(bad)?,
        })
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workload, zipf, coroutines, range_size } = self;
        let skew = if *zipf == 0.0 { "uniform".to_owned() } else { zipf.to_string() };
        write!(f, "{}:{skew}:{coroutines}", workload.name())?;
        if workload.has_ranges() { write!(f, ":{range_size}") } else { Ok(()) }
    }
}

/// The other side of a comparison.
#[derive(Clone, Debug)]
pub struct Against {
    /// The variant.
    pub variant: Variant,
    /// Its cluster; `None` for the same.
    pub cluster: Option<String>,
}

/// One of both variants on one case.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CaseResult {
    /// Millions of operations per second of virtual time.
    pub mops: f64,
    /// The 99th percentile of all operations, in microseconds.
    pub p99_us: f64,
    /// The same of writes; 0 if there are none.
    pub write_p99_us: f64,
    /// The share of descents that hit the index cache.
    pub hit_ratio: f64,
}

/// Both variants on one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// The case, as on the command line.
    pub case: String,
    /// The variant.
    pub variant: CaseResult,
    /// The variant that it is compared with.
    pub against: CaseResult,
    /// The throughput of the first divided by that of the second.
    pub ratio: f64,
}

/// All cases with one parameter changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The parameter.
    pub parameter: &'static str,
    /// Its value in the model.
    pub from: u64,
    /// Its value in this row.
    pub to: u64,
    /// The results, in the order of the cases.
    pub pairs: Vec<Pair>,
}

/// The table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// The variant.
    pub variant: Variant,
    /// The variant that it is compared with.
    pub against: Variant,
    /// The clusters of both, if they are not the same.
    pub clusters: Option<[String; 2]>,
    /// Keys loaded.
    pub keys: u64,
    /// Operations measured in each experiment.
    pub operations: u64,
    /// The seed.
    pub seed: u64,
    /// The results with the model as it is, in the order of the cases.
    pub unchanged: Vec<Pair>,
    /// The results with one parameter changed. Empty if only both variants were compared.
    pub changed: Vec<Row>,
}

/// Small whole numbers that stand for an exponent: they change by one.
const BY_ONE: [&str; 1] = ["bucket_bits"];

/// Returns the values of a parameter in the table, if they are valid and different.
fn values(name: &str, value: u64) -> impl Iterator<Item = u64> {
    let (less, more) = if BY_ONE.contains(&name) {
        (value.saturating_sub(1), value.saturating_add(1))
    } else {
        (value / 2, value.saturating_mul(2))
    };
    [less, more].into_iter().filter(move |&changed| changed > 0 && changed != value)
}

/// Returns the models of the table: the given one, and those with one parameter changed.
fn models(params: Params, sensitivity: bool) -> Vec<(&'static str, u64, u64, Params)> {
    let mut models = vec![("", 0, 0, params)];
    for (name, field) in Params::FIELDS.into_iter().filter(|_| sensitivity) {
        let value = *field(&mut params.clone());
        for changed in values(name, value) {
            let mut params = params;
            *field(&mut params) = changed;
            models.push((name, value, changed, params));
        }
    }
    models
}

/// Runs every case with both variants, and with `sensitivity` again for each parameter halved and doubled.
/// The other variant may have a cluster of its own. Uses `threads` threads. Calls `progress` with the number
/// of finished and of all experiments.
///
/// # Errors
/// [`BenchError::bad_option`] distinguishes options that cannot be met from experiments that failed.
pub fn run(
    options: &BenchOptions,
    against: &Against,
    cases: &[Case],
    sensitivity: bool,
    threads: usize,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Table, BenchError> {
    let models = models(options.params, sensitivity);
    let mut jobs = Vec::new();
    for (_, _, _, params) in &models {
        for case in cases {
            let other = against.cluster.as_ref().or(options.cluster.as_ref());
            let sides = [(options.variant, options.cluster.as_ref()), (against.variant, other)];
            for (variant, cluster) in sides {
                let Case { workload, zipf, coroutines, range_size } = *case;
                let params = *params;
                let options = BenchOptions {
                    cluster: cluster.cloned(),
                    variant,
                    workload,
                    zipf,
                    coroutines,
                    range_size,
                    params,
                    ..options.clone()
                };
                jobs.push(simulated::job(&options)?);
            }
        }
    }
    let measured = run_all(&jobs, threads, progress)?;
    let mut results = measured.chunks(2).zip(cases.iter().cycle()).map(|(both, case)| pair(case, both));
    let mut rows = models.into_iter().map(|(parameter, from, to, _)| Row {
        parameter,
        from,
        to,
        pairs: results.by_ref().take(cases.len()).collect(),
    });
    let own = options.cluster.clone().unwrap_or_else(|| "sim:".to_owned());
    let clusters = against.cluster.clone().map(|other| [own, other]);
    Ok(Table {
        variant: options.variant,
        against: against.variant,
        clusters,
        keys: options.keys,
        operations: jobs.first().map_or(0, |job| job.operations),
        seed: options.seed,
        unchanged: rows.next().map(|row| row.pairs).unwrap_or_default(),
        changed: rows.collect(),
    })
}

fn pair(case: &Case, both: &[Measured]) -> Pair {
    let result = |at: usize| {
        both.get(at).map_or(
            CaseResult { mops: f64::NAN, p99_us: 0.0, write_p99_us: 0.0, hit_ratio: 0.0 },
            |run| CaseResult {
                mops: run.mops,
                p99_us: run.all.p99,
                write_p99_us: run.writes.p99,
                hit_ratio: run.hit_ratio,
            },
        )
    };
    let (variant, against) = (result(0), result(1));
    Pair { case: case.to_string(), variant, against, ratio: variant.mops / against.mops }
}

/// Runs all jobs, several at the same time. Returns the results in the order of the jobs.
fn run_all(
    jobs: &[TreeJob],
    threads: usize,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<Measured>, BenchError> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results: Mutex<Vec<Option<Measured>>> = Mutex::new(vec![None; jobs.len()]);
    let failure = Mutex::new(None);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(at) else { return };
            match experiment::run(&Job::Tree(job.clone())) {
                Ok(measured) => results.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(measured),
                Err(error) => {
                    // The other threads finish their experiment and then find no more.
                    next.store(jobs.len(), Ordering::Relaxed);
                    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            }
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, jobs.len());
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let missing = || BenchError::Thread("an experiment has no result".to_owned());
    results.into_iter().collect::<Option<Vec<_>>>().ok_or_else(missing)
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [variant, against] = [(0, self.variant), (1, self.against)].map(|(at, variant)| {
            let cluster = self.clusters.as_ref().map(|clusters| format!(" ({})", clusters[at]));
            variant.name().to_owned() + &cluster.unwrap_or_default()
        });
        let (keys, operations) = (grouped(self.keys), grouped(self.operations));
        writeln!(f, "{variant} against {against}: {keys} keys, {operations} operations, seed {}", self.seed)?;
        writeln!(f)?;
        writeln!(
            f,
            "| case | {variant}, Mops | {against}, Mops | ratio | p99 of writes, us: {variant} | {against} | \
             cache hits: {variant} | {against} | least ratio | most |"
        )?;
        writeln!(f, "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")?;
        for (at, Pair { case, variant, against, ratio }) in self.unchanged.iter().enumerate() {
            let all = self.changed.iter().filter_map(|row| row.pairs.get(at)).map(|pair| pair.ratio);
            let (least, most) =
                all.fold((*ratio, *ratio), |(least, most), ratio| (least.min(ratio), most.max(ratio)));
            write!(f, "| {case} | {:.2} | {:.2} | {ratio:.2} ", variant.mops, against.mops)?;
            write!(f, "| {:.1} | {:.1} ", variant.write_p99_us, against.write_p99_us)?;
            write!(f, "| {:.2} % | {:.2} % ", variant.hit_ratio * 100.0, against.hit_ratio * 100.0)?;
            writeln!(f, "| {least:.2} | {most:.2} |")?;
        }
        if self.changed.is_empty() {
            return Ok(());
        }
        writeln!(f)?;
        writeln!(f, "Ratios with one parameter of the model changed:")?;
        writeln!(f)?;
        let cases: Vec<&str> = self.unchanged.iter().map(|pair| pair.case.as_str()).collect();
        writeln!(f, "| parameter | from → to | {} |", cases.join(" | "))?;
        writeln!(f, "|---|---|{}", "--:|".repeat(cases.len()))?;
        for Row { parameter, from, to, pairs } in &self.changed {
            let ratios: Vec<String> = pairs.iter().map(|pair| format!("{:.2}", pair.ratio)).collect();
            writeln!(f, "| `{parameter}` | {from} → {to} | {} |", ratios.join(" | "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Length;

    #[test]
    fn cases_are_written_as_they_are_read() {
        for text in CASES {
            assert_eq!(text.parse::<Case>().map(|case| case.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("range-only:0.5:2".parse::<Case>().expect("a case").to_string(), "range-only:0.5:2:100");
        for bad in ["", "read-only", "read-only:uniform", "read-only:0.9:0", "read-only:x:1", "a:0.9:1"] {
            assert!(bad.parse::<Case>().is_err(), "{bad}");
        }
    }

    #[test]
    fn every_parameter_is_halved_and_doubled() {
        let all = models(Params::PAPER, true);
        for (name, field) in Params::FIELDS {
            let value = *field(&mut Params::PAPER.clone());
            let changed: Vec<_> = all.iter().filter(|model| model.0 == name).map(|model| model.2).collect();
            let expected = match name {
                "bucket_bits" => vec![value - 1, value + 1],
                _ if value == 1 => vec![2],
                _ => vec![value / 2, value * 2],
            };
            assert_eq!(changed, expected, "{name}");
        }
        assert_eq!(models(Params::PAPER, false).len(), 1);
    }

    #[test]
    fn a_variant_against_itself_has_the_ratio_one_whatever_the_model() {
        let options = BenchOptions {
            cluster: Some("sim:?compute=2&memory=2".to_owned()),
            keys: 20_000,
            threads: 2,
            length: Length::Operations(100),
            ..BenchOptions::default()
        };
        let cases = ["write-only:0.9:2", "range-only:uniform:1:50"].map(|case| case.parse().expect("a case"));
        let same = Against { variant: Variant::Ours, cluster: None };
        let table = run(&options, &same, &cases, true, 2, &|_, _| ()).expect("a table");
        assert!(table.changed.len() > 40 && table.unchanged.len() == 2);
        let pairs = table.unchanged.iter().chain(table.changed.iter().flat_map(|row| &row.pairs));
        assert!(pairs.into_iter().all(|pair| pair.ratio == 1.0));
        // The model does change: a slower link takes longer.
        let of = |name: &str, to: u64| {
            let row = table.changed.iter().find(|row| row.parameter == name && row.to == to);
            row.expect("a row").pairs[1].variant.mops
        };
        assert!(of("link_gbps", 50) < of("link_gbps", 200));
        let text = table.to_string();
        assert!(
            text.contains("| cache hits: ours | ours |") && text.contains("| 100.00 % | 100.00 % |"),
            "{text}"
        );
        assert!(text.contains("| `link_gbps` | 100 → 50 | 1.00 | 1.00 |"), "{text}");
    }
}
