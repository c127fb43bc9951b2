//! A loaded tree that several measurements use, one after the other.
//!
//! Loading takes longer than most measurements. Measurements that insert new keys change the tree, so a
//! caller that compares them removes these keys in between: [`Loaded::remove_new`]. Each measurement inserts
//! keys that no earlier one had.

use super::Progress;
use super::phase::phase;
use crate::drive::Known;
use crate::error::BenchError;
use crate::keys::Keys;
use crate::load::load;
use crate::options::{BenchOptions, BenchPlan, Length};
use crate::report::{Measured, Report};
use crate::threads::on_threads;
use crate::workload::{Generator, Workload};
use sherman::{Cluster, ClusterOptions, Error, RawClient, RawTree, ServerUsage, Standing};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a run waits until the memory of departed members is taken over.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many keys one call removes.
const REMOVED_AT_ONCE: usize = 4096;

/// What clients do in one measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// The mix.
    pub workload: Workload,
    /// The skew; 0 is uniform.
    pub zipf: f64,
    /// Operating system threads.
    pub threads: usize,
    /// Operations in flight on each thread.
    pub coroutines: usize,
    /// Operations in each call of a client ([`BenchOptions::batch`]).
    pub batch: usize,
    /// How long to measure.
    pub length: Length,
    /// The seed for the actions of clients.
    pub seed: u64,
}

impl Measurement {
    /// Returns the measurement that the options of a run describe.
    pub fn of(options: &BenchOptions) -> Self {
        let &BenchOptions { workload, zipf, threads, coroutines, batch, length, seed, .. } = options;
        Self { workload, zipf, threads, coroutines, batch, length, seed }
    }
}

/// The new keys of one measurement. Client `c` of `n` inserted its keys from `first + c` on, `n` apart.
#[derive(Debug)]
struct NewKeys {
    first: u64,
    /// How many each client inserted.
    counts: Vec<u64>,
}

impl NewKeys {
    fn indexes(&self) -> impl Iterator<Item = u64> {
        let clients = self.counts.len() as u64;
        let of = move |(client, &count): (usize, &u64)| {
            let first = self.first + client as u64;
            (0..count).map(move |nth| first + nth * clients)
        };
        self.counts.iter().enumerate().flat_map(of)
    }

    /// Returns an index above all of these.
    fn end(&self) -> u64 {
        let most = self.counts.iter().copied().max().unwrap_or(0);
        self.first.saturating_add(most.saturating_mul(self.counts.len() as u64))
    }
}

/// A tree with all keys of a run.
#[derive(Debug)]
pub struct Loaded {
    options: BenchOptions,
    url: String,
    cluster: Cluster,
    tree: RawTree,
    name: String,
    keys: Keys,
    loading: Duration,
    /// No key from this index on was ever inserted.
    first_new: u64,
    new: Vec<NewKeys>,
    entries: u64,
}

impl Loaded {
    /// Opens the cluster of `options` and loads a new tree there.
    ///
    /// # Errors
    /// [`BenchError::bad_option`] distinguishes options that cannot be met from a load that failed.
    pub fn new(options: &BenchOptions, progress: &dyn Fn(Progress)) -> Result<Self, BenchError> {
        let plan = options.plan()?;
        let cluster = Cluster::open_with(&plan.url, of_variant(options)).map_err(BenchError::Open)?;
        let is_private = is_private(&plan.url);
        check_room(&cluster, &plan, is_private)?;
        if !is_private {
            take_over(&cluster)?;
        }
        Self::load(options, plan, cluster, progress)
    }

    /// Loads a second tree into the same cluster, by a compute server of its own. So the tree may have
    /// another variant. `options.cluster` is ignored.
    ///
    /// # Errors
    /// As [`Loaded::new`].
    pub fn beside(&self, options: &BenchOptions, progress: &dyn Fn(Progress)) -> Result<Self, BenchError> {
        let plan = BenchOptions { cluster: Some(self.url.clone()), ..options.clone() }.plan()?;
        let cluster = self.cluster.join_with(of_variant(options)).map_err(BenchError::Open)?;
        check_room(&cluster, &plan, false)?;
        Self::load(options, plan, cluster, progress)
    }

    fn load(
        options: &BenchOptions,
        plan: BenchPlan,
        cluster: Cluster,
        progress: &dyn Fn(Progress),
    ) -> Result<Self, BenchError> {
        let name = own_name();
        let (tree, created) = cluster.raw_tree_or_new(&name, &plan.tree).map_err(BenchError::Create)?;
        if !created {
            return Err(BenchError::NotOurs { tree: name });
        }
        let began = Instant::now();
        let outcome =
            load(&tree, &plan.keys, options, &|done| progress(Progress::Loading(done, options.keys)));
        let loaded = Self {
            options: options.clone(),
            url: plan.url,
            cluster,
            tree,
            name,
            keys: plan.keys,
            loading: began.elapsed(),
            first_new: options.keys,
            new: Vec::new(),
            entries: options.keys,
        };
        match outcome {
            Ok(()) => Ok(loaded),
            Err(error) => loaded.close_after(Err(error)),
        }
    }

    /// Warms up and measures.
    ///
    /// # Errors
    /// [`BenchError::bad_option`] distinguishes a measurement that is not possible from one that failed.
    /// After one that failed, the tree may have keys that [`Loaded::remove_new`] does not know.
    pub fn measure(
        &mut self,
        measurement: &Measurement,
        progress: &dyn Fn(Progress),
    ) -> Result<Report, BenchError> {
        let &Measurement { workload, zipf, threads, coroutines, batch, length, seed } = measurement;
        let options =
            BenchOptions { workload, zipf, threads, coroutines, batch, length, seed, ..self.options.clone() };
        let plan = options.plan()?;
        let known = Known { value_size: options.value_size, last: plan.last };
        let generators = generators(&options, &plan, self.first_new);
        let warm_up =
            phase(&self.tree, &options, known, "warming up", options.warm_up(), generators, &|_| {
                progress(Progress::WarmingUp);
            })?;
        let measured =
            phase(&self.tree, &options, known, "measuring", length, warm_up.generators, &|elapsed| {
                progress(Progress::Measuring(elapsed));
            })?;
        let counts = measured.generators.iter().flatten().map(Generator::inserted).collect();
        let new = NewKeys { first: self.first_new, counts };
        self.first_new = new.end();
        self.new.push(new);
        let (first, second) = (&warm_up.recorder, &measured.recorder);
        self.entries = self.entries + first.added + second.added - first.removed - second.removed;
        if options.check {
            progress(Progress::Checking);
            self.check()?;
        }
        let usage = self.cluster.usage().map_err(failed)?;
        let far_memory_bytes = usage.iter().map(|server| server.chunks_used * server.chunk_bytes).sum();
        Ok(Report::new(
            &options,
            self.url.clone(),
            &Measured {
                stats: measured.stats,
                recorder: measured.recorder,
                elapsed: measured.elapsed,
                entries: self.entries,
                far_memory_bytes,
                load: self.loading,
            },
        ))
    }

    /// Removes the keys that measurements have inserted, on as many threads as the load had. Returns how
    /// many there were. Leaves that have split stay as they are, unless they become so empty that they merge.
    ///
    /// # Errors
    /// Fails if a remove fails, or if a key is not there although the workload removes none.
    pub fn remove_new(&mut self) -> Result<u64, BenchError> {
        let new = std::mem::take(&mut self.new);
        let indexes: Vec<u64> = new.iter().flat_map(NewKeys::indexes).collect();
        let (abort, removed) = (AtomicBool::new(false), AtomicU64::new(0));
        let threads = self.options.threads;
        on_threads(vec![(); threads], &abort, &mut || Ok(()), |thread, ()| {
            // Thread t removes every key number t, t + threads, and so on.
            let mine: Vec<u64> = indexes.iter().copied().skip(thread).step_by(threads).collect();
            let client = self.tree.client().map_err(removing)?;
            for batch in mine.chunks(REMOVED_AT_ONCE) {
                if abort.load(Ordering::Relaxed) {
                    break;
                }
                removed.fetch_add(self.remove(&client, batch)?, Ordering::Relaxed);
            }
            Ok(())
        })?;
        let removed = removed.into_inner();
        self.entries -= removed;
        Ok(removed)
    }

    /// Removes the keys of these indexes. Returns how many were there.
    fn remove(&self, client: &RawClient, indexes: &[u64]) -> Result<u64, BenchError> {
        let key = |&index: &u64| {
            let mut key = vec![0; self.keys.key_size()];
            self.keys.write_key(index, &mut key);
            key
        };
        let keys: Vec<Vec<u8>> = indexes.iter().map(key).collect();
        let answers = client.remove_many(&keys).map_err(|error| removing(error.first().1.clone()))?;
        let mut removed = 0;
        for (answer, &index) in answers.iter().zip(indexes) {
            match answer {
                Some(_) => removed += 1,
                None if self.options.removes > 0 => {}
                None => return Err(BenchError::Wrong { what: "an inserted key was not there", index }),
            }
        }
        Ok(removed)
    }

    /// Checks the tree's invariants and number of entries.
    ///
    /// # Errors
    /// Fails if the tree is damaged, has other entries than the answers to its clients say, or cannot be
    /// read.
    pub fn check(&self) -> Result<(), BenchError> {
        let check = self.tree.check().map_err(failed)?;
        if let Some(first) = check.broken.first() {
            return Err(BenchError::Broken { count: check.broken_count, first: first.invariant });
        }
        if check.entries != self.entries {
            return Err(BenchError::Entries { found: check.entries, expected: self.entries });
        }
        Ok(())
    }

    /// Returns how long the load took.
    pub fn load_time(&self) -> Duration {
        self.loading
    }

    /// Drops the tree, unless its cluster ends with it. Then returns `outcome`.
    ///
    /// # Errors
    /// Fails if the tree is left behind, or with the error of `outcome`.
    pub fn close_after<T>(self, outcome: Result<T, BenchError>) -> Result<T, BenchError> {
        if is_private(&self.url) {
            return outcome;
        }
        match (self.cluster.drop_tree(&self.name), outcome) {
            (Ok(_), outcome) => outcome,
            (Err(error), outcome) => {
                Err(BenchError::Left { tree: self.name, error, after: outcome.err().map(Box::new) })
            }
        }
    }
}

fn failed(error: Error) -> BenchError {
    BenchError::Operation { phase: "checking", error }
}

fn removing(error: Error) -> BenchError {
    BenchError::Operation { phase: "removing new keys", error }
}

/// Whether the memory of the cluster belongs to this process.
fn is_private(url: &str) -> bool {
    url.starts_with("embedded:")
}

fn of_variant(options: &BenchOptions) -> ClusterOptions {
    ClusterOptions::new().techniques(options.variant.techniques()).cache_bytes(options.cache_bytes)
}

/// Returns a name that no other tree has, so that a run never touches another tree.
fn own_name() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("sherman-bench-{}-{:x}-{number}", std::process::id(), since.as_nanos())
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

/// Makes the generators of all clients, by thread. Their new keys have indexes from `first_new` on.
fn generators(options: &BenchOptions, plan: &BenchPlan, first_new: u64) -> Vec<Vec<Generator>> {
    let clients = options.clients() as u64;
    let of = |client: usize| {
        let demand = options.demand();
        Generator::new(demand, plan.keys, plan.zipf, options.seed, client as u64, clients)
            .inserting_from(first_new)
    };
    let of_thread =
        |thread| (0..options.coroutines).map(|slot| of(thread * options.coroutines + slot)).collect();
    (0..options.threads).map(of_thread).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variant::Variant;

    const KEYS: u64 = 5_000;

    fn small() -> BenchOptions {
        BenchOptions { keys: KEYS, threads: 2, check: true, ..BenchOptions::default() }
    }

    fn write_only(threads: usize, coroutines: usize) -> Measurement {
        let (workload, length) = (Workload::WriteOnly, Length::Operations(3_000));
        Measurement { workload, zipf: 0.99, threads, coroutines, batch: 1, length, seed: 1 }
    }

    #[test]
    fn measurements_insert_different_keys_and_all_of_these_are_removed() {
        let mut tree = Loaded::new(&small(), &|_| ()).expect("loaded");
        let mut entries = Vec::new();
        for clients in [(1, 1), (2, 1), (2, 3)] {
            // A key that an earlier measurement has inserted would be a wrong answer.
            let report = tree.measure(&write_only(clients.0, clients.1), &|_| ()).expect("measured");
            entries.push(report.entries);
        }
        assert!(entries[0] > KEYS + 900 && entries.is_sorted(), "{entries:?}");
        assert_eq!(tree.remove_new().expect("removed"), entries[2] - KEYS);
        tree.check().expect("the tree has its keys again");
        assert_eq!((tree.entries, tree.remove_new().expect("nothing to remove")), (KEYS, 0));
        let report = tree.measure(&write_only(2, 1), &|_| ()).expect("measured");
        assert!(report.entries > KEYS + 900);
    }

    #[test]
    fn batches_do_the_same_work_and_check_every_answer() {
        let mut tree = Loaded::new(&small(), &|_| ()).expect("loaded");
        let writes = Measurement { batch: 100, ..write_only(2, 1) };
        let report = tree.measure(&writes, &|_| ()).expect("measured");
        assert_eq!((report.operations, report.batch), (3_000, 100));
        assert!(report.entries > KEYS + 900 && report.latency_us.is_empty());
        assert_eq!(tree.remove_new().expect("removed"), report.entries - KEYS);
        let reads = Measurement { workload: Workload::ReadOnly, ..writes };
        assert_eq!(tree.measure(&reads, &|_| ()).expect("measured").operations, 3_000);
        // A key that is gone is a wrong answer.
        let (index, mut key) = (0, vec![0; tree.keys.key_size()]);
        tree.keys.write_key(index, &mut key);
        tree.tree.client().and_then(|client| client.remove(&key)).expect("removed");
        let error = tree.measure(&reads, &|_| ()).expect_err("the hottest key is gone");
        assert!(matches!(error, BenchError::Wrong { index: 0, .. }), "{error}");
        let mixed = Measurement { workload: Workload::WriteIntensive, ..writes };
        assert_eq!(tree.measure(&mixed, &|_| ()).expect_err("refused").bad_option(), Some("batch"));
    }

    #[test]
    fn trees_of_two_variants_lie_in_one_cluster() {
        let of = |variant| BenchOptions { variant, ..small() };
        let mut old = Loaded::new(&of(Variant::Stamped), &|_| ()).expect("loaded");
        let mut new = old.beside(&of(Variant::Ours), &|_| ()).expect("loaded");
        let measure = |tree: &mut Loaded| tree.measure(&write_only(1, 4), &|_| ()).expect("measured");
        let (first, second) = (measure(&mut old), measure(&mut new));
        assert_eq!((first.format, second.format), ("line-stamped", "line-hashed"));
        assert_eq!((first.entries, first.cluster), (second.entries, second.cluster));
        let gone = new.remove_new().expect("removed");
        assert_eq!(gone, first.entries - KEYS);
        new.check().expect("the tree has its keys again");
        old.check().expect("the other tree still has its new keys");
        assert_eq!(new.close_after(Ok(7)).expect("closed"), 7);
    }

    #[test]
    fn a_second_tree_that_cannot_fit_is_refused() {
        let cluster = Some("embedded:?memory=50MiB".to_owned());
        let tree = Loaded::new(&BenchOptions { cluster, ..small() }, &|_| ()).expect("loaded");
        let error = tree.beside(&BenchOptions { keys: 5_000_000, ..small() }, &|_| ()).expect_err("refused");
        assert_eq!(error.bad_option(), Some("cluster"), "{error}");
    }
}
