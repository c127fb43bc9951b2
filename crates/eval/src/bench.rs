//! A benchmark run: open the cluster, load, warm up, measure, report.
//!
//! Every phase has its own threads, each with its own clients. The costs in a report are therefore those of
//! the measured phase alone. The first error ends the phase: the other threads stop after their current
//! operation. Every operation has a deadline, so a run never blocks permanently.

use crate::drive::{Driver, Known, Limits, run_at_once, run_together};
use crate::error::BenchError;
use crate::load::load;
use crate::options::{BenchOptions, BenchPlan, Length, seconds};
use crate::record::Recorder;
use crate::report::{Measured, Report};
use crate::threads::{on_threads, share};
use crate::workload::Generator;
use sherman::{Cluster, ClusterOptions, RawTree, ServerUsage, Standing, Stats};
use std::cell::RefCell;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a run waits until the memory of departed members is taken over.
const PATIENCE: Duration = Duration::from_secs(5);

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
    let plan = options.plan()?;
    let cluster_options =
        ClusterOptions::new().techniques(options.variant.techniques()).cache_bytes(options.cache_bytes);
    let cluster = Cluster::open_with(&plan.url, cluster_options).map_err(BenchError::Open)?;
    let is_private = plan.url.starts_with("embedded:");
    check_room(&cluster, &plan, is_private)?;
    if !is_private {
        take_over(&cluster)?;
    }
    let name = own_name();
    let (tree, created) = cluster.raw_tree_or_new(&name, &plan.tree).map_err(BenchError::Create)?;
    if !created {
        return Err(BenchError::NotOurs { tree: name });
    }
    let outcome = run_on(&cluster, &tree, options, plan, progress);
    if is_private {
        return outcome;
    }
    match (cluster.drop_tree(&name), outcome) {
        (Ok(_), outcome) => outcome,
        (Err(error), outcome) => {
            Err(BenchError::Left { tree: name, error, after: outcome.err().map(Box::new) })
        }
    }
}

/// Returns a name that no other run has, so that a run never touches another tree.
fn own_name() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("sherman-bench-{}-{:x}", std::process::id(), since.as_nanos())
}

/// Runs on an empty tree.
fn run_on(
    cluster: &Cluster,
    tree: &RawTree,
    options: &BenchOptions,
    plan: BenchPlan,
    progress: &dyn Fn(Progress),
) -> Result<Report, BenchError> {
    let began = Instant::now();
    load(tree, &plan.keys, options, &|done| progress(Progress::Loading(done, options.keys)))?;
    let loading = began.elapsed();

    let generators = generators(options, &plan);
    let known = Known { value_size: options.value_size, last: plan.last };
    let warm_up = phase(tree, options, known, "warming up", options.warm_up(), generators, &|_| {
        progress(Progress::WarmingUp);
    })?;
    let measured =
        phase(tree, options, known, "measuring", options.length, warm_up.generators, &|elapsed| {
            progress(Progress::Measuring(elapsed));
        })?;

    let (first, second) = (&warm_up.recorder, &measured.recorder);
    let entries = options.keys + first.added + second.added - first.removed - second.removed;
    let failed = |error| BenchError::Operation { phase: "checking", error };
    if options.check {
        progress(Progress::Checking);
        verify(tree, entries)?;
    }
    let usage = cluster.usage().map_err(failed)?;
    let far_memory_bytes = usage.iter().map(|server| server.chunks_used * server.chunk_bytes).sum();
    Ok(Report::new(
        options,
        plan.url,
        &Measured {
            stats: measured.stats,
            recorder: measured.recorder,
            elapsed: measured.elapsed,
            entries,
            far_memory_bytes,
            load: loading,
        },
    ))
}

/// Checks the tree's invariants and number of entries.
fn verify(tree: &RawTree, entries: u64) -> Result<(), BenchError> {
    let check = tree.check().map_err(|error| BenchError::Operation { phase: "checking", error })?;
    if let Some(first) = check.broken.first() {
        return Err(BenchError::Broken { count: check.broken_count, first: first.invariant });
    }
    if check.entries != entries {
        return Err(BenchError::Entries { found: check.entries, expected: entries });
    }
    Ok(())
}

/// Runs `runs` times, each in a new tree, and returns the run of median throughput.
pub fn run_median(
    options: &BenchOptions,
    runs: usize,
    progress: &dyn Fn(usize, Progress),
) -> Result<Report, BenchError> {
    let mut reports = Vec::with_capacity(runs);
    for number in 0..runs.max(1) {
        reports.push(run(options, &|now| progress(number, now))?);
    }
    let throughputs = reports.iter().map(|report| report.throughput_mops).collect();
    reports.sort_by(|a, b| a.throughput_mops.total_cmp(&b.throughput_mops));
    let mut median = reports.swap_remove((reports.len() - 1) / 2);
    median.runs_mops = throughputs;
    Ok(median)
}

/// Waits until the memory of members that left, for example an earlier benchmark, is taken over. This compute
/// server takes it over when it next renews its lease. After [`PATIENCE`] the run begins with the available
/// memory.
fn take_over(cluster: &Cluster) -> Result<(), BenchError> {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let members = cluster.members().map_err(BenchError::Create)?;
        if members.iter().all(|member| member.standing == Standing::Live) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Refuses a load that cannot fit, before it begins. Chunks in use may have free nodes, unless the cluster is
/// fresh.
fn check_room(cluster: &Cluster, plan: &BenchPlan, is_fresh: bool) -> Result<(), BenchError> {
    let usage = cluster.usage().map_err(BenchError::Create)?;
    let used = |server: &ServerUsage| if is_fresh { server.chunks_used } else { 0 };
    let free: u64 = usage.iter().map(|server| (server.chunks - used(server)) * server.chunk_bytes).sum();
    if plan.least_bytes <= free {
        return Ok(());
    }
    let (keys, need) = (plan.keys.count(), plan.least_bytes.div_ceil(1 << 20));
    let reason = format!(
        "{keys} keys need at least {need} MiB of nodes, but the cluster has {} MiB free. Set a larger \
         memory=, or load fewer keys",
        free >> 20
    );
    Err(BenchError::option("cluster", reason))
}

fn generators(options: &BenchOptions, plan: &BenchPlan) -> Vec<Vec<Generator>> {
    let clients = options.clients() as u64;
    let of = |client: usize| {
        Generator::new(options.demand(), plan.keys, plan.zipf, options.seed, client as u64, clients)
    };
    let of_thread =
        |thread| (0..options.coroutines).map(|slot| of(thread * options.coroutines + slot)).collect();
    (0..options.threads).map(of_thread).collect()
}

/// The work of a phase's clients.
struct Phase {
    stats: Stats,
    recorder: Recorder,
    elapsed: Duration,
    generators: Vec<Vec<Generator>>,
}

struct OfThread {
    stats: Stats,
    recorder: Recorder,
    began: Instant,
    ended: Instant,
    generators: Vec<Generator>,
}

/// Drives all clients for `length`.
fn phase(
    tree: &RawTree,
    options: &BenchOptions,
    known: Known,
    name: &'static str,
    length: Length,
    generators: Vec<Vec<Generator>>,
    tick: &dyn Fn(Duration),
) -> Result<Phase, BenchError> {
    let abort = AtomicBool::new(false);
    let began = Instant::now();
    let (deadline, operations) = match length {
        Length::Seconds(length) => (began.checked_add(seconds(length)), None),
        Length::Operations(operations) => (None, Some(operations)),
    };
    let limits = Limits { deadline, abort: &abort, phase: name };
    tick(Duration::ZERO);
    let mut tick = || {
        tick(began.elapsed());
        Ok(())
    };
    let threads = on_threads(generators, &abort, &mut tick, |thread, generators| {
        let quota = |slot| {
            let client = thread * options.coroutines + slot;
            operations.map_or(u64::MAX, |operations| share(operations, client, options.clients()))
        };
        drive_thread(tree, known, &limits, generators, quota)
    })?;
    merge(threads)
}

fn merge(threads: Vec<OfThread>) -> Result<Phase, BenchError> {
    let mut whole = Phase {
        stats: Stats::default(),
        recorder: Recorder::new()?,
        elapsed: Duration::ZERO,
        generators: Vec::new(),
    };
    if let (Some(began), Some(ended)) =
        (threads.iter().map(|thread| thread.began).min(), threads.iter().map(|thread| thread.ended).max())
    {
        whole.elapsed = ended.duration_since(began);
    }
    for thread in threads {
        whole.stats.merge(&thread.stats);
        whole.recorder.merge(&thread.recorder);
        whole.generators.push(thread.generators);
    }
    Ok(whole)
}

/// Drives the clients of one thread.
fn drive_thread(
    tree: &RawTree,
    known: Known,
    limits: &Limits<'_>,
    mut generators: Vec<Generator>,
    quota: impl Fn(usize) -> u64,
) -> Result<OfThread, BenchError> {
    let failed = |error| BenchError::Operation { phase: limits.phase, error };
    let recorder = RefCell::new(Recorder::new()?);
    let began;
    let stats;
    if let [generator] = &mut generators[..] {
        let client = tree.client().map_err(failed)?;
        began = Instant::now();
        run_at_once(Driver::new(&client, limits, &recorder, generator, known).run(quota(0)))?;
        stats = client.stats();
    } else {
        let session = tree.session().map_err(failed)?;
        began = Instant::now();
        session.run(run_together(generators.iter_mut().enumerate().map(|(slot, generator)| {
            Driver::new(&session, limits, &recorder, generator, known).run(quota(slot))
        })))?;
        stats = session.stats();
    }
    Ok(OfThread { stats, recorder: recorder.into_inner(), began, ended: Instant::now(), generators })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::HotKeys;
    use crate::options::Load;
    use crate::variant::Variant;
    use crate::workload::Workload;

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
    fn every_variant_does_every_workload_and_leaves_a_sound_tree() {
        for variant in Variant::ALL {
            for workload in Workload::ALL {
                let report =
                    run(&BenchOptions { variant, workload, length: Length::Operations(6_000), ..small() })
                        .expect("a run");
                assert_eq!(report.operations, 6_000, "{variant:?} {workload:?}");
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
