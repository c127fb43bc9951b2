//! Checking a tree: a cluster's, as it is; or, since an `embedded:` cluster is private to its process and begins empty, one that is
//! made for the purpose, checked over and over while writers work on it, and once more when they have stopped.
//!
//! What a check verifies is said by [`sherman::Check`] and `docs/INVARIANTS.md`. Of a tree that was made here it is also known
//! how many entries it must have: those loaded, and what the writers' answers say they made and removed.

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

/// The tree that is made where none is named.
const NAME: &str = "check";
/// How full loading leaves the nodes, in percent.
const FILL: u32 = 80;
/// Bytes of the keys and of the values that are loaded.
const SIZES: (usize, usize) = (8, 8);

/// What to check. What is about making a tree must be `None` where there are trees already.
#[derive(Clone, Debug, Default)]
pub struct CheckOptions {
    /// The cluster; by default an embedded one with memory for the keys.
    pub cluster: Option<String>,
    /// The tree.
    pub tree: Option<String>,
    /// Keys to load; 100,000 by default.
    pub keys: Option<u64>,
    /// How long to check while writers work; 2 by default, 0 for not at all.
    pub seconds: Option<f64>,
    /// Writers; as many as cores by default.
    pub threads: Option<usize>,
    /// The format of nodes.
    pub format: Option<Format>,
    /// Bytes of a node.
    pub node_size: Option<usize>,
    /// Decides what writers do.
    pub seed: Option<u64>,
}

/// How far a check is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CheckProgress {
    /// So many keys of how many are loaded.
    Loading(u64, u64),
    /// Checking while so many writers work, for so long now of how long, so many times.
    WhileWriting(usize, Duration, Duration, u64),
    /// Checking what nobody here writes to.
    AtRest,
}

impl CheckOptions {
    /// Whether the cluster begins empty, so that there must be something made to check.
    pub fn makes_its_own(&self) -> bool {
        self.cluster.as_ref().is_none_or(|url| url.split(':').next() == Some("embedded"))
    }

    /// Whether the whole of a cluster is to be checked: it has trees already, and none of them is named.
    pub fn is_audit(&self) -> bool {
        !self.makes_its_own() && self.tree.is_none()
    }

    /// An option that makes no sense where trees are there already.
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

/// Checks what the options say. `progress` is called now and then, on the calling thread.
///
/// # Errors
/// [`BenchError::bad_option`] tells options that cannot be met, [`BenchError::is_wrong_answer`] a tree that answered its writers
/// wrongly, from checks that failed. What is wrong with the tree itself is in the report.
pub fn run(options: &CheckOptions, progress: &dyn Fn(CheckProgress)) -> Result<CheckReport, BenchError> {
    if options.makes_its_own() {
        return made(options, progress);
    }
    let (url, cluster) = open(options)?;
    existing(&cluster, url, options.tree.as_deref(), progress)
}

/// Checks the whole of the cluster that the options name.
///
/// # Errors
/// As [`run`].
pub fn audit(options: &CheckOptions, progress: &dyn Fn(CheckProgress)) -> Result<AuditReport, BenchError> {
    let (url, cluster) = open(options)?;
    whole(&cluster, url, progress)
}

/// Opens a cluster that has trees already.
fn open(options: &CheckOptions) -> Result<(&str, Cluster), BenchError> {
    if let Some(option) = options.out_of_place() {
        let reason =
            "this is for clusters in this process, which begin empty; a tree that is there is checked as it is";
        return Err(BenchError::option(option, reason));
    }
    let url = options.cluster.as_deref().unwrap_or_default();
    Ok((url, Cluster::open(url).map_err(BenchError::Open)?))
}

/// Checks a tree of `cluster`, named `url` in the report, as it is. If the cluster has one tree only, it need not be named.
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
        let has = if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
        return Err(match name {
            Some(name) => BenchError::NoTree(format!("the cluster has no tree {name:?}; {has}")),
            None => BenchError::option("tree", format!("which one? {has}")),
        });
    };
    progress(CheckProgress::AtRest);
    let check = check(&cluster.open_raw_tree(&named.name).map_err(BenchError::Create)?)?;
    let description = cluster.describe(&named.name).map_err(BenchError::Create)?;
    Ok(CheckReport::new(url, &description, &check, None))
}

/// Checks every tree of `cluster`, named `url` in the report, and its lanes, redo records and places for nodes.
///
/// # Errors
/// If something could not be read. What is wrong with the cluster is in the report.
pub fn whole(cluster: &Cluster, url: &str, progress: &dyn Fn(CheckProgress)) -> Result<AuditReport, BenchError> {
    progress(CheckProgress::AtRest);
    let audit = cluster.audit().map_err(|error| BenchError::Operation { phase: "checking", error })?;
    AuditReport::new(url, &audit).map_err(|error| BenchError::Operation { phase: "checking", error })
}

/// Checks once. What no check should meet is among what is broken.
fn check(tree: &RawTree) -> Result<Check, BenchError> {
    match tree.check() {
        Ok(check) => Ok(check),
        Err(Error::Corrupt { address, invariant }) => {
            let detail = "an operation met it".to_owned();
            let broken = vec![Broken { address, level: 0, invariant, from: None, to: None, detail }];
            Ok(Check { broken, broken_count: 1, ..Check::default() })
        }
        Err(error) => Err(BenchError::Operation { phase: "checking", error }),
    }
}

/// A tree to be made, and what is to happen to it.
struct Plan {
    url: String,
    name: String,
    tree: TreeOptions,
    /// Twice as many as are loaded.
    universe: Keys,
    threads: usize,
    seconds: f64,
    seed: u64,
}

fn plan(options: &CheckOptions) -> Result<Plan, BenchError> {
    let threads = options.threads.unwrap_or_else(cores);
    if !(1..=MAX_THREADS).contains(&threads) {
        return Err(BenchError::option("threads", format!("{threads} is not from 1 to {MAX_THREADS}")));
    }
    let seconds = options.seconds.unwrap_or(2.0);
    if !(0.0..=MAX_SECONDS).contains(&seconds) {
        return Err(BenchError::option("seconds", format!("{seconds} is not from 0 to {MAX_SECONDS}")));
    }
    let keys = options.keys.unwrap_or(100_000);
    let universe = Keys::new(keys.saturating_mul(2), SIZES.0, HotKeys::Clustered);
    let universe = universe.map_err(|error| BenchError::option("keys", error))?;
    let format = options.format.unwrap_or(Format::LineStamped);
    let node_size = options.node_size.unwrap_or(1024);
    let tree = TreeOptions::new().format(format).node_bytes(node_size).sizes(SIZES.0, SIZES.1);
    let bytes = halves_bytes(&tree, universe.count(), node_size);
    let bytes = bytes.map_err(|error| BenchError::option("node-size", error))?;
    let url = options.cluster.clone().unwrap_or_else(|| memory_for(bytes));
    Ok(Plan {
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

/// Loads every other key of the universe in bulk; how many.
fn load(tree: &RawTree, plan: &Plan, progress: &dyn Fn(CheckProgress)) -> Result<u64, BenchError> {
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

/// Checks over and over while writers work. The first check that is not clean ends it, and is returned.
fn check_while_writing(
    tree: &RawTree,
    plan: &Plan,
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
        churn(tree, &plan.universe, SIZES.1, plan.seed.wrapping_mul(1 << 16).wrapping_add(thread as u64), &stop)
    });
    made.checks_while_writing = checks;
    // A tree that is broken may well answer wrongly: what is broken says more.
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
                assert!(made.checks_while_writing > 0 && made.at_rest && made.writers.removes > 0, "{report}");
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
        assert_eq!(refused(None), (Some("tree"), "which one? it has none".to_owned()));
        let orders = cluster.tree::<u64, u64>("orders").expect("a tree");
        orders.client().expect("a client").insert(1, 2).expect("an insert");
        assert_eq!(existing(None).expect("the only one").tree, "orders");
        cluster.tree::<u64, u64>("users").expect("a tree");
        assert_eq!(refused(None).1, "which one? it has orders, users");
        assert_eq!(refused(Some("cats")).1, "the cluster has no tree \"cats\"; it has orders, users");
        let report = existing(Some("orders")).expect("a check");
        assert_eq!((report.entries, report.height, report.made.is_none(), report.clean), (1, 1, true, true));
    }

    #[test]
    fn what_is_for_making_a_tree_is_refused_where_there_are_trees() {
        let cluster = Some("unix:/no/such/place".to_owned());
        let error = run(&CheckOptions { cluster: cluster.clone(), ..small() }, &|_| ()).expect_err("out of place");
        assert_eq!(error.bad_option(), Some("keys"));
        assert!(error.to_string().contains("checked as it is"), "{error}");
        let error = run(&CheckOptions { cluster, ..CheckOptions::default() }, &|_| ()).expect_err("nobody is there");
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
