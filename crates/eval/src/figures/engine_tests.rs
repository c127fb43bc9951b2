//! Tests the engine with experiments that cost nothing.

use super::*;
use crate::experiment::{Direction, LockJob, LockKind, WriteJob};
use crate::figures::model::{Axis, Claim, Panel, PanelKind, Point, Series};
use crate::figures::output::Output;
use crate::figures::pick;
use sherman_sim::nic::Params;
use std::path::PathBuf;

/// A folder for one test, removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sherman-figures-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).expect("a folder");
        let mut files: Vec<_> =
            entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_file()).collect();
        files.sort();
        files
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn locks(scale: &Scale, locks: u32) -> Job {
    let (kind, params) = (LockKind::Host, Params::PAPER);
    let operations = scale.operations * u64::from(locks);
    Job::Locks(LockJob {
        kind,
        locks,
        zipf: 0.99,
        compute: 2,
        threads: 2,
        operations,
        seed: scale.seed,
        params,
    })
}

fn write(bytes: u32) -> Job {
    Job::Writes(WriteJob { bytes, direction: Direction::Inbound, operations: 10, params: Params::PAPER })
}

fn first_jobs(scale: &Scale) -> Vec<Job> {
    vec![locks(scale, 1), locks(scale, 2), locks(scale, 3), write(16)]
}

fn second_jobs(scale: &Scale) -> Vec<Job> {
    vec![locks(scale, 2), locks(scale, 4)]
}

fn draw_jobs(name: &'static str, jobs: &[Job], outcomes: &dyn Outcomes) -> Figure {
    let axis = |label: &str| Axis { label: label.to_owned(), log: false, categories: Vec::new() };
    let series = jobs.iter().enumerate().map(|(index, job)| {
        let runs = outcomes.of(job);
        let points =
            runs.iter().map(|run| Point { x: index as f64, y: run.mops, least: run.mops, most: run.mops });
        Series { name: format!("job {index}"), paper: false, points: points.collect() }
    });
    let series = series.collect();
    let panel = Panel { title: name.to_owned(), kind: PanelKind::Lines, x: axis("x"), y: axis("y"), series };
    let claim = Claim {
        key: name.to_owned(),
        what: String::new(),
        paper: 1.0,
        measured: 1.1,
        unit: "",
        judged: true,
    };
    Figure {
        name,
        title: name,
        paper: "",
        about: String::new(),
        panels: vec![panel],
        tables: vec![],
        claims: vec![claim],
    }
}

fn sources() -> Vec<Source> {
    vec![
        Source { name: "first", title: "First", draw: |s, o| draw_jobs("first", &first_jobs(s), o) },
        Source { name: "second", title: "Second", draw: |s, o| draw_jobs("second", &second_jobs(s), o) },
    ]
}

fn scale() -> Scale {
    Scale { quick: true, keys: 10, operations: 10, runs: 3, seed: 5 }
}

/// Returns a number unique to the experiment, with digits down to the last bit.
fn fake(job: &Job) -> Measured {
    let mops = match job {
        Job::Locks(job) => f64::from(job.locks) + 1.0 / (job.seed as f64 + 0.3),
        other => other.operations() as f64 / 3.0,
    };
    Measured { operations: job.operations(), mops, write_round_trips: vec![(2, 7)], ..Measured::default() }
}

/// Runs the sources. Returns the figures and the number of experiments run.
fn runs(threads: usize, cache: &Path) -> (Vec<Figure>, usize) {
    let calls = AtomicUsize::new(0);
    let runner = |job: &Job| {
        calls.fetch_add(1, Ordering::Relaxed);
        Ok(fake(job))
    };
    let figures = run(&sources(), &scale(), threads, cache, &runner, &|_| ()).expect("figures");
    (figures, calls.into_inner())
}

#[test]
fn each_experiment_runs_once_for_every_seed_and_threads_change_nothing() {
    let (one, many) = (Folder::new("one"), Folder::new("many"));
    let (figures, calls) = runs(1, &one.0);
    // Four lock jobs with three seeds, and a write job, which has none.
    assert_eq!(calls, 13);
    let seeds: Vec<f64> = figures[0].panels[0].series[0].points.iter().map(|point| point.y).collect();
    assert_eq!(seeds, [5.0, 6.0, 7.0].map(|seed| 1.0 + 1.0 / (seed + 0.3)));
    assert_eq!(figures[0].panels[0].series[3].points.len(), 3);
    assert_eq!(figures[0].panels[0].series[1], figures[1].panels[0].series[0].clone().renamed("job 1", 1.0));
    assert_eq!(runs(4, &many.0), (figures, 13));
}

impl Series {
    fn renamed(mut self, name: &str, x: f64) -> Self {
        self.name = name.to_owned();
        self.points.iter_mut().for_each(|point| point.x = x);
        self
    }
}

#[test]
fn a_run_that_was_stopped_goes_on_where_it_was() {
    let folder = Folder::new("stopped");
    let calls = AtomicUsize::new(0);
    let failing = |job: &Job| match calls.fetch_add(1, Ordering::Relaxed) {
        0..5 => Ok(fake(job)),
        _ => Err(BenchError::Thread("stopped".to_owned())),
    };
    let failed = run(&sources(), &scale(), 1, &folder.0, &failing, &|_| ());
    assert!(matches!(failed, Err(FiguresError::Experiment { .. })), "{failed:?}");
    assert_eq!((calls.into_inner(), folder.files().len()), (6, 5));
    let (figures, more) = runs(2, &folder.0);
    let (again, none) = runs(2, &folder.0);
    assert_eq!((more, none), (8, 0));
    let fresh = Folder::new("fresh");
    // Equal to the last bit, whether the result was kept or just measured.
    assert_eq!((&figures, &again), (&runs(1, &fresh.0).0, &figures));
}

#[test]
fn what_is_kept_but_broken_is_made_again() {
    let folder = Folder::new("broken");
    let (figures, _) = runs(1, &folder.0);
    let files = folder.files();
    let whole = std::fs::read_to_string(&files[0]).expect("a file");
    std::fs::write(&files[0], &whole[..whole.len() / 2]).expect("a file");
    std::fs::write(&files[1], b"\xff\x00").expect("a file");
    // A valid file, but of another experiment.
    std::fs::copy(&files[3], &files[2]).expect("a file");
    assert_eq!(runs(1, &folder.0), (figures, 3));
    assert_eq!(std::fs::read_to_string(&files[0]).expect("a file"), whole);
}

#[test]
fn the_first_failure_stops_the_others_and_names_its_experiment() {
    let folder = Folder::new("failure");
    let calls = AtomicUsize::new(0);
    let failing = |_: &Job| {
        calls.fetch_add(1, Ordering::Relaxed);
        Err(BenchError::Thread("out of order".to_owned()))
    };
    let error = run(&sources(), &scale(), 2, &folder.0, &failing, &|_| ()).expect_err("it fails");
    let said = error.to_string();
    assert!(said.contains("out of order") && said.contains("LockJob"), "{said}");
    assert!(calls.into_inner() <= 2 && error.bad_option().is_none());
    let panics =
        |_: &Job| -> Result<Measured, BenchError> { std::panic::resume_unwind(Box::new("so it is")) };
    let error = run(&sources(), &scale(), 2, &folder.0, &panics, &|_| ()).expect_err("it fails");
    assert!(error.to_string().contains("panicked: so it is"), "{error}");
}

#[test]
fn progress_ends_at_all_and_counts_what_was_kept() {
    let folder = Folder::new("progress");
    let told = Mutex::new(Vec::new());
    let tell = |progress| told.lock().expect("alive").push(progress);
    run(&sources(), &scale(), 2, &folder.0, &|job| Ok(fake(job)), &tell).expect("figures");
    let told = told.into_inner().expect("alive");
    assert!(told.windows(2).all(|pair| pair[0].done < pair[1].done));
    let (first, last) = (told[0], told[told.len() - 1]);
    assert_eq!((first.done, first.experiments, first.left), (0, 0, None));
    assert_eq!((last.done, last.experiments, last.left), (last.total, last.of, Some(Duration::ZERO)));
    assert_eq!((last.total, last.of), (3 * 10 * (1 + 2 + 3 + 4) + 10, 13));
    let again = Mutex::new(Vec::new());
    run(&sources(), &scale(), 2, &folder.0, &|job| Ok(fake(job)), &|now| {
        again.lock().expect("alive").push(now)
    })
    .expect("figures");
    assert_eq!(again.into_inner().expect("alive"), [Progress { left: None, ..last }]);
}

#[test]
fn an_unknown_figure_is_refused_with_a_list_of_all_figures() {
    let error = pick(sources(), &["third".to_owned()]).expect_err("unknown");
    assert_eq!(error.to_string(), "there is no figure \"third\"; available are first, second");
    assert_eq!(error.bad_option(), Some("only"));
    let picked = pick(sources(), &["second".to_owned()]).expect("known");
    assert_eq!(picked.iter().map(|source| source.name).collect::<Vec<_>>(), ["second"]);
    assert_eq!(pick(sources(), &[]).expect("all").len(), 2);
}

#[test]
fn everything_is_written_the_same_each_time() {
    let (one, other) = (Folder::new("written"), Folder::new("written-again"));
    for folder in [&one, &other] {
        let output = Output::open(&folder.0.join("deep/er")).expect("a folder");
        let (figures, _) = runs(2, &output.kept());
        output.write(&scale(), &figures).expect("files");
    }
    let read =
        |folder: &Folder, name: &str| std::fs::read(folder.0.join("deep/er").join(name)).expect("a file");
    for name in ["results.json", "claims.md", "first.svg", "second.svg", "index.html"] {
        assert!(read(&one, name) == read(&other, name) && !read(&one, name).is_empty(), "{name}");
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_refused_before_any_run() {
    let folder = Folder::new("unwritable");
    let file = folder.0.join("file");
    std::fs::write(&file, "").expect("a file");
    for place in [file.clone(), file.join("below")] {
        let error = Output::open(&place).expect_err("a file is no folder");
        assert!(error.to_string().ends_with("file is a file"), "{error}");
        assert_eq!(error.bad_option(), Some("out"));
    }
}
