//! Checks a tree. A tree of an existing cluster is checked as it is. An `embedded:` cluster is private to its
//! process and begins empty, so the check creates a tree there. It checks that tree repeatedly while writers
//! change it, and once more after they stop.
//!
//! [`sherman::Check`] and `docs/INVARIANTS.md` define what a check verifies. For a tree created here, the
//! check also knows the correct number of entries. It is the number loaded, plus the inserts and minus the
//! removes that the writers' answers confirm.

use crate::churn::churn;
use crate::error::BenchError;
use crate::keys::{HotKeys, Keys};
use crate::options::{MAX_SECONDS, MAX_THREADS, cores, halves_bytes, memory_for, seconds};
use crate::threads::on_threads;
use crate::variant::Variant;
use sherman::{Broken, BulkOptions, Check, Cluster, Error, Format, RawTree, TreeOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use crate::audit_report::{AuditReport, FindingReport};
pub use crate::check_report::{BrokenReport, CheckReport, LevelReport, Made};
pub use crate::churn::Churn;

/// The default name of the created tree.
const NAME: &str = "check";
/// The fill of nodes after loading, in percent.
const FILL: u32 = 80;
/// Bytes of a loaded key and of a loaded value.
const SIZES: (usize, usize) = (8, 8);

/// The parameters of a check. Options about creating a tree must be `None` for a cluster that already has
/// trees.
#[derive(Clone, Debug, Default)]
pub struct CheckOptions {
    /// The cluster; by default an embedded one with memory for the keys.
    pub cluster: Option<String>,
    /// The tree.
    pub tree: Option<String>,
    /// Keys to load; 100,000 by default.
    pub keys: Option<u64>,
    /// How many seconds to check while writers work: 2 by default, 0 skips it.
    pub seconds: Option<f64>,
    /// The number of writers; by default one per core.
    pub threads: Option<usize>,
    /// The format of nodes.
    pub format: Option<Format>,
    /// Bytes of a node.
    pub node_size: Option<usize>,
    /// The seed for the actions of writers.
    pub seed: Option<u64>,
}

/// The progress of a check.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CheckProgress {
    /// The number of keys loaded, of how many.
    Loading(u64, u64),
    /// Checking while writers work: the number of writers, the elapsed time, the whole time, and the number
    /// of checks.
    WhileWriting(usize, Duration, Duration, u64),
    /// Checking while no writer of this process works.
    AtRest,
}

impl CheckOptions {
    /// Returns whether the cluster begins empty, so that the check must create a tree.
    pub fn makes_its_own(&self) -> bool {
        self.cluster.as_ref().is_none_or(|url| url.split(':').next() == Some("embedded"))
    }

    /// Returns whether to check the whole cluster: it already has trees, and the options name none.
    pub fn is_audit(&self) -> bool {
        !self.makes_its_own() && self.tree.is_none()
    }

    /// Returns an option that is invalid for a cluster with existing trees.
    fn out_of_place(&self) -> Option<&'static str> {
        [
            ("keys", self.keys.is_some()),
            ("seconds", self.seconds.is_some()),
            ("threads", self.threads.is_some()),
            ("format", self.format.is_some()),
            ("node-size", self.node_size.is_some()),
            ("seed", self.seed.is_some()),
        ]
        .into_iter()
        .find_map(|(option, given)| given.then_some(option))
    }
}

/// Runs the check. Calls `progress` at intervals, on the calling thread.
///
/// # Errors
/// [`BenchError::bad_option`] is for options that cannot be met. [`BenchError::is_wrong_answer`] is for a
/// tree that answered its writers wrongly. Other errors are checks that failed. The report lists the faults
/// of the tree itself.
pub fn run(options: &CheckOptions, progress: &dyn Fn(CheckProgress)) -> Result<CheckReport, BenchError> {
    if options.makes_its_own() {
        return made(options, progress);
    }
    let (url, cluster) = open(options)?;
    existing(&cluster, url, options.tree.as_deref(), progress)
}

/// Checks the whole cluster that the options name.
///
/// # Errors
/// As [`run`].
pub fn audit(options: &CheckOptions, progress: &dyn Fn(CheckProgress)) -> Result<AuditReport, BenchError> {
    let (url, cluster) = open(options)?;
    whole(&cluster, url, progress)
}

/// Opens a cluster that already has trees.
fn open(options: &CheckOptions) -> Result<(&str, Cluster), BenchError> {
    if let Some(option) = options.out_of_place() {
        let reason = "this option is for clusters in this process, which begin empty. An existing tree is \
                      checked as it is";
        return Err(BenchError::option(option, reason));
    }
    let url = options.cluster.as_deref().unwrap_or_default();
    Ok((url, Cluster::open(url).map_err(BenchError::Open)?))
}

/// Checks a tree of `cluster` as it is. `url` is the cluster's name in the report. The tree needs no name if
/// it is the only one.
pub fn existing(
    cluster: &Cluster,
    url: &str,
    name: Option<&str>,
    progress: &dyn Fn(CheckProgress),
) -> Result<CheckReport, BenchError> {
    let trees = cluster.trees().map_err(BenchError::Create)?;
    let named = match (name, &trees[..]) {
        (Some(name), _) => trees.iter().find(|tree| tree.name == name),
        (None, [only]) => Some(only),
        (None, _) => None,
    };
    let Some(named) = named else {
        let names: Vec<&str> = trees.iter().map(|tree| tree.name.as_str()).collect();
        let has = if names.is_empty() {
            "the cluster has no trees".to_owned()
        } else {
            format!("the cluster has {}", names.join(", "))
        };
        return Err(match name {
            Some(name) => BenchError::NoTree(format!("there is no tree named {name:?}; {has}")),
            None => BenchError::option("tree", format!("name the tree; {has}")),
        });
    };
    progress(CheckProgress::AtRest);
    let check = check(&cluster.open_raw_tree(&named.name).map_err(BenchError::Create)?)?;
    let description = cluster.describe(&named.name).map_err(BenchError::Create)?;
    Ok(CheckReport::new(url, &description, &check, None))
}

/// Checks every tree of `cluster`, and its lanes, redo records and places for nodes. `url` is the cluster's
/// name in the report.
///
/// # Errors
/// If something could not be read. The report lists the faults of the cluster.
pub fn whole(
    cluster: &Cluster,
    url: &str,
    progress: &dyn Fn(CheckProgress),
) -> Result<AuditReport, BenchError> {
    progress(CheckProgress::AtRest);
    let audit = cluster.audit().map_err(|error| BenchError::Operation { phase: "checking", error })?;
    AuditReport::new(url, &audit).map_err(|error| BenchError::Operation { phase: "checking", error })
}

/// Checks once. An operation that meets corruption counts as a broken invariant.
fn check(tree: &RawTree) -> Result<Check, BenchError> {
    match tree.check() {
        Ok(check) => Ok(check),
        Err(Error::Corrupt { address, invariant }) => {
            let detail = "an operation found the damage".to_owned();
            let broken = vec![Broken { address, level: 0, invariant, from: None, to: None, detail }];
            Ok(Check { broken, broken_count: 1, ..Check::default() })
        }
        Err(error) => Err(BenchError::Operation { phase: "checking", error }),
    }
}

/// A tree to create, and the work to do on it.
struct CheckPlan {
    url: String,
    name: String,
    tree: TreeOptions,
    /// Twice as many keys as are loaded.
    universe: Keys,
    threads: usize,
    seconds: f64,
    seed: u64,
}

fn plan(options: &CheckOptions) -> Result<CheckPlan, BenchError> {
    let threads = options.threads.unwrap_or_else(cores);
    if !(1..=MAX_THREADS).contains(&threads) {
        return Err(BenchError::option(
            "threads",
            format!("write a number from 1 to {MAX_THREADS}, not {threads}"),
        ));
    }
    let seconds = options.seconds.unwrap_or(2.0);
    if !(0.0..=MAX_SECONDS).contains(&seconds) {
        return Err(BenchError::option(
            "seconds",
            format!("write a number from 0 to {MAX_SECONDS}, not {seconds}"),
        ));
    }
    let keys = options.keys.unwrap_or(100_000);
    let universe = Keys::new(keys.saturating_mul(2), SIZES.0, HotKeys::Clustered);
    let universe = universe.map_err(|error| BenchError::option("keys", error))?;
    let format = options.format.unwrap_or(Format::LineHashed);
    let node_size = options.node_size.unwrap_or(1024);
    let tree = TreeOptions::new().format(format).node_bytes(node_size).sizes(SIZES.0, SIZES.1);
    let bytes = halves_bytes(&tree, universe.count(), node_size);
    let bytes = bytes.map_err(|error| BenchError::option("node-size", error))?;
    let url = options.cluster.clone().unwrap_or_else(|| memory_for(bytes));
    Ok(CheckPlan {
        url: Variant::Ours.cluster_url(&url, format),
        name: options.tree.clone().unwrap_or_else(|| NAME.to_owned()),
        tree,
        universe,
        threads,
        seconds,
        seed: options.seed.unwrap_or(1),
    })
}

fn made(options: &CheckOptions, progress: &dyn Fn(CheckProgress)) -> Result<CheckReport, BenchError> {
    let plan = plan(options)?;
    let cluster = Cluster::open(&plan.url).map_err(BenchError::Open)?;
    let tree = cluster.raw_tree(&plan.name, &plan.tree).map_err(BenchError::Create)?;
    let keys = load(&tree, &plan, progress)?;
    let mut made = Made {
        keys,
        fill: FILL,
        threads: plan.threads,
        seconds: plan.seconds,
        seed: plan.seed,
        checks_while_writing: 0,
        writers: Churn::default(),
        at_rest: false,
        expected_entries: keys,
    };
    let mut found = None;
    if plan.seconds > 0.0 {
        found = check_while_writing(&tree, &plan, &mut made, progress)?;
        made.expected_entries = keys + made.writers.inserts - made.writers.removes;
    }
    let found = match found {
        Some(broken) => broken,
        None => {
            progress(CheckProgress::AtRest);
            made.at_rest = true;
            check(&tree)?
        }
    };
    let description = cluster.describe(&plan.name).map_err(BenchError::Create)?;
    Ok(CheckReport::new(&plan.url, &description, &found, Some(made)))
}

/// Loads every other key of the universe in bulk. Returns the number of keys.
fn load(tree: &RawTree, plan: &CheckPlan, progress: &dyn Fn(CheckProgress)) -> Result<u64, BenchError> {
    let total = plan.universe.count() / 2;
    let entries = (0..total).map(|nth| {
        if nth.is_multiple_of(1 << 14) {
            progress(CheckProgress::Loading(nth, total));
        }
        let (mut key, mut value) = ([0; SIZES.0], [0; SIZES.1]);
        plan.universe.write_key(2 * nth, &mut key);
        plan.universe.write_value(2 * nth, 0, &mut value);
        (key, value)
    });
    let bulk = BulkOptions::new().fill(f64::from(FILL) / 100.0).threads(plan.threads);
    let loaded = tree.bulk_load(entries, &bulk);
    loaded.map_err(|error| BenchError::Operation { phase: "loading", error })
}

/// Checks repeatedly while writers work. The first check that is not clean ends the loop and is returned.
fn check_while_writing(
    tree: &RawTree,
    plan: &CheckPlan,
    made: &mut Made,
    progress: &dyn Fn(CheckProgress),
) -> Result<Option<Check>, BenchError> {
    let stop = AtomicBool::new(false);
    let (began, length) = (Instant::now(), seconds(plan.seconds));
    let (mut checks, mut broken) = (0, None);
    let mut over_and_over = || {
        loop {
            progress(CheckProgress::WhileWriting(plan.threads, began.elapsed(), length, checks));
            let found = check(tree)?;
            checks += 1;
            if !found.is_clean() {
                broken = Some(found);
            }
            if broken.is_some() || began.elapsed() >= length || stop.load(Ordering::Relaxed) {
                stop.store(true, Ordering::Relaxed);
                return Ok(());
            }
        }
    };
    let writers = on_threads(vec![(); plan.threads], &stop, &mut over_and_over, |thread, ()| {
        churn(
            tree,
            &plan.universe,
            SIZES.1,
            plan.seed.wrapping_mul(1 << 16).wrapping_add(thread as u64),
            &stop,
        )
    });
    made.checks_while_writing = checks;
    // A broken tree may answer wrongly. The broken invariant is more informative than the wrong answer.
    match (writers, broken) {
        (Err(error), None) => Err(error),
        (writers, broken) => {
            writers.unwrap_or_default().iter().for_each(|did| made.writers.add(did));
            Ok(broken)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> CheckOptions {
        CheckOptions { keys: Some(20_000), seconds: Some(0.3), threads: Some(2), ..CheckOptions::default() }
    }

    #[test]
    fn trees_of_every_format_and_of_small_nodes_stay_sound_under_writers() {
        for format in Format::ALL {
            for node_size in [256, 1024] {
                let options = CheckOptions { format: Some(format), node_size: Some(node_size), ..small() };
                let report = run(&options, &|_| ()).expect("a check");
                assert!(report.clean, "{report}");
                let made = report.made.as_ref().expect("it was made");
                assert!(
                    made.checks_while_writing > 0 && made.at_rest && made.writers.removes > 0,
                    "{report}"
                );
                assert_eq!((report.format, report.entries), (format.name(), made.expected_entries));
            }
        }
    }

    #[test]
    fn without_seconds_a_loaded_tree_is_checked_at_rest_alone() {
        let report = run(&CheckOptions { seconds: Some(0.0), ..small() }, &|_| ()).expect("a check");
        let made = report.made.as_ref().expect("it was made");
        assert_eq!((report.entries, made.checks_while_writing, made.writers.operations()), (20_000, 0, 0));
        assert!((0.75..0.85).contains(&report.fill) && report.clean);
        assert_eq!(report.levels.iter().map(|level| level.bytes).sum::<u64>(), report.bytes);
    }

    #[test]
    fn a_tree_that_is_there_is_checked_as_it_is() {
        let cluster = Cluster::open("embedded:?memory=64MiB").expect("a cluster");
        let existing = |name| existing(&cluster, "somewhere", name, &|_| ());
        let refused = |name| {
            let error = existing(name).expect_err("no such tree");
            (error.bad_option(), error.to_string())
        };
        assert_eq!(refused(None), (Some("tree"), "name the tree; the cluster has no trees".to_owned()));
        let orders = cluster.tree::<u64, u64>("orders").expect("a tree");
        orders.client().expect("a client").insert(1, 2).expect("an insert");
        assert_eq!(existing(None).expect("the only one").tree, "orders");
        cluster.tree::<u64, u64>("users").expect("a tree");
        assert_eq!(refused(None).1, "name the tree; the cluster has orders, users");
        assert_eq!(refused(Some("cats")).1, "there is no tree named \"cats\"; the cluster has orders, users");
        let report = existing(Some("orders")).expect("a check");
        assert_eq!((report.entries, report.height, report.made.is_none(), report.clean), (1, 1, true, true));
    }

    #[test]
    fn what_is_for_making_a_tree_is_refused_where_there_are_trees() {
        let cluster = Some("unix:/no/such/place".to_owned());
        let error =
            run(&CheckOptions { cluster: cluster.clone(), ..small() }, &|_| ()).expect_err("out of place");
        assert_eq!(error.bad_option(), Some("keys"));
        assert!(error.to_string().contains("checked as it is"), "{error}");
        let error = run(&CheckOptions { cluster, ..CheckOptions::default() }, &|_| ())
            .expect_err("no server is there");
        assert!(error.bad_option().is_none() && error.to_string().contains("/no/such/place"), "{error}");
    }

    #[test]
    fn bad_options_are_named() {
        for (options, option) in [
            (CheckOptions { keys: Some(0), ..small() }, "keys"),
            (CheckOptions { threads: Some(0), ..small() }, "threads"),
            (CheckOptions { seconds: Some(-1.0), ..small() }, "seconds"),
            (CheckOptions { node_size: Some(100), ..small() }, "node-size"),
            (CheckOptions { cluster: Some("embedded:?memory=1MiB".to_owned()), ..small() }, "cluster"),
        ] {
            assert_eq!(run(&options, &|_| ()).expect_err("a bad option").bad_option(), Some(option));
        }
    }
}
