//! Bulk load: a sorted sequence becomes the contents of an empty tree, in one step.
//!
//! The calling thread runs the caller's iterator and cuts the entries into batches of leaves. It writes the
//! batches itself or, with several threads, sends them to writer threads through a bounded channel. Then it
//! writes the levels above, then one swap replaces the root. Any failure before the swap, including a panic
//! of the iterator, frees all memory of the load.

use crate::cluster::{AnyEndpoint, Cluster};
use crate::identity::{Identity, Seated};
use sherman_core::{Batch, Error, Loading, TreeState, Worker, Written};
use sherman_executor::block_on;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;

/// Options of a bulk load.
#[derive(Clone, Debug, PartialEq)]
pub struct BulkOptions {
    fill: f64,
    threads: usize,
}

impl Default for BulkOptions {
    fn default() -> Self {
        Self { fill: 0.8, threads: 1 }
    }
}

impl BulkOptions {
    /// The defaults: nodes filled to 80 %, one thread.
    pub fn new() -> Self {
        Self::default()
    }

    /// How full the nodes become, from 0.5 to 1; other values are clamped. Full nodes save memory, but the
    /// first insert splits them.
    pub fn fill(mut self, fill: f64) -> Self {
        self.fill = fill;
        self
    }

    /// Number of threads that write, at least one. The iterator runs only on the calling thread.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }
}

/// A load in progress. Dropping it frees its memory unless the load is completed.
struct Load<'w> {
    worker: &'w Worker<AnyEndpoint>,
    tree: &'w TreeState,
    loading: Loading,
    completed: bool,
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        if !self.completed {
            let op = self.worker.op();
            block_on(self.worker.endpoint(), self.loading.abandon(&op, self.tree));
        }
    }
}

/// Takes an entry. Returns whether it takes more.
type Take<'t> = dyn FnMut(&[u8], &[u8]) -> Result<bool, Error> + 't;

/// Passes the next entry on. Returns false if there is none, and otherwise what the taker returned.
///
/// The caller's iterator is behind this type, so that its program does not compile the whole load again.
type Entries<'e> = dyn FnMut(&mut Take<'_>) -> Result<bool, Error> + 'e;

/// Loads `entries` into `tree`. The load fails if the identity ends meanwhile, because the iterator cannot
/// run a second time.
pub(crate) fn load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    cluster: &Cluster,
    tree: &TreeState,
    entries: impl IntoIterator<Item = (K, V)>,
    options: &BulkOptions,
) -> Result<u64, Error> {
    let mut entries = entries.into_iter();
    let mut entries = |take: &mut Take<'_>| match entries.next() {
        Some((key, value)) => take(key.as_ref(), value.as_ref()),
        None => Ok(false),
    };
    load_on(cluster, tree, &mut entries, options)
}

fn load_on(
    cluster: &Cluster,
    tree: &TreeState,
    entries: &mut Entries<'_>,
    options: &BulkOptions,
) -> Result<u64, Error> {
    let worker = cluster.seated()?;
    let client = worker.compute().client();
    load_with(&worker, tree, entries, options).map_err(|error| match error.ends_identity(client) {
        true if cluster.rejoins_by_itself() => Error::LoadInterrupted,
        _ => error,
    })
}

fn load_with(
    worker: &Seated,
    tree: &TreeState,
    entries: &mut Entries<'_>,
    options: &BulkOptions,
) -> Result<u64, Error> {
    // The swap of the root checks this again. The early check avoids a long load for nothing.
    if !block_on(worker.endpoint(), async { worker.op().is_empty(tree).await })? {
        return Err(Error::NotEmpty);
    }
    let mut load = Load { worker, tree, loading: Loading::new(tree, options.fill), completed: false };
    // On every path the threads have ended before the memory is freed.
    let written = if options.threads <= 1 {
        let mut written = Vec::new();
        cut(&mut load, tree, entries, |batch| {
            written.push(write(worker, tree, &batch)?);
            Ok(true)
        })?;
        written
    } else {
        write_in_threads(&worker.identity, tree, &mut load, entries, options.threads)?
    };
    // `complete_load` frees the memory itself if it fails.
    load.completed = true;
    block_on(worker.endpoint(), async { worker.op().complete_load(tree, &mut load.loading, written).await })
}

/// Writes one batch, with its own deadline.
fn write(worker: &Worker<AnyEndpoint>, tree: &TreeState, batch: &Batch) -> Result<Written, Error> {
    block_on(worker.endpoint(), async { worker.op().write_leaves(tree, batch).await })
}

/// Cuts `entries` into batches and passes them to `write`, until it returns false.
fn cut(
    load: &mut Load<'_>,
    tree: &TreeState,
    entries: &mut Entries<'_>,
    mut write: impl FnMut(Batch) -> Result<bool, Error>,
) -> Result<(), Error> {
    let Load { worker, loading, .. } = load;
    let (op, endpoint) = (worker.op(), worker.endpoint());
    let mut goes_on = true;
    while entries(&mut |key, value| {
        if let Some(batch) = block_on(endpoint, loading.push(&op, tree, key, value))? {
            goes_on = write(batch)?;
        }
        Ok(goes_on)
    })? {}
    if !goes_on {
        return Ok(());
    }
    for batch in block_on(endpoint, loading.finish(&op))?.into_iter().flatten() {
        if !write(batch)? {
            break;
        }
    }
    Ok(())
}

/// Outcomes of the batches that the threads wrote, with the batch numbers.
type Outcomes = Mutex<Vec<(usize, Result<Written, Error>)>>;

fn write_in_threads(
    identity: &Identity,
    tree: &TreeState,
    load: &mut Load<'_>,
    entries: &mut Entries<'_>,
    threads: usize,
) -> Result<Vec<Written>, Error> {
    let outcomes = Outcomes::default();
    let (batches, queue) = sync_channel(2 * threads);
    let queue = Arc::new(Mutex::new(queue));
    let cutting = std::thread::scope(|scope| {
        // Dropped at the end of this closure or by a panic in it. That ends the threads.
        let batches: SyncSender<(usize, Batch)> = batches;
        for _ in 0..threads {
            let worker = identity.worker()?;
            let (queue, outcomes) = (Arc::clone(&queue), &outcomes);
            let thread = Builder::new().name("sherman-load".to_owned());
            let spawned = thread.spawn_scoped(scope, move || write_batches(&worker, tree, &queue, outcomes));
            spawned.map_err(|error| Error::Thread { kind: error.kind() })?;
        }
        // From here only the threads own the receiver. When all threads have ended, a send fails.
        drop(queue);
        let mut number = 0;
        cut(load, tree, entries, |batch| {
            number += 1;
            // The send fails after a thread has failed, because then all threads end.
            Ok(batches.send((number, batch)).is_ok())
        })
    });
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_unstable_by_key(|&(number, _)| number);
    let written = outcomes.into_iter().map(|(_, outcome)| outcome).collect::<Result<Vec<_>, _>>()?;
    cutting.map(|()| written)
}

/// Writes batches until none is left, or until any thread fails.
fn write_batches(
    worker: &Worker<AnyEndpoint>,
    tree: &TreeState,
    queue: &Mutex<Receiver<(usize, Batch)>>,
    outcomes: &Outcomes,
) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((number, batch)) = next else { return };
        let outcome = write(worker, tree, &batch);
        let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = outcome.is_err() || outcomes.iter().any(|(_, outcome)| outcome.is_err());
        outcomes.push((number, outcome));
        drop(outcomes);
        if failed {
            return;
        }
    }
}
