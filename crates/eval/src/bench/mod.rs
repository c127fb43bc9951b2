//! A benchmark run: open the cluster, load, warm up, measure, report.
//!
//! Every phase has its own threads, each with its own clients. The costs in a report are therefore those of
//! the measured phase alone. The first error ends the phase: the other threads stop after their current
//! operation. Every operation has a deadline, so a run never blocks permanently.

mod loaded;
mod phase;

pub use loaded::{Loaded, Measurement};

use crate::error::BenchError;
use crate::options::BenchOptions;
use crate::report::Report;
use std::time::Duration;

/// The progress of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    /// The number of keys loaded, of how many.
    Loading(u64, u64),
    /// Running, not counting yet.
    WarmingUp,
    /// Measuring, for this time so far.
    Measuring(Duration),
    /// Checking the tree.
    Checking,
}

/// Runs once, in a new tree. Drops the tree at the end, unless the cluster ends too. Calls `progress` at
/// intervals, on the calling thread.
///
/// # Errors
/// [`BenchError::bad_option`] distinguishes options that cannot be met from runs that failed.
pub fn run(options: &BenchOptions, progress: &dyn Fn(Progress)) -> Result<Report, BenchError> {
    let mut loaded = Loaded::new(options, progress)?;
    let outcome = loaded.measure(&Measurement::of(options), progress);
    loaded.close_after(outcome)
}

/// Runs `runs` times and returns the run of median throughput. Each run has a new tree, unless the workload
/// adds and removes no keys: then all use the tree of the first.
pub fn run_median(
    options: &BenchOptions,
    runs: usize,
    progress: &dyn Fn(usize, Progress),
) -> Result<Report, BenchError> {
    let mut reports = if options.keeps_keys() {
        run_on_one_tree(options, runs.max(1), progress)?
    } else {
        let one = |number| run(options, &|now| progress(number, now));
        (0..runs.max(1)).map(one).collect::<Result<Vec<_>, _>>()?
    };
    let throughputs = reports.iter().map(|report| report.throughput_mops).collect();
    reports.sort_by(|a, b| a.throughput_mops.total_cmp(&b.throughput_mops));
    let mut median = reports.swap_remove((reports.len() - 1) / 2);
    median.runs_mops = throughputs;
    Ok(median)
}

fn run_on_one_tree(
    options: &BenchOptions,
    runs: usize,
    progress: &dyn Fn(usize, Progress),
) -> Result<Vec<Report>, BenchError> {
    let mut loaded = Loaded::new(options, &|now| progress(0, now))?;
    let mut measure = |number| loaded.measure(&Measurement::of(options), &|now| progress(number, now));
    let outcome = (0..runs).map(&mut measure).collect();
    loaded.close_after(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::HotKeys;
    use crate::options::{Length, Load};
    use crate::testing::runs_in_full;
    use crate::variant::Variant;
    use crate::workload::Workload;
    use std::cell::Cell;
    use std::time::Instant;

    fn small() -> BenchOptions {
        BenchOptions {
            keys: 5_000,
            length: Length::Operations(20_000),
            check: true,
            ..BenchOptions::default()
        }
    }

    fn run(options: &BenchOptions) -> Result<Report, BenchError> {
        super::run(options, &|_| ())
    }

    #[test]
    fn several_runs_load_once_if_the_workload_keeps_the_keys() {
        for (workload, loads) in [(Workload::ReadOnly, 1), (Workload::YcsbA, 1), (Workload::WriteOnly, 3)] {
            let options = BenchOptions { workload, length: Length::Operations(500), ..small() };
            let (began, last) = (Cell::new(0), Cell::new(0));
            let report = run_median(&options, 3, &|number, progress| {
                last.set(number);
                began.set(began.get() + u32::from(progress == Progress::Loading(0, 5_000)));
            });
            assert_eq!(report.expect("a run").runs_mops.len(), 3, "{workload:?}");
            assert_eq!((began.get(), last.get()), (loads, 2), "{workload:?}");
        }
    }

    #[test]
    fn every_variant_does_every_workload_and_leaves_a_sound_tree() {
        let operations = if runs_in_full() { 6_000 } else { 2_000 };
        for variant in Variant::ALL {
            for workload in Workload::ALL {
                let length = Length::Operations(operations);
                let report = run(&BenchOptions { variant, workload, length, ..small() }).expect("a run");
                assert_eq!(report.operations, operations, "{variant:?} {workload:?}");
                let new = report.entries - 5_000;
                assert!((new > 0) == (workload.new_keys() > 0.0), "{variant:?} {workload:?}: {new} new keys");
            }
        }
    }

    #[test]
    fn removes_and_loading_one_by_one_leave_a_sound_tree_too() {
        for workload in [Workload::WriteIntensive, Workload::RangeWrite, Workload::YcsbD] {
            let options = BenchOptions { workload, removes: 40, load: Load::Insert, zipf: 0.0, ..small() };
            for (threads, coroutines) in [(2, 1), (1, 4)] {
                let report = run(&BenchOptions { threads, coroutines, ..options.clone() }).expect("a run");
                assert_eq!((report.operations, report.load, report.fill), (20_000, "insert", None));
                assert!(
                    report.round_trips["remove"].values().sum::<u64>() > 7_000,
                    "{:?}",
                    report.round_trips
                );
            }
        }
    }

    #[test]
    fn ranges_are_counted_as_wholes_and_their_reads_one_by_one() {
        let options = BenchOptions { workload: Workload::RangeOnly, range_size: 40, ..small() };
        let report = run(&options).expect("a run");
        let ranges = report.ranges.expect("ranges");
        assert_eq!((ranges.ranges, report.operations), (20_000, 20_000));
        assert!((35.0..=40.0).contains(&ranges.entries) && ranges.reads >= 1.0 && ranges.round_trips >= 1.0);
        assert!(report.cache_hits > 0 && report.latency_us["range"].p50 > 0.0);
    }

    #[test]
    fn coroutines_do_the_same_work_as_threads() {
        for (threads, coroutines) in [(1, 1), (4, 1), (1, 4), (2, 16)] {
            let report = run(&BenchOptions { threads, coroutines, ..small() }).expect("a run");
            let counted: u64 = report.round_trips.values().flat_map(|kind| kind.values()).sum();
            assert_eq!((report.operations, counted), (20_000, 20_000), "{threads} x {coroutines}");
        }
    }

    #[test]
    fn sizes_shapes_and_hot_spots_of_all_kinds_run() {
        let base = small();
        for options in [
            BenchOptions { key_size: 2, value_size: 0, ..base.clone() },
            BenchOptions { key_size: 100, value_size: 30, node_size: 2048, ..base.clone() },
            BenchOptions { key_size: 8, value_size: 100, node_size: 4096, ..base.clone() },
            BenchOptions { node_size: 256, hot: HotKeys::Clustered, ..base.clone() },
            BenchOptions { zipf: 0.0, hot: HotKeys::Clustered, ..base.clone() },
            BenchOptions { cache_bytes: 0, ..base.clone() },
            BenchOptions { keys: 1, ..base.clone() },
        ] {
            assert_eq!(run(&options).expect("a run").operations, 20_000, "{options:?}");
        }
    }

    #[test]
    fn a_run_by_time_ends_in_time() {
        let options = BenchOptions { length: Length::Seconds(0.2), ..small() };
        let began = Instant::now();
        let report = run(&options).expect("a run");
        assert!((0.19..1.0).contains(&report.seconds), "{}", report.seconds);
        assert!(began.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn keys_that_cannot_fit_are_refused_before_loading() {
        let cluster = Some("embedded:?memory=20MiB".to_owned());
        let error =
            run(&BenchOptions { cluster, keys: 1_000_000, ..small() }).expect_err("too little memory");
        assert_eq!(error.bad_option(), Some("cluster"));
        assert!(error.to_string().contains("1000000 keys need at least 1"), "{error}");
    }

    #[test]
    fn a_cluster_that_runs_full_ends_the_run() {
        let cluster = Some("embedded:?memory=34MiB".to_owned());
        let options = BenchOptions { cluster, keys: 900_000, threads: 2, load: Load::Insert, ..small() };
        match run(&options) {
            Err(BenchError::Operation { phase: "loading", error: sherman::Error::OutOfMemory }) => {}
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_median_of_several_runs_is_reported() {
        let report = run_median(&small(), 3, &|_, _| ()).expect("three runs");
        let mut runs = report.runs_mops.clone();
        runs.sort_by(f64::total_cmp);
        assert_eq!((runs.len(), runs[1]), (3, report.throughput_mops));
    }
}
