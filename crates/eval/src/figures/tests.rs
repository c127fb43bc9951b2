//! Tests that every figure draws from the same experiments with results and without, and that every judged
//! number of the paper has exactly one claim.

use super::{Claim, Figure, Outcomes, Scale, all};
use crate::experiment::{Job, LockKind, Measured, Quantiles};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// The numbers by which the model is judged.
const JUDGED: [&str; 39] = [
    "ablation_write_intensive_skew.throughput_step.+combine",
    "ablation_write_intensive_skew.throughput_step.+on-chip",
    "ablation_write_intensive_skew.throughput_step.+hierarchical",
    "ablation_write_intensive_skew.throughput_step.+2-level-ver",
    "sherman_over_fg_plus.skew_write_only.throughput",
    "sherman_over_fg_plus.skew_write_only.p50_down",
    "sherman_over_fg_plus.skew_write_only.p99_down",
    "sherman_over_fg_plus.skew_write_intensive.throughput",
    "sherman_over_fg_plus.skew_write_intensive.p50_down",
    "sherman_over_fg_plus.skew_write_intensive.p99_down",
    "sherman_over_fg_plus.skew_read_intensive.p99_us_fg_plus/p99_us_with_combine",
    "sherman_over_fg_plus.uniform_write_only.throughput",
    "sherman_over_fg_plus.uniform_write_only.p50_down",
    "sherman_over_fg_plus.uniform_write_only.p99_down",
    "sherman_over_fg_plus.uniform_write_intensive.throughput",
    "sherman_over_fg_plus.uniform_write_intensive.p50_down",
    "sherman_over_fg_plus.uniform_write_intensive.p99_down",
    "range.range_only_100_fg_plus_over_sherman",
    "range.range_only_1000_ratio",
    "range.range_write_sherman_over_fg_plus_max",
    "scalability_write_intensive.uniform.sherman_mops",
    "scalability_write_intensive.uniform.over_fg_plus",
    "scalability_write_intensive.zipf_0.90.sherman_peak_mops",
    "scalability_write_intensive.zipf_0.90.over_fg_plus_peak",
    "scalability_write_intensive.zipf_0.99.sherman_peak_mops",
    "scalability_write_intensive.zipf_0.99.over_fg_plus_peak",
    "sensitivity.key_size_uniform.sherman_over_fg_plus_at_16B",
    "sensitivity.key_size_uniform.sherman_over_fg_plus_at_1KB",
    "sensitivity.key_size_skew.sherman_over_fg_plus_at_1KB",
    "sensitivity.index_cache.hit_ratio",
    "hocl_micro.on_chip.throughput",
    "hocl_micro.on_chip.p50_down",
    "hocl_micro.on_chip.p99_down",
    "hocl_micro.hierarchical.throughput",
    "hocl_micro.hierarchical.p50_down",
    "hocl_micro.hierarchical.p99_down",
    "hocl_micro.wait_queue.p99_us_before/p99_us_after",
    "hocl_micro.handover.throughput",
    "hocl_micro.handover.p99_down",
];

/// Made-up results of the planned jobs. They record which jobs a figure uses.
struct Made {
    planned: BTreeMap<String, Vec<Measured>>,
    asked: RefCell<BTreeSet<String>>,
}

fn text(job: &Job) -> String {
    serde_json::to_string(job).expect("a job as text")
}

impl Made {
    fn new(jobs: &[Job], make: impl Fn(&Job) -> Measured) -> Self {
        let planned = jobs.iter().map(|job| (text(job), vec![make(job); 3])).collect();
        Self { planned, asked: RefCell::default() }
    }
}

impl Outcomes for Made {
    fn of(&self, job: &Job) -> &[Measured] {
        self.asked.borrow_mut().insert(text(job));
        self.planned.get(&text(job)).unwrap_or_else(|| panic!("{job:?} was not planned"))
    }
}

fn measured(mops: f64, latency: f64) -> Measured {
    let all = Quantiles { p50: latency, p90: latency, p99: latency, p999: latency };
    let histogram = vec![(1, 1), (3, 2), (17, 1)];
    Measured {
        mops,
        range_mops: mops,
        all,
        writes: all,
        write_round_trips: histogram.clone(),
        write_bytes: histogram.clone(),
        read_retries: histogram,
        splits: 1.0,
        hit_ratio: 1.0,
        ..Measured::default()
    }
}

fn drawn(scale: &Scale, make: impl Fn(&Job) -> Measured) -> Vec<Figure> {
    let draw = |source: &super::Source| {
        let outcomes = Made::new(&source.jobs(scale), &make);
        let figure = source.figure(scale, &outcomes);
        let planned: BTreeSet<_> = outcomes.planned.keys().cloned().collect();
        assert_eq!(outcomes.asked.into_inner(), planned, "{}: asked for all that was planned", source.name);
        figure
    };
    all().iter().map(draw).collect()
}

fn claims(figures: &[Figure]) -> Vec<&Claim> {
    figures.iter().flat_map(|figure| &figure.claims).collect()
}

#[test]
fn every_figure_draws_from_exactly_what_it_planned() {
    for scale in [Scale::quick(7), Scale::full(7)] {
        for figure in drawn(&scale, |_| measured(1.0, 1.0)) {
            assert!(!figure.panels.is_empty() || !figure.tables.is_empty(), "{} shows nothing", figure.name);
            assert!(
                !figure.paper.is_empty() && figure.about.len() > 80,
                "{} does not say what it is",
                figure.name
            );
            assert!(!figure.about.contains("  "), "{}: {}", figure.name, figure.about);
            for panel in &figure.panels {
                assert!(!panel.series.is_empty(), "{}: {} is empty", figure.name, panel.title);
                let names: BTreeSet<_> = panel.series.iter().map(|series| &series.name).collect();
                assert_eq!(
                    names.len(),
                    panel.series.len(),
                    "{}: {}: two series of a name",
                    figure.name,
                    panel.title
                );
                for point in panel.series.iter().flat_map(|series| &series.points) {
                    let numbers = [point.x, point.y, point.least, point.most];
                    assert!(numbers.iter().all(|number| number.is_finite()), "{}: {point:?}", figure.name);
                    let groups = panel.x.categories.len();
                    assert!(
                        groups == 0 || point.x < groups as f64,
                        "{}: {point:?} has no group",
                        figure.name
                    );
                    assert!(
                        !panel.y.log || point.y > 0.0,
                        "{}: {point:?} on a logarithmic axis",
                        figure.name
                    );
                }
            }
            for table in &figure.tables {
                assert!(!table.rows.is_empty(), "{}: {} is empty", figure.name, table.title);
                assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{}", figure.name);
            }
        }
    }
}

#[test]
fn jobs_have_the_seed_and_the_length_of_the_scale() {
    let scale = Scale::quick(7);
    for source in all() {
        for job in source.jobs(&scale) {
            // The sensitivity figure has many experiments, so each has fewer operations. So do experiments
            // with nodes of 36 KB.
            let long_keys = matches!(&job, Job::Tree(job) if job.key_size > 256);
            let part = if source.name == "sensitivity" || long_keys { 4 } else { 1 };
            assert_eq!(job, job.clone().with_seed(7), "{}", source.name);
            assert_eq!(job.operations(), scale.operations / part, "{}", source.name);
        }
    }
}

#[test]
fn names_are_unique_and_fit_for_files() {
    let names: BTreeSet<_> = all().iter().map(|source| source.name).collect();
    assert_eq!(names.len(), 18);
    assert_eq!(names.len(), all().len());
    assert!(
        names
            .iter()
            .all(|name| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'))
    );
}

#[test]
fn every_number_by_which_the_model_is_judged_is_claimed_once() {
    let figures = drawn(&Scale::quick(7), |_| measured(1.0, 1.0));
    let claims = claims(&figures);
    let keys: BTreeSet<_> = claims.iter().map(|claim| claim.key.as_str()).collect();
    assert_eq!(keys.len(), claims.len(), "a key is claimed twice");
    let judged: BTreeSet<_> =
        claims.iter().filter(|claim| claim.judged).map(|claim| claim.key.as_str()).collect();
    assert_eq!(judged, BTreeSet::from(JUDGED));
    assert!(claims.iter().all(|claim| claim.paper > 0.0 && !claim.what.is_empty()));
}

/// Each step doubles throughput and halves latency, so that an inverted ratio, or one of the wrong steps, is
/// noticed.
#[test]
fn ratios_are_of_the_right_steps_and_the_right_way_up() {
    let better = |job: &Job| {
        let rank = match job {
            Job::Tree(job) => job.variant as i32,
            Job::Locks(job) => match job.kind {
                LockKind::HostFaa => 0,
                LockKind::Host => 1,
                LockKind::OnChip => 2,
                LockKind::Hierarchical => 3,
                LockKind::Queue => 4,
                LockKind::Handover => 5,
            },
            Job::Writes(_) => 0,
        };
        let times = f64::from(1 << rank);
        measured(times, 1024.0 / times)
    };
    let figures = drawn(&Scale::quick(7), better);
    for claim in claims(&figures).into_iter().filter(|claim| claim.judged) {
        let key = claim.key.as_str();
        let expected = match key {
            "sherman_over_fg_plus.skew_read_intensive.p99_us_fg_plus/p99_us_with_combine" => 2.0,
            _ if key.contains("throughput_step") || key.starts_with("hocl_micro") => 2.0,
            _ if key.starts_with("range.range_only") => 1.0 / 16.0,
            _ if key.ends_with("mops") => 64.0,
            "sensitivity.index_cache.hit_ratio" => 1.0,
            _ => 16.0,
        };
        assert_eq!(claim.measured, expected, "{key}");
    }
}

#[test]
fn peaks_are_over_all_numbers_of_clients_and_the_collapse_is_reported() {
    let falling = |job: &Job| match job {
        Job::Tree(job) => measured(6600.0 / f64::from(job.threads * job.coroutines), 1.0),
        _ => measured(1.0, 1.0),
    };
    let figures = drawn(&Scale::quick(7), falling);
    let measured =
        |key: &str| claims(&figures).into_iter().find(|claim| claim.key == key).map(|claim| claim.measured);
    let key = |name: &str| format!("scalability_write_intensive.{name}");
    assert_eq!(measured(&key("zipf_0.99.sherman_peak_mops")), Some(3300.0));
    assert_eq!(measured(&key("uniform.sherman_mops")), Some(100.0));
    assert_eq!(measured(&key("zipf_0.99.fg_plus_collapses_with_more_clients")), Some(1.0));
}
